//! `cargo xtask tidy`: rules of the project that the compiler does not check.
//!
//! Each rule is a function from the tree of files to violations; each violation names the file, the
//! line, the problem and the remedy.

mod code;
mod commits;
mod crate_layers;
pub(crate) mod cycles;
mod docs;
mod foreign_options;
pub(crate) mod idioms;
pub(crate) mod linked;
mod links;
mod log_messages;
pub(crate) mod names;
mod rows;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tally::Tally;

/// Folders with files of other origin.
const SKIPPED_FOLDERS: [&str; 8] =
    ["target", "node_modules", ".git", ".deps", "data", "__pycache__", "shared", ".venv"];
/// Extensions of files written by hand.
const EXTENSIONS: [&str; 14] = [
    "rs", "toml", "md", "sh", "py", "js", "mjs", "java", "go", "txt", "xml", "json", "yml", "html",
];
/// A longer file is reported, not rejected: check whether it has one purpose.
const LONG_FILE_LINES: usize = 700;

/// One file: path with `/` below the root, and its text.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    /// True when the name ends in `.extension`.
    pub(crate) fn is_a(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Lines with their number from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// A violated rule, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) path: String,
    /// From 1; 0: the file as a whole.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line.max(1), self.what)
    }
}

type Rule = fn(&[SourceFile]) -> Vec<Violation>;

/// Every rule with its name.
const RULES: [(&str, Rule); 19] = [
    ("layers of crates", crate_layers::check_imports),
    ("reasons of dependencies", crate_layers::check_reasons),
    ("import cycles", cycles::check_cycles),
    ("names banned in modules", code::check_bans),
    ("unsafe code", code::check_unsafe),
    ("leftovers", code::check_leftovers),
    ("examples in comments", code::check_examples),
    ("sources of codec rules", code::check_sources),
    ("home paths", code::check_home_paths),
    ("titles of documents", docs::check_titles),
    ("documents in the book", docs::check_summary),
    ("widths of documents", docs::check_widths),
    ("links of documents", links::check_links),
    ("banned idioms", idioms::check_idioms),
    ("messages of the log", log_messages::check_log_messages),
    ("transcripts of commands", docs::check_transcripts),
    ("rows of commands", rows::check_rows),
    ("names of commands", names::check_names),
    ("options of foreign servers", foreign_options::check_foreign_options),
];

/// Runs all rules over the repository and prints the violations.
pub(crate) fn run(root: &Path) -> Result<Tally> {
    let files = read_tree(root)?;
    let mut tally = Tally::default();
    let results = RULES.iter().map(|(name, rule)| (*name, rule(&files)));
    let of_the_whole = [
        ("commit subject", commits::check_subject(root)),
        ("crates of the server", linked::check_count(&linked::list(root)?)),
    ];
    for (name, violations) in results.chain(of_the_whole) {
        for violation in &violations {
            println!("{violation}");
        }
        if violations.is_empty() {
            tally.passed += 1;
        } else {
            println!("tidy: {name}: {} violations", violations.len());
            tally.failed += 1;
        }
    }
    for line in long_files(&files) {
        println!("{line}");
    }
    Ok(tally)
}

fn long_files(files: &[SourceFile]) -> Vec<String> {
    let code = files.iter().filter(|file| file.is_a("rs"));
    code.map(|file| (file, file.text.lines().count()))
        .filter(|(_, count)| *count > LONG_FILE_LINES)
        .map(|(file, count)| format!("note: {} has {count} lines: is it one noun?", file.path))
        .collect()
}

