//! Keyspaces, tables and types, with all names looked up.
//!
//! A [`Catalog`] never changes: a change of the schema makes a new one, so that a statement sees one
//! schema from its beginning to its end and no reader takes a lock. The truth is in the tables of
//! keyspace `system_schema`, which are stored, logged and recovered like all others.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

pub use table::{Column, ColumnKind, Index, IndexTarget, Table, TableOptions, TableSource};

use super::types::UserType;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The same for the same schema, on every server: clients compare it.
    pub version: Uuid,
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Keyspace {
    pub name: String,
    /// `class` and what it is told.
    pub replication: BTreeMap<String, String>,
    pub durable_writes: bool,
    pub tables: BTreeMap<String, Arc<Table>>,
    pub types: BTreeMap<String, Arc<UserType>>,
}

impl Catalog {
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.keyspace(keyspace)?.tables.get(name)
    }
}
