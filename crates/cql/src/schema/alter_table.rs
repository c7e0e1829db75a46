//! ALTER TABLE.

use super::change::{ChangeContext, ChangeResult, Verb};
use super::names::{Action, guard, keyspace_of};
use super::table::{Column, ColumnKind, DroppedColumn, Table};
use super::tables::{
    COLUMNS_MAX, STATICS_NEED_CLUSTERING, check_description, event, has_nested_cells, refuse_mask,
    resolve,
};
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::statements::{AlterTable, ColumnDefinition, Options, TableChange};
use crate::types::CqlType;

pub(super) fn alter(catalog: &Catalog, alter: &AlterTable, cx: &ChangeContext<'_>) -> ChangeResult {
    let keyspace_name = keyspace_of(&alter.name, cx)?;
    guard(keyspace_name, Action::AlterTable)?;
    let name = &alter.name.name;
    let found = catalog.keyspace(keyspace_name);
    let Some((keyspace, table)) = found.and_then(|k| Some((k, k.tables.get(name)?))) else {
        if alter.if_exists {
            return Ok(None);
        }
        return Err(CqlError::Invalid(format!("Table '{keyspace_name}.{name}' doesn't exist")));
    };
    let mut table = Table::clone(table);
    match &alter.change {
        TableChange::Add { if_not_exists, columns } => {
            for column in columns {
                add(keyspace, &mut table, column, *if_not_exists, cx)?;
            }
        }
        TableChange::Drop { if_exists, columns, timestamp } => {
            for column in columns {
                drop(&mut table, column, *if_exists, *timestamp, cx)?;
            }
        }
        TableChange::Rename { if_exists, columns } => {
            for (old, new) in columns {
                rename(&mut table, old, new, *if_exists)?;
            }
        }
        TableChange::With(options) => set_options(&mut table, options)?,
        TableChange::Mask { if_exists, column, is_masked } => {
            if table.column(column).is_none() && !if_exists {
                return refuse(format!(
                    "Column with name '{column}' doesn't exist on table '{name}'"
                ));
            }
            refuse_mask(*is_masked)?;
        }
    }
    if keyspace.tables.get(name).is_some_and(|before| **before == table) {
        return Ok(None);
    }
    let adds_names = matches!(alter.change, TableChange::Add { .. } | TableChange::Rename { .. });
    if adds_names {
        check_description(&table)?;
    }
    let event = event(Verb::Updated, keyspace_name, name);
    Ok(Some((catalog.with_keyspace(keyspace.with_table(table)), event)))
}

fn refuse<T>(reason: String) -> Result<T, CqlError> {
    Err(CqlError::Invalid(reason))
}

fn add(
    keyspace: &Keyspace,
    table: &mut Table,
    column: &ColumnDefinition,
    if_not_exists: bool,
    cx: &ChangeContext<'_>,
) -> Result<(), CqlError> {
    let name = &column.name;
    refuse_mask(column.is_masked)?;
    let column_type = resolve(keyspace, &column.column_type)?;
    if table.column(name).is_some() {
        if if_not_exists {
            return Ok(());
        }
        return refuse(format!("Column with name '{name}' already exists"));
    }
    if column.is_static && table.clustering().is_empty() {
        return Err(CqlError::invalid(STATICS_NEED_CLUSTERING));
    }
    if has_nested_cells(&column_type) {
        return refuse(format!(
            "Non-frozen UDTs with nested non-frozen collections are not supported for column {name}"
        ));
    }
    let dropped = table.dropped.get(name);
    if let Some(dropped) = dropped {
        check_return(table, column, &column_type, dropped)?;
    }
    let returns = dropped.filter(|dropped| dropped.keeps_newer);
    let (number, shown_from) = if let Some(dropped) = returns {
        (dropped.number, dropped.dropped_at.saturating_add(1))
    } else {
        let number = if cx.is_in_group {
            table.number_in_group(name, &format!("{column_type} {}", column.is_static))
        } else {
            table.next_number()
        };
        (number, Column::ALL_SHOWN)
    };
    check_counter(table, name, &column_type)?;
    if table.columns.len() >= COLUMNS_MAX {
        return refuse(format!(
            "Tables cannot have more than {COLUMNS_MAX} columns, but {} provided for table {}",
            table.columns.len() + 1,
            table.name
        ));
    }
    let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    let name = name.clone();
    table.columns.push(Column { name, column_type, kind, number, shown_from });
    table.sort_columns();
    Ok(())
}

/// A dropped column can only be added again with its definition, because rows may still contain its
/// values.
fn check_return(
    table: &Table,
    column: &ColumnDefinition,
    of: &CqlType,
    dropped: &DroppedColumn,
) -> Result<(), CqlError> {
    let name = &column.name;
    if expanded(of) != dropped.column_type {
        return refuse(format!(
            "Cannot add a column '{name}' of type {of}, incompatible with previously dropped column \
             '{name}' of type {}",
            dropped.column_type
        ));
    }
    let kind = |is_static: bool| if is_static { "STATIC" } else { "REGULAR" };
    if column.is_static != dropped.is_static {
        return refuse(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with \
             previous kind {}",
            kind(column.is_static),
            kind(dropped.is_static)
        ));
    }
    if table.is_counter() {
        return refuse(format!("Cannot re-add previously dropped counter column {name}"));
    }
    Ok(())
}

