//! String commands.

use std::ops::Range;

use base::time::UnixMs;
use store::{Change, Key, Value};
use wire::resp::Args;

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, integer};
use super::fail::Fail;
use super::generic::PERSISTS;
use crate::config::KeyEvent;
use expiry::{OnlyIf, SetOptions, parse_getex};

mod compare;
mod expiry;
mod increx;
mod lcs;
mod number;

pub(crate) use compare::{DELEX, DELIFEQ, DELVX, DIGEST, reads_old_value};
pub(crate) use expiry::{ExpiryOption, Moment};
pub(crate) use increx::INCREX;
pub(crate) use lcs::LCS;
pub(crate) use number::{DECR, DECRBY, INCR, INCRBY, INCRBYFLOAT, float_sum};

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const GROWS: Flags = Flags::WRITE.and(Flags::DENYOOM);
const GROWS_FAST: Flags = GROWS.and(Flags::FAST);

const SETS: Events = Events::Each(Group::String.event("set"));

/// GET: the value of a key, null if the key does not exist.
pub(crate) const GET: Command = Command {
    name: "get",
    syntax: "key",
    summary: "Returns the string value of a key.",
    since: "1.0.0",
    group: Group::String,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: get,
    ..Command::EMPTY
};

fn get(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    reply_string(cx, key)
}

/// Replies with the string at `key`, or null if there is none.
#[inline]
fn reply_string(cx: &mut CommandContext<'_>, key: Key<'_>) -> Done {
    match cx.locked.string(cx.db, key)? {
        Some(value) => cx.reply.bulk(&value),
        None => cx.reply.null(),
    }
    Ok(())
}

pub(crate) const SET: Command = Command {
    name: "set",
    syntax: "key value [NX | XX | IFEQ comparison-value | IFNE comparison-value | \
             IFDEQ comparison-digest | IFDNE comparison-digest] [GET] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    summary: "Sets the string value of a key, whatever its previous type, and its expiry.",
    since: "1.0.0",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::UpdateOrOverwrite)
        .noted("RW and ACCESS due to the optional `GET` argument")],
    run: set,
    ..Command::EMPTY
};

#[inline]
fn set(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    if args.len() > 3 {
        return set_with_options(cx, key, args);
    }
    cx.change(key, Change::Set { value: args.get(2), expiry: None })?;
    cx.reply.ok();
    Ok(())
}

/// Separate from [`set`], so that the path of a plain SET stays small.
#[inline(never)]
fn set_with_options(cx: &mut CommandContext<'_>, key: Key<'_>, args: Args<'_>) -> Done {
    let options = SetOptions::parse(args)?;
    let deadline = options.expiry.deadline(cx.unix(), SET.name)?;
    if options.get {
        reply_string(cx, key)?;
    }
    let allowed = match options.only_if {
        None => true,
        Some(OnlyIf::Absent) => !cx.locked.contains(cx.db, key),
        Some(OnlyIf::Present) => cx.locked.contains(cx.db, key),
        Some(OnlyIf::Value(comparison)) => match cx.locked.string(cx.db, key)? {
            None => comparison.allows_absent(),
            Some(value) => comparison.holds(cx, &value)?,
        },
    };
    if allowed {
        set_expiring(cx, key, args.get(2), (options.expiry, deadline))?;
    }
    match (options.get, allowed) {
        (true, _) => {}
        (false, true) => cx.reply.ok(),
        (false, false) => cx.reply.null(),
    }
    Ok(())
}

/// Sets a string. `expiry`: the option with its deadline, if it has one.
fn set_expiring(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    value: &[u8],
    (option, deadline): (ExpiryOption<'_>, Option<UnixMs>),
) -> Done {
    let keeps = matches!(option, ExpiryOption::Keep);
    let expiry = if keeps { kept_expiry(cx, key) } else { deadline };
    cx.change(key, Change::Set { value, expiry })?;
    if deadline.is_some() {
        cx.announce(KeyEvent::EXPIRES, cx.db, key);
    }
    Ok(())
}

/// Returns the current expiry of a key, for a [`Change::Set`] that must not change it.
pub(super) fn kept_expiry(cx: &CommandContext<'_>, key: Key<'_>) -> Option<UnixMs> {
    if cx.locked.may_expire(cx.db, key.hash) {
        cx.locked.expiry(cx.db, key).flatten()
    } else {
        None
    }
}

pub(crate) const SETNX: Command = Command {
    name: "setnx",
    syntax: "key value",
    summary: "Sets the string value of a key that does not exist.",
    since: "1.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::Create)],
    run: setnx,
    ..Command::EMPTY
};

fn setnx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let absent = !cx.locked.contains(cx.db, key);
    if absent {
        cx.change(key, Change::Set { value: args.get(2), expiry: None })?;
    }
    cx.reply.integer(i64::from(absent));
    Ok(())
}

