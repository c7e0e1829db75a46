//! The partitions of one stripe: tables by id, partitions in the order of their tokens.
//!
//! The stripes of a keyspace are in token order too, so a scan over all stripes visits the
//! partitions of a table in the order of the ring.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::blob::{prefetch, prefetch_block};
use crate::indexes::{Definitions, Entries, Index, IndexId, Posting, Registry, Start, Touch};
use crate::key::{PartitionKey, TableId, ordinal, token_of};
use crate::types::{Partition, Seconds, allocation_bytes};

/// A step on the way to a partition: see [`crate::Keyspace::prefetch_partition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The stripe itself.
    Stripe,
    /// The list of its tables.
    Tables,
    /// The partition. Reading the nodes of the tree before it may stall.
    Partition,
    /// Its key, and its rows where they are few.
    Rows,
}

impl Reach {
    /// In the order in which they are prefetched.
    pub const ALL: [Reach; 4] = [Reach::Stripe, Reach::Tables, Reach::Partition, Reach::Rows];
}

/// A partition with its key.
#[derive(Debug)]
struct Held {
    key: Box<[u8]>,
    partition: Partition,
}

impl Held {
    fn heap_bytes(&self) -> usize {
        HELD_BYTES + allocation_bytes(self.key.len()) + self.partition.heap_bytes()
    }
}

/// The partitions of one token, by key: nearly always one.
type Bucket = SmallVec<[Box<Held>; 1]>;

/// Cost of a partition in addition to its key and rows: the struct, and its place in a node of the
/// map, two thirds of which are in use.
const HELD_BYTES: usize = size_of::<Held>() + 16 + (size_of::<u64>() + size_of::<Bucket>()) * 3 / 2;

