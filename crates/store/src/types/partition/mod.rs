//! Rows of a CQL table that share a partition key.
//!
//! A partition is the result of all writes to it, in whatever order they arrived: each cell is the
//! one with the highest timestamp, and what a deletion covers is removed. Applying the same writes in
//! any order, or twice, gives the same partition.
//!
//! Clustering keys are bytes in the order of the rows, and no key is a prefix of another; what their
//! parts are is not known here. Times of expiry are seconds since the epoch: what has expired is
//! still there until [`Partition::purge`], and is not shown.

mod cell;
mod row;
mod rows;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Bound;

use super::{Malformed, allocation_bytes};
use crate::varint::{put_varint, take_varint};
use cell::Cell;
pub use cell::{CellValue, Expiry, Seconds, Stamp, Timestamp};
pub use row::{CellView, RowView};
use row::{Liveness, Row};
use rows::Rows;
pub use write::{RowKey, Write};

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

    /// Whether this range deletes everything that the other deletes.
    fn covers(&self, other: &Range) -> bool {
        let ends_later = match (&self.end, &other.end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        };
        self.stamp.covers(other.stamp.timestamp) && self.start <= other.start && ends_later
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Range>()
            + allocation_bytes(self.start.len())
            + allocation_bytes(self.end.as_ref().map_or(0, |end| end.len()))
    }
}

/// See the module.
///
/// Writes and reads cost O(log rows), and O(ranges) where ranges were deleted: those are few, since
/// a range that another one covers is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    deletion: Stamp,
    ranges: Vec<Range>,
    statics: Row,
    rows: Rows,
    /// Bytes on the heap, without the places of rows.
    content_bytes: usize,
}

impl Default for Partition {
    fn default() -> Partition {
        Partition {
            deletion: Stamp::NONE,
            ranges: Vec::new(),
            statics: Row::default(),
            rows: Rows::default(),
            content_bytes: 0,
        }
    }
}

impl Partition {
    pub fn new() -> Partition {
        Partition::default()
    }

