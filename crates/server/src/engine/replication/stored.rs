//! What replication stores in the data of a server: rows of a partition that no table of CQL has, as
//! the libraries of functions. So a change is a mutation in the log, and snapshots contain it. The
//! rows describe this server alone: a replica ignores those of its source.

use store::{Locked, Mutation, PartitionKey, StoreError, Writes};

use super::history::History;
use crate::engine::local_tables::HISTORY;
use crate::engine::stored_rows;

/// The place of the row.
pub(crate) const STORED: PartitionKey<'static> =
    PartitionKey { table: HISTORY, token: 0, bytes: b"replication" };

/// What a row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredRow {
    History,
    /// FAILOVER of a master has promoted this server. The contents are the option `replicaof` until
    /// then: a start with the same option is that of a configuration that FAILOVER made outdated.
    TakenOver,
}

impl StoredRow {
    fn name(self) -> &'static [u8] {
        match self {
            StoredRow::History => b"history",
            StoredRow::TakenOver => b"taken-over",
        }
    }
}

/// Hash of the place of the row, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// The contents of a row. `None`: there is none.
pub(crate) fn stored(locked: &Locked<'_>, row: StoredRow) -> Option<Vec<u8>> {
    let rows = stored_rows::rows(locked, STORED).into_iter();
    rows.filter(|(name, _)| name == row.name()).map(|(_, bytes)| bytes).next()
}

/// The stored history. `None`: there is none. An error: it is malformed.
pub(crate) fn stored_history(locked: &Locked<'_>) -> Result<Option<History>, &'static str> {
    let Some(bytes) = stored(locked, StoredRow::History) else { return Ok(None) };
    History::decode(&bytes).map(Some).ok_or("the history of replication is malformed")
}

/// Stores a row: passes the mutation to `apply`.
pub(crate) fn put(
    locked: &Locked<'_>,
    row: StoredRow,
    bytes: &[u8],
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let timestamp = stored_rows::next_timestamp(locked, STORED);
    let writes = [stored_rows::put(row.name(), bytes, timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })
}

/// Removes a row: passes the mutations to `apply`.
pub(crate) fn remove(
    locked: &Locked<'_>,
    row: StoredRow,
    mut apply: impl FnMut(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let timestamp = stored_rows::next_timestamp(locked, STORED);
    let writes = [stored_rows::delete(row.name(), timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })?;
    apply(&stored_rows::purge(STORED))
}
