//! State of one connection, by the protocol that its listener speaks.

use reactor::{ConnId, Connections, Output};

use super::protocol::Protocol;
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::{cql, http, resp};

/// See the module. RESP's state is in place, as it was before there was another protocol: it is
/// looked at on every request.
#[derive(Debug)]
pub(crate) enum Session {
    Resp(resp::Session),
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

    pub(super) fn as_resp(&mut self) -> Option<&mut resp::Session> {
        if let Session::Resp(session) = self { Some(session) } else { None }
    }

    pub(super) fn as_cql(&mut self) -> Option<&mut cql::Session> {
        if let Session::Cql(session) = self { Some(session) } else { None }
    }

    pub(super) fn as_http(&mut self) -> Option<&mut http::Session> {
        if let Session::Http(session) = self { Some(session) } else { None }
    }
}

/// A connection of CQL and its output; none: it is gone.
pub(super) fn cql_of<'a>(
    connections: &'a mut Connections<'_, Session>,
    id: ConnId,
) -> Option<(&'a mut cql::Session, &'a mut Output)> {
    let (session, out) = connections.get_mut(id)?;
    Some((session.as_cql()?, out))
}

/// A connection of HTTP and its output; none: it is gone.
pub(super) fn http_of<'a>(
    connections: &'a mut Connections<'_, Session>,
    id: ConnId,
) -> Option<(&'a mut http::Session, &'a mut Output)> {
    let (session, out) = connections.get_mut(id)?;
    Some((session.as_http()?, out))
}

const fn larger(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

/// A session, its row in CLIENT LIST, its slot in the reactor.
const SESSION_BYTES: usize = size_of::<Session>()
    + larger(
        larger(size_of::<resp::session::Details>(), size_of::<cql::Session>()),
        size_of::<http::Session>(),
    )
    + size_of::<ClientRow>()
    + reactor::CONNECTION_BYTES;
const _: () = assert!(SESSION_BYTES as u64 <= CLIENT_BYTES);
/// The second protocol costs the first one nothing.
const _: () = assert!(size_of::<Session>() == size_of::<resp::Session>());
