//! Set commands, and code shared with sorted sets: copied members, random choice, stored results.

mod algebra;
mod choice;

use smallvec::SmallVec;
use store::{Change, Items, Key, Kind, SetRef};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, REPLY_BYTES_MAX, SET_COST, reply_has_room};
use super::fail::Fail;
use super::scan::{ScanOptions, parse_cursor};
use crate::config::KeyEvent;

pub(crate) use algebra::{SDIFF, SDIFFSTORE, SINTER, SINTERCARD, SINTERSTORE, SUNION, SUNIONSTORE};
use choice::sample;
pub(super) use choice::{choose, chosen_len, random_below, random_count};

const ADDED: KeyEvent = Group::Set.event("sadd");
const REMOVED: KeyEvent = Group::Set.event("srem");

/// Borrowed members of one request.
pub(super) type Slices<'a> = SmallVec<[&'a [u8]; 8]>;

/// Members copied out of a value that is about to change, in one block of memory.
#[derive(Debug, Default)]
pub(super) struct Copies {
    bytes: SmallVec<[u8; 64]>,
    ends: SmallVec<[usize; 4]>,
}

impl Copies {
    pub(super) fn push(&mut self, member: &[u8]) {
        self.bytes.extend_from_slice(member);
        self.ends.push(self.bytes.len());
    }

    /// Whether a reply with the copied members has room for more.
    pub(super) fn has_room(&self, reply: &ReplyWriter<'_>) -> bool {
        self.bytes.len() <= REPLY_BYTES_MAX && reply.has_room_for(self.bytes.len())
    }

    pub(super) fn slices(&self) -> Slices<'_> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start..*end]).collect()
    }
}

/// Parses an integer argument of at least `least`, which is not negative. `message` is the error
/// for smaller values and for arguments that are not integers.
pub(super) fn at_least(text: &[u8], least: i64, message: &'static str) -> Result<usize, Fail> {
    let number = wire::resp::parse_i64_strict(text).filter(|number| *number >= least);
    number.and_then(|number| usize::try_from(number).ok()).ok_or(Fail::text(message))
}

/// Parses the count of SPOP and ZPOPMIN.
pub(super) fn pop_count(text: &[u8]) -> Result<usize, Fail> {
    at_least(text, 0, "ERR value is out of range, must be positive")
}

