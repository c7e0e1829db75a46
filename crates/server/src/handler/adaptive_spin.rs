//! Whether something that is waited for comes so soon that staying awake pays.

use base::time::MonoNs;

/// Share of the newest wait in what is usual: one part in so many.
const NEWEST_PARTS: u64 = 8;

/// How long one kind of wait takes of late.
#[derive(Debug, Default)]
pub(super) struct AdaptiveSpin {
    since: Option<MonoNs>,
    usual_ns: u64,
}

impl AdaptiveSpin {
    /// The wait begins, if it has not begun already.
    pub(super) fn begin(&mut self, now: MonoNs) {
        self.since.get_or_insert(now);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// The wait is over. `awake_ns_max` as for [`AdaptiveSpin::awake_ns`]: much longer waits count as if
    /// they were twice that long, so that a few short ones are enough to stay awake again.
    pub(super) fn end(&mut self, now: MonoNs, awake_ns_max: u64) {
        let Some(since) = self.since.take() else { return };
        let took_ns = now.since(since).min(awake_ns_max.saturating_mul(2));
        self.usual_ns = self.usual_ns - self.usual_ns / NEWEST_PARTS + took_ns / NEWEST_PARTS;
    }

    /// For how long to stay awake now, when that is done for at most `awake_ns_max` in all; 0 if the
    /// wait usually takes longer.
    pub(super) fn awake_ns(&self, now: MonoNs, awake_ns_max: u64) -> u64 {
        let Some(since) = self.since else { return 0 };
        if self.is_short(awake_ns_max) { awake_ns_max.saturating_sub(now.since(since)) } else { 0 }
    }

    /// Whether the wait usually ends within that time.
    pub(super) fn is_short(&self, awake_ns_max: u64) -> bool {
        self.usual_ns <= awake_ns_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE_NS_MAX: u64 = 1000;

    fn wait(spin: &mut AdaptiveSpin, ns: u64) {
        spin.begin(MonoNs(5));
        spin.begin(MonoNs(6));
        spin.end(MonoNs(5 + ns), AWAKE_NS_MAX);
    }

    fn awake_ns(spin: &mut AdaptiveSpin) -> u64 {
        spin.begin(MonoNs(100));
        let ns = spin.awake_ns(MonoNs(300), AWAKE_NS_MAX);
        spin.since = None;
        ns
    }

    #[test]
    fn stays_awake_for_the_rest_of_a_short_wait_only() {
        let mut spin = AdaptiveSpin::default();
        assert_eq!(spin.awake_ns(MonoNs(300), AWAKE_NS_MAX), 0, "nothing is waited for");
        spin.begin(MonoNs(100));
        assert_eq!(spin.awake_ns(MonoNs(300), AWAKE_NS_MAX), 800);
        assert_eq!(spin.awake_ns(MonoNs(1100), AWAKE_NS_MAX), 0);
        assert_eq!(spin.awake_ns(MonoNs(300), 0), 0);
    }

    #[test]
    fn sleeps_while_waits_are_long_and_wakes_up_to_short_ones() {
        let mut spin = AdaptiveSpin::default();
        for _ in 0..5 {
            wait(&mut spin, 1_000_000_000);
        }
        assert_eq!(awake_ns(&mut spin), 800, "not yet sure");
        wait(&mut spin, 1_000_000_000);
        assert_eq!(awake_ns(&mut spin), 0);
        for _ in 0..10 {
            wait(&mut spin, 100);
        }
        assert_eq!(awake_ns(&mut spin), 800);
    }
}
