//! Users' commands in the pipeline: each line of the input is in the result once, whatever is
//! killed meanwhile.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::pipeline::free_address;
use crate::process::{Process, signal, wait_until};

/// Starts a process of the pipeline.
fn start(role: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(["pipeline", role, "--json", "--patience", "60s"]).args(arguments);
    Process::start(command.stdout(Stdio::null()))
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("myriad-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Lines of very different lengths; no two are equal.
fn lines(count: u32) -> Vec<String> {
    let length = |number: u32| match number % 97 {
        0 => 20_000,
        1 => 0,
        rest => usize::try_from(number.wrapping_mul(rest) % 90).unwrap(),
    };
    (0..count).map(|number| format!("{number}:{}", "x".repeat(length(number)))).collect()
}

fn counts<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "run", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A run that fails does not read its whole input.
        scope.spawn(move || _ = stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Waits until the file contains this many bytes.
fn wait_for_bytes(path: &Path, bytes: u64) {
    wait_until(&format!("{} has results", path.display()), || {
        std::fs::metadata(path).map_or(0, |metadata| metadata.len()) >= bytes
    });
}

/// Kills a worker, an executor, the collector and the generator during one run.
#[test]
fn each_line_has_one_result_when_any_process_is_killed() {
    let dir = scratch("commands");
    let given = lines(30_000);
    let input = dir.join("input");
    std::fs::write(&input, given.join("\n") + "\n").unwrap();
    let (results, letters, log) = (dir.join("results"), dir.join("letters"), dir.join("log"));
    std::fs::create_dir(&log).unwrap();
    let (generator_at, collector_at) = (free_address(), free_address());
    let collect = [
        "--listen",
        &collector_at,
        "--log",
        log.to_str().unwrap(),
        "--results",
        results.to_str().unwrap(),
        "--dead-letters",
        letters.to_str().unwrap(),
    ];
    // Each worker names itself in a file, so that the test can kill it.
    let workers = dir.join("workers");
    let command = format!("exec:echo $$ >>{}; exec sed -u s/$/!/", workers.display());
    let generate = [
        "--listen",
        &generator_at,
        "--collector",
        &collector_at,
        "--task",
        &command,
        "--input",
        input.to_str().unwrap(),
        "--rate",
        "8k",
    ];
    let addresses = ["--generator", &generator_at, "--collector", &collector_at];
    let execute = [&addresses[..], &["--threads", "2", "--allow-commands"]].concat();
    let collector = start("collector", &collect);
    let generator = start("generator", &generate);
    let executors = [start("executor", &execute), start("executor", &execute)];
    wait_for_bytes(&workers, 2);
    let pid = text(&workers).lines().next().unwrap().to_owned();
    signal(pid.parse().unwrap(), "KILL");
    wait_for_bytes(&results, 1);
    let [first, second] = executors;
    first.kill();
    collector.kill();
    let collector = start("collector", &collect);
    generator.kill();
    let generator = start("generator", &generate);
    assert!(generator.wait().success());
    assert!(collector.wait().success());
    assert!(second.wait().success());
    let found = text(&results);
    let expected: Vec<String> = given.iter().map(|line| format!("{line}!")).collect();
    assert_eq!(counts(found.lines()), counts(expected.iter().map(String::as_str)));
    assert_eq!(text(&letters), "");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Failed items are in the file of dead letters, and the exit code and the last line report them.
#[test]
fn failed_items_are_accounted() {
    let dir = scratch("letters");
    let (results, letters) = (dir.join("results"), dir.join("letters"));
    let task = "exec:while read -r x; do [ $x = 7 ] && exit 3; echo $x; done";
    let options = ["--task", task, "--input", "-", "--retries", "1", "--order", "input"];
    let files =
        ["--results", results.to_str().unwrap(), "--dead-letters", letters.to_str().unwrap()];
    let numbers = (0..500).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    let output = run(&[&options[..], &files].concat(), numbers.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("1 item failed: line 8"), "{complaint}");
    let account = String::from_utf8_lossy(&output.stdout);
    assert!(account.contains("collected  500 tasks, 500 distinct; 1 failed;"), "{account}");
    assert_eq!(text(&results), numbers.replace("\n7\n", "\n"));
    let letter: serde_json::Value = serde_json::from_str(&text(&letters)).unwrap();
    assert_eq!(
        (&letter["line"], &letter["item"], &letter["attempts"]),
        (&8.into(), &"7".into(), &2.into())
    );
    assert_eq!(letter["reason"], "the worker ended before its answer: exit status: 3");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A run with a log that was killed is continued by the same command.
#[test]
fn a_killed_run_is_continued() {
    check_continued("continued", &[], 5_000);
}

/// The processes of a run end when the one is killed that has started them: otherwise they would
/// hold the log.
#[test]
fn a_killed_run_of_processes_is_continued() {
    check_continued("continued-processes", &["--processes"], 500);
}

fn check_continued(name: &str, mode: &[&str], count: u32) {
    const WINDOW: usize = 16;
    let dir = scratch(name);
    let given = lines(count);
    let (input, results, log) = (dir.join("input"), dir.join("results"), dir.join("log"));
    std::fs::write(&input, given.join("\n")).unwrap();
    std::fs::create_dir(&log).unwrap();
    let options = [
        "--task",
        "each:echo {}",
        "--input",
        input.to_str().unwrap(),
        "--batch",
        "1",
        "--window",
        &WINDOW.to_string(),
        "--order",
        "input",
        "--results",
        results.to_str().unwrap(),
        "--log",
        log.to_str().unwrap(),
    ];
    let options = [&options[..], mode].concat();
    let part = start("run", &options);
    // A result can reach the file before the log; results beyond the window show that the log has
    // the first ones.
    let windows = given[..2 * WINDOW].iter().map(|line| line.len() as u64 + 1).sum();
    wait_for_bytes(&results, windows);
    part.kill();
    assert!(text(&results).lines().count() < given.len());
    let output = run(&options, b"");
    assert!(output.status.success(), "{output:?}");
    let account = String::from_utf8_lossy(&output.stdout);
    assert!(!account.contains(&format!("generated  {count} tasks")), "{account}");
    assert_eq!(text(&results), given.join("\n") + "\n");
    // Another input is not the same run.
    std::fs::write(&input, "other\n").unwrap();
    let output = run(&options, b"");
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("with another input; use another directory"),
        "{output:?}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A signal ends a run without another attempt: the one under way ends, and a run that continues
/// computes the item.
#[test]
fn a_stopped_run_starts_no_attempt() {
    for mode in [&[][..], &["--processes"]] {
        let dir = scratch(&format!("stopped-{}", mode.len()));
        let (attempts, log, input) = (dir.join("attempts"), dir.join("log"), dir.join("input"));
        std::fs::create_dir(&log).unwrap();
        std::fs::write(&input, "a\nb\n").unwrap();
        let go = dir.join("go");
        let task = format!(
            "each:printf x >> {attempts}; [ -e {go} ] || {{ sleep 2; exit 1; }}; echo {{}}",
            attempts = attempts.display(),
            go = go.display()
        );
        let options = [
            &["--task", &task, "--input", input.to_str().unwrap(), "--threads", "1"][..],
            &["--executors", "1", "--retries", "9", "--log", log.to_str().unwrap()],
            mode,
        ]
        .concat();
        let mut part = Command::new(env!("CARGO_BIN_EXE_myriad"))
            .args(["pipeline", "run", "--json"])
            .args(&options)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for_bytes(&attempts, 1);
        signal(part.id(), "TERM");
        let mut complaint = String::new();
        part.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert_eq!(part.wait().unwrap().code(), Some(1), "{complaint}");
        assert_eq!(text(&attempts), "x", "no attempt follows the signal: {complaint}");
        let expected = "stopped: 1 assigned line has no result: line 1";
        assert!(complaint.contains(expected), "{complaint}");

        std::fs::write(&go, "").unwrap();
        let output = run(&options, b"");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&attempts), "xxx", "each line once");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// What is wrong with the input, the command or the permission is in the error.
#[test]
fn errors_name_their_cause() {
    let check = |arguments: &[&str], input: &[u8], expected: &str| {
        let output = run(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    };
    let long = vec![b'x'; 1_000_001];
    check(
        &["--task", "exec:cat", "--input", "-"],
        &long,
        "line 1 of standard input is longer than",
    );
    check(&["--task", "exec:cat", "--input", "/"], b"", "the input / is a directory");
    check(&["--task", "exec:cat", "--input", "/nowhere"], b"", "open the input /nowhere");
    check(
        &["--task", "exec:no-such-command", "--input", "-"],
        b"a\n",
        "cannot execute the command",
    );
    let two = "exec:while read x; do echo 1; echo 2; done";
    for lines in [&b"a\nb\n"[..], b"a\n"] {
        check(&["--task", two, "--input", "-"], lines, "wrote a line that no item asked for");
    }
    let output = run(&["--task", "exec:cat", "--input", "-"], b"");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_executor_executes_commands_only_if_allowed() {
    let (generator_at, collector_at) = (free_address(), free_address());
    let _collector = start("collector", &["--listen", &collector_at]);
    let addresses = ["--listen", &generator_at, "--collector", &collector_at];
    let task = ["--task", "exec:cat", "--input", "/etc/passwd"];
    let _generator = start("generator", &[&addresses[..], &task].concat());
    let output = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "executor", "--generator", &generator_at, "--collector", &collector_at])
        .args(["--patience", "2s"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("(exec:cat), which requires --allow-commands"), "{complaint}");
}

/// The input is the same file under another name: the results would replace it.
#[test]
fn results_do_not_overwrite_the_input() {
    let dir = scratch("same-file");
    let input = dir.join("input");
    std::fs::write(&input, "a\n").unwrap();
    let (symbolic, hard) = (dir.join("symbolic"), dir.join("hard"));
    std::os::unix::fs::symlink(&input, &symbolic).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    let task = ["--task", "exec:cat", "--input", input.to_str().unwrap()];
    for output in [&input, &symbolic, &hard] {
        for option in ["--results", "--dead-letters"] {
            let output = run(&[&task[..], &[option, output.to_str().unwrap()]].concat(), b"");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(complaint.contains("the input would be overwritten"), "{complaint}");
            assert_eq!(text(&input), "a\n");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A run that is ended early has lines without a result.
#[test]
fn a_run_that_is_stopped_fails_and_states_where() {
    let dir = scratch("stopped");
    let (input, results) = (dir.join("input"), dir.join("results"));
    std::fs::write(&input, lines(100_000).join("\n")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "run", "--json", "--task", "each:echo {}"])
        .args(["--input", input.to_str().unwrap(), "--results", results.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_bytes(&results, 1);
    signal(child.id(), "TERM");
    let stderr = child.stderr.take().unwrap();
    let complaint = std::io::read_to_string(stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(complaint.contains("stopped: the lines from "), "{complaint}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The results after a line that was given up are in the file, too.
#[test]
fn a_stopped_run_in_order_keeps_what_was_computed() {
    let dir = scratch("stopped-in-order");
    let (go, results) = (dir.join("go"), dir.join("results"));
    let input = (1..20).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    std::fs::write(dir.join("input"), &input).unwrap();
    let task = "each:if [ {} != 1 ]; then echo {}; touch done-{}; exit; fi; \
        while [ ! -e go ]; do sleep 0.01; done; exit 1";
    let mut child = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "run", "--json", "--order", "input", "--threads", "2", "--batch", "1"])
        // Attempts until the stop is noticed.
        .args(["--retries", "1000"])
        .args(["--task", task, "--input", "input", "--results", "results"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the other lines have run", || {
        (2..20).all(|number| dir.join(format!("done-{number}")).exists())
    });
    signal(child.id(), "TERM");
    std::fs::write(&go, "").unwrap();
    let complaint = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(complaint.contains("stopped: 1 assigned line has no result: line 1"), "{complaint}");
    assert_eq!(text(&results), input["1\n".len()..]);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A run with a process for each part, whose only line runs. `$$` of its shell is in `pid`.
fn start_processes(dir: &Path) -> Child {
    std::fs::write(dir.join("input"), "1\n").unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["pipeline", "run", "--processes", "--input", "input", "--results", "results"])
        .args(["--task", "each:echo $$ > pid; while [ -e pid ]; do sleep 0.01; done"])
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_bytes(&dir.join("pid"), 2);
    child
}

/// Kills the part of a run with this role.
fn kill_part(run: &Child, role: &str) {
    let parts = format!("/proc/{0}/task/{0}/children", run.id());
    let part = text(Path::new(&parts))
        .split_whitespace()
        .find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            line.split(|byte| *byte == 0).any(|word| word == role.as_bytes())
        })
        .unwrap()
        .to_owned();
    signal(part.parse().unwrap(), "KILL");
}

fn complaint_of(mut run: Child) -> String {
    let complaint = std::io::read_to_string(run.stderr.take().unwrap()).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(1), "{complaint}");
    complaint
}

#[test]
fn a_run_whose_executor_is_killed_ends() {
    let dir = scratch("executor-killed");
    let run = start_processes(&dir);
    kill_part(&run, "executor");
    // What it has started runs on.
    std::fs::remove_file(dir.join("pid")).unwrap();
    let complaint = complaint_of(run);
    let expected = "all executors ended before the run, the last one with signal: 9";
    assert!(complaint.contains(expected), "{complaint}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The executor ends the processes of its lines.
#[test]
fn a_run_whose_collector_is_killed_ends_its_commands() {
    let dir = scratch("collector-killed");
    let run = start_processes(&dir);
    let pid = text(&dir.join("pid")).trim().to_owned();
    kill_part(&run, "collector");
    let complaint = complaint_of(run);
    assert!(complaint.contains("the collector has ended: signal: 9"), "{complaint}");
    wait_until("the command has ended", || !is_running(&pid));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Without files of results and of dead letters, the log alone has what failed.
#[test]
fn a_continued_run_reports_what_failed_before() {
    let dir = scratch("failed-before");
    let log = dir.join("log");
    std::fs::create_dir(&log).unwrap();
    let input = dir.join("input");
    std::fs::write(&input, "1\n7\n9\n").unwrap();
    let task = ["--task", "each:[ {} != 7 ]", "--retries", "0"];
    let files = ["--input", input.to_str().unwrap(), "--log", log.to_str().unwrap()];
    for _ in 0..2 {
        let output = run(&[&task[..], &files].concat(), b"");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains("1 item failed: line 2"), "{complaint}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Whether a process runs; one that ended and was not waited for does not.
fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim().starts_with('Z'))
}

#[test]
fn what_a_failed_command_started_ends() {
    let dir = scratch("children");
    let children = dir.join("children");
    let task = format!("each:sleep 1000 & echo $! >>{}; exit 3", children.display());
    let output = run(&["--task", &task, "--input", "-", "--retries", "1"], b"a\n");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let pids = text(&children);
    assert_eq!(pids.lines().count(), 2, "one for each attempt");
    wait_until("both children have ended", || !pids.lines().any(is_running));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Its executor has only this line, and sends its result to a collector that does not know it.
#[test]
fn the_last_line_has_a_result_when_the_collector_restarts_meanwhile() {
    let dir = scratch("last-line");
    let (input, results, log) = (dir.join("input"), dir.join("results"), dir.join("log"));
    let (begun, end) = (dir.join("begun"), dir.join("end"));
    std::fs::write(&input, "x\n").unwrap();
    std::fs::create_dir(&log).unwrap();
    let (generator_at, collector_at) = (free_address(), free_address());
    let files = ["--log", log.to_str().unwrap(), "--results", results.to_str().unwrap()];
    let collect = [&["--listen", &collector_at][..], &files].concat();
    let task = format!(
        "each:echo >{}; while [ ! -e {} ]; do sleep 0.01; done; echo done {{}}",
        begun.display(),
        end.display()
    );
    let addresses = ["--listen", &generator_at, "--collector", &collector_at];
    let generate = ["--task", &task, "--input", input.to_str().unwrap()];
    let collector = start("collector", &collect);
    let generator = start("generator", &[&addresses[..], &generate].concat());
    // More threads than the collector has room for if each had a full batch.
    let execute = ["--generator", &generator_at, "--collector", &collector_at];
    let threads = ["--threads", "80", "--allow-commands"];
    let executor = start("executor", &[&execute[..], &threads].concat());
    wait_for_bytes(&begun, 1);
    collector.kill();
    let collector = start("collector", &collect);
    std::fs::write(&end, "").unwrap();
    assert!(generator.wait().success());
    assert!(collector.wait().success());
    assert!(executor.wait().success());
    assert_eq!(text(&results), "done x\n");
    std::fs::remove_dir_all(&dir).unwrap();
}
