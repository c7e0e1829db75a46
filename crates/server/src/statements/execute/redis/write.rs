//! Translates writes of rows into changes of a Redis key.

use std::collections::BTreeSet;

use base::time::UnixMs;
use cql::error::CqlError;
use cql::schema::Table;
use smallvec::SmallVec;
use store::types::Text;
use store::{
    CellValue, Change, End, Expiry, Items, Key, Locked, Mutation, Points, RowKey, Scored,
    Timestamps, Value, Write,
};

use super::DB;
use super::shape::{Shape, each_row, has_row, list_place, row_timestamp};
use crate::config::{KeyEvent, KeyEvents, Settings};
use crate::engine::elements::{
    NOTED_ARGUMENT_COST, POINT_COST, REPEATED_BYTES, SET_COST, copy_cost, may_process,
};
use crate::engine::records::RECORD_BYTES_MAX;

const SETS_ITEM: KeyEvent = KeyEvent { class: KeyEvents::LIST, name: "lset" };

/// The effect on rows, in the order of the statement's operations.
enum Deed<'w> {
    /// Writes a row with this cell; sets have none.
    Put {
        row: &'w [u8],
        cell: Option<&'w [u8]>,
        expiry: Option<Expiry>,
    },
    Remove(&'w [u8]),
    /// From the first key, up to but excluding the second; `None`: to the last row.
    RemoveRange(&'w [u8], Option<&'w [u8]>),
    RemoveAll,
}

/// Counts the elements that the writes of a statement process. As with a command's elements, the
/// reactor does nothing else meanwhile.
#[derive(Debug)]
pub(in crate::statements::execute) struct Elements {
    spent: usize,
    max: usize,
    /// Cost of a key that changes, besides its changes.
    key_cost: usize,
}

impl Elements {
    pub(in crate::statements::execute) fn new(settings: &Settings) -> Elements {
        let publishes = settings.notify_keyspace_events.is_on();
        let key_cost = if publishes { NOTED_ARGUMENT_COST } else { 0 };
        Elements { spent: 0, max: settings.elements_per_command_max, key_cost }
    }

    pub(super) fn spend(&mut self, elements: usize) -> Result<(), CqlError> {
        self.spent = self.spent.saturating_add(elements);
        if may_process(self.spent, self.max) {
            return Ok(());
        }
        Err(CqlError::invalid(
            "The statement would process more elements than elements-per-command-max allows",
        ))
    }

    /// Accounts for the copy of a value.
    pub(in crate::statements::execute) fn copy(
        &mut self,
        value: Option<Value<'_>>,
    ) -> Result<(), CqlError> {
        match value {
            None | Some(Value::String(_)) => Ok(()),
            Some(value) => self.spend(value.len().saturating_mul(copy_cost(value.kind()))),
        }
    }
}

/// The name of a key, and the events of its changes.
pub(in crate::statements::execute) struct KeyChanged {
    pub(in crate::statements::execute) key: Vec<u8>,
    pub(in crate::statements::execute) events: SmallVec<[KeyEvent; 3]>,
}

/// A change to one key by a statement.
pub(in crate::statements::execute) struct KeyChange<'c, 'l> {
    pub(in crate::statements::execute) table: &'c Table,
    pub(in crate::statements::execute) key: Key<'c>,
    pub(in crate::statements::execute) locked: &'c Locked<'l>,
    pub(in crate::statements::execute) elements: &'c mut Elements,
    /// The log record: changes are appended to it, and not applied.
    pub(in crate::statements::execute) record: &'c mut Vec<u8>,
    /// Where its changes begin in the record.
    pub(in crate::statements::execute) start: usize,
    /// The key is appended, with the events of its changes.
    pub(in crate::statements::execute) changed: &'c mut Vec<KeyChanged>,
}

