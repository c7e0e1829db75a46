//! A Redis value as a partition.

use base::time::UnixMs;
use cql::schema::Table;
use cql::type_name::Native;
use cql::types::CqlType;
use cql::value::comparable;
use store::{
    CellValue, Expiry, HashRef, Key, Locked, Partition, RowKey, Seconds, Value, ValueKind, Write,
};

use super::DB;
use crate::config::{KeyEvent, KeyEvents};
use crate::statements::execute::ranges::Rows;

/// The type of values that a table exposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Strings,
    Hashes,
    Sets,
    ZSets,
    Lists,
    Series,
}

impl Shape {
    /// The shape of a table of keyspace `redis`.
    pub(super) fn of(table: &Table) -> Shape {
        match table.name.as_str() {
            "strings" => Shape::Strings,
            "hashes" => Shape::Hashes,
            "sets" => Shape::Sets,
            "zsets" => Shape::ZSets,
            "lists" => Shape::Lists,
            "series" => Shape::Series,
            other => unreachable!("keyspace redis has no table {other}"),
        }
    }

    /// The event of the command that writes rows as a statement does.
    pub(super) fn written(self) -> KeyEvent {
        let (class, name) = match self {
            Shape::Strings => (KeyEvents::STRING, "set"),
            Shape::Hashes => (KeyEvents::HASH, "hset"),
            Shape::Sets => (KeyEvents::SET, "sadd"),
            Shape::ZSets => (KeyEvents::ZSET, "zadd"),
            Shape::Lists => (KeyEvents::LIST, "rpush"),
            Shape::Series => (KeyEvents::MODULE, "tsadd"),
        };
        KeyEvent { class, name }
    }

    /// The event of the command that removes rows as a statement does; a string has one row.
    pub(super) fn removed(self) -> Option<KeyEvent> {
        let (class, name) = match self {
            Shape::Strings => return None,
            Shape::Hashes => (KeyEvents::HASH, "hdel"),
            Shape::Sets => (KeyEvents::SET, "srem"),
            Shape::ZSets => (KeyEvents::ZSET, "zrem"),
            Shape::Lists => (KeyEvents::LIST, "lrem"),
            Shape::Series => (KeyEvents::MODULE, "tsrem"),
        };
        Some(KeyEvent { class, name })
    }

    pub(super) fn kind(self) -> ValueKind {
        match self {
            Shape::Strings => ValueKind::String,
            Shape::Hashes => ValueKind::Hash,
            Shape::Sets => ValueKind::Set,
            Shape::ZSets => ValueKind::ZSet,
            Shape::Lists => ValueKind::List,
            Shape::Series => ValueKind::Series,
        }
    }

    /// The shape for values of a type; `None`: no table shows them.
    fn showing(kind: ValueKind) -> Option<Shape> {
        Some(match kind {
            ValueKind::String => Shape::Strings,
            ValueKind::Hash => Shape::Hashes,
            ValueKind::Set => Shape::Sets,
            ValueKind::ZSet => Shape::ZSets,
            ValueKind::List => Shape::Lists,
            ValueKind::Series => Shape::Series,
            ValueKind::Stream => return None,
        })
    }

    /// The type of the clustering column; strings have none.
    fn row_type(self) -> CqlType {
        match self {
            Shape::Lists => CqlType::INT,
            Shape::Series => CqlType::Native(Native::Bigint),
            _ => CqlType::Native(Native::Blob),
        }
    }

    /// Encodes the key of a row.
    pub(super) fn row_key(self, value: &[u8], out: &mut Vec<u8>) {
        out.clear();
        if self != Shape::Strings {
            comparable::encode(value, &self.row_type(), false, out);
        }
    }

    /// Decodes a row's key.
    pub(super) fn row_value(self, mut row: &[u8]) -> Option<Vec<u8>> {
        comparable::decode(&mut row, &self.row_type(), false)
    }
}

