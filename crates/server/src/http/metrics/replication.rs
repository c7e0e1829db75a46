//! Metrics of replication: the master, the replicas, the peers of a group of masters.

use base::time::MonoNs;

use super::page::{Kind, Page};
use super::seconds;
use crate::config::MasterAddress;
use crate::engine::replication::LinkState;
use crate::engine::server_state::ServerState;

/// Writes how this server follows its master. A master has only the first family.
pub(super) fn master(page: &mut Page<'_>, shared: &ServerState, now: MonoNs) {
    let link = shared.replication.link().clone();
    let help = "Whether this server is a replica.";
    page.one("myriad_is_replica", Kind::Gauge, help, u8::from(link.source.is_some()));
    if link.source.is_none() {
        return;
    }
    let help = "Whether this replica follows its master; 0 while it connects or copies.";
    page.one("myriad_master_link_up", Kind::Gauge, help, is_up(link.state));
    let help = "Time since the last message of the master.";
    page.one("myriad_master_silent_seconds", Kind::Gauge, help, seconds(now.since(link.heard)));
    let applied = shared.replication.position(&shared.log);
    let help = "Bytes of the master's log that this replica has not applied.";
    let lag_bytes = link.source_position.saturating_sub(applied);
    page.one("myriad_master_lag_bytes", Kind::Gauge, help, lag_bytes);
}

/// Writes the connected replicas of this server.
pub(super) fn replicas(page: &mut Page<'_>, shared: &ServerState, now: MonoNs) {
    let end = shared.replication.position(&shared.log);
    let mut rows = Vec::new();
    for replica in shared.replication.replicas().list() {
        let MasterAddress { host, port } = replica.place();
        rows.push((format!("{host}:{port}"), replica));
    }
    // Replicas that did not announce their port can have the same name, and a series must be unique.
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows.dedup_by(|(a, _), (b, _)| a == b);
    page.one("myriad_replicas", Kind::Gauge, "Connected replicas.", rows.len());
    let help = "Whether a replica has a complete copy.";
    page.family("myriad_replica_online", Kind::Gauge, help);
    for (name, replica) in &rows {
        page.sample(&[("replica", name)], u8::from(replica.is_online));
    }
    let help = "Bytes of the log that a replica does not have on its disk.";
    page.family("myriad_replica_lag_bytes", Kind::Gauge, help);
    for (name, replica) in &rows {
        page.sample(&[("replica", name)], end.saturating_sub(replica.durable));
    }
    let help = "Time since the last message of a replica.";
    page.family("myriad_replica_silent_seconds", Kind::Gauge, help);
    for (name, replica) in &rows {
        page.sample(&[("replica", name)], seconds(now.since(replica.heard)));
    }
}

/// Writes the servers of the group whose writes this server receives.
pub(super) fn peers(page: &mut Page<'_>, shared: &ServerState, now: MonoNs) {
    let peers: Vec<_> = {
        let peers = shared.hub.peers();
        peers.all().iter().map(|(server, peer)| (server.to_string(), peer.clone())).collect()
    };
    let help = "Whether the writes of a peer are received; 0 while it connects or copies.";
    page.family("myriad_hub_peer_up", Kind::Gauge, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], is_up(peer.state));
    }
    let help = "Bytes of a peer's log that are known to follow.";
    page.family("myriad_hub_peer_lag_bytes", Kind::Gauge, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], peer.lag_bytes());
    }
    let help = "Time since the last message of a peer.";
    page.family("myriad_hub_peer_silent_seconds", Kind::Gauge, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], seconds(now.since(peer.heard)));
    }
    let help = "Values and changes of rows received from a peer.";
    page.family("myriad_hub_received_total", Kind::Counter, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], peer.received);
    }
    let help = "Values received from a peer that were older than the stored ones.";
    page.family("myriad_hub_lost_total", Kind::Counter, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], peer.lost);
    }
    let help = "Values received from a peer that were in conflict with the stored ones.";
    page.family("myriad_hub_conflicts_total", Kind::Counter, help);
    for (server, peer) in &peers {
        page.sample(&[("peer", server)], peer.conflicts);
    }
}

fn is_up(state: LinkState) -> u8 {
    u8::from(state == LinkState::Connected)
}
