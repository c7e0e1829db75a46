//! One connection, the table of a reactor's connections, and the view of it that handlers get.

use std::collections::HashMap;

use base::time::MonoNs;
use foldhash::fast::FixedState;

use crate::driver::{Interest, Socket};
use crate::input::Input;
use crate::output::Output;
use crate::peer::{ConnId, Peer};
use crate::tls::Channel;
use crate::token::Token;

/// Size of the one input buffer, and so the maximum that is read from a socket in one turn: one
/// connection's share in bytes. The handler's share in requests is [`crate::Next::Again`].
pub(crate) const INPUT_BYTES: usize = 256 * 1024;
/// Kept input up to this length is copied to the front of the reactor's buffer and completed there;
/// longer input is read in place.
const REJOIN_BYTES_MAX: usize = INPUT_BYTES / 4;

/// Why a connection is not read and its handler not called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stops(u8);

impl Stops {
    /// The handler paused it.
    pub(crate) const PAUSED: Stops = Stops(1);
    /// Complete requests wait in the input for the next turn.
    pub(crate) const AGAIN: Stops = Stops(2);
    /// Too much output is pending.
    pub(crate) const FULL: Stops = Stops(4);
    /// The reactor holds too much output.
    pub(crate) const STALLED: Stops = Stops(8);
    /// An attached file is being sent to the peer.
    pub(crate) const SENDING: Stops = Stops(16);

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn has(self, stop: Stops) -> bool {
        self.0 & stop.0 != 0
    }

    pub(crate) fn set(&mut self, stop: Stops) {
        self.0 |= stop.0;
    }

    pub(crate) fn clear(&mut self, stop: Stops) {
        self.0 &= !stop.0;
    }
}

/// Stage in the lifetime of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// No input is read any more; closed when the output is sent.
    Closing,
    /// Everything is sent and our side is shut down. Input that still arrives is discarded for a
    /// moment, because closing with unread input would make the kernel reset the connection and the
    /// peer lose the last reply.
    Lingering,
}

/// Memory that a connection costs its reactor, without the session: for the memory accounting of
/// the program.
pub const CONNECTION_BYTES: usize = size_of::<Connection<()>>();

#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
#[derive(Debug)]
pub(crate) struct Connection<S> {
    pub(crate) id: ConnId,
    pub(crate) socket: Socket,
    pub(crate) session: S,
    pub(crate) peer: Peer,
    pub(crate) output: Output,
    pub(crate) input: Input,
    /// TLS between the socket and the two buffers. Boxed, because few connections have it.
    pub(crate) channel: Option<Box<Channel>>,
    /// Unread bytes required before the handler is called.
    pub(crate) needed: usize,
    pub(crate) opened_at: MonoNs,
    pub(crate) last_activity: MonoNs,
    /// Held bytes as last added to the reactor's sum.
    pub(crate) held_counted: usize,
    /// Work done for this connection while its reactor is overloaded: bytes, and a fixed cost per
    /// read.
    pub(crate) recent_cost: u64,
    pub(crate) phase: Phase,
    pub(crate) stops: Stops,
    pub(crate) interest: Interest,
    /// Whether the driver watches the socket.
    pub(crate) is_watched: bool,
    /// Whether it is in the reactor's list of holders.
    pub(crate) is_holder: bool,
    /// Whether closing discarded input, so that the connection must linger.
    pub(crate) must_linger: bool,
    /// Whether the handler has been notified that the peer left.
    pub(crate) peer_left_reported: bool,
}

impl<S> Connection<S> {
    pub(crate) fn new(
        id: ConnId,
        socket: Socket,
        peer: Peer,
        session: S,
        output: Output,
        now: MonoNs,
    ) -> Self {
        Connection {
            id,
            socket,
            session,
            peer,
            output,
            input: Input::default(),
            channel: None,
            needed: 0,
            opened_at: now,
            last_activity: now,
            held_counted: 0,
            recent_cost: 0,
            phase: Phase::Open,
            stops: Stops::default(),
            interest: Interest::READ,
            is_watched: false,
            is_holder: false,
            must_linger: false,
            peer_left_reported: false,
        }
    }

    /// Whether its next bytes are read into the reactor's buffer, after a copy of the kept input.
    pub(crate) fn reads_shared(&self) -> bool {
        self.input.unread().len() <= REJOIN_BYTES_MAX && self.needed <= INPUT_BYTES
    }

