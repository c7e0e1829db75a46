//! The web server of an experiment: a master, which may replace itself, with its workers.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{Bench, POLL_INTERVAL, SERVER_CPU};
use crate::subject::{Scratch, available_cpus, ending_with_us, spawn_pinned, stop};

/// A master on this machine is normally ready immediately.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Workers have 10 s for pending requests.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// A running web server. Its processes are stopped on drop.
#[derive(Debug)]
pub(in crate::repro) struct Host {
    /// The first master; upgrades start others.
    child: Child,
    /// The process id of the current master.
    master: u32,
    address: SocketAddr,
    lines: Receiver<String>,
    scratch: Scratch,
}

impl Host {
    /// Starts a web server on a free port, on the core of servers.
    pub(super) fn start(bench: &Bench<'_>, options: &[&str]) -> Result<Self> {
        let words = [&["web", "--listen", "127.0.0.1:0"][..], options].concat();
        Self::start_on(bench, &words, "http=", &available_cpus(&[SERVER_CPU]))
    }

    /// Starts the program with these arguments, and waits until it prints its address after
    /// `label`.
    pub(in crate::repro) fn start_on(
        bench: &Bench<'_>,
        words: &[&str],
        label: &str,
        cpus: &[usize],
    ) -> Result<Self> {
        let scratch =
            Scratch::new(&std::env::temp_dir()).context("could not create a directory")?;
        let (child, lines, address) = launch(bench, scratch.path(), words, label, cpus)?;
        let master = child.id();
        Ok(Self { child, master, address, lines, scratch })
    }

    /// Kills the program, without time to end, and starts it with these arguments on the same
    /// folder. Returns the time until it was ready.
    pub(in crate::repro) fn kill_and_restart(
        &mut self,
        bench: &Bench<'_>,
        words: &[&str],
        label: &str,
        cpus: &[usize],
    ) -> Result<Duration> {
        signal(self.master, Signal::KILL)?;
        self.child.wait().context("could not wait for the killed server")?;
        let started = Instant::now();
        let started_again = launch(bench, self.scratch.path(), words, label, cpus)?;
        (self.child, self.lines, self.address) = started_again;
        self.master = self.child.id();
        Ok(started.elapsed())
    }

    pub(in crate::repro) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id of the current master.
    pub(in crate::repro) fn master(&self) -> u32 {
        self.master
    }

    /// Returns a folder for files of the server; removed with it.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the worker processes of the current master.
    pub(super) fn workers(&self) -> Result<Vec<u32>> {
        let children = children(self.master)?;
        Ok(children.into_iter().filter(|pid| has_word(*pid, "--worker")).collect())
    }

    /// Returns the only worker process.
    pub(super) fn worker(&self) -> Result<u32> {
        match self.workers()?.as_slice() {
            [only] => Ok(*only),
            others => bail!("found {} workers instead of one", others.len()),
        }
    }

    /// Makes the master replace itself with a new process of the program, and waits until the old
    /// one has exited. Returns the time until the new one was serving.
    pub(super) fn replace(&mut self, bench: &Bench<'_>) -> Result<Duration> {
        let before = self.master;
        let started = Instant::now();
        signal(before, Signal::USR2)?;
        let next = bench.wait_for("a new master is running", READY_TIMEOUT, || {
            Ok(children(before)?.into_iter().find(|pid| has_word(*pid, "--inherit")))
        })?;
        self.master = next;
        let address = ready(&self.lines, "http=").context("the new master is not ready")?;
        let took = started.elapsed();
        if address != self.address {
            bail!("the new master listens on {address} instead of {}", self.address);
        }
        let is_over = || Ok((!is_running(before)).then_some(()));
        bench.wait_for("the old master has exited", END_TIMEOUT, is_over)?;
        Ok(took)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.master != self.child.id() {
            kill_leftover(self.master);
        }
        stop(&mut self.child);
    }
}

