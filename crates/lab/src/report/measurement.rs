//! One row with its encoded parts decoded.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::measure::ThreadUse;
use crate::row::{Row, Verdict};
use crate::stats;

/// A thread is busy if it uses more than this share of a core.
const BUSY_SHARE: f64 = 0.05;

/// A row and the figures of its histograms.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) row: Row,
    pub(crate) corrected: Option<Percentiles>,
    pub(crate) raw: Option<Percentiles>,
    pub(crate) records_per_write: Option<f64>,
    pub(crate) bytes_per_write: Option<f64>,
    /// Results of additional loads, by name.
    pub(crate) side_loads: BTreeMap<String, Measurement>,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// Distribution of the work over the subject's reactors, or their equivalent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workers {
    /// Share of a core by thread, in the order of their names.
    pub(crate) shares: Vec<f64>,
    pub(crate) busy_count: usize,
    /// Ratio over all workers; 1 is perfectly even. `None` if no worker was active.
    pub(crate) max_over_mean: Option<f64>,
}

impl Measurement {
    /// Fails if a histogram is damaged.
    pub(crate) fn of(row: Row) -> Result<Self> {
        let report = &row.report;
        let corrected = percentiles(&report.latency_corrected).context("latency_corrected")?;
        let raw = percentiles(&report.latency_raw).context("latency_raw")?;
        let log = report.log.as_ref();
        let packed = |text: Option<&str>| histogram(text.unwrap_or_default());
        let records =
            packed(log.map(|log| log.records_per_write.as_str())).context("records_per_write")?;
        let bytes =
            packed(log.map(|log| log.bytes_per_write.as_str())).context("bytes_per_write")?;
        let names = row.load.side_loads.keys();
        let side_loads = names.filter_map(|name| Some((name.clone(), row.side_load(name)?)));
        let side_loads =
            side_loads.map(|(name, row)| Ok((name, Self::of(row)?))).collect::<Result<_>>()?;
        Ok(Self {
            side_loads,
            corrected,
            raw,
            records_per_write: records.map(|histogram| histogram.mean()),
            bytes_per_write: bytes.map(|histogram| histogram.mean()),
            row,
        })
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.row.verdict == Verdict::Ok
    }

    /// False if the subject could not be measured at all.
    pub(crate) fn has_result(&self) -> bool {
        !matches!(self.row.verdict, Verdict::Failed | Verdict::Skipped)
            && self.row.report.operations > 0
            && self.row.report.duration_ns > 0
    }

    /// Share of a core that a thread used in the measured phase.
    pub(crate) fn share(&self, thread: &ThreadUse) -> f64 {
        ratio(thread.cpu_ns(), self.row.report.duration_ns)
    }

    /// Threads named `r00`, `r01`, ...: the reactors. `None` for subjects without.
    pub(crate) fn reactors(&self) -> Option<Workers> {
        let mut reactors: Vec<&ThreadUse> =
            self.row.threads.iter().filter(|thread| is_reactor(&thread.name)).collect();
        reactors.sort_by(|a, b| a.name.cmp(&b.name));
        let shares: Vec<f64> = reactors.iter().map(|thread| self.share(thread)).collect();
        (!shares.is_empty()).then(|| Workers::of(shares))
    }

    /// Share of the generator's cores that it used.
    pub(crate) fn client_share(&self) -> Option<f64> {
        let threads = &self.row.report.threads;
        let cores = match self.row.load.cpus.len() {
            0 => threads.len(),
            count => count,
        };
        let used: u64 = threads.iter().map(ThreadUse::cpu_ns).sum();
        let available = self.row.report.duration_ns.checked_mul(u64::try_from(cores).ok()?)?;
        (available > 0).then(|| ratio(used, available))
    }

    /// Operations per second in each full window of the measured phase.
    pub(crate) fn window_rates(&self) -> Vec<f64> {
        let window_ns = self.row.load.window_ms.saturating_mul(1_000_000);
        if window_ns == 0 {
            return Vec::new();
        }
        self.row.report.windows.iter().map(|count| ratio(*count, window_ns) * 1e9).collect()
    }
}

impl Workers {
    fn of(shares: Vec<f64>) -> Self {
        let busy_count = shares.iter().filter(|share| **share > BUSY_SHARE).count();
        let is_idle = shares.iter().all(|share| *share <= 0.0);
        let max_over_mean = (!is_idle).then(|| stats::max_over_mean(&shares));
        Self { shares, busy_count, max_over_mean }
    }
}

fn is_reactor(name: &str) -> bool {
    let digits = name.strip_prefix(['r', 'w']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn percentiles(text: &str) -> Result<Option<Percentiles>> {
    Ok(histogram(text)?.map(|histogram| Percentiles {
        p50: exact(histogram.value_at_quantile(0.5)),
        p99: exact(histogram.value_at_quantile(0.99)),
        p999: exact(histogram.value_at_quantile(0.999)),
    }))
}

/// Returns `None` if nothing was recorded.
fn histogram(text: &str) -> Result<Option<Histogram<u64>>> {
    let histogram = stats::histogram::decode(text)?;
    Ok(Some(histogram).filter(|histogram| !histogram.is_empty()))
}

fn ratio(amount: u64, of: u64) -> f64 {
    exact(amount) / exact(of.max(1))
}

/// Counts and nanoseconds of a measurement are far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn exact(value: u64) -> f64 {
    value as f64
}

/// Converts a length, far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_are_told_by_their_names() {
        for (name, expected) in
            [("r00", true), ("r15", true), ("r", false), ("redis-server", false), ("r0x", false)]
        {
            assert_eq!(is_reactor(name), expected, "{name}");
        }
    }

    #[test]
    fn a_damaged_histogram_is_an_error_and_an_empty_one_is_none() {
        assert!(percentiles("").unwrap().is_none());
        assert!(percentiles("***").is_err());
        assert!(percentiles("AAAA").is_err());
    }

    #[test]
    fn workers_are_busy_above_a_share_of_a_core() {
        let workers = Workers::of(vec![0.9, 0.3, 0.0, 0.0]);
        assert_eq!(workers.busy_count, 2);
        assert_eq!(workers.max_over_mean, Some(3.0));
        assert_eq!(Workers::of(vec![0.0]).max_over_mean, None);
    }
}
