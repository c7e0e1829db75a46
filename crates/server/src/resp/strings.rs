//! String commands.

use std::ops::Range;

use base::time::UnixMs;
use store::{Change, Key, Locked, Value};
use wire::resp::{Args, ReplyWriter, fixed_double_text};

use super::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::cx::{Cx, float, integer, is_option};
use super::fail::Fail;

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const GROWS: Flags = Flags::WRITE.and(Flags::DENYOOM);
const GROWS_FAST: Flags = GROWS.and(Flags::FAST);

/// GET: the value of a key, null when it does not exist.
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

fn get(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    reply_string(cx, key)
}

/// The string at `key` as a bulk string, null when there is none.
#[inline]
fn reply_string(cx: &mut Cx<'_>, key: Key<'_>) -> Done {
    match cx.locked.string(cx.db, key)? {
        Some(value) => cx.reply.bulk(value),
        None => cx.reply.null(),
    }
    Ok(())
}

/// SET: the key becomes this string, whatever it was.
pub(crate) const SET: Command = Command {
    name: "set",
    syntax: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    summary: "Sets the string value of a key, whatever its type was, and its expiry.",
    since: "1.0.0",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: set,
    ..Command::EMPTY
};

#[inline]
fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    if args.len() > 3 {
        return set_with_options(cx, key, args);
    }
    cx.change(key, Change::Set { value: args.get(2), expiry: None })?;
    cx.reply.ok();
    Ok(())
}

/// Apart from [`set`], so that the path of a plain SET stays small.
#[inline(never)]
fn set_with_options(cx: &mut Cx<'_>, key: Key<'_>, args: Args<'_>) -> Done {
    let options = SetOptions::parse(args)?;
    let deadline = options.expiry.deadline(cx.unix(), SET.name)?;
    if options.get {
        reply_string(cx, key)?;
    }
    let allowed = match options.only_if {
        None => true,
        Some(OnlyIf::Absent) => !cx.locked.contains(cx.db, key),
        Some(OnlyIf::Present) => cx.locked.contains(cx.db, key),
    };
    if allowed {
        let keeps = matches!(options.expiry, ExpiryOption::Keep);
        let expiry = if keeps { kept_expiry(cx, key) } else { deadline };
        cx.change(key, Change::Set { value: args.get(2), expiry })?;
    }
    match (options.get, allowed) {
        (true, _) => {}
        (false, true) => cx.reply.ok(),
        (false, false) => cx.reply.null(),
    }
    Ok(())
}

/// The expiry that a key has, for a [`Change::Set`] that is to leave it alone.
fn kept_expiry(cx: &Cx<'_>, key: Key<'_>) -> Option<UnixMs> {
    if cx.locked.may_expire(cx.db, key.hash) {
        cx.locked.expiry(cx.db, key).flatten()
    } else {
        None
    }
}

/// NX and XX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnlyIf {
    Absent,
    Present,
}

/// How an option gives a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    InSeconds,
    InMs,
    AtSeconds,
    AtMs,
}

impl Moment {
    fn of_option(name: &[u8]) -> Option<Moment> {
        let known = [
            ("EX", Moment::InSeconds),
            ("PX", Moment::InMs),
            ("EXAT", Moment::AtSeconds),
            ("PXAT", Moment::AtMs),
        ];
        known.into_iter().find(|(option, _)| is_option(name, option)).map(|(_, moment)| moment)
    }

    /// Unix milliseconds; `None` for a number that is not above zero, or too large.
    fn resolve(self, number: i64, now: UnixMs) -> Option<UnixMs> {
        if number <= 0 {
            return None;
        }
        let ms = match self {
            Moment::InSeconds | Moment::AtSeconds => number.checked_mul(1000)?,
            Moment::InMs | Moment::AtMs => number,
        };
        let ms = match self {
            Moment::InSeconds | Moment::InMs => ms.checked_add(i64::try_from(now.0).ok()?)?,
            Moment::AtSeconds | Moment::AtMs => ms,
        };
        Some(UnixMs(ms.cast_unsigned()))
    }

