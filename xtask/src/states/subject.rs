//! The server, and the client that it must serve.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::line::{Line, Reply};
use crate::process::{KilledOnDrop, TempDir, ready_address, ready_lines};

/// The start of a server with much data, and its end, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(2);
/// Time in which a server that has lost a connection shows whether it has ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);
/// What the program prints about a panic; a debug build may survive one.
const PANIC: &str = "panicked at";

#[derive(Debug)]
pub(super) struct Subject {
    pub(super) address: String,
    pub(super) cql_address: String,
    child: KilledOnDrop,
    stderr: Option<JoinHandle<String>>,
    directory: TempDir,
}

impl Subject {
    pub(super) fn start(program: &Path, options: &[&str]) -> Result<Subject> {
        let directory = TempDir::new("states")?;
        let (child, stderr) = spawn(program, options, directory.path())?;
        let (address, cql_address) = (String::new(), String::new());
        let mut subject = Subject { address, cql_address, child, stderr, directory };
        subject.until_ready()?;
        Ok(subject)
    }

    /// Starts it again on its directory.
    pub(super) fn restart(&mut self, program: &Path, options: &[&str]) -> Result<()> {
        (self.child, self.stderr) = spawn(program, options, self.directory.path())?;
        self.until_ready().context("restart")
    }

    fn until_ready(&mut self) -> Result<()> {
        match ready_lines(&mut self.child.0)?.recv_timeout(START_TIMEOUT) {
            Ok(line) => {
                self.address = ready_address(&line, "resp").context("no address of RESP")?;
                self.cql_address = ready_address(&line, "cql").context("no address of CQL")?;
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => bail!("the server is not ready"),
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.reason(Error::msg("the server does not start")))
            }
        }
    }

    /// SIGTERM: it must end cleanly.
    pub(super) fn stop(&mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM).context("signal the server")?;
        let status = self.ended_within(START_TIMEOUT)?.context("it does not end after SIGTERM")?;
        let stderr = self.stderr();
        ensure!(status == "exit status: 0", "after SIGTERM: {status}: {stderr}");
        ensure!(!stderr.contains(PANIC), "it panicked: {stderr}");
        Ok(())
    }

    /// Why a client has failed: the end of the server, if it has ended.
    pub(super) fn reason(&mut self, error: Error) -> Error {
        match self.ended_within(END_TIMEOUT) {
            Ok(Some(status)) => {
                let stderr = self.stderr();
                error.context(format!("the server has ended: {status}: {stderr}"))
            }
            Ok(None) => error,
            Err(other) => error.context(other),
        }
    }

    fn ended_within(&mut self, timeout: Duration) -> Result<Option<String>> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.0.try_wait()? {
                return Ok(Some(status.to_string()));
            }
            if began.elapsed() > timeout {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    /// What it has printed, once it has ended: from its first panic on, or the end.
    fn stderr(&mut self) -> String {
        const LINES_MAX: usize = 20;
        let text = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.len().saturating_sub(LINES_MAX);
        let start = lines.iter().position(|line| line.contains(PANIC)).unwrap_or(end);
        lines.into_iter().skip(start).take(LINES_MAX).collect::<Vec<_>>().join("\n")
    }
}

fn spawn(
    program: &Path,
    options: &[&str],
    directory: &Path,
) -> Result<(KilledOnDrop, Option<JoinHandle<String>>)> {
    let mut child: Child = Command::new(program)
        .args(["serve", "--resp", "127.0.0.1:0", "--cql", "127.0.0.1:0", "--reactors", "2"])
        .args(["--log-level", "warn", "--durability", "interval"])
        .args(options)
        .arg("--dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut pipe = child.stderr.take().context("stderr is a pipe")?;
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe fails when the process has ended: the bytes before that are complete.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    Ok((KilledOnDrop(child), Some(stderr)))
}

/// A client on a thread of its own that talks and waits for each answer.
#[derive(Debug)]
pub(super) struct Bystander {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Bystander {
    pub(super) fn start(address: &str) -> Result<Bystander> {
        let (mut line, stops) = (Line::open(address)?, Arc::new(AtomicBool::new(false)));
        let shared = Arc::clone(&stops);
        let thread = thread::spawn(move || {
            let mut slowest = Duration::ZERO;
            for round in 0_u64.. {
                let (began, text) = (Instant::now(), round.to_string());
                let echoed = line.ask(&["ECHO", &text]).context("the bystander")?;
                ensure!(echoed == Reply::Text(text.into_bytes()), "ECHO answers {echoed:?}");
                line.ask(&["EXISTS", "bystander"]).context("the bystander")?;
                slowest = slowest.max(began.elapsed());
                if shared.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(POLL);
            }
            Ok(slowest)
        });
        Ok(Bystander { stops, thread })
    }

    /// Ends it. Returns its slowest round.
    pub(super) fn stop(self) -> Result<Duration> {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the bystander panicked")?
    }
}
