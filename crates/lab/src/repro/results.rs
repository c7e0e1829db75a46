//! What has been measured, table by table, as one document.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::compatibility::{self, Compatibility};
use super::finding::Finding;
use super::outcome::{Outcome, outcome};
use super::profiles::{self, Profiles};
use super::sheet::{Sheet, verdict_name};
use super::source::{self, Run, Table};
use crate::measure::Machine;
use crate::row::{Row, Verdict};
use crate::run::RunFolder;

const ROWS: &str = "rows.jsonl";
const MACHINE: &str = "machine.json";

/// Everything that folders of results hold.
#[derive(Debug, Default)]
pub struct Results {
    runs: Vec<Measured>,
    compatibility: Option<Compatibility>,
    profiles: Option<Profiles>,
    /// By name.
    findings: BTreeMap<String, Finding>,
}

/// A run of a definition.
#[derive(Debug)]
struct Measured {
    definition: String,
    machine: Machine,
    rows: Vec<Row>,
}

impl Results {
    /// Reads folders of runs, or folders that hold such folders.
    pub fn read(folders: &[PathBuf]) -> Result<Self> {
        let mut results = Self::default();
        for folder in folders {
            if !results.add(folder)? {
                for inner in subfolders(folder)? {
                    results.add(&inner)?;
                }
            }
        }
        if !results.has_any() {
            bail!("no results in {}", shown_paths(folders));
        }
        Ok(results)
    }

    /// False if the folder holds no results itself.
    fn add(&mut self, folder: &Path) -> Result<bool> {
        if folder.join(compatibility::FILE).exists() {
            self.compatibility = Some(Compatibility::read(folder)?);
            return Ok(true);
        }
        if folder.join(profiles::FILE).exists() {
            self.profiles = Some(Profiles::read(folder)?);
            return Ok(true);
        }
        if let Some(found) = Finding::read(folder)? {
            self.findings.insert(found.name.clone(), found);
            return Ok(true);
        }
        if !folder.join(ROWS).exists() {
            return Ok(false);
        }
        let run = RunFolder::open(folder)?;
        let path = folder.join(MACHINE);
        let machine = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let machine: Machine =
            serde_json::from_slice(&machine).with_context(|| format!("read {}", path.display()))?;
        let definition = run.definition()?.name;
        let rows = run.rows()?;
        if let Some(before) = self.runs.iter().find(|run| run.definition == definition) {
            bail!(
                "{definition} is there twice, with {} and {} rows: give one of its folders",
                before.rows.len(),
                rows.len()
            );
        }
        self.runs.push(Measured { definition, machine, rows });
        Ok(true)
    }

    fn has_any(&self) -> bool {
        !self.runs.is_empty()
            || self.compatibility.is_some()
            || self.profiles.is_some()
            || !self.findings.is_empty()
    }

    /// The outcome of a table, if it has been measured.
    pub fn outcome(&self, table: &'static Table) -> Option<Outcome> {
        let Some(Run::Definition(name)) = &table.run else { return None };
        let run = self.runs.iter().find(|run| run.definition == *name)?;
        Some(outcome(table, &run.rows, run.machine.cores))
    }

    /// The whole document.
    pub fn markdown(&self) -> String {
        let mut parts = vec![
            "# Results\n\nMade by `myriad lab results DIR --markdown`; how to make it again is said in \
             [benchmarks/README.md](../benchmarks/README.md).\n"
                .to_owned(),
            self.machines(),
            "## All tables\n".to_owned(),
            self.overview(),
            LEGEND.to_owned(),
        ];
        parts.extend(source::tables().filter_map(|table| self.section(table)));
        parts.join("\n")
    }

    /// What was measured where and when; one line for all runs that agree in that.
    fn machines(&self) -> String {
        let mut lines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for run in &self.runs {
            lines.entry(describe(run)).or_default().push(&run.definition);
        }
        let count = lines.len();
        let line = |(text, names): (&String, &Vec<&str>)| match count {
            1 => format!("{text}\n"),
            _ => format!("{}: {text}\n", names.join(", ")),
        };
        lines.iter().map(line).collect::<Vec<String>>().join("\n")
    }