/// The partitions of one table in one stripe.
#[derive(Debug, Default)]
pub(crate) struct Table {
    buckets: BTreeMap<u64, Bucket>,
    len: usize,
    /// Of partitions and indexes.
    bytes: usize,
    indexes: Vec<Index>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, token: i64, key: &[u8]) -> Option<&Partition> {
        let bucket = self.buckets.get(&ordinal(token))?;
        let at = bucket.binary_search_by(|held| (*held.key).cmp(key)).ok()?;
        Some(&bucket[at].partition)
    }

    /// The first partition of a token: nearly always the only one.
    fn first_of(&self, token: i64) -> Option<&Held> {
        self.buckets.get(&ordinal(token))?.first().map(|held| &**held)
    }

    /// A table without partitions.
    fn new(definitions: Option<&Definitions>) -> Table {
        let all = definitions.iter().flat_map(|all| all.iter());
        let indexes = all.map(|one| Index::new(Arc::clone(one))).collect();
        Table { indexes, ..Table::default() }
    }

    /// Changes a partition and its index entries: `touch` covers at least what is changed.
    fn change(
        &mut self,
        token: i64,
        key: &[u8],
        touch: Touch<'_>,
        change: impl FnOnce(&mut Partition),
    ) {
        if self.indexes.is_empty() {
            return self.change_partition(token, key, change);
        }
        let before = self.entries(token, key, touch);
        self.change_partition(token, key, change);
        let after = self.entries(token, key, touch);
        for (nth, entry) in before.difference(&after) {
            let removed_bytes = self.indexes[*nth].remove(entry);
            debug_assert!(removed_bytes > 0, "the index held the row's term");
            self.bytes -= removed_bytes;
        }
        for (nth, entry) in after.difference(&before) {
            let inserted_bytes = self.indexes[*nth].insert(entry.clone());
            debug_assert!(inserted_bytes > 0, "the index held the term of a row without it");
            self.bytes += inserted_bytes;
        }
    }

    /// The index entries of the part of a partition that `touch` covers.
    fn entries(&self, token: i64, key: &[u8], touch: Touch<'_>) -> Entries {
        let mut entries = Entries::new();
        let Some(partition) = self.get(token, key) else { return entries };
        for (nth, index) in self.indexes.iter().enumerate() {
            let mut add = |entry| {
                entries.insert((nth, entry));
            };
            index.entries_of((token, key), partition, touch, &mut add);
        }
        entries
    }

    /// Adds and removes indexes of the table, so that it has the defined ones. O(partitions) for
    /// each new one.
    fn settle(&mut self, defined: Option<&Definitions>, mut dropped: impl FnMut(Index)) {
        let definitions = || defined.iter().flat_map(|all| all.iter());
        let is_defined = |index: &mut Index| definitions().any(|one| one.id() == index.id());
        for index in self.indexes.extract_if(.., |index| !is_defined(index)) {
            self.bytes -= index.heap_bytes();
            dropped(index);
        }
        for definition in definitions() {
            if self.index(definition.id()).is_some() {
                continue;
            }
            let mut index = Index::new(Arc::clone(definition));
            let mut entries: Vec<Box<[u8]>> = Vec::new();
            for (token, key, partition) in self.range(Bound::Unbounded) {
                let mut add = |entry| entries.push(entry);
                index.entries_of((token, key), partition, Touch::All, &mut add);
            }
            self.bytes += entries.into_iter().map(|entry| index.insert(entry)).sum::<usize>();
            self.indexes.push(index);
        }
    }

    fn index(&self, id: IndexId) -> Option<&Index> {
        self.indexes.iter().find(|index| index.id() == id)
    }

    /// Changes a partition, which is created if necessary and dropped if nothing of it is left.
    fn change_partition(&mut self, token: i64, key: &[u8], change: impl FnOnce(&mut Partition)) {
        let entry = self.buckets.entry(ordinal(token));
        let bucket = match &entry {
            btree_map::Entry::Occupied(bucket) => bucket.get(),
            btree_map::Entry::Vacant(_) => &Bucket::new(),
        };
        let at = match bucket.binary_search_by(|held| (*held.key).cmp(key)) {
            Ok(at) => at,
            Err(at) => {
                let mut partition = Partition::new();
                change(&mut partition);
                if !partition.is_empty() {
                    let held = Box::new(Held { key: key.into(), partition });
                    self.bytes += held.heap_bytes();
                    self.len += 1;
                    entry.or_default().insert(at, held);
                }
                return;
            }
        };
        let btree_map::Entry::Occupied(mut bucket) = entry else { return };
        let held = &mut bucket.get_mut()[at];
        let before = held.heap_bytes();
        change(&mut held.partition);
        self.bytes -= before;
        if !held.partition.is_empty() {
            self.bytes += held.heap_bytes();
            return;
        }
        debug_assert_eq!(held.partition.heap_bytes(), 0, "an empty partition has no rows");
        self.len -= 1;
        bucket.get_mut().remove(at);
        if bucket.get().is_empty() {
            bucket.remove();
        }
    }

    /// The partitions from a place on, in order.
    fn range<'s>(
        &'s self,
        from: Bound<(i64, &[u8])>,
    ) -> impl Iterator<Item = (i64, &'s [u8], &'s Partition)> + use<'s> {
        let (first, skipped) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included((token, key)) | Bound::Excluded((token, key)) => {
                let first = ordinal(token);
                let bucket = self.buckets.get(&first).map_or(&[][..], |bucket| &bucket[..]);
                let is_before = |own: &[u8]| match from {
                    Bound::Excluded(_) => own <= key,
                    _ => own < key,
                };
                (first, bucket.partition_point(|held| is_before(&held.key)))
            }
        };
        let held = self.buckets.range(first..).flat_map(|(token, bucket)| {
            bucket.iter().map(|held| (token_of(*token), &*held.key, &held.partition))
        });
        held.skip(skipped)
    }
}

/// All tables of one stripe.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// By id.
    tables: Vec<(TableId, Table)>,
}

impl Tables {
    fn find(&self, id: TableId) -> Result<usize, usize> {
        self.tables.binary_search_by_key(&id, |(id, _)| *id)
    }

