//! A row as expressions, filters and conditions read it: with whole column values.

use std::borrow::Cow;
use std::cell::OnceCell;

use cql::error::CqlError;
use cql::expression::Row;
use cql::plan::{Extra, ExtraKind};
use cql::schema::{Column, ColumnKind, Table, TableSource};
use cql::types::CqlType;
use cql::value::collection::{put_count, put_part};
use cql::value::{check_size, comparable};
use smallvec::SmallVec;
use store::{CellView, Expiry, RowView, Seconds};

use super::item;

/// A row of a partition, with its key and static cells.
pub(super) struct RowCx<'r> {
    pub(super) table: &'r Table,
    /// Parts of the partition key.
    pub(super) key: &'r [&'r [u8]],
    pub(super) statics: Option<RowView<'r>>,
    /// `None`: the partition has only static cells.
    pub(super) row: Option<RowView<'r>>,
    pub(super) extras: &'r [Extra],
    pub(super) now: Seconds,
    clustering: OnceCell<SmallVec<[Vec<u8>; 2]>>,
}

impl<'r> RowCx<'r> {
    pub(super) fn new(
        table: &'r Table,
        key: &'r [&'r [u8]],
        statics: Option<RowView<'r>>,
        row: Option<RowView<'r>>,
        now: Seconds,
    ) -> Self {
        RowCx { table, key, statics, row, extras: &[], now, clustering: OnceCell::new() }
    }

    pub(super) fn with_extras(mut self, extras: &'r [Extra]) -> Self {
        self.extras = extras;
        self
    }

    /// The key of the row, if it is not only the static row.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        self.row.map(|row| row.key.to_vec())
    }

    /// The values of the clustering columns.
    fn clustering(&self) -> &[Vec<u8>] {
        self.clustering.get_or_init(|| {
            let mut rest = self.row.map_or(&[][..], |row| row.key);
            let columns = self.table.clustering().iter();
            columns
                .map_while(|column| {
                    comparable::decode(&mut rest, &column.column_type, column.is_descending())
                })
                .collect()
        })
    }

    /// The row, or the static row, that has the cells of a column.
    fn view(&self, column: &Column) -> Option<RowView<'r>> {
        if column.kind == ColumnKind::Static { self.statics } else { self.row }
    }

    /// The live cells of a column.
    fn cells(&self, column: &Column) -> impl Iterator<Item = CellView<'r>> + use<'r> {
        self.view(column).map(|view| column.cells(view)).into_iter().flatten()
    }

    /// The whole value of a column by its index in the table.
    pub(super) fn value(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError> {
        let keys = self.key.len();
        if index < keys {
            return Ok(Some(Cow::Borrowed(self.key[index])));
        }
        let Some(column) = self.table.columns.get(index) else {
            return Ok(self.extra(index - self.table.columns.len()));
        };
        match column.kind {
            ColumnKind::PartitionKey { .. } => Ok(None),
            ColumnKind::Clustering { position, .. } => {
                Ok(self.clustering().get(position).map(|value| Cow::Borrowed(&value[..])))
            }
            ColumnKind::Static | ColumnKind::Regular => {
                let Some(view) = self.view(column) else { return Ok(None) };
                whole(column.cells(view), &column.column_type)
            }
        }
    }

    /// The value of `writetime(c)` and similar functions.
    fn extra(&self, index: usize) -> Option<Cow<'_, [u8]>> {
        let Extra { column, what } = *self.extras.get(index)?;
        if self.table.source == TableSource::Redis && what != ExtraKind::TimeToLive {
            return None; // write times are not stored
        }
        let column = &self.table.columns[column];
        let is_list = what != ExtraKind::MaxWriteTime && column.column_type.is_multi_cell();
        let mut cells = self.cells(column);
        if what == ExtraKind::MaxWriteTime {
            let newest = cells.map(|cell| cell.timestamp).max()?;
            return Some(Cow::Owned(newest.to_be_bytes().to_vec()));
        }
        let value = |cell: CellView<'_>| match what {
            ExtraKind::TimeToLive => remaining(cell.expiry, self.now),
            _ => Some(cell.timestamp.to_be_bytes().to_vec()),
        };
        if !is_list {
            return value(cells.next()?).map(Cow::Owned);
        }
        let mut cells = cells.peekable();
        cells.peek()?;
        let values: SmallVec<[Option<Vec<u8>>; 8]> = match &column.column_type {
            // One for each field, present or not.
            CqlType::UserDefined(user) => by_field(cells, user.fields.len(), value),
            _ => cells.map(value).collect(),
        };
        let mut list = Vec::new();
        put_count(values.len(), &mut list);
        for value in &values {
            put_part(value.as_deref(), &mut list);
        }
        Some(Cow::Owned(list))
    }
}

