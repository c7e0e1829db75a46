//! When two replies are the same.

use super::known;
use crate::resp::Value;

/// Difference of two deadlines, in their unit, that is due to the moment of the command.
const TIME_TOLERANCE: i64 = 60_000;

/// How the replies to a command are compared. Errors are always compared as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Exact,
    /// Without the order of the elements.
    Set,
    /// Without the order of pairs of elements.
    Pairs,
    /// The result of a scan: without the order of its elements.
    Scan,
    ScanPairs,
    /// Only its type and the number of its elements: it is random, or of another version.
    Kind,
    /// A remaining time or a deadline.
    Time,
    /// XPENDING with a range: without idle times.
    Pending,
    /// Names and values: without times and without the shape of the other server's structures.
    Info,
}

/// Names whose values are not compared, with the reason.
const UNCOMPARED: [&[u8]; 6] = [
    // Times.
    b"idle",
    b"inactive",
    b"seen-time",
    b"active-time",
    // The shape of the tree of a stream.
    b"radix-tree-keys",
    b"radix-tree-nodes",
];
/// Names of lists of IDs with times, in FULL.
const TIMED: [&[u8]; 2] = [b"pel", b"pending"];
/// Names that 7.2 added: the pair is removed.
const NEWER: [&[u8]; 2] = [b"inactive", b"active-time"];

/// The name of the lag of a group. It is unknown where counters that a command has set make it
/// negative, which Redis 7.0 shows.
const LAG: &[u8] = b"lag";

/// Whether two replies to one command agree.
/// `one` is Myriad's.
pub(super) fn agree(rule: Rule, one: &Value, other: &Value) -> bool {
    if rule == Rule::Time
        && let (Some(one), Some(other)) = (number(one), number(other))
    {
        let is_close = one > 0 && other > 0 && one.abs_diff(other) <= TIME_TOLERANCE.unsigned_abs();
        return one == other || is_close;
    }
    known::are_same_errors(one, other) || normal(rule, one) == normal(rule, other)
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Scalar(text) => text.strip_prefix(':')?.parse().ok(),
        _ => None,
    }
}

/// The comparable form of a reply.
fn normal(rule: Rule, value: &Value) -> Value {
    let value = &known::normal(value);
    match rule {
        Rule::Exact | Rule::Time => value.clone(),
        Rule::Set => sorted(value, 1),
        Rule::Pairs => sorted(value, 2),
        Rule::Scan => scanned(value, 1),
        Rule::ScanPairs => scanned(value, 2),
        Rule::Kind => kind(value),
        Rule::Pending => without_idle(value),
        Rule::Info => without_details(value),
    }
}

fn sorted(value: &Value, group: usize) -> Value {
    let sort = |elements: &[Value], group: usize| -> Vec<Value> {
        let mut groups: Vec<&[Value]> = elements.chunks(group).collect();
        groups.sort_by_cached_key(|group| format!("{group:?}"));
        groups.concat()
    };
    match value {
        Value::Array(Some(elements)) => Value::Array(Some(sort(elements, group))),
        Value::Set(elements) => Value::Set(sort(elements, 1)),
        Value::Map(elements) => Value::Map(sort(elements, 2)),
        other => other.clone(),
    }
}

/// A scan with a large count is complete: its cursor is compared, too.
fn scanned(value: &Value, group: usize) -> Value {
    match value {
        Value::Array(Some(parts)) if parts.len() == 2 => {
            Value::Array(Some(vec![parts[0].clone(), sorted(&parts[1], group)]))
        }
        other => other.clone(),
    }
}

fn kind(value: &Value) -> Value {
    let none = |elements: &[Value]| vec![Value::Null; elements.len()];
    match value {
        Value::Bulk(Some(_)) => Value::Bulk(Some(Vec::new())),
        Value::Scalar(_) => Value::Scalar(":0".to_owned()),
        Value::Array(Some(elements)) => Value::Array(Some(none(elements))),
        Value::Set(elements) => Value::Set(none(elements)),
        Value::Map(elements) => Value::Map(none(elements)),
        other => other.clone(),
    }
}

