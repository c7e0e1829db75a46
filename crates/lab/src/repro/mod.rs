//! `myriad-lab repro`: re-runs the tables of the source documents and compares the results with the
//! published values. `myriad-lab results` combines them into one document.

mod ablation;
pub(crate) mod compatibility;
pub(crate) mod definitions;
pub(crate) mod figure;
pub(crate) mod finding;
#[cfg(test)]
mod fixture;
mod masters;
pub(crate) mod outcome;
pub(crate) mod profiles;
pub(crate) mod results;
pub(crate) mod shape;
pub(crate) mod sheet;
pub(crate) mod source;
mod web;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::command_line::{self, CommandLine, Job};
use crate::definition::Definition;
use crate::report;
use crate::run::{self, RunFolder, Terminal};
use crate::subject::myriad;
pub(crate) use ablation::command as ablation_command;
use compatibility::Compatibility;
use figure::Figure;
use finding::Finding;
use masters::convergence::{self, Convergence};
use outcome::is_joined;
use profiles::{ProfiledCell, Profiles};
use results::Results;
use shape::{Range, matches};
use sheet::Sheet;
use source::{Run, Table};

const HELP: &str = "\
Re-runs tables of the source documents, and compares the results with the published values.

Usage: myriad-lab repro (TABLE|DOCUMENT|all|redis|cassandra|web)... [OPTIONS]

  TABLE, DOCUMENT    s1.t6, or s1 for all of that document; redis, cassandra, web: compared
                     with these servers, the last with nginx
  -l, --list         Print all tables, and run_description each is run
      --quick        One repeat, measured phases of half a second
      --out <DIR>    Folder for results, with a subfolder per table; existing results are kept
                     [target/lab/repro]
      --quiet-wait <S>  Delay a measurement for up to this time while other programs use the
                     machine [60, with --quick 5]; after that, measure and mark it
  -h, --help         Print this

Ctrl-C drops the cell that is being measured; the same command resumes from there.
";

const RESULTS_HELP: &str = "\
Prints the measurements, table by table, next to the values of the source documents.

Usage: myriad-lab results DIR... [--markdown]

  DIR           Folder written by repro or run, or a folder of such folders
  --markdown    Write a document: benchmarks/record/results.md
";

/// Default folder for results.
const OUT: &str = "target/lab/repro";
/// The source's figures by the parameters of our cells, for the report.
const SOURCE: &str = "source.json";

/// The parsed command line.
#[derive(Debug)]
struct Arguments {
    names: Vec<String>,
    only_list: bool,
    is_quick: bool,
    out: PathBuf,
    quiet_wait: Option<Duration>,
}

/// `myriad-lab repro`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let Some(arguments) = parse(parser)? else { return Ok(command_line::printing(HELP)) };
    let tables = chosen(&arguments.names)?;
    if arguments.only_list {
        return Ok(command_line::printing(list(&tables)));
    }
    ensure!(!arguments.names.is_empty(), "missing table or all; see myriad-lab repro --list");
    Ok(Box::new(move || measure(arguments, tables)))
}

fn measure(arguments: Arguments, tables: Vec<&'static Table>) -> Result<()> {
    let session = Session {
        program: std::env::current_exe().context("could not find this program's executable")?,
        stop: command_line::stop_on_signals()?,
        arguments,
        has_measured: Cell::new(false),
    };
    for table in tables {
        command_line::print(&format!("{}: {}\n{}\n\n", table.id, table.title, table.shows))?;
        command_line::print(&format!("{}\n", session.run(table)?))?;
        if session.stop.load(Ordering::Relaxed) {
            bail!("stopped; results are kept, and the same command resumes from there");
        }
    }
    session.report()
}

