//! INSERT, UPDATE and DELETE with all names resolved.

use std::sync::Arc;

use super::assign::{self, Operation};
use super::clustering::missing;
use super::conditions::ConditionsPlan;
use super::planner::{Planner, column_index};
use super::restrictions::{
    Choices, ClusteringRestriction, Kind, PartitionRestriction, Restrictions,
};
use crate::error::CqlError;
use crate::expression::Expression;
use crate::schema::{Column, ColumnKind, Table, TableSource, is_local_system};
use crate::statements::{Delete, Insert, InsertedRow, Update, Using};
use crate::term::Term;
use crate::types::CqlType;

/// A write with all names resolved.
#[derive(Debug)]
pub struct WritePlan {
    pub table: Arc<Table>,
    pub restrictions: Restrictions,
    pub target: Target,
    pub operations: Vec<Operation>,
    /// INSERT: the row exists even if all its cells are null.
    pub inserts_row: bool,
    pub timestamp: Option<Expression>,
    pub ttl: Option<Expression>,
    pub conditions: ConditionsPlan,
    /// INSERT JSON: the columns' values are in this document.
    pub json: Option<JsonRow>,
    pub is_counter: bool,
}

/// The part of a partition that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Cells of the rows selected by the restrictions, and of the static row.
    Cells,
    /// Like [`Target::Cells`] without a selected row: only static cells.
    Statics,
    /// Whole rows, or ranges of them, are deleted.
    Rows,
    /// The whole partition is deleted.
    Partition,
    /// Cells of a range of rows, which is rejected at execution.
    CellsOfRange,
}

#[derive(Debug)]
pub struct JsonRow {
    pub document: Expression,
    /// Whether columns not named in the document keep their values.
    pub default_unset: bool,
}

/// Parts that all three kinds of statements have.
struct Parts {
    restrictions: Restrictions,
    target: Target,
    operations: Vec<Operation>,
    using: Times,
    conditions: ConditionsPlan,
}

/// The USING clause.
struct Times {
    timestamp: Option<Expression>,
    ttl: Option<Expression>,
}

impl WritePlan {
    /// Whether the write removes rows or values and adds none: DELETE, and UPDATE that only removes
    /// items.
    pub fn only_deletes(&self) -> bool {
        match self.target {
            Target::Rows | Target::Partition => true,
            Target::Cells | Target::CellsOfRange | Target::Statics => {
                !self.inserts_row && self.operations.iter().all(Operation::deletes)
            }
        }
    }

    /// A write that does not insert a row marker.
    fn new(table: Arc<Table>, parts: Parts) -> WritePlan {
        let Parts { restrictions, target, operations, using, conditions } = parts;
        let Times { timestamp, ttl } = using;
        let is_counter = table.is_counter();
        WritePlan {
            table,
            restrictions,
            target,
            operations,
            inserts_row: false,
            timestamp,
            ttl,
            conditions,
            json: None,
            is_counter,
        }
    }

    pub fn is_conditional(&self) -> bool {
        !matches!(self.conditions, ConditionsPlan::None)
    }

    /// Whether it concerns rows, and not only static cells.
    // Source: Cassandra 5.0, ModificationStatement.updatesRegularRows
    pub fn updates_rows(&self) -> bool {
        self.table.clustering().is_empty() || !self.restrictions.clustering.is_empty()
    }

    pub fn updates_statics(&self) -> bool {
        self.operations.iter().any(|operation| operation.is_static(&self.table))
    }

    /// Whether it is a DELETE.
    pub fn is_deletion(&self) -> bool {
        match self.target {
            Target::Rows | Target::Partition | Target::CellsOfRange => true,
            Target::Cells | Target::Statics => self.operations.iter().any(|operation| {
                matches!(
                    operation,
                    Operation::Delete { .. }
                        | Operation::DeleteField { .. }
                        | Operation::DeleteEntry { .. }
                        | Operation::DeleteItem { .. }
                )
            }),
        }
    }

    /// Whether it selects rows by IN.
    pub fn names_rows_by_in(&self) -> bool {
        self.restrictions.clustering.iter().any(|restriction| {
            matches!(
                restriction,
                ClusteringRestriction::Values {
                    choices: Choices::Several(_) | Choices::List(_),
                    ..
                }
            )
        })
    }

