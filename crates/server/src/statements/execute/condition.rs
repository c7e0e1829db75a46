//! IF: decides whether a conditional write is applied, and builds the client's response.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use cql::error::CqlError;
use cql::expression::{Evaluated, Expression};
use cql::plan::{Choices, ConditionPart, ConditionPlan, ConditionsPlan, WritePlan};
use cql::relation::Comparison;
use cql::schema::{Column, ColumnKind, Table};
use cql::types::CqlType;
use cql::value::collection::{fields, items};
use cql::value::order;
use smallvec::SmallVec;
use store::{Partition, RowKey, RowView, Seconds, Timestamp};
use wire::cql::{Column as Shown, Columns, Encoded};

use super::filter::ordered;
use super::keys::split;
use super::row::RowCx;
use super::values::EvalContext;
use super::write::BoundWrite;
use crate::statements::result_sink::{ResultSink, Rows};

const APPLIED: &str = "[applied]";

/// The content of the one partition that conditional writes read. Like Cassandra it reads before it
/// evaluates, so the response omits columns that were not read.
pub(super) struct Current<'r> {
    writes: &'r [BoundWrite<'r>],
    partition: Option<&'r Partition>,
    /// The columns outside the key that are read.
    read: Vec<&'r Column>,
    /// Conditions by row. Those of static cells have no key.
    places: BTreeMap<Option<&'r [u8]>, Place<'r>>,
}

/// The conditions of one row, or of the static cells.
struct Place<'r> {
    about: About,
    columns: Vec<(&'r ConditionPlan, &'r BoundWrite<'r>)>,
}

/// The kind of condition on one row, or on the static cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Exists,
    NotExists,
    Columns,
}

