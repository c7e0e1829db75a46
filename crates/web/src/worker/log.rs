//! The access log: the worker formats lines, and a dedicated thread writes them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use base::time::{MonoNs, Now, UnixMs};
use wire::http::Request;

use super::answer::Sent;
use crate::config::LogFormat;
use crate::table::mono_now;

/// Lines are passed to the thread when this much has accumulated, or when the worker is about to
/// wait.
const BATCH_BYTES: usize = 32 * 1024;
/// Maximum number of batches that wait for the disk; further lines are counted and dropped.
const BATCHES_MAX: usize = 64;

/// How long the end of a worker waits until all lines are written. A file that takes nothing, such
/// as a pipe that is not read, must not keep the process.
const END_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Order {
    /// The file for this batch and later ones, if the log was reopened.
    file: Option<File>,
    batch: Vec<u8>,
    lines: u64,
}

/// The parts of a line that depend only on the request.
#[derive(Debug)]
pub(crate) struct RequestText {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Duration of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Timing {
    duration_ns: u64,
    /// From sending the request to the upstream until the head of the response arrived.
    upstream_ns: Option<u64>,
}

impl LogFormat {
    /// Whether lines include the time, host and id of a request.
    fn is_detailed(self) -> bool {
        matches!(self, LogFormat::Json | LogFormat::Extended)
    }

    /// Formats the parts for a request.
    fn request_text(self, request: &Request<'_>, id: &[u8]) -> RequestText {
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
            put_member(&mut after, "host", request.host());
            put_member(&mut after, "request_id", Some(id));
            return RequestText { before, after };
        }
        before.push(b'"');
        before.extend_from_slice(request.method_text());
        before.push(b' ');
        put_escaped(&mut before, request.target());
        before.push(b' ');
        before.extend_from_slice(version);
        before.push(b'"');
        if self != LogFormat::Common {
            put_quoted(&mut after, referer);
            put_quoted(&mut after, agent);
        }
        if self == LogFormat::Extended {
            put_quoted(&mut after, request.host());
            put_quoted(&mut after, Some(id));
        }
        RequestText { before, after }
    }

    /// Formats the parts for an invalid request.
    fn invalid_request_text(self) -> RequestText {
        let (before, after): (&[u8], &[u8]) = match self {
            LogFormat::Combined => (b"\"-\"", b" \"-\" \"-\""),
            LogFormat::Extended => (b"\"-\"", b" \"-\" \"-\" \"-\" \"-\""),
            LogFormat::Common => (b"\"-\"", b""),
            LogFormat::Json => (b"", b""),
        };
        RequestText { before: before.to_vec(), after: after.to_vec() }
    }

    /// Formats the time of a line.
    fn date(self, seconds: u64) -> String {
        if self == LogFormat::Json { timestamp(seconds) } else { date_text(seconds) }
    }
}

/// A request in progress, as it will be logged.
#[derive(Debug)]
pub(crate) struct Entry {
    remote: Option<IpAddr>,
    /// `None` without a log.
    request_text: Option<RequestText>,
    id: Vec<u8>,
    began: MonoNs,
    upstream_began: Option<MonoNs>,
    upstream_ns: Option<u64>,
}

impl Entry {
    /// Returns the id of the request, for the upstream.
    pub(crate) fn id(&self) -> &[u8] {
        &self.id
    }

    pub(crate) fn remote(&self) -> Option<IpAddr> {
        self.remote
    }

    /// Records the time when the request is sent to the upstream.
    pub(crate) fn note_upstream(&mut self, now: MonoNs) {
        self.upstream_began = Some(now);
    }

    /// Records the time when the head of the upstream's response arrived.
    pub(crate) fn note_head(&mut self, now: MonoNs) {
        self.upstream_ns = self.upstream_began.map(|began| now.since(began));
    }
}

/// Assigns ids to requests, so that lines of different logs can be correlated.
#[derive(Debug)]
struct RequestIds {
    /// Differs between all workers of all servers.
    prefix: u64,
    next: u64,
}

/// Longest client-provided id that is kept.
const REQUEST_ID_BYTES_MAX: usize = 128;

impl RequestIds {
    fn new() -> RequestIds {
        use std::hash::{BuildHasher as _, RandomState};
        // Randomness of the system, in the same way as the standard library seeds its hash tables.
        RequestIds { prefix: RandomState::new().hash_one(std::process::id()), next: 0 }
    }

