//! Counters of the log, for pages and metrics.

use hdrhistogram::Histogram;

/// Bucket `i` counts syncs that took `2^i` to `2^(i+1)` nanoseconds; the last one also longer ones.
pub const SYNC_LATENCY_BUCKETS: usize = 36;
const _: () = assert!(SYNC_LATENCY_BUCKETS <= u64::BITS as usize, "the last one is reached");

/// A copy of the counters of the log; all since the start of the process unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStats {
    /// Writes of at least one record.
    pub groups: u64,
    /// Users' records and marks written.
    pub records: u64,
    pub bytes: u64,
    /// System calls that write to segments; a group takes one or more.
    pub writes: u64,
    pub syncs: u64,
    /// System calls that sync segments; a sync of the log takes one for each file it concerns.
    pub file_syncs: u64,
    pub sync_ns_last: u64,
    pub sync_ns_sum: u64,
    pub sync_ns_max: u64,
    pub sync_ns_buckets: [u64; SYNC_LATENCY_BUCKETS],
    /// Now: appended but not yet written.
    pub waiting_bytes: u64,
    /// Now: written but not yet durable.
    pub unsynced_bytes: u64,
    /// Now: segments with records that are still kept.
    pub segments: usize,
    /// Now: files ready to become segments.
    pub blank_segments: usize,
    /// Now: bytes of each lane of the callers.
    pub lane_bytes: Vec<usize>,
    /// Now: distance of the slowest follower from `written`; 0 without followers.
    pub follower_lag_bytes: u64,
}

impl LogStats {
    /// Records that share one sync, on average.
    #[allow(clippy::cast_precision_loss)] // a ratio for people
    pub fn records_per_sync(&self) -> f64 {
        if self.syncs == 0 { 0.0 } else { self.records as f64 / self.syncs as f64 }
    }
}

/// Counters that the writer updates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    pub(crate) groups: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    pub(crate) file_syncs: u64,
    pub(crate) sync_ns_last: u64,
    pub(crate) sync_ns_sum: u64,
    pub(crate) sync_ns_max: u64,
    pub(crate) sync_ns_buckets: [u64; SYNC_LATENCY_BUCKETS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            groups: 0,
            records: 0,
            bytes: 0,
            writes: 0,
            syncs: 0,
            file_syncs: 0,
            sync_ns_last: 0,
            sync_ns_sum: 0,
            sync_ns_max: 0,
            sync_ns_buckets: [0; SYNC_LATENCY_BUCKETS],
        }
    }
}

impl Counters {
    pub(crate) fn count_sync(&mut self, took_ns: u64) {
        self.syncs += 1;
        self.sync_ns_last = took_ns;
        self.sync_ns_sum = self.sync_ns_sum.saturating_add(took_ns);
        self.sync_ns_max = self.sync_ns_max.max(took_ns);
        let bucket = took_ns.max(1).ilog2() as usize;
        self.sync_ns_buckets[bucket.min(SYNC_LATENCY_BUCKETS - 1)] += 1;
    }
}

/// How large writes were, one value per write, since the start of the process. A value is at most
/// 1 % off.
#[derive(Debug, Clone)]
pub struct GroupSizes {
    pub records: Histogram<u64>,
    pub bytes: Histogram<u64>,
}

impl Default for GroupSizes {
    fn default() -> Self {
        let empty = || Histogram::new(2).expect("two digits are allowed");
        Self { records: empty(), bytes: empty() }
    }
}

/// Counts writes of one size in a row together, so that a log of equal writes pays one comparison
/// for each.
#[derive(Debug, Default)]
pub(crate) struct GroupSizesCounter {
    counted: GroupSizes,
    last_records: u64,
    last_bytes: u64,
    /// Writes of the last size that are not in `counted` yet.
    last_count: u64,
}

impl GroupSizesCounter {
    #[inline]
    pub(crate) fn count(&mut self, records: u64, bytes: u64) {
        if (records, bytes) != (self.last_records, self.last_bytes) {
            self.flush();
            (self.last_records, self.last_bytes) = (records, bytes);
        }
        self.last_count += 1;
    }

    fn flush(&mut self) {
        // Saturating records would not make a histogram grow.
        let (records, bytes) = (&mut self.counted.records, &mut self.counted.bytes);
        records.record_n(self.last_records, self.last_count).expect("the histogram grows");
        bytes.record_n(self.last_bytes, self.last_count).expect("the histogram grows");
        self.last_count = 0;
    }

    pub(crate) fn sizes(&mut self) -> GroupSizes {
        self.flush();
        self.counted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_every_write_once() {
        let mut counter = GroupSizesCounter::default();
        for (records, bytes) in [(1, 14), (1, 14), (3, 42), (1, 14), (900_000, 1 << 40)] {
            counter.count(records, bytes);
        }
        let sizes = counter.sizes();
        assert_eq!((sizes.records.count_at(1), sizes.records.count_at(3)), (3, 1));
        assert_eq!((sizes.bytes.count_at(14), sizes.bytes.count_at(42)), (3, 1));
        assert_eq!((counter.sizes().records.len(), counter.sizes().bytes.len()), (5, 5));
        assert!(sizes.records.max() >= 900_000);
        assert!(sizes.bytes.max() >= 1 << 40);
    }

    #[test]
    fn syncs_fall_into_their_buckets() {
        let mut counters = Counters::default();
        for took_ns in [0, 1, 1024, 2047, 2048, u64::MAX] {
            counters.count_sync(took_ns);
        }
        assert_eq!(counters.sync_ns_buckets[0], 2);
        assert_eq!(counters.sync_ns_buckets[10], 2);
        assert_eq!(counters.sync_ns_buckets[11], 1);
        assert_eq!(counters.sync_ns_buckets[SYNC_LATENCY_BUCKETS - 1], 1);
        assert_eq!((counters.syncs, counters.sync_ns_max), (6, u64::MAX));
    }
}
