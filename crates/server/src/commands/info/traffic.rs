//! INFO clients, stats and tls: connections and their traffic.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::Page;
use crate::engine::baseline::Counters;
use crate::engine::command_log::LogKind;
use crate::engine::published::{PublishedStats, Totals};
use crate::engine::pubsub::Kind;
use crate::engine::server_state::RATES;
use crate::tls::ListenerTls;

pub(super) fn clients(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    let rows = RowTotals::of(&shared.published);
    page.field("connected_clients", shared.links().connections());
    page.field("maxclients", page.cx.reactor.settings.maxclients);
    page.field("client_recent_max_input_buffer", rows.input_bytes_max);
    page.field("client_recent_max_output_buffer", rows.output_bytes_max);
    page.field("tracking_clients", shared.invalidations.clients());
    let awaited = shared.keyspace.awaited_keys();
    page.field("total_blocking_keys", awaited.all);
    page.field("total_blocking_keys_on_nokey", awaited.ending);
    page.field("blocked_clients", shared.blocked_clients.load(Ordering::Relaxed));
    page.field("watching_clients", rows.watching);
    page.field("total_watched_keys", rows.watched);
    page.field("cluster_connections", 0);
    page.field("monitor_clients", shared.monitors.load(Ordering::Relaxed));
    page.field("pubsub_clients", shared.pubsub.clients());
    page.field("pubsub_clients_cut", shared.pubsub.cut_clients());
    let prepared = shared.prepared.stats();
    page.field("cql_prepared_statements", prepared.statements);
    page.field("cql_prepared_statements_bytes", prepared.bytes);
    page.field("cql_prepared_statements_removed", prepared.removed);
    page.field("cql_pool_overflows", shared.cql_pool_overflows.load(Ordering::Relaxed));
}

/// Figures of the rows of CLIENT LIST.
#[derive(Debug, Default)]
struct RowTotals {
    input_bytes_max: usize,
    output_bytes_max: usize,
    /// Clients that watch keys.
    watching: u64,
    /// Keys that they watch.
    watched: u64,
}

impl RowTotals {
    fn of(published: &[Mutex<PublishedStats>]) -> RowTotals {
        let mut totals = RowTotals::default();
        for published in published {
            for row in published.lock().clients.values() {
                totals.input_bytes_max = totals.input_bytes_max.max(row.query_bytes);
                totals.output_bytes_max = totals.output_bytes_max.max(row.output_bytes);
                totals.watching += u64::from(row.watched > 0);
                totals.watched += u64::from(row.watched);
            }
        }
        totals
    }
}

pub(super) fn stats(page: &mut Page<'_, '_>) {
    let (shared, baseline) = (page.cx.shared, page.cx.shared.baseline.load());
    let (totals, counters) = (shared.totals(), baseline.sum(shared.links()));
    let rates = shared.rates.per_second();
    let [ops, input, output, ..] = rates;
    page.field("total_connections_received", counters.accepted);
    page.field("total_commands_processed", totals.commands);
    page.field("instantaneous_ops_per_sec", ops);
    page.field("total_net_input_bytes", counters.input_bytes);
    page.field("total_net_output_bytes", counters.output_bytes);
    page.field("instantaneous_input_kbps", kib(input));
    page.field("instantaneous_output_kbps", kib(output));
    let acceptor = baseline.acceptor(shared.links());
    let refused = acceptor.refused_over_limit + acceptor.refused_no_descriptor;
    page.field("rejected_connections", refused);
    keys(page, &totals);
    page.zeros(&ABSENT);
    page.field("instantaneous_input_repl_kbps", "0.00");
    page.field("instantaneous_output_repl_kbps", "0.00");
    event_loop(page, &counters, rates);
    page.field("pubsub_channels", shared.pubsub.names(Kind::Channel));
    page.field("pubsub_patterns", shared.pubsub.names(Kind::Pattern));
    page.field("pubsubshard_channels", shared.pubsub.names(Kind::ShardChannel));
    page.field("total_error_replies", totals.error_replies);
    connections(page, &counters);
    refusals(page, &totals);
    page.field("reactor_stalls", shared.stalls.count());
    page.field("reactor_stall_longest_ms", shared.stalls.longest_ms());
    page.field("log_lines_lost", base::messages::lost_lines());
    page.field("slowlog_entries", shared.command_logs.lock(LogKind::Slow).iter().len());
}

