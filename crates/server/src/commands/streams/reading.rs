//! XREAD and XREADGROUP: entries of several streams after given ones.

use base::time::MonoNs;
use smallvec::SmallVec;
use store::types::{Stream, StreamEntry, StreamId};
use store::{Assignment, Deliveries, GroupRead, Key, Kind, StreamChange};
use wire::resp::{Args, OwnedArgs, Protocol, ReplyWriter};

use super::ids::{IdText, parse_id, reply_id};
use super::{READS, WRITES, change, create_consumer, read_after, reply_entry, reply_entry_parts};
use crate::commands::blocking::{Blocking, NEVER, timeout_milliseconds};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{
    CLAIM_COST, CommandContext, DELIVERY_COST, ENTRY_COST, integer, is_option,
};
use crate::commands::fail::{Fail, shown};

pub(crate) const XREAD: Command = Command {
    name: "xread",
    syntax: "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
    summary: "Returns the entries of one or more streams after the given ones.",
    since: "5.0.0",
    complexity: "O(N log M + E) in the streams, their blocks, and the entries returned",
    group: Group::Stream,
    arity: -4,
    flags: READS.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS),
    keys: &[KeySpec::streams(1, KeyAccess::Read)],
    run: xread,
    ..Command::EMPTY
};

pub(crate) const XREADGROUP: Command = Command {
    name: "xreadgroup",
    syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
    summary: "Returns the next entries of one or more streams for a consumer of a group, or its pending entries.",
    arity: -7,
    flags: WRITES.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS),
    events: Events::Chosen,
    keys: &[KeySpec::streams(4, KeyAccess::Read)],
    run: xreadgroup,
    ..XREAD
};

/// A consumer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reader<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    reader: Option<Reader<'a>>,
    /// Maximum number of entries of each stream.
    count: usize,
    /// BLOCK.
    timeout_ms: Option<u64>,
    acknowledges: bool,
    /// CLAIM: entries that have been pending for at least this time are delivered first.
    idle_ms_min: Option<u64>,
    /// Position of the first key.
    first_key: usize,
    /// Number of keys, and of the identifiers after them.
    streams: usize,
}

