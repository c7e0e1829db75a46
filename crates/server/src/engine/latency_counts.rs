//! Durations of requests by protocol and stage, as counters that only grow: what all commands of a
//! protocol took, in fewer and wider buckets than those of one command.

use base::stages::{STAGE_NS_MAX, Stage, StageTimers};

use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;

/// Buckets of a doubling: a bound is at most a quarter above the durations in its bucket.
const DOUBLING: u64 = 4;
const BUCKETS: usize = slot(STAGE_NS_MAX) + 1;
const CELLS: usize = ClientProtocol::ALL.len() * Stage::COUNT;

/// The bucket of a duration.
#[allow(clippy::cast_possible_truncation)] // at most 4 * 62 + 7
const fn slot(ns: u64) -> usize {
    let doublings = (ns | DOUBLING).ilog2() - DOUBLING.ilog2();
    (doublings as u64 * DOUBLING + (ns >> doublings)) as usize
}

/// The upper bound of a bucket, which is not in it.
const fn bound_ns(slot: usize) -> u64 {
    let slot = slot as u64;
    if slot < 2 * DOUBLING {
        return slot + 1;
    }
    (slot % DOUBLING + DOUBLING + 1) << (slot / DOUBLING - 1)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LatencyCounts {
    /// By protocol, stage and bucket.
    counts: Vec<u64>,
}

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts { counts: vec![0; CELLS * BUCKETS] }
    }
}

impl LatencyCounts {
    /// Replaces the counts with those of the timers. O(counters in use).
    pub(crate) fn read(&mut self, timers: &StageTimers, kinds: &RequestKinds) {
        self.counts.fill(0);
        for (id, stage, cell) in timers.cells() {
            let start = start_of(kinds.protocol(id), stage);
            for (ns, count) in cell.recorded() {
                self.counts[start + slot(ns)] += count;
            }
        }
    }

    pub(crate) fn add(&mut self, other: &LatencyCounts) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    /// Returns the counts since `earlier`; none where a counter was reset.
    pub(crate) fn since(&self, earlier: &LatencyCounts) -> LatencyCounts {
        let pairs = self.counts.iter().zip(&earlier.counts);
        LatencyCounts { counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect() }
    }

    /// Returns the buckets in use, ascending: upper bound in nanoseconds, count.
    pub(crate) fn buckets(
        &self,
        protocol: ClientProtocol,
        stage: Stage,
    ) -> impl Iterator<Item = (u64, u64)> {
        let start = start_of(protocol, stage);
        let counts = self.counts[start..start + BUCKETS].iter().enumerate();
        counts.filter(|(_, count)| **count > 0).map(|(slot, count)| (bound_ns(slot), *count))
    }

    /// Returns the bound that a share of the durations did not reach, in thousandths; `None`
    /// without any.
    pub(crate) fn permille_ns(
        &self,
        protocol: ClientProtocol,
        stage: Stage,
        permille: u64,
    ) -> Option<u64> {
        let total: u64 = self.buckets(protocol, stage).map(|(_, count)| count).sum();
        let rank = total.saturating_mul(permille).div_ceil(1000);
        let mut seen = 0;
        let mut buckets = self.buckets(protocol, stage);
        buckets
            .find(|(_, count)| {
                seen += count;
                seen >= rank
            })
            .map(|(ns, _)| ns)
    }
}

fn start_of(protocol: ClientProtocol, stage: Stage) -> usize {
    (protocol as usize * Stage::COUNT + stage as usize) * BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_close_and_in_order() {
        for ns in [0, 1, 3, 4, 7, 8, 100, 1_000, 123_456_789, STAGE_NS_MAX] {
            let bound = bound_ns(slot(ns));
            assert!(bound > ns && bound <= ns + (ns / 4).max(1), "{ns}: {bound}");
            assert_eq!(slot(bound - 1), slot(ns), "{ns}");
            assert_eq!(slot(bound), slot(ns) + 1, "{ns}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_growth() {
        let kinds = RequestKinds::new(ClientProtocol::ALL.map(|one| vec![one.name()]));
        let mut timers = StageTimers::new(kinds.len());
        let read = |timers: &StageTimers| {
            let mut counts = LatencyCounts::default();
            counts.read(timers, &kinds);
            counts
        };
        timers.record_n(1, Stage::Execute, 1_000_000, 100);
        let before = read(&timers);
        timers.record_n(1, Stage::Execute, 1_000, 99);
        timers.record_n(1, Stage::Execute, 50_000, 1);
        let grown = read(&timers).since(&before);
        let of = |permille| grown.permille_ns(ClientProtocol::Cql, Stage::Execute, permille);
        assert_eq!((of(500), of(990), of(999)), (Some(1_024), Some(1_024), Some(57_344)));
        assert_eq!(grown.permille_ns(ClientProtocol::Resp, Stage::Execute, 500), None);
        assert_eq!(before.since(&grown).buckets(ClientProtocol::Cql, Stage::Execute).count(), 1);
        let mut sum = grown.clone();
        sum.add(&before);
        assert_eq!(sum, read(&timers));
    }
}
