//! RDB files on their way to clients that requested one with SYNC.
//!
//! One thread makes the parts of all files ([`super::rdb_thread`]), so that no reactor encodes
//! data. A client is sent the next part after it has read most of the previous one: a slow client
//! costs memory for one stripe.

use std::collections::HashMap;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use reactor::ConnId;

use super::rdb_file::RdbFile;
use super::signal::Signal;

/// Files that are made at the same time; each needs memory for its largest stripe.
pub(crate) const TRANSFERS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct RdbTransfers {
    pub(super) signal: Signal,
    transfers: Mutex<HashMap<ConnId, Transfer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Transfer {
    reactor: usize,
    /// `None` while the thread makes a part.
    file: Option<Box<RdbFile>>,
    /// Whether the client has read enough of what it was sent.
    is_ready: bool,
}

impl RdbTransfers {
    pub(super) fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    pub(crate) fn stop(&self) {
        self.signal.end();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that makes RDB files panicked");
        }
    }

    /// Starts a file for this client. False if too many are being made.
    pub(crate) fn open(&self, id: ConnId, reactor: usize, file: RdbFile) -> bool {
        let mut transfers = self.transfers.lock();
        if transfers.len() >= TRANSFERS_MAX {
            return false;
        }
        transfers.insert(id, Transfer { reactor, file: Some(Box::new(file)), is_ready: true });
        drop(transfers);
        self.signal.raise();
        true
    }

    /// Notes that the client has read most of what it was sent.
    pub(crate) fn taken(&self, id: ConnId) {
        if let Some(transfer) = self.transfers.lock().get_mut(&id) {
            transfer.is_ready = true;
            self.signal.raise();
        }
    }

    /// Whether the end of the client's file has not been made.
    pub(crate) fn is_open(&self, id: ConnId) -> bool {
        self.transfers.lock().contains_key(&id)
    }

    /// Removes a client that has disconnected, or that is being sent its last part.
    pub(crate) fn close(&self, id: ConnId) {
        self.transfers.lock().remove(&id);
    }

    /// The clients that are ready for a part, with their reactors.
    pub(super) fn ready(&self) -> Vec<(ConnId, usize)> {
        let ready = |(id, one): (&ConnId, &Transfer)| one.is_ready.then_some((*id, one.reactor));
        self.transfers.lock().iter().filter_map(ready).collect()
    }

    /// Takes the file of a client out to make a part. `None`: it has disconnected.
    pub(super) fn take(&self, id: ConnId) -> Option<Box<RdbFile>> {
        self.transfers.lock().get_mut(&id)?.file.take()
    }

    /// Returns the file of a client that is about to be sent a part of it.
    pub(super) fn put_back(&self, id: ConnId, file: Box<RdbFile>) {
        if let Some(transfer) = self.transfers.lock().get_mut(&id) {
            transfer.file = Some(file);
            transfer.is_ready = false;
        }
    }
}
