//! Log messages for operators, and the document that explains each.

use crate::tidy::{SourceFile, Violation};

/// It lists each message in backticks, exactly as in the code.
const DOCUMENT: &str = "docs/operate/troubleshooting.md";
/// Crates that run in the data server or the web server.
const CRATES: [&str; 6] = [
    "crates/binlog",
    "crates/cql",
    "crates/reactor",
    "crates/server",
    "crates/store",
    "crates/web",
];
/// Levels that are on by default.
const MACROS: [&str; 3] = ["tracing::error!(", "tracing::warn!(", "tracing::info!("];

/// Each message of a server at level info or above is listed in the document.
pub(crate) fn check_log_messages(files: &[SourceFile]) -> Vec<Violation> {
    let document = files.iter().find(|file| file.path == DOCUMENT);
    let documented = document.map_or("", |document| document.text.as_str());
    // Lines of the document may be broken within a message.
    let documented = documented.split_whitespace().collect::<Vec<_>>().join(" ");
    let sources = files.iter().filter(|file| is_server_source(file));
    sources
        .flat_map(|file| messages(file).map(move |(line, message)| (file, line, message)))
        .filter(|(_, _, message)| !documented.contains(&format!("`{message}`")))
        .map(|(file, line, message)| Violation {
            path: file.path.clone(),
            line,
            what: format!("add `{message}` to {DOCUMENT}: its meaning, and what to do"),
        })
        .collect()
}

fn is_server_source(file: &SourceFile) -> bool {
    let mut folders = CRATES.iter().map(|name| format!("{name}/src/"));
    file.is_a("rs") && folders.any(|folder| file.path.starts_with(&folder))
}

/// Messages with the lines of their macros; unit tests do not log.
fn messages(file: &SourceFile) -> impl Iterator<Item = (usize, String)> {
    let mut starts: Vec<usize> =
        MACROS.iter().flat_map(|name| file.text.match_indices(name)).map(|(at, _)| at).collect();
    starts.sort_unstable();
    starts.into_iter().map(|at| {
        let line = file.text[..at].matches('\n').count() + 1;
        (line, last_literal(&file.text[at..]))
    })
}

/// The last string literal of a call, with its continued lines joined. Messages have no quotes.
fn last_literal(call: &str) -> String {
    let (mut depth, mut last) = (0, "");
    for (index, part) in call.split('"').enumerate() {
        if index % 2 == 1 {
            last = part;
            continue;
        }
        for letter in part.chars() {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                return last.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ");
            }
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_the_last_literal() {
        let joined = "warn!(names = a.join(\" \"), \"two words\"), b(\"other\")";
        assert_eq!(last_literal(joined), "two words");
        assert_eq!(last_literal("warn!(\n    \"one \\\n     two\"\n);"), "one two");
    }
}
