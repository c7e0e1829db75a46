//! The only ways in which data changes, and their bytes in the log.
//!
//! A [`Mutation`] says what became of one key, never how it was computed: INCR is logged as the new
//! value, a relative expiry as an absolute one, SPOP as the members that left. Applying the same
//! mutations in the same order gives the same data, whatever the time is.
//!
//! Bytes of one mutation (integers little-endian, `v` = LEB128 varint): kind u8, database u8, key
//! length v, key, then by kind as in [`Change::encode`]. Of a partition: kind u8, table u128, token
//! i64, key length v, key, then the number of writes v and the writes as in [`Write::encode`], or both
//! times of a purge u32. Of a table: kind u8, table u128. A log record is one or more mutations.

use base::time::UnixMs;

use crate::partitions::{PartitionKey, TableId};
use crate::types::{CellValue, Malformed, RowKey, Seconds, Write};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// A key with its hash, computed once per request.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

/// A list of byte strings: as the caller has it, or as it lies in a log record.
#[derive(Debug, Clone, Copy)]
pub enum Items<'a> {
    Slice(&'a [&'a [u8]]),
    /// `count` times: length v, bytes. Checked by [`Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Items<'a> {
    pub fn len(&self) -> usize {
        match self {
            Items::Slice(items) => items.len(),
            Items::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let (slice, mut packed) = match self {
            Items::Slice(items) => (items, &[][..]),
            Items::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| take_bytes(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|item| put_bytes(out, item));
    }

    fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_bytes(input)?;
        }
        Ok(Items::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Members with scores, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Scored<'a> {
    Slice(&'a [(f64, &'a [u8])]),
    /// `count` times: score f64, length v, bytes. Checked by [`Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

