//! Timers of one reactor.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::time::MonoNs;

/// A binary heap: O(log n) to set, O(1) to check. Timers are not cancelled; the code that set one
/// ignores it if it has become irrelevant.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Time, then order of setting, then token.
    heap: BinaryHeap<Reverse<(MonoNs, u64, u64)>>,
    set_count: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: MonoNs, token: u64) {
        self.heap.push(Reverse((at, self.set_count, token)));
        self.set_count += 1;
    }

    pub(crate) fn next_at(&self) -> Option<MonoNs> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next timer that is due at `now` and was set before `set_before`, so that a timer
    /// set for "now" by a timer callback waits for the next turn.
    pub(crate) fn take_due(&mut self, now: MonoNs, set_before: u64) -> Option<u64> {
        let Reverse((at, order, token)) = *self.heap.peek()?;
        if at > now || order >= set_before {
            return None;
        }
        self.heap.pop();
        Some(token)
    }

    /// How many timers were ever set.
    pub(crate) fn set_count(&self) -> u64 {
        self.set_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_of_time_then_of_setting() {
        let mut timers = Timers::default();
        timers.set(MonoNs(20), 1);
        timers.set(MonoNs(10), 2);
        timers.set(MonoNs(20), 3);
        timers.set(MonoNs(30), 4);
        assert_eq!(timers.next_at(), Some(MonoNs(10)));
        let due: Vec<u64> = std::iter::from_fn(|| timers.take_due(MonoNs(20), u64::MAX)).collect();
        assert_eq!(due, [2, 1, 3]);
        assert_eq!(timers.next_at(), Some(MonoNs(30)));
    }

    #[test]
    fn a_timer_set_by_a_timer_waits_for_the_next_turn() {
        let mut timers = Timers::default();
        timers.set(MonoNs(1), 1);
        let bound = timers.set_count();
        assert_eq!(timers.take_due(MonoNs(5), bound), Some(1));
        timers.set(MonoNs(1), 1);
        assert_eq!(timers.take_due(MonoNs(5), bound), None);
        assert_eq!(timers.take_due(MonoNs(5), timers.set_count()), Some(1));
    }
}
