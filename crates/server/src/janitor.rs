//! Frees big values where nobody waits for it, and gives free memory back to the kernel.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use store::Trash;

/// Parts that may wait to be freed; when more wait, the reactor frees its own.
const WAITING_MAX: usize = 1024;

/// How often free memory is given back.
const NUDGE_PERIOD: Duration = Duration::from_secs(1);
/// An allocation of this size goes to the allocator's arenas, past all its caches.
const NUDGE_BYTES: usize = 32 << 20;

/// A thread that drops what it is given. Before it is started, the caller drops it.
#[derive(Debug, Default)]
pub(crate) struct Janitor {
    sender: Mutex<Option<SyncSender<Trash>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Janitor {
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let (sender, receiver) = sync_channel::<Trash>(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("janitor".to_owned())
            .spawn(move || work(&receiver))?;
        *self.sender.lock() = Some(sender);
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Frees light trash here and hands heavy trash over.
    pub(crate) fn free(&self, trash: Trash) {
        if !trash.is_heavy() {
            return;
        }
        let sender = self.sender.lock().clone();
        if let Some(sender) = sender {
            match sender.try_send(trash) {
                Ok(()) => {}
                Err(TrySendError::Full(trash) | TrySendError::Disconnected(trash)) => drop(trash),
            }
        }
    }

    /// Waits until everything handed over is freed.
    pub(crate) fn stop(&self) {
        self.sender.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the janitor thread panicked");
        }
    }
}

fn work(receiver: &Receiver<Trash>) {
    loop {
        match receiver.recv_timeout(NUDGE_PERIOD) {
            Ok(trash) => drop(trash),
            Err(RecvTimeoutError::Timeout) => nudge_allocator(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Freed blocks of many megabytes are given back to the kernel after a moment, but only when the
/// allocator is next asked for such a block: a server that has just let go of 512 MB values would
/// keep all of their memory until then. So it is asked. The block is never touched, and costs a
/// few system calls.
fn nudge_allocator() {
    drop(black_box(Vec::<u8>::with_capacity(NUDGE_BYTES)));
}
