//! The notation of transcripts: request lines to arguments, replies to trees of lines.
//!
//! A reply is a tree of *heads*, one per line; children are indented by two spaces:
//!
//! | head | reply |
//! |---|---|
//! | `+OK`, `-ERR text` | simple string, error |
//! | `:1` `,1.5` `#t` `(99` | integer, double, boolean, big number |
//! | `$3 abc`, `$0`, `$-1` | bulk string: its bytes' count, then its text escaped; null |
//! | `=6 txt:ab` | verbatim string, with its format |
//! | `*2` `~2` `>2`, `*-1` | array, set, push: elements follow as children; null array |
//! | `%1` | map: key and value follow as children, alternating |
//! | `_` | null of RESP3 |

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use crate::resp::Value;

/// One line of a reply and the lines indented below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) head: String,
    pub(crate) children: Vec<Node>,
}

impl Node {
    /// The reply's tree.
    pub(crate) fn of(value: &Value) -> Self {
        let leaf = |head: String| Self { head, children: Vec::new() };
        let branch = |mark: char, count: usize, elements: &[Value]| Self {
            head: format!("{mark}{count}"),
            children: elements.iter().map(Self::of).collect(),
        };
        match value {
            Value::Simple(text) => leaf(format!("+{}", escape(text))),
            Value::Error(text) => leaf(format!("-{}", escape(text))),
            Value::Scalar(text) => leaf(text.clone()),
            Value::Null => leaf("_".into()),
            Value::Bulk(None) => leaf("$-1".into()),
            Value::Bulk(Some(bytes)) if bytes.is_empty() => leaf("$0".into()),
            Value::Bulk(Some(bytes)) => leaf(format!("${} {}", bytes.len(), escape(bytes))),
            Value::Verbatim(bytes) => leaf(format!("={} {}", bytes.len(), escape(bytes))),
            Value::Array(None) => leaf("*-1".into()),
            Value::Array(Some(elements)) => branch('*', elements.len(), elements),
            Value::Set(elements) => branch('~', elements.len(), elements),
            Value::Push(elements) => branch('>', elements.len(), elements),
            Value::Map(elements) => branch('%', elements.len() / 2, elements),
        }
    }

    /// The tree as indented lines, without the `< ` before them.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.push_lines(0, &mut lines);
        lines
    }

    fn push_lines(&self, depth: usize, lines: &mut Vec<String>) {
        lines.push(format!("{:indent$}{}", "", self.head, indent = depth * 2));
        for child in &self.children {
            child.push_lines(depth + 1, lines);
        }
    }

    /// The tree as one line: heads separated by one space. `@match` compares this form.
    pub(crate) fn flat(&self) -> String {
        let mut text = self.head.clone();
        for child in &self.children {
            text.push(' ');
            text.push_str(&child.flat());
        }
        text
    }
}

/// Bytes as printable ASCII. Every byte has one form; a space at the end is written `\x20`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b' ' if index + 1 == bytes.len() => text.push_str("\\x20"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a String takes all text"),
        }
    }
    text
}

/// An argument as a request line has it.
pub(crate) fn quoted(argument: &[u8]) -> String {
    let is_word = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !argument.is_empty() && argument.iter().all(is_word) {
        return String::from_utf8_lossy(argument).into_owned();
    }
    format!("\"{}\"", escape(argument).replace('"', "\\\""))
}

/// Splits a request line into arguments by redis-cli's rules: words, `"double"` with escapes
/// (`\n \r \t \b \a \xHH \" \\`), `'single'` with `\'` only.
pub(crate) fn split_arguments(line: &str) -> Result<Vec<Vec<u8>>> {
    let mut rest = line.as_bytes();
    let mut arguments = Vec::new();
    loop {
        while let [b' ' | b'\t', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(arguments);
        }
        let mut argument = Vec::new();
        rest = match rest {
            [b'"', tail @ ..] => read_double_quoted(tail, &mut argument)?,
            [b'\'', tail @ ..] => read_single_quoted(tail, &mut argument)?,
            word => read_word(word, &mut argument),
        };
        if !matches!(rest, [] | [b' ' | b'\t', ..]) {
            bail!("a closing quote must be followed by a space or the end");
        }
        arguments.push(argument);
    }
}

fn read_word<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> &'a [u8] {
    while let [byte, tail @ ..] = rest {
        if matches!(byte, b' ' | b'\t') {
            break;
        }
        argument.push(*byte);
        rest = tail;
    }
    rest
}

fn read_single_quoted<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Result<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'\'', tail @ ..] => {
                argument.push(b'\'');
                tail
            }
            [b'\'', tail @ ..] => return Ok(tail),
            [byte, tail @ ..] => {
                argument.push(*byte);
                tail
            }
            [] => bail!("single quote without its end"),
        };
    }
}

