//! Medians, means and ratios with 95 % intervals, by bootstrap.

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::real;

/// More change the ends of an interval by less than its own uncertainty.
const RESAMPLES: usize = 2_000;
/// Any; fixed, so that a report can be made again.
const SEED: u64 = 0x6c61_6221;
/// The part of all resamples beyond each end of a 95 % interval.
const TAIL: f64 = 0.025;
/// From fewer pairs the spread cannot be judged.
const PAIRS_MIN: usize = 4;

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    /// Values that it is made of; 0: there are none, and all figures are 0.
    pub count: usize,
}

impl Estimate {
    /// Half the interval as a share of the figure; 0 for a figure of 0.
    pub fn half_width(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.high - self.low) / 2.0 / self.median.abs()
    }
}

/// `m [low,high] n`, with about four digits each.
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

/// Decimals that leave about four digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1_000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    }
}

/// Median with its interval. Values next to each other may depend on each other (windows of one
/// run): they are resampled in blocks of the cube root of their number.
///
/// Of fewer than 5 values the interval is all that was seen. O(2,000 n log n).
pub fn median_interval(values: &[f64]) -> Estimate {
    interval(values, |sample| {
        sample.sort_by(f64::total_cmp);
        quantile(sample, 0.5)
    })
}

/// Mean with its interval, as for [`median_interval`]; [`Estimate::median`] holds the mean.
pub fn mean_interval(values: &[f64]) -> Estimate {
    interval(values, |sample| mean(sample))
}

/// The value below which a part of all lies, interpolated between neighbours; 0 if there is none.
///
/// `sorted` is in rising order, `part` from 0 to 1.
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

/// Fills `sample` with blocks of `values`, each from a random place; the end is followed by the
/// start.
fn resample(values: &[f64], sample: &mut [f64], random: &mut SmallRng) {
    let block_len = block_len(values.len());
    for block in sample.chunks_mut(block_len) {
        let start = random.random_range(0..values.len());
        for (offset, slot) in block.iter_mut().enumerate() {
            *slot = values[(start + offset) % values.len()];
        }
    }
}

/// The largest whole number whose cube is at most `count`.
fn block_len(count: usize) -> usize {
    (1..=count).take_while(|len| len * len * len <= count).last().unwrap_or(1)
}

/// How many times as large the second of each pair is as the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Geometric mean of second / first.
    pub ratio: f64,
    pub low: f64,
    /// Infinite when there are too few pairs to tell.
    pub high: f64,
    pub count: usize,
}

impl Ratio {
    /// True when the interval leaves 1 out.
    pub fn is_different(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// `1.034 [1.021,1.047]`.
impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.3} [{:.3},{:.3}]", self.ratio, self.low, self.high)
    }
}

/// Ratio of pairs that were measured next to each other, with an interval that holds the true one
/// with `confidence` (0.95).
///
/// A bootstrap of the t statistic of their logarithms: plain percentiles are too narrow for ten
/// pairs. Pairs with a value that is not above 0 are left out; fewer than 4 have an interval
/// without ends.
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
    // A statistic that is too large means an estimate that is too large: hence the exchange.
    let low = middle - quantile(&statistics, 1.0 - tail) * error;
    let high = middle - quantile(&statistics, tail) * error;
    Ratio { ratio: middle.exp(), low: low.exp(), high: high.exp(), count }
}

/// The t statistics of resamples around `middle`, sorted.
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

/// Finite also when all values of the sample are the same one: interpolating between infinite
/// statistics would give no number.
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

    /// Normal numbers by the sum of twelve uniform ones.
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

    /// 95 % intervals of a mean of 40 normal numbers hold it in 90 to 99 of 100 cases.
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

    /// Neighbours that depend on each other make an interval wider than the same values mixed.
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
