//! Finds the highest sustainable rate by bisection over runs with random errors.
//!
//! Disturbances make runs fail that would have passed, but rarely make runs pass by chance.
//! Therefore a rate fails only after two failed runs, the lowest failed rate is retried twice at
//! the end, and the result must be confirmed by several runs.

/// The bisection ends when the failed rate exceeds the passed one by at most this.
pub(crate) const PRECISION_DEFAULT: f64 = 0.05;
/// Factor of the first steps, up or down, until one rate on each side is known.
const STEP: f64 = 2.0;
/// Upper limit of the rates tried.
const PER_SECOND_MAX: f64 = 1e9;
const PER_SECOND_MIN: f64 = 1.0;
/// Maximum number of runs in one search. More indicate contradictory results.
const RUNS_MAX: usize = 100;

/// Outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    Failed,
    /// The generator could not produce this rate; the server remains untested.
    OutOfReach,
}

/// Parameters of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The first rate to try.
    pub(crate) start_per_second: f64,
    /// Relative precision: 0.05 is 5 %.
    pub(crate) precision: f64,
    /// Number of runs at the rate found, most of which must pass.
    pub(crate) confirmations: usize,
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    /// The highest confirmed rate; `None` if even the lowest one failed.
    pub(crate) held_per_second: Option<f64>,
    /// The lowest failed rate; `None` if the generator was the limit.
    pub(crate) failed_per_second: Option<f64>,
    /// Number of confirmation runs, and how many of them passed.
    pub(crate) confirmed: (usize, usize),
}

/// Searches the rate. `run` generates load at a rate and returns the outcome.
pub(crate) fn search<E>(
    terms: Terms,
    run: &mut dyn FnMut(f64) -> Result<Outcome, E>,
) -> Result<Found, E> {
    let mut search =
        Search { terms, run, held: None, failed: Vec::new(), out_of_reach: Vec::new(), runs: 0 };
    loop {
        search.enclose()?;
        search.bisect()?;
        if !search.refute()? {
            return search.confirm();
        }
    }
}

struct Search<'a, E> {
    terms: Terms,
    run: &'a mut dyn FnMut(f64) -> Result<Outcome, E>,
    held: Option<f64>,
    failed: Vec<f64>,
    /// Bounds the search like failures, but does not count against the server.
    out_of_reach: Vec<f64>,
    runs: usize,
}

impl<E> Search<'_, E> {
    /// Finds a rate that passes and one that does not.
    fn enclose(&mut self) -> Result<(), E> {
        let mut rate = self.held.map_or(self.terms.start_per_second, |held| held * STEP);
        rate = rate.clamp(PER_SECOND_MIN, PER_SECOND_MAX);
        while self.may_continue() && (self.held.is_none() || self.upper().is_none()) {
            self.judge(rate)?;
            rate = if self.upper().is_none() { rate * STEP } else { rate / STEP };
            if !(PER_SECOND_MIN..=PER_SECOND_MAX).contains(&rate) {
                break;
            }
        }
        Ok(())
    }

    fn bisect(&mut self) -> Result<(), E> {
        while let (Some(held), Some(upper)) = (self.held, self.upper())
            && upper > held * (1.0 + self.terms.precision)
            && self.may_continue()
        {
            self.judge((held * upper).sqrt())?;
        }
        Ok(())
    }

    /// Retries the lowest failed rate twice. Returns true if it passes now.
    fn refute(&mut self) -> Result<bool, E> {
        let Some(failed) = lowest(&self.failed) else { return Ok(false) };
        if self.held.is_none() || !self.may_continue() {
            return Ok(false);
        }
        if self.attempt(failed)? != Outcome::Held && self.attempt(failed)? != Outcome::Held {
            return Ok(false);
        }
        self.failed.retain(|rate| *rate > failed);
        self.held = Some(failed);
        Ok(true)
    }

    /// Repeats the rate found. If it is not confirmed, it counts as failed, and the search
    /// continues one step below.
    fn confirm(&mut self) -> Result<Found, E> {
        while let Some(rate) = self.held
            && self.may_continue()
        {
            let mut held = 0;
            for _ in 0..self.terms.confirmations {
                held += usize::from(self.attempt(rate)? == Outcome::Held);
            }
            if 2 * held > self.terms.confirmations {
                return Ok(self.found((self.terms.confirmations, held)));
            }
            self.failed.push(rate);
            let below = rate / (1.0 + self.terms.precision);
            self.held = (below >= PER_SECOND_MIN).then_some(below);
        }
        self.held = None;
        Ok(self.found((0, 0)))
    }

    fn found(&self, confirmed: (usize, usize)) -> Found {
        Found { held_per_second: self.held, failed_per_second: lowest(&self.failed), confirmed }
    }

    /// The lowest rate known not to pass, for whatever reason.
    fn upper(&self) -> Option<f64> {
        lowest(&self.failed).into_iter().chain(lowest(&self.out_of_reach)).reduce(f64::min)
    }

    fn judge(&mut self, rate: f64) -> Result<(), E> {
        let mut outcome = self.attempt(rate)?;
        if outcome != Outcome::Held {
            outcome = self.attempt(rate)?;
        }
        match outcome {
            Outcome::Held => self.held = Some(rate),
            Outcome::Failed => self.failed.push(rate),
            Outcome::OutOfReach => self.out_of_reach.push(rate),
        }
        Ok(())
    }

    fn attempt(&mut self, rate: f64) -> Result<Outcome, E> {
        self.runs += 1;
        (self.run)(rate)
    }

    fn may_continue(&self) -> bool {
        self.runs < RUNS_MAX
    }
}

