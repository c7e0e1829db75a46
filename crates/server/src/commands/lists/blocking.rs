//! List commands that wait for an element.

use store::{Change, End, Kind};
use wire::resp::Args;

use super::{
    LMOVE, LMPOP, LPOP, MultiPop, WRITES, element_at, move_element, parse_end, pop_first, popped,
};
use crate::commands::blocking::{Blocking, NEVER, timeout_seconds};
use crate::commands::command::{Command, Done, Events, Flags, KeyAccess, KeySpec};
use crate::commands::context::CommandContext;

pub(crate) const BLPOP: Command = Command {
    name: "blpop",
    syntax: "key [key ...] timeout",
    summary: "Removes and returns the first element of the first list that exists among several keys; waits until there is one.",
    since: "2.0.0",
    complexity: "O(N) in the number of keys",
    arity: -3,
    flags: WRITES.and(Flags::BLOCKING),
    keys: &[KeySpec::range(1, -2, 1, KeyAccess::ReadDelete)],
    run: |cx, args| pop_or_wait(cx, args, End::Front),
    ..LPOP
};

pub(crate) const BRPOP: Command = Command {
    name: "brpop",
    summary: "Removes and returns the last element of the first list that exists among several keys; waits until there is one.",
    events: Events::Each(popped(End::Back)),
    run: |cx, args| pop_or_wait(cx, args, End::Back),
    ..BLPOP
};

fn pop_or_wait(cx: &mut CommandContext<'_>, args: Args<'_>, end: End) -> Done {
    let keys = 1..args.len() - 1;
    let until = timeout_seconds(cx, args.get(keys.end))?;
    for bytes in args.range(keys.clone()) {
        let key = cx.key(bytes);
        let list = cx.locked.list(cx.db, key)?;
        let Some(element) = list.and_then(|list| element_at(list, end)) else { continue };
        if cx.is_reserved(key, Kind::List) {
            break;
        }
        cx.reply.array(2);
        cx.reply.bulk(bytes);
        cx.reply.bulk(&element);
        return cx.change(key, Change::ListPop { end, count: 1 });
    }
    cx.block_or_reply_null(args, keys, Kind::List, until)
}

pub(crate) const BLMPOP: Command = Command {
    name: "blmpop",
    syntax: "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
    summary: "Removes and returns elements of the first list that exists among several keys; waits until there is one.",
    arity: -5,
    flags: WRITES.and(Flags::MOVABLEKEYS).and(Flags::BLOCKING),
    keys: &[KeySpec::counted(2, KeyAccess::ReadDelete)],
    run: blmpop,
    ..LMPOP
};

fn blmpop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let until = timeout_seconds(cx, args.get(1))?;
    let lmpop = args.skip(1);
    let options = MultiPop::parse(lmpop)?;
    if pop_first(cx, lmpop, &options)? {
        return Ok(());
    }
    let keys = options.keys.start + 1..options.keys.end + 1;
    cx.block_or_reply_null(args, keys, Kind::List, until)
}

pub(crate) const BLMOVE: Command = Command {
    name: "blmove",
    syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
    summary: "Moves an element from one end of a list to one end of another and returns it; waits until there is one.",
    arity: 6,
    flags: LMOVE.flags.and(Flags::BLOCKING),
    run: |cx, args| {
        let (from, to) = (parse_end(args.get(3))?, parse_end(args.get(4))?);
        move_or_wait(cx, args, from, to)
    },
    ..LMOVE
};

/// BRPOPLPUSH: legacy form of BLMOVE from the tail of one list to the head of another.
pub(crate) const BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    syntax: "source destination timeout",
    summary: "Moves the last element of a list to the head of another and returns it; waits until there is one.",
    since: "2.2.0",
    arity: 4,
    run: |cx, args| move_or_wait(cx, args, End::Back, End::Front),
    ..BLMOVE
};

fn move_or_wait(cx: &mut CommandContext<'_>, args: Args<'_>, from: End, to: End) -> Done {
    let until = timeout_seconds(cx, args.get(args.len() - 1))?;
    if move_element(cx, args, from, to)? {
        return Ok(());
    }
    if !cx.may_block() {
        cx.reply.null();
        return Ok(());
    }
    cx.block(Blocking {
        args,
        keys: 1..2,
        kind: Kind::List,
        ends_without_key: false,
        until,
        retry_at: NEVER,
    })
}
