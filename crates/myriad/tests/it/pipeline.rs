//! The pipeline as processes that are killed: `kill -9` of an executor, of the collector, of the
//! generator, all in one run that loses nothing.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

const TASKS: u64 = 1_000_000;

/// A part of the pipeline; killed when dropped.
struct Part {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Part {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .arg("pipeline")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits for a status that counts more than `least` in this field.
    fn wait_for(&mut self, field: &str, least: u64) -> u64 {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "it ended before {field} > {least}"
            );
            let Ok(status) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            let found = status.pointer(field).and_then(serde_json::Value::as_u64);
            if let Some(found) = found.filter(|found| *found > least) {
                return found;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// All that is left of its output, and whether it was a success.
    fn end(mut self) -> (String, bool) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap().success())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on, to be listened on by several processes in turn.
fn free_address() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

fn digest_of(text: &str) -> &str {
    text.rsplit_once("digest ")
        .map(|(_, rest)| rest.trim_end())
        .map_or("", |rest| rest.split_whitespace().next().unwrap_or(""))
}

#[test]
fn nothing_is_lost_whoever_is_killed() {
    let dir = std::env::temp_dir().join(format!("myriad-pipeline-{}", std::process::id()));
    let log: PathBuf = dir.join("log");
    std::fs::create_dir_all(&log).unwrap();
    let (generator_at, collector_at) = (free_address(), free_address());
    let tasks = TASKS.to_string();
    let collect = ["collector", "--listen", &collector_at, "--log", log.to_str().unwrap()];
    let execute =
        ["executor", "--generator", &generator_at, "--collector", &collector_at, "--threads", "1"];
    let generate = [
        "generator",
        "--listen",
        &generator_at,
        "--collector",
        &collector_at,
        "--tasks",
        &tasks,
        "--rate",
        "150k",
        "--batch",
        "500",
        "--lease",
        "100ms",
    ];
    let patience = ["--patience", "60s"];
    let collector = Part::start(&collect);
    let mut generator = Part::start(&[&generate[..], &patience].concat());
    let first = Part::start(&[&execute[..], &patience].concat());
    let second = Part::start(&[&execute[..], &patience].concat());

    let before = generator.wait_for("/collected", 0);
    first.kill();
    let before = generator.wait_for("/collected", before);
    collector.kill();
    let collector = Part::start(&collect);
    generator.wait_for("/collected", before);
    generator.kill();
    let generator = Part::start(&[&generate[..], &patience].concat());

    let (text, is_success) = generator.end();
    assert!(is_success, "{text}");
    assert!(text.contains(&format!("collected  {TASKS} tasks, {TASKS} different")), "{text}");
    let (collected, is_success) = collector.end();
    assert!(is_success && digest_of(&collected) == digest_of(&text), "{collected}");
    let (_, is_success) = second.end();
    assert!(is_success);

    // The same tasks, in one process that nobody disturbs.
    let undisturbed = Part::start(&["run", "--tasks", &tasks, "--json"]);
    let (undisturbed, is_success) = undisturbed.end();
    assert!(is_success, "{undisturbed}");
    assert_eq!(digest_of(&text), digest_of(&undisturbed));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Exit code and words of a run whose results are wrong.
#[test]
fn a_run_with_wrong_results_fails() {
    let output = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "run", "--tasks", "20000", "--verify", "all", "--corrupt", "0.001"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("of 20000 checked results are wrong: ids "), "{complaint}");
}
