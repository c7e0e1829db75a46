//! Detects when a rate has become steady.

use super::real;

/// Minimum number of windows for a meaningful slope.
const WINDOWS_MIN: usize = 5;
/// Maximum relative change of a steady rate over the windows.
const CHANGE_MAX: f64 = 0.05;

/// Whether the rates of these windows are constant: the regression line changes by less than 5 % of
/// the mean from first to last. False for fewer than 5 windows, and for silence.
pub fn is_steady(rates: &[f64]) -> bool {
    let mean = rates.iter().sum::<f64>() / real(rates.len().max(1));
    if rates.len() < WINDOWS_MIN || mean <= 0.0 {
        return false;
    }
    let change = slope(rates) * real(rates.len() - 1);
    change.abs() <= CHANGE_MAX * mean
}

/// Returns the slope of the least-squares line, per window.
fn slope(values: &[f64]) -> f64 {
    let middle = (real(values.len()) - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / real(values.len());
    let offsets = (0..values.len()).map(|index| real(index) - middle);
    let products: f64 = offsets.clone().zip(values).map(|(x, y)| x * (y - mean)).sum();
    products / offsets.map(|x| x * x).sum::<f64>()
}

/// Returns the number of initial windows to discard so that the rest has the least marginal
/// standard error (MSER). `None` if that is more than half: the rate is not steady.
// Source: K. P. White, "An effective truncation heuristic for bias reduction in simulation
// output", 1997
pub fn warmup_end(rates: &[f64]) -> Option<usize> {
    let half = rates.len() / 2;
    let errors = (0..=half).map(|start| (start, marginal_error(&rates[start..])));
    let (start, _) = errors.min_by(|(_, first), (_, second)| first.total_cmp(second))?;
    (start < half || half == 0).then_some(start)
}

/// Sum of squared deviations over the square of the count.
fn marginal_error(values: &[f64]) -> f64 {
    let count = real(values.len().max(1));
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 with a small saw tooth.
    fn steady(count: usize) -> Vec<f64> {
        (0..count).map(|index| 100.0 + real(index % 3)).collect()
    }

    #[test]
    fn a_level_is_steady_and_a_climb_is_not() {
        assert!(is_steady(&steady(10)));
        assert!(!is_steady(&steady(4)));
        assert!(!is_steady(&[0.0; 10]));
        let climb: Vec<f64> = (0..10).map(|index| 100.0 + 2.0 * real(index)).collect();
        assert!(!is_steady(&climb));
        let fall: Vec<f64> = climb.iter().rev().copied().collect();
        assert!(!is_steady(&fall));
    }

    #[test]
    fn the_start_is_cut_where_it_is_slow() {
        let mut rates = vec![10.0, 40.0, 80.0];
        rates.extend(steady(20));
        assert_eq!(warmup_end(&rates), Some(3));
        assert_eq!(warmup_end(&[5.0; 20]), Some(0));
    }

    #[test]
    fn an_unstable_series_has_no_end_of_warmup() {
        let climb: Vec<f64> = (0..20).map(real).collect();
        assert_eq!(warmup_end(&climb), None);
    }
}
