//! Arithmetic on decimals, with the precision of Cassandra.

use num_bigint::{BigInt, Sign};
use thiserror::Error;

use crate::term::Operator;
use crate::value::number::Decimal;

/// Minimum digits of a quotient, unless it terminates earlier.
// Source: Cassandra 5.0, DecimalType.MIN_SCALE, MIN_SIGNIFICANT_DIGITS, MAX_SCALE
const DIGITS_MIN: i64 = 32;
const SCALE_MAX: i64 = 1000;
/// Maximum digits of a result, and of numbers aligned to one scale: without it a short statement
/// could compute a long number.
// Source: Cassandra 5.0, DecimalType.MAX_PRECISION
const DIGITS_MAX: u64 = 10_000;
/// Extra digits in the computation of a series.
const GUARD_DIGITS: u32 = 12;
/// Maximum digits of a logarithm or an exponential: their cost is quadratic.
const SERIES_DIGITS_MAX: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum DecimalError {
    #[error("BigInteger divide by zero")]
    DivisionByZero,
    #[error("Division by zero")]
    RemainderByZero,
    #[error("Division undefined")]
    Undefined,
    #[error("a decimal has more than 10000 digits")]
    TooLong,
    #[error("Illegal log(x) for x <= 0")]
    NoLogarithm,
}

type Result<T> = std::result::Result<T, DecimalError>;

pub(crate) fn calculate(operator: Operator, left: &Decimal, right: &Decimal) -> Result<Decimal> {
    match operator {
        Operator::Add => add(left, right),
        Operator::Subtract => add(left, &right.negated()),
        Operator::Multiply => multiply(left, right),
        Operator::Divide => divide(left, right),
        Operator::Remainder => remainder(left, right),
    }
}

fn power_of_ten(exponent: i64) -> Result<BigInt> {
    let exponent = u32::try_from(exponent).map_err(|_| DecimalError::TooLong)?;
    if u64::from(exponent) > DIGITS_MAX {
        return Err(DecimalError::TooLong);
    }
    Ok(BigInt::from(10).pow(exponent))
}

fn with_scale(unscaled: BigInt, scale: i64) -> Result<Decimal> {
    let scale = i32::try_from(scale).map_err(|_| DecimalError::TooLong)?;
    Ok(Decimal { unscaled, scale })
}

/// The number of decimal digits; zero has one.
fn digits(value: &BigInt) -> i64 {
    i64::try_from(value.magnitude().to_string().len()).expect("texts fit memory")
}

/// Both numbers, converted to the larger of their scales.
fn aligned(left: &Decimal, right: &Decimal) -> Result<(BigInt, BigInt, i64)> {
    let (left_scale, right_scale) = (i64::from(left.scale), i64::from(right.scale));
    let scale = left_scale.max(right_scale);
    let raised = |value: &Decimal, own: i64| {
        if value.unscaled.sign() == Sign::NoSign {
            return Ok(BigInt::ZERO);
        }
        Ok(&value.unscaled * power_of_ten(scale - own)?)
    };
    Ok((raised(left, left_scale)?, raised(right, right_scale)?, scale))
}

pub(super) fn add(left: &Decimal, right: &Decimal) -> Result<Decimal> {
    let (left, right, scale) = aligned(left, right)?;
    rounded(left + right, scale)
}

/// A result rounded to the maximum number of digits.
// Source: Cassandra 5.0, DecimalType.MAX_PRECISION; java.math.MathContext, which rounds half up
fn rounded(unscaled: BigInt, scale: i64) -> Result<Decimal> {
    // A digit has more than three bits.
    if unscaled.bits() <= DIGITS_MAX * 3 {
        return with_scale(unscaled, scale);
    }
    let kept = i64::try_from(DIGITS_MAX).expect("a small number");
    let surplus = (digits(&unscaled) - kept).max(0);
    let quotient = rounded_quotient(&unscaled, &power_of_ten(surplus)?, Rounding::HalfUp);
    with_scale(quotient, scale - surplus)
}

