//! When fields of a hash expire: a heap of times, and for each field its place in the heap.

use base::time::UnixMs;

use crate::types::allocation_bytes;

/// Place of a field that does not expire.
const NO_PLACE: u32 = u32::MAX;

/// Memory is freed when less than this fraction of a capacity is in use ...
const SHRINK_DENOMINATOR: usize = 8;
/// ... and the capacity is larger than this.
const SHRINK_CAPACITY_MIN: usize = 64;

/// Expiry times of fields, which are named by their index in the table of the hash.
///
/// 16 bytes for each field that expires, and 4 for each field up to the last one that does. Nothing
/// is outdated: a change costs O(log n), and the earliest time is known.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldTimes {
    /// A binary heap: the item at `n` is not later than those at `2 * n + 1` and `2 * n + 2`.
    heap: Vec<Timed>,
    /// Place of each field in the heap. Fields beyond its end do not expire.
    places: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Timed {
    at: UnixMs,
    field: u32,
}

const _: () = assert!(size_of::<Timed>() == 16);

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a hash has less than 2^32 fields")
}

impl FieldTimes {
    /// Number of fields that expire.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When a field expires.
    #[inline]
    pub(super) fn get(&self, field: usize) -> Option<UnixMs> {
        self.place(field).map(|place| self.heap[place].at)
    }

    #[inline]
    fn place(&self, field: usize) -> Option<usize> {
        self.places.get(field).filter(|place| **place != NO_PLACE).map(|place| *place as usize)
    }

    pub(super) fn earliest(&self) -> Option<UnixMs> {
        self.heap.first().map(|timed| timed.at)
    }

    /// Sets when a field expires; `None`: never. O(log n).
    pub(super) fn set(&mut self, field: usize, at: Option<UnixMs>) {
        match (self.place(field), at) {
            (Some(place), Some(at)) => {
                self.heap[place].at = at;
                self.settle(place);
            }
            (Some(place), None) => self.remove(place),
            (None, Some(at)) => {
                if self.places.len() <= field {
                    self.places.resize(field + 1, NO_PLACE);
                }
                self.heap.push(Timed { at, field: number(field) });
                self.settle(self.heap.len() - 1);
            }
            (None, None) => {}
        }
    }

