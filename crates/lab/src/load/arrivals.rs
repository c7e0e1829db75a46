//! Due times of the requests of an open loop.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;

use super::spec::Schedule;

/// One thread's share of a schedule. Due times do not depend on when they are queried, so requests
/// that cannot be sent yet need no queue: they remain in the schedule.
#[derive(Debug)]
pub(crate) struct Arrivals {
    start_ns: u64,
    gap_ns: f64,
    /// Due time of the next request, relative to the start.
    offset_ns: f64,
    /// `None`: all gaps are equal.
    random: Option<SmallRng>,
}

/// Position of a thread in a schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Arrivals {
    #[allow(clippy::cast_precision_loss)] // few threads
    pub(crate) fn new(
        per_second: f64,
        schedule: Schedule,
        share: Share,
        seed: u64,
        start_ns: u64,
    ) -> Arrivals {
        let gap_ns = 1e9 / per_second * share.of as f64;
        let mut arrivals = Arrivals { start_ns, gap_ns, offset_ns: 0.0, random: None };
        match schedule {
            // The threads take turns.
            Schedule::Even => arrivals.offset_ns = gap_ns * share.index as f64 / share.of as f64,
            Schedule::Poisson => {
                arrivals.random =
                    Some(SmallRng::seed_from_u64(seed.wrapping_add(share.index as u64)));
                arrivals.advance();
            }
        }
        arrivals
    }

    /// Returns the due time of the next request.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // years fit
    pub(crate) fn next_ns(&self) -> u64 {
        self.start_ns + self.offset_ns as u64
    }

    pub(crate) fn advance(&mut self) {
        self.offset_ns += match &mut self.random {
            None => self.gap_ns,
            Some(random) => self.gap_ns * random.sample::<f64, _>(Exp1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: Schedule, share: Share, until_ns: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(1_000_000.0, schedule, share, 3, 50);
        let mut due = Vec::new();
        while arrivals.next_ns() < until_ns {
            due.push(arrivals.next_ns());
            arrivals.advance();
        }
        due
    }

    #[test]
    fn threads_of_an_even_schedule_take_turns() {
        let one = due(Schedule::Even, Share { index: 0, of: 2 }, 6_050);
        let other = due(Schedule::Even, Share { index: 1, of: 2 }, 6_050);
        assert_eq!(one, [50, 2_050, 4_050]);
        assert_eq!(other, [1_050, 3_050, 5_050]);
    }

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn poisson_gaps_vary_as_they_should() {
        let due = due(Schedule::Poisson, Share { index: 1, of: 4 }, 400_000_000);
        // 100,000 expected; six standard deviations.
        assert!(due.len().abs_diff(100_000) < 1_900, "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Exponential gaps have equal mean and standard deviation.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
