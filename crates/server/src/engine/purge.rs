//! Purge of CQL tables: removes expired cells, and deletions older than their table's `gc_grace_seconds`.
//!
//! Each reactor scans its share of the stripes slowly and continuously: a scan over all of them takes
//! [`SCAN_MS`]. It removes what it finds by mutations in the log, because a late write that is older than
//! a purged deletion must have the same result when the log is replayed. No visible data changes, so no
//! reply waits for those records.

use cql::schema::TableSource;
use store::{Given, Mutation, PartitionKey, STRIPES, Seconds, TableId};

use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;

/// Duration of a scan over all stripes.
const SCAN_MS: u64 = 60_000;

/// A tick ends after this long; the next one continues with the next stripe.
const CYCLE_NS_MAX: u64 = 1_000_000;

/// How long a server in a group of masters remembers a deletion, so that an older value that
/// arrives later stays deleted. Source: Cassandra 4.1, default of `gc_grace_seconds`
const DELETION_GRACE_MS: u64 = 864_000_000;

/// Deletions forgotten under one lock.
const DELETIONS_PER_LOCK_MAX: usize = 256;

/// Partitions purged under one lock, so that a stripe is not held for long.
const PARTITIONS_PER_LOCK_MAX: usize = 32;

/// Stripes of a reactor that are due in one tick.
pub(crate) fn stripes_per_tick(hz: u64, reactors: usize) -> usize {
    let ticks = (SCAN_MS * hz.max(1) / 1000).max(1);
    let share = (STRIPES / reactors.max(1)) as u64;
    usize::try_from(share.div_ceil(ticks)).unwrap_or(STRIPES)
}

impl ReactorContext<'_> {
    /// Visits up to `count` of the stripes that are `reactor.index` modulo `reactors`, beginning at
    /// `from`. Returns where the next tick continues.
    pub(crate) fn purge_cycle(&mut self, from: usize, reactors: usize, count: usize) -> usize {
        if !self.shared.may_change_data() {
            return from;
        }
        let tables = self.purged_tables();
        let first = if from < STRIPES { from.max(self.reactor.index) } else { self.reactor.index };
        let start = self.reactor.clock.now();
        let mut stripe = first;
        for _ in 0..count {
            if self.shared.hub.server != 0 {
                self.forget_deletions(stripe);
            }
            for (table, gc_before) in &tables {
                self.purge(stripe, *table, *gc_before);
            }
            stripe += reactors;
            let elapsed_ns = self.reactor.clock.delta_ns(start, self.reactor.clock.now());
            let has_room = self.shared.log.has_room(self.reactor.index);
            if stripe >= STRIPES || elapsed_ns > CYCLE_NS_MAX || !has_room {
                break;
            }
        }
        stripe
    }

    fn now_seconds(&self) -> Seconds {
        Seconds::try_from(self.params.now().0 / 1000).unwrap_or(Seconds::MAX)
    }

    /// Stored tables, and the time before which their deletions are purged.
    fn purged_tables(&self) -> Vec<(TableId, Seconds)> {
        let catalog = self.shared.catalog.load();
        let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let stored = tables.filter(|table| table.source == TableSource::Stored);
        let now = self.now_seconds();
        // In a group of masters, an older write of another server may arrive later.
        let is_member = self.shared.hub.server != 0;
        let least = if is_member { DELETION_GRACE_MS / 1000 } else { 0 };
        let least = Seconds::try_from(least).expect("a few days");
        let rows = stored.map(|table| {
            let grace = table.options.gc_grace_seconds.max(least);
            let gc_before = now.saturating_sub(grace);
            (TableId(table.id.as_u128()), gc_before)
        });
        rows.collect()
    }

    /// Removes old versions of deleted keys.
    fn forget_deletions(&mut self, stripe: usize) {
        let before_ms = self.params.now().0.saturating_sub(DELETION_GRACE_MS);
        let ReactorContext { shared, params, reactor, record, .. } = self;
        // A stripe that a script holds is visited in the next scan.
        let Some(locked) = shared.keyspace.try_lock_stripe(stripe, params) else { return };
        let mut unit = Unit::of_server(shared, reactor, record, locked);
        for (db, name) in unit.old_deletions(before_ms * 1000, DELETIONS_PER_LOCK_MAX) {
            let key = shared.keyspace.key(&name);
            let mutation = Mutation::Version { db, key, given: Given::default() };
            unit.change(&mutation).expect("a version fits any key");
        }
        unit.commit(reactor);
    }

    fn purge(&mut self, stripe: usize, table: TableId, gc_before: Seconds) {
        let now = self.now_seconds();
        let ReactorContext { shared, params, reactor, record, .. } = self;
        let Some(locked) = shared.keyspace.try_lock_stripe(stripe, params) else { return };
        let mut unit = Unit::of_server(shared, reactor, record, locked);
        let found = unit.garbage(table, now, gc_before).take(PARTITIONS_PER_LOCK_MAX);
        let found: Vec<(i64, Vec<u8>)> = found.map(|(token, key)| (token, key.to_vec())).collect();
        for (token, bytes) in &found {
            let key = PartitionKey { table, token: *token, bytes };
            let mutation = Mutation::Purge { key, now, gc_before };
            unit.change(&mutation).expect("a purge fits any partition");
        }
        unit.commit(reactor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_of_a_scan_depends_on_no_rate_of_ticks_and_number_of_reactors() {
        for (hz, reactors) in [(1, 1), (10, 1), (10, 3), (100, 2), (500, 64)] {
            let count = stripes_per_tick(hz, reactors);
            let ticks = (STRIPES / reactors).div_ceil(count) as u64;
            assert!(count > 0 && ticks <= SCAN_MS * hz / 1000, "{hz} {reactors}");
        }
    }
}
