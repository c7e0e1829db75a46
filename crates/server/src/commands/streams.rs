//! Stream commands: entries, consumer groups, and what is pending.

mod adding;
mod claiming;
mod consumers;
mod ids;
mod inspection;
mod pending;
mod ranges;
mod reading;
mod references;

use smallvec::SmallVec;
use store::types::{Group as ConsumerGroup, Scalar, Stream, StreamEntry, StreamId};
use store::{Change, GroupRead, Ids, Key, Locked, StreamChange, StreamChangeRef};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, integer, is_option};
use super::fail::{Fail, shown};
use crate::config::KeyEvent;
use ids::{parse_id, reply_id};

pub(crate) use adding::{XADD, XTRIM};
pub(crate) use claiming::{XAUTOCLAIM, XCLAIM};
pub(crate) use consumers::XGROUP;
pub(crate) use inspection::XINFO;
pub(crate) use pending::{XACK, XPENDING};
pub(crate) use ranges::{XRANGE, XREVRANGE};
pub(crate) use reading::{XREAD, XREADGROUP};
pub(crate) use references::{XACKDEL, XDELEX};

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITES: Flags = Flags::WRITE;
const WRITES_FAST: Flags = Flags::WRITE.and(Flags::FAST);

const DELETED: KeyEvent = Group::Stream.event("xdel");
const CONSUMER_CREATED: KeyEvent = Group::Stream.event("xgroup-createconsumer");

/// Identifiers among the arguments.
type IdList = SmallVec<[StreamId; 8]>;

fn id_list(args: Args<'_>) -> Result<IdList, Fail> {
    args.iter().map(|text| parse_id(text, 0)).collect()
}

/// Changes a stream and publishes the event, if there is one.
fn change(
    cx: &mut CommandContext<'_>,
    event: Option<KeyEvent>,
    key: Key<'_>,
    change: &StreamChange<'_>,
) -> Done {
    let change = Change::Stream(StreamChangeRef::Given(change));
    match event {
        Some(event) => cx.change_as(event, key, change),
        None => cx.apply(cx.db, key, change),
    }
}

/// Creates a consumer unless it exists. Returns whether it was created.
fn create_consumer(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    group: &[u8],
    consumer: &[u8],
) -> Result<bool, Fail> {
    let stream = cx.locked.stream(cx.db, key)?;
    let found = stream.and_then(|stream| stream.group(group));
    if found.is_none_or(|found| found.consumer(consumer).is_some()) {
        return Ok(false);
    }
    let created = StreamChange::SetConsumer { group, consumer, seen_ms: cx.unix().0 };
    change(cx, Some(CONSUMER_CREATED), key, &created)?;
    Ok(true)
}

/// The stream and consumer group that a command requires.
fn required_group<'a>(
    locked: &'a Locked<'_>,
    db: u8,
    key: Key<'_>,
    name: &[u8],
) -> Result<(&'a Stream, &'a ConsumerGroup), Fail> {
    let stream = locked.stream(db, key)?;
    let found = stream.and_then(|stream| Some((stream, stream.group(name)?)));
    found.ok_or_else(|| {
        let (key, name) = (shown(key.bytes), shown(name));
        let parts = [b"NOGROUP No such key '", key, b"' or consumer group '", name, b"'"];
        Fail::Quoting(parts.concat())
    })
}

/// The error for a consumer group that is not in an existing stream.
fn no_group(key: Key<'_>, name: &[u8]) -> Fail {
    let (key, name) = (shown(key.bytes), shown(name));
    let parts = [b"NOGROUP No such consumer group '", name, b"' for key name '", key, b"'"];
    Fail::Quoting(parts.concat())
}

/// Writes an entry: its identifier, then names and values.
fn reply_entry(reply: &mut ReplyWriter<'_>, entry: StreamEntry<'_>) {
    reply_entry_parts(reply, entry, 2);
}

/// Writes an entry as the first two of several parts.
fn reply_entry_parts(reply: &mut ReplyWriter<'_>, entry: StreamEntry<'_>, parts: usize) {
    reply.array(parts);
    reply_id(reply, entry.id);
    reply.array(2 * entry.len());
    for (name, value) in entry.fields() {
        reply_member(reply, name);
        reply_member(reply, value);
    }
}

fn reply_member(reply: &mut ReplyWriter<'_>, member: Scalar<'_>) {
    match member {
        Scalar::Bytes(bytes) => reply.bulk(bytes),
        Scalar::Int(number) => reply.bulk_integer(number),
    }
}

/// Writes an optional number.
fn reply_option(reply: &mut ReplyWriter<'_>, number: Option<u64>) {
    match number {
        Some(number) => reply.integer(number.cast_signed()),
        None => reply.null(),
    }
}

/// Whether an entry was deleted at or after an identifier, so that positions cannot be counted.
// Source: Redis 7.2 `t_stream.c`, `streamRangeHasTombstones`
fn has_tombstones(stream: &Stream, from: StreamId) -> bool {
    let deleted = stream.max_deleted_id();
    !stream.is_empty()
        && deleted != StreamId::MIN
        && deleted >= stream.first_entry_id()
        && from <= deleted
}