fn multiply(left: &Decimal, right: &Decimal) -> Result<Decimal> {
    if left.unscaled.bits().saturating_add(right.unscaled.bits()) > DIGITS_MAX * 10 / 3 {
        return Err(DecimalError::TooLong);
    }
    let scale = i64::from(left.scale) + i64::from(right.scale);
    with_scale(&left.unscaled * &right.unscaled, scale)
}

/// The quotient with 32 significant digits or more, without trailing zeros.
// Source: Cassandra 5.0, DecimalType.divide
fn divide(left: &Decimal, right: &Decimal) -> Result<Decimal> {
    let (left_scale, right_scale) = (i64::from(left.scale), i64::from(right.scale));
    let before_point = |value: &Decimal, scale: i64| digits(&value.unscaled) - scale;
    let first_digit = before_point(left, left_scale) - before_point(right, right_scale);
    let digits_target = (DIGITS_MIN - first_digit).max(left_scale).max(right_scale);
    let scale = digits_target.clamp(DIGITS_MIN, SCALE_MAX);
    Ok(divide_to_scale(left, right, scale, Rounding::HalfUp)?.stripped())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Rounds a half away from zero.
    HalfUp,
    /// Rounds a half to the even neighbor.
    HalfEven,
}

/// The quotient with the given number of decimal places.
pub(super) fn divide_to_scale(
    left: &Decimal,
    right: &Decimal,
    scale: i64,
    rounding: Rounding,
) -> Result<Decimal> {
    if right.unscaled.sign() == Sign::NoSign {
        return Err(DecimalError::DivisionByZero);
    }
    let shift = scale + i64::from(right.scale) - i64::from(left.scale);
    let (numerator, denominator) = if shift >= 0 {
        (&left.unscaled * power_of_ten(shift)?, right.unscaled.clone())
    } else {
        (left.unscaled.clone(), &right.unscaled * power_of_ten(-shift)?)
    };
    with_scale(rounded_quotient(&numerator, &denominator, rounding), scale)
}

fn rounded_quotient(numerator: &BigInt, denominator: &BigInt, rounding: Rounding) -> BigInt {
    let quotient = numerator / denominator;
    let rest = numerator % denominator;
    let twice = rest.magnitude() * 2_u32;
    let is_up = match twice.cmp(denominator.magnitude()) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => rounding == Rounding::HalfUp || quotient.bit(0),
    };
    if !is_up {
        return quotient;
    }
    let is_negative = (numerator.sign() == Sign::Minus) != (denominator.sign() == Sign::Minus);
    if is_negative { quotient - 1 } else { quotient + 1 }
}

fn remainder(left: &Decimal, right: &Decimal) -> Result<Decimal> {
    if right.unscaled.sign() == Sign::NoSign {
        let is_zero = left.unscaled.sign() == Sign::NoSign;
        let error = if is_zero { DecimalError::Undefined } else { DecimalError::RemainderByZero };
        return Err(error);
    }
    let (left, right, scale) = aligned(left, right)?;
    with_scale(left % right, scale)
}

/// The integer part.
pub(super) fn whole_part(value: &Decimal) -> Result<BigInt> {
    if value.scale <= 0 {
        return Ok(&value.unscaled * power_of_ten(-i64::from(value.scale))?);
    }
    // Ten to the power of the number's bits is larger than the number itself.
    if u64::from(value.scale.unsigned_abs()) > value.unscaled.bits() {
        return Ok(BigInt::ZERO);
    }
    Ok(&value.unscaled / BigInt::from(10).pow(value.scale.unsigned_abs()))
}

/// Rounds to an integer; a half is rounded away from zero.
pub(super) fn round(value: &Decimal) -> Result<Decimal> {
    let one = Decimal { unscaled: BigInt::from(1), scale: 0 };
    divide_to_scale(value, &one, 0, Rounding::HalfUp)
}

/// Cassandra's number of significant digits for this number.
// Source: Cassandra 5.0, DecimalType.exp, log and log10
fn series_digits(value: &Decimal) -> u32 {
    let own = u32::try_from(digits(&value.unscaled)).unwrap_or(u32::MAX);
    own.clamp(32, SERIES_DIGITS_MAX)
}

