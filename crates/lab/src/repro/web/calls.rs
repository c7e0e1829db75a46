//! Cost of the serial server's system calls below and above the number of clients that its queue
//! can hold: counted by strace, as in the source, and for comparison the kernel's accounting
//! without tracing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::clients::{Clients, Manner, Plan};
use super::host::{Host, signal};
use super::{Bench, per_second, real};
use crate::measure::threads::{threads, uses_between};
use crate::repro::finding::{Finding, FindingRow, Number, median};

const TRACER: &str = "strace";
/// Concurrent clients: within and above the capacity of the queue.
const CLIENTS: [usize; 2] = [5, 10];
const BACKLOG: &str = "5";
/// The source's name, the system call here, and its microseconds at 5 and at 10.
const CALLS: [(&str, &str, &str); 4] = [
    ("writev", "sendto", "86, 106"),
    ("close", "close", "71, 92"),
    ("accept", "accept4", "33, 38"),
    ("recv", "recvfrom", "14, 23"),
];
/// Calls that become slower according to the source.
const SLOWER: [&str; 2] = ["writev", "close"];

/// One observation of the server, untraced and traced.
#[derive(Debug, Default)]
struct Observation {
    pages_per_second: f64,
    cpu_us_per_page: f64,
    switches_per_page: f64,
    /// By system call.
    calls: BTreeMap<String, Call>,
    calls_per_second: f64,
}

/// A figure of an observation besides its calls, with its unit.
type Figure = (&'static str, &'static str, fn(&Observation) -> f64);

/// Statistics of one kind of call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Call {
    count: u64,
    seconds: f64,
}

impl Call {
    fn microseconds(self) -> f64 {
        self.seconds * 1e6 / real(self.count.max(1))
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let repeats = bench.pick(1, 5);
    let mut observations: [Vec<Observation>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..repeats {
        for (clients, observations) in CLIENTS.into_iter().zip(&mut observations) {
            observations
                .push(observe(bench, clients).with_context(|| format!("{clients} clients"))?);
        }
    }
    Ok(finding(&observations))
}

fn observe(bench: &Bench<'_>, clients: usize) -> Result<Observation> {
    let host = Host::start(bench, &["--accept", "serial", "--backlog", BACKLOG])?;
    let worker = host.worker()?;
    let plan = Plan { address: host.address(), clients, manner: Manner::NewConnections };
    let client_group = Clients::start(plan)?;
    let measured = Duration::from_millis(bench.pick(2_000, 10_000));
    bench.pause(Duration::from_millis(bench.pick(500, 2_000)))?;

    let (earlier, pages, started) = (threads(worker)?, client_group.pages(), Instant::now());
    bench.pause(measured)?;
    let uses = uses_between(&earlier, &threads(worker)?);
    let (pages, elapsed) = (client_group.pages() - pages, started.elapsed());
    ensure!(pages > 0, "no page was received");
    let cpu_ns: u64 = uses.iter().map(crate::measure::ThreadUse::cpu_ns).sum();
    let switches: u64 =
        uses.iter().map(|one| one.voluntary_switches + one.involuntary_switches).sum();

    let (calls, traced) = trace(bench, worker, host.folder(), measured)?;
    let count = calls.values().map(|call| call.count).sum();
    client_group.stop()?;
    Ok(Observation {
        pages_per_second: per_second(pages, elapsed),
        cpu_us_per_page: real(cpu_ns) / 1e3 / real(pages),
        switches_per_page: real(switches) / real(pages),
        calls,
        calls_per_second: per_second(count, traced),
    })
}

/// Counts the calls of a process for a while. Their cost includes the tracer's stops, as in the
/// source: it is only suitable for comparisons.
fn trace(
    bench: &Bench<'_>,
    pid: u32,
    folder: &Path,
    duration: Duration,
) -> Result<(BTreeMap<String, Call>, Duration)> {
    let path = folder.join("calls");
    let mut command = Command::new(TRACER);
    command.args(["-c", "-p", &pid.to_string(), "-o"]).arg(&path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tracer = command.spawn().context("could not start strace (Debian: strace)")?;
    let traced = wait_until_attached(&mut tracer).and_then(|()| {
        let started = Instant::now();
        bench.pause(duration)?;
        Ok(started.elapsed())
    });
    // strace prints its table when interrupted.
    let signaled = signal(tracer.id(), Signal::INT);
    tracer.wait().context("could not wait for strace")?;
    let traced = traced?;
    signaled?;
    let text = fs::read_to_string(&path).context("could not read the output of strace")?;
    let calls = parse(&text);
    ensure!(!calls.is_empty(), "strace counted nothing: {text:?}");
    Ok((calls, traced))
}

/// Its first line reports whether it may trace.
fn wait_until_attached(tracer: &mut Child) -> Result<()> {
    let mut errors = BufReader::new(tracer.stderr.take().context("errors are piped")?);
    let mut line = String::new();
    errors.read_line(&mut line).context("could not read from strace")?;
    if !line.contains("attached") {
        errors.read_to_string(&mut line).context("could not read from strace")?;
        bail!("strace is not permitted here: {}", line.trim());
    }
    // It prints more on exit, which must be drained.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Ok(())
}

/// Parses the table of `strace -c`: share, seconds, microseconds per call, calls, errors if any,
/// name.
fn parse(text: &str) -> BTreeMap<String, Call> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (seconds, count) = (fields.get(1)?.parse().ok()?, fields.get(3)?.parse().ok()?);
        let name = fields.last().filter(|name| **name != "total")?;
        Some(((*name).to_owned(), Call { count, seconds }))
    };
    text.lines().filter_map(line).collect()
}

fn finding(observations: &[Vec<Observation>; 2]) -> Finding {
    let of = |at: usize, name: &str| -> Vec<f64> {
        let calls = observations[at].iter().filter_map(|one| one.calls.get(name));
        calls.map(|call| call.microseconds()).collect()
    };
    let mut rows = Vec::new();
    for (source_name, call, source) in CALLS {
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            let counts = observations[at].iter().filter_map(|one| one.calls.get(call));
            let counts: Vec<f64> = counts.map(|call| real(call.count)).collect();
            let variant = if source_name == call {
                call.to_owned()
            } else {
                format!("{call} ({source_name})")
            };
            let note = format!("{:.0} calls; source: {source}", median(&counts));
            rows.push(FindingRow::over(&variant, &at_a_time(clients), &of(at, call), "us", note));
        }
    }
    let figures: [Figure; 4] = [
        ("all calls, traced", "per s", |one| one.calls_per_second),
        ("pages, not traced", "per s", |one| one.pages_per_second),
        ("processor time per page, not traced", "us", |one| one.cpu_us_per_page),
        ("switches per page, not traced", "", |one| one.switches_per_page),
    ];
    for (what, unit, figure) in figures {
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            let values: Vec<f64> = observations[at].iter().map(figure).collect();
            rows.push(FindingRow::over(what, &at_a_time(clients), &values, unit, String::new()));
        }
    }
    let median_of = |at, source_name: &str| {
        let call = CALLS.iter().find(|call| call.0 == source_name).map_or("", |call| call.1);
        median(&of(at, call))
    };
    let agrees = SLOWER.iter().all(|name| median_of(1, name) > median_of(0, name));
    let pages = |at: usize| {
        let values: Vec<f64> = observations[at].iter().map(|one| one.pages_per_second).collect();
        median(&values)
    };
    Finding {
        name: "s2.p1a".into(),
        title: "System calls of the serial server before and after the collapse".into(),
        numbers: vec![
            Number::new("writev at 5", median_of(0, "writev"), "us"),
            Number::new("at 10", median_of(1, "writev"), "us"),
            Number::new("close at 5", median_of(0, "close"), "us"),
            Number::new("at 10", median_of(1, "close"), "us"),
            Number::new("pages at 5", pages(0), "per s"),
            Number::new("at 10", pages(1), "per s"),
        ],
        source: "writev 86 and 106 us, close 71 and 92 us, and 21,897 calls that dropped to 8,686"
            .into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: if agrees { String::new() } else { DEVIATION_REASON.into() },
        rows,
    }
}

