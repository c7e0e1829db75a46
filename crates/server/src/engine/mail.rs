//! Messages that reactors and background threads send to a reactor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cql::roles::Access;
use cql::schema::Event;
use reactor::{ConnId, Mailbox};
use wire::cql::Header;

use crate::config::Durability;
use crate::engine::gate::Gate;
use crate::engine::replication::Update;
use crate::engine::signal::Signal;

/// Retry interval when a reactor's mailbox is full.
const MAILBOX_REST: Duration = Duration::from_millis(1);

#[derive(Debug, Clone)]
pub(crate) enum Mail {
    /// Lines for clients in MONITOR mode.
    Monitor(Arc<[u8]>),
    /// CLIENT KILL.
    Kill(ConnId),
    /// CLIENT UNBLOCK; `error`: the reply, unless it is the usual one.
    Unblock { id: ConnId, error: Option<&'static str> },
    /// A snapshot has ended; the clients that wait for it receive the result.
    SnapshotDone { number: u64, error: Option<Arc<str>> },
    /// The CQL schema has changed; clients are notified after the gate opens.
    SchemaChanged { event: Arc<Event>, gate: Gate },
    /// Servers of the replication have changed, or their roles: [`Update`].
    MembersChanged(Arc<Update>),
    /// The next part of a change stream; `is_last`: the stream ends with it.
    Changes { id: ConnId, part: Arc<[u8]>, is_last: bool },
    /// The next part of an RDB file; `is_last`: its client is disconnected after it.
    RdbPart { id: ConnId, bytes: Vec<u8>, gate: Gate, is_last: bool },
    /// Reports that the reactor has finished what it had begun when this was sent.
    Fence(Arc<Fence>),
    /// The server has become a replica.
    Demoted,
    /// A promotion has ended; the clients that wait for it receive the result. `gate`: of the epoch.
    Promoted { error: Option<&'static str>, gate: Gate },
    /// A MIGRATE has ended, with the error that is its reply. `gate`: of the deletions.
    Migrated { id: ConnId, error: Option<Arc<str>>, gate: Gate },
    /// The response of a CQL request that ran on another thread.
    CqlReply(Box<CqlReply>),
}

/// Counts reactors that have not yet received a [`Mail::Fence`].
#[derive(Debug)]
pub(crate) struct Fence {
    left: AtomicUsize,
}

impl Fence {
    pub(crate) fn new(reactors: usize) -> Arc<Fence> {
        Arc::new(Fence { left: AtomicUsize::new(reactors) })
    }

    pub(crate) fn pass(&self) {
        self.left.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn is_passed(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

/// See [`Mail::CqlReply`].
#[derive(Debug, Clone)]
pub(crate) struct CqlReply {
    pub(crate) id: ConnId,
    pub(crate) header: Header,
    pub(crate) gate: Gate,
    pub(crate) message: Vec<u8>,
    /// That of the request.
    pub(crate) durability: Durability,
    /// The keyspace selected by USE.
    pub(crate) keyspace: Option<String>,
    /// Permissions of a successful login.
    pub(crate) access: Option<Box<Access>>,
}

/// Sends mail from a thread that has no other work: retries while the mailbox is full, until the
/// thread's signal has ended.
pub(crate) fn send_patiently(mailbox: &Mailbox<Mail>, mut mail: Mail, signal: &Signal) {
    while let Err(undelivered) = mailbox.send(mail) {
        if signal.is_over() {
            return;
        }
        mail = undelivered.0;
        std::thread::sleep(MAILBOX_REST);
    }
}
