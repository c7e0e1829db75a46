//! The only ways in which data changes, and their log encoding.
//!
//! A [`Mutation`] states the new state of a key, never how it was computed: INCR is logged as the
//! new value, a relative expiry as an absolute one, SPOP as the members that it removed. The same
//! mutations in the same order produce the same data, whatever the time is.
//!
//! Bytes of one mutation (integers little-endian, `v` = LEB128 varint): kind u8, database u8, key
//! length v, key, then by kind as in [`Change::encode`], kinds 28 to 37 as in
//! [`crate::StreamChange`]. Of a partition: kind u8, table u128, token
//! i64, key length v, key, then the number of writes v and the writes as in
//! [`crate::Write::encode`], or both times of a purge u32. Of a table: kind u8, table u128. A swap
//! ends with its second database u8. Of a version: kind u8, database u8, key length v, key, time u64,
//! server u16, and, in kind 59, another time and server; of a floor the same without the key. Of an
//! origin: kind u8, server u16, newest timestamp i64. A log record is one or more mutations.

use crate::change::{Change, HASH_FIRST, PUT_EXPIRING};
use crate::items::Writes;
use crate::key::{Key, PartitionKey, TableId};
use crate::stream_change::{STREAM_FIRST, STREAM_LAST};
use crate::types::{Malformed, Seconds, Timestamp};
use crate::varint::{put_bytes, take_bytes, take_u8, take_u32, take_u64};
use crate::versions::{Given, Version};

/// One change to a key, a partition, or a whole database or table.
#[derive(Debug, Clone, Copy)]
pub enum Mutation<'a> {
    Key {
        db: u8,
        key: Key<'a>,
        change: Change<'a>,
    },
    /// Empties one database, or all; tables stay.
    Flush {
        db: Option<u8>,
    },
    /// Exchanges the contents of two databases.
    Swap {
        dbs: [u8; 2],
    },
    Partition {
        key: PartitionKey<'a>,
        writes: Writes<'a>,
    },
    /// As [`crate::Partition::purge`]. Logged, because replay must treat a write that is older than
    /// a forgotten deletion in the same way.
    Purge {
        key: PartitionKey<'a>,
        now: Seconds,
        gc_before: Seconds,
    },
    /// Empties a table.
    Truncate {
        table: TableId,
    },
    /// States the version of the key's present value, or of its deletion; [`Version::NONE`] removes
    /// it.
    Version {
        db: u8,
        key: Key<'a>,
        given: Given,
    },
    /// States that a database was emptied: values of lesser versions are not stored any more.
    /// Stored ones stay, until their own mutations delete them. [`Version::NONE`]: forgets that.
    Floor {
        db: u8,
        version: Version,
    },
    /// Names the server that wrote the rows before it in the same record, and the newest timestamp
    /// that this server had given to rows by then. Changes nothing.
    Origin {
        server: u16,
        newest_timestamp: Timestamp,
    },
}

/// What a mutation reads and changes, and must be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The stripe of a hash.
    One(u64),
    All,
    Nothing,
}

// The numbers are part of the log's format, those of `crate::change` and `crate::stream_change`
// too: never reuse one.
const FLUSH_DB: u8 = 23;
const FLUSH_ALL: u8 = 24;
const PARTITION: u8 = 25;
const PURGE: u8 = 26;
const TRUNCATE: u8 = 27;
const SWAP: u8 = 38;
const VERSION: u8 = 56;
const FLOOR: u8 = 57;
const ORIGIN: u8 = 58;
const VERSION_AFTER: u8 = 59;
const _: () = assert!(PUT_EXPIRING < FLUSH_DB, "the kinds of changes and of mutations differ");
const _: () = assert!(TRUNCATE < STREAM_FIRST, "likewise those of changes of streams");
const _: () = assert!(STREAM_LAST < SWAP, "likewise");
const _: () = assert!(SWAP < HASH_FIRST, "likewise");

fn put_place(out: &mut Vec<u8>, kind: u8, key: PartitionKey<'_>) {
    out.push(kind);
    out.extend_from_slice(&key.table.0.to_le_bytes());
    out.extend_from_slice(&key.token.to_le_bytes());
    put_bytes(out, key.bytes);
}

fn take_table(input: &mut &[u8]) -> Result<TableId, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(TableId(u128::from_le_bytes(*bytes)))
}

fn take_place<'a>(input: &mut &'a [u8]) -> Result<PartitionKey<'a>, Malformed> {
    let table = take_table(input)?;
    let token = take_u64(input)?.cast_signed();
    Ok(PartitionKey { table, token, bytes: take_bytes(input)? })
}

fn take_database(input: &mut &[u8]) -> Result<u8, Malformed> {
    let db = take_u8(input)?;
    if usize::from(db) < crate::DATABASES { Ok(db) } else { Err(Malformed) }
}

