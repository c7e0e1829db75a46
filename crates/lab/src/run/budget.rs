//! Limits the measured phases so that a run ends within its time budget.

use std::time::{Duration, Instant};

use crate::definition::{CELL_MS_MIN, Definition};
use crate::load::Warmup;

/// Initial estimate for starting and stopping a server.
const FIRST_OVERHEAD: Duration = Duration::from_millis(500);

/// Time budget and usage. It estimates the overhead of a measurement from the completed ones.
#[derive(Debug)]
pub(super) struct Budget {
    ends: Option<Instant>,
    /// Requested duration of the longest cell.
    cell: Duration,
    /// Number of remaining measurements.
    left: u32,
    /// Average overhead per measurement, excluding the measured phase.
    overhead: Duration,
    /// Length and start of the current measured phase.
    given: (Duration, Instant),
    seen: u32,
}

impl Budget {
    pub(super) fn new(definition: &Definition, left: usize, now: Instant) -> Self {
        let loads = || definition.cells.iter().map(|cell| &cell.load);
        let cell = loads().map(|load| load.duration_ms).max().unwrap_or_default();
        let warmup = loads().map(|load| expected_ms(load.warmup)).max().unwrap_or_default();
        Self {
            ends: definition.budget_s.map(|budget_s| now + Duration::from_secs(budget_s)),
            cell: Duration::from_millis(cell),
            left: u32::try_from(left).unwrap_or(u32::MAX),
            overhead: FIRST_OVERHEAD + Duration::from_millis(warmup),
            given: (Duration::ZERO, now),
            seen: 0,
        }
    }

    /// Returns the length of the next measured phase. `now` is the start of the measurement.
    pub(super) fn cell_ms(&mut self, now: Instant) -> u64 {
        let cell = match self.ends {
            None => self.cell,
            Some(ends) => {
                let share = ends.saturating_duration_since(now) / self.left.max(1);
                let least = Duration::from_millis(CELL_MS_MIN).min(self.cell);
                share.saturating_sub(self.overhead).clamp(least, self.cell)
            }
        };
        self.given = (cell, now);
        u64::try_from(cell.as_millis()).unwrap_or(u64::MAX)
    }

    /// Records the end of the current measurement.
    pub(super) fn spent(&mut self, now: Instant) {
        let (cell, began) = self.given;
        let overhead = now.saturating_duration_since(began).saturating_sub(cell);
        // The initial estimate counts until the first measurement is complete.
        let total = self.overhead * self.seen + overhead;
        self.seen += 1;
        self.overhead = total / self.seen;
        self.left = self.left.saturating_sub(1);
    }

    /// Estimates the time for all remaining measurements.
    pub(super) fn time_left(&self) -> Duration {
        let cell = if self.seen == 0 { self.cell } else { self.given.0 };
        (self.overhead + cell) * self.left
    }
}

/// A steady rate is usually reached after half of the maximum.
fn expected_ms(warmup: Warmup) -> u64 {
    match warmup {
        Warmup::Fixed { ms } => ms,
        Warmup::Steady { max_ms } => max_ms / 2,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn budget(text: &str, left: usize, now: Instant) -> Budget {
        let text = format!("name = \"a\"\ntitle = \"t\"\n{text}\n[subject]\nkind = \"myriad\"\n");
        Budget::new(&Definition::parse(&text, Path::new("a.toml")).unwrap(), left, now)
    }

    #[test]
    fn without_a_budget_cells_are_as_long_as_wanted() {
        let now = Instant::now();
        assert_eq!(budget("", 1_000, now).cell_ms(now), 3_000);
    }

    #[test]
    fn cells_shrink_to_fit_but_not_below_the_least() {
        let now = Instant::now();
        let warm = "warmup = { fixed = { ms = 500 } }\nbudget_s = 20";
        // 20 s for 10 measurements, each with 0.5 s of warm-up and 0.5 s for the server.
        assert_eq!(budget(warm, 10, now).cell_ms(now), 1_000);
        assert_eq!(budget(warm, 1_000, now).cell_ms(now), CELL_MS_MIN);
        assert_eq!(budget(&format!("cell_ms = 200\n{warm}"), 1_000, now).cell_ms(now), 200);
    }

    #[test]
    fn it_learns_from_what_a_measurement_took() {
        let now = Instant::now();
        let mut budget = budget("warmup = { fixed = { ms = 500 } }\nbudget_s = 20", 10, now);
        assert_eq!(budget.time_left(), Duration::from_secs(40));
        budget.cell_ms(now);
        let later = now + Duration::from_millis(1_200);
        budget.spent(later);
        // 18.8 s for 9 measurements, of which 0.2 s is not measured.
        assert_eq!(budget.cell_ms(later), 1_888);
        assert!(budget.time_left() <= Duration::from_millis(18_800));
    }
}