/// The nearest number with the given number of significant digits.
fn with_digits(value: &Decimal, digits_target: u32) -> Result<Decimal> {
    let excess = digits(&value.unscaled) - i64::from(digits_target);
    if excess <= 0 {
        return Ok(value.clone());
    }
    let unscaled = rounded_quotient(&value.unscaled, &power_of_ten(excess)?, Rounding::HalfEven);
    with_scale(unscaled, i64::from(value.scale) - excess)
}

/// Fixed-point numbers with a given number of decimal places, for series.
struct Fixed {
    one: BigInt,
    digits: u32,
}

impl Fixed {
    fn new(digits: u32) -> Self {
        Fixed { one: BigInt::from(10).pow(digits), digits }
    }

    /// Twice the inverse hyperbolic tangent of `numerator / denominator`, which is small.
    fn double_atanh(&self, numerator: &BigInt, denominator: &BigInt) -> BigInt {
        let square_numerator = numerator * numerator;
        let square_denominator = denominator * denominator;
        let mut power = &self.one * 2 * numerator / denominator;
        let mut sum = BigInt::ZERO;
        let mut nth = 1_u32;
        while power != BigInt::ZERO {
            sum += &power / nth;
            power = power * &square_numerator / &square_denominator;
            nth += 2;
        }
        sum
    }

    fn ln_2(&self) -> BigInt {
        self.double_atanh(&BigInt::from(1), &BigInt::from(3))
    }

    fn ln_10(&self) -> BigInt {
        self.ln_2() * 3 + self.double_atanh(&BigInt::from(1), &BigInt::from(9))
    }

    /// The logarithm of a positive number, as a fixed-point number.
    fn ln(&self, value: &Decimal) -> BigInt {
        // value = mantissa * 10^exponent, with a mantissa from 1 to 10.
        let length = digits(&value.unscaled);
        let exponent = length - 1 - i64::from(value.scale);
        let shift = i64::from(self.digits) + 1 - length;
        let mut mantissa = if let Ok(up) = u32::try_from(shift) {
            &value.unscaled * BigInt::from(10).pow(up)
        } else {
            let down = u32::try_from(-shift).expect("texts fit memory");
            &value.unscaled / BigInt::from(10).pow(down)
        };
        let mut halvings = 0_i64;
        while &mantissa * 2 > &self.one * 3 {
            mantissa /= 2;
            halvings += 1;
        }
        let tangent = self.double_atanh(&(&mantissa - &self.one), &(&mantissa + &self.one));
        tangent + self.ln_2() * halvings + self.ln_10() * exponent
    }

    /// The exponential of a fixed-point number from 0 to 3.
    fn exp(&self, value: &BigInt) -> BigInt {
        const HALVINGS: u32 = 8;
        let small = value >> HALVINGS;
        let mut term = self.one.clone();
        let mut sum = BigInt::ZERO;
        let mut nth = 1_u32;
        while term != BigInt::ZERO {
            sum += &term;
            term = term * &small / &self.one / nth;
            nth += 1;
        }
        for _ in 0..HALVINGS {
            sum = &sum * &sum / &self.one;
        }
        sum
    }
}

/// Natural logarithm.
pub(super) fn ln(value: &Decimal) -> Result<Decimal> {
    logarithm(value, |fixed| fixed.ln(value))
}

/// Logarithm to the base ten.
pub(super) fn log10(value: &Decimal) -> Result<Decimal> {
    logarithm(value, |fixed| fixed.ln(value) * &fixed.one / fixed.ln_10())
}

fn logarithm(value: &Decimal, compute: impl Fn(&Fixed) -> BigInt) -> Result<Decimal> {
    if value.unscaled.sign() != Sign::Plus {
        return Err(DecimalError::NoLogarithm);
    }
    let digits_target = series_digits(value);
    // The logarithm of a number near 1 has zeros after the point: compute as many additional
    // digits.
    let fixed = Fixed::new(digits_target * 2 + GUARD_DIGITS);
    let found = with_scale(compute(&fixed), fixed.digits.into())?;
    Ok(with_digits(&found, digits_target)?.stripped())
}

