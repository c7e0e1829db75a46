//! XREAD and XREADGROUP: entries of several streams after given ones.

use smallvec::SmallVec;
use store::types::{Stream, StreamId};
use store::{Assignment, Deliveries, GroupRead, Key, Kind, StreamChange};
use wire::resp::{Args, OwnedArgs, Protocol};

use super::ids::{IdText, parse_id, reply_id};
use super::{READS, WRITES, change, create_consumer, read_after, reply_entry};
use crate::commands::blocking::{Blocking, timeout_milliseconds};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, DELIVERY_COST, ENTRY_COST, integer, is_option};
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
    syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
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

fn xread(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = Request::parse(args, cx.command.name, false)?;
    let mut after: SmallVec<[StreamId; 8]> = SmallVec::new();
    let mut served = 0;
    for (key, text) in request.each(args) {
        let key = cx.key(key);
        let stream = cx.locked.stream(cx.db, key)?;
        let id = match text {
            b"$" => stream.map_or(StreamId::MIN, Stream::last_id),
            b">" => {
                return Err(Fail::text(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option.",
                ));
            }
            text => parse_id(text, 0)?,
        };
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
        let key = cx.key(name);
        let stream = cx.locked.stream(cx.db, key)?;
        let Some(stream) = stream.filter(|stream| stream.last_entry_id() > *after) else {
            continue;
        };
        if !is_map {
            cx.reply.array(2);
        }
        cx.reply.bulk(name);
        let counted = cx.reply.begin_counted();
        let mut written = 0;
        let first = after.next().unwrap_or(StreamId::MAX);
        for entry in stream.range(first, StreamId::MAX).take(request.count) {
            cx.spend(ENTRY_COST + entry.len())?;
            reply_entry(&mut cx.reply, entry);
            cx.check_reply()?;
            written += 1;
        }
        cx.reply.end_counted(counted, written, |_| ());
    }
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
    cx.block(Blocking { args, keys, kind: Kind::Stream, ends_without_key, until })
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
        if *wanted == Wanted::New && !has_news(cx, key, reader.group)? {
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
            Wanted::New => deliver(cx, key, reader, &request)?,
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

/// Replies the next entries of a group, and makes them pending.
fn deliver(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    reader: Reader<'_>,
    request: &Request<'_>,
) -> Done {
    let stream = cx.locked.stream(cx.db, key)?;
    let found = stream.and_then(|stream| Some((stream, stream.group(reader.group)?)));
    let (stream, group) = found.expect("checked by the caller");
    let mut read = GroupRead { last_id: group.last_id, entries_read: group.entries_read };
    let first = read.last_id.next().unwrap_or(StreamId::MAX);
    let mut delivered = Delivered::new();
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    for entry in stream.range(first, StreamId::MAX).take(request.count) {
        cx.spend(DELIVERY_COST + entry.len())?;
        reply_entry(&mut cx.reply, entry);
        cx.check_reply()?;
        written += 1;
        read = read_after(stream, read, entry.id);
        if request.acknowledges {
            delivered.push((entry.id, 1));
        }
    }
    cx.reply.end_counted(counted, written, |_| ());
    assign(cx, key, reader, Some(read), &delivered, request.acknowledges)
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
        for line in [
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
