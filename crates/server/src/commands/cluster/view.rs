//! The reactors as nodes of a cluster, as the clients of one listener see them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use base::hex::hex;
use sha2::{Digest as _, Sha256};

use super::slots::slots_of;
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;

/// Bytes of an identifier, which is shown with two digits each.
const ID_BYTES: usize = 20;

/// A reactor as a node.
pub(super) struct Node {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    pub(super) slots: RangeInclusive<usize>,
}

/// Fails unless `cluster-view` is on.
// Source: Redis 7.2 `cluster.c`, `clusterCommand`
pub(super) fn check_enabled(cx: &CommandContext<'_>) -> Result<(), Fail> {
    if cx.reactor.settings.cluster_view {
        return Ok(());
    }
    Err(Fail::text("ERR This instance has cluster support disabled"))
}

/// Returns the nodes in the order of the reactors: those whose ports belong to the listener that
/// the client has connected to, with its address.
pub(super) fn nodes(cx: &CommandContext<'_>) -> Result<Vec<Node>, Fail> {
    check_enabled(cx)?;
    let settings = &cx.reactor.settings;
    let endpoints: Vec<_> = settings.endpoints().collect();
    let bound = cx.shared.identity.addresses.get();
    let count = cx.shared.reactors.regular;
    // Clients of other listeners see the nodes as clients of the first one do.
    let source = Some(usize::from(cx.session.source));
    let source = source.filter(|source| *source < settings.resp.len() + settings.resp_tls.len());
    let source = source.unwrap_or(0);
    let node = |reactor| {
        let listener = settings.node_listener(source, reactor);
        let endpoint = endpoints[listener];
        let address = bound.map(|bound| bound[listener]).or(endpoint.place.address());
        let address = address.expect("nodes listen on addresses");
        Node {
            id: node_id(cx.shared.log.salt(), "node", reactor),
            host: host(&settings.cluster_announce_ip, cx.session.details.local, address),
            port: address.port(),
            is_tls: endpoint.is_tls,
            slots: slots_of(reactor, count),
        }
    };
    Ok((0..count).map(node).collect())
}

/// The identifier of a reactor's node, or of its shard: the same after a restart.
pub(super) fn own_id(cx: &CommandContext<'_>, kind: &str) -> String {
    node_id(cx.shared.log.salt(), kind, cx.reactor.index)
}

/// `salt`: of the log, which identifies the data.
fn node_id(salt: u64, kind: &str, reactor: usize) -> String {
    let digest = Sha256::digest(format!("{salt:016x} {kind} {reactor}"));
    hex(&digest[..ID_BYTES])
}

/// `local`: the address that the client has reached.
fn host(announced: &str, local: Option<SocketAddr>, bound: SocketAddr) -> String {
    if !announced.is_empty() {
        return announced.to_owned();
    }
    let ip = local.unwrap_or(bound).ip();
    // Without a connection of its own, a client of the wildcard address is on this machine.
    if ip.is_unspecified() { "127.0.0.1".to_owned() } else { ip.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_differ_by_data_kind_and_reactor() {
        let id = node_id(7, "node", 0);
        assert_eq!(id.len(), 40);
        assert_eq!(id, node_id(7, "node", 0));
        for other in [node_id(8, "node", 0), node_id(7, "shard", 0), node_id(7, "node", 1)] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn the_announced_host_is_one_that_the_client_reaches() {
        let [local, bound]: [SocketAddr; 2] =
            ["10.0.0.1:7000", "0.0.0.0:7001"].map(|text| text.parse().unwrap());
        assert_eq!(host("example.org", Some(local), bound), "example.org");
        assert_eq!(host("", Some(local), bound), "10.0.0.1");
        assert_eq!(host("", None, local), "10.0.0.1");
        assert_eq!(host("", None, bound), "127.0.0.1");
    }
}
