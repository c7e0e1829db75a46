//! Durations of requests, by protocol and stage, as counters that only grow. A client subtracts its
//! previous reading to get the percentiles of the interval.

use base::stages::Stage;
use serde_json::{Value, json};

use crate::engine::latency_counts::LatencyCounts;
use crate::http::Exchange;
use crate::protocol::ClientProtocol;

/// Counts of requests by protocol and stage, at most a second old. `buckets`: upper bounds in
/// nanoseconds, each with the number of requests that took less, and at least the previous bound.
pub(super) fn stages(exchange: &Exchange<'_>) -> Value {
    let mut sum = LatencyCounts::default();
    for published in &exchange.context.shared.published {
        sum.add(&published.lock().latency);
    }
    let mut rows = Vec::new();
    for protocol in ClientProtocol::ALL {
        for stage in Stage::ALL {
            let buckets: Vec<_> = sum.buckets(protocol, stage).collect();
            if !buckets.is_empty() {
                let (protocol, stage) = (protocol.name(), stage.name());
                rows.push(json!({ "protocol": protocol, "stage": stage, "buckets": buckets }));
            }
        }
    }
    Value::Array(rows)
}
