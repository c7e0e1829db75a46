//! Renders a table of options for `--help` and for the reference.

use std::fmt::Write as _;

use crate::{Change, Kind, OptionSpec, Section};

/// The arguments that every program with options accepts.
const COMMAND_LINE_HELP: &str = "  \
  -c, --config <FILE>        Read options from FILE: flat TOML, name = value
      --set <NAME=VALUE>     The same as --NAME VALUE
  -h, --help                 Print this help

Options on the command line override the file. Defaults are in brackets.

";

/// Width of the help, in columns.
const WIDTH: usize = 88;
const INDENT: usize = 6;

/// Returns the arguments of the command line, and all options that can be set, by section, for a
/// terminal.
// Writing to a `String` cannot fail, hence `let _`.
pub fn help<S: Default>(table: &'static [Section<S>]) -> String {
    let (mut text, defaults) = (COMMAND_LINE_HELP.to_owned(), S::default());
    for section in table.iter().filter(|section| !section.rows.is_empty()) {
        let _ = writeln!(text, "{}:", section.title);
        for option in section.rows.iter().filter(|option| option.change != Change::Never) {
            help_row(&mut text, option, &defaults);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn help_row<S>(text: &mut String, option: &OptionSpec<S>, defaults: &S) {
    let _ = write!(text, "  --{}", option.name);
    if !option.is_flag() {
        let _ = write!(text, " <{}>", option.expected());
        match option.shown(defaults) {
            empty if empty.is_empty() => {}
            default => drop(write!(text, " [{default}]")),
        }
    }
    text.push('\n');
    let mut column = WIDTH;
    for word in option.doc.replace('`', "").split(' ') {
        let letters = word.chars().count();
        if column + 1 + letters > WIDTH {
            if column < WIDTH || !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&" ".repeat(INDENT));
            column = INDENT;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += letters;
    }
    text.push('\n');
}

/// Returns a Markdown table for each section. Words in `hidden` are not documented.
pub fn markdown_tables<S: Default + 'static>(
    table: impl Iterator<Item = &'static Section<S>>,
    hidden: &[&str],
) -> String {
    let (mut text, defaults) = (String::new(), S::default());
    for section in table {
        let _ = write!(
            text,
            "\n## {}\n\n| option | value | default | changes | effect |\n|---|---|---|---|---|\n",
            section.title
        );
        for option in section.rows {
            markdown_row(&mut text, option, &defaults, hidden);
        }
    }
    text
}

fn markdown_row<S>(text: &mut String, option: &OptionSpec<S>, defaults: &S, hidden: &[&str]) {
    let names: Vec<_> = option.names().map(|name| format!("`{name}`")).collect();
    let default = match option.shown(defaults) {
        empty if empty.is_empty() => "(empty)".to_owned(),
        value => format!("`{value}`"),
    };
    let changes = match option.change {
        Change::Running | Change::Through(_) => "running",
        Change::Start => "start",
        Change::Never => "never",
    };
    let value = match &option.kind {
        Kind::Choice { words, .. } => {
            let documented = words.iter().filter(|word| !hidden.contains(word));
            documented.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        _ => option.expected(),
    };
    let names = names.join(", ");
    let _ = writeln!(text, "| {names} | {value} | {default} | {changes} | {} |", option.doc);
}
