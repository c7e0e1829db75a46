//! Rows of a CQL table that share a partition key.
//!
//! A partition is what remains of all writes to it, in whatever order they came: each cell is the
//! one with the highest timestamp, and what a deletion covers is gone. Applying the same writes in
//! any order, or twice, gives the same partition.
//!
//! Clustering keys are bytes in the order of the rows, and no key is a prefix of another; what their
//! parts are is not known here. Times of expiry are seconds since the epoch: what has expired is
//! still there until [`Partition::purge`], and is not shown.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// Microseconds since the epoch, as clients give them; the highest wins.
pub type Timestamp = i64;

/// Seconds since the epoch.
pub type Seconds = u32;

/// When something was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// What was written at this time or before is gone.
    pub timestamp: Timestamp,
    /// When the server was told: deletions are remembered for a while after it.
    pub at: Seconds,
}

impl Stamp {
    /// Nothing was deleted.
    pub const NONE: Stamp = Stamp { timestamp: Timestamp::MIN, at: 0 };

    /// The later of two; of the same time the one that was heard of later.
    fn merge(&mut self, other: Stamp) {
        *self = (*self).max(other);
    }

    fn covers(self, timestamp: Timestamp) -> bool {
        timestamp <= self.timestamp && self != Stamp::NONE
    }

    /// A deletion that nobody has to be told of any more.
    fn is_old(self, gc_before: Seconds) -> bool {
        self != Stamp::NONE && self.at < gc_before
    }
}

/// How long something lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    pub at: Seconds,
    /// What was asked for: shown by `ttl()`.
    pub ttl: Seconds,
}

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellValue<'a> {
    Live { bytes: &'a [u8], expiry: Option<Expiry> },
    Deleted { at: Seconds },
}

/// A row within its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKey<'a> {
    /// The cells that all rows share.
    Static,
    Clustering(&'a [u8]),
}

/// One write. A statement is a list of them; order and number mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write<'a> {
    DeletePartition(Stamp),
    /// Rows from `start` on and below `end`; without `end` to the last.
    DeleteRange {
        start: &'a [u8],
        end: Option<&'a [u8]>,
        stamp: Stamp,
    },
    DeleteRow {
        row: &'a [u8],
        stamp: Stamp,
    },
    /// The row is there even if all its cells are null.
    InsertRow {
        row: &'a [u8],
        timestamp: Timestamp,
        expiry: Option<Expiry>,
    },
    /// All items of a collection, before others are written.
    DeleteItems {
        row: RowKey<'a>,
        column: u32,
        stamp: Stamp,
    },
    Cell {
        row: RowKey<'a>,
        column: u32,
        /// Which item of a collection.
        item: Option<&'a [u8]>,
        timestamp: Timestamp,
        value: CellValue<'a>,
    },
}

/// A cell as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    timestamp: Timestamp,
    /// Of a deleted cell: when the server was told.
    at: Seconds,
    ttl: Seconds,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Lasting,
    Expiring,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Lasting(Box<[u8]>),
    Expiring(Box<[u8]>),
    Deleted,
}

impl Cell {
    fn new(timestamp: Timestamp, value: CellValue<'_>) -> Cell {
        match value {
            CellValue::Live { bytes, expiry: None } => {
                Cell { timestamp, at: 0, ttl: 0, state: State::Lasting(bytes.into()) }
            }
            CellValue::Live { bytes, expiry: Some(Expiry { at, ttl }) } => {
                Cell { timestamp, at, ttl, state: State::Expiring(bytes.into()) }
            }
            CellValue::Deleted { at } => Cell { timestamp, at, ttl: 0, state: State::Deleted },
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.state {
            State::Lasting(bytes) | State::Expiring(bytes) => bytes,
            State::Deleted => &[],
        }
    }

    fn mark(&self) -> Mark {
        match self.state {
            State::Lasting(_) => Mark::Lasting,
            State::Expiring(_) => Mark::Expiring,
            State::Deleted => Mark::Deleted,
        }
    }

    /// Which of two cells stays: the later; of the same time a deletion before what expires before
    /// what lasts, then what was told or expires later, then the larger value.
    // Source: Cassandra 5.0, org.apache.cassandra.db.rows.Cells, resolveRegular
    fn wins_over(&self, other: &Cell) -> bool {
        let rank = |cell: &Cell| (cell.timestamp, cell.mark(), cell.at);
        (rank(self), self.bytes(), self.ttl) > (rank(other), other.bytes(), other.ttl)
    }

    fn is_live(&self, now: Seconds) -> bool {
        match self.mark() {
            Mark::Lasting => true,
            Mark::Expiring => self.at > now,
            Mark::Deleted => false,
        }
    }

    fn value(&self) -> CellValue<'_> {
        match &self.state {
            State::Lasting(bytes) => CellValue::Live { bytes, expiry: None },
            State::Expiring(bytes) => {
                let expiry = Some(Expiry { at: self.at, ttl: self.ttl });
                CellValue::Live { bytes, expiry }
            }
            State::Deleted => CellValue::Deleted { at: self.at },
        }
    }

    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes().len())
    }
}

/// One column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Cell(Cell),
    Items(Box<Items>),
}

