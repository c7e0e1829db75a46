//! Every limit of the reactors, changeable while they run.

use std::sync::atomic::{AtomicU64, Ordering};

/// Limits of connections and of reactors, shared by all of them. Each may be changed at any time
/// and is read where it applies; a read is a plain load.
#[derive(Debug)]
pub struct Limits {
    /// Open connections of the process; further ones get their listener's refusal and are closed.
    pub connections_max: Limit,
    /// Unread input of one connection (the query buffer); above it the connection is closed.
    pub input_bytes_max: Limit,
    /// Pending output above which a connection is not read, until it has fallen to half of it.
    pub output_pause_bytes: Limit,
    /// Pending output above which the next append closes the connection, because its peer does not
    /// read. A single reply may be larger: only the output that was pending before it counts.
    pub output_bytes_max: Limit,
    /// Output that waits for gates, per reactor, above which the reactor stops reading.
    pub held_bytes_max: Limit,
    /// Time without a byte after which a connection is closed; 0 is never.
    pub idle_timeout_ms: Limit,
    /// Time that a TLS handshake may take before its connection is closed; 0 is unlimited.
    pub handshake_timeout_ms: Limit,
    /// Unfinished handshakes of all reactors, each of which has its share; above it the oldest
    /// ends.
    pub handshakes_max: Limit,
    /// Silence after which the kernel probes a peer; 0 is never. For new connections.
    pub tcp_keepalive_s: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: Limit::new(10_000),
            input_bytes_max: Limit::new(1 << 30),
            output_pause_bytes: Limit::new(1 << 20),
            output_bytes_max: Limit::new(256 << 20),
            held_bytes_max: Limit::new(64 << 20),
            idle_timeout_ms: Limit::new(0),
            handshake_timeout_ms: Limit::new(10_000),
            handshakes_max: Limit::new(1_000),
            tcp_keepalive_s: Limit::new(300),
        }
    }
}

/// A number that one thread sets and others read. Nothing else is published with it.
#[derive(Debug)]
pub struct Limit(AtomicU64);

impl Limit {
    pub const fn new(value: u64) -> Limit {
        Limit(AtomicU64::new(value))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// For limits of memory: a limit above the address space is unlimited.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
