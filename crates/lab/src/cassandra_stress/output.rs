//! Output in the format of cassandra-stress 5.0.
#![allow(clippy::cast_precision_loss, reason = "counts and times of a run are far below 2^53")]

use std::fmt::Write as _;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::options::{Options, Rate};
use crate::load::LoadReport;
use crate::stats::histogram::decode;

/// Garbage collection statistics, which are unknown for all servers.
const GC: &str = "\
Total GC count            : 0
Total GC memory           : 0 B
Total GC time             :    0.0 seconds
Avg GC time               :    NaN ms
StdDev GC time            :    0.0 ms
";

/// Columns of the interval lines.
pub(crate) const HEAD: &str = "\
type                                               total ops,    op/s,    pk/s,   row/s,    mean,     \
med,     .95,     .99,    .999,     max,   time,   stderr, errors,  gc: #,  max ms,  sum ms,  sdv \
ms,      mb
";

/// Formats the settings, as far as they can differ here.
pub(crate) fn settings(options: &Options) -> String {
    let rate = match options.rate {
        Rate::Unlimited => "UNLIMITED".to_owned(),
        Rate::Throttle(per_second) => format!("throttle {per_second:.0}/s"),
        Rate::Fixed(per_second) => format!("fixed {per_second:.0}/s"),
    };
    let length = match (options.count, options.duration_s) {
        (Some(count), _) => format!("  Count: {}\n", grouped(count as f64).trim_start()),
        (None, seconds) => format!("  Duration: {} SECONDS\n", seconds.unwrap_or_default()),
    };
    format!(
        "******************** Stress Settings ********************\n\
         Command:\n  Type: {}\n{length}  No Warmup: {}\n  Consistency Level: {}\n\
         Rate:\n  Thread Count: {}\n  OpsPer Sec: {rate}\n\
         Population:\n  Keys: 1..{}, {:?}\n\
         Columns:\n  Count: {}\n  Size: {:?}\n\
         Mode:\n  API: JAVA_DRIVER_NATIVE\n  CQL Version: CQL3\n  CQL Protocol Version: V4\n\
         Schema:\n  Keyspace: {}\n\
         Port:\n  Native Port: {}\nNode:\n  Nodes: [{}]\n\n",
        options.kind.name().to_ascii_lowercase(),
        !options.is_warmed_up,
        options.consistency,
        options.threads,
        options.keys_count,
        options.distribution,
        options.columns,
        options.column_bytes,
        options.keyspace,
        options.port,
        options.node,
    )
}

pub(crate) fn running(options: &Options) -> String {
    let length = match (options.count, options.duration_s) {
        (Some(count), _) => format!("for {count} iteration"),
        (None, seconds) => format!("{} seconds", seconds.unwrap_or_default()),
    };
    format!("Running {} with {} threads {length}\n", options.kind.name(), options.threads)
}

/// The interval lines of a running load.
#[derive(Debug)]
pub(crate) struct Interval {
    seconds: u64,
    count: u64,
    total: u64,
    /// Sums of the rates, and of their squares.
    sum: f64,
    squares: f64,
}

impl Interval {
    pub(crate) fn new(seconds: u64) -> Interval {
        Interval { seconds, count: 0, total: 0, sum: 0.0, squares: 0.0 }
    }

    /// Returns the relative standard error of the mean rate.
    fn uncertainty(&self) -> f64 {
        let count = self.count as f64;
        let mean = self.sum / count;
        (self.squares / count - mean * mean).max(0.0).sqrt() / count.sqrt() / mean
    }

    /// Formats a line. Latencies are known only for the whole run.
    pub(crate) fn line(&mut self, operations: u64) -> String {
        let rate = operations as f64 / self.seconds as f64;
        self.count += 1;
        self.total += operations;
        self.sum += rate;
        self.squares += rate * rate;
        let (total, seconds) = (self.total, (self.count * self.seconds) as f64);
        let stderr = self.uncertainty();
        let unknown = format!("{:>8},", "NaN").repeat(6);
        format!(
            "{:<50}{total:>10},{rate:>8.0},{rate:>8.0},{rate:>8.0},{unknown}{seconds:>7.1},\
             {stderr:>9.5},{:>7},{:>7},{:>8},{:>8},{:>8},{:>8}\n",
            "total,", 0, 0, 0, 0, 0, 0
        )
    }
}

/// The final output.
#[derive(Debug)]
pub(crate) struct Summary {
    /// Name of the operation; `None` for a mix, whose parts are not reported separately.
    name: Option<&'static str>,
    operations: u64,
    duration_ns: u64,
    errors: u64,
    latency: Histogram<u64>,
}

