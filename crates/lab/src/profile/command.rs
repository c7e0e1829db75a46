//! `myriad-lab profile`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{CellProfile, Change, Labels, Options, Profile, Share};
use crate::command_line::{CommandLine, Job, Subcommand, print};
use crate::definition::{Cell, Definition};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "profile",
    about: "Show where a process spends its processor time: flame graph, table",
    read: command,
};

const HELP: &str = "\
Shows where a process spends its processor time.

Usage:
  myriad-lab profile --pid PID --out FILE.svg [OPTIONS]
  myriad-lab profile DEFINITION.toml --cell N [--against M] --out FILE.svg [OPTIONS]
  myriad-lab profile --difference BEFORE.folded AFTER.folded --out FILE.svg

Writes a flame graph to FILE.svg and the samples, one line per stack, to FILE.folded; prints the
functions with the most samples.

With a definition: starts the subject and the load of cell N (from 0, as in rows), and profiles the
subject in the measured phase. With --against, also profiles cell M, writes FILE-N.svg and
FILE-M.svg, and to FILE.svg the difference: the flame graph of N in which functions with a greater share
than in M are red, those with a smaller one blue. --difference draws the same from two files.

      --pid <PID>            A running process; all its threads
      --cell <N>             A cell of the definition
      --against <M>          Another cell, to compare it with
      --seconds <SECONDS>    Duration, 1 to 3600 [10; with a definition, its measured phase]
      --frequency <NUMBER>   Samples per second of each thread's processor time [999]
      --thread <NAME>        Only threads of this name: r00
      --top <NUMBER>         Functions to print [20]
      --out <FILE.svg>       Output file of the flame graph
  -h, --help                 Print this

Requires root or the owner of the process. Callers are found by frame pointers; a program
built without them shows its innermost functions only.
";

const SECONDS: u64 = 10;
const SECONDS_MAX: u64 = 3_600;

#[derive(Debug)]
struct Request {
    work: Work,
    svg: PathBuf,
    /// Number of functions to print.
    top: usize,
}

#[derive(Debug)]
enum Work {
    Help,
    Process {
        pid: u32,
        duration: Duration,
        options: Options,
    },
    Cells {
        file: PathBuf,
        cell: usize,
        against: Option<usize>,
        seconds: Option<u64>,
        options: Options,
    },
    Difference {
        before: PathBuf,
        after: PathBuf,
    },
}

fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let request = parse(parser)?;
    Ok(Box::new(move || run(&request)))
}

fn run(request: &Request) -> Result<()> {
    match &request.work {
        Work::Help => print(HELP),
        Work::Process { pid, duration, options } => {
            let profile = super::record(*pid, *duration, options)?;
            print(&request.write(&profile, &request.svg, &format!("Process {pid}"))?)
        }
        Work::Cells { file, cell, against, seconds, options } => {
            let mut definition = Definition::read(file)?;
            if let Some(seconds) = seconds {
                definition.set_cell_ms(seconds * 1_000);
            }
            let program =
                std::env::current_exe().context("could not find this program's executable")?;
            let stop = crate::command_line::stop_on_signals()?;
            let record = |number: usize| {
                let cell = chosen(&definition, number)?;
                super::record_cell(cell, &program, options, &stop)
                    .with_context(|| format!("could not profile cell {number}"))
            };
            let name = |number: usize| cell_name(&definition, number);
            match against {
                None => print(&request.write_cell(&record(*cell)?, &request.svg, &name(*cell))?),
                Some(against) => {
                    chosen(&definition, *against)?;
                    let (after, before) = (record(*cell)?, record(*against)?);
                    print(&request.write_cell(
                        &before,
                        &request.svg_of(*against),
                        &name(*against),
                    )?)?;
                    print(&request.write_cell(&after, &request.svg_of(*cell), &name(*cell))?)?;
                    let title =
                        format!("{}: cell {cell} compared with cell {against}", definition.name);
                    let (before, after) = (before.profile.folded(), after.profile.folded());
                    print(&request.write_difference(&before, &after, title)?)
                }
            }
        }
        Work::Difference { before, after } => {
            let title = format!("{} compared with {}", after.display(), before.display());
            print(&request.write_difference(&read_file(before)?, &read_file(after)?, title)?)
        }
    }
}

