//! Commands about the expiry of keys.
//!
//! Whatever form the client uses, the log contains the absolute time in milliseconds, or the
//! deletion if that time has already passed.

use base::time::UnixMs;
use store::Change;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;

pub(crate) const PERSISTS: KeyEvent = Group::Generic.event("persist");

/// Unit of an argument or of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
}

/// Reference point of a time argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Now,
    Epoch,
}

pub(crate) const EXPIRE: Command = Command {
    name: "expire",
    syntax: "key seconds [NX | XX | GT | LT]",
    summary: "Sets the TTL of a key in seconds.",
    since: "1.0.0",
    group: Group::Generic,
    arity: -3,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(KeyEvent::EXPIRES),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: |cx, args| expire(cx, args, Base::Now, Unit::Seconds),
    ..Command::EMPTY
};

pub(crate) const PEXPIRE: Command = Command {
    name: "pexpire",
    syntax: "key milliseconds [NX | XX | GT | LT]",
    summary: "Sets the TTL of a key in milliseconds.",
    since: "2.6.0",
    run: |cx, args| expire(cx, args, Base::Now, Unit::Milliseconds),
    ..EXPIRE
};

pub(crate) const EXPIREAT: Command = Command {
    name: "expireat",
    syntax: "key unix-time-seconds [NX | XX | GT | LT]",
    summary: "Sets the expiry of a key as a Unix time in seconds.",
    since: "1.2.0",
    run: |cx, args| expire(cx, args, Base::Epoch, Unit::Seconds),
    ..EXPIRE
};

pub(crate) const PEXPIREAT: Command = Command {
    name: "pexpireat",
    syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
    summary: "Sets the expiry of a key as a Unix time in milliseconds.",
    since: "2.6.0",
    run: |cx, args| expire(cx, args, Base::Epoch, Unit::Milliseconds),
    ..EXPIRE
};

/// Source: Redis 7.2 `expire.c`, `expireGenericCommand`.
fn expire(cx: &mut CommandContext<'_>, args: Args<'_>, base: Base, unit: Unit) -> Done {
    let condition = Condition::parse(args.skip(3).iter())?;
    let time = integer(args.get(2))?;
    let base_ms = match base {
        Base::Now => signed(cx.unix()),
        Base::Epoch => 0,
    };
    let name = cx.command.name;
    let at_ms = absolute_ms(time, unit, base_ms)
        .ok_or_else(|| Fail::owned(format!("ERR invalid expire time in '{name}' command")))?;
    let key = cx.key(args.get(1));
    let current = cx.locked.expiry(cx.db, key);
    let applies = current.is_some_and(|expiry| condition.allows(at_ms, expiry));
    if applies {
        let at = u64::try_from(at_ms).ok().map(UnixMs).filter(|at| *at > cx.expiry_now());
        match at {
            Some(at) => cx.change(key, Change::Expire { at: Some(at) })?,
            None => cx.delete(key)?,
        }
    }
    cx.reply.integer(i64::from(applies));
    Ok(())
}

/// Milliseconds since the epoch, which may be negative; `None` on overflow.
pub(crate) fn absolute_ms(time: i64, unit: Unit, base_ms: i64) -> Option<i64> {
    let ms = match unit {
        Unit::Seconds => time.checked_mul(1000)?,
        Unit::Milliseconds => time,
    };
    ms.checked_add(base_ms)
}

pub(crate) fn signed(time: UnixMs) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

/// NX, XX, GT and LT as bits: conditions on the current expiry of a key, or of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition(u8);

impl Condition {
    /// Only if the key has no expiry.
    const NX: u8 = 1;
    /// Only if the key has an expiry.
    const XX: u8 = 2;
    /// Only to a later time; no expiry counts as later than any.
    const GT: u8 = 4;
    /// Only to an earlier time.
    const LT: u8 = 8;

