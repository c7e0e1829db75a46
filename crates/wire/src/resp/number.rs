//! Numbers as text: exactly what Redis prints and what it accepts as a number.

use super::long_double::{DOUBLE, Magnitude, split_sign};

/// Doubles up to this magnitude (2^62) that have no fraction are printed as integers.
const INTEGER_DOUBLE_MAX: f64 = 4_611_686_018_427_387_904.0;
/// No shortest text of a double has more significant digits.
const DIGITS_MAX: usize = 17;

/// Reads a whole decimal number: `-?(0|[1-9][0-9]*)` within 64 bits, nothing before or after it.
// Source: Redis 7.0 util.c string2ll behaviour
#[inline]
pub fn parse_i64_strict(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [] | [b'0', ..] => return None,
        _ => {}
    }
    // 19 digits are at most 9,999,999,999,999,999,999, which fits an unsigned sum.
    if digits.len() > 19 {
        return None;
    }
    let mut magnitude = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Reads a double that is the whole text: decimal or hexadecimal, with optional sign, fraction and
/// exponent, or `inf` and `infinity` in any case and with any sign. Rejects NaN, spaces, overflow
/// to infinity and underflow to zero.
// Source: Redis 7.2 `object.c`, `getDoubleFromObject` (C's strtod)
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    match strtod(text)? {
        Read::Exact(value) => Some(value),
        Read::OutOfRange(_) => None,
    }
}

/// Reads a bound of a range of scores: like [`parse_f64`], but an empty text is 0, leading spaces
/// are allowed, a zero byte ends the text, and overflow or underflow gives infinity or 0.
// Source: Redis 7.2 `t_zset.c`, `zslParseRange` (C's strtod)
pub fn parse_range_end(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = &text[..end];
    if text.is_empty() {
        return Some(0.0);
    }
    // C's isspace.
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    match strtod(&text[start..])? {
        Read::Exact(value) | Read::OutOfRange(value) => Some(value),
    }
}

enum Read {
    Exact(f64),
    /// Infinite because it is too large, or zero because it is too small.
    OutOfRange(f64),
}

