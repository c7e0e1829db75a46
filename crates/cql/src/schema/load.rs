//! Loads a schema from rows of `system_schema`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::builtin::{builtin, builtin_table, is_replicated_system, is_system};
use super::options::{OptionKind, TABLE_OPTIONS};
use super::orphans::{self, Orphan};
use super::row::{Damaged, RowReader, Rows};
use super::rows::{SCHEMA, fingerprint, keyspace_rows, version};
use super::table::{
    Column, ColumnKind, DroppedColumn, Index, IndexTarget, Table, TableOptions, TableSource,
};
use super::{Catalog, Keyspace};
use crate::parser::{DEPTH_MAX, Parser};
use crate::type_name::{Native, TypeName};
use crate::types::size::{TypeSize, reduced, reduced_user};
use crate::types::{CqlType, UserType};

/// Why stored rows are not a valid schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Row(#[from] Damaged),
    #[error("{keyspace}.{object} has an invalid type: {text}")]
    Type { keyspace: String, object: String, text: String },
    #[error("cyclic user-defined types in {keyspace}: {types}")]
    TypesInCircle { keyspace: String, types: String },
    #[error("{0} does not belong to a table")]
    Orphan(String),
    #[error("the columns of {0} do not form a table")]
    Columns(String),
}

/// The schema described by rows, plus the built-in keyspaces. It is without
/// [orphans](Catalog::orphans).
pub fn from_rows(rows: &Rows) -> Result<Catalog, LoadError> {
    let orphans = orphans::find(rows)?;
    if orphans.is_empty() {
        return from_whole_rows(rows);
    }
    for Orphan { keyspace, object, .. } in &orphans {
        tracing::error!(
            keyspace,
            object,
            "stored row of the schema lacks its keyspace or table: ignored"
        );
    }
    let mut rows = rows.clone();
    for orphan in &orphans {
        drop(rows.remove(&orphan.id));
    }
    Ok(Catalog { orphans, ..from_whole_rows(&rows)? })
}

fn from_whole_rows(rows: &Rows) -> Result<Catalog, LoadError> {
    let mut catalog = Catalog::clone(&builtin());
    each(rows, "keyspaces", |row| {
        let name = row.text("keyspace_name")?;
        let replication = row.map("replication")?;
        let durable_writes = row.boolean("durable_writes")?.unwrap_or(true);
        let known = catalog.keyspace(&name).map(|known| Keyspace::clone(known));
        if known.is_some() && !is_replicated_system(&name) {
            return Ok(());
        }
        let (tables, types) = known.map_or_else(Default::default, |k| (k.tables, k.types));
        let keyspace = Keyspace { name: name.clone(), replication, durable_writes, tables, types };
        catalog.keyspaces.insert(name, Arc::new(keyspace));
        Ok(())
    })?;
    let mut keyspaces: BTreeMap<String, Keyspace> = BTreeMap::new();
    for (name, keyspace) in &catalog.keyspaces {
        if !is_system(name) {
            keyspaces.insert(name.clone(), Keyspace::clone(keyspace));
        }
    }
    load_types(rows, &mut keyspaces)?;
    let mut tables = load_tables(rows)?;
    load_columns(rows, &keyspaces, &mut tables)?;
    load_indexes(rows, &mut tables)?;
    for ((keyspace, name), mut table) in tables {
        table.sort_columns();
        if !is_table(&table) {
            return Err(LoadError::Columns(format!("{keyspace}.{name}")));
        }
        let owner = keyspaces.get_mut(&keyspace);
        let owner = owner.ok_or_else(|| LoadError::Orphan(format!("{keyspace}.{name}")))?;
        owner.tables.insert(name, Arc::new(table));
    }
    let keyspaces = keyspaces.into_iter().map(|(name, keyspace)| (name, Arc::new(keyspace)));
    catalog.keyspaces.extend(keyspaces);
    catalog.fingerprint = catalog.keyspaces.values().fold(0, |sum: u128, keyspace| {
        sum.wrapping_add(fingerprint(keyspace_rows(keyspace).iter()))
    });
    catalog.version = version(catalog.fingerprint);
    Ok(catalog)
}

/// Reads all rows of one table of `system_schema` except those of built-in keyspaces.
fn each(
    rows: &Rows,
    name: &str,
    mut read: impl FnMut(&RowReader<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let table = builtin_table(SCHEMA, name);
    for (id, cells) in rows.iter().filter(|(id, _)| id.table == table.id) {
        read(&RowReader::stored(&table, id, cells)?)?;
    }
    Ok(())
}

fn each_of_users(
    rows: &Rows,
    name: &str,
    mut read: impl FnMut(&RowReader<'_>, String) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    each(rows, name, |row| {
        let keyspace = row.text("keyspace_name")?;
        if is_system(&keyspace) { Ok(()) } else { read(row, keyspace) }
    })
}