/// Reads all files written by hand, in the order of their paths.
pub(crate) fn read_tree(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file() && is_ours(&name) {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("read {} as text", path.display()))?;
                let path = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                files.push(SourceFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_ours(name: &str) -> bool {
    let has_extension = Path::new(name)
        .extension()
        .is_some_and(|found| EXTENSIONS.iter().any(|extension| found == *extension));
    has_extension || name == "Makefile"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;

    /// A small tree without violations.
    const CLEAN: [(&str, &str); 12] = [
        (
            "Cargo.toml",
            "[workspace.dependencies]\nbase = { path = \"crates/base\" }\nitoa = \"1\" # text\n",
        ),
        (
            "crates/base/Cargo.toml",
            "[package]\nname = \"base\"\n[dependencies]\nitoa.workspace = true\n",
        ),
        (
            "crates/store/Cargo.toml",
            "[package]\nname = \"store\"\n[dependencies]\nbase.workspace = true\n",
        ),
        (
            "crates/wire/src/resp/decode.rs",
            "// Source: RESP specification, bulk strings\npub fn decode() {}\n",
        ),
        ("crates/wire/src/http.rs", "use crate::cql::A;\n"),
        (
            "crates/server/src/commands/string.rs",
            "//! Strings.\nconst GET: Command = Command {\n    name: \"get\",\n};\n",
        ),
        (
            "crates/server/src/commands/table.rs",
            "const COMMANDS: &[&Command] = &[\n    &string::GET,\n];\n",
        ),
        (
            "docs/SUMMARY.md",
            "# Summary\n\n- [A](reference/commands.md)\n- [B](operate/troubleshooting.md)\n",
        ),
        ("docs/reference/commands.md", "# Commands\n\n```sh\n# not a title\n```\n"),
        ("crates/web/src/b.rs", "tracing::info!(%why, \"ending\");\n"),
        (
            "docs/operate/troubleshooting.md",
            "# Troubleshooting\n\n[Commands](../reference/commands.md#commands)\n\n- `ending`\n",
        ),
        ("tests/transcripts/string/get.txt", "> GET k\n< $-1\n"),
    ];

    /// Violations of the clean tree with one file added or replaced, with their rules.
    fn check_with(path: &str, text: &str) -> Vec<String> {
        let directory = TempDir::new("tidy").unwrap();
        let planted = [(path, text)];
        for (path, text) in CLEAN.iter().chain(&planted) {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let files = read_tree(directory.path()).unwrap();
        let found = RULES.iter().flat_map(|(name, rule)| {
            rule(&files).into_iter().map(move |violation| format!("{name}: {violation}"))
        });
        found.collect()
    }

    #[test]
    fn a_clean_tree_passes() {
        assert_eq!(check_with("README.md", "# Myriad\n"), Vec::<String>::new());
    }

    /// The canary: each rule must detect the violation planted for it, at its line.
    #[test]
    fn every_rule_catches_its_planted_violation() {
        let leftover = format!("fn f() {{}}\n// {}{}: later\n", "FIX", "ME");
        let home = format!("see {}/ada/notes\n", "/home");
        let is_get = "\nfn f() -> bool { matches!(name, \"get\") }\n";
        let wide = format!("# Notes\n{}\n", "a".repeat(101));
        let plants: [(&str, &str, &str, usize); 21] = [
            ("layers", "crates/base/Cargo.toml", "[dependencies]\nstore.workspace = true\n", 2),
            ("layers", "crates/attic/Cargo.toml", "[dependencies]\n", 1),
            ("reasons", "Cargo.toml", "[workspace.dependencies]\nitoa = \"1\"\n", 2),
            (
                "names banned",
                "crates/server/src/commands/hash.rs",
                "\nuse reactor::Connections;\n",
                2,
            ),
            ("names banned", "crates/server/src/commands/hash.rs", "\nuse binlog::{Disk};\n", 2),
            ("import cycles", "crates/wire/src/cql.rs", "\nuse crate::http::B;\n", 2),
            ("unsafe", "crates/store/src/list.rs", "fn f() {\n    unsafe { g() }\n}\n", 2),
            ("leftovers", "crates/store/src/list.rs", &leftover, 2),
            ("sources", "crates/wire/src/resp/encode.rs", "pub fn encode() {}\n", 1),
            ("home paths", "docs/notes.md", &format!("# Notes\n{home}"), 2),
            ("titles", "docs/notes.md", "# One\n\n# Two\n", 3),
            ("titles", "docs/notes.md", "no title\n", 1),
            ("documents in the book", "docs/notes.md", "# Notes\n", 1),
            ("widths", "docs/notes.md", &wide, 2),
            ("links", "docs/notes.md", "# Notes\n[a](missing.md)\n", 2),
            ("links", "docs/notes.md", "# Notes\n[a](reference/commands.md#missing)\n", 2),
            ("banned idioms", "crates/base2/src/a.rs", "\n// It comes next.\n", 2),
            ("messages", "crates/web/src/a.rs", "\n    tracing::warn!(\"undocumented\");\n", 2),
            ("transcripts", "crates/server/src/commands/table.rs", "\n    &string::SET,\n", 2),
            ("names of commands", "crates/server/src/http/kv.rs", is_get, 2),
            ("rows", "crates/server/src/commands/hash.rs", "\nconst HGET: Command = A;\n", 2),
        ];
        for (rule, path, text, line) in plants {
            let found = check_with(path, text);
            let place = format!("{path}:{line}: ");
            let caught = found.iter().any(|text| text.starts_with(rule) && text.contains(&place));
            assert!(caught, "{rule} did not catch {path}: {found:?}");
        }
    }

    #[test]
    fn fetched_and_built_files_are_not_checked() {
        let text = format!("{}{}\n", "FIX", "ME");
        assert_eq!(check_with("tests/clients/node/node_modules/a.js", &text), Vec::<String>::new());
        assert_eq!(check_with("target/a.rs", &text), Vec::<String>::new());
    }

    #[test]
    fn long_files_are_noted() {
        let files = [SourceFile { path: "a.rs".into(), text: "x\n".repeat(LONG_FILE_LINES + 1) }];
        assert_eq!(long_files(&files).len(), 1);
    }
}
