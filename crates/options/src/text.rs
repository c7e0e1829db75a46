//! What help, manual pages and completions of shells show of an option, whatever its settings are.

use std::borrow::Cow;

use crate::{Form, Kind, OptionSpec, Section};

/// The description of an option of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionText {
    /// Title of its section; empty: it is in none.
    pub section: &'static str,
    pub short: Option<char>,
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Description of the value; empty for a flag.
    pub expected: Cow<'static, str>,
    /// Empty: no value.
    pub default: Cow<'static, str>,
    pub values: Values,
    pub doc: &'static str,
}

/// The values that a shell proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// The option is a flag.
    None,
    Words(&'static [&'static str]),
    Files,
    /// A value that a shell cannot guess.
    Any,
}

/// The options of every program that has a table of options.
pub const COMMAND_LINE: &[OptionText] = &[
    OptionText::new(
        Some('c'),
        "config",
        "FILE",
        Values::Files,
        "Read options from FILE: flat TOML, `name = value`.",
    ),
    OptionText::value("set", "NAME=VALUE", Values::Any, "The same as `--NAME VALUE`."),
    OptionText::HELP,
];

impl OptionText {
    pub const HELP: OptionText =
        OptionText::new(Some('h'), "help", "", Values::None, "Print this help.");

    /// Returns an option without a value.
    pub const fn flag(name: &'static str, doc: &'static str) -> OptionText {
        OptionText::value(name, "", Values::None, doc)
    }

    pub const fn value(
        name: &'static str,
        expected: &'static str,
        values: Values,
        doc: &'static str,
    ) -> OptionText {
        OptionText::new(None, name, expected, values, doc)
    }

    const fn new(
        short: Option<char>,
        name: &'static str,
        expected: &'static str,
        values: Values,
        doc: &'static str,
    ) -> OptionText {
        OptionText {
            section: "",
            short,
            name,
            aliases: &[],
            expected: Cow::Borrowed(expected),
            default: Cow::Borrowed(""),
            values,
            doc,
        }
    }
}

/// Returns the texts of all options of a table that can be set, in the order of the documentation.
pub fn texts<S: Default>(table: &'static [Section<S>]) -> Vec<OptionText> {
    let defaults = S::default();
    let of_section = |section: &'static Section<S>| {
        let settable = section.rows.iter().filter(|option| option.is_in_help());
        settable.map(|option| text(section.title, option, &defaults)).collect::<Vec<_>>()
    };
    table.iter().flat_map(of_section).collect()
}

fn text<S>(section: &'static str, option: &OptionSpec<S>, defaults: &S) -> OptionText {
    let default = if option.is_flag() { String::new() } else { option.shown(defaults) };
    OptionText {
        section,
        short: None,
        name: option.name,
        aliases: option.aliases,
        expected: option.expected().into(),
        default: default.into(),
        values: values(&option.kind),
        doc: option.doc,
    }
}

fn values<S>(kind: &Kind<S>) -> Values {
    match kind {
        Kind::Flag { .. } => Values::None,
        Kind::YesNo { .. } => Values::Words(&["yes", "no"]),
        Kind::Choice { words, .. } => Values::Words(words),
        Kind::Value { form: Form::Secret, .. } => Values::Any,
        Kind::Value { expected: "path" | "FILE" | "FILE or -" | "DIR", .. } => Values::Files,
        Kind::Number { .. } | Kind::Limit { .. } | Kind::Value { .. } | Kind::View { .. } => {
            Values::Any
        }
    }
}
