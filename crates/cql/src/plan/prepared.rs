//! Statements that can be run any number of times.

use std::sync::Arc;

use md5::{Digest, Md5};
use wire::cql::{Column, Columns, Prepared};

use super::Plan;
use crate::expression::Marker;
use crate::schema::Catalog;
use crate::statements::hashes_password;

/// The columns of a result, or the markers of a statement, as clients are told of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    pub(crate) keyspace: String,
    pub(crate) table: String,
    pub columns: Vec<Column>,
}

impl Description {
    pub fn columns(&self) -> Columns<'_> {
        Columns { keyspace: &self.keyspace, table: &self.table, columns: &self.columns }
    }
}

/// A statement that can be run any number of times, by any reactor.
#[derive(Debug)]
pub struct PreparedStatement {
    pub id: [u8; 16],
    pub text: String,
    /// The keyspace that names without one were looked up in.
    pub keyspace: Option<String>,
    /// Whether all names have their own keyspaces: the statement is then the same whichever one is in
    /// use, `keyspace` is none, and so is the keyspace of its id.
    pub is_qualified: bool,
    pub markers: Description,
    /// The types of the values that must come with a request.
    pub values: Vec<Marker>,
    /// Which markers make up the partition key, in its order; empty if not all are markers.
    pub partition_key: Vec<u16>,
    /// None for statements that give no rows.
    pub result: Option<Description>,
    /// Says which columns `result` has.
    pub result_metadata_id: [u8; 16],
    pub plan: Plan,
    /// The schema that it was planned against.
    pub catalog: Arc<Catalog>,
}

impl PreparedStatement {
    /// Whether nothing that it depends on has changed since. One comparison unless the schema has
    /// changed.
    pub fn is_current(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) || self.plan.is_current(catalog)
    }

    /// Whether it takes tens of milliseconds.
    pub fn takes_long(&self) -> bool {
        match &self.plan {
            Plan::Other(statement) => hashes_password(statement).is_some(),
            _ => false,
        }
    }

    /// The answer to PREPARE.
    pub fn reply(&self) -> Prepared<'_> {
        Prepared {
            id: &self.id,
            result_metadata_id: &self.result_metadata_id,
            markers: self.markers.columns(),
            partition_key: &self.partition_key,
            result: self.result.as_ref().map(Description::columns),
        }
    }
}

/// The name of a prepared statement: the same on every server and in every life of it.
// Source: Cassandra 5.0, QueryProcessor.computeId
pub fn statement_id(text: &str, keyspace: Option<&str>) -> [u8; 16] {
    let mut hash = Md5::new();
    hash.update(keyspace.unwrap_or_default());
    hash.update(text);
    hash.finalize().into()
}
