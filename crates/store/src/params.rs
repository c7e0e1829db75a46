//! Parameters and results of every access to the data.

use std::cell::Cell;

use base::time::UnixMs;

use crate::STRIPES;
use crate::access::AccessClock;
use crate::types::Compact;

/// Parameters that a reactor passes to every access: the time and the thresholds.
#[derive(Debug, Clone)]
pub struct Params {
    now: Cell<UnixMs>,
    keeps_expired: bool,
    pub access: AccessClock,
    pub compact: Compact,
}

impl Params {
    pub fn new(now: UnixMs, access: AccessClock, compact: Compact) -> Params {
        Params { now: Cell::new(now), keeps_expired: false, access, compact }
    }

    /// While data is imported, keys and fields stay after their expiry until the source of the
    /// import deletes them: a write of the source that is on its way may have extended them.
    #[must_use]
    pub fn keeping_expired(self, keeps_expired: bool) -> Params {
        Params { keeps_expired, ..self }
    }

    #[inline]
    pub fn now(&self) -> UnixMs {
        self.now.get()
    }

    /// The time up to which keys, and fields of hashes, have expired.
    #[inline]
    pub fn expiry_now(&self) -> UnixMs {
        if self.keeps_expired { UnixMs(0) } else { self.now.get() }
    }

    /// Advances the time between two commands of a long turn. Locked stripes see the new time.
    pub fn set_now(&self, now: UnixMs) {
        self.now.set(now);
    }
}

/// Statistics of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DbStats {
    pub keys: u64,
    pub expires: u64,
    /// Collections with elements that expire: hashes and time series.
    pub timed_keys: u64,
    /// Mean time to live of the keys that expire, in milliseconds.
    pub ttl_ms_mean: u64,
    /// Bytes of its hash tables, without entries and collections.
    pub table_bytes: u64,
    /// Bytes of its items in the expiry heaps.
    pub expiry_bytes: u64,
}

/// Where a SCAN continues: stripe in the upper half, place inside the stripe in the lower. 0 is the
/// start, and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanCursor(pub u64);

impl ScanCursor {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is masked")]
    pub(crate) fn split(self) -> (usize, u32) {
        (usize::try_from(self.0 >> 32).unwrap_or(usize::MAX), (self.0 & u64::from(u32::MAX)) as u32)
    }

    pub(crate) fn join(stripe: usize, place: u32) -> ScanCursor {
        if stripe >= STRIPES {
            return ScanCursor(0);
        }
        ScanCursor((stripe as u64) << 32 | u64::from(place))
    }
}
