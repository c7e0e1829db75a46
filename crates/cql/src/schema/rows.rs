//! Converts a schema to rows of `system_schema`.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use uuid::Uuid;

use super::builtin::{builtin_table, is_virtual_system};
use super::options::{OptionKind, TABLE_OPTIONS};
use super::row::{Cells, RowBuilder, RowId, Rows};
use super::table::{Column, ColumnKind, DroppedColumn, Index, IndexTarget, Table, TableOptions};
use super::{Catalog, Keyspace};
use crate::parser::quoted_if_needed;
use crate::types::UserType;

pub const SCHEMA: &str = "system_schema";

/// Options that are not stored while they have their default values.
// Source: Cassandra 5.0, schema.SchemaKeyspace.addTableParamsToRowBuilder
const OMITTED: [&str; 4] = ["allow_auto_snapshot", "cdc", "incremental_backups", "memtable"];

/// All rows of a keyspace. Virtual keyspaces have none: `system_virtual_schema` describes them.
pub fn keyspace_rows(keyspace: &Keyspace) -> Rows {
    let mut rows = Rows::new();
    if is_virtual_system(&keyspace.name) {
        return rows;
    }
    rows.extend([keyspace_row(keyspace)]);
    rows.extend(keyspace.types.values().map(|user| type_row(user)));
    keyspace.tables.values().for_each(|table| put_table(table, &mut rows));
    rows
}

fn builder<'a>(table: &'a Arc<Table>, keyspace: &str) -> RowBuilder<'a> {
    RowBuilder::new(table).text("keyspace_name", keyspace)
}

fn keyspace_row(keyspace: &Keyspace) -> (RowId, Cells) {
    let table = builtin_table(SCHEMA, "keyspaces");
    let row = builder(&table, &keyspace.name).boolean("durable_writes", keyspace.durable_writes);
    row.map("replication", &keyspace.replication).stored()
}

fn type_row(user: &UserType) -> (RowId, Cells) {
    let table = builtin_table(SCHEMA, "types");
    let types: Vec<String> = user.fields.iter().map(|(_, field)| field.to_string()).collect();
    builder(&table, &user.keyspace)
        .text("type_name", &user.name)
        .texts("field_names", user.fields.iter().map(|(name, _)| name.as_str()))
        .texts("field_types", types.iter().map(String::as_str))
        .stored()
}

/// The rows of one table: its own, its columns, its indexes.
fn put_table(table: &Table, rows: &mut Rows) {
    rows.extend([table_row(table)]);
    rows.extend(table.columns.iter().map(|column| column_row(table, column)));
    rows.extend(table.dropped.iter().map(|(name, column)| dropped_row(table, name, column)));
    rows.extend(table.indexes.iter().map(|index| index_row(table, index)));
}

fn table_row(table: &Table) -> (RowId, Cells) {
    let of = builtin_table(SCHEMA, "tables");
    let flags: &[&str] = if table.is_counter() { &["compound", "counter"] } else { &["compound"] };
    let row = builder(&of, &table.keyspace)
        .text("table_name", &table.name)
        .uuid("id", table.id)
        .texts("flags", flags.iter().copied())
        .int("with_key", key_lengths(table))
        // Obsolete, kept for drivers.
        .double("dclocal_read_repair_chance", 0.0)
        .double("read_repair_chance", 0.0);
    options(row, &table.options).stored()
}

/// How many columns the partition key and the clustering key have, which never changes.
pub(super) fn key_lengths(table: &Table) -> i32 {
    let lengths = [table.partition_key().len(), table.clustering().len()];
    let [partition, clustering] = lengths.map(|len| i32::try_from(len).expect("keys are short"));
    partition << 16 | clustering
}

