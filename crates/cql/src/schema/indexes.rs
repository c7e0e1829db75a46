//! CREATE and DROP INDEX.

use std::collections::BTreeMap;

use super::change::{ChangeContext, ChangeResult, Verb};
use super::names::{Action, existing, guard, keyspace_of};
use super::options::{map_of, refuse_unknown};
use super::table::{ColumnKind, Index, IndexTarget, Table};
use super::tables::event;
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::QualifiedName;
use crate::statements::{CreateIndex, IndexTarget as Written};
use crate::type_name::Native;
use crate::types::CqlType;

/// Maximum number of indexes of a table: each write updates all.
const INDEXES_MAX: usize = 100;

/// Supported index classes of Cassandra: all are implemented by the one index of this server. With
/// their short names, in any case.
// Source: Cassandra 5.0, schema.IndexMetadata.indexNameAliases
const ATTACHED: IndexClass =
    ("org.apache.cassandra.index.sai.StorageAttachedIndex", &["sai", "storageattachedindex"]);
const LEGACY: IndexClass =
    ("org.apache.cassandra.index.internal.CassandraIndex", &["legacy_local_table"]);
const SASI: IndexClass = ("org.apache.cassandra.index.sasi.SASIIndex", &["sasiindex"]);

type IndexClass = (&'static str, &'static [&'static str]);

/// Options of storage-attached indexes.
// Source: Cassandra 5.0, index.sai.StorageAttachedIndex.VALID_OPTIONS
const ATTACHED_OPTIONS: [&str; 7] = [
    "case_sensitive",
    "normalize",
    "ascii",
    "maximum_node_connections",
    "construction_beam_width",
    "similarity_function",
    "optimize_for",
];

/// The ones of [`ATTACHED_OPTIONS`] that transform texts.
const ANALYZING: [&str; 3] = ["case_sensitive", "normalize", "ascii"];

fn is_class(name: &str, (class, aliases): IndexClass) -> bool {
    name == class || aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, CqlError> {
    Err(CqlError::Invalid(reason.into()))
}

pub(super) fn create(
    catalog: &Catalog,
    create: &CreateIndex,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_name_of(create, cx)?;
    guard(keyspace_name, Action::AlterTable)?;
    let options = given_options(create)?;
    let keyspace = existing(catalog, keyspace_name)?;
    let table_name = &create.table.name;
    let Some(table) = keyspace.tables.get(table_name) else {
        return refuse(format!("Table '{table_name}' doesn't exist"));
    };
    if let Some(name) = &create.name
        && keyspace.indexed_table(&name.name).is_some()
    {
        if create.if_not_exists {
            return Ok(None);
        }
        return refuse(format!("Index '{}' already exists", name.name));
    }
    if table.is_counter() {
        return refuse("Secondary indexes on counter tables aren't supported");
    }
    let [written] = &create.targets[..] else {
        return refuse(match create.targets.len() {
            0 => "Only CUSTOM indexes can be created without specifying a target column",
            _ => "Only CUSTOM indexes support multiple columns",
        });
    };
    let (column, target) = checked_target(table, written)?;
    if create.class.as_deref().is_some_and(|class| is_class(class, ATTACHED))
        && let Some(column) = table.column(&column)
    {
        check_attached_column(&column.column_type, target, &options)?;
    }
    let name = create.name.as_ref().map(|name| name.name.clone());
    let name = checked_name(name.unwrap_or_else(|| free_name(keyspace, table_name, &column)))?;
    let index = Index { name, column, target, class: create.class.clone(), options };
    let is_same = |other: &Index| Index { name: index.name.clone(), ..other.clone() } == index;
    if let Some(other) = table.indexes.iter().find(|other| is_same(other)) {
        if create.if_not_exists {
            return Ok(None);
        }
        return refuse(format!(
            "Index {} is a duplicate of existing index {}",
            index.name, other.name
        ));
    }
    if table.indexes.len() >= INDEXES_MAX {
        return refuse(format!(
            "Tables cannot have more than {INDEXES_MAX} secondary indexes, aborting the creation \
             of secondary index {} on table {table_name}",
            index.name
        ));
    }
    let mut table = Table::clone(table);
    table.indexes.push(index);
    table.indexes.sort_by(|one, other| one.name.cmp(&other.name));
    let event = event(Verb::Updated, keyspace_name, table_name);
    Ok(Some((catalog.with_keyspace(keyspace.with_table(table)), event)))
}

/// The keyspace of the table: that of its own name, of the index's name, or the session's.
fn keyspace_name_of<'a>(
    create: &'a CreateIndex,
    cx: &ChangeContext<'a>,
) -> Result<&'a str, CqlError> {
    let of_index = create.name.as_ref().and_then(|name| name.keyspace.as_deref());
    match (create.table.keyspace.as_deref(), of_index) {
        (Some(table), Some(index)) if table != index => refuse(format!(
            "Keyspace name '{table}' doesn't match index name '{}'",
            create.table.name
        )),
        (None, Some(index)) => Ok(index),
        _ => keyspace_of(&create.table, cx),
    }
}

fn checked_name(name: String) -> Result<String, CqlError> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_word) {
        return Err(CqlError::Config(format!("Illegal index name {name}")));
    }
    Ok(name)
}

