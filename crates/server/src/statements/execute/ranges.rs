//! Restrictions of clustering columns as ranges of row keys.
//!
//! All ranges are half open: inclusive start, exclusive end. All keys with a prefix form the range
//! from the prefix to the next bytes that do not begin with it.

use std::borrow::Cow;

use cql::error::CqlError;
use cql::plan::{Choices, ClusteringRestriction, Edge};
use cql::schema::{Column, Table};
use cql::value::{collection, comparable};
use smallvec::SmallVec;

use super::keys::{KEY_BYTES_MAX, check_product, too_long};
use super::values::EvalContext;

/// Row keys or prefixes of them. Nearly always one.
pub(super) type Keys = SmallVec<[Vec<u8>; 1]>;

/// The selected rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rows {
    All,
    /// Whole keys, in their order.
    Points(Keys),
    /// In order and disjoint.
    Ranges(Vec<RowRange>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowRange {
    pub(super) start: Vec<u8>,
    /// `None`: up to the last row.
    pub(super) end: Option<Vec<u8>>,
}

impl RowRange {
    /// All keys that begin with these bytes.
    fn of_prefix(prefix: Vec<u8>) -> RowRange {
        let end = successor(&prefix);
        RowRange { start: prefix, end }
    }

    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

impl Rows {
    /// Whether no row is selected.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Rows::All => false,
            Rows::Points(points) => points.is_empty(),
            Rows::Ranges(ranges) => ranges.is_empty(),
        }
    }

    /// Refuses row keys that Cassandra could not store.
    // Source: Cassandra 5.0, ClusteringPrefix.validate
    pub(super) fn check_lengths(&self, table: &Table) -> Result<(), CqlError> {
        /// Nearly all keys are shorter and need not be decoded.
        const CHECKED_BYTES_MIN: usize = 8192;
        let Rows::Points(points) = self else { return Ok(()) };
        for point in points.iter().filter(|point| point.len() >= CHECKED_BYTES_MIN) {
            let mut rest = &point[..];
            let parts = table.clustering().iter().map_while(|column| {
                comparable::decode(&mut rest, &column.column_type, column.is_descending())
            });
            let bytes: usize = parts.map(|part| part.len()).sum();
            if bytes > KEY_BYTES_MAX {
                return Err(too_long(bytes));
            }
        }
        Ok(())
    }

    pub(super) fn holds(&self, row: &[u8]) -> bool {
        match self {
            Rows::All => true,
            Rows::Points(points) => points.binary_search_by(|point| point[..].cmp(row)).is_ok(),
            Rows::Ranges(ranges) => {
                let next = ranges.partition_point(|range| range.start[..] <= *row);
                let range = next.checked_sub(1).and_then(|at| ranges.get(at));
                range.is_some_and(|range| range.end.as_ref().is_none_or(|end| *row < end[..]))
            }
        }
    }
}

/// The first bytes after all keys that begin with the prefix.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

pub(super) fn rows<'v>(
    restrictions: &'v [ClusteringRestriction],
    table: &Table,
    cx: &EvalContext<'v>,
) -> Result<Rows, CqlError> {
    let columns = table.clustering();
    if restrictions.is_empty() {
        let only = || Rows::Points(Keys::from_elem(Vec::new(), 1));
        return Ok(if columns.is_empty() { only() } else { Rows::All });
    }
    let mut prefixes = Keys::from_elem(Vec::new(), 1);
    let mut at = 0;
    for restriction in restrictions {
        match restriction {
            ClusteringRestriction::Values { tuple, choices } => {
                let count = tuple.unwrap_or(1);
                let columns = &columns[at..at + count];
                extend(&mut prefixes, choices, *tuple, columns, cx)?;
                at += count;
            }
            ClusteringRestriction::Slice { lower, upper } => {
                let mut found = Vec::new();
                for prefix in &prefixes {
                    let lower = edge(prefix, lower.as_ref(), true, &columns[at..], cx)?;
                    let upper = edge(prefix, upper.as_ref(), false, &columns[at..], cx)?;
                    intersect(&lower, &upper, &mut found);
                }
                return Ok(Rows::Ranges(merged(found)));
            }
        }
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    if at == columns.len() {
        return Ok(Rows::Points(prefixes));
    }
    Ok(Rows::Ranges(merged(prefixes.into_iter().map(RowRange::of_prefix).collect())))
}

fn put(value: &[u8], column: &Column, key: &mut Vec<u8>) {
    comparable::encode(value, &column.column_type, column.is_descending(), key);
}

/// The parts of a tuple that is compared with these columns.
fn parts<'b>(value: &'b [u8], columns: &[Column]) -> Result<Vec<&'b [u8]>, CqlError> {
    let fields = collection::fields(value, columns.len())
        .map_err(|error| CqlError::invalid(error.to_string()))?;
    let pairs = fields.into_iter().zip(columns);
    let found = pairs.map(|(field, column)| {
        field.ok_or_else(|| {
            CqlError::invalid(format!("Invalid null value in condition for column {}", column.name))
        })
    });
    found.collect()
}