    /// The same for the text of an argument of `command`.
    fn parse(self, text: &[u8], now: UnixMs, command: &str) -> Result<UnixMs, Fail> {
        self.resolve(integer(text)?, now)
            .ok_or_else(|| Fail::owned(format!("ERR invalid expire time in '{command}' command")))
    }
}

/// What SET and GETEX are told about the expiry. The number is read after the syntax of all
/// options, as Redis does.
#[derive(Debug, Clone, Copy)]
enum ExpiryOption<'a> {
    /// Nothing said.
    Unsaid,
    Keep,
    Persist,
    Until(Moment, &'a [u8]),
}

impl<'a> ExpiryOption<'a> {
    /// Takes one more option. The same one may come again, the last counts.
    fn add(&mut self, option: ExpiryOption<'a>) -> Done {
        let fits = match (*self, option) {
            (ExpiryOption::Until(old, _), ExpiryOption::Until(new, _)) => old == new,
            (ExpiryOption::Unsaid, _)
            | (ExpiryOption::Keep, ExpiryOption::Keep)
            | (ExpiryOption::Persist, ExpiryOption::Persist) => true,
            _ => false,
        };
        *self = option;
        if fits { Ok(()) } else { Err(Fail::Syntax) }
    }

    fn deadline(self, now: UnixMs, command: &str) -> Result<Option<UnixMs>, Fail> {
        match self {
            ExpiryOption::Until(moment, text) => moment.parse(text, now, command).map(Some),
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
struct SetOptions<'a> {
    expiry: ExpiryOption<'a>,
    only_if: Option<OnlyIf>,
    get: bool,
}

impl<'a> SetOptions<'a> {
    // Source: Redis 7.2 `t_string.c`, `parseExtendedStringArgumentsOrReply`
    fn parse(args: Args<'a>) -> Result<SetOptions<'a>, Fail> {
        let mut options = SetOptions { expiry: ExpiryOption::Unsaid, only_if: None, get: false };
        let mut rest = args.skip(3).iter();
        while let Some(name) = rest.next() {
            if is_option(name, "NX") {
                options.only_if(OnlyIf::Absent)?;
            } else if is_option(name, "XX") {
                options.only_if(OnlyIf::Present)?;
            } else if is_option(name, "GET") {
                options.get = true;
            } else if is_option(name, "KEEPTTL") {
                options.expiry.add(ExpiryOption::Keep)?;
            } else {
                let moment = Moment::of_option(name).ok_or(Fail::Syntax)?;
                let text = rest.next().ok_or(Fail::Syntax)?;
                options.expiry.add(ExpiryOption::Until(moment, text))?;
            }
        }
        Ok(options)
    }

    fn only_if(&mut self, only_if: OnlyIf) -> Done {
        if self.only_if.is_some_and(|known| known != only_if) {
            return Err(Fail::Syntax);
        }
        self.only_if = Some(only_if);
        Ok(())
    }
}

/// SETNX: SET of a key that does not exist.
pub(crate) const SETNX: Command = Command {
    name: "setnx",
    syntax: "key value",
    summary: "Sets the string value of a key that does not exist.",
    since: "1.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    keys: &[KeySpec::one(KeyAccess::Overwrite)],
    run: setnx,
    ..Command::EMPTY
};

fn setnx(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let absent = !cx.locked.contains(cx.db, key);
    if absent {
        cx.change(key, Change::Set { value: args.get(2), expiry: None })?;
    }
    cx.reply.integer(i64::from(absent));
    Ok(())
}

/// SETEX: SET with an expiry in seconds.
pub(crate) const SETEX: Command = Command {
    name: "setex",
    syntax: "key seconds value",
    summary: "Sets the string value of a key and its expiry in seconds.",
    since: "2.0.0",
    group: Group::String,
    arity: 4,
    flags: GROWS,
    keys: &[KeySpec::one(KeyAccess::Overwrite)],
    run: setex,
    ..Command::EMPTY
};

fn setex(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let deadline = Moment::InSeconds.parse(args.get(2), cx.unix(), SETEX.name)?;
    set_until(cx, args, deadline)
}

/// PSETEX: SET with an expiry in milliseconds.
pub(crate) const PSETEX: Command = Command {
    name: "psetex",
    syntax: "key milliseconds value",
    summary: "Sets the string value of a key and its expiry in milliseconds.",
    since: "2.6.0",
    group: Group::String,
    arity: 4,
    flags: GROWS,
    keys: &[KeySpec::one(KeyAccess::Overwrite)],
    run: psetex,
    ..Command::EMPTY
};

fn psetex(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let deadline = Moment::InMs.parse(args.get(2), cx.unix(), PSETEX.name)?;
    set_until(cx, args, deadline)
}

fn set_until(cx: &mut Cx<'_>, args: Args<'_>, deadline: UnixMs) -> Done {
    let key = cx.key(args.get(1));
    cx.change(key, Change::Set { value: args.get(3), expiry: Some(deadline) })?;
    cx.reply.ok();
    Ok(())
}

/// GETSET: SET that returns the string before it.
pub(crate) const GETSET: Command = Command {
    name: "getset",
    syntax: "key value",
    summary: "Sets the string value of a key and returns the one before.",
    since: "1.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: getset,
    ..Command::EMPTY
};

fn getset(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    reply_string(cx, key)?;
    cx.change(key, Change::Set { value: args.get(2), expiry: None })
}

/// GETDEL: GET, and the key is deleted.
pub(crate) const GETDEL: Command = Command {
    name: "getdel",
    syntax: "key",
    summary: "Returns the string value of a key and deletes the key.",
    since: "6.2.0",
    group: Group::String,
    arity: 2,
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: getdel,
    ..Command::EMPTY
};

fn getdel(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    cx.reply.bulk(value);
    cx.change(key, Change::Delete)
}

/// GETEX: GET, and the key's expiry changes.
pub(crate) const GETEX: Command = Command {
    name: "getex",
    syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
    summary: "Returns the string value of a key and sets or removes its expiry.",
    since: "6.2.0",
    group: Group::String,
    arity: -2,
    flags: Flags::WRITE.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: getex,
    ..Command::EMPTY
};

fn getex(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let option = parse_getex(args)?;
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let deadline = option.deadline(cx.unix(), GETEX.name)?;
    cx.reply.bulk(value);
    match (deadline, option) {
        (Some(at), _) if at <= cx.unix() => cx.change(key, Change::Delete),
        (Some(at), _) => cx.change(key, Change::Expire { at: Some(at) }),
        (None, ExpiryOption::Persist) if kept_expiry(cx, key).is_some() => {
            cx.change(key, Change::Expire { at: None })
        }
        (None, _) => Ok(()),
    }
}

fn parse_getex(args: Args<'_>) -> Result<ExpiryOption<'_>, Fail> {
    let mut option = ExpiryOption::Unsaid;
    let mut rest = args.skip(2).iter();
    while let Some(name) = rest.next() {
        if is_option(name, "PERSIST") {
            option.add(ExpiryOption::Persist)?;
        } else {
            let moment = Moment::of_option(name).ok_or(Fail::Syntax)?;
            option.add(ExpiryOption::Until(moment, rest.next().ok_or(Fail::Syntax)?))?;
        }
    }
    Ok(option)
}

/// MGET: the strings of several keys.
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
    run: mget,
    ..Command::EMPTY
};

fn mget(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    cx.reply.array(args.len() - 1);
    for bytes in args.iter().skip(1) {
        let key = cx.key(bytes);
        match cx.locked.get(cx.db, key) {
            Some(Value::String(value)) => cx.reply.bulk(value),
            _ => cx.reply.null(),
        }
    }
    Ok(())
}

/// MSET: SET of several keys at once.
pub(crate) const MSET: Command = Command {
    name: "mset",
    syntax: "key value [key value ...]",
    summary: "Sets the string values of one or more keys.",
    since: "1.0.1",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    keys: &[KeySpec::range(1, -1, 2, KeyAccess::Overwrite)],
    run: mset,
    ..Command::EMPTY
};

fn mset(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    check_pairs(args, MSET.name)?;
    set_pairs(cx, args)?;
    cx.reply.ok();
    Ok(())
}

/// MSETNX: MSET, unless one of the keys exists.
pub(crate) const MSETNX: Command = Command {
    name: "msetnx",
    syntax: "key value [key value ...]",
    summary: "Sets the string values of one or more keys if none of them exists.",
    since: "1.0.1",
    complexity: "O(N) in the number of keys",
    group: Group::String,
    arity: -3,
    flags: GROWS,
    keys: &[KeySpec::range(1, -1, 2, KeyAccess::Overwrite)],
    run: msetnx,
    ..Command::EMPTY
};

fn msetnx(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    check_pairs(args, MSETNX.name)?;
    let mut keys = args.iter().skip(1).step_by(2);
    let absent = !keys.any(|bytes| cx.locked.contains(cx.db, cx.key(bytes)));
    if absent {
        set_pairs(cx, args)?;
    }
    cx.reply.integer(i64::from(absent));
    Ok(())
}

fn check_pairs(args: Args<'_>, command: &str) -> Done {
    if args.len() % 2 == 0 { Err(Fail::arity(command)) } else { Ok(()) }
}

fn set_pairs(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    for at in (1..args.len()).step_by(2) {
        let key = cx.key(args.get(at));
        cx.change(key, Change::Set { value: args.get(at + 1), expiry: None })?;
    }
    Ok(())
}

/// STRLEN: the bytes of a string.
pub(crate) const STRLEN: Command = Command {
    name: "strlen",
    syntax: "key",
    summary: "Returns the length of a string value in bytes.",
    since: "2.2.0",
    group: Group::String,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Look)],
    run: strlen,
    ..Command::EMPTY
};

fn strlen(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let len = cx.locked.string(cx.db, key)?.map_or(0, <[u8]>::len);
    cx.reply.integer(count(len));
    Ok(())
}

/// A length or count in a reply. No memory holds more than `i64::MAX` bytes or elements.
pub(super) fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// APPEND: bytes at the end of a string.
pub(crate) const APPEND: Command = Command {
    name: "append",
    syntax: "key value",
    summary: "Appends to the string value of a key; creates the key if it does not exist.",
    since: "2.0.0",
    group: Group::String,
    arity: 3,
    flags: GROWS_FAST,
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: append,
    ..Command::EMPTY
};

fn append(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (key, bytes) = (cx.key(args.get(1)), args.get(2));
    let old_len = cx.locked.string(cx.db, key)?.map(<[u8]>::len);
    let offset = old_len.unwrap_or(0);
    if old_len.is_none() || !bytes.is_empty() {
        cx.change(key, Change::Edit { offset: offset as u64, bytes })?;
    }
    cx.reply.integer(count(offset + bytes.len()));
    Ok(())
}

/// SETRANGE: bytes in the middle of a string.
pub(crate) const SETRANGE: Command = Command {
    name: "setrange",
    syntax: "key offset value",
    summary: "Overwrites a part of a string value; a gap before it is filled with zero bytes.",
    since: "2.2.0",
    complexity: "O(N) in the bytes of the gap and of the part",
    group: Group::String,
    arity: 4,
    flags: GROWS,
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: setrange,
    ..Command::EMPTY
};

fn setrange(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (key, bytes) = (cx.key(args.get(1)), args.get(3));
    let offset = u64::try_from(integer(args.get(2))?)
        .map_err(|_| Fail::text("ERR offset is out of range"))?;
    let mut len = cx.locked.string(cx.db, key)?.map_or(0, <[u8]>::len) as u64;
    if !bytes.is_empty() {
        // Refuses a string that gets longer than 512 MiB.
        cx.change(key, Change::Edit { offset, bytes })?;
        len = len.max(offset + bytes.len() as u64);
    }
    cx.reply.integer(len.cast_signed());
    Ok(())
}

/// GETRANGE: a part of a string.
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

/// SUBSTR: the old name of GETRANGE.
pub(crate) const SUBSTR: Command = Command {
    name: "substr",
    summary: "Returns a part of a string value: the old name of GETRANGE.",
    since: "1.0.0",
    ..GETRANGE
};

fn getrange(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(args.get(2))?, integer(args.get(3))?);
    let key = cx.key(args.get(1));
    let value = cx.locked.string(cx.db, key)?.unwrap_or_default();
    cx.reply.bulk(&value[byte_range(start, end, value.len())]);
    Ok(())
}

