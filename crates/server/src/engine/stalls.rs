//! Stalls of reactors: see [`super::stall_detector`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// Counters of stalls, and the thread that detects them.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    stop: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
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

    /// Sets the thread, which ends when the sender is dropped.
    pub(crate) fn set_thread(&self, stop: SyncSender<()>, thread: JoinHandle<()>) {
        *self.stop.lock() = Some(stop);
        *self.thread.lock() = Some(thread);
    }

    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.longest_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the stall detector panicked");
        }
    }
}
