//! Time accounting of a stage (busy, starved for input, blocked on output), and the memory use and
//! allocation count of its process.

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// Counters of one stage, shared by its threads: a few additions per batch.
#[derive(Debug, Default)]
pub struct Meter {
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    blocked_ns: AtomicU64,
    frames: AtomicU64,
    tasks: AtomicU64,
    bytes: AtomicU64,
    threads: AtomicU64,
}

/// A snapshot of a [`Meter`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub busy_ns: u64,
    pub starved_ns: u64,
    pub blocked_ns: u64,
    pub frames: u64,
    pub tasks: u64,
    /// Payload bytes sent, or received by the last stage.
    pub bytes: u64,
    pub threads: u64,
}

/// Activity to which a thread charges time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Busy,
    Starved,
    Blocked,
}

impl Meter {
    pub fn count_batch(&self, tasks: u32, bytes: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.tasks.fetch_add(u64::from(tasks), Ordering::Relaxed);
        self.bytes.fetch_add(u64::try_from(bytes).expect("64 bits"), Ordering::Relaxed);
    }

    pub fn thread_starts(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn thread_ends(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> Reading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Reading {
            busy_ns: load(&self.busy_ns),
            starved_ns: load(&self.starved_ns),
            blocked_ns: load(&self.blocked_ns),
            frames: load(&self.frames),
            tasks: load(&self.tasks),
            bytes: load(&self.bytes),
            threads: load(&self.threads),
        }
    }
}

/// Charges a thread's time to a meter, from one call to the next.
#[derive(Debug)]
pub struct Stopwatch<'a> {
    meter: &'a Meter,
    clock: Clock,
    since_ns: u64,
}

impl<'a> Stopwatch<'a> {
    pub fn start(meter: &'a Meter, clock: Clock) -> Self {
        meter.thread_starts();
        Self { meter, clock, since_ns: clock.now_ns() }
    }

    /// Charges the time since the last call to this activity. Returns it, in nanoseconds.
    pub fn charge(&mut self, activity: Activity) -> u64 {
        let now_ns = self.clock.now_ns();
        let spent_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        let counter = match activity {
            Activity::Busy => &self.meter.busy_ns,
            Activity::Starved => &self.meter.starved_ns,
            Activity::Blocked => &self.meter.blocked_ns,
        };
        counter.fetch_add(spent_ns, Ordering::Relaxed);
        spent_ns
    }

    pub fn now_ns(&self) -> u64 {
        self.since_ns
    }
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        self.meter.thread_ends();
    }
}

impl Reading {
    /// Returns the difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            starved_ns: self.starved_ns.saturating_sub(earlier.starved_ns),
            blocked_ns: self.blocked_ns.saturating_sub(earlier.blocked_ns),
            frames: self.frames.saturating_sub(earlier.frames),
            tasks: self.tasks.saturating_sub(earlier.tasks),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            threads: self.threads,
        }
    }

    /// Busy, starved and blocked time, in percent of the time accounted for.
    pub fn shares(&self) -> [u64; 3] {
        let parts = [self.busy_ns, self.starved_ns, self.blocked_ns];
        let whole = parts.iter().sum::<u64>().max(1);
        parts.map(|part| part.saturating_mul(100) / whole)
    }
}

static ALLOCATIONS: OnceLock<fn() -> u64> = OnceLock::new();

/// Installs the allocation counter of a program whose allocator counts. Only the first call has an
/// effect.
pub fn count_allocations_by(count: fn() -> u64) {
    ALLOCATIONS.get_or_init(|| count);
}

/// Allocations and reallocations of this process so far; `None` without a counting allocator.
pub fn allocations() -> Option<u64> {
    ALLOCATIONS.get().map(|count| count())
}

/// Returns the resident memory of this process. Fails if the system does not report it.
pub fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    // Source: proc(5), /proc/pid/status, VmRSS
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other("/proc/self/status has no VmRSS"))?;
    Ok(kib.saturating_mul(1_024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_is_reported() {
        // Concurrent tests may free as much at the same moment, but not every time.
        let is_seen = || {
            let before = resident_bytes().unwrap();
            let used = vec![1_u8; 64 << 20];
            let with = resident_bytes().unwrap();
            let least = std::hint::black_box(used).len() as u64;
            assert!(with >= least, "{with}");
            with > before + least / 2
        };
        assert!((0..50).any(|_| is_seen()));
    }
}
