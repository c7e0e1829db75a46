//! Changes of cells: SET of UPDATE, and the columns of DELETE.

use super::planner::{Planner, column_index};
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::Part;
use crate::schema::{Column, ColumnKind, Table};
use crate::statements::{Assignment, DeletedPart};
use crate::term::{Operator, Term};
use crate::types::{CqlType, UserType};

/// A change of one column, identified by its index in the table.
#[derive(Debug)]
pub enum Operation {
    /// The whole value.
    Set {
        column: usize,
        value: Expression,
    },
    /// A field of a user-defined type.
    SetField {
        column: usize,
        field: u16,
        value: Expression,
    },
    /// An entry of a map.
    SetEntry {
        column: usize,
        key: Expression,
        value: Expression,
    },
    /// An item of a list, by its index.
    SetItem {
        column: usize,
        place: Expression,
        value: Expression,
    },
    /// Items after or before those of a list.
    Append {
        column: usize,
        value: Expression,
    },
    Prepend {
        column: usize,
        value: Expression,
    },
    /// Adds items to a set or entries to a map.
    Add {
        column: usize,
        value: Expression,
    },
    /// Removes items of a set or a list, or entries of a map by their keys.
    Remove {
        column: usize,
        value: Expression,
    },
    Increment {
        column: usize,
        value: Expression,
        is_negative: bool,
    },
    Delete {
        column: usize,
    },
    DeleteField {
        column: usize,
        field: u16,
    },
    /// Deletes an item of a set or an entry of a map.
    DeleteEntry {
        column: usize,
        key: Expression,
    },
    /// An item of a list, by its index.
    DeleteItem {
        column: usize,
        place: Expression,
    },
}

impl Operation {
    pub(super) fn deletes(&self) -> bool {
        matches!(
            self,
            Operation::Remove { .. }
                | Operation::Delete { .. }
                | Operation::DeleteField { .. }
                | Operation::DeleteEntry { .. }
                | Operation::DeleteItem { .. }
        )
    }
}

impl Operation {
    pub fn column(&self) -> usize {
        match self {
            Operation::Set { column, .. }
            | Operation::SetField { column, .. }
            | Operation::SetEntry { column, .. }
            | Operation::SetItem { column, .. }
            | Operation::Append { column, .. }
            | Operation::Prepend { column, .. }
            | Operation::Add { column, .. }
            | Operation::Remove { column, .. }
            | Operation::Increment { column, .. }
            | Operation::Delete { column }
            | Operation::DeleteField { column, .. }
            | Operation::DeleteEntry { column, .. }
            | Operation::DeleteItem { column, .. } => *column,
        }
    }

    fn is_part(&self) -> bool {
        !matches!(self, Operation::Set { .. } | Operation::Delete { .. })
    }
}

// Source: Cassandra 5.0, Operation and its RawUpdate classes
pub(super) fn plan_assignment(
    assignment: &Assignment,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let index = column_index(table, &assignment.column)?;
    let column = &table.columns[index];
    if matches!(column.kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. }) {
        return Err(CqlError::invalid(format!(
            "PRIMARY KEY part {} found in SET part",
            column.name
        )));
    }
    if assignment.part != Part::Whole {
        refuse_columns(&assignment.value)?;
    }
    match &assignment.part {
        Part::Whole => plan_whole(index, &assignment.value, table, planner),
        Part::Element(key) => plan_element(index, key, &assignment.value, table, planner),
        Part::Field(name) => {
            let shown =
                format!("{}.{name} = {}", column.name, super::names::term(&assignment.value));
            let user = fields_of(column, &shown)?;
            let field = field_number(user, name, column)?;
            let of = &user.fields[usize::from(field)].1;
            let shown = format!("{}.{name}", column.name);
            let value = planner.term(table, &assignment.value, of, &shown)?;
            Ok(Operation::SetField { column: index, field, value })
        }
    }
}

