//! Whether the next group waits for the clients that the last group released.
//!
//! A client that waits for its reply sends its next request just after a group has ended: too late
//! for a group that begins at once. Where syncs are slow, two halves of the clients then take
//! turns, and each request waits for two syncs. So after a slow sync, the next group waits until as
//! many records have arrived as the last group held, but at most for a fraction of the time of a
//! sync. See `docs/decisions/0003-gather-after-a-slow-sync.md`.

use base::time::MonoNs;

/// No wait follows a shorter sync: two of them in a row take little time.
const SYNC_NS_MIN: u64 = 1_000_000;
/// The wait lasts at most this fraction of a sync: a quarter.
const SYNC_PARTS: u64 = 4;
/// The usual time of a sync is the median of this many, so a single slow one, as when the disk has
/// other work, changes nothing.
const SYNCS_RECORDED: usize = 7;
const _: () = assert!(SYNCS_RECORDED % 2 == 1, "the median is one of them");
const _: () = assert!(SYNC_NS_MIN >= SYNC_PARTS, "a wait takes time");
/// After a wait without enough records, a number of groups pass before the next wait; the number
/// doubles each time, up to this one. So clients that do not wait for their replies rarely pay for
/// a wait.
const PASSES_MAX: u32 = 16;

/// A wait that has begun.
#[derive(Debug, Clone, Copy)]
struct Wait {
    until: MonoNs,
    /// Records that were present when the wait began: they arrived during the last sync.
    early: u64,
    /// Records of the last group.
    released: u64,
}

/// How the writer decides when a group begins.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// The newest syncs, in a ring; zeros at first, so that no wait follows the first few.
    sync_ns: [u64; SYNCS_RECORDED],
    syncs: usize,
    wait: Option<Wait>,
    /// Groups that pass without a wait.
    passes: u32,
    /// Groups that passed after the last wait without enough records.
    passes_last: u32,
}

impl Gathering {
    /// Records the time of a sync.
    pub(crate) fn note_sync(&mut self, took_ns: u64) {
        self.sync_ns[self.syncs % SYNCS_RECORDED] = took_ns;
        self.syncs += 1;
    }

    /// Begins a wait after a group of `released` records, if one is worthwhile, and returns the
    /// number of records that ends it. `early` counts the records that are already present.
    pub(crate) fn begin(
        &mut self,
        now: MonoNs,
        released: u64,
        early: impl FnOnce() -> u64,
    ) -> Option<u64> {
        assert!(self.wait.is_none(), "a group ends the wait before it");
        let sync_ns = self.usual_sync_ns();
        if sync_ns < SYNC_NS_MIN || released == 0 {
            return None;
        }
        if self.passes > 0 {
            self.passes -= 1;
            return None;
        }
        let early = early();
        self.wait = Some(Wait { until: MonoNs(now.0 + sync_ns / SYNC_PARTS), early, released });
        Some(early + released)
    }

    /// When the wait ends at the latest; `None` without a wait.
    pub(crate) fn until(&self) -> Option<MonoNs> {
        self.wait.map(|wait| wait.until)
    }

    /// Ends the wait with `present` records.
    pub(crate) fn end(&mut self, present: u64) {
        let Some(wait) = self.wait.take() else { return };
        let returned = present.saturating_sub(wait.early);
        if returned.saturating_mul(2) >= wait.released {
            self.passes_last = 0;
            return;
        }
        self.passes_last = (self.passes_last * 2).clamp(1, PASSES_MAX);
        self.passes = self.passes_last;
    }

    fn usual_sync_ns(&self) -> u64 {
        let mut sorted = self.sync_ns;
        sorted.sort_unstable();
        sorted[SYNCS_RECORDED / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: MonoNs = MonoNs(1000 * MS);

    fn after_syncs(sync_ms: &[u64]) -> Gathering {
        let mut gathering = Gathering::default();
        for ms in sync_ms {
            gathering.note_sync(ms * MS);
        }
        gathering
    }

    /// Checks how long a group waits after these syncs; 0 if it does not.
    #[track_caller]
    fn check_wait(sync_ms: &[u64], expected_ns: u64) {
        let mut gathering = after_syncs(sync_ms);
        let whole = gathering.begin(NOW, 10, || 3);
        assert_eq!(whole, (expected_ns != 0).then_some(13));
        assert_eq!(gathering.until().map_or(0, |until| until.since(NOW)), expected_ns);
    }

    #[test]
    fn waits_a_quarter_of_the_usual_sync_if_that_is_long() {
        check_wait(&[], 0);
        check_wait(&[20, 20, 20], 0);
        check_wait(&[20, 20, 20, 20], 5 * MS);
        check_wait(&[1; 7], MS / 4);
        check_wait(&[0; 7], 0);
        check_wait(&[0, 500, 0, 500, 0, 500, 0], 0);
        check_wait(&[8, 8, 8, 0, 8, 8, 900, 8], 2 * MS);
        check_wait(&[900, 900, 900, 900, 8, 8, 8, 8, 8, 8, 8], 2 * MS);
    }

    #[test]
    fn no_wait_follows_an_empty_group() {
        assert_eq!(after_syncs(&[20; 7]).begin(NOW, 0, || 5), None);
    }

    /// Releases groups of ten records, after each of which `returned` arrive in time. Returns the
    /// groups after which it waited.
    fn waits(gathering: &mut Gathering, groups: usize, returned: u64) -> Vec<usize> {
        let mut waits = Vec::new();
        for group in 0..groups {
            if gathering.begin(NOW, 10, || 7).is_some() {
                waits.push(group);
                gathering.end(7 + returned);
                assert_eq!(gathering.until(), None);
            }
        }
        waits
    }

    #[test]
    fn useless_waits_become_rare_until_they_pay_again() {
        let mut gathering = after_syncs(&[20; 7]);
        assert_eq!(waits(&mut gathering, 3, 10), [0, 1, 2]);
        assert_eq!(waits(&mut gathering, 3, 5), [0, 1, 2], "half of them is enough");
        assert_eq!(waits(&mut gathering, 66, 4), [0, 2, 5, 10, 19, 36, 53]);
        assert_eq!(waits(&mut gathering, 8, 10), [4, 5, 6, 7]);
        assert_eq!(waits(&mut gathering, 4, 0), [0, 2], "the passes start again at one");
    }
}
