//! Restrictions of clustering columns: ranges of rows for a prefix of the columns, filters for the
//! others.

use super::planner::names;
use super::relations::{Found, Relations, Tuple};
use super::restrictions::{ClusteringRestriction, Filter, Kind};
use crate::error::CqlError;
use crate::relation::Comparison;
use crate::schema::{Column, Table};

/// Plans the restrictions of the clustering columns.
// Source: Cassandra 5.0, ClusteringColumnRestrictions and StatementRestrictions
pub(super) fn plan(
    found: &mut Relations,
    table: &Table,
    kind: Kind,
    filters: &mut Vec<Filter>,
) -> Result<Vec<ClusteringRestriction>, CqlError> {
    let first = table.partition_key().len();
    let end = first + table.clustering().len();
    let mut restrictions = Vec::new();
    let mut next = first;
    let mut sliced = None;
    while next < end && sliced.is_none() {
        let at = found.tuples.iter().position(|tuple| tuple.first == next);
        if let Some(at) = at {
            let tuple = found.tuples.remove(at);
            check_not_mixed(found, table, &tuple)?;
            let columns = tuple.columns;
            let restriction = take(tuple.found, Some(columns));
            if matches!(restriction, ClusteringRestriction::Slice { .. }) {
                sliced = Some(next);
            }
            restrictions.push(restriction);
            next += columns;
            continue;
        }
        let column = &mut found.columns[next];
        if column.is_choice() {
            let choices = column.take_choices();
            restrictions.push(ClusteringRestriction::Values { tuple: None, choices });
        } else if column.is_slice() {
            restrictions.push(take(std::mem::take(column), None));
            sliced = Some(next);
        } else {
            break;
        }
        next += 1;
    }
    check_rest(found, table, kind, RowRanges { next, end, sliced })?;
    for index in next..end {
        found.columns[index].drain_into(index, filters);
    }
    for tuple in found.tuples.drain(..) {
        check_filter(&tuple)?;
        tuple.drain_into(filters);
    }
    Ok(restrictions)
}

/// Checks that a relation on several columns can be compared with each row.
// Source: Cassandra 5.0, MultiColumnRestriction.addToRowFilter of each kind
fn check_filter(tuple: &Tuple) -> Result<(), CqlError> {
    if tuple.found.is_slice() {
        return Err(CqlError::invalid(
            "Multi-column slice restrictions cannot be used for filtering.",
        ));
    }
    if tuple.found.names_several() {
        return Err(CqlError::invalid("Multicolumn IN filters are not supported"));
    }
    Ok(())
}

/// The columns restricted by ranges of rows.
#[derive(Clone, Copy)]
struct RowRanges {
    next: usize,
    end: usize,
    sliced: Option<usize>,
}

fn take(mut found: Found, tuple: Option<usize>) -> ClusteringRestriction {
    if found.is_choice() {
        return ClusteringRestriction::Values { tuple, choices: found.take_choices() };
    }
    ClusteringRestriction::Slice { lower: found.lower.take(), upper: found.upper.take() }
}

fn check_not_mixed(found: &Relations, table: &Table, tuple: &Tuple) -> Result<(), CqlError> {
    let range = tuple.first..tuple.first + tuple.columns;
    let other = range.clone().find(|index| !found.columns[*index].is_empty());
    let mut tuples = found.tuples.iter().map(|other| other.first);
    let other = other.or_else(|| tuples.find(|first| range.contains(first)));
    match other {
        None => Ok(()),
        Some(index) => Err(CqlError::invalid(format!(
            "Column \"{}\" cannot be restricted by both a tuple notation inequality and a single \
             column inequality",
            table.columns[index].name
        ))),
    }
}

/// Checks that the columns after the ranges may be filtered.
fn check_rest(
    found: &Relations,
    table: &Table,
    kind: Kind,
    ranges: RowRanges,
) -> Result<(), CqlError> {
    let RowRanges { next, end, sliced } = ranges;
    let in_tuple = |index: usize| found.tuples.iter().any(|tuple| tuple.first == index);
    let restricted =
        (next..end).find(|index| !found.columns[*index].is_empty() || in_tuple(*index));
    if let Kind::Update | Kind::Delete = kind
        && let Some(restricted) = restricted
    {
        return Err(not_reachable(table, restricted, next, sliced));
    }
    let is_slice = sliced.is_some() && kind == Kind::Update;
    if is_slice {
        return Err(CqlError::invalid(format!(
            "Slice restrictions are not supported on the clustering columns in {} statements",
            kind.name()
        )));
    }
    let allows_filtering = kind.allows_filtering();
    match restricted {
        Some(restricted) if !allows_filtering => {
            let is_contains = found.columns[restricted].asks_for(Comparison::Contains)
                || found.columns[restricted].asks_for(Comparison::ContainsKey);
            if table.is_indexed(restricted) && !in_tuple(restricted) {
                return match sliced {
                    // All filters must be known before an index can be chosen.
                    None => Ok(()),
                    Some(before) if table.is_indexed(before) => Ok(()),
                    Some(before) => Err(CqlError::invalid(format!(
                        "PRIMARY KEY column \"{}\" cannot be restricted (preceding column \"{}\" \
                         is restricted by a non-EQ relation)",
                        table.columns[restricted].name, table.columns[before].name
                    ))),
                };
            }
            if is_contains {
                return Err(CqlError::invalid(
                    "Clustering columns can only be restricted with CONTAINS with a secondary \
                     index or filtering",
                ));
            }
            Err(not_reachable(table, restricted, next, sliced))
        }
        _ => Ok(()),
    }
}

fn not_reachable(table: &Table, restricted: usize, next: usize, sliced: Option<usize>) -> CqlError {
    let name = &table.columns[restricted].name;
    match sliced {
        Some(before) => CqlError::invalid(format!(
            "Clustering column \"{name}\" cannot be restricted (preceding column \"{}\" is \
             restricted by a non-EQ relation)",
            table.columns[before].name
        )),
        None => CqlError::invalid(format!(
            "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{}\" is not \
             restricted",
            table.columns[next].name
        )),
    }
}

/// The error if a row is not identified because these columns are missing.
pub(super) fn missing(columns: &[Column]) -> CqlError {
    CqlError::invalid(format!("Some clustering keys are missing: {}", names(columns)))
}