/// Returns `None` if help was requested.
fn parse(parser: &mut CommandLine<'_>) -> Result<Option<Arguments>> {
    use lexopt::prelude::*;
    let mut arguments = Arguments {
        names: Vec::new(),
        only_list: false,
        is_quick: false,
        out: OUT.into(),
        quiet_wait: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Short('l') | Long("list") => arguments.only_list = true,
            Long("quick") => arguments.is_quick = true,
            Long("out") => arguments.out = parser.path()?,
            Long("quiet-wait") => {
                arguments.quiet_wait = Some(Duration::from_secs(parser.value()?));
            }
            Value(name) => arguments.names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(arguments))
}

/// `myriad-lab results`.
pub(crate) fn results_command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    let mut folders = Vec::new();
    let mut is_markdown = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(command_line::printing(RESULTS_HELP)),
            Long("markdown") => is_markdown = true,
            Value(folder) => folders.push(PathBuf::from(folder)),
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(!folders.is_empty(), "missing folder; see myriad-lab results --help");
    Ok(Box::new(move || print_results(&folders, is_markdown)))
}

fn print_results(folders: &[PathBuf], is_markdown: bool) -> Result<()> {
    let results = Results::read(folders)?;
    if is_markdown {
        return command_line::print(&results.markdown());
    }
    let outcomes = source::tables().filter_map(|table| results.outcome(table));
    for outcome in outcomes {
        let table = outcome.table;
        command_line::print(&format!("{}: {}\n{}\n\n", table.id, table.title, table.shows))?;
        command_line::print(&format!("{}\n", text(&outcome)))?;
    }
    Ok(())
}

/// Returns the tables of these names, each once, in the order of the documents; all without names.
fn chosen(names: &[String]) -> Result<Vec<&'static Table>> {
    if let Some(unknown) =
        names.iter().find(|name| !source::tables().any(|table| table.is_called(name)))
    {
        bail!("unknown table {unknown:?}; see myriad-lab repro --list");
    }
    let wanted = |table: &Table| names.is_empty() || names.iter().any(|name| table.is_called(name));
    Ok(source::tables().filter(|table| wanted(table)).collect())
}

fn list(tables: &[&Table]) -> String {
    let line =
        |table: &&Table| format!("{:<17} {:<62} {}", table.id, table.title, run_description(table));
    let lines: Vec<String> = tables.iter().map(line).collect();
    lines.join("\n") + "\n"
}

/// Describes how the table is run.
fn run_description(table: &Table) -> String {
    match &table.run {
        Run::Definition(name) => format!("benchmarks/definitions/{name}.toml"),
        Run::Tests(commands) => commands.join(", "),
        Run::Compatibility(program) => format!("by {program}"),
        Run::Profile(cells) => format!("profiles of {} cells", cells.len()),
        Run::Ablation(name) => format!("myriad-lab ablation {name}"),
        Run::Experiment(name) if name == masters::NAME => {
            "an experiment with two masters and a hub".to_owned()
        }
        Run::Experiment(name) if name == convergence::NAME => {
            "an experiment with three masters and a hub".to_owned()
        }
        Run::Experiment(_) => "an experiment with myriad web".to_owned(),
    }
}

/// One invocation of `myriad-lab repro`.
struct Session {
    /// This program, which generates load.
    program: PathBuf,
    arguments: Arguments,
    stop: Arc<AtomicBool>,
    /// Whether a definition has been run.
    has_measured: Cell<bool>,
}

impl Session {
    /// Runs the table, and formats the result.
    fn run(&self, table: &'static Table) -> Result<String> {
        match &table.run {
            Run::Definition(name) => self.measure(table, name),
            Run::Compatibility(_) => self.try_tool(table),
            Run::Tests(commands) => Ok(format!("shown by tests: {}\n", commands.join(", "))),
            Run::Profile(cells) => self.profile(table, cells),
            Run::Ablation(name) => {
                let is_quick = self.arguments.is_quick;
                self.store(table, &ablation::measure(&self.program, name, is_quick, &self.stop)?)
            }
            Run::Experiment(name) => {
                let is_quick = self.arguments.is_quick;
                let bench = web::Bench { program: &myriad()?, is_quick, stop: &self.stop };
                if name == convergence::NAME {
                    return self.store_with_page(table, &convergence::measure(&bench)?);
                }
                let found = if name == masters::NAME {
                    masters::measure(&bench)?
                } else {
                    web::measure(name, &bench)?
                };
                self.store(table, &found)
            }
        }
    }

