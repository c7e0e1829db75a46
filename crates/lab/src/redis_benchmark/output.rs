//! Output, line by line as in redis-benchmark 7.0.
#![allow(clippy::cast_precision_loss, reason = "output has few digits")]

use std::fmt::Write;

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::stats::histogram::decode;

pub(crate) const CSV_HEADER: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n";
/// The original's histogram: microseconds from 10 to three seconds, three digits.
const LATENCY_US_MIN: u64 = 10;
const LATENCY_US_MAX: u64 = 3_000_000;
const DIGITS: u8 = 3;
/// Steps of the cumulative distribution, and the start of the wide ones.
const STEP_US: u64 = 100;
const STEP_WIDE_US: u64 = 1000;
const WIDE_FROM_US: u64 = 2000;
/// Clears the progress line.
const CLEAN_LINE: &str =
    "\r                                                                                \r";

/// Two settings of the server.
#[derive(Debug, Clone)]
pub(crate) struct ServerConfig {
    pub(crate) save: String,
    pub(crate) appendonly: String,
}

/// Results of one test.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) title: &'a str,
    pub(crate) requests: u64,
    pub(crate) duration_ns: u64,
    pub(crate) clients: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) config: Option<&'a ServerConfig>,
    pub(crate) threads: Option<usize>,
    pub(crate) latency: Histogram<u64>,
}

/// Intermediate results of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// In the last window, and in total.
    pub(crate) operations: u64,
    pub(crate) requests: u64,
    pub(crate) windows: u64,
    pub(crate) in_flight: u64,
}

/// Converts a histogram of nanoseconds to microseconds, rounded down.
pub(crate) fn microseconds(text: &str) -> Result<Histogram<u64>> {
    let mut latency = Histogram::new_with_bounds(LATENCY_US_MIN, LATENCY_US_MAX, DIGITS)?;
    for value in decode(text)?.iter_recorded() {
        let us = (value.value_iterated_to() / 1000).min(LATENCY_US_MAX);
        latency.record_n(us, value.count_at_value())?;
    }
    Ok(latency)
}

impl Progress {
    /// Latencies follow from Little's law: the number of requests in flight is constant.
    pub(crate) fn line(self, title: &str) -> String {
        let window_s = super::PROGRESS_MS as f64 / 1e3;
        let now = self.operations as f64 / window_s;
        let overall = self.requests as f64 / (window_s * self.windows as f64);
        let latency_ms =
            |rate: f64| if rate > 0.0 { self.in_flight as f64 / rate * 1e3 } else { 0.0 };
        format!(
            "{CLEAN_LINE}{title}: rps={now:.1} (overall: {overall:.1}) avg_msec={:.3} (overall: {:.3})\r",
            latency_ms(now),
            latency_ms(overall)
        )
    }
}

