//! State of one connection, by the protocol that its listener speaks.

use base::time::MonoNs;
use reactor::ConnId;

use crate::config::OutputLimit;
use crate::config::Settings;
use crate::engine::accounts::Charges;
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::engine::pubsub::Subscriptions;
use crate::engine::requests::RequestKinds;
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
    pub(crate) fn id(&self) -> ConnId {
        match self {
            Session::Resp(session) => session.id,
            Session::Cql(session) => session.id,
            Session::Http(session) => session.id,
        }
    }

    pub(super) fn charges(&self) -> Charges {
        match self {
            Session::Resp(session) => {
                let watched = session.watched.as_deref().map_or(0, |all| all.charged_bytes);
                session.charges.with_watched(watched)
            }
            Session::Cql(session) => session.charges,
            Session::Http(session) => session.charges,
        }
    }

    pub(super) fn as_resp(&mut self) -> Option<&mut resp::Session> {
        match self {
            Session::Resp(session) => Some(session),
            Session::Cql(_) | Session::Http(_) => None,
        }
    }

    pub(super) fn as_cql(&mut self) -> Option<&mut cql::Session> {
        match self {
            Session::Resp(_) | Session::Http(_) => None,
            Session::Cql(session) => Some(session),
        }
    }

    /// What the connection has subscribed to, if it has.
    pub(super) fn subscriptions(&mut self) -> Option<&mut Subscriptions> {
        match self {
            Session::Resp(session) => session.subscriptions.as_deref_mut(),
            Session::Cql(_) => None,
            Session::Http(session) => session.subscription.as_mut().map(|one| one.names_mut()),
        }
    }

    pub(super) fn row(&mut self, reactor: usize, now: MonoNs, kinds: &RequestKinds) -> ClientRow {
        match self {
            Session::Resp(session) => session.row(reactor, now),
            Session::Cql(session) => session.row(reactor, now, kinds),
            Session::Http(session) => session.row(reactor, now),
        }
    }

    /// Replies that wait for the log outside of the connection's output.
    pub(super) fn parked_bytes(&self) -> usize {
        match self {
            Session::Resp(_) | Session::Http(_) => 0,
            Session::Cql(session) => session.parked.bytes(),
        }
    }

    /// Since when more output is pending than is allowed for long, and how much that is.
    pub(super) fn output_limit(
        &mut self,
        settings: &Settings,
    ) -> (&mut Option<MonoNs>, OutputLimit) {
        let limits = &settings.client_output_buffer_limit;
        match self {
            Session::Resp(session) => {
                // A connection in MONITOR gets what it did not ask for: that is class pubsub.
                let listens = session.monitor || session.subscriptions.is_some();
                let limit = if listens { limits.pubsub } else { limits.normal };
                (&mut session.details.above_soft_since, limit)
            }
            Session::Cql(session) => (&mut session.above_soft_since, limits.normal),
            Session::Http(session) => {
                let listens = session.subscription.is_some();
                let limit = if listens { limits.pubsub } else { limits.normal };
                (&mut session.above_soft_since, limit)
            }
        }
    }
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
