//! IF: whether a conditional write is carried out, and what its client is told.

use std::borrow::Cow;

use smallvec::SmallVec;
use store::{Partition, RowKey, Timestamp};
use wire::cql::{Column as Shown, Columns, RowsMetadata};

use super::filter::ordered;
use super::keys::split;
use super::row::RowCx;
use super::values::Cx;
use super::write::Ready;
use crate::cql::engine::Reply;
use crate::cql::error::CqlError;
use crate::cql::expression::{Evaluated, Expression};
use crate::cql::plan::{Choices, ConditionPart, ConditionPlan, ConditionsPlan};
use crate::cql::relation::Comparison;
use crate::cql::schema::Table;
use crate::cql::types::CqlType;
use crate::cql::value::collection::{fields, items};

const APPLIED: &str = "[applied]";

/// What a conditional write finds: its partition, if there is one, and the row in it.
pub(super) struct Current<'r> {
    pub(super) ready: &'r Ready<'r>,
    pub(super) partition: Option<&'r Partition>,
}

impl Current<'_> {
    fn with_row<T>(&self, look: impl FnOnce(&RowCx<'_>) -> T) -> T {
        let plan = self.ready.plan;
        let table = &plan.table;
        let now = self.ready.cx.now;
        let parts = split(&self.ready.keys[0].bytes, table);
        let statics = self.partition.filter(|_| table.has_statics()).map(|p| p.statics(now));
        let row = match (self.ready.row_key(), self.partition) {
            (RowKey::Clustering(key), Some(partition)) => partition.row(key, now),
            _ => None,
        };
        look(&RowCx::new(table, &parts, statics, row, now))
    }

    /// Whether the write is about a row, or about static cells alone, that is there.
    fn exists(&self) -> bool {
        self.with_row(|row| match self.ready.row_key() {
            RowKey::Clustering(_) => row.row.is_some(),
            RowKey::Static => row.statics.is_some_and(|statics| statics.exists()),
        })
    }

    /// The newest cell that the write may replace.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.with_row(|row| {
            let views = row.row.into_iter().chain(row.statics);
            views.flat_map(|view| view.cells()).map(|cell| cell.timestamp).max()
        })
    }

    pub(super) fn holds(&self) -> Result<bool, CqlError> {
        match &self.ready.plan.conditions {
            ConditionsPlan::None => Ok(true),
            ConditionsPlan::Exists => Ok(self.exists()),
            ConditionsPlan::NotExists => Ok(!self.exists()),
            ConditionsPlan::Columns(conditions) => self.with_row(|row| {
                for condition in conditions {
                    if !holds(condition, row, &self.ready.cx)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }),
        }
    }
}

/// None is null, and so is an empty collection whose items are cells.
fn normal<'v>(value: Option<Cow<'v, [u8]>>, of: &CqlType) -> Option<Cow<'v, [u8]>> {
    let is_empty = |bytes: &Cow<'_, [u8]>| of.is_multi_cell() && bytes.iter().all(|b| *b == 0);
    value.filter(|bytes| !(is_empty(bytes) && bytes.len() <= 4))
}

// Source: Cassandra 5.0, ColumnCondition.Bound
fn holds<'v>(condition: &'v ConditionPlan, row: &RowCx<'_>, cx: &Cx<'v>) -> Result<bool, CqlError> {
    let table = row.table;
    let name = &table.columns[condition.column].name;
    let of = &condition.of;
    let own = normal(current(condition, row, cx)?, of).map(|value| ordered(&value, of));
    let mut wanted: SmallVec<[Option<Vec<u8>>; 1]> = SmallVec::new();
    let mut is_empty = false;
    let mut add = |expression: &'v Expression| -> Result<(), CqlError> {
        let value = match cx.evaluate(expression)? {
            Evaluated::Bytes(bytes) => {
                let value = normal(Some(bytes), of);
                is_empty |= value.is_none();
                value
            }
            Evaluated::Null => None,
            Evaluated::Unset => {
                return Err(CqlError::invalid(format!(
                    "Invalid 'unset' value in condition for {name}"
                )));
            }
        };
        wanted.push(value.map(|value| ordered(&value, of)));
        Ok(())
    };
    match &condition.choices {
        Choices::One(value) => add(value)?,
        Choices::Several(values) => values.iter().try_for_each(&mut add)?,
        Choices::List(_) => {
            let values = cx.choose(&condition.choices, name)?;
            wanted.extend(values.iter().map(|value| Some(ordered(value, of))));
        }
    }
    let is_equal = || wanted.contains(&own);
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
    let [Some(wanted)] = &wanted[..] else {
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
        Comparison::Less => own < *wanted,
        Comparison::LessOrEqual => own <= *wanted,
        Comparison::Greater => own > *wanted,
        _ => own >= *wanted,
    })
}