    /// Returns the client's id for the request if it is safe in a header and a log, or a new one.
    fn of(&mut self, request: &Request<'_>) -> Vec<u8> {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:/+=@".contains(byte);
        let given = request.header("x-request-id").filter(|id| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_letter)
        });
        if let Some(given) = given {
            return given.to_vec();
        }
        self.next += 1;
        format!("{:016x}{:016x}", self.prefix, self.next).into_bytes()
    }
}

/// Per-request accounting: every response is recorded here once, for its log line and for the
/// counters.
#[derive(Debug)]
pub(crate) struct Ledger {
    log: Option<AccessLog>,
    ids: RequestIds,
    /// Responses by the first digit of their status.
    pub(crate) responses: [u64; 6],
    pub(crate) body_bytes: u64,
}

impl Ledger {
    pub(crate) fn new(log: Option<AccessLog>) -> Ledger {
        Ledger { log, ids: RequestIds::new(), responses: [0; 6], body_bytes: 0 }
    }

    /// Creates an entry for a request that is answered later.
    pub(crate) fn entry(
        &mut self,
        remote: Option<IpAddr>,
        request: &Request<'_>,
        began: MonoNs,
    ) -> Entry {
        let id = self.ids.of(request);
        let request_text = self.log.as_ref().map(|log| log.format.request_text(request, &id));
        Entry { remote, request_text, id, began, upstream_began: None, upstream_ns: None }
    }

    /// Records a request that was answered, or never will be.
    pub(crate) fn note(&mut self, entry: &Entry, sent: Sent, now: Now) {
        self.count(sent);
        if let (Some(log), Some(request_text)) = (&mut self.log, &entry.request_text) {
            let duration_ns = log.since(entry.began);
            let timing = Timing { duration_ns, upstream_ns: entry.upstream_ns };
            log.append_line(entry.remote, request_text, sent, Some(timing), now.unix);
        }
    }

    /// Records a request that was answered immediately.
    pub(crate) fn note_request(
        &mut self,
        remote: Option<IpAddr>,
        request: &Request<'_>,
        began: MonoNs,
        sent: Sent,
        now: Now,
    ) {
        self.count(sent);
        if let Some(log) = &mut self.log {
            let id = if log.format.is_detailed() { self.ids.of(request) } else { Vec::new() };
            let request_text = log.format.request_text(request, &id);
            let timing = Timing { duration_ns: log.since(began), upstream_ns: None };
            log.append_line(remote, &request_text, sent, Some(timing), now.unix);
        }
    }

    /// Records the response to an invalid request.
    pub(crate) fn note_no_request(&mut self, remote: Option<IpAddr>, sent: Sent, now: Now) {
        self.count(sent);
        if let Some(log) = &mut self.log {
            let request_text = log.format.invalid_request_text();
            log.append_line(remote, &request_text, sent, None, now.unix);
        }
    }

    fn count(&mut self, sent: Sent) {
        let class = usize::from(sent.status / 100).min(self.responses.len() - 1);
        self.responses[class] += 1;
        self.body_bytes += sent.body_bytes;
    }

    pub(crate) fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        if let Some(log) = &mut self.log {
            log.reopen(file);
        }
    }

    /// Number of lines dropped because the disk was too slow or could not take them.
    pub(crate) fn dropped_lines(&self) -> u64 {
        let dropped =
            |log: &AccessLog| log.dropped_lines_ever + log.failed_lines.load(Ordering::Relaxed);
        self.log.as_ref().map_or(0, dropped)
    }
}

/// The access log, with one line per request. The serving thread never waits for the disk: when the
/// queue is full, lines are dropped and counted.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: LogFormat,
    /// `None` while dropping.
    orders: Option<SyncSender<Order>>,
    /// Receives nothing, and is disconnected when the thread has ended.
    ended: Receiver<()>,
    /// Lines that the thread could not write.
    failed_lines: Arc<AtomicU64>,
    /// The file for the next batch that fits in the queue, if the log was reopened.
    reopened: Option<File>,
    batch: Vec<u8>,
    batch_lines: u64,
    dropped_lines: u64,
    dropped_lines_ever: u64,
    /// The second that `date` represents.
    seconds: u64,
    date: String,
}

