//! What a statement does to the schema.
//!
//! [`change`] is pure: it takes a catalog and gives a new one, with the difference between the two as
//! rows of `system_schema`. Whoever calls it holds the lock of the schema, puts rows and truncations
//! on the log as one record, and publishes the catalog.

use std::sync::Arc;

use uuid::Uuid;
use wire::cql::{SchemaChange, SchemaTarget};

use super::row::{RowId, Rows};
use super::rows::{difference, version};
use super::{Catalog, alter_table, indexes, keyspaces, tables, user_types};
use crate::cql::error::CqlError;
use crate::cql::statements::{Dropped, Statement};

/// What is known where a statement is carried out.
#[derive(Debug, Clone, Copy)]
pub struct ChangeContext<'a> {
    /// The keyspace in use: of names that say none.
    pub keyspace: Option<&'a str>,
    /// Of a table that is made, unless the statement says one.
    pub table_id: Uuid,
    /// Microseconds since the epoch, later than every change before: when columns were dropped.
    pub timestamp: i64,
}

/// A change of the schema that has not been written.
#[derive(Debug, Clone)]
pub struct Change {
    pub catalog: Arc<Catalog>,
    /// Rows as they are from now on: cells that they had and have no longer must be deleted.
    pub written: Rows,
    pub deleted: Vec<RowId>,
    /// Tables whose partitions go.
    pub truncated: Vec<Uuid>,
    pub event: Event,
}

/// What clients are told of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub verb: Verb,
    pub keyspace: String,
    pub target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Created,
    Updated,
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Keyspace,
    Table(String),
    Type(String),
}

impl Event {
    pub fn wire(&self) -> SchemaChange<'_> {
        let keyspace = self.keyspace.as_str();
        let target = match &self.target {
            Target::Keyspace => SchemaTarget::Keyspace(keyspace),
            Target::Table(name) => SchemaTarget::Table { keyspace, name },
            Target::Type(name) => SchemaTarget::Type { keyspace, name },
        };
        let change = match self.verb {
            Verb::Created => "CREATED",
            Verb::Updated => "UPDATED",
            Verb::Dropped => "DROPPED",
        };
        SchemaChange { change, target }
    }
}

/// The catalog after a statement, and what clients are told. None: IF (NOT) EXISTS, and nothing is
/// to be done.
pub(super) type Outcome = Result<Option<(Catalog, Event)>, CqlError>;

/// Carries out a statement on the schema. None: there was nothing to do, and the reply says nothing.
pub fn change(
    catalog: &Catalog,
    statement: &Statement,
    cx: &ChangeContext<'_>,
) -> Result<Option<Change>, CqlError> {
    let outcome = match statement {
        Statement::CreateKeyspace(create) => keyspaces::create(catalog, create),
        Statement::AlterKeyspace(alter) => keyspaces::alter(catalog, alter),
        Statement::CreateTable(create) => tables::create(catalog, create, cx),
        Statement::AlterTable(alter) => alter_table::alter(catalog, alter, cx),
        Statement::CreateType(create) => user_types::create(catalog, create, cx),
        Statement::AlterType(alter) => user_types::alter(catalog, alter, cx),
        Statement::CreateIndex(create) => indexes::create(catalog, create, cx),
        Statement::Drop(drop) => match &drop.what {
            Dropped::Keyspace(name) => keyspaces::drop(catalog, name, drop.if_exists),
            Dropped::Table(name) => tables::drop(catalog, name, drop.if_exists, cx),
            Dropped::Type(name) => user_types::drop(catalog, name, drop.if_exists, cx),
            Dropped::Index(name) => indexes::drop(catalog, name, drop.if_exists, cx),
            Dropped::Role(_) => return Err(no_change()),
        },
        _ => return Err(no_change()),
    };
    let Some((mut after, event)) = outcome? else { return Ok(None) };
    let found = difference(catalog, &after);
    after.fingerprint = catalog.fingerprint.wrapping_add(found.fingerprint);
    after.version = version(after.fingerprint);
    Ok(Some(Change {
        catalog: Arc::new(after),
        written: found.written,
        deleted: found.deleted,
        truncated: found.truncated,
        event,
    }))
}

/// Whether [`change`] carries the statement out.
pub fn changes_schema(statement: &Statement) -> bool {
    match statement {
        Statement::CreateKeyspace(_)
        | Statement::AlterKeyspace(_)
        | Statement::CreateTable(_)
        | Statement::AlterTable(_)
        | Statement::CreateType(_)
        | Statement::AlterType(_)
        | Statement::CreateIndex(_) => true,
        Statement::Drop(drop) => !matches!(drop.what, Dropped::Role(_)),
        _ => false,
    }
}

fn no_change() -> CqlError {
    CqlError::Server("the statement does not change the schema".into())
}
