//! A dialogue as text: statements and their answers.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Result, bail};

/// The content of one file.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
}

/// One statement.
#[derive(Debug)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) statement: String,
    /// Rows have no order.
    pub(crate) is_unordered: bool,
    /// Whether it must not be prepared and executed again.
    pub(crate) is_once: bool,
    pub(crate) page_rows: Option<i32>,
    answer: Vec<String>,
    /// Answers of one server only.
    only: BTreeMap<String, Vec<String>>,
    /// The lines of the common answer, counted from 0.
    pub(crate) answer_lines: Range<usize>,
}

impl Step {
    /// The expected answer of this server.
    pub(crate) fn expected(&self, peer: &str) -> &[String] {
        self.only.get(peer).unwrap_or(&self.answer)
    }

    /// Whether the expectation was written by hand: it has a pattern, or is for one server.
    pub(crate) fn is_by_hand(&self, peer: &str) -> bool {
        self.only.contains_key(peer) || self.answer.iter().any(|line| line.contains('*'))
    }
}

/// Parses a file. `--` comments, `>` a statement, `+` its continuation, `<` the answer, `@`
/// directives.
pub(crate) fn parse(text: &str) -> Result<Script> {
    let mut script = Script::default();
    let (mut is_unordered, mut is_once, mut page_rows) = (false, false, None);
    let mut only: Option<String> = None;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let (mark, rest) = line.split_at_checked(1).unwrap_or((line, ""));
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match mark {
            "" => {}
            "-" if line.starts_with("--") => {}
            ">" => {
                script.steps.push(Step {
                    line: number,
                    statement: rest.to_owned(),
                    is_unordered: std::mem::take(&mut is_unordered),
                    is_once: std::mem::take(&mut is_once),
                    page_rows: page_rows.take(),
                    answer: Vec::new(),
                    only: BTreeMap::new(),
                    answer_lines: at + 1..at + 1,
                });
                only = None;
            }
            "@" => match rest.split_once(' ').unwrap_or((rest, "")) {
                ("unordered", "") => is_unordered = true,
                ("once", "") => is_once = true,
                ("page", rows) => page_rows = Some(rows.parse()?),
                ("only", peer) => {
                    let Some((peer, _reason)) = peer.split_once(": ") else {
                        bail!("line {number}: `@ only SERVER: REASON`");
                    };
                    let Some(step) = script.steps.last_mut() else {
                        bail!("line {number}: an answer before any statement");
                    };
                    step.only.insert(peer.to_owned(), Vec::new());
                    only = Some(peer.to_owned());
                }
                _ => bail!("line {number}: unknown instruction {rest:?}"),
            },
            "+" | "<" => {
                let Some(step) = script.steps.last_mut() else {
                    bail!("line {number}: an answer before any statement");
                };
                if mark == "+" {
                    step.statement.push(' ');
                    step.statement.push_str(rest.trim_start());
                    step.answer_lines = at + 1..at + 1;
                    continue;
                }
                if let Some(peer) = &only {
                    step.only.entry(peer.clone()).or_default().push(rest.to_owned());
                    continue;
                }
                if step.answer.is_empty() {
                    step.answer_lines.start = at;
                }
                step.answer.push(rest.to_owned());
                step.answer_lines.end = at + 1;
            }
            _ => bail!("line {number}: not a statement, answer, instruction or comment: {line:?}"),
        }
    }
    Ok(script)
}

/// Whether an answer matches; `*` matches anything. Rows follow the line of columns.
pub(crate) fn is_match(expected: &[String], actual: &[String], is_unordered: bool) -> bool {
    if expected.len() != actual.len() {
        return false;
    }
    if !is_unordered || expected.len() < 2 {
        return expected.iter().zip(actual).all(|(pattern, line)| is_like(pattern, line));
    }
    let sorted = |lines: &[String]| {
        let mut rows = lines[1..].to_vec();
        rows.sort();
        rows
    };
    expected[0] == actual[0] && sorted(expected) == sorted(actual)
}

/// Whether a line contains the parts of a pattern between its `*`, in order. A pattern without `*`
/// must equal the line, and so must a line of columns with a `*` in it.
fn is_like(pattern: &str, line: &str) -> bool {
    if pattern == line {
        return true;
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_anything_between_their_parts() {
        for (pattern, line, expected) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*c", "ab", false),
            ("*", "", true),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(is_like(pattern, line), expected, "{pattern} {line}");
        }
    }

    #[test]
    fn a_file_is_read_with_its_places() {
        let text = "-- a comment\n> SELECT a\n+   FROM t\n< a int\n< 1\n@ only myriad: why\n< b\n@ unordered\n> X\n";
        let script = parse(text).unwrap();
        let [select, other] = &script.steps[..] else { panic!() };
        assert_eq!(select.statement, "SELECT a FROM t");
        assert_eq!(select.expected("cassandra"), ["a int", "1"]);
        assert_eq!(select.expected("myriad"), ["b"]);
        assert_eq!((select.answer_lines.clone(), select.line), (3..5, 2));
        assert!(other.is_unordered && !select.is_unordered);
        assert_eq!(other.answer_lines, 9..9);
        assert!(parse("< a").is_err());
        assert!(parse("@ never").is_err());
        assert!(parse("nonsense").is_err());
    }

    #[test]
    fn rows_without_order_keep_their_columns_first() {
        let lines = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let (one, two) = (lines(&["k", "1", "2"]), lines(&["k", "2", "1"]));
        assert!(is_match(&one, &two, true));
        assert!(!is_match(&one, &two, false));
        assert!(!is_match(&one, &lines(&["1", "k", "2"]), true));
    }
}