    fn measure(&self, table: &'static Table, name: &str) -> Result<String> {
        let definition = definitions::find(name)?;
        let path = self.arguments.out.join(name);
        let mut options = run::Options::new(self.program.clone());
        options.quick = self.arguments.is_quick;
        options.quiet_wait = self.arguments.quiet_wait;
        options.stop = Arc::clone(&self.stop);
        if path.join("rows.jsonl").exists() {
            options.resume = Some(path.clone());
        } else {
            options.out = Some(path.clone());
        }
        let folder = run::run(&definition, &options, &mut Terminal::default())?;
        self.has_measured.set(true);
        write_source(&folder, &definition)?;
        self.write_repeat(table, &folder)?;
        let results = Results::read(&[path])?;
        let outcome = results.outcome(table).context("the rows belong to another definition")?;
        Ok(text(&outcome))
    }

    /// Stores, for the report, the command that repeats the table.
    fn write_repeat(&self, table: &Table, folder: &RunFolder) -> Result<()> {
        let quick = if self.arguments.is_quick { " --quick" } else { "" };
        let path = folder.path().join(report::REPEAT);
        std::fs::write(&path, format!("myriad-lab repro {}{quick}\n", table.id))
            .with_context(|| format!("write {}", path.display()))
    }

    fn try_tool(&self, table: &Table) -> Result<String> {
        let folder = self.folder(table)?;
        let compatibility = Compatibility::measure(self.arguments.is_quick)?;
        compatibility.write(&folder)?;
        Ok(compatibility.sheet().text())
    }

    fn profile(&self, table: &Table, cells: &[ProfiledCell]) -> Result<String> {
        let folder = self.folder(table)?;
        let (is_quick, stop) = (self.arguments.is_quick, &self.stop);
        let profiles = Profiles::measure(&self.program, cells, &folder, is_quick, stop)?;
        let text = profiles.sheet().text();
        Ok(format!("{text}\nFlame graphs: {}\n", folder.display()))
    }

    fn store(&self, table: &Table, found: &Finding) -> Result<String> {
        found.write(&self.folder(table)?)?;
        Ok(format!("{}\n{}", found.sheet().text(), found.remark()))
    }

    fn store_with_page(&self, table: &Table, found: &Convergence) -> Result<String> {
        let path = self.folder(table)?.join(report::PAGE);
        std::fs::write(&path, found.page()?)
            .with_context(|| format!("write {}", path.display()))?;
        let text = self.store(table, &found.finding())?;
        Ok(format!("{text}\nReport: {}\n", path.display()))
    }

    /// Writes one page with all results, if a table was measured.
    fn report(&self) -> Result<()> {
        let out = &self.arguments.out;
        if !self.has_measured.get() {
            return Ok(());
        }
        let page = report::write(out)?;
        command_line::print(&format!(
            "Report: {}\nAs a document: myriad-lab results {} --markdown\n",
            page.display(),
            out.display()
        ))
    }

    /// Creates a folder for results other than runs of a definition.
    fn folder(&self, table: &Table) -> Result<PathBuf> {
        let folder = self.arguments.out.join(&table.id);
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder)
    }
}

/// Formats the table and its statements.
fn text(outcome: &outcome::Outcome) -> String {
    let mut text = Sheet::of_outcome(outcome).text();
    if !outcome.statements.is_empty() {
        text += "\n";
        text += &Sheet::of_statements(&outcome.statements).text();
    }
    text
}

/// Writes the source's figures next to the rows, where the report finds them.
fn write_source(folder: &RunFolder, definition: &Definition) -> Result<()> {
    let path = folder.path().join(SOURCE);
    let figures = serde_json::to_vec_pretty(&source_figures(definition))?;
    std::fs::write(&path, figures).with_context(|| format!("write {}", path.display()))
}

