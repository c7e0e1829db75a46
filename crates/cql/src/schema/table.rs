//! A table and its columns.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

use md5::{Digest as _, Md5};
use store::{CellView, IndexId, RowView, Timestamp};
use uuid::Uuid;

use crate::analysis::Analysis;
use crate::type_name::Native;
use crate::types::CqlType;

/// The numbers of columns that servers of a group add: above those of CREATE TABLE, and small
/// enough for three bytes in each cell.
const GROUP_NUMBERS: Range<u32> = 1 << 14..1 << 21;

/// A table's definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub id: Uuid,
    pub keyspace: String,
    pub name: String,
    /// In the order of `SELECT *`: partition key, clustering columns, then static and then other
    /// columns by name.
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// Dropped columns, by name: one may be added again only with its type.
    pub dropped: BTreeMap<String, DroppedColumn>,
    pub options: TableOptions,
    pub source: TableSource,
}

/// Source of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableSource {
    /// Partitions of the store.
    Stored,
    /// Computed on request: information about the server. Found by keyspace and name.
    Virtual,
    /// Values of the Redis protocol.
    Redis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub column_type: CqlType,
    pub kind: ColumnKind,
    /// The store's number of the column. Key columns have one but no cells.
    pub number: u32,
    /// Older cells do not belong to the column: it was dropped with a timestamp and added again.
    pub(crate) shown_from: Timestamp,
}

/// A column that was dropped, and possibly added again.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedColumn {
    /// User-defined types are replaced by tuples, because they may be dropped too.
    pub(crate) column_type: CqlType,
    pub(crate) is_static: bool,
    pub(crate) number: u32,
    /// Microseconds since the epoch.
    pub(crate) dropped_at: i64,
    /// DROP USING TIMESTAMP: a column that is added again contains the cells that are newer.
    /// Otherwise it gets a number that its table has never used, so that no cell from before the
    /// DROP reappears.
    pub(crate) keeps_newer: bool,
}

/// The kind of a column. Positions count within the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    PartitionKey { position: usize },
    Clustering { position: usize, is_descending: bool },
    Static,
    Regular,
}

/// An index on a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub name: String,
    pub column: String,
    pub target: IndexTarget,
    /// For CUSTOM indexes: the name of a class, and its options. All indexes have the same
    /// implementation.
    pub(crate) class: Option<String>,
    pub(crate) options: BTreeMap<String, String>,
}

/// The indexed part of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexTarget {
    /// The value of a plain or frozen column, items of a list or set, values of a map.
    Values,
    Keys,
    Entries,
    Full,
}

/// Options set by WITH. Options without an effect here are stored for clients that read them.
#[derive(Debug, Clone, PartialEq)]
pub struct TableOptions {
    pub comment: String,
    pub default_time_to_live: u32,
    pub gc_grace_seconds: u32,
    /// All others by name, as text.
    pub(crate) others: BTreeMap<String, String>,
    pub(crate) maps: BTreeMap<String, BTreeMap<String, String>>,
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Columns of the partition key, in key order.
    pub fn partition_key(&self) -> &[Column] {
        let is_key = |column: &Column| matches!(column.kind, ColumnKind::PartitionKey { .. });
        &self.columns[..self.columns.iter().take_while(|column| is_key(column)).count()]
    }

    /// Clustering columns, in key order.
    pub fn clustering(&self) -> &[Column] {
        let rest = &self.columns[self.partition_key().len()..];
        let is_key = |column: &Column| matches!(column.kind, ColumnKind::Clustering { .. });
        &rest[..rest.iter().take_while(|column| is_key(column)).count()]
    }

    /// Columns with cells, static ones first.
    pub fn cells(&self) -> &[Column] {
        &self.columns[self.partition_key().len() + self.clustering().len()..]
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.cells().iter().any(|column| column.column_type.is_counter())
    }

    /// The store's number for a new column.
    pub(crate) fn next_number(&self) -> u32 {
        self.numbers().max().map_or(0, |number| number + 1)
    }

    /// The number for a new column in a group of masters. It follows from the definition, so that
    /// servers that add the same column at once give it one number, and different columns
    /// different ones. The number that a dropped column of this name had is a part of it.
    pub(crate) fn number_in_group(&self, name: &str, definition: &str) -> u32 {
        let before = self.dropped.get(name).map(|dropped| dropped.number);
        let text = format!("{name}\0{definition}\0{before:?}");
        let hash = u32::from_le_bytes(*Md5::digest(text).first_chunk().expect("has 16 bytes"));
        let range = GROUP_NUMBERS.end - GROUP_NUMBERS.start;
        let mut number = GROUP_NUMBERS.start + hash % range;
        while self.numbers().any(|used| used == number) {
            number += 1;
        }
        number
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        let columns = self.columns.iter().map(|column| column.number);
        columns.chain(self.dropped.values().map(|column| column.number))
    }

