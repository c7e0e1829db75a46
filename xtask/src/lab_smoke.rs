//! A short end-to-end test of the lab: it checks that measurements are made, not their values.
//!
//! No time and no rate is judged; a slow machine passes like a fast one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::{MYRIAD, Server, TEST_LAB, Target, TempDir};
use crate::tally::Tally;

/// Cells with a fill and a second load, half of them by schedule.
const DEFINITION: &str = r#"
name = "smoke"
title = "Everything once"
repeats = 2
cell_ms = 300
warmup = { fixed = { ms = 20 } }

[subject]
kind = "myriad"
options = { durability = "never", reactors = 1 }

[load]
connections = 4
keys = { count = 1000 }

[beside.writers]
connections = 2
mix = [{ weight = 1, words = ["SET", "{key}", "{value}"] }]

[[phase]]
operations = 1000
load = { keys.distribution = "sequential", pipeline = 16 }

[grid]
"load.mix" = [[{ weight = 1, words = ["GET", "{key}"] }], [{ weight = 1, words = ["SET", "{key}", "{value}"] }]]
"load.arrival" = ["closed", { open = { per_second = 500, schedule = "poisson" } }]
"#;
const ROWS: usize = 8;

/// Reads and writes of CQL, on the server and on an echo.
const CQL_DEFINITION: &str = "\
name = \"cql\"
title = \"CQL once\"
repeats = 1
cell_ms = 300
warmup = { fixed = { ms = 20 } }

