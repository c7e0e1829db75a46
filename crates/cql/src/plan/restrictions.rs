//! The resolved WHERE clause: partitions, rows of them, and filters.

use super::clustering;
use super::lookups::{self, Lookup};
use super::names;
use super::planner::{Planner, names as listed};
use super::relations::{Found, Relations};
use crate::analysis::Analysis;
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::{Comparison, Relation};
use crate::schema::{Column, ColumnKind, Table};
use crate::types::CqlType;

/// A WHERE clause with all names resolved.
#[derive(Debug)]
pub struct Restrictions {
    pub partition: PartitionRestriction,
    /// Restrictions of consecutive clustering columns, in key order; only the last can be a slice.
    pub clustering: Vec<ClusteringRestriction>,
    /// Comparisons with each row.
    pub filters: Vec<Filter>,
    /// Indexes that find rows; each finds a superset of the result.
    pub lookups: Vec<Lookup>,
}

#[derive(Debug)]
pub enum PartitionRestriction {
    Any,
    /// One restriction for each column of the partition key, in key order; optionally limited to
    /// some tokens.
    Keys {
        keys: Vec<Choices>,
        tokens: Option<Tokens>,
    },
    Tokens(Tokens),
}

/// The values allowed for a column or tuple.
#[derive(Debug)]
pub enum Choices {
    One(Expression),
    Several(Vec<Expression>),
    /// The items of one list.
    List(Expression),
}

/// The start or the end of a slice.
#[derive(Debug)]
pub struct Edge {
    pub value: Expression,
    pub is_inclusive: bool,
    /// The number of columns, for a tuple. None: the value of one column.
    pub tuple: Option<usize>,
}

/// The start and the end of a range of the ring.
#[derive(Debug)]
pub struct Tokens {
    pub lower: Option<Edge>,
    pub upper: Option<Edge>,
}

/// Restriction of one clustering column, or of several from this one on as a tuple.
#[derive(Debug)]
pub enum ClusteringRestriction {
    Values { tuple: Option<usize>, choices: Choices },
    Slice { lower: Option<Edge>, upper: Option<Edge> },
}

/// A comparison with each row.
#[derive(Debug)]
pub struct Filter {
    /// The index of the column in its table; for a tuple, of the first one.
    pub column: usize,
    pub part: FilterPart,
    pub operator: Comparison,
    pub choices: Choices,
    /// Applied to both sides of the comparison.
    pub analysis: Analysis,
    /// Whether decimals are equal only if their bytes are.
    pub is_exact: bool,
}

/// The compared part of a column.
#[derive(Debug)]
pub enum FilterPart {
    Whole,
    /// The given number of columns from this one on.
    Tuple(usize),
    /// `m['k']`
    Element(Expression),
}

impl Filter {
    pub(super) fn new(
        column: usize,
        part: FilterPart,
        operator: Comparison,
        choices: Choices,
    ) -> Filter {
        Filter { column, part, operator, choices, analysis: Analysis::default(), is_exact: false }
    }
}

/// The kind of a statement, which determines the restrictions it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Select {
        allows_filtering: bool,
        /// Whether the result contains no columns of rows.
        shows_statics_only: bool,
    },
    Update,
    Delete,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Select { .. } => "SELECT",
            Kind::Update => "UPDATE",
            Kind::Delete => "DELETE",
        }
    }

    pub(super) fn allows_filtering(self) -> bool {
        matches!(self, Kind::Select { allows_filtering: true, .. })
    }
}

pub(super) const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
     unpredictable performance. If you want to execute this query despite the performance \
     unpredictability, use ALLOW FILTERING";

impl Restrictions {
    // Source: Cassandra 5.0, StatementRestrictions
    pub(super) fn plan(
        relations: &[Relation],
        table: &Table,
        kind: Kind,
        planner: &mut Planner<'_>,
    ) -> Result<Restrictions, CqlError> {
        if matches!(kind, Kind::Update | Kind::Delete) {
            refuse_contains(relations, kind)?;
        }
        let mut found = Relations::find(relations, table, planner)?;
        let mut filters = Vec::new();
        let partition = plan_partition(&mut found, table, kind, &mut filters)?;
        // Source: Cassandra 5.0, StatementRestrictions
        let shows_statics_only = matches!(kind, Kind::Select { shows_statics_only: true, .. });
        if shows_statics_only && found.restricts_rows(table) {
            return Err(CqlError::invalid(
                "Cannot restrict clustering columns when selecting only static columns",
            ));
        }
        let clustering = clustering::plan(&mut found, table, kind, &mut filters)?;
        let is_select = matches!(kind, Kind::Select { .. });
        let others = found.take_cells(table);
        if !is_select && !others.is_empty() {
            let columns = others.iter().map(|filter| &table.columns[filter.column]);
            return Err(CqlError::invalid(format!(
                "Non PRIMARY KEY columns found in where clause: {} ",
                listed(columns)
            )));
        }
        filters.extend(others);
        // Source: Cassandra 5.0, index.sai.plan.StorageAttachedIndexSearcher
        let is_vector = |filter: &Filter| {
            let column = &table.columns[filter.column];
            let mut indexes = table.indexes.iter();
            filter.operator == Comparison::Equal
                && matches!(column.column_type, CqlType::Vector(..))
                && indexes.any(|index| index.column == column.name && index.class.is_some())
        };
        if is_select && filters.iter().any(is_vector) {
            return Err(CqlError::invalid("Vector indexes only support ANN queries"));
        }
        let scans = !matches!(partition, PartitionRestriction::Keys { .. });
        let lookups =
            if is_select { lookups::find(table, &clustering, &filters) } else { Vec::new() };
        let finds_all = || lookups::suffice(&lookups, &clustering, &filters, scans);
        if is_select && !kind.allows_filtering() && !finds_all() {
            return Err(CqlError::invalid(NEEDS_FILTERING));
        }
        lookups::analyze(table, &clustering, &mut filters, &lookups);
        Ok(Restrictions { partition, clustering, filters, lookups })
    }

