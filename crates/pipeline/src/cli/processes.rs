//! `myriad pipeline run --processes`: each role is a child process, supervised by this process.
//!
//! The death of an executor costs only time as long as others are alive. The run ends when the
//! generator exits, and its exit status determines success.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::console::Console;
use super::print;
use crate::parent::PARENT;
use crate::status::Status;

const TURN: Duration = Duration::from_millis(10);
/// Limit for a child to report its address.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit for the other parts to exit after the generator.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if all executors were killed, so that the end of the run does not explain it.
const LOST_TIMEOUT: Duration = Duration::from_secs(1);

/// First output line of a listening part that is started with `--json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listening {
    pub(super) listening: SocketAddr,
}

/// Command-line options that belong to each role.
#[derive(Debug)]
pub(super) struct RoleOptions {
    pub(super) generator: Vec<String>,
    pub(super) executor: Vec<String>,
    pub(super) collector: Vec<String>,
}

/// One line printed by a part.
#[derive(Debug)]
enum Line {
    Status(Box<Status>),
    Text(String),
}

/// A child process and its output; killed on drop.
#[derive(Debug)]
struct Part {
    name: String,
    child: Child,
    /// Output other than statuses.
    text: String,
    lines: Receiver<Line>,
    listens_at: Option<SocketAddr>,
}

impl Part {
    fn start(name: &str, role: &str, options: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("could not find this program")?;
        let mut child = Command::new(program)
            .args(["pipeline", role, "--json"])
            .args(options)
            .env(PARENT, std::process::id().to_string())
            // Only this process handles Ctrl-C, and ends the others in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let output = child.stdout.take().context("output is piped")?;
        let (line_sender, lines) = channel();
        let (address_sender, address) = channel();
        thread::spawn(move || read_lines(output, &line_sender, &address_sender));
        let mut part =
            Self { name: name.to_owned(), child, text: String::new(), lines, listens_at: None };
        if role != "executor" {
            let address = address.recv_timeout(START_TIMEOUT).ok();
            part.listens_at =
                Some(address.with_context(|| format!("{name} did not report its address"))?);
        }
        Ok(part)
    }

    fn address(&self) -> SocketAddr {
        self.listens_at.expect("every listening part has reported its address")
    }

    /// Displays the output since the last call.
    fn show_output(&mut self, console: &Console, by_tasks: bool) {
        while let Ok(line) = self.lines.try_recv() {
            match line {
                Line::Status(status) => console.show(&status, by_tasks),
                Line::Text(text) => self.text += &text,
            }
        }
    }