fn take_server(input: &mut &[u8]) -> Result<u16, Malformed> {
    let (server, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(u16::from_le_bytes(*server))
}

impl<'a> Mutation<'a> {
    pub fn scope(&self) -> Scope {
        match self {
            Mutation::Key { key, .. } | Mutation::Version { key, .. } => Scope::One(key.hash),
            Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => Scope::One(key.hash()),
            Mutation::Flush { .. }
            | Mutation::Swap { .. }
            | Mutation::Truncate { .. }
            | Mutation::Floor { .. } => Scope::All,
            Mutation::Origin { .. } => Scope::Nothing,
        }
    }

    /// Appends the mutation's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Mutation::Key { db, key, change } => {
                out.push(change.kind());
                out.push(*db);
                put_bytes(out, key.bytes);
                change.encode(out);
            }
            Mutation::Flush { db: Some(db) } => out.extend_from_slice(&[FLUSH_DB, *db]),
            Mutation::Flush { db: None } => out.extend_from_slice(&[FLUSH_ALL, 0]),
            Mutation::Swap { dbs: [first, second] } => {
                out.extend_from_slice(&[SWAP, *first, *second]);
            }
            Mutation::Partition { key, writes } => {
                put_place(out, PARTITION, *key);
                writes.encode(out);
            }
            Mutation::Purge { key, now, gc_before } => {
                put_place(out, PURGE, *key);
                out.extend_from_slice(&now.to_le_bytes());
                out.extend_from_slice(&gc_before.to_le_bytes());
            }
            Mutation::Truncate { table } => {
                out.push(TRUNCATE);
                out.extend_from_slice(&table.0.to_le_bytes());
            }
            Mutation::Version { db, key, given } => {
                let follows_another = given.seen != Version::NONE;
                out.extend_from_slice(&[
                    if follows_another { VERSION_AFTER } else { VERSION },
                    *db,
                ]);
                put_bytes(out, key.bytes);
                out.extend_from_slice(&given.bytes());
            }
            Mutation::Floor { db, version } => {
                out.extend_from_slice(&[FLOOR, *db]);
                out.extend_from_slice(&version.bytes());
            }
            Mutation::Origin { server, newest_timestamp } => {
                out.push(ORIGIN);
                out.extend_from_slice(&server.to_le_bytes());
                out.extend_from_slice(&newest_timestamp.to_le_bytes());
            }
        }
    }

    /// The name of the key in the bytes of a [`Mutation::Key`].
    #[inline]
    pub fn name_of_key(bytes: &[u8]) -> Result<&[u8], Malformed> {
        const KIND_AND_DATABASE: usize = 2;
        take_bytes(&mut bytes.get(KIND_AND_DATABASE..).ok_or(Malformed)?)
    }

    /// Takes one mutation off the front of `input`; `hash_of` is the keyspace's hash.
    pub fn decode(
        input: &mut &'a [u8],
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<Mutation<'a>, Malformed> {
        let kind = take_u8(input)?;
        match kind {
            PARTITION => {
                let key = take_place(input)?;
                return Ok(Mutation::Partition { key, writes: Writes::decode(input)? });
            }
            PURGE => {
                let key = take_place(input)?;
                let (now, gc_before) = (take_u32(input)?, take_u32(input)?);
                return Ok(Mutation::Purge { key, now, gc_before });
            }
            TRUNCATE => return Ok(Mutation::Truncate { table: take_table(input)? }),
            ORIGIN => {
                let server = take_server(input)?;
                let newest_timestamp = take_u64(input)?.cast_signed();
                return Ok(Mutation::Origin { server, newest_timestamp });
            }
            _ => {}
        }
        let db = take_database(input)?;
        match kind {
            SWAP => Ok(Mutation::Swap { dbs: [db, take_database(input)?] }),
            FLUSH_DB => Ok(Mutation::Flush { db: Some(db) }),
            FLUSH_ALL => Ok(Mutation::Flush { db: None }),
            FLOOR => Ok(Mutation::Floor { db, version: Version::decode(input)? }),
            _ => {
                let bytes = take_bytes(input)?;
                let key = Key { bytes, hash: hash_of(bytes) };
                match kind {
                    VERSION => {
                        let given = Given::first(Version::decode(input)?);
                        Ok(Mutation::Version { db, key, given })
                    }
                    VERSION_AFTER => {
                        let (version, seen) = (Version::decode(input)?, Version::decode(input)?);
                        if seen == Version::NONE {
                            return Err(Malformed);
                        }
                        Ok(Mutation::Version { db, key, given: Given { version, seen } })
                    }
                    _ => Ok(Mutation::Key { db, key, change: Change::decode(kind, input)? }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{End, Kind};
    use crate::items::{Items, Points, Scored, Timestamps};
    use crate::types::{CellValue, RowKey, Write};
    use base::time::UnixMs;
    use proptest::prelude::*;

    fn round_trip(change: Change<'_>) {
        let key = Key { bytes: b"key", hash: 3 };
        let mutation = Mutation::Key { db: 15, key, change };
        round_trip_of(mutation);
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        assert_eq!(Mutation::name_of_key(&bytes), Ok(&b"key"[..]));
        assert!(Mutation::name_of_key(&bytes[..5]).is_err());
    }

    fn round_trip_of(mutation: Mutation<'_>) {
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        let mut input = bytes.as_slice();
        let decoded = Mutation::decode(&mut input, |_| 3).expect("valid");
        assert!(input.is_empty());
        let mut again = Vec::new();
        decoded.encode(&mut again);
        assert_eq!(bytes, again, "{mutation:?}");
        for cut in 0..bytes.len() {
            assert!(Mutation::decode(&mut &bytes[..cut], |_| 3).is_err(), "{mutation:?} cut {cut}");
        }
    }

    #[test]
    fn every_change_of_a_partition_keeps_its_meaning_in_bytes() {
        let table = TableId(1 << 100);
        let key = PartitionKey { table, token: -5, bytes: b"key" };
        let stamp = crate::Stamp { timestamp: 7, at: 9 };
        let cell = Write::Cell {
            row: RowKey::Static,
            column: 300,
            item: Some(b"i"),
            timestamp: -1,
            value: CellValue::Deleted { at: 3 },
        };
        let writes = [Write::DeletePartition(stamp), cell];
        round_trip_of(Mutation::Partition { key, writes: Writes::Slice(&writes) });
        round_trip_of(Mutation::Partition { key, writes: Writes::Slice(&[]) });
        round_trip_of(Mutation::Purge { key, now: 5, gc_before: 4 });
        round_trip_of(Mutation::Truncate { table });
        round_trip_of(Mutation::Swap { dbs: [3, 15] });
        assert!(Mutation::decode(&mut &[SWAP, 3, 16][..], |_| 3).is_err());
        let version = Version { time: 1 << 50, server: 7 };
        let seen = Version { time: 1 << 49, server: 9 };
        for given in [Given::first(version), Given { version, seen }] {
            round_trip_of(Mutation::Version { db: 2, key: Key { bytes: b"key", hash: 3 }, given });
        }
        round_trip_of(Mutation::Floor { db: 15, version });
        round_trip_of(Mutation::Origin { server: 300, newest_timestamp: -7 });
        let shown = Mutation::Partition { key, writes: Writes::Slice(&writes) }.to_string();
        let expected = "table=00000010000000000000000000000000 token=-5 key=\"key\"; delete at=7; \
                        static column=300[\"i\"] deleted at=-1";
        assert_eq!(shown, expected);
    }

    #[test]
    fn every_change_keeps_its_meaning_in_bytes() {
        let items: [&[u8]; 2] = [b"a", b""];
        let items = Items::Slice(&items);
        let scored: [(f64, &[u8]); 2] = [(1.5, b"a"), (f64::NEG_INFINITY, b"b")];
        let at = Some(UnixMs(1 << 40));
        for change in [
            Change::Set { value: b"v", expiry: None },
            Change::Set { value: &[9; 300], expiry: at },
            Change::Edit { offset: 300, bytes: b"x" },
            Change::Delete,
            Change::Expire { at: None },
            Change::Expire { at },
            Change::HashSet { pairs: items },
            Change::HashUpdate { pairs: items },
            Change::HashExpire { at, fields: items },
            Change::HashExpire { at: None, fields: items },
            Change::HashRemove { fields: items },
            Change::ListPush { end: End::Front, values: items },
            Change::ListPush { end: End::Back, values: items },
            Change::ListPop { end: End::Front, count: 3 },
            Change::ListPop { end: End::Back, count: 1 << 40 },
            Change::ListSet { index: 1, value: b"v" },
            Change::ListInsert { index: 0, value: b"v" },
            Change::ListRemove { count: -2, value: b"v" },
            Change::ListTrim { start: 1, count: 2 },
            Change::SetAdd { members: items },
            Change::SetRemove { members: items },
            Change::ZSetAdd { members: Scored::Slice(&scored) },
            Change::ZSetRemove { members: items },
            Change::Put { kind: Kind::ZSet, encoded: b"abc", expiry: None },
            Change::Put { kind: Kind::List, encoded: b"", expiry: at },
            Change::SeriesAdd { points: Points::Slice(&[(5, b"v"), (i64::MIN, b"")]), expiry: at },
            Change::SeriesAdd { points: Points::Slice(&[]), expiry: None },
            Change::SeriesRemove { timestamps: Timestamps::Slice(&[i64::MAX, -1]) },
            Change::SeriesPurge { at: UnixMs(1 << 40), first: i64::MIN, last: 7 },
        ] {
            round_trip(change);
        }
    }

    /// The first bytes of a log record of version 1, pinned.
    #[test]
    fn a_set_has_these_bytes() {
        let mut bytes = Vec::new();
        let key = Key { bytes: b"key", hash: 0 };
        let change = Change::Set { value: b"value", expiry: None };
        Mutation::Key { db: 2, key, change }.encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x02\x03key\x05value");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut input = bytes.as_slice();
            while let Ok(mutation) = Mutation::decode(&mut input, |_| 0) {
                if let Mutation::Key { change: Change::HashSet { pairs }, .. } = mutation {
                    prop_assert_eq!(pairs.iter().count(), pairs.len());
                }
            }
        }
    }
}
