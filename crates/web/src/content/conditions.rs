//! Conditional requests and ranges: whether a client already has the content, and which part it
//! requests.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use wire::http::Fields;

/// Identifies a version of a content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    /// Including its quotes; strong.
    pub(crate) etag: &'a str,
    pub(crate) modified: SystemTime,
}

/// Result of evaluating the conditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Respond as usual.
    Serve,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD, in the order of the specification.
// Source: RFC 9110 13.2.2 (precedence), 13.1.1 to 13.1.4
pub(crate) fn evaluate(headers: &Fields<'_>, version: Version<'_>) -> Verdict {
    let get = |name: &str| headers.clone().get(name);
    let has = |name: &str| get(name).is_some();
    if has("if-match") {
        let any =
            headers.clone().get_all("if-match").any(|line| matches(line, version.etag, false));
        if !any {
            return Verdict::Failed;
        }
    } else if let Some(at) = get("if-unmodified-since").and_then(date)
        && is_after(version.modified, at)
    {
        return Verdict::Failed;
    }
    if has("if-none-match") {
        let mut lines = headers.clone().get_all("if-none-match");
        if lines.any(|line| matches(line, version.etag, true)) {
            return Verdict::NotModified;
        }
    } else if let Some(at) = get("if-modified-since").and_then(date)
        && !is_after(version.modified, at)
    {
        return Verdict::NotModified;
    }
    Verdict::Serve
}

/// Whether a list of entity tags contains this one. Tags cannot contain quotes, so a quote ends a
/// tag.
// Source: RFC 9110 8.8.3 (ETag), 8.8.3.2 (comparison)
fn matches(line: &[u8], etag: &str, weakly: bool) -> bool {
    if line == b"*" {
        return true;
    }
    let mut rest = line;
    while let Some(start) = rest.iter().position(|&byte| byte == b'"') {
        let is_weak = rest[..start].ends_with(b"W/");
        let Some(length) = rest[start + 1..].iter().position(|&byte| byte == b'"') else { break };
        let end = start + length + 2;
        if &rest[start..end] == etag.as_bytes() && (weakly || !is_weak) {
            return true;
        }
        rest = &rest[end..];
    }
    false
}

/// Compares whole seconds, the resolution of headers.
fn is_after(modified: SystemTime, at: SystemTime) -> bool {
    modified.duration_since(at).is_ok_and(|later| later >= Duration::from_secs(1))
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

/// The requested part of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// 206.
    Range(Range<u64>),
    /// 416.
    Unsatisfiable,
}

/// Parses `Range` and `If-Range` of a GET. A request with several ranges gets the whole content, as
/// the specification permits: multipart responses would allow clients to cause excessive work.
// Source: RFC 9110 14.2 (Range), 14.1.2 (byte ranges), 13.1.5 (If-Range)
pub(crate) fn part(headers: &Fields<'_>, version: Version<'_>, bytes: u64) -> Part {
    let Some(range) = headers.clone().get("range") else { return Part::Whole };
    if let Some(condition) = headers.clone().get("if-range") {
        let is_same = condition == version.etag.as_bytes()
            || date(condition).is_some_and(|at| {
                !is_after(version.modified, at) && !is_after(at, version.modified)
            });
        if !is_same {
            return Part::Whole;
        }
    }
    parse_range(range, bytes)
}

// Source: RFC 9110 14.1 (range units are case-insensitive)
fn parse_range(value: &[u8], bytes: u64) -> Part {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, range)) = value.split_at_checked(UNIT.len()) else { return Part::Whole };
    if !unit.eq_ignore_ascii_case(UNIT) {
        return Part::Whole;
    }
    let Some(dash) = range.iter().position(|&byte| byte == b'-') else { return Part::Whole };
    let (first, last) = (range[..dash].trim_ascii(), range[dash + 1..].trim_ascii());
    let (Ok(first), Ok(last)) = (number(first), number(last)) else { return Part::Whole };
    let range = match (first, last) {
        (None, None) => return Part::Whole,
        (Some(first), Some(last)) if first > last => return Part::Whole,
        (Some(first), last) => {
            let end = last.map_or(bytes, |last| last.saturating_add(1).min(bytes));
            first..end
        }
        (None, Some(count)) => bytes.saturating_sub(count)..bytes,
    };
    if range.is_empty() { Part::Unsatisfiable } else { Part::Range(range) }
}

