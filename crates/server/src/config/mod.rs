//! Configuration: one table of options ([`OPTIONS`]), their validated and typed values
//! ([`Settings`]), and the source of each value ([`Config`]).
//!
//! Order of precedence: CONFIG SET, command line, file, default.

mod change;
mod cli;
mod experiments;
mod file;
mod help;
mod internals;
mod key_events;
mod option;
mod options;
mod settings;
mod trackers;
mod views;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use change::{Changed, RewriteError, SetError};
pub use cli::{Arguments, ArgumentsError, parse_arguments};
pub use experiments::Experiments;
#[cfg(feature = "experiments")]
pub use experiments::{ProcessorSource, ReplyPath};
pub use help::{help, markdown};
pub use internals::Internals;
pub(crate) use key_events::KeyEvent;
pub use key_events::KeyEvents;
pub use option::{Change, Kind, OptionSpec, Section, ValueError};
pub use options::{OPTIONS, find, nearest_name};
pub(crate) use settings::Endpoint;
pub use settings::{
    Conflict, CqlAuthenticator, CqlAuthorizer, DATABASES, DebugCommand, Durability, LogFormat,
    LogLevel, MaxmemoryPolicy, OutputLimit, OutputLimits, Password, Placement, Settings,
    TlsAuthClients, TlsProtocols,
};
pub use trackers::{MemoryTrackers, machine_memory_bytes};

use options::owner_index;

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Default,
    /// A line in the configuration file, counted from 1.
    File {
        line: usize,
    },
    CommandLine,
    ConfigSet,
}

/// Settings and their sources. One per server; CONFIG SET changes it.
#[derive(Debug, Clone)]
pub struct Config {
    settings: Settings,
    /// Indexed as [`OPTIONS`].
    sources: Vec<Source>,
    file: Option<PathBuf>,
}

/// Reason why the server cannot start with this configuration. The text is one line for the
/// operator and starts with the location of the error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read configuration file {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    /// A syntax error in the file, or an invalid option.
    #[error("{}:{line}: {reason}", path.display())]
    File { path: PathBuf, line: usize, reason: String },
    #[error("--{name}: {reason}")]
    CommandLine { name: String, reason: String },
    /// Options that conflict with each other.
    #[error("{place}: {reason}")]
    Conflict { place: String, reason: String },
}

/// Reason why one option was rejected.
#[derive(Debug)]
enum OptionError {
    Unknown { nearest: Option<&'static str> },
    Value { option: &'static OptionSpec, error: ValueError },
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { nearest: None } => f.write_str("unknown option"),
            Self::Unknown { nearest: Some(name) } => {
                write!(f, "unknown option; did you mean {name}?")
            }
            Self::Value { option, error: ValueError::Immutable } => {
                write!(f, "read-only. {}", option.doc)
            }
            Self::Value { option, error } => write!(f, "{error} ({})", option.expected()),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            sources: vec![Source::Default; OPTIONS.len()],
            file: None,
        }
    }
}

impl Config {
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the file that was read, which CONFIG REWRITE rewrites.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the source of the named option's value, or `None` if there is no such option.
    pub fn source(&self, name: &str) -> Option<Source> {
        find(name).map(|option| self.sources[owner_index(option)])
    }

