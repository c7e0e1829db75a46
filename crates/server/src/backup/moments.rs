//! Times in the files of a backup: which position a moment is.

use wire::replication::Time;

/// Finds the position up to which everything was durable at a moment, from the times of a stream in
/// their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    /// Microseconds since the Unix epoch.
    moment: i64,
    /// The newest position that was durable at the moment.
    found: Option<u64>,
    /// The first position that was not, or the last one if the present was at or after the moment.
    passed: Option<u64>,
}

impl Search {
    pub(crate) fn new(moment: i64) -> Search {
        Search { moment, found: None, passed: None }
    }

    /// Notes the next time of the stream. A position may have several: it was durable at the first
    /// of them. If the clock of the source was set back, the first passage of the moment counts.
    pub(crate) fn note(&mut self, time: Time) {
        // The marks of a group may follow a later time of its last position.
        let is_open = self.passed.is_none_or(|passed| time.position <= passed);
        if time.unix_us > self.moment {
            self.passed = self.passed.or(Some(time.position));
        } else if is_open {
            self.found = self.found.max(Some(time.position));
        }
    }

    /// The position; `None` unless the times begin and end around the moment.
    pub(crate) fn found(&self) -> Option<u64> {
        self.found.filter(|_| self.passed.is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(moment: i64, times: &[(u64, i64)]) -> Option<u64> {
        let mut search = Search::new(moment);
        for &(position, unix_us) in times {
            search.note(Time { position, unix_us });
        }
        search.found()
    }

    #[test]
    fn a_moment_is_the_last_position_before_it() {
        let times = [(10, 100), (20, 200), (30, 300)];
        assert_eq!(search(99, &times), None);
        assert_eq!(search(100, &times), Some(10));
        assert_eq!(search(199, &times), Some(10));
        assert_eq!(search(200, &times), Some(20));
        assert_eq!(search(299, &times), Some(20));
        assert_eq!(search(300, &times), None, "later positions may have been durable, too");
    }

    #[test]
    fn a_position_was_durable_at_its_first_time() {
        let times = [(10, 100), (20, 250), (20, 200), (20, 280), (30, 300)];
        assert_eq!(search(199, &times), Some(10));
        assert_eq!(search(200, &times), Some(20));
        assert_eq!(search(270, &times), Some(20));
        let ends = [(10, 100), (20, 200), (20, 500)];
        assert_eq!(search(400, &ends), Some(20));
    }

    #[test]
    fn marks_may_follow_a_later_time_of_the_last_position() {
        let times = [(10, 100), (30, 350), (20, 200), (30, 300), (40, 400)];
        assert_eq!(search(199, &times), Some(10));
        assert_eq!(search(250, &times), Some(20));
        assert_eq!(search(320, &times), Some(30));
    }

    #[test]
    fn the_first_passage_counts_if_the_clock_was_set_back() {
        let times = [(10, 100), (20, 300), (30, 150), (40, 200), (50, 400)];
        assert_eq!(search(200, &times), Some(10));
        assert_eq!(search(350, &times), Some(40));
    }

    proptest! {
        /// Of syncs with growing times, some of which are repeated with a later time.
        #[test]
        fn repeated_times_change_nothing(
            steps in prop::collection::vec((1..5_u64, 1..50_i64, any::<bool>()), 2..20),
            moment in 0..600_i64,
        ) {
            let (mut position, mut at) = (0, 0);
            let (mut plain, mut repeated) = (Vec::new(), Vec::new());
            for (bytes, wait, late) in steps {
                position += bytes;
                at += wait;
                plain.push((position, at));
                if late {
                    repeated.push((position, at + wait / 2));
                    at += wait / 2;
                }
                repeated.push((position, at - if late { wait / 2 } else { 0 }));
            }
            let expected = search(moment, &plain);
            if expected.is_some() {
                prop_assert_eq!(search(moment, &repeated), expected);
            }
        }
    }
}
