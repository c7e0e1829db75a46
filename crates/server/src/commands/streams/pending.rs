//! XACK and XPENDING: entries that were delivered and not acknowledged.

use store::types::{Consumer, Group as ConsumerGroup, Pending, StreamId};
use store::{Ids, StreamChange};
use wire::resp::{Args, ReplyWriter};

use super::ids::{parse_range_end, parse_range_start, reply_id};
use super::{READS, WRITES_FAST, change, id_list, required_group};
use crate::commands::command::{Command, Done, Events, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::commands::strings::count;

pub(crate) const XACK: Command = Command {
    name: "xack",
    syntax: "key group id [id ...]",
    summary: "Acknowledges entries, which are then no longer pending; returns how many were.",
    since: "5.0.0",
    complexity: "O(N log M) in the entries given and the pending ones",
    group: Group::Stream,
    arity: -4,
    flags: WRITES_FAST,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: xack,
    ..Command::EMPTY
};

fn xack(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, name) = (cx.key(args.get(1)), args.get(2));
    let stream = cx.locked.stream(cx.db, key)?;
    let Some(group) = stream.and_then(|stream| stream.group(name)) else {
        cx.reply.integer(0);
        return Ok(());
    };
    let (before, mut ids) = (group.pending_len(), id_list(args.skip(3))?);
    ids.retain(|id| group.pending(*id).is_some());
    if !ids.is_empty() {
        let acknowledged = StreamChange::Acknowledge { group: name, ids: Ids::Slice(&ids) };
        change(cx, None, key, &acknowledged)?;
    }
    let stream = cx.locked.stream(cx.db, key)?;
    let after = stream.and_then(|stream| stream.group(name)).map_or(0, ConsumerGroup::pending_len);
    cx.reply.count(before - after);
    Ok(())
}

pub(crate) const XPENDING: Command = Command {
    name: "xpending",
    syntax: "key group [[IDLE min-idle-time] start end count [consumer]]",
    summary: "Returns the number of pending entries of a consumer group with their range and consumers, or the pending entries in a range.",
    since: "5.0.0",
    complexity: "O(N) in the consumers, or in the pending entries from start on that are read",
    group: Group::Stream,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: xpending,
    ..Command::EMPTY
};

/// The long form of XPENDING.
struct Detail<'a> {
    idle_ms_min: i64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Detail<'a> {
    // Source: Redis 7.2 `t_stream.c`, `xpendingCommand`
    fn parse(args: Args<'a>) -> Result<Option<Detail<'a>>, Fail> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(Fail::Syntax);
        }
        let (mut idle_ms_min, mut at) = (0, 3);
        if is_option(args.get(3), "IDLE") {
            idle_ms_min = integer(args.get(4))?;
            if args.len() < 8 {
                return Err(Fail::Syntax);
            }
            at = 5;
        }
        let count = usize::try_from(integer(args.get(at + 2))?).unwrap_or(0);
        let (first, last) = (parse_range_start(args.get(at))?, parse_range_end(args.get(at + 1))?);
        let consumer = args.try_get(at + 3);
        Ok(Some(Detail { idle_ms_min, first, last, count, consumer }))
    }
}

fn xpending(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let detail = Detail::parse(args)?;
    let key = cx.key(args.get(1));
    match detail {
        None => summary(cx, key, args.get(2)),
        Some(detail) => list(cx, key, args.get(2), &detail),
    }
}

fn summary(cx: &mut CommandContext<'_>, key: store::Key<'_>, name: &[u8]) -> Done {
    let group = required_group(&cx.locked, cx.db, key, name)?.1;
    cx.reply.array(4);
    cx.reply.count(group.pending_len());
    let (Some(first), Some(last)) = (group.first_pending(), group.last_pending()) else {
        cx.reply.null();
        cx.reply.null();
        cx.reply.null_array();
        return Ok(());
    };
    reply_id(&mut cx.reply, first.id);
    reply_id(&mut cx.reply, last.id);
    cx.spend(group.consumers_len())?;
    let has_pending = |consumer: &&Consumer| consumer.pending_len() > 0;
    cx.reply.array(group.consumers().filter(has_pending).count());
    for consumer in group.consumers().filter(has_pending) {
        cx.reply.array(2);
        cx.reply.bulk(consumer.name());
        cx.reply.bulk_integer(count(consumer.pending_len()));
        cx.check_reply()?;
    }
    Ok(())
}

fn list(
    cx: &mut CommandContext<'_>,
    key: store::Key<'_>,
    name: &[u8],
    detail: &Detail<'_>,
) -> Done {
    let now_ms = cx.unix().0;
    let group = required_group(&cx.locked, cx.db, key, name)?.1;
    let (mut of_group, mut of_consumer);
    let entries: &mut dyn Iterator<Item = &Pending> = match detail.consumer {
        None => {
            of_group = group.pending_from(detail.first);
            &mut of_group
        }
        Some(consumer) => {
            let Some(consumer) = group.consumer(consumer) else {
                cx.reply.array(0);
                return Ok(());
            };
            of_consumer = consumer.pending_from(detail.first).filter_map(|id| group.pending(id));
            &mut of_consumer
        }
    };
    let counted = cx.reply.begin_counted();
    let mut written = 0;
    while written < detail.count
        && let Some(pending) = entries.next().filter(|pending| pending.id <= detail.last)
    {
        cx.spend(1)?;
        let idle_ms = now_ms.wrapping_sub(pending.delivered_ms).cast_signed();
        if detail.idle_ms_min != 0 && idle_ms < detail.idle_ms_min {
            continue;
        }
        reply_pending(&mut cx.reply, group, pending, idle_ms.max(0));
        cx.check_reply()?;
        written += 1;
    }
    cx.reply.end_counted(counted, written, |_| ());
    Ok(())
}

/// Writes a pending entry: identifier, consumer, a time, number of deliveries.
pub(super) fn reply_pending(
    reply: &mut ReplyWriter<'_>,
    group: &ConsumerGroup,
    pending: &Pending,
    ms: i64,
) {
    reply.array(4);
    reply_id(reply, pending.id);
    reply.bulk(group.consumer_of(pending).name());
    reply.integer(ms);
    reply.integer(pending.deliveries.cast_signed());
}
