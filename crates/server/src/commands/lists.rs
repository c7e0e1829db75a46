//! List commands.

use std::ops::Range;

use smallvec::SmallVec;
use store::types::Text;
use store::{Change, End, Items, Key, Kind, ListRef};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, check_room, integer, is_option, reply_has_room};
use super::fail::Fail;
use super::strings::count;
use crate::config::KeyEvent;

mod blocking;
mod position;

pub(crate) use blocking::{BLMOVE, BLMPOP, BLPOP, BRPOP, BRPOPLPUSH};
pub(crate) use position::LPOS;

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const WRITES: Flags = Flags::WRITE;
const WRITES_FAST: Flags = Flags::WRITE.and(Flags::FAST);
const GROWS: Flags = Flags::WRITE.and(Flags::DENYOOM);
const GROWS_FAST: Flags = GROWS.and(Flags::FAST);

const fn pushed(end: End) -> KeyEvent {
    Group::List.event(match end {
        End::Front => "lpush",
        End::Back => "rpush",
    })
}

const fn popped(end: End) -> KeyEvent {
    Group::List.event(match end {
        End::Front => "lpop",
        End::Back => "rpop",
    })
}

fn list_len(cx: &CommandContext<'_>, key: Key<'_>) -> Result<Option<usize>, Fail> {
    Ok(cx.locked.list(cx.db, key)?.map(ListRef::len))
}

/// LPUSH: inserts elements at the head, each before the previous one.
pub(crate) const LPUSH: Command = Command {
    name: "lpush",
    syntax: "key element [element ...]",
    summary: "Inserts elements at the head of a list; creates the list if it does not exist.",
    since: "1.0.0",
    complexity: "O(N) in the number of elements given",
    group: Group::List,
    arity: -3,
    flags: GROWS_FAST,
    events: Events::Each(pushed(End::Front)),
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: |cx, args| push(cx, args, End::Front),
    ..Command::EMPTY
};

pub(crate) const RPUSH: Command = Command {
    name: "rpush",
    summary: "Appends elements to a list; creates the list if it does not exist.",
    events: Events::Each(pushed(End::Back)),
    run: |cx, args| push(cx, args, End::Back),
    ..LPUSH
};

pub(crate) const LPUSHX: Command = Command {
    name: "lpushx",
    summary: "Inserts elements at the head of a list if the list exists.",
    since: "2.2.0",
    run: |cx, args| push_if_present(cx, args, End::Front),
    ..LPUSH
};

pub(crate) const RPUSHX: Command = Command {
    name: "rpushx",
    summary: "Appends elements to a list if the list exists.",
    since: "2.2.0",
    events: Events::Each(pushed(End::Back)),
    run: |cx, args| push_if_present(cx, args, End::Back),
    ..LPUSH
};

#[inline]
fn push(cx: &mut CommandContext<'_>, args: Args<'_>, end: End) -> Done {
    let key = cx.key(args.get(1));
    let before = list_len(cx, key)?.unwrap_or(0);
    push_elements(cx, key, args, end, before)
}