pub(crate) const SETEX: Command = Command {
    name: "setex",
    syntax: "key seconds value",
    summary: "Sets the string value of a key and its expiry in seconds.",
    since: "2.0.0",
    group: Group::String,
    arity: 4,
    flags: GROWS,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::Overwrite)],
    run: setex,
    ..Command::EMPTY
};

fn setex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let deadline = Moment::InSeconds.parse(args.get(2), cx.unix(), SETEX.name)?;
    set_until(cx, args, deadline)
}

/// PKSETEXAT, of Pika, whose tools for moving data send it.
pub(crate) const PKSETEXAT: Command = Command {
    name: "pksetexat",
    syntax: "key unix-time-seconds value",
    summary: "Sets the string value of a key and its expiry as a Unix time in seconds.",
    since: "Pika",
    run: pksetexat,
    ..SETEX
};

// Source: Pika 4.0, `pika_kv.cc`, `PKSetexAtCmd`
fn pksetexat(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let deadline = Moment::AtSeconds.parse(args.get(2), cx.unix(), PKSETEXAT.name)?;
    set_until(cx, args, deadline)
}

pub(crate) const PSETEX: Command = Command {
    name: "psetex",
    syntax: "key milliseconds value",
    summary: "Sets the string value of a key and its expiry in milliseconds.",
    since: "2.6.0",
    run: psetex,
    ..SETEX
};

fn psetex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let deadline = Moment::InMs.parse(args.get(2), cx.unix(), PSETEX.name)?;
    set_until(cx, args, deadline)
}

fn set_until(cx: &mut CommandContext<'_>, args: Args<'_>, deadline: UnixMs) -> Done {
    let key = cx.key(args.get(1));
    cx.change(key, Change::Set { value: args.get(3), expiry: Some(deadline) })?;
    cx.announce(KeyEvent::EXPIRES, cx.db, key);
    cx.reply.ok();
    Ok(())
}

pub(crate) const GETSET: Command = Command {
    name: "getset",
    syntax: "key value",
    summary: "Sets the string value of a key and returns the previous one.",
    since: "1.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: getset,
    ..Command::EMPTY
};

fn getset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    reply_string(cx, key)?;
    cx.change(key, Change::Set { value: args.get(2), expiry: None })
}

pub(crate) const GETDEL: Command = Command {
    name: "getdel",
    syntax: "key",
    summary: "Returns the string value of a key and deletes the key.",
    since: "6.2.0",
    group: Group::String,
    arity: 2,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::MISSES),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadDelete)],
    run: getdel,
    ..Command::EMPTY
};

fn getdel(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    cx.reply.bulk(&value);
    cx.delete(key)
}

/// GETEX: GET that changes the key's expiry.
pub(crate) const GETEX: Command = Command {
    name: "getex",
    syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
    summary: "Returns the string value of a key and sets or removes its expiry.",
    since: "6.2.0",
    group: Group::String,
    arity: -2,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::MISSES),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate).noted("RW and UPDATE because it changes the TTL")],
    run: getex,
    ..Command::EMPTY
};

fn getex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let option = parse_getex(args)?;
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let deadline = option.deadline(cx.unix(), GETEX.name)?;
    cx.reply.bulk(&value);
    match (deadline, option) {
        (Some(at), _) if at <= cx.expiry_now() => cx.delete(key),
        (Some(at), _) => cx.change_as(KeyEvent::EXPIRES, key, Change::Expire { at: Some(at) }),
        (None, ExpiryOption::Persist) if kept_expiry(cx, key).is_some() => {
            cx.change_as(PERSISTS, key, Change::Expire { at: None })
        }
        (None, _) => Ok(()),
    }
}

