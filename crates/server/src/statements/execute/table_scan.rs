//! Scans for SELECT: visits partitions by key or in token order, and their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cql::error::CqlError;
use cql::plan::{PartitionRestriction, SelectPlan};
use cql::token::token;
use store::{PARTITIONS_DB, Partition, STRIPES, Start, stripe_of_token};

use super::keys::{Key, partition_keys, split, table_id};
use super::lookup::{Look, Term, start};
use super::paging::PagingState;
use super::ranges::Rows;
use super::redis::Gathering;
use super::result::{Next, Results};
use super::ring::{Ring, TokenSpan};
use super::row::{RowCx, is_there};
use super::row_scan::RowScan;
use super::values::EvalContext;
use crate::engine::gate::Gate;
use crate::statements::executor::CqlExecutor;

/// One run of a SELECT.
pub(super) struct Scan<'s> {
    pub(super) plan: &'s SelectPlan,
    pub(super) rows: Rows,
    pub(super) results: Results<'s>,
    /// The end of the previous page.
    pub(super) resume: Option<PagingState>,
    /// Index terms. The index of each term finds all requested rows.
    pub(super) terms: Vec<Term>,
    /// The Redis value that the scan is reading.
    pub(super) gathering: Option<Gathering>,
}

impl Scan<'_> {
    // Source: Cassandra 5.0, SelectStatement.execute
    pub(super) fn check_sorted(&self, page_rows_max: Option<usize>) -> Result<(), CqlError> {
        let limit = usize::try_from(self.results.limit()).unwrap_or(usize::MAX);
        if self.plan.sorted_columns.is_some() && page_rows_max.is_some_and(|max| limit > max) {
            return Err(CqlError::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; \
                 you must either remove the ORDER BY or the IN and sort client side, or disable \
                 paging for this query",
            ));
        }
        Ok(())
    }

    /// Visits partitions by key.
    pub(super) fn keys(
        &mut self,
        engine: &CqlExecutor<'_>,
        keys: &[Key],
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        let table = table_id(&self.plan.table);
        self.each_key(keys, |scan, key, resume| {
            let place = key.place(table);
            let locked = engine.lock_one(place.hash(), keys.len())?;
            *gate = (*gate).max(Gate::of(&locked, PARTITIONS_DB, place.hash()));
            let Some(partition) = locked.partition(place) else { return Ok(Next::Continue) };
            let begin = resume.as_ref().map_or(Start::Partition(key.token, &key.bytes), start);
            match scan.best_term(&locked, table, begin) {
                None => scan.visit(&key.bytes, partition, resume),
                Some(term) => {
                    let look = Look { start: begin, tokens: Ring::WHOLE, only: Some(&key.bytes) };
                    scan.look_up(&locked, table, &term, look, &mut resume.clone())
                }
            }
        })
    }

    /// Calls `visit` with each key, starting at the end of the previous page.
    pub(super) fn each_key(
        &mut self,
        keys: &[Key],
        mut visit: impl FnMut(&mut Self, &Key, Option<PagingState>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        let mut keys = keys;
        let mut resume = self.resume.take();
        if let Some(state) = &resume {
            let at = keys.iter().position(|key| key.bytes == state.key).ok_or_else(|| {
                CqlError::Protocol("Invalid value for the paging state".to_owned())
            })?;
            // If all rows of a key were returned, continue with the next key.
            let is_done = state.row.is_none();
            keys = &keys[at + usize::from(is_done)..];
            resume = resume.filter(|_| !is_done);
        }
        for (nth, key) in keys.iter().enumerate() {
            let next = visit(self, key, resume.take())?;
            let is_last = nth + 1 == keys.len() && self.results.has_ended_partition(&key.bytes);
            if next == Next::PageFull && is_last {
                self.results.forget_next_page();
                return Ok(Next::Done);
            }
            if next.ends_scan() {
                return Ok(next);
            }
            if self.results.pass_partition(&key.bytes) == Next::Pause {
                return Ok(Next::Pause);
            }
        }
        Ok(Next::Continue)
    }

    /// Visits all partitions in a token range, stripe by stripe.
    pub(super) fn scan(
        &mut self,
        engine: &CqlExecutor<'_>,
        tokens: Ring,
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        let table = table_id(&self.plan.table);
        let mut resume = self.resume.take();
        let resumed = resume.clone();
        let mut from = match &resumed {
            None => Bound::Included((tokens.first, &[][..])),
            Some(state) => {
                let place = (token(&state.key), &state.key[..]);
                if state.row.is_some() { Bound::Included(place) } else { Bound::Excluded(place) }
            }
        };
        let first = match from {
            Bound::Included((token, _)) | Bound::Excluded((token, _)) => stripe_of_token(token),
            Bound::Unbounded => 0,
        };
        if tokens.first > tokens.last {
            return Ok(Next::Continue);
        }
        for stripe in first..=stripe_of_token(tokens.last).min(STRIPES - 1) {
            let locked = engine.lock_stripe(stripe)?;
            *gate = (*gate).max(Gate::of_all(&locked));
            let begin = resumed.as_ref().filter(|_| stripe == first);
            let begin = begin.map_or(Start::Token(tokens.first), start);
            if let Some(term) = self.best_term(&locked, table, begin) {
                let look = Look { start: begin, tokens, only: None };
                let next = self.look_up(&locked, table, &term, look, &mut resume)?;
                if next.ends_scan() {
                    return Ok(next);
                }
                resume = None;
                from = Bound::Unbounded;
                continue;
            }
            for (token, key, partition) in locked.partitions(table, from) {
                if !tokens.holds(token) {
                    break;
                }
                let state = resume.take().filter(|state| state.key[..] == *key);
                let next = self.visit(key, partition, state)?;
                if next.ends_scan() {
                    return Ok(next);
                }
                if self.results.pass_partition(key) == Next::Pause {
                    return Ok(Next::Pause);
                }
            }
            resume = None;
            from = Bound::Unbounded;
        }
        Ok(Next::Continue)
    }

    /// Visits partitions that were computed for this statement.
    pub(super) fn computed(
        &mut self,
        partitions: &BTreeMap<(i64, Vec<u8>), Partition>,
        cx: &EvalContext<'_>,
    ) -> Result<Next, CqlError> {
        let (requested, tokens) = match &self.plan.restrictions.partition {
            PartitionRestriction::Keys { keys, tokens } => {
                let mut keys = partition_keys(keys, &self.plan.table, cx)?;
                if let Some(tokens) = tokens {
                    let tokens = TokenSpan::new(tokens, cx)?;
                    keys.retain(|key| tokens.holds(key.token));
                }
                let keys: BTreeSet<_> = keys.into_iter().map(|key| key.bytes).collect();
                (Some(keys), Ring::WHOLE)
            }
            PartitionRestriction::Any => (None, Ring::WHOLE),
            PartitionRestriction::Tokens(tokens) => (None, Ring::new(tokens, cx)?),
        };
        let mut resume = self.resume.take();
        for ((token, key), partition) in partitions {
            let is_requested = requested.as_ref().is_none_or(|keys| keys.contains(&key[..]))
                && tokens.holds(*token);
            let is_shown = resume.as_ref().is_some_and(|state| {
                (*token, &key[..]) < (cql::token::token(&state.key), &state.key[..])
            });
            if !is_requested || is_shown {
                continue;
            }
            let state = resume.take().filter(|state| state.key[..] == **key);
            let next = self.visit(key, partition, state)?;
            if next.ends_scan() {
                return Ok(next);
            }
        }
        Ok(Next::Continue)
    }

    /// Visits the requested rows of one partition, after the rows that were already returned.
    pub(super) fn visit(
        &mut self,
        key: &[u8],
        partition: &Partition,
        resume: Option<PagingState>,
    ) -> Result<Next, CqlError> {
        let after = match resume {
            None => None,
            // All its rows were returned.
            Some(PagingState { row: None, .. }) => return Ok(Next::Continue),
            Some(state) => state.row,
        };
        if after.is_none() {
            self.results.begin_partition();
        } else if !self.results.allows_more_of_partition() {
            return Ok(Next::Continue);
        }
        let plan = self.plan;
        let now = self.results.now();
        let parts = split(key, &plan.table);
        let statics = plan.table.has_statics().then(|| partition.statics(now));
        let context = |row| {
            RowCx::new(&plan.table, &parts, statics, row, now).with_extras(&plan.selection.extras)
        };
        let table = &*plan.table;
        let has_statics = statics.is_some_and(|it| it.exists() && is_there(&it, table));
        if plan.is_distinct {
            let mut rows = partition.rows(Bound::Unbounded, Bound::Unbounded, now);
            if !has_statics && !rows.any(|row| is_there(&row, table)) {
                return Ok(Next::Continue);
            }
            let next = self.results.offer(key, &context(None))?;
            return self.end_partition(next);
        }
        let results = &mut self.results;
        let scan =
            RowScan { partition, after: after.as_deref(), is_reversed: plan.is_reversed, now };
        let mut next = scan.visit(&self.rows, |place, row| {
            let Some(row) = row.filter(|row| is_there(row, table)) else {
                return Ok(results.pass_row(key, place));
            };
            results.meet_row();
            results.offer(key, &context(Some(row)))
        })?;
        let is_lone = next == Next::Continue && self.results.has_met_no_row();
        if is_lone && has_statics && plan.shows_lone_statics() {
            next = self.results.offer(key, &context(None))?;
        }
        self.end_partition(next)
    }

    pub(super) fn end_partition(&mut self, next: Next) -> Result<Next, CqlError> {
        match next {
            Next::Continue | Next::PartitionDone => self.results.end_partition(),
            Next::Done | Next::PageFull | Next::Pause => Ok(next),
        }
    }
}
