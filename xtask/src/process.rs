//! Servers under test: started on a free loopback port with an empty directory, and stopped when
//! the value is dropped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::resp::{Connection, Value};

/// The program under test.
pub(crate) const MYRIAD: &str = "target/release/myriad";
/// The lab, which measures the program in its own folder.
pub(crate) const LAB: &str = "target/release/myriad-lab";
/// The lab as built for its own tests, for checks that judge no measured value.
pub(crate) const TEST_LAB: &str = "target/debug/myriad-lab";
/// A server that does not accept within this time has failed: a busy machine may halt it for seconds.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Polling interval for the start of a server that does not announce it.
const START_POLL: Duration = Duration::from_millis(10);
/// A free port may be taken between finding it and using it.
const START_ATTEMPTS: usize = 5;

/// The server whose behavior a transcript or suite expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Redis,
    Myriad,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Myriad => "myriad",
        }
    }
}

/// What `--server` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The installed `redis-server`, started by us.
    Redis,
    /// `target/release/myriad`, started by us.
    Myriad,
    /// A running server, at `host:port`.
    Address(String),
}

impl Target {
    /// Reads the value of `--server`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "redis" => Ok(Self::Redis),
            "myriad" => Ok(Self::Myriad),
            address if address.contains(':') => Ok(Self::Address(address.to_owned())),
            other => bail!("--server takes redis, myriad or HOST:PORT, not {other:?}"),
        }
    }
}

/// A running server. Stops when dropped, if it was started here.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    /// Its CQL address, if it supports CQL.
    pub(crate) cql_address: Option<String>,
    /// Its HTTP address, if it supports HTTP.
    pub(crate) http_address: Option<String>,
    pub(crate) dialect: Dialect,
    /// The process, which ends with the value; none: an external server.
    running: Option<Running>,
}

impl Server {
    /// Its process; none: an external server.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.0.id())
    }

    /// Starts `target`, or identifies a running one.
    pub(crate) fn start(root: &Path, target: &Target) -> Result<Self> {
        Self::start_with(root, target, &[])
    }

    /// Like [`Server::start`]; a Myriad gets these options.
    pub(crate) fn start_with(root: &Path, target: &Target, options: &[&str]) -> Result<Self> {
        match target {
            Target::Redis => start_redis(),
            Target::Myriad => start_myriad(root, options),
            Target::Address(address) => Ok(Self {
                address: address.clone(),
                cql_address: None,
                http_address: None,
                dialect: ask_dialect(address)?,
                running: None,
            }),
        }
    }
}

impl Server {
    /// Whether it was started here, and so has no other clients.
    pub(crate) fn is_ours(&self) -> bool {
        self.running.is_some()
    }

    /// Starts Myriad on an existing directory, which is kept when the server ends.
    pub(crate) fn start_on(root: &Path, directory: &Path) -> Result<Self> {
        launch_myriad(root, &[], directory, None)
    }

    /// Starts Myriad with roles, whose superuser `cassandra` has this password.
    pub(crate) fn start_asking(root: &Path, password: &str) -> Result<Self> {
        let options = ["--cql-authenticator", "password", "--requirepass", password];
        Self::start_with(root, &Target::Myriad, &options)
    }
}

/// A child process and, if it owns one, its directory: both end with the value.
#[derive(Debug)]
struct Running {
    child: KilledOnDrop,
    _directory: Option<TempDir>,
}

