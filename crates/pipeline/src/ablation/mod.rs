//! The sixteen steps by which the program of source document 3 was tuned, each as code that runs in
//! two ways: the naive one and the right one. `myriad pipeline ablation d05` measures both.
//!
//! The naive ways are what they look like: nothing here is on the way of a real run's tasks.
//!
//! Beside them what the pipeline is held to: its speed, its schedule at half and at twice of what it
//! can do, and executors of different speed. There some ways have a figure that they must reach.

mod batches;
mod counting;
mod fields;
mod hashing;
mod line;
mod link;
mod memory;
mod outcome;
mod queue;
mod schedule;
mod throttled;
mod transfer;
mod whole;
mod wire;
mod work;

use std::time::Duration;

use anyhow::Result;

pub(crate) use outcome::Outcome;

/// All of them, in the order of the steps; then the limits, and what is promised.
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
    /// `d05`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Of the two numbers.
    unit: &'static str,
    expects: Expects,
    /// What the source saw.
    source: &'static str,
    teaches: &'static str,
    /// Why the sign may be another one here.
    otherwise: &'static str,
    variants: fn() -> Vec<Variant>,
}

/// How the right number stands to the naive one if the source is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    More,
    Less,
    /// The step changed nothing.
    Same,
    /// Nothing is said of it: only what is wanted counts.
    Anything,
}

/// What a way of doing it is in its ablation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Naive,
    Right,
    /// Shown beside them.
    Other,
}

type Run = Box<dyn FnMut(Duration) -> Result<Sample>>;

/// One way of doing it.
struct Variant {
    name: String,
    role: Role,
    /// Where it is not the ablation's.
    unit: Option<&'static str>,
    /// The median must reach this.
    least: Option<f64>,
    /// Measured, or calculated, only once.
    is_once: bool,
    run: Run,
}

/// What one run of a variant gave.
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
        let (unit, least, is_once) = (None, None, false);
        Self { name: name.into(), role, unit, least, is_once, run: Box::new(run) }
    }

    fn in_unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    fn at_least(self, least: f64) -> Self {
        Self { least: Some(least), ..self }
    }

    fn once(self) -> Self {
        Self { is_once: true, ..self }
    }
}

/// How long an ablation may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Of one run of one variant.
    slice: Duration,
    repeats: usize,
}

impl Budget {
    pub(crate) const QUICK: Self = Self { slice: Duration::from_millis(250), repeats: 3 };
    pub(crate) const FULL: Self = Self { slice: Duration::from_secs(1), repeats: 5 };
    /// For tests: whether it runs, not how quickly.
    #[cfg(test)]
    const SHORT: Self = Self { slice: Duration::from_millis(10), repeats: 1 };
}

impl Ablation {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        ALL.into_iter().find(|ablation| ablation.name == name)
    }

    /// Runs all variants in turn, and all again, so that whatever else the machine does meets all.
    pub(crate) fn run(&self, budget: Budget) -> Result<Outcome> {
        let mut variants = (self.variants)();
        let mut samples: Vec<Vec<Sample>> = variants.iter().map(|_| Vec::new()).collect();
        for repeat in 0..budget.repeats {
            for (variant, samples) in variants.iter_mut().zip(&mut samples) {
                if repeat == 0 || !variant.is_once {
                    samples.push((variant.run)(budget.slice)?);
                }
            }
        }
        Ok(Outcome::new(self, variants.iter().zip(samples).collect()))
    }
}

/// Below this only a test asks, and only whether it runs.
const TIME_MEANT_MIN: Duration = Duration::from_millis(100);

/// What needs its time to come takes no less than this.
fn stretched(time: Duration, least: Duration) -> Duration {
    if time < TIME_MEANT_MIN { time } else { time.max(least) }
}

#[expect(clippy::cast_possible_truncation, reason = "no machine does 2^63 tasks in a second")]
#[expect(clippy::cast_sign_loss, reason = "a rate")]
fn whole_rate(rate: f64) -> u64 {
    rate as u64
}

/// Threads that the machine runs at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The same, to calculate with.
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
    fn every_step_has_its_two_ways() {
        let mut names = std::collections::BTreeSet::new();
        for ablation in ALL {
            assert!(names.insert(ablation.name), "{}", ablation.name);
            let variants = (ablation.variants)();
            for role in [Role::Naive, Role::Right] {
                let count = variants.iter().filter(|variant| variant.role == role).count();
                assert_eq!(count, 1, "{} {role:?}", ablation.name);
            }
            let texts = [ablation.title, ablation.source, ablation.teaches, ablation.otherwise];
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

    /// The naive ways are code like any other: they run to their end, and count something.
    #[test]
    fn every_other_way_runs() {
        run_each(ALL.into_iter().step_by(2));
    }

    /// Beside the test above.
    #[test]
    fn the_ways_between_run() {
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
