//! Configuration: one table of options ([`OPTIONS`]), their validated and typed values
//! ([`Settings`]), and the source of each value ([`Config`]).
//!
//! Order of precedence: CONFIG SET, command line, environment, file, default.

mod accepted;
mod change;
mod effective;
mod experiments;
mod file;
mod help;
mod internals;
mod key_events;
mod reload;
mod settings;
mod table;
mod trackers;
mod values;
mod views;

use std::path::Path;

pub use options::{
    ArgumentsError, Change, ConfigError, Conflict, Environment, Source, ValueError, variable,
};
use options::{CommandLine, Loaded};

pub use accepted::Accepted;
pub use change::{Changed, RewriteError, SetError};
pub(crate) use effective::shown_value;
pub use experiments::Experiments;
#[cfg(feature = "experiments")]
pub use experiments::{ProcessorSource, ReplyPath};
pub(crate) use file::write_file;
pub use help::{help, markdown, option_texts};
pub use internals::Internals;
pub(crate) use key_events::KeyEvent;
pub use key_events::KeyEvents;
pub(crate) use reload::{Reading, Reload, read_again};
pub use settings::{
    AclPubsubDefault, CollectorUrl, CqlAuthenticator, CqlAuthorizer, DATABASES, DebugCommand,
    Durability, FileMode, LogFormat, LogLevel, MasterAddress, MaxmemoryPolicy, OutputLimit,
    OutputLimits, Password, Placement, ReplicaOf, SavePoint, SavePoints, Settings, TlsAuthClients,
    TlsAuthClientsUser, TlsProtocols,
};
pub(crate) use settings::{Authority, Endpoint, Place, ReplicaRules};
pub use table::OPTIONS;
pub use trackers::{MemoryTrackers, machine_memory_bytes};

pub type OptionSpec = options::OptionSpec<Settings>;

/// Settings and their sources. One per server; CONFIG SET and SIGHUP change it.
#[derive(Debug, Clone)]
pub struct Config {
    loaded: Loaded<Settings>,
    /// What the process was started with, to read the file again.
    line: CommandLine,
    /// The values of the file, the environment and the command line when the file was last read.
    read: Settings,
}

/// What the command line requests.
#[derive(Debug)]
pub enum Arguments {
    Help,
    Serve(Box<Config>),
}

/// Parses the rest of the command line, the environment, and the file that the command line names,
/// then validates the result.
pub fn parse_arguments(
    parser: &mut lexopt::Parser,
    environment: Environment,
) -> Result<Arguments, ArgumentsError> {
    let Some(line) = CommandLine::parse(OPTIONS, parser)? else { return Ok(Arguments::Help) };
    let line = line.with_environment(environment);
    let loaded = line.load(OPTIONS)?;
    let config = Config { read: loaded.settings.clone(), loaded, line };
    config.validate()?;
    Ok(Arguments::Serve(Box::new(config)))
}

/// Returns all options and views.
pub fn rows() -> impl Iterator<Item = &'static OptionSpec> {
    options::rows(OPTIONS)
}

/// Returns the option with this name or alias, in any case.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    options::find(OPTIONS, name)
}

/// Whether the value of an option is a password, which is shown nowhere.
pub(crate) fn is_secret(option: &OptionSpec) -> bool {
    matches!(option.kind, options::Kind::Value { form: options::Form::Secret, .. })
}

/// Whether setting an option changes what the server does.
pub(crate) fn has_effect(name: &str) -> bool {
    find(name).is_none_or(|option| option.change != Change::WithoutEffect)
}

/// Whether an option has this name.
pub(crate) fn is_known(name: &[u8]) -> bool {
    std::str::from_utf8(name).ok().and_then(find).is_some()
}

/// Whether a name of CONFIG SET is that of an option whose value is not a password. What is not in
/// the table may be misspelled, and its value may be a password.
pub(crate) fn is_public(name: &[u8]) -> bool {
    let option = std::str::from_utf8(name).ok().and_then(find);
    option.is_some_and(|option| !is_secret(option))
}

