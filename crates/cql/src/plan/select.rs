//! SELECT with all names resolved.

use std::sync::Arc;

use wire::cql::Column as Shown;

use super::planner::{Planner, column_index};
use super::restrictions::{Choices, Kind, PartitionRestriction, Restrictions};
use super::selection::Selection;
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::Comparison;
use crate::schema::{ColumnKind, Table};
use crate::statements::{Select, Selector};
use crate::types::CqlType;

/// A SELECT with all names resolved.
#[derive(Debug)]
pub struct SelectPlan {
    pub table: Arc<Table>,
    pub restrictions: Restrictions,
    pub selection: Selection,
    pub is_distinct: bool,
    /// The number of primary key columns that rows of a group have in common; None: no GROUP BY.
    pub group_by: Option<usize>,
    /// Whether the rows of each partition are read in reverse order.
    pub is_reversed: bool,
    /// The number of leading clustering columns by which rows of several partitions are merged.
    pub sorted_columns: Option<usize>,
    pub limit: Option<Expression>,
    pub per_partition_limit: Option<Expression>,
}

impl SelectPlan {
    /// The plan, and the columns of its result.
    pub(super) fn new(
        select: &Select,
        planner: &mut Planner<'_>,
    ) -> Result<(SelectPlan, Vec<Shown>), CqlError> {
        let table = planner.table(&select.table)?;
        for selected in &select.columns {
            check_known(&selected.selector, &table)?;
        }
        // Source: Cassandra 5.0, StatementRestrictions: virtual tables are always filtered
        let allows_filtering = select.allows_filtering || table.is_virtual();
        let shows_statics_only = shows_statics_only(select, &table);
        let kind = Kind::Select { allows_filtering, shows_statics_only };
        let restrictions = Restrictions::plan(&select.relations, &table, kind, planner)?;
        let (selection, shown) = Selection::plan(select, &table, planner)?;
        if select.is_distinct {
            check_distinct(select, &restrictions, &table)?;
        }
        let group_by = plan_groups(select, &table, &restrictions)?;
        check_per_partition_limit(select, &selection)?;
        let (is_reversed, sorted_columns) = plan_order(select, &table, &restrictions)?;
        let mut limit = |term: &Option<_>, name: &str| match term {
            None => Ok(None),
            Some(term) => planner.term(&table, term, &CqlType::INT, name).map(Some),
        };
        let per_partition_limit = limit(&select.per_partition_limit, "[per_partition_limit]")?;
        let limit = limit(&select.limit, "[limit]")?;
        let is_distinct = select.is_distinct;
        let plan = SelectPlan {
            table: Arc::clone(&table),
            restrictions,
            selection,
            is_distinct,
            group_by,
            is_reversed,
            sorted_columns,
            limit,
            per_partition_limit,
        };
        Ok((plan, shown))
    }

    /// Whether rows are folded into groups.
    pub fn is_grouped(&self) -> bool {
        self.selection.is_aggregate() || self.group_by.is_some()
    }

    /// The warning for clients: aggregating many partitions is costly.
    // Source: Cassandra 5.0, SelectStatement.execute
    pub fn warning(&self) -> Option<&'static str> {
        if !self.is_grouped() {
            return None;
        }
        match &self.restrictions.partition {
            PartitionRestriction::Any
                if self
                    .restrictions
                    .filters
                    .iter()
                    .all(|filter| filter.column >= self.table.partition_key().len()) =>
            {
                Some("Aggregation query used without partition key")
            }
            _ if self.names_several_partitions() => {
                Some("Aggregation query used on multiple partition keys (IN restriction)")
            }
            _ => None,
        }
    }

    /// Whether a column of the partition key is restricted by IN, including by a filter.
    fn names_several_partitions(&self) -> bool {
        let keys = self.table.partition_key().len();
        self.restrictions.has_several_keys()
            || self.restrictions.filters.iter().any(|filter| {
                filter.column < keys
                    && filter.operator == Comparison::In
                    && !matches!(filter.choices, Choices::One(_))
            })
    }

    /// Whether partitions without rows appear in the result for their static columns.
    pub fn shows_lone_statics(&self) -> bool {
        self.table.has_statics() && self.restrictions.clustering.is_empty()
    }
}

