//! XINFO: the state of streams, consumer groups and consumers.

use store::types::{Consumer, Group as ConsumerGroup, Stream, StreamEntry, StreamId};
use wire::resp::{Args, ReplyWriter};

use super::ids::reply_id;
use super::pending::reply_pending;
use super::{READS, lag, no_group, reply_entry, reply_option};
use crate::commands::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, ENTRY_COST, integer, is_option};
use crate::commands::fail::{Fail, too_many_arguments};
use crate::commands::help;

pub(crate) const XINFO: Command = Command {
    name: "xinfo",
    syntax: "subcommand",
    summary: "A container for commands about the state of streams.",
    since: "5.0.0",
    complexity: "Depends on the subcommand",
    group: Group::Stream,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&XINFO_CONSUMERS, &XINFO_GROUPS, &XINFO_HELP, &XINFO_STREAM],
    ..Command::EMPTY
};

/// XINFO STREAM: counters, ends, and with FULL the groups of a stream.
const XINFO_STREAM: Command = Command {
    name: "stream",
    syntax: "key [FULL [COUNT count]]",
    summary: "Returns the state of a stream, with FULL also entries, consumer groups and pending entries.",
    since: "5.0.0",
    complexity: "O(N) in the blocks of the stream, with FULL also in groups, consumers and entries returned",
    group: Group::Stream,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Read)],
    run: stream_info,
    ..Command::EMPTY
};

/// Entries and pending entries that FULL returns, each.
const FULL_COUNT: usize = 10;

/// FULL: the maximum number of entries.
fn parse_full(args: Args<'_>) -> Result<Option<usize>, Fail> {
    let options = args.skip(3);
    let wrong = || too_many_arguments("XINFO", args);
    match options.len() {
        0 => return Ok(None),
        1 | 3 if is_option(options.get(0), "FULL") => {}
        _ => return Err(wrong()),
    }
    let Some(number) = options.try_get(2) else { return Ok(Some(FULL_COUNT)) };
    if !is_option(options.get(1), "COUNT") {
        return Err(wrong());
    }
    Ok(Some(match usize::try_from(integer(number)?) {
        Err(_) => FULL_COUNT,
        Ok(0) => usize::MAX,
        Ok(count) => count,
    }))
}

fn stream_info(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(2));
    let stream = cx.locked.stream(cx.db, key)?.ok_or(Fail::NoSuchKey)?;
    let full = parse_full(args)?;
    cx.spend(stream.blocks_len())?;
    cx.reply.map(if full.is_some() { 9 } else { 10 });
    reply_counters(&mut cx.reply, stream);
    let Some(count_max) = full else {
        reply_ends(&mut cx.reply, stream);
        return Ok(());
    };
    cx.reply.bulk(b"entries");
    cx.reply.array(stream.len().min(count_max));
    for entry in stream.range(StreamId::MIN, StreamId::MAX).take(count_max) {
        cx.spend(ENTRY_COST + entry.len())?;
        reply_entry(&mut cx.reply, entry);
        cx.check_reply()?;
    }
    cx.reply.bulk(b"groups");
    cx.reply.array(stream.groups().len());
    for group in stream.groups() {
        let pending = group.pending_len().min(count_max);
        cx.spend(1 + 2 * pending + group.consumers_len())?;
        reply_group_in_full(&mut cx.reply, stream, group, count_max);
        cx.check_reply()?;
    }
    Ok(())
}

fn reply_counters(reply: &mut ReplyWriter<'_>, stream: &Stream) {
    reply.bulk(b"length");
    reply.count(stream.len());
    reply.bulk(b"radix-tree-keys");
    reply.count(stream.blocks_len());
    reply.bulk(b"radix-tree-nodes");
    reply.count(stream.tree_nodes());
    reply.bulk(b"last-generated-id");
    reply_id(reply, stream.last_id());
    reply.bulk(b"max-deleted-entry-id");
    reply_id(reply, stream.max_deleted_id());
    reply.bulk(b"entries-added");
    reply.integer(stream.entries_added().cast_signed());
    reply.bulk(b"recorded-first-entry-id");
    reply_id(reply, stream.first_entry_id());
}

/// Without FULL: the number of groups, the first and the last entry.
fn reply_ends(reply: &mut ReplyWriter<'_>, stream: &Stream) {
    reply.bulk(b"groups");
    reply.count(stream.groups().len());
    reply.bulk(b"first-entry");
    reply_entry_or_null(reply, stream.range(StreamId::MIN, StreamId::MAX).next());
    reply.bulk(b"last-entry");
    reply_entry_or_null(reply, stream.range_rev(StreamId::MIN, StreamId::MAX).next());
}

fn reply_entry_or_null(reply: &mut ReplyWriter<'_>, entry: Option<StreamEntry<'_>>) {
    match entry {
        Some(entry) => reply_entry(reply, entry),
        None => reply.null(),
    }
}

