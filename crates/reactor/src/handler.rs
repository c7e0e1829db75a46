//! The seam between the loop and the program that runs on it.

use crate::connection::Connections;
use crate::context::Context;
use crate::output::Output;
use crate::peer::{ConnId, Peer};

/// What the handler did with its input, and what is to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Bytes of `input` that are done with. The rest is shown again.
    pub consumed: usize,
    pub next: Next,
}

impl Flow {
    /// `consumed` bytes are done with; any new byte may complete a request.
    pub fn read(consumed: usize) -> Flow {
        Flow { consumed, next: Next::Read { needed: 0 } }
    }
}

/// What happens to a connection after [`Handler::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Read on. `data` is called again when at least `needed` unread bytes are there, counted
    /// from the first byte that was not consumed; 0 when every new byte may complete a request.
    /// Say it for long values, so that they are not looked at once per packet. Memory grows with
    /// what has arrived, never with what was promised.
    Read { needed: usize },
    /// Complete requests are left: call `data` in the next turn without reading first. Say it
    /// when this connection's share of the turn is used up.
    Again,
    /// Neither read nor call `data` until [`Context::resume`].
    Pause,
    /// Send everything, what is held too when its gate opens, then close. Input is ignored.
    Close,
    /// Close now; unsent output is lost.
    Abort,
}

/// One value per reactor, owned by its thread. All callbacks run on that thread and none may
/// block.
pub trait Handler: Sized {
    /// State of one connection. It moves to another thread when its connection does.
    type Session: Send;
    /// What reactors and other threads tell each other.
    type Mail: Send + 'static;

    /// A connection has arrived. What is appended to `out` greets it.
    fn open(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        peer: &Peer,
        out: &mut Output,
    ) -> Self::Session;

    /// Bytes have arrived. `input` is everything that is unread, starting where the last call
    /// stopped consuming. Never called with an empty `input`.
    fn data(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow;

    /// The connection is gone, for whatever reason. Called exactly once per connection, before its socket
    /// is closed. The peer of one that ended in order was told before: see [`Handler::closing`].
    fn closed(&mut self, cx: &mut Context<'_, Self::Mail>, id: ConnId, session: Self::Session);

    /// The peer has closed its sending side (or went away) while the handler has the connection
    /// paused. True keeps the connection, for example because a reply is on its way; false
    /// drops it, for example because nobody is left to be served a blocked pop.
    fn peer_left(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        let _ = (id, session);
        false
    }

    /// Nothing more comes from the connection, which is not paused: the peer has ended its side, or the
    /// process is to end. True keeps it, paused, because something that it has asked for is still being
    /// done; whoever appends that answer calls [`Context::close`]. False ends it when its output is sent.
    fn input_over(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        let _ = (id, session);
        false
    }

    /// Nothing more is read from the connection, and it ends when `out` is sent: what is still to be
    /// said must be in there now, held or not.
    fn closing(&mut self, id: ConnId, session: &mut Self::Session, out: &mut Output) {
        let _ = (id, session, out);
    }

    /// The connection leaves for another reactor: forget it here.
    fn depart(&mut self, id: ConnId, session: &mut Self::Session) {
        let _ = (id, session);
    }

    /// The connection came from another reactor. Always follows a [`Handler::depart`].
    fn arrive(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
    ) {
        let _ = (cx, id, session);
    }

    /// Whether this connection may be given to another reactor now. Paused ones never are.
    fn may_migrate(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// Whether the idle timeout applies. Paused connections are never idle.
    fn may_expire(&self, session: &Self::Session) -> bool {
        let _ = session;
        true
    }

    /// Mail has come, in the order in which each sender sent it.
    fn mail(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
        mail: Self::Mail,
    );

    /// A timer set by [`Context::set_timer`] is due.
    fn timer(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
        token: u64,
    ) {
        let _ = (cx, connections, token);
    }

    /// A descriptor that this reactor's [`crate::Watcher`] watches is readable.
    fn source(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
        source: u32,
    ) {
        let _ = (cx, connections, source);
    }

    /// More than [`crate::Limits::output_pause_bytes`] of output is pending, so the connection is not
    /// read: the place to pause what produces it.
    fn no_room(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
    ) {
        let _ = (cx, id, session);
    }

    /// Follows [`Handler::no_room`] when half of that is sent: the place to resume what was paused.
    fn has_room(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
    ) {
        let _ = (cx, id, session);
    }

    /// Once per turn, after all events and before held output is looked at and the loop waits:
    /// the place to publish counters and to raise the level.
    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        let _ = (cx, connections);
    }

    /// The process is asked to end. From now on nothing is read; every connection that is not
    /// paused and has no complete request left is closed as soon as its output is sent.
    fn draining(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        let _ = (cx, connections);
    }
}