    /// One line per table of the source documents.
    fn overview(&self) -> String {
        let row = |table: &'static Table| {
            let (shapes, rows) = self.summary(table);
            [table.id.clone(), table.title.clone(), shapes, rows]
        };
        let rows = source::tables().map(row).collect();
        Sheet::new(["table", "what", "shapes", "measurements"], rows).markdown()
    }

    fn summary(&self, table: &'static Table) -> (String, String) {
        if let Some(missing) = table.missing() {
            return (String::new(), missing.to_owned());
        }
        match (&table.run, self.outcome(table)) {
            (_, Some(outcome)) => (shapes(&outcome), verdicts(&outcome)),
            (Some(Run::Tests(commands)), None) => (String::new(), code(commands)),
            (Some(Run::Compatibility(_)), None) => {
                (String::new(), self.compatibility.as_ref().map_or(NOT_HERE.into(), tests))
            }
            (Some(Run::Profile(_)), None) => {
                let count = |profiles: &Profiles| format!("{} profiles", profiles.cells.len());
                (String::new(), self.profiles.as_ref().map_or(NOT_HERE.into(), count))
            }
            (Some(Run::Ablation(name) | Run::Experiment(name)), None) => {
                match self.findings.get(name) {
                    Some(found) => (found.verdict().to_owned(), found.numbers()),
                    None => (String::new(), NOT_HERE.into()),
                }
            }
            (_, None) => (String::new(), NOT_HERE.into()),
        }
    }

    fn section(&self, table: &'static Table) -> Option<String> {
        let head = format!("## {}: {}\n\n{}\n", table.id, table.title, table.shows);
        if let Some(Run::Ablation(name) | Run::Experiment(name)) = &table.run {
            let found = self.findings.get(name)?;
            return Some(format!("{head}\n{}\n{}", found.sheet().markdown(), found.remark()));
        }
        let sheet = match (&table.run, &self.compatibility, &self.profiles) {
            (Some(Run::Compatibility(_)), Some(compatibility), _) => Some(compatibility.sheet()),
            (Some(Run::Profile(_)), _, Some(profiles)) => Some(profiles.sheet()),
            _ => None,
        };
        if let Some(sheet) = sheet {
            return Some(format!("{head}\n{}", sheet.markdown()));
        }
        let outcome = self.outcome(table)?;
        let mut section = format!("{head}\n{}", Sheet::of_outcome(&outcome).markdown());
        if !outcome.statements.is_empty() {
            section += "\n";
            section += &Sheet::of_statements(&outcome.statements).markdown();
        }
        Some(section)
    }
}

const NOT_HERE: &str = "not measured here";

const LEGEND: &str = "\
Shapes: statements about a table that should hold on any machine, judged on intervals, in the source and in ours; a ratio \
of machines that are years apart says little. Figures are `median [low, high]`, 95 %, over repeats; of one repeat, over its \
windows. `*`: more threads than cores. Verdicts other than `ok` say why a figure is no more than a lower bound or a hint: \
`client-bound` (the load was the limit), `noisy`, `env-changed` (other programs used the machine).
";

/// `2026-11-21, commit abc, 3 cells...`.
fn describe(run: &Measured) -> String {
    let machine = &run.machine;
    let first_ms = run.rows.iter().map(|row| row.started_unix_ms).min().unwrap_or_default();
    let commit = run.rows.first().map_or("", |row| row.commit.as_str());
    let repeats = run.rows.iter().map(|row| row.repeat + 1).max().unwrap_or_default();
    format!(
        "{} on {}, {} cores, {:.0} GiB, Linux {}, machine `{}`, commit `{}`; {repeats} repeats of {}.",
        date(first_ms),
        machine.cpu_model,
        machine.cores,
        gib(machine.memory_bytes),
        machine.kernel,
        machine.hash,
        if commit.is_empty() { "unknown" } else { commit },
        durations(&run.rows),
    )
}

