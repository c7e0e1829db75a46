//! The server under attack: its process, its resource use, and its end.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::{HANG_TIMEOUT, OPTIONS, until};
use crate::process::{KilledOnDrop, TempDir, myriad, ready_address, ready_lines};
use crate::resp::{Connection, Info};

/// Memory that an allocator may keep after an attack.
const SLACK_BYTES: u64 = 96 << 20;
/// Ticks per second of the times in `/proc`, the same on every Linux.
const TICKS_PER_S: u64 = 100;

/// A server under attack.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) address: String,
    /// Its CQL address, if requested.
    pub(super) cql_address: Option<String>,
    /// Its HTTP address, if requested.
    pub(super) http_address: Option<String>,
    /// None: an external server.
    running: Option<Running>,
    /// The directory of the server, unless the check supplied one.
    _directory: Option<TempDir>,
}

#[derive(Debug)]
struct Running {
    child: KilledOnDrop,
    stderr: Option<JoinHandle<String>>,
}

/// How a program ended, and its output.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stderr: String,
}

impl Subject {
    /// An external server.
    pub(super) fn at(address: &str) -> Subject {
        Subject {
            address: address.to_owned(),
            cql_address: None,
            http_address: None,
            running: None,
            _directory: None,
        }
    }

    /// A server on an empty directory.
    pub(super) fn start(root: &Path, options: &[&str]) -> Result<Subject> {
        let directory = TempDir::new("hostile")?;
        let subject = Self::start_on(root, directory.path(), options, &[])?;
        Ok(Subject { _directory: Some(directory), ..subject })
    }

    /// A server on `directory`, started by `prlimit` with `limits` if there are any.
    pub(super) fn start_on(
        root: &Path,
        directory: &Path,
        options: &[&str],
        limits: &[&str],
    ) -> Result<Subject> {
        let mut child = command(root, directory, options, limits)?
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let ready = ready_lines(&mut child)?;
        let mut running = Running::new(child)?;
        match ready.recv_timeout(HANG_TIMEOUT) {
            Ok(line) => Ok(Subject {
                address: ready_address(&line, "resp").context("it listens for RESP")?,
                cql_address: ready_address(&line, "cql"),
                http_address: ready_address(&line, "http"),
                running: Some(running),
                _directory: None,
            }),
            Err(RecvTimeoutError::Timeout) => bail!("the server is not ready: it hangs"),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = running.wait()?;
                bail!("the server does not start: {}: {}", ended.status, ended.stderr.trim())
            }
        }
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address)
    }

    /// Resident memory of the process.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        match &self.running {
            Some(running) => running.status_bytes("VmRSS:"),
            None => self.info_number("used_memory_rss"),
        }
    }

    /// Peak memory of the process. Only for a server started here.
    pub(super) fn peak_bytes(&self) -> Result<u64> {
        self.running.as_ref().context("not our server")?.status_bytes("VmHWM:")
    }

    /// Processor time of the process, in milliseconds. Only for a server started here.
    pub(super) fn cpu_ms(&self) -> Result<u64> {
        let running = self.running.as_ref().context("not our server")?;
        let text = fs::read_to_string(format!("/proc/{}/stat", running.child.0.id()))?;
        // Source: proc_pid_stat(5): utime and stime are the 12th and 13th after the name.
        let (_, rest) = text.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).context("short")?.parse()?) };
        Ok((ticks(11)? + ticks(12)?) * 1000 / TICKS_PER_S)
    }

    /// The directory in `/proc` of one of its threads. Only for a server started here.
    pub(super) fn thread(&self, name: &str) -> Result<PathBuf> {
        let running = self.running.as_ref().context("not our server")?;
        for thread in fs::read_dir(format!("/proc/{}/task", running.child.0.id()))? {
            let path = thread?.path();
            if fs::read_to_string(path.join("comm"))?.trim_end() == name {
                return Ok(path);
            }
        }
        bail!("the server has no thread {name}")
    }

    /// Limits descriptors: only `left` more than the process has open now.
    pub(super) fn limit_descriptors(&self, left: u64) -> Result<()> {
        let running = self.running.as_ref().context("not our server")?;
        let open = fs::read_dir(format!("/proc/{}/fd", running.child.0.id()))?.count() as u64;
        let limit = Rlimit { current: Some(open + left), maximum: Some(open + left) };
        prlimit(Some(Pid::from_child(&running.child.0)), Resource::Nofile, limit)
            .map(drop)
            .context("limit the server's descriptors")
    }

    /// The complete INFO.
    pub(super) fn info(&self) -> Result<Info> {
        self.connect()?.info("everything")
    }

    pub(super) fn info_number(&self, name: &str) -> Result<u64> {
        self.info()?.number(name)
    }

    /// Waits until only `count` connections are left, excluding the one used for this query.
    pub(super) fn until_connections(&self, count: u64) -> Result<()> {
        until(&format!("{count} connections"), || {
            Ok(self.info_number("connected_clients")? <= count + 1)
        })
    }

    /// Waits until memory is back to about its earlier value.
    pub(super) fn until_flat(&self, before_bytes: u64) -> Result<()> {
        self.until_held(before_bytes, SLACK_BYTES)
    }

    /// Waits until memory has grown by at most this much. Freed memory stays resident for about a
    /// second, until the allocator returns it.
    pub(super) fn until_held(&self, before_bytes: u64, growth_bytes_max: u64) -> Result<()> {
        let mut held_bytes = 0;
        let settled = until("memory is flat", || {
            held_bytes = self.resident_bytes()?;
            Ok(held_bytes <= before_bytes + growth_bytes_max)
        });
        settled.with_context(|| {
            format!("{} MiB resident, before {} MiB", held_bytes >> 20, before_bytes >> 20)
        })
    }

    /// Asks the process to end.
    pub(super) fn terminate(&self) -> Result<()> {
        let running = self.running.as_ref().context("not our server")?;
        kill_process(Pid::from_child(&running.child.0), Signal::TERM).context("signal the server")
    }

    /// Waits for the end.
    pub(super) fn wait(&mut self) -> Result<Ended> {
        self.running.as_mut().context("not our server")?.wait()
    }

    /// SIGTERM: must end cleanly. An external server must still answer.
    pub(super) fn stop(self) -> Result<()> {
        if self.running.is_none() {
            return super::ask::expect_simple(&self.connect()?.call(&["PING"])?, "PONG");
        }
        self.end()
    }

    /// SIGTERM: must end cleanly.
    pub(super) fn end(mut self) -> Result<()> {
        self.terminate()?;
        let ended = self.wait()?;
        if !ended.status.success() {
            bail!("after SIGTERM the server ends with {}: {}", ended.status, ended.stderr.trim());
        }
        Ok(())
    }
}

