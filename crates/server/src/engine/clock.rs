//! Clocks for threads that are not reactors. A reactor reads the time once per turn.

use base::time::{MonoNs, Now, UnixMs};
use rustix::time::{ClockId, clock_gettime};

#[expect(clippy::cast_sign_loss, reason = "both clocks are past their origin")]
fn nanoseconds(clock: ClockId) -> u128 {
    let time = clock_gettime(clock);
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

pub(crate) fn unix_now() -> UnixMs {
    UnixMs(u64::try_from(nanoseconds(ClockId::Realtime) / 1_000_000).unwrap_or(u64::MAX))
}

/// Microseconds since the Unix epoch: for TIME, which must not be stale by a turn.
pub(crate) fn unix_micros() -> u64 {
    u64::try_from(nanoseconds(ClockId::Realtime) / 1000).unwrap_or(u64::MAX)
}

pub(crate) fn mono_now() -> MonoNs {
    MonoNs(u64::try_from(nanoseconds(ClockId::Monotonic)).unwrap_or(u64::MAX))
}

pub(crate) fn now() -> Now {
    Now::new(u64::try_from(nanoseconds(ClockId::Realtime)).unwrap_or(u64::MAX), mono_now())
}
