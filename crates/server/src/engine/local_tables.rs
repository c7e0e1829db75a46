//! Tables whose rows describe this server alone: they are in no stream. The identifiers are part of
//! the log's format; no table of CQL has one of them, since their version is not that of generated
//! ones.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use cql::schema::{builtin, builtin_table};
use store::TableId;

/// The upper half of the identifiers of tables that are not tables of CQL.
const SERVER_HALF: u128 = 0x6d79_7269_6164_8f00;

/// The tables that CQL shows and clients do not create.
static BUILTIN: LazyLock<BTreeSet<u128>> = LazyLock::new(|| {
    let catalog = builtin();
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.map(|table| table.id.as_u128()).collect()
});

/// The table of the history of replication.
pub(crate) const HISTORY: TableId = TableId(0x6d79_7269_6164_8f00_8000_7265_706c_6963);

/// The table of the peers in a group of masters.
pub(crate) const PEERS: TableId = TableId(0x6d79_7269_6164_8f00_8000_7065_6572_7300);

/// The table with the row that describes this server.
static LOCAL: LazyLock<TableId> =
    LazyLock::new(|| TableId(builtin_table("system", "local").id.as_u128()));

/// Whether the rows of a table are the server's own.
pub(crate) fn is_of_server(table: TableId) -> bool {
    table.0 >> 64 == SERVER_HALF || BUILTIN.contains(&table.0)
}

pub(crate) fn is_local(table: TableId) -> bool {
    table == HISTORY || table == PEERS || table == *LOCAL
}
