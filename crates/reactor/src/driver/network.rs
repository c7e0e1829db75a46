//! The simulated driver: an in-memory network with faults from a seed.
//!
//! All randomness is drawn from one generator and everything is visited in a fixed order, so a run
//! is determined by the seed and the calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::time::{MonoNs, Now};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;

use super::{Event, Interest, Io, Ready};
use crate::token::Token;

/// Rates of network faults, in parts per thousand of the calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read returns a few bytes only.
    pub short_read: u32,
    /// A write takes a few bytes only.
    pub short_write: u32,
    /// A read or write of a ready socket blocks.
    pub would_block: u32,
    /// A read or write finds the connection reset.
    pub reset: u32,
}

impl Faults {
    /// Everything but resets, often: faults that a correct program tolerates without an effect.
    pub fn harmless() -> Faults {
        Faults { short_read: 500, short_write: 500, would_block: 200, reset: 0 }
    }
}

/// Short transfers are at most this long.
const SHORT_BYTES_MAX: usize = 7;
/// The clocks do not start at zero, so that no code works by accident.
const UNIX_START_MS: u64 = 1_700_000_000_000;
const MONO_START_NS: u64 = 1_000_000_000;

pub(crate) type SharedNetwork = Arc<Mutex<Network>>;

#[derive(Debug)]
pub(crate) struct Network {
    now: Now,
    /// By how much the wall clock has been set back.
    lag_ns: u64,
    faults: Faults,
    read_cost_ns: u64,
    random: StdRng,
    pipes: BTreeMap<u64, Pipe>,
    next_number: u64,
}

/// Both directions of one connection.
#[expect(clippy::struct_excessive_bools, reason = "each end can end each direction on its own")]
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) to_server: VecDeque<u8>,
    /// The client has shut down its sending side.
    pub(crate) client_shut: bool,
    /// The client has disconnected: it neither sends nor receives.
    pub(crate) is_client_closed: bool,
    pub(crate) to_client: Vec<u8>,
    /// Bytes that `to_client` may hold.
    pub(crate) window: usize,
    /// The server has shut down its sending side.
    pub(crate) server_shut: bool,
    pub(crate) server_closed: bool,
    pub(crate) is_reset: bool,
}

impl Network {
    pub(crate) fn new(faults: Faults, seed: u64) -> Network {
        Network {
            now: Now::new(UNIX_START_MS * 1_000_000, MonoNs(MONO_START_NS)),
            lag_ns: 0,
            faults,
            read_cost_ns: 0,
            random: StdRng::seed_from_u64(seed),
            pipes: BTreeMap::new(),
            next_number: 1,
        }
    }

    pub(crate) fn connect(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let pipe = Pipe {
            to_server: VecDeque::new(),
            client_shut: false,
            is_client_closed: false,
            to_client: Vec::new(),
            window: usize::MAX,
            server_shut: false,
            server_closed: false,
            is_reset: false,
        };
        self.pipes.insert(number, pipe);
        number
    }

    pub(crate) fn pipe(&mut self, number: u64) -> &mut Pipe {
        self.pipes.get_mut(&number).expect("sockets stay known for the life of the network")
    }

    pub(crate) fn now(&self) -> Now {
        self.now
    }

    pub(crate) fn advance(&mut self, ns: u64) {
        self.now.mono.0 += ns;
        let passed_ns = self.now.mono.0.saturating_sub(MONO_START_NS);
        let unix_ns = (UNIX_START_MS * 1_000_000 + passed_ns).saturating_sub(self.lag_ns);
        self.now = Now::new(unix_ns, self.now.mono);
    }

