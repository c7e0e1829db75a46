//! INCREX: an increment within bounds, with an expiry.

use std::ops::RangeInclusive;

use base::time::UnixMs;
use store::{Change, Key};
use wire::resp::{Args, LongDouble, ReplyWriter, parse_i64_strict};

use super::expiry::{ExpiryOption, Moment, OnlyIf};
use super::number::{INCREMENTS, INCREMENTS_FLOAT};
use super::{GROWS_FAST, PERSISTS, kept_expiry};
use crate::commands::command::{Command, Done, Events, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, is_option};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;

/// INCREX, of Redis 8.8; NX and XX are those of Valkey 9.2.
pub(crate) const INCREX: Command = Command {
    name: "increx",
    syntax: "key [NX | XX] [BYFLOAT float | BYINT integer] [LBOUND lowerbound] [UBOUND upperbound] \
             [SATURATE] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST] [ENX]",
    summary: "Adds a number to the value of a key within bounds, and sets its expiry; returns the new value and what was added.",
    since: "8.8.0",
    group: Group::String,
    arity: -2,
    flags: GROWS_FAST,
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: increx,
    ..Command::EMPTY
};

/// Integers, or numbers with a fraction.
trait Number: Copy + PartialOrd {
    /// The numbers that can be stored.
    const ALL: RangeInclusive<Self>;
    const ZERO: Self;
    /// What an argument is not, in its error.
    const KIND: &str;
    const OVERFLOWS: &str;
    const EVENT: KeyEvent;

    /// Parses a bound, which may be infinite.
    fn parse(text: &[u8]) -> Option<Self>;
    fn check_increment(self) -> Done;
    fn parse_stored(text: &[u8]) -> Result<Self, Fail>;
    fn is_negative(self) -> bool;
    fn checked_add(self, by: Self) -> Option<Self>;
    fn checked_sub(self, other: Self) -> Option<Self>;
    fn text(self) -> Vec<u8>;
    fn write(self, reply: &mut ReplyWriter<'_>);
}

impl Number for i64 {
    const ALL: RangeInclusive<i64> = i64::MIN..=i64::MAX;
    const ZERO: i64 = 0;
    const KIND: &str = "an integer or out of range";
    const OVERFLOWS: &str = "ERR applied increment would overflow";
    const EVENT: KeyEvent = INCREMENTS;

    fn parse(text: &[u8]) -> Option<i64> {
        parse_i64_strict(text)
    }

    fn check_increment(self) -> Done {
        Ok(())
    }

    fn parse_stored(text: &[u8]) -> Result<i64, Fail> {
        parse_i64_strict(text).ok_or(Fail::NotInteger)
    }

    fn is_negative(self) -> bool {
        self < 0
    }

    fn checked_add(self, by: i64) -> Option<i64> {
        i64::checked_add(self, by)
    }

    fn checked_sub(self, other: i64) -> Option<i64> {
        i64::checked_sub(self, other)
    }

    fn text(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    fn write(self, reply: &mut ReplyWriter<'_>) {
        reply.integer(self);
    }
}

impl Number for LongDouble {
    const ALL: RangeInclusive<LongDouble> = LongDouble::MIN..=LongDouble::MAX;
    const ZERO: LongDouble = LongDouble::ZERO;
    const KIND: &str = "a valid float";
    const OVERFLOWS: &str = "ERR applied increment would be Infinity";
    const EVENT: KeyEvent = INCREMENTS_FLOAT;

    fn parse(text: &[u8]) -> Option<LongDouble> {
        LongDouble::parse(text)
    }

    fn check_increment(self) -> Done {
        if self.is_finite() {
            return Ok(());
        }
        Err(Fail::text("ERR BYFLOAT increment cannot be Infinity"))
    }

    fn parse_stored(text: &[u8]) -> Result<LongDouble, Fail> {
        let value = LongDouble::parse(text).ok_or(Fail::NotFloat)?;
        if value.is_finite() {
            return Ok(value);
        }
        Err(Fail::text("ERR value cannot be Infinity"))
    }

    fn is_negative(self) -> bool {
        self.is_below_zero()
    }

    fn checked_add(self, by: LongDouble) -> Option<LongDouble> {
        LongDouble::checked_add(self, by)
    }

    fn checked_sub(self, other: LongDouble) -> Option<LongDouble> {
        LongDouble::checked_add(self, other.negated())
    }

    fn text(self) -> Vec<u8> {
        self.fixed_text()
    }

