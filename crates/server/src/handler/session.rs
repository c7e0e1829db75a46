//! State of one connection, by the protocol that its listener speaks.

use reactor::{ConnId, Connections, Output};

use super::protocol::Protocol;
use crate::commands::session::{Wait, WaitReply};
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::protocol::ClientProtocol;
use crate::{commands, cql, http};

/// State of one connection. The RESP state is stored inline, because every request accesses it.
#[derive(Debug)]
pub(crate) enum Session {
    Resp(commands::Session),
    Cql(Box<cql::Session>),
    Http(Box<http::Session>),
}

impl Session {
    pub(super) fn protocol(&mut self) -> &mut dyn Protocol {
        match self {
            Session::Resp(session) => session,
            Session::Cql(session) => &mut **session,
            Session::Http(session) => &mut **session,
        }
    }

    pub(super) fn as_protocol(&self) -> &dyn Protocol {
        match self {
            Session::Resp(session) => session,
            Session::Cql(session) => &**session,
            Session::Http(session) => &**session,
        }
    }

    /// Whether a command waits for something that may never happen on a replica.
    pub(super) fn is_blocked(&self) -> bool {
        let Session::Resp(session) = self else { return false };
        matches!(session.wait, Some(Wait::Until { reply, .. }) if reply != WaitReply::Delayed)
    }

    /// Whether replies outside the output wait for replicas.
    pub(super) fn waits_for_replicas(&self) -> bool {
        matches!(self, Session::Cql(session) if session.parked.waits_for_remote())
    }

    pub(super) fn as_resp(&mut self) -> Option<&mut commands::Session> {
        if let Session::Resp(session) = self { Some(session) } else { None }
    }

    pub(super) fn as_cql(&mut self) -> Option<&mut cql::Session> {
        if let Session::Cql(session) = self { Some(session) } else { None }
    }

    pub(super) fn as_http(&mut self) -> Option<&mut http::Session> {
        if let Session::Http(session) = self { Some(session) } else { None }
    }
}

/// Returns a CQL connection and its output; `None` if it is closed.
pub(super) fn cql_of<'a>(
    connections: &'a mut Connections<'_, Session>,
    id: ConnId,
) -> Option<(&'a mut cql::Session, &'a mut Output)> {
    let (session, out) = connections.get_mut(id)?;
    Some((session.as_cql()?, out))
}

/// Returns an HTTP connection and its output; `None` if it is closed.
pub(super) fn http_of<'a>(
    connections: &'a mut Connections<'_, Session>,
    id: ConnId,
) -> Option<(&'a mut http::Session, &'a mut Output)> {
    let (session, out) = connections.get_mut(id)?;
    Some((session.as_http()?, out))
}

/// Bytes that a session of each protocol keeps in a box, in the order of [`ClientProtocol::ALL`].
const BOXED_BYTES: [usize; ClientProtocol::ALL.len()] = [
    size_of::<commands::session::Details>(),
    size_of::<cql::Session>(),
    size_of::<http::Session>(),
];

/// A session, its row in CLIENT LIST, and its slot in the reactor are within their charge.
const _: () = {
    let shared = size_of::<Session>() + size_of::<ClientRow>() + reactor::CONNECTION_BYTES;
    let mut at = 0;
    while at < BOXED_BYTES.len() {
        assert!((shared + BOXED_BYTES[at]) as u64 <= CLIENT_BYTES);
        at += 1;
    }
};

/// Other protocols do not enlarge the session of a RESP connection.
const _: () = assert!(size_of::<Session>() == size_of::<commands::Session>());
