//! The interface between a protocol and the serving loop.
//!
//! To add a protocol, write one file that implements [`Protocol`] for its session, and add a row to
//! the table of protocols, in [`crate::protocol`], and those of the option for its addresses.

use base::memory::LimitReached;
use base::time::MonoNs;
use reactor::{ConnId, Context, Level, Next, Output, Peer};

use super::ReactorHandler;
use crate::commands::execute::Deferred;
use crate::config::{Durability, Endpoint, OutputLimit, Settings};
use crate::engine::accounts::Charges;
use crate::engine::acl::{Acl, Standing};
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::ClientRow;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::pubsub::Subscriptions;
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;

/// One step of the [serving loop](super::serve).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Input bytes consumed.
    pub(super) consumed: usize,
    pub(super) then: Then,
}

/// The action after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Run another step with the rest of the input.
    Step,
    /// Read more input. `needed`: unread bytes needed to complete the next request; 0: unknown.
    Read { needed: usize },
    /// Serve the rest in a later turn, after other connections or after the client has read
    /// replies.
    Turn,
    /// Serve the rest on a regular reactor.
    Leave,
    /// Pause for an obstacle that the next request met.
    Pause(Obstacle),
    /// Pause as the session has recorded, for something that its last request waits for.
    Wait,
    /// Close the connection after its replies.
    Close,
    /// Close the connection immediately.
    Abort,
}

/// The reason why a request cannot run yet, in any protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The log is out of space.
    LogSpace,
    /// CLIENT PAUSE is in effect.
    ClientPause,
    /// Another reactor holds its data.
    Keys,
}

impl From<Deferred> for Obstacle {
    fn from(deferred: Deferred) -> Obstacle {
        match deferred {
            Deferred::Paused => Obstacle::ClientPause,
            Deferred::Room => Obstacle::LogSpace,
            Deferred::Contended => Obstacle::Keys,
        }
    }
}

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) id: ConnId,
    pub(super) peer: &'a Peer,
    pub(super) remote: ClientAddress,
    pub(super) at: MonoNs,
    pub(super) endpoint: Endpoint,
    pub(super) acl: &'a Acl,
    /// The server's, which a connection may change.
    pub(super) durability: Durability,
}

/// Protocol-specific operations on a connection.
pub(super) trait Protocol {
    /// Creates the session of a connection.
    fn open(opened: &Opened<'_>) -> Self
    where
        Self: Sized;

    /// The names of the protocol's requests in INFO and metrics, in the order of their numbers.
    fn request_names() -> Vec<&'static str>
    where
        Self: Sized;

    /// Whether the spare reactor accepts connections, too. Their sessions return [`Then::Leave`] for
    /// requests that it does not serve.
    fn may_be_on_spare() -> bool
    where
        Self: Sized,
    {
        false
    }

    fn id(&self) -> ConnId;

    fn kind(&self) -> ClientProtocol;

    // --- Serving

    /// Decodes and answers requests from the front of the input: one batch of them, or up to a
    /// request that must wait. `started`: the cycle counter at the start of the read.
    fn step(
        &mut self,
        server: &mut ReactorHandler,
        cx: &mut Context<'_, Mail>,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Step;

    /// Reports that there is no memory for the connection's input, and ends the connection.
    fn reject(
        &mut self,
        server: &mut ReactorHandler,
        reached: &LimitReached,
        out: &mut Output,
    ) -> Next;

    /// Records that the connection is paused for an obstacle.
    fn pause(&mut self, obstacle: Obstacle);

    /// Ends the pause recorded by [`Protocol::pause`].
    fn end_pause(&mut self);

    /// Called when the deadline set by [`ReactorHandler::wake_at`] has passed.
    fn wake(&mut self, _: &mut ReactorHandler, _: &mut Context<'_, Mail>, _: &mut Output) {}

    // --- Memory accounting

    /// Input and output bytes that the connection stores outside the reactor's buffers.
    fn kept_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    fn charges(&self) -> Charges;

    fn charges_mut(&mut self) -> &mut Charges;

    /// Whether the connection receives output without individual requests: messages, monitored
    /// commands, changes.
    fn is_subscriber(&self) -> bool {
        false
    }

    /// Returns when the pending output began to exceed the soft limit, and the limit.
    fn output_limit(&mut self, settings: &Settings) -> (&mut Option<MonoNs>, OutputLimit);

    /// Creates the CLIENT LIST row of a connection that was just accepted.
    fn row(&mut self, reactor: usize, now: MonoNs, kinds: &RequestKinds) -> ClientRow;

    /// Updates the fields of the row that change with requests.
    fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, kinds: &RequestKinds);

    // --- Connection lifecycle

    /// Whether a login is required before requests.
    fn must_authenticate(&self, _: &Settings, _: &Acl) -> bool {
        true
    }

    /// Whether the client has authenticated, or need not. A protocol may authenticate each request.
    fn is_authenticated(&self) -> bool {
        true
    }

    fn subscriptions(&mut self) -> Option<&mut Subscriptions> {
        None
    }

    /// Applies a change of users to the session.
    fn follow_users(&mut self, _: &Acl) -> Standing {
        Standing::Valid
    }

    /// Whether the connection stays open after the client disconnects, because received requests
    /// must still run.
    fn outlives_peer(&self) -> bool;

    /// Handles the end of the input. Returns whether the connection stays open for requests that
    /// are being executed.
    fn end_input(&mut self) -> bool {
        false
    }

    /// Whether the connection's response never ends by itself.
    fn is_endless(&self) -> bool {
        false
    }

    /// Whether the connection may move to another reactor.
    fn may_migrate(&self) -> bool;

    /// Whether `timeout` applies to the connection.
    fn may_expire(&self) -> bool;

    /// Called before the connection moves to another reactor.
    fn depart(&mut self, _: &mut ReactorHandler) {}

    /// Called after the connection moved to this reactor. Returns the highest gate of its replies.
    fn arrive(&mut self, server: &mut ReactorHandler) -> (Level, Gate);

    /// Called when the connection is no longer read; held output is still sent.
    fn closing(&mut self, _: &mut ReactorHandler, _: &mut Output) {}

    /// Called after the connection is closed.
    fn closed(&mut self, _: &mut ReactorHandler) {}
}