/// Starts the program in a folder, and waits until it prints its address after `label`.
fn launch(
    bench: &Bench<'_>,
    folder: &Path,
    words: &[&str],
    label: &str,
    cpus: &[usize],
) -> Result<(Child, Receiver<String>, SocketAddr)> {
    bench.check_not_stopped()?;
    let complaints = folder.join("errors");
    let errors = File::create(&complaints).context("could not create a file for error output")?;
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut command = ending_with_us(bench.program, &words);
    command.current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut child = spawn_pinned(&mut command, cpus).context("could not start the server")?;
    let output = child.stdout.take().context("output is piped")?;
    let lines = follow(output);
    let Some(address) = ready(&lines, label) else {
        stop(&mut child);
        let output =
            fs::read_to_string(&complaints).context("could not read the server's error output")?;
        bail!("the server is not ready within {READY_TIMEOUT:?}; output: {}", output.trim());
    };
    Ok((child, lines, address))
}

/// Terminates a master that is not a child process, and kills it if necessary.
fn kill_leftover(pid: u32) {
    let until = Instant::now() + END_TIMEOUT;
    // Only fails if the process has already exited.
    let _ = signal(pid, Signal::TERM);
    while is_running(pid) {
        if Instant::now() > until {
            let _ = signal(pid, Signal::KILL);
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Forwards the output lines of a program and its successors.
fn follow(output: ChildStdout) -> Receiver<String> {
    let (lines, received) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            // Ends with the program, or when the receiver is dropped.
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    received
}

/// Returns the address after `label` in the line that reports readiness.
fn ready(lines: &Receiver<String>, label: &str) -> Option<SocketAddr> {
    let until = Instant::now() + READY_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).ok()?;
        if let Some(address) = announced(&line, label) {
            return Some(address);
        }
    }
}

fn announced(line: &str, label: &str) -> Option<SocketAddr> {
    let rest = line.strip_prefix("ready ")?;
    rest.split_whitespace().find_map(|word| word.strip_prefix(label))?.parse().ok()
}

/// Sends a signal to a process.
pub(in crate::repro) fn signal(pid: u32, signal: Signal) -> Result<()> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.with_context(|| format!("invalid process id {pid}"))?;
    kill_process(process, signal).with_context(|| format!("could not signal process {pid}"))
}

// Source: proc_pid_task(5), children
fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let pids = text.split_whitespace().map(|word| word.parse().context("malformed process id"));
    pids.collect()
}

/// Whether the process was started with this argument. False if it has exited.
fn has_word(pid: u32, word: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).any(|found| found == word.as_bytes())
}

/// Whether a process is running, and not a zombie.
fn is_running(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_the_line_of_a_ready_server() {
        let check = |line: &str, label: &str, expected: Option<&str>| {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(announced(line, label), expected, "{line}");
        };
        check("ready http=127.0.0.1:80", "http=", Some("127.0.0.1:80"));
        check("ready resp=127.0.0.1:1 http=127.0.0.1:2", "http=", Some("127.0.0.1:2"));
        check("ready resp=127.0.0.1:1", "http=", None);
        check("http=127.0.0.1:80", "http=", None);
        check("ready http=here", "http=", None);
    }

    #[test]
    fn processes_are_known_by_their_parents_and_words() {
        // Two commands, so that the shell keeps running and waits for the first.
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 60; :"]).spawn().unwrap();
        let until = Instant::now() + READY_TIMEOUT;
        let sleeper = loop {
            let found = children(shell.id()).unwrap().into_iter().find(|pid| has_word(*pid, "60"));
            match found {
                Some(pid) => break pid,
                None => assert!(Instant::now() < until),
            }
            thread::yield_now();
        };
        assert!(is_running(sleeper) && !has_word(sleeper, "--worker"));
        assert!(children(sleeper).unwrap().is_empty());
        signal(sleeper, Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(!is_running(sleeper) && !has_word(sleeper, "60") && children(sleeper).is_err());
        assert!(signal(0, Signal::TERM).is_err());
    }
}
