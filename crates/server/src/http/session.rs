//! What one HTTP connection remembers between requests.

use std::net::SocketAddr;

use base::time::MonoNs;
use wire::http::RequestDecoder;

use super::pipeline::Pipeline;
use super::subscribe::Subscription;
use crate::config::Durability;
use crate::engine::accounts::Charges;
use crate::engine::client_row::{ClientRow, SubscriptionCounts};
use crate::engine::gate::Gate;
use crate::engine::requests::RequestId;
use crate::protocol::ClientProtocol;
use reactor::{ConnId, Peer};

/// What is awaited of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of a request, after one was answered.
    Idle,
    /// The rest of a head; also the first byte of the first request.
    Head,
    /// The rest of a body.
    Body,
}

/// Why a connection is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The log has no room.
    Room,
    /// CLIENT PAUSE is not over.
    Pause,
    /// It follows the log, to its end.
    Feed,
    /// It listens to channels, to its end.
    Subscription,
    /// Its statement continues in the next turn.
    Scan,
    /// The time of the answer to a wrong password.
    Refusal,
}

/// An answer that is sent later.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) bytes: Vec<u8>,
    /// Whether the connection ends with it.
    pub(crate) closes: bool,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: ConnId,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) decoder: RequestDecoder,
    pub(crate) phase: Phase,
    /// When the phase began.
    pub(crate) since: MonoNs,
    pub(crate) wait: Option<Wait>,
    pub(crate) subscription: Option<Box<Subscription>>,
    /// Commands of the last request that are left. Its last byte stays unread meanwhile.
    pub(crate) pipeline: Option<Box<Pipeline>>,
    /// The answer to a wrong password, until its time.
    pub(crate) refusal: Option<Box<Delayed>>,
    /// Nothing more is read from it.
    pub(crate) closing: bool,
    pub(crate) requests: u64,
    pub(crate) last_request: RequestId,
    /// Of the last request.
    pub(crate) durability: Durability,
    /// Highest gate of its answers.
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

    /// Whether its answer goes on for ever.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.wait, Some(Wait::Feed | Wait::Subscription))
    }

    /// Notes what is awaited after all input is served; `has_served`: a request was answered.
    pub(crate) fn note_phase(&mut self, has_served: bool, now: MonoNs) {
        let phase = if self.decoder.is_in_body() {
            Phase::Body
        } else if self.decoder.is_inside() || (!has_served && self.phase == Phase::Head) {
            Phase::Head
        } else {
            Phase::Idle
        };
        // A head that comes byte by byte does not begin anew with each of them.
        if has_served || phase != self.phase {
            self.phase = phase;
            self.since = now;
        }
    }

    /// Whether it stays when its peer has closed its sending side: its requests are still to be run.
    pub(crate) fn outlives_peer(&self) -> bool {
        matches!(self.wait, Some(Wait::Room | Wait::Pause | Wait::Scan))
    }

    /// The row of CLIENT LIST of a connection that comes now.
    pub(crate) fn row(&self, reactor: usize, now: MonoNs) -> ClientRow {
        let mut row = ClientRow::new(self.id, reactor, now, self.durability);
        row.local = self.local;
        row.protocol = ClientProtocol::Http;
        row.resp = 0;
        self.update_row(&mut row, now);
        row
    }

    /// The fields of the row that change with requests.
    pub(crate) fn update_row(&self, row: &mut ClientRow, now: MonoNs) {
        row.active = now;
        row.resp = 0;
        row.durability = self.durability;
        let names = self.subscription.as_ref().map(|subscription| subscription.names());
        row.subscriptions = SubscriptionCounts::of(names);
        row.blocked = self.wait.is_some();
        row.closing = self.closing;
        row.commands = self.requests;
        row.last_command = self.last_request;
    }
}
