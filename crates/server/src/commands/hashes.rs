//! Hash commands.

mod combined;
mod expiry;

use std::collections::HashSet;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use store::types::Text;
use store::{Change, HashRef, Items, Key};
use wire::resp::{Args, LongDouble, Protocol, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, SET_COST, integer, is_option, reply_has_room};
use super::fail::Fail;
use super::scan::{ScanOptions, parse_cursor};
use super::strings::float_sum;

pub(crate) use combined::{HGETDEL, HGETEX, HSETEX};
pub(crate) use expiry::{
    HEXPIRE, HEXPIREAT, HEXPIRETIME, HPERSIST, HPEXPIRE, HPEXPIREAT, HPEXPIRETIME, HPTTL, HTTL,
};

const READS: Flags = Flags::READONLY;
const READS_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const GROWS_FAST: Flags = Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST);

const SETS: Events = Events::Each(Group::Hash.event("hset"));

/// Maximum fields with repetition in one reply of HRANDFIELD: a larger negative count would exhaust
/// memory.
const RANDOM_FIELDS_MAX: u64 = 1 << 20;

/// Collects the arguments from `from` on in the form that changes take.
fn collect_from(args: Args<'_>, from: usize) -> SmallVec<[&[u8]; 8]> {
    args.skip(from).iter().collect()
}

fn hash_len(cx: &CommandContext<'_>, key: Key<'_>) -> Result<usize, Fail> {
    Ok(cx.locked.hash(cx.db, key)?.map_or(0, HashRef::len))
}

pub(crate) const HSET: Command = Command {
    name: "hset",
    syntax: "key field value [field value ...]",
    summary: "Sets the values of one or more fields of a hash; returns how many are new.",
    since: "2.0.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -4,
    flags: GROWS_FAST,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: hset,
    ..Command::EMPTY
};

fn hset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let added = set_fields(cx, args)?;
    cx.reply.count(added);
    Ok(())
}

/// HMSET: HSET that replies OK.
pub(crate) const HMSET: Command = Command {
    name: "hmset",
    summary: "Sets the values of one or more fields of a hash.",
    run: hmset,
    ..HSET
};

fn hmset(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    set_fields(cx, args)?;
    cx.reply.ok();
    Ok(())
}

/// Sets the fields and values from argument 2 on. Returns how many fields are new.
#[inline]
fn set_fields(cx: &mut CommandContext<'_>, args: Args<'_>) -> Result<usize, Fail> {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::arity(cx.command.name));
    }
    let key = cx.key(args.get(1));
    let before = hash_len(cx, key)?;
    let pairs = collect_from(args, 2);
    cx.change(key, Change::HashSet { pairs: Items::Slice(&pairs) })?;
    Ok(hash_len(cx, key)? - before)
}

fn set_field(cx: &mut CommandContext<'_>, key: Key<'_>, field: &[u8], value: &[u8]) -> Done {
    cx.change(key, Change::HashSet { pairs: Items::Slice(&[field, value]) })
}

/// Sets the value of a field, which keeps its expiry.
fn replace_value(cx: &mut CommandContext<'_>, key: Key<'_>, field: &[u8], value: &[u8]) -> Done {
    let hash = cx.locked.hash(cx.db, key)?;
    // A field that has expired, but is still stored, does not keep its expiry.
    if hash.and_then(|hash| hash.expiry(field)).flatten().is_none() {
        return set_field(cx, key, field, value);
    }
    cx.change(key, Change::HashUpdate { pairs: Items::Slice(&[field, value]) })
}

/// HSETNX: HSET of a field that does not exist.
pub(crate) const HSETNX: Command = Command {
    name: "hsetnx",
    syntax: "key field value",
    summary: "Sets the value of a field of a hash unless the field exists.",
    since: "2.0.0",
    group: Group::Hash,
    arity: 4,
    flags: GROWS_FAST,
    events: SETS,
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: hsetnx,
    ..Command::EMPTY
};

fn hsetnx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (key, field) = (cx.key(args.get(1)), args.get(2));
    let absent = !cx.locked.hash(cx.db, key)?.is_some_and(|hash| hash.contains(field));
    if absent {
        set_field(cx, key, field, args.get(3))?;
    }
    cx.reply.integer(i64::from(absent));
    Ok(())
}

pub(crate) const HGET: Command = Command {
    name: "hget",
    syntax: "key field",
    summary: "Returns the value of a field of a hash.",
    since: "2.0.0",
    group: Group::Hash,
    arity: 3,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: hget,
    ..Command::EMPTY
};

fn hget(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let value = cx.locked.hash(cx.db, key)?.and_then(|hash| hash.get(args.get(2)));
    reply_value(&mut cx.reply, value);
    Ok(())
}

