//! Storage: memory trackers and the log.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::http::Exchange;

/// The tree of memory trackers, parents first.
pub(super) fn memory(exchange: &Exchange<'_>) -> Value {
    let rows = exchange.context.shared.memory.server.tree().into_iter().map(|node| {
        json!({
            "path": node.path,
            "depth": node.depth,
            "current_bytes": node.current_bytes,
            "peak_bytes": node.peak_bytes,
            "limit_bytes": node.limit_bytes,
            "soft_limit_bytes": node.soft_limit_bytes,
        })
    });
    Value::Array(rows.collect())
}

pub(super) fn log(exchange: &Exchange<'_>) -> Value {
    let log = &exchange.context.shared.log;
    let stats = log.stats();
    let sizes = log.group_sizes();
    // Bucket i counts syncs that took 2^i to 2^(i+1) nanoseconds.
    let syncs: Vec<_> = (0_u32..)
        .zip(stats.sync_ns_buckets)
        .filter(|(_, count)| *count > 0)
        .map(|(power, count)| json!({ "from_ns": 1_u64 << power, "count": count }))
        .collect();
    let snapshots = exchange.context.shared.snapshots.status();
    json!({
        "next": log.next().0,
        "written": log.written().0,
        "durable": log.durable().0,
        "failed": log.poisoned().is_some(),
        "groups": stats.groups,
        "records": stats.records,
        "bytes": stats.bytes,
        "writes": stats.writes,
        "syncs": stats.syncs,
        "sync_ns_sum": stats.sync_ns_sum,
        "sync_ns_last": stats.sync_ns_last,
        "sync_ns_max": stats.sync_ns_max,
        "sync_ns": syncs,
        "waiting_bytes": stats.waiting_bytes,
        "unsynced_bytes": stats.unsynced_bytes,
        "segments": stats.segments,
        "blank_segments": stats.blank_segments,
        "follower_lag_bytes": stats.follower_lag_bytes,
        "group_records": spread(&sizes.records),
        "group_bytes": spread(&sizes.bytes),
        "snapshots": {
            "running": snapshots.running.is_some(),
            "taken": snapshots.succeeded,
            "last_ok": snapshots.last_ok,
            "last_ms": snapshots.last_unix_ms,
            "last_keys": snapshots.last_keys,
            "last_bytes": snapshots.last_bytes,
            "last_took_ms": snapshots.last_took_ms,
        },
    })
}

fn spread(values: &Histogram<u64>) -> Value {
    json!({
        "mean": values.mean(),
        "p50": values.value_at_quantile(0.5),
        "p99": values.value_at_quantile(0.99),
        "max": values.max(),
    })
}
