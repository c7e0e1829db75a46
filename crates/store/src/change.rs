//! A change to one key, and its log encoding.

use base::time::UnixMs;

use crate::items::{Items, Points, Scored, Timestamps};
use crate::stream_change::{STREAM_FIRST, STREAM_LAST, StreamChangeRef};
use crate::types::Malformed;
use crate::varint::{put_bytes, put_u64, put_varint, take_bytes, take_u8, take_u64, take_varint};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

/// The type of the collection in a [`Change::Put`]; the numbers are part of the log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hash = 1,
    List = 2,
    Set = 3,
    ZSet = 4,
    Stream = 5,
    Series = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Kind, Malformed> {
        Ok(match byte {
            1 => Kind::Hash,
            2 => Kind::List,
            3 => Kind::Set,
            4 => Kind::ZSet,
            5 => Kind::Stream,
            7 => Kind::Series,
            _ => return Err(Malformed),
        })
    }
}

/// A change to a key. A collection other than a stream that becomes empty is deleted with its key.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Sets the key to this string with this expiry, whatever it was.
    Set {
        value: &'a [u8],
        expiry: Option<UnixMs>,
    },
    /// Overwrites bytes of a string from `offset` on; a gap is filled with zeros. APPEND and
    /// SETRANGE.
    Edit {
        offset: u64,
        bytes: &'a [u8],
    },
    Delete,
    /// `None`: the key never expires.
    Expire {
        at: Option<UnixMs>,
    },
    /// Field, value, field, value ... The fields do not expire then.
    HashSet {
        pairs: Items<'a>,
    },
    /// Likewise, but fields that expire keep their times.
    HashUpdate {
        pairs: Items<'a>,
    },
    /// Sets when the fields that exist expire; `None`: never.
    HashExpire {
        at: Option<UnixMs>,
        fields: Items<'a>,
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
    /// Inserts the value so that it gets this index.
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
    /// Sets the values at these timestamps, and their expiry.
    SeriesAdd {
        points: Points<'a>,
        expiry: Option<UnixMs>,
    },
    SeriesRemove {
        timestamps: Timestamps<'a>,
    },
    /// Removes the points from `first` to `last` that expire at `at` or earlier.
    SeriesPurge {
        at: UnixMs,
        first: i64,
        last: i64,
    },
    /// See [`crate::StreamChange`]. An empty stream keeps its key.
    Stream(StreamChangeRef<'a>),
    /// Sets the key to this collection, whatever it was: COPY, RENAME, the STORE forms, snapshots.
    Put {
        kind: Kind,
        encoded: &'a [u8],
        expiry: Option<UnixMs>,
    },
}

// The numbers are part of the log's format, those of `crate::mutation` and
// `crate::stream_change` too: never reuse one.
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
pub(crate) const PUT_EXPIRING: u8 = 22;
pub(crate) const HASH_FIRST: u8 = 39;
const HASH_UPDATE: u8 = HASH_FIRST;
const HASH_EXPIRE: u8 = 40;
const HASH_PERSIST: u8 = 41;
const SERIES_ADD: u8 = 48;
const SERIES_REMOVE: u8 = 49;
const SERIES_PURGE: u8 = 50;

impl<'a> Change<'a> {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Change::Set { expiry: None, .. } => SET,
            Change::Set { expiry: Some(_), .. } => SET_EXPIRING,
            Change::Edit { .. } => EDIT,
            Change::Delete => DELETE,
            Change::Expire { at: None } => PERSIST,
            Change::Expire { at: Some(_) } => EXPIRE,
            Change::HashSet { .. } => HASH_SET,
            Change::HashUpdate { .. } => HASH_UPDATE,
            Change::HashExpire { at: Some(_), .. } => HASH_EXPIRE,
            Change::HashExpire { at: None, .. } => HASH_PERSIST,
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
            Change::SeriesAdd { .. } => SERIES_ADD,
            Change::SeriesRemove { .. } => SERIES_REMOVE,
            Change::SeriesPurge { .. } => SERIES_PURGE,
            Change::Stream(change) => change.kind(),
            Change::Put { expiry: None, .. } => PUT,
            Change::Put { expiry: Some(_), .. } => PUT_EXPIRING,
        }
    }

    /// Whether clients that watch the key or wait for it observe the change.
    pub(crate) fn concerns_watchers(&self) -> bool {
        match self {
            Change::Stream(change) => change.get().concerns_watchers(),
            _ => true,
        }
    }

    /// The part after the key: expiry u64 where there is one, counts and indexes v, byte strings as
    /// length v and bytes, scores f64, timestamps i64. Of points: expiry v, 0 for none, count v,
    /// and timestamp and value of each; a purge is its time u64, and both timestamps.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
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
            Change::HashExpire { at: Some(at), fields } => {
                put_u64(out, at.0);
                fields.encode(out);
            }
            Change::HashSet { pairs: items }
            | Change::HashUpdate { pairs: items }
            | Change::HashExpire { at: None, fields: items }
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
            Change::SeriesAdd { points, expiry } => {
                put_varint(out, expiry.map_or(0, |at| at.0));
                points.encode(out);
            }
            Change::SeriesRemove { timestamps } => timestamps.encode(out),
            Change::SeriesPurge { at, first, last } => {
                put_u64(out, at.0);
                put_u64(out, first.cast_unsigned());
                put_u64(out, last.cast_unsigned());
            }
            Change::Stream(change) => change.encode(out),
            Change::Put { kind, encoded, expiry } => {
                if let Some(at) = expiry {
                    put_u64(out, at.0);
                }
                out.push(kind as u8);
                put_bytes(out, encoded);
            }
        }
    }

    pub(crate) fn decode(kind: u8, input: &mut &'a [u8]) -> Result<Change<'a>, Malformed> {
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
            HASH_SET => Change::HashSet { pairs: take_pairs(input)? },
            HASH_UPDATE => Change::HashUpdate { pairs: take_pairs(input)? },
            HASH_EXPIRE => {
                let at = Some(UnixMs(take_u64(input)?));
                Change::HashExpire { at, fields: Items::decode(input)? }
            }
            HASH_PERSIST => Change::HashExpire { at: None, fields: Items::decode(input)? },
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
            SERIES_ADD => Change::SeriesAdd {
                expiry: Some(take_varint(input)?).filter(|at| *at > 0).map(UnixMs),
                points: Points::decode(input)?,
            },
            SERIES_REMOVE => Change::SeriesRemove { timestamps: Timestamps::decode(input)? },
            SERIES_PURGE => Change::SeriesPurge {
                at: UnixMs(take_u64(input)?),
                first: take_u64(input)?.cast_signed(),
                last: take_u64(input)?.cast_signed(),
            },
            STREAM_FIRST..=STREAM_LAST => Change::Stream(StreamChangeRef::decode(kind, input)?),
            PUT | PUT_EXPIRING => Change::Put {
                kind: Kind::from_byte(take_u8(input)?)?,
                encoded: take_bytes(input)?,
                expiry,
            },
            _ => return Err(Malformed),
        })
    }
}

fn take_pairs<'a>(input: &mut &'a [u8]) -> Result<Items<'a>, Malformed> {
    let pairs = Items::decode(input)?;
    if pairs.len().is_multiple_of(2) { Ok(pairs) } else { Err(Malformed) }
}
