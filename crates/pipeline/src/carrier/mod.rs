//! Carries pipeline connections through a message broker, for parts that cannot reach each other
//! but can all reach one broker.
//!
//! A carrier runs at each end. One *offers* services: a connection to it is forwarded to the
//! carrier that *serves* the service of the same name, which connects to the real listener. Parts
//! are unaware of it, and it does not contribute to their delivery guarantees: a broker that dies
//! or drops messages looks like a broken connection.

mod nats;
mod tunnel;

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rand::Rng as _;

use crate::accept::accept;
use crate::link::HANDSHAKE_TIMEOUT;
use crate::slots::{Slot, Slots};
use nats::{BrokerError, NatsReceiver, NatsSender};
use tunnel::MESSAGE_BYTES_MAX;

/// Maximum number of carried connections at each end.
pub const CONNECTIONS_MAX: usize = 512;
/// Maximum number of services per carrier.
pub const SERVICES_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;
/// Length of a connection id: hexadecimal digits of a random number.
const ID_BYTES: usize = 32;

/// Interval between attempts to close the remaining connections.
const CLOSE_PAUSE: Duration = Duration::from_millis(5);
/// Interval between attempts to reach the broker.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const TURN: Duration = Duration::from_millis(20);

/// A service: a name, which both ends know, and an address at each end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub address: SocketAddr,
}

impl Service {
    /// Fails unless the name consists of letters, digits and hyphens, because it becomes part of
    /// broker subjects.
    pub fn new(name: &str, address: SocketAddr) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        ensure!(is_name && name.bytes().all(is_plain), "{name:?} is not a valid service name");
        Ok(Self { name: name.to_owned(), address })
    }

    /// Returns the subject on which ids of new connections are published.
    fn open_subject(&self) -> String {
        format!("myriad.pipeline.{}.open", self.name)
    }

    /// Returns the subject for a connection's bytes, in the given direction.
    fn stream_subject(&self, id: &str, direction: &str) -> String {
        format!("myriad.pipeline.{}.{id}.{direction}", self.name)
    }
}

/// Configuration of a carrier.
#[derive(Debug)]
pub struct CarrierOptions {
    pub broker: SocketAddr,
    /// Services for which this carrier accepts connections.
    pub offered: Vec<(TcpListener, Service)>,
    /// Services for which it connects to the real listener.
    pub served: Vec<Service>,
}

struct Shared<'a> {
    broker: SocketAddr,
    stop: &'a AtomicBool,
    slots: Slots,
    /// All connections, so that they can be closed.
    streams: Mutex<BTreeMap<u64, TcpStream>>,
    streams_seen: AtomicU64,
}

/// A connection that is closed when the carrier stops.
struct TrackedStream<'a> {
    shared: &'a Shared<'a>,
    number: u64,
}

impl Drop for TrackedStream<'_> {
    fn drop(&mut self) {
        self.shared.streams.lock().remove(&self.number);
    }
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn track(&self, stream: TcpStream) -> TrackedStream<'_> {
        let number = self.streams_seen.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.streams.lock();
        // The thread that closes all connections may have run just before.
        if self.is_over() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.insert(number, stream);
        TrackedStream { shared: self, number }
    }
}

/// Runs until `stop` is set.
pub fn run(options: &CarrierOptions, stop: &AtomicBool) -> Result<()> {
    let services = options.offered.len() + options.served.len();
    ensure!(
        (1..=SERVICES_MAX).contains(&services),
        "a carrier must have 1 to {SERVICES_MAX} services"
    );
    for (listener, _) in &options.offered {
        listener.set_nonblocking(true).context("could not configure the carrier's listener")?;
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
        for (listener, service) in &options.offered {
            scope.spawn(move || {
                accept(
                    listener,
                    &shared.slots,
                    || shared.is_over(),
                    |peer, slot| {
                        scope.spawn(move || {
                            let outcome = carry_from(shared, service, &peer);
                            ended(service, outcome, slot);
                        });
                    },
                );
            });
        }
        for service in &options.served {
            scope.spawn(move || serve(scope, shared, service));
        }
        while !shared.is_over() {
            thread::sleep(TURN);
        }
        // A connection that is being established is found in the next iteration.
        loop {
            let streams = shared.streams.lock();
            if streams.is_empty() {
                break;
            }
            for stream in streams.values() {
                // Closing a closed connection is harmless.
                let _ = stream.shutdown(Shutdown::Both);
            }
            drop(streams);
            thread::sleep(CLOSE_PAUSE);
        }
    });
    Ok(())
}

