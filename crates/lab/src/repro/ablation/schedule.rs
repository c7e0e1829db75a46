//! An open-loop schedule at half and at twice the capacity of the pipeline.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::repro::ablation::queue::{OVERLOAD as TIMES, goodput, refusing};
use crate::repro::ablation::whole::{Report, Whole, nanoseconds};
use crate::repro::ablation::{
    Ablation, Expects, Role, Sample, Variant, real, stretched, whole_rate,
};
use pipeline::generator::{Overload, Overloaded, Rate};

const TASK: &str = "sha256x10-le";
/// Long compared with start and end.
const TIME: Duration = Duration::from_millis(400);
/// Limit for a run that is expected to fail.
const FAIL_TIME: Duration = Duration::from_secs(2);
/// Target, in percent of the normal throughput.
const GOODPUT_PERCENT_MIN: f64 = 95.0;
/// So short that the pipeline dominates the latencies, not the tick.
const PACED_TICK: Duration = Duration::from_millis(1);
const PACED_SHARE: f64 = 0.5;

pub(super) const OVERLOAD: Ablation = Ablation {
    name: "overload",
    title: "Twice the capacity offered, by policy",
    unit: "% of normal throughput",
    expects: Expects::Any,
    source: "3,000,000 per second offered left 1,000,000; the target is 95 % of normal throughput",
    conclusion: "The backlog is a single counter until an executor requests tasks, so excess load \
              costs no memory and no time. `queue` completes all of it, later; `shed` drops the \
              oldest and counts them; `fail` ends the run once a tenth of a second's tasks are \
              waiting. Each is measured against the capacity at the same moment. (The line that \
              refuses reaches its throughput by losing tasks, and refusing is so cheap that \
              nothing else shows it.)",
    deviation_reason: "another process used the machine between the two runs of a pair.",
    variants: || {
        let fail = Variant::new(Role::Other, "the pipeline, fail: until the run has ended", fails);
        vec![
            refusing(),
            Variant::new(Role::Right, "the pipeline, queue", queues).at_least(GOODPUT_PERCENT_MIN),
            Variant::new(Role::Other, "the pipeline, shed", sheds).at_least(GOODPUT_PERCENT_MIN),
            fail.in_unit("ms"),
        ]
    },
};

/// Measures the capacity, then offers twice of it.
fn overloaded(time: Duration, overload: Overload) -> Result<(f64, Whole)> {
    let able = Whole::new(TASK).run(stretched(time, TIME))?.per_second();
    let rate = Rate::PerSecond(whole_rate(able * TIMES).max(1));
    Ok((able, Whole { rate, overload, ..Whole::new(TASK) }))
}

fn queues(time: Duration) -> Result<Sample> {
    let (able, whole) = overloaded(time, Overload::Queue)?;
    let report = whole.run(stretched(time, TIME))?;
    let status = &report.summary.generator.status;
    let (offered, collected) = (status.offered, status.collected);
    ensure!(offered == collected, "{offered} offered, {collected} collected");
    let note = format!("all {offered} done, p99 {:.0} ms, {}", report.p99_ms(), resent(&report));
    Ok(goodput(able, report.per_second(), &note))
}

fn sheds(time: Duration) -> Result<Sample> {
    let (able, whole) = overloaded(time, Overload::Shed)?;
    let report = whole.run(stretched(time, TIME))?;
    let status = &report.summary.generator.status;
    let (offered, collected, shed) = (status.offered, status.collected, status.shed);
    ensure!(
        offered == collected + shed,
        "{offered} offered, {collected} collected and {shed} shed"
    );
    let note = format!(
        "{shed} of {offered} shed, p99 of the others {:.0} ms, {}",
        report.p99_ms(),
        resent(&report)
    );
    Ok(goodput(able, report.per_second(), &note))
}

fn fails(time: Duration) -> Result<Sample> {
    let (_, whole) = overloaded(time, Overload::Fail)?;
    let started = Instant::now();
    let outcome = whole.run(stretched(time, FAIL_TIME));
    let took_ms = started.elapsed().as_secs_f64() * 1e3;
    match outcome {
        Ok(_) => Ok(Sample::with_note(took_ms, "not overloaded")),
        Err(error) if error.is::<Overloaded>() => Ok(Sample::with_note(took_ms, error.to_string())),
        Err(error) => Err(error),
    }
}

