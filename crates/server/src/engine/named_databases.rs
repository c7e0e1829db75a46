//! Names of databases (CREATEDB), each of which stands for one of the numbered databases.
//!
//! They are rows of a partition that no table of CQL has, as the libraries of functions: the row's
//! key is the name, and its only cell the number. So a change is a mutation in the log like any
//! other, and snapshots contain the names. Nothing keeps a copy: SELECT of a name reads the row.

use std::ops::Bound;

use store::{
    CellValue, Locked, Mutation, Partition, PartitionKey, RowKey, Seconds, Stamp, StoreError,
    TableId, Write, Writes,
};

/// The place of all names. The identifier is part of the log's format; no table of CQL has it,
/// since its version is not that of generated ones.
const STORED: PartitionKey<'static> = PartitionKey {
    table: TableId(0x6d79_7269_6164_8f00_8000_6461_7461_6261),
    token: 0,
    bytes: b"databases",
};

/// The cell of a database's number.
const NUMBER_COLUMN: u32 = 0;

/// Deletions are dropped at once, because all timestamps are taken under the lock: one of this time
/// is older than [`DROPPED_BEFORE`].
const DELETED_AT: Seconds = 0;
const DROPPED_BEFORE: Seconds = 1;

/// Hash of the place of all names, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// All names with the numbers of their databases, in the order of the names.
pub(crate) fn names(locked: &Locked<'_>) -> Vec<(Vec<u8>, u8)> {
    let Some(partition) = locked.partition(STORED) else { return Vec::new() };
    let rows = partition.rows(Bound::Unbounded, Bound::Unbounded, DELETED_AT);
    let named = rows.filter_map(|row| {
        let cell = row.column(NUMBER_COLUMN).next()?;
        Some((row.key.to_vec(), *cell.bytes.first()?))
    });
    named.collect()
}

/// The number of the database with a name.
pub(crate) fn find(locked: &Locked<'_>, name: &[u8]) -> Option<u8> {
    names(locked).into_iter().find(|(known, _)| known == name).map(|(_, db)| db)
}

/// Gives a database a name: passes the mutation to `apply`.
pub(crate) fn add(
    newest: i64,
    name: &[u8],
    db: u8,
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let number = Write::Cell {
        row: RowKey::Clustering(name),
        column: NUMBER_COLUMN,
        item: None,
        timestamp: newest + 1,
        value: CellValue::Live { bytes: &[db], expiry: None },
    };
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&[number]) })
}

/// Removes a name: passes the mutations to `apply`.
pub(crate) fn remove(
    newest: i64,
    name: &[u8],
    mut apply: impl FnMut(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let stamp = Stamp { timestamp: newest + 1, at: DELETED_AT };
    let deletion = Write::DeleteRow { row: name, stamp };
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&[deletion]) })?;
    apply(&Mutation::Purge { key: STORED, now: DELETED_AT, gc_before: DROPPED_BEFORE })
}

/// The newest timestamp of the names.
pub(crate) fn newest(locked: &Locked<'_>) -> i64 {
    locked.partition(STORED).and_then(Partition::newest_of_all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use store::types::Compact;
    use store::{AccessClock, AccessRule, Keyspace, Params};

    use super::*;

    #[test]
    fn names_are_added_found_and_removed() {
        let keyspace = Keyspace::new(1);
        let access = AccessClock::new(AccessRule::Lru, UnixMs(0), 1);
        let params = Params::new(UnixMs(0), access, Compact::default());
        let lock = || keyspace.lock_one(stored_hash(), &params);
        let apply = |mutation: &Mutation<'_>| keyspace.replay(mutation, &params, |_| false);
        let named: [(&[u8], u8); 3] = [(b"orders", 15), (b"events", 14), (b"a b\0", 13)];
        for (name, db) in named {
            let last = newest(&lock());
            add(last, name, db, apply).unwrap();
        }
        assert_eq!(find(&lock(), b"orders"), Some(15));
        assert_eq!(find(&lock(), b"order"), None);
        let last = newest(&lock());
        remove(last, b"orders", apply).unwrap();
        assert_eq!(names(&lock()), [(b"a b\0".to_vec(), 13), (b"events".to_vec(), 14)]);
        let last = newest(&lock());
        add(last, b"orders", 12, apply).unwrap();
        assert_eq!(find(&lock(), b"orders"), Some(12));
    }
}
