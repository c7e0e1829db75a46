//! A table and its columns.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use store::{CellView, IndexId, RowView, Timestamp};
use uuid::Uuid;

use crate::types::CqlType;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub id: Uuid,
    pub keyspace: String,
    pub name: String,
    /// As `SELECT *` shows them: partition key, clustering, then static and then other columns by
    /// name.
    pub columns: Vec<Column>,
    pub indexes: Vec<Index>,
    /// Columns that are gone, by name: one may come back only with its type.
    pub dropped: BTreeMap<String, DroppedColumn>,
    pub options: TableOptions,
    pub source: TableSource,
}

/// Where rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableSource {
    /// Partitions of the store.
    Stored,
    /// Computed when asked for: what the server knows about itself. Found by keyspace and name.
    Virtual,
    /// Values of the Redis protocol.
    Redis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub column_type: CqlType,
    pub kind: ColumnKind,
    /// What the store calls it. Keys have one but no cells.
    pub number: u32,
    /// Older cells are not the column's: it was dropped with a timestamp and added again.
    pub(crate) shown_from: Timestamp,
}

/// A column that was dropped, and perhaps added again.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedColumn {
    /// User-defined types are tuples here: they may be gone too.
    pub(crate) column_type: CqlType,
    pub(crate) is_static: bool,
    pub(crate) number: u32,
    /// Microseconds since the epoch.
    pub(crate) dropped_at: i64,
    /// DROP USING TIMESTAMP: a column that is added again has the cells that are newer. Otherwise it
    /// gets a number that its table has never used, so that no cell from before the DROP returns.
    pub(crate) keeps_newer: bool,
}

/// What a column is for. Positions count within the kind.
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
    /// Of CUSTOM indexes: the name of a class, and what it is told. All are kept in the same way.
    pub(crate) class: Option<String>,
    pub(crate) options: BTreeMap<String, String>,
}

/// What of a column an index finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexTarget {
    /// The value of a plain or frozen column, items of a list or set, values of a map.
    Values,
    Keys,
    Entries,
    Full,
}

/// What WITH sets. Those without a meaning here are kept for clients that read them.
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

    /// In the order of the key.
    pub fn partition_key(&self) -> &[Column] {
        let is_key = |column: &Column| matches!(column.kind, ColumnKind::PartitionKey { .. });
        &self.columns[..self.columns.iter().take_while(|column| is_key(column)).count()]
    }

    /// In the order of the key.
    pub fn clustering(&self) -> &[Column] {
        let rest = &self.columns[self.partition_key().len()..];
        let is_key = |column: &Column| matches!(column.kind, ColumnKind::Clustering { .. });
        &rest[..rest.iter().take_while(|column| is_key(column)).count()]
    }

    /// Columns that have cells: static ones first.
    pub fn cells(&self) -> &[Column] {
        &self.columns[self.partition_key().len() + self.clustering().len()..]
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.cells().iter().any(|column| column.column_type.is_counter())
    }

    /// What a new column is called by the store.
    pub(crate) fn next_number(&self) -> u32 {
        let columns = self.columns.iter().map(|column| column.number);
        let dropped = self.dropped.values().map(|column| column.number);
        columns.chain(dropped).max().map_or(0, |number| number + 1)
    }

    /// What the store calls an index. Another one whenever its terms are others. None: it is on no column.
    pub fn index_id(&self, index: &Index) -> Option<IndexId> {
        let column = self.column(&index.column)?;
        let mut hash = DefaultHasher::new();
        // Of a user-defined type the fields count too.
        let terms = format!("{:?} {:?}", index.target, column.column_type);
        (column.number, column.shown_from, terms).hash(&mut hash);
        Some(IndexId(hash.finish()))
    }

    pub fn is_virtual(&self) -> bool {
        self.source == TableSource::Virtual
    }

    pub fn has_statics(&self) -> bool {
        self.cells().first().is_some_and(|column| column.kind == ColumnKind::Static)
    }
}

impl Table {
    /// Puts the columns in the order that `columns` has.
    pub(super) fn sort_columns(&mut self) {
        self.columns.sort_by(|one, other| one.rank().cmp(&other.rank()));
    }
}

impl Column {
    /// Of a column that was not dropped before.
    pub(crate) const ALL_SHOWN: Timestamp = Timestamp::MIN;

    /// The live cells of the column in a row.
    pub fn cells<'r>(&self, row: RowView<'r>) -> impl Iterator<Item = CellView<'r>> + use<'r> {
        let shown_from = self.shown_from;
        row.column(self.number).filter(move |cell| cell.timestamp >= shown_from)
    }

    /// Whether a cell of a row is one of the column's.
    pub fn has(&self, cell: &CellView<'_>) -> bool {
        cell.column == self.number && cell.timestamp >= self.shown_from
    }

    /// Keys by position, others by name.
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
