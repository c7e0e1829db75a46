//! CREATE, DROP and TRUNCATE TABLE.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::change::{ChangeContext, ChangeResult, Event, Target, Verb};
use super::names::{Action, check_table_name, existing, guard, keyspace_of};
use super::options::take_id;
use super::table::{Column, ColumnKind, Table, TableOptions, TableSource};
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::QualifiedName;
use crate::statements::CreateTable;
use crate::type_name::{Native, TypeName};
use crate::types::CqlType;
use crate::types::size::{DESCRIPTION_BYTES_MAX, TypeSize};

/// Maximum number of tables of all keyspaces: clients read all of them whenever one changes.
const TABLES_MAX: usize = 10_000;

/// Maximum number of columns of a table: its definition easily fits into one record of the log.
pub(super) const COLUMNS_MAX: usize = 2_000;

pub(super) fn create(
    catalog: &Catalog,
    create: &CreateTable,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_of(&create.name, cx)?;
    guard(keyspace_name, Action::Create)?;
    refuse_repeated(create)?;
    for column in &create.columns {
        refuse_mask(column.is_masked)?;
    }
    let keyspace = existing(catalog, keyspace_name)?;
    let name = &create.name.name;
    if keyspace.tables.contains_key(name) {
        if create.if_not_exists {
            return Ok(None);
        }
        let message =
            format!("Cannot add already existing table \"{name}\" to keyspace \"{keyspace_name}\"");
        let keyspace = keyspace_name.to_owned();
        return Err(CqlError::AlreadyExists { keyspace, table: name.clone(), message });
    }
    let count: usize = catalog.keyspaces.values().map(|keyspace| keyspace.tables.len()).sum();
    if count >= TABLES_MAX {
        return Err(CqlError::Invalid(format!(
            "Cannot have more than {TABLES_MAX} tables, aborting the creation of table {name}"
        )));
    }
    let table = table_of(keyspace, create, cx.table_id)?;
    check_table_name(keyspace_name, name)?;
    let is_taken = |other: &Keyspace| other.tables.values().any(|other| other.id == table.id);
    if catalog.keyspaces.values().any(|keyspace| is_taken(keyspace)) {
        return Err(CqlError::Config(format!("Table id {} is in use", table.id)));
    }
    let event = event(Verb::Created, keyspace_name, name);
    Ok(Some((catalog.with_keyspace(keyspace.with_table(table)), event)))
}

pub(super) fn drop(
    catalog: &Catalog,
    name: &QualifiedName,
    if_exists: bool,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_of(name, cx)?;
    guard(keyspace_name, Action::Drop)?;
    let found = catalog.keyspace(keyspace_name);
    let Some(keyspace) = found.filter(|keyspace| keyspace.tables.contains_key(&name.name)) else {
        if if_exists {
            return Ok(None);
        }
        return Err(CqlError::Invalid(format!(
            "Table '{keyspace_name}.{}' doesn't exist",
            name.name
        )));
    };
    let mut without = Keyspace::clone(keyspace);
    without.tables.remove(&name.name);
    let event = event(Verb::Dropped, keyspace_name, &name.name);
    Ok(Some((catalog.with_keyspace(without), event)))
}

pub(super) fn event(verb: Verb, keyspace: &str, table: &str) -> Event {
    Event { verb, keyspace: keyspace.to_owned(), target: Target::Table(table.to_owned()) }
}

/// Refuses a name or a primary key that is specified more than once, and a table without a key.
fn refuse_repeated(create: &CreateTable) -> Result<(), CqlError> {
    let table = &create.name.name;
    let mut seen = BTreeSet::new();
    for column in &create.columns {
        if !seen.insert(&column.name) {
            return Err(CqlError::Invalid(format!(
                "Duplicate column '{}' declaration for table '{table}'",
                column.name
            )));
        }
    }
    // Cassandra's spelling.
    let wrong = match create.primary_keys {
        0 => Some("No PRIMARY KEY specifed"),
        1 => None,
        _ => Some("Multiple PRIMARY KEY specified"),
    };
    if let Some(wrong) = wrong {
        return Err(CqlError::Invalid(format!(
            "{wrong} for table '{table}' (exactly one required)"
        )));
    }
    let mut seen = BTreeSet::new();
    for (column, _) in &create.clustering_order {
        if !seen.insert(column) {
            return Err(CqlError::Invalid(format!(
                "Duplicate column '{column}' in CLUSTERING ORDER BY clause for table '{table}'"
            )));
        }
    }
    Ok(())
}

