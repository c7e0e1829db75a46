//! Rules about the text of code.

use crate::tidy::{SourceFile, Violation};

/// Words that must not occur in a part of the tree.
struct Ban {
    /// Paths with this prefix are checked.
    prefix: &'static str,
    words: &'static [&'static str],
    /// Files below the prefix in which the words are allowed.
    except: &'static [&'static str],
    instead: &'static str,
}

/// Types that act on connections and disks.
const ACTORS: &[&str] = &["reactor::Context", "Context<", "Connections", "Output", "Links", "Disk"];

/// The table to edit when a boundary moves.
const BANS: [Ban; 8] = [
    Ban {
        prefix: "crates/server/src/commands",
        words: ACTORS,
        except: &[],
        instead: "sessions see bytes and the engine: the handler acts on connections",
    },
    Ban {
        prefix: "crates/server/src/statements",
        words: ACTORS,
        // Its servers have their own disks.
        except: &["crates/server/src/statements/execute/tests/harness.rs"],
        instead: "statements see the engine: the handler acts on connections",
    },
    Ban {
        prefix: "crates/server/src/cql",
        words: ACTORS,
        except: &[],
        instead: "sessions see bytes and the engine: the handler acts on connections",
    },
    Ban {
        prefix: "crates/server/src/http",
        words: ACTORS,
        except: &[],
        instead: "sessions see bytes and the engine: the handler acts on connections",
    },
    Ban {
        prefix: "crates/server/src",
        words: &["apply_mutation", "log.append"],
        // These tests write their own records.
        except: &[
            "crates/server/src/engine/commit.rs",
            "crates/server/src/http/changes/tests.rs",
            "crates/server/src/repair/tests.rs",
            "crates/server/src/upgrade/tests.rs",
            "crates/server/src/simulation/schema.rs",
        ],
        instead: "data changes in a unit of work only: use `commit::Unit::change`",
    },
    Ban {
        prefix: "crates/server/src/engine",
        words: &["Unit::of_client"],
        // MIGRATE deletes the keys that it has moved.
        except: &["crates/server/src/engine/migration_threads.rs"],
        instead: "background work gives no key a version: use `Unit::of_server`",
    },
    Ban {
        prefix: "crates/server/src/replica",
        words: &["Unit::of_client"],
        except: &[],
        instead: "a link gives no key a version of this server: use `Unit::of_server`",
    },
    Ban {
        prefix: "crates/store/src",
        words: &["std::net", "std::fs", "SystemTime::now", "Instant::now"],
        except: &[],
        instead: "the store knows no sockets, files or clocks: take the value as an argument",
    },
];

/// The only files with unsafe code.
const UNSAFE_FILES: [&str; 2] =
    ["crates/store/src/blob.rs", "crates/server/src/commands/scripting/stack.rs"];

/// Marks of unfinished work, in any file. Split, so that this file contains none.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];
/// The corresponding macros of Rust.
const MACROS: [&str; 3] =
    [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];

/// Folders of codecs.
const CODEC_FOLDERS: [&str; 4] = [
    "crates/wire/src/resp/",
    "crates/wire/src/cql/",
    "crates/wire/src/http/",
    "crates/wire/src/rdb/",
];
/// Files in the folders of codecs without rules of a protocol: shared by tests and fuzzers.
const NO_CODECS: [&str; 4] = [
    "crates/wire/src/rdb/check.rs",
    "crates/wire/src/resp/check.rs",
    "crates/wire/src/http/check.rs",
    "crates/wire/src/http/request/tests.rs",
];
/// Prefixes of functions that implement rules of the protocol.
const CODEC_FUNCTIONS: [&str; 6] =
    ["fn decode", "fn encode", "fn parse", "fn write_", "fn put_", "fn read_"];

/// Modules must not use the words banned for them.
pub(crate) fn check_bans(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ban in &BANS {
        let checked = files.iter().filter(|file| {
            let path = file.path.as_str();
            let inside = path
                .strip_prefix(ban.prefix)
                .is_some_and(|rest| rest.starts_with('/') || rest == ".rs");
            inside && file.is_a("rs") && !ban.except.contains(&path)
        });
        for file in checked {
            violations.extend(check_ban(ban, file));
        }
    }
    violations
}

fn check_ban<'a>(ban: &'a Ban, file: &'a SourceFile) -> impl Iterator<Item = Violation> + 'a {
    file.lines().flat_map(move |(line, text)| {
        let code = strip_comment_and_strings(text);
        let named = ban.words.iter().filter(move |word| has_word(&code, word));
        named.map(move |word| Violation {
            path: file.path.clone(),
            line,
            what: format!("{word} must not occur below {}: {}", ban.prefix, ban.instead),
        })
    })
}

/// Unsafe code is allowed only where it is tested with a naive oracle.
pub(crate) fn check_unsafe(files: &[SourceFile]) -> Vec<Violation> {
    let word = concat!("un", "safe");
    let rust = files.iter().filter(|file| file.is_a("rs"));
    let checked = rust.filter(|file| !UNSAFE_FILES.contains(&file.path.as_str()));
    let found = checked.flat_map(|file| {
        let lines =
            file.lines().filter(|(_, text)| has_word(&strip_comment_and_strings(text), word));
        lines.map(|(line, _)| Violation {
            path: file.path.clone(),
            line,
            what: format!(
                "{word} code outside {}: use a safe crate, or move it there",
                UNSAFE_FILES.join(" and ")
            ),
        })
    });
    found.collect()
}

