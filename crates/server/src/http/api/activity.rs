//! Current activity: reactors, connections, requests, statements.

use std::sync::atomic::Ordering;

use base::stages::Stage;
use serde_json::{Value, json};

use super::{hottest, latency, text, user};
use crate::engine::client_row::ClientRow;
use crate::engine::command_log::LogKind;
use crate::engine::published::CommandCounts;
use crate::engine::replication::LinkState;
use crate::http::Exchange;

/// Maximum number of connections or statements on one page.
const ROWS_MAX: usize = 500;
/// Maximum number of slow requests on one page.
const SLOW_MAX: usize = 100;

pub(super) fn overview(exchange: &Exchange<'_>) -> Value {
    let (shared, now) = (exchange.context.shared, exchange.context.now);
    let totals = shared.totals();
    let counters = shared.links().stats_sum();
    let (databases, _) = shared.data_stats(now.unix);
    let settings = &exchange.context.reactor.settings;
    let log = shared.log.stats();
    // They may be keys that the user must not know.
    let may_see_keys = exchange.client.identity.user().is_unrestricted();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "run_id": shared.identity.run_id,
        "now_ms": now.unix.0,
        "uptime_ms": now.unix.0.saturating_sub(shared.identity.started.unix.0),
        "reactors": shared.reactors.regular,
        "durability": settings.durability.word(),
        "log_failed": shared.log.poisoned().is_some(),
        "connections": shared.links().connections(),
        "connections_max": settings.maxclients,
        "blocked": shared.blocked_clients.load(Ordering::Relaxed),
        "commands": totals.commands,
        "hits": totals.hits,
        "misses": totals.misses,
        "errors": totals.error_replies,
        "expired": totals.expired_keys,
        "evicted": totals.evicted_keys,
        "keys": databases.iter().map(|stats| stats.keys).sum::<u64>(),
        "input_bytes": counters.input_bytes,
        "output_bytes": counters.output_bytes,
        "held_bytes": counters.held_bytes,
        "used_bytes": shared.used_bytes(),
        "limit_bytes": shared.memory.server.limit_bytes(),
        "log_bytes": log.bytes,
        "log_syncs": log.syncs,
        "log_records": log.records,
        "recovery_ms": shared.recovery.took_ms,
        "latency": latency::stages(exchange),
        "hot_keys": if may_see_keys { hottest::keys(exchange) } else { json!([]) },
        "busiest_clients":
            if user::may_run(exchange, "client|list") { hottest::clients(exchange) } else { json!([]) },
        "log_full": shared.log.poisoned().is_none() && !shared.log.takes_writes(),
        "replication": replication(exchange),
    })
}

fn replication(exchange: &Exchange<'_>) -> Value {
    let (shared, now) = (exchange.context.shared, exchange.context.now.mono);
    let position = shared.replication.position(&shared.log);
    let link = shared.replication.link().clone();
    let master = link.source.as_ref().map(|master| {
        json!({
            "host": master.host,
            "port": master.port,
            "is_connected": link.state == LinkState::Connected,
            "silent_ms": now.since(link.heard) / 1_000_000,
            "lag_bytes": link.source_position.saturating_sub(position),
        })
    });
    json!({
        "position": position,
        "master": master,
        "replicas": shared.replication.replicas().list().len(),
        "follower_lag_bytes": shared.log.stats().follower_lag_bytes,
    })
}

pub(super) fn reactors(exchange: &Exchange<'_>) -> Value {
    let shared = exchange.context.shared;
    let links = shared.links();
    let row = |(index, published): (
        usize,
        &parking_lot::Mutex<crate::engine::published::PublishedStats>,
    )| {
        let counters = links.stats(index);
        json!({
            "name": shared.reactors.name(index),
            "load_ppm": links.load_ppm(index),
            "busy_ns": counters.busy_ns,
            "cpu_ns": counters.cpu_ns,
            "wait_ns": counters.wait_ns,
            "connections": counters.connections,
            "commands": published.lock().totals.commands,
            "turns": counters.turns,
            "reads": counters.reads,
            "writes": counters.writes,
            "input_bytes": counters.input_bytes,
            "output_bytes": counters.output_bytes,
            "held_bytes": counters.held_bytes,
            "migrated_in": counters.migrated_in,
            "migrated_out": counters.migrated_out,
        })
    };
    Value::Array(shared.published.iter().enumerate().map(row).collect())
}

