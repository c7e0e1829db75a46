//! Rows of system tables: values by column name, and their form in the store.

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;

use super::table::{ColumnKind, Table};
use crate::value::collection::{items, put_count, put_part};
use crate::value::comparable;
use crate::value::constant::encode_address;

/// One row in the order of its table's columns; None is null.
pub type Values = Vec<Option<Vec<u8>>>;

/// Identity of a row: table, partition key, and clustering key in the store's encoding. Without the
/// last, the whole partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    pub table: Uuid,
    pub partition: Vec<u8>,
    pub clustering: Option<Vec<u8>>,
}

/// Cells by the numbers of their columns; missing cells are null.
pub type Cells = BTreeMap<u32, Vec<u8>>;

/// Rows by identity.
pub type Rows = BTreeMap<RowId, Cells>;

/// Cells of a table with sets that are changed item by item: column, and key of the item.
pub type ItemCells = BTreeMap<(u32, Option<Vec<u8>>), Vec<u8>>;

pub type ItemRows = BTreeMap<RowId, ItemCells>;

/// Builds a row of a table. Columns that are not set are null.
#[derive(Debug)]
pub struct RowBuilder<'a> {
    table: &'a Table,
    values: Values,
}

impl<'a> RowBuilder<'a> {
    pub fn new(table: &'a Table) -> RowBuilder<'a> {
        RowBuilder { table, values: vec![None; table.columns.len()] }
    }

    #[must_use]
    pub fn bytes(mut self, column: &str, bytes: Vec<u8>) -> Self {
        let at = self.table.columns.iter().position(|known| known.name == column);
        let at = at.unwrap_or_else(|| panic!("{} has a column {column}", self.table.name));
        self.values[at] = Some(bytes);
        self
    }

    #[must_use]
    pub fn text(self, column: &str, text: &str) -> Self {
        self.bytes(column, text.as_bytes().to_vec())
    }

    #[must_use]
    pub fn int(self, column: &str, number: i32) -> Self {
        self.bytes(column, number.to_be_bytes().to_vec())
    }

    /// Also for timestamps, in milliseconds.
    #[must_use]
    pub fn bigint(self, column: &str, number: i64) -> Self {
        self.bytes(column, number.to_be_bytes().to_vec())
    }

    #[must_use]
    pub fn double(self, column: &str, number: f64) -> Self {
        self.bytes(column, number.to_be_bytes().to_vec())
    }

    #[must_use]
    pub fn boolean(self, column: &str, value: bool) -> Self {
        self.bytes(column, vec![u8::from(value)])
    }

    #[must_use]
    pub fn uuid(self, column: &str, uuid: Uuid) -> Self {
        self.bytes(column, uuid.as_bytes().to_vec())
    }

    #[must_use]
    pub fn inet(self, column: &str, address: IpAddr) -> Self {
        self.bytes(column, encode_address(address))
    }

    /// A list, or a set whose items are sorted.
    #[must_use]
    pub fn texts<'t>(self, column: &str, texts: impl ExactSizeIterator<Item = &'t str>) -> Self {
        self.bytes(column, encode_items(texts.map(str::as_bytes)))
    }

    #[must_use]
    pub(crate) fn map(self, column: &str, map: &BTreeMap<String, String>) -> Self {
        self.blobs(column, map.iter().map(|(key, value)| (key.as_str(), value.as_bytes())))
    }

    #[must_use]
    pub(crate) fn blobs<'t>(
        self,
        column: &str,
        pairs: impl ExactSizeIterator<Item = (&'t str, &'t [u8])>,
    ) -> Self {
        let mut bytes = Vec::new();
        put_count(pairs.len(), &mut bytes);
        for (key, value) in pairs {
            put_part(Some(key.as_bytes()), &mut bytes);
            put_part(Some(value), &mut bytes);
        }
        self.bytes(column, bytes)
    }

    pub fn values(self) -> Values {
        self.values
    }

    /// The row in the store's form.
    pub fn stored(self) -> (RowId, Cells) {
        let mut clustering = Vec::new();
        let mut partition = Vec::new();
        let mut cells = Cells::new();
        for (column, value) in self.table.columns.iter().zip(self.values) {
            match column.kind {
                ColumnKind::PartitionKey { .. } => {
                    partition = value.expect("a row has all of its key");
                }
                ColumnKind::Clustering { is_descending, .. } => {
                    let value = value.expect("a row has all of its key");
                    let of = &column.column_type;
                    comparable::encode(&value, of, is_descending, &mut clustering);
                }
                ColumnKind::Static | ColumnKind::Regular => {
                    cells.extend(value.map(|value| (column.number, value)));
                }
            }
        }
        debug_assert_eq!(self.table.partition_key().len(), 1);
        (RowId { table: self.table.id, partition, clustering: Some(clustering) }, cells)
    }
}

