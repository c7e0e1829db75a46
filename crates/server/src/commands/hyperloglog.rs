//! `HyperLogLog` commands: the approximate number of distinct elements, in a string value of at most
//! 12 KB.

mod debug;
mod estimate;
mod hash;
mod sketch;
mod sparse;

use std::ops::Range;

use store::{Change, Key};
use wire::resp::Args;

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, SKETCH_CHANGE_COST, SKETCH_COST};
use super::fail::Fail;
use super::strings::kept_expiry;
use crate::config::KeyEvent;
use hash::place_of;
use sketch::{Encoding, REGISTERS, Registers, Sketch, SketchError};

pub(crate) use debug::{PFDEBUG, PFSELFTEST};

const ADDED: KeyEvent = Group::HyperLogLog.event("pfadd");

impl From<SketchError> for Fail {
    fn from(error: SketchError) -> Fail {
        Fail::text(match error {
            SketchError::NotASketch => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            SketchError::Corrupt => "INVALIDOBJ Corrupted HLL object detected",
        })
    }
}

/// Returns the sketch at a key.
fn sketch<'a>(cx: &'a CommandContext<'_>, key: Key<'_>) -> Result<Option<Sketch<'a>>, Fail> {
    let value = cx.locked.string(cx.db, key)?;
    Ok(value.map(|value| Sketch::parse(value.into_cow())).transpose()?)
}

/// Returns the sketch at a key as a copy to change, or an empty one.
fn copied(cx: &CommandContext<'_>, key: Key<'_>) -> Result<Sketch<'static>, Fail> {
    Ok(sketch(cx, key)?.map_or_else(Sketch::empty, Sketch::into_owned))
}

/// Stores a changed sketch, which replaces the one at the key.
fn store(cx: &mut CommandContext<'_>, key: Key<'_>, sketch: &Sketch<'_>) -> Done {
    /// Log bytes of one change beyond key and value.
    const CHANGE_BYTES: usize = 16;
    let new = sketch.bytes();
    let old = cx.locked.string(cx.db, key)?.unwrap_or_default();
    let mut edits = differences(&old, new);
    if edits.is_empty() {
        // Transactions that watch the key notice it.
        edits.push(0..1);
    }
    let bytes: usize = edits.iter().map(|edit| edit.len() + key.bytes.len() + CHANGE_BYTES).sum();
    if new.len() < old.len() || bytes > new.len() {
        let expiry = kept_expiry(cx, key);
        return cx.apply(cx.db, key, Change::Set { value: new, expiry });
    }
    for edit in edits {
        let offset = edit.start as u64;
        cx.apply(cx.db, key, Change::Edit { offset, bytes: &new[edit] })?;
    }
    Ok(())
}

/// Returns the parts of `new` in which it differs from `old`, or continues it. Parts that are close
/// are one.
fn differences(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    const GAP_MAX: usize = 32;
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (at, byte) in new.iter().enumerate() {
        if old.get(at) == Some(byte) {
            continue;
        }
        match parts.last_mut() {
            Some(part) if at - part.end <= GAP_MAX => part.end = at + 1,
            _ => parts.push(at..at + 1),
        }
    }
    parts
}

pub(crate) const PFADD: Command = Command {
    name: "pfadd",
    syntax: "key [element [element ...]]",
    summary: "Adds elements to a HyperLogLog; creates it if it does not exist.",
    since: "2.8.9",
    complexity: "O(1) for each element",
    group: Group::HyperLogLog,
    arity: -2,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: pfadd,
    ..Command::EMPTY
};

fn pfadd(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let is_new = cx.locked.string(cx.db, key)?.is_none();
    let mut sketch = copied(cx, key)?;
    let has_changed = add(cx, &mut sketch, args.skip(2))? || is_new;
    if has_changed {
        sketch.forget_count();
        store(cx, key, &sketch)?;
        cx.announce(ADDED, cx.db, key);
    }
    cx.reply.integer(i64::from(has_changed));
    Ok(())
}

