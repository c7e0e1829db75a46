//! The pipeline itself, for comparison with the naive lines; steps 3 and 9, and its speed.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use parking_lot::Mutex;

use crate::repro::ablation::fields::{FieldLine, Flush};
use crate::repro::ablation::line::Line as _;
use crate::repro::ablation::{Ablation, Expects, Role, Sample, Variant, cores, per_second, real};
use pipeline::collector::Verify;
use pipeline::generator::{LedgerOptions, Overload, PaceOptions, Rate};
use pipeline::local::{self, Changes, LocalOptions, LocalSummary};
use pipeline::meter::Reading;
use pipeline::status::Status;
use pipeline::task::Plan;
use pipeline::task::{Kernel, Maker};

/// Batches in flight: enough for two cores, and few enough to finish quickly at the end.
const WINDOW: usize = 64;
/// Target rate of step 9.
const TARGET_PER_S: u64 = 500_000;
/// Target for two cores with hashes, and without any work.
const HASHED_PER_S_MIN: f64 = 10e6;
const IDLE_PER_S_MIN: f64 = 40e6;

pub(super) const D03: Ablation = Ablation {
    name: "d03",
    title: "Threads by the number of cores",
    unit: "tasks/s",
    expects: Expects::More,
    source: "40,000 per second reached with one thread more than there are cores",
    conclusion: "Hashing scales with cores and nothing else: one thread more than cores fills the \
              time in which another waits for its socket; twice as many only compete.",
    deviation_reason: "there is one core, or its neighbors were busy with other work.",
    variants: || {
        let row = |role, threads: usize| {
            Variant::new(role, format!("{threads} threads"), move |time| {
                let whole = Whole { threads, kernel: Kernel::Serial, ..Whole::new("sha256x10-le") };
                Ok(Sample::new(whole.run(time)?.per_second()))
            })
        };
        vec![
            row(Role::Naive, 1),
            row(Role::Other, cores()),
            row(Role::Right, cores() + 1),
            row(Role::Other, 2 * cores() + 2),
        ]
    },
};

pub(super) const D09: Ablation = Ablation {
    name: "d09",
    title: "Half a million per second, from end to end",
    unit: "% of 500,000 tasks/s",
    expects: Expects::More,
    source: "500,000 per second reached, compared with 40,000 of the first designs",
    conclusion: "At a paced rate the question is not the throughput but whether all tasks complete, \
              and how late. Steps 5 to 8 together make the difference; with credits, a sustainable \
              schedule loses nothing.",
    deviation_reason: "system calls are so fast here that the first design also sustains the schedule.",
    variants: || {
        vec![
            Variant::new(Role::Naive, "the line before step 5", |time| {
                let line =
                    FieldLine { buffer_bytes: 0, flush: Flush::WhenFull, rate: Some(TARGET_PER_S) };
                Ok(reached(line.run(time)?.per_second()))
            }),
            Variant::new(Role::Right, "the pipeline", |time| {
                let rate = Rate::PerSecond(TARGET_PER_S);
                let report = Whole { rate, ..Whole::new("sha256x10-le") }.run(time)?;
                let generator = &report.summary.generator;
                let right = generator.account.verified_right;
                Ok(Sample::with_note(
                    reached(per_second(generator.status.collected, time)).value,
                    format!("p99 {:.2} ms, {right} samples correct", report.p99_ms()),
                ))
            }),
        ]
    },
};

pub(super) const SPEED: Ablation = Ablation {
    name: "speed",
    title: "Throughput of the pipeline on this machine",
    unit: "tasks/s",
    expects: Expects::More,
    source: "2,420,000 per second by three servers, 4,800,000 by one desktop computer of 20 \
             threads; the targets for two cores are 10,000,000 with hashes and 40,000,000 without \
             work",
    conclusion: "Over loopback, every task from its id to its acknowledgement, with verified samples. \
              The tasks without work show the cost of the pipeline itself: a fraction of the \
              hashing, so a better kernel takes full effect.",
    deviation_reason: "the targets apply to two cores with the widest instructions, on an otherwise idle \
                machine.",
    variants: || {
        let row = |role, name: &str, whole: Whole| {
            Variant::new(role, name, move |time| {
                let report = whole.run(time)?;
                Ok(Sample::with_note(report.per_second(), report.stages()))
            })
        };
        let hashes = || Whole::new("sha256x10-le");
        let nothing = || Whole::new("nop");
        vec![
            row(
                Role::Naive,
                "sha256x10-le, one task after the other",
                Whole { kernel: Kernel::Serial, ..hashes() },
            ),
            row(Role::Right, "sha256x10-le", hashes()).at_least(HASHED_PER_S_MIN),
            row(Role::Other, "nop", nothing()).at_least(IDLE_PER_S_MIN),
            row(Role::Other, "sha256x10-le, one thread", Whole { threads: 1, ..hashes() }),
            row(Role::Other, "nop, one thread", Whole { threads: 1, ..nothing() }),
        ]
    },
};

