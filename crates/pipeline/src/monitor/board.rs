//! The reports of all parts, aggregated by stage.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::meter::Reading;
use crate::status::{GeneratorStatus, Latency, PartState, Report, Status};

/// Seconds of history in the page's charts.
const SECONDS_KEPT: usize = 300;
/// Maximum number of running parts. Further ones are not counted, and a warning is logged.
const PARTS_MAX: usize = 1024;
/// Maximum number of ended parts shown; the counts of older ones remain in the totals.
const ENDED_MAX: usize = 64;

const STAGES: [&str; 3] = ["generator", "executor", "collector"];
const STATES: [&str; 4] = ["running", "finished", "failed", "disconnected"];

/// Counts since the monitor's start, including ended parts. They never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    /// Generated, executed, collected. Generated counts the assigned ids, and collected the
    /// distinct ids in the collector's ledger: a part that restarts and continues a run does not
    /// count them twice. An executor counts what it computes, including resent batches.
    pub(super) tasks: [u64; 3],
    pub(super) right: u64,
    pub(super) wrong: u64,
}

/// One second of the charts.
#[derive(Debug, Clone, Copy, Serialize)]
struct Second {
    /// Tasks per second of each stage.
    rates: [u64; 3],
    p50_ns: u64,
    p99_ns: u64,
    in_flight: u64,
    backlog: u64,
}

/// Counters that are summed over all parts.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// Busy, starved, blocked, by stage.
    times_ns: [[u64; 3]; 3],
    shed: u64,
    late_ticks: u64,
    resent: u64,
    lost: u64,
    duplicate: u64,
    stale: u64,
    damaged: u64,
}

impl Sums {
    fn add(&mut self, status: &Status) {
        let Reading { busy_ns, starved_ns, blocked_ns, .. } = *status.meter();
        let (stage, _) = status.key();
        for (sum, ns) in self.times_ns[stage].iter_mut().zip([busy_ns, starved_ns, blocked_ns]) {
            *sum = sum.saturating_add(ns);
        }
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        match status {
            Status::Generator(status) => {
                add(&mut self.shed, status.shed);
                add(&mut self.late_ticks, status.late_ticks);
                add(&mut self.resent, status.resent_frames);
                add(&mut self.lost, status.verdict.as_ref().map_or(0, |verdict| verdict.lost));
            }
            Status::Executor(_) => {}
            Status::Collector(status) => {
                add(&mut self.duplicate, status.account.duplicate);
                add(&mut self.stale, status.account.stale);
                add(&mut self.damaged, status.account.damaged_frames);
            }
        }
    }
}

/// Instance of the process, index of the stage, and name of the part.
type Key = (u64, usize, String);

/// Latest report of one part.
#[derive(Debug, Serialize)]
struct Part {
    #[serde(flatten)]
    state: PartState,
    #[serde(flatten)]
    status: Status,
    #[serde(skip)]
    connection: u64,
    /// Number of its tasks included in the totals.
    #[serde(skip)]
    counted: u64,
    /// Increases with each report: the order in which parts ended.
    #[serde(skip)]
    reported: u64,
}

impl Part {
    fn is_running(&self) -> bool {
        self.state == PartState::Running
    }

    /// Whether a newly reporting part continues the work of this one.
    fn is_continued_by(&self, status: &Status) -> bool {
        match (&self.status, status) {
            _ if self.is_running() => false,
            (Status::Generator(earlier), Status::Generator(later)) => {
                earlier.stream == later.stream && earlier.epoch < later.epoch
            }
            (Status::Collector(_), Status::Collector(later)) => later.recovered > 0,
            _ => false,
        }
    }
}

/// The latest report of every part.
#[derive(Debug, Default)]
pub(super) struct Board {
    parts: BTreeMap<Key, Part>,
    /// Counters of parts that are not shown any longer.
    past: Sums,
    totals: Totals,
    reports: u64,
    has_warned: bool,
    seconds: VecDeque<Second>,
    last: Totals,
    last_ns: u64,
}

