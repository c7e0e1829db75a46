//! Keyspaces, tables and types, with all names looked up.
//!
//! A [`Catalog`] never changes: a change of the schema makes a new one, so that a statement sees one
//! schema from its beginning to its end and no reader takes a lock. The truth is in the tables of
//! keyspace `system_schema`, which are stored, logged and recovered like all others.
//!
//! Reading order: `table` and `options` (what a table is), `builtin` (those that are always there),
//! `change` (statements, with `keyspaces`, `tables`, `alter_table`, `user_types` and `indexes`), `row`
//! and `rows` (a schema as rows), `load` (rows as a schema), `stored` and `stored_change` (rows in the
//! store and in the log), `describe` (a schema as statements).

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
mod stored;
mod stored_change;
mod table;
mod tables;
#[cfg(test)]
pub(in crate::cql) mod testing;
mod user_types;

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

pub(in crate::cql) use builtin::builtin_table;
pub use builtin::{
    DATA_CENTER, builtin, is_local_system, is_redis, is_replicated_system, is_system,
    is_virtual_system,
};
pub use change::{Change, ChangeContext, Event, Target, Verb, change, changes_schema};
pub use describe::{DescribeContext, Description, describe};
pub use keyspaces::replication_warning;
pub use load::{LoadError, from_rows};
pub use options::{OptionKind, TABLE_OPTIONS, TIME_TO_LIVE_MAX, TableOption};
pub use row::{Cells, Damaged, ItemCells, ItemRows, RowBuilder, RowId, RowReader, Rows, Values};
pub(in crate::cql) use rows::described_column;
pub use rows::{keyspace_rows, version};
pub(crate) use stored::{LastChange, Loaded, host_id, install, load};
pub(crate) use stored_change::Changer;
pub use table::{
    Column, ColumnKind, DroppedColumn, Index, IndexTarget, Table, TableOptions, TableSource,
};

use super::types::UserType;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The same for the same schema, on every server: clients compare it.
    pub version: Uuid,
    /// The sum of what all rows of the schema hash to: a change computes it from what changed.
    pub fingerprint: u128,
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

    pub fn user_type(&self, keyspace: &str, name: &str) -> Option<&Arc<UserType>> {
        self.keyspace(keyspace)?.types.get(name)
    }

    /// The same with this keyspace in the place of the one of its name.
    fn with_keyspace(&self, keyspace: Keyspace) -> Catalog {
        let mut catalog = self.clone();
        catalog.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        catalog
    }
}

impl Keyspace {
    /// The table that an index is on.
    pub fn indexed_table(&self, index: &str) -> Option<&Arc<Table>> {
        self.tables.values().find(|table| table.indexes.iter().any(|known| known.name == index))
    }

    fn with_table(&self, table: Table) -> Keyspace {
        let mut keyspace = self.clone();
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
        keyspace
    }
}
