//! Determines whether a row is valid.

use hdrhistogram::Histogram;

use crate::load::{
    Arrival, HttpConnection, HttpWork, LoadReport, LoadSpec, Sharing, SocketWork, Work,
};
use crate::measure::{Noise, ThreadUse};
use crate::row::{Row, Verdict};
use crate::stats::histogram::{HistogramError, decode};
use crate::stats::{max_over_mean, mean_interval, real};
use crate::subject::Kind;

/// A generator that uses more of its cores than this may be the bottleneck.
const GENERATOR_BUSY_MAX: f64 = 0.85;
/// A subject that uses this much of its cores, or of one core with one thread, is the bottleneck of
/// a closed loop regardless of the generator, because requests wait in the subject's queue.
const SUBJECT_BUSY: f64 = 0.90;
/// Sending delays caused by the generator: more than this share of the measured latency, and more
/// than a minimum.
const LAG_SHARE_MAX: f64 = 0.10;
const LAG_NS_MIN: u64 = 100_000;
/// Half the interval of the rate, relative to it.
const HALF_WIDTH_MAX: f64 = 0.05;
const STEAL_MAX: f64 = 0.02;
const FOREIGN_CORES_MAX: f64 = 0.3;
/// Cores that become active increase their frequency; larger changes indicate throttling.
const FREQUENCY_CHANGE_MAX: f64 = 0.10;
/// Silence of this duration is a stall, if at least this many operations were expected.
const STALL_MS: u64 = 1_000;
const STALL_OPERATIONS_MIN: f64 = 10.0;
/// Unsent requests of a schedule are not included in any latency; a few at the end are acceptable.
const UNSENT_SHARE_MAX: f64 = 0.001;
/// A thread that uses more of a core than this is busy.
const THREAD_BUSY_MIN: f64 = 0.05;
/// Little's law: requests in flight = rate x latency. The generator's own time between a reply and
/// the next request reduces it slightly.
const LITTLE_ERROR_MAX: f64 = 0.25;

/// Input of a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub kind: Kind,
    pub load: &'a LoadSpec,
    pub report: &'a LoadReport,
    /// The subject's threads in the measured phase.
    pub threads: &'a [ThreadUse],
    /// Cores that the subject was pinned to; empty: all.
    pub cpus: &'a [usize],
    pub noise: &'a Noise,
}

impl<'a> Evidence<'a> {
    pub(crate) fn of(row: &'a Row, kind: Kind) -> Self {
        Self {
            kind,
            load: &row.load,
            report: &row.report,
            threads: &row.threads,
            cpus: &row.subject.cpus,
            noise: &row.noise,
        }
    }
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// All problems, the worst first.
    pub reasons: Vec<String>,
}

/// Appends the problems that it finds.
type Rule = fn(&Evidence<'_>, &mut Vec<String>);

/// Evaluates one measurement. Lists all reasons; the verdict is that of the worst: lost work, then
/// a stall, then a disturbed machine, then a slow generator, then an unsteady rate.
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let rules: [(Verdict, Rule); 5] = [
        (Verdict::Lossy, losses),
        (Verdict::Stalled, stalls),
        (Verdict::EnvChanged, disturbances),
        (Verdict::ClientBound, weak_generator),
        (Verdict::Noisy, unsteady_rate),
    ];
    let mut judgement = Judgement { verdict: Verdict::Ok, reasons: Vec::new() };
    for (verdict, rule) in rules {
        rule(evidence, &mut judgement.reasons);
        if judgement.verdict == Verdict::Ok && !judgement.reasons.is_empty() {
            judgement.verdict = verdict;
        }
    }
    judgement
}

/// Returns the reports of all loads: the first, then the additional ones, each with the prefix of
/// its reasons.
fn reports<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = (String, &'a LoadReport)> {
    let side_loads = evidence.report.side_loads.iter();
    let side_loads = side_loads.map(|(name, report)| (format!("{name}: "), report));
    std::iter::once((String::new(), evidence.report)).chain(side_loads)
}

