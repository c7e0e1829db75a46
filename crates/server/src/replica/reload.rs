//! What the server keeps copies of in memory: the CQL schema, roles, and libraries of functions.

use cql::roles;
use cql::schema::{DESCRIBING, SCHEMA, builtin_table};
use std::sync::{Arc, LazyLock};
use store::{Params, TableId};

use crate::commands::scripting::load_stored;
use crate::engine::functions;
use crate::handler::State;
use crate::statements::execute::install_indexes;
use crate::statements::stored_schema;

/// Tables whose rows the server keeps copies of.
static CACHED: LazyLock<Vec<TableId>> = LazyLock::new(|| {
    let schema = DESCRIBING.map(|name| builtin_table(SCHEMA, name));
    let roles = roles::TABLES.map(|name| builtin_table("system_auth", name));
    let tables = schema.iter().chain(&roles);
    let mut ids: Vec<TableId> = tables.map(|table| TableId(table.id.as_u128())).collect();
    ids.push(functions::STORED.table);
    ids
});

pub(super) fn is_cached(table: TableId) -> bool {
    CACHED.contains(&table)
}

/// Reads them from the data again.
pub(super) fn reload(state: &State, params: &Params) -> Result<(), String> {
    let shared = &state.shared;
    let loaded =
        stored_schema::load(&shared.keyspace, params).map_err(|error| error.to_string())?;
    state.statements.schema.replace(loaded.last_change);
    stored_schema::report_unusable(&loaded.catalog, shared.hub.is_copying());
    install_indexes(&loaded.catalog, &shared.keyspace);
    shared.catalog.store(Arc::new(loaded.catalog));
    shared.roles.store(Arc::new(loaded.roles));
    load_stored(shared, params.now());
    Ok(())
}