fn strtod(text: &[u8]) -> Option<Read> {
    let (is_negative, unsigned) = split_sign(text);
    if let [b'0', b'x' | b'X', digits @ ..] = unsigned {
        let magnitude = Magnitude::parse_hexadecimal(digits, DOUBLE)?.to_f64();
        return Some(Read::Exact(if is_negative { -magnitude } else { magnitude }));
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_nan() {
        return None;
    }
    if value.is_infinite() {
        let is_named = unsigned.first().is_some_and(u8::is_ascii_alphabetic);
        return Some(if is_named { Read::Exact(value) } else { Read::OutOfRange(value) });
    }
    let is_mantissa_zero = || {
        let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        mantissa.all(|byte| !matches!(byte, b'1'..=b'9'))
    };
    Some(if value != 0.0 || is_mantissa_zero() {
        Read::Exact(value)
    } else {
        Read::OutOfRange(value)
    })
}

/// Appends a double in the form of replies: the shortest digits that read back as the same value,
/// integers without a fraction, large and small ones as `1e+20` and `1e-7`, and `inf`, `-inf`,
/// `nan`.
// Source: Redis 7.2 util.c d2string and fpconv_dtoa behaviour
pub fn double_text(value: f64, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates, and is compared")]
    let whole = value as i64;
    #[expect(clippy::cast_precision_loss, reason = "the integer was converted from a double")]
    let is_whole = (whole as f64).to_bits() == value.to_bits();
    if is_whole && value.abs() <= INTEGER_DOUBLE_MAX {
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let decimal = Decimal::shortest(value.abs());
    let exponent = decimal.scientific_exponent();
    // Plain notation is used if it is at most seven zeros longer than the digits.
    let is_short_integer = decimal.exponent >= 0 && exponent < decimal.count() + 7;
    let is_short_fraction =
        decimal.exponent < 0 && (decimal.exponent > -7 || exponent.unsigned_abs() < 4);
    if is_short_integer || is_short_fraction {
        decimal.write_fixed(out);
    } else {
        decimal.write_scientific(out);
    }
}

/// Appends the text of a value without digits; false for other values.
fn write_special(value: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = if value.is_nan() {
        b"nan"
    } else if value == f64::INFINITY {
        b"inf"
    } else if value == f64::NEG_INFINITY {
        b"-inf"
    } else {
        return false;
    };
    out.extend_from_slice(text);
    true
}

/// `0.d1d2..dn * 10^n * 10^exponent`: significant digits without zeros at either end. Zero has none.
struct Decimal {
    digits: [u8; DIGITS_MAX],
    digit_count: usize,
    exponent: i32,
}

impl Decimal {
    /// The shortest digits that read back as `value`, which is finite and not negative.
    fn shortest(value: f64) -> Self {
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut decimal = Self {
            digits: [0; DIGITS_MAX],
            digit_count: 0,
            exponent: exponent.parse().expect("ryu writes a small decimal exponent"),
        };
        // Zeros are pending until a digit follows them: trailing ones are counted, not stored.
        let mut zeros_waiting = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if byte == b'0' {
                zeros_waiting += 1;
                continue;
            }
            if decimal.digit_count > 0 {
                for _ in 0..zeros_waiting {
                    decimal.push(b'0');
                }
            }
            zeros_waiting = 0;
            decimal.push(byte);
        }
        let fraction_len = i32::try_from(fraction.len()).expect("a fraction of at most 24 digits");
        decimal.exponent += zeros_waiting - fraction_len;
        decimal
    }

    fn push(&mut self, digit: u8) {
        self.digits[self.digit_count] = digit;
        self.digit_count += 1;
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.digit_count]
    }

    fn count(&self) -> i32 {
        i32::try_from(self.digit_count).expect("at most 17 digits")
    }

    /// The exponent in the notation with one digit before the point.
    fn scientific_exponent(&self) -> i32 {
        self.exponent + self.count() - 1
    }

    fn write_fixed(&self, out: &mut Vec<u8>) {
        if self.digit_count == 0 {
            out.push(b'0');
            return;
        }
        let digits = self.digits();
        let zeros = self.exponent.unsigned_abs() as usize;
        if self.exponent >= 0 {
            out.extend_from_slice(digits);
            out.resize(out.len() + zeros, b'0');
        } else if let Some(whole_count) = digits.len().checked_sub(zeros).filter(|&n| n > 0) {
            out.extend_from_slice(&digits[..whole_count]);
            out.push(b'.');
            out.extend_from_slice(&digits[whole_count..]);
        } else {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + zeros - digits.len(), b'0');
            out.extend_from_slice(digits);
        }
    }

    fn write_scientific(&self, out: &mut Vec<u8>) {
        let digits = self.digits();
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let exponent = self.scientific_exponent();
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        double_text(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_read_strictly() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("9999999999999999999", None),
            ("10000000000000000000", None),
            ("99999999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("1.0", None),
        ] {
            assert_eq!(parse_i64_strict(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_read_as_strtod_reads_them() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("-0", Some(-0.0)),
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e3", Some(1000.0)),
            ("1E-2", Some(0.01)),
            ("0e999", Some(0.0)),
            ("inf", Some(f64::INFINITY)),
            ("+inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("5e-324", Some(5e-324)),
            ("", None),
            (".", None),
            ("-", None),
            ("1e", None),
            (" 1", None),
            ("1 ", None),
            ("nan", None),
            ("-NaN", None),
            ("1e400", None),
            ("-1e400", None),
            ("1e-400", None),
            ("abc", None),
            ("\u{0661}", None),
        ] {
            let value = parse_f64(text.as_bytes());
            assert_eq!(value.map(f64::to_bits), expected.map(f64::to_bits), "{text:?}");
        }
        assert_eq!(parse_f64(b"\xff"), None);
    }

    #[test]
    fn doubles_are_written_as_redis_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (3.25, "3.25"),
            (0.000_001, "0.000001"),
            (0.000_000_1, "1e-7"),
            (0.000_123_45, "1.2345e-4"),
            (0.001_234_5, "0.0012345"),
            (123_456_789.123, "123456789.123"),
            (100_000_000.0, "100000000"),
            (1e17, "100000000000000000"),
            (9.3e18, "9.3e+18"),
            (1e20, "1e+20"),
            (-1.5e300, "-1.5e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(double(value), expected);
        }
    }

    #[test]
    fn hexadecimal_doubles() {
        for (text, expected) in [
            ("0x10", Some(16.0)),
            ("-0X1.8p1", Some(-3.0)),
            ("0x.8", Some(0.5)),
            ("0x0p99999", Some(0.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p-1075", None),
            ("0x1.8p-1075", Some(5e-324)),
            // A tie rounds to even, and a later digit breaks the tie.
            ("0x20000000000001", Some(9_007_199_254_740_992.0)),
            ("0x20000000000001.00000000000000000000001", Some(9_007_199_254_740_994.0)),
            ("0x20000000000003", Some(9_007_199_254_740_996.0)),
            ("0x", None),
            ("0xg", None),
            ("0x1p", None),
            ("x10", None),
        ] {
            let value = parse_f64(text.as_bytes());
            assert_eq!(value.map(f64::to_bits), expected.map(f64::to_bits), "{text:?}");
        }
    }

    #[test]
    fn ends_of_ranges_are_read_as_strtod_reads_them() {
        for (text, expected) in [
            ("", Some(0.0)),
            (" 0", Some(0.0)),
            ("\t\r\n1.5", Some(1.5)),
            ("1\0abc", Some(1.0)),
            ("\0", Some(0.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-1e400", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)),
            ("0x10", Some(16.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            (" ", None),
            ("1 ", None),
            ("nan", None),
            ("abc", None),
        ] {
            let value = parse_range_end(text.as_bytes());
            assert_eq!(value.map(f64::to_bits), expected.map(f64::to_bits), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_reads_back(value: i64) {
            prop_assert_eq!(parse_i64_strict(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn every_double_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            let back = parse_f64(double(value).as_bytes()).map(f64::to_bits);
            prop_assert_eq!(back, Some(bits));
        }

        #[test]
        fn readers_of_numbers_never_panic(bytes: Vec<u8>) {
            parse_i64_strict(&bytes);
            parse_f64(&bytes);
            parse_range_end(&bytes);
            crate::resp::LongDouble::parse(&bytes);
        }
    }
}