fn losses(evidence: &Evidence<'_>, reasons: &mut Vec<String>) {
    for (of, report) in reports(evidence) {
        if report.lost > 0 {
            reasons.push(format!("{of}{} requests without a reply", report.lost));
        }
        if real_ns(report.unsent) > UNSENT_SHARE_MAX * real_ns(report.operations) {
            reasons.push(format!("{of}{} requests found no free connection", report.unsent));
        }
        if report.broken_connections > 0 {
            let count = report.broken_connections;
            reasons.push(format!("{of}the server closed {count} connections"));
        }
        for (word, count) in &report.errors {
            reasons.push(format!("{of}{count} requests failed: {word}"));
        }
    }
}

fn stalls(evidence: &Evidence<'_>, reasons: &mut Vec<String>) {
    for (of, report) in reports(evidence) {
        if report.stalled_connections > 0 {
            let count = report.stalled_connections;
            reasons.push(format!("{of}{count} connections waited 5 s for a reply"));
        }
        if report.operations == 0 {
            reasons.push(format!("{of}no operation was completed"));
        }
    }
    let report = evidence.report;
    if report.operations == 0 {
        return;
    }
    let silent = report.windows.split(|operations| *operations > 0).map(<[u64]>::len).max();
    let silent_ms = silent.unwrap_or_default() as u64 * evidence.load.window_ms;
    let expected = per_second(report) * real_ns(silent_ms * 1_000_000) / 1e9;
    if silent_ms >= STALL_MS && expected >= STALL_OPERATIONS_MIN {
        reasons.push(format!("no reply for {silent_ms} ms"));
    }
}

fn disturbances(evidence: &Evidence<'_>, reasons: &mut Vec<String>) {
    let noise = evidence.noise;
    if noise.steal > STEAL_MAX {
        reasons.push(format!("the hypervisor took {:.1} % of the time", noise.steal * 100.0));
    }
    if noise.foreign_cores > FOREIGN_CORES_MAX {
        let name = match noise.foreign_name.as_str() {
            "" => String::new(),
            name => format!(", {name} most of them"),
        };
        reasons.push(format!("other programs used {:.2} cores{name}", noise.foreign_cores));
    }
    if noise.frequency_change > FREQUENCY_CHANGE_MAX {
        let percent = noise.frequency_change * 100.0;
        reasons.push(format!("the clock of a core changed by {percent:.0} %"));
    }
}

/// Whether a measurement would be undisturbed.
pub(super) fn is_quiet(noise: &Noise) -> bool {
    noise.steal <= STEAL_MAX && noise.foreign_cores <= FOREIGN_CORES_MAX
}

/// Returns reasons why the generator rather than the subject may have been the bottleneck.
pub(crate) fn generator_faults(evidence: &Evidence<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    weak_generator(evidence, &mut reasons);
    reasons
}

fn weak_generator(evidence: &Evidence<'_>, reasons: &mut Vec<String>) {
    // A log runs inside the generator, so there is no other process.
    if evidence.kind == Kind::Log {
        return;
    }
    let generator = busy(&evidence.report.threads, &evidence.load.cpus, evidence.report);
    let subject = busy(evidence.threads, evidence.cpus, evidence.report);
    let is_server_bound = subject >= SUBJECT_BUSY && is_closed(evidence.load);
    if generator > GENERATOR_BUSY_MAX && !is_server_bound {
        reasons.push(format!(
            "the generator used {:.0} % of its cores, the server {:.0} %",
            generator * 100.0,
            subject * 100.0
        ));
    }
    let latency_ns = match decode(&evidence.report.latency_corrected) {
        Ok(histogram) => histogram.value_at_quantile(0.99),
        Err(error) => return reasons.push(format!("latencies: {error}")),
    };
    let lag_ns = evidence.report.lag_ns_p99;
    let is_late = real_ns(lag_ns) > LAG_SHARE_MAX * real_ns(latency_ns);
    if lag_ns > LAG_NS_MIN && is_late && !is_server_bound {
        reasons.push(format!("requests left {:.2} ms late (p99)", real_ns(lag_ns) / 1e6));
    }
    if let Work::Socket(work) = &evidence.load.work {
        reasons.extend(little_fault(work, evidence.report));
    }
}

