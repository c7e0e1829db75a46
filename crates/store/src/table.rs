//! The hash table of one stripe and database: buckets of one cache line, nine entries each.
//!
//! A bucket holds nine one-byte tags, nine entry pointers of six bytes, and a count of the entries
//! that overflowed from here to a later bucket. A lookup reads the home bucket and continues only
//! while that count is not zero, so an absent key costs one cache line and a present key two (bucket
//! and entry). Growth doubles the buckets of this one small table at once.
//!
//! Which bits of a hash are used where: the stripe takes the top 12, the tag the next 8, the bucket
//! the lowest.
//!
//! Known weakness: doubling visits every entry of the stripe (2,441 entries at 10 M keys)
//! under the stripe's lock, once per doubling; the time has not been measured.

#![expect(clippy::cast_possible_truncation, reason = "tags and samples are some bits of a hash")]

use crate::blob::{Slot, prefetch};
use crate::entry::{Entry, EntryRef};
use crate::key::STRIPE_SHIFT;

pub(crate) const SLOTS: usize = 9;
/// An eighth of the slots stays free: with fewer, more lookups continue in the next bucket.
const FREE_DENOMINATOR: usize = 8;
/// Shrink below 1/10.
const SHRINK_DENOMINATOR: usize = 10;
/// Number of buckets by which a walk over entries prefetches ahead.
const BUCKETS_AHEAD: usize = 2;
const OVERFLOW_SATURATED: u8 = u8::MAX;
/// The tag is the eight bits of the hash from here on.
const TAG_SHIFT: u32 = 44;

/// Tags that are compared at once.
const WORD_TAGS: usize = size_of::<u64>();
const LOW_BITS: u64 = u64::from_le_bytes([1; WORD_TAGS]);
const HIGH_BITS: u64 = u64::from_le_bytes([0x80; WORD_TAGS]);

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    tags: [u8; SLOTS],
    overflow: u8,
    slots: [Slot; SLOTS],
}

const _: () = assert!(std::mem::size_of::<Bucket>() == 64);
const _: () = assert!(SLOTS == WORD_TAGS + 1, "the last tag is compared alone");
const _: () = assert!(SLOTS >= FREE_DENOMINATOR, "an insert finds an empty slot");
const _: () = assert!(
    2 * FREE_DENOMINATOR < (FREE_DENOMINATOR - 1) * SHRINK_DENOMINATOR,
    "a table that has shrunk does not grow at once"
);
const _: () = assert!(TAG_SHIFT + u8::BITS == STRIPE_SHIFT, "tags use bits below the stripe's");

impl Bucket {
    #[inline]
    fn entry(&self, slot: usize) -> Option<EntryRef<'_>> {
        EntryRef::in_slot(&self.slots[slot])
    }

    fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.slots.iter().filter_map(EntryRef::in_slot)
    }

    /// The first slot for which `is_it` holds, of those with this tag. Rarely it is also asked about
    /// a slot with another tag.
    #[inline]
    fn position(&self, tag: u8, mut is_it: impl FnMut(EntryRef<'_>) -> bool) -> Option<usize> {
        let (tags, last) = self.tags.split_first_chunk().expect("more tags than a word has");
        // The high bit of each byte that is zero, and of a byte of one after such a byte.
        let differences = u64::from_le_bytes(*tags) ^ (LOW_BITS * u64::from(tag));
        let mut found = differences.wrapping_sub(LOW_BITS) & !differences & HIGH_BITS;
        while found != 0 {
            let slot = (found.trailing_zeros() / u8::BITS) as usize;
            if let Some(entry) = self.entry(slot)
                && is_it(entry)
            {
                return Some(slot);
            }
            found &= found - 1;
        }
        let is_last = last[0] == tag && self.entry(WORD_TAGS).is_some_and(is_it);
        is_last.then_some(WORD_TAGS)
    }
}

/// The place of an entry; valid until the table changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    bucket: u32,
    slot: u8,
}

#[derive(Default)]
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    len: usize,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len)
            .field("buckets", &self.buckets.len())
            .finish()
    }
}

#[inline]
fn tag_of(hash: u64) -> u8 {
    (hash >> TAG_SHIFT) as u8 // the cast takes exactly the eight bits of the tag
}

