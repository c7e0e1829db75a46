//! Keyspaces, tables and types, with resolved names.
//!
//! A [`Catalog`] is immutable: a change of the schema creates a new one, so that a statement sees a
//! single schema and no reader takes a lock. The source of truth is the tables of keyspace
//! `system_schema`, which are stored, logged and recovered like all others.
//!
//! Reading order: `table` and `options` (the parts of a table), `builtin` (built-in tables),
//! `change` (statements, with `keyspaces`, `tables`, `alter_table`, `user_types` and `indexes`),
//! `row` and `rows` (a schema as rows), `load` (rows as a schema) and `unusable` (rows that it
//! sets aside), `describe` (a schema as statements).

mod alter_table;
mod builtin;
mod change;
mod describe;
mod indexes;
mod keyspaces;
mod load;
mod names;
mod options;
mod row;
mod rows;
pub(crate) mod table;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod unusable;
mod user_types;

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

pub use builtin::{DATA_CENTER, builtin, builtin_table, is_system, is_virtual_system};
pub(crate) use builtin::{is_local_system, is_replicated_system};
pub use change::{ChangeContext, Event, Target, Verb, change, changes_schema};
pub use describe::{DescribeContext, describe};
#[cfg(test)]
pub(crate) use indexes::ATTACHED_OPTIONS as INDEX_OPTIONS;
pub use keyspaces::replication_warning;
pub use load::from_rows;
#[cfg(test)]
pub(crate) use options::TABLE_OPTIONS;
pub use row::{Cells, Damaged, ItemCells, ItemRows, RowBuilder, RowId, RowReader, Rows, Values};
pub use rows::{DESCRIBING, SCHEMA, described_column, keyspace_rows};
pub use table::{Column, ColumnKind, Index, IndexTarget, Table, TableSource};
pub use unusable::{Reason, SchemaObject, UnusableRow};

use super::types::UserType;

/// An immutable schema.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Equal for equal schemas on every server: clients compare it.
    pub version: Uuid,
    /// The sum of the hashes of all rows of the schema: a change updates it incrementally.
    pub fingerprint: u128,
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
    /// Stored rows that do not describe anything usable.
    pub unusable: Vec<UnusableRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Keyspace {
    pub name: String,
    /// `class` and its options.
    pub(crate) replication: BTreeMap<String, String>,
    pub(crate) durable_writes: bool,
    pub tables: BTreeMap<String, Arc<Table>>,
    pub(crate) types: BTreeMap<String, Arc<UserType>>,
}

impl Catalog {
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    pub fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.keyspace(keyspace)?.tables.get(name)
    }

    /// A copy in which this keyspace replaces the one of its name.
    fn with_keyspace(&self, keyspace: Keyspace) -> Catalog {
        let mut catalog = self.clone();
        catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        catalog
    }
}

impl Keyspace {
    /// The table of an index.
    pub(crate) fn indexed_table(&self, index: &str) -> Option<&Arc<Table>> {
        self.tables.values().find(|table| table.indexes.iter().any(|known| known.name == index))
    }

    fn with_table(&self, table: Table) -> Keyspace {
        let mut keyspace = self.clone();
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        keyspace
    }
}
