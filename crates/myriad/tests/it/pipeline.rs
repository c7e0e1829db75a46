//! The pipeline as separate processes: `kill -9` of an executor, the collector and the generator,
//! all in one run that loses no task.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use crate::process::Process;

/// Tasks per second, and the number of tasks left for the last generator process.
const RATE: u64 = 150_000;
const TASKS_LEFT_MIN: u64 = 250_000;

/// A process of the pipeline.
struct Part {
    process: Process,
    lines: BufReader<ChildStdout>,
    /// Output lines that are not a status.
    said: String,
}

impl Part {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command.arg("pipeline").args(arguments).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let lines = BufReader::new(process.0.stdout.take().unwrap());
        Self { process, lines, said: String::new() }
    }

    /// Waits for a status in which this field is greater than `least`. Returns `None` if the
    /// process ends first.
    fn wait_for(&mut self, field: &str, least: u64) -> Option<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let Ok(status) = serde_json::from_str::<serde_json::Value>(&line) else {
                self.said += &line;
                continue;
            };
            let found = status.pointer(field).and_then(serde_json::Value::as_u64);
            if let Some(found) = found.filter(|found| *found > least) {
                return Some(found);
            }
        }
    }

    /// Waits for the end. Returns the remaining output and whether the process succeeded.
    fn end(mut self) -> (String, bool) {
        let mut text = std::mem::take(&mut self.said);
        self.lines.read_to_string(&mut text).unwrap();
        (text, self.process.wait().success())
    }
}

/// Returns a free port for several processes to listen on in turn. It is outside the range from
/// which the kernel assigns ephemeral ports.
pub(crate) fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = u16::try_from(std::process::id() % 1_000).unwrap() * 7;
        let port = 12_000 + (number + NEXT.fetch_add(1, Ordering::SeqCst)) % 8_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

fn digest_of(text: &str) -> &str {
    text.rsplit_once("digest ")
        .map(|(_, rest)| rest.trim_end())
        .map_or("", |rest| rest.split_whitespace().next().unwrap_or(""))
}

