//! State of one HTTP connection between requests.

use std::net::SocketAddr;

use base::time::MonoNs;
use wire::http::RequestDecoder;

use super::pipeline::Pipeline;
use super::subscribe::Subscription;
use crate::config::Durability;
use crate::engine::accounts::Charges;
use crate::engine::acl::Identity;
use crate::engine::client_row::{ClientRow, SubscriptionCounts};
use crate::engine::gate::Gate;
use crate::engine::requests::RequestId;
use crate::protocol::ClientProtocol;
use reactor::{ConnId, Peer};

/// What the server expects next from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of the next request.
    Idle,
    /// The rest of a head, or the first byte of the first request.
    Head,
    /// The rest of a body.
    Body,
}

/// Reason why a connection is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The log has no free space.
    Room,
    /// A request is deferred: CLIENT PAUSE is in effect, or another reactor holds its data.
    Pause,
    /// The connection follows the log until it closes.
    Feed,
    /// The connection is subscribed to channels until it closes.
    Subscription,
    /// Its statement continues in the next turn.
    Scan,
    /// The response to a wrong password is delayed.
    Refusal,
}

/// A response that is sent later.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) bytes: Vec<u8>,
    /// Whether the connection closes after it.
    pub(crate) closes: bool,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) decoder: RequestDecoder,
    /// User of the last request.
    pub(crate) identity: Option<Identity>,
    pub(crate) phase: Phase,
    /// Start of the phase.
    pub(crate) since: MonoNs,
    pub(crate) wait: Option<Wait>,
    pub(crate) subscription: Option<Box<Subscription>>,
    /// Remaining commands of the last request. The last byte of the request stays unread until they
    /// have run.
    pub(crate) pipeline: Option<Box<Pipeline>>,
    /// Delayed response to a wrong password.
    pub(crate) refusal: Option<Box<Delayed>>,
    /// True if the server reads no more input from the connection.
    pub(crate) closing: bool,
    pub(crate) requests: u64,
    pub(crate) last_request: RequestId,
    /// Durability of the last request.
    pub(crate) durability: Durability,
    /// Highest gate of the responses.
    pub(crate) last_gate: Gate,
    pub(crate) charges: Charges,
    pub(crate) above_soft_since: Option<MonoNs>,
}

impl Session {
    pub(crate) fn new(id: ConnId, peer: &Peer, now: MonoNs) -> Session {
        Session {
            id,
            remote: peer.remote,
            local: peer.local,
            decoder: RequestDecoder::new(),
            identity: None,
            phase: Phase::Head,
            since: now,
            wait: None,
            subscription: None,
            pipeline: None,
            refusal: None,
            closing: false,
            requests: 0,
            last_request: 0,
            durability: Durability::default(),
            last_gate: Gate::OPEN,
            charges: Charges::default(),
            above_soft_since: None,
        }
    }

    /// Whether the response is an endless stream.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.wait, Some(Wait::Feed | Wait::Subscription))
    }

    /// Updates the phase after all input is served. `has_served`: a request was answered.
    pub(crate) fn note_phase(&mut self, has_served: bool, now: MonoNs) {
        let phase = if self.decoder.is_in_body() {
            Phase::Body
        } else if self.decoder.is_inside() || (!has_served && self.phase == Phase::Head) {
            Phase::Head
        } else {
            Phase::Idle
        };
        // A head that arrives byte by byte does not restart the phase with each byte.
        if has_served || phase != self.phase {
            self.phase = phase;
            self.since = now;
        }
    }

    /// Whether the connection stays open after its peer has closed the sending side, because
    /// requests are still to be run.
    pub(crate) fn outlives_peer(&self) -> bool {
        matches!(self.wait, Some(Wait::Room | Wait::Pause | Wait::Scan))
    }

    /// Builds the CLIENT LIST row of a new connection.
    pub(crate) fn row(&self, reactor: usize, now: MonoNs) -> ClientRow {
        let mut row = ClientRow::new(self.id, reactor, now, self.durability);
        row.local = self.local;
        row.protocol = ClientProtocol::Http;
        row.resp = 0;
        self.update_row(&mut row, now);
        row
    }

    /// Updates the fields of the row that change with requests.
    pub(crate) fn update_row(&self, row: &mut ClientRow, now: MonoNs) {
        row.active = now;
        row.resp = 0;
        row.durability = self.durability;
        if let Some(identity) = &self.identity {
            row.set_user(identity.user());
        }
        let names = self.subscription.as_ref().map(|subscription| subscription.names());
        row.subscriptions = SubscriptionCounts::of(names);
        row.blocked = self.wait.is_some();
        row.closing = self.closing;
        row.commands = self.requests;
        row.last_command = self.last_request;
    }
}
