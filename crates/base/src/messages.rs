//! Messages of a program to its operator: events of the log, progress, the line that it is ready.
//!
//! A thread of its own writes them. Whatever is wrong with their destination (a full disk, a closed
//! pipe, a pipe that is not read), the threads with something to report do not wait for it: lines
//! are lost instead, and counted. When writing works again, the number of lost lines is reported.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use parking_lot::{Condvar, Mutex};

/// Bytes that may wait to be written: half a second of 500,000 short lines per second.
pub const WAITING_BYTES_MAX: usize = 8 << 20;

/// How long the end of a program waits until everything is written. A destination that takes
/// nothing must not keep the process.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The destination of messages. Clones share it.
#[derive(Debug, Clone)]
pub struct MessageSink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A message was added.
    added: Condvar,
    /// Everything is written.
    emptied: Condvar,
    lost_lines: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the thread writes a message.
    is_writing: bool,
}

/// Reports that lines were lost, now that writing works again. The second argument is the last
/// error; without one, messages arrived faster than they were written.
pub type ReportLost = fn(u64, Option<&io::Error>);

/// The report of a log.
pub fn report_lost_lines(lines: u64, error: Option<&io::Error>) {
    let cause = error.map_or_else(|| "the reader is too slow".to_owned(), ToString::to_string);
    tracing::error!(lines, cause, "log lines were lost");
}

impl MessageSink {
    /// Starts the thread, which calls `write` with messages or the rest of one, and expects the
    /// number of bytes written.
    pub fn start(
        name: &str,
        report: ReportLost,
        write: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static,
    ) -> io::Result<MessageSink> {
        let sink = MessageSink(Arc::default());
        let writer = Writer { shared: Arc::clone(&sink.0), report, write, is_torn: false };
        // The thread inherits the mask. A signal that it received would end a process whose other
        // threads have blocked it to wait for it.
        let mask = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || writer.run());
        mask.thread_set_mask()?;
        started?;
        SINKS.lock().push(sink.clone());
        Ok(sink)
    }

    /// Queues one or several complete lines. False if there is no room: they are lost, and counted.
    pub fn put(&self, lines: &[u8]) -> bool {
        let mut queue = self.0.queue.lock();
        if queue.bytes + lines.len() > WAITING_BYTES_MAX {
            drop(queue);
            self.0.lose(lines);
            return false;
        }
        queue.bytes += lines.len();
        queue.waiting.push_back(lines.to_vec());
        drop(queue);
        self.0.added.notify_one();
        true
    }

    /// Puts lines before all that wait, whether or not there is room: they are the reason why the
    /// process ends.
    fn put_first(&self, lines: &[u8]) {
        let mut queue = self.0.queue.lock();
        queue.bytes += lines.len();
        queue.waiting.push_front(lines.to_vec());
        drop(queue);
        self.0.added.notify_one();
    }

    /// Lines that were not written since the start.
    pub fn lost_lines(&self) -> u64 {
        self.0.lost_lines.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, for a limited time. Returns whether it is.
    pub fn flush(&self) -> bool {
        self.flush_within(FLUSH_MAX)
    }

    fn flush_within(&self, limit: Duration) -> bool {
        self.flush_until(Instant::now() + limit)
    }

    fn flush_until(&self, deadline: Instant) -> bool {
        let mut queue = self.0.queue.lock();
        let is_open = |queue: &mut Queue| queue.is_writing || !queue.waiting.is_empty();
        !self.0.emptied.wait_while_until(&mut queue, is_open, deadline).timed_out()
    }
}

