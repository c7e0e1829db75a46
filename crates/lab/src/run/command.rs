//! `myriad-lab run`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::{Options, RunFolder, Terminal, run, summary};
use crate::command_line::{CommandLine, Job, print, printing, stop_on_signals};
use crate::definition::Definition;

const HELP: &str = "\
Usage: myriad-lab run FILE [OPTIONS]
       myriad-lab run --resume DIR [OPTIONS]

Measures every cell of a definition, and prints a table of all cells: median [low,high] repeats.

      --quick             One repeat, measured phases of half a second
      --out <DIR>         Put results there; else into target/lab/NAME-TIME
      --resume <DIR>      Measure the missing cells there, with the original settings
      --repeats <N>       Overrides the definition
      --cell-ms <MS>      Length of measured phases; overrides the definition
      --seed <N>          Seed of the order of cells, and of keys and arrivals [1]
      --quiet-wait <S>    Delay a measurement for up to this time while other programs use the
                          machine [60, with --quick 5]; after that, measure and mark it
  -h, --help              Print this

Ctrl-C drops the cell that is being measured and keeps the rest.
";

/// The parsed command line.
#[derive(Debug)]
struct Arguments {
    file: Option<PathBuf>,
    options: Options,
}

/// Parses the arguments, and returns the job.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let program = std::env::current_exe().context("could not find this program's executable")?;
    let Some(arguments) = parse(parser, program)? else { return Ok(printing(HELP)) };
    let definition = match (&arguments.file, &arguments.options.resume) {
        (Some(file), _) => Definition::read(file)?,
        (None, Some(folder)) => RunFolder::open(folder)?.definition()?,
        (None, None) => bail!("missing definition file; see myriad-lab run --help"),
    };
    Ok(Box::new(move || measure(arguments, &definition)))
}

fn measure(mut arguments: Arguments, definition: &Definition) -> Result<()> {
    arguments.options.stop = stop_on_signals()?;
    let folder = run(definition, &arguments.options, &mut Terminal::default())?;
    print(&summary(&folder.rows()?))?;
    if !folder.is_complete {
        return Err(interrupted(folder.path()));
    }
    print(&format!("\nA report: myriad-lab report {}\n", folder.path().display()))
}

fn interrupted(folder: &Path) -> anyhow::Error {
    let folder = folder.display();
    anyhow!("stopped; the rows are kept. Continue with: myriad-lab run --resume {folder}")
}

/// Returns `None` if help was requested.
fn parse(parser: &mut CommandLine<'_>, program: PathBuf) -> Result<Option<Arguments>> {
    use lexopt::prelude::*;
    let mut arguments = Arguments { file: None, options: Options::new(program) };
    let options = &mut arguments.options;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("quick") => options.quick = true,
            Long("out") => options.out = Some(parser.path()?),
            Long("resume") => options.resume = Some(parser.path()?),
            Long("repeats") => options.repeats = Some(positive(parser, "--repeats")?),
            Long("cell-ms") => options.cell_ms = Some(positive(parser, "--cell-ms")?),
            Long("seed") => options.seed = parser.value()?,
            Long("quiet-wait") => {
                options.quiet_wait = Some(Duration::from_secs(parser.value()?));
            }
            Value(file) if arguments.file.is_none() => arguments.file = Some(file.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.out.is_some() && options.resume.is_some() {
        bail!("--resume continues in its own folder: it cannot be used with --out");
    }
    Ok(Some(arguments))
}

fn positive<T>(parser: &mut CommandLine<'_>, name: &str) -> Result<T>
where
    T: std::str::FromStr + PartialEq + From<u8>,
    T::Err: std::fmt::Display,
{
    let value: T = parser.value()?;
    if value == T::from(0) {
        bail!("{name} must be 1 or more");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Arguments>, String> {
        parse(&mut CommandLine::new(&mut Parser::from_args(words)), "myriad".into())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn everything_can_be_said() {
        let words = "a.toml --quick --out x --repeats 2 --cell-ms 400 --seed 9 --quiet-wait 0";
        let words: Vec<&str> = words.split(' ').collect();
        let arguments = parsed(&words).unwrap().unwrap();
        let options = arguments.options;
        assert_eq!(arguments.file, Some("a.toml".into()));
        assert_eq!((options.quick, options.repeats, options.cell_ms), (true, Some(2), Some(400)));
        assert_eq!((options.seed, options.quiet_wait), (9, Some(Duration::ZERO)));
        assert!(parsed(&["--help"]).unwrap().is_none());
    }

    #[test]
    fn mistakes_are_said() {
        let check = |words: &[&str], expected: &str| {
            assert_eq!(parsed(words).unwrap_err(), expected, "{words:?}");
        };
        check(&["a", "b"], "unexpected argument \"b\"");
        check(&["a", "--repeats", "0"], "--repeats must be 1 or more");
        check(&["a", "--fast"], "invalid option '--fast'");
        check(
            &["a", "--out", "x", "--resume", "y"],
            "--resume continues in its own folder: it cannot be used with --out",
        );
    }
}
