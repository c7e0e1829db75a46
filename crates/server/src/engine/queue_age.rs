//! Admission by age: detects that all requests of a reactor wait for too long, and which ones are
//! refused then.
//!
//! A request that is served a certain time after its reactor last checked its sockets has waited at
//! least that long. A single slow command makes one turn long, and the requests after it are
//! served. Only if every turn is long for a while is the reactor overloaded: its queue never
//! empties, and serving old requests, whose clients may have given up, makes all others older.
// Source: "Fail at Scale", ACM Queue 13(8), 2015: controlled delay. Nichols and Jacobson,
// "Controlling Queue Delay", ACM Queue 10(5), 2012.

use base::time::MonoNs;

/// Time for which all turns exceed the limit before requests are refused, as a multiple of the
/// limit. Bursts are shorter.
const INTERVALS: u64 = 4;

/// The ages of the requests of one reactor.
#[derive(Debug, Default)]
pub(crate) struct QueueAge {
    /// Age that must not be exceeded for long; 0: no limit.
    limit_ns: u64,
    /// End of the first of the turns that exceeded the limit without interruption.
    above_since: Option<MonoNs>,
    is_overloaded: bool,
}

/// A change of the state of a reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Overloaded,
    Recovered,
}

impl QueueAge {
    pub(crate) fn set_limit_ms(&mut self, ms: u64) {
        self.limit_ns = ms.saturating_mul(1_000_000);
    }

    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded
    }

    /// Whether a request is refused that is served this time after the start of its turn.
    pub(crate) fn refuses(&self, waited_ns: u64) -> bool {
        self.is_overloaded && waited_ns >= self.limit_ns
    }

    /// Records a turn that began at `began`.
    pub(crate) fn end_turn(&mut self, began: MonoNs, lasted_ns: u64) -> Option<Change> {
        if self.limit_ns == 0 || lasted_ns < self.limit_ns {
            self.above_since = None;
            return std::mem::take(&mut self.is_overloaded).then_some(Change::Recovered);
        }
        let ended = MonoNs(began.0.saturating_add(lasted_ns));
        let since = *self.above_since.get_or_insert(ended);
        let is_long = ended.since(since) >= self.limit_ns.saturating_mul(INTERVALS);
        if is_long && !self.is_overloaded {
            self.is_overloaded = true;
            return Some(Change::Overloaded);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ends turns that follow each other without a wait.
    fn turns(ages: &mut QueueAge, now_ms: &mut u64, durations_ms: &[u64]) -> Vec<Option<Change>> {
        let turn = |lasted_ms: &u64| {
            let change = ages.end_turn(MonoNs(*now_ms * MS), lasted_ms * MS);
            *now_ms += lasted_ms;
            change
        };
        durations_ms.iter().map(turn).collect()
    }

    #[test]
    fn only_long_turns_without_interruption_are_overload() {
        let (mut ages, mut now_ms) = (QueueAge::default(), 1);
        ages.set_limit_ms(10);
        let mut run = |durations_ms: &[u64]| {
            let changes = turns(&mut ages, &mut now_ms, durations_ms);
            (changes.iter().flatten().copied().collect::<Vec<_>>(), ages.is_overloaded())
        };
        assert_eq!(run(&[1000]), (vec![], false), "one slow command");
        assert_eq!(run(&[9, 20, 20, 5, 39, 20, 19]), (vec![], false), "a burst");
        assert_eq!(run(&[1, 10, 10, 10, 10]), (vec![], false));
        assert_eq!(run(&[10]), (vec![Change::Overloaded], true));
        // Refusals keep the turns at the limit while the load lasts.
        assert_eq!(run(&[10, 11, 10]), (vec![], true));
        assert_eq!(run(&[9]), (vec![Change::Recovered], false));
        assert_eq!(run(&[10, 10, 10, 10]), (vec![], false));
    }

    #[test]
    fn only_old_requests_are_refused() {
        let mut ages = QueueAge::default();
        ages.set_limit_ms(10);
        assert!(!ages.refuses(1000 * MS));
        let mut now_ms = 1;
        turns(&mut ages, &mut now_ms, &[10; 5]);
        assert!(ages.refuses(10 * MS));
        assert!(!ages.refuses(10 * MS - 1));
        ages.set_limit_ms(0);
        assert_eq!(turns(&mut ages, &mut now_ms, &[1000]), [Some(Change::Recovered)]);
        assert!(!ages.refuses(1000 * MS));
    }
}
