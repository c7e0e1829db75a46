//! Experiments of table s2 that are not grids: the cost of system calls, the length of the accept
//! queue, fragmented requests, dying workers, and slow clients.
//!
//! Each experiment starts `myriad web` on one core and generates load with its own clients on
//! another; the clients treat the server as a black box.

mod calls;
mod clients;
mod exchanges;
mod expectations;
mod faults;
mod fixture;
pub(super) mod host;
mod queue;
mod slow_clients;
mod sockets;
mod split;
mod talk;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::finding::Finding;
use crate::subject::available_cpus;

/// Server and clients have one core each.
const SERVER_CPU: usize = 0;
const LOAD_CPU: usize = 1;
/// Interval at which waits poll.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Environment of an experiment.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) program: &'a Path,
    pub(super) is_quick: bool,
    pub(super) stop: &'a AtomicBool,
}

impl Bench<'_> {
    pub(super) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }

    /// Fails once a stop was requested.
    fn check_not_stopped(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped in the middle of an experiment");
        }
        Ok(())
    }

    /// Sleeps, but fails if a stop is requested.
    pub(super) fn pause(&self, duration: Duration) -> Result<()> {
        let until = Instant::now() + duration;
        loop {
            self.check_not_stopped()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Waits until `poll` returns a value, for at most `limit`.
    pub(super) fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut poll: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let until = Instant::now() + limit;
        loop {
            if let Some(found) = poll()? {
                return Ok(found);
            }
            self.check_not_stopped()?;
            if Instant::now() > until {
                bail!("timed out after {} s waiting until {what}", limit.as_secs());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// One experiment.
struct Experiment {
    name: &'static str,
    run: fn(&Bench<'_>) -> Result<Finding>,
}

const ALL: [Experiment; 5] = [
    Experiment { name: "s2.p1a", run: calls::measure },
    Experiment { name: "s2.p1b", run: queue::measure },
    Experiment { name: "s2.r6", run: split::measure },
    Experiment { name: "s2.r7", run: faults::measure },
    Experiment { name: "s2.r8", run: expectations::measure },
];

/// Runs the experiment of this name.
pub(super) fn measure(name: &str, bench: &Bench<'_>) -> Result<Finding> {
    let found = ALL.iter().find(|experiment| experiment.name == name);
    let experiment = found.with_context(|| format!("unknown experiment {name}"))?;
    let finding = (experiment.run)(bench).with_context(|| format!("try {name}"))?;
    assert_eq!(finding.name, name, "each finding has the name of its table");
    Ok(finding)
}

/// Pins the calling thread to the core of the load, if it exists.
fn stay_on_load_cpu() -> Result<()> {
    let cpus = available_cpus(&[LOAD_CPU]);
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).context("could not pin the load to its core")
}

/// Converts counts far below 2^53, which a double holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of minutes")]
fn real(count: u64) -> f64 {
    count as f64
}

fn per_second(count: u64, duration: Duration) -> f64 {
    real(count) / duration.as_secs_f64()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::source::{self, Run};

    #[test]
    fn every_experiment_is_run_for_the_table_of_its_name() {
        for experiment in &ALL {
            let table = source::tables().find(|table| table.id == experiment.name).unwrap();
            let wanted = Run::Experiment(experiment.name.to_owned());
            assert_eq!(table.run, wanted, "{}", experiment.name);
        }
        let names = source::tables().filter_map(|table| match &table.run {
            Run::Experiment(name) if name.starts_with("s2.") => Some(name),
            _ => None,
        });
        for name in names {
            assert!(ALL.iter().any(|experiment| experiment.name == name), "{name}");
        }
    }

    #[test]
    fn waiting_ends_when_somebody_wants_the_end() {
        let stop = AtomicBool::new(false);
        let bench = Bench { program: Path::new("none"), is_quick: true, stop: &stop };
        bench.pause(Duration::ZERO).unwrap();
        let found = bench.wait_for("three", Duration::from_mins(1), || Ok(Some(3))).unwrap();
        assert_eq!((found, bench.pick(1, 2)), (3, 1));
        let error = bench.wait_for("never", Duration::ZERO, || Ok(None::<u8>)).unwrap_err();
        assert!(error.to_string().contains("waiting until never"), "{error}");
        stop.store(true, Ordering::Relaxed);
        let error = bench.pause(Duration::from_mins(1)).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        assert!(measure("s2.none", &bench).unwrap_err().to_string().contains("unknown experiment"));
    }
}