fn resent(report: &Report) -> String {
    let status = &report.summary.generator.status;
    format!("{} frames resent", status.resent_frames)
}

pub(super) const PACED: Ablation = Ablation {
    name: "paced",
    title: "Latency at half of the capacity",
    unit: "ms p99",
    expects: Expects::Any,
    source: "the first program measured no latency; its batches left once a second, or each 10 ms",
    conclusion: "A clock that starts when a task is sent misses how long the task waited to be sent: \
              for its tick, for an executor, or because the machine stalled. Latency is measured \
              from the due time, a batch counts by its oldest task, and late ticks are caught up \
              and reported.",
    deviation_reason: "due tasks were not collected.",
    variants: || {
        let found: Shared = Rc::new(RefCell::new(None));
        let measuring = Rc::clone(&found);
        let sent = Variant::new(Role::Naive, "from the sending of a batch", move |time| {
            let paced = Paced::measure(time)?;
            let status = &paced.report.summary.generator.status;
            let sample = Sample::with_note(ms(status.service.p99_ns), paced.offered());
            *measuring.borrow_mut() = Some(paced);
            Ok(sample)
        });
        vec![
            sent,
            due(&found, Role::Right, "from the due time of its first task", |paced| {
                Sample::new(paced.report.p99_ms())
            }),
            due(&found, Role::Other, "from the due time, p50", |paced| {
                Sample::new(ms(paced.report.summary.generator.status.latency.p50_ns))
            })
            .in_unit("ms"),
            due(&found, Role::Other, "from the due time, p99.99", |paced| {
                Sample::new(ms(paced.report.summary.generator.status.latency.p9999_ns))
            })
            .in_unit("ms"),
            due(&found, Role::Other, "from the due time, maximum", |paced| {
                Sample::new(ms(paced.report.summary.generator.status.latency.max_ns))
            })
            .in_unit("ms"),
            due(&found, Role::Other, "late ticks", Paced::late).in_unit("%"),
            due(&found, Role::Other, "collected share of the schedule", Paced::kept)
                .in_unit("%")
                .at_least(100.0),
        ]
    },
};

type Shared = Rc<RefCell<Option<Paced>>>;

/// One run; each row shows an aspect of it.
struct Paced {
    able: f64,
    rate: u64,
    time: Duration,
    report: Report,
}

/// Creates a row from the last run.
fn due(
    found: &Shared,
    role: Role,
    name: &str,
    show: impl Fn(&Paced) -> Sample + 'static,
) -> Variant {
    let found = Rc::clone(found);
    Variant::new(role, name, move |_| {
        let found = found.borrow();
        Ok(show(found.as_ref().context("the first row measures")?))
    })
}

impl Paced {
    fn measure(time: Duration) -> Result<Self> {
        let time = stretched(time, TIME);
        let able = Whole::new(TASK).run(time)?.per_second();
        let rate = whole_rate(able * PACED_SHARE).max(1);
        let whole = Whole { rate: Rate::PerSecond(rate), tick: PACED_TICK, ..Whole::new(TASK) };
        Ok(Self { able, rate, time, report: whole.run(time)? })
    }

    fn offered(&self) -> String {
        format!("{} of {:.0} tasks/s offered", self.rate, self.able)
    }

    fn late(&self) -> Sample {
        let status = &self.report.summary.generator.status;
        let ticks = nanoseconds(self.time) / nanoseconds(PACED_TICK);
        Sample::with_note(
            real(status.late_ticks) / real(ticks.max(1)) * 100.0,
            format!("the latest by {:.2} ms", ms(status.latest_tick_ns)),
        )
    }

    fn kept(&self) -> Sample {
        let due = u128::from(self.rate) * self.time.as_nanos() / 1_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let collected = self.report.summary.generator.status.collected;
        Sample::with_note(
            real(collected) / real(due.max(1)) * 100.0,
            format!("{collected} of {due} tasks"),
        )
    }
}

fn ms(ns: u64) -> f64 {
    real(ns) / 1e6
}
