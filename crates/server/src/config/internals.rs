//! Limits that are constants in release builds: an operator is unlikely to choose better values.
//!
//! Tests use smaller values, and the lab compares alternatives. Only those builds have options for
//! them, in the experiments section.

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
    /// Unfinished TLS handshakes on all reactors, divided evenly among them. A thousand clients may
    /// reconnect at once after a restart; each handshake takes about 20 KiB.
    tls_handshakes_max: u64 = 1_000,
    /// Milliseconds allowed for a TLS handshake: three round trips over a bad link with
    /// retransmissions.
    tls_handshake_timeout_ms: u64 = 10_000,
    /// Bytes of the kernel's receive buffer. Zero: the kernel adapts the size to each connection;
    /// fixed sizes were no better.
    socket_receive_buffer_bytes: u64 = 0,
    /// Log records that a reactor buffers for the next group, in bytes: fits in the second-level
    /// cache, and holds hundreds of small writes. Smaller segments have smaller lanes.
    log_lane_bytes_max: u64 = 256 * KIB,
    /// Log records that are written and synced at once, in bytes. Larger groups leave the
    /// processor's cache before they are written, and are slower.
    log_group_bytes_max: u64 = MIB,
    /// Bytes of pending replies at which a connection's requests are no longer read: larger than a
    /// socket buffer, so that a client that reads is never slowed down, but cheap for a client that
    /// does not.
    output_pause_bytes: u64 = MIB,
    /// Milliseconds allowed for the head of an HTTP request: a browser on a mobile link needs a few
    /// seconds, while slow-loris clients try to take minutes.
    http_head_timeout_ms: u64 = 15_000,
    /// Minimum bytes per second of an HTTP request body: slower than any working link.
    http_body_rate_min: u64 = KIB,
    /// Milliseconds within which an HTTP client must read some of its response: longer than TCP
    /// retransmits over a briefly interrupted link.
    http_write_timeout_ms: u64 = 30_000,
    /// CQL requests of one connection whose replies wait for the log: by default drivers send at
    /// most 2,048 at once per connection.
    cql_requests_in_flight_max: usize = 4_096,
    /// Prepared CQL statements. The limit in bytes (`prepared-statements-memory`) takes effect
    /// first unless statements are tiny.
    prepared_statements_max: usize = 100_000,
}