fn parse(parser: &mut CommandLine<'_>) -> Result<Request> {
    use lexopt::prelude::*;
    let (mut pid, mut file, mut difference) = (None, None, None);
    let (mut cell, mut against, mut seconds) = (None, None, None);
    let mut options = Options::default();
    let mut svg: Option<PathBuf> = None;
    let mut top = 20;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                return Ok(Request { work: Work::Help, svg: PathBuf::new(), top });
            }
            Long("pid") => pid = Some(parser.value()?),
            Long("cell") => cell = Some(parser.value()?),
            Long("against") => against = Some(parser.value()?),
            Long("seconds") => seconds = Some(parser.value()?),
            Long("frequency") => options.frequency = parser.value()?,
            Long("thread") => options.thread = Some(parser.text()?),
            Long("top") => top = parser.value()?,
            Long("out") => svg = Some(parser.path()?),
            Long("difference") => {
                difference = Some((parser.path()?, parser.path()?));
            }
            Value(value) if file.is_none() => file = Some(value.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let seconds_given: Option<u64> = seconds;
    if seconds_given.is_some_and(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
        bail!("--seconds must be 1 to {SECONDS_MAX}");
    }
    ensure!(options.frequency > 0, "--frequency must be at least 1");
    let work = match (pid, file, difference) {
        (Some(pid), None, None) => {
            let duration = Duration::from_secs(seconds_given.unwrap_or(SECONDS));
            Work::Process { pid, duration, options }
        }
        (None, Some(file), None) => {
            let Some(cell) = cell else { bail!("missing --cell N: a definition has several") };
            Work::Cells { file, cell, against, seconds: seconds_given, options }
        }
        (None, None, Some((before, after))) => Work::Difference { before, after },
        _ => {
            bail!("specify one of: --pid PID, DEFINITION.toml --cell N, --difference BEFORE AFTER")
        }
    };
    if !matches!(work, Work::Cells { .. }) && (cell.is_some() || against.is_some()) {
        bail!("--cell and --against require a definition");
    }
    let Some(svg) = svg else { bail!("missing --out FILE.svg") };
    Ok(Request { work, svg, top })
}

fn chosen(definition: &Definition, number: usize) -> Result<&Cell> {
    definition.cells.get(number).with_context(|| {
        let count = definition.cells.len();
        format!(
            "{} has {count} cells, 0 to {}: cell {number} does not exist",
            definition.name,
            count - 1
        )
    })
}

/// Formats a name: `s4.t1 cell 16: load.mode=mutex load.threads=1`.
fn cell_name(definition: &Definition, number: usize) -> String {
    let mut name = format!("{} cell {number}", definition.name);
    for (index, (path, value)) in definition.cells[number].parameters.iter().enumerate() {
        let _ = write!(name, "{}{path}={value}", if index == 0 { ": " } else { " " });
    }
    name
}

impl Request {
    /// Returns the path of the flame graph of one of two cells.
    fn svg_of(&self, cell: usize) -> PathBuf {
        let name = self.svg.file_stem().unwrap_or_default().to_string_lossy();
        self.svg.with_file_name(format!("{name}-{cell}.svg"))
    }

    fn write_cell(&self, cell: &CellProfile, svg: &Path, title: &str) -> Result<String> {
        let text = self.write(&cell.profile, svg, title)?;
        let (operations, duration_ns) = (cell.report.operations, cell.report.duration_ns);
        Ok(format!("{title}\n{}\n{text}", rates(operations, duration_ns, cell.profile.cpu_ns)))
    }

    /// Writes the flame graph and, next to it, the folded stacks. Returns the text to print.
    fn write(&self, profile: &Profile, svg: &Path, title: &str) -> Result<String> {
        let folded = profile.folded();
        let folded_path = svg.with_extension("folded");
        write_file(&folded_path, &folded)?;
        let mut text = format!("{}\n", profile.summary());
        if profile.samples == 0 {
            text.push_str("No processor time was used: there is nothing to draw.\n");
            return Ok(text);
        }
        let labels = Labels { title: title.to_owned(), subtitle: profile.summary() };
        write_file(svg, &super::flame_graph(&folded, &labels)?)?;
        text.push_str(&share_table(&super::shares(&folded), self.top));
        let _ = writeln!(text, "\n{}\n{}\n", svg.display(), folded_path.display());
        Ok(text)
    }