impl Summary {
    pub(crate) fn of(options: &Options, report: &LoadReport) -> Result<Summary> {
        let latency = match options.rate {
            Rate::Fixed(_) => &report.latency_corrected,
            Rate::Unlimited | Rate::Throttle(_) => &report.latency_raw,
        };
        let errors: u64 = report.errors.values().sum();
        // The tool treats a read without a row as an error.
        let errors = errors + report.rows_missing + report.lost;
        let is_mix = matches!(options.kind, super::Kind::Mixed { .. });
        Ok(Summary {
            name: (!is_mix).then_some(options.kind.name()),
            operations: report.operations,
            duration_ns: report.duration_ns,
            errors,
            latency: decode(latency)?,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from("\n\nResults:\n");
        self.append(&mut text).expect("writing to a String cannot fail");
        text
    }

    fn append(&self, text: &mut String) -> std::fmt::Result {
        let rate = self.operations as f64 * 1e9 / self.duration_ns.max(1) as f64;
        for (head, unit) in
            [("Op rate", "op/s "), ("Partition rate", "pk/s "), ("Row rate", "row/s")]
        {
            let of = self.bracket(&format!("{} {}", grouped(rate).trim_start(), unit.trim_end()));
            writeln!(text, "{head:<26}: {} {unit} {of}", grouped(rate))?;
        }
        let at = |quantile| self.latency.value_at_quantile(quantile) as f64;
        for (head, ns) in [
            ("Latency mean", self.latency.mean()),
            ("Latency median", at(0.5)),
            ("Latency 95th percentile", at(0.95)),
            ("Latency 99th percentile", at(0.99)),
            ("Latency 99.9th percentile", at(0.999)),
            ("Latency max", self.latency.max() as f64),
        ] {
            let ms = ns / 1e6;
            writeln!(text, "{head:<26}: {ms:>6.1} ms {}", self.bracket(&format!("{ms:.1} ms")))?;
        }
        for (head, count) in [("Total partitions", self.operations), ("Total errors", self.errors)]
        {
            let shown = grouped(count as f64);
            let of = self.bracket(shown.trim_start());
            writeln!(text, "{head:<26}: {:>10} {of}", shown.trim_start())?;
        }
        text.push_str(GC);
        let seconds = self.duration_ns / 1_000_000_000;
        let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        writeln!(text, "Total operation time      : {hours:02}:{minutes:02}:{seconds:02}\n\nEND")
    }

    /// Formats `[WRITE: ...]`.
    fn bracket(&self, shown: &str) -> String {
        self.name.map_or(String::new(), |name| format!("[{name}: {shown}]"))
    }
}

/// Formats a number with commas, at least 8 wide.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    format!("{shown:>8}")
}

#[cfg(test)]
mod tests {
    use super::super::options::parse;
    use super::*;
    use crate::stats::histogram::{empty, encode};

    fn options(words: &str) -> Options {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        parse(&words).unwrap().unwrap()
    }

    /// The output of cassandra-stress for such a run, according to its format strings.
    #[test]
    fn the_summary_is_the_tools() {
        let mut latency = empty();
        latency.record_n(4_400_000, 999_000).unwrap();
        latency.record_n(205_000_000, 1_000).unwrap();
        let report = LoadReport {
            operations: 1_000_000,
            duration_ns: 36_863_000_000,
            rows_missing: 3,
            latency_raw: encode(&latency),
            ..LoadReport::default()
        };
        let text = Summary::of(&options("write n=1000000"), &report).unwrap().text();
        let expected = "\n\nResults:
Op rate                   :   27,127 op/s  [WRITE: 27,127 op/s]
Partition rate            :   27,127 pk/s  [WRITE: 27,127 pk/s]
Row rate                  :   27,127 row/s [WRITE: 27,127 row/s]
Latency mean              :    4.6 ms [WRITE: 4.6 ms]
Latency median            :    4.4 ms [WRITE: 4.4 ms]
Latency 95th percentile   :    4.4 ms [WRITE: 4.4 ms]
Latency 99th percentile   :    4.4 ms [WRITE: 4.4 ms]
Latency 99.9th percentile :    4.4 ms [WRITE: 4.4 ms]
Latency max               :  205.1 ms [WRITE: 205.1 ms]
Total partitions          :  1,000,000 [WRITE: 1,000,000]
Total errors              :          3 [WRITE: 3]
Total GC count            : 0
Total GC memory           : 0 B
Total GC time             :    0.0 seconds
Avg GC time               :    NaN ms
StdDev GC time            :    0.0 ms
Total operation time      : 00:00:36

END
";
        assert_eq!(text, expected);
        let mixed = Summary::of(&options("mixed n=10"), &report).unwrap().text();
        assert!(mixed.contains("Op rate                   :   27,127 op/s  \n"), "{mixed}");
    }

    #[test]
    fn lines_stand_below_their_heads() {
        let mut interval = Interval::new(1);
        let first = interval.line(20_393);
        assert!(first.starts_with("total,"));
        assert!(first.contains("     20393,   20393,   20393,   20393,     NaN,"), "{first}");
        let second = interval.line(30_000);
        assert!(second.contains("     50393,   30000,"), "{second}");
        assert!(second.contains("    2.0,  0.13480,"), "{second}");
        // The tool pads the head of the first column to the position of its numbers.
        assert_eq!(HEAD.len(), first.len());
    }

    #[test]
    fn settings_show_the_requested_load() {
        let text = settings(&options("read duration=2m cl=local_quorum -rate threads=7 fixed=9/s"));
        for part in
            ["Type: read", "Duration: 120 SECONDS", "Level: LOCAL_QUORUM", "Count: 7", "fixed 9/s"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(
            running(&options("read n=5")),
            "Running READ with 200 threads for 5 iteration\n"
        );
    }
}
