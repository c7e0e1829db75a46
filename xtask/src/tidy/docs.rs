//! Rules about documents and transcripts.

use std::collections::BTreeSet;

use crate::tidy::{SourceFile, Violation};
use crate::transcript::FOLDER as TRANSCRIPTS;

/// The table of commands; its rows are `&family::NAME,`.
const COMMAND_TABLE: &str = "crates/server/src/resp/table.rs";

/// Each document has one title, and it comes first.
pub(crate) fn check_titles(files: &[SourceFile]) -> Vec<Violation> {
    let is_document = |file: &&SourceFile| file.path.starts_with("docs/") && file.is_a("md");
    files.iter().filter(is_document).filter_map(check_title).collect()
}

fn check_title(file: &SourceFile) -> Option<Violation> {
    let mut in_code = false;
    let titles: Vec<usize> = file
        .lines()
        .filter_map(|(line, text)| {
            in_code ^= text.trim_start().starts_with("```");
            (!in_code && text.starts_with("# ")).then_some(line)
        })
        .collect();
    let (line, what) = match titles.as_slice() {
        [_] => return None,
        [] => (1, "no title: start the document with one `# ` line"),
        [_, second, ..] => (*second, "a second title: make it `## ` or a document of its own"),
    };
    Some(Violation { path: file.path.clone(), line, what: what.into() })
}

/// Each command of the table has a transcript: `get.txt`, or, for a command of subcommands, at
/// least one of them: `config-get.txt`.
pub(crate) fn check_transcripts(files: &[SourceFile]) -> Vec<Violation> {
    let Some(table) = files.iter().find(|file| file.path == COMMAND_TABLE) else {
        return Vec::new();
    };
    let transcripts: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path.starts_with(TRANSCRIPTS))
        .filter_map(|file| file.path.rsplit('/').next()?.strip_suffix(".txt"))
        .collect();
    let is_there = |name: &str| {
        let family = format!("{name}-");
        transcripts.contains(name) || transcripts.iter().any(|found| found.starts_with(&family))
    };
    let missing = command_rows(table).filter(|(_, name)| !is_there(name));
    missing
        .map(|(line, name)| Violation {
            path: table.path.clone(),
            line,
            what: format!("no transcript: write {TRANSCRIPTS}/<family>/{name}.txt"),
        })
        .collect()
}

/// Commands of the table: `    &string::GETDEL,` -> `getdel`, with its line. Underscores become
/// `-`, as in the names of transcripts: `&server::CONFIG_GET` -> `config-get`.
fn command_rows(table: &SourceFile) -> impl Iterator<Item = (usize, String)> {
    table.lines().filter_map(|(line, text)| {
        let row = text.trim().strip_prefix('&')?.trim_end_matches(',');
        let (_, name) = row.rsplit_once("::")?;
        let is_constant =
            name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        is_constant.then(|| (line, name.to_lowercase().replace('_', "-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_names() {
        let text = "pub static COMMANDS: &[&Command] = &[\n    &string::GET,\n    &server::CONFIG_GET,\n];\n\
                    fn f(table: &crate::Table) {}\n";
        let table = SourceFile { path: COMMAND_TABLE.into(), text: text.into() };
        let names: Vec<(usize, String)> = command_rows(&table).collect();
        assert_eq!(names, [(2, "get".to_owned()), (3, "config-get".to_owned())]);
    }
}