[subject]
kind = \"myriad\"
options = { durability = \"never\", reactors = 1 }

[load]
protocol = \"cql\"
connections = 2
users = 32
sharing = \"multiplexed\"
keys = { count = 500 }
mix = [
    { weight = 1, words = [\"SELECT value FROM lab.rows WHERE key = {key}\"] },
    { weight = 1, words = [\"INSERT INTO lab.rows (key, value) VALUES ({key}, {value})\"] },
]

[[phase]]
operations = 500
load = { mix = [{ weight = 1, words = [\"INSERT INTO lab.rows (key, value) VALUES ({key}, {value})\"] }], keys = { distribution = \"sequential\" } }

[[cell]]
\"subject.options.reactors\" = 1
[[cell]]
\"subject.kind\" = \"echo\"
\"subject.options\" = { threads = 1 }
";

/// Pages over persistent connections, pages over new ones, and keys over REST.
const HTTP_DEFINITION: &str = "\
name = \"http\"
title = \"HTTP once\"
repeats = 1
cell_ms = 300
warmup = { fixed = { ms = 20 } }

[subject]
kind = \"web\"

[load]
protocol = \"http\"
connections = 4
keys = { count = 100 }

[[cell]]
\"subject.options\" = { workers = 2 }
\"load.http.body_bytes\" = 4096
\"load.mix\" = [{ weight = 1, words = [\"GET\", \"/4k.bin\"] }]
[[cell]]
\"subject.options\" = { workers = 1, mode = \"thread\" }
\"load.http.connection\" = \"close\"
\"load.mix\" = [{ weight = 1, words = [\"GET\", \"/hello\"] }]
[[cell]]
\"subject.kind\" = \"myriad\"
\"subject.options\" = { durability = \"never\", reactors = 1 }
\"load.mix\" = [{ weight = 1, words = [\"PUT\", \"/kv/{key}\", \"{value}\"] }]
";

/// One check.
struct Check {
    name: &'static str,
    /// The folder that it creates, if it makes measurements.
    out: Option<&'static str>,
    run: fn(&Lab) -> Result<()>,
}

const CHECKS: [Check; 10] = [
    Check { name: "refuse switches of experiments", out: None, run: refuse_experiments },
    Check { name: "run a definition", out: Some("run"), run: run_definition },
    Check { name: "make its report", out: None, run: make_report },
    Check { name: "list the tables of the sources", out: None, run: list_tables },
    Check { name: "run a table of a source again", out: Some("repro"), run: repro },
    Check { name: "compare a server with itself", out: None, run: compare },
    Check { name: "find the highest rate", out: Some("max"), run: find_max },
    Check { name: "load servers of CQL", out: Some("cql"), run: run_cql },
    Check { name: "do as cassandra-stress does", out: None, run: stress },
    Check { name: "load servers of HTTP", out: Some("http"), run: run_http },
];

/// A machine that halts a process for longer than a cell, or for the seconds after which a reply
/// counts as lost, produces rows that correctly report it: the measurement is then repeated up to
/// this many times.
const ATTEMPTS_MAX: u32 = 4;

/// Paths of the program and of the results.
struct Lab {
    root: PathBuf,
    program: PathBuf,
    folder: TempDir,
}

/// Runs all checks; `root` is the repository, whose release build is used.
pub(crate) fn run(root: &Path) -> Result<Tally> {
    let program = root.join(TEST_LAB);
    ensure!(program.is_file(), "{} is not built", program.display());
    let lab = Lab { root: root.to_owned(), program, folder: TempDir::new("lab-smoke")? };
    let mut tally = Tally::default();
    for check in &CHECKS {
        match lab.attempt(check) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                tally.failed += 1;
                println!("FAILED {}: {error:#}", check.name);
            }
        }
    }
    Ok(tally)
}

impl Lab {
    /// Runs a check, and repeats it as long as it fails and attempts are left.
    fn attempt(&self, check: &Check) -> Result<()> {
        for _ in 1..ATTEMPTS_MAX {
            let Err(error) = (check.run)(self) else { return Ok(()) };
            println!("once more: {}: {error:#}", check.name);
            // The lab does not write to a folder that contains a run.
            if let Some(path) = check.out.map(|name| self.path(name)).filter(|path| path.exists()) {
                fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        (check.run)(self)
    }

    /// The output of `myriad-lab` with these arguments. A command that fails is an error with its
    /// output.
    fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(self.folder.path());
        let output = command.output().with_context(|| format!("start {command:?}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("lab {}: {}\n{text}{errors}", words.join(" "), output.status);
        }
        Ok(text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Release builds have no option that loses data.
fn refuse_experiments(lab: &Lab) -> Result<()> {
    let mut command = Command::new(lab.root.join(MYRIAD));
    command.args(["serve", "--stub", "5"]).current_dir(lab.folder.path());
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_unknown = errors.contains("--stub: unknown option");
    ensure!(output.status.code() == Some(2) && is_unknown, "{}: {errors}", output.status);
    Ok(())
}

fn run_definition(lab: &Lab) -> Result<()> {
    fs::write(lab.path("smoke.toml"), DEFINITION)?;
    lab.ask(&["run", "smoke.toml", "--out", "run", "--quiet-wait", "0"])?;
    let rows = rows(&lab.path("run/rows.jsonl"))?;
    ensure!(rows.len() == ROWS, "{} rows instead of {ROWS}", rows.len());
    let of_writers = |row: &&Value| row["report"]["beside"]["writers"].is_object();
    ensure!(rows.iter().filter(of_writers).count() == ROWS, "rows without the second load");
    rows.iter().try_for_each(check_row)
}

fn make_report(lab: &Lab) -> Result<()> {
    lab.ask(&["report", "run"])?;
    let page = fs::read_to_string(lab.path("run/report.html")).context("read the report")?;
    ensure!(page.contains("Everything once"), "the report lacks the title");
    let lines = fs::read_to_string(lab.path("run/rows.csv")).context("read the CSV")?;
    ensure!(lines.lines().count() == ROWS + 1, "{} lines of CSV", lines.lines().count());
    Ok(())
}

fn list_tables(lab: &Lab) -> Result<()> {
    let text = lab.ask(&["repro", "--list"])?;
    ensure!(text.contains("s1.t6"), "no table s1.t6 in {text}");
    Ok(())
}

/// Measures a table with a server: six measurements of half a second.
fn repro(lab: &Lab) -> Result<()> {
    let text = lab.ask(&["repro", "s1.r8", "--quick", "--out", "repro", "--quiet-wait", "0"])?;
    ensure!(text.contains("(per s)"), "no figures in {text}");
    let rows = rows(&lab.path("repro/s1.r8/rows.jsonl"))?;
    ensure!(!rows.is_empty(), "no rows");
    rows.iter().try_for_each(check_row)?;
    let page = fs::read_to_string(lab.path("repro/report.html")).context("read the report")?;
    ensure!(
        page.contains("myriad-lab repro s1.r8"),
        "the report does not contain the command that repeats it"
    );
    Ok(())
}

/// With fewer than eleven blocks there is no verdict, whatever the figures.
fn compare(lab: &Lab) -> Result<()> {
    let server = "this:durability=never,reactors=1";
    let text = lab.ask(&[
        "compare",
        server,
        server,
        "--keys",
        "1000",
        "--blocks",
        "2",
        "--block-ms",
        "800",
        "--precision",
        "1",
    ])?;
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.contains("B/A = "), "no ratio in {text}");
    ensure!(last.ends_with("no difference shown"), "a verdict from two blocks: {text}");
    Ok(())
}

fn find_max(lab: &Lab) -> Result<()> {
    let text = lab.ask(&[
        "max",
        "this:durability=never,reactors=1",
        "--slo",
        "p50<10s",
        "--keys",
        "1000",
        "--connections",
        "4",
        "--start",
        "200",
        "--precision",
        "1",
        "--confirm",
        "1",
        "--run-ms",
        "300",
        "--out",
        "max",
    ])?;
    ensure!(text.contains("p50<10s: "), "no result in {text}");
    let rows = rows(&lab.path("max/rows.jsonl"))?;
    ensure!(rows.len() >= 3, "{} rows of a search", rows.len());
    // Excessive rates lose no request either: a request that was not sent is not lost.
    rows.iter().try_for_each(check_row)
}

fn run_cql(lab: &Lab) -> Result<()> {
    fs::write(lab.path("cql.toml"), CQL_DEFINITION)?;
    lab.ask(&["run", "cql.toml", "--out", "cql", "--quiet-wait", "0"])?;
    let rows = rows(&lab.path("cql/rows.jsonl"))?;
    ensure!(rows.len() == 2, "{} rows instead of 2", rows.len());
    for row in &rows {
        let missing = row["report"]["rows_missing"].as_u64();
        ensure!(missing == Some(0), "reads without a row: {row}");
    }
    rows.iter().try_for_each(check_row)
}

/// Written rows are read again: a read without its row would be an error.
fn stress(lab: &Lab) -> Result<()> {
    let server = Server::start(&lab.root, &Target::Myriad)?;
    let address = server.cql_address.as_deref().context("the server speaks no CQL")?;
    let (_, port) = address.rsplit_once(':').context("an address without a port")?;
    let native = format!("native={port}");
    for command in ["write", "read"] {
        let text = lab.ask(&[
            "cassandra-stress",
            command,
            "n=2000",
            "no-warmup",
            "-rate",
            "threads=8",
            "-port",
            &native,
            "-pop",
            "seq=1..2000",
        ])?;
        for part in [
            "Op rate  ",
            "Total partitions          :      2,000",
            "Total errors              :          0",
            "\nEND",
        ] {
            ensure!(text.contains(part), "{part:?} is not in {text}");
        }
    }
    Ok(())
}

fn run_http(lab: &Lab) -> Result<()> {
    fs::write(lab.path("http.toml"), HTTP_DEFINITION)?;
    lab.ask(&["run", "http.toml", "--out", "http", "--quiet-wait", "0"])?;
    let rows = rows(&lab.path("http/rows.jsonl"))?;
    ensure!(rows.len() == 3, "{} rows instead of 3", rows.len());
    for row in rows.iter().filter(|row| row["subject"]["kind"] == "web") {
        let threads = row["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
        let workers = threads.iter().filter(|thread| thread["name"] == "w00");
        ensure!(workers.count() == 1, "no worker of its own in {row}");
    }
    rows.iter().try_for_each(check_row)
}

/// Lines of JSON.
fn rows(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn check_row(row: &Value) -> Result<()> {
    let number = |name: &str| row["report"][name].as_u64().with_context(|| format!("no {name}"));
    ensure!(number("operations")? > 0, "a row without operations: {row}");
    ensure!(number("lost")? == 0, "a row with losses: {row}");
    ensure!(
        row["report"]["errors"].as_object().is_some_and(serde_json::Map::is_empty),
        "errors: {row}"
    );
    for (name, report) in row["report"]["beside"].as_object().into_iter().flatten() {
        ensure!(report["operations"].as_u64() > Some(0), "{name} did nothing: {row}");
    }
    let has_counters = row["subject"]["kind"] == "myriad";
    ensure!(
        !has_counters || row["counters"]["syscalls.read"].as_f64() > Some(0.0),
        "no count of reads: {row}"
    );
    Ok(())
}
