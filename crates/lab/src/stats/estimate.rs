//! Medians, means and ratios with 95 % bootstrap intervals.

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::real;

/// More resamples change the ends of an interval by less than its own uncertainty.
const RESAMPLES: usize = 2_000;
/// Arbitrary but fixed, so that reports are reproducible.
const SEED: u64 = 0x6c61_6221;
/// Share of resamples beyond each end of a 95 % interval.
const TAIL: f64 = 0.025;
/// Minimum number of pairs to estimate the spread.
const PAIRS_MIN: usize = 4;

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// Number of values; 0: all figures are 0.
    pub count: usize,
}

impl Estimate {
    /// Returns half the interval relative to the figure; 0 for a figure of 0.
    pub fn half_width(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.high - self.low) / 2.0 / self.median.abs()
    }
}

/// Formats `m [low,high] n`, with about four digits each.
impl fmt::Display for Estimate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = decimals(self.median);
        write!(
            formatter,
            "{:.digits$} [{:.digits$},{:.digits$}] {}",
            self.median, self.low, self.high, self.count
        )
    }
}

/// Returns the number of decimals for about four digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1_000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    }
}

/// Returns the median with its interval. Adjacent values may be correlated (windows of one run), so
/// they are resampled in blocks of the cube root of their number.
///
/// For fewer than 5 values, the interval is their full range. O(2,000 n log n).
pub fn median_interval(values: &[f64]) -> Estimate {
    interval(values, |sample| {
        sample.sort_by(f64::total_cmp);
        quantile(sample, 0.5)
    })
}

/// Returns the mean with its interval, as for [`median_interval`]; [`Estimate::median`] contains
/// the mean.
pub fn mean_interval(values: &[f64]) -> Estimate {
    interval(values, |sample| mean(sample))
}

/// Returns a quantile, interpolated between neighbors; 0 if empty.
///
/// `sorted` is in increasing order, `part` from 0 to 1.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = part.clamp(0.0, 1.0) * real(last);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let below = position as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - real(below))
}

fn interval(values: &[f64], figure: impl Fn(&mut [f64]) -> f64) -> Estimate {
    if values.is_empty() {
        return Estimate::default();
    }
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut sample = values.to_vec();
    let median = figure(&mut sample);
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample(values, &mut sample, &mut random);
            figure(&mut sample)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    Estimate {
        median,
        low: quantile(&figures, TAIL),
        high: quantile(&figures, 1.0 - TAIL),
        count: values.len(),
    }
}

/// Fills `sample` with blocks of `values`, each from a random position; the values wrap around at
/// the end.
fn resample(values: &[f64], sample: &mut [f64], random: &mut SmallRng) {
    let block_len = block_len(values.len());
    for block in sample.chunks_mut(block_len) {
        let start = random.random_range(0..values.len());
        for (offset, slot) in block.iter_mut().enumerate() {
            *slot = values[(start + offset) % values.len()];
        }
    }
}

/// Returns the largest integer whose cube is at most `count`.
fn block_len(count: usize) -> usize {
    (1..=count).take_while(|len| len * len * len <= count).last().unwrap_or(1)
}

/// Ratio of the second value of each pair to the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Geometric mean of second / first.
    pub ratio: f64,
    pub low: f64,
    /// Infinite if there are too few pairs.
    pub high: f64,
    pub count: usize,
}

impl Ratio {
    /// Whether the interval excludes 1.
    pub fn is_different(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Formats `1.034 [1.021,1.047]`.
impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.3} [{:.3},{:.3}]", self.ratio, self.low, self.high)
    }
}

/// Returns the ratio of pairs that were measured next to each other, with an interval that contains
/// the true one with `confidence` (0.95).
///
/// Uses a bootstrap of the t statistic of their logarithms, because plain percentiles are too
/// narrow for ten pairs. Pairs with a value that is not above 0 are ignored; for fewer than 4 pairs
/// the interval is unbounded.
pub fn ratio_interval(pairs: &[(f64, f64)], confidence: f64) -> Ratio {
    let logarithms: Vec<f64> = pairs
        .iter()
        .filter(|(first, second)| *first > 0.0 && *second > 0.0)
        .map(|(first, second)| (second / first).ln())
        .collect();
    let count = logarithms.len();
    let middle = mean(&logarithms);
    if count < PAIRS_MIN {
        let ratio = if count == 0 { 1.0 } else { middle.exp() };
        return Ratio { ratio, low: 0.0, high: f64::INFINITY, count };
    }
    let error = standard_error(&logarithms, middle);
    let statistics = t_statistics(&logarithms, middle);
    let tail = (1.0 - confidence) / 2.0;
    // A high statistic corresponds to an overestimate: hence the exchange.
    let low = middle - quantile(&statistics, 1.0 - tail) * error;
    let high = middle - quantile(&statistics, tail) * error;
    Ratio { ratio: middle.exp(), low: low.exp(), high: high.exp(), count }
}

/// Returns the sorted t statistics of resamples around `middle`.
fn t_statistics(values: &[f64], middle: f64) -> Vec<f64> {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut sample = values.to_vec();
    let mut statistics: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut sample {
                *slot = values[random.random_range(0..values.len())];
            }
            t_statistic(&sample, middle)
        })
        .collect();
    statistics.sort_by(f64::total_cmp);
    statistics
}

