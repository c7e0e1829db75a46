//! `myriad-lab layers`: the cost of each server layer for a request, by responding earlier and
//! earlier.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::command_line::stop_on_signals;
use crate::command_line::{CommandLine, Job, print, printing};
use crate::repro::definitions;
use crate::repro::figure::Figure;
use crate::repro::sheet::Sheet;
use crate::row::{Row, Verdict};
use crate::run::{Options, RunFolder, Terminal, run};
use crate::stats::{Estimate, median_interval};

const HELP: &str = "\
Usage: myriad-lab layers [OPTIONS]
       myriad-lab layers DIR

Measures a CQL request on servers that respond earlier and earlier, down to a program that
only echoes its input, and prints the cost of each layer in between: processor time of the server
per request, median [low,high] repeats. With DIR, evaluates the rows in that folder instead.

      --quick             One repeat, measured phases of half a second
      --repeats <N>       Repeats of each cell [5]
      --cell-ms <MS>      Length of measured phases [3000]
      --out <DIR>         Put rows there; else into target/lab/s1.r10-TIME
      --quiet-wait <S>    Delay a measurement for up to this time while other programs use the
                          machine [60, with --quick 5]; after that, measure and mark it
  -h, --help              Print this
";

/// A read and a write, on every level.
const DEFINITION: &str = "s1.r10";

/// How a request is answered, and the additional work compared with the previous level.
struct Level {
    /// Option of the server; `None`: an echo instead of the server.
    stub: Option<u64>,
    answered: &'static str,
    adds: &'static str,
}

/// From least to most.
const LEVELS: [Level; 7] = [
    Level { stub: None, answered: "by an echo", adds: "sockets, reactor" },
    Level { stub: Some(5), answered: "unparsed", adds: "turn of the server: counters and timers" },
    Level { stub: Some(4), answered: "by its header", adds: "frames, and a response for each" },
    Level { stub: Some(3), answered: "decoded", adds: "decoding the request" },
    Level { stub: Some(2), answered: "found", adds: "finding the prepared statement" },
    Level {
        stub: Some(1),
        answered: "run",
        adds: "executing it: locks, data, log, rows in the response",
    },
    Level { stub: Some(0), answered: "in full", adds: "waiting for the log if required" },
];

/// `myriad-lab layers`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let program = std::env::current_exe().context("could not find this program's executable")?;
    let Some((options, folder)) = parse(parser, program)? else { return Ok(printing(HELP)) };
    Ok(Box::new(move || run_or_print(options, folder)))
}

fn run_or_print(mut options: Options, folder: Option<PathBuf>) -> Result<()> {
    if let Some(folder) = folder {
        return print(&text(&RunFolder::open(&folder)?.rows()?)?);
    }
    options.stop = stop_on_signals()?;
    let definition = definitions::find(DEFINITION)?;
    let folder = run(&definition, &options, &mut Terminal::default())?;
    if !folder.is_complete {
        bail!(
            "interrupted; to see the results so far: myriad-lab layers {}",
            folder.path().display()
        );
    }
    print(&text(&folder.rows()?)?)
}

/// Returns `None` if help was requested, and the folder if rows exist already.
fn parse(
    parser: &mut CommandLine<'_>,
    program: PathBuf,
) -> Result<Option<(Options, Option<PathBuf>)>> {
    use lexopt::prelude::*;
    let (mut options, mut folder) = (Options::new(program), None);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("quick") => options.quick = true,
            Long("repeats") => options.repeats = Some(parser.value()?),
            Long("cell-ms") => options.cell_ms = Some(parser.value()?),
            Long("out") => options.out = Some(parser.path()?),
            Long("quiet-wait") => {
                options.quiet_wait = Some(Duration::from_secs(parser.value()?));
            }
            Value(path) if folder.is_none() => folder = Some(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some((options, folder)))
}

/// Formats a table for each measured request.
fn text(rows: &[Row]) -> Result<String> {
    let mut requests: Vec<&Value> = Vec::new();
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| row.cell);
    for row in sorted {
        let mix =
            row.parameters.get("load.mix").context("the rows belong to another definition")?;
        if !requests.contains(&mix) {
            requests.push(mix);
        }
    }
    let mut sheets = Vec::new();
    for mix in requests {
        let of_mix = |row: &&Row| row.parameters.get("load.mix") == Some(mix);
        let of_mix: Vec<&Row> = rows.iter().filter(of_mix).collect();
        let name = mix[0]["words"][0].as_str().unwrap_or_default();
        sheets.push(format!("{name}\n\n{}\n", sheet(&of_mix).text()));
    }
    Ok(sheets.concat())
}

/// One line for each level.
fn sheet(rows: &[&Row]) -> Sheet {
    let mut lines = Vec::new();
    let mut before: Vec<&Row> = Vec::new();
    for level in &LEVELS {
        let of_level = level.counted(rows);
        let figure = |figure: Figure| shown(figure.estimate(&of_level));
        let added = if level.stub.is_none() {
            Figure::CpuNsPerOperation.estimate(&of_level)
        } else {
            difference(&of_level, &before)
        };
        lines.push([
            level.stub.map_or("-".to_owned(), |stub| stub.to_string()),
            level.answered.to_owned(),
            figure(Figure::OperationsPerSecond),
            figure(Figure::CpuNsPerOperation),
            shown(added),
            level.adds.to_owned(),
        ]);
        before = of_level;
    }
    Sheet::new(["stub", "answered", "per second", "CPU ns", "of it new", "for"], lines)
}

