//! Limits on clients' JSON, checked before it is parsed.
//!
//! A parser allocates for every value and reads nested values once per level, so that a body within
//! `http-body-bytes-max` could occupy a reactor for seconds. The check is one pass over the bytes,
//! without an allocation, and stops at the first exceeded limit.

use memchr::memchr2;

/// Maximum number of values in one body; a member of an object counts once, including its name.
/// Parsing that many takes some 50 ms.
pub const JSON_VALUES_MAX: usize = 1 << 17;

/// Maximum nesting of arrays and objects. CQL documents are read once per level, so this also
/// bounds that.
pub const JSON_DEPTH_MAX: usize = 32;

/// The limit that a body exceeds. The text is sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooComplex {
    #[error("the request has more than {JSON_VALUES_MAX} JSON values")]
    Values,
    #[error("the request is nested deeper than {JSON_DEPTH_MAX} levels")]
    Depth,
    #[error("the request has more than {0} commands")]
    Commands(usize),
}

/// Checks JSON against the limits of every route. Malformed JSON may pass: the parser rejects it.
pub fn check(body: &[u8]) -> Result<(), TooComplex> {
    scan(body, usize::MAX)
}

/// Like [`check`], for an array of commands, with a limit on its elements.
pub fn check_commands(body: &[u8], commands_max: usize) -> Result<(), TooComplex> {
    scan(body, commands_max)
}

/// Counts elements by what precedes them: an opening bracket or a comma.
fn scan(body: &[u8], top_elements_max: usize) -> Result<(), TooComplex> {
    let (mut values, mut top_elements, mut depth) = (1, 0, 0_usize);
    let mut rest = body;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => {
                rest = after_string(rest);
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(TooComplex::Depth);
                }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                continue;
            }
            b',' => {}
            _ => continue,
        }
        values += 1;
        if depth == 1 {
            top_elements += 1;
        }
        if top_elements > top_elements_max {
            return Err(TooComplex::Commands(top_elements_max));
        }
        if values > JSON_VALUES_MAX {
            return Err(TooComplex::Values);
        }
    }
    Ok(())
}

/// The bytes after the quote that ends a string; empty if the string does not end.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        let array = |element: &str, count: usize| format!("[{}]", vec![element; count].join(","));
        // The array itself is counted, too.
        assert_eq!(check(array("1", JSON_VALUES_MAX - 1).as_bytes()), Ok(()));
        assert_eq!(check(array("1", JSON_VALUES_MAX).as_bytes()), Err(TooComplex::Values));
        assert_eq!(check(array("[]", JSON_VALUES_MAX / 2).as_bytes()), Err(TooComplex::Values));
        let member = format!("{{{}}}", vec!["\"a\":1"; JSON_VALUES_MAX].join(","));
        assert_eq!(check(member.as_bytes()), Err(TooComplex::Values));
        let text = format!("[\"\\\"{}\"]", "[,".repeat(JSON_VALUES_MAX));
        assert_eq!(check(text.as_bytes()), Ok(()), "separators inside a string");
        let open = format!("[\"{}", ",".repeat(JSON_VALUES_MAX));
        assert_eq!(check(open.as_bytes()), Ok(()), "a string without an end is left to the parser");
        assert_eq!(check(b"[\"\\"), Ok(()));
        assert_eq!(check(b""), Ok(()));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check(nested(JSON_DEPTH_MAX).as_bytes()), Ok(()));
        assert_eq!(check(nested(JSON_DEPTH_MAX + 1).as_bytes()), Err(TooComplex::Depth));
        assert_eq!(check("]".repeat(9).as_bytes()), Ok(()), "left to the parser");
        assert_eq!(check("[]".repeat(99).as_bytes()), Ok(()));
    }

    #[test]
    fn commands_are_counted_at_the_top() {
        let body = |count: usize| format!("[{}]", vec!["[\"MGET\",\"a\",\"b\"]"; count].join(","));
        assert_eq!(check_commands(body(3).as_bytes(), 3), Ok(()));
        assert_eq!(check_commands(body(4).as_bytes(), 3), Err(TooComplex::Commands(3)));
    }

    #[test]
    fn a_check_ends_at_the_first_limit() {
        // 16 MB of empty commands: only the first ten thousand are read.
        let body = format!("[{}", "[],".repeat(5_400_000));
        assert_eq!(check_commands(body.as_bytes(), 10_000), Err(TooComplex::Commands(10_000)));
    }
}
