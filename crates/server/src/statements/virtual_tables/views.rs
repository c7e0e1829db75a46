//! `system_views`: the server's INFO data as tables.

use cql::schema::{RowBuilder, Table, Values};

use super::VirtualTableContext;
use crate::config::is_public;
use crate::engine::client_row::ClientRow;
use crate::protocol::ClientProtocol;
use crate::statements::redaction::without_password;

/// Saturates: counters never get that high, and CQL has no unsigned type.
fn bigint(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(super) fn reactors(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let reactors = cx.shared.published.iter().enumerate().map(|(index, published)| {
        let links = cx.shared.links.get();
        let counters = links.map(|links| links.stats(index)).unwrap_or_default();
        let published = published.lock();
        let totals = published.totals;
        RowBuilder::new(table)
            .int("reactor", int(index))
            .text("name", &cx.shared.reactors.name(index))
            .int("connections", int(published.clients.len()))
            .bigint("commands", bigint(totals.commands))
            .bigint("error_replies", bigint(totals.error_replies))
            .bigint("hits", bigint(totals.hits))
            .bigint("misses", bigint(totals.misses))
            .bigint("expired_keys", bigint(totals.expired_keys))
            .bigint("evicted_keys", bigint(totals.evicted_keys))
            .bigint("rows_examined", bigint(totals.rows_examined))
            .bigint("busy_ms", bigint(counters.busy_ns / 1_000_000))
            .bigint("cpu_ms", bigint(counters.cpu_ns / 1_000_000))
            .values()
    });
    reactors.collect()
}

pub(super) fn connections(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    client_rows(cx).iter().map(|client| connection(table, client, cx)).collect()
}

/// CQL connections, in the columns that Cassandra's tools read. Unknown values are null.
pub(super) fn clients(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let clients = client_rows(cx);
    let of_cql = clients.iter().filter(|client| client.protocol == ClientProtocol::Cql);
    let row = |client: &ClientRow| {
        let remote = client.remote.internet()?;
        let address = remote.ip().to_canonical();
        let row = RowBuilder::new(table)
            .inet("address", address)
            .int("port", remote.port().into())
            .text("connection_stage", "ready")
            .text("driver_name", &client.library_name)
            .text("driver_version", &client.library_version)
            .text("hostname", &address.to_string())
            .bigint("request_count", bigint(client.commands))
            .boolean("ssl_enabled", client.is_tls);
        Some(row.values())
    };
    of_cql.filter_map(row).collect()
}

/// Clients of all protocols.
fn client_rows(cx: &VirtualTableContext<'_>) -> Vec<ClientRow> {
    let moving = cx.shared.moving.lock();
    let mut clients: Vec<ClientRow> = moving.values().cloned().collect();
    for published in &cx.shared.published {
        clients.extend(published.lock().clients.values().cloned());
    }
    drop(moving);
    clients.retain(|client| !client.killed);
    clients.sort_unstable_by_key(|client| client.id);
    clients
}

fn connection(table: &Table, client: &ClientRow, cx: &VirtualTableContext<'_>) -> Values {
    let age_ms = |since| bigint(cx.now.mono.since(since) / 1_000_000);
    let mut row = RowBuilder::new(table)
        .bigint("id", bigint(client.id))
        .int("reactor", int(client.reactor))
        .text("protocol", client.protocol.name())
        .text("name", &client.name)
        .text("driver_name", &client.library_name)
        .text("driver_version", &client.library_version)
        .text("durability", client.durability.word())
        .bigint("commands", bigint(client.commands))
        .bigint("age_ms", age_ms(client.opened))
        .bigint("idle_ms", age_ms(client.active))
        .bigint("input_bytes", bigint(client.query_bytes as u64))
        .bigint("output_bytes", bigint(client.output_bytes as u64))
        .bigint("memory_bytes", bigint(client.memory_bytes()));
    if let Some(remote) = client.remote.internet() {
        row = row.inet("address", remote.ip().to_canonical()).int("port", remote.port().into());
    }
    if let Some(local) = client.local {
        let address = local.ip().to_canonical();
        row = row.inet("local_address", address).int("local_port", local.port().into());
    }
    row.values()
}

#[expect(clippy::cast_precision_loss, reason = "times for people")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

pub(super) fn stages(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let (kinds, timers) = (&cx.shared.request_kinds, cx.shared.stage_timers());
    let mut found: Vec<(&str, &str, Values)> = Vec::new();
    for (command, stage, cell) in timers.cells() {
        let summary = cell.summary();
        let command = kinds.name(command);
        let row = RowBuilder::new(table)
            .text("command", command)
            .text("stage", stage.name())
            .bigint("count", bigint(summary.count))
            .double("mean_us", us(summary.sum_ns.checked_div(summary.count).unwrap_or(0)))
            .double("p50_us", us(summary.p50_ns))
            .double("p99_us", us(summary.p99_ns))
            .double("p999_us", us(summary.p999_ns))
            .double("max_us", us(summary.max_ns));
        found.push((command, stage.name(), row.values()));
    }
    found.sort_unstable_by_key(|(command, stage, _)| (*command, *stage));
    found.into_iter().map(|(_, _, row)| row).collect()
}

pub(super) fn memory(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let mut trackers = cx.shared.memory.server.tree();
    trackers.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let row = |tracker: base::memory::TrackerState| {
        let row = RowBuilder::new(table)
            .text("tracker", &tracker.path)
            .bigint("bytes", bigint(tracker.current_bytes))
            .bigint("peak_bytes", bigint(tracker.peak_bytes));
        match tracker.limit_bytes {
            Some(limit) => row.bigint("limit_bytes", bigint(limit)).values(),
            None => row.values(),
        }
    };
    trackers.into_iter().map(row).collect()
}

pub(super) fn log(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let log = &cx.shared.log;
    let stats = log.stats();
    let lines = [
        ("bytes", stats.bytes),
        ("durable_position", log.durable().0),
        ("groups", stats.groups),
        ("next_position", log.next().0),
        ("records", stats.records),
        ("segments", stats.segments as u64),
        ("sync_ns_last", stats.sync_ns_last),
        ("sync_ns_max", stats.sync_ns_max),
        ("sync_ns_sum", stats.sync_ns_sum),
        ("syncs", stats.syncs),
        ("unsynced_bytes", stats.unsynced_bytes),
        ("waiting_bytes", stats.waiting_bytes),
        ("writes", stats.writes),
        ("written_position", log.written().0),
    ];
    let row = |(name, value): (&str, u64)| {
        RowBuilder::new(table).text("name", name).bigint("value", bigint(value)).values()
    };
    lines.into_iter().map(row).collect()
}

pub(super) fn prepared(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let statements = cx.shared.prepared.current_statements(&cx.shared.catalog.load());
    let rows = statements.iter().map(|statement| {
        let row = RowBuilder::new(table)
            .bytes("prepared_id", statement.id.to_vec())
            .text("query", &String::from_utf8_lossy(&without_password(&statement.text)));
        match &statement.keyspace {
            Some(keyspace) => row.text("keyspace_name", keyspace).values(),
            None => row.values(),
        }
    });
    rows.collect()
}

/// Shown instead of a password.
const HIDDEN: &str = "********";

pub(super) fn settings(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let mut settings = cx.shared.config.lock().get(&[b"*"]);
    settings.sort_unstable();
    let row = |(name, value): (String, String)| {
        let is_hidden = !is_public(name.as_bytes()) && !value.is_empty();
        let value = if is_hidden { HIDDEN } else { &value };
        RowBuilder::new(table).text("name", &name).text("value", value).values()
    };
    settings.into_iter().map(row).collect()
}
