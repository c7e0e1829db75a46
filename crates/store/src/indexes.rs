//! Secondary indexes: the rows of a table that hold a term.
//!
//! An index is derived from its table. It is kept under the same lock, stripe by stripe, and is
//! neither logged nor in a snapshot. A scan of a stripe builds its part
//! ([`crate::Keyspace::settle_indexes`]); until then the stripe has no index, and queries scan the
//! stripe.
//!
//! An entry is one string of bytes: the term, the place of the partition, the row. So the entries
//! of a term are in the order in which a scan visits their rows. Expired rows keep their entries
//! until they are purged, so a query checks each row that an index finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::items::Writes;
use crate::key::{TableId, ordinal, token_of};
use crate::types::{Partition, RowKey, RowView, Write, allocation_bytes};

/// Names an index among those of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u64);

/// Defines the terms of an index. The store does not know what cells and keys mean, so the layer
/// above implements this.
pub trait Indexing: Debug + Send + Sync {
    fn id(&self) -> IndexId;

    /// Whether its terms are those of whole partitions: of their keys or static cells.
    fn is_of_partitions(&self) -> bool;

    /// Calls `add` with each term of a row, or of a partition by its static row. No term of an index may
    /// begin with another one.
    fn terms(&self, key: &[u8], row: RowView<'_>, add: &mut dyn FnMut(&[u8]));
}

/// The indexes of one table.
pub type Definitions = Arc<[Arc<dyn Indexing>]>;

/// The indexes that tables are to have.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    tables: RwLock<BTreeMap<TableId, Definitions>>,
    generation: AtomicU64,
}

impl Registry {
    /// Replaces all.
    pub(crate) fn set(&self, tables: BTreeMap<TableId, Definitions>) {
        let mut own = self.tables.write();
        let ids = |tables: &BTreeMap<TableId, Definitions>| -> Vec<(TableId, Vec<IndexId>)> {
            let ids = |all: &Definitions| all.iter().map(|one| one.id()).collect();
            tables.iter().map(|(table, all)| (*table, ids(all))).collect()
        };
        if ids(&own) != ids(&tables) {
            *own = tables;
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn of(&self, table: TableId) -> Option<Definitions> {
        self.tables.read().get(&table).map(Arc::clone)
    }
}

/// Where a search for a term begins.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    Token(i64),
    Partition(i64, &'a [u8]),
    /// After a row; an index of partitions begins with the partition.
    Row(i64, &'a [u8], &'a [u8]),
    /// After a partition.
    After(i64, &'a [u8]),
}

/// What an index has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    pub token: i64,
    pub key: Vec<u8>,
    /// None: all rows of the partition.
    pub row: Option<Vec<u8>>,
}

/// What of a partition a change may touch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Touch<'a> {
    Writes(Writes<'a>),
    All,
}

const OF_PARTITION: u8 = 0;
const OF_ROW: u8 = 1;
const AFTER: u8 = 2;
/// In keys: a zero is followed by this, the end by another zero.
const ZERO: u8 = 0xFF;

fn put_place(token: i64, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&ordinal(token).to_be_bytes());
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(ZERO);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Decodes the part of an entry that follows its term.
fn posting(mut rest: &[u8]) -> Option<Posting> {
    let (token, behind) = rest.split_first_chunk()?;
    rest = behind;
    let mut key = Vec::new();
    loop {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        if byte == 0 {
            let (&next, behind) = rest.split_first()?;
            rest = behind;
            if next == 0 {
                break;
            }
        }
        key.push(byte);
    }
    let (&kind, row) = rest.split_first()?;
    let row = (kind == OF_ROW).then(|| row.to_vec());
    Some(Posting { token: token_of(u64::from_be_bytes(*token)), key, row })
}

/// Entries of the indexes of a table, by the place of the index among them.
pub(crate) type Entries = BTreeSet<(usize, Box<[u8]>)>;

/// One index in one stripe.
#[derive(Debug)]
pub(crate) struct Index {
    definition: Arc<dyn Indexing>,
    entries: BTreeSet<Box<[u8]>>,
}

/// Cost of an entry in addition to its bytes: its place in a node, two thirds of which are in use.
const SLOT_BYTES: usize = size_of::<Box<[u8]>>() * 3 / 2;

fn entry_bytes(entry: &[u8]) -> usize {
    allocation_bytes(entry.len()) + SLOT_BYTES
}

impl Index {
    pub(crate) fn new(definition: Arc<dyn Indexing>) -> Index {
        Index { definition, entries: BTreeSet::new() }
    }

    pub(crate) fn id(&self) -> IndexId {
        self.definition.id()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns by how many bytes it grew.
    pub(crate) fn insert(&mut self, entry: Box<[u8]>) -> usize {
        let bytes = entry_bytes(&entry);
        if self.entries.insert(entry) { bytes } else { 0 }
    }

    /// Returns by how many bytes it shrank.
    pub(crate) fn remove(&mut self, entry: &[u8]) -> usize {
        if self.entries.remove(entry) { entry_bytes(entry) } else { 0 }
    }

    /// O(entries).
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry_bytes(entry)).sum()
    }

    /// The entries of a term from a place on, in the order of a walk.
    pub(crate) fn find<'s>(
        &'s self,
        term: &[u8],
        start: Start<'_>,
    ) -> impl Iterator<Item = Posting> + use<'s> {
        let mut first = term.to_vec();
        let mut is_after = false;
        match start {
            Start::Token(token) => first.extend_from_slice(&ordinal(token).to_be_bytes()),
            Start::Partition(token, key) => put_place(token, key, &mut first),
            Start::Row(token, key, row) => {
                put_place(token, key, &mut first);
                if !self.definition.is_of_partitions() {
                    first.push(OF_ROW);
                    first.extend_from_slice(row);
                    is_after = true;
                }
            }
            Start::After(token, key) => {
                put_place(token, key, &mut first);
                first.push(AFTER);
            }
        }
        let start =
            if is_after { Bound::Excluded(&first[..]) } else { Bound::Included(&first[..]) };
        let from = self.entries.range::<[u8], _>((start, Bound::Unbounded));
        let term = term.to_vec();
        from.map_while(move |entry| entry.strip_prefix(&term[..]).and_then(posting))
    }

    /// Adds the entries of a partition that `touch` may change.
    pub(crate) fn entries_of(
        &self,
        (token, key): (i64, &[u8]),
        partition: &Partition,
        touch: Touch<'_>,
        add: &mut impl FnMut(Box<[u8]>),
    ) {
        let mut entry = Vec::new();
        let mut put = |row: Option<&[u8]>, term: &[u8]| {
            entry.clear();
            entry.extend_from_slice(term);
            put_place(token, key, &mut entry);
            match row {
                None => entry.push(OF_PARTITION),
                Some(row) => {
                    entry.push(OF_ROW);
                    entry.extend_from_slice(row);
                }
            }
            add(entry.as_slice().into());
        };
        if self.definition.is_of_partitions() {
            let statics = partition.statics(NEVER);
            return self.definition.terms(key, statics, &mut |term| put(None, term));
        }
        touch.each_row(partition, &mut |row| {
            self.definition.terms(key, row, &mut |term| put(Some(row.key), term));
        });
    }
}

