//! Reactors on one thread with an in-memory network: the same loop, another driver.
//!
//! A run is determined by the calls and the seed. Clients are plain values: they send, inspect what
//! they have received, stop reading, half-close, disconnect.

use std::net::SocketAddr;
use std::sync::Arc;

use base::time::Now;
use parking_lot::Mutex;

use crate::connection::ConnInfo;
use crate::context::Links;
use crate::driver::{Driver, Faults, Network, SharedNetwork, SimDriver, Socket};
use crate::group::Config;
use crate::handler::Handler;
use crate::mailbox::{Inbox, Waker};
use crate::peer::{ConnId, Peer};
use crate::placement::{Placement, Placer};
use crate::reactor::{Deliveries, Delivery, Reactor};
use crate::tls::Tls;

/// More turns than this without becoming idle are a livelock: [`Sim::run_until_idle`] panics.
const TURNS_MAX: usize = 1_000_000;

/// A group of reactors in one thread.
pub struct Sim<H: Handler> {
    reactors: Vec<Reactor<H>>,
    ended: Vec<bool>,
    links: Links<H::Mail>,
    deliveries: Deliveries<H::Session>,
    network: SharedNetwork,
    placement: Placement,
    placer: Placer,
    drain_timeout_ms: u64,
}

impl<H: Handler> std::fmt::Debug for Sim<H> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Sim")
            .field("reactors", &self.reactors.len())
            .finish_non_exhaustive()
    }
}

impl<H: Handler> Sim<H> {
    /// `make` is called once per reactor in order.
    pub fn new(
        config: &Config,
        faults: Faults,
        seed: u64,
        mut make: impl FnMut(usize, &Links<H::Mail>) -> H,
    ) -> Sim<H> {
        let loops = config.loops();
        let wakers: Vec<Waker> = (0..loops).map(|_| Waker::simulated()).collect();
        let deliveries: Deliveries<H::Session> = wakers.iter().cloned().map(Inbox::new).collect();
        let links = Links::new(Arc::clone(&config.limits), wakers, config.has_spare);
        let network = Arc::new(Mutex::new(Network::new(faults, seed)));
        let rebalances = config.rebalances();
        let reactor = |index| {
            let driver = Driver::Sim(SimDriver::new(Arc::clone(&network)));
            let handler = make(index, &links);
            let rebalances = rebalances && index < config.reactors;
            Reactor::new(index, handler, driver, links.clone(), Arc::clone(&deliveries), rebalances)
        };
        Sim {
            reactors: (0..loops).map(reactor).collect(),
            ended: vec![false; loops],
            links: links.clone(),
            deliveries: Arc::clone(&deliveries),
            network: Arc::clone(&network),
            placement: config.placement,
            placer: Placer::default(),
            drain_timeout_ms: config.drain_timeout_ms,
        }
    }

    /// A new client of listener 0. It is placed as a live connection would be.
    pub fn connect(&mut self) -> SimClient {
        self.connect_to(0)
    }

    /// A new client of the given listener.
    pub fn connect_to(&mut self, listener: usize) -> SimClient {
        self.connect_with(listener, None)
    }

    /// A new client of a listener with TLS; the caller implements the client's side of TLS.
    pub fn connect_tls(&mut self, listener: usize, tls: &Arc<Tls>) -> SimClient {
        self.connect_with(listener, Some(Arc::clone(tls)))
    }

    fn connect_with(&mut self, listener: usize, tls: Option<Arc<Tls>>) -> SimClient {
        let (number, now) = {
            let mut network = self.network.lock();
            (network.connect(), network.now().mono)
        };
        let low = number.to_be_bytes();
        let remote = SocketAddr::from(([10, low[5], low[6], low[7]], 40_000));
        let local = SocketAddr::from(([10, 255, 255, 255], 6379));
        let peer = Peer { remote: Some(remote), local: Some(local), listener };
        let group_state = &self.links.group_state;
        let reactor = self.placer.place(self.placement, group_state, Some(remote), now);
        let id = group_state.next_id();
        group_state.connection_opened(reactor);
        let short = u32::try_from(number).expect("fewer than 2^32 simulated connections");
        let adopt = Delivery::Adopt { id, socket: Socket::Sim(short), peer, tls };
        if self.deliveries[reactor].push(adopt, usize::MAX).is_err() {
            // As in a live group: a reactor that has ended closes the connection.
            group_state.connection_closed(reactor);
            let mut network = self.network.lock();
            network.pipe(number).server_shut = true;
            network.pipe(number).server_closed = true;
        }
        SimClient { network: Arc::clone(&self.network), number, id }
    }

    /// One turn of every reactor, in order. False if none had anything to do.
    pub fn turn(&mut self) -> bool {
        let mut worked = false;
        for index in 0..self.reactors.len() {
            worked |= self.turn_of(index);
        }
        worked
    }