impl<'a> Request<'a> {
    // Source: Redis 7.2 `t_stream.c`, `xreadCommand`
    fn parse(args: Args<'a>, name: &str, is_grouped: bool) -> Result<Request<'a>, Fail> {
        let mut request = Request {
            reader: None,
            count: usize::MAX,
            timeout_ms: None,
            acknowledges: true,
            idle_ms_min: None,
            first_key: 0,
            streams: 0,
        };
        let mut at = 1;
        while at < args.len() {
            let (option, more) = (args.get(at), args.len() - 1 - at);
            if more > 0 && is_option(option, "BLOCK") {
                at += 1;
                request.timeout_ms = Some(parse_timeout(args.get(at))?);
            } else if more > 0 && is_option(option, "COUNT") {
                at += 1;
                // 0 and less: no limit.
                let count = usize::try_from(integer(args.get(at))?).unwrap_or(0);
                request.count = if count == 0 { usize::MAX } else { count };
            } else if more > 0 && is_option(option, "STREAMS") {
                if !more.is_multiple_of(2) {
                    return Err(unbalanced(name, is_grouped));
                }
                (request.first_key, request.streams) = (at + 1, more / 2);
                break;
            } else if more > 1 && is_option(option, "GROUP") {
                check_grouped("GROUP", is_grouped)?;
                let (group, consumer) = (args.get(at + 1), args.get(at + 2));
                request.reader = Some(Reader { group, consumer });
                at += 2;
            } else if more > 0 && is_option(option, "CLAIM") {
                check_grouped("CLAIM", is_grouped)?;
                at += 1;
                request.idle_ms_min = Some(parse_idle(args.get(at))?);
            } else if is_option(option, "NOACK") {
                check_grouped("NOACK", is_grouped)?;
                request.acknowledges = false;
            } else {
                return Err(Fail::Syntax);
            }
            at += 1;
        }
        if request.streams == 0 {
            return Err(Fail::Syntax);
        }
        if is_grouped && request.reader.is_none() {
            return Err(Fail::text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(request)
    }

    /// The key and the identifier of each stream.
    fn each(&self, args: Args<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (first, streams) = (self.first_key, self.streams);
        (first..first + streams).map(move |at| (args.get(at), args.get(at + streams)))
    }
}

fn unbalanced(name: &str, is_grouped: bool) -> Fail {
    let symbol = if is_grouped { '>' } else { '$' };
    Fail::owned(format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be \
         specified."
    ))
}

fn check_grouped(option: &str, is_grouped: bool) -> Done {
    if is_grouped {
        return Ok(());
    }
    Err(Fail::owned(format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    )))
}

fn parse_timeout(text: &[u8]) -> Result<u64, Fail> {
    let invalid = Fail::text("ERR timeout is not an integer or out of range");
    let timeout_ms = wire::resp::parse_i64_strict(text).ok_or(invalid)?;
    u64::try_from(timeout_ms).map_err(|_| Fail::text("ERR timeout is negative"))
}

// Source: Redis 8.4 documentation, "XREADGROUP"
fn parse_idle(text: &[u8]) -> Result<u64, Fail> {
    let number = wire::resp::parse_i64_strict(text);
    let number = number.ok_or(Fail::text("ERR min-idle-time is not an integer"))?;
    let negative = Fail::text("ERR min-idle-time must be a positive integer");
    u64::try_from(number).map_err(|_| negative)
}

fn xread(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = Request::parse(args, cx.command.name, false)?;
    let mut after: SmallVec<[StreamId; 8]> = SmallVec::new();
    let mut served = 0;
    for (key, text) in request.each(args) {
        let stream = cx.locked.stream(cx.db, cx.key(key))?;
        let id = parse_start(text, stream)?;
        after.push(id);
        served += usize::from(stream.is_some_and(|stream| stream.last_entry_id() > id));
    }
    if served == 0 {
        return wait(cx, args, &request, &after);
    }
    let is_map = cx.reply.protocol == Protocol::Resp3;
    if is_map {
        cx.reply.map(served);
    } else {
        cx.reply.array(served);
    }
    for ((name, _), after) in request.each(args).zip(&after) {
        reply_after(cx, name, *after, request.count)?;
    }
    Ok(())
}

/// Parses the identifier after which a stream is read.
fn parse_start(text: &[u8], stream: Option<&Stream>) -> Result<StreamId, Fail> {
    match text {
        b"$" => Ok(stream.map_or(StreamId::MIN, Stream::last_id)),
        b">" => Err(Fail::text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
             <group> <consumer> option.",
        )),
        text => parse_id(text, 0),
    }
}

/// Replies with the name of a stream and its entries after `after`; with nothing without them.
fn reply_after(
    cx: &mut CommandContext<'_>,
    name: &[u8],
    after: StreamId,
    count_max: usize,
) -> Done {
    let stream = cx.locked.stream(cx.db, cx.key(name))?;
    let Some(stream) = stream.filter(|stream| stream.last_entry_id() > after) else {
        return Ok(());
    };
    if cx.reply.protocol != Protocol::Resp3 {
        cx.reply.array(2);
    }
    cx.reply.bulk(name);
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    let first = after.next().unwrap_or(StreamId::MAX);
    for entry in stream.range(first, StreamId::MAX).take(count_max) {
        cx.spend(ENTRY_COST + entry.len())?;
        reply_entry(&mut cx.reply, entry);
        cx.check_reply()?;
        written += 1;
    }
    cx.reply.end_counted(counted, written, |_| ());
    Ok(())
}

/// Lets a request that found nothing wait for a change of its keys. `after`: the identifiers that
/// were given, for `$`, which refers to the time of the request.
fn wait(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    after: &[StreamId],
) -> Done {
    let Some(timeout_ms) = request.timeout_ms.filter(|_| cx.may_block()) else {
        cx.reply.null_array();
        return Ok(());
    };
    let until = timeout_milliseconds(cx, timeout_ms)?;
    let keys = request.first_key..request.first_key + request.streams;
    let mut again = OwnedArgs::new();
    for (at, arg) in args.iter().enumerate() {
        match at.checked_sub(keys.end).and_then(|at| after.get(at)) {
            Some(id) if arg == b"$" => again.push(IdText::new().format(*id)),
            _ => again.push(arg),
        }
    }
    // A consumer whose group is deleted gets an error.
    let ends_without_key = request.reader.is_some();
    let args = again.as_args();
    let retry_at = request.idle_ms_min.map(|idle_ms_min| retry_at(cx, args, request, idle_ms_min));
    let retry_at = retry_at.unwrap_or(NEVER);
    cx.block(Blocking { args, keys, kind: Kind::Stream, ends_without_key, until, retry_at })
}

