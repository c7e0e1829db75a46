//! Figures computed from rows for a column.

use serde::Deserialize;

use crate::load::LogReport;
use crate::measure::ThreadUse;
use crate::row::{GROWN_BYTES, Row};
use crate::stats::{Estimate, histogram, max_over_mean, mean_interval, median_interval};

/// Reactors that use less of a core count as idle.
const BUSY_SHARE_MIN: f64 = 0.05;
/// Maximum ratio of the busiest reactor to the mean for balanced reactors.
const BALANCED_MAX: f64 = 1.15;

/// A figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    OperationsPerSecond,
    /// Unit of older tools.
    OperationsPerMinute,
    /// CPU of the subject.
    CpuNsPerOperation,
    /// CPU of the subject; 100 is one core.
    CpuPercent,
    /// Duration of this many operations at the rate of the row.
    DurationMs(u64),
    LatencyMsP50,
    LatencyUsP99,
    /// Number of reactors that used more than 5 % of a core.
    BusyReactors,
    /// Ratio of the busiest reactor to the mean of all.
    Imbalance,
    RecordsPerWrite,
    BytesPerWrite,
    OperationsPerSync,
    /// Resident memory per key of the load's key range.
    BytesPerKey,
    /// Growth of the resident memory during the measured phase.
    GrownBytesPerOperation,
    /// Failed requests of all kinds.
    Failed,
    /// Requests in flight when the load ended.
    Unfinished,
    /// Of the machine: connections that found a full listen queue.
    ListenOverflows,
    /// Of the machine: retransmitted connection requests.
    SynRetransmits,
    /// Voluntary and involuntary context switches of the subject's threads.
    SwitchesPerOperation,
    /// Time in which threads of the subject were ready but not running.
    ReadyNsPerOperation,
    /// Share of kernel time in the subject's processor time.
    SystemPercent,
}

impl Figure {
    /// Whether the figure reports losses, and is therefore valid for measurements with losses.
    pub(crate) fn is_of_losses(self) -> bool {
        matches!(
            self,
            Figure::Failed | Figure::Unfinished | Figure::ListenOverflows | Figure::SynRetransmits
        )
    }

    /// Returns the figure over the repeats of a cell: their median or, for a single repeat, the
    /// mean of its windows if available. `None` if no row contains it.
    pub(crate) fn estimate(self, rows: &[&Row]) -> Option<Estimate> {
        if let [row] = rows
            && let Some(estimate) = self.estimate_of_windows(row)
        {
            return Some(Estimate { count: 1, ..estimate });
        }
        let values: Vec<f64> = rows.iter().filter_map(|row| self.value(row)).collect();
        (!values.is_empty()).then(|| median_interval(&values))
    }

    /// Returns the figure of one row; `None` if the row does not contain it.
    pub(crate) fn value(self, row: &Row) -> Option<f64> {
        match self {
            Figure::OperationsPerSecond => Some(row.operations_per_second()),
            Figure::OperationsPerMinute => Some(row.operations_per_second() * 60.0),
            Figure::CpuNsPerOperation => Some(cpu_ns(row) / real(row.report.operations_of_all())),
            Figure::CpuPercent => Some(cpu_ns(row) / real(row.report.duration_ns) * 100.0),
            Figure::DurationMs(operations) => {
                Some(real(operations) / row.operations_per_second() * 1e3)
            }
            Figure::LatencyMsP50 => latency_ns(row, 0.5).map(|ns| ns / 1e6),
            Figure::LatencyUsP99 => latency_ns(row, 0.99).map(|ns| ns / 1e3),
            Figure::BusyReactors => busy_count(row),
            Figure::Imbalance => imbalance(row),
            Figure::RecordsPerWrite => log(row, |log| (row.report.operations, log.writes)),
            Figure::BytesPerWrite => log(row, |log| (log.bytes, log.writes)),
            Figure::OperationsPerSync => log(row, |log| (row.report.operations, log.syncs)),
            Figure::BytesPerKey => Some(real(row.resident_bytes) / real(key_count(row)?)),
            Figure::GrownBytesPerOperation => row.counters.get(GROWN_BYTES).copied(),
            Figure::Failed => Some(real(row.report.errors.values().sum::<u64>() + row.report.lost)),
            Figure::Unfinished => Some(real(row.report.unfinished)),
            Figure::ListenOverflows => row.tcp.get("ListenOverflows").copied().map(real),
            Figure::SynRetransmits => row.tcp.get("TCPSynRetrans").copied().map(real),
            Figure::SwitchesPerOperation => {
                per_operation(row, |thread| thread.voluntary_switches + thread.involuntary_switches)
            }
            Figure::ReadyNsPerOperation => per_operation(row, |thread| thread.wait_ns),
            Figure::SystemPercent => {
                let system = row.threads.iter().map(|thread| thread.system_ns).sum();
                Some(real(system) / cpu_ns(row) * 100.0)
            }
        }
        .filter(|value| value.is_finite())
    }

