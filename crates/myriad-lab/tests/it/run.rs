//! `myriad-lab run` with real servers: always Myriad, and redis-server if installed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use lab::{Row, Verdict};

const TINY: &str = "\
name = \"tiny\"
title = \"Two servers, one and eight connections\"
repeats = 2
cell_ms = 300
warmup = { fixed = { ms = 20 } }

[subject]
kind = \"myriad\"

[load]
keys.count = 1000

[[phase]]
operations = 1000
load = { keys.distribution = \"sequential\", pipeline = 16 }

[grid]
zip = [[\"subject.kind\", \"subject.options\"]]
\"subject.kind\" = [\"myriad\", \"redis-server\"]
\"subject.options\" = [{ reactors = 2, durability = \"never\" }, {}]
\"load.connections\" = [1, 8]
";

const ATTEMPTS_MAX: usize = 5;

/// A folder of this test; removed if it passes.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // From an earlier failed test.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("tiny.toml"), TINY).unwrap();
        Self(path)
    }

    fn lab_run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-lab"));
        command.arg("run").args(arguments).args(["--quiet-wait", "0"]);
        // Servers create their directories here, so that leftovers are detected.
        command.current_dir(&self.0).env("TMPDIR", &self.0).env("HOME", &self.0);
        command
    }

    /// Runs the definition until each measurement has completed operations without losses, and
    /// returns the output.
    ///
    /// On a busy machine, a load or its server may stall for longer than these short cells.
    /// Measurements without operations or with losses are repeated.
    fn measure(&self) -> String {
        for _ in 1..ATTEMPTS_MAX {
            let output = self.lab_run(&["tiny.toml", "--out", "results"]).output().unwrap();
            check_success(&output);
            if !self.rows().iter().any(is_disturbed) {
                return String::from_utf8(output.stdout).unwrap();
            }
            self.check_nothing_is_left();
            fs::remove_dir_all(self.0.join("results")).unwrap();
        }
        let output = self.lab_run(&["tiny.toml", "--out", "results"]).output().unwrap();
        check_success(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    fn rows(&self) -> Vec<Row> {
        let text = fs::read_to_string(self.0.join("results/rows.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks for leftover processes and directories in this folder.
    fn check_nothing_is_left(&self) {
        let left: Vec<PathBuf> = processes_in(&self.0).collect();
        assert!(left.is_empty(), "{left:?} are still there");
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
        assert_eq!(names, ["results", "tiny.toml"].map(String::from).into());
    }

    fn remove(self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Returns the processes that work in this folder, by their folders in `/proc`.
pub(crate) fn processes_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_here = move |entry: &PathBuf| {
        fs::read_link(entry.join("cwd")).is_ok_and(|path| path.starts_with(folder))
    };
    entries.filter(is_here)
}

#[track_caller]
fn check_success(output: &Output) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} and printed: {printed}", output.status);
}

fn is_disturbed(row: &Row) -> bool {
    let beside = row.report.side_loads.values();
    let mut reports = std::iter::once(&row.report).chain(beside);
    row.verdict != Verdict::Skipped && reports.any(|one| one.operations == 0 || one.lost > 0)
}

fn measured(rows: &[Row]) -> BTreeSet<(usize, usize)> {
    rows.iter().map(|row| (row.cell, row.repeat)).collect()
}

#[test]
fn servers_are_measured() {
    let folder = Folder::new("lab-run");
    let table = folder.measure();
    let rows = folder.rows();
    assert_eq!(measured(&rows).len(), 8);
    for row in &rows {
        if row.verdict == Verdict::Skipped {
            assert_eq!(row.subject.kind, "redis-server");
            continue;
        }
        assert!(row.report.operations > 0, "{row:?}");
        assert_eq!((row.report.lost, row.report.errors.len()), (0, 0), "{:?}", row.reasons);
        assert!(row.resident_bytes > 1 << 20, "{}", row.resident_bytes);
        assert!(row.cpu_ns_per_operation() > 0.0, "{:?}", row.threads);
        if row.subject.kind == "myriad" {
            assert_eq!(lab::run::busy_reactors(row).count, 2);
            assert!(row.counters["syscalls.read"] > 0.0, "{:?}", row.counters);
        }
    }
    assert!(table.contains("A report: myriad-lab report results"), "{table}");
    folder.check_nothing_is_left();
    folder.remove();
}

/// Starts a run that does not end soon, and waits for its first row: a caller that waits may be
/// halted.
fn started(folder: &Folder) -> (Child, BufReader<std::process::ChildStderr>) {
    let words = ["tiny.toml", "--out", "results", "--repeats", "1000"];
    let mut command = folder.lab_run(&words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("[1/4000]") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    (child, said)
}

pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_second_load_is_measured_beside_the_first() {
    let folder = Folder::new("lab-run-beside");
    let grid = TINY.find("[grid]").unwrap();
    let text = r#"options = { reactors = 2, durability = "never" }

[load]
connections = 3
mix = [{ weight = 1, words = ["GET", "{key}"] }]

[beside.writers]
mix = [{ weight = 1, words = ["SET", "{key}", "{value}"] }]
"#;
    let text = TINY[..grid].replace("\n[load]\n", text);
    let text = format!("{text}[grid]\n\"beside.writers.pipeline\" = [1, 8]\n");
    fs::write(folder.0.join("tiny.toml"), text).unwrap();
    let table = folder.measure();
    let rows = folder.rows();
    assert_eq!(measured(&rows).len(), 4);
    for row in &rows {
        let writers = &row.report.side_loads["writers"];
        assert!(row.report.operations > 0 && writers.operations > 0, "{:?}", row.reasons);
        assert_eq!((writers.lost, writers.errors.len()), (0, 0), "{:?}", row.reasons);
        assert_ne!(row.verdict, Verdict::Lossy);
    }
    assert!(table.contains("writers/s  writers p99 ms"), "{table}");
    folder.check_nothing_is_left();
    folder.remove();
}

/// With its own protocol, if installed.
#[test]
fn memcached_is_a_peer() {
    let folder = Folder::new("lab-run-memcached");
    let text = TINY.replace("\"redis-server\"", "\"memcached\"");
    fs::write(folder.0.join("tiny.toml"), text).unwrap();
    folder.measure();
    let rows = folder.rows();
    let of_memcached = rows.iter().filter(|row| row.subject.kind == "memcached");
    assert_eq!(of_memcached.clone().count(), 4);
    let is_installed = Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_ok();
    for row in of_memcached {
        assert_eq!(row.verdict == Verdict::Skipped, !is_installed, "{:?}", row.reasons);
        assert_eq!(row.report.operations > 0, is_installed, "{:?}", row.reasons);
        assert_eq!((row.report.lost, row.report.errors.len()), (0, 0), "{:?}", row.reasons);
    }
    folder.check_nothing_is_left();

    let words = ["compare", "this", "memcached", "--blocks", "1", "--block-ms", "200"];
    let more = ["--precision", "1", "--keys", "1000", "--connections", "4"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad-lab"));
    command.args(words).args(more).current_dir(&folder.0).env("TMPDIR", &folder.0);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(if is_installed { &output.stdout } else { &output.stderr });
    let expected = if is_installed { "B/A = " } else { "memcached is not installed" };
    assert!(said.contains(expected), "{said}");
    folder.check_nothing_is_left();
    folder.remove();
}

#[test]
fn an_interrupted_run_is_continued() {
    check_interrupted("-INT");
    check_interrupted("-TERM");
}

#[track_caller]
fn check_interrupted(name: &str) {
    let folder = Folder::new(&format!("lab-run-interrupted{name}"));
    let (mut child, said) = started(&folder);
    signal(&child, name);
    let last = said.lines().map(Result::unwrap).last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(last.ends_with("Continue with: myriad-lab run --resume results"), "{last}");
    folder.check_nothing_is_left();
    let before = measured(&folder.rows());
    // The repeat in which it was interrupted, and one more.
    let repeats = before.iter().map(|(_, repeat)| repeat + 2).max().unwrap();
    assert!(repeats < 1000, "{before:?}");

    let text = repeats.to_string();
    let words = ["--resume", "results", "--repeats", &text];
    check_success(&folder.lab_run(&words).output().unwrap());
    let rows = folder.rows();
    assert_eq!((rows.len(), measured(&rows).len()), (4 * repeats, 4 * repeats));
    assert!(measured(&rows).is_superset(&before));
    folder.check_nothing_is_left();
    folder.remove();
}

/// The kernel kills servers and generators of a lab that was killed.
#[test]
fn a_run_that_is_killed_leaves_no_process() {
    let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
    if !has_setpriv.is_ok_and(|status| status.success()) {
        // Without setpriv, this is not guaranteed.
        return;
    }
    let folder = Folder::new("lab-run-killed");
    let (mut child, _said) = started(&folder);
    signal(&child, "-KILL");
    child.wait().unwrap();
    // Servers have their own working directories below this one.
    while processes_in(&folder.0).next().is_some() {
        std::thread::yield_now();
    }
    folder.remove();
}

#[test]
fn a_definition_that_is_not_there_is_named() {
    let folder = Folder::new("lab-run-missing");
    let output = folder.lab_run(&["none.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "myriad-lab: could not read none.toml: No such file or directory (os error 2)\n"
    );
    folder.remove();
}

#[test]
fn a_wrong_command_line_exits_with_2_and_is_reported_once() {
    for words in [&[][..], &["fly"], &["webbench", "-t", "x", "http://127.0.0.1:1/"]] {
        let program = env!("CARGO_BIN_EXE_myriad-lab");
        let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        let is_named = words.iter().rfind(|word| word.starts_with('-'));
        assert!(is_named.is_none_or(|option| complaint.contains(option)), "{complaint}");
    }
}

#[test]
fn mistakes_in_a_definition_are_shown_with_their_line() {
    let folder = Folder::new("lab-run-mistake");
    fs::write(folder.0.join("tiny.toml"), TINY.replace("cell_ms", "cell_mm")).unwrap();
    let output = folder.lab_run(&["tiny.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("myriad-lab: tiny.toml:4: unknown field `cell_mm`"), "{said}");
    folder.remove();
}