    fn write(self, reply: &mut ReplyWriter<'_>) {
        reply.number_text(&self.fixed_text());
    }
}

/// By how much, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Increment<'a> {
    One,
    Integer(&'a [u8]),
    Float(&'a [u8]),
}

/// When the new value expires.
#[derive(Debug, Clone, Copy)]
struct NewExpiry<'a> {
    option: ExpiryOption<'a>,
    /// ENX: only if the key does not expire yet.
    if_none: bool,
}

#[derive(Debug)]
struct Options<'a> {
    increment: Increment<'a>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: bool,
    only_if: Option<OnlyIf<'a>>,
    expiry: NewExpiry<'a>,
}

impl<'a> Options<'a> {
    /// Unlike with SET, no option may be repeated.
    // Source: Redis 8.8 documentation, "INCREX"; Valkey 9.2 documentation, "INCREX"
    fn parse(args: Args<'a>) -> Result<Options<'a>, Fail> {
        let mut options = Options {
            increment: Increment::One,
            lower: None,
            upper: None,
            saturates: false,
            only_if: None,
            expiry: NewExpiry { option: ExpiryOption::Unsaid, if_none: false },
        };
        let mut rest = args.skip(2).iter();
        while let Some(name) = rest.next() {
            let is_new = if is_option(name, "SATURATE") {
                !std::mem::replace(&mut options.saturates, true)
            } else if is_option(name, "ENX") {
                !std::mem::replace(&mut options.expiry.if_none, true)
            } else if is_option(name, "NX") {
                options.only_if.replace(OnlyIf::Absent).is_none()
            } else if is_option(name, "XX") {
                options.only_if.replace(OnlyIf::Present).is_none()
            } else if is_option(name, "PERSIST") {
                options.expiry.replace(ExpiryOption::Persist)
            } else {
                let value = rest.next().ok_or(Fail::Syntax)?;
                options.take(name, value)?
            };
            if !is_new {
                return Err(Fail::Syntax);
            }
        }
        match options.expiry {
            NewExpiry { option: ExpiryOption::Persist, if_none: true } => Err(Fail::Syntax),
            NewExpiry { option: ExpiryOption::Unsaid, if_none: true } => {
                Err(Fail::text("ERR ENX flag requires an expiration"))
            }
            _ => Ok(options),
        }
    }

    /// Takes an option with a value. Returns whether it is the first of its kind.
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<bool, Fail> {
        let increments =
            [("BYINT", Increment::Integer(value)), ("BYFLOAT", Increment::Float(value))];
        if let Some((_, increment)) = increments.iter().find(|(word, _)| is_option(name, word)) {
            return Ok(std::mem::replace(&mut self.increment, *increment) == Increment::One);
        }
        if is_option(name, "LBOUND") {
            return Ok(self.lower.replace(value).is_none());
        }
        if is_option(name, "UBOUND") {
            return Ok(self.upper.replace(value).is_none());
        }
        let moment = Moment::of_option(name).ok_or(Fail::Syntax)?;
        Ok(self.expiry.replace(ExpiryOption::Until(moment, value)))
    }

    fn bounds<N: Number>(&self) -> Result<RangeInclusive<N>, Fail> {
        let parse = |text: Option<&[u8]>, otherwise: N, name: &str| match text {
            None => Ok(otherwise),
            Some(text) => parse_as::<N>(text, name),
        };
        let lower = parse(self.lower, *N::ALL.start(), "LBOUND")?;
        let upper = parse(self.upper, *N::ALL.end(), "UBOUND")?;
        if lower > upper {
            return Err(Fail::text("ERR LBOUND can't be greater than UBOUND"));
        }
        Ok(lower..=upper)
    }
}

impl<'a> NewExpiry<'a> {
    /// Returns whether there was none.
    fn replace(&mut self, option: ExpiryOption<'a>) -> bool {
        matches!(std::mem::replace(&mut self.option, option), ExpiryOption::Unsaid)
    }
}

fn parse_as<N: Number>(text: &[u8], name: &str) -> Result<N, Fail> {
    N::parse(text).ok_or_else(|| Fail::owned(format!("ERR {name} is not {}", N::KIND)))
}

/// Returns the sum if it is within the bounds, or with `saturates` the nearest bound; `None`
/// leaves the value as it is.
fn sum_within<N: Number>(old: N, by: N, bounds: &RangeInclusive<N>, saturates: bool) -> Option<N> {
    let sum = old.checked_add(by);
    match sum {
        Some(sum) if bounds.contains(&sum) => Some(sum),
        _ if !saturates => None,
        Some(sum) if sum < *bounds.start() => Some(*bounds.start()),
        None if by.is_negative() => Some(*bounds.start()),
        _ => Some(*bounds.end()),
    }
}

fn increx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args)?;
    match options.increment {
        Increment::One => increase(cx, args, &options, 1i64),
        Increment::Integer(text) => {
            increase(cx, args, &options, parse_as::<i64>(text, "Increment")?)
        }
        Increment::Float(text) => {
            increase(cx, args, &options, parse_as::<LongDouble>(text, "Increment")?)
        }
    }
}

