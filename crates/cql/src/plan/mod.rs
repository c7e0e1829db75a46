//! Statements with resolved names and known types.
//!
//! Reading order: `planner` (schema and markers), `restrictions` with `relations`, `clustering` and
//! `lookups` (WHERE), `selection` and `select` (SELECT), `assign`, `conditions` and `write` (INSERT, UPDATE,
//! DELETE), `batch`.

mod assign;
mod batch;
mod clustering;
mod conditions;
mod lookups;
mod names;
mod planner;
pub mod prepared;
mod relations;
mod restrictions;
mod select;
mod selection;
mod write;

use std::sync::Arc;

use md5::{Digest, Md5};
use wire::cql::{Column as Shown, Notation, TooLong, Version};

pub use assign::Operation;
pub use batch::{BatchPlan, NOT_A_WRITE, check_batch};
pub use conditions::{ConditionPart, ConditionPlan, ConditionsPlan};
pub use lookups::IndexedRestriction;
pub use restrictions::{
    Choices, ClusteringRestriction, Edge, Filter, FilterPart, PartitionRestriction, Tokens,
};
pub use select::SelectPlan;
pub use selection::{Extra, ExtraKind, Shows};
pub use write::{Target, WritePlan};

use self::prepared::{Description, PreparedStatement, statement_id};
use super::error::CqlError;
use super::expression::{Expression, Marker, Markers};
use super::schema::{Catalog, Column, Table, TableSource};
use super::statements::{self, Statement};
use planner::Planner;

/// The executable form of a statement.
#[derive(Debug)]
pub enum Plan {
    Use(String),
    Select(Box<SelectPlan>),
    Write(Box<WritePlan>),
    Batch(BatchPlan),
    Truncate(Arc<Table>),
    /// Definitions, roles and DESCRIBE, whose names are resolved at execution.
    Other(Box<Statement>),
}

impl Plan {
    /// Whether the statement may change data, the schema or roles.
    pub fn may_write(&self) -> bool {
        match self {
            Plan::Use(_) | Plan::Select(_) => false,
            Plan::Write(_) | Plan::Batch(_) | Plan::Truncate(_) => true,
            Plan::Other(statement) => {
                !matches!(**statement, Statement::Describe(_) | Statement::List(_))
            }
        }
    }

    /// Whether the plan is still valid for this schema.
    pub(crate) fn is_current(&self, catalog: &Catalog) -> bool {
        let is_current = |table: &Arc<Table>| {
            let now = catalog.table(&table.keyspace, &table.name);
            now.is_some_and(|now| Arc::ptr_eq(now, table))
        };
        match self {
            Plan::Use(keyspace) => catalog.keyspace(keyspace).is_some(),
            Plan::Select(plan) => is_current(&plan.table),
            Plan::Write(plan) => is_current(&plan.table),
            Plan::Batch(plan) => plan.writes.iter().all(|write| is_current(&write.table)),
            Plan::Truncate(table) => is_current(table),
            Plan::Other(_) => true,
        }
    }

    /// The table described to clients, if it is a single one.
    fn table(&self) -> Option<&Table> {
        match self {
            Plan::Select(plan) => Some(&plan.table),
            Plan::Write(plan) => Some(&plan.table),
            Plan::Batch(plan) => plan.writes.first().map(|write| &*write.table),
            Plan::Truncate(table) => Some(table),
            Plan::Use(_) | Plan::Other(_) => None,
        }
    }

    /// The markers of the partition key's columns, if each column has one; of several the last.
    // Source: Cassandra 5.0, VariableSpecifications.getPartitionKeyBindVariableIndexes,
    // ResultSet.PreparedMetadata and BatchStatement
    fn partition_key(&self, markers: &[Marker]) -> Vec<u16> {
        let Some(table) = self.table().filter(|table| self.is_of_one(table)) else {
            return Vec::new();
        };
        let marker = |column: &Column| {
            let position = markers.iter().rposition(|marker| marker.receiver == column.name);
            position.and_then(|position| u16::try_from(position).ok())
        };
        table.partition_key().iter().map(marker).collect::<Option<_>>().unwrap_or_default()
    }

    /// Whether all markers belong to this table. The timestamp of a batch belongs to no table.
    fn is_of_one(&self, table: &Table) -> bool {
        let Plan::Batch(batch) = self else { return true };
        let is_same = |write: &WritePlan| {
            write.table.keyspace == table.keyspace && write.table.name == table.name
        };
        !batch.timestamp.as_ref().is_some_and(Expression::has_marker)
            && batch.writes.iter().all(is_same)
    }
}

