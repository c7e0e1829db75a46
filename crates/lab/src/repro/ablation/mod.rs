//! The sixteen steps by which the program of source document 3 was tuned, each as code in two
//! variants: naive and improved. `myriad-lab repro s3.d05` measures both.
//!
//! The naive variants contain no artificial delays. A real run uses none of this code.
//!
//! Further entries measure the pipeline's own targets: its speed, its schedule at half and twice
//! its capacity, and executors of different speed. Some of their variants have a target that they
//! must reach.

mod batches;
mod counting;
mod fields;
mod hashing;
mod line;
mod link;
mod memory;
mod outcome;
mod process;
mod queue;
mod schedule;
mod throttled;
mod transfer;
mod whole;
mod wire;
mod work;

use std::time::Duration;

use anyhow::Result;

use crate::repro::finding::Finding;
pub(crate) use process::command;
pub(super) use process::measure;

/// All ablations, in the order of the steps; then the limits and the targets.
pub(crate) const ALL: [&Ablation; 21] = [
    &counting::D01,
    &hashing::D02,
    &whole::D03,
    &counting::D04,
    &transfer::D05,
    &transfer::D06,
    &queue::D07,
    &memory::D08,
    &whole::D09,
    &transfer::D10,
    &transfer::D11,
    &hashing::D12,
    &transfer::D13,
    &link::D14,
    &queue::D15,
    &hashing::D16,
    &link::LIMITS,
    &whole::SPEED,
    &schedule::PACED,
    &schedule::OVERLOAD,
    &throttled::THROTTLED,
];

/// One step.
#[derive(Debug)]
pub(crate) struct Ablation {
    /// For example, `d05`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Unit of the two numbers.
    unit: &'static str,
    expects: Expects,
    /// Observation in the source.
    source: &'static str,
    conclusion: &'static str,
    /// Possible reason for a different outcome on this machine.
    deviation_reason: &'static str,
    variants: fn() -> Vec<Variant>,
}

/// Expected relation between the improved and the naive number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    More,
    Less,
    /// The step had no effect.
    Same,
    /// No expectation: only the targets count.
    Any,
}

/// Role of a variant in its ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Naive,
    Right,
    /// Shown for comparison.
    Other,
}

type Run = Box<dyn FnMut(Duration) -> Result<Sample>>;

/// One variant of a step.
struct Variant {
    name: String,
    role: Role,
    /// Overrides the ablation's unit.
    unit: Option<&'static str>,
    /// Target for the median.
    target: Option<f64>,
    /// Whether it is measured, or calculated, only once.
    is_once: bool,
    run: Run,
}

/// Result of one run of a variant.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    value: f64,
    note: String,
}

impl Sample {
    fn new(value: f64) -> Self {
        Self { value, note: String::new() }
    }

    fn with_note(value: f64, note: impl Into<String>) -> Self {
        Self { value, note: note.into() }
    }
}

impl Variant {
    fn new<R>(role: Role, name: impl Into<String>, run: R) -> Self
    where
        R: FnMut(Duration) -> Result<Sample> + 'static,
    {
        let (unit, target, is_once) = (None, None, false);
        Self { name: name.into(), role, unit, target, is_once, run: Box::new(run) }
    }

    fn in_unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    fn at_least(self, target: f64) -> Self {
        Self { target: Some(target), ..self }
    }

    fn once(self) -> Self {
        Self { is_once: true, ..self }
    }
}

/// Time budget of an ablation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Duration of one run of one variant.
    slice: Duration,
    repeats: usize,
}

impl Budget {
    pub(crate) const QUICK: Self = Self { slice: Duration::from_millis(250), repeats: 3 };
    pub(crate) const FULL: Self = Self { slice: Duration::from_secs(1), repeats: 5 };
    /// For tests that check that the code runs, not its speed.
    #[cfg(test)]
    const SHORT: Self = Self { slice: Duration::from_millis(10), repeats: 1 };
}

impl Ablation {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|ablation| ablation.name == name)
    }

    /// Runs all variants in turn and repeats the whole cycle, so that disturbances affect all of
    /// them.
    pub(crate) fn run(&self, budget: Budget) -> Result<Finding> {
        let mut variants = (self.variants)();
        let mut samples: Vec<Vec<Sample>> = variants.iter().map(|_| Vec::new()).collect();
        for repeat in 0..budget.repeats {
            for (variant, samples) in variants.iter_mut().zip(&mut samples) {
                if repeat == 0 || !variant.is_once {
                    samples.push((variant.run)(budget.slice)?);
                }
            }
        }
        Ok(outcome::finding(self, variants.iter().zip(samples).collect()))
    }
}

/// Only tests use shorter times, and only to check that the code runs.
const TIME_MEASURED_MIN: Duration = Duration::from_millis(100);

/// Returns at least the minimum duration, for effects that need time.
fn stretched(time: Duration, minimum: Duration) -> Duration {
    if time < TIME_MEASURED_MIN { time } else { time.max(minimum) }
}

#[expect(clippy::cast_possible_truncation, reason = "no machine does 2^63 tasks in a second")]
#[expect(clippy::cast_sign_loss, reason = "a rate")]
fn whole_rate(rate: f64) -> u64 {
    rate as u64
}

/// Number of hardware threads.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The same, for arithmetic.
fn core_count() -> u64 {
    u64::try_from(cores()).expect("64 bits")
}

#[expect(clippy::cast_precision_loss, reason = "figures are shown with four digits")]
fn real(number: u64) -> f64 {
    number as f64
}

fn per_second(count: u64, took: Duration) -> f64 {
    real(count) / took.as_secs_f64().max(1e-9)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_two_variants() {
        let mut names = std::collections::BTreeSet::new();
        for ablation in ALL {
            assert!(names.insert(ablation.name), "{}", ablation.name);
            let variants = (ablation.variants)();
            for role in [Role::Naive, Role::Right] {
                let count = variants.iter().filter(|variant| variant.role == role).count();
                assert_eq!(count, 1, "{} {role:?}", ablation.name);
            }
            let texts =
                [ablation.title, ablation.source, ablation.conclusion, ablation.deviation_reason];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", ablation.name);
        }
        assert!((1..=16).all(|step| names.contains(format!("d{step:02}").as_str())));
        assert!(
            ["limits", "speed", "paced", "overload", "throttled"]
                .iter()
                .all(|name| names.contains(name))
        );
        assert!(Ablation::find("d17").is_none());
    }

    /// The naive variants run to their end, and count something.
    #[test]
    fn naive_variants_run() {
        run_each(ALL.into_iter().step_by(2));
    }

    /// Covers the variants not covered by the test above.
    #[test]
    fn other_variants_run() {
        run_each(ALL.into_iter().skip(1).step_by(2));
    }

    fn run_each(ablations: impl Iterator<Item = &'static Ablation>) {
        for ablation in ablations {
            let outcome = ablation.run(Budget::SHORT).unwrap();
            for row in &outcome.rows {
                let is_figure = row.value.is_finite() && row.value >= 0.0;
                assert!(is_figure, "{} {}: {}", ablation.name, row.variant, row.value);
            }
        }
    }
}