pub(crate) const MGET: Command = Command {
    name: "mget",
    syntax: "key [key ...]",
    summary: "Returns the string values of one or more keys.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -2,
    flags: READS_FAST,
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Read)],
    tips: &["request_policy:multi_shard"],
    run: mget,
    ..Command::EMPTY
};

fn mget(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.reply.array(args.len() - 1);
    for bytes in args.iter().skip(1) {
        let key = cx.key(bytes);
        match cx.locked.get(cx.db, key) {
            Some(Value::String(value)) => cx.reply.bulk(&value),
            _ => cx.reply.null(),
        }
        cx.check_reply()?;
    }
    Ok(())
}

pub(crate) const MSET: Command = Command {
    name: "mset",
    syntax: "key value [key value ...]",
    summary: "Sets the string values of one or more keys.",
    since: "1.0.1",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    events: SETS,
    keys: &[KeySpec::range(1, -1, 2, KeyAccess::Overwrite)],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    run: mset,
    ..Command::EMPTY
};

fn mset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_pairs(cx, args)?;
    set_pairs(cx, args)?;
    cx.reply.ok();
    Ok(())
}

pub(crate) const MSETNX: Command = Command {
    name: "msetnx",
    syntax: "key value [key value ...]",
    summary: "Sets the string values of one or more keys if none of them exists.",
    since: "1.0.1",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    events: SETS,
    keys: &[KeySpec::range(1, -1, 2, KeyAccess::Create)],
    run: msetnx,
    ..Command::EMPTY
};

fn msetnx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_pairs(cx, args)?;
    let mut keys = args.iter().skip(1).step_by(2);
    let absent = !keys.any(|bytes| cx.locked.contains(cx.db, cx.key(bytes)));
    if absent {
        set_pairs(cx, args)?;
    }
    cx.reply.integer(i64::from(absent));
    Ok(())
}

pub(crate) const MSETEX: Command = Command {
    name: "msetex",
    syntax: "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    summary: "Sets the string values of one or more keys, and one expiry for all of them.",
    since: "8.4.0",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -4,
    flags: GROWS.and(Flags::MOVABLEKEYS),
    events: SETS,
    keys: &[KeySpec::counted_pairs(1, KeyAccess::Overwrite)],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    run: msetex,
    ..Command::EMPTY
};

// Source: the documentation of Redis 8.4; Valkey 9.1 answers in the same way
fn msetex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let number = integer(args.get(1)).ok().and_then(|number| i32::try_from(number).ok());
    let pairs = number.and_then(|number| usize::try_from(number).ok()).filter(|pairs| *pairs > 0);
    let pairs = pairs.ok_or(Fail::text("ERR invalid numkeys value or out of range"))?;
    if pairs > (args.len() - 2) / 2 {
        return Err(Fail::Syntax);
    }
    let options_at = 2 + 2 * pairs;
    let options = SetOptions::parse_for_several(args.skip(options_at))?;
    let deadline = options.expiry.deadline(cx.unix(), MSETEX.name)?;
    let mut keys = args.range(2..options_at).iter().step_by(2);
    let mut exists = |bytes| cx.locked.contains(cx.db, cx.key(bytes));
    let allowed = match options.only_if {
        Some(OnlyIf::Absent) => !keys.any(exists),
        Some(OnlyIf::Present) => keys.all(&mut exists),
        _ => true,
    };
    if allowed {
        for at in (2..options_at).step_by(2) {
            let key = cx.key(args.get(at));
            set_expiring(cx, key, args.get(at + 1), (options.expiry, deadline))?;
        }
    }
    cx.reply.integer(i64::from(allowed));
    Ok(())
}

fn check_pairs(cx: &CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len().is_multiple_of(2) { Err(Fail::arity(cx.command.name)) } else { Ok(()) }
}

fn set_pairs(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    for at in (1..args.len()).step_by(2) {
        let key = cx.key(args.get(at));
        cx.change(key, Change::Set { value: args.get(at + 1), expiry: None })?;
    }
    Ok(())
}

pub(crate) const STRLEN: Command = Command {
    name: "strlen",
    syntax: "key",
    summary: "Returns the length of a string value in bytes.",
    since: "2.2.0",
    group: Group::String,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: strlen,
    ..Command::EMPTY
};

fn strlen(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let len = cx.locked.string(cx.db, key)?.map_or(0, |value| value.len());
    cx.reply.count(len);
    Ok(())
}

