//! Rows of partitions that no table of CQL has: each has a key and one cell. So a change is a
//! mutation in the log like any other, and snapshots contain the rows.

use std::ops::Bound;

use store::{
    CellValue, Locked, Mutation, Partition, PartitionKey, RowKey, Seconds, Stamp, Timestamp, Write,
};

const COLUMN: u32 = 0;

/// Deletions are dropped at once, because all timestamps are taken under the lock: one of this time
/// is older than [`DROPPED_BEFORE`]. The cells never expire.
const NOW: Seconds = 0;
const DROPPED_BEFORE: Seconds = 1;

/// Keys and cells of all rows, in the order of the keys.
pub(crate) fn rows(locked: &Locked<'_>, key: PartitionKey<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Some(partition) = locked.partition(key) else { return Vec::new() };
    let rows = partition.rows(Bound::Unbounded, Bound::Unbounded, NOW);
    let cells = rows.filter_map(|row| {
        let cell = row.column(COLUMN).next()?;
        Some((row.key.to_vec(), cell.bytes.to_vec()))
    });
    cells.collect()
}

/// The timestamp of the next change.
pub(crate) fn next_timestamp(locked: &Locked<'_>, key: PartitionKey<'_>) -> Timestamp {
    locked.partition(key).and_then(Partition::newest_of_all).unwrap_or(0) + 1
}

pub(crate) fn put<'a>(row: &'a [u8], bytes: &'a [u8], timestamp: Timestamp) -> Write<'a> {
    let value = CellValue::Live { bytes, expiry: None };
    Write::Cell { row: RowKey::Clustering(row), column: COLUMN, item: None, timestamp, value }
}

/// To be followed by [`purge`].
pub(crate) fn delete(row: &[u8], timestamp: Timestamp) -> Write<'_> {
    Write::DeleteRow { row, stamp: Stamp { timestamp, at: NOW } }
}

pub(crate) fn purge(key: PartitionKey<'_>) -> Mutation<'_> {
    Mutation::Purge { key, now: NOW, gc_before: DROPPED_BEFORE }
}
