//! SELECT on keyspace `redis`.

use store::STRIPES;

use super::{DB, Pick, partition};
use crate::cql::engine::Engine;
use crate::cql::error::CqlError;
use crate::cql::execute::keys::Key;
use crate::cql::execute::paging::PagingState;
use crate::cql::execute::result::Next;
use crate::cql::execute::ring::Ring;
use crate::cql::execute::walk::Walk;
use crate::cql::token::token;
use crate::gate::Gate;

impl Walk<'_> {
    /// Keys by their names.
    pub(in crate::cql::execute) fn redis_keys(
        &mut self,
        engine: &Engine<'_>,
        keys: &[Key],
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        self.each_key(keys, |walk, key, resume| {
            let found = engine.shared.keyspace.key(&key.bytes);
            let locked = engine.shared.keyspace.lock_one(found.hash, engine.params);
            *gate = (*gate).max(Gate::of(&locked, DB, found.hash));
            let pick = walk.pick(resume.as_ref());
            match partition(&locked, &walk.plan.table, found, pick) {
                Some(partition) => walk.visit(&key.bytes, &partition, resume),
                None => Ok(Next::GoOn),
            }
        })
    }

    /// The rows of a value that are made: where rows are shown as they are, no more than the page takes and
    /// one that says that there are more.
    fn pick<'p>(&'p self, resume: Option<&'p PagingState>) -> Pick<'p> {
        let after = resume.and_then(|state| state.row.as_deref());
        Pick {
            rows: &self.rows,
            after,
            is_reversed: self.plan.is_reversed,
            rows_max: self.results.rows_taken(after.is_some()).map(|rows| rows.saturating_add(1)),
        }
    }

    /// All keys of some tokens: stripe by stripe as SCAN goes, in a stripe by their bytes. A key that is
    /// there from the first page to the last is on one of them. Tokens are not the order of the walk,
    /// so it visits all keys whichever are wanted.
    pub(in crate::cql::execute) fn redis_scan(
        &mut self,
        engine: &Engine<'_>,
        tokens: Ring,
        gate: &mut Gate,
    ) -> Result<Next, CqlError> {
        let keyspace = &engine.shared.keyspace;
        let mut resume = self.resume.take();
        let first = resume.as_ref().map_or(0, |state| keyspace.stripe_of_key(&state.key));
        for stripe in first..STRIPES {
            let locked = keyspace.lock_stripe(stripe, engine.params);
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
                let pick = self.pick(state.as_ref());
                let found = partition(&locked, &self.plan.table, keyspace.key(key), pick);
                if let Some(partition) = found {
                    let next = self.visit(key, &partition, state)?;
                    if next.ends_walk() {
                        return Ok(next);
                    }
                }
                // Keys of other types take their time, too.
                if self.results.pass_partition(key) == Next::Pause {
                    return Ok(Next::Pause);
                }
            }
            resume = None;
            if self.results.pass_keys(others, &last) == Next::Pause {
                return Ok(Next::Pause);
            }
        }
        Ok(Next::GoOn)
    }
}
