//! Stalls of reactors: see [`super::stall_detector`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use parking_lot::Mutex;

use super::threads::Threads;

/// Counters of stalls, and the thread that detects them.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// The thread ends when the sender is dropped.
    pub(super) stop: Mutex<Option<SyncSender<()>>>,
    pub(super) thread: Threads,
    count: AtomicU64,
    longest_ms: AtomicU64,
}

impl Stalls {
    /// Number of stalls.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The longest stall, as far as it was observed.
    pub(crate) fn longest_ms(&self) -> u64 {
        self.longest_ms.load(Ordering::Relaxed)
    }

    /// Records that a stall has lasted for this time.
    pub(crate) fn note(&self, ms: u64, is_first: bool) {
        self.count.fetch_add(u64::from(is_first), Ordering::Relaxed);
        self.longest_ms.fetch_max(ms, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.longest_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.lock().take();
        self.thread.join();
    }
}
