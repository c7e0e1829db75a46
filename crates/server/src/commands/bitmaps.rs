//! Bitmap commands: the bits of string values. Bit 0 is the highest bit of the first byte.

mod bits;
mod fields;
mod operation;

use store::Change;
use wire::resp::{Args, parse_i64_strict};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, SCANNED_BYTES, integer, is_option};
use super::fail::Fail;
use crate::config::KeyEvent;
use bits::{Bound, count_ones, find};

pub(super) use fields::writes_fields;
pub(crate) use fields::{BITFIELD, BITFIELD_RO};
pub(crate) use operation::BITOP;

const CHANGED: KeyEvent = Group::Bitmap.event("setbit");

const BAD_OFFSET: Fail = Fail::text("ERR bit offset is not an integer or out of range");

/// Parses the offset of a bit in a string of at most `len_max` bytes.
// Source: Redis 7.2 `bitops.c`, `getBitOffsetFromArgument`
fn bit_offset(text: &[u8], len_max: u64) -> Result<u64, Fail> {
    let offset = parse_i64_strict(text).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < len_max).ok_or(BAD_OFFSET)
}

fn string_len_max(cx: &CommandContext<'_>) -> u64 {
    cx.reactor.settings.proto_max_bulk_len_bytes
}

/// The byte of a bit, and the bit within it.
fn place_of(offset: u64) -> (usize, u8) {
    (usize::try_from(offset / 8).unwrap_or(usize::MAX), 0x80 >> (offset % 8))
}

pub(crate) const SETBIT: Command = Command {
    name: "setbit",
    syntax: "key offset value",
    summary: "Sets or clears a bit of a string value and returns its previous value.",
    since: "2.2.0",
    complexity: "O(1); O(N) in the bytes by which the string grows",
    group: Group::Bitmap,
    arity: 4,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Each(CHANGED),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: setbit,
    ..Command::EMPTY
};

fn setbit(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let offset = bit_offset(args.get(2), string_len_max(cx))?;
    let is_set = match parse_i64_strict(args.get(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Fail::text("ERR bit is not an integer or out of range")),
    };
    let key = cx.key(args.get(1));
    let value = cx.locked.string(cx.db, key)?.unwrap_or_default();
    let (at, mask) = place_of(offset);
    let (len, old) = (value.len(), value.get(at).copied());
    let byte = old.unwrap_or(0);
    let new = if is_set { byte | mask } else { byte & !mask };
    if old != Some(new) {
        let offset = offset / 8;
        cx.admit_string_end(len, offset + 1)?;
        cx.change(key, Change::Edit { offset, bytes: &[new] })?;
    }
    cx.reply.integer(i64::from(byte & mask != 0));
    Ok(())
}

pub(crate) const GETBIT: Command = Command {
    name: "getbit",
    syntax: "key offset",
    summary: "Returns a bit of a string value; those beyond its end are 0.",
    since: "2.2.0",
    group: Group::Bitmap,
    arity: 3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: getbit,
    ..Command::EMPTY
};

fn getbit(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (at, mask) = place_of(bit_offset(args.get(2), string_len_max(cx))?);
    let key = cx.key(args.get(1));
    let byte = cx.locked.string(cx.db, key)?.and_then(|value| value.get(at).copied());
    cx.reply.integer(i64::from(byte.is_some_and(|byte| byte & mask != 0)));
    Ok(())
}

/// Parses BYTE or BIT. True if positions are bits.
fn counts_bits(text: Option<&[u8]>) -> Result<bool, Fail> {
    match text {
        None => Ok(false),
        Some(unit) if is_option(unit, "BYTE") => Ok(false),
        Some(unit) if is_option(unit, "BIT") => Ok(true),
        Some(_) => Err(Fail::Syntax),
    }
}

pub(crate) const BITCOUNT: Command = Command {
    name: "bitcount",
    syntax: "key [start end [BYTE | BIT]]",
    summary: "Counts the bits that are 1, in a whole string value or a part of it.",
    since: "2.6.0",
    complexity: "O(N) in the bytes of the part",
    group: Group::Bitmap,
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: bitcount,
    ..Command::EMPTY
};

// Source: Redis 7.2 `bitops.c`, `bitcountCommand`: the other arguments of a missing key are ignored
fn bitcount(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let range = match args.len() {
        2 => Bound::ALL.range(value.len()),
        4 | 5 => {
            let (start, end) = (integer(args.get(2))?, integer(args.get(3))?);
            let in_bits = counts_bits(args.try_get(4))?;
            if start < 0 && end < 0 && start > end {
                0..0
            } else {
                Bound { start, end, in_bits }.range(value.len())
            }
        }
        _ => return Err(Fail::Syntax),
    };
    cx.spend((range.end - range.start) / 8 / SCANNED_BYTES)?;
    let ones = count_ones(&value, range);
    cx.reply.integer(ones.cast_signed());
    Ok(())
}

pub(crate) const BITPOS: Command = Command {
    name: "bitpos",
    syntax: "key bit [start [end [BYTE | BIT]]]",
    summary: "Returns the position of the first bit that is 1, or 0, in a string value.",
    since: "2.8.7",
    complexity: "O(N) in the bytes up to the bit",
    group: Group::Bitmap,
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: bitpos,
    ..Command::EMPTY
};

// Source: Redis 7.2 `bitops.c`, `bitposCommand`
fn bitpos(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let is_set = match integer(args.get(2))? {
        0 => false,
        1 => true,
        _ => return Err(Fail::text("ERR The bit argument must be 1 or 0.")),
    };
    let key = cx.key(args.get(1));
    let Some(value) = cx.locked.string(cx.db, key)? else {
        // A missing key is an infinite row of zeros, and its other arguments are ignored.
        cx.reply.integer(if is_set { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(Fail::Syntax);
    }
    let start = args.try_get(3).map_or(Ok(0), integer)?;
    let in_bits = counts_bits(args.try_get(5))?;
    let end = args.try_get(4).map(integer).transpose()?;
    let range = Bound { start, end: end.unwrap_or(-1), in_bits }.range(value.len());
    cx.spend((range.end - range.start) / 8 / SCANNED_BYTES)?;
    let found = match find(&value, range.clone(), is_set) {
        Some(at) => at.cast_signed(),
        // Zeros follow a string, but not a part that has an end.
        None if !is_set && end.is_none() && !range.is_empty() => range.end.cast_signed(),
        None => -1,
    };
    cx.reply.integer(found as i64);
    Ok(())
}
