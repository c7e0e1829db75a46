//! The environment: a variable for each option of a program.

use std::ffi::OsString;

use base::nearest::nearest;

use crate::{ConfigError, Loaded, OptionSpec, Section, rows};

/// Prefix of the name of each variable.
const PREFIX: &str = "MYRIAD_";
/// Variables of other commands, which a shell or a container may set for them.
const OTHERS: [&str; 3] = ["MYRIAD_LOG", "MYRIAD_PASSWORD", "MYRIAD_SOURCE_PASSWORD"];

/// Returns the variable of an option: `MYRIAD_LOG_LEVEL` for `log-level`.
pub fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('-', "_").to_ascii_uppercase())
}

/// The variables that set options, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Selects the variables with the prefix of options, without those of other commands.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let is_ours = |name: &OsString| {
            let is_others = OTHERS.iter().any(|other| name == other);
            name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && !is_others
        };
        let mut found: Vec<_> = variables.into_iter().filter(|(name, _)| is_ours(name)).collect();
        found.sort();
        Environment(found)
    }
}

impl<S> Loaded<S> {
    /// Applies all variables, and returns all errors. A variable without an option is an error.
    pub fn take_environment(&mut self, environment: &Environment) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for (variable, value) in &environment.0 {
            let variable = variable.to_string_lossy().into_owned();
            let taken = match (option_of(self.table, &variable), value.to_str()) {
                (None, _) => Err(unknown(self.table, &variable)),
                // The text may be a password: it is not shown.
                (_, None) => Err("the value is not UTF-8".to_owned()),
                (Some(name), Some(value)) => self.take_variable(name, value),
            };
            errors.extend(taken.err().map(|reason| ConfigError::Environment { variable, reason }));
        }
        errors
    }
}

/// Returns the name or alias of the option that a variable sets.
fn option_of<S>(table: &'static [Section<S>], wanted: &str) -> Option<&'static str> {
    rows(table).flat_map(OptionSpec::names).find(|name| variable(name) == wanted)
}

fn unknown<S>(table: &'static [Section<S>], name: &str) -> String {
    let names = rows(table).flat_map(OptionSpec::names);
    match nearest(name.strip_prefix(PREFIX).unwrap_or(name), names) {
        Some(name) => format!("unknown option; did you mean {}?", variable(name)),
        None => "unknown option".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::Change::{Running, Start};
    use crate::{
        CommandLine, Conflict, Source, Unit, field, number, option, settings, value, with_aliases,
    };

    settings! {
        #[derive(Debug, Clone)]
        struct Values {
            count: u32 = 1,
            is_on: bool = false,
            name: String = String::new(),
        }
    }

    static TABLE: &[Section<Values>] = &[Section {
        title: "All",
        rows: &[
            with_aliases(
                &["max-count"],
                option("count", number!(Unit::Count, 1, 9, count), Start, "Number."),
            ),
            option("is-on", field!(YesNo, is_on), Running, "Switch."),
            option("name", value!(Secret, "text", name), Start, "Name."),
        ],
    }];

    fn environment(pairs: &[(&str, &[u8])]) -> Environment {
        let pair = |(name, value): &(&str, &[u8])| {
            (OsString::from(name), OsString::from_vec(value.to_vec()))
        };
        Environment::of(pairs.iter().map(pair))
    }

    #[test]
    fn a_variable_sets_its_option_unless_the_command_line_does() {
        let given = environment(&[
            ("MYRIAD_MAX_COUNT", b"5"),
            ("MYRIAD_IS_ON", b"true"),
            ("MYRIAD_NAME", b"a b"),
            ("MYRIAD_PASSWORD", b"of a backup"),
            ("PATH", b"/bin"),
        ]);
        let mut parser = lexopt::Parser::from_args(["--name", "c"]);
        let line = CommandLine::parse(TABLE, &mut parser).unwrap().unwrap();
        let loaded = line.with_environment(given).load(TABLE).unwrap();
        let values = &loaded.settings;
        assert_eq!((values.count, values.is_on, values.name.as_str()), (5, true, "c"));
        assert_eq!(loaded.source("count"), Some(Source::Environment { name: "max-count" }));
        assert_eq!(loaded.source("name"), Some(Source::CommandLine));
        let conflict = loaded.conflict(Conflict::new("count", "too many"));
        assert_eq!(conflict.to_string(), "MYRIAD_MAX_COUNT: too many");
    }

    #[test]
    fn errors_name_the_variable_and_show_no_password() {
        let given = environment(&[
            ("MYRIAD_COUNT", b"3"),
            ("MYRIAD_CUONT", b"4"),
            ("MYRIAD_IS_ON", b"maybe"),
            ("MYRIAD_MAX_COUNT", b"4"),
            ("MYRIAD_NAME", b"hunter2\xff"),
            ("MYRIAD_SERVICE_HOST", b"10.0.0.1"),
            ("MYRIAD_count", b"3"),
        ]);
        let errors = Loaded::new(TABLE).take_environment(&given);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "MYRIAD_CUONT: unknown option; did you mean MYRIAD_COUNT?",
                "MYRIAD_IS_ON: argument must be 'yes' or 'no' (yes or no)",
                "MYRIAD_MAX_COUNT: already set by MYRIAD_COUNT",
                "MYRIAD_NAME: the value is not UTF-8",
                "MYRIAD_SERVICE_HOST: unknown option",
                "MYRIAD_count: unknown option; did you mean MYRIAD_COUNT?",
            ]
        );
    }
}
