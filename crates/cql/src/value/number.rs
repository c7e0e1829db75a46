//! Numbers of arbitrary length.

use num_bigint::BigInt;

use crate::type_name::Native;

/// A decimal: `unscaled / 10^scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) unscaled: BigInt,
    pub(crate) scale: i32,
}

/// Maximum scale or exponent of a decimal in text: a larger one would turn a short text into a long
/// number.
const SCALE_MAX: i64 = 10_000;

/// Maximum digits of a number in text: the time to read or write a number is quadratic in its
/// digits.
pub(crate) const DIGITS_MAX: usize = 10_000;

/// Maximum bytes of a varint, or of a decimal after its scale: those of [`DIGITS_MAX`] digits.
pub(crate) const NUMBER_BYTES_MAX: usize = 4_160;
const _: () = assert!(NUMBER_BYTES_MAX * 8 > DIGITS_MAX * 33_220 / 10_000);

/// A number with any sign, if it does not have too many digits.
pub(crate) fn parse_integer(text: &str) -> Option<BigInt> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.len() > DIGITS_MAX { None } else { text.parse().ok() }
}

/// Rejects a varint or decimal that is too long to be printed as text.
pub(crate) fn check_number(bytes: &[u8], native: Native) -> Result<(), String> {
    let bytes_max = match native {
        Native::Varint => NUMBER_BYTES_MAX,
        Native::Decimal => 4 + NUMBER_BYTES_MAX,
        _ => return Ok(()),
    };
    if bytes.len() <= bytes_max {
        return Ok(());
    }
    let name = native.name();
    Err(format!("A {name} of {} bytes is longer than the maximum of {bytes_max}", bytes.len()))
}

impl Decimal {
    /// `12.50`, `-3e10`.
    pub(crate) fn parse(text: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            None => (text, 0),
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let unscaled = parse_integer(&format!("{whole}{fraction}"))?;
        let scale = i64::try_from(fraction.len()).ok()? - exponent;
        if scale.abs() > SCALE_MAX {
            return None;
        }
        Some(Decimal { unscaled, scale: i32::try_from(scale).ok()? })
    }

    #[must_use]
    pub(crate) fn negated(&self) -> Decimal {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    /// The same number without trailing zeros. Zero has scale 0.
    // Source: java.math.BigDecimal, stripTrailingZeros
    #[must_use]
    pub(crate) fn stripped(mut self) -> Decimal {
        if self.unscaled == BigInt::ZERO {
            return Decimal { unscaled: BigInt::ZERO, scale: 0 };
        }
        let text = self.unscaled.to_string();
        let kept = text.trim_end_matches('0');
        let zeros = i32::try_from(text.len() - kept.len()).unwrap_or(i32::MAX);
        let Some(scale) = self.scale.checked_sub(zeros) else { return self };
        self.unscaled = kept.parse().expect("digits are a number");
        Decimal { scale, ..self }
    }

    /// The lowest 64 bits of the integer part.
    // Source: java.math.BigDecimal, longValue
    pub(crate) fn whole_low_bits(&self) -> i64 {
        let scale = self.scale.unsigned_abs();
        if self.scale <= 0 {
            // 10^64 and larger powers are multiples of 2^64.
            let is_zero = scale >= 64;
            let factor = if is_zero { BigInt::ZERO } else { BigInt::from(10).pow(scale) };
            return low_bits(&(&self.unscaled * factor));
        }
        // Ten to the power of the number's bits is larger than the number itself.
        if u64::from(scale) > self.unscaled.bits() {
            return 0;
        }
        low_bits(&(&self.unscaled / BigInt::from(10).pow(scale)))
    }

    // Source: native_protocol_v5.spec 6.5 "decimal"
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.scale.to_be_bytes()[..], &self.unscaled.to_signed_bytes_be()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk()?;
        if unscaled.is_empty() {
            return None;
        }
        let unscaled = BigInt::from_signed_bytes_be(unscaled);
        Some(Decimal { unscaled, scale: i32::from_be_bytes(*scale) })
    }
}

impl std::fmt::Display for Decimal {
    /// Without an exponent where Java's `BigDecimal` prints none.
    // Source: java.math.BigDecimal, toString
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.unscaled.magnitude().to_string();
        let sign = if self.unscaled.sign() == num_bigint::Sign::Minus { "-" } else { "" };
        if self.scale == 0 {
            return write!(formatter, "{sign}{text}");
        }
        let digits = i64::try_from(text.len()).expect("texts fit memory");
        let scale = i64::from(self.scale);
        let exponent = digits - 1 - scale;
        if scale > 0 && exponent >= -6 {
            let split = digits - scale;
            return match usize::try_from(split) {
                Ok(split) if split > 0 => {
                    write!(formatter, "{sign}{}.{}", &text[..split], &text[split..])
                }
                _ => {
                    let zeros = "0".repeat(usize::try_from(-split).unwrap_or(0));
                    write!(formatter, "{sign}0.{zeros}{text}")
                }
            };
        }
        let (first, rest) = text.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(formatter, "{sign}{first}{point}{rest}E{exponent:+}")
    }
}

/// Java's text of a float or a double, with the fewest digits that read back as the same number:
/// `1.0`, `1.5E10`, `NaN`, `-Infinity`.
// Source: java.lang.Double, toString
pub(crate) fn float_text(number: impl std::fmt::LowerExp) -> String {
    let text = format!("{number:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text.replace("inf", "Infinity");
    };
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    if !(-3..7).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let rest = if rest.is_empty() { "0" } else { rest };
        return format!("{sign}{first}.{rest}E{exponent}");
    }
    match usize::try_from(exponent + 1) {
        // Zeros between the point and the first digit.
        Err(_) | Ok(0) => {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
        Ok(whole) => {
            let digits = format!("{digits:0<width$}", width = whole + 1);
            format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
        }
    }
}

/// The lowest 64 bits of the two's complement.
pub(crate) fn low_bits(value: &BigInt) -> i64 {
    let mut bytes = value.to_signed_bytes_be();
    let fill = if value.sign() == num_bigint::Sign::Minus { 0xFF } else { 0 };
    while bytes.len() < 8 {
        bytes.insert(0, fill);
    }
    let last = bytes.last_chunk().expect("filled up to 8 bytes");
    i64::from_be_bytes(*last)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn decimals_are_written_as_java_writes_them() {
        for (text, expected) in [
            ("12.50", "12.50"),
            ("-0.001", "-0.001"),
            ("0.0000001", "1E-7"),
            ("1e3", "1E+3"),
            ("123e2", "1.23E+4"),
            ("0", "0"),
            ("-5", "-5"),
        ] {
            let decimal = Decimal::parse(text).unwrap();
            assert_eq!(decimal.to_string(), expected);
            assert_eq!(Decimal::decode(&decimal.encode()), Some(decimal));
        }
        for text in ["", ".", "1.-5", "x", "1e99999999999", "1e20000"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_written_as_java_writes_them() {
        for (number, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.001, "0.001"),
            (0.00012, "1.2E-4"),
            (123.456, "123.456"),
            (1_234_567.0, "1234567.0"),
            (12_345_678.0, "1.2345678E7"),
            (1e10, "1.0E10"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float_text(number), expected);
        }
        assert_eq!(float_text(0.1_f32), "0.1");
        assert_eq!(float_text(f32::MAX), "3.4028235E38");
    }
}