impl Board {
    /// Adds a report. The counters of a part start at zero with its process, unless it continues
    /// the work of one that ended.
    pub(super) fn take(&mut self, connection: u64, instance: u64, report: Report) {
        let Report { state, status } = report;
        let (stage, name) = status.key();
        let key = (instance, stage, name);
        self.reports += 1;
        let (before, counted) = if let Some(part) = self.parts.get(&key) {
            (counts(&part.status), part.counted)
        } else {
            if self.parts.values().filter(|part| part.is_running()).count() >= PARTS_MAX {
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(
                        "more than {PARTS_MAX} parts are reporting; the others are not counted"
                    );
                }
                return;
            }
            (Totals::default(), self.replace_predecessor(&status))
        };
        let now = counts(&status);
        let tasks = now.tasks[stage];
        let total = &mut self.totals.tasks[stage];
        *total = total.saturating_add(tasks.saturating_sub(counted));
        let Totals { right, wrong, .. } = &mut self.totals;
        *right = right.saturating_add(now.right.saturating_sub(before.right));
        *wrong = wrong.saturating_add(now.wrong.saturating_sub(before.wrong));
        let (counted, reported) = (counted.max(tasks), self.reports);
        self.parts.insert(key, Part { state, status, connection, counted, reported });
        self.forget_oldest();
    }

    /// Removes the part that this one continues from the board, and returns its count.
    fn replace_predecessor(&mut self, status: &Status) -> u64 {
        let found = self.parts.iter().filter(|(_, part)| part.is_continued_by(status));
        let newest = found.max_by_key(|(_, part)| part.reported).map(|(key, _)| key.clone());
        newest.map_or(0, |key| self.forget(&key))
    }

    fn forget(&mut self, key: &Key) -> u64 {
        let Some(part) = self.parts.remove(key) else { return 0 };
        self.past.add(&part.status);
        part.counted
    }

    fn forget_oldest(&mut self) {
        let ended = self.parts.iter().filter(|(_, part)| !part.is_running());
        let mut ended: Vec<(u64, Key)> =
            ended.map(|(key, part)| (part.reported, key.clone())).collect();
        ended.sort_unstable();
        let excess = ended.len().saturating_sub(ENDED_MAX);
        for (_, key) in ended.into_iter().take(excess) {
            self.forget(&key);
        }
    }

    /// Handles the end of a connection. Its parts without a final report may reconnect.
    pub(super) fn disconnect(&mut self, connection: u64) {
        for part in self.parts.values_mut() {
            if part.connection == connection && part.is_running() {
                part.state = PartState::Disconnected;
            }
        }
        self.forget_oldest();
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    fn running(&self) -> impl Iterator<Item = &Status> {
        self.parts.values().filter(|part| part.is_running()).map(|part| &part.status)
    }

    fn running_generators(&self) -> impl Iterator<Item = &GeneratorStatus> {
        self.running().filter_map(as_generator)
    }

    /// Returns the number of assigned but uncollected tasks, according to the latest reports.
    pub(super) fn waiting(&self) -> u64 {
        let in_flight = self.running_generators().map(|status| status.in_flight);
        in_flight.fold(0, u64::saturating_add)
    }

    pub(super) fn end_second(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.last_ns).max(1);
        let mut rates = self.totals.tasks;
        for (rate, last) in rates.iter_mut().zip(self.last.tasks) {
            let tasks = u128::from(*rate - last) * 1_000_000_000;
            *rate = u64::try_from(tasks / u128::from(passed_ns)).unwrap_or(u64::MAX);
        }
        (self.last, self.last_ns) = (self.totals, now_ns);
        let mut second = Second { rates, p50_ns: 0, p99_ns: 0, in_flight: 0, backlog: 0 };
        for status in self.running_generators() {
            second.p50_ns = second.p50_ns.max(status.latency.p50_ns);
            second.p99_ns = second.p99_ns.max(status.latency.p99_ns);
            second.in_flight = second.in_flight.saturating_add(status.in_flight);
            second.backlog = second.backlog.saturating_add(status.backlog);
        }
        if self.seconds.len() == SECONDS_KEPT {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }

    /// Returns the whole state for the page. Ended parts come first, in the order of their reports.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Whole<'a> {
            totals: Totals,
            parts: Vec<&'a Part>,
            seconds: &'a VecDeque<Second>,
        }
        let mut parts: Vec<&Part> = self.parts.values().collect();
        parts.sort_by_key(|part| if part.is_running() { (1, 0) } else { (0, part.reported) });
        serde_json::to_string(&Whole { totals: self.totals, parts, seconds: &self.seconds })
    }

    /// Formats the metrics in Prometheus' text format, version 0.0.4.
    // Source: Prometheus documentation, "Exposition formats", Text-based format
    // Source: Prometheus documentation, "Metric and label naming": base units, seconds
    pub(super) fn prometheus(&self) -> String {
        let mut text = Text::default();
        text.head("tasks_total", "counter", "Tasks generated, executed, collected");
        for (stage, tasks) in STAGES.into_iter().zip(self.totals.tasks) {
            text.sample("tasks_total", &format!("stage=\"{stage}\""), tasks);
        }
        text.head("verified_total", "counter", "Results that were recomputed");
        text.sample("verified_total", "verdict=\"right\"", self.totals.right);
        text.sample("verified_total", "verdict=\"wrong\"", self.totals.wrong);
        text.head("parts", "gauge", "Parts by state; ended parts only while they are shown");
        for state in STATES {
            let count = self.parts.values().filter(|part| state_name(&part.state) == state).count();
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            text.sample("parts", &format!("state=\"{state}\""), count);
        }
        let mut sums = self.past;
        for part in self.parts.values() {
            sums.add(&part.status);
        }
        text.head("stage_time_seconds_total", "counter", "Time of a stage's threads");
        for (stage, times_ns) in STAGES.into_iter().zip(sums.times_ns) {
            for (state, ns) in ["busy", "starved", "blocked"].into_iter().zip(times_ns) {
                let labels = format!("stage=\"{stage}\",state=\"{state}\"");
                text.seconds("stage_time_seconds_total", &labels, ns);
            }
        }
        for (name, help, value) in [
            ("shed_tasks_total", "Tasks dropped by --overload shed", sums.shed),
            ("late_ticks_total", "Ticks processed with a later one", sums.late_ticks),
            ("resent_frames_total", "Batches that were resent", sums.resent),
            ("lost_tasks_total", "Tasks missing in the account at the end of a run", sums.lost),
            ("duplicate_tasks_total", "Duplicate tasks that were dropped", sums.duplicate),
            ("stale_tasks_total", "Tasks of an earlier epoch that were dropped", sums.stale),
            ("damaged_frames_total", "Damaged result frames", sums.damaged),
        ] {
            text.head(name, "counter", help);
            text.sample(name, "", value);
        }
        self.write_generators(&mut text);
        text.0
    }

    /// Writes the gauges of the running generators.
    fn write_generators(&self, text: &mut Text) {
        let sum = |of: fn(&GeneratorStatus) -> u64| {
            self.running_generators().map(of).fold(0, u64::saturating_add)
        };
        for (name, help, value) in [
            (
                "in_flight_tasks",
                "Tasks generated but not collected",
                sum(|status| status.in_flight),
            ),
            ("backlog_tasks", "Tasks due but not generated", sum(|status| status.backlog)),
            ("credits", "Batches that executors have requested", sum(|status| status.credits)),
        ] {
            text.head(name, "gauge", help);
            text.sample(name, "", value);
        }
        let Some(latency) = self.latency() else { return };
        text.head("latency_seconds", "gauge", "Time from due to acknowledged, since the start");
        for (percentile, ns) in [
            ("50", latency.p50_ns),
            ("90", latency.p90_ns),
            ("99", latency.p99_ns),
            ("99.9", latency.p999_ns),
            ("99.99", latency.p9999_ns),
        ] {
            text.seconds("latency_seconds", &format!("percentile=\"{percentile}\""), ns);
        }
    }

    /// Returns the latency of the generator that reported last.
    fn latency(&self) -> Option<Latency> {
        let parts = self.parts.values();
        let generators =
            parts.filter_map(|part| Some((part.reported, as_generator(&part.status)?)));
        generators.max_by_key(|(reported, _)| *reported).map(|(_, status)| status.latency)
    }
}