impl<'r> Current<'r> {
    /// Refuses conditions that cannot be combined.
    // Source: Cassandra 5.0, CQL3CasRequest
    pub(super) fn new(
        writes: &'r [BoundWrite<'r>],
        partition: Option<&'r Partition>,
    ) -> Result<Self, CqlError> {
        let read = columns_read(writes);
        let mut current = Current { writes, partition, read, places: BTreeMap::new() };
        for write in writes {
            let own = match write.row_key() {
                RowKey::Clustering(key) => Some(key),
                RowKey::Static => None,
            };
            match &write.plan.conditions {
                ConditionsPlan::None => {}
                ConditionsPlan::Exists => {
                    current.ask(own, About::Exists)?;
                }
                ConditionsPlan::NotExists => {
                    current.ask(own, About::NotExists)?;
                }
                ConditionsPlan::Columns(conditions) => {
                    let table = &write.plan.table;
                    for condition in conditions {
                        let place = if condition.is_static(table) { None } else { own };
                        let place = current.ask(place, About::Columns)?;
                        place.columns.push((condition, write));
                    }
                }
            }
        }
        Ok(current)
    }

    fn ask(&mut self, place: Option<&'r [u8]>, about: About) -> Result<&mut Place<'r>, CqlError> {
        let new = || Place { about, columns: Vec::new() };
        let known = self.places.entry(place).or_insert_with(new);
        if known.about == about {
            return Ok(known);
        }
        Err(CqlError::invalid(match (known.about, about) {
            (_, About::Columns) | (About::Columns, About::NotExists) => {
                "Cannot mix IF conditions and IF NOT EXISTS for the same row"
            }
            (About::Columns, About::Exists) => {
                "Cannot mix IF conditions and IF EXISTS for the same row"
            }
            _ => "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
        }))
    }

    fn table(&self) -> &'r Table {
        &self.writes[0].plan.table
    }

    fn now(&self) -> Seconds {
        self.writes[0].cx.now
    }

    fn has_read(&self, column: &Column) -> bool {
        match column.kind {
            ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. } => true,
            ColumnKind::Static | ColumnKind::Regular => {
                self.read.iter().any(|read| read.number == column.number)
            }
        }
    }

    fn has_cells(&self, view: &RowView<'_>) -> bool {
        view.cells().any(|cell| self.read.iter().any(|column| column.has(&cell)))
    }

    /// A row, if any of the columns read have content.
    fn row(&self, key: &[u8]) -> Option<RowView<'r>> {
        let row = self.partition?.row(key, self.now())?;
        Some(row).filter(|row| self.is_visible(row))
    }

    fn is_visible(&self, row: &RowView<'_>) -> bool {
        row.is_inserted() || self.has_cells(row)
    }

    fn statics(&self) -> Option<RowView<'r>> {
        let statics = self.partition?.statics(self.now());
        Some(statics).filter(|statics| self.has_cells(statics))
    }

    /// The rows that conditions refer to. If they refer only to static cells, the first row, which
    /// shows that the partition exists.
    fn rows(&self) -> Vec<RowView<'r>> {
        let Some(partition) = self.partition else { return Vec::new() };
        let keys: Vec<&[u8]> = self.places.keys().copied().flatten().collect();
        if keys.is_empty() {
            let mut rows = partition.rows(Bound::Unbounded, Bound::Unbounded, self.now());
            return rows.find(|row| self.is_visible(row)).into_iter().collect();
        }
        keys.into_iter().filter_map(|key| self.row(key)).collect()
    }

    fn with_row<T>(&self, row: Option<RowView<'_>>, look: impl FnOnce(&RowCx<'_>) -> T) -> T {
        let table = self.table();
        let parts = split(&self.writes[0].keys[0].bytes, table);
        let statics = self.partition.filter(|_| table.has_statics());
        let statics = statics.map(|partition| partition.statics(self.now()));
        look(&RowCx::new(table, &parts, statics, row, self.now()))
    }

    /// The highest timestamp of the data that the writes may replace, including deletions. A
    /// conditional write with a lower timestamp would be reported as applied, but have no effect.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let partition = self.partition?;
        let written = self.writes.iter().filter_map(|write| write.newest(partition));
        written.chain(partition.newest(RowKey::Static)).max()
    }

    pub(super) fn holds(&self) -> Result<bool, CqlError> {
        for (key, place) in &self.places {
            let is_there = || match key {
                Some(key) => self.row(key).is_some(),
                None => self.statics().is_some(),
            };
            let holds = match place.about {
                About::Exists => is_there(),
                About::NotExists => !is_there(),
                About::Columns => self.columns_hold(*key, &place.columns)?,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all conditions on columns of one row hold.
    fn columns_hold(
        &self,
        place: Option<&[u8]>,
        conditions: &[(&'r ConditionPlan, &'r BoundWrite<'r>)],
    ) -> Result<bool, CqlError> {
        let row = place.and_then(|key| self.row(key));
        self.with_row(row, |row| {
            for (condition, write) in conditions {
                if !holds(condition, row, &write.cx)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// The values to return when a condition does not hold, for each row that was read.
    fn values(&self, shown: &[usize]) -> Result<Vec<Vec<Option<Vec<u8>>>>, CqlError> {
        let table = self.table();
        let values = |row: Option<RowView<'r>>| {
            self.with_row(row, |row| {
                let value = |index: &usize| {
                    let is_read = self.has_read(&table.columns[*index]);
                    let value = row.value(*index)?.filter(|_| is_read).map(Cow::into_owned);
                    Ok(value)
                };
                shown.iter().map(value).collect()
            })
        };
        let rows = self.rows();
        if rows.is_empty() {
            return self.statics().map(|_| values(None)).into_iter().collect();
        }
        rows.into_iter().map(|row| values(Some(row))).collect()
    }
}

/// All regular columns if rows are written, all static ones if they are written with conditions,
/// and the compared columns.
// Source: Cassandra 5.0, BatchStatement and CQL3CasRequest.columnsToRead
fn columns_read<'r>(writes: &'r [BoundWrite<'_>]) -> Vec<&'r Column> {
    let table = &writes[0].plan.table;
    let mut plans = writes.iter().map(|write| write.plan);
    let updates_rows = plans.clone().any(WritePlan::updates_rows);
    let updates_statics = plans.any(|plan| plan.is_conditional() && plan.updates_statics());
    let is_read = |index: usize, column: &Column| {
        let is_written = match column.kind {
            ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. } => return false,
            ColumnKind::Static => updates_statics,
            ColumnKind::Regular => updates_rows,
        };
        is_written || writes.iter().any(|write| write.plan.conditions.is_about(index))
    };
    let columns = table.columns.iter().enumerate();
    columns.filter(|(index, column)| is_read(*index, column)).map(|(_, column)| column).collect()
}

/// Returns `None` for null, and for an empty collection whose items are cells.
fn normal<'v>(value: Option<Cow<'v, [u8]>>, of: &CqlType) -> Option<Cow<'v, [u8]>> {
    let is_empty = |bytes: &Cow<'_, [u8]>| of.is_multi_cell() && bytes.iter().all(|b| *b == 0);
    value.filter(|bytes| !(is_empty(bytes) && bytes.len() <= 4))
}

// Source: Cassandra 5.0, ColumnCondition.Bound
fn holds<'v>(
    condition: &'v ConditionPlan,
    row: &RowCx<'_>,
    cx: &EvalContext<'v>,
) -> Result<bool, CqlError> {
    let table = row.table;
    let name = &table.columns[condition.column].name;
    let of = &condition.of;
    let own = current(condition, row, cx)?;
    if matches!(condition.operator, Comparison::Contains | Comparison::ContainsKey) {
        return contains(condition, own.as_deref(), row, cx);
    }
    let own = normal(own, of).map(|value| ordered(&value, of));
    let mut expected: SmallVec<[Option<Vec<u8>>; 1]> = SmallVec::new();
    let mut is_empty = false;
    let mut add = |expression: &'v Expression| -> Result<(), CqlError> {
        let value = match cx.evaluate(expression)? {
            Evaluated::Bytes(bytes) => {
                let value = normal(Some(bytes), of);
                is_empty |= value.is_none();
                value
            }
            Evaluated::Null => None,
            // IN ignores such values.
            Evaluated::Unset if condition.operator == Comparison::In => return Ok(()),
            Evaluated::Unset => {
                return Err(CqlError::invalid(format!(
                    "Invalid 'unset' value in condition for {name}"
                )));
            }
        };
        expected.push(value.map(|value| ordered(&value, of)));
        Ok(())
    };
    match &condition.choices {
        Choices::One(value) => add(value)?,
        Choices::Several(values) => values.iter().try_for_each(&mut add)?,
        Choices::List(_) => {
            let values = cx.choose(&condition.choices, name)?;
            expected.extend(values.iter().map(|value| Some(ordered(value, of))));
        }
    }
    let is_equal = || expected.contains(&own);
    let symbol = match condition.operator {
        Comparison::Equal | Comparison::In => return Ok(is_equal()),
        Comparison::NotEqual => return Ok(!is_equal()),
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Contains
        | Comparison::ContainsKey
        | Comparison::Like
        | Comparison::IsNotNull => return Ok(false),
    };
    let [Some(expected)] = &expected[..] else {
        let what = match of {
            CqlType::List(_) if is_empty => "an empty list",
            CqlType::Set(_) if is_empty => "an empty set",
            CqlType::Map(..) if is_empty => "an empty map",
            _ => "null",
        };
        return Err(CqlError::invalid(format!(
            "Invalid comparison with {what} for operator \"{symbol}\""
        )));
    };
    let Some(own) = own else { return Ok(false) };
    Ok(match condition.operator {
        Comparison::Less => own < *expected,
        Comparison::LessOrEqual => own <= *expected,
        Comparison::Greater => own > *expected,
        _ => own >= *expected,
    })
}

/// Whether a collection contains the requested item.
fn contains<'v>(
    condition: &'v ConditionPlan,
    own: Option<&[u8]>,
    row: &RowCx<'_>,
    cx: &EvalContext<'v>,
) -> Result<bool, CqlError> {
    let column = &row.table.columns[condition.column];
    let Choices::One(item) = &condition.choices else { return Ok(false) };
    let is_key = condition.operator == Comparison::ContainsKey;
    let item = match cx.evaluate(item)? {
        Evaluated::Bytes(bytes) => bytes,
        Evaluated::Null => {
            let operator = if is_key { "CONTAINS KEY" } else { "CONTAINS" };
            return Err(CqlError::invalid(format!(
                "Invalid comparison with null for operator \"{operator}\""
            )));
        }
        Evaluated::Unset => {
            let name = &column.name;
            let message = format!("Invalid 'unset' value in condition for {name}");
            return Err(CqlError::invalid(message));
        }
    };
    let own = own.unwrap_or_default();
    if own.is_empty() {
        return Ok(false);
    }
    let of = &column.column_type;
    Ok(if is_key { order::contains_key(own, &item, of) } else { order::contains(own, &item, of) })
}

/// The current value that a condition is compared with.
fn current<'r>(
    condition: &ConditionPlan,
    row: &'r RowCx<'_>,
    cx: &EvalContext<'_>,
) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
    let column = &row.table.columns[condition.column];
    let Some(value) = row.value(condition.column)? else { return Ok(None) };
    cx.moment.spend(value.len())?;
    let copied = |part: &[u8]| Cow::Owned(part.to_vec());
    match &condition.part {
        ConditionPart::Whole => Ok(Some(value)),
        ConditionPart::Field(place) => {
            let CqlType::UserDefined(user) = column.column_type.unfrozen() else {
                return Ok(None);
            };
            let fields = fields(&value, user.fields.len()).unwrap_or_default();
            Ok(fields.get(*place).copied().flatten().map(copied))
        }
        ConditionPart::Element(key) => {
            let Evaluated::Bytes(key) = cx.evaluate(key)? else {
                let is_map = matches!(column.column_type.unfrozen(), CqlType::Map(..));
                let what = if is_map { "map" } else { "list" };
                return Err(CqlError::invalid(format!(
                    "Invalid null value for {what} element access"
                )));
            };
            if let CqlType::Map(of, _) = column.column_type.unfrozen() {
                let items = items(&value, 2).unwrap_or_default();
                let (pairs, _) = items.as_chunks::<2>();
                let key = ordered(&key, of);
                let found = pairs.iter().find(|[name, _]| ordered(name, of) == key);
                return Ok(found.map(|[_, value]| copied(value)));
            }
            let place = <[u8; 4]>::try_from(&*key).map(i32::from_be_bytes);
            let place = place.map_err(|_| CqlError::invalid("Invalid list index"))?;
            let place = usize::try_from(place)
                .map_err(|_| CqlError::invalid(format!("Invalid negative list index {place}")))?;
            let items = items(&value, 1).unwrap_or_default();
            Ok(items.get(place).map(|item| copied(item)))
        }
    }
}