/// Rejects the mask of a column, as Cassandra does in its default configuration.
// Source: Cassandra 5.0, cql3.functions.masking.ColumnMask.ensureEnabled
pub(super) fn refuse_mask(is_masked: bool) -> Result<(), CqlError> {
    if !is_masked {
        return Ok(());
    }
    Err(CqlError::invalid(
        "Cannot mask columns because dynamic data masking is not enabled. You can enable it with \
         the dynamic_data_masking_enabled property on cassandra.yaml",
    ))
}

/// Resolves a type name within a keyspace.
pub(super) fn resolve(keyspace: &Keyspace, name: &TypeName) -> Result<CqlType, CqlError> {
    let find = |name: &str| keyspace.types.get(name).map(Arc::clone);
    CqlType::resolve(name, &keyspace.name, &find)
        .map_err(|error| CqlError::Invalid(error.to_string()))
}

/// Rejects a table whose columns cannot be described in one response, or one of whose columns has
/// become too large by a type within it.
pub(super) fn check_description(table: &Table) -> Result<(), CqlError> {
    let mut bytes = 0;
    for column in &table.columns {
        let size = TypeSize::of(&column.column_type);
        if let Some(excess) = size.excess() {
            return Err(CqlError::Invalid(format!(
                "The type of column {} of table {} is too large: {excess}",
                column.name, table.name
            )));
        }
        bytes += column.name.len() + size.description_bytes();
    }
    if bytes > DESCRIPTION_BYTES_MAX {
        return Err(CqlError::Invalid(format!(
            "Names and types of the columns of table {} have {bytes} bytes, at most \
             {DESCRIPTION_BYTES_MAX} are possible",
            table.name
        )));
    }
    Ok(())
}

/// Whether a user-defined type with a cell per field contains fields that are not single cells.
pub(super) fn has_nested_cells(of: &CqlType) -> bool {
    let CqlType::UserDefined(user) = of else { return false };
    user.fields.iter().any(|(_, field)| field.is_multi_cell())
}

/// The table described by a statement, without checks of its keyspace and name.
pub(super) fn table_of(
    keyspace: &Keyspace,
    create: &CreateTable,
    id: Uuid,
) -> Result<Table, CqlError> {
    let name = &create.name.name;
    let mut given = create.options.clone();
    let id = take_id(&mut given)?.unwrap_or(id);
    let mut options = TableOptions::default();
    options.take(&given)?;
    if create.columns.len() > COLUMNS_MAX {
        return Err(CqlError::Invalid(format!(
            "Tables cannot have more than {COLUMNS_MAX} columns, but {} provided for table {name}",
            create.columns.len()
        )));
    }
    let mut types = BTreeMap::new();
    for column in &create.columns {
        let found = resolve(keyspace, &column.column_type)?;
        if has_nested_cells(&found) {
            return Err(CqlError::invalid(
                "Non-frozen UDTs with nested non-frozen collections are not supported",
            ));
        }
        types.insert(column.name.as_str(), found);
    }
    check_key(create, &types)?;
    check_order(create)?;
    check_cells(create, &options)?;
    let mut table = Table {
        id,
        keyspace: keyspace.name.clone(),
        name: name.clone(),
        columns: Vec::new(),
        indexes: Vec::new(),
        dropped: BTreeMap::new(),
        options,
        source: TableSource::Stored,
    };
    let descending = |name: &String| create.clustering_order.contains(&(name.clone(), true));
    let mut kinds: BTreeMap<&str, ColumnKind> = BTreeMap::new();
    for (position, name) in create.partition_key.iter().enumerate() {
        kinds.insert(name, ColumnKind::PartitionKey { position });
    }
    for (position, name) in create.clustering.iter().enumerate() {
        let is_descending = descending(name);
        kinds.insert(name, ColumnKind::Clustering { position, is_descending });
    }
    for column in &create.columns {
        let other = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
        let kind = kinds.get(column.name.as_str()).copied().unwrap_or(other);
        let column_type = types[column.name.as_str()].clone();
        let (name, shown_from) = (column.name.clone(), Column::ALL_SHOWN);
        table.columns.push(Column { name, column_type, kind, number: 0, shown_from });
    }
    table.sort_columns();
    for (number, column) in (0..).zip(&mut table.columns) {
        column.number = number;
    }
    check_description(&table)?;
    Ok(table)
}