/// Reports nonexistent columns before errors in conditions.
fn check_known(selector: &Selector, table: &Table) -> Result<(), CqlError> {
    let mut result = Ok(());
    each_column(selector, &mut |name| {
        if result.is_ok() {
            result = column_index(table, name).map(drop);
        }
    });
    result
}

fn each_column(selector: &Selector, found: &mut dyn FnMut(&str)) {
    match selector {
        Selector::Column(name) => found(name),
        Selector::Call { arguments, .. } => {
            for argument in arguments {
                each_column(argument, found);
            }
        }
        Selector::Cast(inner, _)
        | Selector::Element(inner, _)
        | Selector::Slice(inner, ..)
        | Selector::Field(inner, _)
        | Selector::Brackets(inner)
        | Selector::Hint(_, inner) => each_column(inner, found),
        Selector::CountRows | Selector::Value(_) => {}
    }
}

/// Whether the result contains only static columns and columns of the partition key.
// Source: Cassandra 5.0, SelectStatement.RawStatement.selectOnlyStaticColumns
fn shows_statics_only(select: &Select, table: &Table) -> bool {
    let (mut has_statics, mut has_others) = (false, false);
    for selected in &select.columns {
        each_column(&selected.selector, &mut |name| {
            let column = table.columns.iter().find(|column| column.name == name);
            match column.map(|column| column.kind) {
                Some(ColumnKind::Static) => has_statics = true,
                Some(ColumnKind::PartitionKey { .. }) | None => {}
                Some(_) => has_others = true,
            }
        });
    }
    has_statics && !has_others
}

// Source: Cassandra 5.0, SelectStatement.validateDistinctSelection
fn check_distinct(
    select: &Select,
    restrictions: &Restrictions,
    table: &Table,
) -> Result<(), CqlError> {
    let is_key = |index: usize| {
        matches!(table.columns[index].kind, ColumnKind::PartitionKey { .. } | ColumnKind::Static)
    };
    let filters_rows = restrictions.filters.iter().any(|filter| !is_key(filter.column));
    if !restrictions.clustering.is_empty() || filters_rows {
        return Err(CqlError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or \
             static columns.",
        ));
    }
    let columns = selected_columns(select, table)?;
    if let Some(other) = columns.iter().find(|index| !is_key(**index)) {
        return Err(CqlError::invalid(format!(
            "SELECT DISTINCT queries must only request partition key columns and/or static columns \
             (not {})",
            table.columns[*other].name
        )));
    }
    // Without keys in the restrictions, equal rows of the result would have to be grouped.
    if restrictions.has_keys() {
        return Ok(());
    }
    match (0..table.partition_key().len()).find(|index| !columns.contains(index)) {
        None => Ok(()),
        Some(missing) => Err(CqlError::invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            table.columns[missing].name
        ))),
    }
}

/// Columns that a selection reads, by their indexes in the table.
fn selected_columns(select: &Select, table: &Table) -> Result<Vec<usize>, CqlError> {
    if select.columns.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut names: Vec<String> = Vec::new();
    for selected in &select.columns {
        each_column(&selected.selector, &mut |name| names.push(name.to_owned()));
    }
    names.iter().map(|name| column_index(table, name)).collect()
}

