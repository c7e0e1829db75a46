//! A change to a stream, and its log encoding.
//!
//! Times and identifiers are absolute: the command that makes a change has chosen them.

use crate::error::StoreError;
use crate::items::{Deliveries, Ids, Items};
use crate::types::{Compact, Malformed, OutOfOrder, Stream, StreamId};
use crate::varint::{put_bytes, put_varint, take_bytes, take_u8, take_varint};

/// See [`crate::Change::Stream`]. Changes of a group that does not exist change nothing.
#[derive(Debug, Clone, Copy)]
pub enum StreamChange<'a> {
    /// Appends an entry with a greater identifier than all before; creates the stream.
    Add {
        id: StreamId,
        /// Name, value, name, value ...
        fields: Items<'a>,
    },
    /// Removes the first entries.
    Trim {
        count: u64,
    },
    Delete {
        ids: Ids<'a>,
    },
    /// As XSETID; `None` leaves a number as it is.
    SetIds {
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    },
    /// Creates a consumer group, or sets what an existing one has read; creates the stream.
    SetGroup {
        group: &'a [u8],
        read: GroupRead,
    },
    DeleteGroup {
        group: &'a [u8],
    },
    /// Creates a consumer, or sets the time at which it was last seen.
    SetConsumer {
        group: &'a [u8],
        consumer: &'a [u8],
        seen_ms: u64,
    },
    DeleteConsumer {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    /// Makes entries pending for a consumer, and for no other: XREADGROUP, XCLAIM, XAUTOCLAIM.
    Assign(Assignment<'a>),
    /// Removes pending entries: XACK, and claims of deleted entries.
    Acknowledge {
        group: &'a [u8],
        ids: Ids<'a>,
    },
}

/// What a consumer group has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRead {
    pub last_id: StreamId,
    /// `None`: unknown.
    pub entries_read: Option<u64>,
}

/// See [`StreamChange::Assign`].
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    pub group: &'a [u8],
    pub consumer: &'a [u8],
    /// When the consumer read or claimed, in milliseconds since the Unix epoch.
    pub seen_ms: u64,
    /// Whether it was successful.
    pub is_active: bool,
    /// When the entries count as delivered.
    pub delivered_ms: u64,
    /// What the group has read then; `None`: as before.
    pub read: Option<GroupRead>,
    pub entries: Deliveries<'a>,
}

/// A [`StreamChange`] from the caller, or as encoded in a log record: a pointer, so that a
/// [`crate::Change`] stays small.
#[derive(Debug, Clone, Copy)]
pub enum StreamChangeRef<'a> {
    Given(&'a StreamChange<'a>),
    /// Checked by [`crate::Mutation::decode`].
    Packed {
        kind: u8,
        bytes: &'a [u8],
    },
}

// The numbers are part of the log's format; see `crate::change`.
pub(crate) const STREAM_FIRST: u8 = 28;
const ADD: u8 = STREAM_FIRST;
const TRIM: u8 = 29;
const DELETE: u8 = 30;
const SET_IDS: u8 = 31;
const SET_GROUP: u8 = 32;
const DELETE_GROUP: u8 = 33;
const SET_CONSUMER: u8 = 34;
const DELETE_CONSUMER: u8 = 35;
const ASSIGN: u8 = 36;
const ACKNOWLEDGE: u8 = 37;
pub(crate) const STREAM_LAST: u8 = ACKNOWLEDGE;

