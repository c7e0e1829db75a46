//! Progress output of a run: one updated line on a terminal, JSON lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use base::causes::with_causes;
use base::messages;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;

use crate::cli::arguments::Arguments;
use crate::collector::percent;
use crate::meter::Reading;
use crate::monitor::Reporter;
use crate::status::{CollectorStatus, ExecutorStatus, GeneratorStatus, Latency, Status};

/// Displays the status of all parts of one process.
#[derive(Debug)]
pub(super) struct Console {
    reporter: Option<Reporter>,
    bar: Option<ProgressBar>,
    started: Instant,
    shown: Mutex<Shown>,
}

/// The latest status of each part, and the previous one, for rates.
#[derive(Debug, Default)]
struct Shown {
    generator: Option<(Instant, GeneratorStatus)>,
    collector: Option<(Instant, CollectorStatus)>,
    texts: [String; 3],
}

/// One line of JSON output.
#[derive(Debug, Serialize)]
struct Line<'a> {
    at_ms: u64,
    #[serde(flatten)]
    status: &'a Status,
}

impl Console {
    /// Shows a progress bar on a terminal if the total is known.
    pub(super) fn new(arguments: &Arguments) -> Self {
        let Arguments { json, duration, tasks, input, monitor, .. } = arguments;
        let is_terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let bar = (!*json && is_terminal).then(|| {
            let length = tasks.or(duration.map(|duration| duration.as_secs()));
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            let template = match length.or(input.as_ref().map(|_| 0)) {
                Some(_) => "{elapsed} {bar:20} {percent:>3}%  {msg}",
                None => "{elapsed} {spinner}  {msg}",
            };
            bar.set_style(
                ProgressStyle::with_template(template).expect("the templates are constants"),
            );
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let name = format!("process-{}", std::process::id());
        let reporter = monitor.map(|monitor| Reporter::start(monitor, name));
        Self { reporter, bar, started: Instant::now(), shown: Mutex::new(Shown::default()) }
    }

    /// Called once a second for each part.
    pub(super) fn show(&self, status: &Status, by_tasks: bool) {
        if let Some(reporter) = &self.reporter {
            reporter.send(status.clone());
        }
        let Some(bar) = &self.bar else {
            self.print_json(status);
            return;
        };
        let mut shown = self.shown.lock();
        match status {
            Status::Generator(status) => {
                shown.texts[0] = shown.generator_text(status);
                let is_counted = by_tasks || status.expected.is_some();
                let position =
                    if is_counted { status.collected } else { self.started.elapsed().as_secs() };
                if let Some(expected) = status.expected {
                    bar.set_length(expected.max(1));
                }
                bar.set_position(position);
            }
            Status::Executor(status) => shown.texts[1] = executor_text(status),
            Status::Collector(status) => shown.texts[2] = shown.collector_text(status),
        }
        let parts: Vec<&str> =
            shown.texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        bar.set_message(parts.join(" | "));
    }

    /// If the reader closes its end or does not read, lines are lost but the run continues.
    fn print_json(&self, status: &Status) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = serde_json::to_string(&Line { at_ms, status });
        match (line, messages::standard_output()) {
            (Ok(line), Ok(out)) => drop(out.put(format!("{line}\n").as_bytes())),
            (Err(error), _) => tracing::warn!(%error, "could not write status"),
            (_, Err(error)) => tracing::warn!(%error, "could not start the thread of the output"),
        }
    }

    /// Removes the progress line, prints the final status of each part in line mode, and sends the
    /// final statuses, or the reason of a failure, to the monitor.
    pub(super) fn end(&self, last: Result<Vec<Status>, &anyhow::Error>) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        } else {
            for status in last.iter().flatten() {
                self.print_json(status);
            }
            messages::flush_all();
        }
        if let Some(reporter) = &self.reporter {
            reporter.finish(last.map_err(|error| with_causes(&**error)));
        }
    }
}