/// The bytes from `start` to `end` inclusive. An end before the first byte means the first byte,
/// other than in the ranges of lists.
// Source: Redis 7.2 `t_string.c`, `getrangeCommand`
fn byte_range(start: i64, end: i64, len: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_front = |at: i64| if at < 0 { at.saturating_add(count(len)).max(0) } else { at };
    // What does not fit is behind the end of any string.
    let start = usize::try_from(from_front(start)).unwrap_or(usize::MAX);
    let end = usize::try_from(from_front(end)).unwrap_or(usize::MAX);
    let end = end.saturating_add(1).min(len);
    if start < end { start..end } else { 0..0 }
}

/// INCR: one more.
pub(crate) const INCR: Command = Command {
    name: "incr",
    syntax: "key",
    summary: "Adds one to the integer value of a key; a missing key counts as 0.",
    since: "1.0.0",
    group: Group::String,
    arity: 2,
    flags: GROWS_FAST,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: incr,
    ..Command::EMPTY
};

fn incr(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, 1)
}

/// DECR: one less.
pub(crate) const DECR: Command = Command {
    name: "decr",
    summary: "Takes one off the integer value of a key; a missing key counts as 0.",
    run: decr,
    ..INCR
};

fn decr(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, -1)
}

/// INCRBY: more by a number.
pub(crate) const INCRBY: Command = Command {
    name: "incrby",
    syntax: "key increment",
    summary: "Adds a number to the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: incrby,
    ..INCR
};