impl AccessLog {
    /// Starts the thread that writes to `file`. The master has opened it, because this worker may
    /// lack the permission.
    pub(crate) fn start(file: OwnedFd, format: LogFormat) -> anyhow::Result<AccessLog> {
        let (orders, received) = sync_channel(BATCHES_MAX);
        let (alive, ended) = sync_channel(0);
        let failed_lines = Arc::<AtomicU64>::default();
        let failed = Arc::clone(&failed_lines);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                write(File::from(file), &received, &failed);
                drop(alive);
            })
            .context("could not start the access log thread")?;
        Ok(AccessLog {
            format,
            orders: Some(orders),
            ended,
            failed_lines,
            reopened: None,
            batch: Vec::new(),
            batch_lines: 0,
            dropped_lines: 0,
            dropped_lines_ever: 0,
            seconds: 0,
            date: String::new(),
        })
    }

    /// Returns the time since then if lines include it. Reads the clock, because the time of the
    /// turn is constant while a turn is processed.
    fn since(&self, began: MonoNs) -> u64 {
        if self.format.is_detailed() { mono_now().since(began) } else { 0 }
    }

    fn append_line(
        &mut self,
        remote: Option<IpAddr>,
        request_text: &RequestText,
        sent: Sent,
        timing: Option<Timing>,
        now: UnixMs,
    ) {
        self.start_line(remote, now);
        self.batch.extend_from_slice(&request_text.before);
        let Sent { status, body_bytes } = sent;
        let is_json = self.format == LogFormat::Json;
        // Writing to memory cannot fail.
        let _ = if is_json {
            write!(self.batch, ",\"status\":{status},\"bytes\":{body_bytes}")
        } else {
            write!(self.batch, " {status} {body_bytes}")
        };
        if is_json && let Some(timing) = timing {
            put_timing_members(&mut self.batch, timing);
        }
        self.batch.extend_from_slice(&request_text.after);
        if self.format == LogFormat::Extended {
            put_timing(&mut self.batch, timing);
        }
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
        // Writing to memory cannot fail.
        let _ = match (*format, remote) {
            (LogFormat::Json, Some(remote)) => {
                write!(batch, "{{\"time\":\"{date}\",\"remote\":\"{remote}\"")
            }
            (LogFormat::Json, None) => write!(batch, "{{\"time\":\"{date}\",\"remote\":null"),
            (_, Some(remote)) => write!(batch, "{remote} - - [{date}] "),
            (_, None) => write!(batch, "- - - [{date}] "),
        };
    }

    /// Passes the accumulated lines to the thread, and the file if the log was reopened.
    pub(crate) fn flush(&mut self) {
        if self.batch.is_empty() && self.reopened.is_none() {
            return;
        }
        let next = Vec::with_capacity(BATCH_BYTES + 4096);
        let batch = std::mem::replace(&mut self.batch, next);
        let lines = std::mem::take(&mut self.batch_lines);
        let order = Order { file: self.reopened.take(), batch, lines };
        let refused = self.orders.as_ref().and_then(|orders| orders.try_send(order).err());
        if let Some(TrySendError::Full(order) | TrySendError::Disconnected(order)) = refused {
            // Kept for the next batch; otherwise later lines would still go to the moved file.
            self.reopened = order.file;
            if self.dropped_lines == 0 && lines != 0 {
                tracing::warn!("access log disk too slow; dropping lines");
            }
            self.dropped_lines += lines;
            self.dropped_lines_ever += lines;
        } else if self.dropped_lines != 0 {
            tracing::warn!(lines = self.dropped_lines, "access log lines dropped");
            self.dropped_lines = 0;
        }
    }

    /// Switches to `file`, after the old file was moved away. Lines so far belong to the old file.
    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        self.flush();
        self.reopened = Some(File::from(file));
        self.flush();
    }
}

/// Waits for a limited time until everything is written: the worker does not serve any more
/// requests.
impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
        drop(self.orders.take());
        let ended: Result<(), _> = self.ended.recv_timeout(END_MAX);
        if ended == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("access log takes no lines; ending without the last ones");
        }
    }
}

/// Opens the file of an access log for appending.
pub(crate) fn open(path: &Path) -> anyhow::Result<OwnedFd> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    Ok(file.with_context(|| format!("access-log: could not open {}", path.display()))?.into())
}

fn write(mut file: File, orders: &Receiver<Order>, failed_lines: &AtomicU64) {
    let mut lost = 0;
    while let Ok(order) = orders.recv() {
        if let Some(reopened) = order.file {
            file = reopened;
        }
        match file.write_all(&order.batch) {
            Ok(()) if lost != 0 => {
                tracing::error!(lines = lost, "access log lines lost");
                lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if lost == 0 {
                    tracing::error!(%error, "could not write to the access log");
                }
                lost += order.lines;
                failed_lines.fetch_add(order.lines, Ordering::Relaxed);
            }
        }
    }
}