/// A collection whose items are cells.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Items {
    deletion: Stamp,
    cells: BTreeMap<Box<[u8]>, Cell>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Liveness {
    timestamp: Timestamp,
    expiry: Option<Expiry>,
}

impl Liveness {
    /// An insertion that has expired and that nobody has to be told of any more.
    fn is_old(&self, now: Seconds, gc_before: Seconds) -> bool {
        self.expiry.is_some_and(|expiry| expiry.at <= now && expiry.at < gc_before)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    liveness: Option<Liveness>,
    deletion: Stamp,
    /// Sorted by number.
    columns: Vec<(u32, Column)>,
}

impl Default for Row {
    fn default() -> Row {
        Row { liveness: None, deletion: Stamp::NONE, columns: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    start: Box<[u8]>,
    end: Option<Box<[u8]>>,
    stamp: Stamp,
}

impl Range {
    fn holds(&self, row: &[u8]) -> bool {
        *self.start <= *row && self.end.as_deref().is_none_or(|end| row < end)
    }

    /// Whether all that the other deletes is deleted by this one too.
    fn covers(&self, other: &Range) -> bool {
        let ends_later = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        };
        self.stamp.covers(other.stamp.timestamp) && self.start <= other.start && ends_later
    }
}

/// What a map entry costs beside key and value: B-tree nodes are two thirds full.
const NODE_BYTES: usize = 16;

/// See the module.
///
/// Writes and looks cost O(log rows), and O(ranges) where ranges were deleted: those are few, since
/// ranges that others cover are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    deletion: Stamp,
    ranges: Vec<Range>,
    statics: Row,
    rows: BTreeMap<Box<[u8]>, Row>,
    heap_bytes: usize,
}

impl Default for Partition {
    fn default() -> Partition {
        Partition {
            deletion: Stamp::NONE,
            ranges: Vec::new(),
            statics: Row::default(),
            rows: BTreeMap::new(),
            heap_bytes: 0,
        }
    }
}

/// A live cell, to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellView<'a> {
    pub column: u32,
    pub item: Option<&'a [u8]>,
    pub timestamp: Timestamp,
    pub bytes: &'a [u8],
    pub expiry: Option<Expiry>,
}

/// A row, to be read.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// Empty of the static row.
    pub key: &'a [u8],
    row: &'a Row,
    now: Seconds,
}

impl<'a> RowView<'a> {
    /// Whether there is a row: it was inserted, or has a cell.
    pub fn exists(&self) -> bool {
        let is_inserted = self
            .row
            .liveness
            .as_ref()
            .is_some_and(|liveness| liveness.expiry.is_none_or(|expiry| expiry.at > self.now));
        is_inserted || self.cells().next().is_some()
    }

    /// Live cells, by column, items of a collection in their order.
    pub fn cells(&self) -> impl Iterator<Item = CellView<'a>> + use<'a> {
        let now = self.now;
        self.row.columns.iter().flat_map(move |(column, content)| views(*column, content, now))
    }

    /// Live cells of one column.
    pub fn column(&self, column: u32) -> impl Iterator<Item = CellView<'a>> + use<'a> {
        let found = self.row.columns.binary_search_by_key(&column, |(number, _)| *number);
        let now = self.now;
        let content = found.ok().map(|at| &self.row.columns[at].1);
        content.into_iter().flat_map(move |content| views(column, content, now))
    }
}

fn views(column: u32, content: &Column, now: Seconds) -> impl Iterator<Item = CellView<'_>> {
    let (single, items) = match content {
        Column::Cell(cell) => (Some((None, cell)), None),
        Column::Items(items) => (None, Some(&items.cells)),
    };
    let items = items.into_iter().flatten().map(|(item, cell)| (Some(&**item), cell));
    let live = single.into_iter().chain(items).filter(move |(_, cell)| cell.is_live(now));
    live.map(move |(item, cell)| CellView {
        column,
        item,
        timestamp: cell.timestamp,
        bytes: cell.bytes(),
        expiry: match cell.value() {
            CellValue::Live { expiry, .. } => expiry,
            CellValue::Deleted { .. } => None,
        },
    })
}

impl Partition {
    pub fn new() -> Partition {
        Partition::default()
    }

