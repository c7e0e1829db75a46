//! Integers of any size, with the arithmetic required to read and write numbers.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// Digits that one step of [`Big::decimal_text`] splits off.
const CHUNK_DIGITS: usize = 19;
const CHUNK: u64 = 10u64.pow(19);

/// A non-negative integer: 64-bit limbs, the lowest first, without zero limbs at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Big {
    limbs: Vec<u64>,
}

impl From<u64> for Big {
    fn from(number: u64) -> Big {
        let mut big = Big { limbs: vec![number] };
        big.trim();
        big
    }
}

impl Big {
    pub(super) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    fn bit_len(&self) -> u64 {
        let Some(last) = self.limbs.last() else { return 0 };
        self.limbs.len() as u64 * 64 - u64::from(last.leading_zeros())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half of a product")]
    pub(super) fn multiply_and_add(&mut self, factor: u64, summand: u64) {
        let mut carry = u128::from(summand);
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= 64;
        }
        if carry > 0 {
            self.limbs.push(carry as u64);
        }
        self.trim();
    }

    /// O(exponent^2).
    pub(super) fn power_of_ten(exponent: u64) -> Big {
        let chunk_digits = CHUNK_DIGITS as u64;
        let rest = u32::try_from(exponent % chunk_digits).expect("less than a chunk");
        let mut power = Big::from(10u64.pow(rest));
        for _ in 0..exponent / chunk_digits {
            power.multiply_and_add(CHUNK, 0);
        }
        power
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half of a product")]
    pub(super) fn multiply(&self, other: &Big) -> Big {
        let mut limbs = vec![0u64; self.limbs.len() + other.limbs.len()];
        for (at, factor) in self.limbs.iter().enumerate() {
            let mut carry = 0u128;
            for (limb, other) in limbs[at..].iter_mut().zip(&other.limbs) {
                carry += u128::from(*limb) + u128::from(*factor) * u128::from(*other);
                *limb = carry as u64;
                carry >>= 64;
            }
            limbs[at + other.limbs.len()] = carry as u64;
        }
        let mut product = Big { limbs };
        product.trim();
        product
    }

    pub(super) fn shift_left(&mut self, bits: u64) {
        let (limbs, bits) = (usize::try_from(bits / 64).expect("it fits memory"), bits % 64);
        self.multiply_and_add(1 << bits, 0);
        if !self.is_zero() {
            self.limbs.splice(0..0, std::iter::repeat_n(0, limbs));
        }
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.limbs.iter_mut().rev() {
            let next = *limb << 63;
            *limb = *limb >> 1 | carry;
            carry = next;
        }
        self.trim();
    }

    fn compare(&self, other: &Big) -> Ordering {
        let by_len = self.limbs.len().cmp(&other.limbs.len());
        by_len.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// `other` must not be larger.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        let others = other.limbs.iter().copied().chain(std::iter::repeat(0));
        for (limb, other) in self.limbs.iter_mut().zip(others) {
            let (rest, below) = limb.overflowing_sub(other);
            let (rest, below_again) = rest.overflowing_sub(u64::from(borrow));
            *limb = rest;
            borrow = below || below_again;
        }
        debug_assert!(!borrow);
        self.trim();
    }

    /// The highest 128 bits, whether any lower bit is set, and the exponent of two of the lowest
    /// returned bit.
    pub(super) fn leading(&self) -> (u128, bool, i32) {
        let count = self.limbs.len();
        let limb = |from_end: usize| {
            let at = count.checked_sub(from_end);
            u128::from(at.map_or(0, |at| self.limbs[at]))
        };
        let unused = self.limbs.last().map_or(0, |last| last.leading_zeros());
        // Three limbs contain the highest 128 bits wherever they begin.
        let mut mantissa = limb(1) << 64 | limb(2);
        let mut rest = limb(3);
        if unused > 0 {
            mantissa = mantissa << unused | rest >> (64 - unused);
            rest = rest << unused & u128::from(u64::MAX);
        }
        let lower = self.limbs.get(..count.saturating_sub(3)).unwrap_or_default();
        let is_more = rest > 0 || lower.iter().any(|limb| *limb > 0);
        let exponent = i64::try_from(self.bit_len()).expect("it fits memory") - 128;
        (mantissa, is_more, i32::try_from(exponent).unwrap_or(i32::MAX))
    }

    /// A quotient of at least 67 bits, whether there is a remainder, and the quotient's exponent of
    /// two. The divisor must not be zero.
    pub(super) fn divide(mut self, divisor: &Big) -> (u128, bool, i32) {
        const BITS: u64 = 67;
        let mut divisor = divisor.clone();
        let exponent = self.bit_len().cast_signed() - (divisor.bit_len() + BITS).cast_signed();
        if exponent < 0 {
            self.shift_left(exponent.unsigned_abs());
        } else {
            divisor.shift_left(exponent.unsigned_abs());
        }
        divisor.shift_left(BITS);
        let mut quotient = 0u128;
        for _ in 0..=BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            divisor.halve();
        }
        (quotient, !self.is_zero(), i32::try_from(exponent).unwrap_or(i32::MIN))
    }