fn take_scored<'a>(input: &mut &'a [u8]) -> Result<(f64, &'a [u8]), Malformed> {
    let (score, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
    *input = rest;
    let score = f64::from_le_bytes(*score);
    if score.is_nan() {
        return Err(Malformed);
    }
    Ok((score, take_bytes(input)?))
}

impl<'a> Scored<'a> {
    pub fn len(&self) -> usize {
        match self {
            Scored::Slice(items) => items.len(),
            Scored::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = (f64, &'a [u8])> {
        let (slice, mut packed) = match self {
            Scored::Slice(items) => (items, &[][..]),
            Scored::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| take_scored(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (score, member) in self.iter() {
            out.extend_from_slice(&score.to_le_bytes());
            put_bytes(out, member);
        }
    }

    fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_scored(input)?;
        }
        Ok(Scored::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Writes of one partition, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Writes<'a> {
    Slice(&'a [Write<'a>]),
    /// `count` writes. Checked by [`Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Writes<'a> {
    pub fn len(&self) -> usize {
        match self {
            Writes::Slice(writes) => writes.len(),
            Writes::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Write<'a>> {
        let (slice, mut packed) = match self {
            Writes::Slice(writes) => (writes, &[][..]),
            Writes::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| Write::decode(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        match self {
            Writes::Slice(writes) => writes.iter().for_each(|write| write.encode(out)),
            Writes::Packed { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            Write::decode(input)?;
        }
        Ok(Writes::Packed { count, bytes: &start[..start.len() - input.len()] })
    }

    /// What [`crate::Partition::encode`] has made.
    pub(crate) fn of_partition(mut encoded: &'a [u8]) -> Writes<'a> {
        Writes::decode(&mut encoded).expect("encoded by the partition itself")
    }
}

/// What kind of collection a [`Change::Put`] carries; the numbers are part of the log's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hash = 1,
    List = 2,
    Set = 3,
    ZSet = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Kind, Malformed> {
        Ok(match byte {
            1 => Kind::Hash,
            2 => Kind::List,
            3 => Kind::Set,
            4 => Kind::ZSet,
            _ => return Err(Malformed),
        })
    }
}

/// What becomes of a key. A collection that ends up empty is deleted with its key.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// The key becomes this string with this expiry, whatever it was.
    Set {
        value: &'a [u8],
        expiry: Option<UnixMs>,
    },
    /// A string's bytes from `offset` on; a gap is filled with zeros. APPEND and SETRANGE.
    Edit {
        offset: u64,
        bytes: &'a [u8],
    },
    Delete,
    /// `None` makes the key stay for ever.
    Expire {
        at: Option<UnixMs>,
    },
    /// Field, value, field, value ...
    HashSet {
        pairs: Items<'a>,
    },
    HashRemove {
        fields: Items<'a>,
    },
    ListPush {
        end: End,
        values: Items<'a>,
    },
    ListPop {
        end: End,
        count: u64,
    },
    ListSet {
        index: u64,
        value: &'a [u8],
    },
    /// The value gets this index.
    ListInsert {
        index: u64,
        value: &'a [u8],
    },
    /// As LREM: `count` > 0 from the front, < 0 from the back, 0 all.
    ListRemove {
        count: i64,
        value: &'a [u8],
    },
    /// Keeps `count` elements from `start`.
    ListTrim {
        start: u64,
        count: u64,
    },
    SetAdd {
        members: Items<'a>,
    },
    SetRemove {
        members: Items<'a>,
    },
    ZSetAdd {
        members: Scored<'a>,
    },
    ZSetRemove {
        members: Items<'a>,
    },
    /// The key becomes this collection, whatever it was: COPY, RENAME, the STORE forms, snapshots.
    Put {
        kind: Kind,
        encoded: &'a [u8],
        expiry: Option<UnixMs>,
    },
}

/// One change of one key, one partition, or of all in a database or table.
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
    Partition {
        key: PartitionKey<'a>,
        writes: Writes<'a>,
    },
    /// As [`crate::Partition::purge`]. In the log, as a write that is older than a forgotten deletion
    /// must fare the same when it is replayed.
    Purge {
        key: PartitionKey<'a>,
        now: Seconds,
        gc_before: Seconds,
    },
    /// Empties a table.
    Truncate {
        table: TableId,
    },
}

// The numbers below are part of the log's format: never reuse one.
const SET: u8 = 1;
const SET_EXPIRING: u8 = 2;
const EDIT: u8 = 3;
const DELETE: u8 = 4;
const PERSIST: u8 = 5;
const EXPIRE: u8 = 6;
const HASH_SET: u8 = 7;
const HASH_REMOVE: u8 = 8;
const LIST_PUSH_FRONT: u8 = 9;
const LIST_PUSH_BACK: u8 = 10;
const LIST_POP_FRONT: u8 = 11;
const LIST_POP_BACK: u8 = 12;
const LIST_SET: u8 = 13;
const LIST_INSERT: u8 = 14;
const LIST_REMOVE: u8 = 15;
const LIST_TRIM: u8 = 16;
const SET_ADD: u8 = 17;
const SET_REMOVE: u8 = 18;
const ZSET_ADD: u8 = 19;
const ZSET_REMOVE: u8 = 20;
const PUT: u8 = 21;
const PUT_EXPIRING: u8 = 22;
const FLUSH_DB: u8 = 23;
const FLUSH_ALL: u8 = 24;
const PARTITION: u8 = 25;
const PURGE: u8 = 26;
const TRUNCATE: u8 = 27;

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn take_u64(input: &mut &[u8]) -> Result<u64, Malformed> {
    let (bytes, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
    *input = rest;
    Ok(u64::from_le_bytes(*bytes))
}

fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(u32::from_le_bytes(*bytes))
}

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

fn take_u8(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (byte, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    Ok(*byte)
}

impl<'a> Change<'a> {
    fn kind(&self) -> u8 {
        match self {
            Change::Set { expiry: None, .. } => SET,
            Change::Set { expiry: Some(_), .. } => SET_EXPIRING,
            Change::Edit { .. } => EDIT,
            Change::Delete => DELETE,
            Change::Expire { at: None } => PERSIST,
            Change::Expire { at: Some(_) } => EXPIRE,
            Change::HashSet { .. } => HASH_SET,
            Change::HashRemove { .. } => HASH_REMOVE,
            Change::ListPush { end: End::Front, .. } => LIST_PUSH_FRONT,
            Change::ListPush { end: End::Back, .. } => LIST_PUSH_BACK,
            Change::ListPop { end: End::Front, .. } => LIST_POP_FRONT,
            Change::ListPop { end: End::Back, .. } => LIST_POP_BACK,
            Change::ListSet { .. } => LIST_SET,
            Change::ListInsert { .. } => LIST_INSERT,
            Change::ListRemove { .. } => LIST_REMOVE,
            Change::ListTrim { .. } => LIST_TRIM,
            Change::SetAdd { .. } => SET_ADD,
            Change::SetRemove { .. } => SET_REMOVE,
            Change::ZSetAdd { .. } => ZSET_ADD,
            Change::ZSetRemove { .. } => ZSET_REMOVE,
            Change::Put { expiry: None, .. } => PUT,
            Change::Put { expiry: Some(_), .. } => PUT_EXPIRING,
        }
    }

    /// The part after the key: expiry u64 where there is one, counts and indexes v, byte strings as
    /// length v and bytes, scores f64.
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Set { value, expiry } => {
                if let Some(at) = expiry {
                    put_u64(out, at.0);
                }
                put_bytes(out, value);
            }
            Change::Edit { offset, bytes } => {
                put_varint(out, offset);
                put_bytes(out, bytes);
            }
            Change::Delete | Change::Expire { at: None } => {}
            Change::Expire { at: Some(at) } => put_u64(out, at.0),
            Change::HashSet { pairs: items }
            | Change::HashRemove { fields: items }
            | Change::ListPush { values: items, .. }
            | Change::SetAdd { members: items }
            | Change::SetRemove { members: items }
            | Change::ZSetRemove { members: items } => items.encode(out),
            Change::ZSetAdd { members } => members.encode(out),
            Change::ListPop { count, .. } => put_varint(out, count),
            Change::ListSet { index, value } | Change::ListInsert { index, value } => {
                put_varint(out, index);
                put_bytes(out, value);
            }
            Change::ListRemove { count, value } => {
                put_u64(out, count.cast_unsigned());
                put_bytes(out, value);
            }
            Change::ListTrim { start, count } => {
                put_varint(out, start);
                put_varint(out, count);
            }
            Change::Put { kind, encoded, expiry } => {
                if let Some(at) = expiry {
                    put_u64(out, at.0);
                }
                out.push(kind as u8);
                put_bytes(out, encoded);
            }
        }
    }

    fn decode(kind: u8, input: &mut &'a [u8]) -> Result<Change<'a>, Malformed> {
        let expiry = match kind {
            SET_EXPIRING | PUT_EXPIRING => Some(UnixMs(take_u64(input)?)),
            _ => None,
        };
        Ok(match kind {
            SET | SET_EXPIRING => Change::Set { value: take_bytes(input)?, expiry },
            EDIT => Change::Edit { offset: take_varint(input)?, bytes: take_bytes(input)? },
            DELETE => Change::Delete,
            PERSIST => Change::Expire { at: None },
            EXPIRE => Change::Expire { at: Some(UnixMs(take_u64(input)?)) },
            HASH_SET => {
                let pairs = Items::decode(input)?;
                if pairs.len() % 2 != 0 {
                    return Err(Malformed);
                }
                Change::HashSet { pairs }
            }
            HASH_REMOVE => Change::HashRemove { fields: Items::decode(input)? },
            LIST_PUSH_FRONT => Change::ListPush { end: End::Front, values: Items::decode(input)? },
            LIST_PUSH_BACK => Change::ListPush { end: End::Back, values: Items::decode(input)? },
            LIST_POP_FRONT => Change::ListPop { end: End::Front, count: take_varint(input)? },
            LIST_POP_BACK => Change::ListPop { end: End::Back, count: take_varint(input)? },
            LIST_SET => Change::ListSet { index: take_varint(input)?, value: take_bytes(input)? },
            LIST_INSERT => {
                Change::ListInsert { index: take_varint(input)?, value: take_bytes(input)? }
            }
            LIST_REMOVE => Change::ListRemove {
                count: take_u64(input)?.cast_signed(),
                value: take_bytes(input)?,
            },
            LIST_TRIM => {
                Change::ListTrim { start: take_varint(input)?, count: take_varint(input)? }
            }
            SET_ADD => Change::SetAdd { members: Items::decode(input)? },
            SET_REMOVE => Change::SetRemove { members: Items::decode(input)? },
            ZSET_ADD => Change::ZSetAdd { members: Scored::decode(input)? },
            ZSET_REMOVE => Change::ZSetRemove { members: Items::decode(input)? },
            PUT | PUT_EXPIRING => Change::Put {
                kind: Kind::from_byte(take_u8(input)?)?,
                encoded: take_bytes(input)?,
                expiry,
            },
            _ => return Err(Malformed),
        })
    }
}

impl<'a> Mutation<'a> {
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
        }
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
            _ => {}
        }
        let db = take_u8(input)?;
        if usize::from(db) >= crate::DATABASES {
            return Err(Malformed);
        }
        match kind {
            FLUSH_DB => Ok(Mutation::Flush { db: Some(db) }),
            FLUSH_ALL => Ok(Mutation::Flush { db: None }),
            _ => {
                let bytes = take_bytes(input)?;
                let key = Key { bytes, hash: hash_of(bytes) };
                Ok(Mutation::Key { db, key, change: Change::decode(kind, input)? })
            }
        }
    }
}

/// For people who look into the log: database, key and change, values cut short.
impl std::fmt::Display for Mutation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mutation::Flush { db: None } => f.write_str("flush all"),
            Mutation::Flush { db: Some(db) } => write!(f, "flush db={db}"),
            Mutation::Key { db, key, change } => {
                write!(f, "db={db} key={} {change}", Shown(key.bytes))
            }
            Mutation::Partition { key, writes } => {
                write!(f, "{}", ShownPlace(*key))?;
                writes.iter().try_for_each(|write| write!(f, "; {}", ShownWrite(write)))
            }
            Mutation::Purge { key, now, gc_before } => {
                write!(f, "{} purge now={now} gc-before={gc_before}", ShownPlace(*key))
            }
            Mutation::Truncate { table } => write!(f, "table={:032x} truncate", table.0),
        }
    }
}