/// Parses a number; `None` if empty.
fn number(digits: &[u8]) -> Result<Option<u64>, ()> {
    if digits.is_empty() {
        return Ok(None);
    }
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(());
    }
    // A number that overflows exceeds every content.
    let text = std::str::from_utf8(digits).map_err(|_| ())?;
    Ok(Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestBatch, RequestDecoder};

    use super::*;

    const DATE: &str = "Sat, 21 Nov 2026 12:00:00 GMT";
    const BEFORE: &str = "Sat, 21 Nov 2026 11:59:59 GMT";

    fn with_headers<T>(lines: &str, call: impl FnOnce(&Fields<'_>) -> T) -> T {
        let input = format!("GET / HTTP/1.0\r\n{lines}\r\n\r\n");
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
        assert_eq!(batch.len(), 1, "{lines}");
        call(&batch.get(0, input.as_bytes()).headers())
    }

    fn version() -> Version<'static> {
        let modified = httpdate::parse_http_date(DATE).unwrap() + Duration::from_millis(500);
        Version { etag: "\"a\"", modified }
    }

    fn check(lines: &str, expected: Verdict) {
        let lines = lines.replace("DATE", DATE).replace("BEFORE", BEFORE);
        assert_eq!(
            with_headers(&lines, |headers| evaluate(headers, version())),
            expected,
            "{lines}"
        );
    }

    #[test]
    fn conditions() {
        check("A: b", Verdict::Serve);
        check("If-None-Match: \"a\"", Verdict::NotModified);
        check("If-None-Match: \"b\", W/\"a\"", Verdict::NotModified);
        check("If-None-Match: *", Verdict::NotModified);
        check("If-None-Match: \"b\"", Verdict::Serve);
        check("If-None-Match: a", Verdict::Serve);
        check("If-None-Match: \"a", Verdict::Serve);
        check("If-Modified-Since: DATE", Verdict::NotModified);
        check("If-Modified-Since: BEFORE", Verdict::Serve);
        check("If-Modified-Since: yesterday", Verdict::Serve);
        check("If-Modified-Since: DATE\r\nIf-None-Match: \"b\"", Verdict::Serve);
        check("If-Match: \"b\"", Verdict::Failed);
        check("If-Match: W/\"a\"", Verdict::Failed);
        check("If-Match: \"b\", \"a\"", Verdict::Serve);
        check("If-Unmodified-Since: BEFORE", Verdict::Failed);
        check("If-Unmodified-Since: DATE", Verdict::Serve);
    }

    fn check_part(lines: &str, expected: &Part) {
        let lines = lines.replace("DATE", DATE).replace("BEFORE", BEFORE);
        let found = with_headers(&lines, |headers| part(headers, version(), 100));
        assert_eq!(found, *expected, "{lines}");
    }

    #[test]
    fn parts() {
        check_part("A: b", &Part::Whole);
        check_part("Range: bytes=0-9", &Part::Range(0..10));
        check_part("Range: BYTES=0-1", &Part::Range(0..2));
        check_part("Range: Bytes=0-1", &Part::Range(0..2));
        check_part("Range: bytes", &Part::Whole);
        check_part("Range: bytes=90-", &Part::Range(90..100));
        check_part("Range: bytes=90-1000", &Part::Range(90..100));
        check_part("Range: bytes=-10", &Part::Range(90..100));
        check_part("Range: bytes=-1000", &Part::Range(0..100));
        check_part("Range: bytes=99-99", &Part::Range(99..100));
        check_part("Range: bytes=100-", &Part::Unsatisfiable);
        check_part("Range: bytes=-0", &Part::Unsatisfiable);
        check_part("Range: bytes=99999999999999999999999-", &Part::Unsatisfiable);
        for line in ["bytes=9-0", "bytes=-", "bytes=a-b", "lines=0-9", "bytes=0-9,20-29", "bytes=9"]
        {
            check_part(&format!("Range: {line}"), &Part::Whole);
        }
        check_part("Range: bytes=0-9\r\nIf-Range: \"a\"", &Part::Range(0..10));
        check_part("Range: bytes=0-9\r\nIf-Range: \"b\"", &Part::Whole);
        check_part("Range: bytes=0-9\r\nIf-Range: W/\"a\"", &Part::Whole);
        check_part("Range: bytes=0-9\r\nIf-Range: DATE", &Part::Range(0..10));
        check_part("Range: bytes=0-9\r\nIf-Range: BEFORE", &Part::Whole);
    }
}
