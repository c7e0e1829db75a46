//! What an import has done, and what it reports each second.

use std::time::{Duration, Instant};

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Losses that are printed; the others are counted.
const LOSSES_SHOWN: u64 = 100;

#[derive(Debug)]
pub(super) struct Progress {
    pub(super) keys: u64,
    pub(super) functions: u64,
    /// Bytes of the data of the source.
    pub(super) bytes: u64,
    pub(super) commands: u64,
    pub(super) losses: u64,
    reported: Instant,
    /// Keys and commands at the last report.
    before: u64,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            keys: 0,
            functions: 0,
            bytes: 0,
            commands: 0,
            losses: 0,
            reported: Instant::now(),
            before: 0,
        }
    }

    /// Begins a copy of all data.
    pub(super) fn begin_copy(&mut self) {
        *self = Progress { commands: self.commands, ..Progress::new() };
        self.before = self.commands;
    }

    /// The rate per second since the last report, if a report is due.
    fn rate(&mut self) -> Option<u64> {
        let elapsed = self.reported.elapsed();
        if elapsed < REPORT_INTERVAL {
            return None;
        }
        let done = self.keys + self.commands;
        let count = done - std::mem::replace(&mut self.before, done);
        self.reported = Instant::now();
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        Some(count.saturating_mul(1000) / ms)
    }

    pub(super) fn report_copy(&mut self) {
        if let Some(rate) = self.rate() {
            let (keys, mib) = (self.keys, self.bytes >> 20);
            note(&format!("copying: {keys} keys, {mib} MiB, {rate} keys/s"));
        }
    }

    /// Whether a report of the writes is due; then how many bytes are missing must be found out.
    pub(super) fn is_due(&self) -> bool {
        self.reported.elapsed() >= REPORT_INTERVAL
    }

    pub(super) fn report_writes(&mut self, lag_bytes: u64) {
        if let Some(rate) = self.rate() {
            let commands = self.commands;
            note(&format!("following: {commands} commands, {rate}/s, lag {lag_bytes} bytes"));
        }
    }

    pub(super) fn lose(&mut self, what: &str) {
        self.losses += 1;
        if self.losses <= LOSSES_SHOWN {
            note(&format!("not imported: {what}"));
        }
    }
}

/// Writes a line to standard error. If that is closed, the line is lost.
pub(super) fn note(line: &str) {
    base::messages::print_error(line);
}