    /// Nothing is left, no deletion either: the partition can be forgotten.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
            && self.ranges.is_empty()
            && self.deletion == Stamp::NONE
            && self.statics == Row::default()
    }

    /// Rows that are kept, expired and deleted ones included.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes on the heap. O(1).
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Applies one write. Whatever an earlier deletion covers is not taken.
    pub fn write(&mut self, write: Write<'_>) {
        match write {
            Write::DeletePartition(stamp) => self.delete_partition(stamp),
            Write::DeleteRange { start, end, stamp } => {
                self.delete_range(Range { start: start.into(), end: end.map(Into::into), stamp });
            }
            Write::DeleteRow { row, stamp } => {
                self.change(RowKey::Clustering(row), |row, covered| {
                    if !covered.max(row.deletion).covers(stamp.timestamp) {
                        row.drop_covered(stamp);
                        row.deletion = stamp;
                    }
                });
            }
            Write::InsertRow { row, timestamp, expiry } => {
                self.change(RowKey::Clustering(row), |row, covered| {
                    if !covered.max(row.deletion).covers(timestamp) {
                        row.insert(Liveness { timestamp, expiry });
                    }
                });
            }
            Write::DeleteItems { row, column, stamp } => self.change(row, |row, covered| {
                if !covered.max(row.deletion).covers(stamp.timestamp) {
                    row.delete_items(column, stamp);
                }
            }),
            Write::Cell { row, column, item, timestamp, value } => {
                self.change(row, |row, covered| {
                    if !covered.max(row.deletion).covers(timestamp) {
                        row.write(column, item, Cell::new(timestamp, value));
                    }
                });
            }
        }
    }

    /// Changes a row, which is made if it is not there and forgotten if nothing of it is left.
    /// `change` gets what deletes of the whole partition and of ranges say of it.
    fn change(&mut self, key: RowKey<'_>, change: impl FnOnce(&mut Row, Stamp)) {
        let RowKey::Clustering(key) = key else {
            let before = self.statics.heap_bytes();
            change(&mut self.statics, self.deletion);
            self.heap_bytes = self.heap_bytes - before + self.statics.heap_bytes();
            return;
        };
        let holding = self.ranges.iter().filter(|range| range.holds(key));
        let covered = holding.map(|range| range.stamp).fold(self.deletion, Stamp::max);
        if let Some(row) = self.rows.get_mut(key) {
            let before = row.heap_bytes();
            change(row, covered);
            if *row != Row::default() {
                self.heap_bytes = self.heap_bytes - before + row.heap_bytes();
                return;
            }
            self.rows.remove(key);
            self.heap_bytes -= row_bytes(key) + before;
            return;
        }
        let mut row = Row::default();
        change(&mut row, covered);
        if row != Row::default() {
            self.heap_bytes += row_bytes(key) + row.heap_bytes();
            self.rows.insert(key.into(), row);
        }
    }

    fn delete_partition(&mut self, stamp: Stamp) {
        if self.deletion.covers(stamp.timestamp) {
            return;
        }
        self.deletion = stamp;
        self.ranges.retain(|range| !stamp.covers(range.stamp.timestamp));
        self.statics.drop_covered(stamp);
        for row in self.rows.values_mut() {
            row.drop_covered(stamp);
        }
        self.forget_empty_rows();
    }

    fn delete_range(&mut self, range: Range) {
        let is_empty = range.end.as_deref().is_some_and(|end| *range.start >= *end);
        let is_covered = self.deletion.covers(range.stamp.timestamp)
            || self.ranges.iter().any(|other| other.covers(&range));
        if is_empty || is_covered {
            return;
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let start = Bound::Included(&*range.start);
        for (_, row) in self.rows.range_mut::<[u8], _>((start, end)) {
            row.drop_covered(range.stamp);
        }
        self.ranges.retain(|other| !range.covers(other));
        let at = self.ranges.binary_search(&range).unwrap_or_else(|at| at);
        self.ranges.insert(at, range);
        self.forget_empty_rows();
    }

    fn forget_empty_rows(&mut self) {
        self.rows.retain(|_, row| *row != Row::default());
        self.heap_bytes = self.count_heap_bytes();
    }

    fn count_heap_bytes(&self) -> usize {
        let rows = self.rows.iter().map(|(key, row)| row_bytes(key) + row.heap_bytes());
        let ranges = self.ranges.iter().map(|range| {
            size_of::<Range>()
                + allocation_bytes(range.start.len())
                + allocation_bytes(range.end.as_ref().map_or(0, |end| end.len()))
        });
        rows.chain(ranges).sum::<usize>() + self.statics.heap_bytes()
    }

    /// Forgets what has expired and deletions that were told before `gc_before`: nobody may write
    /// anything older than them from now on. What has expired becomes a deletion of its cell until
    /// then, as a write of the same time would otherwise come back.
    pub fn purge(&mut self, now: Seconds, gc_before: Seconds) {
        if self.deletion.at < gc_before {
            self.deletion = Stamp::NONE;
        }
        self.ranges.retain(|range| range.stamp.at >= gc_before);
        self.statics.purge(now, gc_before);
        for row in self.rows.values_mut() {
            row.purge(now, gc_before);
        }
        self.forget_empty_rows();
    }

    /// Whether a purge of these times would remove something.
    pub fn has_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
        self.deletion.is_old(gc_before)
            || self.ranges.iter().any(|range| range.stamp.is_old(gc_before))
            || self.statics.has_garbage(now, gc_before)
            || self.rows.values().any(|row| row.has_garbage(now, gc_before))
    }

    /// The static row.
    pub fn statics(&self, now: Seconds) -> RowView<'_> {
        RowView { key: &[], row: &self.statics, now }
    }

    pub fn row(&self, key: &[u8], now: Seconds) -> Option<RowView<'_>> {
        let (key, row) = self.rows.get_key_value(key)?;
        Some(RowView { key, row, now }).filter(RowView::exists)
    }

    /// Rows that exist, in their order, from either end.
    pub fn rows(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        now: Seconds,
    ) -> impl DoubleEndedIterator<Item = RowView<'_>> {
        // A range that ends before it starts holds nothing; the map would not take it.
        let is_valid = match (start, end) {
            (Bound::Included(start), Bound::Included(end)) => start <= end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start < end,
            _ => true,
        };
        let found = is_valid.then(|| self.rows.range::<[u8], _>((start, end)));
        let views = found.into_iter().flatten().map(move |(key, row)| RowView { key, row, now });
        views.filter(RowView::exists)
    }

    /// All that is kept, as writes that make the same partition again.
    fn writes(&self) -> Vec<Write<'_>> {
        let mut writes = Vec::new();
        if self.deletion != Stamp::NONE {
            writes.push(Write::DeletePartition(self.deletion));
        }
        for Range { start, end, stamp } in &self.ranges {
            writes.push(Write::DeleteRange { start, end: end.as_deref(), stamp: *stamp });
        }
        self.statics.writes(RowKey::Static, &mut writes);
        for (key, row) in &self.rows {
            row.writes(RowKey::Clustering(key), &mut writes);
        }
        writes
    }

    /// Appends the partition: the writes that make it, behind their number.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writes = self.writes();
        put_varint(out, writes.len() as u64);
        for write in &writes {
            write.encode(out);
        }
    }

    pub fn decode(input: &mut &[u8]) -> Result<Partition, Malformed> {
        let count = take_varint(input)?;
        let mut partition = Partition::new();
        for _ in 0..count {
            partition.write(Write::decode(input)?);
        }
        Ok(partition)
    }
}

