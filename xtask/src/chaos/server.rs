//! A server in a namespace, with its data, which outlasts the process.

use std::fs::{self, File, create_dir};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::clock;
use super::network::{self, Network};
use crate::process::myriad;
use crate::resp::{Connection, Info, Value};

const RESP_PORT: u16 = 6379;
const CQL_PORT: u16 = 9042;
/// How far the clocks of the servers are ahead of the machine's, in seconds.
const CLOCKS_S: [i64; 4] = [-3, 4, 0, 2];
/// The longest time between two clocks.
pub(super) const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(7);
const _: () = {
    let (mut one, max) = (0, CLOCK_DIFFERENCE_MAX.as_secs().cast_signed());
    while one < CLOCKS_S.len() {
        let mut other = 0;
        while other < CLOCKS_S.len() {
            assert!(CLOCKS_S[one] - CLOCKS_S[other] <= max);
            other += 1;
        }
        one += 1;
    }
};
const START_TIMEOUT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);
/// A server that does not answer the test for this long is stopped, or hangs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines of a log that are shown.
const LOG_LINES_MAX: usize = 5;

/// Where clients reach a server.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) resp: String,
    pub(super) cql: String,
}

/// Where another server finds its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: String,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) number: usize,
    pub(super) addresses: Addresses,
    pub(super) address: ServerAddress,
    binary: PathBuf,
    /// `serve` or `hub`, and options.
    arguments: Vec<String>,
    namespace: String,
    directory: PathBuf,
    /// None: it was killed.
    child: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if the process has already ended, which is the goal.
        let _ = self.kill();
    }
}

impl Server {
    /// Starts a server on an empty directory. `arguments`: `serve` or `hub`, and options.
    pub(super) fn start(
        root: &Path,
        network: &Network,
        number: usize,
        data: &Path,
        arguments: &[String],
    ) -> Result<Server> {
        let directory = data.join(number.to_string());
        create_dir(&directory)?;
        let mut server = Server {
            number,
            addresses: Addresses {
                resp: network::client_address(number, RESP_PORT),
                cql: network::client_address(number, CQL_PORT),
            },
            address: ServerAddress {
                host: network::server_address(number),
                port: RESP_PORT.to_string(),
            },
            binary: myriad(root)?,
            arguments: arguments.to_vec(),
            namespace: network.namespace(number),
            directory,
            child: None,
        };
        server.launch(None)?;
        Ok(server)
    }

    /// The number that operators use.
    pub(super) fn id(&self) -> usize {
        self.number + 1
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// Starts the process on the data, and waits until it answers.
    pub(super) fn launch(&mut self, master: Option<&ServerAddress>) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(&self.binary).args(&self.arguments);
        command.args(["--resp", &format!("0.0.0.0:{RESP_PORT}")]);
        command.args(["--cql", &format!("0.0.0.0:{CQL_PORT}"), "--protected-mode", "no"]);
        command.args(["--enable-debug-command", "yes"]).arg("--dir").arg(&self.directory);
        // DEBUG DIGEST reads all elements, of which a long run makes more than a command may read.
        command.args(["--elements-per-command-max", "0"]);
        if let Some(ServerAddress { host, port }) = master {
            command.args(["--replicaof", &format!("{host} {port}")]);
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().context("start a server")?);
        let started = Instant::now();
        // An error is an answer: a replica may be loading.
        while Connection::open(&self.addresses.resp).and_then(|mut it| it.call(&["PING"])).is_err()
        {
            let child = self.child.as_mut().context("it was started")?;
            if let Some(status) = child.try_wait()? {
                bail!("server {} ended at its start: {status}", self.id());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("server {} did not answer within {START_TIMEOUT:?}", self.id());
            }
            std::thread::sleep(POLL);
        }
        let child = self.child.as_ref().context("it was started")?;
        clock::set(Pid::from_child(child), CLOCKS_S[self.number])?;
        self.check_clock()
    }

    /// Fails if the server does not see the time that was set.
    fn check_clock(&self) -> Result<()> {
        let before = unix_seconds()?;
        let reply = self.ask(&["TIME"])?;
        let after = unix_seconds()?;
        let Value::Array(Some(parts)) = &reply else { bail!("TIME is answered {reply:?}") };
        let Some(Value::Bulk(Some(seconds))) = parts.first() else {
            bail!("TIME is answered {reply:?}")
        };
        let found: i64 = str::from_utf8(seconds)?.parse()?;
        let ahead = CLOCKS_S[self.number];
        ensure!(
            (before + ahead..=after + ahead).contains(&found),
            "the clock of server {} is {found}, not {ahead} s ahead of {after}",
            self.id()
        );
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(child) = &self.child else { return Ok(()) };
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Halts the process.
    pub(super) fn halt(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Whether the process has ended by itself.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_some()),
            None => Ok(false),
        }
    }

    pub(super) fn ask(&self, request: &[&str]) -> Result<Value> {
        let mut connection = Connection::open_within(&self.addresses.resp, REPLY_TIMEOUT)?;
        match connection.call(request)? {
            Value::Error(text) => bail!("{request:?}: {}", String::from_utf8_lossy(&text)),
            reply => Ok(reply),
        }
    }

    /// A section of INFO.
    pub(super) fn info(&self, section: &str) -> Result<Info> {
        Connection::open_within(&self.addresses.resp, REPLY_TIMEOUT)?.info(section)
    }

    /// Lines of its log that no test may cause.
    pub(super) fn errors(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.log_path())?;
        let is_error = |line: &&str| line.contains(" ERROR ") || line.contains("panicked");
        let lines = log.lines().filter(is_error).take(LOG_LINES_MAX);
        Ok(lines.map(|line| format!("log of server {}: {line}", self.id())).collect())
    }

    /// The number of files of writes that were set aside.
    pub(super) fn set_aside(&self) -> Result<usize> {
        let folder = self.directory.join("set-aside");
        if !folder.exists() {
            return Ok(0);
        }
        Ok(fs::read_dir(folder)?.count())
    }
}

fn unix_seconds() -> Result<i64> {
    Ok(i64::try_from(UNIX_EPOCH.elapsed()?.as_secs())?)
}
