//! Measures how evenly work is distributed over workers.

use super::real;

/// Returns the Gini coefficient: 0 if all amounts are equal, towards 1 if one worker has
/// everything. 0 if empty.
pub fn gini(amounts: &[f64]) -> f64 {
    let total: f64 = amounts.iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let mut sorted = amounts.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = real(sorted.len());
    let ranked: f64 =
        sorted.iter().enumerate().map(|(index, amount)| real(index + 1) * amount).sum();
    2.0 * ranked / (count * total) - (count + 1.0) / count
}

/// Returns the ratio of the largest amount to the mean; 0 if empty.
pub fn max_over_mean(amounts: &[f64]) -> f64 {
    let total: f64 = amounts.iter().sum();
    if total <= 0.0 {
        return 0.0;
    }
    let most = amounts.iter().copied().fold(0.0, f64::max);
    most * real(amounts.len()) / total
}

/// Returns the expected number of `bins` with at least one of `balls` random balls: the number of
/// busy reactors if connections are placed by hash.
pub fn balls_in_bins(bins: usize, balls: usize) -> f64 {
    let bins = real(bins);
    if bins == 0.0 {
        return 0.0;
    }
    bins * (1.0 - (1.0 - 1.0 / bins).powf(real(balls)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.05, "{found}, not {expected}");
    }

    #[test]
    fn gini_of_known_shares() {
        check(gini(&[1.0; 8]), 0.0);
        check(gini(&[0.0, 0.0, 0.0, 4.0]), 0.75);
        check(gini(&[1.0, 2.0, 3.0, 4.0]), 0.25);
        check(gini(&[]), 0.0);
    }

    #[test]
    fn the_fullest_over_the_mean() {
        check(max_over_mean(&[1.0, 1.0, 2.0, 4.0]), 2.0);
        check(max_over_mean(&[3.0; 5]), 1.0);
        check(max_over_mean(&[0.0; 5]), 0.0);
    }

    /// The expectations that source document 0's busy counts are compared with.
    #[test]
    fn balls_fall_into_bins() {
        for (balls, busy) in [(1, 1.0), (4, 3.6), (16, 10.3), (64, 15.7), (128, 16.0)] {
            check(balls_in_bins(16, balls), busy);
        }
        for (balls, busy) in [(8, 7.2), (32, 20.4), (128, 31.5)] {
            check(balls_in_bins(32, balls), busy);
        }
        check(balls_in_bins(0, 3), 0.0);
    }
}
