//! State of one connection, by the protocol that its listener speaks.

use reactor::{ConnId, Connections, Output};

use super::protocol::{Opened, Protocol};
use crate::commands::session::{Details, Wait, WaitReply};
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::protocol::{ClientProtocol, for_protocols};
use crate::{commands, cql, http};

/// How a connection stores the session of its protocol.
trait Stored {
    type Session: Protocol;

    /// Bytes that it keeps in a box.
    const BOXED_BYTES: usize;

    fn store(session: Self::Session) -> Self;

    fn get(&self) -> &Self::Session;

    fn get_mut(&mut self) -> &mut Self::Session;
}

impl Stored for commands::Session {
    type Session = commands::Session;

    const BOXED_BYTES: usize = size_of::<Details>();

    fn store(session: commands::Session) -> commands::Session {
        session
    }

    fn get(&self) -> &commands::Session {
        self
    }

    fn get_mut(&mut self) -> &mut commands::Session {
        self
    }
}

impl<S: Protocol> Stored for Box<S> {
    type Session = S;

    const BOXED_BYTES: usize = size_of::<S>();

    fn store(session: S) -> Box<S> {
        Box::new(session)
    }

    fn get(&self) -> &S {
        self
    }

    fn get_mut(&mut self) -> &mut S {
        self
    }
}

macro_rules! define_session {
    ($($variant:ident: $name:literal, $stored:ty, $refusal:expr;)+) => {
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
                        let session = <$stored as Stored>::Session::open(opened);
                        Session::$variant(<$stored as Stored>::store(session))
                    })+
                }
            }

            pub(super) fn protocol(&mut self) -> &mut dyn Protocol {
                match self {
                    $(Session::$variant(session) => Stored::get_mut(session),)+
                }
            }

            pub(super) fn as_protocol(&self) -> &dyn Protocol {
                match self {
                    $(Session::$variant(session) => Stored::get(session),)+
                }
            }

            /// The names of each protocol's requests, in the order of [`ClientProtocol::ALL`].
            pub(crate) fn request_names() -> [Vec<&'static str>; ClientProtocol::ALL.len()] {
                [$(<$stored as Stored>::Session::request_names()),+]
            }

            /// Whether the spare reactor also accepts connections of the protocol.
            pub(crate) fn may_be_on_spare(protocol: ClientProtocol) -> bool {
                match protocol {
                    $(ClientProtocol::$variant => {
                        <$stored as Stored>::Session::may_be_on_spare()
                    })+
                }
            }
        }

        /// A session, its row in CLIENT LIST, and its slot in the reactor are within their charge.
        const _: () = {
            let shared = size_of::<Session>() + size_of::<ClientRow>() + reactor::CONNECTION_BYTES;
            $(assert!((shared + <$stored as Stored>::BOXED_BYTES) as u64 <= CLIENT_BYTES);)+
        };
    };
}

for_protocols!(define_session);

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
