//! IF clauses of INSERT, UPDATE and DELETE.

use super::names;
use super::planner::{Planner, column_index};
use super::relations::{choices, is_slice, unordered};
use super::restrictions::Choices;
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::{Comparison, Condition, Conditions, Part};
use crate::schema::{ColumnKind, Table};
use crate::types::CqlType;

/// The IF clause of a write.
#[derive(Debug)]
pub enum ConditionsPlan {
    None,
    Exists,
    NotExists,
    /// All of these.
    Columns(Vec<ConditionPlan>),
}

/// A comparison of one column, or of a part of it.
#[derive(Debug)]
pub struct ConditionPlan {
    /// The column's index in the table.
    pub column: usize,
    pub part: ConditionPart,
    /// The type of the compared value.
    pub of: CqlType,
    pub operator: Comparison,
    pub choices: Choices,
}

impl ConditionPlan {
    /// Whether it concerns a cell that all rows of a partition share.
    pub fn is_static(&self, table: &Table) -> bool {
        table.columns[self.column].kind == ColumnKind::Static
    }
}

#[derive(Debug)]
pub enum ConditionPart {
    Whole,
    /// An entry of a map by its key, or an item of a list by its index.
    Element(Expression),
    Field(usize),
}

impl ConditionsPlan {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, ConditionsPlan::None)
    }

    /// Whether the column with this index in the table is compared.
    pub fn is_about(&self, column: usize) -> bool {
        match self {
            ConditionsPlan::Columns(conditions) => {
                conditions.iter().any(|condition| condition.column == column)
            }
            _ => false,
        }
    }

    /// Whether they concern a row, and not only static columns.
    pub(super) fn reads_rows(&self, table: &Table) -> bool {
        match self {
            ConditionsPlan::Columns(conditions) => {
                conditions.iter().any(|condition| !condition.is_static(table))
            }
            _ => false,
        }
    }

    // Source: Cassandra 5.0, ColumnCondition.Raw
    pub(super) fn new(
        conditions: &Conditions,
        table: &Table,
        planner: &mut Planner<'_>,
    ) -> Result<ConditionsPlan, CqlError> {
        let conditions = match conditions {
            Conditions::None => return Ok(ConditionsPlan::None),
            Conditions::Exists => return Ok(ConditionsPlan::Exists),
            Conditions::Columns(conditions) => conditions,
        };
        let plan = conditions.iter().map(|condition| plan_one(condition, table, planner));
        Ok(ConditionsPlan::Columns(plan.collect::<Result<_, _>>()?))
    }
}

fn plan_one(
    condition: &Condition,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<ConditionPlan, CqlError> {
    let index = column_index(table, &condition.column)?;
    let column = &table.columns[index];
    let name = &column.name;
    if matches!(column.kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. }) {
        return Err(CqlError::invalid(format!(
            "PRIMARY KEY column '{name}' cannot have IF conditions"
        )));
    }
    if column.column_type.is_counter() {
        return Err(CqlError::invalid("Conditions on counters are not supported"));
    }
    let (part, of, shown) = match &condition.part {
        Part::Whole => (ConditionPart::Whole, column.column_type.clone(), name.clone()),
        Part::Element(key) => match column.column_type.unfrozen() {
            CqlType::List(item) => {
                let key = planner.term(table, key, &CqlType::INT, &format!("idx({name})"))?;
                (ConditionPart::Element(key), (**item).clone(), format!("value({name})"))
            }
            CqlType::Map(of_key, value) => {
                let key = planner.term(table, key, of_key, &format!("key({name})"))?;
                (ConditionPart::Element(key), (**value).clone(), format!("value({name})"))
            }
            other => {
                let is_set = matches!(other, CqlType::Set(_));
                let what = if is_set { "set" } else { "non-collection" };
                return Err(CqlError::invalid(format!(
                    "Invalid element access syntax for {what} column {name}"
                )));
            }
        },
        Part::Field(field) => {
            let CqlType::UserDefined(user) = column.column_type.unfrozen() else {
                return Err(CqlError::invalid(format!(
                    "Cannot refer to field {field} on non-UDT column {name}"
                )));
            };
            let place = user.fields.iter().position(|(known, _)| known == field);
            let place = place.ok_or_else(|| {
                CqlError::invalid(format!("Unknown field {field} for column {name}"))
            })?;
            let of = user.fields[place].1.clone();
            (ConditionPart::Field(place), of, format!("{name}.{field}"))
        }
    };
    check_order(condition.operator, &of)?;
    let (of, shown) = contained(condition.operator, of, shown)?;
    let choices = choices(&condition.right, condition.operator, &of, &shown, table, planner)?;
    Ok(ConditionPlan { column: index, part, of, operator: condition.operator, choices })
}

// Source: Cassandra 5.0, ColumnCondition.Raw.validateOperationOnDurations
fn check_order(operator: Comparison, of: &CqlType) -> Result<(), CqlError> {
    if !is_slice(operator) || of.is_ordered() {
        return Ok(());
    }
    let what = unordered(of, "durations");
    if matches!(of.unfrozen(), CqlType::Native(_)) {
        let operator = names::operator(operator);
        return Err(CqlError::invalid(format!(
            "Slice conditions ( {operator} ) are not supported on {what}"
        )));
    }
    Err(CqlError::invalid(format!("Slice conditions are not supported on {what}")))
}

/// The type and the name of the compared value: for CONTAINS, those of the collection's content.
// Source: Cassandra 5.0, ColumnCondition.Raw.prepareTerms
fn contained(
    operator: Comparison,
    of: CqlType,
    shown: String,
) -> Result<(CqlType, String), CqlError> {
    match (operator, of.unfrozen()) {
        (Comparison::ContainsKey, CqlType::Map(key, _)) => {
            Ok(((**key).clone(), format!("key({shown})")))
        }
        (Comparison::ContainsKey, _) => {
            Err(CqlError::invalid(format!("Cannot use CONTAINS KEY on non-map column {shown}")))
        }
        (
            Comparison::Contains,
            CqlType::List(item) | CqlType::Set(item) | CqlType::Map(_, item),
        ) => Ok(((**item).clone(), format!("value({shown})"))),
        (Comparison::Contains, _) => {
            Err(CqlError::invalid(format!("Cannot use CONTAINS on non-collection column {shown}")))
        }
        _ => Ok((of, shown)),
    }
}
