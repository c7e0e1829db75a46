//! Pauses of all clients, or of their writes: CLIENT PAUSE, and FAILOVER.

use std::sync::atomic::{AtomicU64, Ordering};

use base::time::MonoNs;

/// The pauses of the server in a single word, which every request reads: the end of CLIENT PAUSE in
/// nanoseconds, a multiple of four, and two bits. Zero: no pause.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

/// CLIENT PAUSE stops only writes.
const WRITES_ONLY: u64 = 1;
/// A failover stops writes, until it ends.
const FAILOVER: u64 = 2;
const FLAGS: u64 = WRITES_ONLY | FAILOVER;

/// The pause in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InEffect {
    pub(crate) until: MonoNs,
    pub(crate) writes_only: bool,
}

impl InEffect {
    /// Of writes, for as long as the log has no room for them.
    pub(crate) const FULL_LANE: InEffect = InEffect { until: MonoNs(u64::MAX), writes_only: true };

    /// Whether it stops a statement of CQL. `may_write` is called during a pause of writes.
    pub(crate) fn stops(self, may_write: impl FnOnce() -> bool) -> bool {
        !self.writes_only || may_write()
    }
}

impl Pause {
    /// Returns the pause in effect at `now`. A different one may follow it.
    #[inline]
    pub(crate) fn at(&self, now: MonoNs) -> Option<InEffect> {
        let word = self.0.load(Ordering::Relaxed);
        if word == 0 { None } else { in_effect(word, now) }
    }

    /// Starts or extends the pause of CLIENT PAUSE. It is never shortened, and one of all commands
    /// is not reduced to writes.
    // Source: Redis 7.2 `networking.c`, `pauseClientsByClient`
    pub(crate) fn begin(&self, now: MonoNs, until: MonoNs, writes_only: bool) {
        self.change(|word| {
            let known_end = word & !FLAGS;
            let stopped_all = known_end > now.0 && word & WRITES_ONLY == 0;
            let end = known_end.max(until.0 & !FLAGS);
            let scope = if writes_only && !stopped_all { WRITES_ONLY } else { 0 };
            end | scope | (word & FAILOVER)
        });
    }

    /// Ends the pause of CLIENT PAUSE.
    pub(crate) fn end(&self) {
        self.change(|word| word & FAILOVER);
    }

    pub(crate) fn begin_failover(&self) {
        self.change(|word| word | FAILOVER);
    }

    pub(crate) fn end_failover(&self) {
        self.change(|word| word & !FAILOVER);
    }

    fn change(&self, next: impl Fn(u64) -> u64) {
        // The closure always returns a word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| Some(next(word)));
    }
}

#[cold]
fn in_effect(word: u64, now: MonoNs) -> Option<InEffect> {
    let end = word & !FLAGS;
    let by_client = (end > now.0)
        .then_some(InEffect { until: MonoNs(end), writes_only: word & WRITES_ONLY != 0 });
    let by_failover =
        (word & FAILOVER != 0).then_some(InEffect { until: MonoNs(u64::MAX), writes_only: true });
    by_client.filter(|pause| !pause.writes_only).or(by_failover).or(by_client)
}