fn as_generator(status: &Status) -> Option<&GeneratorStatus> {
    match status {
        Status::Generator(status) => Some(status),
        Status::Executor(_) | Status::Collector(_) => None,
    }
}

fn state_name(state: &PartState) -> &'static str {
    let [running, finished, failed, disconnected] = STATES;
    match state {
        PartState::Running => running,
        PartState::Finished => finished,
        PartState::Failed { .. } => failed,
        PartState::Disconnected => disconnected,
    }
}

fn counts(status: &Status) -> Totals {
    let mut totals = Totals::default();
    match status {
        Status::Generator(status) => totals.tasks[0] = status.next_id,
        Status::Executor(status) => totals.tasks[1] = status.meter.tasks,
        Status::Collector(status) => {
            totals.tasks[2] = status.account.distinct;
            totals.right = status.account.verified_right;
            totals.wrong = status.account.verified_wrong;
        }
    }
    totals
}

#[derive(Debug, Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        write!(
            self.0,
            "# HELP myriad_pipeline_{name} {help}\n# TYPE myriad_pipeline_{name} {kind}\n"
        )
        .expect("writing to a String cannot fail");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.0, "myriad_pipeline_{name}{labels} {value}")
            .expect("writing to a String cannot fail");
    }

    fn seconds(&mut self, name: &str, labels: &str, ns: u64) {
        let time = Duration::from_nanos(ns);
        self.sample(name, labels, format_args!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::STATUS_BYTES_MAX;
    use crate::status::{CollectorStatus, ExecutorStatus, GeneratorStatus, Verdict};

    fn running(status: Status) -> Report {
        Report { state: PartState::Running, status }
    }

    fn finished(status: Status) -> Report {
        Report { state: PartState::Finished, status }
    }

    fn executor(name: &str, tasks: u64) -> Status {
        let meter = Reading { tasks, ..Reading::default() };
        Status::Executor(ExecutorStatus { name: name.into(), meter, ..Default::default() })
    }

    fn generator(stream: u64, epoch: u32, next_id: u64) -> Status {
        Status::Generator(GeneratorStatus { stream, epoch, next_id, ..Default::default() })
    }

    fn collector(recovered: u64, distinct: u64) -> Status {
        let mut status = CollectorStatus { recovered, ..Default::default() };
        status.account.distinct = distinct;
        Status::Collector(status)
    }

    #[test]
    fn ended_parts_stay_counted() {
        let mut board = Board::default();
        for (instance, name, tasks) in
            [(1, "a", 5), (1, "b", 7), (2, "a", 1), (1, "a", 9), (2, "a", 3)]
        {
            board.take(instance, instance, running(executor(name, tasks)));
        }
        assert_eq!(board.totals().tasks, [0, 19, 0]);
        board.disconnect(1);
        board.take(3, 3, running(executor("a", 2)));
        assert_eq!(board.totals().tasks, [0, 21, 0]);
        board.end_second(2_000_000_000);
        let json = board.json().unwrap();
        assert!(json.contains("\"rates\":[0,10,0]"), "{json}");
        assert_eq!(json.matches("\"state\":\"disconnected\"").count(), 2, "{json}");
    }

    /// A connection that is replaced carries the same counts.
    #[test]
    fn a_new_connection_counts_nothing_twice() {
        let mut board = Board::default();
        board.take(1, 7, running(generator(1, 1, 50)));
        board.disconnect(1);
        board.take(2, 7, running(generator(1, 1, 60)));
        assert_eq!(board.totals().tasks, [60, 0, 0]);
        assert!(board.parts.values().all(Part::is_running));
    }

    /// Killed and restarted processes continue a run; a second run starts a new one.
    #[test]
    fn a_continued_run_counts_nothing_twice() {
        let mut board = Board::default();
        board.take(1, 1, running(generator(1, 1, 50)));
        board.take(2, 2, running(collector(0, 40)));
        board.disconnect(1);
        board.disconnect(2);
        // The killed processes never reported their last second.
        board.take(3, 3, running(collector(45, 45)));
        board.take(4, 4, running(generator(1, 2, 45)));
        assert_eq!(board.totals().tasks, [50, 0, 45]);
        board.take(4, 4, finished(generator(1, 2, 100)));
        board.take(3, 3, finished(collector(45, 100)));
        assert_eq!(board.totals().tasks, [100, 0, 100]);
        board.take(5, 5, finished(generator(1, 1, 30)));
        board.take(6, 6, finished(collector(0, 30)));
        assert_eq!(board.totals().tasks, [130, 0, 130]);
    }

    #[test]
    fn few_ended_parts_are_shown_but_all_are_counted() {
        let mut board = Board::default();
        for instance in 0..500 {
            let mut status = GeneratorStatus { next_id: 10, shed: 1, ..Default::default() };
            status.verdict = Some(Verdict { lost: 2, ..Default::default() });
            board.take(instance, instance, finished(Status::Generator(status)));
        }
        assert_eq!(board.totals().tasks, [5_000, 0, 0]);
        assert_eq!(board.parts.len(), ENDED_MAX);
        let text = board.prometheus();
        assert!(text.contains("myriad_pipeline_shed_tasks_total 500\n"), "{text}");
        assert!(text.contains("myriad_pipeline_lost_tasks_total 1000\n"), "{text}");
        assert!(text.contains("myriad_pipeline_parts{state=\"finished\"} 64\n"), "{text}");
    }

    /// A hostile reporter can invent parts and send the longest statuses.
    #[test]
    fn parts_and_their_page_are_bounded() {
        let mut board = Board::default();
        let status = |instance: usize| executor(&format!("{instance:x>14000}"), 1);
        for instance in 0..PARTS_MAX + 10 {
            board.take(1, u64::try_from(instance).unwrap(), running(status(instance)));
        }
        assert_eq!(board.parts.len(), PARTS_MAX);
        assert!(board.json().unwrap().len() < PARTS_MAX * STATUS_BYTES_MAX);
        board.disconnect(1);
        assert_eq!(board.parts.len(), ENDED_MAX);
    }

    /// Source: promtool check metrics: counters end in `_total`, units are not abbreviated.
    #[test]
    fn metrics_are_in_prometheus_form() {
        let mut board = Board::default();
        let mut status = CollectorStatus::default();
        status.account.verified_right = 3;
        status.account.duplicate = 4;
        status.meter.busy_ns = 1_500_000_000;
        board.take(1, 1, running(Status::Collector(status)));
        board.take(1, 1, running(Status::Generator(GeneratorStatus::default())));
        let text = board.prometheus();
        for expected in [
            "myriad_pipeline_verified_total{verdict=\"right\"} 3\n",
            "myriad_pipeline_duplicate_tasks_total 4\n",
            "myriad_pipeline_stage_time_seconds_total{stage=\"collector\",state=\"busy\"} \
             1.500000000\n",
            "myriad_pipeline_latency_seconds{percentile=\"99.99\"} 0.000000000\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                let units = ["ns", "us", "ms", "s", "sec", "kb", "mb"];
                assert!(!name.split('_').any(|word| units.contains(&word)), "{line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(name.starts_with("myriad_pipeline_"), "{line}");
                assert!(!name.contains("quantile="), "only a summary has quantiles: {line}");
            }
        }
    }
}
