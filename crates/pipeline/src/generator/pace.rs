//! When tasks are due: an open-loop schedule with exact counts, independent of the consumers.

use thiserror::Error;

const NS_PER_S: u64 = 1_000_000_000;

/// Number of tasks that become due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// As many as are requested.
    Max,
    PerSecond(u64),
}

options::choice! {
    /// Policy for tasks that become due faster than they are taken.
    Overload {
        /// Tasks wait; their latency includes the wait.
        Queue = "queue",
        /// Beyond the limit, the oldest waiting tasks are dropped: counted, but never assigned an
        /// id.
        Shed = "shed",
        /// The run ends beyond the limit.
        Fail = "fail",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceOptions {
    pub rate: Rate,
    pub tick_ns: u64,
    pub duration_ns: Option<u64>,
    pub tasks: Option<u64>,
    pub overload: Overload,
    /// Waiting tasks allowed before the policy acts. `Queue` has no limit, because the backlog is a
    /// single counter.
    pub backlog_max: u64,
}

/// The backlog limit of [`Overload::Fail`] was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("overloaded: {backlog} tasks are waiting; the limit is {max}")]
pub struct Overloaded {
    pub backlog: u64,
    pub max: u64,
}

/// The schedule of one run. After each tick exactly floor(rate x time) tasks have become due.
#[derive(Debug, Clone)]
pub struct Pace {
    options: PaceOptions,
    start_ns: u64,
    /// Ticks that have been processed.
    ticks: u64,
    /// Tasks that became due, including shed ones.
    due: u64,
    shed: u64,
    taken: u64,
    late_ticks: u64,
    latest_ns: u64,
    is_over: bool,
}

impl Pace {
    /// # Panics
    /// If the tick is zero: options are validated when parsed.
    pub fn new(options: PaceOptions, start_ns: u64) -> Self {
        assert!(options.tick_ns > 0);
        Self {
            options,
            start_ns,
            ticks: 0,
            due: 0,
            shed: 0,
            taken: 0,
            late_ticks: 0,
            latest_ns: 0,
            is_over: false,
        }
    }

    /// Processes all ticks up to now. Missed ticks are caught up, and counted as late.
    pub fn advance(&mut self, now_ns: u64) -> Result<(), Overloaded> {
        if self.is_over {
            return Ok(());
        }
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let is_over = self.options.duration_ns.is_some_and(|duration| elapsed_ns >= duration);
        let ticks = elapsed_ns / self.options.tick_ns;
        if ticks > self.ticks {
            let first_ns = (self.ticks + 1).saturating_mul(self.options.tick_ns);
            self.latest_ns = self.latest_ns.max(elapsed_ns - first_ns);
            self.late_ticks += ticks - self.ticks - 1;
            self.ticks = ticks;
        }
        let until_ns = match self.options.duration_ns {
            Some(duration_ns) if is_over => duration_ns,
            _ => ticks.saturating_mul(self.options.tick_ns),
        };
        self.release(until_ns, is_over);
        self.is_over = is_over || self.options.tasks.is_some_and(|tasks| self.due >= tasks);
        self.apply_policy()
    }

    fn release(&mut self, until_ns: u64, is_over: bool) {
        let limit = self.options.tasks.unwrap_or(u64::MAX);
        match self.options.rate {
            Rate::PerSecond(rate) => {
                let due = u128::from(rate) * u128::from(until_ns) / u128::from(NS_PER_S);
                self.due = u64::try_from(due).unwrap_or(u64::MAX).min(limit);
            }
            Rate::Max if is_over => self.due = self.taken,
            Rate::Max => self.due = limit,
        }
    }

    fn apply_policy(&mut self) -> Result<(), Overloaded> {
        let (backlog, max) = (self.backlog(), self.options.backlog_max);
        if backlog <= max || self.options.rate == Rate::Max {
            return Ok(());
        }
        match self.options.overload {
            Overload::Queue => Ok(()),
            Overload::Shed => {
                self.shed += backlog - max;
                Ok(())
            }
            Overload::Fail => Err(Overloaded { backlog, max }),
        }
    }

    /// Ends the schedule: no further task becomes due.
    pub fn stop(&mut self) {
        self.is_over = true;
        self.due = self.taken + self.shed;
    }

    /// Ends the schedule after this number of tasks. The end was unknown before.
    pub fn limit(&mut self, tasks: u64) {
        let tasks = self.options.tasks.map_or(tasks, |before| before.min(tasks));
        self.options.tasks = Some(tasks);
        self.due = self.due.min(tasks.max(self.taken + self.shed));
    }

    /// Takes up to `count` tasks. Also returns when the first of them was due.
    pub fn take(&mut self, count: u32, now_ns: u64) -> Option<(u32, u64)> {
        let available = u32::try_from(self.backlog().min(u64::from(count))).unwrap_or(count);
        if available == 0 {
            return None;
        }
        let due_ns = self.due_at(self.taken + self.shed, now_ns);
        self.taken += u64::from(available);
        Some((available, due_ns))
    }

    /// Task n is due when rate x time reaches n + 1.
    fn due_at(&self, number: u64, now_ns: u64) -> u64 {
        match self.options.rate {
            Rate::Max => now_ns,
            Rate::PerSecond(rate) => {
                let ns = u128::from(number + 1) * u128::from(NS_PER_S);
                let after = ns.div_ceil(u128::from(rate.max(1)));
                self.start_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
            }
        }
    }

    /// Tasks that are due and not taken.
    pub fn backlog(&self) -> u64 {
        self.due - self.shed - self.taken
    }

    /// Whether no more tasks will become due, and none waits.
    pub fn is_finished(&self) -> bool {
        self.is_over && self.backlog() == 0
    }

    /// Whether tasks become due as they are taken, so that the backlog has no meaning.
    pub fn is_endless(&self) -> bool {
        self.options.rate == Rate::Max
    }

    /// Returns the time of the next tick; `u64::MAX` when no more tasks become due.
    pub fn next_tick_ns(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        self.start_ns.saturating_add((self.ticks + 1).saturating_mul(self.options.tick_ns))
    }

    /// Tasks that became due, including shed ones; in a closed loop, the tasks taken.
    pub fn offered(&self) -> u64 {
        match self.options.rate {
            Rate::Max => self.taken,
            Rate::PerSecond(_) => self.due,
        }
    }

    pub fn shed(&self) -> u64 {
        self.shed
    }

    /// Ticks that were processed together with a later one.
    pub fn late_ticks(&self) -> u64 {
        self.late_ticks
    }

    /// Largest delay of a tick.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn options(rate: u64) -> PaceOptions {
        PaceOptions {
            rate: Rate::PerSecond(rate),
            tick_ns: 10 * MS,
            duration_ns: None,
            tasks: None,
            overload: Overload::Queue,
            backlog_max: 100,
        }
    }

    #[test]
    fn counts_are_exact_at_every_tick() {
        let mut pace = Pace::new(options(333), 5);
        for tick in 1..=1_000 {
            pace.advance(5 + tick * 10 * MS + 3).unwrap();
            assert_eq!(pace.offered(), 333 * tick / 100);
        }
        assert_eq!((pace.late_ticks(), pace.latest_ns()), (0, 3));
    }

    #[test]
    fn missed_ticks_are_caught_up_and_declared() {
        let mut pace = Pace::new(options(1_000), 0);
        pace.advance(10 * MS).unwrap();
        pace.advance(59 * MS).unwrap();
        assert_eq!((pace.offered(), pace.late_ticks(), pace.latest_ns()), (50, 3, 39 * MS));
        assert_eq!(pace.take(4096, 59 * MS), Some((50, MS)));
        assert_eq!(pace.take(4096, 59 * MS), None);
    }

    #[test]
    fn duration_and_tasks_end_it() {
        let mut pace = Pace::new(PaceOptions { duration_ns: Some(25 * MS), ..options(1_000) }, 0);
        pace.advance(24 * MS).unwrap();
        assert_eq!((pace.offered(), pace.is_finished()), (20, false));
        assert_eq!(pace.next_tick_ns(), 30 * MS);
        pace.advance(400 * MS).unwrap();
        assert_eq!((pace.offered(), pace.is_finished()), (25, false));
        assert_eq!(pace.next_tick_ns(), u64::MAX);
        pace.take(30, 0);
        assert!(pace.is_finished());

        let mut pace = Pace::new(PaceOptions { tasks: Some(7), ..options(1_000) }, 0);
        pace.advance(25 * MS).unwrap();
        assert_eq!(pace.take(30, 0), Some((7, MS)));
        assert!(pace.is_finished());
    }

    #[test]
    fn the_maximum_rate_follows_demand() {
        let mut pace =
            Pace::new(PaceOptions { rate: Rate::Max, duration_ns: Some(MS * 15), ..options(0) }, 0);
        assert_eq!(pace.take(4096, 1), None);
        pace.advance(1).unwrap();
        assert_eq!(pace.take(4096, 1), Some((4096, 1)));
        pace.advance(15 * MS).unwrap();
        assert_eq!(pace.take(4096, 1), None);
        assert_eq!((pace.offered(), pace.is_finished()), (4096, true));
    }

    #[test]
    fn policies_act_beyond_the_limit() {
        let with = |overload| Pace::new(PaceOptions { overload, ..options(10_000) }, 0);
        let mut queue = with(Overload::Queue);
        queue.advance(20 * MS).unwrap();
        assert_eq!((queue.backlog(), queue.shed()), (200, 0));

        let mut shed = with(Overload::Shed);
        shed.advance(20 * MS).unwrap();
        assert_eq!((shed.backlog(), shed.shed(), shed.offered()), (100, 100, 200));
        // The oldest were dropped: the rest was due in the second half.
        assert_eq!(shed.take(1, 0), Some((1, 101 * MS / 10)));

        let mut fail = with(Overload::Fail);
        fail.advance(10 * MS).unwrap();
        assert_eq!(fail.advance(20 * MS), Err(Overloaded { backlog: 200, max: 100 }));
    }

    /// The end of the input is found while its last tasks are taken, or after that.
    #[test]
    fn a_limit_can_be_set_later() {
        for taken in [3, 7] {
            let mut pace = Pace::new(PaceOptions { rate: Rate::Max, ..options(0) }, 0);
            pace.advance(1).unwrap();
            pace.take(taken, 1);
            pace.limit(7);
            pace.advance(2).unwrap();
            assert_eq!(pace.take(4096, 2).map_or(0, |(count, _)| count), 7 - taken);
            assert!(pace.is_finished());
            pace.limit(9);
            assert!(pace.is_finished());
        }
    }

    #[test]
    fn a_stopped_schedule_is_finished() {
        let mut pace = Pace::new(options(10_000), 0);
        pace.advance(20 * MS).unwrap();
        pace.take(30, 0);
        pace.stop();
        pace.advance(100 * MS).unwrap();
        assert!(pace.is_finished());
    }

    proptest! {
        /// For any sequence of polls and takes, every due task is taken, waiting, or shed.
        #[test]
        fn no_task_is_lost(
            rate in 1..50_000_000_u64,
            steps in proptest::collection::vec((0..50 * MS, 0..100_000_u32), 1..40),
        ) {
            let mut pace = Pace::new(
                PaceOptions { overload: Overload::Shed, backlog_max: 50_000, ..options(rate) },
                0,
            );
            let (mut now_ns, mut taken, mut last_due_ns) = (0, 0, 0);
            for (after_ns, count) in steps {
                now_ns += after_ns;
                pace.advance(now_ns).unwrap();
                if let Some((count, due_ns)) = pace.take(count, now_ns) {
                    taken += u64::from(count);
                    prop_assert!(due_ns <= now_ns && due_ns > last_due_ns);
                    last_due_ns = due_ns;
                }
                let ticks = now_ns / (10 * MS);
                prop_assert_eq!(pace.offered(), rate * ticks / 100);
                prop_assert_eq!(pace.offered(), taken + pace.shed() + pace.backlog());
                prop_assert!(pace.backlog() <= 50_000);
            }
        }
    }
}