    pub(crate) fn wants_read(&self) -> bool {
        self.phase == Phase::Lingering || (self.phase == Phase::Open && !self.stops.any())
    }

    /// What the driver should report, given whether sending is blocked by the peer.
    ///
    /// A connection that only waits for its next turn will be read again soon: changing the
    /// interest twice would cost more than an event or two that are ignored.
    pub(crate) fn required_interest(&self, is_blocked: bool) -> Interest {
        let waits_for_turn = self.phase == Phase::Open && self.stops == Stops::AGAIN;
        let input = if self.wants_read() || waits_for_turn {
            Interest::READ
        } else if self.stops.has(Stops::PAUSED) && !self.peer_left_reported {
            Interest::HANGUP
        } else {
            Interest::NONE
        };
        if is_blocked { input.with(Interest::WRITE) } else { input }
    }

    pub(crate) fn info(&self) -> ConnInfo {
        ConnInfo {
            id: self.id,
            peer: self.peer.clone(),
            fd: self.socket.number(),
            input_bytes: self.input.unread().len(),
            output_bytes: self.output.pending_bytes(),
            held_bytes: self.output.held_bytes(),
            waits_for_remote: self.output.waits_for_remote(),
            attached_bytes: self.output.attached_bytes(),
            sent_bytes: self.output.sent_bytes(),
            input_heap_bytes: self.input.heap_bytes(),
            output_heap_bytes: self.output.heap_bytes(),
            buffer_bytes: self.input.heap_bytes()
                + self.output.heap_bytes()
                + self.channel.as_ref().map_or(0, |channel| channel.heap_bytes()),
            opened_at: self.opened_at,
            last_activity: self.last_activity,
            is_in_handshake: self.channel.as_ref().is_some_and(|channel| !channel.is_established()),
        }
    }
}

/// Information about a connection, for lists of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnInfo {
    pub id: ConnId,
    pub peer: Peer,
    /// File descriptor, or the socket's number in the simulator.
    pub fd: u64,
    /// Unread input that is kept with the connection.
    pub input_bytes: usize,
    /// Output that the kernel does not have yet, held or not.
    pub output_bytes: usize,
    /// Part of `output_bytes` that waits for a gate.
    pub held_bytes: usize,
    /// Whether part of it waits for a gate of [`Level::Remote`](crate::Level).
    pub waits_for_remote: bool,
    /// Bytes of an attached file that the kernel does not have yet.
    pub attached_bytes: u64,
    /// Bytes that the kernel has taken since the connection began, files included. With TLS it may
    /// shrink by some hundred bytes when more is encrypted: see `Output::sent_bytes`.
    pub sent_bytes: u64,
    /// Heap memory of the kept input, and of the output.
    pub input_heap_bytes: usize,
    pub output_heap_bytes: usize,
    /// Heap memory of all buffers, including those of TLS.
    pub buffer_bytes: usize,
    pub opened_at: MonoNs,
    pub last_activity: MonoNs,
    /// Whether the TLS handshake is unfinished. `handshake_timeout_ms` and `handshakes_max` of
    /// [`crate::Limits`] bound that state.
    pub is_in_handshake: bool,
}

#[derive(Debug)]
struct Slot<S> {
    /// Never `u32::MAX`: that token is the waker's.
    generation: u32,
    connection: Option<Connection<S>>,
}

/// All connections of a reactor. Events find theirs by position; only calls by [`ConnId`] hash.
#[derive(Debug)]
pub(crate) struct Table<S> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    by_id: HashMap<ConnId, Token, FixedState>,
}

impl<S> Table<S> {
    pub(crate) fn new() -> Self {
        Table { slots: Vec::new(), free: Vec::new(), by_id: HashMap::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn insert(&mut self, connection: Connection<S>) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            u32::try_from(self.slots.len() - 1).expect("descriptors are fewer than 2^31")
        });
        let slot = &mut self.slots[index as usize];
        let token = Token::new(index, slot.generation);
        self.by_id.insert(connection.id, token);
        slot.connection = Some(connection);
        token
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Connection<S>> {
        let slot = self.slots.get_mut(token.index() as usize)?;
        if slot.generation != token.generation() {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = (slot.generation + 1) % u32::MAX;
        self.free.push(token.index());
        self.by_id.remove(&connection.id);
        Some(connection)
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Connection<S>> {
        let slot = self.slots.get_mut(token.index() as usize)?;
        if slot.generation != token.generation() {
            return None;
        }
        slot.connection.as_mut()
    }

    pub(crate) fn token(&self, id: ConnId) -> Option<Token> {
        self.by_id.get(&id).copied()
    }

    /// In order of position. O(slots), as is every operation on all connections.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut Connection<S>)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let token = Token::new(index, slot.generation);
            Some((token, slot.connection.as_mut()?))
        })
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        let mut tokens: Vec<Token> = self.by_id.values().copied().collect();
        tokens.sort_unstable();
        tokens
    }
}

