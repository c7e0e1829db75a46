//! Chi-square test for whether samples are spread evenly over their windows: each position of a
//! window must have the same probability, so each twentieth of it should have equally many samples.

/// Number of classes that a window is divided into.
pub(crate) const CLASSES: usize = 20;

/// With 19 degrees of freedom, a uniform sample exceeds this once in a million runs.
pub(crate) const CHI_SQUARE_MAX: f64 = 63.7;

/// Smaller windows are not counted: their twentieths differ in size.
pub(crate) const WINDOW_TASKS_MIN: u64 = 20_000;

/// The test requires this many samples per class on average.
const CLASS_SAMPLES_MIN: u64 = 5;

/// Returns which twentieth of `total` positions contains this one.
pub(crate) fn class(position: u64, total: u64) -> usize {
    let classes = u128::try_from(CLASSES).expect("128 bits");
    let class = u128::from(position) * classes / u128::from(total.max(1));
    usize::try_from(class).map_or(CLASSES - 1, |class| class.min(CLASSES - 1))
}

/// Returns the chi-square statistic of the counts; `None` if they are too few.
pub(crate) fn chi_square(counts: &[u64]) -> Option<f64> {
    let total = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let classes = u64::try_from(counts.len()).expect("64 bits");
    if classes < 2 || total / classes < CLASS_SAMPLES_MIN {
        return None;
    }
    let expected = real(total) / real(classes);
    Some(counts.iter().map(|count| (real(*count) - expected).powi(2) / expected).sum())
}

#[expect(clippy::cast_precision_loss, reason = "a statistic of three digits")]
fn real(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_their_twentieth() {
        for (position, total, expected) in
            [(0, 100, 0), (4, 100, 0), (5, 100, 1), (99, 100, 19), (100, 100, 19), (7, 0, 19)]
        {
            assert_eq!(class(position, total), expected, "{position} of {total}");
        }
    }

    #[test]
    fn counts_are_compared_with_equal_ones() {
        assert_eq!(chi_square(&[]), None);
        assert_eq!(chi_square(&[4; CLASSES]), None);
        assert_eq!(chi_square(&[5; CLASSES]), Some(0.0));
        assert_eq!(chi_square(&[10, 20, 30]), Some(10.0));
        assert!(chi_square(&[u64::MAX, u64::MAX]).is_some());
    }
}
