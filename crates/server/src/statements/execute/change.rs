//! The effect of a write on one row: translates operations into store writes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use cql::error::CqlError;
use cql::expression::{Evaluated, Expression};
use cql::plan::{Operation, WritePlan};
use cql::schema::{Column, IndexTarget};
use cql::types::CqlType;
use cql::value::collection::{fields, items};
use cql::value::comparable;
use store::{
    CellValue, CellView, Expiry, Partition, RowKey, Seconds, Stamp, Timestamp, Write, Writes,
};

use super::filter::ordered;
use super::item;
use super::values::EvalContext;
use crate::engine::write_clock::WriteClock;

/// Cost of writing a cell, or of passing one in a collection: see [`Moment::spend`](cql::moment::Moment::spend).
const CELL_WORK_BYTES: usize = 16;
/// Cost of rewriting a list cell.
const COPIED_WORK_BYTES: usize = 64;

/// Encoded writes of one partition.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) count: usize,
    pub(super) bytes: Vec<u8>,
}

impl Packed {
    pub(super) fn put(&mut self, write: Write<'_>) {
        write.encode(&mut self.bytes);
        self.count += 1;
    }

    /// Cost of the writes: creating and applying a small one takes as long as copying some bytes.
    pub(super) fn work_bytes(&self) -> usize {
        self.bytes.len() + self.count * CELL_WORK_BYTES
    }

    pub(super) fn writes(&self) -> Writes<'_> {
        Writes::Packed { count: self.count, bytes: &self.bytes }
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }
}

/// Timestamp and expiry of a write.
#[derive(Debug, Clone, Copy)]
pub(super) struct When {
    pub(super) timestamp: Timestamp,
    pub(super) expiry: Option<Expiry>,
    pub(super) now: Seconds,
}

impl When {
    pub(super) fn stamp(self) -> Stamp {
        Stamp { timestamp: self.timestamp, at: self.now }
    }

    /// A timestamp before this write's own: it deletes a collection's earlier content but not what
    /// is written now.
    fn stamp_before(self) -> Stamp {
        Stamp { timestamp: self.timestamp.saturating_sub(1), at: self.now }
    }
}

/// Changes to one row.
pub(super) struct RowChange<'c> {
    pub(super) plan: &'c WritePlan,
    pub(super) cx: EvalContext<'c>,
    pub(super) when: When,
    pub(super) clock: &'c WriteClock,
    /// The current content, for the few operations that depend on it.
    pub(super) partition: Option<&'c Partition>,
    pub(super) row: RowKey<'c>,
    pub(super) out: &'c mut Packed,
}

impl<'c> RowChange<'c> {
    /// Appends the writes of all operations on rows, or on static cells.
    pub(super) fn apply(&mut self) -> Result<(), CqlError> {
        let plan = self.plan;
        let is_static = self.row == RowKey::Static;
        let start = self.out.bytes.len();
        for operation in &plan.operations {
            if operation.is_static(&plan.table) == is_static {
                let before = self.out.work_bytes();
                self.operate(operation, start)?;
                self.cx.moment.spend(self.out.work_bytes() - before)?;
            }
        }
        if self.out.bytes.len() - start >= INDEXED_BYTES_MAX && !plan.table.indexes.is_empty() {
            self.check_indexed(start)?;
        }
        Ok(())
    }

    /// Refuses values that an index of Cassandra could not store.
    // Source: Cassandra 5.0, index.internal.CassandraIndex.validateIndexedValue
    fn check_indexed(&self, start: usize) -> Result<(), CqlError> {
        let table = &self.plan.table;
        for write in decoded(&self.out.bytes[start..]) {
            let Write::Cell { column, item, timestamp, value, .. } = write? else { continue };
            let CellValue::Live { bytes, expiry } = value else { continue };
            let cell = CellView { column, item, timestamp, bytes, expiry };
            for index in &table.indexes {
                let of = table.column(&index.column).filter(|known| known.number == column);
                let size = of.map_or(0, |of| indexed_bytes(cell, &of.column_type, index.target));
                if size >= INDEXED_BYTES_MAX {
                    return Err(CqlError::invalid(format!(
                        "Cannot index value of size {size} for index {} on {}.{}({}) (maximum \
                         allowed size={INDEXED_BYTES_MAX})",
                        index.name, table.keyspace, table.name, index.column
                    )));
                }
            }
        }
        Ok(())
    }