/// Number of entries ever added up to an identifier, if that can be known.
// Source: Redis 7.2 `t_stream.c`, `streamEstimateDistanceFromFirstEverEntry`
fn entries_up_to(stream: &Stream, id: StreamId) -> Option<u64> {
    let added = stream.entries_added();
    if added == 0 {
        return Some(0);
    }
    if (stream.is_empty() && id <= stream.last_id()) || id == stream.last_id() {
        return Some(added);
    }
    if id > stream.last_id() {
        return None;
    }
    let first = stream.first_entry_id();
    let deleted = stream.max_deleted_id();
    // XSETID sets the number of added entries, also below what groups have read, and RESTORE below
    // the number of entries.
    let before_first = added.checked_sub(stream.len() as u64)?;
    if deleted != StreamId::MIN && deleted >= first {
        return None;
    }
    match id.cmp(&first) {
        std::cmp::Ordering::Less => Some(before_first),
        std::cmp::Ordering::Equal => Some(before_first + 1),
        std::cmp::Ordering::Greater => None,
    }
}

/// What a group has read after one more entry was delivered to it.
// Source: Redis 7.2 `t_stream.c`, `streamReplyWithRange`
fn read_after(stream: &Stream, read: GroupRead, id: StreamId) -> GroupRead {
    if id <= read.last_id {
        return read;
    }
    let entries_read = match read.entries_read {
        Some(entries) if !has_tombstones(stream, id) => {
            entries.checked_add(1).filter(|entries| i64::try_from(*entries).is_ok())
        }
        before if stream.entries_added() == 0 => before,
        _ => entries_up_to(stream, id),
    };
    GroupRead { last_id: id, entries_read }
}

/// Entries that a group has not read, if that can be known.
// Source: Redis 7.2 `t_stream.c`, `streamReplyWithCGLag`
fn lag(stream: &Stream, group: &ConsumerGroup) -> Option<u64> {
    let added = stream.entries_added();
    if added == 0 {
        return Some(0);
    }
    let read = match group.entries_read {
        Some(read) if !has_tombstones(stream, group.last_id) => read,
        _ => entries_up_to(stream, group.last_id)?,
    };
    added.checked_sub(read)
}

pub(crate) const XLEN: Command = Command {
    name: "xlen",
    syntax: "key",
    summary: "Returns the number of entries of a stream.",
    since: "5.0.0",
    group: Group::Stream,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: xlen,
    ..Command::EMPTY
};

fn xlen(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let len = cx.locked.stream(cx.db, cx.key(args.get(1)))?.map_or(0, Stream::len);
    cx.reply.count(len);
    Ok(())
}

pub(crate) const XDEL: Command = Command {
    name: "xdel",
    syntax: "key id [id ...]",
    summary: "Deletes entries of a stream; returns how many existed.",
    since: "5.0.0",
    complexity: "O(N) in the entries given and those of their blocks",
    group: Group::Stream,
    arity: -3,
    flags: WRITES_FAST,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: xdel,
    ..Command::EMPTY
};

fn xdel(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(stream) = cx.locked.stream(cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let (len, mut ids) = (stream.len(), id_list(args.skip(2))?);
    ids.retain(|id| stream.contains(*id));
    if !ids.is_empty() {
        change(cx, Some(DELETED), key, &StreamChange::Delete { ids: Ids::Slice(&ids) })?;
    }
    let left = cx.locked.stream(cx.db, key)?.map_or(0, Stream::len);
    cx.reply.count(len - left);
    Ok(())
}

pub(crate) const XSETID: Command = Command {
    name: "xsetid",
    syntax: "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
    summary: "Sets the last identifier of a stream; for replication and migration.",
    since: "5.0.0",
    group: Group::Stream,
    arity: -3,
    flags: WRITES.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Each(Group::Stream.event("xsetid")),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: xsetid,
    ..Command::EMPTY
};

fn xsetid(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let last_id = parse_id(args.get(2), 0)?;
    let (entries_added, max_deleted_id) = parse_xsetid(args.skip(3), last_id)?;
    let key = cx.key(args.get(1));
    let stream = cx.locked.stream(cx.db, key)?.ok_or(Fail::NoSuchKey)?;
    check_ids(stream, last_id, entries_added)?;
    let max_deleted_id = max_deleted_id.filter(|id| *id != StreamId::MIN);
    let ids = StreamChange::SetIds { last_id, entries_added, max_deleted_id };
    cx.change(key, Change::Stream(StreamChangeRef::Given(&ids)))?;
    cx.reply.ok();
    Ok(())
}

/// The values of ENTRIESADDED and MAXDELETEDID.
fn parse_xsetid(
    options: Args<'_>,
    last_id: StreamId,
) -> Result<(Option<u64>, Option<StreamId>), Fail> {
    let (mut entries_added, mut max_deleted_id) = (None, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(Fail::Syntax)?;
        if is_option(option, "ENTRIESADDED") {
            let number = u64::try_from(integer(value)?);
            let negative = Fail::text("ERR entries_added must be positive");
            entries_added = Some(number.map_err(|_| negative)?);
        } else if is_option(option, "MAXDELETEDID") {
            let id = parse_id(value, 0)?;
            if last_id < id {
                let text = "ERR The ID specified in XSETID is smaller than the provided \
                            max_deleted_entry_id";
                return Err(Fail::text(text));
            }
            max_deleted_id = Some(id);
        } else {
            return Err(Fail::Syntax);
        }
    }
    Ok((entries_added, max_deleted_id))
}

// Source: Redis 7.2 `t_stream.c`, `xsetidCommand`
fn check_ids(stream: &Stream, last_id: StreamId, entries_added: Option<u64>) -> Done {
    if last_id < stream.max_deleted_id() {
        return Err(Fail::text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if stream.is_empty() {
        return Ok(());
    }
    if last_id < stream.last_entry_id() {
        return Err(Fail::text(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if entries_added.is_some_and(|added| added < stream.len() as u64) {
        return Err(Fail::text(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    Ok(())
}