/// Types by name, loaded after their dependencies.
fn load_types(rows: &Rows, keyspaces: &mut BTreeMap<String, Keyspace>) -> Result<(), LoadError> {
    let mut waiting: Vec<(String, String, Vec<String>, Vec<String>)> = Vec::new();
    each_of_users(rows, "types", |row, keyspace| {
        let name = row.text("type_name")?;
        let (names, types) = (row.texts("field_names")?, row.texts("field_types")?);
        if names.len() != types.len() {
            return Err(row.damaged("field_types", "has another length").into());
        }
        waiting.push((keyspace, name, names, types));
        Ok(())
    })?;
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut left = Vec::new();
        for (keyspace_name, name, names, texts) in waiting {
            let orphan = || LoadError::Orphan(format!("{keyspace_name}.{name}"));
            let keyspace = keyspaces.get_mut(&keyspace_name).ok_or_else(orphan)?;
            let types: Result<Vec<CqlType>, _> =
                texts.iter().map(|text| type_of(text, keyspace, &name)).collect();
            let Ok(types) = types else {
                left.push((keyspace_name, name, names, texts));
                continue;
            };
            let fields = names.into_iter().zip(types).collect();
            let user = UserType::new(keyspace_name, name.clone(), fields);
            if let Some(excess) = user.size().excess() {
                tracing::warn!(keyspace = user.keyspace, name, excess, "type read as blobs");
            }
            keyspace.types.insert(name, Arc::new(reduced_user(user)));
        }
        if left.len() == before {
            let keyspace = left[0].0.clone();
            let types: Vec<String> = left.into_iter().map(|(_, name, _, _)| name).collect();
            return Err(LoadError::TypesInCircle { keyspace, types: types.join(", ") });
        }
        waiting = left;
    }
    Ok(())
}

fn type_of(text: &str, keyspace: &Keyspace, object: &str) -> Result<CqlType, LoadError> {
    let refused = || LoadError::Type {
        keyspace: keyspace.name.clone(),
        object: object.to_owned(),
        text: text.to_owned(),
    };
    // The type of a dropped column: user-defined types are expanded, without a limit in an earlier
    // version.
    if brackets(text) >= DEPTH_MAX {
        tracing::warn!(keyspace = keyspace.name, object, "type read as a blob");
        return Ok(CqlType::Native(Native::Blob));
    }
    let mut parser = Parser::new(text).map_err(|_| refused())?;
    let name = TypeName::parse(&mut parser).map_err(|_| refused())?;
    parser.expect_end().map_err(|_| refused())?;
    let find = |name: &str| keyspace.types.get(name).map(Arc::clone);
    let found = CqlType::resolve_any(&name, &keyspace.name, &find).map_err(|_| refused())?;
    if let Some(excess) = TypeSize::of(&found).excess() {
        tracing::warn!(keyspace = keyspace.name, object, excess, "type read as a blob");
    }
    Ok(reduced(found))
}

