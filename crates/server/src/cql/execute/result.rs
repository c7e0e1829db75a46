//! Rows of a result on their way to the client, or into groups.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cql::error::CqlError;
use cql::expression::{Evaluated, Expression, Row};
use cql::function::aggregate::Fold;
use cql::plan::{SelectPlan, Shows};
use cql::schema::{Column, ColumnKind};
use cql::types::CqlType;
use cql::value::comparable;
use cql::value::text::put_json;
use wire::cql::{Notation, Value};

use super::filter::Filters;
use super::paging::PagingState;
use super::row::RowCx;
use super::values::Cx;

/// A page ends behind so many bytes: the next one goes on there.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Of a result that is not paged: it is put together, and into the connection's output, in one turn.
const RESULT_BYTES_MAX: usize = 64 << 20;
/// Of a response, as Cassandra's largest one.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// Of one row. A page that ends with it is not longer than a response may be.
const ROW_BYTES_MAX: usize = RESPONSE_BYTES_MAX - PAGE_BYTES_MAX;
/// Bytes of a row that count as those of one row for the turn of a walk.
pub(super) const ROW_BYTES_USUAL: usize = 1024;
/// The same for bytes that functions and comparisons process.
const WORK_BYTES_USUAL: usize = 128;
/// Rows that are looked at for one page, shown or not: 0.2 s of a reactor's time.
const ROWS_EXAMINED_MAX: usize = 1 << 20;

/// What becomes of the walk after a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    /// The partition has shown all it may.
    PartitionDone,
    /// The page is full, and there may be more.
    PageFull,
    /// Nothing more may be shown.
    Done,
    /// Others are to be served: the walk goes on later.
    Pause,
}

impl Next {
    /// Whether no further row is to be looked at now.
    pub(super) fn ends_walk(self) -> bool {
        matches!(self, Next::Done | Next::PageFull | Next::Pause)
    }
}

/// See the module.
pub(super) struct Results<'s> {
    plan: &'s SelectPlan,
    cx: Cx<'s>,
    filters: Filters<'s>,
    /// Encoded rows.
    pub(super) out: Vec<u8>,
    pub(super) count: usize,
    /// None: the client takes all at once.
    page_rows_max: Option<usize>,
    per_partition_max: u32,
    remaining: u32,
    in_partition: u32,
    has_met_no_row: bool,
    examined: usize,
    /// Rows that may be looked at before the walk pauses.
    turn_rows: usize,
    /// Whether it may pause within a partition.
    pauses_inside: bool,
    /// Where the next page begins, once this one is full; where the walk goes on, when it pauses.
    full_at: Option<PagingState>,
    group: Option<Group>,
    /// None while there are none.
    sorted: Option<Box<Sorted>>,
}

/// Rows of several partitions in the order that they are shown in.
#[derive(Debug, Default)]
struct Sorted {
    /// By what they are sorted by, and where that is equal as they came.
    rows: BTreeMap<(Vec<u8>, usize), Vec<u8>>,
    bytes: usize,
    /// How many have come so far.
    count: usize,
}

/// What of a result is there when its walk pauses.
#[derive(Debug)]
pub(super) struct Progress {
    out: Vec<u8>,
    count: usize,
    remaining: u32,
    in_partition: u32,
    has_met_no_row: bool,
    examined: usize,
    group: Option<Group>,
    sorted: Option<Box<Sorted>>,
}

impl Progress {
    pub(super) fn bytes(&self) -> usize {
        self.out.len() + self.sorted.as_ref().map_or(0, |sorted| sorted.bytes)
    }
}

/// Rows that are shown as one.
#[derive(Debug)]
struct Group {
    key: Vec<u8>,
    /// What the rows' keys have in common.
    prefix: Vec<u8>,
    folds: Vec<Fold>,
    /// The columns of the first row.
    first: Vec<Option<Vec<u8>>>,
    /// What it is sorted by among groups of other partitions.
    order: Vec<u8>,
    last: PagingState,
}

