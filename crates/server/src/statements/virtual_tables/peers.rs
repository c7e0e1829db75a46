//! The other servers of the replication: `system.peers` and `system.peers_v2`.

use std::net::SocketAddr;

use cql::schema::{RowBuilder, Table, Values};
use uuid::Uuid;

use super::VirtualTableContext;
use super::system::{RACK, RELEASE_VERSION, data_center, token_of};
use crate::engine::replication::{Peer, SILENCE_NS_MAX, visible_host};

/// The servers that this client can connect to, with their addresses.
fn found(cx: &VirtualTableContext<'_>) -> Vec<(Peer, SocketAddr)> {
    let view = cx.shared.replication.members.view();
    let peers = view.peers.iter();
    peers.filter_map(|peer| Some((*peer, view.address(peer, cx.local)?))).collect()
}

/// The schema of a server: that of this one, unless it is a replica whose log does not have the last
/// change yet. Drivers wait until all servers that are up have the same.
fn schema_version(cx: &VirtualTableContext<'_>, peer: &Peer) -> Uuid {
    let replication = &cx.shared.replication;
    let needed = cx.schema.lsn().and_then(|lsn| replication.history().position(lsn));
    let is_late = needed.is_some_and(|needed| {
        let host = Some(peer.member.host);
        let replicas = replication.replicas().list();
        let mut replicas =
            replicas.iter().filter(|one| one.is_available(cx.now.mono, SILENCE_NS_MAX));
        replicas.any(|one| one.cql.map(|cql| cql.0) == host && one.durable < needed)
    });
    if is_late { Uuid::nil() } else { cx.shared.catalog.load().version }
}

/// The columns of both tables.
fn row<'t>(cx: &VirtualTableContext<'_>, table: &'t Table, peer: &Peer) -> RowBuilder<'t> {
    RowBuilder::new(table)
        .text("data_center", data_center(peer.member.is_master))
        .uuid("host_id", visible_host(&peer.member))
        .text("rack", RACK)
        .text("release_version", RELEASE_VERSION)
        .uuid("schema_version", schema_version(cx, peer))
        .texts("tokens", [token_of(&peer.member).as_str()].into_iter())
}

/// Rows without ports: drivers that read these use the port that they connected to.
pub(super) fn peers(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let (own, port) = cx.address();
    let found = found(cx).into_iter();
    let found = found.filter(|(_, at)| i32::from(at.port()) == port && at.ip() != own);
    let row = |(peer, at): (Peer, SocketAddr)| {
        row(cx, table, &peer).inet("peer", at.ip()).inet("rpc_address", at.ip()).values()
    };
    found.map(row).collect()
}

pub(super) fn peers_v2(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let row = |(peer, at): (Peer, SocketAddr)| {
        let port = i32::from(at.port());
        row(cx, table, &peer)
            .inet("peer", at.ip())
            .int("peer_port", port)
            .inet("native_address", at.ip())
            .int("native_port", port)
            .values()
    };
    found(cx).into_iter().map(row).collect()
}