fn reached(rate: f64) -> Sample {
    Sample::new(rate / real(TARGET_PER_S) * 100.0)
}

/// The pipeline, in one process.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    pub(super) task: &'static str,
    pub(super) rate: Rate,
    pub(super) tick: Duration,
    pub(super) overload: Overload,
    pub(super) batch: u32,
    pub(super) executors: usize,
    /// Threads of each executor.
    pub(super) threads: usize,
    pub(super) kernel: Kernel,
}

/// Outcome of a run.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) summary: LocalSummary,
    /// Collected tasks according to the collector's reports, with their times.
    seen: Vec<(Instant, u64)>,
}

impl Report {
    /// From the start of the schedule to the last acknowledgement.
    pub(super) fn per_second(&self) -> f64 {
        let generator = &self.summary.generator;
        per_second(generator.status.collected, generator.took)
    }

    /// Formats the busy share of each stage's thread time.
    fn stages(&self) -> String {
        let busy = |meter: &Reading| meter.shares()[0];
        let executors: Vec<String> = self
            .summary
            .executors
            .iter()
            .map(|executor| format!("{} %", busy(&executor.meter)))
            .collect();
        format!(
            "busy: generator {} %, executor {}, collector {} %",
            busy(&self.summary.generator.status.meter),
            executors.join(" and "),
            busy(&self.summary.collector.meter)
        )
    }

    /// Between the first and the last report, so that start and end are excluded.
    pub(super) fn steady_per_second(&self) -> f64 {
        let ends = self.seen.first().zip(self.seen.last()).filter(|(first, last)| first.0 < last.0);
        let Some((first, last)) = ends else { return self.per_second() };
        per_second(last.1 - first.1, last.0.duration_since(first.0))
    }

    pub(super) fn p99_ms(&self) -> f64 {
        real(self.summary.generator.status.latency.p99_ns) / 1e6
    }
}

impl Whole {
    pub(super) fn new(task: &'static str) -> Self {
        Self {
            task,
            rate: Rate::Max,
            tick: Duration::from_millis(10),
            overload: Overload::Queue,
            batch: 4_096,
            executors: 1,
            threads: cores(),
            kernel: Kernel::Lanes,
        }
    }

    pub(super) fn run(&self, time: Duration) -> Result<Report> {
        self.run_with(time, Changes::NONE)
    }

    /// A tenth of a second's tasks: several ticks.
    fn backlog_max(&self) -> u64 {
        let tasks = match self.rate {
            Rate::Max => 0,
            Rate::PerSecond(rate) => rate / 10,
        };
        tasks.max(4 * u64::from(self.batch))
    }

    /// Runs it with these changes.
    pub(super) fn run_with(&self, time: Duration, changes: Changes<'_>) -> Result<Report> {
        let options = LocalOptions {
            stream: 1,
            plan: Plan { task: self.task.to_owned(), seed: 1, batch: self.batch, limits: None },
            input: None,
            make_task: Maker::built_in(self.kernel),
            kernel: self.kernel.to_string(),
            pace: PaceOptions {
                rate: self.rate,
                tick_ns: nanoseconds(self.tick),
                duration_ns: Some(nanoseconds(time)),
                tasks: None,
                overload: self.overload,
                backlog_max: self.backlog_max(),
            },
            ledger: LedgerOptions {
                window: WINDOW,
                batch: self.batch,
                lease_ns_min: 5_000_000_000,
            },
            executors: self.executors,
            threads: self.threads,
            corrupt: 0.0,
            verify: Verify::Sample { size: 100, window_ns: 60_000_000_000 },
            out: None,
            log: None,
            results: None,
            patience: Duration::from_secs(10),
        };
        let seen = Mutex::new(Vec::new());
        let summary = local::run_with(&options, &AtomicBool::new(false), changes, &|status| {
            if let Status::Collector(status) = status {
                seen.lock().push((Instant::now(), status.account.collected));
            }
        })?;
        ensure!(summary.generator.faults.is_empty(), "{}", summary.generator.faults.join("; "));
        Ok(Report { summary, seen: seen.into_inner() })
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
