//! The choice of indexes for a SELECT.

use store::IndexId;

use super::restrictions::{Choices, ClusteringRestriction, Filter, FilterPart};
use crate::analysis::Analysis;
use crate::relation::Comparison;
use crate::schema::{Index, IndexTarget, Table};

/// An index that finds all rows allowed by one of the restrictions.
#[derive(Debug)]
pub struct Lookup {
    pub index: IndexId,
    pub restriction: IndexedRestriction,
    /// Applied to the value before it is looked up.
    pub analysis: Analysis,
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
    /// Whether longer values are refused, and not only absent from the index.
    pub fn limits_values(&self) -> bool {
        !self.is_combined
    }

    fn new(table: &Table, index: &Index, restriction: IndexedRestriction) -> Option<Lookup> {
        Some(Lookup {
            index: table.index_id(index)?,
            restriction,
            analysis: table.analysis(index)?,
            is_combined: index.is_attached(),
        })
    }
}

/// The restrictions that an index may satisfy: with the column, and the fitting targets.
fn indexable<'r>(
    table: &Table,
    clustering: &'r [ClusteringRestriction],
    filters: &'r [Filter],
) -> impl Iterator<Item = (IndexedRestriction, usize, &'static [IndexTarget])> + use<'r> {
    let filters = filters.iter().enumerate();
    let filters = filters
        .map(|(nth, filter)| (IndexedRestriction::Filter(nth), filter.column, targets(filter)));
    let keys = table.partition_key().len();
    // Up to the first restriction that is not a single value of one column, positions equal
    // columns.
    let is_value = |restriction: &ClusteringRestriction| {
        matches!(
            restriction,
            ClusteringRestriction::Values { tuple: None, choices: Choices::One(_) }
        )
    };
    let values = clustering.iter().take_while(move |restriction| is_value(restriction)).count();
    let clustering =
        (0..values).map(move |nth| (IndexedRestriction::Clustering(nth), keys + nth, &WHOLE[..]));
    filters.chain(clustering)
}

const WHOLE: [IndexTarget; 2] = [IndexTarget::Values, IndexTarget::Full];

/// All usable indexes.
pub(super) fn find(
    table: &Table,
    clustering: &[ClusteringRestriction],
    filters: &[Filter],
) -> Vec<Lookup> {
    let mut found = Vec::new();
    for (restriction, column, targets) in indexable(table, clustering, filters) {
        let lookups = indexes(table, column, targets)
            .filter_map(|index| Lookup::new(table, index, restriction));
        // Preferably one that can be intersected.
        found.extend(lookups.max_by_key(|lookup| lookup.is_combined));
    }
    found
}

/// Lets the filters compare as the indexes do: those of one kind compare bytes, so that 1.0 differs
/// from 1.00, the storage-attached ones analyze texts. Cassandra uses the first kind if it can.
// Source: Cassandra 5.0, index.SecondaryIndexManager.getBestIndexQueryPlanFor
pub(super) fn analyze(
    table: &Table,
    clustering: &[ClusteringRestriction],
    filters: &mut [Filter],
    lookups: &[Lookup],
) {
    let plain = indexable(table, clustering, filters).filter(|(_, column, targets)| {
        indexes(table, *column, targets).any(|index| !index.is_attached())
    });
    let plain: Vec<IndexedRestriction> = plain.map(|(restriction, ..)| restriction).collect();
    for restriction in &plain {
        if let IndexedRestriction::Filter(nth) = restriction {
            filters[*nth].is_exact = true;
        }
    }
    for lookup in lookups.iter().filter(|_| plain.is_empty()) {
        if let IndexedRestriction::Filter(nth) = lookup.restriction {
            filters[nth].analysis = lookup.analysis;
        }
    }
}

/// The indexes of a column for one of these targets.
fn indexes<'t>(
    table: &'t Table,
    column: usize,
    targets: &'static [IndexTarget],
) -> impl Iterator<Item = &'t Index> {
    let name = &table.columns[column].name;
    table
        .indexes
        .iter()
        .filter(move |index| index.column == *name && targets.contains(&index.target))
}

fn targets(filter: &Filter) -> &'static [IndexTarget] {
    match (&filter.part, filter.operator) {
        (FilterPart::Element(_), Comparison::Equal) => &[IndexTarget::Entries],
        (FilterPart::Whole, Comparison::Equal) => &WHOLE,
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