fn given_options(create: &CreateIndex) -> Result<BTreeMap<String, String>, CqlError> {
    // Without USING, Cassandra uses its default class.
    let default = create.is_custom.then_some("legacy_local_table");
    let unknown = match (create.class.as_deref(), default) {
        (Some(class), _) if is_class(class, SASI) => {
            return refuse("SASI indexes are disabled. Enable in cassandra.yaml to use.");
        }
        (Some(class), _) => {
            (!is_class(class, ATTACHED) && !is_class(class, LEGACY)).then_some(class)
        }
        (None, default) => default,
    };
    if let Some(class) = unknown {
        return Err(CqlError::Config(format!("Unable to find custom indexer class '{class}'")));
    }
    refuse_unknown(&create.options, &["options"])?;
    let Some((name, value)) = create.options.first() else { return Ok(BTreeMap::new()) };
    let options = map_of(name, value)?;
    if create.class.is_none() && !options.is_empty() {
        return refuse("Cannot specify options for a non-CUSTOM index");
    }
    if let Some(name) = ["class_name", "target"].into_iter().find(|n| options.contains_key(*n)) {
        return refuse(format!("Cannot specify {name} as a CUSTOM option"));
    }
    if create.class.as_deref().is_some_and(|class| is_class(class, ATTACHED)) {
        check_attached(&options)?;
    }
    Ok(options)
}

// Source: Cassandra 5.0, index.sai.StorageAttachedIndex.validateOptions, NonTokenizingOptions
fn check_attached(options: &BTreeMap<String, String>) -> Result<(), CqlError> {
    let unknown = options.keys().filter(|name| !ATTACHED_OPTIONS.contains(&name.as_str()));
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(CqlError::Config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            unknown.join(", ")
        )));
    }
    for name in ANALYZING {
        let Some(value) = options.get(name) else { continue };
        if !["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(value)) {
            return refuse(format!("Illegal value for boolean option '{name}': {value}"));
        }
    }
    Ok(())
}

/// Restrictions of storage-attached indexes on columns.
// Source: Cassandra 5.0, index.sai.StorageAttachedIndex.validateOptions
fn check_attached_column(
    of: &CqlType,
    target: IndexTarget,
    options: &BTreeMap<String, String>,
) -> Result<(), CqlError> {
    let of = match (of.unfrozen(), target) {
        (CqlType::List(item) | CqlType::Set(item), _) => item,
        (CqlType::Map(key, _), IndexTarget::Keys) => key,
        (CqlType::Map(_, value), IndexTarget::Values) => value,
        _ => of,
    };
    if let CqlType::Vector(element, _) = of
        && **element != CqlType::Native(Native::Float)
    {
        return refuse("SAI ANN indexes are only allowed on vector columns with float elements");
    }
    let is_text = matches!(of, CqlType::Native(Native::Text | Native::Ascii));
    if !is_text && ANALYZING.iter().any(|name| options.contains_key(*name)) {
        return refuse(format!("CQL type {of} cannot be analyzed."));
    }
    Ok(())
}

