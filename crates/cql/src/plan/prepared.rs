//! Prepared statements.

use std::sync::Arc;

use md5::{Digest, Md5};
use wire::cql::{Column, Columns, Prepared};

use super::Plan;
use crate::expression::Marker;
use crate::schema::Catalog;
use crate::statements::hashes_password;

/// The columns of a result, or the markers of a statement, as described to clients.
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

/// A statement that any reactor can execute any number of times.
#[derive(Debug)]
pub struct PreparedStatement {
    pub id: [u8; 16],
    pub text: String,
    /// The keyspace in which unqualified names were resolved.
    pub keyspace: Option<String>,
    /// Whether all names are qualified: the statement then does not depend on the keyspace in use,
    /// and neither `keyspace` nor the statement's id contains one.
    pub is_qualified: bool,
    pub markers: Description,
    /// The types of the values that a request must contain.
    pub values: Vec<Marker>,
    /// The markers that make up the partition key, in key order; empty if a part is not a marker.
    pub partition_key: Vec<u16>,
    /// None for statements without rows as a result.
    pub result: Option<Description>,
    /// Identifies the columns of `result`.
    pub result_metadata_id: [u8; 16],
    pub plan: Plan,
    /// The schema used for planning.
    pub catalog: Arc<Catalog>,
}

impl PreparedStatement {
    /// Whether its dependencies are unchanged. One comparison unless the schema has changed.
    pub fn is_current(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog) || self.plan.is_current(catalog)
    }

    /// Whether its execution takes tens of milliseconds.
    pub fn is_expensive(&self) -> bool {
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

/// The id of a prepared statement: equal on every server and after a restart.
// Source: Cassandra 5.0, QueryProcessor.computeId
pub fn statement_id(text: &str, keyspace: Option<&str>) -> [u8; 16] {
    let mut hash = Md5::new();
    hash.update(keyspace.unwrap_or_default());
    hash.update(text);
    hash.finalize().into()
}