fn incrby(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, integer(args.get(2))?)
}

/// DECRBY: less by a number.
pub(crate) const DECRBY: Command = Command {
    name: "decrby",
    syntax: "key decrement",
    summary: "Takes a number off the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: decrby,
    ..INCR
};

fn decrby(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let by = integer(args.get(2))?;
    let by = by.checked_neg().ok_or(Fail::text("ERR decrement would overflow"))?;
    increment(cx, args, by)
}

fn increment(cx: &mut Cx<'_>, args: Args<'_>, by: i64) -> Done {
    let key = cx.key(args.get(1));
    let old = cx.locked.string(cx.db, key)?.map_or(Ok(0), integer)?;
    let new = old.checked_add(by).ok_or(Fail::Overflow)?;
    let mut text = itoa::Buffer::new();
    let value = text.format(new).as_bytes();
    let expiry = kept_expiry(cx, key);
    cx.change(key, Change::Set { value, expiry })?;
    cx.reply.integer(new);
    Ok(())
}

/// INCRBYFLOAT: more by a number with a fraction.
pub(crate) const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    syntax: "key increment",
    summary: "Adds a number with a fraction to the value of a key; a missing key counts as 0.",
    since: "2.6.0",
    arity: 3,
    run: incrbyfloat,
    ..INCR
};

