//! What reactors and background threads send to a reactor.

use std::sync::Arc;

use cql::roles::Access;
use cql::schema::Event;
use reactor::ConnId;
use wire::cql::Header;

use crate::engine::gate::Gate;

#[derive(Debug, Clone)]
pub(crate) enum Mail {
    /// Lines for the clients that run MONITOR.
    Monitor(Arc<[u8]>),
    /// CLIENT KILL.
    Kill(ConnId),
    /// CLIENT UNBLOCK; `error`: as an error reply.
    Unblock { id: ConnId, error: bool },
    /// A snapshot ended; the clients that wait for it get the result.
    SnapshotDone { number: u64, error: Option<Arc<str>> },
    /// CQL's schema has changed; no client is notified before the gate opens.
    SchemaChanged { event: Arc<Event>, gate: Gate },
    /// The next part of a change stream; `is_last`: it ends with it.
    Changes { id: ConnId, part: Arc<[u8]>, is_last: bool },
    /// The response of a CQL request that did not run on its reactor.
    CqlReply(Box<CqlReply>),
}

/// See [`Mail::CqlReply`].
#[derive(Debug, Clone)]
pub(crate) struct CqlReply {
    pub(crate) id: ConnId,
    pub(crate) header: Header,
    pub(crate) gate: Gate,
    pub(crate) message: Vec<u8>,
    /// USE.
    pub(crate) keyspace: Option<String>,
    /// Of a login that was granted.
    pub(crate) access: Option<Box<Access>>,
}
