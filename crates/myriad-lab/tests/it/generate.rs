//! `myriad-lab generate`, stopped by a signal.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use lab::load::{
    AppendWork, Arrival, Commit, Distribution, Keys, LoadEvent, LoadReport, LoadSpec, LogMode,
    Operation, Protocol, Sharing, Sizes, SocketWork, WaitFor, Warmup, Work,
};

use crate::run::signal;

/// An hour: every test stops it earlier.
const LONG_MS: u64 = 3_600_000;

fn spec(work: Work) -> LoadSpec {
    LoadSpec {
        work,
        side_loads: BTreeMap::new(),
        warmup: Warmup::Fixed { ms: 1 },
        duration_ms: LONG_MS,
        operations_max: None,
        window_ms: 10,
        cpus: Vec::new(),
        seed: 1,
    }
}

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-lab"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    command
}

/// A running generator and its events.
struct Generator {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Generator {
    fn start(spec: &LoadSpec) -> Self {
        let mut child = lab(&["generate"]).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&serde_json::to_vec(spec).unwrap()).unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn next(&mut self) -> Option<LoadEvent> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Sends the signal when something has been counted in `windows` windows, and returns what was
    /// reported then.
    fn interrupted_report(mut self, name: &str, windows: usize) -> LoadReport {
        let mut left = windows;
        while left > 0 {
            let event = self.next().expect("it ends after the signal");
            left -= usize::from(matches!(event, LoadEvent::Window { operations: 1.. }));
        }
        signal(&self.child, name);
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            events.push(event);
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(1), "{name}");
        let failure = LoadEvent::Failed { reason: "interrupted by a signal".into() };
        assert_eq!(events.pop(), Some(failure), "{name}");
        match events.pop() {
            Some(LoadEvent::Interrupted(report)) => *report,
            other => panic!("expected a report, got {other:?}"),
        }
    }
}

/// A server that is stopped at the end of the test.
struct Echo(Child);

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn requests_that_are_interrupted_are_reported() {
    let mut echo = Echo(lab(&["echo"]).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(echo.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let work = SocketWork {
        protocol: Protocol::Resp,
        address: address.trim().parse().unwrap(),
        password: None,
        threads: 2,
        connections: 4,
        users: 0,
        sharing: Sharing::Blocking,
        pipeline: 4,
        arrival: Arrival::Closed,
        mix: vec![Operation { weight: 1.0, words: vec!["GET".into(), "{key}".into()] }],
        keys: Keys { prefix: "k".into(), count: 10, distribution: Distribution::Uniform },
        value_bytes: Sizes::Fixed(1),
        setup: Vec::new(),
        cql: None,
        http: None,
    };
    let mut spec = spec(Work::Socket(work.clone()));
    spec.side_loads.insert("others".into(), work);
    for name in ["-INT", "-TERM"] {
        // The windows are those of the first load. If threads of the other load were stalled, both
        // get more time.
        let report = [1, 30, 1_000]
            .into_iter()
            .map(|windows| Generator::start(&spec).interrupted_report(name, windows))
            .find(|report| report.side_loads["others"].operations > 0)
            .expect("the other load makes progress");
        for report in [&report, &report.side_loads["others"]] {
            assert!(report.operations > 0 && report.duration_ns < LONG_MS * 1_000_000);
            assert_eq!((report.lost, report.broken_connections), (0, 0));
        }
    }
}

#[test]
fn appends_that_are_interrupted_are_reported_and_their_log_is_removed() {
    for (name, mode) in [("-INT", LogMode::Lanes), ("-TERM", LogMode::Mutex)] {
        let directory: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log{name}"));
        let work = AppendWork {
            mode,
            threads: 3,
            record_bytes: 5,
            wait: WaitFor::Ticket,
            commit: Commit::Written,
            directory: directory.clone(),
        };
        let report = Generator::start(&spec(Work::Append(work))).interrupted_report(name, 1);
        assert!(report.operations > 0 && report.duration_ns < LONG_MS * 1_000_000);
        assert!(report.log.is_some());
        assert!(!directory.exists(), "{} is still there", directory.display());
    }
}