fn is_closed(load: &LoadSpec) -> bool {
    matches!(&load.work, Work::Socket(work) if work.arrival == Arrival::Closed)
}

/// Relative processor time: of the available cores, or of one core for the busiest thread if that
/// is more.
fn busy(threads: &[ThreadUse], cpus: &[usize], report: &LoadReport) -> f64 {
    let machine = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = if cpus.is_empty() { machine } else { cpus.len() };
    let duration = real_ns(report.duration_ns.max(1));
    let all: u64 = threads.iter().map(ThreadUse::cpu_ns).sum();
    let most = threads.iter().map(ThreadUse::cpu_ns).max().unwrap_or_default();
    (real_ns(all) / duration / real(cores)).max(real_ns(most) / duration)
}

/// For a closed loop of single requests: all users always have one in flight.
fn little_fault(work: &SocketWork, report: &LoadReport) -> Option<String> {
    if work.pipeline != 1 || work.arrival != Arrival::Closed {
        return None;
    }
    // Clients whose connection attempts the kernel retries are not included in any latency yet.
    let is_short = |http: &HttpWork| http.connection == HttpConnection::Close;
    if work.http.as_deref().is_some_and(is_short) {
        return None;
    }
    let users = if work.users == 0 { work.connections } else { work.users };
    let in_flight_count = match work.sharing {
        Sharing::Blocking => users.min(work.connections),
        Sharing::Multiplexed => users,
    };
    let latency = decode(&report.latency_raw).ok().filter(|found| !found.is_empty())?;
    let found = per_second(report) * latency.mean() / 1e9;
    let expected = real(in_flight_count);
    let is_broken = (found / expected - 1.0).abs() > LITTLE_ERROR_MAX;
    is_broken.then(|| {
        format!("rate x latency is {found:.1} requests in flight instead of {in_flight_count}")
    })
}

fn unsteady_rate(evidence: &Evidence<'_>, reasons: &mut Vec<String>) {
    let windows: Vec<f64> = evidence.report.windows.iter().map(|count| real_ns(*count)).collect();
    let half_width = mean_interval(&windows).half_width();
    if half_width > HALF_WIDTH_MAX {
        reasons.push(format!("the rate is only known to {:.1} %", half_width * 100.0));
    }
}

fn per_second(report: &LoadReport) -> f64 {
    real_ns(report.operations) / real_ns(report.duration_ns.max(1)) * 1e9
}

/// Exact below 2^53: 104 days.
#[allow(clippy::cast_precision_loss)]
fn real_ns(ns: u64) -> f64 {
    ns as f64
}

/// Distribution of the work over the subject's reactors (threads `r00`, `r01`, ...) or over the
/// workers of a web server (`w00`, `w01`, ...).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BusyReactors {
    /// Number of reactors that used more than 5 % of a core.
    pub busy: usize,
    pub count: usize,
    /// Minimum and maximum share of a core among the busy ones.
    pub low: f64,
    pub high: f64,
    /// Ratio over all reactors; 1 is perfect balance.
    pub max_over_mean: f64,
}

/// Returns the reactors of a row; all zero for a subject without.
pub fn busy_reactors(row: &Row) -> BusyReactors {
    let duration = real_ns(row.report.duration_ns.max(1));
    let reactors = row.threads.iter().filter(|thread| is_reactor(&thread.name));
    let used: Vec<f64> = reactors.map(|thread| real_ns(thread.cpu_ns()) / duration).collect();
    let busy: Vec<f64> = used.iter().copied().filter(|part| *part > THREAD_BUSY_MIN).collect();
    let low = busy.iter().copied().fold(f64::INFINITY, f64::min);
    BusyReactors {
        busy: busy.len(),
        count: used.len(),
        low: if busy.is_empty() { 0.0 } else { low },
        high: busy.iter().copied().fold(0.0, f64::max),
        max_over_mean: max_over_mean(&used),
    }
}

