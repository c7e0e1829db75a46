//! `/metrics`: what the server counts, for Prometheus.

mod text;
mod traffic;

use std::sync::atomic::Ordering;

use base::time::Now;
use wire::http::Request;

use super::exchange::{Answered, Exchange, Outcome};
use crate::engine::process::{ProcessMemory, cpu_time};
use crate::engine::shared::Shared;
use text::{Kind, Page};

/// Source: Prometheus documentation, "Exposition formats", basic info.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

const NS_PER_SECOND: f64 = 1e9;

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn page(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    let text = write(exchange.context.shared, exchange.context.now);
    exchange.scratch.body.extend_from_slice(text.as_bytes());
    Ok(Outcome::new(200, MEDIA))
}

/// All families. Takes a few locks for microseconds each, and looks at all stripes once: about a
/// millisecond.
fn write(shared: &Shared, now: Now) -> String {
    let mut page = Page::default();
    process(&mut page, shared, now);
    traffic::reactors(&mut page, shared);
    traffic::connections(&mut page, shared);
    traffic::commands(&mut page, shared);
    traffic::stages(&mut page, shared);
    data(&mut page, shared, now);
    log(&mut page, shared);
    log_groups(&mut page, shared);
    memory(&mut page, shared);
    cql(&mut page, shared);
    page.into_text()
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a double")]
fn number(value: u64) -> f64 {
    value as f64
}

fn seconds(ns: u64) -> f64 {
    number(ns) / NS_PER_SECOND
}

fn process(page: &mut Page, shared: &Shared, now: Now) {
    page.family("myriad_build_info", Kind::Gauge, "The version of the server; always 1.");
    let version = env!("CARGO_PKG_VERSION");
    page.sample(&[("version", version), ("run_id", &shared.identity.run_id)], 1);
    let started_ms = shared.identity.started.unix.0;
    let help = "When the process was started, as seconds since 1970.";
    page.one("process_start_time_seconds", Kind::Gauge, help, format_ms(started_ms));
    let up_ms = now.unix.0.saturating_sub(started_ms);
    page.one("myriad_uptime_seconds", Kind::Gauge, "Time since the start.", format_ms(up_ms));
    if let Some(cpu) = cpu_time() {
        let us = u64::try_from(cpu.user_us + cpu.system_us).unwrap_or(0);
        let help = "Time of processors that all threads took.";
        page.one(
            "process_cpu_seconds_total",
            Kind::Counter,
            help,
            seconds(us.saturating_mul(1000)),
        );
    }
    if let Some(bytes) = ProcessMemory::read().resident_bytes() {
        let help = "Memory of the process, shared pages included.";
        page.one("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    let report = &shared.recovery;
    let help = "What the start took to get the data back.";
    page.one("myriad_recovery_seconds", Kind::Gauge, help, format_ms(report.took_ms));
}

fn format_ms(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn data(page: &mut Page, shared: &Shared, now: Now) {
    let (databases, _) = shared.keyspace.stats(now.unix);
    let used: Vec<_> = (0..).zip(&databases).filter(|(_, stats)| stats.keys > 0).collect();
    page.family("myriad_keys", Kind::Gauge, "Keys by database.");
    for (number, stats) in &used {
        page.sample(&[("database", &format!("{number}"))], stats.keys);
    }
    page.family("myriad_keys_expiring", Kind::Gauge, "Keys that have a time to live.");
    for (number, stats) in &used {
        page.sample(&[("database", &format!("{number}"))], stats.expires);
    }
    let totals = shared.totals();
    for (name, help, value) in [
        ("myriad_keyspace_hits_total", "Reads that found their key.", totals.hits),
        ("myriad_keyspace_misses_total", "Reads that did not.", totals.misses),
        ("myriad_expired_keys_total", "Keys whose time came.", totals.expired_keys),
        ("myriad_evicted_keys_total", "Keys that made room for others.", totals.evicted_keys),
    ] {
        page.one(name, Kind::Counter, help, value);
    }
    let waits = shared.keyspace.lock_waits();
    let help = "How often a thread waited for a stripe that another had locked.";
    page.one("myriad_stripe_waits_total", Kind::Counter, help, waits.count);
    let help = "Time of those waits.";
    page.one("myriad_stripe_wait_seconds_total", Kind::Counter, help, seconds(waits.ns));
    let snapshots = shared.snapshots.status();
    let help = "Snapshots that were taken whole.";
    page.one("myriad_snapshots_total", Kind::Counter, help, snapshots.succeeded);
    let help = "Whether a snapshot is being taken.";
    let is_running = u8::from(snapshots.running.is_some());
    page.one("myriad_snapshot_running", Kind::Gauge, help, is_running);
    let help = "When the last good snapshot began, as seconds since 1970.";
    let at = format_ms(snapshots.last_unix_ms);
    page.one("myriad_snapshot_last_timestamp_seconds", Kind::Gauge, help, at);
}

fn log(page: &mut Page, shared: &Shared) {
    let (log, stats) = (&shared.log, shared.log.stats());
    let help = "Whether a write or sync of the log has failed: writes are refused then.";
    page.one("myriad_log_failed", Kind::Gauge, help, u8::from(log.poisoned().is_some()));
    for (name, help, value) in [
        ("myriad_log_next_position_bytes", "Where the next record goes.", log.next().0),
        ("myriad_log_written_position_bytes", "How far the log is written.", log.written().0),
        ("myriad_log_durable_position_bytes", "How far the log is on disk.", log.durable().0),
        ("myriad_log_waiting_bytes", "Records that are not written yet.", stats.waiting_bytes),
        ("myriad_log_unsynced_bytes", "Written, but not on disk yet.", stats.unsynced_bytes),
        ("myriad_log_segments", "Files of the log.", stats.segments as u64),
        (
            "myriad_log_follower_lag_bytes",
            "How far the slowest reader of the log is behind.",
            stats.follower_lag_bytes,
        ),
    ] {
        page.one(name, Kind::Gauge, help, value);
    }
    for (name, help, value) in [
        ("myriad_log_groups_total", "Groups of records, each written at once.", stats.groups),
        ("myriad_log_records_total", "Records that were written.", stats.records),
        ("myriad_log_bytes_total", "Bytes that were written.", stats.bytes),
        ("myriad_log_writes_total", "System calls that write.", stats.writes),
        ("myriad_log_file_syncs_total", "System calls that sync.", stats.file_syncs),
    ] {
        page.one(name, Kind::Counter, help, value);
    }
    page.family("myriad_log_sync_seconds", Kind::Histogram, "What syncs of the log took.");
    let mut below = 0;
    // Bucket i ends before 2^(i+1) ns; the last one is open.
    let closed = &stats.sync_ns_buckets[..stats.sync_ns_buckets.len() - 1];
    let buckets = (1..).zip(closed).filter_map(|(power, count)| {
        below += count;
        // From 8 us on: no disk is faster.
        (power >= 13).then(|| (seconds(1_u64 << power), below))
    });
    page.histogram(&[], buckets, stats.syncs, seconds(stats.sync_ns_sum));
}

/// Upper bounds of the buckets of a group's size: the first, and so many more, each four times larger.
const SIZE_BOUNDS: usize = 8;

fn log_groups(page: &mut Page, shared: &Shared) {
    let sizes = shared.log.group_sizes();
    for (name, help, histogram, first) in [
        ("myriad_log_group_records", "Records of each group.", &sizes.records, 1_u64),
        ("myriad_log_group_bytes", "Bytes of each group.", &sizes.bytes, 256_u64),
    ] {
        page.family(name, Kind::Histogram, help);
        let bounds = std::iter::successors(Some(first), |bound| Some(*bound * 4)).take(SIZE_BOUNDS);
        let buckets = bounds.map(|bound| (number(bound), histogram.count_between(0, bound)));
        let sum = histogram.mean() * number(histogram.len());
        page.histogram(&[], buckets, histogram.len(), sum);
    }
}

fn memory(page: &mut Page, shared: &Shared) {
    let tree = shared.memory.server.tree();
    page.family("myriad_memory_bytes", Kind::Gauge, "What memory trackers hold, parts included.");
    for node in &tree {
        page.sample(&[("tracker", &node.path)], node.current_bytes);
    }
    page.family("myriad_memory_peak_bytes", Kind::Gauge, "The most that each of them held.");
    for node in &tree {
        page.sample(&[("tracker", &node.path)], node.peak_bytes);
    }
    let help = "What the process takes besides, freed memory not included.";
    let untracked_bytes = shared.memory.server.reserved_bytes();
    page.one("myriad_memory_untracked_bytes", Kind::Gauge, help, untracked_bytes);
    page.family("myriad_memory_limit_bytes", Kind::Gauge, "The most that each of them may hold.");
    for node in &tree {
        if let Some(limit) = node.limit_bytes {
            page.sample(&[("tracker", &node.path)], limit);
        }
    }
}

fn cql(page: &mut Page, shared: &Shared) {
    let prepared = shared.prepared.stats();
    let help = "CQL statements that are kept prepared.";
    page.one("myriad_cql_prepared_statements", Kind::Gauge, help, prepared.statements);
    let help = "Memory of prepared statements, by estimate.";
    page.one("myriad_cql_prepared_bytes", Kind::Gauge, help, prepared.bytes);
    let help = "Prepared statements that made room for others.";
    page.one("myriad_cql_prepared_departed_total", Kind::Counter, help, prepared.departed);
    let help = "CQL requests that were refused because the queue of the pool was full.";
    let overflows = shared.cql_pool_overflows.load(Ordering::Relaxed);
    page.one("myriad_cql_pool_overflows_total", Kind::Counter, help, overflows);
    let help = "Clients that wait, for example for the end of a pause.";
    let blocked = shared.blocked_clients.load(Ordering::Relaxed);
    page.one("myriad_blocked_clients", Kind::Gauge, help, blocked);
    let help = "Clients that see every request.";
    let monitors = shared.monitors.load(Ordering::Relaxed);
    page.one("myriad_monitor_clients", Kind::Gauge, help, monitors);
    let help = "Clients that have subscribed to channels or patterns.";
    page.one("myriad_pubsub_clients", Kind::Gauge, help, shared.pubsub.clients());
    let help = "Subscribers that were closed because they left too much unread.";
    page.one("myriad_pubsub_clients_cut_total", Kind::Counter, help, shared.pubsub.cut_clients());
}
