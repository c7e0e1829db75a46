//! Commands that read or set fields and change their expiry in one step.

// Source: Valkey 9.1 `t_hash.c`, with which errors and events agree; those of Redis 8 differ

use base::time::UnixMs;
use smallvec::SmallVec;
use store::{Change, HashRef, Items, Key};
use wire::resp::Args;

use super::expiry::{
    Chosen, EXPIRES, expire_at, fixed_fields, given_fields, remove, spend_on, split_options,
    time_ms,
};
use super::reply_value;
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;
use crate::commands::generic::{Base, Unit};
use crate::commands::strings::{ExpiryOption, Moment};
use crate::config::KeyEvent;
use crate::engine::expire::FIELDS_EXPIRED;

const SETS: KeyEvent = Group::Hash.event("hset");
const DELETES: KeyEvent = Group::Hash.event("hdel");

pub(crate) const HGETDEL: Command = Command {
    name: "hgetdel",
    syntax: "key FIELDS numfields field [field ...]",
    summary: "Returns the values of fields of a hash and removes the fields.",
    since: "8.0.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -5,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(DELETES),
    keys: &[KeySpec::one(KeyAccess::ReadDelete)],
    run: hgetdel,
    ..Command::EMPTY
};

fn hgetdel(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let fields = given_fields(fixed_fields(args)?, 1)?;
    spend_on(cx, fields.len())?;
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    cx.reply.array(fields.len());
    let mut chosen = Chosen::default();
    for field in fields {
        let value = hash.and_then(|hash| hash.get(field));
        reply_value(&mut cx.reply, value.filter(|_| chosen.add(field)));
        cx.check_reply()?;
    }
    let chosen = chosen.fields();
    if chosen.is_empty() {
        return Ok(());
    }
    cx.change(key, Change::HashRemove { fields: Items::Slice(&chosen) })
}

pub(crate) const HGETEX: Command = Command {
    name: "hgetex",
    syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
    summary: "Returns the values of fields of a hash and sets or removes their expiry.",
    since: "8.0.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -5,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::MISSES),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate).noted("RW and UPDATE because it changes the TTL")],
    run: hgetex,
    ..Command::EMPTY
};

fn hgetex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (options, rest) = split_options(args, 2);
    let mut option = ExpiryOption::Unsaid;
    let mut words = options.iter();
    while let Some(name) = words.next() {
        option.add(ExpiryOption::of_getex(name, &mut words)?)?;
    }
    let fields = given_fields(rest, 1)?;
    spend_on(cx, fields.len())?;
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    let at = deadline(cx, option)?;
    let is_due = at.is_some_and(|at| at <= cx.expiry_now());
    cx.reply.array(fields.len());
    let mut chosen = Chosen::default();
    for field in fields {
        // A field that is given twice has expired the second time.
        let stored = hash.filter(|_| !(is_due && chosen.has(field)));
        reply_value(&mut cx.reply, stored.and_then(|hash| hash.get(field)));
        cx.check_reply()?;
        let changes = match stored.and_then(|hash| hash.expiry(field)) {
            None => false,
            Some(expiry) => at.is_some() || option == ExpiryOption::Persist && expiry.is_some(),
        };
        if changes {
            chosen.add(field);
        }
    }
    let chosen = chosen.fields();
    if is_due { remove(cx, key, &chosen) } else { expire_at(cx, key, at, &chosen) }
}

/// The time of an option, which may have passed.
fn deadline(cx: &CommandContext<'_>, option: ExpiryOption<'_>) -> Result<Option<UnixMs>, Fail> {
    let ExpiryOption::Until(moment, text) = option else { return Ok(None) };
    let (base, unit) = match moment {
        Moment::InSeconds => (Base::Now, Unit::Seconds),
        Moment::InMs => (Base::Now, Unit::Milliseconds),
        Moment::AtSeconds => (Base::Epoch, Unit::Seconds),
        Moment::AtMs => (Base::Epoch, Unit::Milliseconds),
    };
    let at_ms = time_ms(cx, text, base, unit)?;
    Ok(Some(UnixMs(at_ms.cast_unsigned())))
}

pub(crate) const HSETEX: Command = Command {
    name: "hsetex",
    syntax: "key [NX | XX] [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
    summary: "Sets the values of fields of a hash, and one expiry for all of them; returns whether \
              they were set.",
    since: "8.0.0",
    complexity: "O(N) in the number of fields given",
    group: Group::Hash,
    arity: -6,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Insert)],
    run: hsetex,
    ..Command::EMPTY
};

/// Which keys or fields a command applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnlyIf {
    Absent,
    Present,
}

impl OnlyIf {
    fn add(own: &mut Option<OnlyIf>, option: OnlyIf) -> Done {
        if own.is_some_and(|own| own != option) {
            return Err(Fail::Syntax);
        }
        *own = Some(option);
        Ok(())
    }

    fn allows(own: Option<OnlyIf>, is_present: bool) -> bool {
        own.is_none_or(|own| (own == OnlyIf::Present) == is_present)
    }
}

