//! What a protocol adds to the serving of a connection.
//!
//! To add a protocol: a variant of [`Session`](super::Session) and of
//! [`ClientProtocol`](crate::protocol::ClientProtocol) with its option for addresses, and one file that
//! implements [`Protocol`] for its session.

use base::memory::LimitReached;
use base::time::MonoNs;
use reactor::{ConnId, Context, Next, Output};

use super::ReactorHandler;
use crate::config::{OutputLimit, Settings};
use crate::engine::accounts::Charges;
use crate::engine::client_row::ClientRow;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::pubsub::Subscriptions;
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;

/// One step of the [serving loop](super::serve).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of the input that were consumed.
    pub(super) consumed: usize,
    pub(super) then: Then,
}

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Another step with the rest of the input.
    Step,
    /// More input. `needed`: unread bytes from which the next request can be complete; 0: unknown.
    Read { needed: usize },
    /// Other connections, or the peer that must read its replies: the rest is served in a later turn.
    Turn,
    /// A pause for an obstacle that the next request met.
    Pause(Obstacle),
    /// A pause that the session has noted, for something that its last request waits for.
    Wait,
    /// The end of the connection after its replies.
    Close,
    /// The end of the connection at once.
    Abort,
}

/// Why a request cannot run yet, whatever its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The log has no room.
    LogSpace,
    /// CLIENT PAUSE.
    ClientPause,
}

/// A connection by its protocol.
pub(super) trait Protocol {
    fn id(&self) -> ConnId;

    fn kind(&self) -> ClientProtocol;

    // --- Serving

    /// Decodes and answers requests from the front of the input: one batch of them, or until one has
    /// to wait. `started`: the cycle counter at the begin of the read.
    fn step(
        &mut self,
        server: &mut ReactorHandler,
        cx: &mut Context<'_, Mail>,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Step;

    /// Reports that there is no memory for the input that the connection keeps, and ends it.
    fn reject(
        &mut self,
        server: &mut ReactorHandler,
        reached: &LimitReached,
        out: &mut Output,
    ) -> Next;

    /// Notes that the connection is paused for an obstacle.
    fn pause(&mut self, obstacle: Obstacle);

    /// Ends that pause.
    fn end_pause(&mut self);

    /// Called when a time has come that was set by [`ReactorHandler::wake_at`].
    fn wake(&mut self, server: &mut ReactorHandler, cx: &mut Context<'_, Mail>, out: &mut Output);

    // --- Accounts

    /// Input and output that the connection keeps besides the reactor's buffers, in bytes.
    fn kept_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    fn charges(&self) -> Charges;

    fn charges_mut(&mut self) -> &mut Charges;

    /// Whether it gets output that it did not request one by one: messages, monitored commands, changes.
    fn is_subscriber(&self) -> bool;

    /// Since when more output is pending than is allowed for long, and the limit.
    fn output_limit(&mut self, settings: &Settings) -> (&mut Option<MonoNs>, OutputLimit);

    /// The row of CLIENT LIST of a connection that was just accepted.
    fn row(&mut self, reactor: usize, now: MonoNs, kinds: &RequestKinds) -> ClientRow;

    /// Updates the fields of the row that change with requests.
    fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, kinds: &RequestKinds);

    // --- The life of a connection

    fn subscriptions(&mut self) -> Option<&mut Subscriptions> {
        None
    }

    /// Whether it stays when its peer has closed: there are requests that were sent and must still run.
    fn outlives_peer(&self) -> bool;

    /// The peer sends nothing more. Whether the connection stays for requests that are being executed.
    fn end_input(&mut self) -> bool {
        false
    }

    /// Whether its response never ends by itself.
    fn is_endless(&self) -> bool {
        false
    }

    /// Whether it may move to another reactor.
    fn may_migrate(&self) -> bool;

    /// Whether `timeout` applies to it.
    fn may_expire(&self) -> bool;

    /// It moves to another reactor.
    fn depart(&mut self, _: &mut ReactorHandler) {}

    /// It has moved to this reactor. Returns the highest gate of its replies.
    fn arrive(&mut self, server: &mut ReactorHandler) -> Gate;

    /// Nothing more is read from it; what it holds is still sent.
    fn closing(&mut self, server: &mut ReactorHandler, _: &mut Output) {
        let id = self.id();
        // It gets no more messages.
        if let Some(subscriptions) = self.subscriptions() {
            let gone = std::mem::take(subscriptions);
            server.worker.forget_subscriptions(&server.shared, id, &gone);
        }
    }

    /// It is closed.
    fn closed(&mut self, server: &mut ReactorHandler);
}