impl<'a> StreamChangeRef<'a> {
    pub fn get(self) -> StreamChange<'a> {
        match self {
            StreamChangeRef::Given(change) => *change,
            StreamChangeRef::Packed { kind, mut bytes } => {
                StreamChange::decode(kind, &mut bytes).expect("checked by decode")
            }
        }
    }

    pub(crate) fn kind(self) -> u8 {
        match self {
            StreamChangeRef::Given(change) => change.kind(),
            StreamChangeRef::Packed { kind, .. } => kind,
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            StreamChangeRef::Given(change) => change.encode(out),
            StreamChangeRef::Packed { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    pub(crate) fn decode(kind: u8, input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let start = *input;
        StreamChange::decode(kind, input)?;
        Ok(StreamChangeRef::Packed { kind, bytes: &start[..start.len() - input.len()] })
    }
}

/// Appends a number + 1, or 0.
fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    put_varint(out, number.map_or(0, |number| number.saturating_add(1)));
}

fn take_option(input: &mut &[u8]) -> Result<Option<u64>, Malformed> {
    Ok(take_varint(input)?.checked_sub(1))
}

impl GroupRead {
    fn encode(self, out: &mut Vec<u8>) {
        self.last_id.encode(out);
        put_option(out, self.entries_read);
    }

    fn decode(input: &mut &[u8]) -> Result<GroupRead, Malformed> {
        Ok(GroupRead { last_id: StreamId::decode(input)?, entries_read: take_option(input)? })
    }
}

impl<'a> Assignment<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.group);
        put_bytes(out, self.consumer);
        put_varint(out, self.seen_ms);
        put_varint(out, self.delivered_ms);
        out.push(u8::from(self.read.is_some()) | u8::from(self.is_active) << 1);
        if let Some(read) = self.read {
            read.encode(out);
        }
        self.entries.encode(out);
    }

    fn decode(input: &mut &'a [u8]) -> Result<Assignment<'a>, Malformed> {
        let (group, consumer) = (take_bytes(input)?, take_bytes(input)?);
        let (seen_ms, delivered_ms) = (take_varint(input)?, take_varint(input)?);
        let flags = take_u8(input)?;
        if flags > 3 {
            return Err(Malformed);
        }
        let is_active = flags & 2 != 0;
        let read = if flags & 1 != 0 { Some(GroupRead::decode(input)?) } else { None };
        let entries = Deliveries::decode(input)?;
        Ok(Assignment { group, consumer, seen_ms, is_active, delivered_ms, read, entries })
    }
}

impl<'a> StreamChange<'a> {
    fn kind(&self) -> u8 {
        match self {
            StreamChange::Add { .. } => ADD,
            StreamChange::Trim { .. } => TRIM,
            StreamChange::Delete { .. } => DELETE,
            StreamChange::SetIds { .. } => SET_IDS,
            StreamChange::SetGroup { .. } => SET_GROUP,
            StreamChange::DeleteGroup { .. } => DELETE_GROUP,
            StreamChange::SetConsumer { .. } => SET_CONSUMER,
            StreamChange::DeleteConsumer { .. } => DELETE_CONSUMER,
            StreamChange::Assign(_) => ASSIGN,
            StreamChange::Acknowledge { .. } => ACKNOWLEDGE,
        }
    }

