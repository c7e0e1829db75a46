//! Collects the rows of a result for the client, or into groups.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cql::error::CqlError;
use cql::expression::{Evaluated, Expression, Row};
use cql::function::aggregate::Fold;
use cql::plan::{SelectPlan, Shows};
use cql::types::CqlType;
use cql::value::comparable;
use cql::value::text::put_json;
use wire::cql::{Notation, Value};

use super::filter::Filters;
use super::paging::PagingState;
use super::row::RowCx;
use super::values::EvalContext;

/// A page ends after this many bytes; the next page resumes there.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Limit of a result without paging, which is built and copied to the connection's output in one
/// turn.
const RESULT_BYTES_MAX: usize = 64 << 20;
/// Limit of a response, equal to Cassandra's.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// Limit of one row. A page that ends with such a row still fits a response.
const ROW_BYTES_MAX: usize = RESPONSE_BYTES_MAX - PAGE_BYTES_MAX;
/// Bytes of a row that count as one row toward a turn.
pub(super) const ROW_BYTES_USUAL: usize = 1024;
/// Bytes processed by functions and comparisons that count as one row toward a turn.
const WORK_BYTES_USUAL: usize = 128;
/// Rows examined for one page, returned or not: 0.2 s of a reactor's time.
const ROWS_EXAMINED_MAX: usize = 1 << 20;

/// The action of a scan after a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    /// The partition has returned all rows that it may.
    PartitionDone,
    /// The page is full, and there may be more.
    PageFull,
    /// No more rows may be returned.
    Done,
    /// Other requests must be served: the scan resumes later.
    Pause,
}

impl Next {
    /// Whether no further row is examined now.
    pub(super) fn ends_scan(self) -> bool {
        matches!(self, Next::Done | Next::PageFull | Next::Pause)
    }
}

/// The result of a SELECT under construction.
pub(super) struct Results<'s> {
    plan: &'s SelectPlan,
    cx: EvalContext<'s>,
    filters: Filters<'s>,
    /// Encoded rows.
    pub(super) out: Vec<u8>,
    pub(super) count: usize,
    /// `None`: the client requests all rows at once.
    page_rows_max: Option<usize>,
    per_partition_max: u32,
    remaining: u32,
    in_partition: u32,
    has_met_no_row: bool,
    examined: usize,
    /// Rows that may be examined before the scan pauses.
    turn_rows: usize,
    /// Whether the scan may pause within a partition.
    pauses_inside: bool,
    /// The start of the next page if this one is full, or the position at which a paused scan
    /// resumes.
    full_at: Option<PagingState>,
    group: Option<Group>,
    /// `None` if there are no rows.
    sorted: Option<Box<Sorted>>,
}

/// Rows of several partitions in result order.
#[derive(Debug, Default)]
struct Sorted {
    /// By sort key, then by order of arrival.
    rows: BTreeMap<(Vec<u8>, usize), Vec<u8>>,
    bytes: usize,
    /// Rows added so far.
    count: usize,
}

/// The part of a result that exists when its scan pauses.
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

/// Rows that are returned as one row.
#[derive(Debug)]
struct Group {
    key: Vec<u8>,
    /// The part that the rows' keys have in common.
    prefix: Vec<u8>,
    folds: Vec<Fold>,
    /// The columns of the first row.
    first: Vec<Option<Vec<u8>>>,
    /// The sort key among groups of other partitions.
    order: Vec<u8>,
    last: PagingState,
}

