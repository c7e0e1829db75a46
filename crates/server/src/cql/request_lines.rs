//! What `log-cql-requests` writes: a line per request, to where events go. Text: when, connection and
//! stream, kind, bytes of the body. As an object it has the form of an event.
//!
//! An event costs as much as a request, so these lines do not take that way: each reactor gathers
//! its own and writes many at a time. They come up to a tick of the reactor late, behind events that
//! were later, and are not among the events that the console shows.

use base::time::Now;
use jiff::Timestamp;

use super::request_kind::RequestKind;
use crate::config::LogFormat;
use crate::logging;
use crate::resp::session::ConnId;

/// Lines are written when so much has gathered, or at the next tick. Small beside the caches: what
/// requests need shall stay there.
const BATCH_BYTES: usize = 8 * 1024;
/// Longer than any line.
const LINE_BYTES_MAX: usize = 256;

const US_PER_S: i64 = 1_000_000;
/// Of a second in microseconds.
const FRACTION_DIGITS: usize = 6;

/// What a line says about a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) id: ConnId,
    pub(crate) stream: i16,
    /// Of the body, as it came.
    pub(crate) bytes: usize,
    pub(crate) kind: RequestKind,
}

/// Lines of one reactor that are not written yet.
#[derive(Debug)]
pub(crate) struct RequestLines {
    format: LogFormat,
    batch: Vec<u8>,
    /// How each line of the microsecond `head_us` begins.
    head: Vec<u8>,
    head_us: i64,
    /// Where in `head` the digits of the microsecond are.
    fraction_at: usize,
}

impl RequestLines {
    pub(crate) fn new(format: LogFormat) -> RequestLines {
        RequestLines {
            format,
            batch: Vec::new(),
            head: Vec::new(),
            head_us: i64::MIN,
            fraction_at: 0,
        }
    }

    /// Notes a request, unless events of this importance are not logged.
    pub(crate) fn note(&mut self, seen: Seen, now: Now) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        if self.batch.capacity() == 0 {
            self.batch.reserve(BATCH_BYTES + LINE_BYTES_MAX);
        }
        self.append(seen, now);
        if self.batch.len() >= BATCH_BYTES {
            self.write();
        }
    }

    fn append(&mut self, seen: Seen, now: Now) {
        if now.unix_us() != self.head_us {
            self.begin(now.unix_us());
        }
        let (stream, kind, bytes, end): (&[u8], &[u8], &[u8], &[u8]) = match self.format {
            LogFormat::Text => (b"/", b" ", b" ", b"\n"),
            LogFormat::Json => (b",\"stream\":", b",\"kind\":\"", b"\",\"bytes\":", b"}}\n"),
        };
        let mut number = itoa::Buffer::new();
        self.batch.extend_from_slice(&self.head);
        self.batch.extend_from_slice(number.format(seen.id.0).as_bytes());
        self.batch.extend_from_slice(stream);
        self.batch.extend_from_slice(number.format(seen.stream).as_bytes());
        self.batch.extend_from_slice(kind);
        self.batch.extend_from_slice(seen.kind.word().as_bytes());
        self.batch.extend_from_slice(bytes);
        self.batch.extend_from_slice(number.format(seen.bytes).as_bytes());
        self.batch.extend_from_slice(end);
    }

    /// Makes what the lines of this microsecond have in common.
    fn begin(&mut self, unix_us: i64) {
        let (second, fraction_us) = (unix_us.div_euclid(US_PER_S), unix_us.rem_euclid(US_PER_S));
        if second != self.head_us.div_euclid(US_PER_S) {
            self.begin_second(second);
        }
        self.head_us = unix_us;
        let mut rest = fraction_us;
        for digit in self.head[self.fraction_at..][..FRACTION_DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
    }

    fn begin_second(&mut self, second: i64) {
        // A clock that is beyond the calendar says nothing.
        let date = Timestamp::from_second(second).map(|date| date.to_string()).unwrap_or_default();
        let date = date.trim_end_matches('Z');
        let (before, after) = match self.format {
            LogFormat::Text => ("", "Z CQL "),
            LogFormat::Json => (
                "{\"timestamp\":\"",
                "Z\",\"level\":\"INFO\",\"fields\":{\"message\":\"CQL request\",\"id\":",
            ),
        };
        self.fraction_at = before.len() + date.len() + 1;
        self.head = format!("{before}{date}.{}{after}", "0".repeat(FRACTION_DIGITS)).into_bytes();
    }

    /// Writes what has gathered.
    pub(crate) fn write(&mut self) {
        if !self.batch.is_empty() {
            logging::write_lines(&self.batch);
            self.batch.clear();
        }
    }
}

impl Drop for RequestLines {
    fn drop(&mut self) {
        self.write();
    }
}

#[cfg(test)]
mod tests {
    use base::time::MonoNs;

    use super::*;

    const SEEN: Seen = Seen { id: ConnId(7), stream: -3, bytes: 40, kind: RequestKind::Execute };

    fn now(unix_us: u64) -> Now {
        Now::new(unix_us * 1000, MonoNs(0))
    }

    fn text_of(mut lines: RequestLines) -> String {
        String::from_utf8(std::mem::take(&mut lines.batch)).unwrap()
    }

    #[test]
    fn a_line_says_when_who_and_what() {
        let mut lines = RequestLines::new(LogFormat::Text);
        lines.append(SEEN, now(1_700_000_000_000_042));
        lines.append(Seen { stream: 9, ..SEEN }, now(1_700_000_000_000_042));
        lines.append(Seen { kind: RequestKind::Query, ..SEEN }, now(1_700_000_000_001_042));
        lines.append(Seen { kind: RequestKind::Query, ..SEEN }, now(1_700_000_001_999_999));
        assert_eq!(
            text_of(lines),
            "2023-11-14T22:13:20.000042Z CQL 7/-3 execute 40\n\
             2023-11-14T22:13:20.000042Z CQL 7/9 execute 40\n\
             2023-11-14T22:13:20.001042Z CQL 7/-3 query 40\n\
             2023-11-14T22:13:21.999999Z CQL 7/-3 query 40\n"
        );
    }

    #[test]
    fn a_line_of_json_is_an_object() {
        let mut lines = RequestLines::new(LogFormat::Json);
        lines.append(SEEN, now(1_700_000_000_000_042));
        let found: serde_json::Value = serde_json::from_str(&text_of(lines)).unwrap();
        let expect = serde_json::json!({
            "timestamp": "2023-11-14T22:13:20.000042Z",
            "level": "INFO",
            "fields": {
                "message": "CQL request", "id": 7, "stream": -3, "bytes": 40, "kind": "execute",
            },
        });
        assert_eq!(found, expect);
    }

    #[test]
    fn no_line_is_longer_than_there_is_room() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let mut lines = RequestLines::new(format);
            let (id, bytes, kind) = (ConnId(u64::MAX), usize::MAX, RequestKind::AuthResponse);
            lines.append(Seen { id, bytes, kind, stream: i16::MIN }, now(1_700_000_000_000_042));
            assert!(text_of(lines).len() <= LINE_BYTES_MAX);
        }
    }
}
