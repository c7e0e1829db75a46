//! Commands about the expiry of fields.
//!
//! Whatever form the client uses, the log contains the absolute time in milliseconds, or the removal
//! of the fields if that time has already passed.

// Source: Valkey 9.1 `t_hash.c`, with which errors and events agree; those of Redis 8 differ

use std::collections::BTreeSet;

use base::time::UnixMs;
use smallvec::SmallVec;
use store::{Change, HashRef, Items, Key};
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{
    CommandContext, FIELD_TIME_COST, TIMED_FIELD_COST, integer, is_option,
};
use crate::commands::fail::Fail;
use crate::commands::generic::{Base, Condition, Unit, absolute_ms, in_unit, signed};
use crate::config::KeyEvent;
use crate::engine::expire::FIELDS_EXPIRED;

pub(super) const EXPIRES: KeyEvent = Group::Hash.event("hexpire");
pub(super) const PERSISTS: KeyEvent = Group::Hash.event("hpersist");

const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;

pub(crate) const HEXPIRE: Command = Command {
    name: "hexpire",
    syntax: "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
    summary: "Sets the TTL of fields of a hash in seconds.",
    since: "7.4.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -6,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: |cx, args| expire(cx, args, Base::Now, Unit::Seconds),
    ..Command::EMPTY
};

pub(crate) const HPEXPIRE: Command = Command {
    name: "hpexpire",
    syntax: "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
    summary: "Sets the TTL of fields of a hash in milliseconds.",
    run: |cx, args| expire(cx, args, Base::Now, Unit::Milliseconds),
    ..HEXPIRE
};

pub(crate) const HEXPIREAT: Command = Command {
    name: "hexpireat",
    syntax: "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
    summary: "Sets the expiry of fields of a hash as a Unix time in seconds.",
    run: |cx, args| expire(cx, args, Base::Epoch, Unit::Seconds),
    ..HEXPIRE
};

pub(crate) const HPEXPIREAT: Command = Command {
    name: "hpexpireat",
    syntax: "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
    summary: "Sets the expiry of fields of a hash as a Unix time in milliseconds.",
    run: |cx, args| expire(cx, args, Base::Epoch, Unit::Milliseconds),
    ..HEXPIRE
};

fn expire(cx: &mut CommandContext<'_>, args: Args<'_>, base: Base, unit: Unit) -> Done {
    const UNCHANGED: i64 = 0;
    const SET: i64 = 1;
    const REMOVED: i64 = 2;
    let (options, rest) = split_options(args, 3);
    let condition = Condition::parse(options.iter())?;
    let fields = given_fields(rest, 1)?;
    let at_ms = time_ms(cx, args.get(2), base, unit)?;
    spend_on(cx, fields.len())?;
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    let at = UnixMs(at_ms.cast_unsigned());
    let is_due = at <= cx.expiry_now();
    cx.reply.array(fields.len());
    let mut chosen = Chosen::default();
    for field in fields {
        let expiry = if chosen.has(field) {
            (!is_due).then_some(Some(at))
        } else {
            hash.and_then(|hash| hash.expiry(field))
        };
        cx.reply.integer(match expiry {
            None => NO_FIELD,
            Some(expiry) if !condition.allows(at_ms, expiry) => UNCHANGED,
            Some(_) => {
                chosen.add(field);
                if is_due { REMOVED } else { SET }
            }
        });
    }
    let chosen = chosen.fields();
    if is_due { remove(cx, key, &chosen) } else { expire_at(cx, key, Some(at), &chosen) }
}

/// Unix milliseconds, not negative.
// Source: Valkey 9.1 `expire.c`, `convertExpireArgumentToUnixTime`
pub(super) fn time_ms(
    cx: &CommandContext<'_>,
    text: &[u8],
    base: Base,
    unit: Unit,
) -> Result<i64, Fail> {
    let time = integer(text)?;
    let base_ms = if base == Base::Now { signed(cx.unix()) } else { 0 };
    let at_ms = absolute_ms(time, unit, base_ms).filter(|_| time >= 0);
    let name = cx.command.name;
    at_ms.ok_or_else(|| Fail::owned(format!("ERR invalid expire time in '{name}' command")))
}

