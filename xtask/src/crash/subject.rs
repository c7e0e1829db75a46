//! The server under test as a process that is restarted repeatedly on one directory.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{KilledOnDrop, myriad, ready_address, ready_lines};
use crate::resp::{Connection, Value};

/// A server that does not accept, or has not stopped, after this time hangs.
const HANG_TIMEOUT: Duration = Duration::from_mins(1);
/// Polling interval for a process without a notification.
const POLL: Duration = Duration::from_millis(2);

/// Lines of the server's log that explain why it does not start.
const LOG_LINES: usize = 5;

/// What `--server` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// `target/release/myriad`.
    Myriad,
    /// The installed `redis-server`, which syncs every write before it answers: a check of this test.
    Redis,
    /// Myriad under durability `never`: it answers before the log is written, which this test must
    /// detect.
    Forgetful,
}

/// Settings that differ between starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) reactors: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) snapshot_log_bytes: u64,
}

/// Directories and files of a server under test.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) root: PathBuf,
    /// Created by the server.
    pub(crate) data: PathBuf,
    /// A copy of `data` from the server's last end: a restart truncates and removes files.
    pub(crate) crashed: PathBuf,
    /// Standard error of all its starts, and for redis-server also standard output.
    pub(crate) log: PathBuf,
}

/// Listening addresses of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) resp: String,
    /// None: it does not support CQL.
    pub(crate) cql: Option<String>,
}

/// A started process. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: KilledOnDrop,
    readiness: Readiness,
    log: PathBuf,
}

#[derive(Debug)]
enum Readiness {
    /// The server's `ready` lines.
    Announced(Receiver<String>),
    /// Polled by PING at this address.
    Asked(String),
}

impl Subject {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "myriad" => Ok(Self::Myriad),
            "redis" => Ok(Self::Redis),
            "forgetful" => Ok(Self::Forgetful),
            other => bail!("--server takes myriad, redis or forgetful, not {other:?}"),
        }
    }

    /// The value of `--server`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Myriad => "myriad",
            Self::Redis => "redis",
            Self::Forgetful => "forgetful",
        }
    }

    /// Starts the server, which may not accept connections yet.
    pub(crate) fn start(self, home: &Home, settings: Settings) -> Result<Process> {
        match self {
            Self::Myriad => start_myriad(home, settings, "always"),
            Self::Forgetful => start_myriad(home, settings, "never"),
            Self::Redis => start_redis(home),
        }
    }

    /// The command that starts a snapshot.
    pub(crate) fn snapshot_command(self) -> &'static str {
        match self {
            Self::Myriad | Self::Forgetful => "BGSAVE",
            Self::Redis => "BGREWRITEAOF",
        }
    }

    /// Whether a connection may request less durability.
    pub(crate) fn has_durability_by_connection(self) -> bool {
        self != Self::Redis
    }
}

impl Home {
    /// Copies `data` next to `crashed`.
    pub(crate) fn keep_data(&self) -> Result<()> {
        if self.data.exists() {
            copy_folder(&self.data, &self.crashed.with_file_name("data"))?;
        }
        Ok(())
    }

    /// Replaces `crashed` by a copy of `data`.
    pub(crate) fn keep_crashed(&self) -> Result<()> {
        if self.crashed.exists() {
            fs::remove_dir_all(&self.crashed)
                .with_context(|| format!("remove {}", self.crashed.display()))?;
        }
        if self.data.exists() {
            copy_folder(&self.data, &self.crashed)?;
        }
        Ok(())
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
        }
    }
    Ok(())
}

impl Process {
    /// Waits until the server accepts connections; returns its addresses.
    pub(crate) fn wait_ready(&mut self) -> Result<Addresses> {
        let started = Instant::now();
        while started.elapsed() < HANG_TIMEOUT {
            if let Some(addresses) = self.readiness.poll() {
                return Ok(addresses);
            }
            if let Some(status) = self.child.0.try_wait()? {
                bail!("the server does not start: {status}\n{}", last_lines(&self.log)?);
            }
        }
        bail!("the server does not accept after {HANG_TIMEOUT:?}");
    }

    /// SIGKILL.
    pub(crate) fn kill(self) -> Result<()> {
        self.kill_and(|| {})
    }

