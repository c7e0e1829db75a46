//! Clients that send their request byte by byte and never complete it.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::clients::connect;
use super::stay_on_load_cpu;

/// Interval of one client's bytes: short enough that no server treats it as silent.
const PERIOD: Duration = Duration::from_secs(2);
/// Interval at which the clients are processed.
const TICK: Duration = Duration::from_millis(2);
/// All of them connect and send their first byte within this time.
const OPENING: Duration = Duration::from_millis(600);
const HEAD: &[u8] = b"GET /hello HTTP/1.1\r\nX: ";
/// Descriptors of this process for other purposes.
const DESCRIPTORS_KEPT: u64 = 200;

/// Clients that send slowly until dropped.
#[derive(Debug)]
pub(super) struct SlowClients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
    count: usize,
}

#[derive(Debug, Default)]
struct Shared {
    must_stop: AtomicBool,
    /// Number of clients that have sent a byte.
    active: AtomicUsize,
}

impl SlowClients {
    /// Starts `count` clients, or as many as the limit of open files allows.
    pub(super) fn start(address: SocketAddr, count: usize) -> Result<Self> {
        let count = count.min(descriptors()?);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let builder = thread::Builder::new().name("slow-clients".to_owned());
        let run = move || stay_on_load_cpu().map(|()| send_slowly(address, count, &theirs));
        let thread = builder.spawn(run).context("could not start the slow clients")?;
        Ok(Self { shared, thread: Some(thread), count })
    }

    /// Returns the number of clients.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of active clients.
    pub(super) fn active(&self) -> usize {
        self.shared.active.load(Ordering::Relaxed)
    }
}

impl Drop for SlowClients {
    fn drop(&mut self) {
        self.shared.must_stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Pinning failed; other threads report the same error.
            let _ = thread.join();
        }
    }
}

/// Raises the limit of open files, and returns the number of clients that it allows.
fn descriptors() -> Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("could not raise the limit of open files")?;
    let left = limit.current.map_or(u64::MAX, |most| most.saturating_sub(DESCRIPTORS_KEPT));
    Ok(usize::try_from(left).unwrap_or(usize::MAX))
}

#[derive(Debug, Default)]
struct Client {
    stream: Option<TcpStream>,
    sent: usize,
}

/// Processes all clients in turn, once per period; the first rounds are faster.
fn send_slowly(address: SocketAddr, count: usize, shared: &Shared) {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::default()).collect();
    let (mut next, mut round) = (0, 0_u64);
    let mut began = Instant::now();
    while !shared.must_stop.load(Ordering::Relaxed) && count != 0 {
        let period = if round < 2 { OPENING } else { PERIOD };
        let due = share_due(count, began.elapsed(), period);
        while next < due {
            clients[next].turn(address, shared);
            next += 1;
        }
        if next == count {
            (next, began) = (0, Instant::now());
            round += 1;
        }
        thread::sleep(TICK);
    }
}

/// Returns how many of `count` clients are due after a part of the period.
fn share_due(count: usize, elapsed: Duration, period: Duration) -> usize {
    let part = elapsed.as_nanos().min(period.as_nanos());
    let due = count as u128 * part / period.as_nanos().max(1);
    usize::try_from(due).unwrap_or(count)
}

impl Client {
    /// Connects, or sends one more byte; reconnects if disconnected.
    fn turn(&mut self, address: SocketAddr, shared: &Shared) {
        let Some(stream) = &mut self.stream else {
            // If refused, it retries in its next turn.
            self.stream = connect(address).ok();
            return;
        };
        let byte = HEAD.get(self.sent).copied().unwrap_or(b'a');
        match stream.write(&[byte]) {
            Ok(_) => {
                if self.sent == 0 {
                    shared.active.fetch_add(1, Ordering::Relaxed);
                }
                self.sent += 1;
            }
            // Not connected yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => {
                if self.sent != 0 {
                    shared.active.fetch_sub(1, Ordering::Relaxed);
                }
                *self = Client::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn turns_are_spread_over_the_period() {
        let check = |elapsed_ms, expected| {
            let elapsed = Duration::from_millis(elapsed_ms);
            assert_eq!(share_due(1_000, elapsed, Duration::from_secs(2)), expected, "{elapsed_ms}");
        };
        check(0, 0);
        check(500, 250);
        check(2_000, 1_000);
        check(9_000, 1_000);
    }

    #[test]
    fn a_client_sends_its_head_byte_by_byte_and_begins_anew() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared::default();
        let mut client = Client::default();
        client.turn(address, &shared);
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..3 {
            client.turn(address, &shared);
        }
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!((&bytes[..], shared.active.load(Ordering::Relaxed)), (&b"GET"[..], 1));
        drop((stream, listener));
        let until = Instant::now() + Duration::from_mins(1);
        while shared.active.load(Ordering::Relaxed) != 0 {
            assert!(Instant::now() < until);
            client.turn(address, &shared);
        }
        assert_eq!(client.sent, 0);
    }
}