/// Shortest time until a request looks for idle entries again.
const RETRY_MS_MIN: u64 = 10;

/// When the next entry that is pending now, or becomes pending from now on, has been pending for
/// long enough.
fn retry_at(
    cx: &CommandContext<'_>,
    args: Args<'_>,
    request: &Request<'_>,
    idle_ms_min: u64,
) -> MonoNs {
    const NS_PER_MS: u64 = 1_000_000;
    let now_ms = cx.unix().0;
    let reader = request.reader.expect("CLAIM requires a group");
    let oldest_ms = |name: &[u8]| {
        let stream = cx.locked.stream(cx.db, cx.key(name)).ok()??;
        let pending = stream.group(reader.group)?.pending_from(StreamId::MIN);
        let present = pending.filter(|entry| stream.contains(entry.id));
        present.map(|entry| entry.delivered_ms).min()
    };
    let oldest_ms = request.each(args).filter_map(|(name, _)| oldest_ms(name)).min();
    let idle_ms = now_ms.saturating_sub(oldest_ms.unwrap_or(now_ms));
    let left_ms = idle_ms_min.saturating_sub(idle_ms).max(RETRY_MS_MIN);
    MonoNs(cx.now.mono.0.saturating_add(left_ms.saturating_mul(NS_PER_MS)))
}

/// Which entries XREADGROUP returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Entries that were not delivered to the group.
    New,
    /// Pending entries of the consumer, after this one.
    Pending(StreamId),
}

fn parse_wanted(text: &[u8]) -> Result<Wanted, Fail> {
    match text {
        b">" => Ok(Wanted::New),
        b"$" => Err(Fail::text(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The $ ID would just return an empty result set.",
        )),
        text => match parse_id(text, 0)? {
            StreamId::MAX => Ok(Wanted::New),
            id => Ok(Wanted::Pending(id)),
        },
    }
}

fn xreadgroup(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = Request::parse(args, cx.command.name, true)?;
    let reader = request.reader.expect("required by the parser");
    let mut wanted: SmallVec<[Wanted; 8]> = SmallVec::new();
    for (key, text) in request.each(args) {
        check_group(cx, cx.key(key), reader.group)?;
        wanted.push(parse_wanted(text)?);
    }
    let is_map = cx.reply.protocol == Protocol::Resp3;
    let mark = cx.reply.mark();
    let counted = cx.reply.begin_counted();
    let mut served = 0;
    for ((name, _), wanted) in request.each(args).zip(&wanted) {
        let key = cx.key(name);
        create_consumer(cx, key, reader.group, reader.consumer)?;
        let idle = match request.idle_ms_min.filter(|_| *wanted == Wanted::New) {
            Some(idle_ms_min) => idle_entries(cx, key, reader, idle_ms_min)?,
            None => Idle::new(),
        };
        if *wanted == Wanted::New && idle.is_empty() && !has_news(cx, key, reader.group)? {
            let seen_ms = cx.unix().0;
            cx.locked.note_seen(cx.db, key, (reader.group, reader.consumer), seen_ms);
            continue;
        }
        served += 1;
        if !is_map {
            cx.reply.array(2);
        }
        cx.reply.bulk(name);
        match wanted {
            Wanted::New => deliver(cx, key, reader, &request, &idle)?,
            Wanted::Pending(after) => deliver_again(cx, key, reader, *after, request.count)?,
        }
    }
    if served == 0 {
        cx.reply.rewind(mark);
        return wait(cx, args, &request, &[]);
    }
    let head = |reply: &mut wire::resp::ReplyWriter<'_>| {
        if is_map { reply.map(served) } else { reply.array(served) }
    };
    cx.reply.end_counted_as(counted, head);
    Ok(())
}

fn check_group(cx: &CommandContext<'_>, key: Key<'_>, group: &[u8]) -> Done {
    let stream = cx.locked.stream(cx.db, key)?;
    if stream.is_some_and(|stream| stream.group(group).is_some()) {
        return Ok(());
    }
    let (key, group) = (shown(key.bytes), shown(group));
    let parts = [b"NOGROUP No such key '", key, b"' or consumer group '", group];
    let text = [&parts.concat(), &b"' in XREADGROUP with GROUP option"[..]].concat();
    Err(Fail::Quoting(text))
}