fn incrbyfloat(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (key, by) = (cx.key(args.get(1)), args.get(2));
    let old = cx.locked.string(cx.db, key)?.unwrap_or(b"0");
    float(old)?;
    float(by)?;
    let value = float_sum_text(old, by)?;
    let expiry = kept_expiry(cx, key);
    cx.change(key, Change::Set { value: &value, expiry })?;
    cx.reply.bulk(&value);
    Ok(())
}

/// Decimal places of a sum of floating-point texts.
const SUM_DECIMALS: i32 = 17;

/// The sum of two valid floating-point texts, without an exponent and with at most 17 decimals.
///
/// Redis adds in 80 bits and rounds to 17 decimals, so that 0.1 + 0.2 is 0.3. Where both texts fit a
/// whole number of 10^-17 in 128 bits, which is below 10^21, the sum is exact here; else it is that
/// of 64-bit floats.
// Source: Redis 7.2 `t_string.c`, `incrbyfloatCommand`
pub(super) fn float_sum_text(old: &[u8], by: &[u8]) -> Result<Vec<u8>, Fail> {
    let exact = parse_decimal(old).zip(parse_decimal(by)).and_then(|(a, b)| a.checked_add(b));
    if let Some(sum) = exact {
        return Ok(decimal_text(sum));
    }
    let sum = float(old)? + float(by)?;
    if !sum.is_finite() {
        return Err(Fail::text("ERR increment would produce NaN or Infinity"));
    }
    let mut text = Vec::new();
    fixed_double_text(sum, &mut text);
    Ok(text)
}

