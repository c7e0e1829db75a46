//! The command line of `serve`: `--config FILE`, `--set NAME=VALUE`, and every option as
//! `--NAME VALUE`.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg;

use super::{Config, ConfigError};

/// What the command line requests.
#[derive(Debug)]
pub enum Arguments {
    Help,
    Serve(Box<Config>),
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

/// Parses the rest of the command line and the file that it names, then validates the result. The
/// command line overrides the file regardless of where `--config` occurs.
pub fn parse_arguments(parser: &mut lexopt::Parser) -> Result<Arguments, ArgumentsError> {
    let mut file: Option<PathBuf> = None;
    let mut given: Vec<(String, String)> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Arguments::Help),
            Arg::Short('c') | Arg::Long("config") => file = Some(parser.value()?.into()),
            Arg::Long("set") => given.push(split_pair(parser.value()?)?),
            Arg::Long(name) => {
                let name = name.to_owned();
                given.push((name, text(parser.value()?)?));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let mut config = Config::default();
    if let Some(path) = &file {
        config.read_file(path)?;
    }
    for (name, value) in &given {
        config.take_argument(name, value)?;
    }
    config.validate()?;
    Ok(Arguments::Serve(Box::new(config)))
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
    use crate::config::Source;

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        parse_arguments(&mut lexopt::Parser::from_args(arguments)).map_err(|e| e.to_string())
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
        assert_eq!(config.source("hz"), Some(Source::CommandLine));
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
            (
                &["--resp", "0.0.0.0:1"],
                "--resp: 0.0.0.0:1 can be reached from other machines and no password is set: set \
                 requirepass, listen on 127.0.0.1 only, or set protected-mode to no",
            ),
        ] {
            assert_eq!(parse(arguments).unwrap_err(), expected);
        }
        assert!(matches!(parse(&["--hz", "20", "--help"]), Ok(Arguments::Help)));
    }
}
