//! Writes lines that reactors have collected for the log. Writing to a file or terminal may block,
//! and reactors must not wait for it: if the writer falls behind, lines are rejected rather than
//! queued.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::engine::threads::Threads;
use crate::logging;

/// Batches that may wait to be written: 8 MiB of 32 KiB each, or half a second at 500,000 lines per
/// second.
pub(crate) const WAITING_MAX: usize = 256;
/// Empty batches that are kept: more are needed only after the log was slow.
const SPARE_MAX: usize = 8;

/// A thread that writes batches of lines. Before it is started and after it is stopped, the caller
/// writes them.
#[derive(Debug, Default)]
pub(crate) struct LineWriter {
    state: Mutex<State>,
    called: Condvar,
    thread: Threads,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// The most recently emptied batch is reused first: it is still in the caches.
    spare: Vec<Vec<u8>>,
    is_running: bool,
}

impl LineWriter {
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.start_with(logging::write_lines)
    }

    pub(crate) fn start_with(
        self: &Arc<Self>,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let writer = Arc::clone(self);
        self.state.lock().is_running = true;
        let started = self.thread.start("log-lines", move || writer.work(write));
        if started.is_err() {
            self.state.lock().is_running = false;
        }
        started
    }

    /// Takes complete lines and leaves an empty buffer. Returns false, and takes nothing, if too
    /// many batches are waiting. Costs a lock, and a system call if the thread sleeps.
    pub(crate) fn hand_over(&self, batch: &mut Vec<u8>) -> bool {
        self.take(batch, WAITING_MAX)
    }

    /// Takes the last lines of a reactor even if the queue is full: there is one such batch per
    /// reactor, and [`LineWriter::stop`] waits for all of them.
    pub(crate) fn hand_over_last(&self, batch: &mut Vec<u8>) {
        self.take(batch, usize::MAX);
    }

    /// Takes the batch. False if `waiting_max` batches are already waiting.
    fn take(&self, batch: &mut Vec<u8>, waiting_max: usize) -> bool {
        let mut state = self.state.lock();
        if !state.is_running {
            drop(state);
            if let Err(error) = logging::write_lines(batch) {
                tracing::error!(%error, lines = lines(batch), "log lines lost");
            }
            batch.clear();
            return true;
        }
        if state.waiting.len() >= waiting_max {
            return false;
        }
        let empty = state.spare.pop().unwrap_or_default();
        state.waiting.push_back(std::mem::replace(batch, empty));
        drop(state);
        self.called.notify_one();
        true
    }

    /// Waits until everything that was handed over is written.
    pub(crate) fn stop(&self) {
        self.state.lock().is_running = false;
        self.called.notify_one();
        self.thread.join();
    }

    fn work(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut lost = 0;
        while let Some(mut batch) = self.next() {
            match write(&batch) {
                Ok(()) => report_lost(&mut lost),
                Err(error) => {
                    if lost == 0 {
                        tracing::error!(%error, "could not write log lines");
                    }
                    lost += lines(&batch);
                }
            }
            batch.clear();
            let mut state = self.state.lock();
            if state.spare.len() < SPARE_MAX {
                state.spare.push(batch);
            }
        }
        report_lost(&mut lost);
    }

    /// Waits for a batch. `None`: the writer has stopped.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.is_running {
            self.called.wait(&mut state);
        }
        state.waiting.pop_front()
    }
}

/// Logs the number of lost lines, now that writing works again.
fn report_lost(lost: &mut usize) {
    let lines = std::mem::take(lost);
    if lines != 0 {
        tracing::error!(lines, "log lines lost");
    }
}

fn lines(batch: &[u8]) -> usize {
    batch.split(|byte| *byte == b'\n').count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn queued_lines_are_written_in_order_before_a_stop() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&written);
        let writer = Arc::new(LineWriter::default());
        let write = move |lines: &[u8]| {
            out.lock().extend_from_slice(lines);
            Ok(())
        };
        writer.start_with(write).unwrap();
        for number in 0..WAITING_MAX {
            let mut batch = batch(&format!("{number}\n"));
            assert!(writer.hand_over(&mut batch));
            assert!(batch.is_empty());
        }
        writer.stop();
        let lines: Vec<String> = (0..WAITING_MAX).map(|number| number.to_string() + "\n").collect();
        assert_eq!(*written.lock(), lines.concat().into_bytes());
    }

    #[test]
    fn goes_on_after_a_failed_write() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&written);
        let mut failures = 2;
        let writer = Arc::new(LineWriter::default());
        let write = move |lines: &[u8]| {
            if failures > 0 {
                failures -= 1;
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            out.lock().extend_from_slice(lines);
            Ok(())
        };
        writer.start_with(write).unwrap();
        for text in ["a\n", "b\nc\n", "d\n"] {
            assert!(writer.hand_over(&mut batch(text)));
        }
        writer.stop();
        assert_eq!(*written.lock(), b"d\n");
    }

    #[test]
    fn lines_are_counted() {
        assert_eq!((lines(b""), lines(b"a\n"), lines(b"a\nb\n")), (0, 1, 2));
    }
}
