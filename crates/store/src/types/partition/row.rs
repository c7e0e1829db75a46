//! A row: its cells by column, and its deletions.

use std::collections::BTreeMap;

use super::cell::{Cell, CellValue, Expiry, Seconds, Stamp, Timestamp};
use super::rows::NODE_BYTES;
use super::write::{RowKey, Write};
use crate::types::allocation_bytes;

/// One column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    Cell(Cell),
    Items(Box<Items>),
}

/// A collection whose items are cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Items {
    pub(super) deletion: Stamp,
    pub(super) cells: BTreeMap<Box<[u8]>, Cell>,
    /// What `cells` take on the heap. Kept, as counting them at each write would make a collection of
    /// n items cost n * n.
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Liveness {
    pub(super) timestamp: Timestamp,
    pub(super) expiry: Option<Expiry>,
}

impl Liveness {
    /// Whether an insertion has expired and its grace period has ended.
    pub(super) fn is_old(&self, now: Seconds, gc_before: Seconds) -> bool {
        self.expiry.is_some_and(|expiry| expiry.at <= now && expiry.at < gc_before)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) liveness: Option<Liveness>,
    pub(super) deletion: Stamp,
    /// Sorted by number.
    pub(super) columns: Vec<(u32, Column)>,
}

impl Default for Row {
    fn default() -> Row {
        Row { liveness: None, deletion: Stamp::NONE, columns: Vec::new() }
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
    pub(super) row: &'a Row,
    pub(super) now: Seconds,
}

impl<'a> RowView<'a> {
    /// Whether there is a row: it was inserted, or has a cell.
    pub fn exists(&self) -> bool {
        self.is_inserted() || self.cells().next().is_some()
    }

    /// Whether it is there even without cells: it was inserted, and that has not expired.
    pub fn is_inserted(&self) -> bool {
        let liveness = self.row.liveness.as_ref();
        liveness.is_some_and(|own| own.expiry.is_none_or(|expiry| expiry.at > self.now))
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

impl Row {
    pub(super) fn heap_bytes(&self) -> usize {
        let columns = self.columns.iter().map(|(_, column)| match column {
            Column::Cell(cell) => cell.heap_bytes(),
            Column::Items(items) => size_of::<Items>() + items.heap_bytes(),
        });
        columns.sum::<usize>() + self.columns.len() * size_of::<(u32, Column)>()
    }

    pub(super) fn insert(&mut self, liveness: Liveness) {
        let rank = |liveness: &Liveness| (liveness.timestamp, liveness.expiry);
        if self.liveness.as_ref().is_none_or(|own| rank(own) < rank(&liveness)) {
            self.liveness = Some(liveness);
        }
    }

    /// The column, made if it is not there.
    pub(super) fn column(&mut self, number: u32, make: impl FnOnce() -> Column) -> &mut Column {
        let at = match self.columns.binary_search_by_key(&number, |(known, _)| *known) {
            Ok(at) => at,
            Err(at) => {
                self.columns.insert(at, (number, make()));
                at
            }
        };
        &mut self.columns[at].1
    }

    /// The items of a column. A plain cell, from before the column changed its type, does not
    /// count.
    pub(super) fn items(&mut self, column: u32) -> &mut Items {
        let make = || Column::Items(Box::new(Items::new()));
        let slot = self.column(column, make);
        if matches!(slot, Column::Cell(_)) {
            *slot = make();
        }
        match slot {
            Column::Items(items) => items,
            Column::Cell(_) => unreachable!("it has just been made"),
        }
    }

    pub(super) fn write(&mut self, column: u32, item: Option<&[u8]>, cell: Cell) {
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
        let wins = items.cells.get(item).is_none_or(|own| cell.wins_over(own));
        if wins && !items.deletion.covers(cell.timestamp) {
            items.insert(item, cell);
        }
    }

    pub(super) fn delete_items(&mut self, column: u32, stamp: Stamp) {
        let items = self.items(column);
        items.deletion.merge(stamp);
        items.retain(|cell| !stamp.covers(cell.timestamp));
    }

    /// Drops what a deletion covers, smaller deletions included.
    pub(super) fn drop_covered(&mut self, stamp: Stamp) {
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
                items.retain(|cell| !stamp.covers(cell.timestamp));
                !items.is_empty()
            }
        });
    }

    /// The highest timestamp of its cells and deletions and of its insertion. O(cells).
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let columns = self.columns.iter().flat_map(|(_, column)| {
            let (cell, items) = match column {
                Column::Cell(cell) => (Some(cell), None),
                Column::Items(items) => (None, Some(items)),
            };
            let deletion = items.map(|items| items.deletion.timestamp);
            let items = items.into_iter().flat_map(|items| items.cells.values());
            cell.into_iter().chain(items).map(|cell| cell.timestamp).chain(deletion)
        });
        let liveness = self.liveness.as_ref().map(|liveness| liveness.timestamp);
        let newest = columns.chain(liveness).chain([self.deletion.timestamp]).max();
        newest.filter(|timestamp| *timestamp != Timestamp::MIN)
    }

    pub(super) fn has_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
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

    pub(super) fn purge(&mut self, now: Seconds, gc_before: Seconds) {
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
                items.retain(|cell| cell.survives(now, gc_before));
                !items.is_empty()
            }
        });
        self.columns.shrink_to_fit();
    }

    pub(super) fn writes<'a>(&'a self, key: RowKey<'a>, writes: &mut Vec<Write<'a>>) {
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
    fn new() -> Items {
        Items { deletion: Stamp::NONE, cells: BTreeMap::new(), bytes: 0 }
    }

    /// Puts a cell in the place of the one that is there.
    fn insert(&mut self, item: &[u8], cell: Cell) {
        let bytes = cell.heap_bytes();
        if let Some(own) = self.cells.get_mut(item) {
            self.bytes = self.bytes - own.heap_bytes() + bytes;
            *own = cell;
            return;
        }
        self.bytes += Self::place_bytes(item) + bytes;
        self.cells.insert(item.into(), cell);
    }

    fn retain(&mut self, mut keeps: impl FnMut(&mut Cell) -> bool) {
        self.cells.retain(|_, cell| keeps(cell));
        self.bytes = self.counted_bytes();
    }

    /// Cost of an item in addition to that of its cell.
    fn place_bytes(item: &[u8]) -> usize {
        allocation_bytes(item.len()) + size_of::<(Box<[u8]>, Cell)>() + NODE_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.deletion == Stamp::NONE
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// The same, recounted.
    pub(super) fn counted_bytes(&self) -> usize {
        self.cells.iter().map(|(item, cell)| Self::place_bytes(item) + cell.heap_bytes()).sum()
    }
}