fn reply_group_in_full(
    reply: &mut ReplyWriter<'_>,
    stream: &Stream,
    group: &ConsumerGroup,
    count_max: usize,
) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(group.name());
    reply_progress(reply, stream, group);
    reply.bulk(b"pel-count");
    reply.count(group.pending_len());
    reply.bulk(b"pending");
    reply.array(group.pending_len().min(count_max));
    for pending in group.pending_from(StreamId::MIN).take(count_max) {
        reply_pending(reply, group, pending, pending.delivered_ms.cast_signed());
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers_len());
    for consumer in group.consumers() {
        reply_consumer_in_full(reply, group, consumer, count_max);
    }
}

/// Writes the last three fields about what a group has read.
fn reply_progress(reply: &mut ReplyWriter<'_>, stream: &Stream, group: &ConsumerGroup) {
    reply.bulk(b"last-delivered-id");
    reply_id(reply, group.last_id);
    reply.bulk(b"entries-read");
    reply_option(reply, group.entries_read);
    reply.bulk(b"lag");
    reply_option(reply, lag(stream, group));
}

fn reply_consumer_in_full(
    reply: &mut ReplyWriter<'_>,
    group: &ConsumerGroup,
    consumer: &Consumer,
    count_max: usize,
) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    reply.bulk(b"seen-time");
    reply.integer(consumer.seen_ms.cast_signed());
    reply.bulk(b"active-time");
    reply.integer(consumer.active_ms.map_or(-1, u64::cast_signed));
    reply.bulk(b"pel-count");
    reply.count(consumer.pending_len());
    reply.bulk(b"pending");
    reply.array(consumer.pending_len().min(count_max));
    for id in consumer.pending_from(StreamId::MIN).take(count_max) {
        let pending = group.pending(id);
        reply.array(3);
        reply_id(reply, id);
        reply.integer(pending.map_or(0, |it| it.delivered_ms.cast_signed()));
        reply.integer(pending.map_or(0, |it| it.deliveries.cast_signed()));
    }
}

/// XINFO GROUPS: the consumer groups of a stream.
const XINFO_GROUPS: Command = Command {
    name: "groups",
    syntax: "key",
    summary: "Returns the consumer groups of a stream.",
    complexity: "O(N) in the groups",
    arity: 3,
    run: groups,
    ..XINFO_STREAM
};

fn groups(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(2));
    let stream = cx.locked.stream(cx.db, key)?.ok_or(Fail::NoSuchKey)?;
    cx.spend(stream.groups().len())?;
    cx.reply.array(stream.groups().len());
    for group in stream.groups() {
        cx.reply.map(6);
        cx.reply.bulk(b"name");
        cx.reply.bulk(group.name());
        cx.reply.bulk(b"consumers");
        cx.reply.count(group.consumers_len());
        cx.reply.bulk(b"pending");
        cx.reply.count(group.pending_len());
        reply_progress(&mut cx.reply, stream, group);
        cx.check_reply()?;
    }
    Ok(())
}

/// XINFO CONSUMERS: the consumers of a group.
const XINFO_CONSUMERS: Command = Command {
    name: "consumers",
    syntax: "key group",
    summary: "Returns the consumers of a consumer group.",
    complexity: "O(N) in the consumers",
    arity: 4,
    tips: &["nondeterministic_output"],
    run: consumers,
    ..XINFO_STREAM
};

fn consumers(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, name) = (cx.key(args.get(2)), args.get(3));
    let stream = cx.locked.stream(cx.db, key)?.ok_or(Fail::NoSuchKey)?;
    let group = stream.group(name).ok_or_else(|| no_group(key, name))?;
    let now_ms = cx.unix().0;
    let since = |ms: u64| now_ms.wrapping_sub(ms).cast_signed();
    cx.spend(group.consumers_len())?;
    cx.reply.array(group.consumers_len());
    for consumer in group.consumers() {
        cx.reply.map(4);
        cx.reply.bulk(b"name");
        cx.reply.bulk(consumer.name());
        cx.reply.bulk(b"pending");
        cx.reply.count(consumer.pending_len());
        cx.reply.bulk(b"idle");
        cx.reply.integer(since(consumer.seen_ms).max(0));
        cx.reply.bulk(b"inactive");
        cx.reply.integer(consumer.active_ms.map_or(-1, since));
        cx.check_reply()?;
    }
    Ok(())
}

/// XINFO HELP: the subcommands.
const XINFO_HELP: Command =
    help::subcommand("Lists the subcommands of XINFO.", "5.0.0", Group::Stream, |cx, _| {
        help::reply_lines(cx, &HELP_LINES)
    });

const HELP_LINES: [&str; 9] = [
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Print this help.",
];