/// Decodes a row's key as the index of a list item.
pub(super) fn list_place(row: &[u8]) -> Option<i32> {
    let bytes = Shape::Lists.row_value(row)?;
    <[u8; 4]>::try_from(&bytes[..]).ok().map(i32::from_be_bytes)
}

/// The timestamp of a row with a decoded key.
pub(super) fn row_timestamp(row: &[u8]) -> Option<i64> {
    <[u8; 8]>::try_from(row).ok().map(i64::from_be_bytes)
}

/// Calls `visit` with the decoded key and the cell of each row of a value.
pub(super) fn each_row(value: Value<'_>, now: UnixMs, mut visit: impl FnMut(&[u8], Option<&[u8]>)) {
    match value {
        Value::String(text) => visit(&[], Some(&text)),
        Value::Hash(hash) => hash.iter().for_each(|(field, bytes)| visit(&field, Some(&bytes))),
        Value::Set(set) => {
            set.iter().for_each(|member| member.with_bytes(|member| visit(member, None)));
        }
        Value::ZSet(zset) => {
            for (member, score) in zset.iter() {
                visit(&member, Some(&score.to_be_bytes()));
            }
        }
        Value::List(list) => {
            // Items beyond the range of the index type cannot be addressed.
            for (place, item) in (0..=i32::MAX).zip(list.iter()) {
                visit(&place.to_be_bytes(), Some(&item));
            }
        }
        Value::Series(series) => {
            for point in series.range(i64::MIN, i64::MAX).filter(|point| point.is_live(now)) {
                visit(&point.timestamp.to_be_bytes(), Some(point.value));
            }
        }
        Value::Stream(_) => {}
    }
}

/// Calls `visit` with the cell of one row, if the value has that row.
fn one_row(value: Value<'_>, now: UnixMs, row: &[u8], visit: impl FnOnce(Option<&[u8]>)) {
    match value {
        Value::String(text) => visit(Some(&text)),
        Value::Hash(hash) => {
            if let Some(bytes) = hash.get(row) {
                visit(Some(&bytes));
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
                visit(Some(&item));
            }
        }
        Value::Series(series) => {
            if let Some(bytes) = row_timestamp(row).and_then(|at| series.get(at, now)) {
                visit(Some(bytes));
            }
        }
        Value::Stream(_) => {}
    }
}

/// Whether a value has a row.
pub(super) fn has_row(value: Value<'_>, now: UnixMs, row: &[u8]) -> bool {
    let mut is_there = false;
    one_row(value, now, row, |_| is_there = true);
    is_there
}

/// Calls `visit` with the keys and cells of about `count` elements from a position on, 0 at first.
/// Returns the next position, 0 at the end. Elements that exist throughout are visited.
pub(super) fn visit_some(
    value: Value<'_>,
    now: UnixMs,
    rows: &Rows,
    (from, count): (u64, usize),
    mut visit: impl FnMut(&[u8], Option<&[u8]>),
) -> u64 {
    let Some(shape) = Shape::showing(value.kind()) else { return 0 };
    let first = usize::try_from(from).unwrap_or(usize::MAX);
    let next_position =
        |len: usize| if len - first.min(len) > count { (first + count) as u64 } else { 0 };
    if let Value::String(text) = value {
        visit(&[], Some(&text));
        return 0;
    }
    if let Rows::Points(points) = rows {
        for row in points.iter().skip(first).take(count) {
            if let Some(key) = shape.row_value(row) {
                one_row(value, now, &key, |cell| visit(row, cell));
            }
        }
        return next_position(points.len());
    }
    let mut row = Vec::new();
    let mut visit = |key: &[u8], cell: Option<&[u8]>| {
        shape.row_key(key, &mut row);
        visit(&row, cell);
    };
    match value {
        Value::String(_) | Value::Stream(_) => 0,
        Value::Hash(hash) => hash.scan(from, count, |field, bytes| visit(field, Some(bytes))),
        Value::Set(set) => {
            set.scan(from, count, |member| member.with_bytes(|member| visit(member, None)))
        }
        Value::ZSet(zset) => {
            zset.scan(from, count, |member, score| visit(member, Some(&score.to_be_bytes())))
        }
        Value::List(list) => {
            // Items beyond the range of the index type cannot be addressed.
            let places = i32::try_from(first).unwrap_or(i32::MAX)..i32::MAX;
            for (place, item) in places.zip(list.iter_from(first).take(count)) {
                visit(&place.to_be_bytes(), Some(&item));
            }
            next_position(list.len())
        }
        Value::Series(series) => {
            // A position is a timestamp, less the least one.
            const FIRST: u64 = i64::MIN.cast_unsigned();
            let mut points = series.range((from ^ FIRST).cast_signed(), i64::MAX);
            for point in points.by_ref().take(count).filter(|point| point.is_live(now)) {
                visit(&point.timestamp.to_be_bytes(), Some(point.value));
            }
            points.next().map_or(0, |point| point.timestamp.cast_unsigned() ^ FIRST)
        }
    }
}

