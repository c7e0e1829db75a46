//! The values that differ from the defaults, as an operator reads them.

use std::path::Path;

use options::{Change, ConfigError, Environment, Loaded, Source, variable};

use super::file::toml_value;
use super::{Config, OPTIONS, OptionSpec, Settings, is_secret, rows};

/// Returns the value of an option for a log or a terminal: not a password.
pub(crate) fn shown_value(option: &OptionSpec, settings: &Settings) -> String {
    if is_secret(option) && !option.text(settings).is_empty() {
        return "(hidden)".to_owned();
    }
    toml_value(option, settings).to_string()
}

impl Config {
    /// Reads a file and the environment without a command line. Returns all errors, in the order of
    /// the lines and of the names of variables.
    pub(crate) fn check_file(
        path: &Path,
        environment: &Environment,
    ) -> Result<Config, Vec<ConfigError>> {
        let mut config = Config { loaded: Loaded::new(OPTIONS), ..Config::default() };
        let mut errors = config.loaded.check_file(path);
        errors.extend(config.loaded.take_environment(environment));
        if errors.is_empty() {
            let conflicts = config.settings().conflicts();
            errors.extend(conflicts.into_iter().map(|conflict| config.conflict(conflict)));
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// Returns a line for each option whose value is not the default.
    pub(crate) fn effective(&self) -> Vec<String> {
        let defaults = Settings::default();
        let differs = |option: &&OptionSpec| {
            option.owns_its_value() && option.text(self.settings()) != option.text(&defaults)
        };
        rows().filter(differs).map(|option| self.line_of(option, &defaults)).collect()
    }

    fn line_of(&self, option: &'static OptionSpec, defaults: &Settings) -> String {
        let value = shown_value(option, self.settings());
        let default = toml_value(option, defaults);
        let line = match self.loaded.source_of(option) {
            Source::File { line } => format!("line {line}, "),
            Source::Environment { name } => format!("{}, ", variable(name)),
            _ => String::new(),
        };
        let note = if option.change == Change::WithoutEffect { ", without effect" } else { "" };
        format!("{} = {value} # {line}default {default}{note}", option.name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(label: &str, text: &str, expected: Result<&[&str], &[&str]>) {
        check_with(&Environment::default(), label, text, expected);
    }

    fn check_with(
        environment: &Environment,
        label: &str,
        text: &str,
        expected: Result<&[&str], &[&str]>,
    ) {
        let name = format!("myriad-config-check-{label}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        let place = format!("{}:", path.display());
        let found = match Config::check_file(&path, environment) {
            Ok(config) => Ok(config.effective()),
            Err(errors) => {
                let text = |error: ConfigError| error.to_string().replace(&place, "");
                Err(errors.into_iter().map(text).collect::<Vec<_>>())
            }
        };
        fs::remove_file(&path).unwrap();
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        assert_eq!(found, expected.map(owned).map_err(owned));
    }

    #[test]
    fn values_are_shown_with_line_and_default_but_no_password() {
        check(
            "right",
            "hz = 10\nappendfsync = \"no\"\n\nmaxmemory = \"1gb\"\nrequirepass = \"hunter2\"\n\
             resp = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nlist-compress-depth = 1\n",
            Ok(&[
                "resp = [\"127.0.0.1:1\", \"127.0.0.1:2\"] # line 6, default \"127.0.0.1:6379\"",
                "requirepass = (hidden) # line 5, default \"\"",
                "durability = \"never\" # line 2, default \"always\"",
                "maxmemory = \"1gb\" # line 4, default 0",
                "list-compress-depth = 1 # line 7, default 0, without effect",
            ]),
        );
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let of = |name: &str, value: &str| (name.into(), value.into());
        let right = [
            of("MYRIAD_HZ", "30"),
            of("MYRIAD_RESP", "127.0.0.1:1,127.0.0.1:2"),
            of("MYRIAD_REQUIREPASS", "hunter2"),
        ];
        check_with(
            &Environment::of(right),
            "environment",
            "hz = 20\ntimeout = 5\n",
            Ok(&[
                "resp = [\"127.0.0.1:1\", \"127.0.0.1:2\"] # MYRIAD_RESP, default \"127.0.0.1:6379\"",
                "timeout = 5 # line 2, default 0",
                "requirepass = (hidden) # MYRIAD_REQUIREPASS, default \"\"",
                "hz = 30 # MYRIAD_HZ, default 10",
            ]),
        );
        let wrong = [of("MYRIAD_HZ", "fast"), of("MYRIAD_PORT", "tcp://10.0.0.1:6379")];
        check_with(
            &Environment::of(wrong),
            "environment-errors",
            "timeout = -1\n",
            Err(&[
                "1: timeout: argument must be between 0 and 2147483647 inclusive (seconds, 0 to \
                 2147483647)",
                "MYRIAD_HZ: argument couldn't be parsed into an integer (number, 1 to 500)",
                "MYRIAD_PORT: only '6379' is possible here. The port of the first address in resp, \
                 which is set at the start.",
            ]),
        );
    }

    #[test]
    fn all_errors_are_found() {
        check(
            "values",
            "hz = 0\nmaxmemroy = 1\n[log]\n",
            Err(&[
                "1: hz: argument must be between 1 and 500 inclusive (number, 1 to 500)",
                "2: maxmemroy: unknown option; did you mean maxmemory?",
                "3: [log] is a table: options are flat, name = value",
            ]),
        );
        check(
            "conflicts",
            "log-segment-bytes = 65537\nresp = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:1\"\n",
            Err(&[
                "3: http: 127.0.0.1:1 is listed twice",
                "1: log-segment-bytes: 65537 is not a multiple of 4096",
            ]),
        );
        let missing = Config::check_file(Path::new("no/such.toml"), &Environment::default());
        let missing = missing.unwrap_err();
        assert!(missing[0].to_string().starts_with("could not read configuration file"));
    }
}