impl<'w> KeyChange<'_, '_> {
    /// Appends the changes. On an error the record may contain some of them.
    pub(in crate::statements::execute) fn encode(
        mut self,
        writes: impl Iterator<Item = Write<'w>>,
    ) -> Result<(), CqlError> {
        let deeds = self.deeds(writes)?;
        let shape = Shape::of(self.table);
        let own = self.locked.peek(DB, self.key);
        let found = own.filter(|value| value.kind() == shape.kind());
        let puts = deeds.iter().any(|deed| matches!(deed, Deed::Put { .. }));
        if let Some(own) = own.filter(|_| puts && found.is_none()) {
            return Err(CqlError::invalid(format!(
                "Operation against a key holding the wrong kind of value: it is a {}, and no row of \
                 {}.{}",
                own.kind().name(),
                self.table.keyspace,
                self.table.name
            )));
        }
        if !puts && found.is_none() {
            return Ok(());
        }
        self.elements.spend(self.elements.key_cost)?;
        self.changed.push(KeyChanged { key: self.key.bytes.to_vec(), events: SmallVec::new() });
        if self.locked.is_overdue(DB, self.key) {
            self.change(Change::Delete)?;
            self.announce(KeyEvent::EXPIRED);
        }
        if deeds.iter().any(|deed| matches!(deed, Deed::RemoveAll)) {
            self.delete()?;
        } else if puts {
            self.put(shape, found, &deeds)?;
        } else if let Some(value) = found {
            self.remove(shape, value, &deeds)?;
        }
        Ok(())
    }

    fn deeds(&self, writes: impl Iterator<Item = Write<'w>>) -> Result<Vec<Deed<'w>>, CqlError> {
        let mut deeds: Vec<Deed<'w>> = Vec::new();
        for write in writes {
            match write {
                Write::DeletePartition(_) => deeds.push(Deed::RemoveAll),
                Write::DeleteRange { start, end, .. } => deeds.push(Deed::RemoveRange(start, end)),
                Write::DeleteRow { row, .. } => deeds.push(Deed::Remove(row)),
                Write::InsertRow { row, expiry, .. } => {
                    deeds.push(Deed::Put { row, cell: None, expiry });
                }
                Write::Cell { row: RowKey::Clustering(row), value, .. } => {
                    let inserted = match deeds.last_mut() {
                        Some(Deed::Put { row: own, cell, .. }) if *own == row => Some(cell),
                        _ => None,
                    };
                    match (value, inserted) {
                        (CellValue::Live { bytes, .. }, Some(cell)) => *cell = Some(bytes),
                        (CellValue::Live { bytes, expiry }, None) => {
                            deeds.push(Deed::Put { row, cell: Some(bytes), expiry });
                        }
                        (CellValue::Deleted { .. }, Some(_)) => return Err(self.no_cell()),
                        // A row does not exist without its cell.
                        (CellValue::Deleted { .. }, None) => deeds.push(Deed::Remove(row)),
                    }
                }
                Write::Cell { row: RowKey::Static, .. } | Write::DeleteItems { .. } => {
                    unreachable!("tables of keyspace redis have no such columns")
                }
            }
        }
        let has_cells = !self.table.cells().is_empty();
        let is_bare = |deed: &Deed<'_>| matches!(deed, Deed::Put { cell: None, .. });
        if has_cells && deeds.iter().any(is_bare) {
            return Err(self.no_cell());
        }
        Ok(deeds)
    }

    fn no_cell(&self) -> CqlError {
        let column = self.table.cells().first().map_or("", |column| &column.name);
        CqlError::invalid(format!("Missing mandatory value for column {column}"))
    }

    /// Each change contains the key, so a short statement about many items of a key would make a
    /// large record.
    fn change(&mut self, change: Change<'_>) -> Result<(), CqlError> {
        let is_first = self.record.len() == self.start;
        let repeated = if is_first { 0 } else { self.key.bytes.len() };
        self.elements.spend(1 + repeated / REPEATED_BYTES)?;
        Mutation::Key { db: DB, key: self.key, change }.encode(self.record);
        if self.record.len() <= RECORD_BYTES_MAX {
            return Ok(());
        }
        Err(CqlError::invalid(format!(
            "Mutation of {} bytes is too large for the maximum size of {RECORD_BYTES_MAX}",
            self.record.len()
        )))
    }

    fn delete(&mut self) -> Result<(), CqlError> {
        self.change(Change::Delete)?;
        self.announce(KeyEvent::DELETED);
        Ok(())
    }

    /// A statement publishes an event of a key once, as a command does.
    fn announce(&mut self, event: KeyEvent) {
        let changed = self.changed.last_mut().expect("`encode` adds one");
        if !changed.events.contains(&event) {
            changed.events.push(event);
        }
    }

    /// The time at which a key with this expiry expires.
    fn ends(&self, expiry: Option<Expiry>) -> Option<UnixMs> {
        let now_ms = self.locked.params().now().0;
        expiry.map(|expiry| UnixMs(now_ms.saturating_add(u64::from(expiry.ttl) * 1000)))
    }

    fn put(
        &mut self,
        shape: Shape,
        found: Option<Value<'_>>,
        deeds: &[Deed<'w>],
    ) -> Result<(), CqlError> {
        if found.is_none() {
            self.announce(KeyEvent::NEW);
        }
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut cells: Vec<&[u8]> = Vec::new();
        let mut ends = None;
        for deed in deeds {
            let Deed::Put { row, cell, expiry } = deed else { continue };
            let cell = cell.unwrap_or_default();
            ends = self.ends(*expiry);
            if shape == Shape::Strings {
                self.change(Change::Set { value: cell, expiry: ends })?;
                self.announce(shape.written());
                if ends.is_some() {
                    self.announce(KeyEvent::EXPIRES);
                }
                return Ok(());
            }
            if shape == Shape::Series {
                self.elements.spend(POINT_COST)?;
                let timestamp = shape.row_value(row).as_deref().and_then(row_timestamp);
                let points = [(timestamp.ok_or_else(|| self.damaged())?, cell)];
                self.change(Change::SeriesAdd { points: Points::Slice(&points), expiry: ends })?;
                continue;
            }
            rows.push(shape.row_value(row).ok_or_else(|| self.damaged())?);
            cells.push(cell);
        }
        match shape {
            Shape::Strings => {}
            // Each point has an expiry of its own.
            Shape::Series => {
                self.announce(shape.written());
                return Ok(());
            }
            Shape::Hashes => {
                let pairs = rows.iter().zip(&cells);
                let pairs: Vec<&[u8]> = pairs.flat_map(|(row, cell)| [&row[..], *cell]).collect();
                self.change(Change::HashSet { pairs: Items::Slice(&pairs) })?;
                self.announce(shape.written());
            }
            Shape::Sets => {
                let members: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                self.change(Change::SetAdd { members: Items::Slice(&members) })?;
                self.announce(shape.written());
            }
            Shape::ZSets => {
                let mut members: Vec<(f64, &[u8])> = Vec::new();
                for (row, cell) in rows.iter().zip(&cells) {
                    let score = <[u8; 8]>::try_from(*cell).map(f64::from_be_bytes);
                    let score = score.ok().filter(|score| !score.is_nan());
                    let refused = || CqlError::invalid("A score of redis.zsets must be a number");
                    members.push((score.ok_or_else(refused)?, row));
                }
                self.change(Change::ZSetAdd { members: Scored::Slice(&members) })?;
                self.announce(shape.written());
            }
            Shape::Lists => {
                let before = found.map_or(0, |value| value.len());
                self.put_items(before, deeds)?;
            }
        }
        // A key has one expiry time, which is also that of its rows.
        if ends.is_some() {
            self.change(Change::Expire { at: ends })?;
            self.announce(KeyEvent::EXPIRES);
        }
        Ok(())
    }

    /// Replaces an item, or appends one after the last.
    fn put_items(&mut self, mut size: usize, deeds: &[Deed<'w>]) -> Result<(), CqlError> {
        for deed in deeds {
            let Deed::Put { row, cell, .. } = deed else { continue };
            let value = cell.unwrap_or_default();
            let place = list_place(row).ok_or_else(|| self.damaged())?;
            let at = usize::try_from(place).ok().filter(|at| *at <= size).ok_or_else(|| {
                // Source: Cassandra 5.0, Lists.SetterByIndex
                CqlError::invalid(format!("List index {place} out of bound, list has size {size}"))
            })?;
            if at < size {
                self.change(Change::ListSet { index: at as u64, value })?;
                self.announce(SETS_ITEM);
                continue;
            }
            self.change(Change::ListPush { end: End::Back, values: Items::Slice(&[value]) })?;
            self.announce(Shape::Lists.written());
            size += 1;
        }
        Ok(())
    }

    /// Removes the rows that exist.
    fn remove(
        &mut self,
        shape: Shape,
        value: Value<'_>,
        deeds: &[Deed<'w>],
    ) -> Result<(), CqlError> {
        if shape == Shape::Strings {
            // A string is one row with an empty key.
            if deeds.iter().any(|deed| deed.removes(&[])) {
                self.delete()?;
            }
            return Ok(());
        }
        let points: BTreeSet<&[u8]> = deeds
            .iter()
            .filter_map(|deed| if let Deed::Remove(row) = deed { Some(*row) } else { None })
            .collect();
        let ranges = merged_ranges(deeds);
        let now = self.locked.params().now();
        let mut removed: Vec<Vec<u8>> = Vec::new();
        if ranges.is_empty() {
            let named = points.iter().filter_map(|row| shape.row_value(row));
            removed.extend(named.filter(|row| has_row(value, now, row)));
        } else {
            self.elements.spend(value.len())?;
            let mut key = Vec::new();
            each_row(value, now, |row, _| {
                shape.row_key(row, &mut key);
                if points.contains(&key[..]) || is_in(&ranges, &key) {
                    removed.push(row.to_vec());
                }
            });
        }
        if removed.is_empty() {
            return Ok(());
        }
        if let Some(event) = shape.removed() {
            self.announce(event);
        }
        if removed.len() == value.len() {
            self.delete()?;
            return Ok(());
        }
        self.elements.spend(removed.len().saturating_mul(SET_COST))?;
        if shape == Shape::Series {
            self.elements.spend(removed.len().saturating_mul(POINT_COST))?;
            let timestamps: Vec<i64> = removed.iter().filter_map(|it| row_timestamp(it)).collect();
            self.change(Change::SeriesRemove { timestamps: Timestamps::Slice(&timestamps) })?;
            return Ok(());
        }
        let rows: Vec<&[u8]> = removed.iter().map(Vec::as_slice).collect();
        let rows = Items::Slice(&rows);
        match (shape, value) {
            (Shape::Hashes, _) => self.change(Change::HashRemove { fields: rows })?,
            (Shape::Sets, _) => self.change(Change::SetRemove { members: rows })?,
            (Shape::ZSets, _) => self.change(Change::ZSetRemove { members: rows })?,
            (Shape::Lists, Value::List(list)) => {
                // The log has no removal by position: the items are overwritten with a value that
                // the list does not contain, and that value is removed.
                self.elements.spend(value.len())?;
                let mark = unlike_any(list.iter());
                for row in &removed {
                    let place = <[u8; 4]>::try_from(&row[..]).map_or(0, u32::from_be_bytes);
                    self.change(Change::ListSet { index: u64::from(place), value: &mark })?;
                }
                self.change(Change::ListRemove { count: 0, value: &mark })?;
            }
            (Shape::Strings | Shape::Lists | Shape::Series, _) => {
                unreachable!("strings, lists and series are handled above")
            }
        }
        Ok(())
    }

    fn damaged(&self) -> CqlError {
        CqlError::invalid(format!("Invalid key of a row of redis.{}", self.table.name))
    }
}

impl Deed<'_> {
    fn removes(&self, row: &[u8]) -> bool {
        match self {
            Deed::Put { .. } => false,
            Deed::Remove(own) => *own == row,
            Deed::RemoveRange(start, end) => row >= *start && end.is_none_or(|end| row < end),
            Deed::RemoveAll => true,
        }
    }
}

/// A range of rows, end excluded; `None`: to the last row.
type Span<'w> = (&'w [u8], Option<&'w [u8]>);

/// The ranges to remove, in order and disjoint.
fn merged_ranges<'w>(deeds: &[Deed<'w>]) -> Vec<Span<'w>> {
    let ranges = deeds.iter().filter_map(|deed| match deed {
        Deed::RemoveRange(start, end) => Some((*start, *end)),
        _ => None,
    });
    let mut ranges: Vec<Span<'w>> = ranges.collect();
    ranges.sort_unstable();
    let mut found: Vec<Span<'w>> = Vec::new();
    for (start, end) in ranges {
        match found.last_mut() {
            Some((_, last)) if last.is_none_or(|last| start <= last) => {
                *last = last.zip(end).map(|(last, end)| last.max(end));
            }
            _ => found.push((start, end)),
        }
    }
    found
}