/// What a row costs beside its columns.
fn row_bytes(key: &[u8]) -> usize {
    allocation_bytes(key.len()) + size_of::<(Box<[u8]>, Row)>() + NODE_BYTES
}

impl Row {
    fn heap_bytes(&self) -> usize {
        let columns = self.columns.iter().map(|(_, column)| match column {
            Column::Cell(cell) => cell.heap_bytes(),
            Column::Items(items) => size_of::<Items>() + items.heap_bytes(),
        });
        columns.sum::<usize>() + self.columns.len() * size_of::<(u32, Column)>()
    }

    fn insert(&mut self, liveness: Liveness) {
        let rank = |liveness: &Liveness| (liveness.timestamp, liveness.expiry);
        if self.liveness.as_ref().is_none_or(|own| rank(own) < rank(&liveness)) {
            self.liveness = Some(liveness);
        }
    }

    /// The column, made if it is not there.
    fn column(&mut self, number: u32, make: impl FnOnce() -> Column) -> &mut Column {
        let at = match self.columns.binary_search_by_key(&number, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => {
                self.columns.insert(at, (number, make()));
                at
            }
        };
        &mut self.columns[at].1
    }

    /// The items of a column. One that was a plain cell, before its type was another, is none.
    fn items(&mut self, column: u32) -> &mut Items {
        let make = || {
            let cells = BTreeMap::new();
            Column::Items(Box::new(Items { deletion: Stamp::NONE, cells }))
        };
        let slot = self.column(column, make);
        if matches!(slot, Column::Cell(_)) {
            *slot = make();
        }
        match slot {
            Column::Items(items) => items,
            Column::Cell(_) => unreachable!("it has just been made"),
        }
    }

    fn write(&mut self, column: u32, item: Option<&[u8]>, cell: Cell) {
        let Some(item) = item else {
            let mut cell = Some(cell);
            let slot = self.column(column, || Column::Cell(cell.take().expect("made once")));
            if let (Column::Cell(own), Some(cell)) = (slot, cell)
                && cell.wins_over(own)
            {
                *own = cell;
            }
            return;
        };
        let items = self.items(column);
        let is_covered = items.deletion.covers(cell.timestamp);
        let wins = items.cells.get(item).is_none_or(|own| cell.wins_over(own));
        if !is_covered && wins {
            items.cells.insert(item.into(), cell);
        }
    }

    fn delete_items(&mut self, column: u32, stamp: Stamp) {
        let items = self.items(column);
        items.deletion.merge(stamp);
        items.cells.retain(|_, cell| !stamp.covers(cell.timestamp));
    }

    /// Drops what a deletion covers, smaller deletions included.
    fn drop_covered(&mut self, stamp: Stamp) {
        if stamp.covers(self.deletion.timestamp) {
            self.deletion = Stamp::NONE;
        }
        self.liveness.take_if(|liveness| stamp.covers(liveness.timestamp));
        self.columns.retain_mut(|(_, column)| match column {
            Column::Cell(cell) => !stamp.covers(cell.timestamp),
            Column::Items(items) => {
                if stamp.covers(items.deletion.timestamp) {
                    items.deletion = Stamp::NONE;
                }
                items.cells.retain(|_, cell| !stamp.covers(cell.timestamp));
                !items.is_empty()
            }
        });
    }

