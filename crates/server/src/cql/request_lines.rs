//! The output of `log-cql-requests`: a line per request, in the event log.
//!
//! ```text
//! 2023-11-14 r0 CQL requests
//! 22:13:20.000042 r0 7/3 execute
//! 22:13:20.000042 r0 7/4 query
//! ```
//!
//! The time of day (UTC), the reactor, the connection and its stream, the kind. Each reactor writes
//! a line with the date before its first line of a day. In JSON format a line is an object like an
//! event.
//!
//! An event costs as much as a request, so these lines bypass the event path: each reactor builds
//! its own lines from parts that change once per turn or connection, and passes them in batches to
//! [`LineWriter`]. They arrive up to one reactor tick late, possibly after later events, and are
//! not among the events that the console shows. The remaining cost is the kernel's copy, per byte,
//! which is why the lines are short.

use std::sync::Arc;

use base::time::Now;
use jiff::Timestamp;

use super::request_kind::RequestKind;
use crate::config::LogFormat;
use crate::engine::line_writer::LineWriter;
use reactor::ConnId;

/// Size at which a batch is written, about a thousand lines; a smaller one is written at the next
/// tick.
const BATCH_BYTES: usize = 32 * 1024;
/// Upper bound of a line's length.
const LINE_BYTES_MAX: usize = 256;

const US_PER_S: i64 = 1_000_000;
const S_PER_DAY: i64 = 24 * 60 * 60;
/// Digits of a second's fraction, in microseconds.
const FRACTION_DIGITS: usize = 6;

/// The logged properties of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLogEntry {
    pub(crate) id: ConnId,
    pub(crate) stream: i16,
    pub(crate) kind: RequestKind,
}

/// Lines of one reactor that have not been written yet.
#[derive(Debug)]
pub(crate) struct RequestLines {
    format: LogFormat,
    reactor: usize,
    writer: Arc<LineWriter>,
    batch: Vec<u8>,
    /// Requests that have lines in `batch`.
    count: u64,
    /// Requests whose lines were refused and not yet reported.
    lost: u64,
    head: Head,
    /// The end of a line, indexed by the number of the request kind.
    ends: Vec<Vec<u8>>,
}

/// The beginning of a line: everything before the stream.
#[derive(Debug)]
struct Head {
    bytes: Vec<u8>,
    unix_us: i64,
    /// The second and the day of its timestamp.
    second: i64,
    day: i64,
    /// Offsets in `bytes` of the microsecond's digits and of the connection's.
    fraction_at: usize,
    id_at: usize,
    id: Option<ConnId>,
}

impl RequestLines {
    pub(crate) fn new(format: LogFormat, reactor: usize, writer: Arc<LineWriter>) -> RequestLines {
        let (before, after) = match format {
            LogFormat::Text => (" ", "\n"),
            LogFormat::Json => (",\"kind\":\"", "\"}}\n"),
        };
        let end = |word: &str| format!("{before}{word}{after}").into_bytes();
        RequestLines {
            format,
            reactor,
            writer,
            batch: Vec::new(),
            count: 0,
            lost: 0,
            head: Head {
                bytes: Vec::new(),
                unix_us: i64::MIN,
                second: i64::MIN,
                day: i64::MIN,
                fraction_at: 0,
                id_at: 0,
                id: None,
            },
            ends: RequestKind::words().map(end).collect(),
        }
    }

    /// Adds a line for a request, unless events of this level are disabled.
    pub(crate) fn note(&mut self, seen: RequestLogEntry, now: Now) {
        if !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        self.append(seen, now);
        if self.batch.len() >= BATCH_BYTES {
            self.write();
        }
    }

    fn append(&mut self, seen: RequestLogEntry, now: Now) {
        if self.batch.is_empty() {
            self.begin_batch();
        }
        if now.unix_us() != self.head.unix_us {
            self.begin_turn(now.unix_us());
        }
        if self.head.id != Some(seen.id) {
            self.begin_connection(seen.id);
        }
        self.batch.extend_from_slice(&self.head.bytes);
        self.batch.extend_from_slice(itoa::Buffer::new().format(seen.stream).as_bytes());
        self.batch.extend_from_slice(&self.ends[seen.kind as usize]);
        self.count += 1;
    }

    fn begin_batch(&mut self) {
        self.batch.reserve(BATCH_BYTES + LINE_BYTES_MAX);
        if self.lost != 0 {
            self.report_lost();
        }
    }

