//! Scores in few bytes.

use crate::types::element::{self, Out};
use crate::types::text::Scalar;

/// Above this magnitude doubles do not hold every integer.
const INTEGRAL_MAX: f64 = 9_007_199_254_740_992.0;
/// Largest number of a decimal: up to this its bytes are fewer than those of a double.
const DECIMAL_MAX: f64 = 2_147_483_647.0;
/// Powers of ten that a decimal is divided by.
const POWERS: [f64; 4] = [10.0, 100.0, 1000.0, 10_000.0];

const DOUBLE: u8 = element::UNUSED_FROM;
/// The first of [`POWERS`]; the others follow.
const DECIMAL: u8 = DOUBLE + 1;
const _: () = assert!(DECIMAL as usize + POWERS.len() <= 1 << u8::BITS);

/// Appends a score.
#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
pub(super) fn put(out: &mut impl Out, score: f64) {
    if is_integral(score) {
        return element::put_integer(out, score as i64);
    }
    for (code, power) in (DECIMAL..).zip(POWERS) {
        let number = (score * power).round();
        // Both are exact, so the quotient is the same whenever it is computed; but -0 is lost.
        let is_exact = (number / power).to_bits() == score.to_bits();
        if is_exact && number != 0.0 && number.abs() <= DECIMAL_MAX {
            out.push(code);
            return element::put_integer(out, number as i64);
        }
    }
    out.push(DOUBLE);
    out.extend_from_slice(&score.to_le_bytes());
}

/// Whether a score is an integer, other than -0, that is not beyond [`INTEGRAL_MAX`].
fn is_integral(score: f64) -> bool {
    score.abs() <= INTEGRAL_MAX
        && score.trunc().to_bits() == score.to_bits()
        && score.to_bits() != (-0.0_f64).to_bits()
}

/// Length of the score at the front of `bytes`, which `put` made.
#[inline]
pub(super) fn len(bytes: &[u8]) -> usize {
    match bytes[0] {
        ..DOUBLE => element::len(bytes),
        DOUBLE => 9,
        _ => 1 + element::len(&bytes[1..]),
    }
}

/// Takes a score that `put` appended.
#[inline]
pub(super) fn take(input: &mut &[u8]) -> f64 {
    match input.split_first() {
        Some((&head @ 0..element::SHORT, rest)) => {
            *input = rest;
            f64::from(head)
        }
        _ => take_longer(input),
    }
}

fn take_longer(input: &mut &[u8]) -> f64 {
    match input[0] {
        ..DOUBLE => take_number(input),
        DOUBLE => {
            let (bytes, rest) = input[1..].split_first_chunk().expect("eight bytes follow");
            *input = rest;
            f64::from_le_bytes(*bytes)
        }
        code => {
            *input = &input[1..];
            take_number(input) / POWERS[usize::from(code - DECIMAL)]
        }
    }
}

#[inline]
#[expect(clippy::cast_precision_loss, reason = "`put` checked that the number is exact")]
fn take_number(input: &mut &[u8]) -> f64 {
    match element::take(input) {
        Ok(Scalar::Int(number)) => number as f64,
        _ => unreachable!("`put` appends numbers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(score: f64) -> usize {
        let mut out = Vec::new();
        put(&mut out, score);
        assert_eq!(len(&out), out.len(), "{score}");
        let mut input = out.as_slice();
        assert_eq!(take(&mut input).to_bits(), score.to_bits(), "{score}");
        assert!(input.is_empty());
        out.len()
    }

    #[test]
    fn short_scores_take_few_bytes() {
        for (score, bytes) in [
            (0.0, 1),
            (127.0, 1),
            (-1.0, 2),
            (1000.0, 2),
            (100_000.0, 4),
            (1_700_000_000_000.0, 9),
            (0.5, 2),
            (3.25, 3),
            (-99.99, 4),
            (0.0001, 2),
            (0.1 + 0.2, 9),
            (-0.0, 9),
            (f64::INFINITY, 9),
            (f64::MIN, 9),
            (f64::MIN_POSITIVE, 9),
            (INTEGRAL_MAX, 9),
        ] {
            assert_eq!(bytes_of(score), bytes, "{score}");
        }
    }

    proptest! {
        #[test]
        fn every_score_is_taken_as_it_was_put(bits: u64, number: i32, power in 0usize..4) {
            let score = f64::from_bits(bits);
            if !score.is_nan() {
                bytes_of(score);
            }
            prop_assert!(bytes_of(f64::from(number)) <= 5);
            prop_assert!(bytes_of(f64::from(number) / POWERS[power]) <= 6);
        }
    }
}