    fn has_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
        let is_garbage = |cell: &Cell| cell.is_garbage(now, gc_before);
        self.deletion.is_old(gc_before)
            || self.liveness.as_ref().is_some_and(|liveness| liveness.is_old(now, gc_before))
            || self.columns.iter().any(|(_, column)| match column {
                Column::Cell(cell) => is_garbage(cell),
                Column::Items(items) => {
                    items.deletion.is_old(gc_before) || items.cells.values().any(is_garbage)
                }
            })
    }

    fn purge(&mut self, now: Seconds, gc_before: Seconds) {
        if self.deletion.at < gc_before {
            self.deletion = Stamp::NONE;
        }
        self.liveness.take_if(|liveness| liveness.is_old(now, gc_before));
        self.columns.retain_mut(|(_, column)| match column {
            Column::Cell(cell) => cell.survives(now, gc_before),
            Column::Items(items) => {
                if items.deletion.at < gc_before {
                    items.deletion = Stamp::NONE;
                }
                items.cells.retain(|_, cell| cell.survives(now, gc_before));
                !items.is_empty()
            }
        });
        self.columns.shrink_to_fit();
    }

    fn writes<'a>(&'a self, key: RowKey<'a>, writes: &mut Vec<Write<'a>>) {
        if let RowKey::Clustering(row) = key {
            if self.deletion != Stamp::NONE {
                writes.push(Write::DeleteRow { row, stamp: self.deletion });
            }
            if let Some(Liveness { timestamp, expiry }) = self.liveness {
                writes.push(Write::InsertRow { row, timestamp, expiry });
            }
        }
        for (column, content) in &self.columns {
            let cell = |item, cell: &'a Cell| Write::Cell {
                row: key,
                column: *column,
                item,
                timestamp: cell.timestamp,
                value: cell.value(),
            };
            match content {
                Column::Cell(content) => writes.push(cell(None, content)),
                Column::Items(items) => {
                    if items.deletion != Stamp::NONE {
                        let stamp = items.deletion;
                        writes.push(Write::DeleteItems { row: key, column: *column, stamp });
                    }
                    let cells = items.cells.iter();
                    writes.extend(cells.map(|(item, content)| cell(Some(item), content)));
                }
            }
        }
    }
}

impl Items {
    fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.deletion == Stamp::NONE
    }

    fn heap_bytes(&self) -> usize {
        let bytes = self.cells.iter().map(|(item, cell)| {
            allocation_bytes(item.len())
                + cell.heap_bytes()
                + size_of::<(Box<[u8]>, Cell)>()
                + NODE_BYTES
        });
        bytes.sum()
    }
}

impl Cell {
    /// Whether a purge would drop it, or its value.
    fn is_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
        match self.mark() {
            Mark::Lasting => false,
            Mark::Expiring => self.at <= now,
            Mark::Deleted => self.at < gc_before,
        }
    }

    /// Whether it is kept by a purge; what has expired is turned into a deletion first.
    fn survives(&mut self, now: Seconds, gc_before: Seconds) -> bool {
        if !self.is_live(now) {
            self.state = State::Deleted;
            self.ttl = 0;
        }
        self.mark() != Mark::Deleted || self.at >= gc_before
    }
}

const DELETE_PARTITION: u8 = 0;
const DELETE_RANGE: u8 = 1;
const DELETE_ROW: u8 = 2;
const INSERT_ROW: u8 = 3;
const DELETE_ITEMS: u8 = 4;
const CELL: u8 = 5;
/// Flags beside the kind, in the upper half of its byte.
const HAS_END: u8 = 0x10;
const IS_STATIC: u8 = 0x20;
const HAS_ITEM: u8 = 0x40;
const HAS_EXPIRY: u8 = 0x80;
const IS_DELETED: u8 = 0x10;

