//! Checks that the memory use of a run is stable: its resident size and, if the allocator counts,
//! that frames cause no allocations.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::meter::{allocations, resident_bytes};
use crate::status::Status;

/// All buffers exist after this part of the run, but at least 5 s. In long runs, the first minute's
/// sample has been verified by then.
const WARM_SHARE: u32 = 20;
const WARM_AFTER_MIN: Duration = Duration::from_secs(5);
const WARM_AFTER_MAX: Duration = Duration::from_secs(90);
const MIB: u64 = 1 << 20;
/// Allocations per frame are at least one if each frame allocates. Periodic allocations (a status
/// per second, a window's sample) are far fewer.
const ALLOCATIONS_PER_FRAME_MAX: f64 = 0.5;

/// Resident memory and allocations at the end of the warm-up, and at the latest sample.
#[derive(Debug)]
pub(super) struct Memory {
    warm_after: Duration,
    warm: Option<u64>,
    last: u64,
    highest: u64,
    warm_count: Option<Count>,
    last_count: Count,
}

/// Total allocations, and the number of frames collected by then.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    frames: u64,
    allocations: u64,
}

impl Memory {
    /// `None` if the run has no time limit.
    pub(super) fn of_run(duration: Option<Duration>) -> Self {
        let share = duration.unwrap_or_default() / WARM_SHARE;
        Self {
            warm_after: share.clamp(WARM_AFTER_MIN, WARM_AFTER_MAX),
            warm: None,
            last: 0,
            highest: 0,
            warm_count: None,
            last_count: Count::default(),
        }
    }

    /// Takes a sample, about once per second and part. Memory that the system does not report is
    /// not shown.
    pub(super) fn look(&mut self, elapsed: Duration, status: &Status) {
        match resident_bytes() {
            Ok(bytes) => self.take(elapsed, bytes),
            Err(error) => tracing::debug!(%error, "could not read resident memory"),
        }
        if let Status::Collector(status) = status
            && let Some(allocations) = allocations()
        {
            self.take_count(elapsed, Count { frames: status.meter.frames, allocations });
        }
    }

    fn take_count(&mut self, elapsed: Duration, count: Count) {
        self.last_count = count;
        if elapsed >= self.warm_after {
            self.warm_count.get_or_insert(count);
        }
    }

    /// Allocations per frame since the warm-up; `None` without a counting allocator or new frames.
    fn allocations_per_frame(&self) -> Option<f64> {
        let (warm, last) = (self.warm_count?, self.last_count);
        let frames = last.frames.saturating_sub(warm.frames);
        let allocations = last.allocations.saturating_sub(warm.allocations);
        #[expect(clippy::cast_precision_loss, reason = "compared with a half")]
        let per_frame = allocations as f64 / frames as f64;
        (frames > 0).then_some(per_frame)
    }

    fn take(&mut self, elapsed: Duration, bytes: u64) {
        self.last = bytes;
        if elapsed >= self.warm_after {
            self.warm.get_or_insert(bytes);
            self.highest = self.highest.max(bytes);
        }
    }

    /// Fails if memory has grown by more than this fraction or could not be measured, or if frames
    /// allocate.
    pub(super) fn judge(&self, share: f64) -> Result<()> {
        let Some(warm) = self.warm else {
            bail!("could not measure memory growth: run too short, or not reported by the system");
        };
        #[expect(clippy::cast_precision_loss, reason = "compared with a share")]
        let growth = self.last as f64 / warm.max(1) as f64 - 1.0;
        if growth > share {
            bail!("memory grew by {:.2} %", growth * 100.0);
        }
        if let Some(per_frame) = self.allocations_per_frame()
            && per_frame > ALLOCATIONS_PER_FRAME_MAX
        {
            bail!("{per_frame:.2} allocations per frame");
        }
        Ok(())
    }

    /// Returns a line of the summary; empty if the run was too short.
    pub(super) fn text(&self) -> String {
        let Some(warm) = self.warm else { return String::new() };
        let per_mille =
            |bytes: u64| (i128::from(bytes) - i128::from(warm)) * 1_000 / i128::from(warm.max(1));
        let percent = |bytes: u64| {
            let tenths = per_mille(bytes);
            let sign = if tenths < 0 { '-' } else { '+' };
            format!("{sign}{}.{}%", tenths.abs() / 10, tenths.abs() % 10)
        };
        let allocations = self
            .allocations_per_frame()
            .map_or(String::new(), |per_frame| format!("; {per_frame:.3} allocations per frame"));
        format!(
            "memory     {} MiB resident after {} s, {} at the end, {} at most{allocations}\n",
            warm / MIB,
            self.warm_after.as_secs(),
            percent(self.last),
            percent(self.highest)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_shown_from_the_first_warm_look() {
        let mut memory = Memory::of_run(None);
        memory.take(Duration::from_secs(1), 10 * MIB);
        assert_eq!(memory.text(), "");
        for (second, bytes) in [(5, 100 * MIB), (6, 103 * MIB), (7, 99 * MIB)] {
            memory.take(Duration::from_secs(second), bytes);
        }
        assert_eq!(
            memory.text(),
            "memory     100 MiB resident after 5 s, -1.0% at the end, +3.0% at most\n"
        );
        assert!(memory.judge(0.0).is_ok());
        memory.take(Duration::from_secs(8), 102 * MIB);
        assert!(memory.judge(0.03).is_ok());
        assert_eq!(memory.judge(0.01).unwrap_err().to_string(), "memory grew by 2.00 %");
        assert!(Memory::of_run(None).judge(1.0).is_err());
        for (minutes, seconds) in [(1, 5), (10, 30), (60, 90)] {
            let memory = Memory::of_run(Some(Duration::from_secs(minutes * 60)));
            assert_eq!(memory.warm_after.as_secs(), seconds, "{minutes} minutes");
        }
    }

    #[test]
    fn allocations_per_frame_are_detected() {
        let mut memory = Memory::of_run(None);
        memory.take(Duration::from_secs(6), MIB);
        let counts = |frames, allocations| Count { frames, allocations };
        memory.take_count(Duration::from_secs(1), counts(10, 90_000));
        assert!(memory.allocations_per_frame().is_none());
        memory.take_count(Duration::from_secs(6), counts(1_000, 100_000));
        assert!(memory.allocations_per_frame().is_none());
        memory.take_count(Duration::from_secs(7), counts(3_000, 100_100));
        assert!(memory.judge(0.0).is_ok());
        assert!(memory.text().ends_with("; 0.050 allocations per frame\n"), "{}", memory.text());
        memory.take_count(Duration::from_secs(8), counts(5_000, 104_000));
        assert_eq!(memory.judge(0.0).unwrap_err().to_string(), "1.00 allocations per frame");
    }
}