    /// Builds the part that all lines of this microsecond have in common.
    fn begin_turn(&mut self, unix_us: i64) {
        let (second, fraction_us) = (unix_us.div_euclid(US_PER_S), unix_us.rem_euclid(US_PER_S));
        if second != self.head.second {
            self.begin_second(second);
        }
        let head = &mut self.head;
        head.unix_us = unix_us;
        let mut rest = fraction_us;
        for digit in head.bytes[head.fraction_at..][..FRACTION_DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
    }

    fn begin_second(&mut self, second: i64) {
        let reactor = self.reactor;
        let zeros = "0".repeat(FRACTION_DIGITS);
        let (time, rest) = match self.format {
            LogFormat::Text => {
                self.begin_day(second);
                (time_of_day(second), format!(" r{reactor} "))
            }
            LogFormat::Json => (
                format!("{{\"timestamp\":\"{}T{}", date(second), time_of_day(second)),
                format!(
                    "Z\",\"level\":\"INFO\",\"fields\":{{\"message\":\"CQL request\",\
                     \"reactor\":{reactor},\"id\":"
                ),
            ),
        };
        let head = &mut self.head;
        head.second = second;
        head.fraction_at = time.len() + 1;
        head.bytes = format!("{time}.{zeros}{rest}").into_bytes();
        head.id_at = head.bytes.len();
        head.id = None;
    }

    fn begin_day(&mut self, second: i64) {
        let day = second.div_euclid(S_PER_DAY);
        if day != self.head.day {
            self.head.day = day;
            let line = format!("{} r{} CQL requests\n", date(second), self.reactor);
            self.batch.extend_from_slice(line.as_bytes());
        }
    }

    fn begin_connection(&mut self, id: ConnId) {
        let before_stream: &[u8] = match self.format {
            LogFormat::Text => b"/",
            LogFormat::Json => b",\"stream\":",
        };
        let head = &mut self.head;
        head.bytes.truncate(head.id_at);
        head.bytes.extend_from_slice(itoa::Buffer::new().format(id.0).as_bytes());
        head.bytes.extend_from_slice(before_stream);
        head.id = Some(id);
    }

    /// Adds a line that reports the refused ones, with the time of the last request.
    fn report_lost(&mut self) {
        let (reactor, lost) = (self.reactor, self.lost);
        let second = self.head.unix_us.div_euclid(US_PER_S);
        let fraction_us = self.head.unix_us.rem_euclid(US_PER_S);
        let time = format!("{}.{fraction_us:06}", time_of_day(second));
        let line = match self.format {
            LogFormat::Text => format!("{time} r{reactor} lost {lost} lines\n"),
            LogFormat::Json => format!(
                "{{\"timestamp\":\"{}T{time}Z\",\"level\":\"WARN\",\"fields\":{{\"message\":\
                 \"lines of CQL requests were lost\",\"reactor\":{reactor},\"count\":{lost}}}}}\n",
                date(second)
            ),
        };
        self.batch.extend_from_slice(line.as_bytes());
    }

    /// Writes the batch and reports lines lost before it.
    pub(crate) fn write(&mut self) {
        if self.batch.is_empty() {
            if self.lost == 0 {
                return;
            }
            self.report_lost();
        }
        if self.writer.hand_over(&mut self.batch) {
            self.lost = 0;
        } else {
            self.lost += self.count;
            self.batch.clear();
            // The refused batch may have included the date.
            (self.head.second, self.head.day) = (i64::MIN, i64::MIN);
        }
        self.count = 0;
    }
}

impl Drop for RequestLines {
    fn drop(&mut self) {
        if self.batch.is_empty() && self.lost != 0 {
            self.report_lost();
        }
        if !self.batch.is_empty() {
            self.writer.hand_over_last(&mut self.batch);
        }
    }
}

/// `22:13:20`, UTC.
fn time_of_day(second: i64) -> String {
    let of_day = second.rem_euclid(S_PER_DAY);
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// `2023-11-14`, UTC. Empty for a clock outside the calendar.
fn date(second: i64) -> String {
    let at = Timestamp::from_second(second).map(|at| at.to_string()).unwrap_or_default();
    at.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use base::time::MonoNs;
    use parking_lot::Mutex;

    use super::*;
    use crate::engine::line_writer::WAITING_MAX;

    const SEEN: RequestLogEntry =
        RequestLogEntry { id: ConnId(7), stream: -3, kind: RequestKind::Execute };
    const AT_US: u64 = 1_700_000_000_000_042;

    fn now(unix_us: u64) -> Now {
        Now::new(unix_us * 1000, MonoNs(0))
    }

    fn lines(format: LogFormat) -> RequestLines {
        RequestLines::new(format, 2, Arc::default())
    }

    fn text_of(mut lines: RequestLines) -> String {
        String::from_utf8(std::mem::take(&mut lines.batch)).unwrap()
    }

    #[test]
    fn a_line_has_time_client_and_kind() {
        let mut lines = lines(LogFormat::Text);
        lines.append(SEEN, now(AT_US));
        lines.append(RequestLogEntry { stream: 9, ..SEEN }, now(AT_US));
        lines.append(RequestLogEntry { id: ConnId(1234), ..SEEN }, now(AT_US));
        lines.append(RequestLogEntry { kind: RequestKind::Query, ..SEEN }, now(AT_US + 1_000));
        lines.append(RequestLogEntry { kind: RequestKind::Query, ..SEEN }, now(AT_US + 1_999_957));
        // 22:13:20 plus 6,400 seconds is midnight.
        lines.append(SEEN, now(AT_US + 6_400_000_000));
        assert_eq!(
            text_of(lines),
            "2023-11-14 r2 CQL requests\n\
             22:13:20.000042 r2 7/-3 execute\n\
             22:13:20.000042 r2 7/9 execute\n\
             22:13:20.000042 r2 1234/-3 execute\n\
             22:13:20.001042 r2 7/-3 query\n\
             22:13:21.999999 r2 7/-3 query\n\
             2023-11-15 r2 CQL requests\n\
             00:00:00.000042 r2 7/-3 execute\n"
        );
    }

    #[test]
    fn a_line_of_json_is_an_object() {
        let mut lines = lines(LogFormat::Json);
        lines.append(SEEN, now(AT_US));
        let found: serde_json::Value = serde_json::from_str(&text_of(lines)).unwrap();
        let expect = serde_json::json!({
            "timestamp": "2023-11-14T22:13:20.000042Z",
            "level": "INFO",
            "fields": {
                "message": "CQL request", "reactor": 2, "id": 7, "stream": -3, "kind": "execute",
            },
        });
        assert_eq!(found, expect);
    }

    #[test]
    fn no_line_exceeds_the_maximum() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let mut lines = lines(format);
            let (id, kind) = (ConnId(u64::MAX), RequestKind::AuthResponse);
            lines.append(RequestLogEntry { id, kind, stream: i16::MIN }, now(AT_US));
            assert!(text_of(lines).len() <= LINE_BYTES_MAX);
        }
    }

