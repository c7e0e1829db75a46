//! State of one connection, by the protocol that its listener speaks.

use std::borrow::{Borrow, BorrowMut};

use reactor::{ConnId, Connections, Output};

use super::protocol::{Opened, Protocol};
use crate::commands::session::{Wait, WaitReply};
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::protocol::ClientProtocol;
use crate::{commands, cql, http};

/// Defines the sessions: how each is stored, its type, and the bytes that it keeps in a box.
macro_rules! sessions {
    ($($variant:ident($stored:ty): $session:ty, $boxed_bytes:expr;)+) => {
        /// State of one connection.
        #[derive(Debug)]
        pub(crate) enum Session {
            $($variant($stored),)+
        }

        impl Session {
            /// Creates the session of a connection that was just accepted.
            pub(super) fn open(opened: &Opened<'_>) -> Session {
                match opened.endpoint.protocol {
                    $(ClientProtocol::$variant => {
                        Session::$variant(<$session as Protocol>::open(opened).into())
                    })+
                }
            }

            pub(super) fn protocol(&mut self) -> &mut dyn Protocol {
                match self {
                    $(Session::$variant(session) => BorrowMut::<$session>::borrow_mut(session),)+
                }
            }

            pub(super) fn as_protocol(&self) -> &dyn Protocol {
                match self {
                    $(Session::$variant(session) => Borrow::<$session>::borrow(session),)+
                }
            }
        }

        /// A session, its row in CLIENT LIST, and its slot in the reactor are within their charge.
        const _: () = {
            let shared = size_of::<Session>() + size_of::<ClientRow>() + reactor::CONNECTION_BYTES;
            $(assert!((shared + $boxed_bytes) as u64 <= CLIENT_BYTES);)+
        };
    };
}

sessions! {
    // Inline, because every request accesses it.
    Resp(commands::Session): commands::Session, size_of::<commands::session::Details>();
    Cql(Box<cql::Session>): cql::Session, size_of::<cql::Session>();
    Http(Box<http::Session>): http::Session, size_of::<http::Session>();
}

/// Other protocols do not enlarge the session of a RESP connection.
const _: () = assert!(size_of::<Session>() == size_of::<commands::Session>());

impl Session {
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