/// The first unused name of `t_c_idx`, `t_c_idx_1`, ...
fn free_name(keyspace: &Keyspace, table: &str, column: &str) -> String {
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let base: String = format!("{table}_{column}_idx").chars().filter(is_word).collect();
    let candidates = (1..).map(|nth| format!("{base}_{nth}"));
    let mut candidates = std::iter::once(base.clone()).chain(candidates);
    let free = candidates.find(|name| keyspace.indexed_table(name).is_none());
    free.expect("there are more numbers than indexes")
}

/// The target in a statement: the column, and the function around it.
fn written_parts(written: &Written) -> (&str, Option<(&'static str, IndexTarget)>) {
    match written {
        Written::Column(column) => (column, None),
        Written::Values(column) => (column, Some(("values", IndexTarget::Values))),
        Written::Keys(column) => (column, Some(("keys", IndexTarget::Keys))),
        Written::Entries(column) => (column, Some(("entries", IndexTarget::Entries))),
        Written::Full(column) => (column, Some(("full", IndexTarget::Full))),
    }
}

fn holds_duration(of: &CqlType) -> bool {
    !of.is_ordered() && !of.is_counter()
}

// Source: Cassandra 5.0, cql3.statements.schema.CreateIndexStatement.validateIndexTarget
fn checked_target(table: &Table, written: &Written) -> Result<(String, IndexTarget), CqlError> {
    let (name, word) = written_parts(written);
    let Some(column) = table.column(name) else {
        return refuse(format!(
            "Undefined column name {name} in table {}.{}",
            table.keyspace, table.name
        ));
    };
    let of = &column.column_type;
    if holds_duration(of) {
        return refuse(format!(
            "Secondary indexes are not supported on {}",
            match of.unfrozen() {
                CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) =>
                    "collections containing durations",
                CqlType::Tuple(_) => "tuples containing durations",
                CqlType::UserDefined(_) => "UDTs containing durations",
                _ => "duration columns",
            }
        ));
    }
    let is_partition_key = matches!(column.kind, ColumnKind::PartitionKey { .. });
    if is_partition_key && table.partition_key().len() == 1 {
        return refuse(format!(
            "Cannot create secondary index on the only partition key column {name}"
        ));
    }
    let is_collection =
        matches!(of.unfrozen(), CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..));
    let is_frozen_collection = is_collection && !of.is_multi_cell();
    let target = match word {
        None => IndexTarget::Values,
        Some((_, target)) => target,
    };
    let shown = word.map_or("values", |(word, _)| word);
    if is_frozen_collection && target != IndexTarget::Full {
        return refuse(format!(
            "Cannot create {shown}() index on frozen column {name}. Frozen collections are \
             immutable and must be fully indexed by using the 'full({name})' modifier"
        ));
    }
    if !is_frozen_collection && target == IndexTarget::Full {
        return refuse("full() indexes can only be created on frozen collections");
    }
    if !is_collection && word.is_some() {
        return refuse(format!(
            "Cannot create {shown}() index on {name}. Non-collection columns only support simple \
             indexes"
        ));
    }
    let is_map = matches!(of, CqlType::Map(..));
    if !is_map && matches!(target, IndexTarget::Keys | IndexTarget::Entries) {
        return refuse(format!(
            "Cannot create index on {shown} of column {name} with non-map type"
        ));
    }
    if matches!(of, CqlType::UserDefined(_)) {
        return refuse(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    Ok((name.to_owned(), target))
}

pub(super) fn drop(
    catalog: &Catalog,
    name: &QualifiedName,
    if_exists: bool,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_of(name, cx)?;
    guard(keyspace_name, Action::AlterTable)?;
    let found = catalog.keyspace(keyspace_name);
    let found = found.and_then(|keyspace| Some((keyspace, keyspace.indexed_table(&name.name)?)));
    let Some((keyspace, table)) = found else {
        if if_exists {
            return Ok(None);
        }
        return refuse(format!("Index '{keyspace_name}.{}' doesn't exist", name.name));
    };
    let mut table = Table::clone(table);
    table.indexes.retain(|index| index.name != name.name);
    let event = event(Verb::Updated, keyspace_name, &table.name);
    Ok(Some((catalog.with_keyspace(keyspace.with_table(table)), event)))
}
