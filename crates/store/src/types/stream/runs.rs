//! Ordered items by the identifier of an entry, in short sorted arrays.
//!
//! The lists of pending entries grow at the end and shrink near the front, so an item costs little
//! more than its bytes. Search: O(log n). Change: O(log n) and a copy within one array; a new array
//! in the middle moves the handles of those after it, once in [`RUN_ITEMS_MAX`] / 2 changes.

use std::collections::VecDeque;

use super::id::StreamId;
use crate::types::allocation_bytes;

/// Items of one array.
const RUN_ITEMS_MAX: usize = 64;

pub(super) trait Keyed {
    fn id(&self) -> StreamId;
}

impl Keyed for StreamId {
    fn id(&self) -> StreamId {
        *self
    }
}

/// Items in ascending order. No array is empty.
#[derive(Debug, Clone)]
pub(super) struct Runs<T> {
    arrays: VecDeque<Vec<T>>,
    len: usize,
    /// Allocations of all arrays.
    array_heap_bytes: usize,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs { arrays: VecDeque::new(), len: 0, array_heap_bytes: 0 }
    }
}

impl<T: Keyed> Runs<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.arrays.capacity() * size_of::<Vec<T>>()) + self.array_heap_bytes
    }

    /// The array that has the identifier or would get it.
    fn run(&self, id: StreamId) -> usize {
        self.arrays.partition_point(|run| run[0].id() <= id).saturating_sub(1)
    }

    fn find(&self, id: StreamId) -> Option<(usize, usize)> {
        let run = self.run(id);
        let place = self.arrays.get(run)?.binary_search_by_key(&id, Keyed::id).ok()?;
        Some((run, place))
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&T> {
        self.find(id).map(|(run, place)| &self.arrays[run][place])
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.arrays.front()?.first()
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.arrays.back()?.last()
    }

    /// All items from an identifier on.
    pub(super) fn iter_from(&self, id: StreamId) -> impl Iterator<Item = &T> {
        let run = self.run(id);
        let skipped = self.arrays.get(run).map_or(0, |run| run.partition_point(|it| it.id() < id));
        self.arrays.range(run.min(self.arrays.len())..).flatten().skip(skipped)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.arrays.iter().flatten()
    }

    /// Changes one array and keeps the account of its memory.
    fn edit<R>(&mut self, run: usize, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let items = &mut self.arrays[run];
        self.array_heap_bytes -= heap_bytes_of(items);
        let result = change(items);
        self.array_heap_bytes += heap_bytes_of(items);
        result
    }

    fn insert_run(&mut self, run: usize, items: Vec<T>) {
        if self.arrays.capacity() == 0 {
            self.arrays.reserve_exact(1);
        }
        self.array_heap_bytes += heap_bytes_of(&items);
        self.arrays.insert(run, items);
    }

    /// Adds an item; returns the one that it replaces.
    pub(super) fn insert(&mut self, item: T) -> Option<T> {
        let id = item.id();
        let mut run = self.run(id);
        let mut place = match self.arrays.get(run) {
            None => {
                self.insert_run(0, Vec::new());
                0
            }
            Some(items) => match items.binary_search_by_key(&id, Keyed::id) {
                Ok(place) => return Some(std::mem::replace(&mut self.arrays[run][place], item)),
                Err(place) => place,
            },
        };
        if self.arrays[run].len() == RUN_ITEMS_MAX {
            // Items are usually added at the end: then the arrays stay full.
            let is_last = run + 1 == self.arrays.len() && place == RUN_ITEMS_MAX;
            let cut = if is_last { RUN_ITEMS_MAX } else { RUN_ITEMS_MAX / 2 };
            let right = self.edit(run, |items| {
                let right = items.split_off(cut);
                items.shrink_to_fit();
                right
            });
            self.insert_run(run + 1, right);
            if place > cut || is_last {
                run += 1;
                place -= cut;
            }
        }
        self.edit(run, |items| items.insert(place, item));
        self.len += 1;
        None
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<T> {
        let (run, place) = self.find(id)?;
        let item = self.edit(run, |items| {
            let item = items.remove(place);
            if items.capacity() > 4 * items.len() + 4 {
                items.shrink_to(2 * items.len());
            }
            item
        });
        self.len -= 1;
        if self.arrays[run].is_empty() {
            self.remove_run(run);
        } else if self.arrays[run].len() < RUN_ITEMS_MAX / 4 {
            self.merge(run);
        }
        Some(item)
    }

    fn remove_run(&mut self, run: usize) -> Option<Vec<T>> {
        let items = self.arrays.remove(run)?;
        self.array_heap_bytes -= heap_bytes_of(&items);
        if self.arrays.capacity() > 4 * self.arrays.len() + 4 {
            self.arrays.shrink_to(2 * self.arrays.len());
        }
        Some(items)
    }

    /// Joins an array with the next one if both are short.
    fn merge(&mut self, run: usize) {
        let Some(next) = self.arrays.get(run + 1) else { return };
        if self.arrays[run].len() + next.len() <= RUN_ITEMS_MAX / 2
            && let Some(next) = self.remove_run(run + 1)
        {
            self.edit(run, |items| items.extend(next));
        }
    }
}

fn heap_bytes_of<T>(items: &Vec<T>) -> usize {
    allocation_bytes(items.capacity() * size_of::<T>())
}

impl<T: Keyed + PartialEq> PartialEq for Runs<T> {
    fn eq(&self, other: &Runs<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn check(runs: &Runs<StreamId>, oracle: &BTreeSet<StreamId>, from: StreamId) {
        assert_eq!(runs.len(), oracle.len());
        assert!(runs.iter().eq(oracle.iter()));
        assert!(runs.iter_from(from).eq(oracle.range(from..)));
        assert_eq!(runs.get(from), oracle.get(&from));
        assert_eq!((runs.first(), runs.last()), (oracle.first(), oracle.last()));
        assert!(runs.arrays.iter().all(|run| !run.is_empty() && run.len() <= RUN_ITEMS_MAX));
        let counted: usize = runs.arrays.iter().map(heap_bytes_of).sum();
        assert_eq!(runs.array_heap_bytes, counted);
    }

    proptest! {
        #[test]
        fn runs_are_as_the_oracle(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300, 1u64..20), 1..80),
        ) {
            let (mut runs, mut oracle) = (Runs::default(), BTreeSet::new());
            for (is_added, first, count) in steps {
                for seq in first..first + count * count {
                    let id = StreamId { ms: seq / 64, seq };
                    if is_added {
                        prop_assert_eq!(runs.insert(id).is_none(), oracle.insert(id));
                    } else {
                        prop_assert_eq!(runs.remove(id).is_some(), oracle.remove(&id));
                    }
                }
                check(&runs, &oracle, StreamId { ms: first / 64, seq: first + 1 });
            }
        }
    }

    #[test]
    fn items_added_at_the_end_fill_their_arrays() {
        let mut runs = Runs::default();
        for seq in 0..10_000 {
            runs.insert(StreamId { ms: 1, seq });
        }
        assert!(runs.heap_bytes() < 10_000 * 17 + 8192, "{}", runs.heap_bytes());
        for seq in 0..9_999 {
            assert!(runs.remove(StreamId { ms: 1, seq }).is_some());
        }
        assert!(runs.heap_bytes() < 2048, "{}", runs.heap_bytes());
    }
}
