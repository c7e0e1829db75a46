//! The choice of indexes for a SELECT.

use store::IndexId;

use super::restrictions::{Choices, ClusteringRestriction, Filter, FilterPart};
use crate::relation::Comparison;
use crate::schema::{Index, IndexTarget, Table};

/// An index that finds all rows allowed by one of the restrictions.
#[derive(Debug)]
pub struct Lookup {
    pub index: IndexId,
    pub restriction: IndexedRestriction,
    /// Whether indexes of this kind can be intersected.
    is_combined: bool,
}

/// The restriction, by its position among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexedRestriction {
    Filter(usize),
    Clustering(usize),
}

impl Lookup {
    fn new(table: &Table, index: &Index, restriction: IndexedRestriction) -> Option<Lookup> {
        let is_combined = index.class.as_ref().is_some_and(|class| {
            let class = class.to_ascii_lowercase();
            class == "sai" || class.ends_with("storageattachedindex")
        });
        Some(Lookup { index: table.index_id(index)?, restriction, is_combined })
    }
}

/// All usable indexes.
pub(super) fn find(
    table: &Table,
    clustering: &[ClusteringRestriction],
    filters: &[Filter],
) -> Vec<Lookup> {
    let mut found = Vec::new();
    for (nth, filter) in filters.iter().enumerate() {
        let index = best(table, filter.column, targets(filter));
        found.extend(
            index.and_then(|index| Lookup::new(table, index, IndexedRestriction::Filter(nth))),
        );
    }
    let keys = table.partition_key().len();
    // Up to the first restriction that is not a single value of one column, positions equal
    // columns.
    for (nth, restriction) in clustering.iter().enumerate() {
        let ClusteringRestriction::Values { tuple: None, choices: Choices::One(_) } = restriction
        else {
            break;
        };
        let index = best(table, keys + nth, &[IndexTarget::Values, IndexTarget::Full]);
        found.extend(
            index.and_then(|index| Lookup::new(table, index, IndexedRestriction::Clustering(nth))),
        );
    }
    found
}

/// The index of a column for one of these targets, preferably one that can be intersected.
fn best<'t>(table: &'t Table, column: usize, targets: &[IndexTarget]) -> Option<&'t Index> {
    let name = &table.columns[column].name;
    let mut found = table.indexes.iter();
    let fits = |index: &&Index| index.column == *name && targets.contains(&index.target);
    let first = found.find(fits)?;
    Some(found.filter(fits).find(|index| index.class.is_some()).unwrap_or(first))
}

fn targets(filter: &Filter) -> &'static [IndexTarget] {
    match (&filter.part, filter.operator) {
        (FilterPart::Element(_), Comparison::Equal) => &[IndexTarget::Entries],
        (FilterPart::Whole, Comparison::Equal) => &[IndexTarget::Values, IndexTarget::Full],
        (FilterPart::Whole, Comparison::Contains) => &[IndexTarget::Values],
        (FilterPart::Whole, Comparison::ContainsKey) => &[IndexTarget::Keys],
        _ => &[],
    }
}

/// Whether indexes alone satisfy the restrictions. `scans`: the statement names no partitions.
// Source: Cassandra 5.0, StatementRestrictions.needFiltering and IndexRestrictions
pub(super) fn suffice(
    lookups: &[Lookup],
    clustering: &[ClusteringRestriction],
    filters: &[Filter],
    scans: bool,
) -> bool {
    let finds = |restriction| lookups.iter().any(|lookup| lookup.restriction == restriction);
    let others = if scans { clustering.len() } else { 0 };
    match (filters.len(), others) {
        (0, 0) => true,
        (1, 0) => finds(IndexedRestriction::Filter(0)),
        (0, 1) => finds(IndexedRestriction::Clustering(0)),
        (count, 0) => {
            let combined = |nth| {
                lookups.iter().any(|one| {
                    one.restriction == IndexedRestriction::Filter(nth) && one.is_combined
                })
            };
            (0..count).all(combined)
        }
        _ => false,
    }
}
