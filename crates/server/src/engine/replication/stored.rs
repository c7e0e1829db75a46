//! The history of a server in its own data: a row of a partition that no table of CQL has, as the
//! libraries of functions. So a change is a mutation in the log, and snapshots contain it. It
//! describes this server alone: a replica ignores the row of its source.

use std::ops::Bound;

use store::{
    CellValue, Locked, Mutation, Partition, PartitionKey, RowKey, Seconds, StoreError, Write,
    Writes,
};

use super::history::History;
use crate::engine::local_tables::HISTORY;

/// The place of the row.
pub(crate) const STORED: PartitionKey<'static> =
    PartitionKey { table: HISTORY, token: 0, bytes: b"replication" };

const ROW: &[u8] = b"history";
const BYTES_COLUMN: u32 = 0;
/// Cells of this row never expire.
const NOW: Seconds = 0;

/// Hash of the place of the row, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// The stored history. `None`: there is none. An error: it is malformed.
pub(crate) fn stored(locked: &Locked<'_>) -> Result<Option<History>, &'static str> {
    let Some(partition) = locked.partition(STORED) else { return Ok(None) };
    let row = partition.rows(Bound::Unbounded, Bound::Unbounded, NOW).next();
    let Some(cell) = row.as_ref().and_then(|row| row.column(BYTES_COLUMN).next()) else {
        return Ok(None);
    };
    History::decode(cell.bytes).map(Some).ok_or("the history of replication is malformed")
}

/// Stores the history: passes the mutation to `apply`.
pub(crate) fn put(
    locked: &Locked<'_>,
    history: &History,
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let newest = locked.partition(STORED).and_then(Partition::newest_of_all).unwrap_or(0);
    let bytes = history.encode();
    let cell = Write::Cell {
        row: RowKey::Clustering(ROW),
        column: BYTES_COLUMN,
        item: None,
        timestamp: newest + 1,
        value: CellValue::Live { bytes: &bytes, expiry: None },
    };
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&[cell]) })
}
