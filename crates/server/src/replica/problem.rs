//! Why a link ended, for the log: a problem that lasts ends every attempt of each second.

use std::time::{Duration, Instant};

/// Time after which a problem that lasts is logged again.
const INTERVAL: Duration = Duration::from_mins(1);

/// What a thread that follows another server knows from its earlier links.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The data differs from that of the source, so that a copy is needed.
    pub(super) must_copy: bool,
    pub(super) last_problem: LastProblem,
}

impl Past {
    /// Notes that something was applied.
    pub(super) fn worked(&mut self) {
        *self = Past::default();
    }
}

/// The problem that ended a link last.
#[derive(Debug, Default)]
pub(super) struct LastProblem {
    text: String,
    logged: Option<Instant>,
    unlogged: u64,
}

impl LastProblem {
    /// Notes a problem. `Some` if it is to be logged, with the number of times that it was not.
    pub(super) fn note(&mut self, text: String, now: Instant) -> Option<u64> {
        let is_recent = self.logged.is_some_and(|logged| now - logged < INTERVAL);
        if is_recent && self.text == text {
            self.unlogged += 1;
            return None;
        }
        let unlogged = if self.text == text { self.unlogged } else { 0 };
        *self = LastProblem { text, logged: Some(now), unlogged: 0 };
        Some(unlogged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_that_lasts_is_logged_once_a_minute() {
        let (mut last, began) = (LastProblem::default(), Instant::now());
        let mut note = |text: &str, s| last.note(text.to_owned(), began + Duration::from_secs(s));
        assert_eq!(note("refused", 0), Some(0));
        assert_eq!(note("refused", 1), None);
        assert_eq!(note("refused", 59), None);
        assert_eq!(note("refused", 60), Some(2));
        assert_eq!(note("silent", 61), Some(0), "another one");
        assert_eq!(note("refused", 62), Some(0));
    }
}