    /// `start`: offset in `out` of the writes of earlier operations.
    fn operate(&mut self, operation: &'c Operation, start: usize) -> Result<(), CqlError> {
        let plan = self.plan;
        let column = &plan.table.columns[operation.column()];
        match operation {
            Operation::Set { value, column: index } => {
                if self.cx.is_left_out(*index) {
                    return Ok(());
                }
                match self.evaluate(value)? {
                    Evaluated::Bytes(bytes) => self.set(column, &bytes),
                    Evaluated::Null => {
                        self.replace_by_nothing(column);
                        Ok(())
                    }
                    Evaluated::Unset => Ok(()),
                }
            }
            Operation::SetField { field, value, .. } => {
                let value = self.evaluate(value)?;
                self.put_item(column, &field.to_be_bytes(), value);
                Ok(())
            }
            Operation::SetEntry { key, value, .. } => {
                let (of, key) = self.entry_key(key, column)?;
                let place = ordered(&key, of);
                let value = match self.evaluate(value)? {
                    Evaluated::Bytes(value) => Evaluated::Bytes(item::of_map(&key, value, of)),
                    other => other,
                };
                self.put_item(column, &place, value);
                Ok(())
            }
            Operation::SetItem { place, value, .. } => {
                let item = self.list_item(place, column, "set an element on", start)?;
                let value = self.evaluate(value)?;
                self.put_item(column, &item, value);
                Ok(())
            }
            Operation::Append { value, .. } => self.extend_list(column, value, false),
            Operation::Prepend { value, .. } => self.extend_list(column, value, true),
            Operation::Add { value, .. } => match self.evaluate(value)? {
                Evaluated::Bytes(bytes) => self.add_items(column, &bytes),
                Evaluated::Null | Evaluated::Unset => Ok(()),
            },
            Operation::Remove { value, .. } => match self.evaluate(value)? {
                Evaluated::Bytes(bytes) => self.remove_items(column, &bytes, start),
                Evaluated::Null | Evaluated::Unset => Ok(()),
            },
            Operation::Increment { value, is_negative, .. } => {
                self.increment(column, value, *is_negative)
            }
            Operation::Delete { .. } => {
                self.delete(column);
                Ok(())
            }
            Operation::DeleteField { field, .. } => {
                self.put_item(column, &field.to_be_bytes(), Evaluated::Null);
                Ok(())
            }
            // Source: Cassandra 5.0, Sets.ElementDiscarder and Lists.DiscarderByIndex
            Operation::DeleteEntry { key, .. }
                if matches!(column.column_type, CqlType::Set(_)) && self.is_unset(key)? =>
            {
                Ok(())
            }
            Operation::DeleteItem { place, .. } if self.is_unset(place)? => Ok(()),
            Operation::DeleteEntry { key, .. } => {
                let (of, key) = self.entry_key(key, column)?;
                self.put_item(column, &ordered(&key, of), Evaluated::Null);
                Ok(())
            }
            Operation::DeleteItem { place, .. } => {
                let item = self.list_item(place, column, "delete an element from", start)?;
                self.put_item(column, &item, Evaluated::Null);
                Ok(())
            }
        }
    }

    fn cell(&mut self, column: &Column, item: Option<&[u8]>, value: CellValue<'_>) {
        let (row, timestamp) = (self.row, self.when.timestamp);
        self.out.put(Write::Cell { row, column: column.number, item, timestamp, value });
    }