fn plan_whole(
    index: usize,
    term: &Term,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let column = &table.columns[index];
    match term {
        Term::Arithmetic(operator, left, right) if is_column(left, column) => {
            refuse_columns(right)?;
            plan_difference(index, *operator, right, table, planner)
        }
        Term::Arithmetic(Operator::Add, left, right) if is_column(right, column) => {
            refuse_columns(left)?;
            plan_prepend(index, left, table, planner)
        }
        _ if column.column_type.is_counter() && !holds_column(term) => {
            Err(CqlError::invalid(format!(
                "Cannot set the value of counter column {} (counters can only be \
             incremented/decremented, not set)",
                column.name
            )))
        }
        _ => {
            refuse_columns(term)?;
            let value = planner.value(table, term, column)?;
            Ok(Operation::Set { column: index, value })
        }
    }
}

/// In assignments, columns are allowed only in the form `c = c + term`.
fn refuse_columns(term: &Term) -> Result<(), CqlError> {
    if !holds_column(term) {
        return Ok(());
    }
    Err(CqlError::Syntax("Only expressions of the form X = X +<value> are supported.".to_owned()))
}

fn holds_column(term: &Term) -> bool {
    match term {
        Term::Column(_) => true,
        Term::Null | Term::Marker(_) | Term::Constant(_) => false,
        Term::List(terms)
        | Term::Set(terms)
        | Term::Tuple(terms)
        | Term::Call { arguments: terms, .. } => terms.iter().any(holds_column),
        Term::Map(pairs) => {
            pairs.iter().any(|(key, value)| holds_column(key) || holds_column(value))
        }
        Term::UserDefined(fields) => fields.iter().any(|(_, value)| holds_column(value)),
        Term::Hint(_, value) | Term::Negative(value) => holds_column(value),
        Term::Arithmetic(_, left, right) => holds_column(left) || holds_column(right),
    }
}

fn is_column(term: &Term, column: &Column) -> bool {
    matches!(term, Term::Column(name) if *name == column.name)
}

/// `c = c + term` and `c = c - term`
fn plan_difference(
    index: usize,
    operator: Operator,
    term: &Term,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let column = &table.columns[index];
    let name = &column.name;
    let sign = match operator {
        Operator::Add => '+',
        Operator::Subtract => '-',
        _ => return Err(CqlError::invalid(format!("Invalid operation for column {name}"))),
    };
    let shown = super::names::term(term);
    let is_adding = operator == Operator::Add;
    match &column.column_type {
        of if of.is_counter() => {
            let value = planner.term(table, term, of, name)?;
            Ok(Operation::Increment { column: index, value, is_negative: !is_adding })
        }
        of @ CqlType::List(_) => {
            let value = planner.term(table, term, of, name)?;
            if is_adding {
                return Ok(Operation::Append { column: index, value });
            }
            Ok(Operation::Remove { column: index, value })
        }
        of @ (CqlType::Set(_) | CqlType::Map(..)) if is_adding => {
            let value = planner.term(table, term, of, name)?;
            Ok(Operation::Add { column: index, value })
        }
        of @ CqlType::Set(_) => {
            let value = planner.term(table, term, of, name)?;
            Ok(Operation::Remove { column: index, value })
        }
        CqlType::Map(key, _) => {
            let keys = CqlType::Set(key.clone());
            let value = planner.term(table, term, &keys, name)?;
            Ok(Operation::Remove { column: index, value })
        }
        CqlType::Frozen(_) => Err(CqlError::invalid(format!(
            "Invalid operation ({name} = {name} {sign} {shown}) for frozen collection column {name}"
        ))),
        _ => Err(CqlError::invalid(format!(
            "Invalid operation ({name} = {name} {sign} {shown}) for non counter column {name}"
        ))),
    }
}

/// `l = term + l`
fn plan_prepend(
    index: usize,
    term: &Term,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let column = &table.columns[index];
    let name = &column.name;
    let of = &column.column_type;
    if of.is_counter() {
        let value = planner.term(table, term, of, name)?;
        return Ok(Operation::Increment { column: index, value, is_negative: false });
    }
    if !matches!(of, CqlType::List(_)) {
        let shown = super::names::term(term);
        return Err(CqlError::invalid(format!(
            "Invalid operation ({name} = {shown} + {name}) for non list column {name}"
        )));
    }
    let value = planner.term(table, term, of, name)?;
    Ok(Operation::Prepend { column: index, value })
}