fn reply_value(reply: &mut ReplyWriter<'_>, value: Option<Text<'_>>) {
    match value {
        Some(value) => reply.bulk(&value),
        None => reply.null(),
    }
}

pub(crate) const HMGET: Command = Command {
    name: "hmget",
    syntax: "key field [field ...]",
    summary: "Returns the values of one or more fields of a hash.",
    complexity: "O(N) in the number of fields given",
    arity: -3,
    run: hmget,
    ..HGET
};

fn hmget(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    let fields = args.skip(2);
    cx.reply.array(fields.len());
    for field in fields {
        if reply_has_room(&cx.reply) {
            reply_value(&mut cx.reply, hash.and_then(|hash| hash.get(field)));
        }
    }
    Ok(())
}

pub(crate) const HEXISTS: Command = Command {
    name: "hexists",
    summary: "Returns whether a field of a hash exists.",
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: hexists,
    ..HGET
};

fn hexists(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let exists = cx.locked.hash(cx.db, key)?.is_some_and(|hash| hash.contains(args.get(2)));
    cx.reply.integer(i64::from(exists));
    Ok(())
}

pub(crate) const HSTRLEN: Command = Command {
    name: "hstrlen",
    summary: "Returns the length of a field's value in bytes.",
    since: "3.2.0",
    run: hstrlen,
    ..HEXISTS
};