    pub(super) fn of_insert(
        insert: &Insert,
        planner: &mut Planner<'_>,
    ) -> Result<WritePlan, CqlError> {
        let table = planner.table(&insert.table)?;
        check_writable(&table)?;
        if table.is_counter() {
            return Err(CqlError::invalid(
                "INSERT statements are not allowed on counter tables, use UPDATE instead",
            ));
        }
        let conditions =
            if insert.if_not_exists { ConditionsPlan::NotExists } else { ConditionsPlan::None };
        let (restrictions, operations, json) = match &insert.row {
            InsertedRow::Values { columns, values } => {
                let (restrictions, operations) = insert_values(columns, values, &table, planner)?;
                (restrictions, operations, None)
            }
            InsertedRow::Json { document, default_unset } => {
                let document = planner.term(&table, document, &CqlType::TEXT, "[json]")?;
                let json = JsonRow { document, default_unset: *default_unset };
                let (restrictions, operations) = json_values(&table);
                (restrictions, operations, Some(json))
            }
        };
        let sets_rows = operations.iter().any(|operation| !operation.is_static(&table));
        let names_row = restrictions.names_row(&table);
        if !names_row && (sets_rows || operations.is_empty() || !restrictions.clustering.is_empty())
        {
            return Err(missing(&table.clustering()[restrictions.clustering.len()..]));
        }
        let using = plan_using(&insert.using, &table, planner)?;
        let target = if names_row { Target::Cells } else { Target::Statics };
        let parts = Parts { restrictions, target, operations, using, conditions };
        let plan = WritePlan::new(table, parts);
        WritePlan { inserts_row: names_row, json, ..plan }.check("INSERT")
    }

    pub(super) fn of_update(
        update: &Update,
        planner: &mut Planner<'_>,
    ) -> Result<WritePlan, CqlError> {
        let table = planner.table(&update.table)?;
        check_writable(&table)?;
        let using = plan_using(&update.using, &table, planner)?;
        let conditions = ConditionsPlan::new(&update.conditions, &table, planner)?;
        let operations = update
            .assignments
            .iter()
            .map(|assignment| assign::plan_assignment(assignment, &table, planner))
            .collect::<Result<Vec<_>, _>>()?;
        assign::check_distinct(&operations, &table)?;
        let restrictions = Restrictions::plan(&update.relations, &table, Kind::Update, planner)?;
        let sets_rows = operations.iter().any(|operation| !operation.is_static(&table));
        let target = cells_target(&table, &restrictions, sets_rows, &conditions, "UPDATE")?;
        let parts = Parts { restrictions, target, operations, using, conditions };
        WritePlan::new(table, parts).check("UPDATE")
    }

    pub(super) fn of_delete(
        delete: &Delete,
        planner: &mut Planner<'_>,
    ) -> Result<WritePlan, CqlError> {
        let table = planner.table(&delete.table)?;
        check_writable(&table)?;
        let using = plan_using(&delete.using, &table, planner)?;
        let conditions = ConditionsPlan::new(&delete.conditions, &table, planner)?;
        let operations = delete
            .parts
            .iter()
            .map(|part| assign::plan_deletion(part, &table, planner))
            .collect::<Result<Vec<_>, _>>()?;
        let restrictions = Restrictions::plan(&delete.relations, &table, Kind::Delete, planner)?;
        let target = if operations.is_empty() {
            deletion_target(&table, &restrictions, &conditions)?
        } else {
            let sets_rows = operations.iter().any(|operation| !operation.is_static(&table));
            cell_deletion_target(&table, &restrictions, sets_rows, &conditions)?
        };
        let parts = Parts { restrictions, target, operations, using, conditions };
        WritePlan::new(table, parts).check("DELETE")
    }

    /// Checks that apply to all writes.
    // Source: Cassandra 5.0, ModificationStatement and its `validate`
    fn check(self, kind: &str) -> Result<WritePlan, CqlError> {
        if self.is_conditional() {
            if self.is_counter {
                return Err(CqlError::invalid(
                    "Conditional updates are not supported on counter tables",
                ));
            }
            if self.timestamp.is_some() {
                return Err(CqlError::invalid(
                    "Cannot provide custom timestamp for conditional updates",
                ));
            }
            if self.restrictions.has_several_keys() {
                return Err(CqlError::invalid(format!(
                    "IN on the partition key is not supported with conditional {}",
                    if kind == "DELETE" { "deletions" } else { "updates" }
                )));
            }
            if self.names_rows_by_in() {
                return Err(CqlError::invalid(format!(
                    "IN on the clustering key columns is not supported with conditional {}",
                    if kind == "DELETE" { "deletions" } else { "updates" }
                )));
            }
        }
        if self.table.source == TableSource::Redis && self.timestamp.is_some() {
            return Err(CqlError::invalid(NO_TIMESTAMPS));
        }
        if self.is_counter && kind != "DELETE" {
            if self.timestamp.is_some() {
                return Err(CqlError::invalid(
                    "Cannot provide custom timestamp for counter updates",
                ));
            }
            if self.ttl.is_some() {
                return Err(CqlError::invalid("Cannot provide custom TTL for counter updates"));
            }
        }
        Ok(self)
    }
}