fn is_reactor(name: &str) -> bool {
    let digits = name.strip_prefix(['r', 'w']).unwrap_or_default();
    digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Latencies of a row from the due time of each request.
pub fn latencies_ns(row: &Row) -> Result<Histogram<u64>, HistogramError> {
    decode(&row.report.latency_corrected)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::definition::Definition;
    use crate::load::Schedule;
    use crate::stats::histogram::{empty, encode};

    /// Fifty connections at 100,000 per second: 0.5 ms each.
    struct Case {
        load: LoadSpec,
        report: LoadReport,
        threads: Vec<ThreadUse>,
        noise: Noise,
        kind: Kind,
    }

    fn thread(name: &str, busy: f64) -> ThreadUse {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let user_ns = (busy * 3e9) as u64;
        ThreadUse { name: name.into(), user_ns, ..ThreadUse::default() }
    }

    fn latencies(ns: u64) -> String {
        let mut histogram = empty();
        histogram.record_n(ns, 1_000).unwrap();
        encode(&histogram)
    }

    fn case() -> Case {
        let text = "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"myriad\"\n[load]\n\
                    connections = 50\ncpus = [1]\n";
        let mut definition = Definition::parse(text, Path::new("a.toml")).unwrap();
        Case {
            load: definition.cells.remove(0).load,
            report: LoadReport {
                duration_ns: 3_000_000_000,
                operations: 300_000,
                windows: vec![10_000; 30],
                latency_corrected: latencies(500_000),
                latency_raw: latencies(500_000),
                threads: vec![thread("generator", 0.6)],
                ..LoadReport::default()
            },
            threads: vec![thread("r00", 0.7), thread("r01", 0.01)],
            noise: Noise::default(),
            kind: Kind::Myriad,
        }
    }

    /// Checks the verdict and the beginnings of the reasons.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Case), verdict: Verdict, reasons: &[&str]) {
        let mut case = case();
        change(&mut case);
        let judgement = judge(&Evidence {
            kind: case.kind,
            load: &case.load,
            report: &case.report,
            threads: &case.threads,
            cpus: &[0],
            noise: &case.noise,
        });
        assert_eq!(judgement.reasons.len(), reasons.len(), "{:?}", judgement.reasons);
        for (found, expected) in judgement.reasons.iter().zip(reasons) {
            assert!(found.starts_with(expected), "{found}");
        }
        assert_eq!(judgement.verdict, verdict);
    }

    #[test]
    fn a_good_row_is_ok() {
        check(|_| (), Verdict::Ok, &[]);
    }

    #[test]
    fn lost_work_is_the_worst() {
        check(
            |case| {
                case.report.lost = 3;
                case.report.unsent = 301;
                case.report.broken_connections = 1;
                case.report.errors.insert("OOM".into(), 7);
                case.noise.steal = 0.5;
            },
            Verdict::Lossy,
            &[
                "3 requests without a reply",
                "301 requests found no free connection",
                "the server closed 1 connections",
                "7 requests failed: OOM",
                "the hypervisor took 50.0 % of the time",
            ],
        );
    }

    #[test]
    fn work_lost_beside_is_lost_too() {
        check(
            |case| {
                let report = LoadReport { lost: 3, ..case.report.clone() };
                case.report.side_loads.insert("writers".into(), report);
                let report = LoadReport { operations: 0, ..case.report.clone() };
                case.report.side_loads.insert("idlers".into(), report);
            },
            Verdict::Lossy,
            &["writers: 3 requests without a reply", "idlers: no operation was completed"],
        );
    }

    #[test]
    fn silence_is_a_stall() {
        check(
            |case| {
                case.report.windows[10..20].fill(0);
                case.report.windows[20..].fill(20_000);
            },
            Verdict::Stalled,
            &["no reply for 1000 ms", "the rate is only known to "],
        );
        check(
            |case| case.report.stalled_connections = 2,
            Verdict::Stalled,
            &["2 connections waited 5 s for a reply"],
        );
        check(
            |case| case.report.operations = 0,
            Verdict::Stalled,
            &[
                "no operation was completed",
                "rate x latency is 0.0 requests in flight instead of 50",
            ],
        );
    }

    /// One request per two seconds causes silence in between.
    #[test]
    fn a_slow_rate_is_no_stall() {
        let mut case = case();
        case.report.operations = 2;
        case.report.windows = vec![0; 30];
        case.report.windows[0] = 1;
        case.report.windows[20] = 1;
        let evidence = Evidence {
            kind: case.kind,
            load: &case.load,
            report: &case.report,
            threads: &case.threads,
            cpus: &[0],
            noise: &case.noise,
        };
        let mut reasons = Vec::new();
        stalls(&evidence, &mut reasons);
        assert_eq!(reasons, Vec::<String>::new());
    }

    #[test]
    fn others_on_the_machine_are_named() {
        check(
            |case| {
                case.noise.foreign_cores = 0.8;
                case.noise.foreign_name = "rustc".into();
            },
            Verdict::EnvChanged,
            &["other programs used 0.80 cores, rustc most of them"],
        );
        check(|case| case.noise.foreign_cores = 0.3, Verdict::Ok, &[]);
        check(
            |case| case.noise.frequency_change = 0.2,
            Verdict::EnvChanged,
            &["the clock of a core changed by 20 %"],
        );
    }

    #[test]
    fn a_weak_generator_is_seen() {
        check(
            |case| case.report.threads = vec![thread("a", 0.45), thread("b", 0.45)],
            Verdict::ClientBound,
            &["the generator used 90 % of its cores, the server 71 %"],
        );
        check(|case| case.report.lag_ns_p99 = 90_000, Verdict::Ok, &[]);
        check(
            |case| case.report.lag_ns_p99 = 110_000,
            Verdict::ClientBound,
            &["requests left 0.11 ms late (p99)"],
        );
    }

    #[test]
    fn a_server_at_its_end_is_the_limit() {
        check(
            |case| {
                case.report.threads = vec![thread("a", 0.9)];
                case.report.lag_ns_p99 = 110_000;
                case.threads = vec![thread("r00", 0.7), thread("log", 0.26)];
            },
            Verdict::Ok,
            &[],
        );
        check(
            |case| {
                case.report.lag_ns_p99 = 110_000;
                case.threads = vec![thread("r00", 0.96)];
                let Work::Socket(work) = &mut case.load.work else { panic!("sockets") };
                work.arrival = Arrival::Open { per_second: 1e5, schedule: Schedule::Even };
            },
            Verdict::ClientBound,
            &["requests left 0.11 ms late (p99)"],
        );
        check(
            |case| {
                case.report.threads = vec![thread("a", 0.9)];
                case.kind = Kind::Log;
            },
            Verdict::Ok,
            &[],
        );
    }

    #[test]
    fn little_knows_a_broken_client() {
        check(
            |case| case.report.latency_raw = latencies(100_000),
            Verdict::ClientBound,
            &["rate x latency is 10.0 requests in flight instead of 50"],
        );
        check(
            |case| {
                case.report.latency_raw = latencies(40_000);
                let Work::Socket(work) = &mut case.load.work else { panic!("sockets") };
                (work.connections, work.users) = (4, 64);
            },
            Verdict::Ok,
            &[],
        );
    }

    #[test]
    fn connections_that_begin_again_are_no_fault_of_the_client() {
        check(
            |case| {
                case.report.latency_raw = latencies(100_000);
                let Work::Socket(work) = &mut case.load.work else { panic!("sockets") };
                let http = HttpWork { connection: HttpConnection::Close, ..HttpWork::default() };
                work.http = Some(Box::new(http));
            },
            Verdict::Ok,
            &[],
        );
    }

    #[test]
    fn an_unsteady_rate_is_noise() {
        check(
            |case| {
                for (index, count) in case.report.windows.iter_mut().enumerate() {
                    *count = if index % 7 < 3 { 6_000 } else { 13_000 };
                }
            },
            Verdict::Noisy,
            &["the rate is only known to "],
        );
    }

    #[test]
    fn reactors_are_known_by_their_names() {
        for (name, expected) in
            [("r00", true), ("r123", true), ("w01", true), ("r0", false), ("redis", false)]
        {
            assert_eq!(is_reactor(name), expected, "{name}");
        }
    }
}