impl Facts<'_> {
    pub(crate) fn csv(&self) -> String {
        let [avg, min, p50, p95, p99, max] = self.summary();
        format!(
            "\"{}\",\"{:.2}\",\"{avg:.3}\",\"{min:.3}\",\"{p50:.3}\",\"{p95:.3}\",\"{p99:.3}\",\
             \"{max:.3}\"\n",
            self.title,
            self.per_second()
        )
    }

    pub(crate) fn quiet(&self) -> String {
        let p50 = self.summary()[2];
        let rate = self.per_second();
        format!("{CLEAN_LINE}{}: {rate:.2} requests per second, p50={p50:.3} msec\n", self.title)
    }

    pub(crate) fn full(&self) -> String {
        let mut text = CLEAN_LINE.to_owned();
        self.append_full(&mut text).expect("writing to a String cannot fail");
        text
    }

    fn append_full(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "====== {} ======", self.title)?;
        let seconds = (self.duration_ns / 1_000_000) as f64 / 1e3;
        writeln!(text, "  {} requests completed in {seconds:.2} seconds", self.requests)?;
        writeln!(text, "  {} parallel clients", self.clients)?;
        writeln!(text, "  {} bytes payload", self.payload_bytes)?;
        writeln!(text, "  keep alive: 1")?;
        if let Some(config) = self.config {
            writeln!(text, "  host configuration \"save\": {}", config.save)?;
            writeln!(text, "  host configuration \"appendonly\": {}", config.appendonly)?;
        }
        writeln!(text, "  multi-thread: {}", if self.threads.is_some() { "yes" } else { "no" })?;
        if let Some(threads) = self.threads {
            writeln!(text, "  threads: {threads}")?;
        }
        writeln!(text, "\nLatency by percentile distribution:")?;
        append_lines(text, &percentiles(&self.latency), self.latency.len())?;
        writeln!(text, "\nCumulative distribution of latencies:")?;
        append_lines(text, &cumulative(&self.latency), self.latency.len())?;
        writeln!(text, "\nSummary:")?;
        writeln!(text, "  throughput summary: {:.2} requests per second", self.per_second())?;
        writeln!(text, "  latency summary (msec):")?;
        for name in ["avg", "min", "p50", "p95", "p99", "max"] {
            let indent = if name == "avg" { "    " } else { " " };
            write!(text, "{indent}{name:>9}")?;
        }
        writeln!(text)?;
        for (position, value) in self.summary().iter().enumerate() {
            let indent = if position == 0 { "    " } else { " " };
            write!(text, "{indent}{value:>9.3}")?;
        }
        writeln!(text)
    }

    /// Average, minimum, 50 %, 95 %, 99 % and maximum latency in milliseconds.
    fn summary(&self) -> [f64; 6] {
        let latency = &self.latency;
        let at = |quantile| ms(latency.value_at_quantile(quantile));
        let mean_ms = latency.mean() / 1e3;
        [mean_ms, ms(latency.min()), at(0.5), at(0.95), at(0.99), ms(latency.max())]
    }

    /// Based on milliseconds, as in the original.
    fn per_second(&self) -> f64 {
        let duration_ms = (self.duration_ns / 1_000_000).max(1);
        self.requests as f64 * 1e3 / duration_ms as f64
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

/// `percent` of the requests, `count`, took at most `us`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    percent: f64,
    us: u64,
    count: u64,
}

/// Appends lines without repeated values.
fn append_lines(text: &mut String, lines: &[Line], total: u64) -> std::fmt::Result {
    let mut before = None;
    for line in lines {
        if before != Some(line.count) || line.count == total {
            let (percent, ms, count) = (line.percent, ms(line.us), line.count);
            writeln!(text, "{percent:.3}% <= {ms:.3} milliseconds (cumulative count {count})")?;
        }
        before = Some(line.count);
    }
    Ok(())
}

/// At 0 %, and then halfway to 100 % at each step, while values differ.
fn percentiles(latency: &Histogram<u64>) -> Vec<Line> {
    let total = latency.len();
    let (mut lines, mut count, mut percent) = (Vec::new(), 0, 0.0);
    for value in latency.iter_recorded() {
        count += value.count_at_value();
        let us = latency.highest_equivalent(value.value_iterated_to());
        while percent <= 100.0 * count as f64 / total as f64 {
            lines.push(Line { percent, us, count });
            percent += (100.0 - percent) / 2.0;
            if count == total {
                // The value that covers all requests is the last.
                lines.push(Line { percent: 100.0, us, count });
                return lines;
            }
        }
    }
    lines
}