impl<'a> Write<'a> {
    /// Appends the write. Integers are little-endian, `v` is a LEB128 varint: kind and flags u8; a
    /// stamp is timestamp i64 and seconds u32; keys, items and values are length v and bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Write::DeletePartition(stamp) => {
                out.push(DELETE_PARTITION);
                put_stamp(stamp, out);
            }
            Write::DeleteRange { start, end, stamp } => {
                out.push(DELETE_RANGE | flag(HAS_END, end.is_some()));
                put_bytes(out, start);
                if let Some(end) = end {
                    put_bytes(out, end);
                }
                put_stamp(stamp, out);
            }
            Write::DeleteRow { row, stamp } => {
                out.push(DELETE_ROW);
                put_bytes(out, row);
                put_stamp(stamp, out);
            }
            Write::InsertRow { row, timestamp, expiry } => {
                out.push(INSERT_ROW | flag(HAS_EXPIRY, expiry.is_some()));
                put_bytes(out, row);
                out.extend_from_slice(&timestamp.to_le_bytes());
                put_expiry(expiry, out);
            }
            Write::DeleteItems { row, column, stamp } => {
                out.push(DELETE_ITEMS | flag(IS_STATIC, row == RowKey::Static));
                put_row(row, out);
                put_varint(out, column.into());
                put_stamp(stamp, out);
            }
            Write::Cell { row, column, item, timestamp, value } => {
                let flags = flag(IS_STATIC, row == RowKey::Static)
                    | flag(HAS_ITEM, item.is_some())
                    | match value {
                        CellValue::Live { expiry, .. } => flag(HAS_EXPIRY, expiry.is_some()),
                        CellValue::Deleted { .. } => IS_DELETED,
                    };
                out.push(CELL | flags);
                put_row(row, out);
                put_varint(out, column.into());
                if let Some(item) = item {
                    put_bytes(out, item);
                }
                out.extend_from_slice(&timestamp.to_le_bytes());
                match value {
                    CellValue::Live { bytes, expiry } => {
                        put_expiry(expiry, out);
                        put_bytes(out, bytes);
                    }
                    CellValue::Deleted { at } => out.extend_from_slice(&at.to_le_bytes()),
                }
            }
        }
    }

    /// Takes a write off the front.
    pub fn decode(input: &mut &'a [u8]) -> Result<Write<'a>, Malformed> {
        let (&kind, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        let has = |flag: u8| kind & flag != 0;
        let (write, known) = match kind & 0x0F {
            DELETE_PARTITION => (Write::DeletePartition(take_stamp(input)?), 0),
            DELETE_RANGE => {
                let start = take_bytes(input)?;
                let end = if has(HAS_END) { Some(take_bytes(input)?) } else { None };
                (Write::DeleteRange { start, end, stamp: take_stamp(input)? }, HAS_END)
            }
            DELETE_ROW => {
                (Write::DeleteRow { row: take_bytes(input)?, stamp: take_stamp(input)? }, 0)
            }
            INSERT_ROW => {
                let row = take_bytes(input)?;
                let timestamp = take_i64(input)?;
                let expiry = take_expiry(has(HAS_EXPIRY), input)?;
                (Write::InsertRow { row, timestamp, expiry }, HAS_EXPIRY)
            }
            DELETE_ITEMS => {
                let row = take_row(has(IS_STATIC), input)?;
                let column = take_column(input)?;
                (Write::DeleteItems { row, column, stamp: take_stamp(input)? }, IS_STATIC)
            }
            CELL => {
                let row = take_row(has(IS_STATIC), input)?;
                let column = take_column(input)?;
                let item = if has(HAS_ITEM) { Some(take_bytes(input)?) } else { None };
                let timestamp = take_i64(input)?;
                let value = if has(IS_DELETED) {
                    CellValue::Deleted { at: take_u32(input)? }
                } else {
                    let expiry = take_expiry(has(HAS_EXPIRY), input)?;
                    CellValue::Live { bytes: take_bytes(input)?, expiry }
                };
                let last = if has(IS_DELETED) { IS_DELETED } else { HAS_EXPIRY };
                let known = IS_STATIC | HAS_ITEM | last;
                (Write::Cell { row, column, item, timestamp, value }, known)
            }
            _ => return Err(Malformed),
        };
        if kind & 0xF0 & !known == 0 { Ok(write) } else { Err(Malformed) }
    }
}

fn flag(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

fn put_stamp(stamp: Stamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&stamp.timestamp.to_le_bytes());
    out.extend_from_slice(&stamp.at.to_le_bytes());
}

fn put_expiry(expiry: Option<Expiry>, out: &mut Vec<u8>) {
    if let Some(Expiry { at, ttl }) = expiry {
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&ttl.to_le_bytes());
    }
}

fn put_row(row: RowKey<'_>, out: &mut Vec<u8>) {
    if let RowKey::Clustering(key) = row {
        put_bytes(out, key);
    }
}

fn take_i64(input: &mut &[u8]) -> Result<i64, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(i64::from_le_bytes(*bytes))
}

fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(u32::from_le_bytes(*bytes))
}

fn take_stamp(input: &mut &[u8]) -> Result<Stamp, Malformed> {
    Ok(Stamp { timestamp: take_i64(input)?, at: take_u32(input)? })
}

fn take_expiry(is_there: bool, input: &mut &[u8]) -> Result<Option<Expiry>, Malformed> {
    if !is_there {
        return Ok(None);
    }
    Ok(Some(Expiry { at: take_u32(input)?, ttl: take_u32(input)? }))
}

fn take_row<'a>(is_static: bool, input: &mut &'a [u8]) -> Result<RowKey<'a>, Malformed> {
    if is_static { Ok(RowKey::Static) } else { Ok(RowKey::Clustering(take_bytes(input)?)) }
}