    /// Whether nothing is left, not even a deletion: then the partition can be dropped.
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
        self.content_bytes + self.rows.len() * self.rows.slot_bytes()
    }

    /// Applies one write. An earlier deletion that covers it suppresses it.
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

    /// Changes a row, which is created if necessary and dropped if nothing of it is left. `change`
    /// gets the newest deletion of the whole partition or of a range that covers the row.
    fn change(&mut self, key: RowKey<'_>, change: impl FnOnce(&mut Row, Stamp)) {
        let RowKey::Clustering(key) = key else {
            let before = self.statics.heap_bytes();
            change(&mut self.statics, self.deletion);
            self.content_bytes = self.content_bytes - before + self.statics.heap_bytes();
            return;
        };
        let holding = self.ranges.iter().filter(|range| range.holds(key));
        let covered = holding.map(|range| range.stamp).fold(self.deletion, Stamp::max);
        if let Some(row) = self.rows.get_mut(key) {
            let before = row.heap_bytes();
            change(row, covered);
            if *row != Row::default() {
                self.content_bytes = self.content_bytes - before + row.heap_bytes();
                return;
            }
            self.rows.remove(key);
            self.content_bytes -= allocation_bytes(key.len()) + before;
            return;
        }
        let mut row = Row::default();
        change(&mut row, covered);
        if row != Row::default() {
            self.content_bytes += allocation_bytes(key.len()) + row.heap_bytes();
            self.rows.insert(key, row);
        }
    }

    fn delete_partition(&mut self, stamp: Stamp) {
        if self.deletion.covers(stamp.timestamp) {
            return;
        }
        self.deletion = stamp;
        self.retain_ranges(|range| !stamp.covers(range.stamp.timestamp));
        self.change_all(|row| row.drop_covered(stamp));
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
        self.change_rows((start, end), |row| row.drop_covered(range.stamp));
        self.retain_ranges(|other| !range.covers(other));
        debug_assert!(!self.ranges.iter().any(|other| range.covers(other)));
        let at = self.ranges.binary_search(&range).unwrap_or_else(|at| at);
        self.content_bytes += range.heap_bytes();
        self.ranges.insert(at, range);
    }

    fn retain_ranges(&mut self, mut stays: impl FnMut(&Range) -> bool) {
        let content_bytes = &mut self.content_bytes;
        self.ranges.retain(|range| {
            let stays = stays(range);
            *content_bytes -= if stays { 0 } else { range.heap_bytes() };
            stays
        });
    }

    /// Changes all rows, the static one too.
    fn change_all(&mut self, mut change: impl FnMut(&mut Row)) {
        let before = self.statics.heap_bytes();
        change(&mut self.statics);
        self.content_bytes = self.content_bytes - before + self.statics.heap_bytes();
        self.change_rows((Bound::Unbounded, Bound::Unbounded), change);
    }

    /// Changes the rows within the bounds, and drops those of which nothing is left.
    fn change_rows(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut change: impl FnMut(&mut Row),
    ) {
        let content_bytes = &mut self.content_bytes;
        self.rows.retain(bounds, |key, row| {
            *content_bytes -= row.heap_bytes();
            change(row);
            *content_bytes += row.heap_bytes();
            let stays = *row != Row::default();
            *content_bytes -=
                if stays { 0 } else { allocation_bytes(key.len()) + row.heap_bytes() };
            stays
        });
    }

    /// Forgets expired data, and deletions received before `gc_before`: no later write may be older
    /// than these. Until then an expired cell becomes a deletion of its cell, because a write with
    /// the same timestamp would otherwise reappear.
    pub fn purge(&mut self, now: Seconds, gc_before: Seconds) {
        if self.deletion.at < gc_before {
            self.deletion = Stamp::NONE;
        }
        self.retain_ranges(|range| range.stamp.at >= gc_before);
        self.change_all(|row| row.purge(now, gc_before));
    }

    /// Whether a purge of these times would remove something.
    pub fn has_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
        self.deletion.is_old(gc_before)
            || self.ranges.iter().any(|range| range.stamp.is_old(gc_before))
            || self.statics.has_garbage(now, gc_before)
            || self.rows.iter().any(|(_, row)| row.has_garbage(now, gc_before))
    }

    /// Asks the processor to load the rows, where they are few.
    pub(crate) fn prefetch_rows(&self) {
        self.rows.prefetch();
    }

    /// The static row.
    pub fn statics(&self, now: Seconds) -> RowView<'_> {
        RowView { key: &[], row: &self.statics, now }
    }

    pub fn row(&self, key: &[u8], now: Seconds) -> Option<RowView<'_>> {
        let (key, row) = self.rows.get(key)?;
        Some(RowView { key, row, now }).filter(RowView::exists)
    }

    /// The highest timestamp of all that decides which writes to a row take effect: its cells, live or
    /// deleted, its insertion, and the deletions that cover it. `None`: nothing was ever written there.
    pub fn newest(&self, key: RowKey<'_>) -> Option<Timestamp> {
        let (row, ranges) = match key {
            RowKey::Static => (Some(&self.statics), &[][..]),
            RowKey::Clustering(key) => (self.rows.get(key).map(|(_, row)| row), &self.ranges[..]),
        };
        let covers = |range: &&Range| matches!(key, RowKey::Clustering(key) if range.holds(key));
        let deletions = ranges.iter().filter(covers).map(|range| range.stamp.timestamp);
        let own = row.and_then(Row::newest);
        let newest = deletions.chain(own).chain([self.deletion.timestamp]).max();
        newest.filter(|timestamp| *timestamp != Timestamp::MIN)
    }

    /// The same of all rows. O(cells).
    pub fn newest_of_all(&self) -> Option<Timestamp> {
        let ranges = self.ranges.iter().map(|range| range.stamp.timestamp);
        let rows = self.rows.iter().filter_map(|(_, row)| row.newest());
        let own = self.newest(RowKey::Static);
        ranges.chain(rows).chain(own).max()
    }

    /// Rows that exist, in their order, from either end.
    pub fn rows(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        now: Seconds,
    ) -> impl DoubleEndedIterator<Item = RowView<'_>> {
        self.kept_rows(start, end, now).filter(RowView::exists)
    }

    /// The same, including rows that have expired or are deleted: there may be many of them between
    /// two rows that exist.
    pub fn kept_rows(
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
        let found = is_valid.then(|| self.rows.range(start, end));
        found.into_iter().flatten().map(move |(key, row)| RowView { key, row, now })
    }

    /// All stored data, as writes that produce the same partition.
    fn writes(&self) -> Vec<Write<'_>> {
        let mut writes = Vec::new();
        if self.deletion != Stamp::NONE {
            writes.push(Write::DeletePartition(self.deletion));
        }
        for Range { start, end, stamp } in &self.ranges {
            writes.push(Write::DeleteRange { start, end: end.as_deref(), stamp: *stamp });
        }
        self.statics.writes(RowKey::Static, &mut writes);
        for (key, row) in self.rows.iter() {
            row.writes(RowKey::Clustering(key), &mut writes);
        }
        writes
    }

    /// Appends the partition: the number of writes that produce it, then these writes.
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
