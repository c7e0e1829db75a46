//! Stage timers: where the time of each command goes, from its bytes to its reply.
//!
//! One [`StageTimers`] belongs to one reactor thread, so recording is plain arithmetic: no atomic,
//! no lock. A reader of totals asks the reactors for copies and merges them.
//!
//! Memory: a (command, stage) pair costs nothing until it is first recorded, then counters of at
//! most [`CELL_BYTES_MAX`] that grow with the longest time seen (7 KiB up to 1 ms). Thirty
//! commands in use make at most 1.8 MiB per reactor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a command goes through. Times of one command's stages add up to its whole latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Bytes to request.
    Parse,
    /// The command's function, with the locks it needs.
    Execute,
    /// The reply is ready, but the change it depends on is not durable yet.
    WaitForLog,
    /// The reply may be sent, until it has been handed to the kernel.
    Write,
}

impl Stage {
    pub const COUNT: usize = 4;
    pub const ALL: [Self; Self::COUNT] =
        [Self::Parse, Self::Execute, Self::WaitForLog, Self::Write];

    /// The name in INFO and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Execute => "execute",
            Self::WaitForLog => "wait_for_log",
            Self::Write => "write",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Longer times are counted as this one: a minute.
pub const STAGE_NS_MAX: u64 = 60_000_000_000;

/// Times below this have a counter each; above, each doubling has half as many, so that a
/// percentile is at most 1 % off.
const EXACT: usize = 256;
const DOUBLING: usize = EXACT / 2;

/// Upper bound of one cell's counters: the first 256 ns, and the 28 doublings up to a minute.
pub const CELL_BYTES_MAX: usize = (EXACT + 28 * DOUBLING) * size_of::<u32>();
const _: () = assert!((slot(STAGE_NS_MAX) + 1) * size_of::<u32>() <= CELL_BYTES_MAX);

/// Times of one command in one stage. Counters saturate instead of wrapping.
#[derive(Debug, Clone, Default)]
pub struct StageCell {
    /// By [`slot`], as long as the longest time needs.
    counts: Vec<u32>,
    sum_ns: u64,
    max_ns: u64,
}

/// The counter of a time.
#[inline]
#[allow(clippy::cast_possible_truncation)] // after the shift, below two doublings
const fn slot(ns: u64) -> usize {
    let doublings = (ns | DOUBLING as u64).ilog2() - DOUBLING.ilog2();
    doublings as usize * DOUBLING + (ns >> doublings) as usize
}

/// The longest time of a counter.
const fn longest_ns(slot: usize) -> u64 {
    if slot < EXACT {
        return slot as u64;
    }
    let doublings = slot / DOUBLING - 1;
    ((((slot % DOUBLING) + DOUBLING + 1) as u64) << doublings) - 1
}

/// Statistics of a [`StageCell`] for INFO. Count, sum and max are exact (times over
/// [`STAGE_NS_MAX`] count as that); percentiles are within 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageSummary {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

impl StageCell {
    #[inline]
    fn record_n(&mut self, ns: u64, times: u32) {
        let ns = ns.min(STAGE_NS_MAX);
        let slot = slot(ns);
        if slot >= self.counts.len() {
            self.grow(slot);
        }
        self.counts[slot] = self.counts[slot].saturating_add(times);
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(u64::from(times)));
        self.max_ns = self.max_ns.max(ns);
    }

    #[cold]
    fn grow(&mut self, slot: usize) {
        let len = (slot + 1).next_multiple_of(DOUBLING);
        self.counts.reserve_exact(len - self.counts.len());
        self.counts.resize(len, 0);
    }

    fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, count) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of times. O(counters).
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Number of times up to `ns`, and of longer ones in its counter. O(counters).
    pub fn count_up_to(&self, ns: u64) -> u64 {
        let counts = self.counts.iter().take(slot(ns.min(STAGE_NS_MAX)) + 1);
        counts.map(|count| u64::from(*count)).sum()
    }

    /// The longest time of each counter in use, ascending, with its count.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(slot, count)| (longest_ns(slot), u64::from(*count)))
    }

    /// Nanoseconds that `percentile` (0 to 100) of the times did not exceed; never above the
    /// longest time. O(counters).
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let wanted = ((percentile / 100.0 * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.recorded().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |(ns, _)| ns.min(self.max_ns))
    }

    pub fn summary(&self) -> StageSummary {
        StageSummary {
            count: self.count(),
            sum_ns: self.sum_ns,
            max_ns: self.max_ns,
            p50_ns: self.percentile_ns(50.0),
            p99_ns: self.percentile_ns(99.0),
            p999_ns: self.percentile_ns(99.9),
        }
    }
}

type CommandCells = [Option<Box<StageCell>>; Stage::COUNT];

/// Times of all commands in all stages, of one reactor or, merged, of all.
///
/// Commands are identified by their index in the caller's table; the number of commands is fixed at
/// creation.
#[derive(Debug, Clone, Default)]
pub struct StageTimers {
    commands: Vec<CommandCells>,
}

impl StageTimers {
    pub fn new(command_count: usize) -> Self {
        Self {
            commands: std::iter::repeat_with(CommandCells::default).take(command_count).collect(),
        }
    }

    /// Records one time. A few nanoseconds; allocates on a pair's first record and when the range
    /// grows. Panics for an index outside the table, which is a bug of the caller.
    #[inline]
    pub fn record(&mut self, command: usize, stage: Stage, ns: u64) {
        self.record_n(command, stage, ns, 1);
    }

    /// Records the same time `times` times: for a batch that was measured as a unit.
    #[inline]
    pub fn record_n(&mut self, command: usize, stage: Stage, ns: u64, times: u32) {
        self.commands[command][stage.index()].get_or_insert_default().record_n(ns, times);
    }

    /// None if nothing was recorded.
    pub fn cell(&self, command: usize, stage: Stage) -> Option<&StageCell> {
        self.commands.get(command)?[stage.index()].as_deref()
    }

    /// Everything that was recorded, by command and stage.
    pub fn cells(&self) -> impl Iterator<Item = (usize, Stage, &StageCell)> {
        self.commands.iter().enumerate().flat_map(|(command, cells)| {
            Stage::ALL.into_iter().filter_map(move |stage| {
                cells[stage.index()].as_deref().map(|cell| (command, stage, cell))
            })
        })
    }

    /// Adds another reactor's times. The larger table wins.
    pub fn merge(&mut self, other: &Self) {
        if self.commands.len() < other.commands.len() {
            self.commands.resize_with(other.commands.len(), CommandCells::default);
        }
        for (command, stage, cell) in other.cells() {
            match &mut self.commands[command][stage.index()] {
                Some(mine) => mine.merge(cell),
                empty => *empty = Some(Box::new(cell.clone())),
            }
        }
    }

    /// Clears all times and frees their memory.
    pub fn reset(&mut self) {
        self.commands.fill_with(CommandCells::default);
    }
}

/// The processor's cycle counter as a clock: a reading is one instruction where the counter has a
/// constant rate, and a call of the kernel's vDSO elsewhere.
///
/// Calibrated when it is created (up to 200 ms the first time in a process); copies are cheap. Only
/// differences of readings taken on the same machine are meaningful.
#[derive(Debug, Clone)]
pub struct CycleClock {
    source: Source,
    /// Readings per millisecond.
    millisecond: u64,
}

const MILLISECOND_NS: u64 = 1_000_000;

#[derive(Debug, Clone)]
enum Source {
    Cycles(quanta::Clock),
    Steps { readings: Arc<AtomicU64>, ns: u64 },
}