/// No unfinished work is left in the tree.
pub(crate) fn check_leftovers(files: &[SourceFile]) -> Vec<Violation> {
    let found = files.iter().filter(|file| !is_generated(file)).flat_map(|file| {
        let is_rust = file.is_a("rs");
        file.lines().flat_map(move |(line, text)| {
            let words = MARKS.iter().chain(MACROS.iter().filter(move |_| is_rust));
            words.filter(move |word| has_word(text, word)).map(move |word| Violation {
                path: file.path.clone(),
                line,
                what: format!("{word} marks unfinished work: finish or remove it"),
            })
        })
    });
    found.collect()
}

/// Rejects examples in documentation comments that a compiler would have to check: `cargo xtask ci`
/// runs test programs only.
pub(crate) fn check_examples(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_a("rs")) {
        let mut is_open = false;
        for (line, text) in file.lines() {
            let text = text.trim_start();
            let comment = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
            let Some(fence) = comment.map(str::trim).filter(|text| text.starts_with("```")) else {
                continue;
            };
            is_open = !is_open;
            if is_open && fence != "```text" {
                let what = "an example of code is not compiled: mark it as text, or write a test";
                violations.push(Violation { path: file.path.clone(), line, what: what.into() });
            }
        }
    }
    violations
}

/// Lock files and transcripts: their words are data.
fn is_generated(file: &SourceFile) -> bool {
    file.path.ends_with("package-lock.json")
        || (file.is_a("txt") && file.path.contains("/transcripts/"))
}

/// Each file of a codec names the specification of its rules.
pub(crate) fn check_sources(files: &[SourceFile]) -> Vec<Violation> {
    let is_codec = |file: &&SourceFile| {
        CODEC_FOLDERS.iter().any(|folder| file.path.starts_with(folder))
            && file.is_a("rs")
            && !NO_CODECS.contains(&file.path.as_str())
            && !file.text.contains("// Source: ")
    };
    let found = files.iter().filter(is_codec).filter_map(|file| {
        let (line, _) = file
            .lines()
            .find(|(_, text)| CODEC_FUNCTIONS.iter().any(|start| text.contains(start)))?;
        Some(Violation {
            path: file.path.clone(),
            line,
            what: "a codec without its source: write `// Source: document, section` above the rule"
                .into(),
        })
    });
    found.collect()
}

/// No file contains a path of its author's machine.
pub(crate) fn check_home_paths(files: &[SourceFile]) -> Vec<Violation> {
    let homes = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let found = files.iter().flat_map(|file| {
        file.lines().flat_map(move |(line, text)| {
            homes.into_iter().filter(move |home| text.contains(home)).map(move |home| Violation {
                path: file.path.clone(),
                line,
                what: format!("path below {home}: use a path relative to the repository"),
            })
        })
    });
    found.collect()
}

/// True if `word` occurs in `text` without an adjacent letter, digit or `_` that would make it part
/// of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_name = |found: Option<char>| found.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let ends_in_name = is_name(word.chars().next_back());
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_part_of_name = is_name(before) || (ends_in_name && is_name(after));
        !is_part_of_name
    })
}

/// The code of a line: without `// comment` and without the content of strings.
fn strip_comment_and_strings(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    let mut in_string = false;
    while let Some(character) = rest.next() {
        match character {
            '\\' if in_string => drop(rest.next()),
            // `'"'` is a character, not the start of a string.
            '"' if code.ends_with('\'') && rest.peek() == Some(&'\'') => {}
            '"' => in_string = !in_string,
            _ if in_string => {}
            '/' if rest.peek() == Some(&'/') => break,
            other => code.push(other),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(has_word("use reactor::Token;", "reactor::"));
        assert!(!has_word("use my_reactor::Token;", "reactor::"));
        assert!(!has_word("#![forbid(unsafe_code)]", concat!("un", "safe")));
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(strip_comment_and_strings("let a = \"x // \\\" y\"; // z"), "let a = ; ");
        assert_eq!(strip_comment_and_strings("'\"' => b, // c"), "'' => b, ");
    }

    #[test]
    fn examples_are_text() {
        let found = |fence: &str| {
            let text = format!("//! ```{fence}\n//! a\n//! ```\n/// a\nfn f() {{}}");
            check_examples(&[SourceFile { path: "a.rs".into(), text }]).len()
        };
        assert_eq!((found("text"), found(""), found("rust")), (0, 1, 1));
    }

    #[test]
    fn files_with_leave_may_be_unsafe() {
        let text = concat!("un", "safe { f() }");
        let file = |path: &str| SourceFile { path: path.into(), text: text.into() };
        assert_eq!(check_unsafe(&[file(UNSAFE_FILES[0])]), []);
        assert_eq!(check_unsafe(&[file("crates/store/src/blob2.rs")]).len(), 1);
    }
}
