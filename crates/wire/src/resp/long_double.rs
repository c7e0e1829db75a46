//! Numbers of x86's 80-bit format, which INCRBYFLOAT and HINCRBYFLOAT use: a mantissa of 64 bits
//! and exponents up to 2^16383, computed with integers, so that every machine returns the same
//! digits.

use std::cmp::Ordering;

use super::big::Big;

/// Maximum length of a text that is read as a number, less one.
// Source: Redis 7.2 `util.h`, `MAX_LONG_DOUBLE_CHARS`
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Decimal places of [`LongDouble::fixed_text`].
const DECIMALS: usize = 17;
const ONE: u128 = 10u128.pow(17);

/// Precision and range of a binary format: a number is an integer of `bits` times a power of two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    bits: u32,
    /// Exponent of the smallest unit.
    exponent_min: i32,
    /// Exponent of the largest unit.
    exponent_max: i32,
}

/// C's `double`.
pub(super) const DOUBLE: Format = Format { bits: 53, exponent_min: -1074, exponent_max: 971 };
const EXTENDED: Format = Format { bits: 64, exponent_min: -16_445, exponent_max: 16_320 };

/// A number without a sign: `mantissa * 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Magnitude {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
}

impl Magnitude {
    const ZERO: Magnitude = Magnitude { mantissa: 0, exponent: 0 };

