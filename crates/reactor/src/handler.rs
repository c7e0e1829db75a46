//! The interface between the loop and the program that runs on it.

use crate::connection::Connections;
use crate::context::Context;
use crate::output::Output;
use crate::peer::{ConnId, Peer};

/// How much input the handler consumed, and what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Bytes of `input` that are consumed. The rest is passed again.
    pub consumed: usize,
    pub next: Next,
}

impl Flow {
    /// `consumed` bytes are consumed; any new byte may complete a request.
    pub fn read(consumed: usize) -> Flow {
        Flow { consumed, next: Next::Read { needed: 0 } }
    }
}

/// What happens to a connection after [`Handler::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Read on. `data` is called again when at least `needed` unread bytes have arrived, counted
    /// from the first byte that was not consumed; 0 when every new byte may complete a request. Set
    /// it for long values, so that they are not parsed once per packet. Memory grows with the bytes
    /// that have arrived, never with an announced length.
    Read { needed: usize },
    /// Complete requests are left: call `data` in the next turn without reading first. For a
    /// connection that has used up its share of the turn.
    Again,
    /// Complete requests are left, and a regular reactor shall serve them: the connection moves
    /// there at the end of the turn. For the spare reactor. If the connection must stay, it is like
    /// [`Next::Again`].
    Leave,
    /// Neither read nor call `data` until [`Context::resume`].
    Pause,
    /// Send everything, including held output when its gate opens, then close. Input is ignored.
    Close,
    /// Close now; unsent output is lost.
    Abort,
}

/// One value per reactor, owned by its thread. All callbacks run on that thread and none may
/// block.
pub trait Handler: Sized {
    /// State of one connection. It moves to another thread when its connection does.
    type Session: Send;
    /// Messages between reactors, and from other threads.
    type Mail: Send + 'static;

    /// A connection was opened. Bytes appended to `out` are sent first.
    fn open(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        peer: &Peer,
        out: &mut Output,
    ) -> Self::Session;

    /// The TLS handshake of the connection is complete. `certificate`: the verified certificate of
    /// the client in DER, if it presented one.
    fn secured(&mut self, id: ConnId, session: &mut Self::Session, certificate: Option<&[u8]>) {
        let _ = (id, session, certificate);
    }

    /// Bytes have arrived. `input` contains all unread bytes, starting where the last call stopped
    /// consuming. Never called with an empty `input`.
    fn data(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow;

    /// The connection is gone, for any reason. Called exactly once per connection, before its
    /// socket is closed. For an orderly end, [`Handler::closing`] was called before, and the peer
    /// may already have seen the end.
    fn closed(&mut self, cx: &mut Context<'_, Self::Mail>, id: ConnId, session: Self::Session);

    /// The peer has closed its sending side (or disconnected) while the handler has the connection
    /// paused. True keeps the connection, for example because a reply is on its way; false drops
    /// it, for example because a blocked pop no longer has a client to serve.
    fn peer_left(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        let _ = (id, session);
        false
    }

    /// No more input will arrive from the connection, which is not paused: the peer has ended its
    /// side, or the process is ending. True keeps it, paused, because a request is still being
    /// executed; the code that appends the answer then calls [`Context::close`]. False ends the
    /// connection when its output is sent.
    fn input_ended(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        let _ = (id, session);
        false
    }

    /// The connection is not read any more, and it ends when `out` is sent: any last message must
    /// be appended now, held or not.
    fn closing(&mut self, id: ConnId, session: &mut Self::Session, out: &mut Output) {
        let _ = (id, session, out);
    }

    /// The connection moves to another reactor: remove it here.
    fn depart(&mut self, id: ConnId, session: &mut Self::Session) {
        let _ = (id, session);
    }

    /// The connection moved here from another reactor. Always follows a [`Handler::depart`].
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

    /// Mail has arrived, in the order in which each sender sent it.
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

    /// More than [`crate::Limits::output_pause_bytes`] of output is pending, so the connection is
    /// not read: pause here the producers of its output.
    fn no_room(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
    ) {
        let _ = (cx, id, session);
    }

    /// Follows [`Handler::no_room`] when half of that is sent: resume here what was paused.
    fn has_room(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        id: ConnId,
        session: &mut Self::Session,
    ) {
        let _ = (cx, id, session);
    }

    /// Called once per turn, after all events and before held output is released and the loop
    /// waits: publish counters and raise the level here.
    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        let _ = (cx, connections);
    }

    /// The process is ending. From now on nothing is read; every connection that is not paused and
    /// has no complete request left is closed as soon as its output is sent.
    fn draining(
        &mut self,
        cx: &mut Context<'_, Self::Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        let _ = (cx, connections);
    }
}
