//! The threads that serve MIGRATE.
//!
//! They exchange with the targets, so that no reactor waits for a peer. A key is deleted after its
//! target has acknowledged it, unless it has changed since the request: a newer write is never
//! lost. The deletions of a request are one record of the log.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{Change, Mutation};
use wire::rdb::end_payload;
use wire::resp::{Reply, decode_reply, encode_request};

use super::clock;
use super::commit::{Record, Unit};
use super::gate::Gate;
use super::mail::Mail;
use super::migrations::{MigratedKey, Migration, Target};
use super::rdb::{put_value, written_type};
use super::reactor_state::ReactorState;
use super::refusal::LOG_FAILED;
use super::server_state::{ServerState, params};
use crate::config::KeyEvent;

/// Requests that are served at the same time: each holds the payloads of one window.
const THREADS: usize = 4;
/// Bytes after which the replies of the target are read before the next key is sent.
const WINDOW_BYTES: usize = 1 << 20;
/// A longer reply to RESTORE is not one.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Maximum time to connect, whatever the request allows: it delays a shutdown.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Interval at which a thread that waits checks whether the server stops.
const SLICE: Duration = Duration::from_millis(20);
/// Time between two attempts to lock a stripe.
const STRIPE_REST: Duration = Duration::from_millis(1);

/// Starts the threads.
pub(crate) fn start(shared: &Arc<ServerState>) -> io::Result<()> {
    for number in 0..THREADS {
        let of_thread = Arc::clone(shared);
        let threads = &shared.migrations.threads;
        threads.start(format!("migrate{number}"), move || work(&of_thread, number))?;
    }
    Ok(())
}

/// Serves requests until the server stops. Log records are written to the lane of a reactor.
fn work(shared: &ServerState, number: usize) {
    let mut reactor = ReactorState::off_reactor(shared, number % shared.reactors.regular);
    let mut record = Record::default();
    while let Some(migration) = shared.migrations.pop() {
        let mut acknowledged = Vec::new();
        let sent = exchange(shared, &migration, &mut acknowledged);
        if migration.target.keeps_keys {
            acknowledged.clear();
        }
        let deleted = delete(shared, &mut reactor, &mut record, &migration, &acknowledged);
        for key in &migration.keys {
            let named = shared.keyspace.key(&key.name);
            while !shared.keyspace.try_unwatch(migration.db, named, &key.changed) {
                std::thread::sleep(STRIPE_REST);
            }
        }
        let (gate, deleted) = match deleted {
            Ok(Deleted { gate, is_complete: true }) => (gate, Ok(())),
            Ok(Deleted { gate, is_complete: false }) => (gate, Err(CHANGED.to_owned())),
            Err(error) => (Gate::OPEN, Err(error)),
        };
        let error = sent.and(deleted).err().map(Arc::from);
        send(shared, &Mail::Migrated { id: migration.id, error, gate });
    }
}

/// Sends mail to every reactor: the client may have been moved to another one. Retries while a
/// mailbox is full.
fn send(shared: &ServerState, mail: &Mail) {
    for mailbox in shared.links().mailboxes() {
        while mailbox.send(mail.clone()).is_err() && !shared.migrations.is_over() {
            std::thread::sleep(SLICE);
        }
    }
}

/// Waits until `is_ready`, for at most `timeout`. Returns false if it has elapsed, or the server
/// stops.
fn wait_until(shared: &ServerState, timeout: Duration, is_ready: impl Fn() -> bool) -> bool {
    const INTERVAL: Duration = Duration::from_millis(1);
    let start = Instant::now();
    while !is_ready() {
        if shared.migrations.is_over() || start.elapsed() >= timeout {
            return false;
        }
        std::thread::sleep(INTERVAL);
    }
    true
}

