//! IF of INSERT, UPDATE and DELETE.

use super::planner::{Planner, column_index};
use super::relations::choices;
use super::restrictions::Choices;
use crate::cql::error::CqlError;
use crate::cql::expression::Expression;
use crate::cql::relation::{Comparison, Condition, Conditions, Part};
use crate::cql::schema::{ColumnKind, Table};
use crate::cql::types::CqlType;

/// See the module.
#[derive(Debug)]
pub(crate) enum ConditionsPlan {
    None,
    Exists,
    NotExists,
    /// All of these.
    Columns(Vec<ConditionPlan>),
}

/// What one column, or a part of it, is compared with.
#[derive(Debug)]
pub(crate) struct ConditionPlan {
    /// The place in the table.
    pub(crate) column: usize,
    pub(crate) part: ConditionPart,
    /// The type of what is compared.
    pub(crate) of: CqlType,
    pub(crate) operator: Comparison,
    pub(crate) choices: Choices,
}

#[derive(Debug)]
pub(crate) enum ConditionPart {
    Whole,
    /// An entry of a map by its key, an item of a list by its place.
    Element(Expression),
    Field(usize),
}

impl ConditionsPlan {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, ConditionsPlan::None)
    }

    /// Whether they are about a row, not only about static columns.
    pub(super) fn reads_rows(&self, table: &Table) -> bool {
        match self {
            ConditionsPlan::Columns(conditions) => conditions
                .iter()
                .any(|condition| table.columns[condition.column].kind != ColumnKind::Static),
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
            Conditions::NotExists => return Ok(ConditionsPlan::NotExists),
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
    if matches!(condition.operator, Comparison::Contains | Comparison::ContainsKey) {
        return Err(CqlError::invalid(format!(
            "CONTAINS is not possible in the conditions of a write: {name}"
        )));
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
            _ => {
                return Err(CqlError::invalid(format!(
                    "Invalid element access syntax for non-collection column {name}"
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
    let choices = choices(&condition.right, condition.operator, &of, &shown, table, planner)?;
    Ok(ConditionPlan { column: index, part, of, operator: condition.operator, choices })
}