/// A length or count. Memory cannot hold more than `i64::MAX` bytes or elements.
pub(crate) fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

pub(crate) const APPEND: Command = Command {
    name: "append",
    syntax: "key value",
    summary: "Appends to the string value of a key; creates the key if it does not exist.",
    since: "2.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    events: Events::Each(Group::String.event("append")),
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: append,
    ..Command::EMPTY
};

fn append(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, bytes) = (cx.key(args.get(1)), args.get(2));
    let old_len = cx.locked.string(cx.db, key)?.map(|value| value.len());
    let end = old_len.unwrap_or(0) + bytes.len();
    cx.admit_string_end(old_len.unwrap_or(0), end as u64)?;
    let change = match old_len {
        Some(len) => Change::Edit { offset: len as u64, bytes },
        None => Change::Set { value: bytes, expiry: None },
    };
    cx.change(key, change)?;
    cx.reply.count(end);
    Ok(())
}

pub(crate) const SETRANGE: Command = Command {
    name: "setrange",
    syntax: "key offset value",
    summary: "Overwrites a part of a string value; a gap before it is filled with zero bytes.",
    since: "2.2.0",
    complexity: "O(N) in the bytes of the gap and of the part",
    group: Group::String,
    arity: 4,
    flags: GROWS,
    events: Events::Each(Group::String.event("setrange")),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: setrange,
    ..Command::EMPTY
};

fn setrange(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, bytes) = (cx.key(args.get(1)), args.get(3));
    let offset = u64::try_from(integer(args.get(2))?)
        .map_err(|_| Fail::text("ERR offset is out of range"))?;
    let mut len = cx.locked.string(cx.db, key)?.map_or(0, |value| value.len());
    if !bytes.is_empty() {
        let end = offset.saturating_add(bytes.len() as u64);
        cx.admit_string_end(len, end)?;
        cx.change(key, Change::Edit { offset, bytes })?;
        len = len.max(usize::try_from(end).unwrap_or(usize::MAX));
    }
    cx.reply.count(len);
    Ok(())
}

pub(crate) const GETRANGE: Command = Command {
    name: "getrange",
    syntax: "key start end",
    summary: "Returns a part of a string value; negative positions count from its end.",
    since: "2.4.0",
    complexity: "O(N) in the bytes returned",
    group: Group::String,
    arity: 4,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: getrange,
    ..Command::EMPTY
};

pub(crate) const SUBSTR: Command = Command {
    name: "substr",
    summary: "Returns a part of a string value: legacy name of GETRANGE.",
    since: "1.0.0",
    ..GETRANGE
};

fn getrange(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(args.get(2))?, integer(args.get(3))?);
    let key = cx.key(args.get(1));
    let value = cx.locked.string(cx.db, key)?.unwrap_or_default();
    cx.reply.bulk(&value[byte_range(start, end, value.len())]);
    Ok(())
}

/// Returns the bytes from `start` to `end` inclusive. An end before the first byte means the first
/// byte, unlike in list ranges.
// Source: Redis 7.2 `t_string.c`, `getrangeCommand`
fn byte_range(start: i64, end: i64, len: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_front = |at: i64| if at < 0 { at.saturating_add(count(len)).max(0) } else { at };
    // A start that does not fit is beyond the end of any string.
    let start = usize::try_from(from_front(start)).unwrap_or(usize::MAX);
    let end = usize::try_from(from_front(end)).unwrap_or(usize::MAX);
    let end = end.saturating_add(1).min(len);
    if start < end { start..end } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes() {
        let check = |start, end, len, expected| assert_eq!(byte_range(start, end, len), expected);
        check(0, 4, 11, 0..5);
        check(-5, -1, 11, 6..11);
        check(0, -1, 11, 0..11);
        check(6, 100, 11, 6..11);
        check(11, 20, 11, 0..0);
        check(5, 3, 11, 0..0);
        check(-1, -5, 11, 0..0);
        check(-100, 2, 11, 0..3);
        check(-100, -50, 11, 0..1);
        check(0, 0, 0, 0..0);
        check(-1, -1, 0, 0..0);
        check(i64::MAX, i64::MAX, 11, 0..0);
        check(i64::MIN, i64::MAX, 11, 0..11);
        check(i64::MIN, i64::MIN, 11, 0..1);
    }
}
