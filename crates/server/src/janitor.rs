//! Frees big values where nobody waits for it.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use store::Trash;

/// Parts that may wait to be freed; when more wait, the reactor frees its own.
const WAITING_MAX: usize = 1024;

/// A thread that drops what it is given.
#[derive(Debug)]
pub(crate) struct Janitor {
    sender: Mutex<Option<SyncSender<Trash>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Janitor {
    pub(crate) fn start() -> std::io::Result<Janitor> {
        let (sender, receiver) = sync_channel::<Trash>(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("janitor".to_owned())
            .spawn(move || receiver.into_iter().for_each(drop))?;
        Ok(Janitor { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
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
