//! Decides whether two servers differ, from pairs of values that were measured next to each other
//! on servers with short lifetimes.
//!
//! The machine drifts by tens of percent within minutes, and is occasionally unavailable for a
//! moment. Only adjacent values are therefore compared, and the statistics use ranks: a disturbed
//! run counts as one run, however long it took.
//!
//! A verdict has two conditions. The 95 % interval must exclude 1, and a signed-rank test, which is
//! exact for any distribution of the noise, must find that equal servers differ this much in at
//! most [`CHANCE_MAX`] of all comparisons. The interval alone would report one equal pair in twenty
//! as different.
// Source: F. Wilcoxon, "Individual comparisons by ranking methods", 1945; J. L. Hodges and
// E. L. Lehmann, "Estimates of location based on rank tests", 1963.

use crate::stats::Ratio;

/// Maximum share of comparisons of equal servers that end in a verdict.
pub(crate) const CHANCE_MAX: f64 = 0.001;
/// With fewer pairs no verdict is possible: even unanimous values occur by chance in 2 of 2^n
/// cases.
pub(crate) const VALUES_MIN: usize = 11;
const _: () = assert!(2.0 / ((1 << VALUES_MIN) as f64) <= CHANCE_MAX);
const _: () = assert!(2.0 / ((1 << (VALUES_MIN - 1)) as f64) > CHANCE_MAX);
/// A value counts by its rank, but no more than this part of the highest: where a tenth of all runs
/// is disturbed by up to a half, forty pairs show a difference of 5 % in 98 of 100 cases, and in 83
/// if ranks are not capped.
const RANK_CAP_PARTS: usize = 3;
/// Probability beyond each end of a 95 % interval.
const TAIL: f64 = 0.025;

/// Comparison of one metric of two servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    /// B divided by A, with its 95 % interval.
    pub(crate) ratio: Ratio,
    /// Probability that equal servers differ as much, 0 to 1.
    pub(crate) chance: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// B is higher.
    More,
    /// B is lower.
    Less,
    /// No significant difference, which does not prove that there is none.
    Open,
}

impl Comparison {
    /// Compares pairs of A and B that were measured next to each other. Pairs with a value that is
    /// not above 0 are ignored. O(n^3): 30 us for 20 pairs.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Comparison {
        let logarithms: Vec<f64> =
            pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (b / a).ln()).collect();
        Comparison { ratio: interval(&logarithms), chance: chance(&logarithms) }
    }

    /// Returns half the width of the interval, relative to the ratio.
    pub(crate) fn half_width(&self) -> f64 {
        (self.ratio.high - self.ratio.low) / 2.0 / self.ratio.ratio
    }

    pub(crate) fn finding(&self) -> Finding {
        if self.chance > CHANCE_MAX || !self.ratio.is_different() {
            return Finding::Open;
        }
        if self.ratio.ratio > 1.0 { Finding::More } else { Finding::Less }
    }
}

/// Returns the Hodges-Lehmann estimator, which is the median of the means of all pairs of values,
/// including each with itself: as efficient as the mean for normal noise, and robust against
/// outliers. The interval has the means that the signed-rank test does not reject as the middle; it
/// has no end with fewer than six values.
fn interval(logarithms: &[f64]) -> Ratio {
    let count = logarithms.len();
    let mut means: Vec<f64> = Vec::with_capacity(count * (count + 1) / 2);
    for (index, first) in logarithms.iter().enumerate() {
        means.extend(logarithms[index..].iter().map(|second| f64::midpoint(*first, *second)));
    }
    means.sort_by(f64::total_cmp);
    let mut below = 0.0;
    let beyond = distribution(1..=count)
        .iter()
        .take_while(|share| {
            below += **share;
            below <= TAIL
        })
        .count();
    let (low, high) = match beyond.checked_sub(1) {
        Some(index) => (means[index].exp(), means[means.len() - 1 - index].exp()),
        None => (0.0, f64::INFINITY),
    };
    let ratio = means.get(means.len() / 2).map_or(1.0, |middle| middle.exp());
    Ratio { ratio, low, high, count }
}