    fn estimate_of_windows(self, row: &Row) -> Option<Estimate> {
        let estimate = mean_interval(&window_rates(row));
        match self {
            _ if estimate.low <= 0.0 => None,
            Figure::OperationsPerSecond => Some(estimate),
            Figure::OperationsPerMinute => Some(Estimate {
                median: estimate.median * 60.0,
                low: estimate.low * 60.0,
                high: estimate.high * 60.0,
                ..estimate
            }),
            Figure::DurationMs(operations) => {
                let ms = |rate: f64| real(operations) / rate * 1e3;
                Some(Estimate {
                    median: ms(estimate.median),
                    low: ms(estimate.high),
                    high: ms(estimate.low),
                    ..estimate
                })
            }
            _ => None,
        }
    }
}

/// Operations per second in each window of the measured phase.
pub(crate) fn window_rates(row: &Row) -> Vec<f64> {
    let seconds = real(row.load.window_ms) / 1e3;
    row.report.windows.iter().map(|operations| real(*operations) / seconds).collect()
}

/// Formats the remark used in the source documents: `2 of 4 reactors busy; unbalanced (max/mean
/// 1.8)`. Workers of a web server count as reactors. Empty for subjects without reactors.
pub(crate) fn remark(row: &Row) -> String {
    let count = reactor_shares(row).len();
    let (Some(busy), Some(imbalance)) = (busy_count(row), imbalance(row)) else {
        return String::new();
    };
    let balance = if imbalance < BALANCED_MAX { "balanced" } else { "unbalanced" };
    format!("{busy} of {count} reactors busy; {balance} (max/mean {imbalance:.2})")
}

/// Share of a core that each reactor used.
fn reactor_shares(row: &Row) -> Vec<f64> {
    let duration_ns = real(row.report.duration_ns);
    let reactors = row.threads.iter().filter(|thread| is_reactor(thread));
    reactors.map(|thread| real(thread.cpu_ns()) / duration_ns).collect()
}