/// Parses the options of SSCAN and ZSCAN.
pub(super) fn element_scan_options(args: Args<'_>) -> Result<ScanOptions<'_>, Fail> {
    let options = ScanOptions::parse(args, 3)?;
    options.refuse_type()?;
    options.refuse_no_values()?;
    Ok(options)
}

/// Writes the reply of a scan: the next cursor, and the elements found.
pub(super) fn reply_scan(reply: &mut ReplyWriter<'_>, next: u64, found: &Copies) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    let found = found.slices();
    reply.array(found.len());
    found.iter().for_each(|element| reply.bulk(element));
}

/// Completes a STORE command: stores `len` elements, encoded by `encode`, at the destination, or
/// deletes the destination if there are none.
pub(super) fn store_result(
    cx: &mut CommandContext<'_>,
    destination: Key<'_>,
    kind: Kind,
    len: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Done {
    if len > 0 {
        let mut encoded = Vec::new();
        encode(&mut encoded);
        cx.change(destination, Change::Put { kind, encoded: &encoded, expiry: None })?;
    } else if cx.locked.contains(cx.db, destination) {
        cx.delete(destination)?;
    }
    cx.reply.count(len);
    Ok(())
}

fn cardinality(cx: &CommandContext<'_>, key: Key<'_>) -> Result<usize, Fail> {
    Ok(cx.locked.set(cx.db, key)?.map_or(0, SetRef::len))
}

pub(crate) const SADD: Command = Command {
    name: "sadd",
    syntax: "key member [member ...]",
    summary: "Adds members to a set; creates the set if it does not exist.",
    since: "1.0.0",
    complexity: "O(N) in the members given",
    group: Group::Set,
    arity: -3,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Each(ADDED),
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: sadd,
    ..Command::EMPTY
};

fn sadd(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let set = cx.locked.set(cx.db, key)?;
    let before = set.map_or(0, SetRef::len);
    let is_new = |member: &&[u8]| set.is_none_or(|set| !set.contains(member));
    let new: Slices<'_> = args.skip(2).iter().filter(is_new).collect();
    if new.is_empty() {
        cx.reply.integer(0);
        return Ok(());
    }
    cx.change(key, Change::SetAdd { members: Items::Slice(&new) })?;
    // A member that is given twice is added only once.
    let added = if new.len() == 1 { 1 } else { cardinality(cx, key)? - before };
    cx.reply.count(added);
    Ok(())
}

pub(crate) const SREM: Command = Command {
    name: "srem",
    summary: "Removes members from a set; a set without members is deleted.",
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(REMOVED),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: srem,
    ..SADD
};

fn srem(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let set = cx.locked.set(cx.db, key)?;
    let before = set.map_or(0, SetRef::len);
    let is_member = |member: &&[u8]| set.is_some_and(|set| set.contains(member));
    let present: Slices<'_> = args.skip(2).iter().filter(is_member).collect();
    if present.is_empty() {
        cx.reply.integer(0);
        return Ok(());
    }
    cx.change(key, Change::SetRemove { members: Items::Slice(&present) })?;
    let removed = if present.len() == 1 { 1 } else { before - cardinality(cx, key)? };
    cx.reply.count(removed);
    Ok(())
}

pub(crate) const SCARD: Command = Command {
    name: "scard",
    syntax: "key",
    summary: "Returns the number of members of a set.",
    since: "1.0.0",
    complexity: "O(1)",
    group: Group::Set,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: scard,
    ..Command::EMPTY
};

fn scard(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let count = cardinality(cx, cx.key(args.get(1)))?;
    cx.reply.count(count);
    Ok(())
}

pub(crate) const SISMEMBER: Command = Command {
    name: "sismember",
    syntax: "key member",
    summary: "Returns whether a set has a member.",
    since: "1.0.0",
    complexity: "O(1)",
    group: Group::Set,
    arity: 3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: sismember,
    ..Command::EMPTY
};

fn sismember(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let set = cx.locked.set(cx.db, key)?;
    let is_member = set.is_some_and(|set| set.contains(args.get(2)));
    cx.reply.integer(i64::from(is_member));
    Ok(())
}

pub(crate) const SMISMEMBER: Command = Command {
    name: "smismember",
    syntax: "key member [member ...]",
    summary: "Returns for each of several members whether a set has it.",
    since: "6.2.0",
    complexity: "O(N) in the members given",
    group: Group::Set,
    arity: -3,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: smismember,
    ..Command::EMPTY
};

fn smismember(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let set = cx.locked.set(cx.db, key)?;
    let members = args.skip(2);
    cx.reply.array(members.len());
    for member in members {
        let is_member = set.is_some_and(|set| set.contains(member));
        cx.reply.integer(i64::from(is_member));
    }
    Ok(())
}

pub(crate) const SMEMBERS: Command = Command {
    name: "smembers",
    syntax: "key",
    summary: "Returns all members of a set.",
    since: "1.0.0",
    complexity: "O(N) in the members of the set",
    group: Group::Set,
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output_order"],
    run: smembers,
    ..Command::EMPTY
};

fn smembers(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let set = cx.locked.set(cx.db, key)?;
    cx.spend(set.map_or(0, SetRef::len))?;
    cx.reply.set(set.map_or(0, SetRef::len));
    for member in set.into_iter().flat_map(SetRef::iter) {
        member.with_bytes(|bytes| cx.reply.bulk(bytes));
        cx.check_reply()?;
    }
    Ok(())
}

pub(crate) const SMOVE: Command = Command {
    name: "smove",
    syntax: "source destination member",
    summary: "Moves a member from one set to another.",
    since: "1.0.0",
    complexity: "O(1)",
    group: Group::Set,
    arity: 4,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::ReadDelete),
        KeySpec::range(2, 2, 1, KeyAccess::Insert),
    ],
    run: smove,
    ..Command::EMPTY
};

fn smove(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (source, destination) = (cx.key(args.get(1)), cx.key(args.get(2)));
    let member = args.get(3);
    let Some(from) = cx.locked.set(cx.db, source)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let is_new = cx.locked.set(cx.db, destination)?.is_none_or(|into| !into.contains(member));
    let is_member = from.contains(member);
    if is_member && source.bytes != destination.bytes {
        cx.change_as(REMOVED, source, Change::SetRemove { members: Items::Slice(&[member]) })?;
        if is_new {
            let members = [member];
            cx.change_as(ADDED, destination, Change::SetAdd { members: Items::Slice(&members) })?;
        }
    }
    cx.reply.integer(i64::from(is_member));
    Ok(())
}

pub(crate) const SPOP: Command = Command {
    name: "spop",
    syntax: "key [count]",
    summary: "Removes random members from a set and returns them.",
    since: "1.0.0",
    complexity: "O(N) in the members removed",
    group: Group::Set,
    arity: -2,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::COPIES),
    events: Events::Each(Group::Set.event("spop")),
    keys: &[KeySpec::one(KeyAccess::ReadDelete)],
    tips: &["nondeterministic_output"],
    run: spop,
    ..Command::EMPTY
};

fn spop(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    match args.len() {
        2 => pop_one(cx, key),
        3 => pop_many(cx, key, pop_count(args.get(2))?),
        _ => Err(Fail::Syntax),
    }
}