fn push_if_present(cx: &mut CommandContext<'_>, args: Args<'_>, end: End) -> Done {
    let key = cx.key(args.get(1));
    let Some(before) = list_len(cx, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    push_elements(cx, key, args, end, before)
}

#[inline]
fn push_elements(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    args: Args<'_>,
    end: End,
    before: usize,
) -> Done {
    let values: SmallVec<[&[u8]; 8]> = args.skip(2).iter().collect();
    cx.change(key, Change::ListPush { end, values: Items::Slice(&values) })?;
    cx.reply.count(before + values.len());
    Ok(())
}

pub(crate) const LPOP: Command = Command {
    name: "lpop",
    syntax: "key [count]",
    summary: "Removes and returns the first elements of a list.",
    since: "1.0.0",
    complexity: "O(N) in the number of elements returned",
    group: Group::List,
    arity: -2,
    flags: WRITES_FAST,
    events: Events::Each(popped(End::Front)),
    keys: &[KeySpec::one(KeyAccess::ReadDelete)],
    run: |cx, args| pop(cx, args, End::Front),
    ..Command::EMPTY
};

pub(crate) const RPOP: Command = Command {
    name: "rpop",
    summary: "Removes and returns the last elements of a list, last one first.",
    events: Events::Each(popped(End::Back)),
    run: |cx, args| pop(cx, args, End::Back),
    ..LPOP
};

fn pop(cx: &mut CommandContext<'_>, args: Args<'_>, end: End) -> Done {
    let key = cx.key(args.get(1));
    match args.len() {
        2 => pop_one(cx, key, end),
        3 => pop_several(cx, key, end, args.get(2)),
        _ => Err(Fail::arity(cx.command.name)),
    }
}

fn pop_one(cx: &mut CommandContext<'_>, key: Key<'_>, end: End) -> Done {
    let Some(element) = cx.locked.list(cx.db, key)?.and_then(|list| element_at(list, end)) else {
        cx.reply.null();
        return Ok(());
    };
    cx.reply.bulk(&element);
    cx.change(key, Change::ListPop { end, count: 1 })
}

fn element_at(list: ListRef<'_>, end: End) -> Option<Text<'_>> {
    match end {
        End::Front => list.get(0),
        End::Back => list.get(list.len().checked_sub(1)?),
    }
}

fn pop_several(cx: &mut CommandContext<'_>, key: Key<'_>, end: End, count_text: &[u8]) -> Done {
    let wanted = integer(count_text).ok().and_then(|wanted| usize::try_from(wanted).ok());
    let wanted = wanted.ok_or(Fail::text("ERR value is out of range, must be positive"))?;
    let Some(list) = cx.locked.list(cx.db, key)? else {
        cx.reply.null_array();
        return Ok(());
    };
    cx.spend(wanted.min(list.len()))?;
    let popped = write_end(&mut cx.reply, list, end, wanted);
    cx.check_reply()?; // before anything is removed
    if popped == 0 {
        return Ok(());
    }
    cx.change(key, Change::ListPop { end, count: popped })
}

/// Writes an array of up to `wanted` elements in the order in which they are popped. Returns their
/// number.
fn write_end(reply: &mut ReplyWriter<'_>, list: ListRef<'_>, end: End, wanted: usize) -> u64 {
    let popped = wanted.min(list.len());
    reply.array(popped);
    let mut write = |element: Text<'_>| {
        if reply_has_room(reply) {
            reply.bulk(&element);
        }
    };
    match end {
        End::Front => list.iter().take(popped).for_each(&mut write),
        End::Back => list.iter_rev().take(popped).for_each(&mut write),
    }
    popped as u64
}

pub(crate) const LMPOP: Command = Command {
    name: "lmpop",
    syntax: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
    summary: "Removes and returns elements of the first list that exists among several keys.",
    since: "7.0.0",
    complexity: "O(N+M) in the number of keys and of elements returned",
    group: Group::List,
    arity: -4,
    flags: WRITES.and(Flags::MOVABLEKEYS),
    events: Events::Chosen,
    keys: &[KeySpec::counted(1, KeyAccess::ReadDelete)],
    run: lmpop,
    ..Command::EMPTY
};

fn lmpop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if !pop_first(cx, args, &MultiPop::parse(args)?)? {
        cx.reply.null_array();
    }
    Ok(())
}

/// Pops from the first list that exists, and replies. False if there is none, or if an older client
/// waits for it.
fn pop_first(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    options: &MultiPop,
) -> Result<bool, Fail> {
    for bytes in args.range(options.keys.clone()) {
        let key = cx.key(bytes);
        let Some(list) = cx.locked.list(cx.db, key)? else { continue };
        if cx.is_reserved(key, Kind::List) {
            return Ok(false);
        }
        cx.spend(options.count.min(list.len()))?;
        cx.reply.array(2);
        cx.reply.bulk(bytes);
        let count = write_end(&mut cx.reply, list, options.end, options.count);
        cx.check_reply()?; // before anything is removed
        let end = options.end;
        cx.change_as(popped(end), key, Change::ListPop { end, count })?;
        return Ok(true);
    }
    Ok(false)
}