fn bucket_array(count: usize) -> Box<[Bucket]> {
    assert!(count.is_power_of_two(), "a mask of the hash chooses the bucket");
    (0..count).map(|_| Bucket::default()).collect()
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn table_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        usize::try_from(hash).expect("64-bit platform") & (self.buckets.len() - 1)
    }

    /// Prefetches the home bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        if !self.buckets.is_empty() {
            prefetch(&raw const self.buckets[self.home(hash)]);
        }
    }

    /// Prefetches the entries that may be the one with `hash`.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) {
        if self.buckets.is_empty() {
            return;
        }
        let bucket = &self.buckets[self.home(hash)];
        bucket.position(tag_of(hash), |entry| {
            entry.prefetch();
            false
        });
    }

    /// An entry that probably is the one with `hash`.
    #[inline]
    pub(crate) fn likely(&self, hash: u64) -> Option<EntryRef<'_>> {
        if self.buckets.is_empty() {
            return None;
        }
        let bucket = &self.buckets[self.home(hash)];
        bucket.position(tag_of(hash), |_| true).and_then(|slot| bucket.entry(slot))
    }

    /// The place of the entry with this hash for which `is_it` holds.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(EntryRef<'_>) -> bool,
    ) -> Option<Place> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut index = self.home(hash);
        let tag = tag_of(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[index];
            if let Some(slot) = bucket.position(tag, &mut is_it) {
                let bucket = u32::try_from(index).expect("a stripe has < 2^32 buckets");
                return Some(Place { bucket, slot: u8::try_from(slot).expect("nine slots") });
            }
            if bucket.overflow == 0 {
                return None;
            }
            index = (index + 1) & (self.buckets.len() - 1);
        }
        None
    }

    #[inline]
    pub(crate) fn find_key(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.find(hash, |entry| entry.key() == key)
    }

    #[inline]
    pub(crate) fn entry(&self, place: Place) -> EntryRef<'_> {
        self.buckets[place.bucket as usize]
            .entry(place.slot as usize)
            .expect("a place points at an entry")
    }

    /// Changes the entry of a place.
    #[inline]
    pub(crate) fn update<R>(&mut self, place: Place, change: impl FnOnce(&mut Entry) -> R) -> R {
        let slot = &mut self.buckets[place.bucket as usize].slots[place.slot as usize];
        let mut entry = Entry::take(slot).expect("a place points at an entry");
        let result = change(&mut entry);
        entry.fill(slot);
        result
    }

    /// Inserts an entry whose key is not in the table yet.
    pub(crate) fn insert(&mut self, hash: u64, entry: Entry, hash_of: impl Fn(&[u8]) -> u64) {
        debug_assert!(self.find_key(hash, entry.as_ref().key()).is_none(), "a key has one entry");
        let slots = self.buckets.len() * SLOTS;
        if self.len >= slots - slots / FREE_DENOMINATOR {
            self.rebuild((self.buckets.len() * 2).max(1), &hash_of);
        }
        self.place_entry(hash, entry);
        self.len += 1;
    }

    fn place_entry(&mut self, hash: u64, entry: Entry) {
        let mut index = self.home(hash);
        loop {
            let bucket = &mut self.buckets[index];
            if let Some(slot) = bucket.slots.iter().position(Slot::is_empty) {
                bucket.tags[slot] = tag_of(hash);
                return entry.fill(&mut bucket.slots[slot]);
            }
            bucket.overflow = bucket.overflow.saturating_add(1);
            index = (index + 1) & (self.buckets.len() - 1);
        }
    }

    pub(crate) fn remove(
        &mut self,
        hash: u64,
        place: Place,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Entry {
        let found = place.bucket as usize;
        let slot = &mut self.buckets[found].slots[place.slot as usize];
        let entry = Entry::take(slot).expect("a place points at an entry");
        let mut index = self.home(hash);
        while index != found {
            let overflow = &mut self.buckets[index].overflow;
            assert!(*overflow > 0, "the entry passed this bucket when it was inserted");
            if *overflow != OVERFLOW_SATURATED {
                *overflow -= 1;
            }
            index = (index + 1) & (self.buckets.len() - 1);
        }
        self.len -= 1;
        if self.buckets.len() > 1 && self.len * SHRINK_DENOMINATOR < self.buckets.len() * SLOTS {
            self.rebuild(self.buckets.len() / 2, &hash_of);
        }
        entry
    }

    fn rebuild(&mut self, buckets: usize, hash_of: &impl Fn(&[u8]) -> u64) {
        assert!(self.len < buckets * SLOTS, "the entries leave a slot free");
        let mut moved = 0;
        let mut old = std::mem::replace(&mut self.buckets, bucket_array(buckets));
        for index in 0..old.len() {
            if let Some(ahead) = old.get(index + 2) {
                ahead.entries().for_each(EntryRef::prefetch);
            }
            for slot in 0..SLOTS {
                if let Some(entry) = Entry::take(&mut old[index].slots[slot]) {
                    self.place_entry(hash_of(entry.as_ref().key()), entry);
                    moved += 1;
                }
            }
        }
        assert_eq!(moved, self.len, "each entry is in the table once");
    }

    /// One step of a scan: calls `visit` for the entries whose home is the bucket that `cursor`
    /// names, and returns the next cursor, 0 at the end.
    ///
    /// The cursor counts buckets with its bits reversed, so that it stays right when the table
    /// doubles or halves between two calls: an entry that is present throughout is visited.
    /// Source: the cursor of Redis's SCAN, described in its command documentation.
    pub(crate) fn scan(
        &self,
        cursor: u32,
        hash_of: impl Fn(&[u8]) -> u64,
        mut visit: impl FnMut(EntryRef<'_>),
    ) -> u32 {
        if self.buckets.is_empty() {
            return 0;
        }
        let mask = u32::try_from(self.buckets.len() - 1).expect("a stripe has < 2^32 buckets");
        let home = cursor & mask;
        let mut index = home as usize;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[index];
            for entry in bucket.entries() {
                if self.home(hash_of(entry.key())) == home as usize {
                    visit(entry);
                }
            }
            if bucket.overflow == 0 {
                break;
            }
            index = (index + 1) & (self.buckets.len() - 1);
        }
        (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
    }

    /// All entries. Prefetches the next ones, as KEYS would otherwise wait for each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.buckets.iter().enumerate().flat_map(|(index, bucket)| {
            if let Some(next) = self.buckets.get(index + BUCKETS_AHEAD) {
                next.entries().for_each(EntryRef::prefetch);
            }
            bucket.entries()
        })
    }

    /// An entry near a random position, for RANDOMKEY and for eviction samples.
    pub(crate) fn sample(&self, random: u64) -> impl Iterator<Item = EntryRef<'_>> {
        let count = self.buckets.len();
        let turn = random as usize % SLOTS;
        let start = if count == 0 { 0 } else { (random as usize / SLOTS) & (count - 1) };
        (0..count).flat_map(move |step| {
            let bucket = &self.buckets[(start + step) & (count - 1)];
            (0..SLOTS).filter_map(move |slot| bucket.entry((slot + turn) % SLOTS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Text;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A deliberately poor hash: many keys share buckets and tags.
    fn poor_hash(key: &[u8]) -> u64 {
        let n = u64::from(key[0]) * 31 + key.get(1).map_or(0, |byte| u64::from(*byte));
        (n % 97) | ((n % 5) << 44)
    }

    fn insert(table: &mut Table, key: &[u8], value: &[u8]) {
        let hash = poor_hash(key);
        match table.find_key(hash, key) {
            Some(place) => table.update(place, |entry| entry.set_string(value, None)),
            None => table.insert(hash, Entry::string(key, value, None), poor_hash),
        }
    }

    fn remove(table: &mut Table, key: &[u8]) {
        let hash = poor_hash(key);
        if let Some(place) = table.find_key(hash, key) {
            table.remove(hash, place, poor_hash);
        }
    }

    fn contents(table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
        table
            .iter()
            .map(|entry| {
                (
                    entry.key().to_vec(),
                    entry.string_value().map(Text::from).expect("a string").to_vec(),
                )
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_like_a_map(
            steps in proptest::collection::vec((any::<bool>(), any::<[u8; 2]>(), any::<u8>()), 0..400),
        ) {
            let mut table = Table::default();
            let mut oracle = BTreeMap::new();
            for (add, key, value) in steps {
                if add {
                    insert(&mut table, &key, &[value]);
                    oracle.insert(key.to_vec(), vec![value]);
                } else {
                    remove(&mut table, &key);
                    oracle.remove(key.as_slice());
                }
                prop_assert_eq!(table.len(), oracle.len());
            }
            prop_assert_eq!(contents(&table), oracle);
        }

        #[test]
        fn a_scan_visits_what_is_present_throughout(
            stay in proptest::collection::btree_set(any::<[u8; 2]>(), 0..200),
            churn in proptest::collection::vec((any::<bool>(), any::<[u8; 2]>()), 0..600),
        ) {
            let mut table = Table::default();
            for key in &stay {
                insert(&mut table, key, b"");
            }
            let mut seen = BTreeSet::new();
            let mut churn = churn.into_iter();
            let mut cursor = 0;
            loop {
                cursor = table.scan(cursor, poor_hash, |entry| {
                    seen.insert(entry.key().to_vec());
                });
                if cursor == 0 {
                    break;
                }
                for (add, key) in churn.by_ref().take(20) {
                    match (stay.contains(&key), add) {
                        (true, _) => {}
                        (false, true) => insert(&mut table, &key, b""),
                        (false, false) => remove(&mut table, &key),
                    }
                }
            }
            for key in &stay {
                prop_assert!(seen.contains(key.as_slice()), "missed {:?}", key);
            }
        }
    }

    #[test]
    fn a_table_that_empties_gives_its_buckets_back() {
        let mut table = Table::default();
        for n in 0..60_000u32 {
            let key = n.to_le_bytes();
            table.insert(u64::from(n), Entry::string(&key, b"", None), |key| {
                u64::from(u32::from_le_bytes(key.try_into().expect("four bytes")))
            });
        }
        let full = table.table_bytes();
        for n in 0..60_000u32 {
            let key = n.to_le_bytes();
            let place = table.find_key(u64::from(n), &key).expect("present");
            table.remove(u64::from(n), place, |key| {
                u64::from(u32::from_le_bytes(key.try_into().expect("four bytes")))
            });
        }
        assert_eq!(table.len(), 0);
        assert!(table.table_bytes() < full / 1000);
    }
}