fn take_column(input: &mut &[u8]) -> Result<u32, Malformed> {
    u32::try_from(take_varint(input)?).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Seconds = 100;

    fn live(bytes: &[u8]) -> CellValue<'_> {
        CellValue::Live { bytes, expiry: None }
    }

    fn cell<'a>(row: &'a [u8], column: u32, timestamp: i64, value: CellValue<'a>) -> Write<'a> {
        Write::Cell { row: RowKey::Clustering(row), column, item: None, timestamp, value }
    }

    fn stamp(timestamp: i64) -> Stamp {
        Stamp { timestamp, at: 50 }
    }

    fn partition(writes: &[Write<'_>]) -> Partition {
        let mut partition = Partition::new();
        for write in writes {
            partition.write(*write);
        }
        assert_eq!(partition.heap_bytes(), partition.count_heap_bytes());
        partition
    }

    /// A row's key, and its cells.
    type Shown = (Vec<u8>, Vec<(u32, Vec<u8>)>);

    fn shown(partition: &Partition, now: Seconds) -> Vec<Shown> {
        let rows = partition.rows(Bound::Unbounded, Bound::Unbounded, now);
        rows.map(|row| {
            let cells = row.cells().map(|cell| (cell.column, cell.bytes.to_vec()));
            (row.key.to_vec(), cells.collect())
        })
        .collect()
    }

    #[test]
    fn the_last_write_wins_per_cell() {
        let found = partition(&[
            cell(b"r", 1, 5, live(b"new")),
            cell(b"r", 1, 4, live(b"old")),
            cell(b"r", 2, 4, live(b"other")),
        ]);
        let expected = vec![(1, b"new".to_vec()), (2, b"other".to_vec())];
        assert_eq!(shown(&found, NOW), [(b"r".to_vec(), expected)]);
    }

    #[test]
    fn at_the_same_time_a_deletion_wins_and_then_the_larger_value() {
        let deleted = CellValue::Deleted { at: 50 };
        let expiry = Some(Expiry { at: 200, ttl: 100 });
        let expiring = CellValue::Live { bytes: b"a", expiry };
        for (first, second, expected) in [
            (live(b"a"), live(b"b"), Some(&b"b"[..])),
            (live(b"z"), deleted, None),
            (live(b"z"), expiring, Some(b"a")),
            (expiring, deleted, None),
        ] {
            for pair in [[first, second], [second, first]] {
                let found = partition(&pair.map(|value| cell(b"r", 1, 5, value)));
                let row = found.row(b"r", NOW);
                let shown = row.and_then(|row| row.column(1).next().map(|cell| cell.bytes));
                assert_eq!(shown, expected, "{pair:?}");
            }
        }
    }

    #[test]
    fn a_row_lives_by_its_insertion_or_by_a_cell() {
        let insert = Write::InsertRow { row: b"r", timestamp: 5, expiry: None };
        let null = cell(b"r", 1, 5, CellValue::Deleted { at: 50 });
        assert_eq!(shown(&partition(&[insert, null]), NOW), [(b"r".to_vec(), vec![])]);
        assert_eq!(shown(&partition(&[null]), NOW), []);
        let expiring = Write::InsertRow {
            row: b"r",
            timestamp: 5,
            expiry: Some(Expiry { at: NOW + 1, ttl: 10 }),
        };
        assert!(partition(&[expiring]).row(b"r", NOW).is_some());
        assert!(partition(&[expiring]).row(b"r", NOW + 1).is_none());
    }

    #[test]
    fn deletions_cover_what_is_older() {
        let rows = [cell(b"a", 1, 5, live(b"1")), cell(b"b", 1, 5, live(b"2"))];
        for (deletion, expected) in [
            (Write::DeletePartition(stamp(5)), vec![]),
            (Write::DeletePartition(stamp(4)), vec!["a", "b"]),
            (Write::DeleteRow { row: b"a", stamp: stamp(5) }, vec!["b"]),
            (Write::DeleteRange { start: b"b", end: None, stamp: stamp(9) }, vec!["a"]),
            (Write::DeleteRange { start: b"", end: Some(b"b"), stamp: stamp(9) }, vec!["b"]),
            (Write::DeleteRange { start: b"b", end: Some(b"a"), stamp: stamp(9) }, vec!["a", "b"]),
        ] {
            for writes in [[rows[0], rows[1], deletion], [deletion, rows[1], rows[0]]] {
                let found = shown(&partition(&writes), NOW);
                let keys: Vec<&[u8]> = found.iter().map(|(key, _)| &key[..]).collect();
                let expected: Vec<&[u8]> = expected.iter().map(|key| key.as_bytes()).collect();
                assert_eq!(keys, expected, "{deletion:?}");
            }
        }
    }

    #[test]
    fn a_new_collection_replaces_the_items_of_the_old_one() {
        let item = |item: &'static [u8], timestamp| Write::Cell {
            row: RowKey::Static,
            column: 3,
            item: Some(item),
            timestamp,
            value: live(b"v"),
        };
        // A collection that is set as a whole deletes at one microsecond before.
        let deletion = Write::DeleteItems { row: RowKey::Static, column: 3, stamp: stamp(9) };
        let found = partition(&[item(b"old", 5), deletion, item(b"new", 10), item(b"late", 9)]);
        let row = found.statics(NOW);
        let items: Vec<&[u8]> = row.column(3).filter_map(|cell| cell.item).collect();
        assert_eq!(items, [b"new"]);
    }

    #[test]
    fn a_purge_forgets_what_nobody_can_see() {
        let expiry = Some(Expiry { at: 60, ttl: 10 });
        let mut found = partition(&[
            cell(b"a", 1, 5, CellValue::Live { bytes: b"x", expiry }),
            cell(b"b", 1, 5, CellValue::Deleted { at: 50 }),
            Write::DeleteRange { start: b"c", end: None, stamp: stamp(5) },
            Write::InsertRow { row: b"d", timestamp: 7, expiry: None },
        ]);
        found.purge(NOW, 55);
        assert_eq!((found.len(), found.ranges.len()), (2, 0));
        // What has expired goes on to beat what was written with it, until it is old too.
        found.write(cell(b"a", 1, 5, live(b"y")));
        assert!(found.row(b"a", NOW).is_none());
        found.purge(NOW, 61);
        assert_eq!(shown(&found, NOW), [(b"d".to_vec(), vec![])]);
        found.write(Write::DeleteRow { row: b"d", stamp: stamp(7) });
        found.purge(NOW, 61);
        assert!(found.is_empty());
        assert_eq!(found.heap_bytes(), 0);
    }

    #[test]
    fn rows_are_read_from_both_ends() {
        let found = partition(&[b"a", b"b", b"c"].map(|row| cell(row, 1, 5, live(b"v"))));
        let keys = |start, end| -> Vec<u8> {
            found.rows(start, end, NOW).rev().map(|row| row.key[0]).collect()
        };
        assert_eq!(keys(Bound::Excluded(b"a"), Bound::Unbounded), b"cb");
        assert_eq!(keys(Bound::Included(b"a"), Bound::Excluded(b"c")), b"ba");
        assert_eq!(keys(Bound::Excluded(b"b"), Bound::Excluded(b"b")), b"");
        assert_eq!(keys(Bound::Included(b"c"), Bound::Included(b"a")), b"");
    }

    /// Writes that own their bytes, few enough different ones to meet often.
    fn writes() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let key = prop_oneof![Just(&b"a"[..]), Just(&b"b"[..]), Just(&b"c"[..])];
        let time = -2_i64..4;
        let at = 90_u32..110;
        let expiry =
            proptest::option::of((at.clone(), 0_u32..3).prop_map(|(at, ttl)| Expiry { at, ttl }));
        let value = prop_oneof![
            3 => (key.clone(), expiry.clone())
                .prop_map(|(bytes, expiry)| CellValue::Live { bytes, expiry }),
            1 => at.clone().prop_map(|at| CellValue::Deleted { at }),
        ];
        let stamps = (time.clone(), at).prop_map(|(timestamp, at)| Stamp { timestamp, at });
        let row =
            prop_oneof![1 => Just(RowKey::Static), 4 => key.clone().prop_map(RowKey::Clustering)];
        let write = prop_oneof![
            1 => stamps.clone().prop_map(Write::DeletePartition),
            2 => (key.clone(), proptest::option::of(key.clone()), stamps.clone())
                .prop_map(|(start, end, stamp)| Write::DeleteRange { start, end, stamp }),
            2 => (key.clone(), stamps.clone()).prop_map(|(row, stamp)| Write::DeleteRow { row, stamp }),
            2 => (key.clone(), time.clone(), expiry)
                .prop_map(|(row, timestamp, expiry)| Write::InsertRow { row, timestamp, expiry }),
            2 => (row.clone(), stamps)
                .prop_map(|(row, stamp)| Write::DeleteItems { row, column: 7, stamp }),
            8 => (row, proptest::option::of(key), time, value).prop_map(
                |(row, item, timestamp, value)| {
                    // A column is plain or a collection.
                    let column = if item.is_some() { 7 } else { 1 };
                    Write::Cell { row, column, item, timestamp, value }
                }
            ),
        ];
        let encoded = write.prop_map(|write| {
            let mut out = Vec::new();
            write.encode(&mut out);
            out
        });
        proptest::collection::vec(encoded, 0..12)
    }

    fn applied<'a>(writes: impl Iterator<Item = &'a Vec<u8>>) -> Partition {
        let decoded: Vec<Write<'_>> =
            writes.map(|bytes| Write::decode(&mut &bytes[..]).unwrap()).collect();
        partition(&decoded)
    }

    proptest! {
        /// Any order, and any repetition, shows the same.
        #[test]
        fn writes_commute(writes in writes(), seed: u64) {
            let mut shuffled = [writes.clone(), writes.clone()].concat();
            let mut state = seed | 1;
            for at in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                shuffled.swap(at, (state >> 33) as usize % (at + 1));
            }
            let (one, other) = (applied(writes.iter()), applied(shuffled.iter()));
            for now in [0, NOW, 200] {
                prop_assert_eq!(shown(&one, now), shown(&other, now));
                let statics = |of: &Partition| {
                    of.statics(now).cells().map(|c| (c.column, c.bytes.to_vec())).collect::<Vec<_>>()
                };
                prop_assert_eq!(statics(&one), statics(&other));
            }
        }

        #[test]
        fn a_partition_comes_back_from_its_bytes(writes in writes()) {
            let one = applied(writes.iter());
            let mut bytes = Vec::new();
            one.encode(&mut bytes);
            let mut input = &bytes[..];
            prop_assert_eq!(Partition::decode(&mut input), Ok(one));
            prop_assert!(input.is_empty());
            for cut in 0..bytes.len() {
                prop_assert_eq!(Partition::decode(&mut &bytes[..cut]), Err(Malformed));
            }
        }

        /// What a purge forgets was not to be seen, and the rest stays.
        #[test]
        fn a_purge_changes_nothing_that_is_shown(writes in writes(), gc_before in 80_u32..=NOW) {
            let one = applied(writes.iter());
            let mut purged = one.clone();
            purged.purge(NOW, gc_before);
            prop_assert_eq!(shown(&one, NOW), shown(&purged, NOW));
            prop_assert_eq!(purged.heap_bytes(), purged.count_heap_bytes());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            if let Ok(found) = Partition::decode(&mut &bytes[..]) {
                let mut again = Vec::new();
                found.encode(&mut again);
                prop_assert_eq!(Partition::decode(&mut &again[..]), Ok(found));
            }
        }
    }
}
