//! The table form of hashes, sets and sorted sets: records in chunks, found by key and by index.
//!
//! A record is a key and its content in one run of bytes, so that an entry takes little more than
//! its bytes: six for the place of the record, and about eight in the index of hashes. There is no
//! allocation per entry.
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

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::allocation_bytes;
use super::records::{Place, Records};

/// The index grows when more than this fraction of its slots is in use, or was since it was made ...
const LOAD_NUMERATOR: usize = 3;
const LOAD_DENOMINATOR: usize = 4;
/// ... to so many slots that this fraction is in use.
const FRESH_NUMERATOR: usize = 9;
const FRESH_DENOMINATOR: usize = 20;
/// Memory is freed when less than this fraction of the capacity is in use ...
const SHRINK_DENOMINATOR: usize = 8;
/// ... and the table has more than this capacity.
const SHRINK_CAPACITY_MIN: usize = 64;
/// Arrays grow by this fraction.
const GROWTH_DENOMINATOR: usize = 4;

const _: () = assert!(
    FRESH_NUMERATOR * LOAD_DENOMINATOR < LOAD_NUMERATOR * FRESH_DENOMINATOR,
    "an index that has grown does not grow at once"
);

const EMPTY: u8 = 0;
const REMOVED: u8 = 1;

/// `V`: a value of fixed size in addition to the content; `()` if there is none.
#[derive(Debug, Clone)]
pub(crate) struct Table<V> {
    hasher: FixedState,
    records: Records,
    /// By index.
    places: Vec<Place>,
    /// By index.
    values: Vec<V>,
    /// Open addressing with linear probing. By slot: [`EMPTY`], [`REMOVED`], or some bits of the
    /// hash.
    tags: Box<[u8]>,
    /// By slot: the index of an entry.
    slots: Box<[u32]>,
    /// Slots that are not [`EMPTY`].
    used: usize,
}

/// Some bits of a hash that its slot does not depend on.
fn tag_of(hash: u64) -> u8 {
    hash.to_le_bytes()[0].max(REMOVED + 1)
}

fn reserve<T>(array: &mut Vec<T>) {
    if array.len() == array.capacity() {
        array.reserve_exact(4.max(array.len() / GROWTH_DENOMINATOR));
    }
}

impl<V> Table<V> {
    pub(crate) fn new(seed: u64) -> Table<V> {
        Table {
            hasher: FixedState::with_seed(seed),
            records: Records::default(),
            places: Vec::new(),
            values: Vec::new(),
            tags: Box::default(),
            slots: Box::default(),
            used: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The slot at which the search for a hash begins.
    fn home(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.tags.len() as u128) >> 64;
        usize::try_from(scaled).expect("below the number of slots")
    }

    /// The slot of the first entry with this hash for which `is_it` holds.
    fn find_slot(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.tags.is_empty() {
            return None;
        }
        let (tag, mut slot) = (tag_of(hash), self.home(hash));
        loop {
            match self.tags[slot] {
                EMPTY => return None,
                found if found == tag && is_it(self.slots[slot] as usize) => return Some(slot),
                _ => {}
            }
            slot += 1;
            if slot == self.tags.len() {
                slot = 0;
            }
        }
    }

    /// The index of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let slot = self.find_slot(self.hash(key), |index| self.key(index) == key)?;
        Some(self.slots[slot] as usize)
    }

    fn key(&self, index: usize) -> &[u8] {
        self.records.read(self.places[index]).0
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.find(key).map(|index| &self.values[index])
    }

    /// The content of a key.
    pub(crate) fn content(&self, key: &[u8]) -> Option<&[u8]> {
        self.find(key).map(|index| self.records.read(self.places[index]).1)
    }

    /// The value at an index.
    pub(crate) fn value(&self, index: usize) -> V
    where
        V: Copy,
    {
        self.values[index]
    }

    pub(crate) fn value_mut(&mut self, index: usize) -> &mut V {
        &mut self.values[index]
    }

    /// Key, content and value at an index.
    pub(crate) fn get_index(&self, index: usize) -> Option<(&[u8], &[u8], &V)> {
        let (key, content) = self.records.read(*self.places.get(index)?);
        Some((key, content, &self.values[index]))
    }