    /// Returns the status of a process that has exited; `None` while it runs.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("could not wait for {}", self.name))
    }

    fn kill(&mut self) {
        // Both fail only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends the signal of Ctrl-C in a terminal.
    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, Signal::INT)
        {
            tracing::debug!(%error, name = self.name, "could not interrupt part");
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads until the part exits or the receiver is dropped.
fn read_lines(output: impl Read, lines: &Sender<Line>, address: &Sender<SocketAddr>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        if let Ok(found) = serde_json::from_str::<Listening>(&line) {
            // The receiver ignores a repeated address.
            let _ = address.send(found.listening);
            continue;
        }
        let line = match serde_json::from_str::<Status>(&line) {
            Ok(status) => Line::Status(Box::new(status)),
            Err(_) => Line::Text(line + "\n"),
        };
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// All parts of a run.
#[derive(Debug)]
struct Parts {
    collector: Part,
    generator: Part,
    executors: Vec<Part>,
}

impl Parts {
    fn start(given: &RoleOptions, executors: usize) -> Result<Self> {
        let listen = ["--listen", "127.0.0.1:0"].map(str::to_owned);
        let with = |own: &[String], more: &[String]| [own, more].concat();
        let collector =
            Part::start("the collector", "collector", &with(&listen, &given.collector))?;
        let results_to = ["--collector".to_owned(), collector.address().to_string()];
        let generating = [&listen[..], &results_to].concat();
        let generator =
            Part::start("the generator", "generator", &with(&generating, &given.generator))?;
        let tasks_from = ["--generator".to_owned(), generator.address().to_string()];
        let executing = with(&[&tasks_from[..], &results_to].concat(), &given.executor);
        let start = |number| Part::start(&format!("executor {number}"), "executor", &executing);
        let executors = (1..=executors).map(start).collect::<Result<_>>()?;
        Ok(Self { collector, generator, executors })
    }

    fn show_output(&mut self, console: &Console, by_tasks: bool) {
        for part in [&mut self.collector, &mut self.generator] {
            part.show_output(console, by_tasks);
        }
        for part in &mut self.executors {
            part.show_output(console, by_tasks);
        }
    }

    /// Waits until the generator exits. Fails if the collector or all executors are lost: no other
    /// process takes their places.
    fn watch(
        &mut self,
        console: &Console,
        by_tasks: bool,
        stop: &AtomicBool,
    ) -> Result<ExitStatus> {
        let mut is_interrupted = false;
        let mut without_executors_since = None;
        loop {
            self.show_output(console, by_tasks);
            if let Some(status) = self.generator.ended()? {
                return Ok(status);
            }
            if let Some(status) = self.collector.ended()?
                && !status.success()
            {
                bail!("the collector has ended: {status}");
            }
            if stop.load(Ordering::Relaxed) && !is_interrupted {
                is_interrupted = true;
                self.generator.interrupt();
            }
            let ended = self.executors.iter_mut().map(Part::ended);
            let ended: Option<Vec<_>> = ended.collect::<Result<_>>()?;
            // At the end of a run, executors exit before the generator.
            if let Some(ended) = ended {
                let since: Instant = *without_executors_since.get_or_insert_with(Instant::now);
                let are_killed = ended.iter().all(|status| status.signal().is_some());
                // A generator that is stopped waits for results that are on their way.
                let is_lost = are_killed && !is_interrupted;
                if since.elapsed() > if is_lost { LOST_TIMEOUT } else { END_TIMEOUT } {
                    let last = ended.last().map(ExitStatus::to_string).unwrap_or_default();
                    bail!("all executors ended before the run, the last one with {last}");
                }
            }
            thread::sleep(TURN);
        }
    }

    /// Waits for the other parts to exit after the generator.
    fn wait(&mut self, console: &Console, by_tasks: bool) -> Result<()> {
        let since = Instant::now();
        let all = [&mut self.collector].into_iter().chain(&mut self.executors);
        for part in all {
            while part.ended()?.is_none() {
                if since.elapsed() > END_TIMEOUT {
                    tracing::warn!(name = part.name, "part did not exit; killing it");
                    break;
                }
                part.show_output(console, by_tasks);
                thread::sleep(TURN);
            }
            // Its pipe closes when it exits.
            while let Ok(line) = part.lines.recv_timeout(TURN) {
                if let Line::Text(text) = line {
                    part.text += &text;
                }
            }
        }
        Ok(())
    }
}

/// Runs all parts to the end. Fails if the generator failed.
pub(super) fn run(
    arguments: &Arguments,
    given: &RoleOptions,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let by_tasks = arguments.tasks.is_some();
    let mut parts = Parts::start(given, arguments.executors)?;
    // Each part reports to the monitor itself.
    let console = Console::new(&Arguments { monitor: None, ..arguments.clone() });
    let watched = parts.watch(&console, by_tasks, stop);
    let is_well = watched.as_ref().is_ok_and(ExitStatus::success);
    if watched.is_err() {
        // It has started no processes; executors without it end the ones that they have started.
        parts.generator.kill();
    }
    // An executor without a connection would try to connect for some time.
    parts.executors.iter().for_each(Part::interrupt);
    if !is_well {
        parts.collector.interrupt();
    }
    parts.wait(&console, by_tasks)?;
    let status = watched?;
    while let Ok(line) = parts.generator.lines.recv_timeout(TURN) {
        if let Line::Text(text) = line {
            parts.generator.text += &text;
        }
    }
    // Each part has printed its final status itself.
    console.end(Ok(Vec::new()));
    print(&parts.generator.text)?;
    for part in &parts.executors {
        print(&part.text)?;
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(_) => bail!("the generator has failed for the reason above"),
        None => bail!("the generator has ended: {status}"),
    }
}