/// A group as expressions see it.
struct GroupRow<'g> {
    first: &'g [Option<Vec<u8>>],
    aggregates: Vec<Option<Vec<u8>>>,
}

impl Row for GroupRow<'_> {
    fn column(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError> {
        let value = self.first.get(index).and_then(Option::as_deref);
        Ok(value.map(Cow::Borrowed))
    }

    fn aggregate(&self, nth: usize) -> Option<&[u8]> {
        self.aggregates.get(nth)?.as_deref()
    }
}

impl<'s> Results<'s> {
    pub(super) fn new(
        plan: &'s SelectPlan,
        cx: Cx<'s>,
        filters: Filters<'s>,
        out: Vec<u8>,
        page_rows_max: Option<usize>,
    ) -> Result<Self, CqlError> {
        let limit = |expression: &'s Option<Expression>, name: &str| {
            let Some(expression) = expression else { return Ok(u32::MAX) };
            let Some(limit) = cx.integer(expression, name)? else { return Ok(u32::MAX) };
            u32::try_from(limit)
                .ok()
                .filter(|limit| *limit > 0)
                .ok_or_else(|| CqlError::invalid("LIMIT must be strictly positive"))
        };
        let remaining = limit(&plan.limit, "limit")?;
        let per_partition_max = limit(&plan.per_partition_limit, "per partition limit")?;
        Ok(Results {
            plan,
            cx,
            filters,
            out,
            count: 0,
            page_rows_max,
            per_partition_max,
            remaining,
            in_partition: 0,
            has_met_no_row: false,
            examined: 0,
            turn_rows: usize::MAX,
            pauses_inside: false,
            full_at: None,
            group: None,
            sorted: None,
        })
    }

    pub(super) fn now(&self) -> store::Seconds {
        self.cx.now
    }

    /// Rows that were looked at, shown or not.
    pub(super) fn examined(&self) -> u64 {
        self.examined as u64
    }

    /// Rows that LIMIT allows.
    pub(super) fn limit(&self) -> u32 {
        self.remaining
    }

    /// Goes on where a page has ended.
    pub(super) fn resume(&mut self, state: &PagingState) {
        self.remaining = state.remaining;
        self.in_partition = state.in_partition;
    }

    /// From now on so many rows are looked at before the walk pauses; 0: it does not.
    pub(super) fn set_turn(&mut self, rows_max: usize, pauses_inside: bool) {
        self.turn_rows = if rows_max == 0 { usize::MAX } else { rows_max };
        self.pauses_inside = pauses_inside;
    }

    /// Behind a partition, which may have had no rows: whether the walk goes on.
    pub(super) fn pass_partition(&mut self, key: &[u8]) -> Next {
        self.turn_rows = self.turn_rows.saturating_sub(1);
        if self.turn_rows > 0 {
            return Next::GoOn;
        }
        let (remaining, in_partition) = (self.remaining, self.in_partition);
        self.full_at = Some(PagingState { key: key.into(), row: None, remaining, in_partition });
        Next::Pause
    }

    /// The same behind keys that show nothing; `last`: the last of a stripe.
    pub(super) fn pass_keys(&mut self, count: usize, last: &[u8]) -> Next {
        if count == 0 {
            return Next::GoOn;
        }
        self.turn_rows = self.turn_rows.saturating_sub(count).max(1);
        self.pass_partition(last)
    }

    /// After a place of a partition that has no row now.
    pub(super) fn pass_row(&mut self, key: &[u8], row: &[u8]) -> Next {
        self.turn_rows = self.turn_rows.saturating_sub(1);
        if self.turn_rows > 0 || !self.pauses_inside {
            return Next::GoOn;
        }
        self.full_at = Some(PagingState {
            key: key.into(),
            row: Some(row.to_vec()),
            remaining: self.remaining,
            in_partition: self.in_partition,
        });
        Next::Pause
    }

    /// Takes so many rows off the turn. The walk pauses at its next look.
    pub(super) fn spend(&mut self, rows: usize) {
        self.turn_rows = self.turn_rows.saturating_sub(rows).max(1);
    }

    /// Within a partition, at a place that the walk knows: whether it continues.
    pub(super) fn pause_within(&mut self, key: &[u8]) -> Next {
        if self.turn_rows > 1 {
            return Next::GoOn;
        }
        self.full_at = Some(PagingState {
            key: key.into(),
            row: Some(Vec::new()),
            remaining: self.remaining,
            in_partition: self.in_partition,
        });
        Next::Pause
    }

    /// Rows of the partition that are shown at most, where each row that is looked at is shown.
    pub(super) fn rows_taken(&self) -> Option<usize> {
        let shows_each = self.filters.is_empty()
            && !self.plan.is_grouped()
            && !self.plan.is_distinct
            && self.plan.sorted_columns.is_none();
        let limit = self.remaining.min(self.per_partition_max.saturating_sub(self.in_partition));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        shows_each.then(|| self.page_rows_max.map_or(limit, |page| limit.min(page)))
    }

    /// Takes what is there of a walk that pauses, and where it goes on.
    pub(super) fn pause(&mut self) -> (PagingState, Progress) {
        let at = self.full_at.take().expect("a walk pauses behind a row");
        let progress = Progress {
            out: std::mem::take(&mut self.out),
            count: self.count,
            remaining: self.remaining,
            in_partition: self.in_partition,
            has_met_no_row: self.has_met_no_row,
            examined: self.examined,
            group: self.group.take(),
            sorted: self.sorted.take(),
        };
        (at, progress)
    }

    /// Goes on with what was there.
    pub(super) fn go_on(&mut self, progress: Progress) {
        (self.out, self.count) = (progress.out, progress.count);
        (self.remaining, self.in_partition) = (progress.remaining, progress.in_partition);
        (self.examined, self.group) = (progress.examined, progress.group);
        (self.sorted, self.has_met_no_row) = (progress.sorted, progress.has_met_no_row);
    }

    pub(super) fn begin_partition(&mut self) {
        self.in_partition = 0;
        self.has_met_no_row = true;
    }

    /// The partition has a row, which may not be what is asked for.
    pub(super) fn meet_row(&mut self) {
        self.has_met_no_row = false;
    }

    /// Whether all of a partition was visited, in one piece or several, and had no row.
    pub(super) fn has_met_no_row(&self) -> bool {
        self.has_met_no_row
    }

    /// Groups never span partitions, unless all rows are one.
    pub(super) fn end_partition(&mut self) -> Result<Next, CqlError> {
        match self.group.take_if(|_| self.plan.group_by.is_some()) {
            Some(group) => self.show_group(group),
            None => Ok(Next::GoOn),
        }
    }

    /// Nothing is behind the row that has filled the page.
    pub(super) fn forget_next_page(&mut self) {
        self.full_at = None;
    }

    /// Whether the row that has filled the page was the last one that this partition may show.
    // Source: Cassandra 5.0, AbstractQueryPager.Pager.onClose
    pub(super) fn has_ended_partition(&self, key: &[u8]) -> bool {
        let has_one_row = self.plan.table.clustering().is_empty();
        let Some(state) = self.full_at.as_ref().filter(|state| state.key[..] == *key) else {
            return false;
        };
        has_one_row || state.row.is_none() || state.in_partition >= self.per_partition_max
    }

    /// Whether rows of a partition that is gone on with may still be shown.
    pub(super) fn allows_more_of_partition(&self) -> bool {
        self.in_partition < self.per_partition_max
    }

    /// Shows a row if it is what was asked for. `key`: of its partition.
    pub(super) fn offer(&mut self, key: &[u8], row: &RowCx<'_>) -> Result<Next, CqlError> {
        self.examined += 1;
        let bytes_before = self.out.len();
        self.cx.moment.take_work();
        if self.filters.accept(row, self.cx.moment)? {
            let next =
                if self.plan.is_grouped() { self.gather(key, row)? } else { self.show(key, row)? };
            if next != Next::GoOn {
                return Ok(next);
            }
        }
        let is_tired = self.examined >= ROWS_EXAMINED_MAX && self.page_rows_max.is_some();
        if is_tired && !self.plan.is_grouped() {
            self.full_at = Some(self.position(key, row));
            return Ok(Next::PageFull);
        }
        // A long row takes as long as several, and so do functions of long values.
        let bytes = self.out.len().saturating_sub(bytes_before);
        let work_bytes = self.cx.moment.take_work();
        let cost = 1 + bytes / ROW_BYTES_USUAL + work_bytes / WORK_BYTES_USUAL;
        self.turn_rows = self.turn_rows.saturating_sub(cost);
        if self.turn_rows == 0 && self.pauses_inside {
            self.full_at = Some(self.position(key, row));
            return Ok(Next::Pause);
        }
        Ok(Next::GoOn)
    }

    fn position(&self, key: &[u8], row: &RowCx<'_>) -> PagingState {
        PagingState {
            key: key.into(),
            row: row.row.map(|row| row.key.to_vec()),
            remaining: self.remaining,
            in_partition: self.in_partition,
        }
    }

    fn show(&mut self, key: &[u8], row: &RowCx<'_>) -> Result<Next, CqlError> {
        let start = self.out.len();
        write_row(self.plan, &self.cx, row, &mut self.out)?;
        self.in_partition = self.in_partition.saturating_add(1);
        if let Some(columns) = self.plan.sorted_columns {
            let order = row.row.map(|row| self.key_prefix(row.key, columns)).unwrap_or_default();
            return self.sort_in(order.to_vec(), start);
        }
        self.count_row(|results| results.position(key, row))
    }

    /// Moves what was written from `start` on to the rows that are sorted at the end.
    fn sort_in(&mut self, order: Vec<u8>, start: usize) -> Result<Next, CqlError> {
        let encoded = self.out.split_off(start);
        let is_reversed = self.plan.is_reversed;
        let sorted = self.sorted.get_or_insert_default();
        sorted.bytes += order.len() + encoded.len();
        sorted.count += 1;
        let nth = if is_reversed { usize::MAX - sorted.count } else { sorted.count };
        sorted.rows.insert((order, nth), encoded);
        if sorted.rows.len() > usize::try_from(self.remaining).unwrap_or(usize::MAX) {
            let last = if is_reversed { sorted.rows.pop_first() } else { sorted.rows.pop_last() };
            let bytes = last.map_or(0, |((order, _), encoded)| order.len() + encoded.len());
            sorted.bytes -= bytes;
        }
        let sorted_bytes = sorted.bytes;
        if self.in_partition >= self.per_partition_max {
            return Ok(Next::PartitionDone);
        }
        check_bytes(sorted_bytes)
    }

    /// One more row was written.
    fn count_row(&mut self, position: impl FnOnce(&Self) -> PagingState) -> Result<Next, CqlError> {
        self.count += 1;
        self.remaining -= 1;
        if self.remaining == 0 {
            return Ok(Next::Done);
        }
        let is_full = self
            .page_rows_max
            .is_some_and(|max| self.count >= max || self.out.len() >= PAGE_BYTES_MAX);
        if is_full {
            self.full_at = Some(position(self));
            return Ok(Next::PageFull);
        }
        if self.in_partition >= self.per_partition_max {
            return Ok(Next::PartitionDone);
        }
        check_bytes(self.out.len())
    }

    /// Adds a row to its group.
    fn gather(&mut self, key: &[u8], row: &RowCx<'_>) -> Result<Next, CqlError> {
        let prefix = self.group_prefix(row);
        let is_same = self.group.as_ref().is_some_and(|group| {
            self.plan.group_by.is_none() || group.key == key && group.prefix == prefix
        });
        if !is_same {
            if let Some(group) = self.group.take() {
                // A walk that goes on behind the last row of a partition has not ended that.
                let is_of_other = group.key != key;
                let next = self.show_group(group)?;
                if next.ends_walk() {
                    return Ok(next);
                }
                if is_of_other {
                    self.in_partition = 0;
                }
            }
            if self.in_partition >= self.per_partition_max {
                return Ok(Next::PartitionDone);
            }
            self.group = Some(self.start_group(key, prefix, Some(row))?);
        }
        // All rows as one are no page.
        let position = self.plan.group_by.is_some().then(|| self.position(key, row));
        let group = self.group.as_mut().expect("was just made");
        for (call, fold) in self.plan.selection.aggregates.iter().zip(&mut group.folds) {
            match &call.argument {
                None => fold.add(None)?,
                Some(argument) => {
                    let value = argument.evaluate(self.cx.values, Some(row), self.cx.moment)?;
                    fold.add(value.required("aggregate")?.as_deref())?;
                }
            }
        }
        group.last = position.unwrap_or_default();
        Ok(Next::GoOn)
    }

    fn start_group(
        &self,
        key: &[u8],
        prefix: Vec<u8>,
        row: Option<&RowCx<'_>>,
    ) -> Result<Group, CqlError> {
        let columns = self.plan.table.columns.len() + self.plan.selection.extras.len();
        let value = |index| match row {
            None => Ok(None),
            Some(row) => Ok(row.value(index)?.map(Cow::into_owned)),
        };
        let first = (0..columns).map(value).collect::<Result<_, CqlError>>()?;
        let first_key = row.and_then(|row| row.row).map(|row| row.key);
        let order = self.plan.sorted_columns.zip(first_key);
        let order = order.map(|(columns, key)| self.key_prefix(key, columns).to_vec());
        Ok(Group {
            key: key.to_vec(),
            prefix,
            order: order.unwrap_or_default(),
            folds: self
                .plan
                .selection
                .aggregates
                .iter()
                .map(|call| call.aggregate.start())
                .collect(),
            first,
            last: PagingState::default(),
        })
    }

    /// The part of a row's key that rows of its group have in common.
    fn group_prefix(&self, row: &RowCx<'_>) -> Vec<u8> {
        let table = &self.plan.table;
        let Some(columns) = self.plan.group_by else { return Vec::new() };
        let columns = columns - table.partition_key().len();
        row.row.map(|row| self.key_prefix(row.key, columns).to_vec()).unwrap_or_default()
    }

    /// The leading clustering columns of a row's key.
    fn key_prefix<'k>(&self, key: &'k [u8], columns: usize) -> &'k [u8] {
        let mut rest = key;
        for column in &self.plan.table.clustering()[..columns] {
            let is_descending = is_descending(column);
            if comparable::decode(&mut rest, &column.column_type, is_descending).is_none() {
                break;
            }
        }
        &key[..key.len() - rest.len()]
    }

    fn show_group(&mut self, group: Group) -> Result<Next, CqlError> {
        let aggregates = group.folds.into_iter().map(Fold::finish).collect::<Result<_, _>>()?;
        let row = GroupRow { first: &group.first, aggregates };
        let start = self.out.len();
        write_row(self.plan, &self.cx, &row, &mut self.out)?;
        self.in_partition = self.in_partition.saturating_add(1);
        if self.plan.sorted_columns.is_some() {
            return self.sort_in(group.order, start);
        }
        let last = group.last;
        self.count_row(|results| PagingState {
            remaining: results.remaining,
            in_partition: results.in_partition,
            ..last
        })
    }

    /// Behind the last row. Returns where the next page begins, if there is one.
    pub(super) fn finish(&mut self, mut end: Next) -> Result<Option<PagingState>, CqlError> {
        if end != Next::Done && end != Next::PageFull {
            match self.group.take() {
                Some(group) => end = self.show_group(group)?,
                None if self.plan.selection.is_aggregate() && self.plan.group_by.is_none() => {
                    let group = self.start_group(&[], Vec::new(), None)?;
                    end = self.show_group(group)?;
                }
                None => {}
            }
        }
        if let Some(sorted) = self.sorted.take() {
            // What is equal stays in the order of the partition keys, in both directions.
            self.count += sorted.rows.len();
            let rows = sorted.rows.into_values();
            if self.plan.is_reversed {
                rows.rev().for_each(|row| self.out.extend_from_slice(&row));
            } else {
                rows.for_each(|row| self.out.extend_from_slice(&row));
            }
        }
        let is_one = self.plan.is_grouped() && self.plan.group_by.is_none();
        Ok(self.full_at.take().filter(|_| end == Next::PageFull && !is_one))
    }
}

