//! Runs a well-known load generator against the server: each of its tests must complete without
//! errors, inline, one request at a time, and pipelined.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::sheet::{Sheet, shown};
use crate::run::read_json;
use crate::subject::{Kind, Replicas, Subject, SubjectSpec, available_cpus, spawn_pinned};

const PROGRAM: &str = "redis-benchmark";
/// File next to the folders of runs.
pub(super) const FILE: &str = "compatibility.json";
/// Tests of the tool; `ping_inline` sends a line instead of an array.
const TESTS: [&str; 7] = ["ping_inline", "set", "get", "incr", "lpush", "sadd", "mset"];
const PIPELINES: [usize; 2] = [1, 16];
const OPERATIONS: u64 = 100_000;
const QUICK_OPERATIONS: u64 = 20_000;
/// A test takes a tenth of a second; longer ones hang.
const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Server and load have one core each.
const SERVER_CPU: usize = 0;
const LOAD_CPU: usize = 1;

/// Results of all tests with one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compatibility {
    /// The server's version.
    pub subject: String,
    pub tests: Vec<Test>,
}

/// Result of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Test {
    pub name: String,
    pub pipeline: usize,
    /// As reported by the tool; `None` if it failed.
    pub per_second: Option<f64>,
    /// Error output of the tool.
    pub error: String,
}

impl Compatibility {
    /// Starts Myriad and runs all tests against it.
    pub(crate) fn measure(is_quick: bool) -> Result<Self> {
        let spec = SubjectSpec {
            kind: Kind::Myriad,
            label: None,
            binary: None,
            cpus: vec![SERVER_CPU],
            options: std::collections::BTreeMap::new(),
            replicas: Replicas::default(),
            directory: None,
        };
        let subject = Subject::start(&spec)?;
        let operations = if is_quick { QUICK_OPERATIONS } else { OPERATIONS };
        let mut tests = Vec::new();
        for pipeline in PIPELINES {
            for name in TESTS {
                tests.push(test(subject.address().port(), name, pipeline, operations)?);
            }
        }
        Ok(Self { subject: subject.row().version.clone(), tests })
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        read_json(&folder.join(FILE))
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn failure_count(&self) -> usize {
        self.tests.iter().filter(|test| test.per_second.is_none()).count()
    }

    pub(crate) fn sheet(&self) -> Sheet {
        let row = |test: &Test| {
            [
                test.name.clone(),
                test.pipeline.to_string(),
                test.per_second.map_or("-".to_owned(), shown),
                if test.per_second.is_some() { "ok".to_owned() } else { test.error.clone() },
            ]
        };
        let rows = self.tests.iter().map(row).collect();
        Sheet::new(["test", "pipeline", "per s, by the tool", "result"], rows)
    }
}

/// Runs one test. A failing test is a result; a missing tool is an error.
fn test(port: u16, name: &str, pipeline: usize, operations: u64) -> Result<Test> {
    let mut command = Command::new(PROGRAM);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", name, "--csv"]);
    command.args(["-P", &pipeline.to_string(), "-n", &operations.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = spawn_pinned(&mut command, &available_cpus(&[LOAD_CPU]))
        .with_context(|| format!("start {PROGRAM} (Debian: redis-tools)"))?;
    let outcome = output(child).and_then(|text| rate(&text));
    let (per_second, error) = match outcome {
        Ok(per_second) => (Some(per_second), String::new()),
        Err(error) => (None, format!("{error:#}")),
    };
    Ok(Test { name: name.to_owned(), pipeline, per_second, error })
}

/// Returns the output of the tool, which fits in a pipe; fails if the tool fails.
fn output(mut child: Child) -> Result<String> {
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("not finished within {} s", TIMEOUT.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
    let output = child.wait_with_output()?;
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, complained.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the rate in the last line of `--csv`: `"SET","181818.19",...`.
fn rate(csv: &str) -> Result<f64> {
    let last = csv.lines().last().unwrap_or_default();
    let field = last.split(',').nth(1).map(|field| field.trim_matches('"'));
    let rate: f64 = field
        .and_then(|field| field.parse().ok())
        .with_context(|| format!("{PROGRAM} printed no rate: {csv:?}"))?;
    ensure!(rate > 0.0, "{PROGRAM} counted nothing");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_from_the_last_line() {
        let head = "\"test\",\"rps\",\"avg_latency_ms\"\n";
        let text = format!("{head}\"SET\",\"181818.19\",\"2.761\"\n");
        assert!((rate(&text).unwrap() - 181_818.19).abs() < 1e-6);
        assert!(rate(head).unwrap_err().to_string().contains("no rate"));
        assert!(rate("").is_err());
        assert!(rate("\"SET\",\"0.00\"\n").unwrap_err().to_string().contains("nothing"));
    }

    #[test]
    fn a_tool_that_complains_has_failed() {
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            output(command.spawn().unwrap())
        };
        assert_eq!(run("echo a").unwrap(), "a\n");
        let error = run("echo ERR bad >&2; exit 1").unwrap_err().to_string();
        assert!(error.ends_with(": ERR bad"), "{error}");
    }

    #[test]
    fn failures_are_counted_and_shown() {
        let test = |per_second: Option<f64>, error: &str| Test {
            name: "set".into(),
            pipeline: 16,
            per_second,
            error: error.into(),
        };
        let compatibility = Compatibility {
            subject: "myriad".into(),
            tests: vec![test(Some(20_000.0), ""), test(None, "exit status: 1: ERR")],
        };
        assert_eq!(compatibility.failure_count(), 1);
        let markdown = compatibility.sheet().markdown();
        assert!(markdown.contains("| set | 16 | 20,000 | ok |"), "{markdown}");
        assert!(markdown.contains("| set | 16 | - | exit status: 1: ERR |"), "{markdown}");
    }
}
