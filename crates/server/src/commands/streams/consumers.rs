//! XGROUP: consumer groups and their consumers.

use store::types::{Consumer, Stream, StreamId};
use store::{GroupRead, Key, StreamChange};
use wire::resp::Args;

use super::ids::parse_id;
use super::{WRITES, change, create_consumer, no_group};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::{Fail, too_many_arguments};
use crate::commands::help;

pub(crate) const XGROUP: Command = Command {
    name: "xgroup",
    syntax: "subcommand",
    summary: "A container for commands about consumer groups.",
    since: "5.0.0",
    complexity: "Depends on the subcommand",
    group: Group::Stream,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[
        &XGROUP_CREATE,
        &XGROUP_CREATECONSUMER,
        &XGROUP_DELCONSUMER,
        &XGROUP_DESTROY,
        &XGROUP_HELP,
        &XGROUP_SETID,
    ],
    ..Command::EMPTY
};

/// XGROUP CREATE: a new consumer group.
const XGROUP_CREATE: Command = Command {
    name: "create",
    syntax: "key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]",
    summary: "Creates a consumer group that reads a stream from an identifier on.",
    since: "5.0.0",
    group: Group::Stream,
    arity: -5,
    flags: WRITES.and(Flags::DENYOOM),
    events: Events::Each(Group::Stream.event("xgroup-create")),
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Insert)],
    run: create,
    ..Command::EMPTY
};

/// Options of CREATE and SETID.
#[derive(Debug, Default)]
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
}

fn parse_options(args: Args<'_>, may_make_stream: bool) -> Result<Options, Fail> {
    let mut options = Options::default();
    let mut words = args.skip(5).iter();
    while let Some(option) = words.next() {
        if may_make_stream && is_option(option, "MKSTREAM") {
            options.makes_stream = true;
            continue;
        }
        let value = words.next().filter(|_| is_option(option, "ENTRIESREAD"));
        let value = integer(value.ok_or_else(|| too_many_arguments("XGROUP", args))?)?;
        if value < -1 {
            return Err(Fail::text("ERR value for ENTRIESREAD must be positive or -1"));
        }
        options.entries_read = u64::try_from(value).ok();
    }
    Ok(options)
}

fn stream_required() -> Fail {
    Fail::text(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want \
         to use the MKSTREAM option to create an empty stream automatically.",
    )
}

fn create(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const ARGUMENTS_MAX: usize = 8;
    let Options { makes_stream, entries_read } = parse_options(args, true)?;
    let (key, group) = (cx.key(args.get(2)), args.get(3));
    let stream = cx.locked.stream(cx.db, key)?;
    if stream.is_none() && !makes_stream {
        return Err(stream_required());
    }
    if args.len() > ARGUMENTS_MAX {
        return Err(too_many_arguments("XGROUP", args));
    }
    let last_id = match (args.get(4), stream) {
        (b"$", stream) => stream.map_or(StreamId::MIN, Stream::last_id),
        (text, _) => parse_id(text, 0)?,
    };
    if stream.is_some_and(|stream| stream.group(group).is_some()) {
        return Err(Fail::text("BUSYGROUP Consumer Group name already exists"));
    }
    let read = GroupRead { last_id, entries_read };
    change(cx, cx.command.events.each(), key, &StreamChange::SetGroup { group, read })?;
    cx.reply.ok();
    Ok(())
}

/// The identifier of the last entry, and whether the group exists, of an existing stream.
fn group_of(cx: &CommandContext<'_>, key: Key<'_>, group: &[u8]) -> Result<(StreamId, bool), Fail> {
    let stream = cx.locked.stream(cx.db, key)?.ok_or_else(stream_required)?;
    Ok((stream.last_id(), stream.group(group).is_some()))
}