/// The value that a condition is about.
fn current<'r>(
    condition: &ConditionPlan,
    row: &'r RowCx<'_>,
    cx: &Cx<'_>,
) -> Result<Option<Cow<'r, [u8]>>, CqlError> {
    let column = &row.table.columns[condition.column];
    let Some(value) = row.value(condition.column) else { return Ok(None) };
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
            let key = cx.known(key, &column.name)?;
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

/// The response to a conditional write that was carried out.
pub(super) fn reply_applied(table: &Table, reply: &mut Reply<'_>) {
    let columns = [applied_column()];
    let mut rows = reply.encoder.rows(reply.stream, &metadata(table, &columns), reply.out);
    rows.cell(Some(&[1]));
    rows.end_row();
    rows.finish();
}

/// The response to one that was not: the values that are there instead.
// Source: Cassandra 5.0, ModificationStatement.buildCasResultSet
pub(super) fn reply_refused(current: &[Current<'_>], is_batch: bool, reply: &mut Reply<'_>) {
    let table = &current[0].ready.plan.table;
    let shown = shown_columns(current, is_batch, table);
    let mut found: Vec<Vec<Option<Vec<u8>>>> = Vec::new();
    for current in current.iter().filter(|current| current.ready.plan.is_conditional()) {
        let values = current.with_row(|row| {
            let is_there = row.row.is_some()
                || row.statics.is_some_and(|statics| statics.exists()) && !is_about_row(current);
            is_there
                .then(|| shown.iter().map(|index| row.value(*index).map(Cow::into_owned)).collect())
        });
        found.extend(values);
    }
    found.dedup();
    let mut columns = vec![applied_column()];
    if !found.is_empty() {
        columns.extend(shown.iter().map(|index| {
            let column = &table.columns[*index];
            Shown { name: column.name.clone(), column_type: column.column_type.wire() }
        }));
    }
    let mut rows = reply.encoder.rows(reply.stream, &metadata(table, &columns), reply.out);
    if found.is_empty() {
        rows.cell(Some(&[0]));
        rows.end_row();
    }
    for values in &found {
        rows.cell(Some(&[0]));
        for value in values {
            rows.cell(value.as_deref());
        }
        rows.end_row();
    }
    rows.finish();
}

/// IF NOT EXISTS and IF EXISTS are about rows, conditions on static columns are not.
fn is_about_row(current: &Current<'_>) -> bool {
    let plan = current.ready.plan;
    match &plan.conditions {
        ConditionsPlan::Columns(conditions) => conditions.iter().all(|condition| {
            plan.table.columns[condition.column].kind != crate::cql::schema::ColumnKind::Static
        }),
        _ => matches!(current.ready.row_key(), RowKey::Clustering(_)),
    }
}

/// Columns by their places in the table: all, or those that conditions name.
fn shown_columns(current: &[Current<'_>], is_batch: bool, table: &Table) -> Vec<usize> {
    let conditions = current.iter().map(|current| &current.ready.plan.conditions);
    let mut shown = Vec::new();
    if is_batch {
        shown.extend(0..table.partition_key().len() + table.clustering().len());
    }
    for conditions in conditions {
        match conditions {
            ConditionsPlan::None => {}
            ConditionsPlan::Exists | ConditionsPlan::NotExists => {
                return (0..table.columns.len()).collect();
            }
            ConditionsPlan::Columns(conditions) => {
                for condition in conditions {
                    if !shown.contains(&condition.column) {
                        shown.push(condition.column);
                    }
                }
            }
        }
    }
    shown
}

fn applied_column() -> Shown {
    Shown { name: APPLIED.to_owned(), column_type: CqlType::BOOLEAN.wire() }
}

fn metadata<'m>(table: &'m Table, columns: &'m [Shown]) -> RowsMetadata<'m> {
    RowsMetadata {
        columns: Columns { keyspace: &table.keyspace, table: &table.name, columns },
        skip_columns: false,
        paging_state: None,
        new_metadata_id: None,
    }
}

/// Whether all conditions of some writes are about one partition.
pub(super) fn is_one_partition(writes: &[Ready<'_>]) -> bool {
    let first = &writes[0].keys;
    writes.iter().all(|write| write.keys.len() == 1 && write.keys == *first)
}