fn options<'a>(mut row: RowBuilder<'a>, options: &TableOptions) -> RowBuilder<'a> {
    let defaults = TableOptions::default();
    for option in &TABLE_OPTIONS {
        let name = option.name;
        let map = || options.maps.get(name).cloned().unwrap_or_default();
        let text = options.text(name);
        if OMITTED.contains(&name) && text == defaults.text(name) {
            continue;
        }
        row = match option.kind {
            OptionKind::Text => row.text(name, &text),
            OptionKind::Boolean => row.boolean(name, text == "true"),
            OptionKind::Integer => row.int(name, text.parse().unwrap_or(0)),
            OptionKind::Number => row.double(name, text.parse().unwrap_or(0.0)),
            OptionKind::Map => row.map(name, &map()),
            OptionKind::Extensions => {
                let map = map();
                let pairs = map.iter().map(|(key, value)| (key.as_str(), value.as_bytes()));
                row.blobs(name, pairs)
            }
        };
    }
    row
}

fn column_row(table: &Table, column: &Column) -> (RowId, Cells) {
    let of = builtin_table(SCHEMA, "columns");
    let number = i32::try_from(column.number).expect("columns have small numbers");
    described_column(builder(&of, &table.keyspace), table, column)
        .int("column_number", number)
        .uuid("with_table", table.id)
        .stored()
}

/// The columns of `columns` that `system_virtual_schema` also has.
pub fn described_column<'a>(row: RowBuilder<'a>, table: &Table, column: &Column) -> RowBuilder<'a> {
    let (kind, position, order) = match column.kind {
        ColumnKind::PartitionKey { position } => ("partition_key", Some(position), "none"),
        ColumnKind::Clustering { position, is_descending } => {
            ("clustering", Some(position), if is_descending { "desc" } else { "asc" })
        }
        ColumnKind::Static => ("static", None, "none"),
        ColumnKind::Regular => ("regular", None, "none"),
    };
    let position = position.map_or(-1, |at| i32::try_from(at).expect("keys are short"));
    row.text("table_name", &table.name)
        .text("column_name", &column.name)
        .text("clustering_order", order)
        .bytes("column_name_bytes", column.name.clone().into_bytes())
        .text("kind", kind)
        .int("position", position)
        .text("type", &column.column_type.to_string())
}

fn dropped_row(table: &Table, name: &str, column: &DroppedColumn) -> (RowId, Cells) {
    let of = builtin_table(SCHEMA, "dropped_columns");
    let number = i32::try_from(column.number).expect("columns have small numbers");
    builder(&of, &table.keyspace)
        .text("table_name", &table.name)
        .text("column_name", name)
        .bigint("dropped_time", column.dropped_at.div_euclid(1000))
        .text("kind", if column.is_static { "static" } else { "regular" })
        .text("type", &column.column_type.to_string())
        .int("column_number", number)
        .boolean("with_newer", column.keeps_newer)
        .uuid("with_table", table.id)
        .bigint("with_time", column.dropped_at)
        .stored()
}

fn index_row(table: &Table, index: &Index) -> (RowId, Cells) {
    let of = builtin_table(SCHEMA, "indexes");
    let mut options = index.options.clone();
    options.insert("target".to_owned(), index.target_text(table));
    if let Some(class) = &index.class {
        options.insert("class_name".to_owned(), class.clone());
    }
    builder(&of, &table.keyspace)
        .text("table_name", &table.name)
        .text("index_name", &index.name)
        .text("kind", if index.class.is_some() { "CUSTOM" } else { "COMPOSITES" })
        .map("options", &options)
        .uuid("with_table", table.id)
        .stored()
}

impl Index {
    /// As CQL text: `v`, `keys(m)`.
    pub(crate) fn target_text(&self, table: &Table) -> String {
        let column = quoted_if_needed(&self.column);
        let is_multi_cell =
            || table.column(&self.column).is_some_and(|column| column.column_type.is_multi_cell());
        match self.target {
            IndexTarget::Values if is_multi_cell() => format!("values({column})"),
            IndexTarget::Values => column,
            IndexTarget::Keys => format!("keys({column})"),
            IndexTarget::Entries => format!("entries({column})"),
            IndexTarget::Full => format!("full({column})"),
        }
    }
}

