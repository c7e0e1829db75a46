//! Background thread that frees large values, returns free memory to the kernel, and measures
//! untracked memory.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use base::memory::Tracker;
use parking_lot::Mutex;
use store::DeferredFree;

use crate::engine::threads::Threads;
use crate::engine::untracked::Untracked;

/// Parts that may wait to be freed; above this number a reactor frees its own.
const WAITING_MAX: usize = 1024;

/// How often untracked memory is measured.
const MEASURE_PERIOD: Duration = Duration::from_millis(100);
/// How often free memory is returned to the kernel while there is nothing to free.
const NUDGE_PERIOD: Duration = Duration::from_secs(1);
/// Allocation size that bypasses the allocator's caches and reaches its arenas.
const NUDGE_BYTES: usize = 32 << 20;

/// A thread that drops the values passed to it. Before it is started, the caller drops them.
#[derive(Debug, Default)]
pub(crate) struct FreeThread {
    sender: Mutex<Option<SyncSender<DeferredFree>>>,
    thread: Threads,
    progress: Arc<Progress>,
}

/// Values handed over since the start.
#[derive(Debug, Default)]
struct Progress {
    taken: AtomicU64,
    freed: AtomicU64,
}

impl FreeThread {
    /// `measured`: the root of the trackers, if memory is tracked.
    pub(crate) fn start(&self, measured: Option<Arc<Tracker>>) -> std::io::Result<()> {
        let (sender, receiver) = sync_channel::<DeferredFree>(WAITING_MAX);
        let progress = Arc::clone(&self.progress);
        self.thread.start("free", move || work(&receiver, measured.as_deref(), &progress))?;
        *self.sender.lock() = Some(sender);
        Ok(())
    }

    /// Frees small values here and hands large ones over.
    pub(crate) fn free(&self, trash: DeferredFree) {
        if !trash.is_heavy() {
            return;
        }
        let sender = self.sender.lock().clone();
        if let Some(sender) = sender {
            self.progress.taken.fetch_add(1, Ordering::Relaxed);
            match sender.try_send(trash) {
                Ok(()) => {}
                Err(TrySendError::Full(trash) | TrySendError::Disconnected(trash)) => {
                    drop(trash);
                    self.progress.freed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Values that are not freed yet.
    pub(crate) fn pending(&self) -> u64 {
        // Read in this order: values handed over and freed between the two reads would otherwise
        // make the difference negative.
        let freed = self.progress.freed.load(Ordering::Relaxed);
        self.progress.taken.load(Ordering::Relaxed).saturating_sub(freed)
    }

    /// Large values freed since the start.
    pub(crate) fn freed(&self) -> u64 {
        self.progress.freed.load(Ordering::Relaxed)
    }

    /// Waits until everything that was handed over is freed.
    pub(crate) fn stop(&self) {
        self.sender.lock().take();
        self.thread.join();
    }
}

fn work(receiver: &Receiver<DeferredFree>, measured: Option<&Tracker>, progress: &Progress) {
    let mut untracked = Untracked::default();
    let mut next_measure = Instant::now();
    let mut next_nudge = next_measure + NUDGE_PERIOD;
    loop {
        let now = Instant::now();
        if let Some(server) = measured
            && now >= next_measure
        {
            untracked.measure(server);
            next_measure = now + MEASURE_PERIOD;
        }
        match receiver.recv_timeout(MEASURE_PERIOD) {
            Ok(trash) => {
                drop(trash);
                progress.freed.fetch_add(1, Ordering::Relaxed);
                next_nudge = Instant::now() + NUDGE_PERIOD;
            }
            Err(RecvTimeoutError::Timeout) if now >= next_nudge => {
                nudge_allocator();
                next_nudge = now + NUDGE_PERIOD;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The allocator returns freed blocks of many megabytes to the kernel after a delay, but only at
/// the next request for such a block: a server that has just freed 512 MB values would keep all of
/// their memory until then. This function makes the request. It never touches the block, and costs
/// a few system calls.
fn nudge_allocator() {
    drop(black_box(Vec::<u8>::with_capacity(NUDGE_BYTES)));
}