fn is_in(ranges: &[Span<'_>], row: &[u8]) -> bool {
    let next = ranges.partition_point(|(start, _)| *start <= row);
    let before = next.checked_sub(1).and_then(|at| ranges.get(at));
    before.is_some_and(|(_, end)| end.is_none_or(|end| row < end))
}

/// Returns bytes that differ from all items. They have the smallest length that no item has, which
/// is at most the root of twice the bytes of all items.
fn unlike_any<'i>(items: impl Iterator<Item = Text<'i>>) -> Vec<u8> {
    let taken: BTreeSet<usize> = items.map(|item| item.len()).collect();
    let free = taken.iter().zip(0..).take_while(|(length, nth)| **length == *nth).count();
    vec![0; free]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_many_deletions_are_merged() {
        let range = |start: &'static [u8], end| Deed::RemoveRange(start, end);
        let deeds = [
            range(b"m", Some(&b"p"[..])),
            range(b"b", Some(b"d")),
            range(b"a", Some(b"c")),
            Deed::Remove(b"x"),
            range(b"y", None),
            range(b"z", Some(b"zz")),
        ];
        let merged = merged_ranges(&deeds);
        assert_eq!(merged.len(), 3);
        for row in [&b"a"[..], b"c", b"d", b"m", b"o", b"p", b"x", b"y", b"zzz"] {
            let expected =
                deeds.iter().any(|deed| matches!(deed, Deed::RemoveRange(..)) && deed.removes(row));
            assert_eq!(is_in(&merged, row), expected, "{row:?}");
        }
    }

    #[test]
    fn the_marker_differs_from_all_items() {
        let items: [&[u8]; 5] = [b"", b"\0", b"\0\0", b"a", b"\0\0\0\0"];
        for count in 0..items.len() {
            let mark = unlike_any(items[..count].iter().copied().map(Text::from));
            assert!(!items[..count].contains(&&mark[..]), "{mark:?}");
        }
        assert_eq!(unlike_any(items.iter().copied().map(Text::from)).len(), 3);
    }
}