    fn turn_of(&mut self, index: usize) -> bool {
        if self.ended[index] {
            return false;
        }
        let reactor = &mut self.reactors[index];
        let turn = reactor.turn();
        if turn.ended {
            reactor.end();
            self.ended[index] = true;
        }
        turn.worked || turn.ended || reactor.has_work()
    }

    /// Runs one turn of one reactor, but only if a live one would begin it now instead of waiting:
    /// a missing wake-up call is a missing turn. False if the reactor waits or has ended.
    pub fn step(&mut self, reactor: usize) -> bool {
        let is_due = !self.ended[reactor] && self.reactors[reactor].is_due();
        if is_due {
            self.turn_of(reactor);
        }
        is_due
    }

    /// Runs turns until no work is left without a change of the clock or the clients. Returns how
    /// many.
    ///
    /// # Panics
    /// If the reactors do not become idle.
    pub fn run_until_idle(&mut self) -> usize {
        let turns = (0..TURNS_MAX).take_while(|_| self.turn()).count();
        assert!(turns < TURNS_MAX, "the reactors do not become idle");
        turns
    }

    /// Moves both clocks. Timers fire in the next turn.
    pub fn advance(&mut self, ns: u64) {
        self.network.lock().advance(ns);
    }

    /// Sets the wall clock back, as an operator or NTP may.
    pub fn set_clock_back(&mut self, ns: u64) {
        self.network.lock().set_back(ns);
    }

    /// Sets the cost of serving: each byte read advances the clocks by `ns_per_byte`, within the
    /// turn. Initially turns take no time, so there is no load.
    pub fn set_read_cost(&mut self, ns_per_byte: u64) {
        self.network.lock().set_read_cost(ns_per_byte);
    }

    pub fn now(&self) -> Now {
        self.network.lock().now()
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.network.lock().set_faults(faults);
    }

    pub fn handler(&mut self, reactor: usize) -> &mut H {
        &mut self.reactors[reactor].handler
    }

    pub fn links(&self) -> &Links<H::Mail> {
        &self.links
    }

    /// The reactor of a connection; `None` if it is closed or moving.
    pub fn place_of(&self, id: ConnId) -> Option<usize> {
        self.reactors.iter().position(|reactor| reactor.table.token(id).is_some())
    }

    pub fn info(&mut self, id: ConnId) -> Option<ConnInfo> {
        self.reactors.iter_mut().find_map(|reactor| {
            let token = reactor.table.token(id)?;
            reactor.table.get_mut(token).map(|connection| connection.info())
        })
    }

    /// Moves a connection to another reactor, if it may move. It arrives in the next turn.
    pub fn migrate(&mut self, id: ConnId, to: usize) -> bool {
        self.reactors.iter_mut().any(|reactor| {
            let Some(token) = reactor.table.token(id) else { return false };
            reactor.give(token, to)
        })
    }

    /// Does what SIGTERM does: no new connections, flush, end. Run turns afterwards.
    pub fn drain(&mut self) {
        let mut until = self.now().mono;
        until.0 += self.drain_timeout_ms * 1_000_000;
        for inbox in self.deliveries.iter() {
            // A reactor that has ended has nothing to drain.
            let _ = inbox.push(Delivery::Drain { until }, usize::MAX);
        }
    }

    /// Whether all reactors have ended.
    pub fn is_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }
}

/// The far end of a connection.
#[derive(Debug)]
pub struct SimClient {
    network: SharedNetwork,
    number: u64,
    id: ConnId,
}

impl SimClient {
    /// Identifies the connection on the server's side.
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// Sends bytes; this direction has no limit.
    pub fn send(&self, bytes: &[u8]) {
        self.network.lock().pipe(self.number).to_server.extend(bytes);
    }

    /// Takes everything that has arrived.
    pub fn received(&self) -> Vec<u8> {
        std::mem::take(&mut self.network.lock().pipe(self.number).to_client)
    }

    /// How much may arrive before [`SimClient::received`] is called: 0 stops reading. Initially
    /// unlimited.
    pub fn set_window(&self, bytes: usize) {
        self.network.lock().pipe(self.number).window = bytes;
    }

    /// Sends no more, but still receives.
    pub fn half_close(&self) {
        self.network.lock().pipe(self.number).client_shut = true;
    }

    /// Disconnects. What was sent before still arrives.
    pub fn close(&self) {
        let mut network = self.network.lock();
        let pipe = network.pipe(self.number);
        pipe.client_shut = true;
        pipe.is_client_closed = true;
    }

    /// Breaks the connection at once.
    pub fn reset(&self) {
        self.network.lock().pipe(self.number).is_reset = true;
    }

    /// Whether the server has shut down its sending side.
    pub fn is_ended(&self) -> bool {
        self.network.lock().pipe(self.number).server_shut
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.network.lock().pipe(self.number).server_closed
    }
}
