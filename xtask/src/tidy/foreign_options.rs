//! A test that changes an option of a server of another kind can miss what users meet: they have the
//! default. So each such option is listed, with the reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{SourceFile, Violation};

/// Rows of a file, an option and the reason.
const LIST: &str = "tests/foreign_options.txt";
/// This rule names what it searches for.
const OWN_FOLDER: &str = "xtask/src/tidy";
/// The names of all options of Redis 7.0 and 8.2 and Valkey 9.1 (`CONFIG GET *`), and of a
/// Sentinel about its masters.
const OPTIONS: &str = include_str!("redis_options.txt");
/// Where a server is and what it reports, not how it works.
const PLACES: [&str; 8] =
    ["bind", "daemonize", "dir", "logfile", "loglevel", "port", "tls-port", "unixsocket"];
/// What a file has that starts a Redis, Valkey or Sentinel.
const STARTS: [&str; 4] = ["redis-server", "valkey-server", "valkey_program", "from peers import"];
/// What precedes the name of an option; a name of one word is a word of many other meanings.
const BEFORE: [&str; 6] =
    ["\"--", " --", "config_set(\"", "CONFIG SET ", "\"SET\", \"", "config_set('"];
const BEFORE_COMPOUND: [&str; 3] = ["\"", "'", "\"sentinel "];

/// Each option of a foreign server is listed, and each listed one is used.
pub(crate) fn check_foreign_options(files: &[SourceFile]) -> Vec<Violation> {
    let Some(list) = files.iter().find(|file| file.path == LIST) else { return Vec::new() };
    let mut violations = Vec::new();
    let (mut listed, mut used) = (BTreeMap::new(), BTreeSet::new());
    for (line, text) in list.lines().filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
    {
        let mut words = text.splitn(3, ' ');
        let (path, option, reason) = (words.next(), words.next(), words.next());
        match (path, option, reason.map(str::trim)) {
            (Some(path), Some(option), Some(reason)) if !reason.is_empty() => {
                listed.insert((path, option), line);
            }
            _ => violations.push(Violation {
                path: LIST.to_owned(),
                line,
                what: "expected a file, an option and the reason".to_owned(),
            }),
        }
    }
    for file in files.iter().filter(|file| starts_foreign(file)) {
        for (line, text) in file.lines() {
            for option in options_in(text) {
                let row = (file.path.as_str(), option);
                if !listed.contains_key(&row) {
                    violations.push(unlisted(file, line, option));
                }
                used.insert(row);
            }
        }
    }
    let unused = listed.into_iter().filter(|(row, _)| !used.contains(row));
    violations.extend(unused.map(|((path, option), line)| Violation {
        path: LIST.to_owned(),
        line,
        what: format!("{path} has no option {option}: remove the row"),
    }));
    violations
}

fn unlisted(file: &SourceFile, line: usize, option: &str) -> Violation {
    Violation {
        path: file.path.clone(),
        line,
        what: format!(
            "sets {option}, which users have not set: test with the default, or add a row with the \
             reason to {LIST}"
        ),
    }
}

fn starts_foreign(file: &SourceFile) -> bool {
    let folders = ["tests/", "xtask/src/", "scripts/"];
    let is_test = folders.iter().any(|folder| file.path.starts_with(folder))
        || (file.path.starts_with("crates/") && file.path.contains("/tests/"));
    let is_code = ["rs", "py", "sh", "mjs", "js", "go", "java"].iter().any(|one| file.is_a(one));
    is_test
        && is_code
        && !file.path.starts_with(OWN_FOLDER)
        && STARTS.iter().any(|start| file.text.contains(start))
}

/// The options that a line sets.
fn options_in(line: &str) -> impl Iterator<Item = &'static str> {
    let names = OPTIONS.lines().filter(|name| !PLACES.contains(name));
    names.filter(move |name| {
        let is_compound = name.contains('-');
        let before = BEFORE.iter().chain(BEFORE_COMPOUND.iter().filter(|_| is_compound));
        line.match_indices(name).any(|(at, _)| {
            let after = line[at + name.len()..].chars().next();
            let is_whole = after.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-');
            let starts = |before: &&&str| line[..at].ends_with(**before);
            is_whole && before.clone().any(|before| starts(&before))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, list: &str, expected: &[&str]) {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let files = [file("tests/clients/x/suite.py", code), file(LIST, list)];
        let found = check_foreign_options(&files);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn options_of_foreign_servers_need_a_reason() {
        let start = "run(\"redis-server\", \"--port\", \"1\", \"--dir\", folder)\n";
        check(start, "", &[]);
        let delay = format!("{start}OPTIONS = (\"--repl-diskless-sync-delay\", \"0\")\n");
        check(&delay, "", &["suite.py:2: sets repl-diskless-sync-delay, which users"]);
        let row = "tests/clients/x/suite.py repl-diskless-sync-delay";
        check(&delay, &format!("# Rows\n{row} it is faster\n"), &[]);
        check(&delay, row, &["expected a file", "suite.py:2"]);
        check(start, &format!("{row} it is faster"), &["remove the row"]);
        for set in [
            "client.config_set(\"save\", \"\")",
            "redis-cli CONFIG SET save x",
            "[\"redis-server\", \"--save\", \"\"]",
        ] {
            check(&format!("{start}{set}"), "", &["sets save"]);
        }
        let backlog = "BACKLOG = (\"repl-backlog-size\", \"1mb\")";
        check(&format!("{start}{backlog}"), "", &["sets repl-backlog-size"]);
        check(&format!("{start}name = \"save\"; server.save()"), "", &[]);
        check("run(\"myriad\", \"--maxmemory\", \"1\")", "", &[]);
    }
}