fn carry_from(shared: &Shared<'_>, service: &Service, peer: &TcpStream) -> Result<(), BrokerError> {
    peer.set_nonblocking(false)?;
    let _peer = shared.track(peer.try_clone()?);
    let id = format!("{:0width$x}", rand::rng().random::<u128>(), width = ID_BYTES);
    let (sender, receiver, _broker) = connect(shared)?;
    sender.subscribe(&service.stream_subject(&id, "down"), None)?;
    sender.publish(&service.open_subject(), &[id.as_bytes()])?;
    tunnel::run_near(peer, (sender, receiver), &service.stream_subject(&id, "up"))
}

/// The end that makes connections: receives the id of each accepted one.
fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'scope>,
    service: &'scope Service,
) {
    let mut is_reported = false;
    while !shared.is_over() {
        let mut has_connected = false;
        let error = match receive_openings(scope, shared, service, &mut has_connected) {
            Ok(()) => return,
            Err(error) => error,
        };
        if shared.is_over() {
            return;
        }
        if has_connected || !is_reported {
            tracing::warn!(%error, service = service.name, "broker unreachable; retrying");
            is_reported = true;
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// Returns `Ok` when the carrier stops.
fn receive_openings<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'scope>,
    service: &'scope Service,
    has_connected: &mut bool,
) -> Result<(), BrokerError> {
    let (sender, mut receiver, _broker) = connect(shared)?;
    *has_connected = true;
    // If several carriers serve a name, one of them takes each connection.
    sender.subscribe(&service.open_subject(), Some("carriers"))?;
    let mut message = Vec::new();
    loop {
        receiver.next(&mut message)?;
        if shared.is_over() {
            return Ok(());
        }
        let Some(id) = read_id(&message) else {
            tracing::warn!("malformed connection id ignored");
            continue;
        };
        let Some(slot) = shared.slots.take() else {
            tracing::warn!("the limit of {CONNECTIONS_MAX} connections is reached");
            continue;
        };
        scope.spawn(move || {
            let outcome = carry_to(shared, service, &id);
            ended(service, outcome, slot);
        });
    }
}

fn carry_to(shared: &Shared<'_>, service: &Service, id: &str) -> Result<(), BrokerError> {
    let (sender, receiver, _broker) = connect(shared)?;
    sender.subscribe(&service.stream_subject(id, "up"), None)?;
    let subject = service.stream_subject(id, "down");
    let peer = match TcpStream::connect_timeout(&service.address, HANDSHAKE_TIMEOUT) {
        Ok(peer) => peer,
        Err(error) => {
            tunnel::refuse(&sender, &subject)?;
            return Err(error.into());
        }
    };
    let _peer = shared.track(peer.try_clone()?);
    tunnel::run_far(&peer, (sender, receiver), &subject)
}

/// Validates an id before it becomes part of subjects: accepts only the format that carriers
/// generate.
fn read_id(message: &[u8]) -> Option<String> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let is_id = message.len() == ID_BYTES && message.iter().all(is_digit);
    is_id.then(|| String::from_utf8_lossy(message).into_owned())
}

fn connect<'a>(
    shared: &'a Shared<'_>,
) -> Result<(NatsSender, NatsReceiver, TrackedStream<'a>), BrokerError> {
    let (sender, receiver) = nats::connect(shared.broker, MESSAGE_BYTES_MAX)?;
    let watched = shared.track(sender.stream()?);
    Ok((sender, receiver, watched))
}

fn ended(service: &Service, outcome: Result<(), BrokerError>, slot: Slot<'_>) {
    drop(slot);
    match outcome {
        Ok(()) => tracing::debug!(service = service.name, "connection ended"),
        // The part retries many times per second, so this is not worth a warning.
        Err(error) => tracing::info!(%error, service = service.name, "connection lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_fit_into_subjects() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let service = Service::new("generator-2", address).unwrap();
        assert_eq!(service.open_subject(), "myriad.pipeline.generator-2.open");
        assert_eq!(service.stream_subject("ab", "up"), "myriad.pipeline.generator-2.ab.up");
        for name in ["", "a.b", "a b", "*", ">", "\u{e4}", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(Service::new(name, address).is_err(), "{name}");
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
