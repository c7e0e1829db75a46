//! The rate at which a client reads its responses.

use base::time::MonoNs;

/// The total that a client had read at the start of the current window, while output was pending.
///
/// Reading a byte now and then is not enough: a client could otherwise occupy a connection and its
/// buffers forever. The kernel buffers much output at once, so the window is long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    began: MonoNs,
    taken_bytes: u64,
}

/// Required read rate of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) window_ns: u64,
    /// Bytes per second.
    pub(crate) rate_min: u64,
}

impl Pace {
    pub(crate) fn begin(taken_bytes: u64, now: MonoNs) -> Pace {
        Pace { began: now, taken_bytes }
    }

    /// Whether the window has ended with fewer bytes read than required. `taken_bytes` counts from
    /// the start of the connection, and may decrease slightly with TLS. Starts a new window if the
    /// rate was sufficient.
    pub(crate) fn falls_short(&mut self, taken_bytes: u64, now: MonoNs, demand: Demand) -> bool {
        let passed_ns = now.since(self.began);
        if passed_ns < demand.window_ns {
            return false;
        }
        let taken = u128::from(taken_bytes.saturating_sub(self.taken_bytes));
        let wanted = u128::from(demand.rate_min) * u128::from(passed_ns);
        if taken * 1_000_000_000 < wanted {
            return true;
        }
        *self = Pace::begin(taken_bytes, now);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const DEMAND: Demand = Demand { window_ns: 10 * SECOND_NS, rate_min: 100 };

    /// Checks samples of (second, bytes read so far) against the time when the client was found too
    /// slow.
    fn check(looks: &[(u64, u64)], expected: Option<u64>) {
        let mut pace = Pace::begin(5, MonoNs(SECOND_NS));
        let short = looks.iter().find(|(second, taken)| {
            pace.falls_short(5 + taken, MonoNs((1 + second) * SECOND_NS), DEMAND)
        });
        assert_eq!(short.map(|(second, _)| *second), expected, "{looks:?}");
    }

    #[test]
    fn a_client_must_read_enough_in_each_window() {
        check(&[(1, 0), (9, 0), (10, 0)], Some(10));
        check(&[(1, 0), (9, 0), (10, 1000)], None);
        check(&[(10, 999)], Some(10));
        // A byte now and then.
        check(&[(2, 1), (4, 2), (6, 3), (8, 4), (10, 5)], Some(10));
        // Bytes read in one window do not count in the next.
        check(&[(10, 1_000_000), (19, 1_000_000), (20, 1_000_100)], Some(20));
        // After a late check, more is required.
        check(&[(15, 1499)], Some(15));
        check(&[(15, 1500), (24, 1500), (25, 2500)], None);
        // Encryption may reduce the count slightly.
        check(&[(10, 1000), (20, 970)], Some(20));
        check(&[(10, 2000), (12, 1970), (20, 3000)], None);
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let demand = Demand { window_ns: u64::MAX, rate_min: u64::MAX };
        let mut pace = Pace::begin(0, MonoNs(0));
        assert!(pace.falls_short(u64::MAX, MonoNs(u64::MAX), demand));
    }
}
