//! The configuration file: flat TOML, `name = value`. The parser reports the line of every error.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use toml_edit::{Document, Item, Key, TomlError, Value};

use crate::yes_no;

/// A larger file is not a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One `name = value` of the file, with the value as text for the option to parse.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// A syntax error in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

/// Reads a configuration file, unless it is too large to be one.
pub fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 MiB"));
    }
    Ok(text)
}

/// Parses all entries, in order. After a syntax error the rest has no meaning: it is the only one.
pub(crate) fn parse(text: &str) -> Vec<Result<Entry, Fault>> {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => return vec![Err(syntax_fault(text, &error))],
    };
    let table = document.as_table();
    let entry = |(name, item): (&str, &Item)| {
        let span = table.key(name).and_then(Key::span).or_else(|| item.span());
        let line = span.map_or(1, |span| line_at(text, span.start));
        let value = value_text(name, item).map_err(|reason| Fault { line, reason })?;
        Ok(Entry { name: name.to_owned(), value, line })
    };
    table.iter().map(entry).collect()
}

fn syntax_fault(text: &str, error: &TomlError) -> Fault {
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    let reason = error.message().lines().collect::<Vec<_>>().join(", ");
    Fault { line, reason }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

fn value_text(name: &str, item: &Item) -> Result<String, String> {
    let Some(value) = item.as_value() else {
        return Err(format!("[{name}] is a table: options are flat, name = value"));
    };
    match value {
        Value::Array(array) => {
            let parts: Option<Vec<_>> = array.iter().map(scalar_text).collect();
            parts.map(|parts| parts.join(" "))
        }
        scalar => scalar_text(scalar),
    }
    .ok_or_else(|| format!("{name}: a value is a string, a number, true, false or a list of these"))
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(truth) => Some(yes_no(*truth.value()).to_owned()),
        Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String, usize)> {
        let entries = parse(text).into_iter().map(Result::unwrap);
        entries.map(|e| (e.name, e.value, e.line)).collect()
    }

    fn check_fault(text: &str, line: usize, part: &str) {
        let fault = parse(text).into_iter().find_map(Result::err).unwrap();
        assert_eq!(fault.line, line, "{fault:?}");
        assert!(fault.reason.contains(part), "{fault:?}");
        assert!(!fault.reason.contains('\n'), "{fault:?}");
    }

    #[test]
    fn every_toml_form_becomes_text_with_its_line() {
        let text = "# head\ndir = \"x y\"\nprotected-mode = false\n\nhz = 20\nmemory-limit = -5\n\
                    resp = [\"127.0.0.1:1\", \"[::1]:2\"]\n\
                    latency-tracking-info-percentiles = [50, 99.9]\n";
        let expected = [
            ("dir", "x y", 2),
            ("protected-mode", "no", 3),
            ("hz", "20", 5),
            ("memory-limit", "-5", 6),
            ("resp", "127.0.0.1:1 [::1]:2", 7),
            ("latency-tracking-info-percentiles", "50 99.9", 8),
        ];
        assert_eq!(parsed(text), expected.map(|(n, v, l)| (n.to_owned(), v.to_owned(), l)));
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn faults_have_a_line() {
        check_fault("hz = 1\nhz = 2\n", 2, "duplicate key");
        check_fault("hz = 1\n\nhz 2\n", 3, "");
        check_fault("hz = 1\n[log]\nsegment-bytes = 1\n", 2, "options are flat");
        check_fault("hz = 1\nlog.segment-bytes = 1\n", 2, "options are flat");
        check_fault("hz = { a = 1 }\n", 1, "a value is a string");
        check_fault("a = 1\nhz = 2020-01-01\n", 2, "a value is a string");
        check_fault("a = [[1]]\n", 1, "a value is a string");
    }
}
