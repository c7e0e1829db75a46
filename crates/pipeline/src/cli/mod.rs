//! `myriad pipeline ...`: one row per subcommand.

mod arguments;
mod calibrate;
mod carrier;
mod console;
mod memory;
mod processes;
mod roles;
mod table;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use base::causes::with_causes;
use base::messages;
use base::usage::UsageError;
use lexopt::Parser;
use options::{CommandLine, Loaded, OptionText, Section, texts};
use tracing_subscriber::filter::LevelFilter;

/// The action that a command line requests. The command line has been fully parsed.
type Job = Box<dyn FnOnce() -> Result<()>>;

/// One subcommand.
struct Subcommand {
    name: &'static str,
    about: &'static str,
    /// Parses the rest of the command line without side effects: an error is a [`UsageError`].
    read: fn(&mut Parser) -> Result<Job>,
    options: fn() -> Vec<OptionText>,
}

#[rustfmt::skip]
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "run", about: "All parts in one process, over loopback", read: roles::run, options: || texts(table::RUN) },
    Subcommand { name: "generator", about: "Assign tasks on schedule", read: roles::generator, options: || texts(table::GENERATOR) },
    Subcommand { name: "executor", about: "Compute tasks", read: roles::executor, options: || texts(table::EXECUTOR) },
    Subcommand { name: "collector", about: "Collect, check and record results", read: roles::collector, options: || texts(table::COLLECTOR) },
    Subcommand { name: "monitor", about: "Show the status of all parts in a browser", read: roles::monitor, options: || texts(table::MONITOR) },
    Subcommand { name: "carrier", about: "Carry connections through a message broker", read: carrier::read, options: carrier::options },
    Subcommand { name: "calibrate", about: "Check and time the kernels on this machine", read: calibrate::read, options: calibrate::options },
];

/// Returns the name, the purpose and the options of each subcommand.
pub fn subcommands() -> impl Iterator<Item = (&'static str, &'static str, Vec<OptionText>)> {
    SUBCOMMANDS.iter().map(|subcommand| (subcommand.name, subcommand.about, (subcommand.options)()))
}

/// Returns the text of `myriad pipeline --help`.
pub fn help() -> String {
    let mut text = String::from(
        "Computes tasks at a paced rate, with none lost, whatever dies.\n\n\
         Usage: myriad pipeline <COMMAND> [OPTIONS]\n\n",
    );
    for subcommand in SUBCOMMANDS {
        text.push_str(&format_row(subcommand));
    }
    text.push_str("\nEvery command takes --help. See docs/internals/pipeline.md for the design.\n");
    text
}

fn format_row(subcommand: &Subcommand) -> String {
    format!("  {:<12} {}\n", subcommand.name, subcommand.about)
}

/// Executes the rest of the command line: the name of a subcommand, then its options. A
/// [`UsageError`] concerns the command line; any other error is a failure.
pub fn run(parser: &mut Parser) -> Result<()> {
    let job = read(parser).map_err(|error| match error.downcast::<lexopt::Error>() {
        // Its text already contains its cause.
        Ok(error) => UsageError::new(error),
        Err(error) => UsageError::new(with_causes(&*error)),
    })?;
    job()
}

fn read(parser: &mut Parser) -> Result<Job> {
    use lexopt::prelude::*;
    match parser.next()? {
        None => bail!("missing command; see myriad pipeline --help"),
        Some(Short('h') | Long("help")) => Ok(printing(help())),
        Some(Value(name)) if name == "help" => Ok(printing(help())),
        Some(Value(name)) => match SUBCOMMANDS.iter().find(|subcommand| name == subcommand.name) {
            Some(subcommand) => (subcommand.read)(parser),
            None => {
                bail!("unknown command pipeline {}; see myriad pipeline --help", name.display())
            }
        },
        Some(other) => Err(other.unexpected().into()),
    }
}

/// Parses the options of a subcommand without side effects. Returns a job that runs it, or prints
/// its help.
fn job<S: Default>(
    parser: &mut Parser,
    name: &str,
    about: &str,
    table: &'static [Section<S>],
    check: fn(&S) -> Result<()>,
    run: impl FnOnce(Loaded<S>) -> Result<()> + 'static,
) -> Result<Job> {
    let Some(line) = CommandLine::parse(table, parser)? else {
        let usage = format!("Usage: myriad pipeline {name} [OPTIONS]\n\n{about}\n\n");
        return Ok(printing(usage + &options::help(table)));
    };
    let loaded = line.load(table)?;
    check(&loaded.settings)?;
    Ok(Box::new(move || run(loaded)))
}

/// Returns a job that prints a text.
fn printing(text: impl Into<String>) -> Job {
    let text = text.into();
    Box::new(move || print(&text))
}

/// Writes to standard output. A closed pipe is handled by the program, which ignores that error.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Returns a flag that the first Ctrl-C sets, for an orderly end. The second Ctrl-C ends the
/// process.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("could not install signal handlers")?;
    }
    Ok(stop)
}

/// Logs warnings to standard error; `MYRIAD_LOG` names another level.
fn log_to_stderr() -> Result<()> {
    let level = match std::env::var("MYRIAD_LOG") {
        Ok(word) => word.parse().with_context(|| format!("MYRIAD_LOG is {word:?}"))?,
        Err(_) => LevelFilter::WARN,
    };
    let sink = messages::redirect_standard_error(messages::report_lost_lines)
        .context("could not start the thread that writes messages")?;
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(move || sink.clone())
        .with_ansi(false)
        .log_internal_errors(false)
        .try_init()
        .map_err(|error| anyhow!("could not install the logger: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed() {
        let text = help();
        for subcommand in SUBCOMMANDS {
            assert!(text.contains(&format!("\n  {:<12} ", subcommand.name)), "{text}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_a_usage_error_that_names_the_option() {
        for (arguments, expected) in [
            (&[][..], "missing command; see myriad pipeline --help"),
            (&["fly"], "unknown command pipeline fly; see myriad pipeline --help"),
            (&["--fast"], "invalid option '--fast'"),
            (&["run", "--fast"], "--fast: unknown option"),
            (&["run", "--tasks"], "missing argument for option '--tasks'"),
            (&["run", "--tasks", "x"], "--tasks: \"x\" is not a count such as 2000000, 2M or 500k"),
            (
                &["run", "--duration", "5x"],
                "--duration: unknown time unit \"x\", supported units: \
              ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)",
            ),
            (
                &["executor", "--generator", "25522"],
                "--generator: \"25522\" is not HOST:PORT, such as \
              127.0.0.1:8080 or [::1]:8080",
            ),
            (
                &["run", "--processes", "--growth-max", "1%"],
                "--growth-max cannot be used with --processes",
            ),
            (
                &["run", "--task", "exec:cat"],
                "exec: and each: require --input, and other tasks have none",
            ),
            (
                &["run", "--task", "each:cat", "--input", "a", "--results", "a"],
                "the input would be overwritten by the results",
            ),
            (
                &["run", "--task", "exec:cat", "--input", "-", "--processes"],
                "--input - cannot be used with --processes",
            ),
            (&["carrier", "--offer", "a"], "--offer: \"a\" is not NAME=HOST:PORT"),
            (
                &["calibrate", "--tasks", "x"],
                "--tasks: \"x\" is not a count such as 2000000, 2M or 500k",
            ),
        ] {
            let error = run(&mut Parser::from_args(arguments)).unwrap_err();
            assert!(error.is::<UsageError>(), "{arguments:?}");
            assert_eq!(error.to_string(), expected, "{arguments:?}");
        }
    }
}