    /// Writes two batches more than a blocked log accepts, then calls `end`, which unblocks the
    /// log. Returns the written text and the number of refused lines.
    fn write_while_stuck(
        format: LogFormat,
        end: impl FnOnce(RequestLines, mpsc::Sender<()>),
    ) -> (String, u64) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&written);
        let (release, stuck) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let writer = Arc::new(LineWriter::default());
        let write = move |lines: &[u8]| {
            // Both matter only for the first write: later the other ends may be closed.
            let (_, _) = (begun.send(()), stuck.recv());
            out.lock().extend_from_slice(lines);
            Ok(())
        };
        writer.start_with(write).unwrap();
        let mut lines = RequestLines::new(format, 0, Arc::clone(&writer));
        lines.append(SEEN, now(AT_US));
        lines.write();
        has_begun.recv().unwrap();
        for _ in 0..WAITING_MAX + 2 {
            lines.append(SEEN, now(AT_US));
            lines.write();
        }
        let lost = lines.lost;
        end(lines, release);
        writer.stop();
        let text = String::from_utf8(std::mem::take(&mut *written.lock())).unwrap();
        (text, lost)
    }

    /// Reports the loss as soon as the log accepts lines again, and continues.
    fn recover(mut lines: RequestLines, release: mpsc::Sender<()>) {
        drop(release);
        while lines.lost != 0 {
            lines.write();
            std::thread::yield_now();
        }
        lines.append(SEEN, now(AT_US));
    }

    #[track_caller]
    fn check_loss_is_reported((text, lost): (String, u64)) {
        assert_eq!(lost, 2);
        let report = format!("22:13:20.000042 r0 lost {lost} lines\n");
        assert_eq!(text.matches(&report).count(), 1, "{text}");
        let written = text.matches(" execute\n").count() as u64;
        assert_eq!(written + lost, WAITING_MAX as u64 + 4);
        assert!(text.ends_with("22:13:20.000042 r0 7/-3 execute\n"), "{text}");
    }

    #[test]
    fn refused_lines_are_counted_and_reported() {
        check_loss_is_reported(write_while_stuck(LogFormat::Text, recover));
    }

    /// The queue stays full until the lines are dropped.
    #[test]
    fn the_last_lines_are_never_refused() {
        check_loss_is_reported(write_while_stuck(LogFormat::Text, |mut lines, release| {
            lines.append(SEEN, now(AT_US));
            drop(lines);
            drop(release);
        }));
        let (text, _) = write_while_stuck(LogFormat::Text, |lines, release| {
            drop(lines);
            drop(release);
        });
        assert!(text.ends_with(" r0 lost 2 lines\n"), "{text}");
    }

    #[test]
    fn refused_lines_are_an_object_too() {
        let (text, lost) = write_while_stuck(LogFormat::Json, recover);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let warnings: Vec<_> = objects.iter().filter(|object| object["level"] == "WARN").collect();
        let [warnings] = warnings.as_slice() else { panic!("{text}") };
        assert_eq!(warnings["timestamp"], "2023-11-14T22:13:20.000042Z");
        assert_eq!(warnings["fields"]["count"], lost);
    }
}
