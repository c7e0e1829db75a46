//! What all parts have reported, added up by stage.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use serde::Serialize;

use crate::meter::Reading;
use crate::status::Status;

/// Seconds that the page's charts go back.
const SECONDS_KEPT: usize = 300;
/// Parts of all connections; more are not counted.
const PARTS_MAX: usize = 1024;

const STAGES: [&str; 3] = ["generator", "executor", "collector"];

/// Counts since the monitor's start, parts that have ended included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    /// Generated, executed, collected.
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

/// The newest status of every part, by connection, stage and name.
#[derive(Debug, Default)]
pub(super) struct Board {
    parts: BTreeMap<(u64, usize, String), Status>,
    totals: Totals,
    seconds: VecDeque<Second>,
    last: Totals,
    last_ns: u64,
}

impl Board {
    /// A status of a part. What a part counts starts at zero with the part.
    pub(super) fn take(&mut self, connection: u64, status: Status) {
        let (stage, name) = match &status {
            Status::Generator(_) => (0, String::new()),
            Status::Executor(status) => (1, status.name.clone()),
            Status::Collector(_) => (2, String::new()),
        };
        let key = (connection, stage, name);
        if !self.parts.contains_key(&key) && self.parts.len() >= PARTS_MAX {
            return;
        }
        let before = self.parts.get(&key).map(counts).unwrap_or_default();
        let now = counts(&status);
        for (total, (now, before)) in
            self.totals.tasks.iter_mut().zip(now.tasks.into_iter().zip(before.tasks))
        {
            *total = total.saturating_add(now.saturating_sub(before));
        }
        let Totals { right, wrong, .. } = &mut self.totals;
        *right = right.saturating_add(now.right.saturating_sub(before.right));
        *wrong = wrong.saturating_add(now.wrong.saturating_sub(before.wrong));
        self.parts.insert(key, status);
    }

    /// The connection ended; what it counted stays.
    pub(super) fn forget(&mut self, connection: u64) {
        self.parts.retain(|(of, _, _), _| *of != connection);
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Tasks that are given out and not collected, by the newest reports.
    pub(super) fn waiting(&self) -> u64 {
        let in_flight = self.parts.values().map(|status| match status {
            Status::Generator(status) => status.in_flight,
            Status::Executor(_) | Status::Collector(_) => 0,
        });
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
        for status in self.parts.values() {
            if let Status::Generator(status) = status {
                second.p50_ns = second.p50_ns.max(status.latency.p50_ns);
                second.p99_ns = second.p99_ns.max(status.latency.p99_ns);
                second.in_flight = second.in_flight.saturating_add(status.in_flight);
                second.backlog = second.backlog.saturating_add(status.backlog);
            }
        }
        if self.seconds.len() == SECONDS_KEPT {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }

    /// All of it, for the page.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Whole<'a> {
            totals: Totals,
            parts: Vec<&'a Status>,
            seconds: &'a VecDeque<Second>,
        }
        let parts = self.parts.values().collect();
        serde_json::to_string(&Whole { totals: self.totals, parts, seconds: &self.seconds })
    }

    /// Prometheus' text format, version 0.0.4.
    // Source: Prometheus documentation, "Exposition formats", Text-based format
    pub(super) fn prometheus(&self) -> String {
        let mut text = Text::default();
        text.head("tasks_total", "counter", "Tasks generated, executed, collected");
        for (stage, tasks) in STAGES.into_iter().zip(self.totals.tasks) {
            text.sample("tasks_total", &format!("stage=\"{stage}\""), tasks);
        }
        text.head("verified_total", "counter", "Results computed again");
        text.sample("verified_total", "verdict=\"right\"", self.totals.right);
        text.sample("verified_total", "verdict=\"wrong\"", self.totals.wrong);
        text.head("stage_time_ns_total", "counter", "Time of a stage's threads, now connected");
        for (stage, name) in STAGES.into_iter().enumerate() {
            let meter = self.meter(stage);
            for (state, ns) in [
                ("busy", meter.busy_ns),
                ("starved", meter.starved_ns),
                ("blocked", meter.blocked_ns),
            ] {
                let labels = format!("stage=\"{name}\",state=\"{state}\"");
                text.sample("stage_time_ns_total", &labels, ns);
            }
        }
        self.write_generator(&mut text);
        self.write_collector(&mut text);
        text.0
    }

