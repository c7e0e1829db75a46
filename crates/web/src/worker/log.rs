//! The access log: lines are made by the worker and written by a thread of their own.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use base::time::UnixMs;
use wire::http::Request;

use super::answer::Sent;
use crate::config::LogFormat;

/// Lines are handed over when this much has gathered, or when the worker is about to wait.
const BATCH_BYTES: usize = 32 * 1024;
/// Batches that wait for the disk; what does not fit is counted and dropped.
const BATCHES_MAX: usize = 64;

#[derive(Debug)]
enum Order {
    Write(Vec<u8>),
    /// Write here from now on.
    Reopen(File),
}

/// What a line says about a request, around what was answered.
#[derive(Debug)]
pub(crate) struct Words {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl LogFormat {
    /// The words for a request.
    fn words(self, request: &Request<'_>) -> Words {
        let (mut before, mut after) = (Vec::with_capacity(128), Vec::with_capacity(128));
        let version: &[u8] = if request.minor_version() == 0 { b"HTTP/1.0" } else { b"HTTP/1.1" };
        let referer = request.header("referer");
        let agent = request.header("user-agent");
        if self == LogFormat::Json {
            put_member(&mut before, "method", Some(request.method_text()));
            put_member(&mut before, "target", Some(request.target()));
            put_member(&mut before, "version", Some(version));
            put_member(&mut after, "referer", referer);
            put_member(&mut after, "user_agent", agent);
            return Words { before, after };
        }
        before.push(b'"');
        before.extend_from_slice(request.method_text());
        before.push(b' ');
        put_escaped(&mut before, request.target());
        before.push(b' ');
        before.extend_from_slice(version);
        before.push(b'"');
        if self == LogFormat::Combined {
            for value in [referer, agent] {
                after.extend_from_slice(b" \"");
                put_escaped(&mut after, value.unwrap_or(b"-"));
                after.push(b'"');
            }
        }
        Words { before, after }
    }

    /// For what was no request.
    fn no_words(self) -> Words {
        let (before, after): (&[u8], &[u8]) = match self {
            LogFormat::Combined => (b"\"-\"", b" \"-\" \"-\""),
            LogFormat::Common => (b"\"-\"", b""),
            LogFormat::Json => (b"", b""),
        };
        Words { before: before.to_vec(), after: after.to_vec() }
    }

    /// The time of a line.
    fn date(self, seconds: u64) -> String {
        if self == LogFormat::Json { timestamp(seconds) } else { date_text(seconds) }
    }
}

/// A line per request. The serving thread never waits for the disk: when the queue is full, lines are
/// dropped and counted.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: LogFormat,
    /// None while dropped.
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    batch: Vec<u8>,
    batch_lines: u64,
    dropped_lines: u64,
    /// The second of `date`.
    seconds: u64,
    date: String,
}

impl AccessLog {
    /// Starts the thread that writes to `file`, which the master has opened: this worker may not be
    /// allowed to.
    pub(crate) fn start(file: OwnedFd, format: LogFormat) -> anyhow::Result<AccessLog> {
        let (orders, received) = sync_channel(BATCHES_MAX);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(File::from(file), &received))
            .context("start the thread of the access log")?;
        Ok(AccessLog {
            format,
            orders: Some(orders),
            thread: Some(thread),
            batch: Vec::new(),
            batch_lines: 0,
            dropped_lines: 0,
            seconds: 0,
            date: String::new(),
        })
    }

    /// What is to be said of a request when it was answered.
    pub(crate) fn words(&self, request: &Request<'_>) -> Words {
        self.format.words(request)
    }

    /// Notes what was answered to something that was no request.
    pub(crate) fn note_no_request(&mut self, remote: Option<IpAddr>, sent: Sent, now: UnixMs) {
        let words = self.format.no_words();
        self.note_words(remote, &words, sent, now);
    }

    /// Notes one request and what was answered.
    pub(crate) fn note(
        &mut self,
        remote: Option<IpAddr>,
        request: &Request<'_>,
        sent: Sent,
        now: UnixMs,
    ) {
        let words = self.format.words(request);
        self.note_words(remote, &words, sent, now);
    }

    /// Notes one request that is gone.
    pub(crate) fn note_words(
        &mut self,
        remote: Option<IpAddr>,
        words: &Words,
        sent: Sent,
        now: UnixMs,
    ) {
        self.start_line(remote, now);
        self.batch.extend_from_slice(&words.before);
        let Sent { status, body_bytes } = sent;
        let is_json = self.format == LogFormat::Json;
        // Writing into memory does not fail.
        let _ = if is_json {
            write!(self.batch, ",\"status\":{status},\"bytes\":{body_bytes}")
        } else {
            write!(self.batch, " {status} {body_bytes}")
        };
        self.batch.extend_from_slice(&words.after);
        self.batch.extend_from_slice(if is_json { b"}\n" } else { b"\n" });
        self.batch_lines += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    fn start_line(&mut self, remote: Option<IpAddr>, now: UnixMs) {
        let seconds = now.0 / 1000;
        if seconds != self.seconds || self.date.is_empty() {
            self.seconds = seconds;
            self.date = self.format.date(seconds);
        }
        let Self { format, batch, date, .. } = self;
        // Writing into memory does not fail.
        let _ = match (*format, remote) {
            (LogFormat::Json, Some(remote)) => {
                write!(batch, "{{\"time\":\"{date}\",\"remote\":\"{remote}\"")
            }
            (LogFormat::Json, None) => write!(batch, "{{\"time\":\"{date}\",\"remote\":null"),
            (_, Some(remote)) => write!(batch, "{remote} - - [{date}] "),
            (_, None) => write!(batch, "- - - [{date}] "),
        };
    }

    /// Hands over what has gathered.
    pub(crate) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let next = Vec::with_capacity(BATCH_BYTES + 4096);
        let batch = std::mem::replace(&mut self.batch, next);
        let lines = std::mem::take(&mut self.batch_lines);
        if !self.order(Order::Write(batch)) {
            if self.dropped_lines == 0 {
                tracing::warn!("the access log's disk is too slow: lines are dropped");
            }
            self.dropped_lines += lines;
        } else if self.dropped_lines != 0 {
            tracing::warn!(lines = self.dropped_lines, "lines of the access log were dropped");
            self.dropped_lines = 0;
        }
    }

    /// The file was moved away, and this one is in its place.
    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        self.flush();
        if !self.order(Order::Reopen(File::from(file))) {
            tracing::warn!("the access log is too busy to be reopened");
        }
    }

    /// False if the queue is full.
    fn order(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

/// Waits until everything is written: whoever drops this serves no more.
impl Drop for AccessLog {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(orders) = self.orders.take()
            && orders.send(Order::Write(batch)).is_err()
        {
            tracing::error!("the thread of the access log has ended too early");
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the access log has panicked");
        }
    }
}