/// Sends the keys and reads the replies. Adds the numbers of the keys that the target has stored to
/// `acknowledged`. The error is the reply of the request, the first one of several.
// Source: Redis 7.2 `cluster.c`, `migrateCommand`
fn exchange(
    shared: &ServerState,
    migration: &Migration,
    acknowledged: &mut Vec<usize>,
) -> Result<(), String> {
    let Migration { target, keys, .. } = migration;
    let mut peer = Peer::connect(shared, target)?;
    let mut out = Vec::new();
    if !target.login.is_empty() {
        let login = target.login.iter().map(Vec::as_slice);
        encode_request(&[&b"AUTH"[..]].into_iter().chain(login).collect::<Vec<_>>(), &mut out);
        peer.write(&out)?;
        peer.read_ok()??;
        out.clear();
    }
    encode_request(&[b"SELECT", &target.db], &mut out);
    peer.write(&out)?;
    peer.read_ok()??;
    out.clear();
    let (mut sent, mut refused) = (Vec::new(), Ok(()));
    for (number, key) in keys.iter().enumerate() {
        if put_restore(shared, migration, key, &mut out)? {
            sent.push(number);
        }
        if out.len() < WINDOW_BYTES && number + 1 < keys.len() {
            continue;
        }
        peer.write(&out)?;
        out.clear();
        out.shrink_to(WINDOW_BYTES);
        for number in sent.drain(..) {
            match peer.read_ok()? {
                Ok(()) => acknowledged.push(number),
                Err(error) => refused = refused.and(Err(error)),
            }
        }
    }
    refused
}

/// Appends the RESTORE of a key. False: the key does not exist any more.
fn put_restore(
    shared: &ServerState,
    migration: &Migration,
    key: &MigratedKey,
    out: &mut Vec<u8>,
) -> Result<bool, String> {
    let now = clock::unix_now();
    let params = params(&shared.settings.load(), now, shared.keyspace.seed(), 0);
    let named = shared.keyspace.key(&key.name);
    let (payload, expiry, gate) = {
        let locked = shared.keyspace.lock_one(named.hash, &params);
        let Some(value) = locked.peek(migration.db, named) else { return Ok(false) };
        // The key may have another type than at the time of the request.
        let Some(kind) = written_type(&value) else { return Ok(false) };
        let mut payload = vec![kind as u8];
        put_value(&mut payload, &value);
        end_payload(&mut payload, kind.version());
        let expiry = locked.expiry(migration.db, named).flatten();
        (payload, expiry, Gate::of(&locked, migration.db, named.hash))
    };
    let is_durable = || gate.is_open_at(shared.log.durable());
    if migration.is_gated && !wait_until(shared, migration.target.timeout, is_durable) {
        return Err("IOERR error or timeout waiting for the log".to_owned());
    }
    // 0 means that the key does not expire.
    let ttl_ms = expiry.map_or(0, |at| at.0.saturating_sub(now.0).max(1)).to_string();
    let mut request: Vec<&[u8]> = vec![b"RESTORE", &key.name, ttl_ms.as_bytes(), &payload];
    if migration.target.replaces {
        request.push(b"REPLACE");
    }
    encode_request(&request, out);
    Ok(true)
}

const CHANGED: &str = "ERR a key changed while it was sent: the target has its old value, and it \
                       was not deleted here";

struct Deleted {
    gate: Gate,
    /// Whether no key has changed.
    is_complete: bool,
}

