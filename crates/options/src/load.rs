//! Settings that were read from a file, the environment and a command line, and the source of each value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base::nearest::nearest;

use crate::environment::variable;
use crate::file::{Entry, parse, read_bounded};
use crate::{Kind, OptionSpec, Section, ValueError, find, owner, rows};

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Default,
    /// A line in the configuration file, counted from 1.
    File {
        line: usize,
    },
    /// A variable of the environment, by the name or alias of its option.
    Environment {
        name: &'static str,
    },
    CommandLine,
    /// A change while the program runs.
    ConfigSet,
}

/// Settings and their sources.
#[derive(Debug)]
pub struct Loaded<S: 'static> {
    pub(crate) table: &'static [Section<S>],
    pub settings: S,
    /// Sources by the names of the options that store the values. Absent: the default.
    pub sources: BTreeMap<&'static str, Source>,
    file: Option<PathBuf>,
}

/// Two conflicting options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Option to check first.
    pub option: &'static str,
    pub reason: String,
}

impl Conflict {
    pub fn new(option: &'static str, reason: impl Into<String>) -> Conflict {
        Conflict { option, reason: reason.into() }
    }
}

/// Reason why the program cannot start with this configuration. The text is one line for the
/// operator and starts with the location of the error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read configuration file {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    /// A syntax error in the file, or an invalid option.
    #[error("{}:{line}: {reason}", path.display())]
    File { path: PathBuf, line: usize, reason: String },
    #[error("{variable}: {reason}")]
    Environment { variable: String, reason: String },
    #[error("--{name}: {reason}")]
    CommandLine { name: String, reason: String },
    /// Options that conflict with each other.
    #[error("{place}: {reason}")]
    Conflict { place: String, reason: String },
}

/// Reason why one option was rejected.
#[derive(Debug)]
enum OptionError<S: 'static> {
    Unknown { nearest: Option<&'static str> },
    Value { option: &'static OptionSpec<S>, error: ValueError },
}

impl<S> fmt::Display for OptionError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { nearest: None } => f.write_str("unknown option"),
            Self::Unknown { nearest: Some(name) } => {
                write!(f, "unknown option; did you mean {name}?")
            }
            Self::Value { option, error: ValueError::Immutable } => {
                write!(f, "read-only. {}", option.doc)
            }
            Self::Value { error: ValueError::Explained(reason), .. } => f.write_str(reason),
            Self::Value {
                error: error @ (ValueError::NotAWord { .. } | ValueError::Fixed { .. }),
                ..
            } => error.fmt(f),
            Self::Value { option, error } => write!(f, "{error} ({})", option.expected()),
        }
    }
}

impl<S: Clone> Clone for Loaded<S> {
    fn clone(&self) -> Self {
        let (settings, sources) = (self.settings.clone(), self.sources.clone());
        Self { table: self.table, settings, sources, file: self.file.clone() }
    }
}

impl<S: Default> Loaded<S> {
    pub fn new(table: &'static [Section<S>]) -> Self {
        Self { table, settings: S::default(), sources: BTreeMap::new(), file: None }
    }
}

impl<S> Loaded<S> {
    /// Returns the file that was read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the source of the named option's value, or `None` if there is no such option.
    pub fn source(&self, name: &str) -> Option<Source> {
        find(self.table, name).map(|option| self.source_of(option))
    }

    /// Returns the source of an option's value.
    pub fn source_of(&self, option: &'static OptionSpec<S>) -> Source {
        let owner = owner(self.table, option);
        self.sources.get(owner.name).copied().unwrap_or(Source::Default)
    }

    /// Applies all options of a file.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = read_bounded(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        self.read_text(path, &text)
    }

    /// Applies all options of a text that was read from this file. Returns the first error.
    pub fn read_text(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        self.take_text(path, text).into_iter().next().map_or(Ok(()), Err)
    }

    /// Applies the options of a file, and returns all errors, in the order of their lines.
    pub fn check_file(&mut self, path: &Path) -> Vec<ConfigError> {
        match read_bounded(path) {
            Ok(text) => self.take_text(path, &text),
            Err(error) => vec![ConfigError::Read { path: path.to_owned(), error }],
        }
    }

    fn take_text(&mut self, path: &Path, text: &str) -> Vec<ConfigError> {
        self.file = Some(path.to_owned());
        let mut errors = Vec::new();
        for entry in parse(text) {
            let taken = match entry {
                Ok(entry) => self.take_entry(&entry).map_err(|reason| (entry.line, reason)),
                Err(fault) => Err((fault.line, fault.reason)),
            };
            if let Err((line, reason)) = taken {
                errors.push(ConfigError::File { path: path.to_owned(), line, reason });
            }
        }
        errors
    }

    fn take_entry(&mut self, entry: &Entry) -> Result<(), String> {
        let Entry { name, value, line } = entry;
        if let Some(Source::File { line }) = self.source(name) {
            return Err(format!("{name}: already set in line {line}"));
        }
        self.take(name, value, Source::File { line: *line })
            .map_err(|error| format!("{name}: {error}"))
    }

    /// Applies the option of a variable of the environment.
    pub(crate) fn take_variable(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        if let Some(Source::Environment { name }) = self.source(name) {
            return Err(format!("already set by {}", variable(name)));
        }
        let value = in_words_of_the_file(self.table, name, value);
        self.take(name, value, Source::Environment { name }).map_err(|error| error.to_string())
    }

    /// Applies one option of the command line. A later one replaces an earlier one.
    pub fn take_argument(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let value = in_words_of_the_file(self.table, name, value);
        self.take(name, value, Source::CommandLine).map_err(|error| argument_error(name, &error))
    }

    fn take(&mut self, name: &str, value: &str, source: Source) -> Result<(), OptionError<S>> {
        let Some(option) = find(self.table, name) else { return Err(unknown(self.table, name)) };
        option
            .set(&mut self.settings, value)
            .map_err(|error| OptionError::Value { option, error })?;
        self.sources.insert(owner(self.table, option).name, source);
        Ok(())
    }

    /// Returns the error for conflicting options, at the place where the first one is set.
    pub fn conflict(&self, Conflict { option, reason }: Conflict) -> ConfigError {
        let place = match (self.source(option), &self.file) {
            (Some(Source::File { line }), Some(path)) => {
                format!("{}:{line}: {option}", path.display())
            }
            (Some(Source::Environment { name }), _) => variable(name),
            (Some(Source::CommandLine), _) => format!("--{option}"),
            _ => option.to_owned(),
        };
        ConfigError::Conflict { place, reason }
    }
}

/// Accepts the words that a switch has in the file as well.
fn in_words_of_the_file<'a, S>(
    table: &'static [Section<S>],
    name: &str,
    value: &'a str,
) -> &'a str {
    match (find(table, name).map(|option| &option.kind), value) {
        (Some(Kind::YesNo { .. } | Kind::Flag { .. }), "true") => "yes",
        (Some(Kind::YesNo { .. } | Kind::Flag { .. }), "false") => "no",
        _ => value,
    }
}

fn argument_error<S>(name: &str, error: &OptionError<S>) -> ConfigError {
    ConfigError::CommandLine { name: name.to_owned(), reason: error.to_string() }
}

fn unknown<S>(table: &'static [Section<S>], name: &str) -> OptionError<S> {
    OptionError::Unknown { nearest: nearest(name, rows(table).flat_map(OptionSpec::names)) }
}

/// Returns the error for an option of the command line that does not exist.
pub(crate) fn unknown_argument<S>(table: &'static [Section<S>], name: &str) -> ConfigError {
    argument_error(name, &unknown(table, name))
}
