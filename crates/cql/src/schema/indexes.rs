//! CREATE and DROP INDEX.

use std::collections::BTreeMap;

use super::change::{ChangeContext, ChangeResult, Verb};
use super::describe::map_literal;
use super::names::{Action, existing, guard, keyspace_of};
use super::options::{map_of, refuse_unknown};
use super::table::{
    Column, ColumnKind, Index, IndexClass, IndexTarget, Table, indexed_type, is_attached, is_class,
    is_text,
};
use super::tables::event;
use super::{Catalog, Keyspace};
use crate::analysis::Analysis;
use crate::error::CqlError;
use crate::parser::QualifiedName;
use crate::statements::{CreateIndex, IndexTarget as Written};
use crate::type_name::{CLASS_PACKAGE, Native};
use crate::types::{CqlType, class_name};

/// Maximum number of indexes of a table: each write updates all.
const INDEXES_MAX: usize = 100;

/// Supported index classes of Cassandra: all are implemented by the one index of this server. With
/// their short names, in any case.
// Source: Cassandra 5.0, schema.IndexMetadata.indexNameAliases
const LEGACY: IndexClass =
    ("org.apache.cassandra.index.internal.CassandraIndex", &["legacy_local_table"]);
const SASI: IndexClass = ("org.apache.cassandra.index.sasi.SASIIndex", &["sasiindex"]);

/// Options of storage-attached indexes.
// Source: Cassandra 5.0, index.sai.StorageAttachedIndex.VALID_OPTIONS
pub(crate) const ATTACHED_OPTIONS: [&str; 7] = [
    "case_sensitive",
    "normalize",
    "ascii",
    "maximum_node_connections",
    "construction_beam_width",
    "similarity_function",
    "optimize_for",
];

/// The ones of [`ATTACHED_OPTIONS`] for the graph of a vector index, which Cassandra allows only
/// with a property of its virtual machine.
const GRAPH_OPTIONS: [(&str, &str); 2] = [
    ("maximum_node_connections", "Maximum node connections"),
    ("construction_beam_width", "Construction beam width"),
];
/// The ones for vectors that are words. They have no effect: no query uses an index on vectors.
const VECTOR_WORDS: [(&str, &[&str]); 2] = [
    ("similarity_function", &["EUCLIDEAN", "DOT_PRODUCT", "COSINE"]),
    ("optimize_for", &["LATENCY", "RECALL"]),
];

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
    if index.is_attached() {
        check_attached(table, &index)?;
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
        (Some(class), _) => (!is_attached(class) && !is_class(class, LEGACY)).then_some(class),
        (None, default) => default,
    };
    if let Some(class) = unknown {
        return Err(CqlError::Config(format!("Unable to find custom indexer class '{class}'")));
    }
    refuse_unknown(&create.options, &["options"])?;
    let Some((name, value)) = create.options.first() else { return Ok(BTreeMap::new()) };
    let options = map_of(name, value)?;
    if !create.class.as_deref().is_some_and(is_attached) && !options.is_empty() {
        return refuse("Cannot specify options for a non-CUSTOM index");
    }
    if let Some(name) = ["class_name", "target"].into_iter().find(|n| options.contains_key(*n)) {
        return refuse(format!("Cannot specify {name} as a CUSTOM option"));
    }
    let unknown = options.keys().filter(|name| !ATTACHED_OPTIONS.contains(&name.as_str()));
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(CqlError::Config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            unknown.join(", ")
        )));
    }
    Ok(options)
}

/// Restrictions of storage-attached indexes.
// Source: Cassandra 5.0, index.sai.StorageAttachedIndex.validateOptions
fn check_attached(table: &Table, index: &Index) -> Result<(), CqlError> {
    let Index { column: name, target, options, .. } = index;
    let is_same = |other: &Index| other.column == *name && other.target == *target;
    if table.indexes.iter().any(|other| other.is_attached() && is_same(other)) {
        return refuse(format!(
            "Cannot create more than one storage-attached index on the same column: {name}"
        ));
    }
    let Some(column) = table.column(name) else { return Ok(()) };
    let of = indexed_type(&column.column_type, *target);
    check_analysis(column, of, *target, options)?;
    if let CqlType::Vector(element, _) = of
        && **element != CqlType::Native(Native::Float)
    {
        return refuse("SAI ANN indexes are only allowed on vector columns with float elements");
    }
    check_vector_options(of, options)
}

// Source: Cassandra 5.0, index.sai.analyzer.NonTokenizingOptions
fn check_analysis(
    column: &Column,
    of: &CqlType,
    target: IndexTarget,
    options: &BTreeMap<String, String>,
) -> Result<(), CqlError> {
    let is_analyzing = |name: &String| Analysis::OPTIONS.contains(&name.as_str());
    let analyzing = options.iter().filter(|(name, _)| is_analyzing(name));
    let analyzing: BTreeMap<_, _> =
        analyzing.map(|(name, value)| (name.clone(), value.clone())).collect();
    if analyzing.is_empty() {
        return Ok(());
    }
    if column.is_key() {
        return refuse(format!(
            "Analysis options are not supported on primary key columns, but found {}",
            map_literal(&analyzing)
        ));
    }
    match of {
        CqlType::Map(key, value) if target == IndexTarget::Entries => {
            let classes = [key, value].map(|part| class_name(part, false));
            let classes = classes.join(",");
            return refuse(format!(
                "CQL type '{CLASS_PACKAGE}CompositeType({classes})' cannot be analyzed."
            ));
        }
        _ if !is_text(of) => return refuse(format!("CQL type {of} cannot be analyzed.")),
        _ => {}
    }
    for (name, value) in &analyzing {
        if !["true", "false"].iter().any(|word| word.eq_ignore_ascii_case(value)) {
            return refuse(format!("Illegal value for boolean option '{name}': {value}"));
        }
    }
    Ok(())
}

// Source: Cassandra 5.0, index.sai.disk.v1.IndexWriterConfig.fromOptions
fn check_vector_options(of: &CqlType, options: &BTreeMap<String, String>) -> Result<(), CqlError> {
    let names = GRAPH_OPTIONS.iter().map(|(name, _)| name);
    let mut names = names.chain(VECTOR_WORDS.iter().map(|(name, _)| name));
    if !matches!(of, CqlType::Vector(..)) && names.any(|name| options.contains_key(*name)) {
        return refuse(format!("CQL type {of} cannot have vector options"));
    }
    if let Some((_, shown)) = GRAPH_OPTIONS.iter().find(|(name, _)| options.contains_key(*name)) {
        return refuse(format!(
            "{shown} cannot be set without enabling SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS"
        ));
    }
    for (name, words) in VECTOR_WORDS {
        let Some(word) = options.get(name).map(|value| value.to_uppercase()) else { continue };
        if !words.contains(&word.as_str()) {
            let shown = match name {
                "optimize_for" => format!("optimize_for '{word}'"),
                _ => format!("Similarity function {word}"),
            };
            return refuse(format!(
                "{shown} was not recognized for index null. Valid values are: {}",
                words.join(", ")
            ));
        }
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