fn without_idle(value: &Value) -> Value {
    let Value::Array(Some(entries)) = value else { return value.clone() };
    let masked = entries.iter().map(|entry| match entry {
        Value::Array(Some(parts)) if parts.len() == 4 => {
            let mut parts = parts.clone();
            parts[2] = Value::Null;
            Value::Array(Some(parts))
        }
        other => other.clone(),
    });
    Value::Array(Some(masked.collect()))
}

fn is_unknown_lag(value: &Value) -> bool {
    matches!(value, Value::Bulk(None) | Value::Null) || number(value).is_some_and(|lag| lag < 0)
}

fn without_details(value: &Value) -> Value {
    let strip = |elements: &[Value]| -> Vec<Value> {
        let is_name = |value: &Value, names: &[&[u8]]| match value {
            Value::Bulk(Some(name)) => names.contains(&name.as_slice()),
            _ => false,
        };
        let mut kept = Vec::new();
        let mut rest = elements;
        while let [first, tail @ ..] = rest {
            rest = tail;
            let Some(second) = tail.first() else {
                kept.push(without_details(first));
                break;
            };
            if is_name(first, &NEWER) {
                rest = &tail[1..];
            } else if is_name(first, &UNCOMPARED)
                || is_name(first, &TIMED) && matches!(second, Value::Array(_))
            {
                kept.extend([first.clone(), kind(second)]);
                rest = &tail[1..];
            } else if is_name(first, &[LAG]) && is_unknown_lag(second) {
                kept.extend([first.clone(), Value::Null]);
                rest = &tail[1..];
            } else {
                kept.push(without_details(first));
            }
        }
        kept
    };
    match value {
        Value::Array(Some(elements)) => Value::Array(Some(strip(elements))),
        Value::Map(elements) => Value::Map(strip(elements)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(Some(text.as_bytes().to_vec()))
    }

    fn array(texts: &[&str]) -> Value {
        Value::Array(Some(texts.iter().map(|text| bulk(text)).collect()))
    }

    fn check(rule: Rule, one: &Value, other: &Value, expected: bool) {
        assert_eq!(agree(rule, one, other), expected, "{rule:?} {one:?} {other:?}");
        assert_eq!(agree(rule, other, one), expected, "{rule:?} {other:?} {one:?}");
    }

    #[test]
    fn order_counts_only_where_it_is_defined() {
        let (one, other) = (array(&["a", "b"]), array(&["b", "a"]));
        check(Rule::Exact, &one, &one, true);
        check(Rule::Exact, &one, &other, false);
        check(Rule::Set, &one, &other, true);
        check(Rule::Pairs, &one, &other, false);
        check(Rule::Pairs, &array(&["a", "1", "b", "2"]), &array(&["b", "2", "a", "1"]), true);
        check(Rule::Pairs, &array(&["a", "1", "b", "2"]), &array(&["b", "1", "a", "2"]), false);
        check(Rule::Set, &array(&["a", "a"]), &array(&["a", "b"]), false);
        let scan = |elements: Value| Value::Array(Some(vec![bulk("0"), elements]));
        check(Rule::Scan, &scan(one), &scan(other), true);
    }

    #[test]
    fn times_may_differ_a_little() {
        let time = |number: i64| Value::Scalar(format!(":{number}"));
        check(Rule::Time, &time(100_000), &time(99_999), true);
        check(Rule::Time, &time(-1), &time(-1), true);
        check(Rule::Time, &time(-1), &time(-2), false);
        check(Rule::Time, &time(-1), &time(1), false);
        check(Rule::Time, &time(200_000), &time(100_000), false);
        check(Rule::Exact, &time(200_000), &time(199_999), false);
    }

    #[test]
    fn names_of_a_newer_version_are_removed() {
        let old = array(&["name", "alice", "idle", "5"]);
        let new = array(&["name", "alice", "idle", "7", "inactive", "-1"]);
        check(Rule::Info, &old, &new, true);
        check(Rule::Info, &old, &array(&["name", "bob", "idle", "7"]), false);
    }

    #[test]
    fn a_kind_has_a_size() {
        check(Rule::Kind, &array(&["a", "b"]), &array(&["c", "d"]), true);
        check(Rule::Kind, &array(&["a", "b"]), &array(&["c"]), false);
        check(Rule::Kind, &Value::Error(b"a".to_vec()), &Value::Error(b"b".to_vec()), false);
    }
}