/// Values of the Redis protocol have no timestamps: the last write wins.
pub(super) const NO_TIMESTAMPS: &str =
    "Cannot provide custom timestamp for tables of keyspace redis";

pub(super) fn check_writable(table: &Table) -> Result<(), CqlError> {
    // Source: Cassandra 5.0, ClientState.checkPermissionOnResource
    if is_local_system(&table.keyspace) {
        let keyspace = &table.keyspace;
        return Err(CqlError::Unauthorized(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    // Only statements on roles keep these tables consistent.
    if table.keyspace == "system_auth" {
        let name = &table.name;
        let text = format!("Cannot MODIFY <table system_auth.{name}>");
        return Err(CqlError::Unauthorized(text));
    }
    match table.source {
        TableSource::Stored | TableSource::Redis => Ok(()),
        TableSource::Virtual => Err(CqlError::invalid(format!(
            "Modification is not supported by table {}.{}",
            table.keyspace, table.name
        ))),
    }
}

/// The USING clause, in the order in which markers are counted.
fn plan_using(using: &Using, table: &Table, planner: &mut Planner<'_>) -> Result<Times, CqlError> {
    let mut bind = |term: &Option<Term>, of: &CqlType, name: &str| match term {
        None => Ok(None),
        Some(term) => planner.term(table, term, of, name).map(Some),
    };
    let timestamp = bind(&using.timestamp, &CqlType::BIGINT, "[timestamp]")?;
    Ok(Times { timestamp, ttl: bind(&using.ttl, &CqlType::INT, "[ttl]")? })
}

// Source: Cassandra 5.0, UpdateStatement.ParsedInsert
fn insert_values(
    columns: &[String],
    values: &[Term],
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<(Restrictions, Vec<Operation>), CqlError> {
    let mut keys: Vec<Option<Choices>> = Vec::new();
    let key_columns = table.partition_key().len() + table.clustering().len();
    keys.resize_with(key_columns, || None);
    let mut operations: Vec<Operation> = Vec::new();
    if columns.len() != values.len() {
        return Err(CqlError::invalid("Unmatched column names/values"));
    }
    for (nth, (name, term)) in columns.iter().zip(values).enumerate() {
        let index = column_index(table, name)?;
        if columns[..nth].contains(name) {
            return Err(CqlError::invalid("The column names contains duplicates"));
        }
        let value = planner.value(table, term, &table.columns[index])?;
        if index < key_columns {
            keys[index] = Some(Choices::One(value));
        } else {
            operations.push(Operation::Set { column: index, value });
        }
    }
    let clustering = keys.split_off(table.partition_key().len());
    let lacking: Vec<&Column> = table
        .partition_key()
        .iter()
        .zip(&keys)
        .filter(|(_, key)| key.is_none())
        .map(|(column, _)| column)
        .collect();
    if !lacking.is_empty() {
        return Err(CqlError::invalid(format!(
            "Some partition key parts are missing: {}",
            super::planner::names(lacking)
        )));
    }
    let given = clustering.iter().filter(|key| key.is_some()).count();
    let lacking: Vec<&Column> = table
        .clustering()
        .iter()
        .zip(&clustering)
        .filter(|(_, key)| key.is_none())
        .map(|(column, _)| column)
        .collect();
    if given > 0 && !lacking.is_empty() {
        return Err(CqlError::invalid(format!(
            "Some clustering keys are missing: {}",
            super::planner::names(lacking)
        )));
    }
    let values = |choices| ClusteringRestriction::Values { tuple: None, choices };
    let restrictions = Restrictions {
        partition: PartitionRestriction::Keys {
            keys: keys.into_iter().flatten().collect(),
            tokens: None,
        },
        clustering: clustering.into_iter().flatten().map(values).collect(),
        filters: Vec::new(),
        lookups: Vec::new(),
    };
    Ok((restrictions, operations))
}

/// The assignments that take every column from the document.
fn json_values(table: &Table) -> (Restrictions, Vec<Operation>) {
    let column = |index: usize| {
        let of = table.columns[index].column_type.clone();
        Expression::Column { index, of }
    };
    let keys = table.partition_key().len();
    let cells = keys + table.clustering().len();
    let partition = (0..keys).map(|index| Choices::One(column(index))).collect();
    let clustering = (keys..cells).map(|index| ClusteringRestriction::Values {
        tuple: None,
        choices: Choices::One(column(index)),
    });
    let restrictions = Restrictions {
        partition: PartitionRestriction::Keys { keys: partition, tokens: None },
        clustering: clustering.collect(),
        filters: Vec::new(),
        lookups: Vec::new(),
    };
    let cells = cells..table.columns.len();
    let operations =
        cells.map(|index| Operation::Set { column: index, value: column(index) }).collect();
    (restrictions, operations)
}

/// The target of writes to single cells: rows, or only the static row.
fn cells_target(
    table: &Table,
    restrictions: &Restrictions,
    sets_rows: bool,
    conditions: &ConditionsPlan,
    statement: &str,
) -> Result<Target, CqlError> {
    let given: usize = given_columns(restrictions);
    let all = table.clustering();
    if given == all.len() {
        if !all.is_empty() && !sets_rows && !conditions.reads_rows(table) {
            return Err(statics_only(statement));
        }
        return Ok(Target::Cells);
    }
    if sets_rows || conditions.reads_rows(table) || given > 0 && !conditions.is_none() {
        return Err(missing(&all[given..]));
    }
    if !restrictions.clustering.is_empty() {
        return Err(statics_only(statement));
    }
    Ok(Target::Statics)
}

fn statics_only(statement: &str) -> CqlError {
    CqlError::invalid(format!(
        "Invalid restrictions on clustering columns since the {statement} statement modifies only \
         static columns"
    ))
}

/// The number of clustering columns with values.
fn given_columns(restrictions: &Restrictions) -> usize {
    let count = restrictions.clustering.iter().map(|restriction| match restriction {
        ClusteringRestriction::Values { tuple, .. } => tuple.unwrap_or(1),
        ClusteringRestriction::Slice { .. } => 0,
    });
    count.sum()
}

/// The target of a deletion of single cells.
// Source: Cassandra 5.0, DeleteStatement.Parsed and addUpdateForKey
fn cell_deletion_target(
    table: &Table,
    restrictions: &Restrictions,
    sets_rows: bool,
    conditions: &ConditionsPlan,
) -> Result<Target, CqlError> {
    if given_columns(restrictions) == table.clustering().len() {
        return cells_target(table, restrictions, sets_rows, conditions, "DELETE");
    }
    if !conditions.is_none() && sets_rows {
        return Err(CqlError::invalid(ALL_KEYS_TO_DELETE));
    }
    if conditions.reads_rows(table) {
        return Err(CqlError::invalid(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations in \
             order to use IF condition on non static columns",
        ));
    }
    if sets_rows {
        return Ok(Target::CellsOfRange);
    }
    cells_target(table, restrictions, sets_rows, conditions, "DELETE")
}

const ALL_KEYS_TO_DELETE: &str = "DELETE statements must restrict all PRIMARY KEY columns with equality \
     relations in order to delete non static columns";

fn deletion_target(
    table: &Table,
    restrictions: &Restrictions,
    conditions: &ConditionsPlan,
) -> Result<Target, CqlError> {
    if restrictions.clustering.is_empty() && !table.clustering().is_empty() {
        if !conditions.is_none() {
            return Err(CqlError::invalid(ALL_KEYS_TO_DELETE));
        }
        return Ok(Target::Partition);
    }
    // IN has its own error.
    if !conditions.is_none() && !restrictions.names_rows(table) {
        return Err(CqlError::invalid(ALL_KEYS_TO_DELETE));
    }
    Ok(Target::Rows)
}

impl Operation {
    /// Whether it concerns a cell that all rows of a partition share.
    pub fn is_static(&self, table: &Table) -> bool {
        table.columns[self.column()].kind == ColumnKind::Static
    }
}
