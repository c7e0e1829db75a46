//! Statements with all names looked up and all types known.

use std::sync::Arc;

use super::engine::{Description, PreparedStatement, statement_id};
use super::error::CqlError;
use super::schema::Catalog;
use super::statements::{self, Statement, UseKeyspace};

/// What running a statement means.
#[derive(Debug)]
pub(crate) enum Plan {
    Use(String),
}

impl Plan {
    /// Whether it means the same with this schema.
    pub(crate) fn is_current(&self, catalog: &Catalog) -> bool {
        match self {
            Plan::Use(keyspace) => catalog.keyspace(keyspace).is_some(),
        }
    }
}

impl PreparedStatement {
    pub(crate) fn new(
        text: &str,
        keyspace: Option<&str>,
        catalog: Arc<Catalog>,
    ) -> Result<PreparedStatement, CqlError> {
        let parsed =
            statements::parse(text).map_err(|error| CqlError::Syntax(error.to_string()))?;
        let plan = match parsed.statement {
            Statement::Use(statement) => use_keyspace(statement, &catalog)?,
            _ => return Err(CqlError::invalid("This statement is not supported")),
        };
        Ok(PreparedStatement {
            id: statement_id(text, keyspace),
            text: text.to_owned(),
            keyspace: keyspace.map(str::to_owned),
            markers: Description::default(),
            partition_key: Vec::new(),
            result: None,
            result_metadata_id: [0; 16],
            plan,
            catalog,
        })
    }
}

// Source: Cassandra 5.0, ClientState.setKeyspace
fn use_keyspace(statement: UseKeyspace, catalog: &Catalog) -> Result<Plan, CqlError> {
    if catalog.keyspace(&statement.keyspace).is_none() {
        return Err(CqlError::invalid(format!("Keyspace '{}' does not exist", statement.keyspace)));
    }
    Ok(Plan::Use(statement.keyspace))
}