fn increase<N: Number>(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    options: &Options<'_>,
    by: N,
) -> Done {
    by.check_increment()?;
    let bounds = options.bounds::<N>()?;
    let deadline = options.expiry.option.deadline(cx.unix(), INCREX.name)?;
    let key = cx.key(args.get(1));
    let stored = cx.locked.string(cx.db, key)?;
    let is_allowed = match options.only_if {
        Some(OnlyIf::Absent) => stored.is_none(),
        Some(OnlyIf::Present) => stored.is_some(),
        _ => true,
    };
    let old = stored.map_or(Ok(N::ZERO), |text| N::parse_stored(&text))?;
    let new = sum_within(old, by, &bounds, options.saturates).filter(|_| is_allowed);
    let added = match new {
        None => N::ZERO,
        Some(new) => new.checked_sub(old).ok_or(Fail::text(N::OVERFLOWS))?,
    };
    if let Some(new) = new {
        set(cx, key, new, (options.expiry, deadline))?;
    }
    cx.reply.array(2);
    new.unwrap_or(old).write(&mut cx.reply);
    added.write(&mut cx.reply);
    Ok(())
}

/// Stores the new value. A time in the past deletes the key.
fn set<N: Number>(
    cx: &mut CommandContext<'_>,
    key: Key<'_>,
    value: N,
    (expiry, deadline): (NewExpiry<'_>, Option<UnixMs>),
) -> Done {
    let before = kept_expiry(cx, key);
    let deadline = deadline.filter(|_| before.is_none() || !expiry.if_none);
    if deadline.is_some_and(|at| at <= cx.expiry_now()) {
        return if cx.locked.contains(cx.db, key) { cx.delete(key) } else { Ok(()) };
    }
    let persists = matches!(expiry.option, ExpiryOption::Persist);
    let at = deadline.or(before).filter(|_| !persists);
    cx.change_as(N::EVENT, key, Change::Set { value: &value.text(), expiry: at })?;
    if N::EVENT == INCREMENTS_FLOAT {
        cx.locked.mark_text(cx.db, key);
    }
    if deadline.is_some() {
        cx.announce(KeyEvent::EXPIRES, cx.db, key);
    } else if persists && before.is_some() {
        cx.announce(PERSISTS, cx.db, key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    #[test]
    fn sums_stay_within_bounds() {
        let check = |old, by, bounds: RangeInclusive<i64>, plain, saturated| {
            assert_eq!(sum_within(old, by, &bounds, false), plain, "{old} + {by}");
            assert_eq!(sum_within(old, by, &bounds, true), Some(saturated), "{old} + {by}");
        };
        check(10, 5, 0..=20, Some(15), 15);
        check(10, 5, 0..=12, None, 12);
        check(10, 5, 0..=5, None, 5);
        check(10, -5, 20..=30, None, 20);
        check(10, -5, 0..=5, Some(5), 5);
        check(i64::MAX, 1, i64::MIN..=i64::MAX, None, i64::MAX);
        check(i64::MIN, -1, i64::MIN..=i64::MAX, None, i64::MIN);
        check(10, i64::MAX, 0..=100, None, 100);
        check(-10, i64::MIN, -100..=100, None, -100);
    }

    #[test]
    fn sums_of_the_largest_numbers_saturate() {
        let (max, min) = (LongDouble::MAX, LongDouble::MIN);
        assert_eq!(sum_within(max, max, &LongDouble::ALL, false), None);
        assert_eq!(sum_within(max, max, &LongDouble::ALL, true), Some(max));
        assert_eq!(sum_within(min, min, &LongDouble::ALL, true), Some(min));
        assert_eq!(sum_within(max, min, &LongDouble::ALL, false), Some(LongDouble::ZERO));
        assert_eq!(Number::checked_sub(max, min), None);
    }

    #[test]
    fn options_exclude_each_other() {
        let parse = |line: &str| {
            let mut args = OwnedArgs::new();
            line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
            Options::parse(args.as_args()).map(|_| ())
        };
        for line in [
            "INCREX k",
            "INCREX k ENX EX 10",
            "INCREX k byint 5 lbound 0 ubound 9 saturate px 10 enx xx",
            "INCREX k BYFLOAT 5 PERSIST",
        ] {
            assert_eq!(parse(line), Ok(()), "{line}");
        }
        for line in [
            "INCREX k 5",
            "INCREX k BYINT",
            "INCREX k BYINT 1 BYFLOAT 1",
            "INCREX k BYINT 1 BYINT 1",
            "INCREX k LBOUND 0 LBOUND 1",
            "INCREX k UBOUND 0 UBOUND 1",
            "INCREX k SATURATE SATURATE",
            "INCREX k NX XX",
            "INCREX k NX NX",
            "INCREX k EX 1 EX 1",
            "INCREX k EX 1 PX 1",
            "INCREX k EX 1 PERSIST",
            "INCREX k PERSIST ENX",
            "INCREX k PERSIST PERSIST",
            "INCREX k KEEPTTL",
        ] {
            assert_eq!(parse(line), Err(Fail::Syntax), "{line}");
        }
        assert!(parse("INCREX k ENX").is_err_and(|fail| fail != Fail::Syntax));
    }
}