/// Finite even if all values of the sample are equal: interpolating between infinite statistics
/// would not give a number.
fn t_statistic(sample: &[f64], middle: f64) -> f64 {
    let difference = mean(sample) - middle;
    let error = standard_error(sample, mean(sample));
    if difference == 0.0 {
        return 0.0;
    }
    (difference / error).clamp(-f64::from(u32::MAX), f64::from(u32::MAX))
}

fn standard_error(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / real(values.len() - 1) / real(values.len())).sqrt()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / real(values.len().max(1))
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these are exact")]
mod tests {
    use proptest::prelude::*;
    use rand::Rng as _;

    use super::*;

    /// A normal random number, from the sum of twelve uniform ones.
    fn normal(random: &mut SmallRng) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 1.0), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn few_values_have_the_interval_that_was_seen() {
        let estimate = median_interval(&[3.0, 1.0, 2.0]);
        assert_eq!(estimate, Estimate { median: 2.0, low: 1.0, high: 3.0, count: 3 });
        assert_eq!(estimate.to_string(), "2.000 [1.000,3.000] 3");
        assert_eq!(median_interval(&[]), Estimate::default());
        assert_eq!(median_interval(&[7.0]).half_width(), 0.0);
    }

    #[test]
    fn blocks_grow_with_the_cube_root() {
        let lengths: Vec<usize> = [1, 7, 8, 26, 27, 1_000].map(block_len).to_vec();
        assert_eq!(lengths, [1, 1, 2, 2, 3, 10]);
    }

    /// 95 % intervals of a mean of 40 normal numbers contain it in 90 to 99 of 100 cases.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = SmallRng::seed_from_u64(7);
        let tries = 200;
        let held = (0..tries).filter(|_| {
            let values: Vec<f64> = (0..40).map(|_| 10.0 + normal(&mut random)).collect();
            let estimate = mean_interval(&values);
            estimate.low <= 10.0 && 10.0 <= estimate.high
        });
        let held = held.count();
        assert!((180..=198).contains(&held), "{held} of {tries}");
    }

    /// Correlated neighbors give a wider interval than the same values in random order.
    #[test]
    fn dependence_widens_the_interval() {
        let mut random = SmallRng::seed_from_u64(3);
        let mut level = 0.0;
        let waves: Vec<f64> = (0..200)
            .map(|_| {
                level = 0.9 * level + normal(&mut random);
                100.0 + level
            })
            .collect();
        let mixed: Vec<f64> = (0..200).map(|index| waves[index * 77 % 200]).collect();
        assert!(mean_interval(&waves).half_width() > 1.3 * mean_interval(&mixed).half_width());
    }

    fn pairs_with(factor: f64, noise: f64, random: &mut SmallRng) -> Vec<(f64, f64)> {
        let pair = |random: &mut SmallRng| {
            let drift = 1_000.0 * (1.0 + 0.1 * normal(random));
            (
                drift * (1.0 + noise * normal(random)),
                factor * drift * (1.0 + noise * normal(random)),
            )
        };
        (0..10).map(|_| pair(random)).collect()
    }

    #[test]
    fn a_planted_difference_is_found_and_none_is_not() {
        let mut random = SmallRng::seed_from_u64(11);
        let tries = 400;
        let found = (0..tries)
            .filter(|_| ratio_interval(&pairs_with(0.95, 0.01, &mut random), 0.95).is_different());
        let found = found.count();
        let wrong = (0..tries)
            .filter(|_| ratio_interval(&pairs_with(1.0, 0.01, &mut random), 0.95).is_different());
        let wrong = wrong.count();
        assert!(found > tries * 98 / 100, "{found} of {tries}");
        assert!(wrong < tries * 8 / 100, "{wrong} of {tries}");
    }

    #[test]
    fn few_pairs_say_nothing() {
        let ratio = ratio_interval(&[(1.0, 2.0), (1.0, 2.0), (0.0, 1.0)], 0.95);
        assert_eq!((ratio.count, ratio.is_different()), (2, false));
        assert!((ratio.ratio - 2.0).abs() < 1e-12);
        let same = ratio_interval(&[(1.0, 2.0); 5], 0.95);
        assert!(same.is_different(), "{same}");
        assert_eq!(same.to_string(), "2.000 [2.000,2.000]");
    }

    proptest! {
        #[test]
        fn an_interval_lies_within_the_values_and_holds_the_median(
            values in prop::collection::vec(-1e6..1e6f64, 1..40),
        ) {
            let estimate = median_interval(&values);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(least <= estimate.low);
            prop_assert!(estimate.low <= estimate.high);
            prop_assert!(estimate.high <= most);
            prop_assert_eq!(estimate, median_interval(&values));
        }

        #[test]
        fn a_ratio_of_exchanged_pairs_is_the_inverse(
            pairs in prop::collection::vec((1.0..1e3f64, 1.0..1e3f64), 4..12),
        ) {
            let exchanged: Vec<(f64, f64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let (ratio, inverse) =
                (ratio_interval(&pairs, 0.95), ratio_interval(&exchanged, 0.95));
            prop_assert!((ratio.ratio * inverse.ratio - 1.0).abs() < 1e-9);
            prop_assert_eq!(ratio.is_different(), inverse.is_different());
        }
    }
}
