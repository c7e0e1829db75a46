//! SELECT: which partitions are visited, and which of their rows.

use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;
use store::{PARTITIONS_DB, Partition, RowView, STRIPES, Seconds, stripe_of_token};
use wire::cql::{Notes, Parameters, ResponseEncoder, RowsMetadata, Version};

use super::filter::Filters;
use super::keys::{Key, partition_keys, split, table_id};
use super::paging::PagingState;
use super::ranges::{Rows, rows};
use super::result::{Next, Results};
use super::row::RowCx;
use super::source;
use super::values::Cx;
use crate::cql::engine::{ClientState, Engine, PreparedStatement, Reply};
use crate::cql::error::CqlError;
use crate::cql::plan::{Edge, PartitionRestriction, SelectPlan, Tokens};
use crate::cql::schema::TableSource;
use crate::cql::token::token;
use crate::cql::virtual_tables;
use crate::worker::is_gated;

/// One run of a SELECT.
struct Walk<'s> {
    plan: &'s SelectPlan,
    rows: Rows,
    results: Results<'s>,
    /// Where the page before this one has ended.
    resume: Option<PagingState>,
}

/// Tokens that are wanted, both included; none if the first is above the last.
#[derive(Debug, Clone, Copy)]
struct Ring {
    first: i64,
    last: i64,
}

impl Engine<'_> {
    /// Returns the log position that the response waits for.
    pub(super) fn select(
        &mut self,
        client: &ClientState,
        statement: &PreparedStatement,
        plan: &SelectPlan,
        parameters: &Parameters<'_>,
        cx: Cx<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<u64, CqlError> {
        let page_rows_max = parameters
            .page_size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size > 0);
        let resume = parameters.paging_state.map(|state| PagingState::decode(state, &plan.table));
        let filters = Filters::new(&plan.restrictions.filters, &plan.table, &cx)?;
        let out = std::mem::take(&mut self.record.rows);
        let mut walk = Walk {
            plan,
            rows: rows(&plan.restrictions.clustering, &plan.table, &cx)?,
            results: Results::new(plan, cx, filters, out, page_rows_max)?,
            resume: resume.transpose()?,
        };
        walk.check_sorted(page_rows_max)?;
        if let Some(state) = &walk.resume {
            walk.results.resume(state);
        }
        let mut gate = 0;
        let end = match (&plan.restrictions.partition, plan.table.source) {
            (_, TableSource::Virtual) => {
                let rows = virtual_tables::rows(&plan.table, &self.virtual_cx(client));
                let partitions = source::partitions(&plan.table, rows);
                walk.computed(&partitions, &cx)?
            }
            (PartitionRestriction::Keys { keys, tokens }, _) => {
                let mut keys = partition_keys(keys, &plan.table, &cx)?;
                if let Some(tokens) = tokens {
                    let tokens = Ring::new(tokens, &cx)?;
                    keys.retain(|key| tokens.holds(key.token));
                }
                walk.keys(self, &keys, &mut gate)?
            }
            (PartitionRestriction::Any, _) => walk.scan(self, Ring::WHOLE, &mut gate)?,
            (PartitionRestriction::Tokens(tokens), _) => {
                walk.scan(self, Ring::new(tokens, &cx)?, &mut gate)?
            }
        };
        let next_page = walk.results.finish(end)?.map(|state| state.encode(&plan.table));
        let result = statement.result.as_ref().expect("SELECT has a result");
        let metadata = RowsMetadata {
            columns: result.columns(),
            skip_columns: parameters.skip_metadata && !reply.has_old_metadata,
            paging_state: next_page.as_deref(),
            new_metadata_id: reply.has_old_metadata.then_some(&statement.result_metadata_id[..]),
        };
        let mut warnings: SmallVec<[&str; 2]> = SmallVec::from_slice(reply.encoder.notes.warnings);
        // Source: native_protocol_v4.spec 9 "Changes from v3"
        warnings.extend(plan.warning().filter(|_| reply.encoder.version >= Version::V4));
        let notes = Notes { warnings: &warnings, ..reply.encoder.notes };
        let encoder = ResponseEncoder { notes, ..reply.encoder };
        let mut rows = encoder.rows(reply.stream, &metadata, reply.out);
        rows.encoded(&walk.results.out, walk.results.count);
        rows.finish();
        self.record.keep_rows(std::mem::take(&mut walk.results.out));
        Ok(if is_gated(client.durability) { gate } else { 0 })
    }
}

impl Ring {
    const WHOLE: Ring = Ring { first: i64::MIN, last: i64::MAX };

    fn new<'v>(wanted: &'v Tokens, cx: &Cx<'v>) -> Result<Ring, CqlError> {
        let value = |edge: &'v Edge| -> Result<i64, CqlError> {
            let token = cx.integer(&edge.value, "token")?;
            token.ok_or_else(|| CqlError::invalid("Invalid unset value for partition key token"))
        };
        let mut tokens = Ring::WHOLE;
        if let Some(edge) = &wanted.lower {
            let token = value(edge)?;
            match (edge.is_inclusive, token.checked_add(1)) {
                (true, _) => tokens.first = token,
                (false, Some(next)) => tokens.first = next,
                (false, None) => tokens.last = i64::MIN,
            }
        }
        if let Some(edge) = &wanted.upper {
            let token = value(edge)?;
            // Clients say "to the end" by the lowest number, which no partition has.
            if token != i64::MIN {
                let last = if edge.is_inclusive { token } else { token - 1 };
                tokens.last = tokens.last.min(last);
            }
        }
        Ok(tokens)
    }

    fn holds(self, token: i64) -> bool {
        (self.first..=self.last).contains(&token)
    }
}

