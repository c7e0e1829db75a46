//! RDB files and replication streams on their way to clients that requested one with SYNC or PSYNC.
//!
//! One thread makes the parts of all of them ([`super::transfer_thread`]), so that no reactor encodes
//! data. A client is sent the next part after it has read most of the previous one: a slow client
//! costs memory for one stripe.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reactor::ConnId;

use super::rdb_file::RdbFile;
use super::replication::Feeder;
use super::signal::Signal;
use super::threads::Threads;

/// Transfers at the same time; each needs memory for its largest stripe.
pub(crate) const TRANSFERS_MAX: usize = 16;

/// What a client receives.
#[derive(Debug)]
pub(crate) enum Content {
    File(RdbFile),
    Stream(Feeder),
}

#[derive(Debug, Default)]
pub(crate) struct Transfers {
    pub(super) signal: Arc<Signal>,
    open: Mutex<HashMap<ConnId, Transfer>>,
    pub(super) thread: Threads,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
struct Transfer {
    reactor: usize,
    /// `None` while the thread makes a part.
    content: Option<Box<Content>>,
    is_stream: bool,
    /// Whether the client has read enough of what it was sent.
    is_ready: bool,
    /// A heartbeat is due, if it is a stream.
    is_idle: bool,
    /// The client must be disconnected.
    is_ended: bool,
}

/// What a client receives, while a part of it is made.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) content: Box<Content>,
    pub(super) is_idle: bool,
    pub(super) is_ended: bool,
}

impl Transfers {
    pub(crate) fn stop(&self) {
        self.signal.end();
        self.thread.join();
    }

    /// Starts a transfer to this client. False if there are too many.
    pub(crate) fn open(&self, id: ConnId, reactor: usize, content: Content) -> bool {
        let mut transfers = self.open.lock();
        if transfers.len() >= TRANSFERS_MAX {
            return false;
        }
        let transfer = Transfer {
            reactor,
            is_stream: matches!(content, Content::Stream(_)),
            content: Some(Box::new(content)),
            is_idle: false,
            is_ended: false,
            is_ready: true,
        };
        transfers.insert(id, transfer);
        drop(transfers);
        self.signal.raise();
        true
    }

    /// Notes that the client has read most of what it was sent.
    pub(crate) fn taken(&self, id: ConnId) {
        if let Some(transfer) = self.open.lock().get_mut(&id) {
            transfer.is_ready = true;
            self.signal.raise();
        }
    }

    /// Whether the end of the client's file has not been made.
    pub(crate) fn is_open(&self, id: ConnId) -> bool {
        self.open.lock().contains_key(&id)
    }

    /// Removes a client that has disconnected, or that is being sent its last part.
    pub(crate) fn close(&self, id: ConnId) {
        self.open.lock().remove(&id);
    }

    /// The clients that are ready for a part, with their reactors.
    pub(super) fn ready(&self) -> Vec<(ConnId, usize)> {
        let ready = |(id, one): (&ConnId, &Transfer)| one.is_ready.then_some((*id, one.reactor));
        self.open.lock().iter().filter_map(ready).collect()
    }

    /// Makes the streams of clients of a reactor send a heartbeat unless they have news. Called once
    /// a second.
    pub(crate) fn beat(&self, reactor: usize) {
        let mut transfers = self.open.lock();
        let mut is_any = false;
        for transfer in transfers.values_mut().filter(|one| one.reactor == reactor) {
            transfer.is_idle = true;
            is_any = true;
        }
        drop(transfers);
        if is_any {
            self.signal.raise();
        }
    }

    /// Makes the streams look for news that are not in the log.
    pub(crate) fn wake(&self) {
        self.signal.raise();
    }

    /// Ends the connections of the replicas: the data or the epochs of the stream change.
    pub(crate) fn end_streams(&self) {
        for transfer in self.open.lock().values_mut().filter(|one| one.is_stream) {
            transfer.is_ended = true;
            transfer.is_ready = true;
        }
        self.signal.raise();
    }

    /// Takes out what a client receives, to make a part. `None`: it has disconnected.
    pub(super) fn take(&self, id: ConnId) -> Option<Taken> {
        let mut transfers = self.open.lock();
        let transfer = transfers.get_mut(&id)?;
        let content = transfer.content.take()?;
        let is_idle = std::mem::take(&mut transfer.is_idle);
        Some(Taken { content, is_idle, is_ended: transfer.is_ended })
    }

    /// Returns what a client receives. `is_ready`: the client needs nothing more to be sent a part.
    pub(super) fn put_back(&self, id: ConnId, content: Box<Content>, is_ready: bool) {
        if let Some(transfer) = self.open.lock().get_mut(&id) {
            transfer.content = Some(content);
            transfer.is_ready = is_ready;
        }
    }
}