impl Shown {
    fn generator_text(&mut self, status: &GeneratorStatus) -> String {
        let now = Instant::now();
        let last = self.generator.replace((now, status.clone()));
        let rate = last.map_or(0, |(at, last)| rate(status.generated - last.generated, now - at));
        let late = match status.backlog {
            0 => String::new(),
            backlog => format!(", {} wait", short(backlog)),
        };
        let left = left_text(status, rate);
        format!(
            "{}/s{left}, {} in flight{late}, p99 {}",
            short(rate),
            short(status.in_flight),
            milliseconds(status.latency.p99_ns)
        )
    }

    fn collector_text(&mut self, status: &CollectorStatus) -> String {
        let now = Instant::now();
        let last = self.collector.replace((now, status.clone()));
        let account = &status.account;
        let rate =
            last.map_or(0, |(at, last)| rate(account.collected - last.account.collected, now - at));
        let collected = format!("collected {} ({}/s)", short(account.collected), short(rate));
        let checked = account.verified_right.saturating_add(account.verified_wrong);
        if checked == 0 {
            return format!("{collected}, {} failed", short(account.failed));
        }
        format!("{collected}, accuracy {}%", percent(account.verified_right, checked))
    }
}

/// Returns the number of lines of the input, and the time for the remaining ones.
fn left_text(status: &GeneratorStatus, rate: u64) -> String {
    let Some(expected) = status.expected else { return String::new() };
    let left = expected.saturating_sub(status.next_id - status.in_flight);
    let time = match left.checked_div(rate) {
        Some(seconds) => {
            format!(", {} left", humantime::format_duration(Duration::from_secs(seconds)))
        }
        None => String::new(),
    };
    format!(" of {}{time}", short(expected))
}

fn executor_text(status: &ExecutorStatus) -> String {
    let [busy, starved, blocked] = status.meter.shares();
    format!("executor {busy}% busy {starved}% starved {blocked}% blocked")
}

fn rate(count: u64, time: Duration) -> u64 {
    let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000_000) / time_us
}

/// Formats a number as `12.3 M`: four characters and a unit.
pub(super) fn short(number: u64) -> String {
    let (unit, divisor) = match number {
        0..10_000 => return number.to_string(),
        10_000..1_000_000 => ("k", 100),
        1_000_000..1_000_000_000 => ("M", 100_000),
        _ => ("G", 100_000_000),
    };
    let tenths = number / divisor;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:02} ms", ns / 1_000_000, ns % 1_000_000 / 10_000)
}

/// Formats the percentiles in one line.
pub(super) fn latency_text(latency: &Latency) -> String {
    [
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p99", latency.p99_ns),
        ("p99.9", latency.p999_ns),
        ("p99.99", latency.p9999_ns),
        ("max", latency.max_ns),
    ]
    .map(|(name, ns)| format!("{name} {}", milliseconds(ns)))
    .join(", ")
}

/// Formats how a stage's threads spent their time.
pub(super) fn shares_text(name: &str, meter: &Reading) -> String {
    let [busy, starved, blocked] = meter.shares();
    format!("{name} {busy}% busy, {starved}% starved, {blocked}% blocked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_estimated() {
        let mut status = GeneratorStatus { next_id: 150, in_flight: 50, ..Default::default() };
        assert_eq!(left_text(&status, 10), "");
        status.expected = Some(1_000);
        assert_eq!(left_text(&status, 10), " of 1000, 1m 30s left");
        assert_eq!(left_text(&status, 0), " of 1000");
    }

    #[test]
    fn numbers_are_short() {
        for (number, expected) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0 k"),
            (999_999, "999.9 k"),
            (12_345_678, "12.3 M"),
            (5_000_000_000, "5.0 G"),
        ] {
            assert_eq!(short(number), expected);
        }
        assert_eq!(milliseconds(1_234_567), "1.23 ms");
        assert_eq!(rate(500, Duration::from_millis(250)), 2_000);
    }

    #[test]
    fn lines_name_their_stage() {
        let status = Status::Generator(GeneratorStatus { generated: 5, ..Default::default() });
        let line = serde_json::to_string(&Line { at_ms: 7, status: &status }).unwrap();
        assert!(
            line.starts_with(r#"{"at_ms":7,"stage":"generator","stream":0,"epoch":0"#),
            "{line}"
        );
    }
}
