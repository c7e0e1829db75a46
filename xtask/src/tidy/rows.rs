//! Each command of the Redis protocol is reachable: its value is in the table, or in the
//! `subcommands` of a value that is.

use std::collections::BTreeSet;

use crate::tidy::{SourceFile, Violation};

const FOLDER: &str = "crates/server/src/commands/";
const TABLE: &str = "crates/server/src/commands/table.rs";
/// The file of the type, with its defaults.
const TYPE: &str = "crates/server/src/commands/command.rs";

/// `const GET: Command = ...;`
#[derive(Debug)]
struct Definition<'a> {
    file: &'a SourceFile,
    line: usize,
    name: &'a str,
    body: &'a str,
}

/// Every command is reachable from the table.
pub(crate) fn check_rows(files: &[SourceFile]) -> Vec<Violation> {
    let Some(table) = files.iter().find(|file| file.path == TABLE) else {
        return Vec::new();
    };
    let definitions: Vec<Definition<'_>> = all_definitions(files).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<usize> = Vec::new();
    reach(&table.text, table, &definitions, &mut open);
    while let Some(index) = open.pop() {
        if reached.insert(index) {
            let definition = &definitions[index];
            reach(subcommands(definition.body), definition.file, &definitions, &mut open);
        }
    }
    let forgotten = definitions.iter().enumerate().filter(|(index, _)| !reached.contains(index));
    forgotten
        .map(|(_, Definition { file, line, name, .. })| Violation {
            path: file.path.clone(),
            line: *line,
            what: format!(
                "{name} cannot be called: add the row `&{}::{name},` to {TABLE}, or the command to \
                 the `subcommands` of its container",
                family(&file.path)
            ),
        })
        .collect()
}

/// The names of the commands in the table, with their families.
pub(super) fn named_in_table(files: &[SourceFile]) -> Vec<(&str, &str)> {
    let Some(table) = files.iter().find(|file| file.path == TABLE) else {
        return Vec::new();
    };
    let definitions: Vec<Definition<'_>> = all_definitions(files).collect();
    let mut rows = Vec::new();
    reach(&table.text, table, &definitions, &mut rows);
    let named = rows.into_iter().filter_map(|row| {
        let Definition { file, body, .. } = &definitions[row];
        let (_, rest) = body.split_once("name: \"")?;
        Some((rest.split_once('"')?.0, family(&file.path)))
    });
    named.collect()
}

fn all_definitions(files: &[SourceFile]) -> impl Iterator<Item = Definition<'_>> {
    let is_family = |file: &&SourceFile| {
        file.path.starts_with(FOLDER) && file.is_a("rs") && ![TABLE, TYPE].contains(&&*file.path)
    };
    files.iter().filter(is_family).flat_map(definitions)
}

/// Commands of a file, excluding its tests.
fn definitions(file: &SourceFile) -> impl Iterator<Item = Definition<'_>> {
    let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    code.match_indices("const ").filter_map(move |(at, keyword)| {
        let (name, body) = code[at + keyword.len()..].split_once(": Command =")?;
        let is_name =
            name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let line = code[..at].matches('\n').count() + 1;
        let body = body.split("\n};").next().unwrap_or_default();
        is_name.then_some(Definition { file, line, name, body })
    })
}

/// The content of `subcommands: &[...]` in a command's value.
fn subcommands(body: &str) -> &str {
    let list = body.split_once("subcommands: &[").map_or("", |(_, rest)| rest);
    list.split(']').next().unwrap_or_default()
}

/// Adds the definitions to which `&NAME` and `&family::NAME` refer in `file`.
fn reach(text: &str, file: &SourceFile, definitions: &[Definition<'_>], open: &mut Vec<usize>) {
    for reference in text.split('&').skip(1) {
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let path = reference.split(|c| !is_path(c)).next().unwrap_or_default();
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        let module = module.rsplit("::").next().unwrap_or_default();
        let meant = definitions.iter().enumerate().filter(|(_, definition)| {
            let other = definition.file;
            let is_there = match module {
                "" => other.path == file.path,
                _ => stem(&other.path) == module || family(&other.path) == module,
            };
            is_there && definition.name == name
        });
        open.extend(meant.map(|(index, _)| index));
    }
}

/// `crates/server/src/commands/strings/lcs.rs` -> `strings`.
pub(super) fn family(path: &str) -> &str {
    let inside = path.strip_prefix(FOLDER).unwrap_or(path);
    inside.split(['/', '.']).next().unwrap_or_default()
}

/// `crates/server/src/commands/strings/lcs.rs` -> `lcs`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".rs").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forgotten commands, as `path:line`.
    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile {
                path: format!("{FOLDER}{path}"),
                text: (*text).into(),
            })
            .collect();
        check_rows(&files)
            .into_iter()
            .map(|found| format!("{}:{}", &found.path[FOLDER.len()..], found.line))
            .collect()
    }

    const OPTIONS: (&str, &str) = (
        "config.rs",
        "pub(crate) const CONFIG: Command = Command {\n    subcommands: &[&GET, &parts::SET],\n};\n\
         const GET: Command = Command {\n};\nconst HELP: Command = Command {\n};\n",
    );
    const PART: (&str, &str) =
        ("config/parts.rs", "pub(super) const SET: Command = Command {\n};\n");
    const STRINGS: (&str, &str) =
        ("strings.rs", "\npub(crate) const GET: Command = Command {\n};\n");

    #[test]
    fn rows_and_their_subcommands_are_reached() {
        let rows = ("table.rs", "= &[\n    &config::CONFIG,\n    &strings::GET,\n];\n");
        assert_eq!(check(&[rows, OPTIONS, PART, STRINGS]), ["config.rs:6"]);
    }

    /// A command of the same name in another family does not replace a forgotten one.
    #[test]
    fn a_forgotten_row_is_named() {
        let rows = ("table.rs", "= &[\n    &config::CONFIG,\n];\n");
        assert_eq!(check(&[rows, OPTIONS, PART, STRINGS]), ["config.rs:6", "strings.rs:2"]);
        let rows = ("table.rs", "= &[\n    &strings::GET,\n];\n");
        let forgotten = ["config.rs:1", "config.rs:4", "config.rs:6", "config/parts.rs:1"];
        assert_eq!(check(&[rows, OPTIONS, PART, STRINGS]), forgotten);
    }

    #[test]
    fn a_command_in_a_file_of_its_family_is_reached() {
        let rows = ("table.rs", "    &strings::LCS,\n");
        let lcs = ("strings/lcs.rs", "pub(crate) const LCS: Command = Command {\n};\n");
        assert_eq!(check(&[rows, lcs]), Vec::<String>::new());
    }

    #[test]
    fn defaults_and_tests_are_no_commands() {
        let rows = ("table.rs", "");
        let defaults = ("command.rs", "    pub(crate) const EMPTY: Command = Command {\n    };\n");
        let tests = ("strings.rs", "#[cfg(test)]\nmod tests {\n    const A: Command = X;\n}\n");
        assert_eq!(check(&[rows, defaults, tests]), Vec::<String>::new());
    }
}
