//! Indexes that find what a SELECT asks for.

use store::IndexId;

use super::restrictions::{Choices, ClusteringRestriction, Filter, FilterPart};
use crate::relation::Comparison;
use crate::schema::{Index, IndexTarget, Table};

/// An index that knows all rows which one of the restrictions lets through.
#[derive(Debug)]
pub struct Lookup {
    pub index: IndexId,
    pub wanted: Wanted,
    /// Indexes of this kind find what several of them ask for together.
    is_combined: bool,
}

/// The restriction, by its place among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Filter(usize),
    Clustering(usize),
}

impl Lookup {
    fn new(table: &Table, index: &Index, wanted: Wanted) -> Option<Lookup> {
        let is_combined = index.class.as_ref().is_some_and(|class| {
            let class = class.to_ascii_lowercase();
            class == "sai" || class.ends_with("storageattachedindex")
        });
        Some(Lookup { index: table.index_id(index)?, wanted, is_combined })
    }
}

/// All indexes that help.
pub(super) fn find(
    table: &Table,
    clustering: &[ClusteringRestriction],
    filters: &[Filter],
) -> Vec<Lookup> {
    let mut found = Vec::new();
    for (nth, filter) in filters.iter().enumerate() {
        let index = best(table, filter.column, targets(filter));
        found.extend(index.and_then(|index| Lookup::new(table, index, Wanted::Filter(nth))));
    }
    let keys = table.partition_key().len();
    // Up to the first that is not the one value of one column, places of columns follow each other.
    for (nth, restriction) in clustering.iter().enumerate() {
        let ClusteringRestriction::Values { tuple: None, choices: Choices::One(_) } = restriction
        else {
            break;
        };
        let index = best(table, keys + nth, &[IndexTarget::Values, IndexTarget::Full]);
        found.extend(index.and_then(|index| Lookup::new(table, index, Wanted::Clustering(nth))));
    }
    found
}

/// The index of a column for one of these targets; one that can be combined if there is one.
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

/// Whether indexes alone find what is asked for. `walks`: no partitions are named.
// Source: Cassandra 5.0, StatementRestrictions.needFiltering and IndexRestrictions
pub(super) fn suffice(
    lookups: &[Lookup],
    clustering: &[ClusteringRestriction],
    filters: &[Filter],
    walks: bool,
) -> bool {
    let finds = |wanted| lookups.iter().any(|lookup| lookup.wanted == wanted);
    let others = if walks { clustering.len() } else { 0 };
    match (filters.len(), others) {
        (0, 0) => true,
        (1, 0) => finds(Wanted::Filter(0)),
        (0, 1) => finds(Wanted::Clustering(0)),
        (count, 0) => {
            let combined = |nth| {
                lookups.iter().any(|one| one.wanted == Wanted::Filter(nth) && one.is_combined)
            };
            (0..count).all(combined)
        }
        _ => false,
    }
}