impl CycleClock {
    #[allow(clippy::new_without_default)] // calibration takes time: never by accident
    pub fn new() -> Self {
        /// Long enough for eight digits of the rate.
        const SAMPLE: u64 = 1 << 32;
        let clock = quanta::Clock::new();
        let sample_ns = clock.delta_as_nanos(0, SAMPLE).max(1);
        let millisecond = u128::from(SAMPLE) * u128::from(MILLISECOND_NS) / u128::from(sample_ns);
        let millisecond = u64::try_from(millisecond).unwrap_or(u64::MAX);
        Self { source: Source::Cycles(clock), millisecond }
    }

    /// A clock for simulations: each reading, also of a copy, is `ns` after the one before.
    pub fn stepping(ns: u64) -> Self {
        let source = Source::Steps { readings: Arc::default(), ns };
        Self { source, millisecond: MILLISECOND_NS }
    }

    /// A raw reading in the machine's unit; [`CycleClock::delta_ns`] converts the difference of
    /// two.
    #[inline]
    pub fn now(&self) -> u64 {
        match &self.source {
            Source::Cycles(clock) => clock.raw(),
            Source::Steps { readings, ns } => readings.fetch_add(*ns, Ordering::Relaxed),
        }
    }

    /// Nanoseconds from one reading to a later one; zero if the order is reversed.
    #[inline]
    pub fn delta_ns(&self, earlier: u64, later: u64) -> u64 {
        match &self.source {
            Source::Cycles(clock) => clock.delta_as_nanos(earlier, later),
            Source::Steps { .. } => later.saturating_sub(earlier),
        }
    }

