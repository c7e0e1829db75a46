//! A pause of all clients, or of their writes: CLIENT PAUSE.

use std::sync::atomic::{AtomicU64, Ordering};

use base::time::MonoNs;

/// End and scope of the server's pause. A single word, read by every request.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

/// Bit that is set if only writes are paused. The other bits are the end in nanoseconds, so ends
/// are even. Zero: no pause.
const WRITES_ONLY: u64 = 1;

impl Pause {
    /// Returns the end of the pause in effect at `now`.
    #[inline]
    pub(crate) fn until(&self, now: MonoNs) -> Option<MonoNs> {
        let end = self.0.load(Ordering::Relaxed) & !WRITES_ONLY;
        (end > now.0).then_some(MonoNs(end))
    }

    /// Whether the pause affects writes only.
    pub(crate) fn is_for_writes(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WRITES_ONLY != 0
    }

    /// Starts or extends a pause. A pause is never shortened, and one of all commands is not
    /// reduced to writes.
    // Source: Redis 7.2 `networking.c`, `pauseClientsByClient`
    pub(crate) fn begin(&self, now: MonoNs, until: MonoNs, writes_only: bool) {
        let extend = |word: u64| {
            let known_end = word & !WRITES_ONLY;
            let stopped_all = known_end > now.0 && word & WRITES_ONLY == 0;
            let end = known_end.max(until.0 & !WRITES_ONLY);
            Some(if writes_only && !stopped_all { end | WRITES_ONLY } else { end })
        };
        // The closure always returns a word.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, extend);
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