impl PreparedStatement {
    pub fn new(
        text: &str,
        keyspace: Option<&str>,
        catalog: Arc<Catalog>,
    ) -> Result<PreparedStatement, CqlError> {
        let parsed =
            statements::parse(text).map_err(|error| CqlError::Syntax(error.to_string()))?;
        // Source: Cassandra 5.0, QueryProcessor.prepare
        let is_qualified = is_qualified(&parsed.statement);
        let keyspace = keyspace.filter(|_| !is_qualified);
        let markers = Markers::new(parsed.markers);
        let mut planner = Planner { catalog: &catalog, keyspace, markers };
        let (plan, result) = plan(parsed.statement, &mut planner)?;
        let markers = planner
            .markers
            .finish()
            .ok_or_else(|| CqlError::invalid("Cannot infer the type of a bind variable"))?;
        check_lengths(&markers, result.as_deref().unwrap_or_default())?;
        let describe = |columns: Vec<Shown>| {
            let table = plan.table();
            Description {
                keyspace: table.map(|table| table.keyspace.clone()).unwrap_or_default(),
                table: table.map(|table| table.name.clone()).unwrap_or_default(),
                columns,
            }
        };
        let shown = markers
            .iter()
            .map(|marker| Shown { name: marker.name.clone(), column_type: marker.of.wire() });
        let shown = describe(shown.collect());
        let result = result.map(describe);
        Ok(PreparedStatement {
            id: statement_id(text, keyspace),
            text: text.to_owned(),
            keyspace: keyspace.map(str::to_owned),
            is_qualified,
            result_metadata_id: result_metadata_id(result.as_ref())?,
            partition_key: plan.partition_key(&markers),
            markers: shown,
            values: markers,
            result,
            plan,
            catalog,
        })
    }
}

/// Whether all tables are qualified with their keyspaces.
// Source: Cassandra 5.0, QualifiedStatement.isFullyQualified
fn is_qualified(statement: &Statement) -> bool {
    let table = match statement {
        Statement::Select(select) => &select.table,
        Statement::Insert(insert) => &insert.table,
        Statement::Update(update) => &update.table,
        Statement::Delete(delete) => &delete.table,
        Statement::Truncate(truncate) => &truncate.table,
        Statement::Batch(batch) => return batch.statements.iter().all(is_qualified),
        _ => return false,
    };
    table.keyspace.is_some()
}

/// The protocol stores the number of bind variables, and the lengths of names, in 16 bits.
fn check_lengths(markers: &[Marker], shown: &[Shown]) -> Result<(), CqlError> {
    const MAX: usize = u16::MAX as usize;
    if markers.len() > MAX {
        return Err(CqlError::invalid(format!("A statement has at most {MAX} bind variables")));
    }
    let mut names = markers.iter().map(|marker| &marker.name);
    if names.any(|name| name.len() > MAX) || shown.iter().any(|column| column.name.len() > MAX) {
        return Err(CqlError::invalid(format!("A name has more than {MAX} bytes")));
    }
    if shown.len() > MAX {
        return Err(CqlError::invalid(format!("A result has at most {MAX} columns")));
    }
    Ok(())
}

fn plan(
    statement: Statement,
    planner: &mut Planner<'_>,
) -> Result<(Plan, Option<Vec<Shown>>), CqlError> {
    let plan = match statement {
        Statement::Select(select) => {
            let (plan, shown) = SelectPlan::new(&select, planner)?;
            return Ok((Plan::Select(Box::new(plan)), Some(shown)));
        }
        Statement::Insert(insert) => Plan::Write(Box::new(WritePlan::of_insert(&insert, planner)?)),
        Statement::Update(update) => Plan::Write(Box::new(WritePlan::of_update(&update, planner)?)),
        Statement::Delete(delete) => Plan::Write(Box::new(WritePlan::of_delete(&delete, planner)?)),
        Statement::Batch(batch) => Plan::Batch(BatchPlan::new(&batch, planner)?),
        Statement::Truncate(truncate) => {
            let table = planner.table(&truncate.table)?;
            write::check_writable(&table)?;
            if table.source == TableSource::Redis {
                return Err(CqlError::invalid(format!(
                    "Truncation is not supported by table {}.{}",
                    table.keyspace, table.name
                )));
            }
            Plan::Truncate(table)
        }
        Statement::Use(statement) => {
            // Source: Cassandra 5.0, ClientState.setKeyspace
            let keyspace = statement.keyspace;
            if planner.catalog.keyspace(&keyspace).is_none() {
                return Err(CqlError::invalid(format!("Keyspace '{keyspace}' does not exist")));
            }
            Plan::Use(keyspace)
        }
        other => Plan::Other(Box::new(other)),
    };
    Ok((plan, None))
}

/// A hash of a result's names and types, which clients store with the columns' metadata.
///
/// Fails if the columns cannot be described to a client.
fn result_metadata_id(result: Option<&Description>) -> Result<[u8; 16], TooLong> {
    let mut bytes = Vec::new();
    for column in result.iter().flat_map(|result| &result.columns) {
        bytes.put_string(&column.name)?;
        column.column_type.encode(Version::GREATEST, &mut bytes)?;
    }
    let mut hash = Md5::new();
    hash.update(&bytes);
    Ok(hash.finalize().into())
}