impl Running {
    /// A process whose standard error is a pipe, which is read to its end, so that it never fills.
    fn new(mut child: Child) -> Result<Running> {
        let stderr = child.stderr.take().context("stderr was asked for as a pipe")?;
        let stderr = Some(thread::spawn(move || collect(stderr)));
        Ok(Running { child: KilledOnDrop(child), stderr })
    }

    /// A size from the process's status.
    fn status_bytes(&self, name: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.0.id());
        let text = fs::read_to_string(path).context("read the server's status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.with_context(|| format!("no {name}"))?.trim().trim_end_matches("kB");
        Ok(kib.trim().parse::<u64>()? * 1024)
    }

    /// Waits for the end; a panic is an error whatever the status.
    fn wait(&mut self) -> Result<Ended> {
        let mut status = None;
        until("the server has ended", || {
            status = self.child.0.try_wait()?;
            Ok(status.is_some())
        })?;
        let stderr = self.stderr.take().context("waited for twice")?;
        let stderr = stderr.join().ok().context("the reader of stderr panicked")?;
        if stderr.contains("panicked at") {
            bail!("the server panicked: {}", stderr.trim());
        }
        Ok(Ended { status: status.context("the program has ended")?, stderr })
    }
}

/// Starts a server that must refuse to start.
pub(super) fn refused(root: &Path, directory: &Path, options: &[&str]) -> Result<Ended> {
    let mut command = command(root, directory, options, &[])?;
    Running::new(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)?.wait()
}

fn command(root: &Path, directory: &Path, options: &[&str], limits: &[&str]) -> Result<Command> {
    let binary = myriad(root)?;
    let mut command = if limits.is_empty() {
        Command::new(&binary)
    } else {
        let mut command = Command::new("prlimit");
        command.args(limits).arg(&binary);
        command
    };
    command.arg("serve").args(OPTIONS).arg("--dir").arg(directory).args(options);
    command.stdin(Stdio::null());
    Ok(command)
}

/// The output of a pipe, as far as it can be read.
fn collect(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // A pipe fails when the process has ended: the bytes before that are complete.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
