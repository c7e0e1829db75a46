//! A value of the Redis protocol as a partition.

use store::{CellValue, Expiry, Key, Locked, Partition, RowKey, Seconds, Value, ValueKind, Write};

use super::DB;
use crate::cql::execute::ranges::Rows;
use crate::cql::schema::Table;
use crate::cql::type_name::Native;
use crate::cql::types::CqlType;
use crate::cql::value::comparable;

/// Which type of values a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Strings,
    Hashes,
    Sets,
    ZSets,
    Lists,
}

impl Shape {
    /// Of a table of keyspace `redis`.
    pub(super) fn of(table: &Table) -> Shape {
        match table.name.as_str() {
            "strings" => Shape::Strings,
            "hashes" => Shape::Hashes,
            "sets" => Shape::Sets,
            "zsets" => Shape::ZSets,
            "lists" => Shape::Lists,
            other => unreachable!("keyspace redis has no table {other}"),
        }
    }

    pub(super) fn kind(self) -> ValueKind {
        match self {
            Shape::Strings => ValueKind::String,
            Shape::Hashes => ValueKind::Hash,
            Shape::Sets => ValueKind::Set,
            Shape::ZSets => ValueKind::ZSet,
            Shape::Lists => ValueKind::List,
        }
    }

    /// The type of the clustering column; that of strings has none.
    fn row_type(self) -> CqlType {
        match self {
            Shape::Lists => CqlType::INT,
            _ => CqlType::Native(Native::Blob),
        }
    }

    /// The key of a row.
    pub(super) fn row_key(self, value: &[u8], out: &mut Vec<u8>) {
        out.clear();
        comparable::encode(value, &self.row_type(), false, out);
    }

    /// What a row's key was made of.
    pub(super) fn row_value(self, mut row: &[u8]) -> Option<Vec<u8>> {
        comparable::decode(&mut row, &self.row_type(), false)
    }
}

/// The place of a list's item that a row's key says.
pub(super) fn list_place(row: &[u8]) -> Option<i32> {
    let bytes = Shape::Lists.row_value(row)?;
    <[u8; 4]>::try_from(&bytes[..]).ok().map(i32::from_be_bytes)
}

/// Calls `visit` with all rows of a value: what their keys are made of, and their cell.
pub(super) fn each_row(value: Value<'_>, mut visit: impl FnMut(&[u8], Option<&[u8]>)) {
    match value {
        Value::String(bytes) => visit(&[], Some(bytes)),
        Value::Hash(hash) => hash.iter().for_each(|(field, bytes)| visit(field, Some(bytes))),
        Value::Set(set) => {
            set.iter().for_each(|member| member.with_bytes(|member| visit(member, None)));
        }
        Value::ZSet(zset) => {
            for (member, score) in zset {
                visit(member, Some(&score.to_be_bytes()));
            }
        }
        Value::List(list) => {
            // More items than numbers of the type cannot be named.
            for (place, item) in (0..=i32::MAX).zip(list.iter()) {
                visit(&place.to_be_bytes(), Some(item));
            }
        }
    }
}

/// Calls `visit` with the cell of one row, if the value has that row.
fn one_row(value: Value<'_>, row: &[u8], visit: impl FnOnce(Option<&[u8]>)) {
    match value {
        Value::String(bytes) => visit(Some(bytes)),
        Value::Hash(hash) => {
            if let Some(bytes) = hash.get(row) {
                visit(Some(bytes));
            }
        }
        Value::Set(set) => {
            if set.contains(row) {
                visit(None);
            }
        }
        Value::ZSet(zset) => {
            if let Some(score) = zset.score(row) {
                visit(Some(&score.to_be_bytes()));
            }
        }
        Value::List(list) => {
            let place = <[u8; 4]>::try_from(row).map(i32::from_be_bytes);
            let place = place.ok().and_then(|place| usize::try_from(place).ok());
            if let Some(item) = place.and_then(|place| list.get(place)) {
                visit(Some(item));
            }
        }
    }
}

/// Puts rows into a partition.
struct Maker {
    shape: Shape,
    /// Of the only column with cells.
    column: u32,
    expiry: Option<Expiry>,
    partition: Partition,
    row: Vec<u8>,
}

impl Maker {
    fn add(&mut self, key: &[u8], cell: Option<&[u8]>) {
        self.row.clear();
        if self.shape != Shape::Strings {
            self.shape.row_key(key, &mut self.row);
        }
        let (row, expiry) = (&self.row[..], self.expiry);
        self.partition.write(Write::InsertRow { row, timestamp: 0, expiry });
        if let Some(bytes) = cell {
            self.partition.write(Write::Cell {
                row: RowKey::Clustering(row),
                column: self.column,
                item: None,
                timestamp: 0,
                value: CellValue::Live { bytes, expiry },
            });
        }
    }
}

/// The rows of a key in this table, if it is of its type: those with these keys, or all. O(value)
/// unless the rows are named.
pub(in crate::cql::execute) fn partition(
    locked: &Locked<'_>,
    table: &Table,
    key: Key<'_>,
    rows: &Rows,
) -> Option<Partition> {
    let shape = Shape::of(table);
    let value = locked.get(DB, key).filter(|value| value.kind() == shape.kind())?;
    let now_ms = locked.params().now().0;
    let seconds = |seconds: u64| Seconds::try_from(seconds).unwrap_or(Seconds::MAX);
    let expiry = locked.expiry(DB, key).flatten().map(|at| {
        // What is left, rounded up: never more than was asked for, and not before the key is gone.
        let left = at.0.saturating_sub(now_ms).div_ceil(1000);
        Expiry { at: seconds((now_ms / 1000).saturating_add(left)), ttl: seconds(left) }
    });
    let column = table.cells().first().map_or(0, |column| column.number);
    let mut maker = Maker { shape, column, expiry, partition: Partition::new(), row: Vec::new() };
    match rows {
        Rows::Points(points) if shape != Shape::Strings => {
            for key in points.iter().filter_map(|point| shape.row_value(point)) {
                one_row(value, &key, |cell| maker.add(&key, cell));
            }
        }
        _ => each_row(value, |key, cell| maker.add(key, cell)),
    }
    Some(maker.partition)
}
