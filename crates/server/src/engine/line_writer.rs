//! Writes lines that reactors have gathered for the log. A file or a terminal may make its writer
//! wait, and reactors wait for neither: what is not taken fast enough is refused, not queued.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::logging;

/// Batches that may wait to be written: 8 MiB of 32 KiB each, or half a second of 500,000 lines per
/// second.
pub(crate) const WAITING_MAX: usize = 256;
/// Emptied batches that are kept: more are only needed after the log was slow.
const SPARE_MAX: usize = 8;

/// A thread that writes what it is given. Before it is started and after it is stopped, the caller
/// writes.
#[derive(Debug, Default)]
pub(crate) struct LineWriter {
    state: Mutex<State>,
    called: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// The one that was emptied last is taken first: it is still in the caches.
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
        let spawned = std::thread::Builder::new()
            .name("log-lines".to_owned())
            .spawn(move || writer.work(write));
        match spawned {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => {
                self.state.lock().is_running = false;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes complete lines and leaves an empty buffer; false if too many wait already, and then
    /// takes nothing. A lock, and a system call if the thread sleeps.
    pub(crate) fn hand_over(&self, batch: &mut Vec<u8>) -> bool {
        self.take(batch, WAITING_MAX)
    }

    /// Takes the last lines of a reactor, also when the queue is full: one batch per reactor, and
    /// [`LineWriter::stop`] waits for all of them anyway.
    pub(crate) fn hand_over_last(&self, batch: &mut Vec<u8>) {
        self.take(batch, usize::MAX);
    }

    /// False if `waiting_max` batches wait already.
    fn take(&self, batch: &mut Vec<u8>, waiting_max: usize) -> bool {
        let mut state = self.state.lock();
        if !state.is_running {
            drop(state);
            if let Err(error) = logging::write_lines(batch) {
                tracing::error!(%error, lines = lines(batch), "lines of the log were lost");
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

    /// Waits until everything handed over is written.
    pub(crate) fn stop(&self) {
        self.state.lock().is_running = false;
        self.called.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes lines of the log panicked");
        }
    }

    fn work(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut lost = 0;
        while let Some(mut batch) = self.next() {
            match write(&batch) {
                Ok(()) => say_lost(&mut lost),
                Err(error) => {
                    if lost == 0 {
                        tracing::error!(%error, "lines of the log cannot be written");
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
        say_lost(&mut lost);
    }

    /// Waits for a batch. `None`: there will be no more.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.is_running {
            self.called.wait(&mut state);
        }
        state.waiting.pop_front()
    }
}

/// Says how many lines could not be written, now that one can be again.
fn say_lost(lost: &mut usize) {
    let lines = std::mem::take(lost);
    if lines != 0 {
        tracing::error!(lines, "lines of the log were lost");
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
    fn what_was_handed_over_is_written_in_order_before_it_stops() {
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