    pub(crate) fn set_back(&mut self, ns: u64) {
        self.lag_ns += ns;
        self.advance(0);
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub(crate) fn set_read_cost(&mut self, ns_per_byte: u64) {
        self.read_cost_ns = ns_per_byte;
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille != 0 && self.random.random_ratio(per_mille.min(1000), 1000)
    }

    /// Length of a transfer that could be `length` long.
    fn cut(&mut self, length: usize, per_mille: u32) -> usize {
        if length > 1 && self.happens(per_mille) {
            self.random.random_range(1..=SHORT_BYTES_MAX.min(length))
        } else {
            length
        }
    }

    fn read(&mut self, number: u64, buffer: &mut Vec<u8>) -> Io {
        let faults = self.faults;
        if self.happens(faults.would_block) {
            return Io::Blocked;
        }
        if self.happens(faults.reset) {
            self.pipe(number).is_reset = true;
        }
        let room = buffer.capacity() - buffer.len();
        let pipe = self.pipe(number);
        if pipe.is_reset {
            return Io::Broken(Errno::CONNRESET);
        }
        if pipe.to_server.is_empty() {
            return if pipe.client_shut { Io::Done(0) } else { Io::Blocked };
        }
        let possible = pipe.to_server.len().min(room);
        let count = self.cut(possible, faults.short_read);
        buffer.extend(self.pipe(number).to_server.drain(..count));
        self.advance(self.read_cost_ns * count as u64);
        Io::Done(count)
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> Io {
        let faults = self.faults;
        if self.happens(faults.would_block) {
            return Io::Blocked;
        }
        if self.happens(faults.reset) {
            self.pipe(number).is_reset = true;
        }
        let pipe = self.pipe(number);
        if pipe.is_reset || pipe.is_client_closed {
            pipe.is_reset = true;
            return Io::Broken(Errno::CONNRESET);
        }
        assert!(!pipe.server_shut, "nothing is sent after the end was announced");
        let possible = pipe.window.saturating_sub(pipe.to_client.len()).min(bytes.len());
        if possible == 0 {
            return Io::Blocked;
        }
        let count = self.cut(possible, faults.short_write);
        self.pipe(number).to_client.extend_from_slice(&bytes[..count]);
        Io::Done(count)
    }
}

/// The sockets of one reactor in the network.
#[derive(Debug)]
pub(crate) struct SimDriver {
    network: SharedNetwork,
    watched: BTreeMap<u64, (Token, Interest)>,
    events: Vec<Event>,
}

impl SimDriver {
    pub(crate) fn new(network: SharedNetwork) -> SimDriver {
        SimDriver { network, watched: BTreeMap::new(), events: Vec::new() }
    }

    pub(crate) fn wait(&mut self) -> usize {
        let network = self.network.lock();
        self.events.clear();
        for (number, (token, interest)) in &self.watched {
            self.events.extend(ready(&network.pipes[number], *token, *interest));
        }
        self.events.len()
    }

    pub(crate) fn event(&self, position: usize) -> Event {
        self.events[position]
    }

    pub(crate) fn now(&self) -> Now {
        self.network.lock().now
    }

    pub(crate) fn register(&mut self, number: u64, token: Token, interest: Interest) {
        self.watched.insert(number, (token, interest));
    }

    pub(crate) fn deregister(&mut self, number: u64) {
        self.watched.remove(&number);
    }

    pub(crate) fn close(&mut self, number: u64) {
        self.watched.remove(&number);
        let mut network = self.network.lock();
        let pipe = network.pipe(number);
        pipe.server_shut = true;
        pipe.server_closed = true;
    }

    pub(crate) fn read(&mut self, number: u64, buffer: &mut Vec<u8>) -> Io {
        self.network.lock().read(number, buffer)
    }

    pub(crate) fn write(&mut self, number: u64, bytes: &[u8]) -> Io {
        self.network.lock().write(number, bytes)
    }

    pub(crate) fn has_unread(&self, number: u64) -> bool {
        !self.network.lock().pipe(number).to_server.is_empty()
    }

    pub(crate) fn shutdown_write(&mut self, number: u64) {
        self.network.lock().pipe(number).server_shut = true;
    }
}

/// What epoll would report, level-triggered.
fn ready(pipe: &Pipe, token: Token, interest: Interest) -> Option<Event> {
    let reads = interest.has(Interest::READ);
    let is_registered = reads || interest.has(Interest::HANGUP);
    let writes = interest.has(Interest::WRITE);
    let ready = Ready {
        token,
        readable: reads && (!pipe.to_server.is_empty() || pipe.client_shut),
        writable: writes && pipe.to_client.len() < pipe.window,
        hangup: is_registered && pipe.client_shut,
        dead: pipe.is_reset,
    };
    let any = ready.readable || ready.writable || ready.hangup || ready.dead;
    any.then_some(Event::Ready(ready))
}