#[derive(Debug, PartialEq, Eq)]
struct MultiPop {
    /// Positions of the keys among the arguments.
    keys: Range<usize>,
    end: End,
    count: usize,
}

impl MultiPop {
    // Source: Redis 7.2 `t_list.c`, `lmpopGenericCommand`
    fn parse(args: Args<'_>) -> Result<MultiPop, Fail> {
        const FIRST_KEY: usize = 2;
        let numkeys = parse_positive(args.get(1), "ERR numkeys should be greater than 0")?;
        let end_at = FIRST_KEY.saturating_add(numkeys);
        let end = parse_end(args.try_get(end_at).ok_or(Fail::Syntax)?)?;
        let mut count = None;
        let mut rest = args.skip(end_at + 1).iter();
        while let Some(name) = rest.next() {
            let known = count.is_none() && is_option(name, "COUNT");
            let value = rest.next().filter(|_| known).ok_or(Fail::Syntax)?;
            count = Some(parse_positive(value, "ERR count should be greater than 0")?);
        }
        let count = count.unwrap_or(1);
        Ok(MultiPop { keys: FIRST_KEY..end_at, end, count })
    }
}

/// Parses a number above zero, or returns the error `otherwise`.
fn parse_positive(text: &[u8], otherwise: &'static str) -> Result<usize, Fail> {
    let number = integer(text).ok().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(Fail::text(otherwise))
}

fn parse_end(text: &[u8]) -> Result<End, Fail> {
    if is_option(text, "LEFT") {
        Ok(End::Front)
    } else if is_option(text, "RIGHT") {
        Ok(End::Back)
    } else {
        Err(Fail::Syntax)
    }
}

pub(crate) const LMOVE: Command = Command {
    name: "lmove",
    syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
    summary: "Moves an element from one end of a list to one end of another and returns it.",
    since: "6.2.0",
    group: Group::List,
    arity: 5,
    flags: GROWS.and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadDelete), KeySpec::range(2, 2, 1, KeyAccess::Insert)],
    run: lmove,
    ..Command::EMPTY
};

fn lmove(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (from, to) = (parse_end(args.get(3))?, parse_end(args.get(4))?);
    if !move_element(cx, args, from, to)? {
        cx.reply.null();
    }
    Ok(())
}

/// RPOPLPUSH: legacy form of LMOVE from the tail of one list to the head of another.
pub(crate) const RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    syntax: "source destination",
    summary: "Moves the last element of a list to the head of another and returns it.",
    since: "1.2.0",
    arity: 3,
    run: rpoplpush,
    ..LMOVE
};

fn rpoplpush(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if !move_element(cx, args, End::Back, End::Front)? {
        cx.reply.null();
    }
    Ok(())
}

/// Moves an element, and replies with it. False if there is none, or if an older client waits for
/// it.
fn move_element(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    from: End,
    to: End,
) -> Result<bool, Fail> {
    let (source, destination) = (cx.key(args.get(1)), cx.key(args.get(2)));
    let element = cx.locked.list(cx.db, source)?.and_then(|list| element_at(list, from));
    let Some(element) = element else { return Ok(false) };
    if cx.is_reserved(source, Kind::List) {
        return Ok(false);
    }
    let element: SmallVec<[u8; 64]> = SmallVec::from_slice(&element);
    list_len(cx, destination)?;
    cx.reply.bulk(&element);
    // Push before the pop: rotating a list of one element must not delete the list, which would
    // lose its expiry.
    let values = [&element[..]];
    let change = Change::ListPush { end: to, values: Items::Slice(&values) };
    cx.change_as(pushed(to), destination, change)?;
    cx.change_as(popped(from), source, Change::ListPop { end: from, count: 1 })?;
    Ok(true)
}

pub(crate) const LLEN: Command = Command {
    name: "llen",
    syntax: "key",
    summary: "Returns the number of elements of a list.",
    since: "1.0.0",
    group: Group::List,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: llen,
    ..Command::EMPTY
};

fn llen(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let len = list_len(cx, key)?.unwrap_or(0);
    cx.reply.count(len);
    Ok(())
}