/// Each call of `write` is one message. Never fails: what cannot be written is counted.
impl io::Write for MessageSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.put(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lose(&self, lines: &[u8]) {
        let count = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        self.lost_lines.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Waits for a message.
    fn next(&self) -> Vec<u8> {
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        loop {
            if let Some(lines) = queue.waiting.pop_front() {
                queue.bytes -= lines.len();
                queue.is_writing = true;
                return lines;
            }
            self.emptied.notify_all();
            self.added.wait(&mut queue);
        }
    }
}

struct Writer<F> {
    shared: Arc<Shared>,
    report: ReportLost,
    write: F,
    /// Whether the destination ends with a part of a line.
    is_torn: bool,
}

impl<F: FnMut(&[u8]) -> io::Result<usize>> Writer<F> {
    fn run(mut self) {
        let (mut reported, mut last_error) = (0, None);
        loop {
            let lines = self.shared.next();
            if let Err(error) = self.write_whole(&lines) {
                self.shared.lose(&lines);
                last_error = Some(error);
                continue;
            }
            // The report is a message, too: it must not take the room of others.
            let lost = self.shared.lost_lines.load(Ordering::Relaxed);
            if lost > reported && self.shared.queue.lock().waiting.is_empty() {
                (self.report)(lost - reported, last_error.take().as_ref());
                reported = lost;
            }
        }
    }

    fn write_whole(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_rest(b"\n")?;
            self.is_torn = false;
        }
        self.write_rest(lines)
    }

    fn write_rest(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match (self.write)(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// All sinks of the process.
static SINKS: Mutex<Vec<MessageSink>> = Mutex::new(Vec::new());

static STANDARD_ERROR: OnceLock<MessageSink> = OnceLock::new();
static STANDARD_OUTPUT: OnceLock<MessageSink> = OnceLock::new();

/// Passes everything that the process writes to standard error from now on to a sink: events and
/// panics, whose message is written before the process ends. Returns the same sink at each call.
pub fn redirect_standard_error(report: ReportLost) -> io::Result<MessageSink> {
    if let Some(sink) = STANDARD_ERROR.get() {
        return Ok(sink.clone());
    }
    let sink = MessageSink::start("messages", report, |lines| io::stderr().write(lines))?;
    let sink = STANDARD_ERROR.get_or_init(|| sink).clone();
    let of_panics = sink.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let current = thread::current();
        let name = current.name().unwrap_or("unnamed");
        let backtrace = std::backtrace::Backtrace::capture();
        let is_captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
        let trace = if is_captured { format!("{backtrace}\n") } else { String::new() };
        of_panics.put_first(format!("thread '{name}' {panic}\n{trace}").as_bytes());
        flush_all();
    }));
    Ok(sink)
}

/// Writes lines to standard output, and waits for that for a limited time. If they cannot be
/// written, they are lost, and counted: the program continues.
pub fn print(lines: &str) {
    if let Ok(sink) = standard_output() {
        sink.put(lines.as_bytes());
        sink.flush();
    }
}

/// The sink of standard output. Returns the same one at each call.
pub fn standard_output() -> io::Result<MessageSink> {
    if let Some(sink) = STANDARD_OUTPUT.get() {
        return Ok(sink.clone());
    }
    let write = |lines: &[u8]| {
        let mut out = io::stdout().lock();
        let count = out.write(lines)?;
        out.flush().map(|()| count)
    };
    // Lost lines are counted only: its reader expects no others.
    let sink = MessageSink::start("output", |_, _| (), write)?;
    Ok(STANDARD_OUTPUT.get_or_init(|| sink).clone())
}