const CONCLUSION: &str = "\
The calls are not the cause. Of 10 clients 7 fit (6 in the queue, 1 served); the handshakes of the others are dropped, and \
they wait for a retransmission, a second or more. The cost of a call only shows how warm the processor is.";
const DEVIATION_REASON: &str = "\
the server here does not wait long enough between pages to become cold: clients on another core of the same machine keep \
its queue full, and a call costs the same as at 5.";

fn at_a_time(clients: usize) -> String {
    format!("{clients} at a time")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 44.24    0.086000          86      1000           sendto
 30.00    0.071000          71      1000        12 close
------ ----------- ----------- --------- --------- ----------------
100.00    0.157000          78      2000        12 total
";

    #[test]
    fn the_tracers_table_is_read() {
        let calls = parse(TABLE);
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert_eq!(calls["close"].count, 1000);
        assert!((calls["sendto"].microseconds() - 86.0).abs() < 1e-6);
        assert!(parse("").is_empty());
        assert!((Call::default().microseconds()).abs() < 1e-9);
    }

    fn observe(sendto: f64, close: f64) -> Observation {
        let call = |microseconds: f64| Call { count: 1000, seconds: microseconds / 1e3 };
        Observation {
            pages_per_second: 100.0,
            calls: BTreeMap::from([("sendto".into(), call(sendto)), ("close".into(), call(close))]),
            ..Observation::default()
        }
    }

    #[test]
    fn both_calls_must_become_slower() {
        let found = finding(&[vec![observe(86.0, 71.0)], vec![observe(106.0, 92.0)]]);
        assert!(found.agrees && found.deviation_reason.is_empty());
        assert!(
            found.numbers().starts_with("writev at 5 86, at 10 106, close at 5 71, at 10 92 us")
        );
        assert_eq!(found.rows.len(), 2 * (CALLS.len() + 4));
        assert_eq!(found.rows[0].variant, "sendto (writev)");
        let found = finding(&[vec![observe(86.0, 71.0)], vec![observe(106.0, 70.0)]]);
        assert!(!found.agrees && !found.deviation_reason.is_empty());
    }
}
