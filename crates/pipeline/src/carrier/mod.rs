//! The pipeline by way of a message broker: where parts cannot reach each other, but all reach one.
//!
//! A carrier stands at each end. One *offers* places: whoever connects there is carried to the one
//! that *serves* the place of this name, which connects for him. Parts know nothing of it, and nothing
//! of what makes the pipeline lose nothing is in here: a broker that dies, or drops something, is a
//! connection that breaks.

mod nats;
mod tunnel;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rand::Rng as _;

use crate::link::HANDSHAKE_TIMEOUT;
use crate::slots::{Slot, Slots};
use nats::{BrokerError, Hearer, Speaker};
use tunnel::MESSAGE_BYTES_MAX;

/// Connections that are carried at once, at each end.
pub const CONNECTIONS_MAX: usize = 512;
/// Places of one carrier.
pub const PLACES_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;
/// Of a connection's name: hexadecimal digits of a random number.
const ID_BYTES: usize = 32;

const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// Between two attempts to reach the broker.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const TURN: Duration = Duration::from_millis(20);

/// A place has a name, which both ends know, and an address at each end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    name: String,
    pub address: SocketAddr,
}

impl Place {
    /// Errors: names are letters, digits and hyphens, as they are parts of a broker's subjects.
    pub fn new(name: &str, address: SocketAddr) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        ensure!(is_name && name.bytes().all(is_plain), "{name:?} is no name of a place");
        Ok(Self { name: name.to_owned(), address })
    }

    /// Under which the ids of new connections are said.
    fn openings(&self) -> String {
        format!("myriad.pipeline.{}.open", self.name)
    }

    /// Under which a connection's bytes are said, to the place or back.
    fn way(&self, id: &str, direction: &str) -> String {
        format!("myriad.pipeline.{}.{id}.{direction}", self.name)
    }
}

/// All that a carrier needs to know.
#[derive(Debug)]
pub struct CarrierOptions {
    pub broker: SocketAddr,
    /// Where connections are taken in.
    pub offered: Vec<(TcpListener, Place)>,
    /// Where they are carried to.
    pub served: Vec<Place>,
}

struct Shared<'a> {
    broker: SocketAddr,
    stop: &'a AtomicBool,
    slots: Slots,
    /// All connections, so that their threads can be ended.
    streams: Mutex<BTreeMap<u64, TcpStream>>,
    streams_seen: AtomicU64,
}

/// A connection that ends when the carrier does.
struct Watched<'a> {
    shared: &'a Shared<'a>,
    number: u64,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.shared.streams.lock().remove(&self.number);
    }
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn watch(&self, stream: TcpStream) -> Watched<'_> {
        let number = self.streams_seen.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.streams.lock();
        // Whoever ends all connections may have done so just before.
        if self.is_over() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.insert(number, stream);
        Watched { shared: self, number }
    }
}

/// Runs until `stop` is set.
pub fn run(options: &CarrierOptions, stop: &AtomicBool) -> Result<()> {
    let places = options.offered.len() + options.served.len();
    ensure!((1..=PLACES_MAX).contains(&places), "a carrier has 1 to {PLACES_MAX} places");
    for (listener, _) in &options.offered {
        listener.set_nonblocking(true).context("a carrier's listener")?;
    }
    let shared = Shared {
        broker: options.broker,
        stop,
        slots: Slots::new(CONNECTIONS_MAX),
        streams: Mutex::new(BTreeMap::new()),
        streams_seen: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let shared = &shared;
        for (listener, place) in &options.offered {
            scope.spawn(move || accept(scope, shared, listener, place));
        }
        for place in &options.served {
            scope.spawn(move || serve(scope, shared, place));
        }
        while !shared.is_over() {
            thread::sleep(TURN);
        }
        // One that is just being made is seen at the next look.
        loop {
            let streams = shared.streams.lock();
            if streams.is_empty() {
                break;
            }
            for stream in streams.values() {
                // Ending one that has ended is no failure.
                let _ = stream.shutdown(Shutdown::Both);
            }
            drop(streams);
            thread::sleep(ACCEPT_PAUSE);
        }
    });
    Ok(())
}

