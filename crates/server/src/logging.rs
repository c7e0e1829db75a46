//! Logging: events as text or JSON, to a file or to standard error. The last ones are kept for the
//! console.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use base::messages::{self, MessageSink};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

use crate::config::{LogFormat, Settings};

/// Where events go. Unset before the logger is installed.
static SINK: OnceLock<MessageSink> = OnceLock::new();

/// Installs the logger of the process. Fails if one is already installed or if the file cannot be
/// opened. Events are written by a thread of their own: see [`base::messages`]. A server
/// blocks signals before.
pub(crate) fn install(settings: &Settings) -> anyhow::Result<()> {
    let level: LevelFilter = settings.log_level.word().parse()?;
    // Of panics, too, if there is a log file.
    let standard_error = messages::redirect_standard_error(messages::report_lost_lines)
        .context("could not start the thread that writes messages")?;
    let sink = if settings.log_file.as_os_str().is_empty() {
        standard_error
    } else {
        let path = &settings.log_file;
        let file =
            open(path).with_context(|| format!("could not open log file {}", path.display()))?;
        let file = FILE
            .get_or_init(|| LogFile { path: path.clone(), current: ArcSwap::from_pointee(file) });
        let write = |lines: &[u8]| file.current.load().as_ref().write(lines);
        MessageSink::start("log-file", messages::report_lost_lines, write)
            .context("could not start the thread that writes the log file")?
    };
    let sink = SINK.get_or_init(|| sink);
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer((|| sink.clone()).and(Keeper::new))
        .with_ansi(false)
        // It would print to standard error, and wait for that.
        .log_internal_errors(false);
    let json = settings.log_format == LogFormat::Json;
    let installed = if json { builder.json().try_init() } else { builder.try_init() };
    installed.map_err(|error| anyhow::anyhow!("could not install logger: {error}"))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The log file; unset if events go to standard error.
static FILE: OnceLock<LogFile> = OnceLock::new();

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// Replaced when the file is opened again.
    current: ArcSwap<File>,
}

impl LogFile {
    fn reopen(&self) -> io::Result<()> {
        self.current.store(Arc::new(open(&self.path)?));
        Ok(())
    }
}

/// Opens the log file again, after its rotation. If that fails, the old one remains in use.
pub(crate) fn reopen() {
    let Some(file) = FILE.get() else { return };
    match file.reopen() {
        Ok(()) => tracing::info!("log file reopened"),
        Err(error) => tracing::error!(%error, "could not reopen the log file; keeping the old one"),
    }
}

/// Queues complete lines for the destination of events. Fails if there is no room for them: they
/// are lost.
pub(crate) fn write_lines(lines: &[u8]) -> io::Result<()> {
    match SINK.get() {
        Some(sink) if sink.put(lines) => Ok(()),
        Some(_) => Err(io::Error::other("the reader of the log is too slow")),
        None => io::stderr().write_all(lines),
    }
}

/// Number of events kept for the console.
const LINES_MAX: usize = 500;
/// Bytes kept of each event; longer ones are truncated.
const LINE_BYTES_MAX: usize = 2048;

static LAST_LINES: parking_lot::Mutex<VecDeque<String>> = parking_lot::Mutex::new(VecDeque::new());

/// Returns the last events as they were written, oldest first.
pub(crate) fn last_lines() -> Vec<String> {
    LAST_LINES.lock().iter().cloned().collect()
}

/// A writer that keeps the last events, one line per event.
#[derive(Debug)]
struct Keeper;

impl Keeper {
    fn new() -> Keeper {
        Keeper
    }
}

impl io::Write for Keeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LAST_LINES.lock();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            let kept = &line[..line.len().min(LINE_BYTES_MAX)];
            lines.push_back(String::from_utf8_lossy(kept).into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        // An event arrives in one `write` call.
        for number in 0..LINES_MAX + 10 {
            Keeper.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        Keeper.write_all("x".repeat(2 * LINE_BYTES_MAX).as_bytes()).unwrap();
        let lines = last_lines();
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[LINES_MAX - 2], format!("line {}", LINES_MAX + 9));
        assert_eq!(lines[LINES_MAX - 1].len(), LINE_BYTES_MAX);
    }
}