/// A child process that ends with the value.
#[derive(Debug)]
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only if the process has already ended, which is the goal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An empty directory that is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates `<system temporary directory>/myriad-<label>-<process>-<number>`.
    pub(crate) fn new(label: &str) -> Result<Self> {
        for number in 0..1000 {
            let name = format!("myriad-{label}-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("create {}", path.display()));
                }
            }
        }
        bail!("no free name for a temporary directory");
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A remaining directory is not worth failing a finished run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn start_redis() -> Result<Server> {
    let mut last_error = None;
    for _ in 0..START_ATTEMPTS {
        match try_start_redis() {
            Ok(server) => return Ok(server),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.context("no attempt was made")?)
}

fn try_start_redis() -> Result<Server> {
    let directory = TempDir::new("redis")?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--enable-debug-command", "yes"])
        .args(["--loglevel", "warning"])
        .arg("--dir")
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("start redis-server: install Debian's redis-server, see scripts/setup.sh")?;
    let mut running = Running { child: KilledOnDrop(child), _directory: Some(directory) };
    let address = format!("127.0.0.1:{port}");
    let started = Instant::now();
    while !answers_ping(&address) {
        if let Some(status) = running.child.0.try_wait()? {
            bail!("redis-server ended at its start: {status}");
        }
        if started.elapsed() > START_TIMEOUT {
            bail!("redis-server did not answer within {START_TIMEOUT:?}");
        }
        std::thread::sleep(START_POLL);
    }
    Ok(Server {
        address,
        cql_address: None,
        http_address: None,
        dialect: Dialect::Redis,
        running: Some(running),
    })
}

fn start_myriad(root: &Path, options: &[&str]) -> Result<Server> {
    let directory = TempDir::new("server")?;
    let path = directory.path().to_owned();
    launch_myriad(root, options, &path, Some(directory))
}

/// The path of the program under test, which must have been built.
pub(crate) fn myriad(root: &Path) -> Result<PathBuf> {
    let binary = root.join(MYRIAD);
    if !binary.exists() {
        bail!("{} is missing: cargo build --release -p myriad", binary.display());
    }
    Ok(binary)
}

/// `own`: the directory, if it must be removed with the server.
fn launch_myriad(
    root: &Path,
    options: &[&str],
    directory: &Path,
    own: Option<TempDir>,
) -> Result<Server> {
    let binary = myriad(root)?;
    let child = Command::new(&binary)
        .args(["serve", "--resp", "127.0.0.1:0", "--cql", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(["--reactors", "2"])
        .args(options)
        .arg("--dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", binary.display()))?;
    let mut running = Running { child: KilledOnDrop(child), _directory: own };
    match ready_lines(&mut running.child.0)?.recv_timeout(START_TIMEOUT) {
        Ok(line) => Ok(Server {
            address: ready_address(&line, "resp").context("it listens for RESP")?,
            cql_address: ready_address(&line, "cql"),
            http_address: ready_address(&line, "http"),
            dialect: Dialect::Myriad,
            running: Some(running),
        }),
        Err(RecvTimeoutError::Timeout) => bail!("myriad was not ready within {START_TIMEOUT:?}"),
        Err(RecvTimeoutError::Disconnected) => {
            bail!("myriad ended before it was ready: {}", running.child.0.wait()?)
        }
    }
}

/// The `ready` lines of a server whose standard output is a pipe. The pipe is read to its end, so
/// that it never fills.
pub(crate) fn ready_lines(child: &mut Child) -> Result<Receiver<String>> {
    let stdout = child.stdout.take().context("stdout was asked for as a pipe")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.starts_with("ready ") {
                // The receiver is gone if the start has timed out.
                let _ = sender.send(line);
            }
        }
    });
    Ok(receiver)
}

/// `ready resp=127.0.0.1:6379 ...` -> `127.0.0.1:6379`.
pub(crate) fn ready_address(line: &str, protocol: &str) -> Option<String> {
    let mut listeners = line.split_whitespace().filter_map(|word| word.split_once('='));
    listeners.find(|(name, _)| *name == protocol).map(|(_, address)| address.to_owned())
}

fn answers_ping(address: &str) -> bool {
    let pong = Connection::open(address).and_then(|mut connection| connection.call(&["PING"]));
    matches!(pong, Ok(Value::Simple(text)) if text == b"PONG")
}

fn ask_dialect(address: &str) -> Result<Dialect> {
    match Connection::open(address)?.call(&["INFO", "server"])? {
        Value::Bulk(Some(text)) if String::from_utf8_lossy(&text).contains("myriad") => {
            Ok(Dialect::Myriad)
        }
        Value::Bulk(Some(_)) => Ok(Dialect::Redis),
        other => bail!("INFO of {address} answers {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_names_the_address() {
        let line = "ready resp=127.0.0.1:4000 cql=127.0.0.1:4001";
        assert_eq!(ready_address(line, "resp").as_deref(), Some("127.0.0.1:4000"));
        assert_eq!(ready_address(line, "cql").as_deref(), Some("127.0.0.1:4001"));
        assert_eq!(ready_address(line, "http"), None);
    }

    #[test]
    fn targets() {
        assert_eq!(Target::parse("redis").unwrap(), Target::Redis);
        assert_eq!(Target::parse("[::1]:7").unwrap(), Target::Address("[::1]:7".into()));
        assert!(Target::parse("valkey").is_err());
    }

    #[test]
    fn a_temporary_directory_goes_with_its_value() {
        let directory = TempDir::new("test").unwrap();
        let path = directory.path().to_owned();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }
}