/// Requests that are blocked or whose replies are held, and the latest slow ones.
pub(super) fn requests(exchange: &Exchange<'_>) -> Value {
    let waits = |row: &ClientRow| row.blocked || row.query_bytes > 0 || row.output_bytes > 0;
    let may_see = user::may_run(exchange, "client|list");
    let waiting = rows(exchange, |row| may_see && waits(row));
    let waiting: Vec<_> = waiting.iter().map(|row| connection(row, exchange)).collect();
    let slowlog = exchange.context.shared.command_logs.lock(LogKind::Slow);
    let slow: Vec<_> = slowlog
        .iter()
        .take(SLOW_MAX)
        .map(|entry| {
            json!({
                "id": entry.id,
                "at_ms": entry.at.0,
                "took_us": entry.value,
                "arguments": entry.args.iter().map(|arg| text(arg)).collect::<Vec<_>>(),
                "peer": entry.peer,
                "client": entry.client_name,
            })
        })
        .collect();
    let threshold_us = exchange.context.reactor.settings.slowlog_log_slower_than_us;
    json!({ "waiting": waiting, "slow": slow, "slow_threshold_us": threshold_us })
}

pub(super) fn connections(exchange: &Exchange<'_>) -> Value {
    let rows: Vec<_> =
        rows(exchange, |_| true).iter().map(|row| connection(row, exchange)).collect();
    let all = exchange.context.shared.links().connections();
    json!({ "connections": all, "shown": rows.len(), "rows": rows })
}

/// The start of a text that a client has chosen.
fn start_of(text: &str) -> &str {
    const BYTES_MAX: usize = 128;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}

/// Returns the rows of matching clients, most recently active first.
fn rows(exchange: &Exchange<'_>, is_wanted: impl Fn(&ClientRow) -> bool) -> Vec<ClientRow> {
    let mut rows = Vec::new();
    for published in &exchange.context.shared.published {
        let published = published.lock();
        rows.extend(published.clients.values().filter(|row| is_wanted(row)).cloned());
    }
    rows.sort_unstable_by_key(|row| (std::cmp::Reverse(row.active), row.id));
    rows.truncate(ROWS_MAX);
    rows
}

fn connection(row: &ClientRow, exchange: &Exchange<'_>) -> Value {
    let (now, kinds) = (exchange.context.now.mono, &exchange.context.shared.request_kinds);
    let settings = &exchange.context.reactor.settings;
    json!({
        "id": row.id,
        "protocol": row.protocol.name(),
        "reactor": format!("r{:02}", row.reactor),
        "peer": row.remote.text(settings),
        "name": start_of(&row.name),
        "library": start_of(&row.library_name),
        "age_ms": now.since(row.opened) / 1_000_000,
        "idle_ms": now.since(row.active) / 1_000_000,
        "commands": row.commands,
        "last_command": (row.commands > 0).then(|| kinds.name(usize::from(row.last_command))),
        "durability": row.durability.word(),
        "blocked": row.blocked,
        "input_bytes": row.query_bytes,
        "output_bytes": row.output_bytes,
        "memory_bytes": row.memory_bytes(),
    })
}

/// Commands and requests with their stages, by total execution time.
pub(super) fn statements(exchange: &Exchange<'_>) -> Value {
    let shared = exchange.context.shared;
    let timers = shared.stage_timers();
    let mut seen: Vec<(usize, CommandCounts)> =
        shared.request_counts().into_iter().enumerate().collect();
    seen.retain(|(_, sum)| sum.calls + sum.rejected + sum.failed > 0);
    seen.sort_unstable_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
    let row = |(id, sum): &(usize, CommandCounts)| {
        let stages = Stage::ALL.iter().filter_map(|stage| {
            let summary = timers.cell(*id, *stage)?.summary();
            let value = json!({
                "count": summary.count,
                "sum_ns": summary.sum_ns,
                "p50_ns": summary.p50_ns,
                "p99_ns": summary.p99_ns,
                "max_ns": summary.max_ns,
            });
            Some((stage.name().to_owned(), value))
        });
        json!({
            "name": shared.request_kinds.name(*id),
            "calls": sum.calls,
            "ns": sum.ns,
            "rejected": sum.rejected,
            "failed": sum.failed,
            "stages": Value::Object(stages.collect()),
        })
    };
    let prepared = shared.prepared.stats();
    json!({
        "commands": seen.iter().take(ROWS_MAX).map(row).collect::<Vec<_>>(),
        "prepared": {
            "statements": prepared.statements,
            "bytes": prepared.bytes,
            "removed": prepared.removed,
        },
    })
}