impl Walk<'_> {
    // Source: Cassandra 5.0, SelectStatement.execute
    fn check_sorted(&self, page_rows_max: Option<usize>) -> Result<(), CqlError> {
        let limit = usize::try_from(self.results.limit()).unwrap_or(usize::MAX);
        if self.plan.is_sorted && page_rows_max.is_some_and(|max| limit > max) {
            return Err(CqlError::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; \
                 you must either remove the ORDER BY or the IN and sort client side, or disable \
                 paging for this query",
            ));
        }
        Ok(())
    }

    /// Partitions by their keys.
    fn keys(
        &mut self,
        engine: &Engine<'_>,
        keys: &[Key],
        gate: &mut u64,
    ) -> Result<Next, CqlError> {
        let table = table_id(&self.plan.table);
        let mut keys = keys;
        let mut resume = self.resume.take();
        if let Some(state) = &resume {
            let at = keys.iter().position(|key| key.bytes == state.key).ok_or_else(|| {
                CqlError::Protocol("Invalid value for the paging state".to_owned())
            })?;
            keys = &keys[at..];
        }
        for (nth, key) in keys.iter().enumerate() {
            let place = key.place(table);
            let locked = engine.shared.keyspace.lock_one(place.hash(), engine.params);
            *gate = (*gate).max(locked.gate(PARTITIONS_DB, place.hash()));
            if let Some(partition) = locked.partition(place) {
                let next = self.visit(&key.bytes, partition, resume.take())?;
                let is_last = nth + 1 == keys.len() && self.results.has_ended_partition();
                if next == Next::PageFull && is_last {
                    self.results.forget_next_page();
                    return Ok(Next::Done);
                }
                if matches!(next, Next::Done | Next::PageFull) {
                    return Ok(next);
                }
            }
            resume = None;
        }
        Ok(Next::GoOn)
    }

    /// All partitions of some tokens, one stripe after the other.
    fn scan(
        &mut self,
        engine: &Engine<'_>,
        tokens: Ring,
        gate: &mut u64,
    ) -> Result<Next, CqlError> {
        let table = table_id(&self.plan.table);
        let mut resume = self.resume.take();
        let resumed_key: SmallVec<[u8; 64]> =
            resume.as_ref().map(|state| state.key.clone()).unwrap_or_default();
        let mut from = match &resume {
            None => Bound::Included((tokens.first, &[][..])),
            Some(_) => Bound::Included((token(&resumed_key), &resumed_key[..])),
        };
        let first = match from {
            Bound::Included((token, _)) => stripe_of_token(token),
            _ => 0,
        };
        if tokens.first > tokens.last {
            return Ok(Next::GoOn);
        }
        for stripe in first..=stripe_of_token(tokens.last).min(STRIPES - 1) {
            let locked = engine.shared.keyspace.lock_stripe(stripe, engine.params);
            *gate = (*gate).max(locked.gate_all());
            for (token, key, partition) in locked.partitions(table, from) {
                if !tokens.holds(token) {
                    break;
                }
                let state = resume.take().filter(|state| state.key[..] == *key);
                let next = self.visit(key, partition, state)?;
                if matches!(next, Next::Done | Next::PageFull) {
                    return Ok(next);
                }
            }
            resume = None;
            from = Bound::Unbounded;
        }
        Ok(Next::GoOn)
    }

    /// Partitions that were made for this statement.
    fn computed(
        &mut self,
        partitions: &BTreeMap<(i64, Vec<u8>), Partition>,
        cx: &Cx<'_>,
    ) -> Result<Next, CqlError> {
        let (wanted, tokens) = match &self.plan.restrictions.partition {
            PartitionRestriction::Keys { keys, tokens } => {
                let tokens = tokens.as_ref().map(|tokens| Ring::new(tokens, cx)).transpose()?;
                (Some(partition_keys(keys, &self.plan.table, cx)?), tokens)
            }
            PartitionRestriction::Any => (None, None),
            PartitionRestriction::Tokens(tokens) => (None, Some(Ring::new(tokens, cx)?)),
        };
        let mut resume = self.resume.take();
        for ((token, key), partition) in partitions {
            let is_wanted =
                wanted.as_ref().is_none_or(|keys| keys.iter().any(|k| k.bytes[..] == **key))
                    && tokens.is_none_or(|tokens| tokens.holds(*token));
            let is_shown = resume.as_ref().is_some_and(|state| {
                (*token, &key[..]) < (crate::cql::token::token(&state.key), &state.key[..])
            });
            if !is_wanted || is_shown {
                continue;
            }
            let state = resume.take().filter(|state| state.key[..] == **key);
            let next = self.visit(key, partition, state)?;
            if matches!(next, Next::Done | Next::PageFull) {
                return Ok(next);
            }
        }
        Ok(Next::GoOn)
    }

    /// The wanted rows of one partition, behind those that were shown.
    fn visit(
        &mut self,
        key: &[u8],
        partition: &Partition,
        resume: Option<PagingState>,
    ) -> Result<Next, CqlError> {
        let after = match resume {
            None => None,
            // It has shown all it had.
            Some(PagingState { row: None, .. }) => return Ok(Next::GoOn),
            Some(state) => state.row,
        };
        if after.is_none() {
            self.results.begin_partition();
        } else if !self.results.allows_more_of_partition() {
            return Ok(Next::GoOn);
        }
        let plan = self.plan;
        let now = self.results.now();
        let parts = split(key, &plan.table);
        let statics = plan.table.has_statics().then(|| partition.statics(now));
        let context = |row| {
            RowCx::new(&plan.table, &parts, statics, row, now).with_extras(&plan.selection.extras)
        };
        let has_statics = statics.is_some_and(|statics| statics.exists());
        if plan.is_distinct {
            let mut rows = partition.rows(Bound::Unbounded, Bound::Unbounded, now);
            if !has_statics && rows.next().is_none() {
                return Ok(Next::GoOn);
            }
            let next = self.results.offer(key, &context(None))?;
            return self.end_partition(next);
        }
        let mut is_lone = true;
        let results = &mut self.results;
        let offer = |row| {
            is_lone = false;
            results.offer(key, &context(Some(row)))
        };
        let walk =
            RowWalk { partition, after: after.as_deref(), is_reversed: plan.is_reversed, now };
        let mut next = walk.visit(&self.rows, offer)?;
        if is_lone && after.is_none() && has_statics && plan.shows_lone_statics() {
            next = self.results.offer(key, &context(None))?;
        }
        self.end_partition(next)
    }

    fn end_partition(&mut self, next: Next) -> Result<Next, CqlError> {
        match next {
            Next::GoOn | Next::PartitionDone => self.results.end_partition(),
            Next::Done | Next::PageFull => Ok(next),
        }
    }
}

