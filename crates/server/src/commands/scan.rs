//! Cursor and options shared by SCAN, HSCAN, SSCAN and ZSCAN.

use wire::resp::Args;

use super::command::Done;
use super::context::{integer, is_option};
use super::fail::Fail;
use crate::engine::glob::Steps;

const COUNT_DEFAULT: usize = 10;

/// COUNT is a hint: larger values are reduced to this number of elements per call, which takes a
/// few milliseconds.
const COUNT_MAX: usize = 1 << 16;

/// The options of a scan.
#[derive(Debug)]
pub(crate) struct ScanOptions<'a> {
    /// MATCH, or `None` if the pattern is `*`, which matches everything.
    pub(crate) pattern: Option<&'a [u8]>,
    /// COUNT: about how many elements to visit, at least 1.
    pub(crate) count: usize,
    /// TYPE: SCAN only, see [`Self::refuse_type`].
    pub(crate) type_name: Option<&'a [u8]>,
    /// NOVALUES: HSCAN only, see [`Self::refuse_no_values`].
    pub(crate) no_values: bool,
    /// Remaining steps for MATCH; to be checked after the scan.
    pub(crate) steps: Steps,
}

impl<'a> ScanOptions<'a> {
    /// Parses the arguments from `from` on.
    // Source: Redis 7.2 `db.c`, `scanGenericCommand`; NOVALUES as in 7.4
    pub(crate) fn parse(args: Args<'a>, from: usize) -> Result<ScanOptions<'a>, Fail> {
        ScanOptions::parse_with(args, from, |_, _| Ok(false))
    }

    /// `parse_own` takes an option with a value that only one command has, and returns whether it
    /// did.
    pub(crate) fn parse_with(
        args: Args<'a>,
        from: usize,
        mut parse_own: impl FnMut(&'a [u8], &'a [u8]) -> Result<bool, Fail>,
    ) -> Result<ScanOptions<'a>, Fail> {
        let mut options = ScanOptions {
            pattern: None,
            count: COUNT_DEFAULT,
            type_name: None,
            no_values: false,
            steps: Steps::default(),
        };
        let mut rest = args.skip(from).iter();
        while let Some(name) = rest.next() {
            if is_option(name, "NOVALUES") {
                options.no_values = true;
                continue;
            }
            let value = rest.next().ok_or(Fail::Syntax)?;
            if is_option(name, "COUNT") {
                options.count = parse_count(value)?;
            } else if is_option(name, "MATCH") {
                options.pattern = (value != b"*").then_some(value);
            } else if is_option(name, "TYPE") {
                options.type_name = Some(value);
            } else if !parse_own(name, value)? {
                return Err(Fail::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether this key, field or member matches MATCH.
    #[inline]
    pub(crate) fn accepts(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| self.steps.matches(pattern, name))
    }

    /// Rejects TYPE in all commands but SCAN: elements of a collection have no types.
    pub(crate) fn refuse_type(&self) -> Done {
        if self.type_name.is_some() { Err(Fail::Syntax) } else { Ok(()) }
    }

    /// Rejects NOVALUES in all commands but HSCAN.
    pub(crate) fn refuse_no_values(&self) -> Done {
        if self.no_values {
            return Err(Fail::text("ERR NOVALUES option can only be used in HSCAN"));
        }
        Ok(())
    }
}

fn parse_count(text: &[u8]) -> Result<usize, Fail> {
    let count = integer(text)?;
    if count < 1 {
        return Err(Fail::Syntax);
    }
    usize::try_from(count).map(|count| count.min(COUNT_MAX)).map_err(|_| Fail::NotInteger)
}

/// Parses the cursor of a scan. Clients that treat it as a signed number send it back signed, so a
/// sign has the same meaning as in C; an empty text is 0, and a zero byte ends the text.
// Source: Redis 7.2 `db.c`, `parseScanCursorOrReply` (C's strtoul)
pub(crate) fn parse_cursor(text: &[u8]) -> Result<u64, Fail> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (digits, negative) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] | digits => (digits, false),
    };
    let cursor = parse_digits(digits).ok_or(Fail::text("ERR invalid cursor"))?;
    Ok(if negative { cursor.wrapping_neg() } else { cursor })
}

fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::OwnedArgs;

    fn parse<T>(line: &str, look: impl Fn(&ScanOptions<'_>) -> T) -> Result<T, Fail> {
        let mut args = OwnedArgs::new();
        line.split_whitespace().for_each(|word| args.push(word.as_bytes()));
        ScanOptions::parse(args.as_args(), 2).map(|options| look(&options))
    }

    #[test]
    fn options_in_any_order_and_case() {
        let line = "SCAN 0 type hash Count 7 mAtch a* NOVALUES";
        let seen = parse(line, |options| {
            assert_eq!(options.type_name, Some(&b"hash"[..]));
            assert!(options.accepts(b"ab"));
            assert!(!options.accepts(b"b"));
            assert_eq!(options.refuse_type(), Err(Fail::Syntax));
            assert!(options.refuse_no_values().is_err());
            options.count
        });
        assert_eq!(seen, Ok(7));
    }

    #[test]
    fn without_options_everything_goes() {
        let seen = parse("SCAN 0", |options| {
            assert_eq!(options.refuse_type(), Ok(()));
            assert_eq!(options.refuse_no_values(), Ok(()));
            (options.count, options.accepts(b""), options.no_values)
        });
        assert_eq!(seen, Ok((10, true, false)));
        assert_eq!(parse("SCAN 0 MATCH *", |options| options.pattern.is_none()), Ok(true));
    }

    #[test]
    fn wrong_options_are_refused() {
        for line in ["SCAN 0 COUNT", "SCAN 0 COUNT 0", "SCAN 0 COUNT -1", "SCAN 0 NONSENSE 1"] {
            assert_eq!(parse(line, |_| ()), Err(Fail::Syntax), "{line}");
        }
        assert_eq!(parse("SCAN 0 COUNT x", |_| ()), Err(Fail::NotInteger));
    }

    #[test]
    fn cursors() {
        assert_eq!(parse_cursor(b"0"), Ok(0));
        assert_eq!(parse_cursor(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_cursor(b"-1"), Ok(u64::MAX));
        assert_eq!(parse_cursor(b"+17"), Ok(17));
        assert_eq!(parse_cursor(b""), Ok(0));
        assert_eq!(parse_cursor(b"7\0abc"), Ok(7));
        for text in ["-", "abc", " 1", "1 ", "18446744073709551616", "--1"] {
            assert!(parse_cursor(text.as_bytes()).is_err(), "{text}");
        }
    }
}