/// A decimal text in units of 10^-17, if it is a whole number of them.
fn parse_decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (text, 0i32),
    };
    let negative = mantissa.starts_with('-');
    let digits = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number = whole.bytes().chain(fraction.bytes()).try_fold(0i128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    let fraction_len = i32::try_from(fraction.len()).ok()?;
    let shift = exponent.checked_add(SUM_DECIMALS)?.checked_sub(fraction_len)?;
    let power = 10i128.checked_pow(shift.unsigned_abs())?;
    let units = if shift >= 0 {
        number.checked_mul(power)?
    } else {
        (number % power == 0).then_some(number / power)?
    };
    Some(if negative { -units } else { units })
}

/// The shortest decimal text of a number of 10^-17.
fn decimal_text(units: i128) -> Vec<u8> {
    let one = 10u128.pow(SUM_DECIMALS.unsigned_abs());
    let (whole, fraction) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let sign = if units < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:017}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// LCS: the longest common subsequence.
pub(crate) const LCS: Command = Command {
    name: "lcs",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    summary: "Finds the longest common subsequence of two strings.",
    since: "7.0.0",
    complexity: "O(N*M) in the lengths of the strings",
    group: Group::String,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::range(1, 2, 1, KeyAccess::Read)],
    run: lcs,
    ..Command::EMPTY
};

fn lcs(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (first, second) = (cx.key(args.get(1)), cx.key(args.get(2)));
    let a = lcs_string(&cx.locked, cx.db, first)?;
    let b = lcs_string(&cx.locked, cx.db, second)?;
    let options = LcsOptions::parse(args)?;
    let lengths = LcsLengths::new(a, b)?;
    if options.wants_len {
        cx.reply.integer(lengths.total());
    } else if options.wants_indexes {
        let mut runs = lengths.common_runs(a, b);
        runs.retain(|run| run.len >= options.run_len_min);
        write_runs(&mut cx.reply, &runs, &options, lengths.total());
    } else {
        let runs = lengths.common_runs(a, b);
        let parts: Vec<&[u8]> =
            runs.iter().rev().map(|run| &a[run.a_start..run.a_start + run.len]).collect();
        cx.reply.bulk(&parts.concat());
    }
    Ok(())
}

fn lcs_string<'a>(locked: &'a Locked<'_>, db: u8, key: Key<'_>) -> Result<&'a [u8], Fail> {
    locked
        .string(db, key)
        .map(Option::unwrap_or_default)
        .map_err(|_| Fail::text("ERR The specified keys must contain string values"))
}