/// e to the power of the number.
pub(super) fn exp(value: &Decimal) -> Result<Decimal> {
    let digits_target = series_digits(value);
    let whole_digits = digits(&value.unscaled) - i64::from(value.scale);
    // Beyond this, the exponent of the result is out of range for a decimal.
    if whole_digits > 10 {
        return Err(DecimalError::TooLong);
    }
    let fixed = Fixed::new(digits_target + 2 * GUARD_DIGITS);
    let shift = i64::from(fixed.digits) - i64::from(value.scale);
    let scaled = match u32::try_from(shift) {
        Ok(up) => &value.unscaled * BigInt::from(10).pow(up),
        // So small that it rounds to zero.
        Err(_) if -shift > digits(&value.unscaled) => BigInt::ZERO,
        Err(_) => &value.unscaled / power_of_ten(-shift)?,
    };
    // e^x = 10^tens * e^rest, with a rest from 0 to ln 10.
    let ln_10 = fixed.ln_10();
    let mut tens = &scaled / &ln_10;
    let mut rest = scaled - &tens * &ln_10;
    if rest.sign() == Sign::Minus {
        tens -= 1;
        rest += &ln_10;
    }
    let tens = i64::try_from(tens).map_err(|_| DecimalError::TooLong)?;
    let found = with_scale(fixed.exp(&rest), i64::from(fixed.digits) - tens)?;
    Ok(with_digits(&found, digits_target)?.stripped())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    fn check(found: Result<Decimal>, expected: &str) {
        assert_eq!(found.map_err(|error| error.to_string()).unwrap().to_string(), expected);
    }

    #[test]
    fn quotients_have_32_digits() {
        let divided = |left, right| calculate(Operator::Divide, &decimal(left), &decimal(right));
        check(divided("1", "3"), "0.33333333333333333333333333333333");
        check(divided("2", "3"), "0.66666666666666666666666666666667");
        check(divided("100", "4"), "25");
        check(divided("1", "1000"), "0.001");
        assert_eq!(divided("1", "0"), Err(DecimalError::DivisionByZero));
        let modulo = |left, right| calculate(Operator::Remainder, &decimal(left), &decimal(right));
        check(modulo("-7.5", "2"), "-1.5");
        assert_eq!(modulo("1", "0"), Err(DecimalError::RemainderByZero));
        assert_eq!(modulo("0", "0"), Err(DecimalError::Undefined));
    }

    #[test]
    fn scales_follow_the_operands() {
        check(add(&decimal("1.50"), &decimal("2.5")), "4.00");
        check(multiply(&decimal("1.50"), &decimal("2.0")), "3.000");
        check(round(&decimal("-2.5")), "-3");
        check(round(&decimal("2.49")), "2");
        let far = Decimal { unscaled: BigInt::from(1), scale: i32::MIN };
        assert_eq!(add(&far, &decimal("1")), Err(DecimalError::TooLong));
        assert_eq!(round(&far), Err(DecimalError::TooLong));
    }

    #[test]
    fn series_are_right_to_their_last_digit() {
        check(exp(&decimal("1")), "2.7182818284590452353602874713527");
        check(exp(&decimal("0")), "1");
        check(exp(&decimal("-1")), "0.36787944117144232159552377016146");
        check(exp(&decimal("100")), "2.68811714181613544841262555158E+43");
        check(ln(&decimal("2")), "0.69314718055994530941723212145818");
        check(ln(&decimal("10")), "2.3025850929940456840179914546844");
        check(ln(&decimal("1")), "0");
        check(ln(&decimal("0.5")), "-0.69314718055994530941723212145818");
        check(log10(&decimal("1000")), "3");
        check(log10(&decimal("2")), "0.30102999566398119521373889472449");
        assert_eq!(ln(&decimal("0")), Err(DecimalError::NoLogarithm));
        assert_eq!(exp(&decimal("99999999999")), Err(DecimalError::TooLong));
    }
}