pub(crate) const LINDEX: Command = Command {
    name: "lindex",
    syntax: "key index",
    summary: "Returns the element at an index of a list; negative ones count from the end.",
    since: "1.0.0",
    complexity: "O(N) in the chunks of elements between the index and the nearer end",
    group: Group::List,
    arity: 3,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: lindex,
    ..Command::EMPTY
};

fn lindex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(list) = cx.locked.list(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let index = position(integer(args.get(2))?, list.len());
    match index.and_then(|index| list.get(index)) {
        Some(element) => cx.reply.bulk(&element),
        None => cx.reply.null(),
    }
    Ok(())
}

/// Position of an index, which counts from the end if negative; `None` outside the list.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(count(len))? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Existing positions from `start` to `stop` inclusive.
fn clamp_range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let from_front = |at: i64| if at < 0 { at.saturating_add(count(len)) } else { at };
    let (start, stop) = (from_front(start).max(0), from_front(stop));
    if start > stop {
        return 0..0;
    }
    // An index that does not fit is beyond the end of any list.
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let end = usize::try_from(stop).unwrap_or(usize::MAX).saturating_add(1).min(len);
    if start < end { start..end } else { 0..0 }
}

pub(crate) const LRANGE: Command = Command {
    name: "lrange",
    syntax: "key start stop",
    summary: "Returns a range of elements of a list; negative indexes count from the end.",
    since: "1.0.0",
    complexity: "O(S+N) in the distance of the start from the nearer end and the elements returned",
    group: Group::List,
    arity: 4,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: lrange,
    ..Command::EMPTY
};

