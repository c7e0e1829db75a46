//! The server's counters: `/metrics` for Prometheus, and what `telemetry` sends.

mod page;
mod replication;
mod text;
mod traffic;

use std::sync::atomic::Ordering;

use base::time::Now;
use wire::http::Request;

use super::exchange::{Answered, Exchange, Response};
use crate::engine::process::{ProcessMemory, cpu_time};
use crate::engine::server_state::ServerState;
use page::Page;
use text::Text;

pub(crate) use page::{Distribution, Format, Kind, Labels};

/// Source: Prometheus documentation, "Exposition formats", basic info.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

const NS_PER_SECOND: f64 = 1e9;

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn page(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    let mut text = Text::default();
    write(exchange.context.shared, exchange.context.now, &mut text);
    exchange.scratch.body.extend_from_slice(text.into_text().as_bytes());
    Ok(Response::new(200, MEDIA))
}

/// Writes all families. Holds a few locks for microseconds each and visits every stripe once, which
/// takes about a millisecond.
pub(crate) fn write(shared: &ServerState, now: Now, format: &mut dyn Format) {
    let mut page = Page(format);
    process(&mut page, shared, now);
    traffic::reactors(&mut page, shared);
    traffic::connections(&mut page, shared);
    traffic::commands(&mut page, shared);
    traffic::stages(&mut page, shared);
    data(&mut page, shared, now);
    log(&mut page, shared);
    log_groups(&mut page, shared);
    memory(&mut page, shared);
    replication::master(&mut page, shared, now.mono);
    replication::replicas(&mut page, shared, now.mono);
    replication::peers(&mut page, shared, now.mono);
    cql(&mut page, shared);
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a double")]
fn number(value: u64) -> f64 {
    value as f64
}

fn seconds(ns: u64) -> f64 {
    number(ns) / NS_PER_SECOND
}

fn process(page: &mut Page<'_>, shared: &ServerState, now: Now) {
    page.family("myriad_build_info", Kind::Gauge, "Version of the server; always 1.");
    let version = env!("CARGO_PKG_VERSION");
    page.sample(&[("version", version), ("run_id", &shared.identity.run_id)], 1);
    let started_ms = shared.identity.started.unix.0;
    let help = "Start time of the process since the Unix epoch, in seconds.";
    page.one("process_start_time_seconds", Kind::Gauge, help, format_ms(started_ms));
    let up_ms = now.unix.0.saturating_sub(started_ms);
    page.one("myriad_uptime_seconds", Kind::Gauge, "Time since the start.", format_ms(up_ms));
    if let Some(cpu) = cpu_time() {
        let us = u64::try_from(cpu.user_us + cpu.system_us).unwrap_or(0);
        let help = "CPU time of all threads.";
        page.one(
            "process_cpu_seconds_total",
            Kind::Counter,
            help,
            seconds(us.saturating_mul(1000)),
        );
    }
    if let Some(bytes) = ProcessMemory::read().resident_bytes() {
        let help = "Resident memory of the process, including shared pages.";
        page.one("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    let report = &shared.recovery;
    let help = "Duration of recovery at startup.";
    page.one("myriad_recovery_seconds", Kind::Gauge, help, format_ms(report.took_ms));
}

fn format_ms(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn data(page: &mut Page<'_>, shared: &ServerState, now: Now) {
    let (databases, _) = shared.data_stats(now.unix);
    let used: Vec<_> = (0..).zip(&databases).filter(|(_, stats)| stats.keys > 0).collect();
    page.family("myriad_keys", Kind::Gauge, "Number of keys by database.");
    for (number, stats) in &used {
        page.sample(&[("database", &format!("{number}"))], stats.keys);
    }
    page.family("myriad_keys_expiring", Kind::Gauge, "Number of keys with a TTL.");
    for (number, stats) in &used {
        page.sample(&[("database", &format!("{number}"))], stats.expires);
    }
    let totals = shared.totals();
    for (name, help, value) in [
        ("myriad_keyspace_hits_total", "Lookups that found the key.", totals.hits),
        ("myriad_keyspace_misses_total", "Lookups that did not find the key.", totals.misses),
        (
            "myriad_expired_keys_total",
            "Keys removed because their TTL expired.",
            totals.expired_keys,
        ),
        (
            "myriad_expired_fields_total",
            "Fields of hashes removed because their TTL expired.",
            totals.expired_fields,
        ),
        ("myriad_evicted_keys_total", "Keys evicted to free memory.", totals.evicted_keys),
        (
            "myriad_unauthenticated_closed_total",
            "Connections closed because too many had not authenticated.",
            totals.closed_newcomers,
        ),
        (
            "myriad_log_lines_lost_total",
            "Lines of the log and of the output that could not be written.",
            base::messages::lost_lines(),
        ),
        ("myriad_overloads_total", "Times a reactor was overloaded.", totals.overloads),
        (
            "myriad_overload_refused_requests_total",
            "Requests refused because they had waited for too long.",
            totals.refused_old,
        ),
    ] {
        page.one(name, Kind::Counter, help, value);
    }
    let waits = shared.keyspace.lock_waits();
    let help = "Times a thread waited for a locked stripe.";
    page.one("myriad_stripe_waits_total", Kind::Counter, help, waits.count);
    let help = "Time spent waiting for locked stripes.";
    page.one("myriad_stripe_wait_seconds_total", Kind::Counter, help, seconds(waits.ns));
    let snapshots = shared.snapshots.status();
    let help = "Completed snapshots.";
    page.one("myriad_snapshots_total", Kind::Counter, help, snapshots.succeeded);
    let help = "Whether a snapshot is in progress.";
    let is_running = u8::from(snapshots.running.is_some());
    page.one("myriad_snapshot_running", Kind::Gauge, help, is_running);
    let help = "Start time of the last successful snapshot since the Unix epoch, in seconds.";
    let at = format_ms(snapshots.last_unix_ms);
    page.one("myriad_snapshot_last_timestamp_seconds", Kind::Gauge, help, at);
    let help = "Whether the last snapshot failed.";
    page.one("myriad_snapshot_failed", Kind::Gauge, help, u8::from(!snapshots.last_ok));
    if let Some(free_bytes) = shared.snapshots.free_bytes() {
        let help = "Free space of the file system of the data directory.";
        page.one("myriad_disk_free_bytes", Kind::Gauge, help, free_bytes);
    }
}

fn log(page: &mut Page<'_>, shared: &ServerState) {
    let (log, stats) = (&shared.log, shared.log.stats());
    let help = "Whether a write or sync of the log has failed, so that writes are refused.";
    let is_failed = log.poisoned().is_some();
    page.one("myriad_log_failed", Kind::Gauge, help, u8::from(is_failed));
    let help = "Whether writes are refused until the disk has room for the log.";
    let is_full = !is_failed && !log.takes_writes();
    page.one("myriad_log_full", Kind::Gauge, help, u8::from(is_full));
    for (name, help, value) in [
        ("myriad_log_next_position_bytes", "Position of the next record.", log.next().0),
        ("myriad_log_written_position_bytes", "End of the written log.", log.written().0),
        ("myriad_log_durable_position_bytes", "End of the durable log.", log.durable().0),
        ("myriad_log_waiting_bytes", "Appended bytes not yet written.", stats.waiting_bytes),
        ("myriad_log_unsynced_bytes", "Written bytes not yet synced.", stats.unsynced_bytes),
        ("myriad_log_segments", "Segment files of the log.", stats.segments as u64),
        (
            "myriad_log_follower_lag_bytes",
            "Lag of the slowest follower of the log.",
            stats.follower_lag_bytes,
        ),
    ] {
        page.one(name, Kind::Gauge, help, value);
    }
    for (name, help, value) in [
        ("myriad_log_groups_total", "Groups written; a group is written as a unit.", stats.groups),
        ("myriad_log_records_total", "Records written.", stats.records),
        ("myriad_log_bytes_total", "Bytes written.", stats.bytes),
        ("myriad_log_writes_total", "Write system calls.", stats.writes),
        ("myriad_log_file_syncs_total", "Sync system calls.", stats.file_syncs),
    ] {
        page.one(name, Kind::Counter, help, value);
    }
    page.family("myriad_log_sync_seconds", Kind::Histogram, "Duration of log syncs.");
    let mut below = 0;
    // Bucket i ends before 2^(i+1) ns; the last one is open.
    let closed = &stats.sync_ns_buckets[..stats.sync_ns_buckets.len() - 1];
    let buckets = (1..).zip(closed).filter_map(|(power, count)| {
        below += count;
        // Start at 8 us: no disk is faster.
        (power >= 13).then(|| (seconds(1_u64 << power), below))
    });
    page.histogram(&[], buckets, stats.syncs, seconds(stats.sync_ns_sum));
}

/// Number of bucket bounds for group sizes; each bound is four times the previous one.
const SIZE_BOUNDS: usize = 8;

fn log_groups(page: &mut Page<'_>, shared: &ServerState) {
    let sizes = shared.log.group_sizes();
    for (name, help, histogram, first) in [
        ("myriad_log_group_records", "Records per group.", &sizes.records, 1_u64),
        ("myriad_log_group_bytes", "Bytes per group.", &sizes.bytes, 256_u64),
    ] {
        page.family(name, Kind::Histogram, help);
        let bounds = std::iter::successors(Some(first), |bound| Some(*bound * 4)).take(SIZE_BOUNDS);
        let buckets = bounds.map(|bound| (number(bound), histogram.count_between(0, bound)));
        let sum = histogram.mean() * number(histogram.len());
        page.histogram(&[], buckets, histogram.len(), sum);
    }
}

fn memory(page: &mut Page<'_>, shared: &ServerState) {
    let tree = shared.memory.server.tree();
    page.family(
        "myriad_memory_bytes",
        Kind::Gauge,
        "Memory held by each tracker, including its children.",
    );
    for node in &tree {
        page.sample(&[("tracker", &node.path)], node.current_bytes);
    }
    page.family("myriad_memory_peak_bytes", Kind::Gauge, "Peak memory of each tracker.");
    for node in &tree {
        page.sample(&[("tracker", &node.path)], node.peak_bytes);
    }
    let help = "Allocated memory of the process that no tracker accounts for.";
    let untracked_bytes = shared.memory.server.reserved_bytes();
    page.one("myriad_memory_untracked_bytes", Kind::Gauge, help, untracked_bytes);
    page.family("myriad_memory_limit_bytes", Kind::Gauge, "Memory limit of each tracker.");
    for node in &tree {
        if let Some(limit) = node.limit_bytes {
            page.sample(&[("tracker", &node.path)], limit);
        }
    }
}

fn cql(page: &mut Page<'_>, shared: &ServerState) {
    let prepared = shared.prepared.stats();
    let help = "Prepared CQL statements in the cache.";
    page.one("myriad_cql_prepared_statements", Kind::Gauge, help, prepared.statements);
    let help = "Estimated memory of prepared statements.";
    page.one("myriad_cql_prepared_bytes", Kind::Gauge, help, prepared.bytes);
    let help = "Prepared statements evicted from the cache.";
    page.one("myriad_cql_prepared_removed_total", Kind::Counter, help, prepared.removed);
    let help = "CQL requests refused because the queue of the pool was full.";
    let overflows = shared.cql_pool_overflows.load(Ordering::Relaxed);
    page.one("myriad_cql_pool_overflows_total", Kind::Counter, help, overflows);
    let help = "Blocked clients, for example by CLIENT PAUSE.";
    let blocked = shared.blocked_clients.load(Ordering::Relaxed);
    page.one("myriad_blocked_clients", Kind::Gauge, help, blocked);
    let help = "Clients in MONITOR mode.";
    let monitors = shared.monitors.load(Ordering::Relaxed);
    page.one("myriad_monitor_clients", Kind::Gauge, help, monitors);
    let help = "Clients subscribed to channels or patterns.";
    page.one("myriad_pubsub_clients", Kind::Gauge, help, shared.pubsub.clients());
    let help = "Subscribers disconnected because they left too much output unread.";
    page.one("myriad_pubsub_clients_cut_total", Kind::Counter, help, shared.pubsub.cut_clients());
}