// Source: Cassandra 5.0, SelectStatement.getAggregationSpecFactory
fn plan_groups(
    select: &Select,
    table: &Table,
    restrictions: &Restrictions,
) -> Result<Option<usize>, CqlError> {
    if select.group_by.is_empty() {
        return Ok(None);
    }
    let key = table.partition_key().len() + table.clustering().len();
    let mut next = 0;
    for selector in &select.group_by {
        let Selector::Column(name) = selector else {
            return Err(CqlError::invalid(
                "Group by currently only supports columns of the primary key",
            ));
        };
        let index = column_index(table, name)?;
        if index >= key {
            return Err(CqlError::invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {name}"
            )));
        }
        // Columns with a single value may be omitted.
        while next < index && is_fixed(restrictions, next, table) {
            next += 1;
        }
        if index != next {
            return Err(CqlError::invalid(
                "Group by currently only support groups of columns following their declared order \
                 in the PRIMARY KEY",
            ));
        }
        next = index + 1;
    }
    if select.is_distinct && next > table.partition_key().len() {
        return Err(CqlError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    if next < table.partition_key().len() {
        return Err(CqlError::invalid(
            "Group by is not supported on only a part of the partition key",
        ));
    }
    // Groups never span partitions.
    Ok(Some(next.max(table.partition_key().len())))
}

/// Whether a column of the key has a single value.
fn is_fixed(restrictions: &Restrictions, index: usize, table: &Table) -> bool {
    let keys = table.partition_key().len();
    if let Some(index) = index.checked_sub(keys) {
        return restrictions.has_one_value(index);
    }
    match &restrictions.partition {
        PartitionRestriction::Keys { keys, .. } => matches!(keys[index], Choices::One(_)),
        _ => false,
    }
}

fn check_per_partition_limit(select: &Select, selection: &Selection) -> Result<(), CqlError> {
    if select.per_partition_limit.is_none() {
        return Ok(());
    }
    if select.is_distinct {
        return Err(CqlError::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    if selection.is_aggregate() && select.group_by.is_empty() {
        return Err(CqlError::invalid(
            "PER PARTITION LIMIT is not allowed with aggregate queries.",
        ));
    }
    Ok(())
}

/// Whether rows are read in reverse order, and the number of leading clustering columns by which
/// rows of several partitions are sorted.
// Source: Cassandra 5.0, SelectStatement.isReversed, verifyOrderingIsAllowed and
// getOrderingComparator
fn plan_order(
    select: &Select,
    table: &Table,
    restrictions: &Restrictions,
) -> Result<(bool, Option<usize>), CqlError> {
    if select.order_by.is_empty() {
        return Ok((false, None));
    }
    if select.is_distinct {
        return Err(CqlError::invalid("ORDER BY queries are not allowed with DISTINCT"));
    }
    if !restrictions.has_keys() {
        return Err(CqlError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let first = table.partition_key().len();
    let mut is_reversed = None;
    let mut next = first;
    for (name, is_descending) in orderings(select) {
        let index = column_index(table, name)?;
        let ColumnKind::Clustering { is_descending: own, .. } = table.columns[index].kind else {
            return Err(CqlError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, \
                 got {name}"
            )));
        };
        while next < index && is_fixed(restrictions, next, table) {
            next += 1;
        }
        if index != next {
            return Err(CqlError::invalid(
                "Order by currently only supports the ordering of columns following their declared \
                 order in the PRIMARY KEY",
            ));
        }
        next = index + 1;
        let turned = own != is_descending;
        if is_reversed.is_some_and(|known| known != turned) {
            return Err(CqlError::invalid("Unsupported order by relation"));
        }
        is_reversed = Some(turned);
    }
    let sorted_columns = restrictions.has_several_keys().then_some(next - first);
    Ok((is_reversed.unwrap_or(false), sorted_columns))
}

/// The columns of ORDER BY. A repeated column keeps its first position and its last order.
fn orderings(select: &Select) -> Vec<(&str, bool)> {
    let mut found: Vec<(&str, bool)> = Vec::new();
    for (name, is_descending) in &select.order_by {
        match found.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1 = *is_descending,
            None => found.push((name, *is_descending)),
        }
    }
    found
}