/// Writes the response to a conditional write that was applied.
pub(super) fn reply_applied(table: &Table, reply: &mut dyn ResultSink) -> Encoded {
    let columns = [applied_column()];
    let mut rows = Rows::default();
    rows.cell(Some(&[1]))?;
    rows.end_row();
    rows.reply(shown_as(table, &columns), reply)
}

/// Writes the response to a conditional write that was not applied: the current values.
// Source: Cassandra 5.0, ModificationStatement.buildCasResultSet
pub(super) fn reply_refused(
    current: &Current<'_>,
    is_batch: bool,
    reply: &mut dyn ResultSink,
) -> Result<(), CqlError> {
    let table = current.table();
    let shown = shown_columns(current.writes, is_batch);
    let found = current.values(&shown)?;
    let mut columns = vec![applied_column()];
    if !found.is_empty() {
        columns.extend(shown.iter().map(|index| {
            let column = &table.columns[*index];
            Shown { name: column.name.clone(), column_type: column.column_type.wire() }
        }));
    }
    let mut rows = Rows::default();
    if found.is_empty() {
        rows.cell(Some(&[0]))?;
        rows.end_row();
    }
    for values in &found {
        rows.cell(Some(&[0]))?;
        for value in values {
            rows.cell(value.as_deref())?;
        }
        rows.end_row();
    }
    Ok(rows.reply(shown_as(table, &columns), reply)?)
}

