//! Sorted-set commands that wait for a member.

use store::Kind;
use wire::resp::Args;

use super::{Direction, MultiPop, RowShape, ZMPOP, ZPOPMAX, ZPOPMIN, pop_first, take};
use crate::commands::blocking::timeout_seconds;
use crate::commands::command::{Command, Done, Flags, KeyAccess, KeySpec};
use crate::commands::context::CommandContext;

pub(crate) const BZPOPMIN: Command = Command {
    name: "bzpopmin",
    syntax: "key [key ...] timeout",
    summary: "Removes and returns the member with the lowest score of the first sorted set that exists among several keys; waits until there is one.",
    complexity: "O(log N) in the members of the sorted set",
    arity: -3,
    flags: ZPOPMIN.flags.and(Flags::BLOCKING),
    keys: &[KeySpec::range(1, -2, 1, KeyAccess::ReadDelete)],
    run: |cx, args| pop_or_wait(cx, args, Direction::Forward),
    ..ZPOPMIN
};

pub(crate) const BZPOPMAX: Command = Command {
    name: "bzpopmax",
    summary: "Removes and returns the member with the highest score of the first sorted set that exists among several keys; waits until there is one.",
    events: ZPOPMAX.events,
    run: |cx, args| pop_or_wait(cx, args, Direction::Reverse),
    ..BZPOPMIN
};

fn pop_or_wait(cx: &mut CommandContext<'_>, args: Args<'_>, direction: Direction) -> Done {
    let keys = 1..args.len() - 1;
    let until = timeout_seconds(cx, args.get(keys.end))?;
    for bytes in args.range(keys.clone()) {
        let key = cx.key(bytes);
        if cx.locked.zset(cx.db, key)?.is_none() {
            continue;
        }
        if cx.is_reserved(key, Kind::ZSet) {
            break;
        }
        cx.reply.array(3);
        cx.reply.bulk(bytes);
        return take(cx, key, direction, 1, RowShape::Appended);
    }
    cx.block_or_reply_null(args, keys, Kind::ZSet, until)
}

pub(crate) const BZMPOP: Command = Command {
    name: "bzmpop",
    syntax: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
    summary: "Removes and returns members of the first sorted set that exists among several keys; waits until there is one.",
    arity: -5,
    flags: ZMPOP.flags.and(Flags::BLOCKING),
    keys: &[KeySpec::counted(2, KeyAccess::ReadDelete)],
    run: bzmpop,
    ..ZMPOP
};

fn bzmpop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let until = timeout_seconds(cx, args.get(1))?;
    let zmpop = args.skip(1);
    let options = MultiPop::parse(zmpop)?;
    if pop_first(cx, zmpop, &options)? {
        return Ok(());
    }
    let keys = options.keys.start + 1..options.keys.end + 1;
    cx.block_or_reply_null(args, keys, Kind::ZSet, until)
}