/// Adds rows to a partition.
pub(super) struct Maker<'l> {
    /// The only column with cells.
    column: u32,
    now: UnixMs,
    /// When the key expires.
    expires: Option<UnixMs>,
    /// The hash, if some of its fields expire.
    times: Option<HashRef<'l>>,
    pub(super) partition: Partition,
}

impl<'l> Maker<'l> {
    /// Creates a builder for rows of this key.
    pub(super) fn new(locked: &'l Locked<'_>, table: &Table, key: Key<'_>) -> Maker<'l> {
        let times = match locked.peek(DB, key) {
            Some(Value::Hash(hash)) => Some(hash).filter(|hash| hash.is_timed()),
            _ => None,
        };
        Maker {
            column: table.cells().first().map_or(0, |column| column.number),
            now: locked.params().now(),
            expires: locked.expiry(DB, key).flatten(),
            times,
            partition: Partition::new(),
        }
    }

    pub(super) fn add(&mut self, row: &[u8], cell: Option<&[u8]>) {
        let mut expires = self.expires;
        if let Some(times) = self.times {
            let field = Shape::Hashes.row_value(row);
            // The field may have expired since it was visited.
            let Some(own) = field.and_then(|field| times.expiry(&field)) else { return };
            // A row expires with its field or with its key.
            expires = own.into_iter().chain(expires).min();
        }
        let now_ms = self.now.0;
        let seconds = |seconds: u64| Seconds::try_from(seconds).unwrap_or(Seconds::MAX);
        let expiry = expires.map(|at| {
            // The remaining time, rounded up: never more than was requested, and not 0 before the
            // row expires.
            let left = at.0.saturating_sub(now_ms).div_ceil(1000);
            Expiry { at: seconds((now_ms / 1000).saturating_add(left)), ttl: seconds(left) }
        });
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

/// Selects the rows of a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick<'p> {
    pub(super) rows: &'p Rows,
    pub(super) is_reversed: bool,
    /// Only this many rows are needed, in result order; `None`: all.
    pub(super) rows_max: Option<usize>,
}

impl Pick<'_> {
    /// Whether a row precedes another in result order.
    pub(super) fn is_nearer(&self, row: &[u8], other: &[u8]) -> bool {
        if self.is_reversed { row > other } else { row < other }
    }
}

/// A value, if it has the type that the table exposes.
pub(super) fn value<'l>(locked: &'l Locked<'_>, table: &Table, key: Key<'_>) -> Option<Value<'l>> {
    let kind = Shape::of(table).kind();
    locked.get(DB, key).filter(|value| value.kind() == kind)
}

/// A partition with these rows of a key, and possibly others. O(value) unless the rows are named.
pub(in crate::statements::execute) fn partition(
    locked: &Locked<'_>,
    table: &Table,
    key: Key<'_>,
    rows: &Rows,
) -> Option<Partition> {
    let value = value(locked, table, key)?;
    let mut maker = Maker::new(locked, table, key);
    let now = locked.params().now();
    visit_some(value, now, rows, (0, usize::MAX), |row, cell| maker.add(row, cell));
    Some(maker.partition)
}