    /// Forgets a field that is removed, and gives its index to the last field of the table.
    pub(super) fn swap_remove(&mut self, field: usize, last: usize) {
        debug_assert!(field <= last, "the last field takes the place of a removed one");
        self.set(field, None);
        if let Some(place) = self.place(last) {
            self.places[field] = number(place);
            self.heap[place].field = number(field);
        }
        self.places.truncate(last);
        if is_sparse(self.places.len(), self.places.capacity()) {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    fn remove(&mut self, place: usize) {
        let removed = self.heap.swap_remove(place);
        self.places[removed.field as usize] = NO_PLACE;
        if place < self.heap.len() {
            self.settle(place);
        }
        if is_sparse(self.heap.len(), self.heap.capacity()) {
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// Moves an item up or down to where it belongs.
    fn settle(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].at < self.heap[(place - 1) / 2].at {
            self.exchange(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let below = (2 * place + 1..self.heap.len()).take(2);
            let Some(first) = below.min_by_key(|child| self.heap[*child].at) else { break };
            if self.heap[place].at <= self.heap[first].at {
                break;
            }
            self.exchange(place, first);
            place = first;
        }
        self.places[self.heap[place].field as usize] = number(place);
    }

    fn exchange(&mut self, place: usize, other: usize) {
        self.heap.swap(place, other);
        self.places[self.heap[place].field as usize] = number(place);
        self.places[self.heap[other].field as usize] = number(other);
    }

    /// Calls `visit` with the fields that expire up to `until`, the earliest first in each branch of
    /// the heap, until it returns false. O(fields visited).
    pub(super) fn visit_due(&self, until: UnixMs, mut visit: impl FnMut(usize, UnixMs) -> bool) {
        if self.earliest().is_none_or(|at| at > until) {
            return;
        }
        // Places of which the item and those below it are still to visit: at most two per level.
        let mut open = vec![0];
        while let Some(place) = open.pop() {
            let Some(timed) = self.heap.get(place).filter(|timed| timed.at <= until) else {
                continue;
            };
            if !visit(timed.field as usize, timed.at) {
                return;
            }
            open.extend([2 * place + 2, 2 * place + 1]);
        }
    }

    /// Number of fields that have expired. O(1) while none has, otherwise O(their number).
    pub(super) fn due(&self, now: UnixMs) -> usize {
        let mut due = 0;
        self.visit_due(now, |_, _| {
            due += 1;
            true
        });
        due
    }

    /// Whether all fields that expire have expired. Later times are near the end of the heap, so
    /// one of the first comparisons usually decides.
    pub(super) fn are_all_due(&self, now: UnixMs) -> bool {
        self.heap.iter().rev().all(|timed| timed.at <= now)
    }

    /// Bytes of heap. O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.heap.capacity() * size_of::<Timed>())
            + allocation_bytes(self.places.capacity() * size_of::<u32>())
    }
}

fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > SHRINK_CAPACITY_MIN && len < capacity / SHRINK_DENOMINATOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each field's time, by index.
    type Oracle = Vec<Option<u64>>;

    fn check(times: &FieldTimes, oracle: &Oracle, until: u64) {
        let found: Oracle = (0..oracle.len()).map(|at| times.get(at).map(|at| at.0)).collect();
        assert_eq!(&found, oracle);
        assert_eq!(times.get(oracle.len()), None);
        let set: Vec<u64> = oracle.iter().flatten().copied().collect();
        assert_eq!(times.len(), set.len());
        assert_eq!(times.earliest().map(|at| at.0), set.iter().min().copied());
        let mut due = Vec::new();
        times.visit_due(UnixMs(until), |field, at| {
            assert_eq!(oracle[field], Some(at.0));
            due.push(field);
            true
        });
        due.sort_unstable();
        let is_due = |field: &usize| oracle[*field].is_some_and(|at| at <= until);
        assert_eq!(due, (0..oracle.len()).filter(is_due).collect::<Vec<_>>());
        assert_eq!(times.due(UnixMs(until)), due.len());
        assert_eq!(times.are_all_due(UnixMs(until)), due.len() == set.len());
    }

    proptest! {
        #[test]
        fn times_are_as_the_oracle(
            steps in proptest::collection::vec((0usize..12, 0u8..4, 0u64..20), 1..80),
        ) {
            let (mut times, mut oracle) = (FieldTimes::default(), Oracle::new());
            for (field, kind, at) in steps {
                let field = field.min(oracle.len());
                if field == oracle.len() {
                    oracle.push(None);
                }
                match kind {
                    0 => {
                        times.swap_remove(field, oracle.len() - 1);
                        oracle.swap_remove(field);
                    }
                    1 => {
                        times.set(field, None);
                        oracle[field] = None;
                    }
                    _ => {
                        times.set(field, Some(UnixMs(at)));
                        oracle[field] = Some(at);
                    }
                }
                check(&times, &oracle, at);
            }
        }
    }

    #[test]
    fn memory_comes_back_after_removals() {
        let mut times = FieldTimes::default();
        (0..10_000).for_each(|field| times.set(field, Some(UnixMs(field as u64 % 77))));
        let full_bytes = times.heap_bytes();
        assert!(full_bytes >= 200_000, "{full_bytes}");
        (10..10_000).rev().for_each(|last| times.swap_remove(5, last));
        assert_eq!(times.len(), 10);
        assert!(times.heap_bytes() < full_bytes / 50, "{}", times.heap_bytes());
    }

    #[test]
    fn a_visit_ends_when_it_is_told() {
        let mut times = FieldTimes::default();
        (0..100).for_each(|field| times.set(field, Some(UnixMs(100 - field as u64))));
        let mut visited = 0;
        times.visit_due(UnixMs(200), |_, _| {
            visited += 1;
            visited < 7
        });
        assert_eq!(visited, 7);
    }
}
