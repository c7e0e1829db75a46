//! A value of the Redis protocol as a partition.

use std::collections::BTreeSet;

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

/// Whether a value has a row.
pub(super) fn has_row(value: Value<'_>, row: &[u8]) -> bool {
    let mut is_there = false;
    one_row(value, row, |_| is_there = true);
    is_there
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

/// Which rows of a value are made.
#[derive(Debug, Clone, Copy)]
pub(in crate::cql::execute) struct Pick<'p> {
    pub(in crate::cql::execute) rows: &'p Rows,
    /// The row behind which they begin.
    pub(in crate::cql::execute) after: Option<&'p [u8]>,
    pub(in crate::cql::execute) is_reversed: bool,
    /// The first of them in their order; None: all.
    pub(in crate::cql::execute) rows_max: Option<usize>,
}

impl Pick<'_> {
    pub(in crate::cql::execute) const ALL: Pick<'static> =
        Pick { rows: &Rows::All, after: None, is_reversed: false, rows_max: None };

    fn holds(&self, row: &[u8]) -> bool {
        let is_left =
            self.after.is_none_or(|after| if self.is_reversed { row < after } else { row > after });
        is_left && self.rows.holds(row)
    }

    /// The keys of the first rows of a value, in no order: what is kept is as many as are made.
    fn first(&self, value: Value<'_>, shape: Shape, rows_max: usize) -> Vec<Vec<u8>> {
        let mut first: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut row = Vec::new();
        each_row(value, |key, _| {
            shape.row_key(key, &mut row);
            let is_full = first.len() >= rows_max;
            let farthest = if self.is_reversed { first.first() } else { first.last() };
            let is_near =
                farthest.is_none_or(|far| if self.is_reversed { row > *far } else { row < *far });
            if (is_full && !is_near) || !self.holds(&row) {
                return;
            }
            first.insert(row.clone());
            if is_full {
                if self.is_reversed {
                    first.pop_first()
                } else {
                    first.pop_last()
                };
            }
        });
        first.into_iter().collect()
    }
}

/// The rows of a key in this table, if it is of its type. O(value) unless the rows are named.
pub(in crate::cql::execute) fn partition(
    locked: &Locked<'_>,
    table: &Table,
    key: Key<'_>,
    pick: Pick<'_>,
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
    let mut add_named = |rows: &[Vec<u8>]| {
        for key in rows.iter().filter_map(|row| shape.row_value(row)) {
            one_row(value, &key, |cell| maker.add(&key, cell));
        }
    };
    match (pick.rows, pick.rows_max) {
        (Rows::Points(points), _) if shape != Shape::Strings => add_named(points),
        (_, Some(rows_max)) if rows_max < value.len() && shape != Shape::Strings => {
            add_named(&pick.first(value, shape, rows_max));
        }
        _ => each_row(value, |key, cell| maker.add(key, cell)),
    }
    Some(maker.partition)
}