    /// Parses the options after the time.
    pub(crate) fn parse<'o>(options: impl Iterator<Item = &'o [u8]>) -> Result<Condition, Fail> {
        const NAMES: [(&str, u8); 4] = [
            ("NX", Condition::NX),
            ("XX", Condition::XX),
            ("GT", Condition::GT),
            ("LT", Condition::LT),
        ];
        let mut condition = Condition(0);
        for option in options {
            let known = NAMES.iter().find(|(name, _)| is_option(option, name));
            let unknown = || Fail::quoting("ERR Unsupported option ", option, "");
            let (_, bit) = known.ok_or_else(unknown)?;
            condition.0 |= bit;
        }
        condition.check()?;
        Ok(condition)
    }

    fn check(self) -> Done {
        if self.has(Condition::NX) && self.has(Condition::XX | Condition::GT | Condition::LT) {
            return Err(Fail::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if self.has(Condition::GT) && self.has(Condition::LT) {
            return Err(Fail::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(())
    }

    fn has(self, any: u8) -> bool {
        self.0 & any != 0
    }

    pub(crate) fn allows(self, at_ms: i64, current: Option<UnixMs>) -> bool {
        let Some(current) = current else {
            return !self.has(Condition::XX | Condition::GT);
        };
        let current_ms = signed(current);
        let too_early = self.has(Condition::GT) && at_ms <= current_ms;
        let too_late = self.has(Condition::LT) && at_ms >= current_ms;
        !(self.has(Condition::NX) || too_early || too_late)
    }
}

pub(crate) const PERSIST: Command = Command {
    name: "persist",
    syntax: "key",
    summary: "Removes the expiry of a key.",
    since: "2.2.0",
    group: Group::Generic,
    arity: 2,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Each(PERSISTS),
    keys: &[KeySpec::one(KeyAccess::Update)],
    run: persist,
    ..Command::EMPTY
};

fn persist(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let expires = cx.locked.expiry(cx.db, key).flatten().is_some();
    if expires {
        cx.change(key, Change::Expire { at: None })?;
    }
    cx.reply.integer(i64::from(expires));
    Ok(())
}

pub(crate) const TTL: Command = Command {
    name: "ttl",
    syntax: "key",
    summary: "Returns the TTL of a key in seconds: -1 without one, -2 without the key.",
    since: "1.0.0",
    group: Group::Generic,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: |cx, args| expiry_time(cx, args, Base::Now, Unit::Seconds),
    ..Command::EMPTY
};

pub(crate) const PTTL: Command = Command {
    name: "pttl",
    summary: "Returns the TTL of a key in milliseconds: -1 without one, -2 without the key.",
    since: "2.6.0",
    tips: &["nondeterministic_output"],
    run: |cx, args| expiry_time(cx, args, Base::Now, Unit::Milliseconds),
    ..TTL
};

pub(crate) const EXPIRETIME: Command = Command {
    name: "expiretime",
    summary: "Returns the expiry of a key as a Unix time in seconds: -1 without one, -2 without the key.",
    since: "7.0.0",
    tips: &[],
    run: |cx, args| expiry_time(cx, args, Base::Epoch, Unit::Seconds),
    ..TTL
};

pub(crate) const PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    summary: "Returns the expiry of a key as a Unix time in milliseconds: -1 without one, -2 without the key.",
    since: "7.0.0",
    tips: &[],
    run: |cx, args| expiry_time(cx, args, Base::Epoch, Unit::Milliseconds),
    ..TTL
};

/// Source: Redis 7.2 `expire.c`, `ttlGenericCommand`.
fn expiry_time(cx: &mut CommandContext<'_>, args: Args<'_>, base: Base, unit: Unit) -> Done {
    const NO_KEY: i64 = -2;
    const NO_EXPIRY: i64 = -1;
    let time = match cx.locked.expiry(cx.db, cx.key(args.get(1))) {
        None => NO_KEY,
        Some(None) => NO_EXPIRY,
        Some(Some(at)) => {
            let base_ms = if base == Base::Now { cx.unix().0 } else { 0 };
            in_unit(UnixMs(at.0.saturating_sub(base_ms)), unit)
        }
    };
    cx.reply.integer(time);
    Ok(())
}

/// Seconds are rounded to the nearest.
pub(crate) fn in_unit(time: UnixMs, unit: Unit) -> i64 {
    match unit {
        Unit::Seconds => signed(time).saturating_add(500) / 1000,
        Unit::Milliseconds => signed(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn condition(options: &str) -> Result<Condition, Fail> {
        let mut args = OwnedArgs::new();
        let line = format!("EXPIRE k 10 {options}");
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        Condition::parse(args.as_args().skip(3).iter())
    }

    /// Changes that the options allow: from no expiry, from 99, from 100 and from 101 to 100.
    fn check_allows(options: &str, expected: [bool; 4]) {
        let condition = condition(options).expect("known options");
        let current = [None, Some(UnixMs(99)), Some(UnixMs(100)), Some(UnixMs(101))];
        assert_eq!(current.map(|current| condition.allows(100, current)), expected, "{options}");
    }

    #[test]
    fn options_say_which_expiry_may_change() {
        check_allows("", [true, true, true, true]);
        check_allows("NX", [true, false, false, false]);
        check_allows("XX", [false, true, true, true]);
        check_allows("gt", [false, true, false, false]);
        check_allows("LT", [true, false, false, true]);
        check_allows("xx Lt", [false, false, false, true]);
        check_allows("XX GT", [false, true, false, false]);
    }

    #[test]
    fn a_negative_time_is_before_every_expiry() {
        let earlier = condition("LT").expect("known");
        assert!(earlier.allows(-5, Some(UnixMs(0))));
        let later = condition("GT").expect("known");
        assert!(!later.allows(-5, Some(UnixMs(0))));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let check = |options: &str, text: &str| {
            assert_eq!(condition(options).expect_err(options).to_string(), text);
        };
        let nx = "ERR NX and XX, GT or LT options at the same time are not compatible";
        check("NX XX", nx);
        check("GT NX", nx);
        check("NX GT LT", nx);
        check("GT LT", "ERR GT and LT options at the same time are not compatible");
        check("NX XX Bad", "ERR Unsupported option Bad");
    }

    #[test]
    fn times_that_do_not_fit_are_refused() {
        let seconds = |time, base_ms| absolute_ms(time, Unit::Seconds, base_ms);
        assert_eq!(seconds(10, 5), Some(10_005));
        assert_eq!(seconds(-10, 5), Some(-9_995));
        assert_eq!(seconds(i64::MAX / 1000, 0), Some(i64::MAX / 1000 * 1000));
        assert_eq!(seconds(i64::MAX / 1000 + 1, 0), None);
        assert_eq!(seconds(i64::MIN, 5), None);
        assert_eq!(seconds(i64::MAX / 1000, 1000), None);
        assert_eq!(absolute_ms(i64::MIN, Unit::Milliseconds, 5), Some(i64::MIN + 5));
        assert_eq!(absolute_ms(i64::MAX, Unit::Milliseconds, 1), None);
    }

    #[test]
    fn seconds_are_rounded() {
        let seconds = |ms| in_unit(UnixMs(ms), Unit::Seconds);
        assert_eq!((seconds(499), seconds(500), seconds(1499)), (0, 1, 1));
        assert_eq!(in_unit(UnixMs(u64::MAX), Unit::Milliseconds), i64::MAX);
    }
}