/// Appends both times as object members.
fn put_timing_members(batch: &mut Vec<u8>, timing: Timing) {
    // Writing to memory cannot fail.
    let _ = write!(batch, ",\"duration_us\":{}", timing.duration_ns / 1000);
    let _ = match timing.upstream_ns {
        Some(ns) => write!(batch, ",\"upstream_us\":{}", ns / 1000),
        None => write!(batch, ",\"upstream_us\":null"),
    };
}

/// Appends both times in seconds, as fields.
fn put_timing(batch: &mut Vec<u8>, timing: Option<Timing>) {
    let times = [timing.map(|one| one.duration_ns), timing.and_then(|one| one.upstream_ns)];
    for ns in times {
        let _ = match ns {
            Some(ns) => write!(batch, " {}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000),
            None => write!(batch, " -"),
        };
    }
}

/// Appends a quoted field.
fn put_quoted(batch: &mut Vec<u8>, value: Option<&[u8]>) {
    batch.extend_from_slice(b" \"");
    put_escaped(batch, value.unwrap_or(b"-"));
    batch.push(b'"');
}

/// Appends peer input, escaping bytes that could end the field or the line.
fn put_escaped(batch: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'\\' || byte == b' ' {
            batch.push(byte);
        } else {
            let _ = write!(batch, "\\x{byte:02X}");
        }
    }
}

