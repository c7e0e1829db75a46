//! Loads a schema from rows of `system_schema`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::builtin::{builtin, builtin_table, is_replicated_system, is_system};
use super::options::{OptionKind, TABLE_OPTIONS};
use super::row::{Damaged, RowId, RowReader, Rows};
use super::rows::{DESCRIBING, SCHEMA, fingerprint, key_lengths, keyspace_rows, version};
use super::table::{
    Column, ColumnKind, DroppedColumn, Index, IndexTarget, Table, TableOptions, TableSource,
};
use super::unusable::{Reason, SchemaObject, UnusableRow};
use super::{Catalog, Keyspace};
use crate::parser::{Parser, TYPE_DEPTH_MAX};
use crate::type_name::{Native, TypeName};
use crate::types::size::{TypeSize, reduced, reduced_user};
use crate::types::{CqlType, UserType};

/// The schema described by rows, plus the built-in keyspaces. Rows that do not describe anything
/// usable are [set aside](Catalog::unusable); a row that no server can have written is an error.
pub fn from_rows(rows: &Rows) -> Result<Catalog, Damaged> {
    let mut catalog = Catalog::clone(&builtin());
    each(rows, "keyspaces", |_, row| {
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
    let mut loading = Loading { rows, keyspaces: BTreeMap::new(), unusable: Vec::new() };
    for (name, keyspace) in &catalog.keyspaces {
        if !is_system(name) {
            loading.keyspaces.insert(name.clone(), Keyspace::clone(keyspace));
        }
    }
    loading.load_types()?;
    let mut tables = loading.load_tables()?;
    loading.load_columns(&mut tables)?;
    loading.load_dropped_columns(&mut tables)?;
    loading.load_indexes(&mut tables)?;
    loading.finish(tables);
    let Loading { keyspaces, unusable, .. } = loading;
    let keyspaces = keyspaces.into_iter().map(|(name, keyspace)| (name, Arc::new(keyspace)));
    catalog.keyspaces.extend(keyspaces);
    catalog.fingerprint = catalog.keyspaces.values().fold(0, |sum: u128, keyspace| {
        sum.wrapping_add(fingerprint(keyspace_rows(keyspace).iter()))
    });
    catalog.version = version(catalog.fingerprint);
    catalog.unusable = unusable;
    Ok(catalog)
}

/// Reads all rows of one table of `system_schema` except those of built-in keyspaces.
fn each(
    rows: &Rows,
    name: &str,
    mut read: impl FnMut(&RowId, &RowReader<'_>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    debug_assert!(DESCRIBING.contains(&name));
    let table = builtin_table(SCHEMA, name);
    for (id, cells) in rows.iter().filter(|(id, _)| id.table == table.id) {
        read(id, &RowReader::stored(&table, id, cells)?)?;
    }
    Ok(())
}

fn each_of_users(
    rows: &Rows,
    name: &str,
    mut read: impl FnMut(&RowId, &RowReader<'_>, String) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    each(rows, name, |id, row| {
        let keyspace = row.text("keyspace_name")?;
        if is_system(&keyspace) { Ok(()) } else { read(id, row, keyspace) }
    })
}

/// A schema while it is read.
struct Loading<'a> {
    rows: &'a Rows,
    keyspaces: BTreeMap<String, Keyspace>,
    unusable: Vec<UnusableRow>,
}

/// A stored type that is not resolved yet.
struct StoredType {
    id: RowId,
    keyspace: String,
    name: String,
    field_names: Vec<String>,
    field_types: Vec<String>,
}

/// A table while its parts are read.
struct StoredTable {
    table: Table,
    /// See [`key_lengths`]; earlier versions do not store them.
    key_lengths: Option<i32>,
    /// The rows of the table and of its parts.
    ids: Vec<RowId>,
    /// Why it is not usable.
    reason: Option<Reason>,
}

/// Tables by keyspace and name.
type Tables = BTreeMap<(String, String), StoredTable>;

impl Loading<'_> {
    fn set_aside(&mut self, id: &RowId, keyspace: &str, object: SchemaObject, reason: Reason) {
        let (id, keyspace) = (id.clone(), keyspace.to_owned());
        self.unusable.push(UnusableRow { id, keyspace, object, reason });
    }

    /// Types by name, loaded after their dependencies.
    fn load_types(&mut self) -> Result<(), Damaged> {
        let mut waiting = Vec::new();
        each_of_users(self.rows, "types", |id, row, keyspace| {
            let name = row.text("type_name")?;
            let (field_names, field_types) = (row.texts("field_names")?, row.texts("field_types")?);
            waiting.push(StoredType { id: id.clone(), keyspace, name, field_names, field_types });
            Ok(())
        })?;
        loop {
            let before = waiting.len();
            waiting.retain(|stored| !self.load_type(stored));
            if waiting.len() == before {
                break;
            }
        }
        for StoredType { id, keyspace, name, field_names, field_types } in waiting {
            let reason = if !self.keyspaces.contains_key(&keyspace) {
                Reason::NoKeyspace
            } else if field_names.len() != field_types.len() {
                Reason::Fields
            } else {
                Reason::NoType
            };
            self.set_aside(&id, &keyspace, SchemaObject::Type(name), reason);
        }
        Ok(())
    }

    /// Whether what the type needs is loaded: then it is, too.
    fn load_type(&mut self, stored: &StoredType) -> bool {
        let StoredType { keyspace, name, field_names, field_types, .. } = stored;
        let Some(keyspace) = self.keyspaces.get_mut(keyspace) else { return false };
        let types: Option<Vec<CqlType>> =
            field_types.iter().map(|text| type_of(text, keyspace, name)).collect();
        let Some(types) = types.filter(|types| types.len() == field_names.len()) else {
            return false;
        };
        let fields = field_names.iter().cloned().zip(types).collect();
        let user = UserType::new(keyspace.name.clone(), name.clone(), fields);
        if let Some(excess) = user.size().excess() {
            tracing::warn!(keyspace = user.keyspace, name, excess, "type read as blobs");
        }
        keyspace.types.insert(name.clone(), Arc::new(reduced_user(user)));
        true
    }

    fn load_tables(&mut self) -> Result<Tables, Damaged> {
        let mut tables = Tables::new();
        each_of_users(self.rows, "tables", |id, row, keyspace| {
            let name = row.text("table_name")?;
            if !self.keyspaces.contains_key(&keyspace) {
                self.set_aside(id, &keyspace, SchemaObject::Table(name), Reason::NoKeyspace);
                return Ok(());
            }
            let table_id = row.uuid("id")?.ok_or_else(|| row.damaged("id", "is null"))?;
            let table = Table {
                id: table_id,
                keyspace: keyspace.clone(),
                name: name.clone(),
                columns: Vec::new(),
                indexes: Vec::new(),
                dropped: BTreeMap::new(),
                options: load_options(row)?,
                source: TableSource::Stored,
            };
            let key_lengths = row.int("with_key")?;
            let stored = StoredTable { table, key_lengths, ids: vec![id.clone()], reason: None };
            tables.insert((keyspace, name), stored);
            Ok(())
        })?;
        Ok(tables)
    }

    /// Calls `read` for each part of a table. `kind`: the table of `system_schema`.
    fn each_part(
        &mut self,
        kind: &str,
        tables: &mut Tables,
        mut read: impl FnMut(&RowReader<'_>, &Keyspace, &mut Table) -> Result<Part, Damaged>,
    ) -> Result<(), Damaged> {
        each_of_users(self.rows, kind, |id, row, keyspace| {
            let name = row.text("table_name")?;
            let key = (keyspace, name);
            let found = (self.keyspaces.get(&key.0), tables.get_mut(&key));
            let part = if let (Some(keyspace), Some(stored)) = found {
                // Rows of earlier versions do not name the id of their table.
                if row.uuid("with_table")?.is_some_and(|of| of != stored.table.id) {
                    Part::Unusable(Reason::OtherTable)
                } else {
                    read(row, keyspace, &mut stored.table)?
                }
            } else {
                Part::Unusable(Reason::NoTable)
            };
            match (part, tables.get_mut(&key)) {
                (Part::Unusable(reason), _) => {
                    self.set_aside(id, &key.0, SchemaObject::Table(key.1), reason);
                }
                (part, Some(stored)) => {
                    stored.ids.push(id.clone());
                    if let Part::Breaks(reason) = part {
                        stored.reason = Some(reason);
                    }
                }
                (_, None) => {}
            }
            Ok(())
        })
    }

    fn load_columns(&mut self, tables: &mut Tables) -> Result<(), Damaged> {
        self.each_part("columns", tables, |row, keyspace, table| {
            let name = row.text("column_name")?;
            let number = number(row)?;
            if table.columns.iter().any(|other| other.number == number) {
                return Ok(Part::Unusable(Reason::OtherColumn));
            }
            let Some(column_type) = column_type(row, keyspace, &table.name)? else {
                return Ok(Part::Breaks(Reason::NoType));
            };
            let Some(kind) = column_kind(row)? else { return Ok(Part::Breaks(Reason::Columns)) };
            let shown_from = Column::ALL_SHOWN;
            table.columns.push(Column { name, column_type, kind, number, shown_from });
            Ok(Part::Used)
        })
    }

    fn load_dropped_columns(&mut self, tables: &mut Tables) -> Result<(), Damaged> {
        self.each_part("dropped_columns", tables, |row, keyspace, table| {
            let name = row.text("column_name")?;
            let Some(column_type) = column_type(row, keyspace, &table.name)? else {
                return Ok(Part::Breaks(Reason::NoType));
            };
            // An earlier version stored milliseconds only.
            let dropped_at = match row.bigint("with_time")? {
                Some(microseconds) => microseconds,
                None => row.bigint("dropped_time")?.unwrap_or(0).saturating_mul(1000),
            };
            let is_static = row.text("kind")? == "static";
            let number = number(row)?;
            let keeps_newer = row.boolean("with_newer")?.unwrap_or(false);
            // A column added again with the same number hides the older cells.
            let again = table.columns.iter_mut().find(|column| column.number == number);
            if let Some(again) = again {
                again.shown_from = dropped_at.saturating_add(1);
            }
            let dropped = DroppedColumn { column_type, is_static, number, dropped_at, keeps_newer };
            table.dropped.insert(name, dropped);
            Ok(Part::Used)
        })
    }

    fn load_indexes(&mut self, tables: &mut Tables) -> Result<(), Damaged> {
        self.each_part("indexes", tables, |row, _, table| {
            let name = row.text("index_name")?;
            let mut options = row.map("options")?;
            let class = options.remove("class_name");
            let target = options.remove("target").unwrap_or_default();
            let (column, target) =
                target_of(&target).ok_or_else(|| row.damaged("options", "has no target"))?;
            if table.column(&column).is_none() {
                return Ok(Part::Unusable(Reason::NoColumn));
            }
            table.indexes.push(Index { name, column, target, class, options });
            Ok(Part::Used)
        })
    }

    /// Puts the usable tables into their keyspaces.
    fn finish(&mut self, tables: Tables) {
        for ((keyspace, name), StoredTable { mut table, key_lengths: stored, ids, reason }) in
            tables
        {
            table.sort_columns();
            // A column of the key may have become another one, or be missing.
            let is_whole = is_table(&table) && stored.is_none_or(|it| it == key_lengths(&table));
            let reason = reason.or_else(|| (!is_whole).then_some(Reason::Columns));
            match (reason, self.keyspaces.get_mut(&keyspace)) {
                (None, Some(owner)) => drop(owner.tables.insert(name, Arc::new(table))),
                (reason, _) => {
                    let reason = reason.unwrap_or(Reason::NoKeyspace);
                    for id in &ids {
                        self.set_aside(id, &keyspace, SchemaObject::Table(name.clone()), reason);
                    }
                }
            }
        }
    }
}

/// What a row does to its table.
enum Part {
    Used,
    /// The table is complete without it.
    Unusable(Reason),
    /// The table is not usable.
    Breaks(Reason),
}

/// The type of a column. None: a type that it uses is not loaded.
fn column_type(
    row: &RowReader<'_>,
    keyspace: &Keyspace,
    table: &str,
) -> Result<Option<CqlType>, Damaged> {
    let object = format!("{table}.{}", row.text("column_name")?);
    Ok(type_of(&row.text("type")?, keyspace, &object))
}

/// None: a type that it uses is not loaded.
fn type_of(text: &str, keyspace: &Keyspace, object: &str) -> Option<CqlType> {
    // The type of a dropped column: user-defined types are expanded, without a limit in an earlier
    // version.
    if brackets(text) >= TYPE_DEPTH_MAX {
        tracing::warn!(keyspace = keyspace.name, object, "type read as a blob");
        return Some(CqlType::Native(Native::Blob));
    }
    let mut parser = Parser::new(text).ok()?;
    let name = TypeName::parse(&mut parser).ok()?;
    parser.expect_end().ok()?;
    let find = |name: &str| keyspace.types.get(name).map(Arc::clone);
    let found = CqlType::resolve_any(&name, &keyspace.name, &find).ok()?;
    if let Some(excess) = TypeSize::of(&found).excess() {
        tracing::warn!(keyspace = keyspace.name, object, excess, "type read as a blob");
    }
    Some(reduced(found))
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

fn load_options(row: &RowReader<'_>) -> Result<TableOptions, Damaged> {
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

fn number(row: &RowReader<'_>) -> Result<u32, Damaged> {
    let number = row.int("column_number")?.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| row.damaged("column_number", "is not a number"))
}

/// None: a key column without a position.
fn column_kind(row: &RowReader<'_>) -> Result<Option<ColumnKind>, Damaged> {
    let position = row.int("position")?.and_then(|at| usize::try_from(at).ok());
    Ok(match row.text("kind")?.as_str() {
        "partition_key" => position.map(|position| ColumnKind::PartitionKey { position }),
        "clustering" => {
            let is_descending = row.text("clustering_order")? == "desc";
            position.map(|position| ColumnKind::Clustering { position, is_descending })
        }
        "static" => Some(ColumnKind::Static),
        "regular" => Some(ColumnKind::Regular),
        _ => return Err(row.damaged("kind", "is of no known kind")),
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