/// The sum of the hashes of a schema's rows, independent of their order.
pub(super) fn fingerprint<'a>(rows: impl Iterator<Item = (&'a RowId, &'a Cells)>) -> u128 {
    rows.map(|(id, cells)| row_hash(id, cells)).fold(0, u128::wrapping_add)
}

fn row_hash(id: &RowId, cells: &Cells) -> u128 {
    let mut hash = Md5::new();
    let mut put = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    put(id.table.as_bytes());
    put(&id.partition);
    put(id.clustering.as_deref().unwrap_or_default());
    for (number, cell) in cells {
        put(&number.to_le_bytes());
        put(cell);
    }
    u128::from_le_bytes(hash.finalize().into())
}

/// The version that clients see.
pub(crate) fn version(fingerprint: u128) -> Uuid {
    uuid::Builder::from_md5_bytes(fingerprint.to_le_bytes()).into_uuid()
}

/// The difference between two catalogs.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) written: Rows,
    pub(super) deleted: Vec<RowId>,
    pub(super) truncated: Vec<Uuid>,
    /// The amount to add to the fingerprint.
    pub(super) fingerprint: u128,
}

/// Costs time proportional to the tables and types that differ; equal ones are shared.
pub(super) fn difference(before: &Catalog, after: &Catalog) -> Difference {
    let mut found = Difference::default();
    for (name, old) in &before.keyspaces {
        match after.keyspaces.get(name) {
            Some(new) if Arc::ptr_eq(old, new) => {}
            Some(new) => compare_keyspaces(old, new, &mut found),
            None => drop_keyspace(old, &mut found),
        }
    }
    for (name, new) in &after.keyspaces {
        if !before.keyspaces.contains_key(name) {
            compare_rows(&Rows::new(), keyspace_rows(new), &mut found);
        }
    }
    found
}

/// All tables with rows of a keyspace, which are found by its name.
pub const DESCRIBING: [&str; 6] =
    ["keyspaces", "tables", "columns", "dropped_columns", "types", "indexes"];

fn drop_keyspace(keyspace: &Keyspace, found: &mut Difference) {
    let removed = fingerprint(keyspace_rows(keyspace).iter());
    found.fingerprint = found.fingerprint.wrapping_sub(removed);
    found.deleted.extend(DESCRIBING.map(|name| RowId {
        table: builtin_table(SCHEMA, name).id,
        partition: keyspace.name.clone().into_bytes(),
        clustering: None,
    }));
    found.truncated.extend(keyspace.tables.values().map(|table| table.id));
}

fn compare_keyspaces(old: &Keyspace, new: &Keyspace, found: &mut Difference) {
    let (mut before, mut after) =
        (Rows::from([keyspace_row(old)]), Rows::from([keyspace_row(new)]));
    for (name, table) in &old.tables {
        let same = new.tables.get(name);
        if same.is_some_and(|same| Arc::ptr_eq(same, table)) {
            continue;
        }
        put_table(table, &mut before);
        if same.is_none_or(|same| same.id != table.id) {
            found.truncated.push(table.id);
        }
    }
    for (name, table) in &new.tables {
        if !old.tables.get(name).is_some_and(|same| Arc::ptr_eq(same, table)) {
            put_table(table, &mut after);
        }
    }
    before.extend(old.types.values().map(|user| type_row(user)));
    after.extend(new.types.values().map(|user| type_row(user)));
    compare_rows(&before, after, found);
}

fn compare_rows(before: &Rows, after: Rows, found: &mut Difference) {
    let difference = fingerprint(after.iter()).wrapping_sub(fingerprint(before.iter()));
    found.fingerprint = found.fingerprint.wrapping_add(difference);
    found.deleted.extend(before.keys().filter(|id| !after.contains_key(*id)).cloned());
    let is_new = |id: &RowId, cells: &Cells| before.get(id) != Some(cells);
    found.written.extend(after.into_iter().filter(|(id, cells)| is_new(id, cells)));
}
