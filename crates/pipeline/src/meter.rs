//! What a stage does with its time: busy, starved (nothing comes), blocked (nobody takes); what its
//! process has in memory, and how often it has asked for some.

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

/// A copy of a [`Meter`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub busy_ns: u64,
    pub starved_ns: u64,
    pub blocked_ns: u64,
    pub frames: u64,
    pub tasks: u64,
    /// Payloads sent on, or taken in by the last stage.
    pub bytes: u64,
    pub threads: u64,
}

/// What the time since the last look was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
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

/// One thread's hand on a meter: charges the time from one look to the next.
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

    /// The time since the last call was spent so. Returns it, in nanoseconds.
    pub fn charge(&mut self, doing: Doing) -> u64 {
        let now_ns = self.clock.now_ns();
        let spent_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
        let counter = match doing {
            Doing::Busy => &self.meter.busy_ns,
            Doing::Starved => &self.meter.starved_ns,
            Doing::Blocked => &self.meter.blocked_ns,
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
    /// What happened since an earlier reading.
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

    /// Busy, starved and blocked, in percent of the time that was accounted for.
    pub fn shares(&self) -> [u64; 3] {
        let parts = [self.busy_ns, self.starved_ns, self.blocked_ns];
        let whole = parts.iter().sum::<u64>().max(1);
        parts.map(|part| part.saturating_mul(100) / whole)
    }
}

static ALLOCATIONS: OnceLock<fn() -> u64> = OnceLock::new();

/// For a program whose allocator counts: runs are judged by this from now on. The first one stands.
pub fn count_allocations_by(count: fn() -> u64) {
    ALLOCATIONS.get_or_init(|| count);
}

/// Allocations and reallocations of this process so far; `None` where nobody counts them.
pub fn allocations() -> Option<u64> {
    ALLOCATIONS.get().map(|count| count())
}

/// What this process has in memory. Errors: the system does not say.
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
    fn memory_that_is_used_is_seen() {
        // Other tests of this process may give back as much at that very moment, but not each time.
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
