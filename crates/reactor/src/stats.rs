//! Work done by reactors, counted locally and published once per turn.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters of one reactor, or a sum of several. All but the gauges
        /// (`connections`, `held_bytes`) only grow.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// The published counters of one reactor; each field may be a turn old.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct ReactorStats {
            $($name: AtomicU64,)+
        }

        impl ReactorStats {
            pub(crate) fn publish(&self, counters: &Counters) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)+
            }

            pub fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }

        impl Counters {
            /// The increase since `earlier`; gauges have their current values.
            #[must_use]
            pub fn since(&self, earlier: &Counters) -> Counters {
                Counters {
                    connections: self.connections,
                    held_bytes: self.held_bytes,
                    ..Counters { $($name: self.$name.saturating_sub(earlier.$name),)+ }
                }
            }
        }

        impl std::ops::AddAssign for Counters {
            fn add_assign(&mut self, other: Counters) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Time outside of waiting.
    busy_ns,
    /// Processor time of the thread, up to a tenth of a second old; 0 in the simulator.
    cpu_ns,
    /// Time in waits.
    wait_ns,
    /// Each is one wait system call.
    turns,
    /// System calls that change what is waited for.
    interest_changes,
    /// Times another thread had to wake this reactor from its wait, a system call of that thread.
    wakes,
    /// Read system calls, and the bytes they returned.
    reads,
    input_bytes,
    /// Write system calls, and the bytes they took.
    writes,
    output_bytes,
    /// Time in write system calls.
    write_ns,
    /// Connections here now.
    connections,
    /// Connections given to this reactor by the acceptor.
    accepted,
    migrated_in,
    migrated_out,
    /// Connections closed because of `input_bytes_max`.
    input_overflows,
    /// Connections closed because of `output_bytes_max`.
    output_overflows,
    idle_timeouts,
    /// Completed TLS handshakes.
    tls_handshakes,
    /// Connections ended because their input was not valid TLS, or not acceptable.
    tls_failures,
    /// Handshakes that took too long.
    tls_timeouts,
    /// Handshakes ended because too many were in progress.
    tls_crowded_out,
    /// Reads of handshakes that were left to a later turn.
    tls_deferred,
    /// TLS connections that ended without a `close_notify` alert.
    tls_truncated,
    /// How often a connection was not read because too much output was held.
    stalls,
    /// Output bytes that wait for gates now.
    held_bytes,
}

/// Counters of the acceptor. A refused connection was accepted by the kernel and closed by us.
#[derive(Debug, Default)]
pub struct AcceptorStats {
    calls: AtomicU64,
    waits: AtomicU64,
    accepted: AtomicU64,
    refused_over_limit: AtomicU64,
    refused_no_descriptor: AtomicU64,
    errors: AtomicU64,
}

/// A snapshot of [`AcceptorStats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptorCounters {
    /// Accept system calls, including unsuccessful ones.
    pub calls: u64,
    /// Wait system calls.
    pub waits: u64,
    pub accepted: u64,
    /// Refused because of `connections_max`.
    pub refused_over_limit: u64,
    /// Refused because the process or the system has no file descriptor left.
    pub refused_no_descriptor: u64,
    /// Other failures of accept; accepting pauses for a moment after each.
    pub errors: u64,
}

impl AcceptorCounters {
    /// The increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &AcceptorCounters) -> AcceptorCounters {
        AcceptorCounters {
            calls: self.calls - earlier.calls,
            waits: self.waits - earlier.waits,
            accepted: self.accepted - earlier.accepted,
            refused_over_limit: self.refused_over_limit - earlier.refused_over_limit,
            refused_no_descriptor: self.refused_no_descriptor - earlier.refused_no_descriptor,
            errors: self.errors - earlier.errors,
        }
    }
}

impl AcceptorStats {
    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_over_limit(&self) {
        self.refused_over_limit.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_no_descriptor(&self) {
        self.refused_no_descriptor.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> AcceptorCounters {
        AcceptorCounters {
            calls: self.calls.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            refused_over_limit: self.refused_over_limit.load(Ordering::Relaxed),
            refused_no_descriptor: self.refused_no_descriptor.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_keeps_the_gauges() {
        let earlier = Counters { turns: 3, connections: 9, held_bytes: 8, ..Counters::default() };
        let now = Counters { turns: 10, connections: 2, held_bytes: 1, ..Counters::default() };
        let expected = Counters { turns: 7, ..now };
        assert_eq!(now.since(&earlier), expected);
        assert_eq!(earlier.since(&now).turns, 0);
    }
}
