//! SELECT by index: reads only the rows that one index has found, and applies all filters to them
//! again.

use cql::error::CqlError;
use cql::plan::{Choices, ClusteringRestriction, IndexedRestriction, SelectPlan};
use cql::token::token;
use store::{IndexId, Locked, Partition, PartitionKey, Posting, Start, TableId};

use super::filter::{Filters, ordered};
use super::keys::split;
use super::paging::PagingState;
use super::result::Next;
use super::ring::Ring;
use super::row::{RowCx, is_there};
use super::table_scan::Scan;
use super::values::EvalContext;

/// Number of rows up to which the results of several indexes are compared; the index with the
/// fewest rows is used.
const COMPARED_ROWS_MAX: usize = 1024;

/// Maximum length of a value that is compared by an index.
// Source: Cassandra 5.0, SingleColumnRestriction and IndexRestrictions.validateForFiltering
const INDEXED_BYTES_MAX: usize = 65_535;

/// An index term to look up.
#[derive(Debug, Clone)]
pub(super) struct Term {
    index: IndexId,
    bytes: Vec<u8>,
}

/// The index terms of a plan. None for a reversed SELECT, which scans the rows instead.
pub(super) fn terms<'v>(
    plan: &'v SelectPlan,
    filters: &Filters<'v>,
    cx: &EvalContext<'v>,
) -> Result<Vec<Term>, CqlError> {
    let mut terms = Vec::new();
    for lookup in &plan.restrictions.lookups {
        if let IndexedRestriction::Filter(nth) = lookup.restriction
            && lookup.limits_values()
            && filters.value_bytes(nth) > INDEXED_BYTES_MAX
        {
            return Err(CqlError::invalid("Index expression values may not be larger than 64K"));
        }
    }
    if plan.is_reversed {
        return Ok(terms);
    }
    for lookup in &plan.restrictions.lookups {
        let bytes = match lookup.restriction {
            IndexedRestriction::Filter(nth) => filters.term(nth, lookup.analysis),
            IndexedRestriction::Clustering(nth) => {
                let column = &plan.table.clustering()[nth];
                match &plan.restrictions.clustering[nth] {
                    ClusteringRestriction::Values { choices: Choices::One(value), .. } => {
                        let value = cx.known(value, &column.name)?;
                        Some(ordered(&value, column.column_type.unfrozen()))
                    }
                    _ => None,
                }
            }
        };
        terms.extend(bytes.map(|bytes| Term { index: lookup.index, bytes }));
    }
    Ok(terms)
}

/// The part of an index to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'l> {
    pub(super) start: Start<'l>,
    pub(super) tokens: Ring,
    /// Limits the lookup to one partition.
    pub(super) only: Option<&'l [u8]>,
}

/// The position at which a scan resumes in an index.
pub(super) fn start(state: &PagingState) -> Start<'_> {
    match &state.row {
        None => Start::After(token(&state.key), &state.key),
        Some(row) => Start::Row(token(&state.key), &state.key, row),
    }
}

impl Scan<'_> {
    /// The term with the fewest rows in a stripe. `None`: no index covers this stripe.
    pub(super) fn best_term(
        &self,
        locked: &Locked<'_>,
        table: TableId,
        start: Start<'_>,
    ) -> Option<Term> {
        let found = |term: &Term| locked.find(table, term.index, &term.bytes, start);
        let mut scans: Vec<_> =
            self.terms.iter().filter_map(|term| Some((term, found(term)?))).collect();
        if scans.len() > 1 {
            for _ in 0..COMPARED_ROWS_MAX {
                if let Some(at) = scans.iter_mut().position(|(_, scan)| scan.next().is_none()) {
                    return Some(scans[at].0.clone());
                }
            }
        }
        scans.first().map(|(term, _)| (*term).clone())
    }

    /// Visits the rows of a stripe that have a term and are in the requested part.
    pub(super) fn look_up(
        &mut self,
        locked: &Locked<'_>,
        table: TableId,
        term: &Term,
        look: Look<'_>,
        resume: &mut Option<PagingState>,
    ) -> Result<Next, CqlError> {
        let Some(found) = locked.find(table, term.index, &term.bytes, look.start) else {
            return Ok(Next::Continue);
        };
        let mut found = found.peekable();
        while let Some(Posting { token, key, row }) = found.next() {
            if !look.tokens.holds(token) || look.only.is_some_and(|only| *only != key[..]) {
                break;
            }
            let place = PartitionKey { table, token, bytes: &key };
            let Some(partition) = locked.partition(place) else {
                if self.results.pass_partition(&key) == Next::Pause {
                    return Ok(Next::Pause);
                }
                continue;
            };
            let state = resume.take().filter(|state| state.key[..] == key[..]);
            let is_same = |other: &Posting| other.token == token && other.key == key;
            let next = match row {
                None => self.visit(&key, partition, state)?,
                Some(first) => {
                    let rest = || found.next_if(is_same).and_then(|posting| posting.row);
                    let rows = std::iter::once(first).chain(std::iter::from_fn(rest));
                    self.visit_rows(&key, partition, state.as_ref(), rows)?
                }
            };
            if next.ends_scan() {
                return Ok(next);
            }
            if next == Next::PartitionDone || found.next_if(is_same).is_some() {
                // The partition has returned all its rows: continue in the index after it.
                let after_partition = Start::After(token, &key);
                let Some(rest) = locked.find(table, term.index, &term.bytes, after_partition)
                else {
                    return Ok(Next::Continue);
                };
                found = rest.peekable();
            }
            if self.results.pass_partition(&key) == Next::Pause {
                return Ok(Next::Pause);
            }
        }
        Ok(Next::Continue)
    }

    /// Visits the given rows of one partition that the statement requests.
    fn visit_rows(
        &mut self,
        key: &[u8],
        partition: &Partition,
        resume: Option<&PagingState>,
        rows: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Next, CqlError> {
        if resume.is_none() {
            self.results.begin_partition();
        } else if !self.results.allows_more_of_partition() {
            return Ok(Next::Continue);
        }
        let plan = self.plan;
        let now = self.results.now();
        let parts = split(key, &plan.table);
        let statics = plan.table.has_statics().then(|| partition.statics(now));
        for place in rows {
            let row = partition.row(&place, now).filter(|_| self.rows.holds(&place));
            let Some(row) = row.filter(|row| is_there(row, &plan.table)) else {
                if self.results.pass_row(key, &place) == Next::Pause {
                    return Ok(Next::Pause);
                }
                continue;
            };
            let row = RowCx::new(&plan.table, &parts, statics, Some(row), now);
            let next = self.results.offer(key, &row.with_extras(&plan.selection.extras))?;
            if next != Next::Continue {
                return self.end_partition(next);
            }
        }
        self.end_partition(Next::Continue)
    }
}