    /// O(digits^2).
    #[expect(clippy::cast_possible_truncation, reason = "a remainder is below its divisor")]
    pub(super) fn decimal_text(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.is_zero() {
            let mut rest = 0u128;
            for limb in self.limbs.iter_mut().rev() {
                let part = rest << 64 | u128::from(*limb);
                *limb = (part / u128::from(CHUNK)) as u64;
                rest = part % u128::from(CHUNK);
            }
            self.trim();
            chunks.push(rest as u64);
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            write!(text, "{chunk:0CHUNK_DIGITS$}").expect("a String takes every write");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn big(number: u128) -> Big {
        let [low, high] = [number & u128::from(u64::MAX), number >> 64];
        let mut big = Big::from(u64::try_from(high).unwrap());
        big.shift_left(64);
        let low = Big::from(u64::try_from(low).unwrap());
        if big.is_zero() {
            return low;
        }
        big.limbs[0] = low.limbs.first().copied().unwrap_or(0);
        big
    }

    proptest! {
        #[test]
        fn it_computes_as_128_bits_do(a in any::<u128>(), b in any::<u64>(), c in any::<u64>()) {
            prop_assert_eq!(big(a).decimal_text(), a.to_string());
            let a = a >> 65;
            let mut product = big(a);
            product.multiply_and_add(b >> 2, c);
            prop_assert_eq!(&product, &big(a * u128::from(b >> 2) + u128::from(c)));
            prop_assert_eq!(big(a).multiply(&big(u128::from(b >> 2))), big(a * u128::from(b >> 2)));
        }

        #[test]
        fn a_quotient_and_its_remainder(a in 1..u128::MAX, b in 1..u128::MAX) {
            let (quotient, has_rest, exponent) = big(a).divide(&big(b));
            prop_assert!(quotient >> 66 > 0 && quotient >> 69 == 0);
            // quotient * b * 2^exponent is a, or less than one unit below it.
            let mut product = big(quotient).multiply(&big(b));
            let mut a = big(a);
            if exponent >= 0 {
                product.shift_left(u64::from(exponent.unsigned_abs()));
            } else {
                a.shift_left(u64::from(exponent.unsigned_abs()));
            }
            prop_assert_eq!(product.compare(&a) == Ordering::Less, has_rest);
            prop_assert!(product.compare(&a) != Ordering::Greater);
        }

        #[test]
        fn the_leading_bits(a in 1..u128::MAX, shift in 0u64..300) {
            let mut number = big(a);
            number.shift_left(shift);
            let (mantissa, is_more, exponent) = number.leading();
            prop_assert!(!is_more);
            prop_assert_eq!(mantissa, a << a.leading_zeros());
            let shift = i64::try_from(shift).unwrap();
            prop_assert_eq!(i64::from(exponent), shift - i64::from(a.leading_zeros()));
        }
    }

    #[test]
    fn powers_of_ten() {
        assert_eq!(Big::power_of_ten(0).decimal_text(), "1");
        assert_eq!(Big::power_of_ten(45).decimal_text(), format!("1{}", "0".repeat(45)));
        assert_eq!(Big::default().decimal_text(), "0");
    }
}