    fn table(&self, id: TableId) -> Option<&Table> {
        self.find(id).ok().map(|at| &self.tables[at].1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Heap bytes of all tables.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.bytes).sum()
    }

    /// One prefetch step towards a partition, after that of the stripe.
    pub(crate) fn prefetch(&self, table: TableId, token: i64, reach: Reach) {
        if reach == Reach::Tables {
            return prefetch_block(self.tables.as_ptr(), size_of_val(&self.tables[..]));
        }
        let Some(held) = self.table(table).and_then(|table| table.first_of(token)) else { return };
        if reach == Reach::Partition {
            return prefetch_block(&raw const *held, size_of::<Held>());
        }
        prefetch(held.key.as_ptr());
        held.partition.prefetch_rows();
    }

    pub(crate) fn get(&self, key: PartitionKey<'_>) -> Option<&Partition> {
        self.table(key.table)?.get(key.token, key.bytes)
    }

    /// Changes a partition; `touch` covers at least what is changed. Returns the number of bytes by
    /// which it grew.
    pub(crate) fn change(
        &mut self,
        key: PartitionKey<'_>,
        registry: &Registry,
        touch: Touch<'_>,
        change: impl FnOnce(&mut Partition),
    ) -> isize {
        let at = self.find(key.table).unwrap_or_else(|at| {
            self.tables.insert(at, (key.table, Table::new(registry.of(key.table).as_ref())));
            at
        });
        let table = &mut self.tables[at].1;
        let before = table.bytes.cast_signed();
        table.change(key.token, key.bytes, touch, change);
        let grown_bytes = table.bytes.cast_signed() - before;
        if table.len == 0 {
            debug_assert!(table.buckets.is_empty());
            debug_assert_eq!(table.bytes, 0, "partitions and their index entries are all counted");
            self.tables.remove(at);
        }
        grown_bytes
    }

    /// Empties a table. Returns its contents.
    pub(crate) fn truncate(&mut self, id: TableId) -> Option<Table> {
        let at = self.find(id).ok()?;
        Some(self.tables.remove(at).1)
    }

    /// Adds and removes indexes of the tables, as the registry defines them; passes removed ones to
    /// `dropped`. Returns the number of bytes by which the tables grew.
    pub(crate) fn settle(&mut self, registry: &Registry, mut dropped: impl FnMut(Index)) -> isize {
        let mut grown_bytes = 0;
        for (id, table) in &mut self.tables {
            let before = table.bytes.cast_signed();
            table.settle(registry.of(*id).as_ref(), &mut dropped);
            grown_bytes += table.bytes.cast_signed() - before;
        }
        grown_bytes
    }