/// A time at which nothing has expired.
const NEVER: u32 = 0;

impl Touch<'_> {
    /// Calls `visit` with the rows that are there, some perhaps twice.
    fn each_row(self, partition: &Partition, visit: &mut dyn FnMut(RowView<'_>)) {
        let mut all = |start: Bound<&[u8]>, end: Bound<&[u8]>| {
            partition.rows(start, end, NEVER).for_each(&mut *visit);
        };
        let Touch::Writes(writes) = self else {
            return all(Bound::Unbounded, Bound::Unbounded);
        };
        let mut last = None;
        for write in writes.iter() {
            let row = match write {
                Write::DeletePartition(_) => {
                    all(Bound::Unbounded, Bound::Unbounded);
                    continue;
                }
                Write::DeleteRange { start, end, .. } => {
                    all(Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
                    continue;
                }
                Write::DeleteRow { row, .. } | Write::InsertRow { row, .. } => row,
                Write::DeleteItems { row, .. } | Write::Cell { row, .. } => match row {
                    RowKey::Static => continue,
                    RowKey::Clustering(row) => row,
                },
            };
            // Writes of a row follow each other.
            if last != Some(row) {
                all(Bound::Included(row), Bound::Included(row));
                last = Some(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        AccessClock, AccessRule, CellValue, Keyspace, Mutation, Params, PartitionKey, Stamp,
    };

    const TABLE: TableId = TableId(7);
    const COLUMN: u32 = 3;
    const PARTITIONS: std::ops::Range<i64> = 0..3;

    /// The cell of a column, of rows or of the static row.
    #[derive(Debug)]
    struct OfCell {
        id: u64,
        is_static: bool,
    }

    impl Indexing for OfCell {
        fn id(&self) -> IndexId {
            IndexId(self.id)
        }

        fn is_of_partitions(&self) -> bool {
            self.is_static
        }

        fn terms(&self, _: &[u8], row: RowView<'_>, add: &mut dyn FnMut(&[u8])) {
            row.column(COLUMN).for_each(|cell| add(cell.bytes));
        }
    }

    fn definitions(ids: &[u64]) -> BTreeMap<TableId, Definitions> {
        let define = |id: &u64| -> Arc<dyn Indexing> {
            Arc::new(OfCell { id: *id, is_static: *id % 2 == 1 })
        };
        BTreeMap::from([(TABLE, ids.iter().map(define).collect())])
    }

    fn params() -> Params {
        let now = UnixMs(1_000);
        let access = AccessClock::new(AccessRule::Lru, now, 1);
        Params::new(now, access, crate::types::Compact::default())
    }

    /// With zeros, as those are escaped.
    fn bytes(token: i64) -> Vec<u8> {
        vec![0, u8::try_from(token).unwrap(), 0]
    }

    fn row_key(row: u8) -> [u8; 2] {
        [row, 0]
    }

    /// Some seconds pass with each: tokens, row, value.
    #[derive(Debug, Clone)]
    enum Step {
        Cell(i64, Option<u8>, u8, Option<u32>),
        DeleteCell(i64, Option<u8>),
        DeleteRow(i64, u8),
        DeleteRange(i64, u8, Option<u8>),
        DeletePartition(i64),
        Purge(i64, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let row = || 0..4_u8;
        let any_row = || prop::option::of(0..4_u8);
        let step = prop_oneof![
            6 => (PARTITIONS, any_row(), 0..3_u8, prop::option::of(0..40_u32))
                .prop_map(|(p, row, value, life)| Step::Cell(p, row, value, life)),
            1 => (PARTITIONS, any_row()).prop_map(|(p, row)| Step::DeleteCell(p, row)),
            1 => (PARTITIONS, row()).prop_map(|(p, row)| Step::DeleteRow(p, row)),
            1 => (PARTITIONS, row(), any_row()).prop_map(|(p, from, to)| Step::DeleteRange(p, from, to)),
            1 => PARTITIONS.prop_map(Step::DeletePartition),
            1 => (PARTITIONS, 0..50_u32).prop_map(|(p, now)| Step::Purge(p, now)),
        ];
        prop::collection::vec(step, 0..40)
    }

    fn apply(keyspace: &Keyspace, params: &Params, step: &Step, timestamp: i64) -> isize {
        let stamp = Stamp { timestamp, at: 10 };
        let keys: Vec<[u8; 2]> = (0..5).map(row_key).collect();
        let place = |row: &Option<u8>| match row {
            None => RowKey::Static,
            Some(row) => RowKey::Clustering(&keys[usize::from(*row)]),
        };
        let cell = |row: &Option<u8>, value| Write::Cell {
            row: place(row),
            column: COLUMN,
            item: None,
            timestamp,
            value,
        };
        let value;
        let (token, write) = match step {
            Step::Cell(token, row, of, life) => {
                value = [*of];
                let expiry = life.map(|at| crate::Expiry { at, ttl: at });
                (*token, cell(row, CellValue::Live { bytes: &value, expiry }))
            }
            Step::DeleteCell(token, row) => (*token, cell(row, CellValue::Deleted { at: 10 })),
            Step::DeleteRow(token, row) => {
                (*token, Write::DeleteRow { row: &keys[usize::from(*row)], stamp })
            }
            Step::DeleteRange(token, start, end) => {
                let end = end.map(|end| &keys[usize::from(end)][..]);
                (*token, Write::DeleteRange { start: &keys[usize::from(*start)], end, stamp })
            }
            Step::DeletePartition(token) => (*token, Write::DeletePartition(stamp)),
            Step::Purge(token, now) => {
                let bytes = bytes(*token);
                let key = PartitionKey { table: TABLE, token: *token, bytes: &bytes };
                let mut locked = keyspace.lock_one(key.hash(), params);
                let mutation = Mutation::Purge { key, now: *now, gc_before: *now };
                locked.apply_mutation(&mutation).unwrap();
                return locked.unlock();
            }
        };
        let bytes = bytes(token);
        let key = PartitionKey { table: TABLE, token, bytes: &bytes };
        let mut locked = keyspace.lock_one(key.hash(), params);
        let writes = [write];
        locked
            .apply_mutation(&Mutation::Partition { key, writes: Writes::Slice(&writes) })
            .unwrap();
        locked.unlock()
    }

    /// What a walk over all partitions of the first stripe of these tokens finds.
    fn walked(keyspace: &Keyspace, params: &Params, id: u64, term: u8) -> Vec<Posting> {
        let locked = keyspace.lock_stripe(crate::stripe_of_token(0), params);
        let mut found = Vec::new();
        let holds = |row: RowView<'_>| row.column(COLUMN).any(|cell| cell.bytes == [term]);
        for (token, key, partition) in locked.partitions(TABLE, Bound::Unbounded) {
            let posting = |row| Posting { token, key: key.to_vec(), row };
            if id % 2 == 1 {
                found.extend(holds(partition.statics(NEVER)).then(|| posting(None)));
                continue;
            }
            let rows = partition.rows(Bound::Unbounded, Bound::Unbounded, NEVER);
            found.extend(rows.filter(|row| holds(*row)).map(|row| posting(Some(row.key.to_vec()))));
        }
        found
    }

    fn looked_up(keyspace: &Keyspace, params: &Params, id: u64, term: u8) -> Option<Vec<Posting>> {
        let locked = keyspace.lock_stripe(crate::stripe_of_token(0), params);
        let found = locked.find(TABLE, IndexId(id), &[term], Start::Token(i64::MIN))?;
        Some(found.collect())
    }

    proptest! {
        /// After any changes an index finds what a scan finds, also an index that was added later;
        /// the accounts equal the bytes held; and a removed index frees its memory.
        #[test]
        fn an_index_is_what_a_walk_finds(before in steps(), after in steps()) {
            let params = params();
            let keyspace = Keyspace::new(1);
            let stripe = crate::stripe_of_token(0);
            let mut timestamps = 1..;
            let mut grown = 0;
            let mut run = |steps: &[Step]| {
                let each = steps.iter().zip(timestamps.by_ref());
                each.map(|(step, timestamp)| apply(&keyspace, &params, step, timestamp)).sum::<isize>()
            };
            grown += run(&before);
            keyspace.set_indexes(definitions(&[0, 1]));
            if !walked(&keyspace, &params, 0, 0).is_empty() {
                prop_assert_eq!(looked_up(&keyspace, &params, 0, 0), None, "not settled yet");
            }
            grown += keyspace.settle_indexes(stripe).expect("it is free").1;
            grown += run(&after);
            for id in [0, 1] {
                for term in 0..3 {
                    let found = looked_up(&keyspace, &params, id, term);
                    prop_assert_eq!(found, Some(walked(&keyspace, &params, id, term)), "{} {}", id, term);
                }
            }
            prop_assert_eq!(grown, keyspace.stats(params.now()).1.cast_signed());
            let generation = keyspace.index_generation();
            keyspace.set_indexes(BTreeMap::new());
            prop_assert_ne!(keyspace.index_generation(), generation);
            let (_, shrunk) = keyspace.settle_indexes(stripe).expect("it is free");
            prop_assert!(shrunk <= 0);
            let plain = Keyspace::new(1);
            before.iter().chain(&after).zip(1..).for_each(|(step, timestamp)| {
                apply(&plain, &params, step, timestamp);
            });
            prop_assert_eq!(keyspace.stats(params.now()).1, plain.stats(params.now()).1);
        }
    }

    #[test]
    fn a_look_begins_where_it_is_told() {
        let params = params();
        let keyspace = Keyspace::new(1);
        keyspace.set_indexes(definitions(&[0, 1]));
        let steps =
            [(0, 1), (0, 2), (1, 0), (2, 3)].map(|(p, row)| Step::Cell(p, Some(row), 1, None));
        for step in steps.iter().chain(&[Step::Cell(1, None, 1, None)]) {
            apply(&keyspace, &params, step, 1);
        }
        let find = |id, start: Start<'_>| -> Vec<(i64, Option<Vec<u8>>)> {
            let locked = keyspace.lock_stripe(crate::stripe_of_token(0), &params);
            let found = locked.find(TABLE, IndexId(id), &[1], start).unwrap();
            found.map(|posting| (posting.token, posting.row)).collect()
        };
        let all = [(0, 1), (0, 2), (1, 0), (2, 3)].map(|(p, row)| (p, Some(row_key(row).to_vec())));
        let (zero, one) = (bytes(0), bytes(1));
        assert_eq!(find(0, Start::Token(0)), all);
        assert_eq!(find(0, Start::Token(1)), all[2..]);
        assert_eq!(find(0, Start::Partition(0, &zero)), all);
        assert_eq!(find(0, Start::Row(0, &zero, &row_key(1))), all[1..]);
        assert_eq!(find(0, Start::Row(0, &zero, &row_key(2))), all[2..]);
        assert_eq!(find(0, Start::After(0, &zero)), all[2..]);
        assert_eq!(find(0, Start::After(1, &one)), all[3..]);
        assert_eq!(find(1, Start::Row(1, &one, &row_key(0))), [(1, None)]);
        assert_eq!(find(1, Start::After(1, &one)), []);
        assert_eq!(find(1, Start::Token(i64::MIN)), [(1, None)]);
    }
}
