//! The results of one generator thread.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// Longer times are recorded as this: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Three digits: values have an error of at most 0.1 %.
const DIGITS: u8 = 3;
/// Maximum number of windows; later operations count for the last.
pub(crate) const WINDOWS_MAX: usize = 100_000;
/// Limit of distinct first words of error replies; others count for [`OTHER_WORDS`].
const WORDS_MAX: usize = 64;
const OTHER_WORDS: &str = "(others)";

/// A histogram of fixed size, so that recording never allocates: about 250 KiB, of which only the
/// used part is touched.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("the bounds are in order")
}

/// Everything except the losses refers to the measured phase.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) windows: Vec<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) corrected: Histogram<u64>,
    pub(crate) raw: Histogram<u64>,
    pub(crate) lag: Histogram<u64>,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) lost: u64,
    pub(crate) unfinished: u64,
    pub(crate) unsent: u64,
    pub(crate) rows_missing: u64,
    pub(crate) prepared_again: u64,
    pub(crate) broken: u64,
    pub(crate) stalled: u64,
    /// Time of the last reply, 0 if there was none.
    pub(crate) last_reply_ns: u64,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            operations: 0,
            windows: Vec::new(),
            errors: BTreeMap::new(),
            corrected: latencies(),
            raw: latencies(),
            lag: latencies(),
            sent_bytes: 0,
            received_bytes: 0,
            lost: 0,
            unfinished: 0,
            unsent: 0,
            rows_missing: 0,
            prepared_again: 0,
            broken: 0,
            stalled: 0,
            last_reply_ns: 0,
        }
    }

    /// Counts `count` operations in the window `position`.
    pub(crate) fn count(&mut self, position: u64, count: u64) {
        let position = usize::try_from(position).unwrap_or(usize::MAX).min(WINDOWS_MAX - 1);
        if self.windows.len() <= position {
            self.windows.resize(position + 1, 0);
        }
        self.windows[position] += count;
        self.operations += count;
    }

    pub(crate) fn count_error(&mut self, word: String) {
        self.count_errors(word, 1);
    }

    pub(crate) fn count_errors(&mut self, word: String, count: u64) {
        let is_known = self.errors.contains_key(&word) || self.errors.len() < WORDS_MAX;
        let word = if is_known { word } else { OTHER_WORDS.to_owned() };
        *self.errors.entry(word).or_default() += count;
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.windows.resize(self.windows.len().max(other.windows.len()), 0);
        for (mine, others) in self.windows.iter_mut().zip(&other.windows) {
            *mine += others;
        }
        for (word, count) in &other.errors {
            *self.errors.entry(word.clone()).or_default() += count;
        }
        self.corrected += &other.corrected;
        self.raw += &other.raw;
        self.lag += &other.lag;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.lost += other.lost;
        self.unfinished += other.unfinished;
        self.unsent += other.unsent;
        self.rows_missing += other.rows_missing;
        self.prepared_again += other.prepared_again;
        self.broken += other.broken;
        self.stalled += other.stalled;
        self.last_reply_ns = self.last_reply_ns.max(other.last_reply_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let (mut one, mut other) = (Tally::new(), Tally::new());
        one.count(0, 5);
        other.count(2, 7);
        other.count_error("ERR".to_owned());
        other.raw.saturating_record_n(10, 7);
        one.merge(&other);
        one.merge(&other);
        assert_eq!(one.operations, 19);
        assert_eq!(one.windows, [5, 0, 14]);
        assert_eq!(one.errors["ERR"], 2);
        assert_eq!(one.raw.len(), 14);
    }

    #[test]
    fn late_and_unexpected_values_are_bounded() {
        let mut tally = Tally::new();
        tally.count(u64::MAX, 1);
        assert_eq!(tally.windows.len(), WINDOWS_MAX);
        for number in 0..1000 {
            tally.count_error(format!("E{number}"));
        }
        assert_eq!(tally.errors.len(), WORDS_MAX + 1);
        assert_eq!(tally.errors[OTHER_WORDS], 1000 - WORDS_MAX as u64);
    }
}
