//! Deadlines of waiting connections: one per connection, which can be cancelled.

use std::collections::{BTreeSet, HashMap};

use base::time::MonoNs;
use reactor::ConnId;

/// Deadlines are met in the next turn after a multiple of this, so that many connections with nearly the
/// same deadline share a timer.
const GRAIN_NS: u64 = 1_000_000;

/// Timers of the reactor cannot be cancelled. So a timer is set only for the earliest deadline, and
/// only shortly before it: at most one timer for each [`GRAIN_NS`] of a tick is pending.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(MonoNs, ConnId)>,
    by_connection: HashMap<ConnId, MonoNs>,
    /// The earliest pending timer; in the past if none is pending.
    armed: MonoNs,
}

impl Deadlines {
    /// Replaces the deadline of a connection.
    pub(super) fn set(&mut self, id: ConnId, at: MonoNs) {
        self.cancel(id);
        self.by_time.insert((at, id));
        self.by_connection.insert(id, at);
    }

    pub(super) fn cancel(&mut self, id: ConnId) {
        if let Some(at) = self.by_connection.remove(&id) {
            self.by_time.remove(&(at, id));
        }
    }

    /// Removes and returns a connection whose deadline has passed.
    pub(super) fn take_due(&mut self, now: MonoNs) -> Option<ConnId> {
        let (at, id) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.cancel(id);
        Some(id)
    }

    /// Returns when a timer must expire, if none is pending that expires before. `horizon`: the
    /// caller asks again at this time at the latest.
    pub(super) fn timer(&mut self, now: MonoNs, horizon: MonoNs) -> Option<MonoNs> {
        let (at, _) = *self.by_time.first()?;
        let at = MonoNs(at.0.max(now.0).div_ceil(GRAIN_NS).saturating_mul(GRAIN_NS));
        let is_pending = self.armed > now && self.armed <= at;
        if is_pending || at > horizon {
            return None;
        }
        self.armed = at;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> MonoNs {
        MonoNs(ms * MS)
    }

    #[test]
    fn connections_are_due_in_order_and_once() {
        let mut deadlines = Deadlines::default();
        deadlines.set(ConnId(1), at(30));
        deadlines.set(ConnId(2), at(10));
        deadlines.set(ConnId(3), at(20));
        deadlines.set(ConnId(1), at(15));
        deadlines.cancel(ConnId(3));
        deadlines.cancel(ConnId(4));
        assert_eq!(deadlines.take_due(at(9)), None);
        let due: Vec<ConnId> = std::iter::from_fn(|| deadlines.take_due(at(40))).collect();
        assert_eq!(due, [ConnId(2), ConnId(1)]);
        assert!(deadlines.by_connection.is_empty());
    }

    #[test]
    fn a_timer_is_set_for_the_earliest_deadline_before_the_horizon() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.timer(at(1), at(100)), None);
        deadlines.set(ConnId(1), at(200));
        assert_eq!(deadlines.timer(at(1), at(100)), None, "after the horizon");
        deadlines.set(ConnId(2), MonoNs(50 * MS + 1));
        assert_eq!(deadlines.timer(at(1), at(100)), Some(at(51)));
        deadlines.set(ConnId(3), MonoNs(50 * MS + 2));
        assert_eq!(deadlines.timer(at(1), at(100)), None, "the pending timer serves both");
        deadlines.set(ConnId(4), at(20));
        assert_eq!(deadlines.timer(at(1), at(100)), Some(at(20)), "an earlier one");
        assert_eq!(deadlines.take_due(at(20)), Some(ConnId(4)));
        assert_eq!(deadlines.timer(at(20), at(120)), Some(at(51)), "pending, but not known to be");
    }

    #[test]
    fn a_passed_deadline_sets_a_timer_for_now() {
        let mut deadlines = Deadlines::default();
        deadlines.set(ConnId(1), at(5));
        assert_eq!(deadlines.timer(at(9), at(100)), Some(at(9)));
    }
}
