//! BEGIN BATCH with all names resolved, and the rules for the contents of batches.

use super::planner::Planner;
use super::write::{NO_TIMESTAMPS, WritePlan};
use crate::error::CqlError;
use crate::expression::Expression;
use crate::schema::TableSource;
use crate::statements::{Batch, BatchKind, Statement};
use crate::types::CqlType;

/// A batch with all names resolved.
#[derive(Debug)]
pub struct BatchPlan {
    pub kind: BatchKind,
    pub timestamp: Option<Expression>,
    pub writes: Vec<WritePlan>,
}

impl BatchPlan {
    pub(super) fn new(batch: &Batch, planner: &mut Planner<'_>) -> Result<BatchPlan, CqlError> {
        let mut writes = Vec::with_capacity(batch.statements.len());
        for statement in &batch.statements {
            writes.push(match statement {
                Statement::Insert(insert) => WritePlan::of_insert(insert, planner)?,
                Statement::Update(update) => WritePlan::of_update(update, planner)?,
                Statement::Delete(delete) => WritePlan::of_delete(delete, planner)?,
                _ => return Err(CqlError::invalid(NOT_A_WRITE)),
            });
        }
        let timestamp = match (&batch.using.timestamp, writes.first()) {
            (Some(term), Some(write)) => {
                let table = std::sync::Arc::clone(&write.table);
                Some(planner.term(&table, term, &CqlType::BIGINT, "[timestamp]")?)
            }
            _ => None,
        };
        let plan = BatchPlan { kind: batch.kind, timestamp, writes };
        check_batch(plan.kind, plan.timestamp.is_some(), plan.writes.iter())?;
        Ok(plan)
    }
}

pub const NOT_A_WRITE: &str =
    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.";

/// Checks which statements a batch may combine.
// Source: Cassandra 5.0, BatchStatement.validate
pub fn check_batch<'p>(
    kind: BatchKind,
    has_timestamp: bool,
    writes: impl Iterator<Item = &'p WritePlan> + Clone,
) -> Result<(), CqlError> {
    let has_counters = writes.clone().any(|write| write.is_counter);
    let has_others = writes.clone().any(|write| !write.is_counter);
    let has_conditions = writes.clone().any(WritePlan::is_conditional);
    let own_timestamp = writes.clone().any(|write| write.timestamp.is_some());
    let refuse = |message: &str| Err(CqlError::invalid(message));
    if has_timestamp {
        if has_conditions {
            return refuse("Cannot provide custom timestamp for conditional BATCH");
        }
        if has_counters || kind == BatchKind::Counter {
            return refuse("Cannot provide custom timestamp for counter BATCH");
        }
        if writes.clone().any(|write| write.table.source == TableSource::Redis) {
            return refuse(NO_TIMESTAMPS);
        }
        if own_timestamp {
            return refuse("Timestamp must be set either on BATCH or individual statements");
        }
    }
    match kind {
        BatchKind::Counter if has_others => {
            return refuse("Cannot include non-counter statement in a counter batch");
        }
        BatchKind::Logged if has_counters => {
            return refuse("Cannot include a counter statement in a logged batch");
        }
        _ => {}
    }
    if has_counters && has_others {
        return refuse("Counter and non-counter mutations cannot exist in the same batch");
    }
    if has_conditions {
        let mut tables = writes.map(|write| write.table.id);
        let first = tables.next();
        if tables.any(|id| Some(id) != first) {
            return refuse("Batch with conditions cannot span multiple tables");
        }
    }
    Ok(())
}
