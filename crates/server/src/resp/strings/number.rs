//! Strings that are numbers: INCR and its kin.

use store::Change;
use wire::resp::{Args, fixed_double_text};

use super::{GROWS_FAST, kept_expiry};
use crate::resp::command::{Command, Done, Group, KeyAccess, KeySpec};
use crate::resp::cx::{Cx, float, integer};
use crate::resp::fail::Fail;

/// INCR: one more.
pub(crate) const INCR: Command = Command {
    name: "incr",
    syntax: "key",
    summary: "Adds one to the integer value of a key; a missing key counts as 0.",
    since: "1.0.0",
    group: Group::String,
    arity: 2,
    flags: GROWS_FAST,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: incr,
    ..Command::EMPTY
};

fn incr(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, 1)
}

/// DECR: one less.
pub(crate) const DECR: Command = Command {
    name: "decr",
    summary: "Takes one off the integer value of a key; a missing key counts as 0.",
    run: decr,
    ..INCR
};

fn decr(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, -1)
}

/// INCRBY: more by a number.
pub(crate) const INCRBY: Command = Command {
    name: "incrby",
    syntax: "key increment",
    summary: "Adds a number to the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: incrby,
    ..INCR
};

fn incrby(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    increment(cx, args, integer(args.get(2))?)
}

/// DECRBY: less by a number.
pub(crate) const DECRBY: Command = Command {
    name: "decrby",
    syntax: "key decrement",
    summary: "Takes a number off the integer value of a key; a missing key counts as 0.",
    arity: 3,
    run: decrby,
    ..INCR
};

fn decrby(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let by = integer(args.get(2))?;
    let by = by.checked_neg().ok_or(Fail::text("ERR decrement would overflow"))?;
    increment(cx, args, by)
}

fn increment(cx: &mut Cx<'_>, args: Args<'_>, by: i64) -> Done {
    let key = cx.key(args.get(1));
    let old = cx.locked.string(cx.db, key)?.map_or(Ok(0), integer)?;
    let new = old.checked_add(by).ok_or(Fail::Overflow)?;
    let mut text = itoa::Buffer::new();
    let value = text.format(new).as_bytes();
    let expiry = kept_expiry(cx, key);
    cx.change(key, Change::Set { value, expiry })?;
    cx.reply.integer(new);
    Ok(())
}

/// INCRBYFLOAT: more by a number with a fraction.
pub(crate) const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    syntax: "key increment",
    summary: "Adds a number with a fraction to the value of a key; a missing key counts as 0.",
    since: "2.6.0",
    arity: 3,
    run: incrbyfloat,
    ..INCR
};

fn incrbyfloat(cx: &mut Cx<'_>, args: Args<'_>) -> Done {
    let (key, by) = (cx.key(args.get(1)), args.get(2));
    let old = cx.locked.string(cx.db, key)?.unwrap_or(b"0");
    float(old)?;
    float(by)?;
    let value = float_sum_text(old, by)?;
    let expiry = kept_expiry(cx, key);
    cx.change(key, Change::Set { value: &value, expiry })?;
    cx.reply.bulk(&value);
    Ok(())
}

/// Decimal places of a sum of floating-point texts.
const SUM_DECIMALS: i32 = 17;

/// The sum of two valid floating-point texts, without an exponent and with at most 17 decimals.
///
/// Redis adds in 80 bits and rounds to 17 decimals, so that 0.1 + 0.2 is 0.3. Where both texts fit a
/// whole number of 10^-17 in 128 bits, which is below 10^21, the sum is exact here; else it is that
/// of 64-bit floats.
// Source: Redis 7.2 `t_string.c`, `incrbyfloatCommand`
pub(crate) fn float_sum_text(old: &[u8], by: &[u8]) -> Result<Vec<u8>, Fail> {
    let exact = parse_decimal(old).zip(parse_decimal(by)).and_then(|(a, b)| a.checked_add(b));
    if let Some(sum) = exact {
        return Ok(decimal_text(sum));
    }
    let sum = float(old)? + float(by)?;
    if !sum.is_finite() {
        return Err(Fail::text("ERR increment would produce NaN or Infinity"));
    }
    let mut text = Vec::new();
    fixed_double_text(sum, &mut text);
    Ok(text)
}

/// A decimal text in units of 10^-17, if it is a whole number of them.
fn parse_decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (text, 0i32),
    };
    let negative = mantissa.starts_with('-');
    let digits = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number = whole.bytes().chain(fraction.bytes()).try_fold(0i128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    let fraction_len = i32::try_from(fraction.len()).ok()?;
    let shift = exponent.checked_add(SUM_DECIMALS)?.checked_sub(fraction_len)?;
    let power = 10i128.checked_pow(shift.unsigned_abs())?;
    let units = if shift >= 0 {
        number.checked_mul(power)?
    } else {
        (number % power == 0).then_some(number / power)?
    };
    Some(if negative { -units } else { units })
}

/// The shortest decimal text of a number of 10^-17.
fn decimal_text(units: i128) -> Vec<u8> {
    let one = 10u128.pow(SUM_DECIMALS.unsigned_abs());
    let (whole, fraction) = (units.unsigned_abs() / one, units.unsigned_abs() % one);
    let sign = if units < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{fraction:017}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_sum(old: &str, by: &str, expected: &str) {
        let text = float_sum_text(old.as_bytes(), by.as_bytes()).expect("a sum");
        assert_eq!(String::from_utf8_lossy(&text), expected, "{old} + {by}");
    }

    #[test]
    fn sums_of_floats() {
        check_sum("0.1", "0.2", "0.3");
        check_sum("1.5", "1.5", "3");
        check_sum("3", "-3", "0");
        check_sum("-0.25", "0.5", "0.25");
        check_sum("0.25", "-0.5", "-0.25");
        check_sum("5.0e3", "2.0E+2", "5200");
        check_sum("1e-17", "0", "0.00000000000000001");
        check_sum("+.5", "1.", "1.5");
        check_sum("-0", "0", "0");
        check_sum("123456789012345678901", "0.5", "123456789012345678901.5");
        check_sum("1e30", "1", "1000000000000000000000000000000");
        check_sum("1e-300", "0", "0");
        check_sum("3.000000000000000000", "1", "4");
    }

    #[test]
    fn sums_that_are_no_number() {
        assert!(float_sum_text(b"inf", b"1").is_err());
        assert!(float_sum_text(b"inf", b"-inf").is_err());
        assert!(float_sum_text(b"1e308", b"1.7e308").is_err());
    }

    proptest! {
        #[test]
        fn sums_of_hundredths_are_exact(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
            let text = |n: i64| format!("{n}e-2").into_bytes();
            let sum = float_sum_text(&text(a), &text(b)).expect("a sum");
            let value = wire::resp::parse_f64(&sum).expect("a number");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = (a + b) as f64 / 100.0;
            prop_assert_eq!(value.to_bits(), expected.to_bits());
        }
    }
}