/// Bytes as a quoted, escaped string of bounded length.
struct Shown<'a>(&'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN_BYTES_MAX: usize = 64;
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if self.0.len() > shown.len() { write!(f, "...({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

struct ShownPlace<'a>(PartitionKey<'a>);

impl std::fmt::Display for ShownPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PartitionKey { table, token, bytes } = self.0;
        write!(f, "table={:032x} token={token} key={}", table.0, Shown(bytes))
    }
}

struct ShownWrite<'a>(Write<'a>);

impl std::fmt::Display for ShownWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = |row: RowKey<'_>| match row {
            RowKey::Static => "static".to_owned(),
            RowKey::Clustering(row) => format!("row={}", Shown(row)),
        };
        match self.0 {
            Write::DeletePartition(stamp) => write!(f, "delete at={}", stamp.timestamp),
            Write::DeleteRange { start, end, stamp } => {
                write!(f, "delete from={}", Shown(start))?;
                end.map_or(Ok(()), |end| write!(f, " below={}", Shown(end)))?;
                write!(f, " at={}", stamp.timestamp)
            }
            Write::DeleteRow { row, stamp } => {
                write!(f, "delete row={} at={}", Shown(row), stamp.timestamp)
            }
            Write::InsertRow { row, timestamp, .. } => {
                write!(f, "insert row={} at={timestamp}", Shown(row))
            }
            Write::DeleteItems { row: key, column, stamp } => {
                write!(f, "delete {} column={column} at={}", row(key), stamp.timestamp)
            }
            Write::Cell { row: key, column, item, timestamp, value } => {
                write!(f, "{} column={column}", row(key))?;
                item.map_or(Ok(()), |item| write!(f, "[{}]", Shown(item)))?;
                match value {
                    CellValue::Live { bytes, .. } => write!(f, "={}", Shown(bytes))?,
                    CellValue::Deleted { .. } => f.write_str(" deleted")?,
                }
                write!(f, " at={timestamp}")
            }
        }
    }
}