    /// The entries of an index of a table for a term. `None`: the stripe does not have this index
    /// yet. A table without partitions has no entries.
    pub(crate) fn look_up<'s>(
        &'s self,
        table: TableId,
        index: IndexId,
        term: &[u8],
        start: Start<'_>,
    ) -> Option<impl Iterator<Item = Posting> + use<'s>> {
        let index = match self.table(table) {
            None => None,
            Some(table) => Some(table.index(index)?),
        };
        Some(index.map(|index| index.find(term, start)).into_iter().flatten())
    }

    /// The partitions of a table from a place on, in token order.
    pub(crate) fn range<'s>(
        &'s self,
        id: TableId,
        from: Bound<(i64, &[u8])>,
    ) -> impl Iterator<Item = (i64, &'s [u8], &'s Partition)> + use<'s> {
        self.table(id).map(|table| table.range(from)).into_iter().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartitionKey<'_>, &Partition)> {
        self.tables.iter().flat_map(|(table, contents)| {
            let all = contents.range(Bound::Unbounded);
            all.map(|(token, bytes, partition)| {
                (PartitionKey { table: *table, token, bytes }, partition)
            })
        })
    }

    /// Partitions of a table and their heap bytes.
    pub(crate) fn stats(&self, id: TableId) -> (usize, usize) {
        self.table(id).map_or((0, 0), |table| (table.len, table.bytes))
    }

    /// Keys of the partitions of a table in which a purge would remove something.
    pub(crate) fn with_garbage(
        &self,
        id: TableId,
        now: Seconds,
        gc_before: Seconds,
    ) -> impl Iterator<Item = (i64, &[u8])> + use<'_> {
        let all = self.range(id, Bound::Unbounded);
        let found = all.filter(move |(_, _, partition)| partition.has_garbage(now, gc_before));
        found.map(|(token, key, _)| (token, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{stripe_of, stripe_of_token};
    use crate::types::Write;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const TABLE: TableId = TableId(7);

    fn key(token: i64, bytes: &[u8]) -> PartitionKey<'_> {
        PartitionKey { table: TABLE, token, bytes }
    }

    fn insert(tables: &mut Tables, key: PartitionKey<'_>) -> isize {
        let write = Write::InsertRow { row: b"r", timestamp: 1, expiry: None };
        tables.change(key, &Registry::default(), Touch::All, |partition| partition.write(write))
    }

    #[test]
    fn stripes_follow_the_tokens_and_tables_differ_below() {
        let stripe = |token| {
            assert_eq!(stripe_of(key(token, b"").hash()), stripe_of_token(token));
            stripe_of_token(token)
        };
        assert_eq!(stripe(i64::MIN), 0);
        assert_eq!(stripe(-1), crate::STRIPES / 2 - 1);
        assert_eq!(stripe(0), crate::STRIPES / 2);
        assert_eq!(stripe(i64::MAX), crate::STRIPES - 1);
        let other = PartitionKey { table: TableId(8), token: 5, bytes: b"" };
        assert_ne!(other.hash(), key(5, b"").hash());
        assert_eq!(other.hash() >> 32, key(5, b"").hash() >> 32);
    }

    #[test]
    fn empty_tables_are_removed_and_their_memory_released() {
        let mut tables = Tables::default();
        let mut grown = insert(&mut tables, key(5, b"a"));
        grown += insert(&mut tables, key(5, b"b"));
        assert_eq!(grown, tables.heap_bytes().cast_signed());
        assert_eq!(tables.stats(TABLE).0, 2);
        let registry = Registry::default();
        let empty = |partition: &mut Partition| *partition = Partition::new();
        let grown = tables.change(key(5, b"a"), &registry, Touch::All, empty);
        assert!(grown < 0);
        assert!(tables.get(key(5, b"a")).is_none());
        assert!(tables.get(key(5, b"b")).is_some());
        let grown = tables.change(key(9, b"x"), &registry, Touch::All, |_| ());
        assert_eq!(grown, 0, "nothing was written");
        assert_eq!(tables.truncate(TABLE).map(|table| table.len()), Some(1));
        assert_eq!(tables.heap_bytes(), 0);
        assert!(tables.truncate(TABLE).is_none());
    }

    proptest! {
        /// Against a sorted map: few tokens, so that some have several keys.
        #[test]
        fn partitions_are_walked_in_order_from_any_place(
            places in prop::collection::vec((-3i64..3, 0u8..4), 0..40),
            from in (-4i64..4, 0u8..4),
            is_inclusive: bool,
        ) {
            let mut tables = Tables::default();
            let mut model = BTreeSet::new();
            for (token, byte) in places {
                insert(&mut tables, key(token, &[byte]));
                model.insert((token, byte));
            }
            let all: Vec<_> =
                tables.range(TABLE, Bound::Unbounded).map(|(token, key, _)| (token, key[0])).collect();
            prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
            let (token, byte) = from;
            let (start, bound) = if is_inclusive {
                (Bound::Included(from), Bound::Included((token, &[byte][..])))
            } else {
                (Bound::Excluded(from), Bound::Excluded((token, &[byte][..])))
            };
            let rest: Vec<_> = tables.range(TABLE, bound).map(|(token, key, _)| (token, key[0])).collect();
            let expected: Vec<_> = model.range((start, Bound::Unbounded)).copied().collect();
            prop_assert_eq!(rest, expected);
        }
    }
}
