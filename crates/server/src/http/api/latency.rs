//! Durations of requests, by protocol and stage, as counters that only grow. A client subtracts its
//! previous reading to get the percentiles of the interval.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http::Exchange;

/// Counts of requests by protocol and stage. `buckets`: upper bounds in nanoseconds, each with the
/// number of requests that took at most this long and longer than the previous bound.
pub(super) fn stages(exchange: &Exchange<'_>) -> Value {
    let mut sums: BTreeMap<(&str, &str), BTreeMap<u64, u64>> = BTreeMap::new();
    let kinds = &exchange.context.shared.request_kinds;
    for published in &exchange.context.shared.published {
        let published = published.lock();
        for (id, stage, cell) in published.timers.cells() {
            let buckets = sums.entry((kinds.protocol(id).name(), stage.name())).or_default();
            for (ns, count) in cell.recorded() {
                *buckets.entry(bound(ns)).or_default() += count;
            }
        }
    }
    let row = |((protocol, stage), buckets): ((&str, &str), BTreeMap<u64, u64>)| {
        let buckets: Vec<_> = buckets.into_iter().collect();
        json!({ "protocol": protocol, "stage": stage, "buckets": buckets })
    };
    Value::Array(sums.into_iter().map(row).collect())
}

/// Returns the upper bound of the duration's bucket, which is at most a quarter longer.
fn bound(ns: u64) -> u64 {
    const STEPS_OF_DOUBLING: u32 = 2; // as a power of two
    let shift = ns.max(1).ilog2().saturating_sub(STEPS_OF_DOUBLING);
    ((ns >> shift) + 1) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_close_and_in_order() {
        for ns in [0, 1, 3, 4, 7, 8, 100, 1_000, 123_456_789, 60_000_000_000] {
            let bound_ns = bound(ns);
            assert!(bound_ns > ns && bound_ns <= ns + (ns / 4).max(1), "{ns}: {bound_ns}");
            assert!(bound(bound_ns - 1) == bound_ns, "{ns}");
        }
    }
}