#[derive(Debug, Default)]
struct LcsOptions {
    wants_len: bool,
    wants_indexes: bool,
    run_len_min: usize,
    with_run_len: bool,
}

impl LcsOptions {
    fn parse(args: Args<'_>) -> Result<LcsOptions, Fail> {
        let mut options = LcsOptions::default();
        let mut rest = args.skip(3).iter();
        while let Some(name) = rest.next() {
            if is_option(name, "LEN") {
                options.wants_len = true;
            } else if is_option(name, "IDX") {
                options.wants_indexes = true;
            } else if is_option(name, "WITHMATCHLEN") {
                options.with_run_len = true;
            } else if is_option(name, "MINMATCHLEN") {
                let len = integer(rest.next().ok_or(Fail::Syntax)?)?;
                options.run_len_min = usize::try_from(len).unwrap_or(0);
            } else {
                return Err(Fail::Syntax);
            }
        }
        if options.wants_len && options.wants_indexes {
            return Err(Fail::text(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// Bytes of both strings that are equal, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    a_start: usize,
    b_start: usize,
    len: usize,
}

/// The length of the longest common subsequence of every pair of prefixes.
struct LcsLengths {
    cells: Vec<u32>,
    row_len: usize,
}

impl LcsLengths {
    /// O(a * b) in time and memory; refused above 512 MiB, which also bounds the time.
    fn new(a: &[u8], b: &[u8]) -> Result<LcsLengths, Fail> {
        const BYTES_MAX: usize = 512 * 1024 * 1024;
        let row_len = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(row_len);
        let cells =
            cells.filter(|cells| *cells <= BYTES_MAX / size_of::<u32>()).ok_or(Fail::text(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ))?;
        let mut lengths = LcsLengths { cells: vec![0; cells], row_len };
        for (i, a_byte) in a.iter().enumerate() {
            let (above, below) = lengths.cells[i * row_len..].split_at_mut(row_len);
            for (j, b_byte) in b.iter().enumerate() {
                below[j + 1] =
                    if a_byte == b_byte { above[j] + 1 } else { above[j + 1].max(below[j]) };
            }
        }
        Ok(lengths)
    }

    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.cells[a_len * self.row_len + b_len]
    }

    fn total(&self) -> i64 {
        self.cells.last().map_or(0, |len| i64::from(*len))
    }

    /// The runs that make up one longest common subsequence, the last first.
    // Source: Redis 7.2 `t_string.c`, `lcsCommand`: the same choice among equally long ones
    fn common_runs(&self, a: &[u8], b: &[u8]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] != b[j - 1] {
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.a_start == i && run.b_start == j => {
                    *run = Run { a_start: i - 1, b_start: j - 1, len: run.len + 1 };
                }
                _ => runs.push(Run { a_start: i - 1, b_start: j - 1, len: 1 }),
            }
            i -= 1;
            j -= 1;
        }
        runs
    }
}

fn write_runs(reply: &mut ReplyWriter<'_>, runs: &[Run], options: &LcsOptions, total: i64) {
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for run in runs {
        reply.array(if options.with_run_len { 3 } else { 2 });
        for start in [run.a_start, run.b_start] {
            reply.array(2);
            reply.integer(count(start));
            reply.integer(count(start + run.len - 1));
        }
        if options.with_run_len {
            reply.integer(count(run.len));
        }
    }
    reply.bulk(b"len");
    reply.integer(total);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn moments() {
        let now = UnixMs(1_000);
        let check = |moment: Moment, number, expected: Option<u64>| {
            assert_eq!(moment.resolve(number, now), expected.map(UnixMs), "{moment:?} {number}");
        };
        check(Moment::InSeconds, 2, Some(3_000));
        check(Moment::InMs, 2, Some(1_002));
        check(Moment::AtSeconds, 2, Some(2_000));
        check(Moment::AtMs, 2, Some(2));
        for moment in [Moment::InSeconds, Moment::InMs, Moment::AtSeconds, Moment::AtMs] {
            check(moment, 0, None);
            check(moment, -1, None);
        }
        check(Moment::AtMs, i64::MAX, Some(i64::MAX.cast_unsigned()));
        check(Moment::InMs, i64::MAX, None);
        check(Moment::InSeconds, i64::MAX / 1000, None);
        check(Moment::AtSeconds, i64::MAX / 1000 + 1, None);
    }

    #[track_caller]
    fn check_sum(old: &str, by: &str, expected: &str) {
        let text = float_sum_text(old.as_bytes(), by.as_bytes()).expect("a sum");
        assert_eq!(String::from_utf8_lossy(&text), expected, "{old} + {by}");
    }

    #[test]
    fn sums_of_floats() {
        check_sum("0.1", "0.2", "0.3");
        check_sum("1.5", "1.5", "3");
        check_sum("3", "-3", "0");
        check_sum("-0.25", "0.5", "0.25");
        check_sum("0.25", "-0.5", "-0.25");
        check_sum("5.0e3", "2.0E+2", "5200");
        check_sum("1e-17", "0", "0.00000000000000001");
        check_sum("+.5", "1.", "1.5");
        check_sum("-0", "0", "0");
        check_sum("123456789012345678901", "0.5", "123456789012345678901.5");
        check_sum("1e30", "1", "1000000000000000000000000000000");
        check_sum("1e-300", "0", "0");
        check_sum("3.000000000000000000", "1", "4");
    }

    #[test]
    fn sums_that_are_no_number() {
        assert!(float_sum_text(b"inf", b"1").is_err());
        assert!(float_sum_text(b"inf", b"-inf").is_err());
        assert!(float_sum_text(b"1e308", b"1.7e308").is_err());
    }

    fn common(a: &[u8], b: &[u8]) -> Vec<u8> {
        let lengths = LcsLengths::new(a, b).expect("short");
        let runs = lengths.common_runs(a, b);
        let parts = runs.iter().rev().map(|run| {
            let bytes = &a[run.a_start..run.a_start + run.len];
            assert_eq!(bytes, &b[run.b_start..run.b_start + run.len]);
            bytes
        });
        let text = parts.collect::<Vec<_>>().concat();
        assert_eq!(count(text.len()), lengths.total());
        text
    }

    fn is_subsequence(part: &[u8], of: &[u8]) -> bool {
        let mut rest = of.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    #[test]
    fn longest_common_subsequences() {
        assert_eq!(common(b"ohmytext", b"mynewtext"), b"mytext");
        assert_eq!(common(b"", b"abc"), b"");
        let lengths = LcsLengths::new(b"ohmytext", b"mynewtext").expect("short");
        let runs = lengths.common_runs(b"ohmytext", b"mynewtext");
        let expected =
            [Run { a_start: 4, b_start: 5, len: 4 }, Run { a_start: 2, b_start: 0, len: 2 }];
        assert_eq!(runs, expected);
    }

    #[test]
    fn too_long_strings_have_no_common_subsequence() {
        assert!(LcsLengths::new(&[0; 20_000], &[0; 20_000]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_common_is_in_both(
            a in proptest::collection::vec(0u8..3, 0..30),
            b in proptest::collection::vec(0u8..3, 0..30),
        ) {
            let text = common(&a, &b);
            prop_assert!(is_subsequence(&text, &a));
            prop_assert!(is_subsequence(&text, &b));
        }

        #[test]
        fn sums_of_hundredths_are_exact(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
            let text = |n: i64| format!("{n}e-2").into_bytes();
            let sum = float_sum_text(&text(a), &text(b)).expect("a sum");
            let value = wire::resp::parse_f64(&sum).expect("a number");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = (a + b) as f64 / 100.0;
            prop_assert_eq!(value.to_bits(), expected.to_bits());
        }
    }
}