#[test]
fn no_task_is_lost_when_any_process_is_killed() {
    let dir = std::env::temp_dir().join(format!("myriad-pipeline-{}", std::process::id()));
    let log: PathBuf = dir.join("log");
    std::fs::create_dir_all(&log).unwrap();
    let (generator_at, collector_at) = (free_address(), free_address());
    let rate = RATE.to_string();
    let collect = ["collector", "--listen", &collector_at, "--log", log.to_str().unwrap()];
    let execute =
        ["executor", "--generator", &generator_at, "--collector", &collector_at, "--threads", "1"];
    let generate = [
        "generator",
        "--listen",
        &generator_at,
        "--collector",
        &collector_at,
        "--rate",
        &rate,
        "--batch",
        "500",
        "--lease",
        "100ms",
    ];
    let patience = ["--patience", "60s"];
    let collector = Part::start(&collect);
    let started = Instant::now();
    // No task limit yet: the generator must not finish before every process has been killed,
    // however long that takes.
    let mut generator = Part::start(&[&generate[..], &patience].concat());
    let first = Part::start(&[&execute[..], &patience].concat());
    let second = Part::start(&[&execute[..], &patience].concat());

    let before = generator.wait_for("/collected", 0).unwrap();
    first.process.kill();
    let before = generator.wait_for("/collected", before).unwrap();
    collector.process.kill();
    let collector = Part::start(&collect);
    generator.wait_for("/collected", before).unwrap();
    generator.process.kill();
    // The generator cannot have handed out more tasks than its rate allows.
    let tasks = (RATE * (started.elapsed().as_secs() + 1) + TASKS_LEFT_MIN).to_string();
    let generator = Part::start(&[&generate[..], &patience, &["--tasks", &tasks]].concat());

    let (text, is_success) = generator.end();
    assert!(is_success, "{text}");
    assert!(text.contains(&format!("collected  {tasks} tasks, {tasks} distinct")), "{text}");
    let (collected, is_success) = collector.end();
    assert!(is_success && digest_of(&collected) == digest_of(&text), "{collected}");
    let (_, is_success) = second.end();
    assert!(is_success);

    // The same tasks in one undisturbed process.
    let undisturbed = Part::start(&["run", "--tasks", &tasks, "--json"]);
    let (undisturbed, is_success) = undisturbed.end();
    assert!(is_success, "{undisturbed}");
    assert_eq!(digest_of(&text), digest_of(&undisturbed));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A run with wrong results fails: checks the exit code and the error message.
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

/// `run --processes` starts each part as a process of its own. The totals equal those of a single
/// process, and an interrupt is an orderly end.
#[test]
fn parts_run_as_separate_processes() {
    let together = Part::start(&["run", "--tasks", "60000", "--json"]).end();
    let apart = ["run", "--tasks", "60000", "--json", "--processes", "--executors", "2"];
    let apart = Part::start(&apart).end();
    assert!(together.1 && apart.1, "{}{}", together.0, apart.0);
    assert_eq!(digest_of(&together.0), digest_of(&apart.0));
    // On a busy machine, the second executor may start after the last task.
    let tasks = |line: &str| -> Option<u64> {
        line.strip_prefix("executed ")?.split_once(' ')?.0.parse().ok()
    };
    let executed: u64 = apart.0.lines().filter_map(tasks).sum();
    assert!(executed >= 60_000, "{}", apart.0);

    let wrong = ["run", "--tasks", "20000", "--processes", "--verify", "all", "--corrupt", "0.001"];
    let (_, is_success) = Part::start(&wrong).end();
    assert!(!is_success);

    let mut endless = Part::start(&["run", "--rate", "50k", "--json", "--processes"]);
    endless.wait_for("/collected", 0).unwrap();
    // As Ctrl-C does.
    endless.process.signal("INT");
    let (text, is_success) = endless.end();
    assert!(is_success && text.contains("in flight  0\n"), "{text}");
}

/// All threads and attempts together report an unreachable peer once.
#[test]
fn an_executor_reports_once_that_it_cannot_connect() {
    let nowhere = free_address();
    let output = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "executor", "--threads", "8", "--patience", "500ms"])
        .args(["--generator", &nowhere])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    let expected = format!("could not connect to {nowhere}: connection refused; retrying");
    assert_eq!(complaint.matches(&expected).count(), 1, "{complaint}");
    let end = format!("could not connect to the generator at {nowhere}: ");
    assert!(complaint.contains(&end), "{complaint}");
}

/// Returns the page that the monitor serves at this path.
fn ask(pages: &str, path: &str) -> String {
    loop {
        let mut stream = TcpStream::connect(pages).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        // The monitor disconnects a slow client, which a busy machine can cause: ask again.
        if stream.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
            return answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        }
    }
}