    fn live<'b>(&self, bytes: &'b [u8]) -> CellValue<'b> {
        CellValue::Live { bytes, expiry: self.when.expiry }
    }

    /// Sets an item, or deletes it if the value is null.
    fn put_item(&mut self, column: &Column, item: &[u8], value: Evaluated<'_>) {
        match value {
            Evaluated::Bytes(bytes) => {
                let value = self.live(&bytes);
                self.cell(column, Some(item), value);
            }
            Evaluated::Null => {
                let at = self.when.now;
                self.cell(column, Some(item), CellValue::Deleted { at });
            }
            Evaluated::Unset => {}
        }
    }

    fn delete(&mut self, column: &Column) {
        if column.column_type.is_multi_cell() {
            return self.delete_items(column, self.when.stamp());
        }
        let at = self.when.now;
        self.cell(column, None, CellValue::Deleted { at });
    }

    fn delete_items(&mut self, column: &Column, stamp: Stamp) {
        self.out.put(Write::DeleteItems { row: self.row, column: column.number, stamp });
    }

    /// Assigns null. A collection loses its earlier content, but not what is written at the same
    /// time.
    // Source: Cassandra 5.0, UpdateParameters.setComplexDeletionTimeForOverwrite
    fn replace_by_nothing(&mut self, column: &Column) {
        if column.column_type.is_multi_cell() {
            return self.delete_items(column, self.when.stamp_before());
        }
        self.delete(column);
    }

    /// Replaces the whole value.
    fn set(&mut self, column: &Column, bytes: &[u8]) -> Result<(), CqlError> {
        if !column.column_type.is_multi_cell() {
            let value = self.live(bytes);
            self.cell(column, None, value);
            return Ok(());
        }
        self.delete_items(column, self.when.stamp_before());
        match &column.column_type {
            CqlType::List(_) => self.put_list(column, bytes, false),
            CqlType::UserDefined(user) => {
                let fields = fields(bytes, user.fields.len()).map_err(damaged)?;
                for (number, field) in (0_u16..).zip(fields) {
                    if let Some(field) = field {
                        let value = Evaluated::Bytes(Cow::Borrowed(field));
                        self.put_item(column, &number.to_be_bytes(), value);
                    }
                }
                Ok(())
            }
            _ => self.add_items(column, bytes),
        }
    }

    fn extend_list(
        &mut self,
        column: &Column,
        value: &'c Expression,
        is_before: bool,
    ) -> Result<(), CqlError> {
        let Evaluated::Bytes(bytes) = self.evaluate(value)? else { return Ok(()) };
        self.put_list(column, &bytes, is_before)
    }

    /// Adds list items, which have numbers for keys: higher ones when appended, negative ones when
    /// prepended.
    fn put_list(&mut self, column: &Column, bytes: &[u8], is_before: bool) -> Result<(), CqlError> {
        let items = items(bytes, 1).map_err(damaged)?;
        let count = i64::try_from(items.len()).expect("fits memory");
        let first = self.clock.take(self.cx.moment.now_us(), items.len());
        let first = if is_before { -(first + count - 1) } else { first };
        for (number, item) in (first..).zip(items) {
            let key = (number.cast_unsigned() ^ 1 << 63).to_be_bytes();
            self.put_item(column, &key, Evaluated::Bytes(Cow::Borrowed(item)));
        }
        Ok(())
    }

    /// Adds items of a set, or entries of a map.
    fn add_items(&mut self, column: &Column, bytes: &[u8]) -> Result<(), CqlError> {
        let mut key = Vec::new();
        match &column.column_type {
            CqlType::Set(of) => {
                for item in items(bytes, 1).map_err(damaged)? {
                    key.clear();
                    comparable::encode(item, of, false, &mut key);
                    let value = Cow::Borrowed(item::of_set(item, of));
                    self.put_item(column, &key, Evaluated::Bytes(value));
                }
            }
            CqlType::Map(of, _) => {
                let items = items(bytes, 2).map_err(damaged)?;
                let (pairs, _) = items.as_chunks::<2>();
                for [name, value] in pairs {
                    key.clear();
                    comparable::encode(name, of, false, &mut key);
                    let value = item::of_map(name, Cow::Borrowed(value), of);
                    self.put_item(column, &key, Evaluated::Bytes(value));
                }
            }
            _ => unreachable!("the plan has checked the type"),
        }
        Ok(())
    }

    /// Removes items of a set or list by value, or entries of a map by key.
    fn remove_items(
        &mut self,
        column: &Column,
        bytes: &[u8],
        start: usize,
    ) -> Result<(), CqlError> {
        let gone = items(bytes, 1).map_err(damaged)?;
        if matches!(column.column_type, CqlType::List(_)) {
            let gone: BTreeSet<&[u8]> = gone.into_iter().collect();
            let changed = self.changed(column, start)?;
            let partition = changed.as_ref().or(self.partition);
            let cells: Vec<CellView<'_>> = self.cells_of(partition, column).collect();
            self.cx.moment.spend(cells.len() * CELL_WORK_BYTES)?;
            for cell in cells.iter().filter(|cell| gone.contains(cell.bytes)) {
                self.put_item(column, cell.item.unwrap_or_default(), Evaluated::Null);
            }
            return Ok(());
        }
        let (CqlType::Set(of) | CqlType::Map(of, _)) = &column.column_type else {
            unreachable!("the plan has checked the type")
        };
        let mut key = Vec::new();
        for item in gone {
            key.clear();
            comparable::encode(item, of, false, &mut key);
            self.put_item(column, &key, Evaluated::Null);
        }
        Ok(())
    }

    fn is_unset(&self, value: &'c Expression) -> Result<bool, CqlError> {
        Ok(matches!(self.evaluate(value)?, Evaluated::Unset))
    }

    /// The key of a map entry or the item of a set, and its type.
    fn entry_key<'t>(
        &self,
        key: &'c Expression,
        column: &'t Column,
    ) -> Result<(&'t CqlType, Cow<'c, [u8]>), CqlError> {
        let (of, kind) = match &column.column_type {
            CqlType::Set(of) => (of, "set value"),
            CqlType::Map(of, _) => (of, "map key"),
            _ => unreachable!("the plan has checked the type"),
        };
        match self.evaluate(key)? {
            Evaluated::Bytes(bytes) => Ok((of, bytes)),
            Evaluated::Null => Err(CqlError::invalid(format!("Invalid null {kind}"))),
            Evaluated::Unset => Err(CqlError::invalid(format!("Invalid unset {kind}"))),
        }
    }

    /// The live cells of a column in a partition, as it was before or is within the write.
    fn cells_of<'p>(
        &self,
        partition: Option<&'p Partition>,
        column: &Column,
    ) -> impl Iterator<Item = CellView<'p>> + use<'p> {
        let now = self.when.now;
        let view = partition.and_then(|partition| match self.row {
            RowKey::Static => Some(partition.statics(now)),
            RowKey::Clustering(key) => partition.row(key, now),
        });
        view.map(|view| column.cells(view)).into_iter().flatten()
    }

    /// The column after earlier operations of the statement. `None`: they have written nothing.
    // Source: Cassandra 5.0, UpdateParameters.getPrefetchedList
    fn changed(&self, column: &Column, start: usize) -> Result<Option<Partition>, CqlError> {
        let written = &self.out.bytes[start..];
        if written.is_empty() {
            return Ok(None);
        }
        let row = self.row;
        let mut partition = Partition::new();
        let cells = self.cells_of(self.partition, column).count();
        self.cx.moment.spend((cells + self.out.count) * COPIED_WORK_BYTES)?;
        for CellView { item, timestamp, bytes, expiry, .. } in self.cells_of(self.partition, column)
        {
            let value = CellValue::Live { bytes, expiry };
            partition.write(Write::Cell { row, column: column.number, item, timestamp, value });
        }
        for write in decoded(written) {
            partition.write(write?);
        }
        Ok(Some(partition))
    }

    /// The key of the item at an index of a list.
    // Source: Cassandra 5.0, Lists.SetterByIndex and DiscarderByIndex
    fn list_item(
        &self,
        place: &'c Expression,
        column: &Column,
        what: &str,
        start: usize,
    ) -> Result<Vec<u8>, CqlError> {
        let invalid =
            |what: &str| CqlError::invalid(format!("Invalid {what} value for list index"));
        let place = match self.evaluate(place)? {
            Evaluated::Bytes(bytes) => bytes,
            Evaluated::Null => return Err(invalid("null")),
            Evaluated::Unset => return Err(invalid("unset")),
        };
        let place = <[u8; 4]>::try_from(&*place).map(i32::from_be_bytes);
        let place = place.map_err(|_| invalid("empty"))?;
        let changed = self.changed(column, start)?;
        let partition = changed.as_ref().or(self.partition);
        let size = self.cells_of(partition, column).count();
        self.cx.moment.spend(size * CELL_WORK_BYTES)?;
        if size == 0 {
            return Err(CqlError::invalid(format!("Attempted to {what} a list which is null")));
        }
        let at = usize::try_from(place).ok().filter(|place| *place < size).ok_or_else(|| {
            CqlError::invalid(format!("List index {place} out of bound, list has size {size}"))
        })?;
        let found = self.cells_of(partition, column).nth(at).and_then(|cell| cell.item);
        Ok(found.unwrap_or_default().to_vec())
    }

    /// Writes the sum, together with its operands.
    fn increment(
        &mut self,
        column: &Column,
        value: &'c Expression,
        is_negative: bool,
    ) -> Result<(), CqlError> {
        let Some(delta) = (match self.evaluate(value)? {
            Evaluated::Unset => return Ok(()),
            Evaluated::Null => None,
            Evaluated::Bytes(bytes) => <[u8; 8]>::try_from(&*bytes).ok().map(i64::from_be_bytes),
        }) else {
            return Err(CqlError::invalid("Invalid null value for counter increment"));
        };
        let delta = if is_negative { delta.wrapping_neg() } else { delta };
        let own = self.cells_of(self.partition, column).next().map(|cell| {
            let number = <[u8; 8]>::try_from(cell.bytes).map_or(0, i64::from_be_bytes);
            (number, cell.timestamp)
        });
        let (number, timestamp) = own.unwrap_or((0, Timestamp::MIN));
        let sum = number.wrapping_add(delta).to_be_bytes();
        let timestamp = self.when.timestamp.max(timestamp.saturating_add(1));
        let value = CellValue::Live { bytes: &sum, expiry: None };
        let row = self.row;
        self.out.put(Write::Cell { row, column: column.number, item: None, timestamp, value });
        Ok(())
    }

    fn evaluate(&self, expression: &'c Expression) -> Result<Evaluated<'c>, CqlError> {
        self.cx.evaluate(expression)
    }
}

