//! The number of distinct elements, from the values of the registers.
// Source: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches",
// arXiv:1702.01284, algorithm 6; the order of operations as in Redis 7.2 `hyperloglog.c`, `hllCount`
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate is rounded to an integer; conversions saturate"
)]

use super::hash::RANK_BITS;
use super::sketch::{REGISTERS, Registers};

/// 0.5 / ln 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

pub(super) fn count(registers: &Registers) -> u64 {
    let mut histogram = [0_u32; 64];
    for value in registers.iter() {
        histogram[usize::from(*value % 64)] += 1;
    }
    let all = f64::from(u32::try_from(REGISTERS).expect("16,384"));
    let full = f64::from(histogram[RANK_BITS as usize + 1]);
    let mut sum = all * tau((all - full) / all);
    for value in (1..=RANK_BITS as usize).rev() {
        sum = (sum + f64::from(histogram[value])) * 0.5;
    }
    sum += all * sigma(f64::from(histogram[0]) / all);
    (ALPHA * all * all / sum).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z.to_bits() == before.to_bits() {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z.to_bits() == before.to_bits() {
            return z / 3.0;
        }
    }
}
