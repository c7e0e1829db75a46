//! The table form of hashes, sets and sorted sets: a hash table whose entries also have an index.
//!
//! # What a scan guarantees
//!
//! Entries are dense, at indexes `0..len`. A scan goes from the highest index down; its cursor is
//! the number of entries still to visit. Between two calls entries may come and go:
//!
//! - A new entry gets the highest index, which the scan has passed or will never reach.
//! - Removing an entry moves the last one into its place, so an entry only ever moves to a **lower**
//!   index. One that the scan has not visited is below the cursor and stays below it.
//! - If fewer entries are left than the cursor states, the cursor is clamped to their number.
//!
//! So every entry that is there from the first call to the last is visited at least once. One that
//! moves from the visited part into the other is visited twice, as Redis allows.

use foldhash::fast::FixedState;
use indexmap::IndexMap;

use super::allocation_bytes;

/// Memory is freed when less than this fraction of the capacity is in use ...
const SHRINK_DENOMINATOR: usize = 8;
/// ... and the table has more than this capacity.
const SHRINK_CAPACITY_MIN: usize = 64;
/// Bytes of the hash that is kept with each entry.
const ENTRY_HASH_BYTES: usize = 8;
/// A slot of the index: a position and a control byte.
const SLOT_BYTES: usize = 9;

const _: () = assert!(SHRINK_DENOMINATOR > 2, "a table that has shrunk is not full");

/// Heap that a value owns beyond its place in the table.
pub(crate) trait OwnedBytes {
    fn owned_bytes(&self) -> usize;
}

impl OwnedBytes for () {
    fn owned_bytes(&self) -> usize {
        0
    }
}

impl OwnedBytes for f64 {
    fn owned_bytes(&self) -> usize {
        0
    }
}

impl OwnedBytes for Box<[u8]> {
    fn owned_bytes(&self) -> usize {
        allocation_bytes(self.len())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Table<V> {
    map: IndexMap<Box<[u8]>, V, FixedState>,
    /// Allocations of all keys and values.
    owned_bytes: usize,
}

impl<V: OwnedBytes> Table<V> {
    pub(crate) fn new(seed: u64) -> Table<V> {
        Table { map: IndexMap::with_hasher(FixedState::with_seed(seed)), owned_bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.map.get(key)
    }

    pub(crate) fn get_full(&self, key: &[u8]) -> Option<(usize, &V)> {
        self.map.get_full(key).map(|(index, _, value)| (index, value))
    }

    pub(crate) fn get_index(&self, index: usize) -> Option<(&[u8], &V)> {
        self.map.get_index(index).map(|(key, value)| (key.as_ref(), value))
    }

    /// The value, to be changed without a change of what it owns.
    pub(crate) fn get_index_mut(&mut self, index: usize) -> Option<&mut V> {
        self.map.get_index_mut(index).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &V)> {
        self.map.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// Sets the value of a key; true if the key is new, then with the highest index.
    pub(crate) fn set(&mut self, key: &[u8], value: V) -> bool {
        self.owned_bytes += value.owned_bytes();
        if let Some(old) = self.map.get_mut(key) {
            self.owned_bytes -= old.owned_bytes();
            *old = value;
            return false;
        }
        self.owned_bytes += allocation_bytes(key.len());
        self.map.insert(key.into(), value);
        true
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        match self.map.get_index_of(key) {
            Some(index) => self.swap_remove(index).is_some(),
            None => false,
        }
    }

    /// Removes the entry at `index`; the entry with the highest index takes its place.
    pub(crate) fn swap_remove(&mut self, index: usize) -> Option<(Box<[u8]>, V)> {
        let (key, value) = self.map.swap_remove_index(index)?;
        self.owned_bytes -= allocation_bytes(key.len()) + value.owned_bytes();
        debug_assert!(!self.map.is_empty() || self.owned_bytes == 0, "each entry is counted once");
        let (len, capacity) = (self.map.len(), self.map.capacity());
        if capacity > SHRINK_CAPACITY_MIN && len < capacity / SHRINK_DENOMINATOR {
            self.map.shrink_to(2 * len);
        }
        Some((key, value))
    }

    /// Visits at most `count` entries (at least one), and returns the cursor of the next call: 0 at
    /// the end, as a cursor of 0 is the start. See the module's documentation.
    pub(crate) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &V)) -> u64 {
        let end = match usize::try_from(cursor) {
            Ok(cursor) if cursor > 0 => cursor.min(self.len()),
            _ => self.len(),
        };
        let start = end.saturating_sub(count.max(1));
        for index in (start..end).rev() {
            if let Some((key, value)) = self.get_index(index) {
                visit(key, value);
            }
        }
        start as u64
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let capacity = self.map.capacity();
        if capacity == 0 {
            return self.owned_bytes;
        }
        let entry_bytes = ENTRY_HASH_BYTES + size_of::<(Box<[u8]>, V)>();
        let slots = (capacity * 8 / 7).next_power_of_two();
        allocation_bytes(capacity * entry_bytes)
            + allocation_bytes(slots * SLOT_BYTES)
            + self.owned_bytes
    }

    #[cfg(test)]
    pub(crate) fn recounted_owned_bytes(&self) -> (usize, usize) {
        let owned = |(key, value): (&[u8], &V)| allocation_bytes(key.len()) + value.owned_bytes();
        (self.owned_bytes, self.iter().map(owned).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(number: u16) -> [u8; 2] {
        number.to_be_bytes()
    }

    proptest! {
        /// Whichever entries are added and removed between the calls, entries that stay are
        /// visited.
        #[test]
        fn a_scan_visits_all_that_is_there_throughout(
            len in 0u16..200,
            changes in proptest::collection::vec(
                (1usize..20, proptest::collection::vec((any::<bool>(), 0u16..260), 0..30)), 1..40),
        ) {
            let mut table = Table::new(1);
            (0..len).for_each(|number| { table.set(&key(number), ()); });
            let mut throughout: BTreeSet<_> = (0..len).map(key).collect();
            let mut visited = BTreeSet::new();
            let mut cursor = 0;
            for (count, changes) in changes {
                cursor = table.scan(cursor, count, |key, ()| { visited.insert(key.to_vec()); });
                if cursor == 0 {
                    break;
                }
                for (is_removal, number) in changes {
                    if is_removal {
                        table.remove(&key(number));
                        throughout.remove(&key(number));
                    } else {
                        table.set(&key(number), ());
                    }
                }
            }
            while cursor != 0 {
                cursor = table.scan(cursor, 3, |key, ()| { visited.insert(key.to_vec()); });
            }
            prop_assert!(throughout.iter().all(|key| visited.contains(key.as_slice())));
        }
    }

    #[test]
    fn any_cursor_is_accepted() {
        let mut table = Table::new(1);
        table.set(b"key", ());
        for cursor in [0, 1, 2, u64::MAX] {
            let mut visits = 0;
            assert_eq!(table.scan(cursor, 0, |_, ()| visits += 1), 0);
            assert_eq!(visits, 1);
        }
        assert_eq!(Table::<()>::new(1).scan(u64::MAX, usize::MAX, |_, ()| unreachable!()), 0);
    }

    #[test]
    fn memory_comes_back_after_removals() {
        let mut table = Table::new(1);
        for number in 0..10_000 {
            table.set(&key(number), 1.0);
        }
        let full_bytes = table.heap_bytes();
        for number in 0..9_990 {
            table.remove(&key(number));
        }
        assert!(table.heap_bytes() < full_bytes / 50, "{}", table.heap_bytes());
        assert_eq!(table.recounted_owned_bytes().0, 10 * 8);
    }
}