/// Appends each value to each prefix.
fn extend<'v>(
    prefixes: &mut Keys,
    choices: &'v Choices,
    tuple: Option<usize>,
    columns: &[Column],
    cx: &EvalContext<'v>,
) -> Result<(), CqlError> {
    let add = |value: &[u8], key: &mut Vec<u8>| -> Result<(), CqlError> {
        if tuple.is_none() {
            put(value, &columns[0], key);
            return Ok(());
        }
        let parts = parts(value, columns)?;
        parts.iter().zip(columns).for_each(|(part, column)| put(part, column, key));
        Ok(())
    };
    let name = &columns[0].name;
    if let (Choices::One(value), [prefix]) = (choices, &mut prefixes[..]) {
        return add(&cx.known(value, name)?, prefix);
    }
    let values = cx.choose(choices, name)?;
    check_product(prefixes.iter().map(Vec::len), values.iter().map(|value| value.len()))?;
    let mut found = Keys::with_capacity(prefixes.len() * values.len());
    for prefix in &*prefixes {
        for value in &values {
            let mut key = prefix.clone();
            add(value, &mut key)?;
            found.push(key);
        }
    }
    *prefixes = found;
    Ok(())
}

/// The keys on the selected side of an edge, as ranges in order.
fn edge<'v>(
    prefix: &[u8],
    edge: Option<&'v Edge>,
    is_lower: bool,
    columns: &[Column],
    cx: &EvalContext<'v>,
) -> Result<Vec<RowRange>, CqlError> {
    let Some(edge) = edge else { return Ok(vec![RowRange::of_prefix(prefix.to_vec())]) };
    let value: Cow<'v, [u8]> = cx.known(&edge.value, &columns[0].name)?;
    let columns = &columns[..edge.tuple.unwrap_or(1)];
    let values = if edge.tuple.is_some() { parts(&value, columns)? } else { vec![&*value] };
    let mut found = Vec::new();
    // (a, b) > (x, y) is a > x, or a = x and b > y; each column may be ascending or descending.
    let mut equal = prefix.to_vec();
    for (value, column) in values.iter().zip(columns) {
        let whole = RowRange::of_prefix(equal.clone());
        put(value, column, &mut equal);
        let own = RowRange::of_prefix(equal.clone());
        let is_behind = is_lower != column.is_descending();
        if !is_behind {
            found.push(RowRange { start: whole.start, end: Some(own.start) });
        } else if let Some(start) = own.end {
            found.push(RowRange { start, end: whole.end });
        }
    }
    if edge.is_inclusive {
        found.push(RowRange::of_prefix(equal));
    }
    Ok(merged(found))
}

/// Sorts ranges, removes empty ones and merges adjacent ones.
fn merged(mut ranges: Vec<RowRange>) -> Vec<RowRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by(|left, right| left.start.cmp(&right.start));
    let mut found: Vec<RowRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let touches = |last: &RowRange| last.end.as_ref().is_none_or(|end| *end >= range.start);
        match found.last_mut() {
            Some(last) if touches(last) => {
                let is_longer = match (&last.end, &range.end) {
                    (None, _) => false,
                    (Some(_), None) => true,
                    (Some(own), Some(other)) => other > own,
                };
                if is_longer {
                    last.end = range.end;
                }
            }
            _ => found.push(range),
        }
    }
    found
}

/// Intersects two lists of ranges.
fn intersect(left: &[RowRange], right: &[RowRange], found: &mut Vec<RowRange>) {
    for one in left {
        for other in right {
            let start = one.start.clone().max(other.start.clone());
            let end = match (&one.end, &other.end) {
                (None, end) | (end, None) => end.clone(),
                (Some(one), Some(other)) => Some(one.min(other).clone()),
            };
            let range = RowRange { start, end };
            if !range.is_empty() {
                found.push(range);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &[u8], end: Option<&[u8]>) -> RowRange {
        RowRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) }
    }

    #[test]
    fn a_prefix_range_ends_before_the_successor() {
        assert_eq!(successor(b"a"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff\xff"), None);
        assert_eq!(successor(b""), None);
    }

    #[test]
    fn ranges_are_merged_and_intersected() {
        let ranges =
            vec![range(b"d", Some(b"f")), range(b"a", Some(b"c")), range(b"b", Some(b"d"))];
        assert_eq!(merged(ranges), [range(b"a", Some(b"f"))]);
        assert_eq!(merged(vec![range(b"b", Some(b"b"))]), []);
        let mut found = Vec::new();
        intersect(&[range(b"a", None)], &[range(b"", Some(b"b"))], &mut found);
        assert_eq!(found, [range(b"a", Some(b"b"))]);
        found.clear();
        intersect(&[range(b"c", None)], &[range(b"", Some(b"b"))], &mut found);
        assert_eq!(found, []);
    }
}