    /// SIGKILL, then `unblock`, which lets a blocked process end.
    pub(crate) fn kill_and(mut self, unblock: impl FnOnce()) -> Result<()> {
        let killed = self.child.0.kill().context("kill the server");
        unblock();
        killed?;
        self.child.0.wait().context("wait for the killed server").map(drop)
    }

    /// SIGTERM; returns the exit status.
    pub(crate) fn terminate(mut self) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM).context("signal the server")?;
        let started = Instant::now();
        while started.elapsed() < HANG_TIMEOUT {
            if let Some(status) = self.child.0.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
        bail!("the server still runs {HANG_TIMEOUT:?} after SIGTERM");
    }
}

impl Readiness {
    fn poll(&self) -> Option<Addresses> {
        match self {
            Self::Announced(lines) => {
                // No line within this time: the caller checks whether the process is still running.
                lines.recv_timeout(POLL).ok().as_deref().and_then(ready_addresses)
            }
            Self::Asked(address) => {
                thread::sleep(POLL);
                let answer = Connection::open(address).and_then(|mut it| it.call(&["PING"]));
                let is_ready = matches!(answer, Ok(Value::Simple(text)) if text == b"PONG");
                is_ready.then(|| Addresses { resp: address.clone(), cql: None })
            }
        }
    }
}

/// `ready resp=127.0.0.1:6379 cql=127.0.0.1:9042`
fn ready_addresses(line: &str) -> Option<Addresses> {
    Some(Addresses { resp: ready_address(line, "resp")?, cql: ready_address(line, "cql") })
}

fn last_lines(log: &Path) -> Result<String> {
    let text = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}

fn start_myriad(home: &Home, settings: Settings, durability: &str) -> Result<Process> {
    let mut command = Command::new(myriad(&home.root)?);
    command.args(["serve", "--resp", "127.0.0.1:0", "--cql", "127.0.0.1:0"]);
    command.args(["--durability", durability, "--dir"]).arg(&home.data).stdout(Stdio::piped());
    for (option, value) in [
        ("--reactors", u64::from(settings.reactors)),
        ("--log-segment-bytes", settings.segment_bytes),
        ("--snapshot-log-bytes", settings.snapshot_log_bytes),
    ] {
        command.args([option, &value.to_string()]);
    }
    let mut child = spawn(&mut command, home)?;
    let readiness = Readiness::Announced(ready_lines(&mut child.0)?);
    Ok(Process { child, readiness, log: home.log.clone() })
}

fn start_redis(home: &Home) -> Result<Process> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(&home.data)
        .stdout(log_file(home)?);
    let child = spawn(&mut command, home)?;
    Ok(Process {
        child,
        readiness: Readiness::Asked(format!("127.0.0.1:{port}")),
        log: home.log.clone(),
    })
}

fn spawn(command: &mut Command, home: &Home) -> Result<KilledOnDrop> {
    let shown = command.get_program().to_owned();
    let spawned = command.stdin(Stdio::null()).stderr(log_file(home)?).spawn();
    let spawned = spawned.with_context(|| format!("start {}", Path::new(&shown).display()));
    Ok(KilledOnDrop(spawned?))
}

fn log_file(home: &Home) -> Result<Stdio> {
    let opened = OpenOptions::new().create(true).append(true).open(&home.log);
    Ok(opened.with_context(|| format!("open {}", home.log.display()))?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;

    #[test]
    fn the_copy_is_of_the_last_end() {
        let folder = TempDir::new("home").unwrap();
        let [data, crashed, log] = ["data", "crashed", "log"].map(|name| folder.path().join(name));
        let home = Home { root: PathBuf::new(), data, crashed, log };
        fs::create_dir_all(home.data.join("inner")).unwrap();
        fs::write(home.data.join("inner/old"), "1").unwrap();
        home.keep_crashed().unwrap();
        assert_eq!(fs::read(home.crashed.join("inner/old")).unwrap(), b"1");
        fs::remove_file(home.data.join("inner/old")).unwrap();
        fs::write(home.data.join("new"), "2").unwrap();
        home.keep_crashed().unwrap();
        assert!(!home.crashed.join("inner/old").exists());
        assert_eq!(fs::read(home.crashed.join("new")).unwrap(), b"2");
    }

    #[test]
    fn subjects_have_names() {
        for subject in [Subject::Myriad, Subject::Redis, Subject::Forgetful] {
            assert_eq!(Subject::parse(subject.name()).unwrap(), subject);
        }
        assert!(Subject::parse("127.0.0.1:6379").is_err());
    }
}
