//! Options of SET, MSETEX, GETEX and related commands: conditions and expiry times.

use base::time::UnixMs;
use wire::resp::Args;

use super::compare::Comparison;
use crate::commands::command::Done;
use crate::commands::context::{integer, is_option};
use crate::commands::fail::Fail;

/// NX, XX, and the comparisons with the present value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnlyIf<'a> {
    Absent,
    Present,
    Value(Comparison<'a>),
}

/// Form in which an option specifies a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    InSeconds,
    InMs,
    AtSeconds,
    AtMs,
}

impl Moment {
    pub(super) fn of_option(name: &[u8]) -> Option<Moment> {
        let known = [
            ("EX", Moment::InSeconds),
            ("PX", Moment::InMs),
            ("EXAT", Moment::AtSeconds),
            ("PXAT", Moment::AtMs),
        ];
        known.into_iter().find(|(option, _)| is_option(name, option)).map(|(_, moment)| moment)
    }

    /// Returns Unix milliseconds; `None` if the number is too large or not above zero.
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

    /// Parses the time from the text of an argument of `command`.
    pub(in crate::commands) fn parse(
        self,
        text: &[u8],
        now: UnixMs,
        command: &str,
    ) -> Result<UnixMs, Fail> {
        self.resolve(integer(text)?, now)
            .ok_or_else(|| Fail::owned(format!("ERR invalid expire time in '{command}' command")))
    }
}

/// Expiry option of SET and GETEX. The number is parsed after the syntax of all options, as in
/// Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpiryOption<'a> {
    /// No expiry option.
    Unsaid,
    Keep,
    Persist,
    Until(Moment, &'a [u8]),
}

impl<'a> ExpiryOption<'a> {
    /// The option EX, PX, EXAT or PXAT, whose time is the next word.
    pub(crate) fn until(
        name: &[u8],
        words: &mut dyn Iterator<Item = &'a [u8]>,
    ) -> Result<ExpiryOption<'a>, Fail> {
        let moment = Moment::of_option(name).ok_or(Fail::Syntax)?;
        Ok(ExpiryOption::Until(moment, words.next().ok_or(Fail::Syntax)?))
    }

    /// The same or PERSIST: an option of GETEX and HGETEX.
    pub(crate) fn of_getex(
        name: &[u8],
        words: &mut dyn Iterator<Item = &'a [u8]>,
    ) -> Result<ExpiryOption<'a>, Fail> {
        if is_option(name, "PERSIST") {
            return Ok(ExpiryOption::Persist);
        }
        ExpiryOption::until(name, words)
    }

    /// Adds an option. The same one may be repeated; the last one counts.
    pub(crate) fn add(&mut self, option: ExpiryOption<'a>) -> Done {
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

    pub(super) fn deadline(self, now: UnixMs, command: &str) -> Result<Option<UnixMs>, Fail> {
        match self {
            ExpiryOption::Until(moment, text) => moment.parse(text, now, command).map(Some),
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
pub(super) struct SetOptions<'a> {
    pub(super) expiry: ExpiryOption<'a>,
    pub(super) only_if: Option<OnlyIf<'a>>,
    pub(super) get: bool,
}

impl<'a> SetOptions<'a> {
    // Source: Redis 7.2 `t_string.c`, `parseExtendedStringArgumentsOrReply`
    pub(super) fn parse(args: Args<'a>) -> Result<SetOptions<'a>, Fail> {
        SetOptions::parse_each(args.skip(3), |options, name, rest| {
            if is_option(name, "GET") {
                options.get = true;
                return Ok(true);
            }
            let Some(comparison) = Comparison::of_option(name) else { return Ok(false) };
            let comparison = comparison(rest.next().ok_or(Fail::Syntax)?);
            comparison.check()?;
            options.only_if(OnlyIf::Value(comparison))?;
            Ok(true)
        })
    }

    /// Parses the options of MSETEX.
    pub(super) fn parse_for_several(options: Args<'a>) -> Result<SetOptions<'a>, Fail> {
        SetOptions::parse_each(options, |_, _, _| Ok(false))
    }

    /// `parse_own` takes an option that only one command has, and returns whether it did.
    fn parse_each(
        args: Args<'a>,
        mut parse_own: impl FnMut(
            &mut SetOptions<'a>,
            &'a [u8],
            &mut dyn Iterator<Item = &'a [u8]>,
        ) -> Result<bool, Fail>,
    ) -> Result<SetOptions<'a>, Fail> {
        let mut options = SetOptions { expiry: ExpiryOption::Unsaid, only_if: None, get: false };
        let mut rest = args.iter();
        while let Some(name) = rest.next() {
            if is_option(name, "NX") {
                options.only_if(OnlyIf::Absent)?;
            } else if is_option(name, "XX") {
                options.only_if(OnlyIf::Present)?;
            } else if is_option(name, "KEEPTTL") {
                options.expiry.add(ExpiryOption::Keep)?;
            } else if !parse_own(&mut options, name, &mut rest)? {
                options.expiry.add(ExpiryOption::until(name, &mut rest)?)?;
            }
        }
        Ok(options)
    }

    fn only_if(&mut self, only_if: OnlyIf<'a>) -> Done {
        let is_repeated = self.only_if == Some(only_if) && !matches!(only_if, OnlyIf::Value(_));
        if self.only_if.is_some() && !is_repeated {
            return Err(Fail::Syntax);
        }
        self.only_if = Some(only_if);
        Ok(())
    }
}

/// Parses the options of GETEX, from argument 2 on.
pub(super) fn parse_getex(args: Args<'_>) -> Result<ExpiryOption<'_>, Fail> {
    let mut option = ExpiryOption::Unsaid;
    let mut rest = args.skip(2).iter();
    while let Some(name) = rest.next() {
        option.add(ExpiryOption::of_getex(name, &mut rest)?)?;
    }
    Ok(option)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