fn hstrlen(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let value = cx.locked.hash(cx.db, key)?.and_then(|hash| hash.get(args.get(2)));
    cx.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

pub(crate) const HLEN: Command = Command {
    name: "hlen",
    syntax: "key",
    summary: "Returns the number of fields of a hash.",
    since: "2.0.0",
    group: Group::Hash,
    arity: 2,
    flags: READS_FAST,
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: hlen,
    ..Command::EMPTY
};

fn hlen(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let len = hash_len(cx, key)?;
    cx.reply.count(len);
    Ok(())
}

pub(crate) const HDEL: Command = Command {
    name: "hdel",
    syntax: "key field [field ...]",
    summary: "Removes fields from a hash; a hash without fields is deleted.",
    since: "2.0.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -3,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(Group::Hash.event("hdel")),
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: hdel,
    ..Command::EMPTY
};

fn hdel(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(hash) = cx.locked.hash(cx.db, key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let before = hash.len();
    let present: SmallVec<[&[u8]; 8]> =
        args.skip(2).iter().filter(|field| hash.contains(field)).collect();
    if !present.is_empty() {
        cx.change(key, Change::HashRemove { fields: Items::Slice(&present) })?;
    }
    // The same field may be given twice, so count the remaining fields.
    let removed = before - hash_len(cx, key)?;
    cx.reply.count(removed);
    Ok(())
}

pub(crate) const HGETALL: Command = Command {
    name: "hgetall",
    syntax: "key",
    summary: "Returns all fields of a hash with their values.",
    since: "2.0.0",
    complexity: "O(N) in the fields of the hash",
    group: Group::Hash,
    arity: 2,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output_order"],
    run: hgetall,
    ..Command::EMPTY
};

fn hgetall(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    cx.spend(hash.map_or(0, HashRef::len).saturating_mul(2))?;
    cx.reply.map(hash.map_or(0, HashRef::len));
    for (field, value) in hash.into_iter().flat_map(HashRef::iter) {
        cx.reply.bulk(&field);
        cx.reply.bulk(&value);
        cx.check_reply()?;
    }
    Ok(())
}

/// HKEYS: all field names.
pub(crate) const HKEYS: Command =
    Command { name: "hkeys", summary: "Returns all fields of a hash.", run: hkeys, ..HGETALL };

fn hkeys(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    cx.spend(hash.map_or(0, HashRef::len))?;
    cx.reply.array(hash.map_or(0, HashRef::len));
    for (field, _) in hash.into_iter().flat_map(HashRef::iter) {
        cx.reply.bulk(&field);
        cx.check_reply()?;
    }
    Ok(())
}

/// HVALS: all values.
pub(crate) const HVALS: Command =
    Command { name: "hvals", summary: "Returns all values of a hash.", run: hvals, ..HGETALL };

fn hvals(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    cx.spend(hash.map_or(0, HashRef::len))?;
    cx.reply.array(hash.map_or(0, HashRef::len));
    for (_, value) in hash.into_iter().flat_map(HashRef::iter) {
        cx.reply.bulk(&value);
        cx.check_reply()?;
    }
    Ok(())
}

pub(crate) const HINCRBY: Command = Command {
    name: "hincrby",
    syntax: "key field increment",
    summary: "Adds an integer to the value of a field; a missing field counts as 0.",
    since: "2.0.0",
    group: Group::Hash,
    arity: 4,
    flags: GROWS_FAST,
    events: Events::Each(Group::Hash.event("hincrby")),
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: hincrby,
    ..Command::EMPTY
};

fn hincrby(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let by = integer(args.get(3))?;
    let (key, field) = (cx.key(args.get(1)), args.get(2));
    let old = match cx.locked.hash(cx.db, key)?.and_then(|hash| hash.get(field)) {
        Some(text) => integer(&text).map_err(|_| Fail::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(Fail::Overflow)?;
    let mut text = itoa::Buffer::new();
    replace_value(cx, key, field, text.format(new).as_bytes())?;
    cx.reply.integer(new);
    Ok(())
}

pub(crate) const HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    summary: "Adds a floating-point number to the value of a field; a missing one counts as 0.",
    since: "2.6.0",
    events: Events::Each(Group::Hash.event("hincrbyfloat")),
    run: hincrbyfloat,
    ..HINCRBY
};

fn hincrbyfloat(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let by = LongDouble::parse(args.get(3)).ok_or(Fail::NotFloat)?;
    if !by.is_finite() {
        return Err(Fail::text("ERR value is NaN or Infinity"));
    }
    let (key, field) = (cx.key(args.get(1)), args.get(2));
    let old = cx.locked.hash(cx.db, key)?.and_then(|hash| hash.get(field));
    let old = LongDouble::parse(old.as_deref().unwrap_or(b"0"))
        .ok_or(Fail::text("ERR hash value is not a float"))?;
    let value = float_sum(old, by)?;
    replace_value(cx, key, field, &value)?;
    cx.reply.bulk(&value);
    Ok(())
}

pub(crate) const HRANDFIELD: Command = Command {
    name: "hrandfield",
    syntax: "key [count [WITHVALUES]]",
    summary: "Returns one or more fields of a hash, chosen at random.",
    since: "6.2.0",
    complexity: "O(N) in the number of fields returned",
    group: Group::Hash,
    arity: -2,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: hrandfield,
    ..Command::EMPTY
};

fn hrandfield(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let Some(count_text) = args.try_get(2) else {
        let fields = cx.locked.hash(cx.db, key)?.map(Fields::of);
        let random = cx.reactor.random();
        let field = fields.and_then(|fields| fields.get(below(random, fields.len())));
        reply_value(&mut cx.reply, field.map(|(field, _)| field));
        return Ok(());
    };
    let count = parse_random_count(count_text)?;
    let with_values = match args.len() {
        3 => false,
        4 if is_option(args.get(3), "WITHVALUES") => true,
        _ => return Err(Fail::Syntax),
    };
    random_fields(cx, key, count, with_values)
}

/// Replies with random fields. A negative count: with repetition.
fn random_fields(cx: &mut CommandContext<'_>, key: Key<'_>, count: i64, with_values: bool) -> Done {
    let Some(hash) = cx.locked.hash(cx.db, key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    let hash = Fields::of(hash);
    cx.spend(random_fields_cost(count, hash.len()))?;
    if count < 0 && count.unsigned_abs() > RANDOM_FIELDS_MAX {
        return Err(Fail::text("ERR value is out of range"));
    }
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let mut writer = RandomFields { reply: &mut cx.reply, with_values };
    if count < 0 {
        let random = || hash.get(below(cx.reactor.random(), hash.len()));
        writer.fields(wanted, std::iter::repeat_with(random).take(wanted));
    } else if wanted >= hash.len() {
        writer.fields(hash.len(), hash.view.iter().map(Some));
    } else {
        let chosen = choose_indexes(wanted, hash.len(), || cx.reactor.random());
        writer.fields(wanted, chosen.into_iter().map(|index| hash.get(index)));
    }
    Ok(())
}

/// Too many fields with repetition cost nothing: they are refused.
fn random_fields_cost(count: i64, len: usize) -> usize {
    let wanted = count.unsigned_abs();
    if count < 0 && wanted > RANDOM_FIELDS_MAX {
        return 0;
    }
    let chosen = if count < 0 { wanted } else { wanted.min(len as u64) };
    let is_all = count > 0 && chosen == len as u64;
    let cost = if is_all { 1 } else { SET_COST };
    usize::try_from(chosen).unwrap_or(usize::MAX).saturating_mul(cost)
}

fn parse_random_count(text: &[u8]) -> Result<i64, Fail> {
    let count = integer(text)?;
    if count == i64::MIN {
        return Err(Fail::text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    Ok(count)
}

/// Returns an index below `len` from 64 random bits; the bias is below `len` / 2^64.
fn below(random: u64, len: usize) -> usize {
    usize::try_from(random % len as u64).expect("below a length")
}

/// Returns `count` different indexes below `len`, each set of them equally likely. O(count).
/// Source: Bentley and Floyd, "A sample of brilliance", CACM 30 (9), 1987
fn choose_indexes(count: usize, len: usize, mut random: impl FnMut() -> u64) -> Vec<usize> {
    let mut taken: HashSet<usize, FixedState> =
        HashSet::with_capacity_and_hasher(count, FixedState::default());
    let mut chosen = Vec::with_capacity(count);
    for last in len - count..len {
        let candidate = below(random(), last + 1);
        // `last` was not a candidate before, so it is not taken.
        let index = if taken.insert(candidate) { candidate } else { last };
        taken.insert(index);
        chosen.push(index);
    }
    chosen
}

/// The fields of a hash by number, for a random choice.
struct Fields<'a> {
    view: HashRef<'a>,
    /// Indexes of the fields that have not expired; `None`: all of them.
    live: Option<Vec<usize>>,
}

impl<'a> Fields<'a> {
    /// O(1), or O(fields) while some have expired and are not removed yet.
    fn of(view: HashRef<'a>) -> Fields<'a> {
        let has_due = view.len() < view.indexes();
        let is_live = |index: &usize| view.get_index(*index).is_some();
        let live = has_due.then(|| (0..view.indexes()).filter(is_live).collect());
        Fields { view, live }
    }

    fn len(&self) -> usize {
        self.live.as_ref().map_or_else(|| self.view.indexes(), Vec::len)
    }

    fn get(&self, number: usize) -> Option<(Text<'a>, Text<'a>)> {
        let index = match &self.live {
            Some(live) => *live.get(number)?,
            None => number,
        };
        self.view.get_index(index)
    }
}

/// Writes fields in the form of HRANDFIELD: with values as pairs, which are flat in RESP2.
struct RandomFields<'a, 'r> {
    reply: &'a mut ReplyWriter<'r>,
    with_values: bool,
}

impl RandomFields<'_, '_> {
    /// Stops early if the reply is too large: the caller rejects it.
    fn fields<'t>(
        &mut self,
        count: usize,
        fields: impl Iterator<Item = Option<(Text<'t>, Text<'t>)>>,
    ) {
        self.header(count);
        for field in fields {
            self.field(field);
            if !reply_has_room(self.reply) {
                break;
            }
        }
    }

    fn header(&mut self, fields: usize) {
        let flat = self.with_values && self.reply.protocol == Protocol::Resp2;
        self.reply.array(if flat { fields * 2 } else { fields });
    }

    fn field(&mut self, pair: Option<(Text<'_>, Text<'_>)>) {
        let (field, value) = pair.expect("indexes are below the length");
        if !self.with_values {
            return self.reply.bulk(&field);
        }
        if self.reply.protocol == Protocol::Resp3 {
            self.reply.array(2);
        }
        self.reply.bulk(&field);
        self.reply.bulk(&value);
    }
}

pub(crate) const HSCAN: Command = Command {
    name: "hscan",
    syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
    summary: "Iterates over the fields and values of a hash, some with each call.",
    since: "2.8.0",
    complexity: "O(1) for every call, O(N) for a complete iteration over N fields",
    group: Group::Hash,
    arity: -3,
    flags: READS,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: hscan,
    ..Command::EMPTY
};

fn hscan(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let cursor = parse_cursor(args.get(2))?;
    let key = cx.key(args.get(1));
    let Some(hash) = cx.locked.hash(cx.db, key)? else {
        cx.reply.array(2);
        cx.reply.bulk(b"0");
        cx.reply.array(0);
        return Ok(());
    };
    let options = ScanOptions::parse(args, 3)?;
    options.refuse_type()?;
    let counted = cx.reply.begin_counted();
    let reply = &mut cx.reply;
    let mut len = 0;
    let next = hash.scan(cursor, options.count, |field, value| {
        if !reply_has_room(reply) || !options.accepts(field) {
            return;
        }
        reply.bulk(field);
        len += 1;
        if !options.no_values {
            reply.bulk(value);
            len += 1;
        }
    });
    options.steps.check()?;
    cx.reply.end_counted(counted, len, |reply| {
        reply.array(2);
        reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chosen_indexes_differ_and_are_below(
            len in 1usize..50,
            share in 0usize..100,
            seed in any::<u64>(),
        ) {
            let count = len * share / 100;
            let mut state = seed;
            let random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 11
            };
            let mut chosen = choose_indexes(count, len, random);
            chosen.sort_unstable();
            chosen.dedup();
            prop_assert_eq!(chosen.len(), count);
            prop_assert!(chosen.iter().all(|index| *index < len));
        }
    }

    #[test]
    fn every_index_can_be_chosen() {
        let mut seen = [false; 5];
        for number in 0..5 {
            seen[choose_indexes(1, 5, || number)[0]] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn counts_of_random_fields() {
        assert_eq!(parse_random_count(b"-3"), Ok(-3));
        assert_eq!(parse_random_count(b"x"), Err(Fail::NotInteger));
        assert!(parse_random_count(b"-9223372036854775808").is_err());
    }
}