/// Every tenth of a millisecond, from 2 milliseconds on every whole one.
fn cumulative(latency: &Histogram<u64>) -> Vec<Line> {
    let total = latency.len();
    let (mut lines, mut count, mut next_us) = (Vec::new(), 0, 0);
    let (mut level_us, mut step_us) = (STEP_US, STEP_US);
    while count < total || next_us > latency.lowest_equivalent(level_us) {
        let us = latency.highest_equivalent(level_us);
        count = latency.count_between(0, us);
        next_us = us + 1;
        lines.push(Line { percent: 100.0 * count as f64 / total as f64, us, count });
        level_us += step_us;
        if us > WIDE_FROM_US {
            step_us = STEP_WIDE_US;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::histogram::{empty, encode};

    /// Output of redis-benchmark 7.0.15 for 20,000 requests of 10 clients.
    const CAPTURED: &str = include_str!("../../tests/fixtures/redis-benchmark-7.0.15.txt");

    /// Reconstructs latencies from captured lines: all values between two lines are set to the
    /// later one.
    fn latencies(captured: &str) -> Histogram<u64> {
        let mut points: Vec<(u64, u64)> = captured
            .lines()
            .filter_map(|line| {
                let (_, rest) = line.split_once("% <= ")?;
                let (ms, count) = rest.split_once(" milliseconds (cumulative count ")?;
                let us = ms.replace('.', "").parse().unwrap();
                Some((us, count.trim_end_matches(')').parse().unwrap()))
            })
            .collect();
        points.sort_unstable();
        let mut latency =
            Histogram::new_with_bounds(LATENCY_US_MIN, LATENCY_US_MAX, DIGITS).unwrap();
        let mut before = 0;
        for (us, count) in points {
            // Recording a value with a count of zero would still change the maximum.
            if count > before {
                latency.record_n(us, count - before).unwrap();
            }
            before = count;
        }
        latency
    }

    fn facts(latency: Histogram<u64>, config: &ServerConfig) -> Facts<'_> {
        Facts {
            title: "LPUSH",
            requests: 20_000,
            duration_ns: 547_900_000,
            clients: 10,
            payload_bytes: 3,
            config: Some(config),
            threads: None,
            latency,
        }
    }

    fn config() -> ServerConfig {
        ServerConfig { save: String::new(), appendonly: "no".to_owned() }
    }

    /// The average and two percentiles of the last line do not follow from the other lines.
    #[test]
    fn the_full_report_is_the_original_line_by_line() {
        let config = config();
        let text = facts(latencies(CAPTURED), &config).full();
        let text = text.strip_prefix(CLEAN_LINE).unwrap();
        let (lines, captured): (Vec<&str>, Vec<&str>) =
            (text.lines().collect(), CAPTURED.lines().collect());
        assert_eq!(lines.len(), captured.len());
        let last = lines.len() - 1;
        assert_eq!(lines[..last], captured[..last]);
        let columns =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let (ours, theirs) = (columns(lines[last]), columns(captured[last]));
        assert_eq!((&ours[1], &ours[2], &ours[5]), (&theirs[1], &theirs[2], &theirs[5]));
        assert_eq!(lines[last].len(), captured[last].len());
    }

    fn simple() -> Histogram<u64> {
        let mut ns = empty();
        ns.record_n(24_900, 50).unwrap();
        ns.record_n(100_000, 49).unwrap();
        ns.record_n(4_000_000_000, 1).unwrap();
        microseconds(&encode(&ns)).unwrap()
    }

    #[test]
    fn the_short_forms_are_the_originals() {
        let config = config();
        let facts = Facts { requests: 100, ..facts(simple(), &config) };
        assert_eq!(
            facts.quiet().strip_prefix(CLEAN_LINE).unwrap(),
            "LPUSH: 182.82 requests per second, p50=0.031 msec\n"
        );
        let csv = facts.csv();
        let columns: Vec<&str> = csv.trim_end().split(',').collect();
        assert_eq!(columns.len(), CSV_HEADER.split(',').count());
        assert_eq!(columns[..2], ["\"LPUSH\"", "\"182.82\""]);
        assert_eq!(columns[3..7], ["\"0.024\"", "\"0.031\"", "\"0.103\"", "\"0.103\""]);
        // Recorded as three seconds.
        assert_eq!(columns[7], "\"3000.319\"");
    }

    #[test]
    fn a_walk_ends_with_all() {
        let lines = percentiles(&simple());
        let counts: Vec<u64> = lines.iter().map(|line| line.count).collect();
        assert_eq!(counts, [50, 50, 99, 99, 99, 99, 99, 100, 100]);
        assert!((lines[8].percent - 100.0).abs() < f64::EPSILON);
        let lines = cumulative(&simple());
        assert_eq!((lines[0].us, lines[0].count), (103, 99));
        assert_eq!(lines.last().unwrap().count, 100);
    }

    #[test]
    fn progress_keeps_to_its_line() {
        let progress = Progress { operations: 250, requests: 1000, windows: 2, in_flight: 10 };
        assert_eq!(
            progress.line("GET").strip_prefix(CLEAN_LINE).unwrap(),
            "GET: rps=1000.0 (overall: 2000.0) avg_msec=10.000 (overall: 5.000)\r"
        );
    }
}