fn check_counter(table: &Table, name: &str, of: &CqlType) -> Result<(), CqlError> {
    let place = format!("{}.{}", table.keyspace, table.name);
    if table.is_counter() && !of.is_counter() {
        return Err(CqlError::Config(format!(
            "{place}: Cannot have a non counter column (\"{name}\") in a counter table"
        )));
    }
    if !table.is_counter() && of.is_counter() {
        return Err(CqlError::Config(format!(
            "{place}: Cannot have a counter column (\"{name}\") in a non counter table"
        )));
    }
    Ok(())
}

/// `timestamp`: from USING.
fn drop(
    table: &mut Table,
    name: &str,
    if_exists: bool,
    timestamp: Option<i64>,
    cx: &ChangeContext<'_>,
) -> Result<(), CqlError> {
    let dropped_at = timestamp.unwrap_or(cx.timestamp);
    let Some(at) = table.columns.iter().position(|column| column.name == name) else {
        if if_exists {
            return Ok(());
        }
        let place = format!("{}.{}", table.keyspace, table.name);
        return refuse(format!("Column {name} was not found in table '{place}'"));
    };
    let column = &table.columns[at];
    if column.is_key() {
        return refuse(format!("Cannot drop PRIMARY KEY column {name}"));
    }
    if let CqlType::UserDefined(user) = &column.column_type {
        return refuse(format!("Cannot drop non-frozen column {name} of user type {}", user.name));
    }
    refuse_indexed(table, name, "drop")?;
    let column = table.columns.remove(at);
    let dropped = DroppedColumn {
        column_type: expanded(&column.column_type),
        is_static: column.kind == ColumnKind::Static,
        number: column.number,
        dropped_at,
        keeps_newer: timestamp.is_some(),
    };
    table.dropped.insert(column.name, dropped);
    Ok(())
}

fn refuse_indexed(table: &Table, column: &str, verb: &str) -> Result<(), CqlError> {
    let dependent = table.indexes.iter().filter(|index| index.column == column);
    let dependent: Vec<&str> = dependent.map(|index| index.name.as_str()).collect();
    if dependent.is_empty() {
        return Ok(());
    }
    // Cassandra has two spellings.
    let cannot = if verb == "rename" { "Can't" } else { "Cannot" };
    refuse(format!(
        "{cannot} {verb} column {column} because it has dependent secondary indexes ({})",
        dependent.join(", ")
    ))
}

fn rename(table: &mut Table, old: &str, new: &str, if_exists: bool) -> Result<(), CqlError> {
    let place = format!("{}.{}", table.keyspace, table.name);
    let Some(at) = table.columns.iter().position(|column| column.name == old) else {
        if if_exists {
            return Ok(());
        }
        return refuse(format!("Column {old} was not found in table {place}"));
    };
    if !table.columns[at].is_key() {
        return refuse(format!("Cannot rename non PRIMARY KEY column {old}"));
    }
    if table.column(new).is_some() {
        return refuse(format!(
            "Cannot rename column {old} to {new} in table '{place}'; another column with that \
             name already exists"
        ));
    }
    refuse_indexed(table, old, "rename")?;
    new.clone_into(&mut table.columns[at].name);
    Ok(())
}

fn set_options(table: &mut Table, options: &Options) -> Result<(), CqlError> {
    if options.iter().any(|(name, _)| name == "id") {
        return Err(CqlError::Config("Cannot alter table id.".into()));
    }
    table.options.take(options)?;
    if table.is_counter() && table.options.default_time_to_live > 0 {
        return Err(CqlError::invalid("Cannot set default_time_to_live on a table with counters"));
    }
    Ok(())
}

/// The same type with tuples instead of user-defined types.
fn expanded(of: &CqlType) -> CqlType {
    let boxed = |of: &CqlType| Box::new(expanded(of));
    match of {
        CqlType::Native(native) => CqlType::Native(*native),
        CqlType::List(element) => CqlType::List(boxed(element)),
        CqlType::Set(element) => CqlType::Set(boxed(element)),
        CqlType::Map(key, value) => CqlType::Map(boxed(key), boxed(value)),
        CqlType::Tuple(parts) => CqlType::Tuple(parts.iter().map(expanded).collect()),
        CqlType::Vector(element, dimensions) => CqlType::Vector(boxed(element), *dimensions),
        CqlType::UserDefined(user) => {
            let fields = user.fields.iter().map(|(_, field)| expanded(field).frozen());
            CqlType::Tuple(fields.collect())
        }
        // Tuples are always frozen.
        CqlType::Frozen(inner) => expanded(inner).frozen(),
    }
}