/// Whether the row, or the static cells, exist for the current table. Cells of dropped columns do
/// not count.
pub(super) fn is_there(view: &RowView<'_>, table: &Table) -> bool {
    let is_known = |cell: CellView<'_>| table.columns.iter().any(|column| column.has(&cell));
    table.dropped.is_empty() || view.is_inserted() || view.cells().any(is_known)
}

fn remaining(expiry: Option<Expiry>, now: Seconds) -> Option<Vec<u8>> {
    let seconds = i32::try_from(expiry?.at.saturating_sub(now)).unwrap_or(i32::MAX);
    Some(seconds.to_be_bytes().to_vec())
}

impl Row for RowCx<'_> {
    fn column(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError> {
        self.value(index)
    }

    fn aggregate(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

/// The value that the cells of a column form; `None` without cells.
pub(super) fn whole<'r>(
    mut cells: impl Iterator<Item = CellView<'r>>,
    of: &CqlType,
) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
    let Some(first) = cells.next() else { return Ok(None) };
    if first.item.is_none() {
        return Ok(Some(Cow::Borrowed(first.bytes)));
    }
    let cells = std::iter::once(first).chain(cells);
    let mut count = 0;
    let mut parts = vec![0; 4];
    match of {
        CqlType::List(_) => {
            for cell in cells {
                put_part(Some(cell.bytes), &mut parts);
                count += 1;
                check_size(parts.len())?;
            }
        }
        CqlType::Set(item) => {
            for item in cells.filter_map(|cell| item::set_item(cell, item)) {
                put_part(Some(&item), &mut parts);
                count += 1;
                check_size(parts.len())?;
            }
        }
        CqlType::Map(key, _) => {
            for (key, value) in cells.filter_map(|cell| item::map_entry(cell, key)) {
                put_part(Some(&key), &mut parts);
                put_part(Some(value), &mut parts);
                count += 1;
                check_size(parts.len())?;
            }
        }
        CqlType::UserDefined(user) => {
            return fields(cells, user.fields.len()).map(|value| Some(Cow::Owned(value)));
        }
        _ => return Ok(Some(Cow::Borrowed(first.bytes))),
    }
    let mut number = Vec::with_capacity(4);
    put_count(count, &mut number);
    parts[..4].copy_from_slice(&number);
    Ok(Some(Cow::Owned(parts)))
}

/// Converts the cell of each field. Field numbers have 2 bytes.
fn by_field<'r, T: Clone>(
    cells: impl Iterator<Item = CellView<'r>>,
    count: usize,
    part: impl Fn(CellView<'r>) -> Option<T>,
) -> SmallVec<[Option<T>; 8]> {
    let mut found: SmallVec<[Option<T>; 8]> = SmallVec::from_elem(None, count);
    for cell in cells {
        let number = cell.item.and_then(|item| <[u8; 2]>::try_from(item).ok());
        let slot = number.and_then(|number| found.get_mut(usize::from(u16::from_be_bytes(number))));
        if let Some(slot) = slot {
            *slot = part(cell);
        }
    }
    found
}

/// Builds a user-defined type from its fields.
fn fields<'r>(
    cells: impl Iterator<Item = CellView<'r>>,
    count: usize,
) -> Result<Vec<u8>, CqlError> {
    let found = by_field(cells, count, |cell| Some(cell.bytes));
    let mut value = Vec::new();
    for field in &found {
        put_part(*field, &mut value);
        check_size(value.len())?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql::type_name::Native;
    use cql::value::VALUE_BYTES_MAX;

    #[test]
    fn values_of_many_cells_are_bounded() {
        let list = CqlType::List(Box::new(CqlType::Native(Native::Blob)));
        let item = vec![0; 16 << 20];
        let cell =
            CellView { column: 0, item: Some(b"i"), timestamp: 0, bytes: &item, expiry: None };
        let fitting = VALUE_BYTES_MAX / item.len() - 1;
        let found = whole(std::iter::repeat_n(cell, fitting), &list).unwrap().unwrap();
        assert_eq!(found.len(), 4 + fitting * (4 + item.len()));
        // An endless column is not read to its end.
        assert!(whole(std::iter::repeat(cell), &list).is_err());
    }
}
