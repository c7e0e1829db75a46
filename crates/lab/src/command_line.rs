//! Common parts of the subcommands: arguments, jobs, output and signals.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow};
use lexopt::{Arg, Parser, ValueExt};

/// The action that a command line requests. The command line has been fully parsed.
pub(crate) type Job = Box<dyn FnOnce() -> Result<()>>;

/// One subcommand.
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// Short description for the list of subcommands.
    pub(crate) about: &'static str,
    /// Parses the arguments, including `--help`, and the files that define the work. An error is a
    /// [`UsageError`]; errors of the job are failures.
    pub(crate) read: fn(&mut CommandLine<'_>) -> Result<Job>,
}

/// The rest of a command line. Errors name the option.
pub(crate) struct CommandLine<'a> {
    parser: &'a mut Parser,
    /// The last parsed option, as given.
    option: String,
}

impl<'a> CommandLine<'a> {
    pub(crate) fn new(parser: &'a mut Parser) -> Self {
        Self { parser, option: String::new() }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Arg<'_>>, lexopt::Error> {
        let argument = self.parser.next()?;
        self.option = match &argument {
            Some(Arg::Short(letter)) => format!("-{letter}"),
            Some(Arg::Long(name)) => format!("--{name}"),
            Some(Arg::Value(_)) | None => String::new(),
        };
        Ok(argument)
    }

    /// Parses the option's value.
    pub(crate) fn value<T: FromStr>(&mut self) -> Result<T>
    where
        T::Err: Display,
    {
        let text = self.text()?;
        text.parse().map_err(|error| anyhow!("{} {text:?}: {error}", self.option))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let value = self.parser.value()?;
        value.string().with_context(|| self.option.clone())
    }

    pub(crate) fn path(&mut self) -> Result<PathBuf> {
        Ok(self.parser.value()?.into())
    }

    /// Returns all remaining arguments, options or not.
    pub(crate) fn rest(&mut self) -> Result<impl Iterator<Item = OsString> + '_> {
        Ok(self.parser.raw_args()?)
    }
}

/// Returns a job that prints a text.
pub(crate) fn printing(text: impl Into<String>) -> Job {
    let text = text.into();
    Box::new(move || print(&text))
}

/// Writes to standard output. A closed pipe is handled by the program, which ignores that error.
pub(crate) fn print(text: &str) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Returns a flag that Ctrl-C or a termination signal sets.
pub(crate) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("could not install signal handlers")?;
    }
    Ok(stop)
}