/// Whether a stream has entries that were not delivered to a group.
fn has_news(cx: &CommandContext<'_>, key: Key<'_>, group: &[u8]) -> Result<bool, Fail> {
    let stream = cx.locked.stream(cx.db, key)?;
    Ok(stream.is_some_and(|stream| {
        let last_id = stream.group(group).map_or(StreamId::MAX, |group| group.last_id);
        stream.last_entry_id() > last_id
    }))
}

/// Entries that are delivered, with their numbers of deliveries.
type Delivered = SmallVec<[(StreamId, u64); 16]>;

/// Pending entries for CLAIM: when they were last delivered, and which they are.
type Idle = Vec<(u64, StreamId)>;

/// Returns the entries that have been pending for long enough, the oldest first. Deleted ones are
/// left out. O(pending entries): they are in the order of their identifiers.
fn idle_entries(
    cx: &CommandContext<'_>,
    key: Key<'_>,
    reader: Reader<'_>,
    idle_ms_min: u64,
) -> Result<Idle, Fail> {
    let now_ms = cx.unix().0;
    let mut idle = Idle::new();
    let stream = cx.locked.stream(cx.db, key)?;
    let found = stream.and_then(|stream| Some((stream, stream.group(reader.group)?)));
    let Some((stream, group)) = found else { return Ok(idle) };
    cx.spend(group.pending_len())?;
    for entry in group.pending_from(StreamId::MIN) {
        let idle_ms = now_ms.saturating_sub(entry.delivered_ms);
        if idle_ms >= idle_ms_min && stream.contains(entry.id) {
            idle.push((entry.delivered_ms, entry.id));
        }
    }
    idle.sort_unstable();
    Ok(idle)
}

/// Writes the numbers that follow a claimed entry: how long it was pending, and how often it had
/// been delivered.
fn reply_claimed(
    reply: &mut ReplyWriter<'_>,
    entry: StreamEntry<'_>,
    (idle_ms, deliveries): (u64, u64),
) {
    reply_entry_parts(reply, entry, 4);
    reply.integer(idle_ms.cast_signed());
    reply.integer(deliveries.cast_signed());
}

/// Replies the next entries of a group, after the entries that it claims, and makes them pending.
fn deliver(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    reader: Reader<'_>,
    request: &Request<'_>,
    idle: &[(u64, StreamId)],
) -> Done {
    let stream = cx.locked.stream(cx.db, key)?;
    let found = stream.and_then(|stream| Some((stream, stream.group(reader.group)?)));
    let (stream, group) = found.expect("checked by the caller");
    let mut read = GroupRead { last_id: group.last_id, entries_read: group.entries_read };
    let first = read.last_id.next().unwrap_or(StreamId::MAX);
    let mut delivered = Delivered::new();
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    let now_ms = cx.unix().0;
    for (delivered_ms, id) in idle.iter().take(request.count) {
        let entry = stream.get(*id).expect("deleted entries are left out");
        let deliveries = group.pending(*id).map_or(0, |pending| pending.deliveries);
        cx.spend(CLAIM_COST + entry.len())?;
        let idle_ms = now_ms.saturating_sub(*delivered_ms);
        reply_claimed(&mut cx.reply, entry, (idle_ms, deliveries));
        cx.check_reply()?;
        written += 1;
        delivered.push((*id, deliveries.wrapping_add(1)));
    }
    let claimed = written;
    for entry in stream.range(first, StreamId::MAX).take(request.count - claimed) {
        cx.spend(DELIVERY_COST + entry.len())?;
        if request.idle_ms_min.is_some() {
            reply_claimed(&mut cx.reply, entry, (0, 0));
        } else {
            reply_entry(&mut cx.reply, entry);
        }
        cx.check_reply()?;
        written += 1;
        read = read_after(stream, read, entry.id);
        if request.acknowledges {
            delivered.push((entry.id, 1));
        }
    }
    cx.reply.end_counted(counted, written, |_| ());
    let read = (written > claimed).then_some(read);
    assign(cx, key, reader, read, &delivered, request.acknowledges || claimed > 0)
}