/// Removes fields whose new expiry has already passed, and publishes the events.
pub(super) fn remove(cx: &mut CommandContext<'_>, key: Key<'_>, fields: &[&[u8]]) -> Done {
    if fields.is_empty() {
        return Ok(());
    }
    cx.reactor.tally.totals.expired_fields += fields.len() as u64;
    cx.change_as(FIELDS_EXPIRED, key, Change::HashRemove { fields: Items::Slice(fields) })
}

/// Sets when fields that exist expire, and publishes the event.
pub(super) fn expire_at(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    at: Option<UnixMs>,
    fields: &[&[u8]],
) -> Done {
    if fields.is_empty() {
        return Ok(());
    }
    let event = if at.is_some() { EXPIRES } else { PERSISTS };
    cx.change_as(event, key, Change::HashExpire { at, fields: Items::Slice(fields) })
}

/// The options from `from` on, and what follows the first FIELDS after them.
pub(super) fn split_options(args: Args<'_>, from: usize) -> (Args<'_>, Option<Args<'_>>) {
    let place = args.iter().skip(from).position(|word| is_option(word, "FIELDS"));
    match place.map(|place| from + place).filter(|place| place + 1 < args.len()) {
        Some(place) => (args.range(from..place), Some(args.skip(place + 1))),
        None => (args.range(from..from), None),
    }
}

const BAD_COUNT: Fail =
    Fail::text("ERR numfields should be greater than 0 and match the provided number of fields");