/// Limit of an indexed value.
// Source: Cassandra 5.0, FBUtilities.MAX_UNSIGNED_SHORT
const INDEXED_BYTES_MAX: usize = 65_535;

/// Decodes writes that were encoded one after the other.
fn decoded(mut bytes: &[u8]) -> impl Iterator<Item = Result<Write<'_>, CqlError>> {
    std::iter::from_fn(move || {
        let write = (!bytes.is_empty()).then(|| Write::decode(&mut bytes))?;
        if write.is_err() {
            bytes = &[];
        }
        Some(write.map_err(|_| CqlError::Server("a write is corrupt".to_owned())))
    })
}

/// Bytes of a cell that an index stores.
fn indexed_bytes(cell: CellView<'_>, of: &CqlType, target: IndexTarget) -> usize {
    /// Lengths and terminators of the two parts.
    const ENTRY_BYTES: usize = 6;
    let entry = |key: &CqlType| {
        let entry = item::map_entry(cell, key);
        entry.map_or((0, 0), |(key, value)| (key.len(), value.len()))
    };
    match (of, target) {
        (CqlType::Map(key, _), IndexTarget::Keys) => entry(key).0,
        (CqlType::Map(key, _), IndexTarget::Entries) => {
            let (key, value) = entry(key);
            key + value + ENTRY_BYTES
        }
        (CqlType::Map(key, _), _) => entry(key).1,
        (CqlType::Set(item), _) => item::set_item(cell, item).map_or(0, |item| item.len()),
        _ => cell.bytes.len(),
    }
}

fn damaged(error: cql::value::collection::Malformed) -> CqlError {
    CqlError::invalid(error.to_string())
}
