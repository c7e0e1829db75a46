//! Time as a value. Nothing below the reactor reads a clock: `now` is always an argument, so that
//! tests and the simulator decide what time it is.

/// Wall-clock time: milliseconds since the Unix epoch. Expiry times are stored in this unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMs(pub u64);

/// Monotonic time: nanoseconds since an arbitrary origin. For durations, timers and idle times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Nanoseconds from `earlier` to `self`, zero if the order is the other way round.
    pub fn since(self, earlier: MonoNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read once per turn of a reactor and passed down from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub unix: UnixMs,
    pub mono: MonoNs,
}