/// Appends an object member after others. Each byte of peer input is encoded as the character of
/// the same number.
// Source: RFC 8259 7 (strings)
fn put_member(batch: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    // Writing to memory cannot fail.
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

/// Returns day, month, year and time of day in the format of headers.
fn date_words(seconds: u64) -> [String; 4] {
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    #[expect(clippy::disallowed_methods, reason = "the clock of this machine")]
    let text = httpdate::fmt_http_date(time);
    let mut request_text = text.split(' ').skip(1);
    std::array::from_fn(|_| request_text.next().unwrap_or_default().to_owned())
}

/// Formats a time as `21/Nov/2026:12:00:00 +0000`.
fn date_text(seconds: u64) -> String {
    let [day, month, year, clock] = date_words(seconds);
    format!("{day}/{month}/{year}:{clock} +0000")
}

/// Formats a time as `2026-11-21T12:00:00Z`.
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
    use std::io::Read as _;

    use wire::http::{Limits, RequestBatch, RequestDecoder};

    use super::*;

    const TIME_MS: u64 = 1_795_262_400_000;

    /// Returns the lines of a request and of invalid input; both times as `T`.
    fn lines(format: LogFormat) -> String {
        let name = format!("myriad-web-log-{format:?}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut log = AccessLog::start(open(&path).unwrap(), format).unwrap();
        let input =
            b"GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: x\"y\\z\xff\r\nReferer: r\r\n\r\n";
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input, &Limits::DEFAULT, 1, &mut batch);
        let remote = Some(IpAddr::from([10, 0, 0, 1]));
        let request_text = format.request_text(&batch.get(0, input), b"id-7");
        let sent = Sent { status: 200, body_bytes: 7 };
        let timing = Timing { duration_ns: 1_002_003_999, upstream_ns: Some(4_000) };
        log.append_line(remote, &request_text, sent, Some(timing), UnixMs(TIME_MS));
        let timing = Timing { duration_ns: 0, upstream_ns: None };
        log.append_line(remote, &request_text, sent, Some(timing), UnixMs(TIME_MS));
        let refused = Sent { status: 400, body_bytes: 9 };
        log.append_line(None, &format.invalid_request_text(), refused, None, UnixMs(TIME_MS + 999));
        let text = String::from_utf8(log.batch.clone()).unwrap();
        log.flush();
        log.reopen(open(&path).unwrap());
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_file(&path).unwrap();
        text
    }

    #[test]
    fn every_format_has_its_lines() {
        let start = "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a?b HTTP/1.1\" 200 7";
        let refused = "- - - [21/Nov/2026:12:00:00 +0000] \"-\" 400 9";
        let agent = "\"r\" \"x\\x22y\\x5Cz\\xFF\"";
        let check = |format, expected: [String; 3]| assert_eq!(lines(format), expected.concat());
        let twice = |line: String| [line.clone(), line];
        let [one, other] = twice(format!("{start} {agent}\n"));
        check(LogFormat::Combined, [one, other, format!("{refused} \"-\" \"-\"\n")]);
        let [one, other] = twice(format!("{start}\n"));
        check(LogFormat::Common, [one, other, format!("{refused}\n")]);
        check(
            LogFormat::Extended,
            [
                format!("{start} {agent} \"h\" \"id-7\" 1.002003 0.000004\n"),
                format!("{start} {agent} \"h\" \"id-7\" 0.000000 -\n"),
                format!("{refused} \"-\" \"-\" \"-\" \"-\" - -\n"),
            ],
        );
        let json = lines(LogFormat::Json);
        let object = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let objects: Vec<serde_json::Value> = json.lines().map(object).collect();
        let expected = serde_json::json!({
            "time": "2026-11-21T12:00:00Z", "remote": "10.0.0.1", "method": "GET", "target": "/a?b",
            "version": "HTTP/1.1", "status": 200, "bytes": 7, "duration_us": 1_002_003,
            "upstream_us": 4, "referer": "r", "user_agent": "x\"y\\z\u{ff}", "host": "h",
            "request_id": "id-7",
        });
        assert_eq!(objects[0], expected);
        assert_eq!(objects[1]["upstream_us"], serde_json::Value::Null);
        let expected = serde_json::json!({
            "time": "2026-11-21T12:00:00Z", "remote": null, "status": 400, "bytes": 9,
        });
        assert_eq!(objects[2], expected);
    }

    /// A pipe that is not read simulates a slow disk.
    #[test]
    fn a_log_reopened_while_its_queue_is_full_continues_in_the_new_file() {
        // Exceeds the capacity of a pipe.
        const BYTES: usize = 100_000;
        let path = std::env::temp_dir().join(format!("myriad-web-full-{}", std::process::id()));
        let (mut moved, disk) = std::io::pipe().unwrap();
        let mut log = AccessLog::start(disk.into(), LogFormat::Common).unwrap();
        let flush = |log: &mut AccessLog| {
            (log.batch, log.batch_lines) = (vec![b'x'; BYTES], 1);
            log.flush();
        };
        flush(&mut log);
        // The thread has received the first batch when its first byte arrives.
        moved.read_exact(&mut [0]).unwrap();
        (0..BATCHES_MAX).for_each(|_| flush(&mut log));
        assert_eq!(log.dropped_lines_ever, 0);
        flush(&mut log);
        assert_eq!(log.dropped_lines_ever, 1);
        log.reopen(open(&path).unwrap());
        flush(&mut log);
        assert_eq!(log.dropped_lines_ever, 2);
        // The reader ends when the thread closes the pipe for the new file.
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            moved.read_to_end(&mut bytes).map(|_| bytes.len())
        });
        while log.reopened.is_some() {
            log.flush();
            std::thread::yield_now();
        }
        assert_eq!(reader.join().unwrap().unwrap(), (BATCHES_MAX + 1) * BYTES - 1);
        log.batch = b"new\n".to_vec();
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn requests_keep_valid_client_ids() {
        let mut ids = RequestIds::new();
        let mut id = |line: &[u8]| {
            let input = [b"GET / HTTP/1.0\r\n", line, b"\r\n"].concat();
            let mut batch = RequestBatch::new();
            RequestDecoder::new().decode(&input, &Limits::DEFAULT, 1, &mut batch);
            ids.of(&batch.get(0, &input))
        };
        assert_eq!(id(b"X-Request-ID: a-B.7/=\r\n"), b"a-B.7/=");
        let (one, other) = (id(b""), id(b""));
        assert!(one != other && one.len() == 32 && one[..16] == other[..16]);
        for line in [&b"X-Request-ID: a b\r\n"[..], b"X-Request-ID: \"\r\n", b"X-Request-ID:\r\n"] {
            assert_eq!(id(line).len(), 32, "{line:?}");
        }
        let long = [b"X-Request-ID: ".as_slice(), &[b'a'; 129], b"\r\n"].concat();
        assert_eq!(id(&long).len(), 32);
    }

    #[test]
    fn every_answer_is_counted() {
        let mut ledger = Ledger::new(None);
        for status in [101, 200, 204, 301, 404, 499, 502, 999] {
            ledger.note_no_request(None, Sent { status, body_bytes: 2 }, Now::default());
        }
        assert_eq!((ledger.responses, ledger.body_bytes), ([0, 1, 2, 1, 2, 2], 16));
    }
}