/// The fields after their number; each has `parts` arguments.
pub(super) fn given_fields(rest: Option<Args<'_>>, parts: usize) -> Result<Args<'_>, Fail> {
    counted_fields(rest, parts)?.ok_or(BAD_COUNT)
}

/// `None`: the number is wrong.
fn counted_fields(rest: Option<Args<'_>>, parts: usize) -> Result<Option<Args<'_>>, Fail> {
    let Some(rest) = rest else { return Ok(None) };
    let count = usize::try_from(integer(rest.get(0))?).ok().filter(|count| *count > 0);
    let given = rest.len() - 1;
    let fits = count.and_then(|count| count.checked_mul(parts)) == Some(given);
    Ok(fits.then(|| rest.skip(1)))
}

/// Counts fields that a command changes together with their expiry.
pub(super) fn spend_on(cx: &CommandContext<'_>, fields: usize) -> Done {
    cx.spend(fields.saturating_mul(TIMED_FIELD_COST))
}

/// Fields that a command changes, each once.
#[derive(Debug, Default)]
pub(super) struct Chosen<'a>(BTreeSet<&'a [u8]>);

impl<'a> Chosen<'a> {
    pub(super) fn has(&self, field: &[u8]) -> bool {
        self.0.contains(field)
    }

    /// False if the field has been added before.
    pub(super) fn add(&mut self, field: &'a [u8]) -> bool {
        self.0.insert(field)
    }

    pub(super) fn fields(self) -> SmallVec<[&'a [u8]; 8]> {
        self.0.into_iter().collect()
    }
}

pub(crate) const HPERSIST: Command = Command {
    name: "hpersist",
    syntax: "key FIELDS numfields field [field ...]",
    summary: "Removes the expiry of fields of a hash.",
    arity: -5,
    run: hpersist,
    ..HEXPIRE
};

fn hpersist(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const PERSISTED: i64 = 1;
    let fields = counted_fields(fixed_fields(args)?, 1)?.ok_or(BAD_COUNT)?;
    spend_on(cx, fields.len())?;
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    cx.reply.array(fields.len());
    let mut chosen = Chosen::default();
    for field in fields {
        cx.reply.integer(match hash.and_then(|hash| hash.expiry(field)) {
            None => NO_FIELD,
            Some(Some(_)) if chosen.add(field) => PERSISTED,
            Some(_) => NO_EXPIRY,
        });
    }
    expire_at(cx, key, None, &chosen.fields())
}

/// What follows FIELDS, which is argument 2.
pub(super) fn fixed_fields(args: Args<'_>) -> Result<Option<Args<'_>>, Fail> {
    if !is_option(args.get(2), "FIELDS") {
        return Err(Fail::Syntax);
    }
    Ok(Some(args.skip(3)))
}

pub(crate) const HTTL: Command = Command {
    name: "httl",
    syntax: "key FIELDS numfields field [field ...]",
    summary: "Returns the TTL of fields of a hash in seconds: -1 without one, -2 without the field.",
    since: "7.4.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -5,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: |cx, args| expiry_times(cx, args, Base::Now, Unit::Seconds),
    ..Command::EMPTY
};

pub(crate) const HPTTL: Command = Command {
    name: "hpttl",
    summary: "Returns the TTL of fields of a hash in milliseconds: -1 without one, -2 without the \
              field.",
    run: |cx, args| expiry_times(cx, args, Base::Now, Unit::Milliseconds),
    ..HTTL
};

pub(crate) const HEXPIRETIME: Command = Command {
    name: "hexpiretime",
    summary: "Returns the expiry of fields of a hash as a Unix time in seconds: -1 without one, -2 \
              without the field.",
    tips: &[],
    run: |cx, args| expiry_times(cx, args, Base::Epoch, Unit::Seconds),
    ..HTTL
};

pub(crate) const HPEXPIRETIME: Command = Command {
    name: "hpexpiretime",
    summary: "Returns the expiry of fields of a hash as a Unix time in milliseconds: -1 without \
              one, -2 without the field.",
    tips: &[],
    run: |cx, args| expiry_times(cx, args, Base::Epoch, Unit::Milliseconds),
    ..HTTL
};

fn expiry_times(cx: &mut CommandContext<'_>, args: Args<'_>, base: Base, unit: Unit) -> Done {
    let fields = counted_fields(fixed_fields(args)?, 1)?.ok_or(Fail::Syntax)?;
    cx.spend(fields.len().saturating_mul(FIELD_TIME_COST))?;
    let hash: Option<HashRef<'_>> = cx.locked.hash(cx.db, cx.key(args.get(1)))?;
    let base_ms = if base == Base::Now { cx.now.unix.0 } else { 0 };
    cx.reply.array(fields.len());
    for field in fields {
        cx.reply.integer(match hash.and_then(|hash| hash.expiry(field)) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(at)) => in_unit(UnixMs(at.0.saturating_sub(base_ms)), unit),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn check(line: &str, from: usize, parts: usize, expected: Option<(&[&str], &[&str])>) {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        let (options, rest) = split_options(args.as_args(), from);
        let text = |args: Args<'_>| -> Vec<String> {
            args.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        };
        let found = given_fields(rest, parts).ok().map(|fields| (text(options), text(fields)));
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(found, expected.map(|(a, b)| (owned(a), owned(b))), "{line}");
    }

    #[test]
    fn fields_follow_their_number() {
        check("HEXPIRE fields 10 FIELDS 2 a b", 3, 1, Some((&[], &["a", "b"])));
        check("HEXPIRE h 10 NX gt fields 1 FIELDS", 3, 1, Some((&["NX", "gt"], &["FIELDS"])));
        check("HSETEX fields EX 10 FIELDS 1 a b", 2, 2, Some((&["EX", "10"], &["a", "b"])));
        check("HSETEX h FIELDS 1 a b c", 2, 2, None);
        check("HEXPIRE h 10 FIELDS 0 a", 3, 1, None);
        check("HEXPIRE h 10 FIELDS -1 a", 3, 1, None);
        check("HEXPIRE h 10 FIELDS x a", 3, 1, None);
        check("HEXPIRE h 10 FIELDS 2 a", 3, 1, None);
        check("HEXPIRE h 10 FIELDS 9223372036854775807 a", 3, 2, None);
        check("HEXPIRE h 10 NX a FIELDS", 3, 1, None);
        check("HEXPIRE h 10 NX a b", 3, 1, None);
    }
}
