//! Virtual tables: rows that are computed on request from the server's state.

mod estimates;
mod peers;
mod schema;
mod system;
mod views;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::time::Now;
use store::Params;

pub(crate) use system::{CLUSTER_NAME, CQL_VERSION, TOKEN};

use cql::schema::{Table, Values};

use crate::engine::gate::Gate;
use crate::engine::server_state::ServerState;

/// The inputs from which rows are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VirtualTableContext<'a> {
    pub(crate) shared: &'a ServerState,
    pub(crate) params: &'a Params,
    pub(crate) now: Now,
    /// The gate of the last schema change.
    pub(crate) schema: Gate,
    /// The address that the client connected to, and should reconnect to.
    pub(crate) local: Option<SocketAddr>,
}

/// The address for clients to reconnect to if the one that they connected to is unknown.
const ADDRESS_UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9042);

impl VirtualTableContext<'_> {
    /// Returns an IPv4 address even for a dual-stack listener.
    fn address(&self) -> (IpAddr, i32) {
        let local = self.local.unwrap_or(ADDRESS_UNKNOWN);
        (local.ip().to_canonical(), i32::from(local.port()))
    }

    /// The address and port as text.
    pub(crate) fn endpoint(&self) -> String {
        let (address, port) = self.address();
        format!("{address}:{port}")
    }
}

type Compute = fn(&Table, &VirtualTableContext<'_>) -> Vec<Values>;

/// Keyspace, table, and the function that computes its rows.
const TABLES: [(&str, &str, Compute); 21] = [
    ("system", "local", system::local),
    ("system", "peers", peers::peers),
    ("system", "peers_v2", peers::peers_v2),
    ("system", "IndexInfo", system::indexes),
    ("system", "built_views", none),
    ("system", "compaction_history", none),
    ("system", "view_builds_in_progress", none),
    ("system", "size_estimates", estimates::sizes),
    ("system", "table_estimates", estimates::tables),
    ("system", "prepared_statements", system::prepared),
    ("system_virtual_schema", "keyspaces", schema::keyspaces),
    ("system_virtual_schema", "tables", schema::tables),
    ("system_virtual_schema", "columns", schema::columns),
    ("system_views", "reactors", views::reactors),
    ("system_views", "connections", views::connections),
    ("system_views", "clients", views::clients),
    ("system_views", "stages", views::stages),
    ("system_views", "memory", views::memory),
    ("system_views", "log", views::log),
    ("system_views", "prepared_statements", views::prepared),
    ("system_views", "settings", views::settings),
];

/// For tables without rows: there is no view, and nothing to compact.
fn none(_: &Table, _: &VirtualTableContext<'_>) -> Vec<Values> {
    Vec::new()
}

/// All rows of a table with [`cql::schema::TableSource::Virtual`], in the order of its key.
pub(crate) fn rows(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let place = (table.keyspace.as_str(), table.name.as_str());
    let found = TABLES.iter().find(|(keyspace, name, _)| (*keyspace, *name) == place);
    let (_, _, compute) = found.expect("every virtual table is in TABLES");
    compute(table, cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql::schema::builtin;

    #[test]
    fn every_virtual_table_is_listed() {
        let catalog = builtin();
        let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let mut found: Vec<_> = tables
            .filter(|table| table.is_virtual())
            .map(|table| (table.keyspace.as_str(), table.name.as_str()))
            .collect();
        found.sort_unstable();
        let mut lines: Vec<_> =
            TABLES.iter().map(|(keyspace, name, _)| (*keyspace, *name)).collect();
        lines.sort_unstable();
        assert_eq!(found, lines);
    }
}
