//! What table s2 asks of a web server and no grid can answer: what its system calls cost, how long
//! its queue is, what becomes of requests in pieces, of workers that die, of clients that dribble.
//!
//! Each experiment starts `myriad web` on one core and makes its load with clients of its own on
//! another, which see a server as any client does.

mod calls;
mod crowd;
mod dribble;
mod exchanges;
mod expectations;
mod faults;
mod ground;
mod host;
mod queue;
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

/// Server and clients on a core each.
const SERVER_CPU: usize = 0;
const LOAD_CPU: usize = 1;
/// How often waiting looks at what it waits for.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What an experiment works with.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) program: &'a Path,
    pub(super) is_quick: bool,
    pub(super) stop: &'a AtomicBool,
}

impl Bench<'_> {
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.is_quick { quick } else { full }
    }

    /// An error once somebody wants the end.
    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped in the middle of an experiment");
        }
        Ok(())
    }

    /// Waits, but not when somebody wants the end.
    fn pause(&self, duration: Duration) -> Result<()> {
        let until = Instant::now() + duration;
        loop {
            self.go_on()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Waits until `look` finds something, for at most `limit`.
    fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let until = Instant::now() + limit;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            self.go_on()?;
            if Instant::now() > until {
                bail!("waited {} s in vain until {what}", limit.as_secs());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// One of them.
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

/// Does the experiment of this name.
pub(super) fn measure(name: &str, bench: &Bench<'_>) -> Result<Finding> {
    let found = ALL.iter().find(|experiment| experiment.name == name);
    let experiment = found.with_context(|| format!("there is no experiment {name}"))?;
    let finding = (experiment.run)(bench).with_context(|| format!("try {name}"))?;
    assert_eq!(finding.name, name, "it says its own name");
    Ok(finding)
}

/// Keeps the calling thread on the core of the load, where there is one.
fn stay_on_load_cpu() -> Result<()> {
    let cpus = available_cpus(&[LOAD_CPU]);
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).context("keep the load on its core")
}

/// Counts of ours are far below the 2^53 that a float holds exactly.
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
            assert_eq!(table.run.as_ref(), Some(&wanted), "{}", experiment.name);
        }
        let names = source::tables().filter_map(|table| match &table.run {
            Some(Run::Experiment(name)) => Some(name),
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
        assert!(error.to_string().contains("in vain until never"), "{error}");
        stop.store(true, Ordering::Relaxed);
        let error = bench.pause(Duration::from_mins(1)).unwrap_err();
        assert!(error.to_string().contains("stopped"), "{error}");
        assert!(measure("s2.none", &bench).unwrap_err().to_string().contains("no experiment"));
    }
}