/// The maximum number of simultaneously open brackets.
fn brackets(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'<' => open += 1,
            b'>' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// Tables by keyspace and name.
type Tables = BTreeMap<(String, String), Table>;

fn load_tables(rows: &Rows) -> Result<Tables, LoadError> {
    let mut tables = Tables::new();
    each_of_users(rows, "tables", |row, keyspace| {
        let name = row.text("table_name")?;
        let id = row.uuid("id")?.ok_or_else(|| row.damaged("id", "is null"))?;
        let table = Table {
            id,
            keyspace: keyspace.clone(),
            name: name.clone(),
            columns: Vec::new(),
            indexes: Vec::new(),
            dropped: BTreeMap::new(),
            options: load_options(row)?,
            source: TableSource::Stored,
        };
        tables.insert((keyspace, name), table);
        Ok(())
    })?;
    Ok(tables)
}

fn load_options(row: &RowReader<'_>) -> Result<TableOptions, LoadError> {
    let mut options = TableOptions::default();
    for option in &TABLE_OPTIONS {
        let name = option.name;
        if row.bytes(name).is_none() {
            continue;
        }
        let text = match option.kind {
            OptionKind::Text => Some(row.text(name)?),
            OptionKind::Boolean => row.boolean(name)?.map(|value| value.to_string()),
            OptionKind::Integer => row.int(name)?.map(|number| number.to_string()),
            OptionKind::Number => row.double(name)?.map(super::options::java_double),
            OptionKind::Map | OptionKind::Extensions => {
                options.maps.insert(name.to_owned(), row.map(name)?);
                None
            }
        };
        if let Some(text) = text {
            options.put(name, text);
        }
    }
    Ok(options)
}

fn load_columns(
    rows: &Rows,
    keyspaces: &BTreeMap<String, Keyspace>,
    tables: &mut Tables,
) -> Result<(), LoadError> {
    each_of_users(rows, "columns", |row, keyspace| {
        let name = row.text("column_name")?;
        let (table, of) = owner(row, &keyspace, &name, keyspaces, tables)?;
        let kind = column_kind(row)?;
        let number = number(row)?;
        let shown_from = Column::ALL_SHOWN;
        table.columns.push(Column { name, column_type: of, kind, number, shown_from });
        Ok(())
    })?;
    each_of_users(rows, "dropped_columns", |row, keyspace| {
        let name = row.text("column_name")?;
        let (table, of) = owner(row, &keyspace, &name, keyspaces, tables)?;
        let dropped_at = row.bigint("dropped_time")?.unwrap_or(0).saturating_mul(1000);
        let is_static = row.text("kind")? == "static";
        let number = number(row)?;
        let keeps_newer = row.boolean("with_newer")?.unwrap_or(false);
        // A column added again with the same number hides the older cells.
        let again = table.columns.iter_mut().find(|column| column.number == number);
        if let Some(again) = again {
            again.shown_from = dropped_at.saturating_add(1);
        }
        let dropped = DroppedColumn { column_type: of, is_static, number, dropped_at, keeps_newer };
        table.dropped.insert(name, dropped);
        Ok(())
    })
}

/// The table of a column, and the column's type.
fn owner<'t>(
    row: &RowReader<'_>,
    keyspace: &str,
    column: &str,
    keyspaces: &BTreeMap<String, Keyspace>,
    tables: &'t mut Tables,
) -> Result<(&'t mut Table, CqlType), LoadError> {
    let name = row.text("table_name")?;
    let object = format!("{name}.{column}");
    let orphan = || LoadError::Orphan(format!("{keyspace}.{object}"));
    let found = keyspaces.get(keyspace).ok_or_else(orphan)?;
    let of = type_of(&row.text("type")?, found, &object)?;
    let table = tables.get_mut(&(keyspace.to_owned(), name)).ok_or_else(orphan)?;
    Ok((table, of))
}

fn number(row: &RowReader<'_>) -> Result<u32, LoadError> {
    let number = row.int("column_number")?.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| row.damaged("column_number", "is not a number").into())
}

fn column_kind(row: &RowReader<'_>) -> Result<ColumnKind, LoadError> {
    let position = || {
        let position = row.int("position")?.and_then(|at| usize::try_from(at).ok());
        position.ok_or_else(|| row.damaged("position", "is not a position"))
    };
    Ok(match row.text("kind")?.as_str() {
        "partition_key" => ColumnKind::PartitionKey { position: position()? },
        "clustering" => {
            let is_descending = row.text("clustering_order")? == "desc";
            ColumnKind::Clustering { position: position()?, is_descending }
        }
        "static" => ColumnKind::Static,
        "regular" => ColumnKind::Regular,
        _ => return Err(row.damaged("kind", "is of no known kind").into()),
    })
}

/// Whether there is a partition key, and positions of keys count from 0.
fn is_table(table: &Table) -> bool {
    let partition = table.partition_key().iter().zip(0..).all(
        |(column, at)| matches!(column.kind, ColumnKind::PartitionKey { position } if position == at),
    );
    let clustering = table.clustering().iter().zip(0..).all(
        |(column, at)| matches!(column.kind, ColumnKind::Clustering { position, .. } if position == at),
    );
    partition && clustering && !table.partition_key().is_empty()
}

fn load_indexes(rows: &Rows, tables: &mut Tables) -> Result<(), LoadError> {
    each_of_users(rows, "indexes", |row, keyspace| {
        let (table, name) = (row.text("table_name")?, row.text("index_name")?);
        let orphan = || LoadError::Orphan(format!("{keyspace}.{name}"));
        let table = tables.get_mut(&(keyspace.clone(), table)).ok_or_else(orphan)?;
        let mut options = row.map("options")?;
        let class = options.remove("class_name");
        let target = options.remove("target").unwrap_or_default();
        let (column, target) =
            target_of(&target).ok_or_else(|| row.damaged("options", "has no target"))?;
        table.indexes.push(Index { name, column, target, class, options });
        Ok(())
    })
}

/// Reads `v` or `keys(m)`; a name may be quoted.
fn target_of(text: &str) -> Option<(String, IndexTarget)> {
    let mut parser = Parser::new(text).ok()?;
    let targets = [
        ("values", IndexTarget::Values),
        ("keys", IndexTarget::Keys),
        ("entries", IndexTarget::Entries),
        ("full", IndexTarget::Full),
    ];
    let found = targets
        .into_iter()
        .find(|(word, _)| parser.is_at_word(word) && parser.peek_at(1).is_symbol("("));
    let Some((_, target)) = found else { return Some((parser.name().ok()?, IndexTarget::Values)) };
    parser.take();
    parser.expect_symbol("(").ok()?;
    Some((parser.name().ok()?, target))
}