    /// Keys, contents and values in the order of their indexes.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8], &V)> {
        self.places.iter().zip(&self.values).map(|(place, value)| {
            let (key, content) = self.records.read(*place);
            (key, content, value)
        })
    }

    /// Adds a key that is not in the table yet. It gets the highest index.
    pub(crate) fn insert(&mut self, key: &[u8], content: &[u8], value: V) {
        debug_assert!(self.find(key).is_none(), "a key has one entry");
        let index = u32::try_from(self.len()).expect("memory ends before 2^32 entries");
        if (self.used + 1) * LOAD_DENOMINATOR > self.tags.len() * LOAD_NUMERATOR {
            self.rebuild(self.len() + 1);
        }
        reserve(&mut self.places);
        reserve(&mut self.values);
        self.places.push(self.records.add(key, content));
        self.values.push(value);
        let hash = self.hash(key);
        self.add_slot(hash, index);
        self.settle();
    }

    /// Replaces the content of the entry at an index.
    pub(crate) fn set_content(&mut self, index: usize, content: &[u8]) {
        let place = self.places[index];
        if self.records.overwrite(place, content) {
            return;
        }
        let key = self.records.read(place).0.to_vec();
        self.places[index] = self.records.add(&key, content);
        self.records.remove(place);
        self.settle();
    }

    fn add_slot(&mut self, hash: u64, index: u32) {
        let mut slot = self.home(hash);
        while self.tags[slot] > REMOVED {
            slot = if slot + 1 == self.tags.len() { 0 } else { slot + 1 };
        }
        self.used += usize::from(self.tags[slot] == EMPTY);
        self.tags[slot] = tag_of(hash);
        self.slots[slot] = index;
    }

    /// Makes the index again, for `len` entries.
    fn rebuild(&mut self, len: usize) {
        let slots = (len * FRESH_DENOMINATOR / FRESH_NUMERATOR).max(8);
        self.tags = vec![EMPTY; slots].into();
        self.slots = vec![0; slots].into();
        self.used = 0;
        for index in 0..self.places.len() {
            let hash = self.hash(self.key(index));
            self.add_slot(hash, u32::try_from(index).expect("checked when it was added"));
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        match self.find(key) {
            Some(index) => {
                self.swap_remove(index);
                true
            }
            None => false,
        }
    }

    /// Removes the entry at `index`; the entry with the highest index takes its place.
    pub(crate) fn swap_remove(&mut self, index: usize) {
        let slot_of = |table: &Table<V>, index: usize| {
            let hash = table.hash(table.key(index));
            table.find_slot(hash, |found| found == index).expect("each entry has a slot")
        };
        let (slot, last) = (slot_of(self, index), self.len() - 1);
        let last_slot = slot_of(self, last);
        self.slots[last_slot] = self.slots[slot];
        self.tags[slot] = REMOVED;
        let place = self.places.swap_remove(index);
        self.values.swap_remove(index);
        self.records.remove(place);
        let (len, capacity) = (self.places.len(), self.places.capacity());
        if capacity > SHRINK_CAPACITY_MIN && len < capacity / SHRINK_DENOMINATOR {
            self.places.shrink_to(2 * len);
            self.values.shrink_to(2 * len);
            self.rebuild(2 * len);
        }
        self.settle();
    }

    /// Moves the records of chunks that are mostly unused, so that these are freed. Bounded by the
    /// size of a chunk: an operation leaves few such chunks.
    fn settle(&mut self) {
        while let Some(chunk) = self.records.take_sparse() {
            self.empty(chunk);
        }
    }

    fn empty(&mut self, chunk: usize) {
        for place in self.records.places(chunk) {
            if self.records.is_free(chunk) {
                break; // only removed records follow
            }
            let key = self.records.read(place).0;
            let hash = self.hash(key);
            let Some(slot) = self.find_slot(hash, |index| self.places[index] == place) else {
                continue; // the record was removed
            };
            let index = self.slots[slot] as usize;
            self.places[index] = self.records.move_to_open(place);
        }
    }

    /// Visits at most `count` entries (at least one), and returns the cursor of the next call: 0 at
    /// the end, as a cursor of 0 is the start. See the module's documentation.
    pub(crate) fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8], &V),
    ) -> u64 {
        self.scan_indexes(cursor, count, |index| {
            if let Some((key, content, value)) = self.get_index(index) {
                visit(key, content, value);
            }
        })
    }

    /// Like [`Table::scan`], but visits the indexes of the entries.
    pub(crate) fn scan_indexes(&self, cursor: u64, count: usize, visit: impl FnMut(usize)) -> u64 {
        let end = match usize::try_from(cursor) {
            Ok(cursor) if cursor > 0 => cursor.min(self.len()),
            _ => self.len(),
        };
        let start = end.saturating_sub(count.max(1));
        (start..end).rev().for_each(visit);
        start as u64
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.places.capacity() * size_of::<Place>())
            + allocation_bytes(if size_of::<V>() == 0 {
                0
            } else {
                self.values.capacity() * size_of::<V>()
            })
            + allocation_bytes(self.tags.len())
            + allocation_bytes(self.slots.len() * size_of::<u32>())
            + self.records.heap_bytes()
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.records.check();
        for index in 0..self.len() {
            assert_eq!(self.find(self.key(index)), Some(index));
        }
        let used = self.tags.iter().filter(|tag| **tag != EMPTY).count();
        assert_eq!(used, self.used);
        let live = self.tags.iter().filter(|tag| **tag > REMOVED).count();
        assert_eq!((live, self.values.len()), (self.len(), self.len()));
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
            (0..len).for_each(|number| { if table.find(&key(number)).is_none() { table.insert(&key(number), b"", ()); } });
            let mut throughout: BTreeSet<_> = (0..len).map(key).collect();
            let mut visited = BTreeSet::new();
            let mut cursor = 0;
            for (count, changes) in changes {
                cursor = table.scan(cursor, count, |key, _, ()| { visited.insert(key.to_vec()); });
                if cursor == 0 {
                    break;
                }
                for (is_removal, number) in changes {
                    if is_removal {
                        table.remove(&key(number));
                        throughout.remove(&key(number));
                    } else if table.find(&key(number)).is_none() { table.insert(&key(number), b"", ()); }
                }
            }
            while cursor != 0 {
                cursor = table.scan(cursor, 3, |key, _, ()| { visited.insert(key.to_vec()); });
            }
            prop_assert!(throughout.iter().all(|key| visited.contains(key.as_slice())));
        }
    }

    #[test]
    fn any_cursor_is_accepted() {
        let mut table = Table::new(1);
        table.insert(b"key", b"", ());
        for cursor in [0, 1, 2, u64::MAX] {
            let mut visits = 0;
            assert_eq!(table.scan(cursor, 0, |_, _, ()| visits += 1), 0);
            assert_eq!(visits, 1);
        }
        assert_eq!(Table::<()>::new(1).scan(u64::MAX, usize::MAX, |_, _, ()| unreachable!()), 0);
    }

    #[test]
    fn memory_comes_back_after_removals() {
        let mut table = Table::new(1);
        for number in 0..10_000 {
            table.insert(&key(number), b"", 1.0);
        }
        let full_bytes = table.heap_bytes();
        for number in 0..9_990 {
            table.remove(&key(number));
        }
        assert!(table.heap_bytes() < full_bytes / 50, "{}", table.heap_bytes());
        table.check();
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u8, usize, u8),
        Remove(u8),
        RemoveIndex(usize),
    }

    /// Contents of every length around the limits of chunks, and often the same length.
    fn step() -> impl Strategy<Value = Step> {
        let len = prop_oneof![
            8 => 0usize..4,
            4 => 100usize..140,
            2 => 1900usize..2200,
            1 => 4000usize..4200,
            1 => Just(20_000),
        ];
        prop_oneof![
            6 => (any::<u8>(), len, any::<u8>()).prop_map(|(key, len, byte)| Step::Set(key, len, byte)),
            3 => any::<u8>().prop_map(Step::Remove),
            1 => (0usize..20).prop_map(Step::RemoveIndex),
        ]
    }

    proptest! {
        #[test]
        fn a_table_is_as_the_oracle(steps in proptest::collection::vec(step(), 1..300)) {
            let mut table = Table::new(3);
            let mut oracle: Vec<(Vec<u8>, Vec<u8>, f64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Set(key, len, byte) => {
                        let (key, content) = (vec![b'k'; usize::from(key % 40)], vec![byte; len]);
                        let found = oracle.iter().position(|row| row.0 == key);
                        prop_assert_eq!(table.find(&key), found);
                        if let Some(index) = found {
                            table.set_content(index, &content);
                            *table.value_mut(index) = f64::from(byte);
                            oracle[index] = (key, content, f64::from(byte));
                        } else {
                            table.insert(&key, &content, f64::from(byte));
                            oracle.push((key, content, f64::from(byte)));
                        }
                    }
                    Step::Remove(key) => {
                        let key = vec![b'k'; usize::from(key % 40)];
                        let found = oracle.iter().position(|row| row.0 == key);
                        prop_assert_eq!(table.remove(&key), found.is_some());
                        found.map(|index| oracle.swap_remove(index));
                    }
                    Step::RemoveIndex(index) if index < oracle.len() => {
                        table.swap_remove(index);
                        oracle.swap_remove(index);
                    }
                    Step::RemoveIndex(_) => {}
                }
                table.check();
                let rows = table.iter().map(|(k, c, v)| (k.to_vec(), c.to_vec(), *v));
                prop_assert_eq!(&rows.collect::<Vec<_>>(), &oracle);
            }
        }
    }

    /// Half of the chunks' bytes at most are unused, whatever was removed or replaced.
    #[test]
    fn replaced_contents_are_freed() {
        let mut table = Table::new(1);
        for number in 0..2000u16 {
            table.insert(&key(number), &[1; 20], ());
        }
        let bytes = table.heap_bytes();
        for round in 0..50 {
            for number in 0..2000u16 {
                let index = table.find(&key(number)).expect("added");
                table.set_content(index, &vec![2; 18 + usize::from(number + round) % 5]);
            }
            assert!(table.heap_bytes() < 3 * bytes, "{} {bytes}", table.heap_bytes());
        }
        table.check();
    }
}
