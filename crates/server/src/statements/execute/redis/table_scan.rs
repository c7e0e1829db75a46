//! SELECT on keyspace `redis`.

use cql::error::CqlError;
use cql::token::token;
use store::{Key, Locked, Partition, STRIPES, Value};

use super::DB;
use super::gather::{ELEMENTS_MIN, Gathering};
use super::shape::{Maker, Pick, partition, value, visit_some};
use crate::engine::gate::Gate;
use crate::statements::execute::keys::{Key as PartitionKey, split};
use crate::statements::execute::paging::PagingState;
use crate::statements::execute::ranges::Rows;
use crate::statements::execute::result::{Next, ROW_BYTES_USUAL};
use crate::statements::execute::ring::Ring;
use crate::statements::execute::row::RowCx;
use crate::statements::execute::row_scan::RowScan;
use crate::statements::execute::table_scan::Scan;
use crate::statements::executor::CqlExecutor;

/// Rows that are visited at a time in search of one that has not expired.
const DISTINCT_ROWS: usize = 128;

impl Scan<'_> {
    /// Visits keys by name.
    pub(in crate::statements::execute) fn redis_keys(
        &mut self,
        engine: &CqlExecutor<'_>,
        keys: &[PartitionKey],
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        self.each_key(keys, |scan, key, resume| {
            let found = engine.shared.keyspace.key(&key.bytes);
            let locked = engine.lock_one(found.hash, keys.len())?;
            *gate = (*gate).max(Gate::of(&locked, DB, found.hash));
            scan.redis_value(&locked, (&key.bytes, found), resume)
        })
    }

    /// Visits the requested rows of one value.
    fn redis_value(
        &mut self,
        locked: &Locked<'_>,
        (key, found): (&[u8], Key<'_>),
        resume: Option<PagingState>,
    ) -> Result<Next, CqlError> {
        let begun = self.gathering.take().filter(|gathering| gathering.key[..] == *key);
        let table = &self.plan.table;
        let Some(value) = value(locked, table, found) else { return Ok(Next::Continue) };
        let elements =
            if let Rows::Points(points) = &self.rows { points.len() } else { value.len() };
        if self.plan.is_distinct {
            // The caller needs to know only that a row exists.
            let mut maker = Maker::new(locked, table, found);
            // Fields and points that have expired are not visited.
            let now = locked.params().now();
            let (mut from, mut is_first) = (0, true);
            loop {
                let piece = (from, DISTINCT_ROWS);
                from = visit_some(value, now, &self.rows, piece, |row, cell| {
                    if std::mem::take(&mut is_first) {
                        maker.add(row, cell);
                    }
                });
                if from == 0 || !is_first {
                    break;
                }
            }
            return self.visit(key, &maker.partition, resume);
        }
        if begun.is_none() && elements < ELEMENTS_MIN {
            let Some(partition) = partition(locked, table, found, &self.rows) else {
                return Ok(Next::Continue);
            };
            // Building a row takes longer than examining one.
            self.results.spend(2 * elements + partition.heap_bytes() / ROW_BYTES_USUAL);
            return self.visit(key, &partition, resume);
        }
        match begun {
            Some(gathering) => self.redis_pieces(locked, (value, found), gathering),
            None if resume.as_ref().is_some_and(|state| state.row.is_none()) => Ok(Next::Continue),
            None => {
                if resume.is_none() {
                    self.results.begin_partition();
                } else if !self.results.allows_more_of_partition() {
                    return Ok(Next::Continue);
                }
                self.redis_pieces(locked, (value, found), Gathering::new(key, resume))
            }
        }
    }

    /// Visits the rows of a large value, as many as fit this turn.
    fn redis_pieces(
        &mut self,
        locked: &Locked<'_>,
        (value, found): (Value<'_>, Key<'_>),
        mut gathering: Gathering,
    ) -> Result<Next, CqlError> {
        let table = &*self.plan.table;
        // If every examined row is returned, a round need not exceed the page.
        let rows_max = self.results.partition_rows_max();
        loop {
            if gathering.is_complete() {
                let rows = gathering.take(self.plan.is_reversed);
                if rows.is_empty() && !gathering.begin_round() {
                    return self.end_partition(Next::Continue);
                }
                let mut maker = Maker::new(locked, table, found);
                for (row, cell) in &rows {
                    maker.add(row, cell.as_deref());
                }
                self.results.spend(2 * rows.len());
                let next = self.offer_rows(&gathering.key, &maker.partition)?;
                if next != Next::Continue {
                    return self.end_partition(next);
                }
            } else {
                let is_reversed = self.plan.is_reversed;
                let pick = Pick { rows: &self.rows, is_reversed, rows_max };
                let cost = gathering.visit(value, locked.params().now(), pick);
                self.results.spend(cost);
            }
            if self.results.pause_within(&gathering.key) == Next::Pause {
                self.gathering = Some(gathering);
                return Ok(Next::Pause);
            }
        }
    }

    /// Offers all rows of a part of a partition.
    fn offer_rows(&mut self, key: &[u8], partition: &Partition) -> Result<Next, CqlError> {
        let plan = self.plan;
        let now = self.results.now();
        let parts = split(key, &plan.table);
        let scan = RowScan { partition, after: None, is_reversed: plan.is_reversed, now };
        scan.visit(&Rows::All, |_, row| {
            let row = RowCx::new(&plan.table, &parts, None, row, now);
            self.results.offer(key, &row.with_extras(&plan.selection.extras))
        })
    }

    /// Visits all keys of a token range: stripes in SCAN order, and keys by their bytes within a
    /// stripe. A key that exists throughout is on one of the pages. Because the scan is not in
    /// token order, it visits all keys, whatever the range.
    pub(in crate::statements::execute) fn redis_scan(
        &mut self,
        engine: &CqlExecutor<'_>,
        tokens: Ring,
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        let keyspace = &engine.shared.keyspace;
        let mut resume = self.resume.take();
        let first = resume.as_ref().map_or(0, |state| keyspace.stripe_of_key(&state.key));
        for stripe in first..STRIPES {
            let locked = engine.lock_stripe(stripe)?;
            *gate = (*gate).max(Gate::of_all(&locked));
            let mut keys: Vec<Vec<u8>> = Vec::new();
            let mut last: Vec<u8> = Vec::new();
            let mut others = 0;
            locked.for_each_key(DB, |key| {
                if *key > last[..] {
                    last = key.to_vec();
                }
                let is_shown = resume.as_ref().is_some_and(|state| {
                    *key < state.key[..] || *key == state.key[..] && state.row.is_none()
                });
                if !is_shown && tokens.holds(token(key)) {
                    keys.push(key.to_vec());
                } else if !is_shown {
                    others += 1;
                }
            });
            keys.sort_unstable();
            for key in &keys {
                let state = resume.take().filter(|state| state.key[..] == key[..]);
                let next = self.redis_value(&locked, (key, keyspace.key(key)), state)?;
                if next.ends_scan() {
                    return Ok(next);
                }
                // Keys of other types also count toward the turn.
                if self.results.pass_partition(key) == Next::Pause {
                    return Ok(Next::Pause);
                }
            }
            resume = None;
            if self.results.pass_keys(others, &last) == Next::Pause {
                return Ok(Next::Pause);
            }
        }
        Ok(Next::Continue)
    }
}