/// Replies entries that are pending for a consumer, once more.
fn deliver_again(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    reader: Reader<'_>,
    after: StreamId,
    count_max: usize,
) -> Done {
    let stream = cx.locked.stream(cx.db, key)?;
    let found = stream.and_then(|stream| Some((stream, stream.group(reader.group)?)));
    let (stream, group) = found.expect("checked by the caller");
    let mut delivered = Delivered::new();
    let first = after.next().unwrap_or(StreamId::MAX);
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    let consumer = group.consumer(reader.consumer).expect("created by the caller");
    for id in consumer.pending_from(first).take(count_max) {
        cx.spend(DELIVERY_COST)?;
        if let Some(entry) = stream.get(id) {
            cx.spend(entry.len())?;
            reply_entry(&mut cx.reply, entry);
            let deliveries = group.pending(id).map_or(0, |pending| pending.deliveries);
            delivered.push((id, deliveries.wrapping_add(1)));
        } else {
            // The entry was deleted.
            cx.reply.array(2);
            reply_id(&mut cx.reply, id);
            cx.reply.null_array();
        }
        cx.check_reply()?;
        written += 1;
    }
    cx.reply.end_counted(counted, written, |_| ());
    assign(cx, key, reader, None, &delivered, false)
}

fn assign(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    Reader { group, consumer }: Reader<'_>,
    read: Option<GroupRead>,
    delivered: &[(StreamId, u64)],
    is_active: bool,
) -> Done {
    let now_ms = cx.unix().0;
    if read.is_none() && delivered.is_empty() {
        cx.locked.note_seen(cx.db, key, (group, consumer), now_ms);
        return Ok(());
    }
    cx.admit_entries(delivered.len())?;
    let assignment = Assignment {
        group,
        consumer,
        seen_ms: now_ms,
        is_active,
        delivered_ms: now_ms,
        read,
        entries: Deliveries::Slice(delivered),
    };
    change(cx, None, key, &StreamChange::Assign(assignment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn check(line: &str, expected: Option<(usize, Option<u64>, usize, usize)>) {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        let is_grouped = line.starts_with("XREADGROUP");
        let parsed = Request::parse(args.as_args(), "name", is_grouped);
        let found = parsed.ok().map(|it| (it.count, it.timeout_ms, it.first_key, it.streams));
        assert_eq!(found, expected, "{line}");
        let spec = if is_grouped { XREADGROUP.keys } else { XREAD.keys };
        // A command touches only the keys that are locked for it.
        if let Some((_, _, first, streams)) = expected {
            let keys = spec[0].positions(args.as_args()).expect("valid");
            assert!(keys.eq(first..first + streams), "{line}");
        }
    }

    #[test]
    fn requests() {
        let max = usize::MAX;
        check("XREAD STREAMS k 0", Some((max, None, 2, 1)));
        check("XREAD COUNT 5 STREAMS a b 0 1", Some((5, None, 4, 2)));
        check("XREAD COUNT 0 BLOCK 7 streams a $", Some((max, Some(7), 6, 1)));
        check("XREAD COUNT 1 STREAMS STREAMS 0", Some((1, None, 4, 1)));
        check("XREADGROUP GROUP streams streams STREAMS k >", Some((max, None, 5, 1)));
        check("XREADGROUP NOACK GROUP g c COUNT -1 STREAMS k >", Some((max, None, 8, 1)));
        check("XREADGROUP GROUP g c CLAIM 9 BLOCK 1 STREAMS k >", Some((max, Some(1), 9, 1)));
        for line in [
            "XREAD CLAIM 1 STREAMS k 0",
            "XREADGROUP GROUP g c CLAIM -1 STREAMS k >",
            "XREADGROUP GROUP g c CLAIM 1.5 STREAMS k >",
            "XREAD STREAMS k",
            "XREAD STREAMS",
            "XREAD STREAMS a b 0",
            "XREAD COUNT x STREAMS k 0",
            "XREAD BLOCK -1 STREAMS k 0",
            "XREAD BLOCK 1.5 STREAMS k 0",
            "XREAD NOACK STREAMS k 0",
            "XREAD GROUP g c STREAMS k 0",
            "XREADGROUP STREAMS k >",
            "XREADGROUP GROUP g STREAMS k >",
            "XREAD NONSENSE STREAMS k 0",
        ] {
            check(line, None);
        }
    }
}
