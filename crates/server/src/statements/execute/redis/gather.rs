//! Reads the rows of a large value in parts.
//!
//! A value's elements are unordered or numerous, so the rows of a large one are not built all at
//! once. A round visits all elements and keeps the first rows in order that fit [`BYTES_MAX`]; then
//! these rows are returned in order, some at a time. The other rows wait for the next round. Other
//! requests are served between two parts, and the value may change: a row that exists throughout is
//! returned exactly once.

use std::collections::BTreeMap;

use base::time::UnixMs;
use store::Value;

use super::shape::{Pick, visit_some};
use crate::statements::execute::paging::PagingState;
use crate::statements::execute::result::ROW_BYTES_USUAL;

/// A value with fewer elements is read as a whole.
pub(super) const ELEMENTS_MIN: usize = if cfg!(test) { 32 } else { 512 };
/// Elements visited, or rows built, between two checks of the turn's remainder.
pub(super) const STEP: usize = if cfg!(test) { 16 } else { 256 };
/// Limit of the rows that a round keeps. A higher limit would be faster for the largest values, but
/// use more memory for each waiting statement.
const BYTES_MAX: usize = if cfg!(test) { 4 << 10 } else { 16 << 20 };
/// Overhead of a kept row in addition to its key and its cell.
const ROW_BYTES: usize = 64;
/// Limit of the rows built at a time, unless a single row exceeds it.
const STEP_BYTES_MAX: usize = 256 << 10;

/// The rows of one value that remain to be returned.
#[derive(Debug)]
pub(in crate::statements::execute) struct Gathering {
    pub(super) key: Vec<u8>,
    /// The position at which the next round continues in the value; `None` when all elements were
    /// visited.
    next: Option<u64>,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// The first row that was deferred to the next round, together with all rows after it.
    left: Option<Vec<u8>>,
    /// The last row that was returned, by an earlier page or part.
    after: Option<Vec<u8>>,
}

impl Gathering {
    pub(super) fn new(key: &[u8], resume: Option<PagingState>) -> Gathering {
        Gathering {
            key: key.to_vec(),
            next: Some(0),
            rows: BTreeMap::new(),
            bytes: 0,
            left: None,
            after: resume.and_then(|state| state.row),
        }
    }

    pub(in crate::statements::execute) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all elements were visited in this round.
    pub(super) fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// Visits some more elements. Returns the cost, in examined rows.
    pub(super) fn visit(&mut self, value: Value<'_>, now: UnixMs, pick: Pick<'_>) -> usize {
        let Some(from) = self.next else { return 0 };
        let after = self.after.take();
        let mut cost = STEP;
        let next = visit_some(value, now, pick.rows, (from, STEP), |row, cell| {
            let is_shown = after.as_deref().is_some_and(|after| !pick.is_nearer(after, row));
            let is_left = self.left.as_deref().is_some_and(|left| !pick.is_nearer(row, left));
            if !is_shown && !is_left && pick.rows.holds(row) {
                self.keep(row, cell, &pick);
                cost += 1 + cell.map_or(0, <[u8]>::len) / ROW_BYTES_USUAL;
            }
        });
        self.after = after;
        self.next = (next > 0).then_some(next);
        cost
    }

    fn keep(&mut self, row: &[u8], cell: Option<&[u8]>, pick: &Pick<'_>) {
        let size =
            |row: &[u8], cell: Option<&[u8]>| ROW_BYTES + row.len() + cell.map_or(0, <[u8]>::len);
        self.bytes += size(row, cell);
        if let Some(old) = self.rows.insert(row.to_vec(), cell.map(<[u8]>::to_vec)) {
            self.bytes -= size(row, old.as_deref());
        }
        let rows_max = pick.rows_max.unwrap_or(usize::MAX);
        while self.rows.len() > 1 && (self.bytes > BYTES_MAX || self.rows.len() > rows_max) {
            let far = if pick.is_reversed { self.rows.pop_first() } else { self.rows.pop_last() };
            let Some((row, cell)) = far else { break };
            self.bytes -= size(&row, cell.as_deref());
            self.left = Some(row);
        }
    }

    /// The next rows in order; empty when this round has no more.
    pub(super) fn take(&mut self, is_reversed: bool) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < STEP && bytes < STEP_BYTES_MAX {
            let near = if is_reversed { self.rows.pop_last() } else { self.rows.pop_first() };
            let Some((row, cell)) = near else { break };
            let size = row.len() + cell.as_ref().map_or(0, Vec::len);
            self.bytes = self.bytes.saturating_sub(size + ROW_BYTES);
            bytes += size;
            taken.push((row, cell));
        }
        if let Some((row, _)) = taken.last() {
            self.after = Some(row.clone());
        }
        taken
    }

    /// Begins another round for the deferred rows, if there are any.
    pub(super) fn begin_round(&mut self) -> bool {
        self.next = Some(0);
        self.left.take().is_some()
    }
}
