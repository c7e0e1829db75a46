//! A proxy that forwards frames and injects faults into some of them, from a seed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pipeline::frame::{HEADER_BYTES, Header};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Probabilities per frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) flipped: f64,
    pub(crate) cut: f64,
    pub(crate) delayed: f64,
    pub(crate) delay: Duration,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Number of frames that were corrupted or whose connection was cut.
    faults: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn start(upstream: SocketAddr, faults: Faults, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over) = (Arc::clone(&count), Arc::clone(&is_over));
        thread::spawn(move || {
            for (number, client) in (0_u64..).zip(listener.incoming()) {
                let Ok(client) = client else { continue };
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // As a proxy does when its upstream is unreachable.
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                let seed = seed ^ (number << 1);
                let ways = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), seed),
                    (server, client, seed | 1),
                ];
                for (from, to, seed) in ways {
                    let counted = Arc::clone(&counted);
                    thread::spawn(move || pump(from, to, faults, seed, &counted));
                }
            }
        });
        Self { address, faults: count, is_over }
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    /// Wakes the listener's thread, which then ends.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, faults: Faults, seed: u64, counted: &AtomicU64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut frame = Vec::new();
    while read_frame(&mut from, &mut frame) {
        if random.random_bool(faults.delayed) {
            thread::sleep(faults.delay);
        }
        if random.random_bool(faults.cut) {
            counted.fetch_add(1, Ordering::SeqCst);
            let part = random.random_range(0..frame.len());
            let _ = to.write_all(&frame[..part]);
            break;
        }
        if random.random_bool(faults.flipped) {
            counted.fetch_add(1, Ordering::SeqCst);
            // Every tenth fault is in the header, which ends the connection.
            let end = if random.random_bool(0.1) { HEADER_BYTES } else { frame.len() };
            let bit = random.random_range(0..end * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        if to.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn read_frame(from: &mut TcpStream, frame: &mut Vec<u8>) -> bool {
    frame.resize(HEADER_BYTES, 0);
    if from.read_exact(frame).is_err() {
        return false;
    }
    let header = Header::decode(frame.first_chunk().unwrap()).unwrap();
    frame.resize(HEADER_BYTES + header.payload_len(), 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).is_ok()
}
