//! The history of a server in its own data: a row of a partition that no table of CQL has, as the
//! libraries of functions. So a change is a mutation in the log, and snapshots contain it. It
//! describes this server alone: a replica ignores the row of its source.

use store::{Locked, Mutation, PartitionKey, StoreError, Writes};

use super::history::History;
use crate::engine::local_tables::HISTORY;
use crate::engine::stored_rows;

/// The place of the row.
pub(crate) const STORED: PartitionKey<'static> =
    PartitionKey { table: HISTORY, token: 0, bytes: b"replication" };

const ROW: &[u8] = b"history";

/// Hash of the place of the row, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// The stored history. `None`: there is none. An error: it is malformed.
pub(crate) fn stored(locked: &Locked<'_>) -> Result<Option<History>, &'static str> {
    let Some((_, bytes)) = stored_rows::rows(locked, STORED).into_iter().next() else {
        return Ok(None);
    };
    History::decode(&bytes).map(Some).ok_or("the history of replication is malformed")
}

/// Stores the history: passes the mutation to `apply`.
pub(crate) fn put(
    locked: &Locked<'_>,
    history: &History,
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let timestamp = stored_rows::next_timestamp(locked, STORED);
    let bytes = history.encode();
    let writes = [stored_rows::put(ROW, &bytes, timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })
}