    /// Applies all options of a file.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = read_bounded(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        self.take_file_text(path, &text)?;
        self.file = Some(path.to_owned());
        Ok(())
    }

    fn take_file_text(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let fault = |line, reason| ConfigError::File { path: path.to_owned(), line, reason };
        let entries = file::parse(text).map_err(|found| fault(found.line, found.reason))?;
        for entry in entries {
            if let Some(first) = find(&entry.name).and_then(|option| self.line_of(option)) {
                let reason = format!("{}: already set in line {first}", entry.name);
                return Err(fault(entry.line, reason));
            }
            self.take(&entry.name, &entry.value, Source::File { line: entry.line })
                .map_err(|error| fault(entry.line, format!("{}: {error}", entry.name)))?;
        }
        Ok(())
    }

    fn line_of(&self, option: &OptionSpec) -> Option<usize> {
        match self.sources[owner_index(option)] {
            Source::File { line } => Some(line),
            _ => None,
        }
    }

    /// Applies one option of the command line. A later one replaces an earlier one.
    pub fn take_argument(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.take(name, value, Source::CommandLine).map_err(|error| ConfigError::CommandLine {
            name: name.to_owned(),
            reason: error.to_string(),
        })
    }

    fn take(&mut self, name: &str, value: &str, source: Source) -> Result<(), OptionError> {
        let option =
            find(name).ok_or_else(|| OptionError::Unknown { nearest: nearest_name(name) })?;
        option
            .set(&mut self.settings, value)
            .map_err(|error| OptionError::Value { option, error })?;
        self.sources[owner_index(option)] = source;
        Ok(())
    }

    /// Validates the options against each other. Called once, after all of them are set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.settings.validate().map_err(|conflict| ConfigError::Conflict {
            place: self.place(conflict.option),
            reason: conflict.reason,
        })
    }

    fn place(&self, name: &str) -> String {
        match (self.source(name), &self.file) {
            (Some(Source::File { line }), Some(path)) => {
                format!("{}:{line}: {name}", path.display())
            }
            (Some(Source::CommandLine), _) => format!("--{name}"),
            _ => name.to_owned(),
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(file::FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > file::FILE_BYTES_MAX {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "larger than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let outcome = config.take_file_text(Path::new("m.toml"), text);
        config.file = Some(PathBuf::from("m.toml"));
        outcome.and_then(|()| config.validate()).map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_both_over_the_default() {
        let mut config = from_text("hz = 20\nmaxmemory = \"1gb\"\n").unwrap();
        config.take_argument("hz", "30").unwrap();
        config.take_argument("hz", "40").unwrap();
        assert_eq!(config.settings().hz, 40);
        assert_eq!(config.settings().maxmemory_bytes, 1 << 30);
        assert_eq!(config.settings().maxclients, 10_000);
        assert_eq!(config.source("hz"), Some(Source::CommandLine));
        assert_eq!(config.source("maxmemory"), Some(Source::File { line: 2 }));
        assert_eq!(config.source("timeout"), Some(Source::Default));
        assert_eq!(config.source("nonsense"), None);
    }

    #[test]
    fn faults_name_file_line_and_reason() {
        for (text, expected) in [
            ("\nmaxmemroy = 1\n", "m.toml:2: maxmemroy: unknown option; did you mean maxmemory?"),
            ("colour = 1\n", "m.toml:1: colour: unknown option"),
            (
                "hz = 10\nmaxmemory = \"lots\"\n",
                "m.toml:2: maxmemory: argument must be a memory value (bytes)",
            ),
            (
                "hz = 1000",
                "m.toml:1: hz: argument must be between 1 and 500 inclusive (number, 1 to 500)",
            ),
            (
                "durability = \"always\"\nappendfsync = \"no\"\n",
                "m.toml:2: appendfsync: already set in line 1",
            ),
            ("port = 7000", "m.toml:1: port: read-only. The port of the first address in `resp`."),
            (
                "hz = 10\nresp = \"0.0.0.0:6379\"\n",
                "m.toml:2: resp: 0.0.0.0:6379 can be reached from other machines and no password \
                 is set: set requirepass, listen on 127.0.0.1 only, or set protected-mode to no",
            ),
        ] {
            assert_eq!(from_text(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn views_set_what_they_show() {
        let config = from_text("appendfsync = \"everysec\"\nloglevel = \"verbose\"\n").unwrap();
        assert_eq!(config.settings().durability, Durability::Interval);
        assert_eq!(config.settings().log_level, LogLevel::Debug);
        assert_eq!(config.source("durability"), Some(Source::File { line: 1 }));
        from_text("appendonly = true\nsave = \"\"\n").unwrap();
    }

    #[test]
    fn a_missing_or_huge_file_is_reported() {
        let error = Config::default().read_file(Path::new("no/such.toml")).unwrap_err();
        assert!(error.to_string().starts_with("could not read configuration file no/such.toml: "));
        let error = Config::default().read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("larger than 1 MiB"), "{error}");
    }
}