/// XGROUP SETID: what a group has read.
const XGROUP_SETID: Command = Command {
    name: "setid",
    syntax: "key group <id | $> [ENTRIESREAD entries-read]",
    summary: "Sets the identifier up to which a consumer group has read.",
    flags: WRITES,
    events: Events::Each(Group::Stream.event("xgroup-setid")),
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Update)],
    run: set_id,
    ..XGROUP_CREATE
};

fn set_id(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const ARGUMENTS_MAX: usize = 7;
    let Options { entries_read, .. } = parse_options(args, false)?;
    let (key, group) = (cx.key(args.get(2)), args.get(3));
    let (stream_id, exists) = group_of(cx, key, group)?;
    if !exists {
        return Err(no_group(key, group));
    }
    if args.len() > ARGUMENTS_MAX {
        return Err(too_many_arguments("XGROUP", args));
    }
    let last_id = match args.get(4) {
        b"$" => stream_id,
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        text => parse_id(text, 0)?,
    };
    let read = GroupRead { last_id, entries_read };
    change(cx, cx.command.events.each(), key, &StreamChange::SetGroup { group, read })?;
    cx.reply.ok();
    Ok(())
}

/// XGROUP DESTROY: the end of a group.
const XGROUP_DESTROY: Command = Command {
    name: "destroy",
    syntax: "key group",
    summary: "Deletes a consumer group with its consumers and pending entries.",
    complexity: "O(N) in the pending entries of the group",
    arity: 4,
    flags: WRITES,
    events: Events::Each(Group::Stream.event("xgroup-destroy")),
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Delete)],
    run: destroy,
    ..XGROUP_CREATE
};

fn destroy(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, group) = (cx.key(args.get(2)), args.get(3));
    let (_, exists) = group_of(cx, key, group)?;
    if exists {
        change(cx, cx.command.events.each(), key, &StreamChange::DeleteGroup { group })?;
    }
    cx.reply.integer(i64::from(exists));
    Ok(())
}

/// XGROUP CREATECONSUMER: a new consumer.
const XGROUP_CREATECONSUMER: Command = Command {
    name: "createconsumer",
    syntax: "key group consumer",
    summary: "Creates a consumer in a consumer group; returns whether it is new.",
    since: "6.2.0",
    arity: 5,
    events: Events::Chosen,
    run: create_one,
    ..XGROUP_CREATE
};

fn create_one(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, group) = (cx.key(args.get(2)), args.get(3));
    if !group_of(cx, key, group)?.1 {
        return Err(no_group(key, group));
    }
    let is_new = create_consumer(cx, key, group, args.get(4))?;
    cx.reply.integer(i64::from(is_new));
    Ok(())
}

/// XGROUP DELCONSUMER: the end of a consumer.
const XGROUP_DELCONSUMER: Command = Command {
    name: "delconsumer",
    syntax: "key group consumer",
    summary: "Deletes a consumer with its pending entries; returns how many it had.",
    complexity: "O(N) in the pending entries of the consumer",
    arity: 5,
    events: Events::Each(Group::Stream.event("xgroup-delconsumer")),
    run: delete_one,
    ..XGROUP_DESTROY
};

fn delete_one(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, group, consumer) = (cx.key(args.get(2)), args.get(3), args.get(4));
    let stream = cx.locked.stream(cx.db, key)?.ok_or_else(stream_required)?;
    let found = stream.group(group).ok_or_else(|| no_group(key, group))?.consumer(consumer);
    let pending = found.map(Consumer::pending_len);
    if let Some(pending) = pending {
        cx.spend(pending)?;
        let deleted = StreamChange::DeleteConsumer { group, consumer };
        change(cx, cx.command.events.each(), key, &deleted)?;
    }
    cx.reply.count(pending.unwrap_or(0));
    Ok(())
}

/// XGROUP HELP: the subcommands.
const XGROUP_HELP: Command =
    help::subcommand("Lists the subcommands of XGROUP.", "5.0.0", Group::Stream, |cx, _| {
        help::reply_lines(cx, &HELP_LINES)
    });

const HELP_LINES: [&str; 17] = [
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Print this help.",
];