    /// Whether the complete keys of all partitions are known.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self.partition, PartitionRestriction::Keys { .. })
    }

    /// Whether the keys may select several partitions.
    pub(crate) fn has_several_keys(&self) -> bool {
        match &self.partition {
            PartitionRestriction::Keys { keys, .. } => {
                keys.iter().any(|choices| !matches!(choices, Choices::One(_)))
            }
            _ => false,
        }
    }

    /// Whether a clustering column, counted from the first one, has a single value.
    pub(crate) fn has_one_value(&self, clustering_column: usize) -> bool {
        let mut columns = 0;
        for restriction in &self.clustering {
            let ClusteringRestriction::Values { tuple, choices } = restriction else {
                return false;
            };
            columns += tuple.unwrap_or(1);
            if clustering_column < columns {
                return matches!(choices, Choices::One(_));
            }
        }
        false
    }

    /// Whether at most one row, with a known key, is selected in each partition.
    pub(crate) fn names_row(&self, table: &Table) -> bool {
        let is_one = |restriction: &ClusteringRestriction| {
            matches!(restriction, ClusteringRestriction::Values { choices: Choices::One(_), .. })
        };
        self.names_rows(table) && self.clustering.iter().all(is_one)
    }

    /// Whether the complete keys of all rows are known.
    pub(crate) fn names_rows(&self, table: &Table) -> bool {
        let mut columns = 0;
        for restriction in &self.clustering {
            match restriction {
                ClusteringRestriction::Values { tuple, .. } => columns += tuple.unwrap_or(1),
                ClusteringRestriction::Slice { .. } => return false,
            }
        }
        columns == table.clustering().len()
    }
}

fn refuse_contains(relations: &[Relation], kind: Kind) -> Result<(), CqlError> {
    let operators = relations.iter().map(|relation| relation.operator);
    let is_contains =
        |of: &Comparison| matches!(of, Comparison::Contains | Comparison::ContainsKey);
    match operators.into_iter().find(is_contains) {
        None => Ok(()),
        Some(operator) => {
            let (kind, operator) = (kind.name(), names::operator(operator));
            Err(CqlError::invalid(format!("Cannot use {kind} with {operator}")))
        }
    }
}

fn plan_partition(
    found: &mut Relations,
    table: &Table,
    kind: Kind,
    filters: &mut Vec<Filter>,
) -> Result<PartitionRestriction, CqlError> {
    let columns = table.partition_key();
    let is_select = matches!(kind, Kind::Select { .. });
    let all_known = (0..columns.len()).all(|index| found.columns[index].is_choice());
    let tokens = found.tokens.take();
    if let Some(tokens) = tokens {
        if !is_select {
            return Err(CqlError::invalid(format!(
                "The token function cannot be used in WHERE clauses for {} statements",
                kind.name()
            )));
        }
        if all_known {
            let keys = found.columns[..columns.len()].iter_mut().map(Found::take_choices);
            return Ok(PartitionRestriction::Keys { keys: keys.collect(), tokens: Some(tokens) });
        }
        for index in 0..columns.len() {
            found.columns[index].drain_into(index, filters);
        }
        return Ok(PartitionRestriction::Tokens(tokens));
    }
    let is_missing = |(_, found): &(&Column, &Found)| found.is_empty();
    let missing: Vec<&Column> =
        columns.iter().zip(&found.columns).filter(is_missing).map(|(column, _)| column).collect();
    if missing.len() == columns.len() && is_select {
        return Ok(PartitionRestriction::Any);
    }
    if !is_select && !missing.is_empty() {
        return Err(CqlError::invalid(format!(
            "Some partition key parts are missing: {}",
            listed(missing)
        )));
    }
    if all_known {
        let keys = found.columns[..columns.len()].iter_mut().map(Found::take_choices);
        return Ok(PartitionRestriction::Keys { keys: keys.collect(), tokens: None });
    }
    if !is_select {
        return Err(CqlError::invalid(format!(
            "Only EQ and IN relation are supported on the partition key (unless you use the \
             token() function) for {} statements",
            kind.name()
        )));
    }
    for index in 0..columns.len() {
        found.columns[index].drain_into(index, filters);
    }
    Ok(PartitionRestriction::Any)
}

/// Whether a column has cells.
pub(super) fn has_cells(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::Static | ColumnKind::Regular)
}
