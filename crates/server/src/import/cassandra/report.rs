//! What an import has done, and what it reports.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::failure::Failure;
use crate::import::Losses;

const INTERVAL: Duration = Duration::from_secs(1);
/// Losses that are printed; the others are counted.
const LOSSES_SHOWN: u64 = 100;

/// Counts of all threads.
#[derive(Debug)]
pub(super) struct Report {
    losses_allowed: Losses,
    pub(super) rows: AtomicU64,
    pub(super) ranges: AtomicU64,
    pub(super) losses: AtomicU64,
}

impl Report {
    pub(super) fn new(losses_allowed: Losses) -> Report {
        let [rows, ranges, losses] = [const { AtomicU64::new(0) }; 3];
        Report { losses_allowed, rows, ranges, losses }
    }

    /// Notes that something cannot be imported.
    pub(super) fn lose(&self, what: &str) -> Result<(), Failure> {
        if self.losses_allowed == Losses::Refuse {
            let advice = "to leave out what cannot be imported, use --partial";
            return Err(anyhow!("{what}; {advice}").into());
        }
        if self.losses.fetch_add(1, Ordering::Relaxed) < LOSSES_SHOWN {
            self.note(&format!("not imported: {what}"));
        }
        Ok(())
    }

    /// Writes a line to standard error. If that is closed, the line is lost.
    #[expect(clippy::unused_self, reason = "notes are part of a report")]
    pub(super) fn note(&self, line: &str) {
        base::messages::print_error(line);
    }
}

/// The line of each second.
#[derive(Debug)]
pub(super) struct Ticker {
    verb: &'static str,
    reported: Instant,
    rows_before: u64,
}

impl Ticker {
    pub(super) fn new(verb: &'static str) -> Ticker {
        Ticker { verb, reported: Instant::now(), rows_before: 0 }
    }

    /// Reports, if a second has passed. `task`: what was begun last.
    pub(super) fn tick(&mut self, report: &Report, ranges: u64, task: &str) {
        let elapsed = self.reported.elapsed();
        if elapsed < INTERVAL {
            return;
        }
        let rows = report.rows.load(Ordering::Relaxed);
        let count = rows - std::mem::replace(&mut self.rows_before, rows);
        self.reported = Instant::now();
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = count.saturating_mul(1000) / ms;
        let done = report.ranges.load(Ordering::Relaxed);
        let verb = self.verb;
        report
            .note(&format!("{verb} {task}: {rows} rows, {rate} rows/s, range {done} of {ranges}"));
    }
}