/// Reactors are named `r00`, `r01`, ...; workers of web servers `w00`, `w01`, ...
pub(crate) fn is_reactor(thread: &ThreadUse) -> bool {
    let number = thread.name.strip_prefix(['r', 'w']).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn busy_count(row: &Row) -> Option<f64> {
    let shares = reactor_shares(row);
    let busy = shares.iter().filter(|share| **share > BUSY_SHARE_MIN).count();
    (!shares.is_empty()).then(|| real(busy as u64))
}

fn imbalance(row: &Row) -> Option<f64> {
    let shares = reactor_shares(row);
    (!shares.is_empty()).then(|| max_over_mean(&shares))
}

/// Processor time of the subject: of a server's threads, or of the appending process.
fn cpu_ns(row: &Row) -> f64 {
    let log = row.report.log.as_ref();
    let of_threads = || row.threads.iter().map(ThreadUse::cpu_ns).sum();
    real(log.map_or_else(of_threads, |log| log.process_cpu_ns))
}

/// Sum over all threads of the subject, per operation; `None` without operations.
fn per_operation(row: &Row, of: impl Fn(&ThreadUse) -> u64) -> Option<f64> {
    let operations = row.report.operations_of_all();
    let sum: u64 = row.threads.iter().map(of).sum();
    (operations > 0).then(|| real(sum) / real(operations))
}

fn latency_ns(row: &Row, part: f64) -> Option<f64> {
    let latencies = histogram::decode(&row.report.latency_corrected).ok()?;
    (!latencies.is_empty()).then(|| real(latencies.value_at_quantile(part)))
}

/// A quotient of counters of a log; `None` without a log, or if the divisor is 0.
fn log(row: &Row, quotient: impl Fn(&LogReport) -> (u64, u64)) -> Option<f64> {
    let (amount, count) = quotient(row.report.log.as_ref()?);
    (count > 0).then(|| real(amount) / real(count))
}

fn key_count(row: &Row) -> Option<u64> {
    match &row.load.work {
        crate::load::Work::Socket(work) => Some(work.keys.count),
        crate::load::Work::Append(_) => None,
    }
}

/// Converts counts and nanoseconds: exact below 2^53.
#[allow(clippy::cast_precision_loss)]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::fixture;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[track_caller]
    fn check(figure: Figure, row: &Row, expected: Option<f64>) {
        let found = figure.value(row);
        let fits = match (found, expected) {
            (Some(found), Some(expected)) => close(found, expected),
            (found, expected) => found == expected,
        };
        assert!(fits, "{figure:?}: {found:?}");
    }

    #[test]
    fn figures_of_a_server() {
        // 2 s, 100,000 operations; r00 used 1 s, r01 0.05 s, another thread 0.15 s.
        let row = fixture::server_row();
        check(Figure::OperationsPerSecond, &row, Some(50_000.0));
        check(Figure::CpuNsPerOperation, &row, Some(12_000.0));
        check(Figure::CpuPercent, &row, Some(60.0));
        check(Figure::DurationMs(1_000_000), &row, Some(20_000.0));
        check(Figure::BusyReactors, &row, Some(1.0));
        check(Figure::Imbalance, &row, Some(1.0 / 0.525));
        check(Figure::RecordsPerWrite, &row, None);
        check(Figure::BytesPerKey, &row, Some(4.0));
        assert_eq!(remark(&row), "1 of 2 reactors busy; unbalanced (max/mean 1.90)");
    }

    #[test]
    fn figures_of_what_went_wrong_and_of_waiting() {
        let mut row = fixture::server_row();
        check(Figure::OperationsPerMinute, &row, Some(3_000_000.0));
        check(Figure::Failed, &row, Some(0.0));
        check(Figure::ListenOverflows, &row, None);
        row.report.errors = [("refused".to_owned(), 3), ("reset".to_owned(), 4)].into();
        row.report.unfinished = 5;
        row.tcp = [("ListenOverflows".to_owned(), 6), ("TCPSynRetrans".to_owned(), 7)].into();
        check(Figure::Failed, &row, Some(7.0));
        check(Figure::Unfinished, &row, Some(5.0));
        check(Figure::ListenOverflows, &row, Some(6.0));
        check(Figure::SynRetransmits, &row, Some(7.0));
        row.threads[0].voluntary_switches = 150_000;
        row.threads[1].involuntary_switches = 50_000;
        row.threads[2].wait_ns = 400_000_000;
        row.threads[2].system_ns = 300_000_000;
        check(Figure::SwitchesPerOperation, &row, Some(2.0));
        check(Figure::ReadyNsPerOperation, &row, Some(4_000.0));
        check(Figure::SystemPercent, &row, Some(20.0));
    }

    #[test]
    fn figures_of_a_log() {
        let row = fixture::log_row("lanes", 15);
        check(Figure::CpuPercent, &row, Some(150.0));
        check(Figure::RecordsPerWrite, &row, Some(10.0));
        check(Figure::BytesPerWrite, &row, Some(200.0));
        check(Figure::OperationsPerSync, &row, None);
        check(Figure::BusyReactors, &row, None);
        assert_eq!(remark(&row), "");
    }

    #[test]
    fn latencies_come_from_the_corrected_histogram() {
        let mut row = fixture::server_row();
        check(Figure::LatencyMsP50, &row, None);
        let mut latencies = histogram::empty();
        latencies.record_n(2_000_000, 98).unwrap();
        latencies.record_n(9_000_000, 2).unwrap();
        row.report.latency_corrected = histogram::encode(&latencies);
        assert!((Figure::LatencyMsP50.value(&row).unwrap() - 2.0).abs() < 0.01);
        assert!((Figure::LatencyUsP99.value(&row).unwrap() - 9_000.0).abs() < 10.0);
    }

    #[test]
    fn one_row_is_judged_by_its_windows() {
        let mut row = fixture::server_row();
        row.report.windows = vec![4_000, 4_000, 6_000, 5_000, 6_000, 6_000, 4_000, 5_000];
        let estimate = Figure::OperationsPerSecond.estimate(&[&row]).unwrap();
        assert!(close(estimate.median, 50_000.0), "{estimate:?}");
        assert!(estimate.low < 50_000.0 && estimate.high > 50_000.0, "{estimate:?}");
        assert_eq!(estimate.count, 1);
        let duration = Figure::DurationMs(50_000).estimate(&[&row]).unwrap();
        assert!(duration.low < 1_000.0 && duration.high > 1_000.0, "{duration:?}");
    }

    #[test]
    fn repeats_give_their_median() {
        let rows = [1, 3, 2].map(|factor| {
            let mut row = fixture::server_row();
            row.report.operations *= factor;
            row
        });
        let rows: Vec<&Row> = rows.iter().collect();
        let estimate = Figure::OperationsPerSecond.estimate(&rows).unwrap();
        assert!(close(estimate.median, 100_000.0), "{estimate:?}");
        assert_eq!(estimate.count, 3);
        assert_eq!(Figure::RecordsPerWrite.estimate(&rows), None);
    }

    #[test]
    fn only_reactors_are_reactors() {
        let named = |name: &str| ThreadUse { name: name.into(), ..ThreadUse::default() };
        assert!(is_reactor(&named("r00")) && is_reactor(&named("r128")));
        assert!(is_reactor(&named("w01")) && !is_reactor(&named("writer")));
        assert!(!is_reactor(&named("r")) && !is_reactor(&named("redis-server")));
    }
}
