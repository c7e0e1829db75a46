//! How connections are added to a reactor, moved to another, and closed when the reactor ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::time::MonoNs;

use crate::balance::{Transfer, choose};
use crate::connection::{Connection, Phase, Stops};
use crate::context::{Arrival, Context};
use crate::driver::{Interest, Socket};
use crate::handler::Handler;
use crate::output::Output;
use crate::peer::{ConnId, Peer};
use crate::reactor::{Delivery, Reactor};
use crate::tls::{Channel, Tls};
use crate::token::Token;

impl<H: Handler> Reactor<H> {
    pub(crate) fn move_load(&mut self, load_ppm: u64, transfer: Transfer) {
        let connections = self.table.iter_mut();
        let (tokens, costs): (Vec<Token>, Vec<u64>) =
            connections.map(|(token, connection)| (token, connection.recent_cost)).unzip();
        for position in choose(&costs, load_ppm, transfer) {
            self.give(tokens[position], transfer.to);
        }
    }

    /// Moves a connection to reactor `to`: socket, unread input, unsent output with its gates,
    /// session. False if it has to stay.
    pub(crate) fn give(&mut self, token: Token, to: usize) -> bool {
        let index = self.core.index;
        let Some(connection) = self.table.get_mut(token) else { return false };
        let is_movable = connection.phase == Phase::Open
            && !connection.stops.has(Stops::PAUSED)
            && !connection.stops.has(Stops::SENDING)
            && connection.channel.as_ref().is_none_or(|channel| channel.is_established())
            && to != index
            && !self.core.is_draining
            && self.handler.may_migrate(&connection.session);
        if !is_movable {
            return false;
        }
        let Some(mut connection) = self.table.remove(token) else { return false };
        self.driver.deregister(&connection.socket);
        self.core.counters.interest_changes += 1;
        self.held_bytes -= std::mem::take(&mut connection.held_counted);
        connection.is_holder = false;
        connection.is_watched = false;
        connection.recent_cost = 0;
        connection.stops.clear(Stops::STALLED);
        self.handler.depart(connection.id, &mut connection.session);
        self.core.links.group_state.connection_moved(index, to);
        let migrant = Delivery::Migrant(Box::new(connection));
        match self.deliveries[to].push(migrant, usize::MAX) {
            Ok(()) => {
                self.core.counters.migrated_out += 1;
                true
            }
            Err(Delivery::Migrant(connection)) => {
                // The other reactor has ended: the connection stays here.
                self.core.links.group_state.connection_moved(to, index);
                self.welcome(*connection);
                false
            }
            Err(_) => unreachable!("the rejected item is the one that was sent"),
        }
    }

    /// Moves the connections that wait for a regular reactor to the one with the fewest.
    pub(crate) fn move_leaving(&mut self) {
        for token in std::mem::take(&mut self.leaving) {
            let slots = self.core.links.group_state.regular().iter().enumerate();
            let fewest = slots.min_by_key(|(_, slot)| slot.connections.load(Ordering::Relaxed));
            let to = fewest.map_or(0, |(index, _)| index);
            let moved = self.give(token, to);
            if !moved && self.table.get_mut(token).is_some() {
                self.again.push(token);
            }
        }
    }

    pub(crate) fn adopt(&mut self, id: ConnId, socket: Socket, peer: Peer, tls: Option<Arc<Tls>>) {
        self.core.counters.accepted += 1;
        let channel = match tls.map(|tls| tls.channel()).transpose() {
            Ok(channel) => channel,
            Err(error) => {
                tracing::error!(id = id.0, %error, "could not start TLS on a connection");
                self.core.links.group_state.connection_closed(self.core.index);
                return self.driver.close(socket);
            }
        };
        let connection = self.open(id, socket, peer, channel);
        let token = self.enroll(connection);
        self.begin_handshake(token);
    }