/// Writes a line to standard error, in the order of the other messages to it.
pub fn print_error(line: &str) {
    let line = format!("{line}\n");
    match STANDARD_ERROR.get() {
        Some(sink) => drop(sink.put(line.as_bytes())),
        // A program that only prints. If standard error is closed, the line is lost.
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Lines that no sink of the process could write.
pub fn lost_lines() -> u64 {
    SINKS.lock().iter().map(MessageSink::lost_lines).sum()
}

/// Waits until all messages are written, for a limited time: to be called before the process ends.
pub fn flush_all() {
    let sinks = SINKS.lock().clone();
    let deadline = Instant::now() + FLUSH_MAX;
    for sink in sinks {
        sink.flush_until(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A destination in memory, which a test lets fail or wait.
    #[derive(Debug, Default, Clone)]
    struct Destination(Arc<(Mutex<State>, Condvar)>);

    #[derive(Debug, Default)]
    struct State {
        written: Vec<u8>,
        /// Bytes that there is room for.
        room: Option<usize>,
        is_stopped: bool,
    }

    impl Destination {
        fn change(&self, change: impl FnOnce(&mut State)) {
            change(&mut self.0.0.lock());
            self.0.1.notify_all();
        }

        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.0.lock();
            self.0.1.wait_while(&mut state, |state| state.is_stopped);
            let count = state.room.unwrap_or(usize::MAX).min(bytes.len());
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.room = state.room.map(|room| room - count);
            state.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn written(&self) -> String {
            String::from_utf8(self.0.0.lock().written.clone()).unwrap()
        }
    }

    fn start(destination: &Destination, report: ReportLost) -> MessageSink {
        let destination = destination.clone();
        MessageSink::start("test", report, move |bytes| destination.write(bytes)).unwrap()
    }

    #[test]
    fn a_full_destination_costs_lines_and_later_ones_are_whole() {
        static REPORTED: AtomicU64 = AtomicU64::new(0);
        let destination = Destination::default();
        let sink = start(&destination, |lost, error| {
            assert_eq!(error.unwrap().kind(), io::ErrorKind::StorageFull);
            REPORTED.fetch_add(lost, Ordering::Relaxed);
        });
        destination.change(|state| state.room = Some(6));
        for line in ["one\n", "two\n", "three\nfour\n"] {
            assert!(sink.put(line.as_bytes()));
        }
        assert!(sink.flush());
        assert_eq!((destination.written().as_str(), sink.lost_lines()), ("one\ntw", 3));
        destination.change(|state| state.room = None);
        assert!(sink.put(b"five\n"));
        assert!(sink.flush());
        assert_eq!(destination.written(), "one\ntw\nfive\n");
        assert_eq!((sink.lost_lines(), REPORTED.load(Ordering::Relaxed)), (3, 3));
    }

    #[test]
    fn a_destination_that_takes_nothing_costs_lines_and_no_wait() {
        let destination = Destination::default();
        let sink = start(&destination, |_, error| assert!(error.is_none()));
        destination.change(|state| state.is_stopped = true);
        let line = [vec![b'x'; WAITING_BYTES_MAX / 8], b"\n".to_vec()].concat();
        let taken = (0..20).filter(|_| sink.put(&line)).count();
        // Seven fit, and one may be with the destination.
        assert!((7..=8).contains(&taken), "{taken}");
        assert_eq!(sink.lost_lines(), 20 - taken as u64);
        assert!(!sink.flush_within(Duration::ZERO), "the end of a program does not wait for it");
        // There is no room for the message of a panic, which is next nevertheless.
        sink.put_first(b"panicked\n");
        destination.change(|state| state.is_stopped = false);
        assert!(sink.flush());
        assert!(sink.put(b"end\n"));
        assert!(sink.flush());
        let written = destination.written();
        assert!(written.ends_with("end\n"));
        assert_eq!(written.matches('\n').count(), taken + 2);
        let second = written.lines().nth(taken - 7).unwrap();
        assert_eq!(second, "panicked", "after what was with the destination");
    }

    /// Each report would take the room of a message, which is lost, and must be reported.
    #[test]
    fn a_busy_destination_receives_one_report() {
        static REPORTS: AtomicU64 = AtomicU64::new(0);
        let destination = Destination::default();
        let sink = start(&destination, |_, _| {
            REPORTS.fetch_add(1, Ordering::Relaxed);
        });
        destination.change(|state| state.is_stopped = true);
        let line = [vec![b'x'; WAITING_BYTES_MAX / 64], b"\n".to_vec()].concat();
        while sink.put(&line) {}
        destination.change(|state| state.is_stopped = false);
        assert!(sink.flush());
        assert_eq!((sink.lost_lines(), REPORTS.load(Ordering::Relaxed)), (1, 1));
    }
}