/// Which connections a callback may have appended output to.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) tokens: Vec<Token>,
    pub(crate) all: bool,
}

/// The reactor's connections, for callbacks that are not about one of them.
///
/// Output appended here is sent at the end of the turn.
#[derive(Debug)]
pub struct Connections<'a, S> {
    pub(crate) table: &'a mut Table<S>,
    pub(crate) touched: &'a mut Touched,
}

impl<S> Connections<'_, S> {
    /// None if the connection is gone, is being closed, or is on another reactor.
    pub fn get_mut(&mut self, id: ConnId) -> Option<(&mut S, &mut Output)> {
        let token = self.table.token(id)?;
        let connection = self.table.get_mut(token)?;
        if connection.phase != Phase::Open {
            return None;
        }
        if !connection.output.is_touched() {
            self.touched.tokens.push(token);
        }
        Some((&mut connection.session, &mut connection.output))
    }

    /// Every connection that is not being closed. O(n), and once more at the end of the turn.
    pub fn iter(&mut self) -> impl Iterator<Item = (ConnId, &Peer, &mut S, &mut Output)> {
        self.touched.all = true;
        self.table.iter_mut().filter(|(_, connection)| connection.phase == Phase::Open).map(
            |(_, connection)| {
                let Connection { id, peer, session, output, .. } = connection;
                (*id, &*peer, session, output)
            },
        )
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every connection, including those being closed. O(n).
    pub fn list(&mut self) -> impl Iterator<Item = (ConnInfo, &mut S)> {
        self.table.iter_mut().map(|(_, connection)| (connection.info(), &mut connection.session))
    }

    /// The session of an open connection, for a caller that appends no output.
    pub fn session(&mut self, id: ConnId) -> Option<&mut S> {
        let token = self.table.token(id)?;
        let connection = self.table.get_mut(token)?;
        (connection.phase == Phase::Open).then_some(&mut connection.session)
    }

    pub fn info(&mut self, id: ConnId) -> Option<ConnInfo> {
        let token = self.table.token(id)?;
        self.table.get_mut(token).map(|connection| connection.info())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(id: u64) -> Connection<()> {
        let peer = Peer { remote: None, local: None, listener: 0 };
        Connection::new(ConnId(id), Socket::Sim(0), peer, (), Output::default(), MonoNs(0))
    }

    #[test]
    fn an_old_token_does_not_find_the_successor() {
        let mut table = Table::new();
        let first = table.insert(connection(1));
        assert!(table.remove(first).is_some());
        let second = table.insert(connection(2));
        assert_eq!(first.index(), second.index());
        assert!(table.get_mut(first).is_none());
        assert!(table.remove(first).is_none());
        assert_eq!(table.get_mut(second).unwrap().id, ConnId(2));
        assert_eq!(table.token(ConnId(1)), None);
        assert_eq!(table.token(ConnId(2)), Some(second));
    }

    #[test]
    fn an_idle_connection_costs_less_than_a_kilobyte() {
        let mut table = Table::new();
        for id in 0..10_000 {
            let token = table.insert(connection(id));
            let connection = table.get_mut(token).unwrap();
            connection.input.keep(b"GET");
            connection.input.keep(b"");
            assert_eq!(connection.info().buffer_bytes, 0);
        }
        let slots = table.slots.capacity() * size_of::<Slot<()>>();
        // hashbrown: one control byte per bucket, buckets at most 16/7 of the capacity.
        let ids = table.by_id.capacity() * 16 / 7 * (size_of::<(ConnId, Token)>() + 1);
        let bytes = (slots + ids) / table.len();
        assert!(bytes < 1024, "{bytes} bytes per idle connection");
    }
}
