//! Decides whether a wait is usually short enough to spin for it instead of sleeping.

use base::time::MonoNs;

/// Weight of the newest wait in the moving average: 1 / `NEWEST_PARTS`.
const NEWEST_PARTS: u64 = 8;

/// Moving average of the duration of one kind of wait.
#[derive(Debug, Default)]
pub(super) struct AdaptiveSpin {
    since: Option<MonoNs>,
    usual_ns: u64,
}

impl AdaptiveSpin {
    /// Starts the wait unless it has already started.
    pub(super) fn begin(&mut self, now: MonoNs) {
        self.since.get_or_insert(now);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Ends the wait. A wait longer than twice `awake_ns_max` (see [`AdaptiveSpin::awake_ns`])
    /// counts as twice `awake_ns_max`, so that a few short waits are enough to enable spinning
    /// again.
    pub(super) fn end(&mut self, now: MonoNs, awake_ns_max: u64) {
        let Some(since) = self.since.take() else { return };
        let took_ns = now.since(since).min(awake_ns_max.saturating_mul(2));
        self.usual_ns = self.usual_ns - self.usual_ns / NEWEST_PARTS + took_ns / NEWEST_PARTS;
    }

    /// Returns how much longer to spin, where `awake_ns_max` limits the total of this wait. Returns
    /// 0 if the wait usually takes longer than that.
    pub(super) fn awake_ns(&self, now: MonoNs, awake_ns_max: u64) -> u64 {
        let Some(since) = self.since else { return 0 };
        if self.is_short(awake_ns_max) { awake_ns_max.saturating_sub(now.since(since)) } else { 0 }
    }

    /// Whether the wait usually ends within `awake_ns_max`.
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