/// `2026-11-21`.
fn date(unix_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

#[allow(clippy::cast_precision_loss)]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// `0.5 s`, or `0.5 to 3 s`.
fn durations(rows: &[Row]) -> String {
    let durations = || rows.iter().map(|row| row.load.duration_ms);
    let shown =
        |ms: Option<u64>| format!("{} s", super::sheet::shown(seconds(ms.unwrap_or_default())));
    let (shortest, longest) = (shown(durations().min()), shown(durations().max()));
    if shortest == longest { shortest } else { format!("{shortest} to {longest}") }
}

#[allow(clippy::cast_precision_loss)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// `3 of 5 agree; 1 differs; 1 undecided`, or for statements of our own `2 of 3 hold`.
fn shapes(outcome: &Outcome) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for statement in &outcome.statements {
        *counts.entry(statement.verdict()).or_insert(0) += 1;
    }
    let parts: Vec<String> =
        counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    parts.join(", ")
}

fn verdicts(outcome: &Outcome) -> String {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    for line in &outcome.lines {
        for (verdict, count) in &line.verdicts {
            *counts.entry(*verdict).or_insert(0) += count;
        }
    }
    let part = |(verdict, count): (&Verdict, &usize)| format!("{count} {}", verdict_name(*verdict));
    counts.iter().map(part).collect::<Vec<String>>().join(", ")
}

fn tests(compatibility: &Compatibility) -> String {
    let failed = compatibility.failure_count();
    format!("{} passed, {failed} failed", compatibility.tests.len() - failed)
}

fn code(commands: &[String]) -> String {
    let quoted: Vec<String> = commands.iter().map(|command| format!("`{command}`")).collect();
    quoted.join(", ")
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn shown_paths(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{compatibility, definitions, fixture};
    use crate::subject::Scratch;

    /// Appends of table s4.t1: the lock slower with threads, ours always the same.
    fn results() -> Results {
        let cells = definitions::find("s4.t1").unwrap().cells;
        let row = |(index, cell): (usize, crate::definition::Cell)| {
            let threads = cell.parameters["load.threads"].as_u64().unwrap();
            let is_ours = cell.parameters["load.mode"] == "lanes";
            let mut row = fixture::log_row(if is_ours { "lanes" } else { "mutex" }, threads);
            (row.cell, row.parameters) = (index, cell.parameters);
            row.started_unix_ms = 1_795_248_356_000;
            row.commit = "abc".into();
            let rate = if is_ours { 3e7 } else { 1e6 - 1_000.0 * fixture::real(threads) };
            fixture::set_rate(&mut row, rate);
            row
        };
        let rows = cells.into_iter().enumerate().map(row).collect();
        let machine = Machine { cpu_model: "Big".into(), cores: 2, ..Machine::default() };
        let run = Measured { definition: "s4.t1".into(), machine, rows };
        Results { runs: vec![run], ..Results::default() }
    }

    #[test]
    fn the_document_has_machine_overview_and_tables() {
        let text = results().markdown();
        for part in [
            "# Results\n",
            "2026-11-21 on Big, 2 cores",
            "commit `abc`; 1 repeats of 3 s.",
            "| s4.r6 | Conflicts between masters |  | there is no replication between masters yet |",
            "| s4.t1 | A lock per append, 5 bytes | 1 agrees, 3 holds | 18 ok |",
            "| s4.t2 | Group appends, 5 bytes |  | not measured here |",
            "## s4.t1: A lock per append, 5 bytes",
            "| 480 | 18,634 | 5769 |",
            "| Our log loses nothing by threads | - | yes | holds |",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(!text.contains("## s4.t2"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("# ")).count(), 1);
    }

    #[test]
    fn folders_without_results_are_refused() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let folder = scratch.path().to_owned();
        let error = Results::read(std::slice::from_ref(&folder)).unwrap_err();
        assert_eq!(error.to_string(), format!("no results in {}", folder.display()));
        assert!(Results::read(&[folder.join("none")]).is_err());
    }

    #[test]
    fn folders_in_a_folder_are_found() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let inner = scratch.path().join("s1.r11");
        std::fs::create_dir(&inner).unwrap();
        let test = compatibility::Test {
            name: "set".into(),
            pipeline: 1,
            per_second: Some(1.0),
            error: String::new(),
        };
        let tool = Compatibility { subject: "myriad 1".into(), tests: vec![test] };
        tool.write(&inner).unwrap();
        let results = Results::read(&[scratch.path().to_owned()]).unwrap();
        assert_eq!(results.compatibility, Some(tool));
        assert!(results.markdown().contains("## s1.r11"));
    }
}