fn check_key(create: &CreateTable, types: &BTreeMap<&str, CqlType>) -> Result<(), CqlError> {
    let table = &create.name.name;
    let mut seen = BTreeSet::new();
    for column in create.partition_key.iter().chain(&create.clustering) {
        let refuse = |reason: String| Err(CqlError::Invalid(reason));
        let Some(of) = types.get(column.as_str()) else {
            return refuse(format!(
                "Unknown column '{column}' referenced in PRIMARY KEY for table '{table}'"
            ));
        };
        if !seen.insert(column) {
            return refuse(format!(
                "Duplicate column '{column}' in PRIMARY KEY clause for table '{table}'"
            ));
        }
        if of.is_multi_cell() {
            let what = match of {
                CqlType::UserDefined(_) => "user-defined",
                _ => "collection",
            };
            return refuse(format!(
                "Invalid non-frozen {what} type {of} for PRIMARY KEY column '{column}'"
            ));
        }
        if of.is_counter() {
            return refuse(format!(
                "counter type is not supported for PRIMARY KEY column '{column}'"
            ));
        }
        if !of.is_ordered() {
            return refuse(format!(
                "duration type is not supported for PRIMARY KEY column '{column}'"
            ));
        }
        if create.columns.iter().any(|known| known.name == *column && known.is_static) {
            return refuse(format!("Static column '{column}' cannot be part of the PRIMARY KEY"));
        }
    }
    Ok(())
}

fn check_order(create: &CreateTable) -> Result<(), CqlError> {
    if create.clustering_order.len() > create.clustering.len() {
        return Err(CqlError::invalid(
            "Only clustering columns can be defined in CLUSTERING ORDER directive",
        ));
    }
    let others = create.clustering_order.iter().map(|(name, _)| name.as_str());
    let others: Vec<&str> =
        others.filter(|name| create.clustering.iter().all(|column| column != name)).collect();
    if !others.is_empty() {
        return Err(CqlError::Invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are \
             not clustering columns",
            others.join(", ")
        )));
    }
    for ((ordered, _), column) in create.clustering_order.iter().zip(&create.clustering) {
        if ordered == column {
            continue;
        }
        if create.clustering_order.iter().any(|(other, _)| other == column) {
            return Err(CqlError::Invalid(format!(
                "The order of columns in the CLUSTERING ORDER directive must match that of the \
                 clustering columns ({column} must appear before {ordered})"
            )));
        }
        return Err(CqlError::Invalid(format!("Missing CLUSTERING ORDER for column {column}")));
    }
    Ok(())
}

fn check_cells(create: &CreateTable, options: &TableOptions) -> Result<(), CqlError> {
    let has_statics = create.columns.iter().any(|column| column.is_static);
    if create.clustering.is_empty() && has_statics {
        return Err(CqlError::invalid(STATICS_NEED_CLUSTERING));
    }
    let is_key =
        |name: &String| create.partition_key.contains(name) || create.clustering.contains(name);
    let is_counter = |of: &TypeName| *of == TypeName::Native(Native::Counter);
    let cells = create.columns.iter().filter(|column| !is_key(&column.name));
    let (counters, others): (Vec<_>, Vec<_>) =
        cells.partition(|column| is_counter(&column.column_type));
    if counters.is_empty() {
        return Ok(());
    }
    if !others.is_empty() {
        return Err(CqlError::invalid(
            "Cannot mix counter and non counter columns in the same table",
        ));
    }
    if options.default_time_to_live > 0 {
        return Err(CqlError::invalid("Cannot set default_time_to_live on a table with counters"));
    }
    Ok(())
}

pub(super) const STATICS_NEED_CLUSTERING: &str = "Static columns are only useful (and thus allowed) \
                                                  if the table has at least one clustering column";