/// Indexes of columns in the table: either all columns, or those named by conditions, with a
/// statement's static columns last.
fn shown_columns(writes: &[BoundWrite<'_>], is_batch: bool) -> Vec<usize> {
    let table = &writes[0].plan.table;
    let mut shown = Vec::new();
    if is_batch {
        shown.extend(0..table.partition_key().len() + table.clustering().len());
    }
    for write in writes {
        let conditions = match &write.plan.conditions {
            ConditionsPlan::None => continue,
            ConditionsPlan::Exists | ConditionsPlan::NotExists => {
                return (0..table.columns.len()).collect();
            }
            ConditionsPlan::Columns(conditions) => conditions,
        };
        for is_static in [false, true] {
            let own = conditions.iter().filter(|it| it.is_static(table) == is_static);
            for condition in own {
                if !shown.contains(&condition.column) {
                    shown.push(condition.column);
                }
            }
        }
    }
    shown
}

fn applied_column() -> Shown {
    Shown { name: APPLIED.to_owned(), column_type: CqlType::BOOLEAN.wire() }
}

fn shown_as<'m>(table: &'m Table, columns: &'m [Shown]) -> Columns<'m> {
    Columns { keyspace: &table.keyspace, table: &table.name, columns }
}

/// Whether all the writes' conditions refer to one partition.
pub(super) fn is_one_partition(writes: &[BoundWrite<'_>]) -> bool {
    let first = &writes[0].keys;
    writes.iter().all(|write| write.keys.len() == 1 && write.keys == *first)
}
