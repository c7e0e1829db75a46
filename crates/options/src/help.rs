//! Renders a table of options for `--help` and for the reference.

use std::fmt::Write as _;

use crate::text::{COMMAND_LINE, OptionText, Values, texts};
use crate::{Kind, OptionSpec, Section};

/// Width of the help, in columns.
const WIDTH: usize = 88;
const INDENT: usize = 6;

/// Returns the arguments of the command line, and all options that can be set, by section, for a
/// terminal.
pub fn help<S: Default>(table: &'static [Section<S>]) -> String {
    let note = "\nOptions on the command line override the file. Defaults are in brackets.\n\n";
    help_rows(COMMAND_LINE) + note + &help_rows(&texts(table))
}

/// Returns options by section, for a terminal.
// Writing to a `String` cannot fail, hence `let _`.
pub fn help_rows(options: &[OptionText]) -> String {
    let mut text = String::new();
    for section in options.chunk_by(|left, right| left.section == right.section) {
        if !text.is_empty() {
            text.push('\n');
        }
        if !section[0].section.is_empty() {
            let _ = writeln!(text, "{}:", section[0].section);
        }
        for option in section {
            help_row(&mut text, option);
        }
    }
    text
}

fn help_row(text: &mut String, option: &OptionText) {
    text.push_str("  ");
    if let Some(short) = option.short {
        let _ = write!(text, "-{short}, ");
    }
    let _ = write!(text, "--{}", option.name);
    if option.values != Values::None {
        let _ = write!(text, " <{}>", option.expected);
        if !option.default.is_empty() {
            let _ = write!(text, " [{}]", option.default);
        }
    }
    text.push('\n');
    let margin = " ".repeat(INDENT);
    for line in wrap(&option.doc.replace('`', ""), WIDTH - INDENT) {
        let _ = writeln!(text, "{margin}{line}");
    }
}

/// Breaks a paragraph into lines of at most `width` letters, except for longer words.
pub fn wrap(paragraph: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut letters = 0;
    for word in paragraph.split_whitespace() {
        let more = word.chars().count();
        match lines.last_mut() {
            Some(line) if letters + 1 + more <= width => {
                line.push(' ');
                line.push_str(word);
                letters += 1 + more;
            }
            _ => {
                lines.push(word.to_owned());
                letters = more;
            }
        }
    }
    lines
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
    let changes = option.change.word();
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
