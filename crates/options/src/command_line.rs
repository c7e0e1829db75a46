//! The command line: `--config FILE`, `--set NAME=VALUE`, and every option as `--NAME VALUE`.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser};

use crate::{ConfigError, Environment, Kind, Loaded, OptionSpec, Section, find, load};

/// What the command line requests: a file, and options that override it and the environment.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    file: Option<PathBuf>,
    environment: Environment,
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

    /// Adds variables that override the file, and that the command line overrides.
    #[must_use]
    pub fn with_environment(self, environment: Environment) -> CommandLine {
        CommandLine { environment, ..self }
    }

    /// Reads the file, then applies the environment, then the options of the command line, wherever
    /// `--config` occurs. Returns the first error.
    pub fn load<S: Default>(&self, table: &'static [Section<S>]) -> Result<Loaded<S>, ConfigError> {
        let mut loaded = Loaded::new(table);
        if let Some(path) = &self.file {
            loaded.read_file(path)?;
        }
        if let Some(error) = loaded.take_environment(&self.environment).into_iter().next() {
            return Err(error);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change::Start;
    use crate::{Unit, field, number, option, optional_number, rows, settings, value};

    settings! {
        #[derive(Debug, PartialEq)]
        struct Values {
            bytes: u64 = 1 << 20,
            count: Option<u32> = None,
            is_on: bool = false,
            is_quick: bool = false,
            paths: Vec<PathBuf> = Vec::new(),
        }
    }

    static TABLE: &[Section<Values>] = &[Section {
        title: "All",
        rows: &[
            option("bytes", number!(Unit::Bytes, 1, 1 << 30, bytes), Start, "Size."),
            option("count", optional_number!(Unit::Count, 1, 9_000, count), Start, "Number."),
            option("on", field!(YesNo, is_on), Start, "Switch."),
            option("quick", field!(Flag, is_quick), Start, "Flag."),
            option("paths", value!(Repeated, "path", paths), Start, "Paths."),
        ],
    }];

    fn load(words: &[&str]) -> Result<Loaded<Values>, String> {
        let line = CommandLine::parse(TABLE, &mut Parser::from_args(words));
        let line = line.map_err(|error| error.to_string())?.expect("no help is asked for");
        line.load(TABLE).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_is_read_and_shown() {
        let words = ["--bytes=2kb", "--count", "8k", "--on", "true", "--quick", "--paths", "a"];
        let found = load(&[&words[..], &["--paths", "b", "--set", "bytes = 3kb"]].concat());
        let found = found.unwrap().settings;
        let shown: Vec<String> = rows(TABLE).map(|row| row.shown(&found)).collect();
        assert_eq!(shown, ["3kb", "8000", "yes", "yes", "a b"]);
        let shown: Vec<String> = rows(TABLE).map(|row| row.shown(&Values::default())).collect();
        assert_eq!(shown, ["1mb", "", "no", "no", ""]);
    }

    #[test]
    fn errors_name_the_option() {
        for (words, expected) in [
            (
                &["--bytes", "0"][..],
                "--bytes: argument must be between 1 and 1073741824 inclusive (bytes, 1 to 1gb)",
            ),
            (&["--count", "x"], "--count: \"x\" is not a count such as 2000000, 2M or 500k"),
            (
                &["--count", "10k"],
                "--count: argument must be between 1 and 9000 inclusive (number, 1 to 9000)",
            ),
            (&["--on", "1"], "--on: argument must be 'yes' or 'no' (yes or no)"),
            (&["--quick=1"], "unexpected argument for option '--quick': \"1\""),
            (&["--qiuck"], "--qiuck: unknown option; did you mean quick?"),
            (&["word"], "unexpected argument \"word\""),
        ] {
            assert_eq!(load(words).unwrap_err(), expected);
        }
    }
}
