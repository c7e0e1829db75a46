//! Prefetches the partitions of upcoming requests before the first of them runs, so that their
//! cache misses overlap.

use std::borrow::Cow;

use cql::plan::Plan;
use cql::plan::prepared::PreparedStatement;
use cql::schema::TableSource;
use smallvec::SmallVec;
use store::{Keyspace, Reach, TableId};
use wire::cql::{Value, Values};

use super::keys::{Key, table_id};

/// Partitions prefetched at a time. The memory on the path to more of them exceeds the first-level
/// cache.
pub(super) const PLACES_MAX: usize = 32;

/// Partitions of the next requests, by table and token.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(super) found: SmallVec<[(TableId, i64); PLACES_MAX]>,
}

impl Places {
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= PLACES_MAX
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Adds the partition that a statement names with these values, if it names one and there is
    /// room.
    pub(crate) fn add(&mut self, statement: &PreparedStatement, values: &Values<'_>) {
        if !self.is_full() {
            self.found.extend(place(statement, values));
        }
    }

    /// Loads the memory on the path to all partitions, one level at a time: the address of the next
    /// level is known only after the previous one is loaded.
    pub(crate) fn prefetch(&self, keyspace: &Keyspace) {
        for reach in Reach::ALL {
            for (table, token) in &self.found {
                keyspace.prefetch_partition(*table, *token, reach);
            }
        }
    }
}

/// Invalid values are ignored here and reported when the statement runs.
fn place(statement: &PreparedStatement, values: &Values<'_>) -> Option<(TableId, i64)> {
    let table = match &statement.plan {
        Plan::Select(plan) => &plan.table,
        Plan::Write(plan) => &plan.table,
        _ => return None,
    };
    if table.source != TableSource::Stored || values.are_named() {
        return None;
    }
    let value = |marker: &u16| match values.iter().nth(usize::from(*marker))?.1 {
        Value::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
        Value::Null | Value::Unset => None,
    };
    let parts: SmallVec<[Cow<'_, [u8]>; 4]> =
        statement.partition_key.iter().map(value).collect::<Option<_>>()?;
    if parts.is_empty() {
        return None;
    }
    let key = Key::new(&parts).ok()?;
    Some((table_id(table), key.token))
}