    /// Whether a millisecond has passed between two readings. Cheaper than
    /// [`CycleClock::delta_ns`], so it can be called for every request.
    #[inline]
    pub fn has_passed_ms(&self, earlier: u64, later: u64) -> bool {
        later.saturating_sub(earlier) >= self.millisecond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GET: usize = 0;
    const SET: usize = 1;

    fn summary(timers: &StageTimers, command: usize, stage: Stage) -> StageSummary {
        timers.cell(command, stage).map(StageCell::summary).unwrap_or_default()
    }

    #[test]
    fn times_are_kept_by_command_and_stage() {
        let mut timers = StageTimers::new(2);
        for ns in 1..=1_000 {
            timers.record(SET, Stage::Execute, ns);
        }
        timers.record_n(SET, Stage::WaitForLog, 2_000_000, 3);
        let execute = summary(&timers, SET, Stage::Execute);
        assert_eq!((execute.count, execute.sum_ns, execute.max_ns), (1_000, 500_500, 1_000));
        assert!((495..=505).contains(&execute.p50_ns), "{execute:?}");
        assert!((980..=1_000).contains(&execute.p99_ns), "{execute:?}");
        let wait = summary(&timers, SET, Stage::WaitForLog);
        assert_eq!((wait.count, wait.sum_ns, wait.max_ns), (3, 6_000_000, 2_000_000));
        assert_eq!(summary(&timers, GET, Stage::Execute), StageSummary::default());
        let seen: Vec<_> = timers.cells().map(|(command, stage, _)| (command, stage)).collect();
        assert_eq!(seen, [(SET, Stage::Execute), (SET, Stage::WaitForLog)]);
    }

    #[test]
    fn an_unused_pair_costs_no_histogram() {
        let mut timers = StageTimers::new(250);
        assert_eq!(timers.cells().count(), 0);
        timers.record(7, Stage::Parse, 10);
        assert_eq!(timers.cells().count(), 1);
        timers.reset();
        assert_eq!(timers.cells().count(), 0);
        assert!(timers.cell(7, Stage::Parse).is_none());
    }

    #[test]
    fn the_longest_time_bounds_the_memory() {
        let mut timers = StageTimers::new(1);
        timers.record_n(GET, Stage::Write, u64::MAX, u32::MAX);
        timers.record(GET, Stage::Write, 0);
        let cell = timers.cell(GET, Stage::Write).unwrap();
        assert_eq!(cell.summary().max_ns, STAGE_NS_MAX);
        assert_eq!(cell.summary().count, u64::from(u32::MAX) + 1);
        let bytes = cell.counts.capacity() * size_of::<u32>();
        assert!(bytes <= CELL_BYTES_MAX, "{bytes}");
        assert!(bytes * 9 / 8 > CELL_BYTES_MAX, "the documented bound is far from {bytes}");
    }

    #[test]
    fn each_time_is_in_the_counter_that_ends_after_it() {
        for ns in (0..2_000).chain((8..36).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << bits]))
        {
            let at = slot(ns);
            assert!(ns <= longest_ns(at), "{ns}");
            assert!(at == 0 || longest_ns(at - 1) < ns, "{ns}");
            assert!(longest_ns(at) - ns <= ns / 128, "{ns}");
        }
    }

    #[test]
    fn merging_keeps_the_larger_table() {
        let mut total = StageTimers::default();
        let mut one = StageTimers::new(2);
        one.record(SET, Stage::Parse, 5);
        total.merge(&one);
        total.merge(&one);
        assert_eq!(summary(&total, SET, Stage::Parse).count, 2);
    }

    #[test]
    fn stage_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Stage::ALL.iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), Stage::COUNT);
    }

    #[test]
    fn the_clock_never_runs_backwards() {
        let clock = CycleClock::new();
        let first = clock.now();
        let second = clock.now();
        assert!(second >= first);
        assert_eq!(clock.delta_ns(second, second), 0);
        assert_eq!(clock.delta_ns(first + 1, first), 0);
    }

    #[test]
    fn a_stepping_clock_is_moved_by_being_read() {
        let clock = CycleClock::stepping(5);
        let (first, second) = (clock.now(), clock.clone().now());
        assert_eq!(clock.delta_ns(first, second), 5);
        assert_eq!(clock.delta_ns(second, first), 0);
    }

    proptest! {
        /// The library answers the same about the same times.
        #[test]
        fn a_cell_equals_a_histogram(
            times in prop::collection::vec((0..=STAGE_NS_MAX, 0_u32..36), 1..80),
            percentile in 0.1..=100.0_f64,
            bound in 0..=STAGE_NS_MAX,
        ) {
            let mut cell = StageCell::default();
            let mut histogram = hdrhistogram::Histogram::<u32>::new(2).unwrap();
            histogram.auto(true);
            for (ns, shift) in times {
                cell.record_n(ns >> shift, 1);
                histogram.record(ns >> shift).unwrap();
            }
            let expected = histogram.value_at_percentile(percentile).min(cell.max_ns);
            prop_assert_eq!(cell.percentile_ns(percentile), expected);
            prop_assert_eq!(cell.count_up_to(bound), histogram.count_between(0, bound));
            let recorded = histogram.iter_recorded();
            let recorded =
                recorded.map(|at| (at.value_iterated_to(), at.count_since_last_iteration()));
            prop_assert!(cell.recorded().eq(recorded));
        }

        /// Any distribution of times over reactors gives the same total.
        #[test]
        fn merged_timers_equal_one_timer(
            times in prop::collection::vec((0_usize..3, 0_usize..4, any::<u64>(), 0_u32..64), 0..80)
        ) {
            let mut whole = StageTimers::new(3);
            let mut parts = vec![StageTimers::new(3); 3];
            for (at, &(command, stage, ns, shift)) in times.iter().enumerate() {
                let ns = ns >> shift;
                whole.record(command, Stage::ALL[stage], ns);
                parts[at % 3].record(command, Stage::ALL[stage], ns);
            }
            let mut total = StageTimers::new(3);
            for part in &parts {
                total.merge(part);
            }
            for (command, stage, cell) in whole.cells() {
                prop_assert_eq!(summary(&total, command, stage), cell.summary());
            }
            prop_assert_eq!(total.cells().count(), whole.cells().count());
        }
    }
}
