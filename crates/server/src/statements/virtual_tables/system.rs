//! `system`: the tables from which drivers identify the server.

use cql::schema::{DATA_CENTER, RowBuilder, Table, Values};
use wire::replication::{CqlEndpoint, Member};

use super::VirtualTableContext;
use crate::engine::replication::visible_host;
use crate::statements::redaction::without_password;
use crate::statements::stored_schema::host_id;

/// The CQL version, which clients repeat in STARTUP.
pub(crate) const CQL_VERSION: &str = "3.4.7";

/// Drivers and cqlsh derive supported features from it.
pub(super) const RELEASE_VERSION: &str = "5.0.0";
pub(crate) const CLUSTER_NAME: &str = "Myriad";
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// The only token of a master, which owns all keys.
pub(crate) const TOKEN: &str = "0";

pub(super) const RACK: &str = "rack1";

/// The data center of replicas: drivers that prefer another one do not send writes to them.
const REPLICAS: &str = "replicas";

pub(super) fn data_center(is_master: bool) -> &'static str {
    if is_master { DATA_CENTER } else { REPLICAS }
}

/// The token of a server. No two servers have the same one.
pub(super) fn token_of(member: &Member) -> String {
    if member.is_master {
        return TOKEN.to_owned();
    }
    let (_, low) = visible_host(member).as_u64_pair();
    low.cast_signed().to_string()
}

pub(super) fn local(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let (address, port) = cx.address();
    let view = cx.shared.replication.members.view();
    // Before the first update, and in tests, whose servers have no addresses.
    let member = view.own.unwrap_or_else(|| Member {
        host: host_id(&cx.shared.keyspace, cx.params).unwrap_or_default().into_bytes(),
        is_master: cx.shared.replication.link().source.is_none(),
        cql: CqlEndpoint::default(),
    });
    let started_s = cx.shared.identity.started.unix.0 / 1000;
    let mut row = RowBuilder::new(table)
        .text("key", "local")
        .text("bootstrapped", "COMPLETED")
        .inet("broadcast_address", address)
        .int("broadcast_port", port)
        .text("cluster_name", CLUSTER_NAME)
        .text("cql_version", CQL_VERSION)
        .text("data_center", data_center(member.is_master))
        .int("gossip_generation", i32::try_from(started_s).unwrap_or(i32::MAX))
        .inet("listen_address", address)
        .int("listen_port", port)
        .text("native_protocol_version", "5")
        .text("partitioner", PARTITIONER)
        .text("rack", RACK)
        .text("release_version", RELEASE_VERSION)
        .inet("rpc_address", address)
        .int("rpc_port", port)
        .uuid("schema_version", cx.shared.catalog.load().version)
        .texts("tokens", [token_of(&member).as_str()].into_iter());
    if member.host != [0; 16] {
        row = row.uuid("host_id", visible_host(&member));
    }
    vec![row.values()]
}

/// All indexes are complete: they are stored with their tables.
pub(super) fn indexes(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let catalog = cx.shared.catalog.load();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for keyspace in catalog.keyspaces.values() {
        let indexes = keyspace.tables.values().flat_map(|table| &table.indexes);
        names.extend(indexes.map(|index| (keyspace.name.as_str(), index.name.as_str())));
    }
    names.sort_unstable();
    let row = |(keyspace, index): (&str, &str)| {
        RowBuilder::new(table).text("table_name", keyspace).text("index_name", index).values()
    };
    names.into_iter().map(row).collect()
}

pub(super) fn prepared(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let statements = cx.shared.prepared.current_statements(&cx.shared.catalog.load());
    let rows = statements.iter().map(|statement| {
        let row = RowBuilder::new(table)
            .bytes("prepared_id", statement.id.to_vec())
            .text("query_string", &String::from_utf8_lossy(&without_password(&statement.text)));
        match &statement.keyspace {
            Some(keyspace) => row.text("logged_keyspace", keyspace).values(),
            None => row.values(),
        }
    });
    rows.collect()
}
