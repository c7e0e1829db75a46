//! Tables whose rows describe this server alone: they are in no stream. The identifiers are part of
//! the log's format; no table of CQL has one of them, since their version is not that of generated
//! ones.

use std::sync::LazyLock;

use cql::schema::builtin_table;
use store::TableId;

/// The table of the history of replication.
pub(crate) const HISTORY: TableId = TableId(0x6d79_7269_6164_8f00_8000_7265_706c_6963);

/// The table of the peers in a group of masters.
pub(crate) const PEERS: TableId = TableId(0x6d79_7269_6164_8f00_8000_7065_6572_7300);

/// The table with the row that describes this server.
static LOCAL: LazyLock<TableId> =
    LazyLock::new(|| TableId(builtin_table("system", "local").id.as_u128()));

pub(crate) fn is_local(table: TableId) -> bool {
    table == HISTORY || table == PEERS || table == *LOCAL
}