/// Returns the probability of each sum of the scores that have a positive sign, with random signs.
fn distribution(scores: impl IntoIterator<Item = usize>) -> Vec<f64> {
    let mut shares = vec![1.0];
    for score in scores {
        let mut longer = vec![0.0; shares.len() + score];
        for (sum, share) in shares.iter().enumerate() {
            longer[sum] += share / 2.0;
            longer[sum + score] += share / 2.0;
        }
        shares = longer;
    }
    shares
}

/// The probability that random signs give a sum of positive scores at least as far from the middle.
/// 1 if all values are 0.
fn chance(values: &[f64]) -> f64 {
    let scores = scores(values);
    let total: usize = scores.iter().map(|(score, _)| score).sum();
    let positive: usize =
        scores.iter().filter(|(_, is_positive)| *is_positive).map(|one| one.0).sum();
    let shares = distribution(scores.iter().map(|(score, _)| *score));
    let tail: f64 = shares[..=positive.min(total - positive)].iter().sum();
    (2.0 * tail).min(1.0)
}

/// Returns for each value twice its capped rank by size, and whether it is positive. Equal values
/// share the mean of their ranks. Zeros have no sign and are ignored.
fn scores(values: &[f64]) -> Vec<(usize, bool)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| *value != 0.0).collect();
    sorted.sort_by(|first, second| first.abs().total_cmp(&second.abs()));
    let cap = 2 * sorted.len().div_ceil(RANK_CAP_PARTS);
    let score = |value: &f64| {
        let smaller = sorted.partition_point(|other| other.abs() < value.abs());
        let not_larger = sorted.partition_point(|other| other.abs() <= value.abs());
        ((smaller + 1 + not_larger).min(cap), *value > 0.0)
    };
    sorted.iter().map(score).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// A normal random number, from the sum of twelve uniform ones.
    fn normal(random: &mut SmallRng) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A machine whose speed drifts, with 2 % of noise in each run and every tenth run disturbed by
    /// up to a half. Each server process has a constant deviation of 1 %.
    struct Machine {
        level: f64,
        random: SmallRng,
    }

    impl Machine {
        fn new(seed: u64) -> Machine {
            Machine { level: 1_000.0, random: SmallRng::seed_from_u64(seed) }
        }

        fn luck(&mut self) -> f64 {
            1.0 + 0.01 * normal(&mut self.random)
        }

        fn run(&mut self, factor: f64) -> f64 {
            let random = &mut self.random;
            self.level *= 1.0 + 0.01 * normal(random);
            let is_disturbed = random.random_bool(0.1);
            let disturbance = if is_disturbed { random.random::<f64>() / 2.0 } else { 0.0 };
            factor * self.level * (1.0 + 0.02 * normal(random) + disturbance)
        }

        /// A block A B B A of two servers.
        fn block(&mut self, factor: f64) -> (f64, f64) {
            let (luck, other_luck) = (self.luck(), factor * self.luck());
            let (a, b) = (self.run(luck), self.run(other_luck));
            let (other_b, other_a) = (self.run(other_luck), self.run(luck));
            ((a * other_a).sqrt(), (b * other_b).sqrt())
        }

        fn blocks(&mut self, factor: f64, count: usize) -> Vec<(f64, f64)> {
            (0..count).map(|_| self.block(factor)).collect()
        }
    }

    /// Returns how many comparisons of 12 blocks, extended to 48 until they are precise, find more,
    /// less and no difference.
    fn findings(factor: f64, tries: usize, seed: u64) -> [usize; 3] {
        let mut machine = Machine::new(seed);
        let mut counts = [0; 3];
        for _ in 0..tries {
            let mut blocks = machine.blocks(factor, 12);
            let mut comparison = Comparison::of(&blocks);
            while comparison.half_width() > 0.01 && blocks.len() < 48 {
                blocks.push(machine.block(factor));
                comparison = Comparison::of(&blocks);
            }
            counts[comparison.finding() as usize] += 1;
        }
        counts
    }

    /// The error rate is one in a thousand: 20 comparisons of equals are all open in 98 of 100
    /// cases.
    #[test]
    fn equals_are_not_called_different() {
        let mut machine = Machine::new(5);
        let tries = 6_000;
        let wrong = (0..tries).filter(|_| {
            let blocks = machine.blocks(1.0, 20);
            let logarithms: Vec<f64> = blocks.iter().map(|(a, b)| (b / a).ln()).collect();
            // The other conditions are slower and can only reduce the number.
            chance(&logarithms) <= CHANCE_MAX
        });
        let wrong = wrong.count();
        assert!(wrong <= 12, "{wrong} of {tries}");
    }

    #[test]
    fn equals_are_not_called_different_by_going_on() {
        let [more, less, _] = findings(1.0, 150, 8);
        assert!(more + less <= 2, "{more} more and {less} less of 150");
    }

    #[test]
    fn five_percent_are_found_whichever_way() {
        let [more, less, open] = findings(1.05, 50, 6);
        assert!(more >= 47, "{more} more, {less} less, {open} open");
        assert_eq!(less, 0);
        let [more, less, open] = findings(0.95, 50, 7);
        assert!(less >= 47, "{more} more, {less} less, {open} open");
        assert_eq!(more, 0);
    }

    #[test]
    fn chances_are_those_of_the_tables() {
        // Ranks 1 to 5 count 1, 2, 2, 2, 2. Of the 32 sign combinations, one gives a positive sum
        // of 0, one of 1, four of 2, four of 3; the other end is symmetric.
        let check = |values: &[f64], expected: f64| {
            assert!((chance(values) - expected).abs() < 1e-12, "{values:?}: {}", chance(values));
        };
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 2.0 / 32.0);
        check(&[-1.0, 2.0, 3.0, 4.0, 5.0], 4.0 / 32.0);
        check(&[1.0, 2.0, -3.0, 4.0, 5.0], 12.0 / 32.0);
        check(&[-1.0, -2.0, -3.0, -4.0, -5.0, 0.0], 2.0 / 32.0);
        // Equal values share a rank: both or none are counted, as often as two signs agree.
        check(&[1.0, 1.0], 0.5);
        check(&[1.0, -1.0], 1.0);
        check(&[], 1.0);
    }

    /// Source: M. Hollander and D. A. Wolfe, "Nonparametric Statistical Methods", table A.4: of six
    /// values, the 95 % interval has all means; of ten, it leaves out eight at each end.
    #[test]
    fn intervals_are_those_of_the_tables() {
        let of = |count: i32| interval(&(0..count).map(f64::from).collect::<Vec<_>>());
        assert_eq!((of(5).low, of(5).high), (0.0, f64::INFINITY));
        let check = |count, low: f64, high: f64| {
            let found = of(count);
            assert!((found.low.ln() - low).abs() < 1e-12, "{found}");
            assert!((found.high.ln() - high).abs() < 1e-12, "{found}");
        };
        check(6, 0.0, 5.0);
        // The ninth least of 0, 0.5, 1, 1, 1.5, 1.5, 2, 2, 2, ... is 2.
        check(10, 2.0, 7.0);
    }

    #[test]
    fn a_wild_value_moves_nothing() {
        let mut pairs = vec![(100.0, 105.0); 19];
        pairs.push((100.0, 900.0));
        let comparison = Comparison::of(&pairs);
        assert!((comparison.ratio.ratio - 1.05).abs() < 1e-12);
        assert_eq!(comparison.finding(), Finding::More);
    }

    #[test]
    fn few_pairs_leave_it_open() {
        let finding = |count: usize| Comparison::of(&vec![(1.0, 2.0); count]).finding();
        assert_eq!(finding(0), Finding::Open);
        assert_eq!(finding(VALUES_MIN - 1), Finding::Open);
        assert_eq!(finding(VALUES_MIN), Finding::More);
        assert_eq!(Comparison::of(&[(0.0, 1.0), (1.0, 0.0)]).ratio.count, 0);
    }
}