/// The end that takes connections in.
fn accept<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'scope>,
    listener: &'scope TcpListener,
    place: &'scope Place,
) {
    while !shared.is_over() {
        let Some(slot) = shared.slots.take() else {
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        match listener.accept() {
            Ok((peer, _)) => {
                scope.spawn(move || {
                    let outcome = carry_from(shared, place, &peer);
                    ended(place, outcome, slot);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(ACCEPT_PAUSE),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken in");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn carry_from(shared: &Shared<'_>, place: &Place, peer: &TcpStream) -> Result<(), BrokerError> {
    peer.set_nonblocking(false)?;
    let _peer = shared.watch(peer.try_clone()?);
    let id = format!("{:0width$x}", rand::rng().random::<u128>(), width = ID_BYTES);
    let (speaker, hearer, _broker) = meet(shared)?;
    speaker.subscribe(&place.way(&id, "down"), None)?;
    speaker.publish(&place.openings(), &[id.as_bytes()])?;
    tunnel::run_near(peer, (speaker, hearer), &place.way(&id, "up"))
}

/// The end that makes connections: hears of each that was taken in.
fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'scope>,
    place: &'scope Place,
) {
    let mut is_told = false;
    while !shared.is_over() {
        let mut has_met = false;
        let error = match hear_openings(scope, shared, place, &mut has_met) {
            Ok(()) => return,
            Err(error) => error,
        };
        if shared.is_over() {
            return;
        }
        if has_met || !is_told {
            tracing::warn!(%error, place = place.name, "the broker is not there; trying again");
            is_told = true;
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// `Ok`: all is over.
fn hear_openings<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'scope>,
    place: &'scope Place,
    has_met: &mut bool,
) -> Result<(), BrokerError> {
    let (speaker, mut hearer, _broker) = meet(shared)?;
    *has_met = true;
    // Of several carriers that serve a place one takes each connection.
    speaker.subscribe(&place.openings(), Some("carriers"))?;
    let mut message = Vec::new();
    loop {
        hearer.next(&mut message)?;
        if shared.is_over() {
            return Ok(());
        }
        let Some(id) = read_id(&message) else {
            tracing::warn!("an id that no carrier makes was not taken");
            continue;
        };
        let Some(slot) = shared.slots.take() else {
            tracing::warn!("there are {CONNECTIONS_MAX} connections already");
            continue;
        };
        scope.spawn(move || {
            let outcome = carry_to(shared, place, &id);
            ended(place, outcome, slot);
        });
    }
}

fn carry_to(shared: &Shared<'_>, place: &Place, id: &str) -> Result<(), BrokerError> {
    let (speaker, hearer, _broker) = meet(shared)?;
    speaker.subscribe(&place.way(id, "up"), None)?;
    let says = place.way(id, "down");
    let peer = match TcpStream::connect_timeout(&place.address, HANDSHAKE_TIMEOUT) {
        Ok(peer) => peer,
        Err(error) => {
            tunnel::refuse(&speaker, &says)?;
            return Err(error.into());
        }
    };
    let _peer = shared.watch(peer.try_clone()?);
    tunnel::run_far(&peer, (speaker, hearer), &says)
}

/// It goes into subjects: nothing but what a carrier makes.
fn read_id(message: &[u8]) -> Option<String> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let is_id = message.len() == ID_BYTES && message.iter().all(is_digit);
    is_id.then(|| String::from_utf8_lossy(message).into_owned())
}

fn meet<'a>(shared: &'a Shared<'_>) -> Result<(Speaker, Hearer, Watched<'a>), BrokerError> {
    let (speaker, hearer) = nats::connect(shared.broker, MESSAGE_BYTES_MAX)?;
    let watched = shared.watch(speaker.stream()?);
    Ok((speaker, hearer, watched))
}

fn ended(place: &Place, outcome: Result<(), BrokerError>, slot: Slot<'_>) {
    drop(slot);
    match outcome {
        Ok(()) => tracing::debug!(place = place.name, "a connection ended"),
        // Whoever it was carried for tries again, many times in a second: that is no news.
        Err(error) => tracing::info!(%error, place = place.name, "a connection broke"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_fit_into_subjects() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let place = Place::new("generator-2", address).unwrap();
        assert_eq!(place.openings(), "myriad.pipeline.generator-2.open");
        assert_eq!(place.way("ab", "up"), "myriad.pipeline.generator-2.ab.up");
        for name in ["", "a.b", "a b", "*", ">", "\u{e4}", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(Place::new(name, address).is_err(), "{name}");
        }
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(read_id(id.as_bytes()).as_deref(), Some(id));
        for wrong in
            ["", "0", "0123456789ABCDEF0123456789abcdef", "*123456789abcdef0123456789abcde>"]
        {
            assert_eq!(read_id(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