    /// The part after the key: byte strings as length v and bytes, identifiers as milliseconds v
    /// and number v, numbers and times v, optional numbers + 1 v or 0, an optional identifier after
    /// a byte 1, or a byte 0. An assignment has a byte of flags before what the group has read: 1,
    /// that this follows; 2, that the consumer was active.
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            StreamChange::Add { id, fields } => {
                id.encode(out);
                fields.encode(out);
            }
            StreamChange::Trim { count } => put_varint(out, count),
            StreamChange::Delete { ids } => ids.encode(out),
            StreamChange::SetIds { last_id, entries_added, max_deleted_id } => {
                last_id.encode(out);
                put_option(out, entries_added);
                out.push(u8::from(max_deleted_id.is_some()));
                if let Some(id) = max_deleted_id {
                    id.encode(out);
                }
            }
            StreamChange::SetGroup { group, read } => {
                put_bytes(out, group);
                read.encode(out);
            }
            StreamChange::DeleteGroup { group } => put_bytes(out, group),
            StreamChange::SetConsumer { group, consumer, seen_ms } => {
                put_bytes(out, group);
                put_bytes(out, consumer);
                put_varint(out, seen_ms);
            }
            StreamChange::DeleteConsumer { group, consumer } => {
                put_bytes(out, group);
                put_bytes(out, consumer);
            }
            StreamChange::Assign(assignment) => assignment.encode(out),
            StreamChange::Acknowledge { group, ids } => {
                put_bytes(out, group);
                ids.encode(out);
            }
        }
    }

    fn decode(kind: u8, input: &mut &'a [u8]) -> Result<StreamChange<'a>, Malformed> {
        Ok(match kind {
            ADD => {
                let (id, fields) = (StreamId::decode(input)?, Items::decode(input)?);
                if fields.is_empty() || fields.len() % 2 != 0 {
                    return Err(Malformed);
                }
                StreamChange::Add { id, fields }
            }
            TRIM => StreamChange::Trim { count: take_varint(input)? },
            DELETE => StreamChange::Delete { ids: Ids::decode(input)? },
            SET_IDS => StreamChange::SetIds {
                last_id: StreamId::decode(input)?,
                entries_added: take_option(input)?,
                max_deleted_id: match take_u8(input)? {
                    0 => None,
                    1 => Some(StreamId::decode(input)?),
                    _ => return Err(Malformed),
                },
            },
            SET_GROUP => StreamChange::SetGroup {
                group: take_bytes(input)?,
                read: GroupRead::decode(input)?,
            },
            DELETE_GROUP => StreamChange::DeleteGroup { group: take_bytes(input)? },
            SET_CONSUMER => StreamChange::SetConsumer {
                group: take_bytes(input)?,
                consumer: take_bytes(input)?,
                seen_ms: take_varint(input)?,
            },
            DELETE_CONSUMER => StreamChange::DeleteConsumer {
                group: take_bytes(input)?,
                consumer: take_bytes(input)?,
            },
            ASSIGN => StreamChange::Assign(Assignment::decode(input)?),
            ACKNOWLEDGE => {
                StreamChange::Acknowledge { group: take_bytes(input)?, ids: Ids::decode(input)? }
            }
            _ => return Err(Malformed),
        })
    }

    /// Whether clients that watch the key or wait for it observe the change: those of consumers and
    /// pending entries would wake every client that waits for an entry, once per delivery.
    // Source: Redis 7.2 `t_stream.c`: only the commands of entries call `signalModifiedKey`, and
    // XGROUP DESTROY wakes blocked consumers
    pub(crate) fn concerns_watchers(&self) -> bool {
        match self {
            StreamChange::Add { .. }
            | StreamChange::Trim { .. }
            | StreamChange::Delete { .. }
            | StreamChange::SetGroup { .. }
            | StreamChange::DeleteGroup { .. } => true,
            StreamChange::SetIds { .. }
            | StreamChange::SetConsumer { .. }
            | StreamChange::DeleteConsumer { .. }
            | StreamChange::Assign(_)
            | StreamChange::Acknowledge { .. } => false,
        }
    }

    /// Whether the change creates a stream that does not exist.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, StreamChange::Add { .. } | StreamChange::SetGroup { .. })
    }

    /// Makes the change. On an error nothing has changed.
    pub(crate) fn apply(&self, stream: &mut Stream, compact: &Compact) -> Result<(), StoreError> {
        let malformed = |OutOfOrder| StoreError::Malformed;
        match *self {
            StreamChange::Add { id, fields } => {
                return stream.add(id, fields.iter(), compact).map_err(malformed);
            }
            StreamChange::Trim { count } => stream.remove_front(count),
            StreamChange::Delete { ids } => ids.iter().for_each(|id| {
                stream.remove(id);
            }),
            StreamChange::SetIds { last_id, entries_added, max_deleted_id } => {
                let set = stream.set_ids(last_id, entries_added, max_deleted_id);
                return set.map_err(malformed);
            }
            StreamChange::SetGroup { group, read } => {
                stream.set_group(group, read.last_id, read.entries_read);
            }
            StreamChange::DeleteGroup { group } => stream.remove_group(group),
            StreamChange::SetConsumer { group, consumer, seen_ms } => {
                stream.set_consumer(group, consumer, seen_ms, None);
            }
            StreamChange::DeleteConsumer { group, consumer } => {
                stream.remove_consumer(group, consumer);
            }
            StreamChange::Assign(assigned) => assign(stream, &assigned),
            StreamChange::Acknowledge { group, ids } => stream.acknowledge(group, ids.iter()),
        }
        Ok(())
    }
}

fn assign(stream: &mut Stream, assigned: &Assignment<'_>) {
    let Assignment { group, consumer, seen_ms, is_active, delivered_ms, read, entries } = *assigned;
    if stream.group(group).is_none() {
        return;
    }
    if let Some(GroupRead { last_id, entries_read }) = read {
        stream.set_group(group, last_id, entries_read);
    }
    let active_ms = is_active.then_some(seen_ms);
    stream.set_consumer(group, consumer, seen_ms, active_ms);
    stream.assign(group, consumer, delivered_ms, entries.iter());
}
