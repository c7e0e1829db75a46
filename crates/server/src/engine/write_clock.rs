//! Timestamps of writes without a client timestamp, and positions of list elements.

use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that returns each number once. Numbers follow the wall clock in microseconds, and run
/// ahead of it if several are taken within one microsecond: of two writes the later one wins.
///
/// All reactors write its cache line, but only for writes without a client timestamp: drivers
/// usually send one.
#[derive(Debug, Default)]
pub(crate) struct WriteClock {
    last: AtomicI64,
}

/// How far a client's timestamp may advance the clock beyond the time: client clocks differ.
const LEAD_US_MAX: i64 = 1_000_000;

impl WriteClock {
    /// Creates a clock whose numbers all exceed `newest`, whatever the time is.
    pub(crate) fn above(newest: i64) -> WriteClock {
        WriteClock { last: AtomicI64::new(newest) }
    }

    /// The newest number taken. Numbers that only follow a client clock far ahead of the time do
    /// not count.
    pub(crate) fn newest(&self) -> i64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Makes later numbers exceed one that another server has given.
    pub(crate) fn pass(&self, given: i64) {
        self.last.fetch_max(given, Ordering::Relaxed);
    }

    /// Takes a number above `floor`, which a conditional write has read.
    ///
    /// Later numbers continue after it, unless it is so far ahead of the clock that a client must
    /// have chosen `floor`: then only this write follows that client, not all writes of the server.
    pub(crate) fn take_above(&self, floor: i64, now_us: i64) -> i64 {
        let above = floor.saturating_add(1);
        let is_near = above <= now_us.saturating_add(LEAD_US_MAX);
        let next = |last: i64| {
            let own = last.saturating_add(1).max(now_us);
            if is_near { own.max(above) } else { own }
        };
        let taken =
            self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(taken.expect("the closure always returns a value")).max(above)
    }

    /// Takes `count` consecutive numbers and returns the first.
    pub(crate) fn take(&self, now_us: i64, count: usize) -> i64 {
        let count = i64::try_from(count.max(1)).expect("a count of items in memory fits i64");
        let next = |last: i64| last.saturating_add(1).max(now_us);
        let taken = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            Some(next(last).saturating_add(count - 1))
        });
        next(taken.expect("the closure always returns a value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_clock_and_never_come_twice() {
        let clock = WriteClock::default();
        assert_eq!(clock.take(100, 1), 100);
        assert_eq!(clock.take(100, 3), 101);
        assert_eq!(clock.take(90, 1), 104);
        assert_eq!(clock.take(200, 0), 200);
        assert_eq!(clock.take(200, 1), 201);
    }

    #[test]
    fn numbers_go_on_after_a_restart_whatever_the_time_is() {
        let clock = WriteClock::default();
        clock.take(5_000, 3);
        let again = WriteClock::above(clock.newest());
        assert_eq!(again.take(1_000, 1), 5_003);
        // Earlier writes may be above the time, but no client chose their timestamps.
        assert_eq!(again.take_above(5_001, 1_000), 5_004);
        assert_eq!(again.take_above(1 << 50, 1_000), (1 << 50) + 1);
        assert_eq!(again.newest(), 5_005);
    }

    #[test]
    fn a_number_is_above_what_was_read_and_far_ones_do_not_move_the_clock() {
        let clock = WriteClock::default();
        assert_eq!(clock.take_above(i64::MIN, 100), 100);
        assert_eq!(clock.take_above(150, 100), 151);
        assert_eq!(clock.take(100, 1), 152, "never given twice");
        let far = 100 + 2 * LEAD_US_MAX;
        assert_eq!(clock.take_above(far, 100), far + 1);
        assert_eq!(clock.take(100, 1), 154);
        assert_eq!(clock.take_above(i64::MAX, 100), i64::MAX);
    }
}