/// A result must fit the memory.
fn check_bytes(bytes: usize) -> Result<Next, CqlError> {
    if bytes <= RESULT_BYTES_MAX {
        return Ok(Next::GoOn);
    }
    Err(CqlError::Overloaded(format!(
        "The result has more than {RESULT_BYTES_MAX} bytes: ask for it page by page"
    )))
}

pub(super) fn is_descending(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::Clustering { is_descending: true, .. })
}

/// Appends what is shown of one row.
fn write_row(
    plan: &SelectPlan,
    cx: &Cx<'_>,
    row: &dyn Row,
    out: &mut Vec<u8>,
) -> Result<(), CqlError> {
    if let Some(json) = &plan.selection.json {
        return write_json(plan, json, cx, row, out);
    }
    let start = out.len();
    match &plan.selection.shown {
        Shows::Columns(columns) => {
            for index in columns {
                put_cell(row.column(*index)?.as_deref(), start, out)?;
            }
        }
        Shows::Expressions(expressions) => {
            for expression in expressions {
                put_cell(computed(expression, cx, row)?.as_deref(), start, out)?;
            }
        }
    }
    Ok(())
}

fn computed<'a>(
    expression: &'a Expression,
    cx: &Cx<'a>,
    row: &'a dyn Row,
) -> Result<Option<Cow<'a, [u8]>>, CqlError> {
    match expression.evaluate(cx.values, Some(row), cx.moment)? {
        Evaluated::Bytes(bytes) => Ok(Some(bytes)),
        Evaluated::Null | Evaluated::Unset => Ok(None),
    }
}

