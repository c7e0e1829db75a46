//! Limits that are constants in release builds: an operator could hardly choose better values.
//!
//! Tests reach them with smaller values, and the lab compares other ones: only such builds have
//! options for them, in the section of experiments.

use base::units::{KIB, MIB};

macro_rules! internals {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr,)+) => {
        /// Limits without an option in release builds.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Internals {
            $(#[cfg(any(test, feature = "experiments"))] pub(crate) $name: $type,)+
        }

        impl Default for Internals {
            fn default() -> Self {
                Self { $(#[cfg(any(test, feature = "experiments"))] $name: $value,)+ }
            }
        }

        #[cfg(any(test, feature = "experiments"))]
        impl Internals {
            $($(#[$doc])* #[inline] pub(crate) fn $name(&self) -> $type { self.$name })+
        }

        #[cfg(not(any(test, feature = "experiments")))]
        impl Internals {
            $($(#[$doc])* #[inline] pub(crate) fn $name(&self) -> $type { $value })+
        }
    };
}

internals! {
    /// Unfinished TLS handshakes of all reactors, each of which has its share. A thousand clients
    /// reconnect at once after a restart; each handshake holds some 20 KiB.
    tls_handshakes_max: u64 = 1_000,
    /// Milliseconds for a TLS handshake: three round trips over a bad link with retransmissions.
    tls_handshake_timeout_ms: u64 = 10_000,
    /// Bytes of a receive buffer of the kernel; zero: the kernel adapts it to each connection,
    /// which fixed sizes did not improve.
    socket_receive_buffer_bytes: u64 = 0,
    /// Log records that a reactor buffers for the next group: below the processor's second-level
    /// cache, and hundreds of small writes. Smaller segments have smaller lanes.
    log_lane_bytes_max: u64 = 256 * KIB,
    /// Log records that are written and synced at once. Larger groups leave the processor's cache
    /// before they are written, and are slower.
    log_group_bytes_max: u64 = MIB,
    /// Bytes of replies on one connection above which no more of its requests are read: more than
    /// a socket buffer, so that a reading client is never slowed down, and a small cost for a
    /// client that does not read.
    output_pause_bytes: u64 = MIB,
    /// Milliseconds for the head of an HTTP request: a browser on a mobile link needs a few
    /// seconds; slow-loris clients try to use minutes.
    http_head_timeout_ms: u64 = 15_000,
    /// Bytes per second of the body of an HTTP request: slower than any working link.
    http_body_rate_min: u64 = KIB,
    /// Milliseconds in which an HTTP client must read some of its response: longer than TCP
    /// retransmits over a link that is interrupted shortly.
    http_write_timeout_ms: u64 = 30_000,
    /// CQL requests of one connection whose replies wait for the log: drivers send at most 2,048
    /// at once per connection by default.
    cql_requests_in_flight_max: usize = 4_096,
    /// Prepared CQL statements: the limit in bytes (`prepared-statements-memory`) is reached first
    /// unless statements are tiny.
    prepared_statements_max: usize = 100_000,
}