/// `c[key] = term`
fn plan_element(
    index: usize,
    key: &Term,
    term: &Term,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let column = &table.columns[index];
    let name = &column.name;
    match &column.column_type {
        CqlType::List(item) => {
            let place = planner.term(table, key, &CqlType::INT, &format!("idx({name})"))?;
            let value = planner.term(table, term, item, &format!("value({name})"))?;
            Ok(Operation::SetItem { column: index, place, value })
        }
        CqlType::Map(of_key, of_value) => {
            let key = planner.term(table, key, of_key, &format!("key({name})"))?;
            let value = planner.term(table, term, of_value, &format!("value({name})"))?;
            Ok(Operation::SetEntry { column: index, key, value })
        }
        other => {
            let shown =
                format!("{name}[{}] = {}", super::names::term(key), super::names::term(term));
            let kind = match other {
                CqlType::Set(_) => "set",
                CqlType::Frozen(_) => "frozen collection",
                _ => "non collection",
            };
            Err(CqlError::invalid(format!("Invalid operation ({shown}) for {kind} column {name}")))
        }
    }
}

fn fields_of<'c>(column: &'c Column, shown: &str) -> Result<&'c UserType, CqlError> {
    match &column.column_type {
        CqlType::UserDefined(user) => Ok(user),
        CqlType::Frozen(inner) if matches!(**inner, CqlType::UserDefined(_)) => {
            Err(CqlError::invalid(format!(
                "Invalid operation ({shown}) for frozen UDT column {}",
                column.name
            )))
        }
        _ => Err(CqlError::invalid(format!(
            "Invalid operation ({shown}) for non-UDT column {}",
            column.name
        ))),
    }
}

fn field_number(user: &UserType, name: &str, column: &Column) -> Result<u16, CqlError> {
    let found = user.fields.iter().position(|(known, _)| known == name);
    found.and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
        CqlError::invalid(format!("UDT column {} does not have a field named {name}", column.name))
    })
}

// Source: Cassandra 5.0, Operation.RawDeletion
pub(super) fn plan_deletion(
    deleted: &DeletedPart,
    table: &Table,
    planner: &mut Planner<'_>,
) -> Result<Operation, CqlError> {
    let index = column_index(table, &deleted.column)?;
    let column = &table.columns[index];
    let name = &column.name;
    if matches!(column.kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. }) {
        return Err(CqlError::invalid(format!(
            "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
        )));
    }
    match &deleted.part {
        Part::Whole => Ok(Operation::Delete { column: index }),
        Part::Field(field) => {
            let field =
                field_number(fields_of(column, &format!("{name}.{field}"))?, field, column)?;
            Ok(Operation::DeleteField { column: index, field })
        }
        Part::Element(key) => match &column.column_type {
            CqlType::List(_) => {
                let place = planner.term(table, key, &CqlType::INT, &format!("idx({name})"))?;
                Ok(Operation::DeleteItem { column: index, place })
            }
            CqlType::Set(item) => {
                let key = planner.term(table, key, item, &format!("value({name})"))?;
                Ok(Operation::DeleteEntry { column: index, key })
            }
            CqlType::Map(of_key, _) => {
                let key = planner.term(table, key, of_key, &format!("key({name})"))?;
                Ok(Operation::DeleteEntry { column: index, key })
            }
            CqlType::Frozen(_) => Err(CqlError::invalid(format!(
                "Invalid deletion operation for frozen collection column {name}"
            ))),
            _ => Err(CqlError::invalid(format!(
                "Invalid deletion operation for non collection column {name}"
            ))),
        },
    }
}

/// A whole value is set only once, and not together with its parts.
// Source: Cassandra 5.0, UpdateStatement.ParsedUpdate and CqlParser.addRawUpdate
pub(super) fn check_distinct(operations: &[Operation], table: &Table) -> Result<(), CqlError> {
    for (nth, operation) in operations.iter().enumerate() {
        let clash = operations[..nth].iter().any(|known| {
            known.column() == operation.column() && !(known.is_part() && operation.is_part())
        });
        if clash {
            return Err(CqlError::Syntax(format!(
                "Multiple incompatible setting of column {}",
                table.columns[operation.column()].name
            )));
        }
    }
    Ok(())
}