    fn meter(&self, stage: usize) -> Reading {
        let mut sum = Reading::default();
        for ((_, of, _), status) in &self.parts {
            let meter = match status {
                Status::Generator(status) => &status.meter,
                Status::Executor(status) => &status.meter,
                Status::Collector(status) => &status.meter,
            };
            if *of == stage {
                sum.busy_ns += meter.busy_ns;
                sum.starved_ns += meter.starved_ns;
                sum.blocked_ns += meter.blocked_ns;
            }
        }
        sum
    }

    fn write_generator(&self, text: &mut Text) {
        let generators = self.parts.values().filter_map(|status| match status {
            Status::Generator(status) => Some(status),
            _ => None,
        });
        let Some(status) = generators.max_by_key(|status| status.generated) else { return };
        for (name, kind, help, value) in [
            ("in_flight_tasks", "gauge", "Generated and not collected", status.in_flight),
            ("backlog_tasks", "gauge", "Due and not generated", status.backlog),
            ("credits", "gauge", "Batches that executors have asked for", status.credits),
            ("shed_tasks_total", "counter", "Given up by --overload shed", status.shed),
            ("late_ticks_total", "counter", "Ticks served with a later one", status.late_ticks),
            ("resent_frames_total", "counter", "Batches sent again", status.resent_frames),
        ] {
            text.head(name, kind, help);
            text.sample(name, "", value);
        }
        text.head("latency_ns", "gauge", "From due to acknowledged, since the start");
        let latency = &status.latency;
        for (quantile, ns) in [
            ("0.5", latency.p50_ns),
            ("0.9", latency.p90_ns),
            ("0.99", latency.p99_ns),
            ("0.999", latency.p999_ns),
            ("0.9999", latency.p9999_ns),
        ] {
            text.sample("latency_ns", &format!("quantile=\"{quantile}\""), ns);
        }
    }

    fn write_collector(&self, text: &mut Text) {
        let mut dropped = [0; 3];
        for status in self.parts.values() {
            if let Status::Collector(status) = status {
                dropped[0] += status.account.duplicate;
                dropped[1] += status.account.stale;
                dropped[2] += status.account.damaged_frames;
            }
        }
        text.head("duplicate_tasks_total", "counter", "Came again and were dropped");
        text.sample("duplicate_tasks_total", "", dropped[0]);
        text.head("stale_tasks_total", "counter", "Of an earlier epoch, dropped");
        text.sample("stale_tasks_total", "", dropped[1]);
        text.head("damaged_frames_total", "counter", "Results that came damaged");
        text.sample("damaged_frames_total", "", dropped[2]);
    }
}

fn counts(status: &Status) -> Totals {
    let mut totals = Totals::default();
    match status {
        Status::Generator(status) => totals.tasks[0] = status.generated,
        Status::Executor(status) => totals.tasks[1] = status.meter.tasks,
        Status::Collector(status) => {
            totals.tasks[2] = status.meter.tasks;
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
        .expect("a string takes all");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.0, "myriad_pipeline_{name}{labels} {value}").expect("a string takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{CollectorStatus, ExecutorStatus, GeneratorStatus};

    fn executor(name: &str, tasks: u64) -> Status {
        let meter = Reading { tasks, ..Reading::default() };
        Status::Executor(ExecutorStatus { name: name.into(), meter, ..Default::default() })
    }

    #[test]
    fn parts_that_end_stay_counted() {
        let mut board = Board::default();
        for (connection, name, tasks) in
            [(1, "a", 5), (1, "b", 7), (2, "a", 1), (1, "a", 9), (2, "a", 3)]
        {
            board.take(connection, executor(name, tasks));
        }
        assert_eq!(board.totals().tasks, [0, 19, 0]);
        board.forget(1);
        board.take(3, executor("a", 2));
        assert_eq!(board.totals().tasks, [0, 21, 0]);
        board.end_second(2_000_000_000);
        assert!(board.json().unwrap().contains("\"rates\":[0,10,0]"));
    }

    #[test]
    fn metrics_are_in_prometheus_form() {
        let mut board = Board::default();
        let mut status = CollectorStatus::default();
        status.account.verified_right = 3;
        status.account.duplicate = 4;
        board.take(1, Status::Collector(status));
        board.take(1, Status::Generator(GeneratorStatus::default()));
        let text = board.prometheus();
        assert!(text.contains("myriad_pipeline_verified_total{verdict=\"right\"} 3\n"), "{text}");
        assert!(text.contains("myriad_pipeline_duplicate_tasks_total 4\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().is_ok() && name.starts_with("myriad_pipeline_"), "{line}");
        }
    }
}
