//! Timestamps of writes whose clients gave none, and places of items in lists.

use std::sync::atomic::{AtomicI64, Ordering};

/// Gives each number once. Numbers follow the wall clock, in microseconds, and go ahead of it when
/// several are asked for within one: of two writes the later one wins.
///
/// One cache line that all reactors write, on writes without a timestamp of the client only: drivers
/// send theirs.
#[derive(Debug, Default)]
pub(crate) struct WriteClock {
    last: AtomicI64,
}

impl WriteClock {
    /// The first of `count` numbers in a row.
    pub(super) fn take(&self, now_us: i64, count: usize) -> i64 {
        let count = i64::try_from(count.max(1)).expect("counts of items fit memory");
        let next = |last: i64| last.saturating_add(1).max(now_us);
        let taken = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            Some(next(last).saturating_add(count - 1))
        });
        next(taken.expect("always taken"))
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
}