/// Adds elements. True if one of them changed the sketch.
fn add(cx: &CommandContext<'_>, sketch: &mut Sketch<'_>, elements: Args<'_>) -> Result<bool, Fail> {
    /// Elements from which on the registers are unpacked first: most elements of a long list change
    /// nothing, and the search in a sparse sketch is linear.
    const UNPACKED_MIN: usize = 16;
    let mut known = None;
    if elements.len() >= UNPACKED_MIN {
        cx.spend(SKETCH_COST)?;
        let mut registers = Registers::default();
        sketch.merge_into(&mut registers)?;
        known = Some(registers);
    }
    let mut has_changed = false;
    let sparse_bytes_max = cx.reactor.settings.hll_sparse_bytes_max;
    for element in elements {
        let place = place_of(element);
        if let Some(known) = &mut known {
            if known[place.register] >= place.rank {
                continue;
            }
            known[place.register] = place.rank;
        }
        cx.spend(SKETCH_CHANGE_COST)?;
        has_changed |= sketch.raise(place, sparse_bytes_max)?;
    }
    Ok(has_changed)
}

pub(crate) const PFCOUNT: Command = Command {
    name: "pfcount",
    syntax: "key [key ...]",
    summary: "Returns the approximate number of distinct elements that were added to any of the \
              HyperLogLogs.",
    since: "2.8.9",
    complexity: "O(N) in the number of keys, with a large constant",
    group: Group::HyperLogLog,
    arity: -2,
    flags: Flags::READONLY.and(Flags::MAY_REPLICATE),
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Renew).noted(
        "RW because it may change the internal representation of the key, and propagate to replicas",
    )],
    run: pfcount,
    ..Command::EMPTY
};

/// Unlike Redis, this does not store the count: it remains a read, and takes 10 us.
fn pfcount(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let keys = args.skip(1);
    cx.spend(keys.len().saturating_mul(SKETCH_COST))?;
    let mut registers = Registers::default();
    for key in keys {
        let Some(sketch) = sketch(cx, cx.key(key))? else { continue };
        if let (1, Some(count)) = (keys.len(), sketch.known_count()) {
            cx.reply.integer(count.cast_signed());
            return Ok(());
        }
        sketch.merge_into(&mut registers)?;
    }
    cx.reply.integer(estimate::count(&registers).cast_signed());
    Ok(())
}

pub(crate) const PFMERGE: Command = Command {
    name: "pfmerge",
    syntax: "destkey [sourcekey [sourcekey ...]]",
    summary: "Adds all elements of HyperLogLogs to another one.",
    since: "2.8.9",
    complexity: "O(N) in the number of keys, with a large constant",
    group: Group::HyperLogLog,
    arity: -2,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Chosen,
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::ReadInsert),
        KeySpec::range(2, -1, 1, KeyAccess::Read),
    ],
    run: pfmerge,
    ..Command::EMPTY
};

// Source: Redis 7.2 `hyperloglog.c`, `pfmergeCommand`: dense if one of the inputs is
fn pfmerge(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let keys = args.skip(1);
    cx.spend(keys.len().saturating_mul(SKETCH_COST))?;
    let mut registers = Registers::default();
    let mut is_dense = false;
    for key in keys {
        let Some(sketch) = sketch(cx, cx.key(key))? else { continue };
        is_dense |= sketch.encoding() == Encoding::Dense;
        sketch.merge_into(&mut registers)?;
    }
    let key = cx.key(args.get(1));
    let mut merged = copied(cx, key)?;
    let mut known = Registers::default();
    merged.merge_into(&mut known)?;
    if is_dense {
        merged.unpack()?;
    }
    let sparse_bytes_max = cx.reactor.settings.hll_sparse_bytes_max;
    for register in (0..REGISTERS).filter(|at| registers[*at] > known[*at]) {
        cx.spend(SKETCH_CHANGE_COST)?;
        merged.raise(hash::Place { register, rank: registers[register] }, sparse_bytes_max)?;
    }
    merged.forget_count();
    store(cx, key, &merged)?;
    cx.announce(ADDED, cx.db, key);
    cx.reply.ok();
    Ok(())
}