fn write_json(
    plan: &SelectPlan,
    columns: &[(String, CqlType)],
    cx: &Cx<'_>,
    row: &dyn Row,
    out: &mut Vec<u8>,
) -> Result<(), CqlError> {
    let mut text = String::from("{");
    for (nth, (name, of)) in columns.iter().enumerate() {
        let value = match &plan.selection.shown {
            Shows::Columns(columns) => row.column(columns[nth])?,
            Shows::Expressions(expressions) => computed(&expressions[nth], cx, row)?,
        };
        if nth > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
        text.push_str(": ");
        match value {
            None => text.push_str("null"),
            Some(bytes) => put_json(&bytes, of, &mut text),
        }
        check_row(text.len())?;
    }
    text.push('}');
    Ok(out.put_bytes(text.as_bytes())?)
}

/// Appends a cell of the row that begins at `start`.
fn put_cell(value: Option<&[u8]>, start: usize, out: &mut Vec<u8>) -> Result<(), CqlError> {
    check_row(out.len() - start + value.map_or(0, <[u8]>::len))?;
    Ok(out.put_value(value.map_or(Value::Null, Value::Bytes))?)
}

/// A row must fit a message.
fn check_row(bytes: usize) -> Result<(), CqlError> {
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    Err(CqlError::Overloaded(format!(
        "A row of the result has more than {ROW_BYTES_MAX} bytes: ask for fewer columns"
    )))
}