fn keys(page: &mut Page<'_, '_>, totals: &Totals) {
    page.field("expired_keys", totals.expired_keys);
    page.field("expired_fields", totals.expired_fields);
    page.field("expired_stale_perc", "0.00");
    page.field("expired_time_cap_reached_count", totals.expiry_ticks_cut);
    page.field("evicted_keys", totals.evicted_keys);
    page.field("keyspace_hits", totals.hits);
    page.field("keyspace_misses", totals.misses);
    let shared = page.cx.shared;
    let readers = shared.keyspace.readers();
    page.field("tracking_total_keys", readers.keys);
    page.field("tracking_total_items", readers.all);
    page.field("tracking_total_prefixes", shared.invalidations.prefixes());
}

fn event_loop(page: &mut Page<'_, '_>, counters: &Counters, rates: [u64; RATES]) {
    let [.., turns, turn_ns] = rates;
    page.field("eventloop_cycles", counters.turns);
    page.field("eventloop_duration_sum", counters.busy_ns / 1000);
    page.field("eventloop_duration_cmd_sum", commands_ns(page) / 1000);
    page.field("instantaneous_eventloop_cycles_per_sec", turns);
    // Source: Redis 7.2 `server.c`: the average of a cycle, not a sum per second
    let turn_us = turn_ns.checked_div(turns).unwrap_or(0) / 1000;
    page.field("instantaneous_eventloop_duration_usec", turn_us);
}

fn connections(page: &mut Page<'_, '_>, counters: &Counters) {
    page.field("total_reads_processed", counters.reads);
    page.field("total_writes_processed", counters.writes);
    page.field("client_query_buffer_limit_disconnections", counters.input_overflows);
    page.field("client_output_buffer_limit_disconnections", counters.output_overflows);
    page.field("idle_timeout_disconnections", counters.idle_timeouts);
    page.field("tls_handshakes", counters.tls_handshakes);
    page.field("tls_failures", counters.tls_failures);
    page.field("tls_handshake_timeouts", counters.tls_timeouts);
    page.field("tls_handshakes_crowded_out", counters.tls_crowded_out);
    page.field("tls_handshakes_deferred", counters.tls_deferred);
    page.field("tls_truncated_connections", counters.tls_truncated);
    page.field("migrated_connections", counters.migrated_in);
}

fn refusals(page: &mut Page<'_, '_>, totals: &Totals) {
    let refusals = page.cx.shared.refusals.lock().counts();
    page.field("acl_access_denied_auth", refusals.logins);
    page.field("acl_access_denied_cmd", refusals.commands);
    page.field("acl_access_denied_key", refusals.keys);
    page.field("acl_access_denied_channel", refusals.channels);
    page.field("unauthenticated_disconnections", totals.closed_newcomers);
    page.field("overloads", totals.overloads);
    page.field("overload_refused_requests", totals.refused_old);
}

// Source: Valkey 9.1 `tls.c`; redis_exporter reads it
pub(super) fn tls(page: &mut Page<'_, '_>) {
    let expiry_unix_s = page.cx.shared.tls.get().and_then(ListenerTls::expiry_unix_s);
    // Negative after the expiry; 0 without TLS.
    let rest_s = expiry_unix_s.map_or(0, |expiry_unix_s| {
        let now_s = page.cx.unix().0 / 1000;
        expiry_unix_s.cast_signed().saturating_sub(now_s.cast_signed())
    });
    page.field("tls_server_cert_expires_in_seconds", rest_s);
}

/// There are no forks, replicas, threads for sockets, and no limit for the memory of all clients;
/// memory is not defragmented.
const ABSENT: [&str; 22] = [
    "latest_fork_usec",
    "total_forks",
    "total_net_repl_input_bytes",
    "total_net_repl_output_bytes",
    "sync_full",
    "sync_partial_ok",
    "sync_partial_err",
    "evicted_clients",
    "total_eviction_exceeded_time",
    "current_eviction_exceeded_time",
    "migrate_cached_sockets",
    "slave_expires_tracked_keys",
    "active_defrag_hits",
    "active_defrag_misses",
    "active_defrag_key_hits",
    "active_defrag_key_misses",
    "total_active_defrag_time",
    "current_active_defrag_time",
    "unexpected_error_replies",
    "dump_payload_sanitizations",
    "io_threaded_reads_processed",
    "io_threaded_writes_processed",
];

pub(super) fn cluster(page: &mut Page<'_, '_>) {
    let is_enabled = page.cx.reactor.settings.cluster_view;
    page.field("cluster_enabled", u8::from(is_enabled));
}

/// Execution time of commands on all reactors.
fn commands_ns(page: &Page<'_, '_>) -> u64 {
    let of = |published: &Mutex<PublishedStats>| {
        published.lock().commands.iter().map(|c| c.ns).sum::<u64>()
    };
    page.cx.shared.published.iter().map(of).sum()
}

#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
fn kib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1024.0)
}
