//! Time as a value. Nothing below the reactor reads a clock: `now` is always an argument, so that
//! tests and the simulator decide what time it is.

/// Wall-clock time: milliseconds since the Unix epoch. Expiry times are stored in this unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixMs(pub u64);

/// Monotonic time: nanoseconds since an arbitrary origin. For durations, timers and idle times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Nanoseconds from `earlier` to `self`; zero if the order is reversed.
    pub fn since(self, earlier: MonoNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks. A reactor reads them once per turn, and updates them within a long turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub unix: UnixMs,
    pub mono: MonoNs,
    /// Microseconds of the wall clock beyond `unix`: below 1,000.
    pub fraction_us: u16,
}

impl Now {
    /// The wall clock in nanoseconds since the Unix epoch, and the monotonic one.
    pub fn new(unix_ns: u64, mono: MonoNs) -> Now {
        let unix_us = unix_ns / 1000;
        let fraction_us = u16::try_from(unix_us % 1000).expect("below 1,000");
        Now { unix: UnixMs(unix_us / 1000), mono, fraction_us }
    }

    /// The time `ns` nanoseconds later, on both clocks.
    #[must_use]
    pub fn after(self, ns: u64) -> Now {
        let unix_us = self.unix.0.saturating_mul(1000) + u64::from(self.fraction_us);
        let unix_ns = unix_us.saturating_mul(1000).saturating_add(ns);
        Now::new(unix_ns, MonoNs(self.mono.0.saturating_add(ns)))
    }

    /// Microseconds since the Unix epoch.
    pub fn unix_us(self) -> i64 {
        let whole = i64::try_from(self.unix.0).unwrap_or(i64::MAX);
        whole.saturating_mul(1000).saturating_add(i64::from(self.fraction_us))
    }
}