/// Presents a group as a row to expressions.
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
        cx: EvalContext<'s>,
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

    /// Rows examined, returned or not.
    pub(super) fn examined(&self) -> u64 {
        self.examined as u64
    }

    /// Rows that LIMIT allows.
    pub(super) fn limit(&self) -> u32 {
        self.remaining
    }

    /// Resumes after the previous page.
    pub(super) fn resume(&mut self, state: &PagingState) {
        self.remaining = state.remaining;
        self.in_partition = state.in_partition;
    }

    /// Sets the number of rows to examine before the scan pauses; 0: it does not pause.
    pub(super) fn set_turn(&mut self, rows_max: usize, pauses_inside: bool) {
        self.turn_rows = if rows_max == 0 { usize::MAX } else { rows_max };
        self.pauses_inside = pauses_inside;
    }

    /// Accounts for the end of a partition, which may have had no rows. Returns whether the scan
    /// continues.
    pub(super) fn pass_partition(&mut self, key: &[u8]) -> Next {
        self.turn_rows = self.turn_rows.saturating_sub(1);
        if self.turn_rows > 0 {
            return Next::Continue;
        }
        self.pause_at(key, None)
    }

    fn pause_at(&mut self, key: &[u8], row: Option<Vec<u8>>) -> Next {
        self.full_at = Some(self.position(key, row));
        Next::Pause
    }

    /// Accounts for partitions without results. `last`: the key of the last one in a stripe.
    pub(super) fn pass_keys(&mut self, count: usize, last: &[u8]) -> Next {
        if count == 0 {
            return Next::Continue;
        }
        self.turn_rows = self.turn_rows.saturating_sub(count).max(1);
        self.pass_partition(last)
    }

    /// Accounts for a key of a partition that has no row now.
    pub(super) fn pass_row(&mut self, key: &[u8], row: &[u8]) -> Next {
        self.turn_rows = self.turn_rows.saturating_sub(1);
        if self.turn_rows > 0 || !self.pauses_inside {
            return Next::Continue;
        }
        self.pause_at(key, Some(row.to_vec()))
    }

    /// Deducts the given number of rows from the turn. The scan pauses at its next check.
    pub(super) fn spend(&mut self, rows: usize) {
        self.turn_rows = self.turn_rows.saturating_sub(rows).max(1);
    }

    /// Returns whether the scan continues, at a position within a partition from which it can
    /// resume.
    pub(super) fn pause_within(&mut self, key: &[u8]) -> Next {
        if self.turn_rows > 1 {
            return Next::Continue;
        }
        self.pause_at(key, Some(Vec::new()))
    }

    /// Maximum number of the partition's rows to return, if every examined row is returned.
    pub(super) fn partition_rows_max(&self) -> Option<usize> {
        let shows_each = self.filters.is_empty()
            && !self.plan.is_grouped()
            && !self.plan.is_distinct
            && self.plan.sorted_columns.is_none();
        let limit = self.remaining.min(self.per_partition_max.saturating_sub(self.in_partition));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        shows_each.then(|| self.page_rows_max.map_or(limit, |page| limit.min(page)))
    }

    /// Takes the result so far and the position at which the paused scan resumes.
    pub(super) fn pause(&mut self) -> (PagingState, Progress) {
        let at = self.full_at.take().expect("a scan pauses after a row");
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

    /// Continues with a result taken by [`Results::pause`].
    pub(super) fn restore(&mut self, progress: Progress) {
        (self.out, self.count) = (progress.out, progress.count);
        (self.remaining, self.in_partition) = (progress.remaining, progress.in_partition);
        (self.examined, self.group) = (progress.examined, progress.group);
        (self.sorted, self.has_met_no_row) = (progress.sorted, progress.has_met_no_row);
    }

    pub(super) fn begin_partition(&mut self) {
        self.in_partition = 0;
        self.has_met_no_row = true;
    }

    /// Records that the partition has a row, which the filters may still exclude.
    pub(super) fn meet_row(&mut self) {
        self.has_met_no_row = false;
    }

    /// Whether all of a partition was visited, in one or several parts, and had no row.
    pub(super) fn has_met_no_row(&self) -> bool {
        self.has_met_no_row
    }

    /// Ends a partition. Groups never span partitions, unless all rows form one group.
    pub(super) fn end_partition(&mut self) -> Result<Next, CqlError> {
        match self.group.take_if(|_| self.plan.group_by.is_some()) {
            Some(group) => self.show_group(group),
            None => Ok(Next::Continue),
        }
    }

    /// No row follows the one that filled the page.
    pub(super) fn forget_next_page(&mut self) {
        self.full_at = None;
    }

    /// Whether the row that filled the page was the last one that this partition may return.
    // Source: Cassandra 5.0, AbstractQueryPager.Pager.onClose
    pub(super) fn has_ended_partition(&self, key: &[u8]) -> bool {
        let has_one_row = self.plan.table.clustering().is_empty();
        let Some(state) = self.full_at.as_ref().filter(|state| state.key[..] == *key) else {
            return false;
        };
        has_one_row || state.row.is_none() || state.in_partition >= self.per_partition_max
    }

    /// Whether more rows may be returned from a partition in which the scan resumes.
    pub(super) fn allows_more_of_partition(&self) -> bool {
        self.in_partition < self.per_partition_max
    }

    /// Returns a row to the client if the filters match. `key`: of its partition.
    pub(super) fn offer(&mut self, key: &[u8], row: &RowCx<'_>) -> Result<Next, CqlError> {
        self.examined += 1;
        let bytes_before = self.out.len();
        self.cx.moment.take_work();
        if self.filters.accept(row, self.cx.moment)? {
            let next =
                if self.plan.is_grouped() { self.gather(key, row)? } else { self.show(key, row)? };
            if next != Next::Continue {
                return Ok(next);
            }
        }
        let is_tired = self.examined >= ROWS_EXAMINED_MAX && self.page_rows_max.is_some();
        if is_tired && !self.plan.is_grouped() {
            self.full_at = Some(self.position(key, row.key()));
            return Ok(Next::PageFull);
        }
        // A long row takes as long as several, and so do functions on long values.
        let bytes = self.out.len().saturating_sub(bytes_before);
        let work_bytes = self.cx.moment.take_work();
        let cost = 1 + bytes / ROW_BYTES_USUAL + work_bytes / WORK_BYTES_USUAL;
        self.turn_rows = self.turn_rows.saturating_sub(cost);
        if self.turn_rows == 0 && self.pauses_inside {
            return Ok(self.pause_at(key, row.key()));
        }
        Ok(Next::Continue)
    }

    fn position(&self, key: &[u8], row: Option<Vec<u8>>) -> PagingState {
        let (remaining, in_partition) = (self.remaining, self.in_partition);
        PagingState { key: key.into(), row, remaining, in_partition }
    }

    fn show(&mut self, key: &[u8], row: &RowCx<'_>) -> Result<Next, CqlError> {
        let start = self.out.len();
        write_row(self.plan, &self.cx, row, &mut self.out)?;
        self.in_partition = self.in_partition.saturating_add(1);
        if let Some(columns) = self.plan.sorted_columns {
            let order = row.row.map(|row| self.key_prefix(row.key, columns)).unwrap_or_default();
            return self.sort_in(order.to_vec(), start);
        }
        self.count_row(|results| results.position(key, row.key()))
    }

    /// Moves the output from `start` on to the rows that are sorted at the end.
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

    /// Counts a row that was written.
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
                // A scan that resumed after the last row of a partition has not ended that
                // partition.
                let is_of_other = group.key != key;
                let next = self.show_group(group)?;
                if next.ends_scan() {
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
        // A single group of all rows has no paging position.
        let position = self.plan.group_by.is_some().then(|| self.position(key, row.key()));
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
        Ok(Next::Continue)
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

    /// The part of a row's key that all rows of its group share.
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
            let is_descending = column.is_descending();
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

    /// Completes the result after the last row. Returns the start of the next page, if there is
    /// one.
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
            // Equal rows stay in the order of the partition keys, in both directions.
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

/// Limits the size of a result.
fn check_bytes(bytes: usize) -> Result<Next, CqlError> {
    if bytes <= RESULT_BYTES_MAX {
        return Ok(Next::Continue);
    }
    Err(CqlError::Overloaded(format!(
        "The result has more than {RESULT_BYTES_MAX} bytes: ask for it page by page"
    )))
}

/// Appends the selected columns of one row.
fn write_row(
    plan: &SelectPlan,
    cx: &EvalContext<'_>,
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
    cx: &EvalContext<'a>,
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
    cx: &EvalContext<'_>,
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

/// Limits the size of a row.
fn check_row(bytes: usize) -> Result<(), CqlError> {
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    Err(CqlError::Overloaded(format!(
        "A row of the result has more than {ROW_BYTES_MAX} bytes: ask for fewer columns"
    )))
}