    /// The nearest number of a format, or the even one of two equally near. `is_more`: the exact
    /// value is a little larger. None: it is too large.
    fn round(mantissa: u128, is_more: bool, exponent: i32, format: Format) -> Option<Magnitude> {
        if mantissa == 0 {
            return Some(Magnitude::ZERO);
        }
        let len = u128::BITS - mantissa.leading_zeros();
        let excess = len.cast_signed() - format.bits.cast_signed();
        let shift = excess.max(format.exponent_min.saturating_sub(exponent));
        let exponent = exponent.saturating_add(shift);
        let mut kept = if shift <= 0 {
            mantissa << shift.unsigned_abs()
        } else {
            let kept = mantissa.checked_shr(shift.unsigned_abs()).unwrap_or(0);
            // More than 128 bits beyond the mantissa's end, no value reaches a half.
            let half = 1u128.checked_shl(shift.unsigned_abs() - 1);
            let rest = mantissa - kept.checked_shl(shift.unsigned_abs()).unwrap_or(0);
            let rounds_up = half.is_some_and(|half| match rest.cmp(&half) {
                Ordering::Less => false,
                Ordering::Equal => is_more || kept % 2 == 1,
                Ordering::Greater => true,
            });
            kept + u128::from(rounds_up)
        };
        let mut exponent = exponent;
        if kept >> format.bits > 0 {
            kept >>= 1;
            exponent += 1;
        }
        let mantissa = u64::try_from(kept).expect("no format has more than 64 bits");
        match mantissa {
            0 => Some(Magnitude::ZERO),
            _ => (exponent <= format.exponent_max).then_some(Magnitude { mantissa, exponent }),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a double has at most 53 bits")]
    pub(super) fn to_f64(self) -> f64 {
        // In two steps: the power alone may underflow.
        let half = self.exponent / 2;
        self.mantissa as f64 * 2f64.powi(half) * 2f64.powi(self.exponent - half)
    }

    /// Reads the text after `0x`. None: not a number, too large, or so small that it underflows.
    // Source: C11 7.22.1.3 (strtod), hexadecimal floating-point constants
    pub(super) fn parse_hexadecimal(text: &[u8], format: Format) -> Option<Magnitude> {
        let digits_end = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
        let (digits, exponent) = match digits_end {
            Some(end) => (&text[..end], parse_exponent(&text[end + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = split_at_point(digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (mut mantissa, mut is_more, mut shift) = (0u128, false, 0i64);
        for (at, byte) in whole.iter().chain(fraction).enumerate() {
            let digit = char::from(*byte).to_digit(16)?;
            let is_fraction = at >= whole.len();
            if mantissa >> 120 == 0 {
                mantissa = mantissa << 4 | u128::from(digit);
                shift -= 4 * i64::from(is_fraction);
            } else {
                is_more |= digit > 0;
                shift += 4 * i64::from(!is_fraction);
            }
        }
        let exponent = i32::try_from((shift + exponent).clamp(-1 << 30, 1 << 30)).ok()?;
        let rounded = Magnitude::round(mantissa, is_more, exponent, format)?;
        (rounded.mantissa > 0 || mantissa == 0).then_some(rounded)
    }

    /// Reads digits with a point and an exponent. None: as [`Magnitude::parse_hexadecimal`].
    // Source: C11 7.22.1.3 (strtod), decimal floating-point constants
    fn parse_decimal(text: &[u8]) -> Option<Magnitude> {
        /// No text of a number that fits has a larger one.
        const EXPONENT_MAX: i64 = 16_000;
        let digits_end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (digits, exponent) = match digits_end {
            Some(end) => (&text[..end], parse_exponent(&text[end + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = split_at_point(digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut number = Big::default();
        for byte in whole.iter().chain(fraction) {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.multiply_and_add(10, digit);
        }
        if number.is_zero() {
            return Some(Magnitude::ZERO);
        }
        let exponent = exponent - i64::try_from(fraction.len()).ok()?;
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        let power = Big::power_of_ten(exponent.unsigned_abs());
        let (mantissa, is_more, shift) =
            if exponent >= 0 { number.multiply(&power).leading() } else { number.divide(&power) };
        Magnitude::round(mantissa, is_more, shift, EXTENDED).filter(|it| it.mantissa > 0)
    }
}

/// The exponent after `e` or `p`; clamped if it is out of range for every number.
// Source: C11 7.22.1.3 (strtod)
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i64, |exponent, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        Some((exponent * 10 + digit).min(1 << 40))
    })?;
    Some(if is_negative { -magnitude } else { magnitude })
}

/// The digits before and after the point.
fn split_at_point(digits: &[u8]) -> (&[u8], &[u8]) {
    match digits.iter().position(|byte| *byte == b'.') {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[]),
    }
}

/// Whether there is a minus, and the text after the sign.
pub(super) fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    }
}

/// A finite number of the 80-bit format, or an infinite one.
#[derive(Debug, Clone, Copy)]
pub struct LongDouble {
    is_negative: bool,
    /// None: infinite.
    magnitude: Option<Magnitude>,
}

impl LongDouble {
    pub const ZERO: LongDouble =
        LongDouble { is_negative: false, magnitude: Some(Magnitude::ZERO) };
    /// The largest finite number.
    pub const MAX: LongDouble = LongDouble {
        is_negative: false,
        magnitude: Some(Magnitude { mantissa: u64::MAX, exponent: EXTENDED.exponent_max }),
    };
    /// The smallest finite number.
    pub const MIN: LongDouble = LongDouble::MAX.negated();

    /// Reads a number that is the whole text: decimal or hexadecimal, with optional sign, fraction
    /// and exponent, or `inf` and `infinity` in any case. Rejects NaN, spaces, overflow to infinity
    /// and underflow to zero.
    // Source: Redis 7.2 `util.c`, `string2ld` (C's strtold)
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, unsigned) = split_sign(text);
        if [&b"inf"[..], b"infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
            return Some(LongDouble { is_negative, magnitude: None });
        }
        let magnitude = match unsigned {
            [b'0', b'x' | b'X', digits @ ..] => Magnitude::parse_hexadecimal(digits, EXTENDED),
            digits => Magnitude::parse_decimal(digits),
        };
        magnitude.map(|magnitude| LongDouble { is_negative, magnitude: Some(magnitude) })
    }

    pub fn is_finite(self) -> bool {
        self.magnitude.is_some()
    }

    #[must_use]
    pub const fn negated(self) -> LongDouble {
        LongDouble { is_negative: !self.is_negative, ..self }
    }

    /// False for -0.
    pub fn is_below_zero(self) -> bool {
        self.is_negative && self.magnitude != Some(Magnitude::ZERO)
    }

    /// The sum, rounded to the format. None: infinite or not a number.
    pub fn checked_add(self, other: LongDouble) -> Option<LongDouble> {
        const ROOM: u32 = u64::BITS - 1;
        let (mut large, mut small) = ((self, self.magnitude?), (other, other.magnitude?));
        if large.1.mantissa == 0 || (small.1.mantissa > 0 && small.1.exponent > large.1.exponent) {
            std::mem::swap(&mut large, &mut small);
        }
        // The smaller one is shifted until both have the same unit; bits shifted out only count as
        // "a little more".
        let distance = large.1.exponent.abs_diff(small.1.exponent);
        let distance = if small.1.mantissa == 0 { 0 } else { distance };
        let (up, down) = (distance.min(ROOM), distance.saturating_sub(ROOM));
        let a = u128::from(large.1.mantissa) << up;
        let b = u128::from(small.1.mantissa.checked_shr(down).unwrap_or(0));
        let is_more = down > 0 && small.1.mantissa.trailing_zeros() < down;
        let (sum, is_negative) = if large.0.is_negative == small.0.is_negative {
            (a + b, large.0.is_negative)
        } else if a >= b {
            (a - b - u128::from(is_more), large.0.is_negative)
        } else {
            (b - a, small.0.is_negative)
        };
        let exponent = large.1.exponent - up.cast_signed();
        let magnitude = Magnitude::round(sum, is_more, exponent, EXTENDED)?;
        Some(LongDouble { is_negative, magnitude: Some(magnitude) })
    }

    /// The text without an exponent, with at most 17 decimal places and without trailing zeros.
    // Source: Redis 7.2 `util.c`, `ld2string` (LD_STR_HUMAN)
    pub fn fixed_text(self) -> Vec<u8> {
        let sign = if self.is_negative { "-" } else { "" };
        let Some(Magnitude { mantissa, exponent }) = self.magnitude else {
            return format!("{sign}inf").into();
        };
        if mantissa == 0 {
            return b"0".into();
        }
        if let Ok(up) = u64::try_from(exponent) {
            let mut number = Big::from(mantissa);
            number.shift_left(up);
            return format!("{sign}{}", number.decimal_text()).into();
        }
        let down = exponent.unsigned_abs();
        let units = u128::from(mantissa) * ONE;
        let rounded = match 1u128.checked_shl(down) {
            None => 0,
            Some(divisor) => {
                let (kept, rest) = (units / divisor, units % divisor);
                let rounds_up = match rest.cmp(&(divisor - rest)) {
                    Ordering::Less => false,
                    Ordering::Equal => kept % 2 == 1,
                    Ordering::Greater => true,
                };
                kept + u128::from(rounds_up)
            }
        };
        if rounded == 0 {
            return b"0".into();
        }
        let text = format!("{sign}{}.{:0DECIMALS$}", rounded / ONE, rounded % ONE);
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

/// -0 equals 0.
impl PartialEq for LongDouble {
    fn eq(&self, other: &LongDouble) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    /// Numbers are normalized, so that a larger exponent means a larger number.
    fn partial_cmp(&self, other: &LongDouble) -> Option<Ordering> {
        let size = |number: &LongDouble| match number.magnitude {
            None => (2, 0, 0),
            Some(Magnitude { mantissa: 0, .. }) => (0, 0, 0),
            Some(Magnitude { mantissa, exponent }) => (1, exponent, mantissa),
        };
        Some(match (self.is_below_zero(), other.is_below_zero()) {
            (false, false) => size(self).cmp(&size(other)),
            (true, true) => size(other).cmp(&size(self)),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let [a, b] = [a, b].map(|text| LongDouble::parse(text.as_bytes()).expect("a number"));
        let text = a.checked_add(b).map_or(b"none".to_vec(), LongDouble::fixed_text);
        String::from_utf8(text).unwrap()
    }

    /// What redis-server 7.0 replies on x86-64.
    #[test]
    fn sums_are_those_of_80_bits() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("3", "-3", "0"),
            ("-0", "-0", "0"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0E+2", "5200"),
            ("+.5", "1.", "1.5"),
            ("-0.25", "0.5", "0.25"),
            ("0.25", "-0.5", "-0.25"),
            ("0", "3.141592653589793238", "3.14159265358979324"),
            ("2147483648", "51.8466", "2147483699.84660000004805624"),
            ("1000000000000000000.3", "0", "1000000000000000000.3125"),
            ("1000000000000000000.3125", "0.00000000000000000001", "1000000000000000000.3125"),
            ("0x10", "1", "17"),
            ("0x1.8p1", "-0x.8", "2.5"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-300", "0", "0"),
            ("1e-4950", "0", "0"),
            ("1e4932", "1e4932", "none"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551618", "1", "18446744073709551620"),
            ("18446744073709551616", "-0.1", "18446744073709551616"),
            ("9223372036854775808", "-0.25", "9223372036854775808"),
            ("1e30", "1", "1000000000000000000024696061952"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
            assert_eq!(sum(b, a), expected, "{b} + {a}");
        }
    }

    #[test]
    fn large_numbers_have_all_their_digits() {
        let text = sum("1e4000", "0");
        assert_eq!(text.len(), 4000);
        assert!(text.starts_with("999999999999999999996546387309"), "{text:.30}");
        assert_eq!(sum("1e40", "0"), "9999999999999999999783686092270256259072");
    }

    #[test]
    fn malformed_numbers_are_rejected() {
        for text in [
            "",
            " 1",
            "1 ",
            "abc",
            "nan",
            "-NaN",
            "1e",
            "e5",
            ".",
            "-",
            "+",
            "0x",
            "0x.",
            "0xg",
            "0x1p",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "0x1p-20000",
            "1.2.3",
            "--1",
            "1e99999999999999999999",
            "infinit",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; TEXT_BYTES_MAX]), None);
        assert!(LongDouble::parse(&[b'0'; TEXT_BYTES_MAX - 1]).is_some());
        assert!(LongDouble::parse(b"-Infinity").is_some_and(|it| !it.is_finite()));
        let [plus, minus] = [&b"inf"[..], b"-inf"].map(|text| LongDouble::parse(text).unwrap());
        assert_eq!(plus.checked_add(minus), None);
        assert_eq!(plus.checked_add(plus), None);
    }

    #[test]
    fn numbers_are_ordered() {
        let texts =
            ["-inf", "-1e4932", "-3", "-2.5", "-1e-4940", "-0", "1e-4940", "1", "1e9", "inf"];
        let numbers = texts.map(|text| LongDouble::parse(text.as_bytes()).unwrap());
        assert!(numbers.is_sorted_by(|a, b| a < b));
        assert_eq!(numbers[5], LongDouble::ZERO);
        assert!(!numbers[5].is_below_zero());
        assert!(numbers[4].is_below_zero());
        assert!(LongDouble::MAX < numbers[9]);
        assert!(numbers[1] > LongDouble::MIN);
    }

    #[test]
    fn zeros_with_any_exponent_are_zero() {
        for text in ["0", "-0.000", "0e99999", "0x0p99999", "0e-99999"] {
            assert_eq!(sum(text, "7"), "7", "{text}");
        }
    }

    proptest! {
        #[test]
        fn sums_of_hundredths_are_near(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
            let text = sum(&format!("{a}e-2"), &format!("{b}e-2"));
            let value: f64 = text.parse().expect("a number");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = (a + b) as f64 / 100.0;
            // Each number is rounded to 64 bits, and the text to 53 bits.
            let allowed = 2e-15 + expected.abs() * f64::EPSILON;
            prop_assert!((value - expected).abs() <= allowed, "{} {}", value, expected);
        }

        #[test]
        fn sums_of_integers_are_exact(a in -(1i64 << 62)..1 << 62, b in -(1i64 << 62)..1 << 62) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
        }

        #[test]
        fn a_double_is_read_exactly(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let read = LongDouble::parse(format!("{value:e}").as_bytes()).expect("a number");
            // The nearest double of the nearest 80-bit number, but for ties.
            let magnitude = read.magnitude.expect("it is finite").to_f64();
            let error = (magnitude - value.abs()).abs();
            prop_assert!(error <= value.abs() * f64::EPSILON, "{} {}", magnitude, value);
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "[-+0-9a-fxpEe.]{0,24}") {
            let read = LongDouble::parse(text.as_bytes());
            if let (Some(read), Ok(value)) = (read, text.parse::<f64>()) {
                prop_assert_eq!(read.is_negative, value.is_sign_negative());
            }
        }
    }
}