/// Deletes the keys that the target has stored, but none that has changed.
fn delete(
    shared: &ServerState,
    reactor: &mut ReactorState,
    record: &mut Record,
    migration: &Migration,
    acknowledged: &[usize],
) -> Result<Deleted, String> {
    if acknowledged.is_empty() {
        return Ok(Deleted { gate: Gate::OPEN, is_complete: true });
    }
    let has_room = || {
        let is_paused = shared.pause.at(clock::mono_now()).is_some();
        !is_paused && (shared.log.has_room(reactor.index) || !shared.log.takes_writes())
    };
    if !wait_until(shared, Duration::MAX, has_room) {
        return Err(LOG_FAILED.to_owned());
    }
    // A server that becomes a replica notes its position under this lock.
    let applied = shared.replication.applied();
    shared.check_writes()?;
    let params = reactor.begin_off_reactor(shared, clock::now());
    let keys = acknowledged.iter().map(|number| &migration.keys[*number]);
    let hashes = keys.clone().map(|key| shared.keyspace.hash(&key.name));
    let locked = shared.keyspace.lock(hashes, &params);
    let mut unit = Unit::of_client(shared, reactor, record, locked);
    let mut is_complete = true;
    for key in keys {
        let (db, named) = (migration.db, unit.key(&key.name));
        if key.changed.is_raised() {
            is_complete = false;
        } else if unit.contains(db, named) {
            let mutation = Mutation::Key { db, key: named, change: Change::Delete };
            unit.change(&mutation).map_err(|error| format!("ERR {error}"))?;
            reactor.publish_event(shared, KeyEvent::DELETED, db, named.bytes);
        }
    }
    let gate = unit.commit_then(reactor, |reactor, gate| reactor.queue_events(shared, gate));
    drop(applied);
    reactor.publish_some(shared);
    reactor.end_off_reactor(shared);
    if reactor.is_lost(shared, gate) {
        return Err(LOG_FAILED.to_owned());
    }
    Ok(Deleted { gate, is_complete })
}

/// A connection to a target.
struct Peer<'s> {
    shared: &'s ServerState,
    stream: TcpStream,
    timeout: Duration,
    /// Bytes received, and not decoded.
    input: Vec<u8>,
}

impl<'s> Peer<'s> {
    fn connect(shared: &'s ServerState, target: &Target) -> Result<Peer<'s>, String> {
        let connect = || {
            let mut addresses = (target.host.as_str(), target.port).to_socket_addrs()?;
            let address = addresses.next().ok_or(ErrorKind::NotFound)?;
            let stream = TcpStream::connect_timeout(&address, target.timeout.min(CONNECT_MAX))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SLICE))?;
            stream.set_write_timeout(Some(SLICE))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error: io::Error| {
            tracing::debug!(host = target.host, port = target.port, %error, "MIGRATE failed");
            // Redis notices a refused connection when it writes.
            let action = match error.kind() {
                ErrorKind::ConnectionRefused => "writing to target instance",
                _ => "connecting to the client",
            };
            format!("IOERR error or timeout {action}")
        })?;
        Ok(Peer { shared, stream, timeout: target.timeout, input: Vec::new() })
    }

    /// Tries an operation until it moves some bytes; none is an error.
    fn progress(
        &mut self,
        mut operation: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let start = Instant::now();
        loop {
            match operation(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(count),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut
                        if start.elapsed() < self.timeout && !self.shared.migrations.is_over() => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let written = self.progress(|stream| stream.write(bytes));
            bytes = &bytes
                [written.map_err(|_| "IOERR error or timeout writing to target instance")?..];
        }
        Ok(())
    }

    /// The outer error is that of the connection, the inner one that of the target.
    fn read_ok(&mut self) -> Result<Result<(), String>, String> {
        const BROKEN: &str = "IOERR error or timeout reading from target instance";
        loop {
            if let Some((reply, len)) = decode_reply(&self.input).map_err(|_| BROKEN)? {
                self.input.drain(..len);
                return match reply {
                    Reply::Simple(_) => Ok(Ok(())),
                    Reply::Error(error) => Ok(Err(format!(
                        "ERR Target instance replied with error: {}",
                        String::from_utf8_lossy(&error)
                    ))),
                    _ => Err(BROKEN.to_owned()),
                };
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(BROKEN.to_owned());
            }
            let mut chunk = [0; 4096];
            let read = self.progress(|stream| stream.read(&mut chunk)).map_err(|_| BROKEN)?;
            self.input.extend_from_slice(&chunk[..read]);
        }
    }
}
