//! The clock of a process, read by its threads and passed down as a number.

use std::time::Instant;

use base::time::MonoNs;

/// Nanoseconds since creation. Copies share the same origin.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Overflows after 584 years.
    pub fn now_ns(self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn now(self) -> MonoNs {
        MonoNs(self.now_ns())
    }
}
