//! INFO persistence, replication, keyspace: the data and its durability.

use std::fmt::Write as _;

use base::time::MonoNs;
use wire::replication::Epoch;

use super::{Page, us};
use crate::commands::hub::state_name;
use crate::config::MasterAddress;
use crate::engine::hub::{Conflict, Peer};
use crate::engine::monitor_feeds::quote;
use crate::engine::replication::{Link, LinkState, ProgramVersion};
use crate::engine::snapshots::{Purpose, SnapshotStatus};

pub(super) fn persistence(page: &mut Page<'_, '_>) {
    page.field("loading", 0);
    page.zeros(&ABSENT);
    page.field("current_fork_perc", "0.00");
    let status = page.cx.shared.snapshots.status();
    rewrites(page, &status);
    snapshots(page, &status);
    log(page);
    let report = page.cx.shared.recovery.clone();
    page.field("recovery_snapshot_keys", report.snapshot_keys);
    page.field("recovery_log_records", report.log_records);
    page.field("recovery_msec", report.took_ms);
}

/// Neither snapshots nor the log fork.
const ABSENT: [&str; 10] = [
    "async_loading",
    "current_cow_peak",
    "current_cow_size",
    "current_cow_size_age",
    "rdb_last_cow_size",
    "rdb_last_load_keys_expired",
    "aof_rewrites_consecutive_failures",
    "aof_last_cow_size",
    "module_fork_in_progress",
    "module_fork_last_cow_size",
];

/// Seconds since the start of a running snapshot; -1 if none of the purpose is running.
fn running_seconds(status: &SnapshotStatus, purpose: Purpose, now: MonoNs) -> i64 {
    if !is_running(status, purpose) {
        return -1;
    }
    (now.since(status.began) / 1_000_000_000).cast_signed()
}

fn is_running(status: &SnapshotStatus, purpose: Purpose) -> bool {
    status.running.is_some() && status.purpose == purpose
}

/// Snapshots that BGREWRITEAOF requested correspond to the rewrites of the append-only file.
fn rewrites(page: &mut Page<'_, '_>, status: &SnapshotStatus) {
    let (last, scheduled) = (status.last_rewrite, status.scheduled);
    let took_s = last.map_or(-1, |rewrite| (rewrite.took_ms / 1000).cast_signed());
    let is_ok = last.is_none_or(|rewrite| rewrite.is_ok);
    let running_s = running_seconds(status, Purpose::Rewrite, page.cx.now.mono);
    page.field("aof_rewrite_in_progress", u8::from(is_running(status, Purpose::Rewrite)));
    page.field("aof_rewrite_scheduled", u8::from(scheduled == Some(Purpose::Rewrite)));
    page.field("aof_last_rewrite_time_sec", took_s);
    page.field("aof_current_rewrite_time_sec", running_s);
    page.field("aof_last_bgrewrite_status", if is_ok { "ok" } else { "err" });
    page.field("aof_rewrites", status.rewrites);
}

/// Snapshots correspond to the RDB dumps of Redis.
fn snapshots(page: &mut Page<'_, '_>, status: &SnapshotStatus) {
    let shared = page.cx.shared;
    let changes = shared.unsaved_changes(status);
    let took_s = if status.finished == 0 { -1 } else { (status.last_took_ms / 1000).cast_signed() };
    page.field("rdb_changes_since_last_save", changes);
    page.field("rdb_bgsave_in_progress", u8::from(is_running(status, Purpose::Save)));
    page.field("rdb_last_save_time", status.last_unix_ms / 1000);
    page.field("rdb_last_bgsave_status", if status.last_ok { "ok" } else { "err" });
    page.field("rdb_last_bgsave_time_sec", took_s);
    let running_s = running_seconds(status, Purpose::Save, page.cx.now.mono);
    page.field("rdb_current_bgsave_time_sec", running_s);
    page.field("rdb_saves", status.succeeded);
    page.field("rdb_last_load_keys_loaded", shared.recovery.snapshot_keys);
    page.field("snapshot_last_keys", status.last_keys);
    page.field("snapshot_last_bytes", status.last_bytes);
    page.field("snapshot_last_msec", status.last_took_ms);
}

/// The log corresponds to the append-only file of Redis.
fn log(page: &mut Page<'_, '_>) {
    let log = &page.cx.shared.log;
    let (stats, takes_writes) = (log.stats(), log.takes_writes());
    let (next, written, durable) = (log.next().0, log.written().0, log.durable().0);
    let settings = &page.cx.reactor.settings;
    let (durability, interval_ms) = (settings.durability.word(), settings.durability_interval_ms);
    page.field("aof_enabled", 1);
    page.field("aof_last_write_status", if takes_writes { "ok" } else { "err" });
    page.field("durability", durability);
    page.field("durability_interval_msec", interval_ms);
    page.field("log_next_lsn", next);
    page.field("log_written_lsn", written);
    page.field("log_durable_lsn", durable);
    page.field("log_groups", stats.groups);
    page.field("log_records", stats.records);
    page.field("log_bytes", stats.bytes);
    page.field("log_syncs", stats.syncs);
    page.field("log_records_per_sync", format!("{:.2}", stats.records_per_sync()));
    page.field("log_sync_usec_last", us(stats.sync_ns_last));
    page.field("log_sync_usec_mean", us(stats.sync_ns_sum.checked_div(stats.syncs).unwrap_or(0)));
    page.field("log_sync_usec_max", us(stats.sync_ns_max));
    page.field("log_segments", stats.segments);
    page.field("log_blank_segments", stats.blank_segments);
    page.field("log_waiting_bytes", stats.waiting_bytes);
    page.field("log_unsynced_bytes", stats.unsynced_bytes);
}