/// Starts a monitor. Returns it, the address of its pages, and the address for reports.
fn start_monitor() -> (Part, String, String) {
    let mut monitor = Part::start(&["monitor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let mut line = |begin: &str, end: &str| {
        let mut line = String::new();
        monitor.lines.read_line(&mut line).unwrap();
        let line = line.strip_prefix(begin).and_then(|line| line.strip_suffix(end));
        line.unwrap().to_owned()
    };
    let (pages, reports) = (line("http://", "/\n"), line("reports to ", "\n"));
    (monitor, pages, reports)
}

/// Checks that the totals of all three stages on the monitor equal the number of collected tasks.
fn check_totals(pages: &str, tasks: u64) {
    let metrics = ask(pages, "/metrics");
    for stage in ["generator", "executor", "collector"] {
        let expected = format!("myriad_pipeline_tasks_total{{stage=\"{stage}\"}} {tasks}\n");
        assert!(metrics.contains(&expected), "{metrics}");
    }
    assert!(metrics.contains("myriad_pipeline_parts{state=\"running\"} 0\n"), "{metrics}");
    assert!(metrics.contains("myriad_pipeline_lost_tasks_total 0\n"), "{metrics}");
    let status: serde_json::Value = serde_json::from_str(&ask(pages, "/status.json")).unwrap();
    assert_eq!(status["totals"]["tasks"], serde_json::json!([tasks, tasks, tasks]));
    let parts = status["parts"].as_array().unwrap();
    assert!(parts.iter().all(|part| part["state"] == "finished"), "{parts:?}");
    let generator = parts.iter().find(|part| part["stage"] == "generator").unwrap();
    let verdict =
        serde_json::json!({"generated": tasks, "collected": tasks, "lost": 0, "faults": []});
    assert_eq!(generator["verdict"], verdict);
}

/// The final totals are exact even though a run does not end at a report interval, in one process
/// and in several.
#[test]
fn the_monitor_shows_exact_totals_at_the_end() {
    for more in [&[][..], &["--processes", "--executors", "2"]] {
        let (_monitor, pages, reports) = start_monitor();
        let run = ["run", "--tasks", "54321", "--lease", "60s", "--json", "--monitor", &reports];
        let (text, is_success) = Part::start(&[&run[..], more].concat()).end();
        assert!(is_success && text.contains("collected  54321 tasks"), "{text}");
        check_totals(&pages, 54_321);
    }
}

/// A practical use: checksums of a directory tree. One of two executors is killed during the run,
/// and `sha256sum` accepts the resulting file.
#[test]
fn checksums_are_complete_after_an_executor_is_killed() {
    let dir = std::env::temp_dir().join(format!("myriad-sums-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    for number in 0..400_u32 {
        let folder = dir.join(format!("tree/{}", number % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let content = number.to_le_bytes().repeat(1 + usize::try_from(number).unwrap() * 10);
        std::fs::write(folder.join(format!("{number}.bin")), content).unwrap();
    }
    let tree = dir.join("tree");
    let sums = dir.join("SHA256SUMS");
    let task = format!("files:{}", tree.display());
    let (generator_at, collector_at) = (free_address(), free_address());
    let collector = Part::start(&[
        "collector",
        "--listen",
        &collector_at,
        "--results",
        sums.to_str().unwrap(),
        "--order",
        "input",
    ]);
    let mut generator = Part::start(&[
        "generator",
        "--listen",
        &generator_at,
        "--collector",
        &collector_at,
        "--task",
        &task,
        "--rate",
        "200",
        "--batch",
        "2",
        "--lease",
        "100ms",
        "--patience",
        "60s",
    ]);
    let execute = ["executor", "--generator", &generator_at, "--collector", &collector_at];
    let execute = [&execute[..], &["--threads", "1", "--patience", "60s"]].concat();
    let (first, second) = (Part::start(&execute), Part::start(&execute));
    // A descheduled executor may do all its work at once, so that the first status is the last.
    generator.wait_for("/collected", 0);
    first.process.kill();
    let (text, is_success) = generator.end();
    assert!(is_success, "{text}");
    assert!(text.contains("collected  400 tasks, 400 distinct"), "{text}");
    assert!(collector.end().1);
    assert!(second.end().1);
    assert_eq!(std::fs::read_to_string(&sums).unwrap().lines().count(), 400);
    let checked = Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet"])
        .arg(&sums)
        .current_dir(&tree)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A network namespace whose only link goes down for a while. Before that, it loses and delays
/// packets if the kernel supports it.
const IN_A_NETWORK: &str = r#"
set -e
ip link set lo up
if tc qdisc add dev lo root netem delay 1ms loss 1% 2>/dev/null; then echo "with loss"; fi
"$@" &
run=$!
sleep 1
ip link set lo down
sleep 1
ip link set lo up
wait $run
"#;

#[test]
fn no_task_is_lost_when_the_link_goes_down() {
    let can = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        // Bypass the capture of test output: a skipped test must not pass unnoticed.
        let mut err = std::io::stderr().lock();
        std::io::Write::write_all(&mut err, b"NOT TESTED: no network namespaces here\n").unwrap();
        return;
    }
    let tasks = ["--tasks", "300000", "--rate", "100k", "--lease", "300ms", "--patience", "60s"];
    let output = Command::new("unshare")
        .args(["-n", "sh", "-c", IN_A_NETWORK, "sh", env!("CARGO_BIN_EXE_myriad")])
        .args(["pipeline", "run", "--processes", "--executors", "2", "--json"])
        .args(tasks)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("collected  300000 tasks, 300000 distinct"), "{text}");
    let undisturbed = Part::start(&["run", "--tasks", "300000", "--json"]).end();
    assert_eq!(digest_of(&text), digest_of(&undisturbed.0));
}

/// Runs a command over the lines `1` to `9` in a new directory, with further options. Returns
/// whether it succeeded, and its standard error.
fn run_lines(dir: &std::path::Path, task: &str, more: &[&str]) -> (bool, String) {
    std::fs::create_dir_all(dir).unwrap();
    // A log belongs to one version of its input.
    if !dir.join("lines").exists() {
        std::fs::write(dir.join("lines"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .current_dir(dir)
        .args(["pipeline", "run", "--task", task, "--input", "lines", "--retries", "0", "--json"])
        .args(more)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("myriad-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

#[test]
fn failed_lines_have_the_numbers_of_other_tools() {
    let dir = scratch("line-numbers");
    let (succeeds, text) =
        run_lines(&dir, "each:test {} != 7 -a {} != 9", &["--dead-letters", "failed"]);
    assert!(!succeeds && text.contains("2 items failed: lines 7, 9"), "{text}");
    let failed = std::fs::read_to_string(dir.join("failed")).unwrap();
    for line in failed.lines() {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(letter["line"].to_string(), letter["item"].as_str().unwrap(), "{letter}");
    }
    assert_eq!(failed.lines().count(), 2, "{failed}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn results_of_another_run_are_kept() {
    let dir = scratch("existing-results");
    std::fs::create_dir_all(&dir).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    for option in ["--results", "--dead-letters"] {
        std::fs::write(dir.join("out"), "keep\n").unwrap();
        let (succeeds, text) = run_lines(&dir, "each:echo", &[option, "out"]);
        assert!(!succeeds && text.contains("out has content"), "{text}");
        assert!(text.contains("--log") && text.contains("--existing replace"), "{text}");
        assert_eq!(read("out"), "keep\n");
        // A new log has no results.
        let (succeeds, text) = run_lines(&dir, "each:echo", &[option, "out", "--log", "new"]);
        assert!(!succeeds && text.contains("out has content"), "{text}");
    }
    let replaces = ["--results", "out", "--existing", "replace"];
    let in_parts = [&replaces[..], &["--processes"]].concat();
    for options in [&replaces[..], &in_parts] {
        std::fs::write(dir.join("out"), "keep\n").unwrap();
        let (succeeds, text) = run_lines(&dir, "each:cat", options);
        assert!(succeeds && read("out").lines().count() == 9, "{text}");
    }
    // A run that continues writes its file again.
    for _ in 0..2 {
        let options = ["--results", "logged", "--log", "log"];
        let (succeeds, text) = run_lines(&dir, "each:cat", &options);
        assert!(succeeds && read("logged").lines().count() == 9, "{text}");
    }
    // Another command does not belong to this log.
    let (succeeds, text) = run_lines(&dir, "each:cat -", &["--log", "log"]);
    let expected = "log belongs to the command each:cat; use another directory";
    assert!(!succeeds && text.contains(expected) && !text.contains("Plan {"), "{text}");
    // A log names its own files, and no others.
    std::fs::write(dir.join("out"), "keep\n").unwrap();
    for (task, expected) in [("each:cat", "out has content"), ("each:cat -", expected)] {
        let (succeeds, text) = run_lines(&dir, task, &["--results", "out", "--log", "log"]);
        assert!(!succeeds && text.contains(expected), "{text}");
        assert_eq!(read("out"), "keep\n");
    }
    let mine = ["--results", "logged", "--existing", "replace", "--log", "log"];
    let (succeeds, text) = run_lines(&dir, "each:cat -", &mine);
    assert!(!succeeds && read("logged").lines().count() == 9, "{text}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_command_that_does_not_exist_has_one_reason() {
    let dir = scratch("no-command");
    for task in ["exec:./nosuch", "each:./nosuch"] {
        let (succeeds, text) = run_lines(&dir, task, &["--threads", "4"]);
        assert!(!succeeds, "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.contains("could not compute line"), "{text}");
        assert!(last.contains("the shell cannot execute the command: exit status: 127"), "{text}");
        assert_eq!(last.matches("line").count(), 1, "{text}");
        assert!(!text.contains("could not connect"), "{text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