/// Returns the figures of the source for each cell.
fn source_figures(definition: &Definition) -> Vec<Value> {
    let wanted = Run::Definition(definition.name.clone());
    let tables = source::tables().filter(|table| table.run == wanted);
    let mut figures = Vec::new();
    for table in tables {
        for row in table.source_rows() {
            for cell in &definition.cells {
                if !is_joined(table, &row.parameters, &cell.parameters) {
                    continue;
                }
                let columns = of_cell(table, &row.figures, &cell.parameters);
                if !columns.is_empty() {
                    let parameters = &cell.parameters;
                    figures.push(json!({
                        "table": definition.name, "parameters": parameters, "columns": columns,
                    }));
                }
            }
        }
    }
    figures
}

/// Returns them by their names in rows, as `[low, high]`.
fn of_cell(
    table: &Table,
    source: &BTreeMap<String, Range>,
    cell: &BTreeMap<String, Value>,
) -> BTreeMap<&'static str, [f64; 2]> {
    let columns = table.columns.iter().filter(|column| matches(&column.cells, cell));
    columns
        .filter_map(|column| {
            let Range { low, high } = *source.get(&column.name)?;
            match column.figure? {
                Figure::OperationsPerSecond => Some(("operations_per_second", [low, high])),
                Figure::OperationsPerMinute => {
                    Some(("operations_per_second", [low / 60.0, high / 60.0]))
                }
                Figure::DurationMs(operations) => {
                    #[allow(clippy::cast_precision_loss)]
                    let rate = |ms: f64| operations as f64 / ms * 1e3;
                    Some(("operations_per_second", [rate(high), rate(low)]))
                }
                Figure::CpuPercent => Some(("cpu_percent", [low, high])),
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        chosen(&names).unwrap().iter().map(|table| table.id.as_str()).collect()
    }

    #[test]
    fn tables_are_chosen_by_name_in_their_order() {
        assert_eq!(ids(&["s4.t1", "s1.t6", "s4.t1"]), ["s1.t6", "s4.t1"]);
        assert_eq!(ids(&["s4.prof"]), ["s4.r1"]);
        assert_eq!(ids(&["s0"]).len(), 12);
        assert_eq!(ids(&["redis"]).len(), 9);
        assert_eq!(ids(&["cassandra"]), ["cassandra.cpu"]);
        assert_eq!(ids(&["web"]), ["web.cpu"]);
        let peers = ids(&["redis", "cassandra", "web"]).len();
        assert_eq!(ids(&["all"]).len() + peers, ids(&[]).len());
        assert!(chosen(&["s9".into()]).unwrap_err().to_string().contains("unknown table \"s9\""));
    }

    #[test]
    fn the_list_says_of_each_table_how_it_is_run() {
        let list = list(&chosen(&[]).unwrap());
        assert!(list.contains("benchmarks/definitions/s1.t6.toml"), "{list}");
        for masters in ["two", "three"] {
            let experiment = format!("an experiment with {masters} masters and a hub");
            assert!(list.contains(&experiment), "{list}");
        }
        assert!(list.lines().all(|line| line.len() > 70), "{list}");
    }

    #[test]
    fn the_report_gets_the_figures_of_the_source_by_cell() {
        let figures = source_figures(&definitions::find("s4.t1").unwrap());
        assert_eq!(figures.len(), 9, "{figures:?}");
        let last = &figures[8];
        assert_eq!(last["parameters"]["load.threads"], 1);
        assert_eq!(last["parameters"]["load.mode"], "mutex");
        let rate = last["columns"]["operations_per_second"][0].as_f64().unwrap();
        assert!((rate - 3e6 / 9.531).abs() < 1.0, "{last}");
        assert_eq!(source_figures(&definitions::find("s1.t7").unwrap()).len(), 90);
    }
}
