//! Schemas for tests, created by statements.

use std::sync::Arc;

use uuid::Uuid;

use super::change::Change;
use super::row::Rows;
use super::{Catalog, ChangeContext, builtin, change, keyspace_rows};
use crate::error::CqlError;
use crate::statements::parse;

/// The effect of a statement with keyspace `k` in use. Ids of tables are derived from the version.
pub(crate) fn try_change(catalog: &Catalog, text: &str) -> Result<Option<Change>, CqlError> {
    try_change_in(None, catalog, text)
}

/// Like [`try_change`], on the server with a number in a group of masters.
pub(crate) fn try_change_in(
    server: Option<u16>,
    catalog: &Catalog,
    text: &str,
) -> Result<Option<Change>, CqlError> {
    let statement = parse(text).map_err(|error| CqlError::Syntax(error.to_string()))?.statement;
    let table_id = Uuid::from_u128(catalog.fingerprint ^ u128::from(server.unwrap_or(0) + 1));
    let timestamp = 1_700_000_000_000_000;
    let cx =
        ChangeContext { keyspace: Some("k"), table_id, timestamp, is_in_group: server.is_some() };
    change(catalog, &statement, &cx)
}

/// The schema after these statements in keyspace `k`, all of which must succeed.
pub(crate) fn catalog(statements: &[&str]) -> Arc<Catalog> {
    let keyspace = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy'}";
    let statements = std::iter::once(&keyspace).chain(statements);
    statements.fold(builtin(), |catalog, text| match try_change(&catalog, text) {
        Ok(Some(change)) => change.catalog,
        other => panic!("{text}: {other:?}"),
    })
}

pub(crate) fn all_rows(catalog: &Catalog) -> Rows {
    catalog.keyspaces.values().flat_map(|keyspace| keyspace_rows(keyspace)).collect()
}

/// Applies a change to rows.
pub(crate) fn apply(rows: &mut Rows, change: &Change) {
    for gone in &change.deleted {
        rows.retain(|id, _| match &gone.clustering {
            Some(_) => id != gone,
            None => id.table != gone.table || id.partition != gone.partition,
        });
    }
    rows.extend(change.written.clone());
}
