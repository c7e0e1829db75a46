//! The command line: `--config FILE`, `--set NAME=VALUE`, and every option as `--NAME VALUE`.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser};

use crate::{ConfigError, Kind, Loaded, OptionSpec, Section, find, load};

/// What the command line requests: a file, and options that override it.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    file: Option<PathBuf>,
    given: Vec<(String, String)>,
}

/// Reason why the command line is not a valid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// A syntax error in the command line itself.
    #[error(transparent)]
    Usage(#[from] lexopt::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl CommandLine {
    /// Parses the rest of the command line, without the values. Returns `None` if help is
    /// requested.
    pub fn parse<S>(
        table: &'static [Section<S>],
        parser: &mut Parser,
    ) -> Result<Option<CommandLine>, ArgumentsError> {
        let mut line = CommandLine::default();
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Short('c') | Arg::Long("config") => line.file = Some(parser.value()?.into()),
                Arg::Long("set") => line.given.push(split_pair(parser.value()?)?),
                Arg::Long(name) => {
                    let name = name.to_owned();
                    let value = match find(table, &name).map(|option| &option.kind) {
                        None => return Err(load::unknown_argument(table, &name).into()),
                        Some(Kind::Flag { .. }) => "yes".to_owned(),
                        Some(_) => text(parser.value()?)?,
                    };
                    let repeated = find(table, &name).is_some_and(OptionSpec::is_repeated);
                    match line.given.iter_mut().find(|(given, _)| repeated && *given == name) {
                        Some((_, values)) => *values = format!("{values} {value}"),
                        None => line.given.push((name, value)),
                    }
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(line))
    }

    /// Reads the file, then applies the options of the command line, which override it wherever
    /// `--config` occurs.
    pub fn load<S: Default>(&self, table: &'static [Section<S>]) -> Result<Loaded<S>, ConfigError> {
        let mut loaded = Loaded::new(table);
        if let Some(path) = &self.file {
            loaded.read_file(path)?;
        }
        for (name, value) in &self.given {
            loaded.take_argument(name, value)?;
        }
        Ok(loaded)
    }
}

fn split_pair(pair: OsString) -> Result<(String, String), lexopt::Error> {
    let pair = text(pair)?;
    let (name, value) = pair.split_once('=').ok_or("--set requires NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn text(value: OsString) -> Result<String, lexopt::Error> {
    value.into_string().map_err(lexopt::Error::NonUnicodeValue)
}