/// Opens the file of an access log, to append.
pub(crate) fn open(path: &Path) -> anyhow::Result<OwnedFd> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    Ok(file.with_context(|| format!("access-log: could not open {}", path.display()))?.into())
}

fn write(mut file: File, orders: &Receiver<Order>) {
    let mut is_failing = false;
    while let Ok(order) = orders.recv() {
        let done = match order {
            Order::Write(batch) => file.write_all(&batch),
            Order::Reopen(opened) => {
                file = opened;
                Ok(())
            }
        };
        match done {
            Ok(()) => is_failing = false,
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::error!(%error, "could not write to the access log");
            }
            Err(_) => {}
        }
    }
}

/// Bytes of a peer, without those that could end the field or the line.
fn put_escaped(batch: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'\\' || byte == b' ' {
            batch.push(byte);
        } else {
            let _ = write!(batch, "\\x{byte:02X}");
        }
    }
}

/// A member of an object behind others, in which bytes of a peer are characters of the same number.
// Source: RFC 8259 7 (strings)
fn put_member(batch: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    // Writing into memory does not fail.
    let _ = write!(batch, ",\"{name}\":");
    let Some(value) = value else { return batch.extend_from_slice(b"null") };
    batch.push(b'"');
    for &byte in value {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'\\' || byte == b' ' {
            batch.push(byte);
        } else {
            let _ = write!(batch, "\\u00{byte:02x}");
        }
    }
    batch.push(b'"');
}

/// Day, month, year and time of day, in the words of headers.
fn date_words(seconds: u64) -> [String; 4] {
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let text = httpdate::fmt_http_date(time);
    let mut words = text.split(' ').skip(1);
    std::array::from_fn(|_| words.next().unwrap_or_default().to_owned())
}

/// `21/Nov/2026:12:00:00 +0000`.
fn date_text(seconds: u64) -> String {
    let [day, month, year, clock] = date_words(seconds);
    format!("{day}/{month}/{year}:{clock} +0000")
}

/// `2026-11-21T12:00:00Z`.
// Source: RFC 3339 5.6
fn timestamp(seconds: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let [day, month, year, clock] = date_words(seconds);
    let month = MONTHS.iter().position(|name| *name == month).map_or(0, |index| index + 1);
    format!("{year}-{month:02}-{day}T{clock}Z")
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestBatch, RequestDecoder};

    use super::*;

    #[test]
    fn every_format_has_its_lines() {
        check(
            LogFormat::Combined,
            "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a?b HTTP/1.1\" 200 7 \"r\" \
             \"x\\x22y\\x5Cz\\xFF\"\n\
             - - - [21/Nov/2026:12:00:00 +0000] \"-\" 400 9 \"-\" \"-\"\n",
        );
        check(
            LogFormat::Common,
            "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a?b HTTP/1.1\" 200 7\n\
             - - - [21/Nov/2026:12:00:00 +0000] \"-\" 400 9\n",
        );
        let json = "{\"time\":\"2026-11-21T12:00:00Z\",\"remote\":\"10.0.0.1\",\"method\":\"GET\",\
                    \"target\":\"/a?b\",\"version\":\"HTTP/1.1\",\"status\":200,\"bytes\":7,\
                    \"referer\":\"r\",\"user_agent\":\"x\\u0022y\\u005cz\\u00ff\"}\n\
                    {\"time\":\"2026-11-21T12:00:00Z\",\"remote\":null,\"status\":400,\"bytes\":9}\n";
        check(LogFormat::Json, json);
        for line in json.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    /// A request and something that is none.
    fn check(format: LogFormat, expected: &str) {
        let name = format!("myriad-web-log-{format:?}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut log = AccessLog::start(open(&path).unwrap(), format).unwrap();
        let input =
            b"GET /a?b HTTP/1.1\r\nHost: a\r\nUser-Agent: x\"y\\z\xff\r\nReferer: r\r\n\r\n";
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input, &Limits::DEFAULT, 1, &mut batch);
        let remote = Some(IpAddr::from([10, 0, 0, 1]));
        let sent = Sent { status: 200, body_bytes: 7 };
        log.note(remote, &batch.get(0, input), sent, UnixMs(1_795_262_400_000));
        let refused = Sent { status: 400, body_bytes: 9 };
        log.note_no_request(None, refused, UnixMs(1_795_262_400_999));
        assert_eq!(String::from_utf8_lossy(&log.batch), expected);
        log.flush();
        log.reopen(open(&path).unwrap());
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        std::fs::remove_file(&path).unwrap();
    }
}