/// Rows of one partition, from either end, behind those that were shown.
struct RowWalk<'r> {
    partition: &'r Partition,
    /// The last row that was shown.
    after: Option<&'r [u8]>,
    is_reversed: bool,
    now: Seconds,
}

impl<'r> RowWalk<'r> {
    fn visit(
        &self,
        rows: &Rows,
        mut offer: impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        match rows {
            Rows::All => self.range(Bound::Unbounded, Bound::Unbounded, &mut offer),
            Rows::Points(points) => {
                let found = |point: &Vec<u8>| self.partition.row(point, self.now);
                if self.is_reversed {
                    let rest = points.iter().rev();
                    let rest = rest
                        .skip_while(|point| self.after.is_some_and(|after| &point[..] >= after));
                    return each(rest.filter_map(found), &mut offer);
                }
                let rest = points.iter();
                let rest =
                    rest.skip_while(|point| self.after.is_some_and(|after| &point[..] <= after));
                each(rest.filter_map(found), &mut offer)
            }
            Rows::Ranges(ranges) => {
                let mut forward = ranges.iter();
                let mut backward = ranges.iter().rev();
                let mut step = || if self.is_reversed { backward.next() } else { forward.next() };
                while let Some(range) = step() {
                    let start = Bound::Included(&range.start[..]);
                    let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    let next = self.range(start, end, &mut offer)?;
                    if next != Next::GoOn {
                        return Ok(next);
                    }
                }
                Ok(Next::GoOn)
            }
        }
    }

    fn range(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        offer: &mut impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
    ) -> Result<Next, CqlError> {
        let (start, end) = behind(start, end, self.after, self.is_reversed);
        let rows = self.partition.rows(start, end, self.now);
        if self.is_reversed { each(rows.rev(), offer) } else { each(rows, offer) }
    }
}

/// Offers rows as long as they are wanted.
fn each<'r>(
    rows: impl Iterator<Item = RowView<'r>>,
    offer: &mut impl FnMut(RowView<'r>) -> Result<Next, CqlError>,
) -> Result<Next, CqlError> {
    for row in rows {
        let next = offer(row)?;
        if next != Next::GoOn {
            return Ok(next);
        }
    }
    Ok(Next::GoOn)
}

/// A range without what was shown up to a row.
fn behind<'b>(
    start: Bound<&'b [u8]>,
    end: Bound<&'b [u8]>,
    after: Option<&'b [u8]>,
    is_reversed: bool,
) -> (Bound<&'b [u8]>, Bound<&'b [u8]>) {
    let Some(after) = after else { return (start, end) };
    if is_reversed {
        let is_earlier = match end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) => after < end,
        };
        return (start, if is_earlier { Bound::Excluded(after) } else { end });
    }
    let is_later = match start {
        Bound::Unbounded => true,
        Bound::Included(start) | Bound::Excluded(start) => after >= start,
    };
    (if is_later { Bound::Excluded(after) } else { start }, end)
}
