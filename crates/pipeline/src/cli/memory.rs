//! Whether a run's memory stays as it is.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::meter::resident_bytes;

/// By then all buffers are made.
const WARM_AFTER: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;

/// Resident memory after the start, and at the last look.
#[derive(Debug, Default)]
pub(super) struct Memory {
    warm: Option<u64>,
    last: u64,
    highest: u64,
}

impl Memory {
    /// Called about once a second and part. What the system does not say is not shown.
    pub(super) fn look(&mut self, elapsed: Duration) {
        match resident_bytes() {
            Ok(bytes) => self.take(elapsed, bytes),
            Err(error) => tracing::debug!(%error, "resident memory is not known"),
        }
    }

    fn take(&mut self, elapsed: Duration, bytes: u64) {
        self.last = bytes;
        if elapsed >= WARM_AFTER {
            self.warm.get_or_insert(bytes);
            self.highest = self.highest.max(bytes);
        }
    }

    /// Errors: it has grown by more than this share, or nobody could see.
    pub(super) fn judge(&self, share: f64) -> Result<()> {
        let Some(warm) = self.warm else {
            bail!("the run was too short, or the system does not say, how memory grows");
        };
        #[expect(clippy::cast_precision_loss, reason = "compared with a share")]
        let growth = self.last as f64 / warm.max(1) as f64 - 1.0;
        if growth > share {
            bail!("memory grew by {:.2} %", growth * 100.0);
        }
        Ok(())
    }

    /// A line of the summary; nothing for a run that was too short.
    pub(super) fn text(&self) -> String {
        let Some(warm) = self.warm else { return String::new() };
        let per_mille =
            |bytes: u64| (i128::from(bytes) - i128::from(warm)) * 1_000 / i128::from(warm.max(1));
        let percent = |bytes: u64| {
            let tenths = per_mille(bytes);
            let sign = if tenths < 0 { '-' } else { '+' };
            format!("{sign}{}.{}%", tenths.abs() / 10, tenths.abs() % 10)
        };
        format!(
            "memory     {} MiB resident after {} s, {} at the end, {} at most\n",
            warm / MIB,
            WARM_AFTER.as_secs(),
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
        let mut memory = Memory::default();
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
        assert!(Memory::default().judge(1.0).is_err());
    }
}