    fn write_difference(&self, before: &str, after: &str, title: String) -> Result<String> {
        let subtitle = "red: a greater share than before; blue: a smaller one".to_owned();
        let svg = super::difference(before, after, &Labels { title, subtitle })?;
        write_file(&self.svg, &svg)?;
        let table = change_table(&super::changes(before, after), self.top);
        Ok(format!("{table}\n{}\n", self.svg.display()))
    }
}

#[allow(clippy::cast_precision_loss)] // for display
fn rates(operations: u64, duration_ns: u64, cpu_ns: u64) -> String {
    let count = operations.max(1) as f64;
    let per_second = operations as f64 * 1e9 / duration_ns.max(1) as f64;
    format!("{per_second:.0} operations/s, {:.3} us of CPU each", cpu_ns as f64 / 1e3 / count)
}

fn read_file(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn share_table(shares: &[Share], top: usize) -> String {
    let mut text = String::from("\n  self   total  samples  function\n");
    for share in shares.iter().take(top) {
        let _ = writeln!(
            text,
            "{:5.1} % {:5.1} % {:8}  {}",
            share.relative_own * 100.0,
            share.relative_with_callees * 100.0,
            share.own,
            share.function
        );
    }
    text
}

fn change_table(changes: &[Change], top: usize) -> String {
    let mut text = String::from("before   after  change  function (own time)\n");
    for change in changes.iter().take(top) {
        let _ = writeln!(
            text,
            "{:5.1} % {:5.1} % {:+6.1}  {}",
            change.before * 100.0,
            change.after * 100.0,
            (change.after - change.before) * 100.0,
            change.function
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;

    fn check(arguments: &[&str], expected: &str) {
        let mut parser = Parser::from_args(arguments);
        let error = parse(&mut CommandLine::new(&mut parser)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn missing_and_wrong_arguments_are_reported() {
        check(&["--pid", "1"], "missing --out FILE.svg");
        let one = "specify one of: --pid PID, DEFINITION.toml --cell N, --difference BEFORE AFTER";
        check(&["--out", "a.svg"], one);
        check(&["--out", "a.svg", "--pid", "1", "--difference", "a", "b"], one);
        check(&["--out", "a.svg", "--pid", "1", "a.toml", "--cell", "1"], one);
        let missing = "missing --cell N: a definition has several";
        check(&["--out", "a.svg", "a.toml"], missing);
        let misplaced = "--cell and --against require a definition";
        check(&["--out", "a.svg", "--pid", "1", "--cell", "1"], misplaced);
        let seconds = ["--out", "a.svg", "--pid", "1", "--seconds", "0"];
        check(&seconds, "--seconds must be 1 to 3600");
        let frequency = ["--out", "a.svg", "--pid", "1", "--frequency", "0"];
        check(&frequency, "--frequency must be at least 1");
    }

    #[test]
    fn cells_are_told_by_what_the_grid_sets() {
        let text = "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"log\"\n\
                    [grid]\n\"load.threads\" = [1, 2]\n";
        let definition = Definition::parse(text, Path::new("a.toml")).unwrap();
        assert_eq!(cell_name(&definition, 1), "a cell 1: load.threads=2");
        let error = chosen(&definition, 2).unwrap_err().to_string();
        assert_eq!(error, "a has 2 cells, 0 to 1: cell 2 does not exist");
    }

    #[test]
    fn tables_show_shares_in_percent() {
        let shares = super::super::shares("r;a;b 3\nr;a 1\n");
        assert_eq!(
            share_table(&shares, 1),
            "\n  self   total  samples  function\n 75.0 %  75.0 %        3  b\n"
        );
        let changes = super::super::changes("r;a 1\nr;b 1\n", "r;a 3\nr;b 1\n");
        let table = change_table(&changes, 1);
        assert!(table.ends_with(" 50.0 %  75.0 %  +25.0  a\n"), "{table}");
    }
}
