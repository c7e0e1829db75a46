//! Connections for the ablations: plain loopback, and a link with the rate of a real network.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// TCP payload of a full Ethernet frame, with timestamps: 1,500 - 20 - 32.
pub(super) const SEGMENT_BYTES: u64 = 1_448;
/// Total bytes on the link for it: in addition, 14 of Ethernet header, 4 of checksum, 8 of preamble
/// and 12 of interframe gap.
// Source: IEEE 802.3, 3.1.1 and 4.4.2
pub(super) const SEGMENT_WIRE_BYTES: u64 = SEGMENT_BYTES + 20 + 32 + 14 + 4 + 8 + 12;

/// Size of forwarded chunks: short even on the slowest link (5 ms at 100 Mb/s).
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum lag that is caught up after oversleeping. A real link accumulates no credit.
const BURST: Duration = Duration::from_millis(4);
/// Shorter sleeps are skipped: the kernel would prolong them.
const SLEEP_MIN: Duration = Duration::from_micros(500);

/// Returns both ends of a connection.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = TcpStream::connect(listener.local_addr()?)?;
    let (from, _) = listener.accept()?;
    to.set_nodelay(true)?;
    from.set_nodelay(true)?;
    Ok((to, from))
}

/// Returns the records per second that a link of this rate carries, including framing.
pub(super) fn records_per_second(bits_per_second: u64, record_bytes: u64) -> u64 {
    let payload = u128::from(bits_per_second / 8) * u128::from(SEGMENT_BYTES);
    let per_record = u128::from(SEGMENT_WIRE_BYTES) * u128::from(record_bytes);
    u64::try_from((payload + per_record / 2) / per_record).unwrap_or(u64::MAX)
}

/// A proxy that forwards, for all connections together, at the rate of a link in each direction,
/// including framing.
#[derive(Debug)]
pub(super) struct SlowLink {
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl SlowLink {
    pub(super) fn start(upstream: SocketAddr, bits_per_second: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let wires = [(), ()].map(|()| Arc::new(Mutex::new(Wire::new(bits_per_second))));
        thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                if let Err(error) = client.and_then(|client| forward(client, upstream, &wires)) {
                    tracing::debug!(%error, "could not connect to the upstream of the link");
                }
            }
        });
        Ok(Self { address, is_over })
    }
}

impl Drop for SlowLink {
    /// Wakes the listener's thread, which then ends.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Err(error) = TcpStream::connect(self.address) {
            tracing::debug!(%error, "the listener of the link has ended");
        }
    }
}

fn forward(
    client: TcpStream,
    upstream: SocketAddr,
    wires: &[Arc<Mutex<Wire>>; 2],
) -> io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let directions = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for ((from, to), wire) in directions.into_iter().zip(wires) {
        let wire = Arc::clone(wire);
        thread::spawn(move || {
            if let Err(error) = carry(&from, &to, &wire) {
                tracing::debug!(%error, "connection over the link ended");
            }
            // Propagate the end of the stream; shutting down twice is harmless.
            let _ = to.shutdown(Shutdown::Write);
            let _ = from.shutdown(Shutdown::Read);
        });
    }
    Ok(())
}

fn carry(mut from: &TcpStream, mut to: &TcpStream, wire: &Mutex<Wire>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        let wait = wire.lock().take(count, Instant::now());
        if wait > SLEEP_MIN {
            thread::sleep(wait);
        }
        to.write_all(&chunk[..count])?;
    }
}

/// One direction of a link: when it has sent all accepted bytes.
#[derive(Debug)]
struct Wire {
    bits_per_second: u64,
    free_at: Option<Instant>,
}

impl Wire {
    fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second, free_at: None }
    }

    /// Returns how long it takes until these bytes are sent.
    fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let bytes = u128::try_from(bytes).expect("128 bits");
        let wire_bits = bytes * u128::from(SEGMENT_WIRE_BYTES) * 8;
        let ns = wire_bits * 1_000_000_000
            / (u128::from(SEGMENT_BYTES) * u128::from(self.bits_per_second));
        let busy = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let free_at = self.free_at.map_or(now, |free_at| free_at.max(earliest)) + busy;
        self.free_at = Some(free_at);
        free_at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_the_framing() {
        for (bits_per_second, expected) in
            [(100_000_000, 267_467), (1_000_000_000, 2_674_666), (10_000_000_000, 26_746_660)]
        {
            let found = records_per_second(bits_per_second, 44);
            assert!(found.abs_diff(expected) <= 1, "{bits_per_second}: {found}");
        }
    }

    /// One second of simulated time: exactly the limit, however late the sender calls within a
    /// burst.
    #[test]
    fn a_wire_carries_its_rate() {
        let start = Instant::now();
        let (mut wire, mut now, mut bytes) = (Wire::new(100_000_000), start, 0);
        while now.duration_since(start) < Duration::from_secs(1) {
            let wait = wire.take(44_000, now);
            bytes += 44_000;
            now += wait + Duration::from_micros(900);
        }
        let records = bytes / 44;
        assert!((266_000..269_500).contains(&records), "{records}");
        // Unused capacity is lost, except for one burst.
        let later = now + Duration::from_secs(5);
        assert!(wire.take(125_000, later) > Duration::from_millis(5));
    }

    #[test]
    fn the_link_forwards_everything() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = SlowLink::start(listener.local_addr().unwrap(), 1_000_000_000).unwrap();
        let mut client = TcpStream::connect(link.address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let sending = sent.clone();
        let sender = thread::spawn(move || {
            client.write_all(&sending).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert_eq!(received, sent);
    }
}
