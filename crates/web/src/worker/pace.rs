//! How fast a client takes its answers.

use base::time::MonoNs;

/// What a client had taken when a window of time began, while it has had something to take.
///
/// To take a byte now and then is not enough: so somebody could keep a connection, and what is to be
/// sent to it, for ever. The kernel takes much at once, so a window is long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    began: MonoNs,
    taken_bytes: u64,
}

/// What is asked of clients.
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

    /// Whether the window is over and less was taken in it than was to be; `taken_bytes`: since the
    /// connection began, which with TLS may become a little less. Another window begins if it was enough.
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

    /// Looks at (second, bytes taken until then); when the client was found to be too slow.
    fn check(looks: &[(u64, u64)], expected: Option<u64>) {
        let mut pace = Pace::begin(5, MonoNs(SECOND_NS));
        let short = looks.iter().find(|(second, taken)| {
            pace.falls_short(5 + taken, MonoNs((1 + second) * SECOND_NS), DEMAND)
        });
        assert_eq!(short.map(|(second, _)| *second), expected, "{looks:?}");
    }

    #[test]
    fn a_client_has_to_take_its_share_of_each_window() {
        check(&[(1, 0), (9, 0), (10, 0)], Some(10));
        check(&[(1, 0), (9, 0), (10, 1000)], None);
        check(&[(10, 999)], Some(10));
        // A byte now and then.
        check(&[(2, 1), (4, 2), (6, 3), (8, 4), (10, 5)], Some(10));
        // What was taken in one window does not count in the next.
        check(&[(10, 1_000_000), (19, 1_000_000), (20, 1_000_100)], Some(20));
        // Looks may be late: then more is wanted.
        check(&[(15, 1499)], Some(15));
        check(&[(15, 1500), (24, 1500), (25, 2500)], None);
        // Encrypting may take back some of it.
        check(&[(10, 1000), (20, 970)], Some(20));
        check(&[(10, 2000), (12, 1970), (20, 3000)], None);
    }

    #[test]
    fn no_number_is_too_large() {
        let demand = Demand { window_ns: u64::MAX, rate_min: u64::MAX };
        let mut pace = Pace::begin(0, MonoNs(0));
        assert!(pace.falls_short(u64::MAX, MonoNs(u64::MAX), demand));
    }
}