impl std::fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items = |f: &mut std::fmt::Formatter<'_>, name: &str, items: Items<'_>| {
            write!(f, "{name}")?;
            items.iter().try_for_each(|item| write!(f, " {}", Shown(item)))
        };
        match *self {
            Change::Set { value, expiry } => {
                write!(f, "set {}", Shown(value))?;
                expiry.map_or(Ok(()), |at| write!(f, " expiry={}", at.0))
            }
            Change::Edit { offset, bytes } => write!(f, "edit at={offset} {}", Shown(bytes)),
            Change::Delete => f.write_str("delete"),
            Change::Expire { at: None } => f.write_str("persist"),
            Change::Expire { at: Some(at) } => write!(f, "expire at={}", at.0),
            Change::HashSet { pairs } => items(f, "hash-set", pairs),
            Change::HashRemove { fields } => items(f, "hash-remove", fields),
            Change::ListPush { end, values } => items(f, &format!("list-push {end:?}"), values),
            Change::ListPop { end, count } => write!(f, "list-pop {end:?} count={count}"),
            Change::ListSet { index, value } => write!(f, "list-set {index} {}", Shown(value)),
            Change::ListInsert { index, value } => {
                write!(f, "list-insert {index} {}", Shown(value))
            }
            Change::ListRemove { count, value } => {
                write!(f, "list-remove count={count} {}", Shown(value))
            }
            Change::ListTrim { start, count } => write!(f, "list-trim from={start} count={count}"),
            Change::SetAdd { members } => items(f, "set-add", members),
            Change::SetRemove { members } => items(f, "set-remove", members),
            Change::ZSetAdd { members } => {
                f.write_str("zset-add")?;
                members.iter().try_for_each(|(score, m)| write!(f, " {score} {}", Shown(m)))
            }
            Change::ZSetRemove { members } => items(f, "zset-remove", members),
            Change::Put { kind, encoded, expiry } => {
                write!(f, "put {kind:?} bytes={}", encoded.len())?;
                expiry.map_or(Ok(()), |at| write!(f, " expiry={}", at.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(change: Change<'_>) {
        let key = Key { bytes: b"key", hash: 3 };
        round_trip_of(Mutation::Key { db: 15, key, change });
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