    /// Creates a connection with its session, not in the table yet.
    fn open(
        &mut self,
        id: ConnId,
        socket: Socket,
        peer: Peer,
        channel: Option<Box<Channel>>,
    ) -> Connection<H::Session> {
        let mut output = Output::default();
        output.release(self.core.levels);
        let mut cx = Context::new(&mut self.core);
        let session = self.handler.open(&mut cx, id, &peer, &mut output);
        let now = self.core.now.mono;
        let mut connection = Connection::new(id, socket, peer, session, output, now);
        connection.channel = channel;
        connection
    }

    /// Opens a connection that the handler adopted.
    pub(crate) fn take_arrival(&mut self, arrival: Arrival) {
        let Arrival { id, socket, peer, channel, reads } = arrival;
        self.core.counters.accepted += 1;
        let connection = self.open(id, Socket::Fd(socket), peer, channel);
        if !reads {
            self.enroll(connection);
            return;
        }
        let token = self.table.insert(connection);
        self.begin_handshake(token);
        // A short connection may have ended before it is watched.
        let is_gathering = std::mem::replace(&mut self.is_gathering, false);
        self.receive(token);
        self.is_gathering = is_gathering;
        let Some(connection) = self.table.get_mut(token) else { return };
        // The first read and its answer may have left something to wait for.
        let is_blocked = connection.interest.has(Interest::WRITE);
        connection.interest = connection.required_interest(is_blocked);
        self.register(token);
        self.flush_own(token);
    }

    pub(crate) fn welcome(&mut self, mut connection: Connection<H::Session>) {
        let mut cx = Context::new(&mut self.core);
        self.handler.arrive(&mut cx, connection.id, &mut connection.session);
        self.enroll(connection);
    }

    fn enroll(&mut self, mut connection: Connection<H::Session>) -> Token {
        connection.interest = connection.required_interest(false);
        let waits = connection.stops.has(Stops::AGAIN);
        let token = self.table.insert(connection);
        if !self.register(token) {
            return token;
        }
        if waits {
            self.again.push(token);
        }
        self.flush_own(token);
        token
    }

    /// Makes the driver watch a connection. False if that failed and the connection is gone.
    fn register(&mut self, token: Token) -> bool {
        let Some(connection) = self.table.get_mut(token) else { return false };
        self.core.counters.interest_changes += 1;
        if let Err(error) = self.driver.register(&connection.socket, token, connection.interest) {
            tracing::warn!(id = connection.id.0, %error, "could not watch a connection");
            self.remove(token);
            return false;
        }
        connection.is_watched = true;
        true
    }

    pub(crate) fn drain(&mut self, until: MonoNs) {
        self.drain_until = Some(until);
        if !std::mem::replace(&mut self.core.is_draining, true) {
            self.with_connections(H::draining);
        }
    }

    /// Closes connections with no request in flight, after their output is sent.
    pub(crate) fn close_drained(&mut self) {
        for token in self.table.tokens() {
            let Some(connection) = self.table.get_mut(token) else { continue };
            let in_flight = connection.stops.has(Stops::PAUSED)
                || connection.stops.has(Stops::AGAIN)
                || connection.stops.has(Stops::SENDING);
            if connection.phase == Phase::Open && !in_flight {
                self.end_input(token);
            }
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drain_until.is_some_and(|until| self.table.len() == 0 || until <= self.core.now.mono)
    }

    /// Closes the remaining connections and refuses new ones.
    pub(crate) fn end(&mut self) {
        let left = self.deliveries[self.core.index].close();
        self.core.links.mailboxes[self.core.index].inbox.close();
        for item in left {
            match item {
                Delivery::Adopt { socket, .. } => {
                    self.core.links.group_state.connection_closed(self.core.index);
                    self.driver.close(socket);
                }
                Delivery::Migrant(connection) => self.welcome(*connection),
                Delivery::Drain { .. } => {}
            }
        }
        for arrival in std::mem::take(&mut self.core.arrivals) {
            self.core.links.group_state.connection_closed(self.core.index);
            drop(arrival.socket);
        }
        for token in self.table.tokens() {
            self.remove(token);
        }
        self.core.post();
        self.publish();
    }
}