impl Level {
    fn is_of(&self, row: &Row) -> bool {
        let stub = row.parameters.get("subject.options.stub");
        stub.and_then(Value::as_u64) == self.stub
    }

    /// Returns the rows that enter the figures. A reactor that waits for its load finds fewer
    /// requests per turn, and each costs more: client-bound rows count only if there are no others.
    fn counted<'a>(&self, rows: &[&'a Row]) -> Vec<&'a Row> {
        let mut counted: Vec<&Row> =
            rows.iter().copied().filter(|row| self.is_of(row) && is_usable(row)).collect();
        let is_busy = |row: &Row| !matches!(row.verdict, Verdict::ClientBound);
        if counted.iter().any(|row| is_busy(row)) {
            counted.retain(|row| is_busy(row));
        }
        counted
    }
}

/// Rows with losses are not usable.
fn is_usable(row: &Row) -> bool {
    !matches!(row.verdict, Verdict::Stalled | Verdict::Lossy | Verdict::Failed | Verdict::Skipped)
}

/// Difference between two levels, by repeat: measurements of a repeat are close in time.
fn difference(level: &[&Row], before: &[&Row]) -> Option<Estimate> {
    let cpu_ns = |row: &Row| Figure::CpuNsPerOperation.value(row);
    let of_repeat = |row: &&Row| {
        let other = before.iter().find(|other| other.repeat == row.repeat)?;
        Some(cpu_ns(row)? - cpu_ns(other)?)
    };
    let differences: Vec<f64> = level.iter().filter_map(of_repeat).collect();
    (!differences.is_empty()).then(|| median_interval(&differences))
}

fn shown(estimate: Option<Estimate>) -> String {
    estimate.map_or("-".to_owned(), |estimate| estimate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ThreadUse;

    /// A row with 1,000 operations in a second, with this processor time for each.
    fn row(stub: Option<u64>, repeat: usize, cpu_ns: u64) -> Row {
        let definition = definitions::find(DEFINITION).unwrap();
        let of_stub = |cell: &&crate::definition::Cell| {
            let found = cell.parameters.get("subject.options.stub").and_then(Value::as_u64);
            found == stub
        };
        let cell = definition.cells.iter().find(of_stub).unwrap();
        let mut row = crate::run::empty_row(crate::run::Plan {
            table: DEFINITION,
            definition: "",
            machine: "",
            subject: crate::row::SubjectRow {
                kind: String::new(),
                version: String::new(),
                command_line: Vec::new(),
                cpus: Vec::new(),
            },
            load: cell.load.clone(),
        });
        row.parameters.clone_from(&cell.parameters);
        row.repeat = repeat;
        (row.report.operations, row.report.duration_ns) = (1_000, 1_000_000_000);
        let user_ns = cpu_ns * 1_000;
        row.threads = vec![ThreadUse { name: "r00".into(), user_ns, ..ThreadUse::default() }];
        row
    }

    #[test]
    fn each_level_costs_what_it_uses_more_than_the_one_before() {
        // The machine is slower in the second repeat: differences are within a repeat.
        let costs = [None, Some(5), Some(4), Some(3), Some(2), Some(1), Some(0)];
        let mut rows = Vec::new();
        for (index, stub) in (1_u64..).zip(costs) {
            rows.push(row(stub, 0, 100 * index));
            rows.push(row(stub, 1, 100 * index + 1_000));
        }
        rows.push(Row { verdict: Verdict::Failed, ..row(Some(3), 2, 9_999) });
        let text = text(&rows).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 12, "{text}");
        assert_eq!(lines[0], "SELECT value FROM lab.rows WHERE key = {key}");
        assert!(lines[4].contains("by an echo"), "{text}");
        for line in &lines[5..=10] {
            assert!(line.contains("100.0 [100.0,100.0] 2"), "{text}");
        }
        assert!(lines[10].starts_with("   0") && lines[10].contains("in full"), "{text}");
    }

    #[test]
    fn a_result_limited_by_the_load_is_used_only_if_it_is_the_only_one() {
        let limited = |repeat| Row { verdict: Verdict::ClientBound, ..row(Some(4), repeat, 900) };
        let busy = row(Some(4), 1, 300);
        let cpu = |rows: &[Row]| {
            let rows: Vec<&Row> = rows.iter().collect();
            let rows = LEVELS[2].counted(&rows);
            Figure::CpuNsPerOperation.estimate(&rows).unwrap().median
        };
        assert!((cpu(&[limited(0), busy]) - 300.0).abs() < 0.1);
        assert!((cpu(&[limited(0), limited(1)]) - 900.0).abs() < 0.1);
    }

    #[test]
    fn the_definition_has_every_level_twice() {
        let cells = definitions::find(DEFINITION).unwrap().cells;
        assert_eq!(cells.len(), 2 * LEVELS.len());
        for level in &LEVELS {
            let stub = |cell: &crate::definition::Cell| {
                cell.parameters.get("subject.options.stub").and_then(Value::as_u64)
            };
            assert_eq!(cells.iter().filter(|cell| stub(cell) == level.stub).count(), 2);
        }
    }
}