fn pop_one(cx: &mut CommandContext<'_>, key: Key<'_>) -> Done {
    let Some(set) = cx.locked.set(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let mut copies = Copies::default();
    let member = set.get_index(random_below(set.len(), cx.reactor.random()));
    member.expect("the index is below the length").with_bytes(|bytes| copies.push(bytes));
    let popped = copies.slices();
    cx.reply.bulk(popped[0]);
    cx.change(key, Change::SetRemove { members: Items::Slice(&popped) })
}

fn pop_many(cx: &mut CommandContext<'_>, key: Key<'_>, count: usize) -> Done {
    let Some(set) = cx.locked.set(cx.db, key)? else {
        cx.reply.set(0);
        return Ok(());
    };
    cx.spend(count.min(set.len()).saturating_mul(SET_COST))?;
    if count >= set.len() {
        cx.reply.set(set.len());
        for member in set.iter() {
            member.with_bytes(|bytes| cx.reply.bulk(bytes));
            cx.check_reply()?; // before anything is removed
        }
        return cx.change(key, Change::Delete);
    }
    let mut copies = Copies::default();
    cx.reply.set(count);
    sample(
        set.len(),
        count,
        || cx.reactor.random(),
        |index| {
            let member = set.get_index(index).expect("the index is below the length");
            member.with_bytes(|bytes| {
                if reply_has_room(&cx.reply) {
                    cx.reply.bulk(bytes);
                    copies.push(bytes);
                }
            });
        },
    );
    cx.check_reply()?; // before anything is removed
    if count == 0 {
        return Ok(());
    }
    cx.change(key, Change::SetRemove { members: Items::Slice(&copies.slices()) })
}

pub(crate) const SRANDMEMBER: Command = Command {
    name: "srandmember",
    syntax: "key [count]",
    summary: "Returns random members of a set, with repetition if the count is negative.",
    since: "1.0.0",
    complexity: "O(N) in the members returned",
    group: Group::Set,
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: srandmember,
    ..Command::EMPTY
};

fn srandmember(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    match args.len() {
        2 => random_one(cx, key),
        3 => random_many(cx, key, random_count(args.get(2))?),
        _ => Err(Fail::Syntax),
    }
}

fn random_one(cx: &mut CommandContext<'_>, key: Key<'_>) -> Done {
    let Some(set) = cx.locked.set(cx.db, key)? else {
        cx.reply.null();
        return Ok(());
    };
    let member = set.get_index(random_below(set.len(), cx.reactor.random()));
    let member = member.expect("the index is below the length");
    member.with_bytes(|bytes| cx.reply.bulk(bytes));
    Ok(())
}

fn random_many(cx: &mut CommandContext<'_>, key: Key<'_>, count: i64) -> Done {
    let Some(set) = cx.locked.set(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let chosen = chosen_len(set.len(), count)?;
    let is_all = count > 0 && chosen == set.len();
    cx.spend(chosen.saturating_mul(if is_all { 1 } else { SET_COST }))?;
    cx.reply.array(chosen);
    choose(
        set.len(),
        count,
        || cx.reactor.random(),
        |index| {
            let member = set.get_index(index).expect("the index is below the length");
            if reply_has_room(&cx.reply) {
                member.with_bytes(|bytes| cx.reply.bulk(bytes));
            }
        },
    );
    Ok(())
}

pub(crate) const SSCAN: Command = Command {
    name: "sscan",
    syntax: "key cursor [MATCH pattern] [COUNT count]",
    summary: "Iterates over the members of a set, some with each call.",
    since: "2.8.0",
    complexity: "O(1) per call, O(N) for the whole set",
    group: Group::Set,
    arity: -3,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: sscan,
    ..Command::EMPTY
};

fn sscan(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let cursor = parse_cursor(args.get(2))?;
    let key = cx.key(args.get(1));
    let mut found = Copies::default();
    let mut next = 0;
    if let Some(set) = cx.locked.set(cx.db, key)? {
        let options = element_scan_options(args)?;
        next = set.scan(cursor, options.count, |member| {
            member.with_bytes(|bytes| {
                if found.has_room(&cx.reply) && options.accepts(bytes) {
                    found.push(bytes);
                }
            });
        });
        options.steps.check()?;
    }
    reply_scan(&mut cx.reply, next, &found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_come_back_in_order() {
        let mut copies = Copies::default();
        assert!(copies.slices().is_empty());
        let long = b"longer than the inline buffer: 0123456789 0123456789 0123456789";
        for member in [&b"a"[..], b"", long] {
            copies.push(member);
        }
        let slices = copies.slices();
        assert_eq!(slices.as_slice(), [&b"a"[..], b"", long]);
    }

    #[test]
    fn counts_are_bounded() {
        assert_eq!(at_least(b"0", 0, "ERR x"), Ok(0));
        for text in [&b"-1"[..], b"a", b"", b"9223372036854775808"] {
            assert_eq!(at_least(text, 0, "ERR x"), Err(Fail::text("ERR x")));
        }
        assert_eq!(at_least(b"0", 1, "ERR x"), Err(Fail::text("ERR x")));
    }
}