fn encode_items<'a>(items: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_count(items.len(), &mut bytes);
    items.for_each(|item| put_part(Some(item), &mut bytes));
    bytes
}

/// A row that this program cannot have written: its data directory is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a row of {table} is damaged: {column} {what}")]
pub struct Damaged {
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) what: &'static str,
}

/// Reads a row by column name.
#[derive(Debug, Clone)]
pub struct RowReader<'a> {
    table: &'a Table,
    values: Values,
}

impl<'a> RowReader<'a> {
    pub fn new(table: &'a Table, values: Values) -> RowReader<'a> {
        assert_eq!(values.len(), table.columns.len());
        RowReader { table, values }
    }

    /// Converts a row from the store's form.
    pub fn stored(table: &'a Table, id: &RowId, cells: &Cells) -> Result<RowReader<'a>, Damaged> {
        let mut rest = id.clustering.as_deref().unwrap_or_default();
        let values = table.columns.iter().map(|column| match column.kind {
            ColumnKind::PartitionKey { .. } => Ok(Some(id.partition.clone())),
            ColumnKind::Clustering { is_descending, .. } => {
                let value = comparable::decode(&mut rest, &column.column_type, is_descending);
                value.map(Some).ok_or_else(|| damaged(table, &column.name, "is cut off"))
            }
            ColumnKind::Static | ColumnKind::Regular => Ok(cells.get(&column.number).cloned()),
        });
        Ok(RowReader { table, values: values.collect::<Result<_, _>>()? })
    }

    pub(crate) fn damaged(&self, column: &str, what: &'static str) -> Damaged {
        damaged(self.table, column, what)
    }

    pub fn bytes(&self, column: &str) -> Option<&[u8]> {
        let at = self.table.columns.iter().position(|known| known.name == column);
        let at = at.unwrap_or_else(|| panic!("{} has a column {column}", self.table.name));
        self.values[at].as_deref()
    }

    fn array<const N: usize>(&self, column: &str) -> Result<Option<[u8; N]>, Damaged> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let array = bytes.try_into().map_err(|_| self.damaged(column, "has another length"))?;
        Ok(Some(array))
    }

    /// A null is read as the empty text.
    pub(crate) fn text(&self, column: &str) -> Result<String, Damaged> {
        let bytes = self.bytes(column).unwrap_or_default();
        self.utf8(column, bytes)
    }

    fn utf8(&self, column: &str, bytes: &[u8]) -> Result<String, Damaged> {
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| self.damaged(column, "is not text"))
    }

    pub fn int(&self, column: &str) -> Result<Option<i32>, Damaged> {
        Ok(self.array(column)?.map(i32::from_be_bytes))
    }

    pub(crate) fn bigint(&self, column: &str) -> Result<Option<i64>, Damaged> {
        Ok(self.array(column)?.map(i64::from_be_bytes))
    }

    pub(crate) fn double(&self, column: &str) -> Result<Option<f64>, Damaged> {
        Ok(self.array(column)?.map(f64::from_be_bytes))
    }

    pub(crate) fn boolean(&self, column: &str) -> Result<Option<bool>, Damaged> {
        Ok(self.array::<1>(column)?.map(|byte| byte != [0]))
    }

    pub fn uuid(&self, column: &str) -> Result<Option<Uuid>, Damaged> {
        Ok(self.array(column)?.map(Uuid::from_bytes))
    }

    /// A null is read as an empty list.
    pub(crate) fn texts(&self, column: &str) -> Result<Vec<String>, Damaged> {
        let Some(bytes) = self.bytes(column) else { return Ok(Vec::new()) };
        let items = items(bytes, 1).map_err(|_| self.damaged(column, "is not a list"))?;
        items.into_iter().map(|item| self.utf8(column, item)).collect()
    }

    /// A null is read as an empty map.
    pub(crate) fn map(&self, column: &str) -> Result<BTreeMap<String, String>, Damaged> {
        let pairs = self.blobs(column)?.into_iter();
        pairs.map(|(key, value)| Ok((key, self.utf8(column, &value)?))).collect()
    }

    pub(crate) fn blobs(&self, column: &str) -> Result<BTreeMap<String, Vec<u8>>, Damaged> {
        let Some(bytes) = self.bytes(column) else { return Ok(BTreeMap::new()) };
        let items = items(bytes, 2).map_err(|_| self.damaged(column, "is not a map"))?;
        let (pairs, _) = items.as_chunks::<2>();
        let pairs = pairs.iter();
        pairs.map(|[key, value]| Ok((self.utf8(column, key)?, value.to_vec()))).collect()
    }
}

fn damaged(table: &Table, column: &str, what: &'static str) -> Damaged {
    let table = format!("{}.{}", table.keyspace, table.name);
    Damaged { table, column: column.to_owned(), what }
}