// Source: Redis 7.2 `server.c`, `genRedisInfoString`, section replication
pub(super) fn replication(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    let replication = &shared.replication;
    let position = replication.shown_position(&shared.log);
    let link = replication.link().clone();
    page.field("role", if link.source.is_some() { "slave" } else { "master" });
    master(page, &link, position);
    replicas(page);
    let (epoch, previous) = replication.epochs();
    let id = |epoch: Option<Epoch>| epoch.map(|one| String::from_utf8_lossy(&one.id).into_owned());
    page.field("master_failover_state", replication.failover_state());
    page.field("master_replid", id(epoch).unwrap_or_else(|| shared.identity.run_id.clone()));
    page.field("master_replid2", id(previous).unwrap_or_else(|| "0".repeat(40)));
    page.field("master_repl_offset", position);
    let second = previous.and(epoch).map(|epoch| epoch.start);
    page.field("second_repl_offset", second.map_or(-1, |start| i64::try_from(start).unwrap_or(-1)));
    // The log of the server is the backlog.
    page.field("repl_backlog_active", u8::from(epoch.is_some()));
    page.field("repl_backlog_size", shared.settings.load().repl_backlog_bytes);
    page.field("repl_backlog_first_byte_offset", 0);
    page.field("repl_backlog_histlen", 0);
    page.field("master_replaced", u8::from(replication.replicas().is_fenced()));
}

/// The link to the master, of a replica at `position`.
fn master(page: &mut Page<'_, '_>, link: &Link, position: u64) {
    let Some(master) = &link.source else { return };
    let is_up = link.state == LinkState::Connected;
    let silent_s = page.cx.now.mono.since(link.heard) / 1_000_000_000;
    page.field("master_host", &master.host);
    page.field("master_port", master.port);
    page.field("master_link_status", if is_up { "up" } else { "down" });
    page.field("master_last_io_seconds_ago", if is_up { silent_s.cast_signed() } else { -1 });
    page.field("master_sync_in_progress", u8::from(link.state == LinkState::Copying));
    if !link.source_program.is_empty() {
        page.field("master_version", &link.source_program);
    }
    page.field("slave_read_repl_offset", position);
    page.field("slave_repl_offset", position);
    if link.state == LinkState::Copying {
        page.field("master_sync_read_bytes", link.copied_bytes);
    }
    if !is_up {
        page.field("master_link_down_since_seconds", silent_s);
    }
    page.field("master_lag_bytes", link.source_position.saturating_sub(position));
    let settings = page.cx.shared.settings.load_full();
    page.field("slave_priority", settings.replica_priority);
    page.field("slave_read_only", 1);
    page.field("replica_announced", u8::from(settings.replica_announced));
}

fn replicas(page: &mut Page<'_, '_>) {
    let replicas = page.cx.shared.replication.replicas().list();
    page.field("connected_slaves", replicas.len());
    for (number, replica) in replicas.iter().enumerate() {
        let state = if replica.is_online { "online" } else { "send_bulk" };
        let silent_s = page.cx.now.mono.since(replica.heard) / 1_000_000_000;
        let (host, port, offset) = (replica.host(), replica.port, replica.durable);
        let mut row = format!("ip={host},port={port},state={state},offset={offset},lag={silent_s}");
        if replica.program != ProgramVersion::default() {
            let _ = write!(row, ",version={}", replica.program);
        }
        page.field(&format!("slave{number}"), row);
    }
}

pub(super) fn hub(page: &mut Page<'_, '_>) {
    let hub = &page.cx.shared.hub;
    let now = page.cx.now.mono;
    let peers = hub.peers().all().clone();
    let role = if hub.relays { "hub" } else { "master" };
    page.field("hub_server_id", hub.server);
    page.field("hub_role", if hub.server == 0 { "none" } else { role });
    page.field("hub_peers", peers.len());
    page.field("hub_conflicts", peers.values().map(|peer| peer.conflicts).sum::<u64>());
    for (server, peer) in &peers {
        page.field(&format!("hub_peer{server}"), peer_row(peer, now));
    }
    for (at, conflict) in hub.conflicts().into_iter().enumerate() {
        page.field(&format!("hub_conflict{at}"), conflict_row(&conflict));
    }
}

fn peer_row(peer: &Peer, now: MonoNs) -> String {
    let (position, lag_bytes) = (peer.position(), peer.lag_bytes());
    let state = state_name(peer.state);
    let MasterAddress { host, port } = &peer.address;
    let silent_s = now.since(peer.heard) / 1_000_000_000;
    let Peer { received, lost, conflicts, .. } = *peer;
    format!(
        "host={host},port={port},state={state},position={position},lag_bytes={lag_bytes},\
         silent_s={silent_s},received={received},lost={lost},\
         conflicts={conflicts}"
    )
}

/// The key is last and in quotes, because it may contain commas.
fn conflict_row(conflict: &Conflict) -> String {
    let Conflict { db, name, winner, loser, found } = conflict;
    let mut key = Vec::new();
    quote(name, &mut key);
    format!(
        "db={db},winner={},winner_us={},loser={},loser_us={},found_ms={},key={}",
        winner.server,
        winner.time,
        loser.server,
        loser.time,
        found.0,
        String::from_utf8_lossy(&key)
    )
}

pub(super) fn keyspace(page: &mut Page<'_, '_>) {
    let dbs = page.data().0;
    for (db, stats) in dbs.iter().enumerate().filter(|(_, stats)| stats.keys > 0) {
        let value = format!(
            "keys={},expires={},avg_ttl={},keys_with_volatile_items={}",
            stats.keys, stats.expires, stats.ttl_ms_mean, stats.timed_keys
        );
        page.field(&format!("db{db}"), value);
    }
}
