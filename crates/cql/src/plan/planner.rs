//! The inputs of planning: the schema, and the markers found so far.

use std::sync::Arc;

use crate::error::CqlError;
use crate::expression::{Expression, Markers, TermContext, bind_term};
use crate::parser::{QualifiedName, quoted_if_needed};
use crate::schema::{Catalog, Column, Table};
use crate::term::Term;
use crate::types::CqlType;

/// The state of planning a statement.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    pub(super) catalog: &'a Catalog,
    /// The keyspace of unqualified names.
    pub(super) keyspace: Option<&'a str>,
    pub(super) markers: Markers,
}

impl Planner<'_> {
    // Source: Cassandra 5.0, Schema.validateTable and QualifiedStatement.setKeyspace
    pub(super) fn table(&self, name: &QualifiedName) -> Result<Arc<Table>, CqlError> {
        let keyspace = name.keyspace.as_deref().or(self.keyspace).ok_or_else(|| {
            CqlError::invalid(
                "No keyspace has been specified. USE a keyspace, or explicitly specify \
                 keyspace.tablename",
            )
        })?;
        let Some(found) = self.catalog.keyspace(keyspace) else {
            return Err(CqlError::invalid(format!("keyspace {keyspace} does not exist")));
        };
        let table = found.tables.get(&name.name).cloned();
        table.ok_or_else(|| CqlError::invalid(format!("table {} does not exist", name.name)))
    }

    /// Types a term of a statement on this table for its receiver.
    pub(super) fn term(
        &mut self,
        table: &Table,
        term: &Term,
        of: &CqlType,
        name: &str,
    ) -> Result<Expression, CqlError> {
        bind_term(term, of, name, &mut self.terms(table))
    }

    /// Types the value of a column.
    pub(super) fn value(
        &mut self,
        table: &Table,
        term: &Term,
        column: &Column,
    ) -> Result<Expression, CqlError> {
        self.term(table, term, &column.column_type, &column.name)
    }

    pub(super) fn terms<'b>(&'b mut self, table: &'b Table) -> TermContext<'b> {
        TermContext {
            catalog: self.catalog,
            keyspace: &table.keyspace,
            table: Some(table),
            markers: &mut self.markers,
        }
    }
}

/// The index of a column in its table.
pub(super) fn column_index(table: &Table, name: &str) -> Result<usize, CqlError> {
    table.columns.iter().position(|column| column.name == name).ok_or_else(|| {
        CqlError::invalid(format!(
            "Undefined column name {} in table {}.{}",
            quoted_if_needed(name),
            table.keyspace,
            table.name
        ))
    })
}

/// Names separated by commas, as in messages.
pub(super) fn names<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    let names: Vec<&str> = columns.into_iter().map(|column| column.name.as_str()).collect();
    names.join(", ")
}