#[derive(Debug)]
struct SetOptions<'a> {
    expiry: ExpiryOption<'a>,
    key: Option<OnlyIf>,
    fields: Option<OnlyIf>,
}

impl<'a> SetOptions<'a> {
    fn parse(options: Args<'a>) -> Result<SetOptions<'a>, Fail> {
        let mut own = SetOptions { expiry: ExpiryOption::Unsaid, key: None, fields: None };
        let mut words = options.iter();
        while let Some(name) = words.next() {
            if is_option(name, "NX") {
                OnlyIf::add(&mut own.key, OnlyIf::Absent)?;
            } else if is_option(name, "XX") {
                OnlyIf::add(&mut own.key, OnlyIf::Present)?;
            } else if is_option(name, "FNX") {
                OnlyIf::add(&mut own.fields, OnlyIf::Absent)?;
            } else if is_option(name, "FXX") {
                OnlyIf::add(&mut own.fields, OnlyIf::Present)?;
            } else if is_option(name, "KEEPTTL") {
                own.expiry.add(ExpiryOption::Keep)?;
            } else {
                own.expiry.add(ExpiryOption::until(name, &mut words)?)?;
            }
        }
        Ok(own)
    }

    fn allow_fields<'f>(
        &self,
        hash: Option<HashRef<'_>>,
        mut fields: impl Iterator<Item = &'f [u8]>,
    ) -> bool {
        let has = |field: &[u8]| hash.is_some_and(|hash| hash.contains(field));
        fields.all(|field| OnlyIf::allows(self.fields, has(field)))
    }
}

fn hsetex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (options, rest) = split_options(args, 2);
    let options = SetOptions::parse(options)?;
    let given = given_fields(rest, 2)?;
    spend_on(cx, given.len() / 2)?;
    let pairs: SmallVec<[&[u8]; 16]> = given.iter().collect();
    let fields = || pairs.iter().copied().step_by(2);
    let key = cx.key(args.get(1));
    let hash = cx.locked.hash(cx.db, key)?;
    if !OnlyIf::allows(options.key, hash.is_some()) {
        cx.reply.integer(0);
        return Ok(());
    }
    let at = deadline(cx, options.expiry)?;
    let is_allowed = options.allow_fields(hash, fields());
    cx.reply.integer(i64::from(is_allowed));
    if !is_allowed {
        return Ok(());
    }
    if at.is_some_and(|at| at <= cx.expiry_now()) {
        return set_expired(cx, key, fields());
    }
    if matches!(options.expiry, ExpiryOption::Keep) {
        return set_keeping(cx, key, &pairs);
    }
    cx.change_as(SETS, key, Change::HashSet { pairs: Items::Slice(&pairs) })?;
    if at.is_some() {
        let fields: SmallVec<[&[u8]; 8]> = fields().collect();
        expire_at(cx, key, at, &fields)?;
    }
    Ok(())
}

/// Sets fields to expire at a time that has passed: existing ones are removed.
fn set_expired<'f>(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    fields: impl Iterator<Item = &'f [u8]>,
) -> Done {
    let hash = cx.locked.hash(cx.db, key)?;
    let is_new = hash.is_none();
    let mut chosen = Chosen::default();
    let mut given = 0;
    for field in fields {
        given += 1;
        if hash.is_some_and(|hash| hash.contains(field)) {
            chosen.add(field);
        }
    }
    let chosen = chosen.fields();
    cx.reactor.tally.totals.expired_fields += given;
    let db = cx.db;
    if !chosen.is_empty() {
        cx.apply(db, key, Change::HashRemove { fields: Items::Slice(&chosen) })?;
    }
    if is_new {
        cx.announce(KeyEvent::NEW, db, key);
    }
    for event in [SETS, EXPIRES, FIELDS_EXPIRED] {
        cx.announce(event, db, key);
    }
    if !cx.locked.contains(db, key) {
        cx.announce(KeyEvent::DELETED, db, key);
    }
    Ok(())
}

/// Sets the values of fields, which keep their expiry.
fn set_keeping(cx: &mut CommandContext<'_>, key: Key<'_>, pairs: &[&[u8]]) -> Done {
    let hash = cx.locked.hash(cx.db, key)?;
    let expires = |field: &[u8]| hash.and_then(|hash| hash.expiry(field)).flatten().is_some();
    // A field that has expired, but is still stored, does not keep its expiry.
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    for pair in pairs.chunks_exact(2) {
        if expires(pair[0]) { &mut kept } else { &mut others }.extend_from_slice(pair);
    }
    if !kept.is_empty() {
        let change = Change::HashUpdate { pairs: Items::Slice(&kept) };
        if others.is_empty() {
            return cx.change_as(SETS, key, change);
        }
        cx.apply(cx.db, key, change)?;
    }
    cx.change_as(SETS, key, Change::HashSet { pairs: Items::Slice(&others) })
}
