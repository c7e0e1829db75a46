//! WHERE, understood: which partitions, which rows of them, and what else rows must be like.

use super::clustering;
use super::lookups::{self, Lookup};
use super::names;
use super::planner::{Planner, names as listed};
use super::relations::{Found, Relations};
use crate::error::CqlError;
use crate::expression::Expression;
use crate::relation::{Comparison, Relation};
use crate::schema::{Column, ColumnKind, Table};
use crate::types::CqlType;

/// See the module.
#[derive(Debug)]
pub struct Restrictions {
    pub partition: PartitionRestriction,
    /// Of clustering columns in their order, without a gap; a slice can only be the last.
    pub clustering: Vec<ClusteringRestriction>,
    /// What each row is compared with.
    pub filters: Vec<Filter>,
    /// Indexes that find rows; each of them finds all that are wanted, and perhaps others.
    pub lookups: Vec<Lookup>,
}

#[derive(Debug)]
pub enum PartitionRestriction {
    Any,
    /// For each column of the partition key in its order; perhaps only those of some tokens.
    Keys {
        keys: Vec<Choices>,
        tokens: Option<Tokens>,
    },
    Tokens(Tokens),
}

/// Values that something may have.
#[derive(Debug)]
pub enum Choices {
    One(Expression),
    Several(Vec<Expression>),
    /// The items of one list.
    List(Expression),
}

/// Where a slice begins or ends.
#[derive(Debug)]
pub struct Edge {
    pub value: Expression,
    pub is_inclusive: bool,
    /// How many columns it is about: if it is a tuple. None: the value of one column.
    pub tuple: Option<usize>,
}

/// Where a range of the ring begins and ends.
#[derive(Debug)]
pub struct Tokens {
    pub lower: Option<Edge>,
    pub upper: Option<Edge>,
}

/// What one clustering column, or several from this one on as a tuple, must be.
#[derive(Debug)]
pub enum ClusteringRestriction {
    Values { tuple: Option<usize>, choices: Choices },
    Slice { lower: Option<Edge>, upper: Option<Edge> },
}

/// What is compared with each row.
#[derive(Debug)]
pub struct Filter {
    /// The place of the column in its table; of a tuple the first one.
    pub column: usize,
    pub part: FilterPart,
    pub operator: Comparison,
    pub choices: Choices,
}

/// What of a column is compared.
#[derive(Debug)]
pub enum FilterPart {
    Whole,
    /// So many columns from this one on.
    Tuple(usize),
    /// `m['k']`
    Element(Expression),
}

/// What a statement may do, beside reading and writing single rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Select {
        allows_filtering: bool,
        /// Nothing of rows is shown.
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
        let walks = !matches!(partition, PartitionRestriction::Keys { .. });
        let lookups =
            if is_select { lookups::find(table, &clustering, &filters) } else { Vec::new() };
        let finds_all = || lookups::suffice(&lookups, &clustering, &filters, walks);
        if is_select && !kind.allows_filtering() && !finds_all() {
            return Err(CqlError::invalid(NEEDS_FILTERING));
        }
        Ok(Restrictions { partition, clustering, filters, lookups })
    }

    /// Whether the whole key of partitions is known.
    pub(crate) fn has_keys(&self) -> bool {
        matches!(self.partition, PartitionRestriction::Keys { .. })
    }

    /// Whether several partitions may be asked for by their keys.
    pub(crate) fn has_several_keys(&self) -> bool {
        match &self.partition {
            PartitionRestriction::Keys { keys, .. } => {
                keys.iter().any(|choices| !matches!(choices, Choices::One(_)))
            }
            _ => false,
        }
    }

    /// Whether a clustering column, counted from the first one, has one value only.
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

    /// Whether at most one row, whose key is known, is meant in each partition.
    pub(crate) fn names_row(&self, table: &Table) -> bool {
        let is_one = |restriction: &ClusteringRestriction| {
            matches!(restriction, ClusteringRestriction::Values { choices: Choices::One(_), .. })
        };
        self.names_rows(table) && self.clustering.iter().all(is_one)
    }

    /// Whether the whole keys of all rows are known.
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