fn read_double_quoted<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Result<&'a [u8]> {
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', tail @ ..] => read_escape(tail, argument)?,
            [byte, tail @ ..] => {
                argument.push(*byte);
                tail
            }
            [] => bail!("double quote without its end"),
        };
    }
}

/// Reads the characters after a backslash.
fn read_escape<'a>(rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8]> {
    let (byte, tail) = match rest {
        [b'x', high, low, tail @ ..] => {
            let digits = [*high, *low];
            let digits = std::str::from_utf8(&digits).context("\\x takes two hex digits")?;
            (u8::from_str_radix(digits, 16).context("\\x takes two hex digits")?, tail)
        }
        [b'n', tail @ ..] => (b'\n', tail),
        [b'r', tail @ ..] => (b'\r', tail),
        [b't', tail @ ..] => (b'\t', tail),
        [b'b', tail @ ..] => (8, tail),
        [b'a', tail @ ..] => (7, tail),
        [byte, tail @ ..] => (*byte, tail),
        [] => bail!("backslash at the end"),
    };
    bytes.push(byte);
    Ok(tail)
}

/// The bytes of a raw request line: escapes as within double quotes, nothing else is special.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut rest = text.as_bytes();
    let mut bytes = Vec::new();
    while let [byte, tail @ ..] = rest {
        rest = if *byte == b'\\' {
            read_escape(tail, &mut bytes)?
        } else {
            bytes.push(*byte);
            tail
        };
    }
    Ok(bytes)
}

/// True if `text` matches `pattern`: `*` is any text, `?` any character, `{a..b}` an integer within
/// these bounds, everything else is literal.
pub(crate) fn glob_matches(pattern: &str, text: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return text.is_empty();
    };
    let after = &pattern[first.len_utf8()..];
    if first == '*' {
        return text.char_indices().any(|(at, _)| glob_matches(after, &text[at..]))
            || glob_matches(after, "");
    }
    if first == '{'
        && let Some((bounds, after)) = parse_bounds(after)
    {
        return integer_prefixes(text)
            .any(|(number, rest)| bounds.contains(&number) && glob_matches(after, rest));
    }
    let mut characters = text.chars();
    match characters.next() {
        Some(found) if first == '?' || first == found => glob_matches(after, characters.as_str()),
        _ => false,
    }
}

/// `1..9}rest` -> the bounds and `rest`.
fn parse_bounds(text: &str) -> Option<(std::ops::RangeInclusive<i64>, &str)> {
    let (inside, after) = text.split_once('}')?;
    let (low, high) = inside.split_once("..")?;
    Some((low.parse().ok()?..=high.parse().ok()?, after))
}

/// Every integer that `text` may start with, and the remaining text.
fn integer_prefixes(text: &str) -> impl Iterator<Item = (i64, &str)> {
    (1..=text.len().min(20))
        .filter(|&length| text.is_char_boundary(length))
        .filter_map(|length| Some((text[..length].parse().ok()?, &text[length..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_redis_cli() {
        let split = |line: &str| split_arguments(line).unwrap();
        assert_eq!(split("SET  k v"), [b"SET".to_vec(), b"k".to_vec(), b"v".to_vec()]);
        assert_eq!(
            split(r#"a "" '' "\x00\n\"" '\'\n'"#),
            [b"a".to_vec(), b"".to_vec(), b"".to_vec(), b"\0\n\"".to_vec(), b"'\\n".to_vec()]
        );
        for bad in [r#"a "b"#, "a 'b", r#""a"b"#, r#""\xzz""#] {
            assert!(split_arguments(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_are_readable_and_reversible() {
        let bytes: Vec<u8> = (0..=255).chain(*b" ").collect();
        assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes);
        assert_eq!(escape(b"a b "), "a b\\x20");
    }

    #[test]
    fn trees_render_with_indentation() {
        let value = Value::Array(Some(vec![
            Value::Scalar(":1".into()),
            Value::Map(vec![Value::Bulk(Some(b"k".to_vec())), Value::Array(Some(vec![]))]),
            Value::Bulk(None),
        ]));
        let node = Node::of(&value);
        assert_eq!(node.lines(), ["*3", "  :1", "  %1", "    $1 k", "    *0", "  $-1"]);
        assert_eq!(node.flat(), "*3 :1 %1 $1 k *0 $-1");
    }

    #[test]
    fn globs() {
        assert!(glob_matches("a*c?", "abbcd"));
        assert!(!glob_matches("a*c?", "abbc"));
        assert!(glob_matches(":{90..100}", ":95"));
        assert!(!glob_matches(":{90..100}", ":9"));
        assert!(!glob_matches(":{90..100}", ":101"));
        assert!(glob_matches("*", ""));
        assert!(glob_matches("{x", "{x"));
    }
}