/// Returns the option that stores the value which this one sets.
fn owner(option: &'static OptionSpec) -> &'static OptionSpec {
    options::owner(OPTIONS, option)
}

impl Default for Config {
    fn default() -> Self {
        let loaded = Loaded::new(OPTIONS);
        Self { read: loaded.settings.clone(), loaded, line: CommandLine::default() }
    }
}

impl Config {
    pub fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Returns the file that was read, which CONFIG REWRITE rewrites.
    pub fn file(&self) -> Option<&Path> {
        self.loaded.file()
    }

    /// Applies one option of the command line.
    pub fn take_argument(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.loaded.take_argument(name, value)
    }

    /// Validates the options against each other. Called once, after all of them are set.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.settings().validate().map_err(|conflict| self.conflict(conflict))
    }

    /// Returns the error for an option, at the place where it is set.
    pub(crate) fn conflict(&self, conflict: Conflict) -> ConfigError {
        self.loaded.conflict(conflict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let outcome = config.loaded.read_text(Path::new("m.toml"), text);
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
        assert_eq!(config.loaded.source("hz"), Some(Source::CommandLine));
        assert_eq!(config.loaded.source("maxmemory"), Some(Source::File { line: 2 }));
        assert_eq!(config.loaded.source("timeout"), Some(Source::Default));
        assert_eq!(config.loaded.source("nonsense"), None);
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
            (
                "port = 7000",
                "m.toml:1: port: only '6379' is possible here. The port of the first address in resp, \
                 which is set at the start.",
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
        assert_eq!(config.loaded.source("durability"), Some(Source::File { line: 1 }));
        from_text("appendonly = true\nsave = \"\"\n").unwrap();
    }

    #[test]
    fn a_missing_or_huge_file_is_reported() {
        let error = Config::default().loaded.read_file(Path::new("no/such.toml")).unwrap_err();
        assert!(error.to_string().starts_with("could not read configuration file no/such.toml: "));
        let error = Config::default().loaded.read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("larger than 1 MiB"), "{error}");
    }

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        let parser = &mut lexopt::Parser::from_args(arguments);
        parse_arguments(parser, Environment::default()).map_err(|e| e.to_string())
    }

    fn config(arguments: &[&str]) -> Config {
        match parse(arguments) {
            Ok(Arguments::Serve(config)) => *config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_taken_in_both_forms() {
        let config =
            config(&["--maxmemory", "1gb", "--set", "hz = 20", "--memory-limit=-5", "--hz", "30"]);
        assert_eq!(config.settings().maxmemory_bytes, 1 << 30);
        assert_eq!(config.settings().hz, 30);
        assert_eq!(config.loaded.source("hz"), Some(Source::CommandLine));
        assert_eq!(config.get(&[b"memory-limit"])[0].1, "-5");
        assert!(config.file().is_none());
    }

    #[test]
    fn negative_values_need_no_equals_sign() {
        assert_eq!(config(&["--memory-limit", "-5"]).get(&[b"memory-limit"])[0].1, "-5");
    }

    #[test]
    fn the_file_comes_first_wherever_it_is_named() {
        let path =
            std::env::temp_dir().join(format!("myriad-config-cli-{}.toml", std::process::id()));
        std::fs::write(&path, "hz = 20\ntimeout = 5\n").unwrap();
        let config = config(&["--hz", "30", "--config", path.to_str().unwrap()]);
        assert_eq!((config.settings().hz, config.settings().timeout_s), (30, 5));
        assert_eq!(config.file(), Some(path.as_path()));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn faults_are_in_the_operators_words() {
        for (arguments, expected) in [
            (&["--maxmemroy", "1"][..], "--maxmemroy: unknown option; did you mean maxmemory?"),
            (&["--dri", "x"], "--dri: unknown option; did you mean dir?"),
            (&["--hz"], "missing argument for option '--hz'"),
            (&["--set", "hz"], "--set requires NAME=VALUE"),
            (&["serve"], "unexpected argument \"serve\""),
            (&["-x"], "invalid option '-x'"),
            (
                &["--hz", "0"],
                "--hz: argument must be between 1 and 500 inclusive (number, 1 to 500)",
            ),
        ] {
            assert_eq!(parse(arguments).unwrap_err(), expected);
        }
        assert!(matches!(parse(&["--hz", "20", "--help"]), Ok(Arguments::Help)));
    }
}
