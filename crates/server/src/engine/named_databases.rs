//! Names of databases (CREATEDB), each of which stands for one of the numbered databases.
//!
//! They are [`stored_rows`]: the row's key is the name, and its cell the number. Nothing keeps a
//! copy: SELECT of a name reads the row.

use store::{Locked, Mutation, PartitionKey, StoreError, TableId, Timestamp, Writes};

use super::stored_rows;

/// The place of all names. The identifier is part of the log's format; no table of CQL has it,
/// since its version is not that of generated ones.
pub(crate) const STORED: PartitionKey<'static> = PartitionKey {
    table: TableId(0x6d79_7269_6164_8f00_8000_6461_7461_6261),
    token: 0,
    bytes: b"databases",
};

/// Hash of the place of all names, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// All names with the numbers of their databases, in the order of the names.
pub(crate) fn names(locked: &Locked<'_>) -> Vec<(Vec<u8>, u8)> {
    let rows = stored_rows::rows(locked, STORED).into_iter();
    rows.filter_map(|(name, number)| Some((name, *number.first()?))).collect()
}

/// The number of the database with a name.
pub(crate) fn find(locked: &Locked<'_>, name: &[u8]) -> Option<u8> {
    names(locked).into_iter().find(|(known, _)| known == name).map(|(_, db)| db)
}

/// Gives a database a name: passes the mutation to `apply`.
pub(crate) fn add(
    timestamp: Timestamp,
    name: &[u8],
    db: u8,
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let number = [db];
    let writes = [stored_rows::put(name, &number, timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })
}

/// Removes a name: passes the mutations to `apply`.
pub(crate) fn remove(
    timestamp: Timestamp,
    name: &[u8],
    mut apply: impl FnMut(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let writes = [stored_rows::delete(name, timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })?;
    apply(&stored_rows::purge(STORED))
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
            let timestamp = stored_rows::next_timestamp(&lock(), STORED);
            add(timestamp, name, db, apply).unwrap();
        }
        assert_eq!(find(&lock(), b"orders"), Some(15));
        assert_eq!(find(&lock(), b"order"), None);
        let timestamp = stored_rows::next_timestamp(&lock(), STORED);
        remove(timestamp, b"orders", apply).unwrap();
        assert_eq!(names(&lock()), [(b"a b\0".to_vec(), 13), (b"events".to_vec(), 14)]);
        let timestamp = stored_rows::next_timestamp(&lock(), STORED);
        add(timestamp, b"orders", 12, apply).unwrap();
        assert_eq!(find(&lock(), b"orders"), Some(12));
    }
}
