//! Numeric strings: INCR and related commands.

use store::types::Scalar;
use store::{Change, StoredString};
use wire::resp::{Args, LongDouble};

use super::GROWS_FAST;
use crate::commands::command::{Command, Done, Events, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;

pub(super) const INCREMENTS: KeyEvent = Group::String.event("incrby");
pub(super) const INCREMENTS_FLOAT: KeyEvent = Group::String.event("incrbyfloat");

pub(crate) const INCR: Command = Command {
    name: "incr",
    syntax: "key",
    summary: "Adds one to the integer value of a key; a missing key counts as 0.",
    since: "1.0.0",
    group: Group::String,
    arity: 2,
    flags: GROWS_FAST,
    events: Events::Each(INCREMENTS),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: |cx, args| increment(cx, args, 1),
    ..Command::EMPTY
};

pub(crate) const DECR: Command = Command {
    name: "decr",
    summary: "Subtracts one from the integer value of a key; a missing key counts as 0.",
    run: |cx, args| increment(cx, args, -1),
    ..INCR
};

pub(crate) const INCRBY: Command = Command {
    name: "incrby",
    syntax: "key increment",
    summary: "Adds a number to the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: |cx, args| increment(cx, args, integer(args.get(2))?),
    ..INCR
};

pub(crate) const DECRBY: Command = Command {
    name: "decrby",
    syntax: "key decrement",
    summary: "Subtracts a number from the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: decrby,
    ..INCR
};

fn decrby(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let by = integer(args.get(2))?;
    let by = by.checked_neg().ok_or(Fail::text("ERR decrement would overflow"))?;
    increment(cx, args, by)
}

fn increment(cx: &mut CommandContext<'_>, args: Args<'_>, by: i64) -> Done {
    let key = cx.key(args.get(1));
    let (old, expiry) = match cx.locked.string_and_expiry(cx.db, key)? {
        None => (0, None),
        Some(StoredString { value: Scalar::Int(number), expiry }) => (number, expiry),
        Some(StoredString { value: Scalar::Bytes(text), expiry }) => (integer(text)?, expiry),
    };
    let new = old.checked_add(by).ok_or(Fail::Overflow)?;
    let mut text = itoa::Buffer::new();
    let value = text.format(new).as_bytes();
    cx.change(key, Change::Set { value, expiry })?;
    cx.reply.integer(new);
    Ok(())
}

pub(crate) const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    syntax: "key increment",
    summary: "Adds a floating-point number to the value of a key; a missing key counts as 0.",
    since: "2.6.0",
    arity: 3,
    events: Events::Each(INCREMENTS_FLOAT),
    run: incrbyfloat,
    ..INCR
};

fn incrbyfloat(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let old = cx.locked.string_and_expiry(cx.db, key)?;
    let (old, expiry) = old.map_or((Scalar::Int(0), None), |old| (old.value, old.expiry));
    let old = old.with_bytes(LongDouble::parse).ok_or(Fail::NotFloat)?;
    let by = LongDouble::parse(args.get(2)).ok_or(Fail::NotFloat)?;
    let value = float_sum(old, by)?;
    cx.change(key, Change::Set { value: &value, expiry })?;
    cx.locked.mark_text(cx.db, key);
    cx.reply.bulk(&value);
    Ok(())
}

/// Returns the text of a sum, as stored and replied.
// Source: Redis 7.2 `t_string.c`, `incrbyfloatCommand`
pub(crate) fn float_sum(old: LongDouble, by: LongDouble) -> Result<Vec<u8>, Fail> {
    let sum =
        old.checked_add(by).ok_or(Fail::text("ERR increment would produce NaN or Infinity"))?;
    Ok(sum.fixed_text())
}