fn lowest(rates: &[f64]) -> Option<f64> {
    rates.iter().copied().reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const TERMS: Terms = Terms { start_per_second: 10_000.0, precision: 0.05, confirmations: 3 };

    fn check(
        terms: Terms,
        mut run: impl FnMut(f64) -> Outcome,
        judge: impl FnOnce(Found, &[f64]) -> bool,
    ) {
        let mut rates = Vec::new();
        let found = search::<Infallible>(terms, &mut |rate| {
            rates.push(rate);
            Ok(run(rate))
        });
        let Ok(found) = found;
        assert!(judge(found, &rates), "{found:?} by {rates:?}");
    }

    fn served_to(limit: f64) -> impl FnMut(f64) -> Outcome {
        move |rate| if rate <= limit { Outcome::Held } else { Outcome::Failed }
    }

    #[test]
    fn the_limit_is_enclosed_from_below_and_above() {
        for limit in [9_999.0, 10_000.0, 54_321.0, 1_234_567.0, 700.0, 3.0] {
            check(TERMS, served_to(limit), |found, _| {
                let (held, failed) =
                    (found.held_per_second.unwrap(), found.failed_per_second.unwrap());
                held <= limit
                    && failed > limit
                    && failed <= held * 1.05
                    && found.confirmed == (3, 3)
            });
        }
    }

    #[test]
    fn few_runs_are_enough() {
        check(TERMS, served_to(54_321.0), |_, rates| rates.len() <= 20);
    }

    #[test]
    fn a_server_without_replies_is_reported() {
        check(
            TERMS,
            |_| Outcome::Failed,
            |found, _| {
                found.held_per_second.is_none()
                    && found.failed_per_second == Some(10_000.0 / 8_192.0)
            },
        );
    }

    #[test]
    fn the_limit_of_the_generator_is_not_that_of_the_server() {
        let run = |rate| if rate <= 40_000.0 { Outcome::Held } else { Outcome::OutOfReach };
        check(TERMS, run, |found, _| {
            found.held_per_second.unwrap() > 38_000.0 && found.failed_per_second.is_none()
        });
    }

    /// Every tenth run is disturbed and fails: the result is at most a quarter too low.
    #[test]
    fn disturbed_runs_do_not_mislead() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut serve = served_to(54_321.0);
            let run = |rate| if random.random_bool(0.1) { Outcome::Failed } else { serve(rate) };
            check(TERMS, run, |found, rates| {
                let held = found.held_per_second.unwrap();
                (40_000.0..54_321.0).contains(&held) && rates.len() < RUNS_MAX
            });
        }
    }

    #[test]
    fn a_rate_that_held_once_is_not_believed() {
        let mut tries = 0;
        let lucky = |rate: f64| {
            tries += 1;
            let is_lucky = tries == 1;
            if rate <= 9_000.0 || is_lucky { Outcome::Held } else { Outcome::Failed }
        };
        check(TERMS, lucky, |found, _| {
            let held = found.held_per_second.unwrap();
            held <= 9_000.0 && held > 8_500.0 && found.failed_per_second.unwrap() <= held * 1.06
        });
    }

    #[test]
    fn contradictions_end() {
        let mut flips = 0;
        let run = |_| {
            flips += 1;
            if flips % 2 == 0 { Outcome::Held } else { Outcome::Failed }
        };
        check(Terms { precision: 1e-6, ..TERMS }, run, |_, rates| rates.len() <= RUNS_MAX + 3);
    }
}