    /// The store's id of an index, which changes with its definition. None: its column does not
    /// exist.
    pub fn index_id(&self, index: &Index) -> Option<IndexId> {
        let column = self.column(&index.column)?;
        let mut hash = DefaultHasher::new();
        // For a user-defined type, the fields are part of the definition.
        let analysis = self.analysis(index)?;
        let terms = format!("{:?} {:?} {analysis:?}", index.target, column.column_type);
        (column.number, column.shown_from, terms).hash(&mut hash);
        Some(IndexId(hash.finish()))
    }

    /// What an index does to texts. None: its options cannot be obeyed, so that no query may use
    /// it. CREATE INDEX refuses these options; an earlier version did not.
    pub fn analysis(&self, index: &Index) -> Option<Analysis> {
        let analysis = index.analysis();
        let column = self.column(&index.column)?;
        let is_possible =
            || !column.is_key() && is_text(indexed_type(&column.column_type, index.target));
        (analysis.is_none() || is_possible()).then_some(analysis)
    }

    /// Whether any index is on the column, given by its position.
    pub(crate) fn is_indexed(&self, column: usize) -> bool {
        self.indexes.iter().any(|index| index.column == self.columns[column].name)
    }

    pub fn is_virtual(&self) -> bool {
        self.source == TableSource::Virtual
    }

    pub fn has_statics(&self) -> bool {
        self.cells().first().is_some_and(|column| column.kind == ColumnKind::Static)
    }
}

/// The type of the values that an index on a column contains. An entry of a map has none of its own:
/// then it is that of the column.
pub(super) fn indexed_type(of: &CqlType, target: IndexTarget) -> &CqlType {
    match (of.unfrozen(), target) {
        (_, IndexTarget::Full | IndexTarget::Entries) => of,
        (CqlType::List(item) | CqlType::Set(item), _) => item,
        (CqlType::Map(key, _), IndexTarget::Keys) => key,
        (CqlType::Map(_, value), IndexTarget::Values) => value,
        _ => of,
    }
}

pub(super) fn is_text(of: &CqlType) -> bool {
    matches!(of, CqlType::Native(Native::Text | Native::Ascii))
}

/// The name of a class of indexes, and its short names, in any case.
// Source: Cassandra 5.0, schema.IndexMetadata.indexNameAliases
pub(super) type IndexClass = (&'static str, &'static [&'static str]);

const ATTACHED: IndexClass =
    ("org.apache.cassandra.index.sai.StorageAttachedIndex", &["sai", "storageattachedindex"]);

pub(super) fn is_class(name: &str, (class, aliases): IndexClass) -> bool {
    name == class || aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
}

pub(super) fn is_attached(class: &str) -> bool {
    is_class(class, ATTACHED)
}

impl Index {
    /// Whether it is a storage-attached index.
    pub(crate) fn is_attached(&self) -> bool {
        self.class.as_deref().is_some_and(is_attached)
    }

    fn analysis(&self) -> Analysis {
        if self.is_attached() { Analysis::new(&self.options) } else { Analysis::default() }
    }
}

impl Table {
    /// Sorts the columns in the order of `columns`.
    pub(super) fn sort_columns(&mut self) {
        self.columns.sort_by(|one, other| one.rank().cmp(&other.rank()));
    }
}

impl Column {
    /// For a column that was not dropped before.
    pub(crate) const ALL_SHOWN: Timestamp = Timestamp::MIN;

    /// Whether it is a clustering column in descending order.
    pub fn is_descending(&self) -> bool {
        matches!(self.kind, ColumnKind::Clustering { is_descending: true, .. })
    }

    /// The live cells of the column in a row.
    pub fn cells<'r>(&self, row: RowView<'r>) -> impl Iterator<Item = CellView<'r>> + use<'r> {
        let shown_from = self.shown_from;
        row.column(self.number).filter(move |cell| cell.timestamp >= shown_from)
    }

    /// Whether a cell of a row belongs to the column.
    pub fn has(&self, cell: &CellView<'_>) -> bool {
        cell.column == self.number && cell.timestamp >= self.shown_from
    }

    /// Sort key: key columns by position, others by name.
    fn rank(&self) -> (u8, usize, &str) {
        match self.kind {
            ColumnKind::PartitionKey { position } => (0, position, ""),
            ColumnKind::Clustering { position, .. } => (1, position, ""),
            ColumnKind::Static => (2, 0, &self.name),
            ColumnKind::Regular => (3, 0, &self.name),
        }
    }

    pub fn is_key(&self) -> bool {
        matches!(self.kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. })
    }
}