fn lrange(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (start, stop) = (integer(args.get(2))?, integer(args.get(3))?);
    let key = cx.key(args.get(1));
    let Some(list) = cx.locked.list(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let range = clamp_range(start, stop, list.len());
    cx.spend(range.len())?;
    cx.reply.array(range.len());
    // Faster than a loop, whose every step finds out again which form the list has.
    let reply = &mut cx.reply;
    list.iter_from(range.start).take(range.len()).try_for_each(|element| {
        reply.bulk(&element);
        check_room(reply)
    })
}

pub(crate) const LTRIM: Command = Command {
    name: "ltrim",
    syntax: "key start stop",
    summary: "Removes all elements of a list that are not in a range.",
    since: "1.0.0",
    complexity: "O(N) in the number of elements removed",
    group: Group::List,
    arity: 4,
    flags: WRITES,
    events: Events::Each(Group::List.event("ltrim")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: ltrim,
    ..Command::EMPTY
};

fn ltrim(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (start, stop) = (integer(args.get(2))?, integer(args.get(3))?);
    let key = cx.key(args.get(1));
    let len = list_len(cx, key)?.unwrap_or(0);
    let kept = clamp_range(start, stop, len);
    cx.spend(len - kept.len())?;
    // A trim that removes nothing is still a write: it publishes an event and aborts transactions
    // that watch the key.
    if len > 0 {
        let (start, count) = (kept.start as u64, kept.len() as u64);
        cx.change(key, Change::ListTrim { start, count })?;
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const LSET: Command = Command {
    name: "lset",
    syntax: "key index element",
    summary: "Replaces the element at an index of a list.",
    since: "1.0.0",
    complexity: "O(N) in the chunks of elements between the index and the nearer end",
    group: Group::List,
    arity: 4,
    flags: GROWS,
    events: Events::Each(Group::List.event("lset")),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: lset,
    ..Command::EMPTY
};

fn lset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let len = list_len(cx, key)?.ok_or(Fail::NoSuchKey)?;
    let index = position(integer(args.get(2))?, len).ok_or(Fail::OutOfRange)?;
    cx.change(key, Change::ListSet { index: index as u64, value: args.get(3) })?;
    cx.reply.ok();
    Ok(())
}

pub(crate) const LINSERT: Command = Command {
    name: "linsert",
    syntax: "key <BEFORE | AFTER> pivot element",
    summary: "Inserts an element before or after the first one that equals the pivot.",
    since: "2.2.0",
    complexity: "O(N) in the elements before the pivot",
    group: Group::List,
    arity: 5,
    flags: GROWS,
    events: Events::Each(Group::List.event("linsert")),
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: linsert,
    ..Command::EMPTY
};

fn linsert(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let offset = if is_option(args.get(2), "BEFORE") {
        0
    } else if is_option(args.get(2), "AFTER") {
        1
    } else {
        return Err(Fail::Syntax);
    };
    let (key, pivot) = (cx.key(args.get(1)), args.get(3));
    let Some(list) = cx.locked.list(cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let len = list.len();
    cx.spend(len)?;
    let Some(at) = list.iter().position(|element| element == pivot) else {
        cx.reply.integer(-1);
        return Ok(());
    };
    let index = (at + offset) as u64;
    cx.change(key, Change::ListInsert { index, value: args.get(4) })?;
    cx.reply.count(len + 1);
    Ok(())
}

pub(crate) const LREM: Command = Command {
    name: "lrem",
    syntax: "key count element",
    summary: "Removes the first, last or all elements of a list that equal the given one.",
    since: "1.0.0",
    complexity: "O(N) in the elements of the list",
    group: Group::List,
    arity: 4,
    flags: WRITES,
    events: Events::Each(Group::List.event("lrem")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: lrem,
    ..Command::EMPTY
};

fn lrem(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let wanted = integer(args.get(2))?;
    let (key, value) = (cx.key(args.get(1)), args.get(3));
    let list = cx.locked.list(cx.db, key)?;
    cx.spend(list.map_or(0, ListRef::len))?;
    let before = match list {
        Some(list) if list.iter().any(|element| element == value) => list.len(),
        _ => {
            cx.reply.integer(0);
            return Ok(());
        }
    };
    cx.change(key, Change::ListRemove { count: wanted, value })?;
    let removed = before - list_len(cx, key)?.unwrap_or(0);
    cx.reply.count(removed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn args(line: &str) -> OwnedArgs {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        args
    }

    #[test]
    fn positions() {
        for (index, len, expected) in [
            (0, 3, Some(0)),
            (2, 3, Some(2)),
            (3, 3, None),
            (-1, 3, Some(2)),
            (-3, 3, Some(0)),
            (-4, 3, None),
            (0, 0, None),
            (i64::MAX, 3, None),
            (i64::MIN, 3, None),
        ] {
            assert_eq!(position(index, len), expected, "{index} of {len}");
        }
    }

    #[test]
    fn ranges() {
        for (start, stop, len, expected) in [
            (0, -1, 5, 0..5),
            (1, 3, 5, 1..4),
            (-2, -1, 5, 3..5),
            (-100, 100, 5, 0..5),
            (-100, -50, 5, 0..0),
            (5, 10, 5, 0..0),
            (1, 0, 2, 0..0),
            (0, 0, 0, 0..0),
            (0, -1, 0, 0..0),
            (i64::MIN, i64::MAX, 5, 0..5),
            (i64::MAX, i64::MAX, 5, 0..0),
            (i64::MIN, i64::MIN, 5, 0..0),
        ] {
            assert_eq!(clamp_range(start, stop, len), expected, "{start} {stop} of {len}");
        }
    }

    #[test]
    fn options_of_lmpop() {
        let parse = |line| MultiPop::parse(args(line).as_args());
        let expected = MultiPop { keys: 2..4, end: End::Back, count: 1 };
        assert_eq!(parse("LMPOP 2 a b right"), Ok(expected));
        let expected = MultiPop { keys: 2..3, end: End::Front, count: 7 };
        assert_eq!(parse("LMPOP 1 a LEFT count 7"), Ok(expected));
        for line in [
            "LMPOP 2 a LEFT",
            "LMPOP 9223372036854775807 a LEFT",
            "LMPOP 1 a UP",
            "LMPOP 1 a LEFT COUNT",
            "LMPOP 1 a LEFT COUNT 1 COUNT 1",
            "LMPOP 1 a LEFT NONSENSE 1",
        ] {
            assert_eq!(parse(line), Err(Fail::Syntax), "{line}");
        }
        for line in ["LMPOP 0 a LEFT", "LMPOP -1 a LEFT", "LMPOP 1 a LEFT COUNT 0"] {
            assert!(matches!(parse(line), Err(Fail::Text(_))), "{line}");
        }
    }
}
