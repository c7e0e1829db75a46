//! The load generator process.

pub mod append;
mod arrivals;
mod check;
mod client;
mod cql;
mod draws;
mod flights;
mod lanes;
mod replies;
mod shared;
mod socket;
mod spec;
mod tally;
mod template;

use std::io::Read;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use crate::command_line::{CommandLine, Job, printing};

pub(crate) use check::{CONNECTIONS_MAX, PIPELINE_MAX, THREADS_MAX, VALUE_BYTES_MAX};
pub(crate) use cql::Conversation;
pub use shared::Patience;
pub use spec::{
    AppendWork, Arrival, Commit, CqlConsistency, CqlWork, Distribution, HttpConnection,
    HttpVersion, HttpWork, Keys, LoadEvent, LoadReport, LoadSpec, LogMode, LogReport, Operation,
    Protocol, Schedule, Sharing, Sizes, SocketWork, WaitFor, Warmup, Work,
};

const HELP: &str = "\
Usage: myriad-lab generate <SPEC >EVENTS

Reads a load specification from standard input, generates that load, and writes the events to
standard output, one per line. Both are JSON; myriad-lab run starts this program itself.
";

/// Generates the load of `spec` in this process, and reports events; the last one is the report.
/// The load ends if an event cannot be reported. Threads started later by the calling thread
/// inherit its cores and block termination signals, which end the load with an error.
pub fn generate(spec: &LoadSpec, say: &mut dyn FnMut(LoadEvent) -> Result<()>) -> Result<()> {
    generate_with(spec, Patience::default(), say)
}

/// Does the same as [`generate`], with other timeouts for a server.
pub fn generate_with(
    spec: &LoadSpec,
    patience: Patience,
    say: &mut dyn FnMut(LoadEvent) -> Result<()>,
) -> Result<()> {
    pin(&spec.cpus)?;
    // Threads inherit it: a scheduled request must be sent when due, not 50 us later.
    set_current_timer_slack(std::num::NonZeroU64::new(1))?;
    match &spec.work {
        Work::Socket(work) => socket::run(spec, work, patience, say),
        Work::Append(work) => append::run(spec, work, say),
    }
}

/// `myriad-lab generate`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    match parser.next()? {
        None => Ok(Box::new(generate_from_stdin)),
        Some(Short('h') | Long("help")) => Ok(printing(HELP)),
        Some(other) => Err(other.unexpected().into()),
    }
}

fn generate_from_stdin() -> Result<()> {
    let done = read_spec().and_then(|spec| generate(&spec, &mut |event| write_event(&event)));
    if let Err(error) = &done {
        // If this fails too, the exit status reports the failure.
        let _ = write_event(&LoadEvent::Failed { reason: format!("{error:#}") });
    }
    done
}

fn read_spec() -> Result<LoadSpec> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut text)
        .context("could not read the specification")?;
    serde_json::from_str(&text).context("could not parse the load specification")
}

fn write_event(event: &LoadEvent) -> Result<()> {
    crate::command_line::print(&(serde_json::to_string(event)? + "\n"))
}

/// Pins the calling thread and its future threads.
fn pin(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            bail!("core {cpu} does not exist");
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).with_context(|| format!("could not pin to the cores {cpus:?}"))
}
