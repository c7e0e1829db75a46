//! Making room when `maxmemory` is reached.

use base::time::Now;
use store::{Change, Mutation, Params};

use crate::config::KeyEvents;
use crate::latency::LatencyEvent;
use crate::resp::cx::Record;
use crate::shared::{Shared, eviction_policy};
use crate::worker::Worker;

/// Keys evicted for one command at most: a lowered limit is reached over many commands, and no
/// single one waits for all of it.
const KEYS_PER_COMMAND_MAX: usize = 128;

/// Memory is full, and nothing more can be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

#[derive(Debug)]
pub(crate) struct Eviction<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
    pub(crate) now: Now,
}

impl Eviction<'_> {
    /// Evicts until the memory in use is at most `limit_bytes`, or long enough for one command.
    pub(crate) fn make_room(&mut self, limit_bytes: u64) -> Result<(), NoRoom> {
        let start = self.worker.clock.now();
        let policy = eviction_policy(self.worker.settings.maxmemory_policy);
        let samples = self.worker.settings.maxmemory_samples;
        let mut evicted = 0;
        while self.used_bytes() > limit_bytes && evicted < KEYS_PER_COMMAND_MAX {
            let (shared, worker) = (self.shared, &mut *self.worker);
            let found = shared
                .keyspace
                .eviction_candidate(policy, samples, self.params, || worker.random());
            let Some(candidate) = found else { break };
            self.evict(candidate.db, &candidate.key);
            evicted += 1;
        }
        let ns = self.worker.clock.delta_ns(start, self.worker.clock.now());
        if self.worker.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::EvictionCycle, self.now.unix, ns / 1_000_000);
        }
        if evicted == 0 && self.used_bytes() > limit_bytes { Err(NoRoom) } else { Ok(()) }
    }

    /// What the trackers say, and what this reactor has not told them yet.
    fn used_bytes(&self) -> u64 {
        self.shared.used_bytes().saturating_add_signed(self.worker.store_bytes as i64)
    }

    fn evict(&mut self, db: u8, name: &[u8]) {
        self.record.clear();
        let key = self.shared.keyspace.key(name);
        let mut locked = self.shared.keyspace.lock_one(key.hash, self.params);
        let mutation = Mutation::Key { db, key, change: Change::Delete };
        let existed = locked.contains(db, key) || locked.is_overdue(db, key);
        if existed && locked.apply(&mutation).is_ok() {
            mutation.encode(&mut self.record.bytes);
            let lsn = self.worker.append(self.shared, &self.record.bytes);
            locked.note_write(db, key.hash, lsn, self.worker.durable);
            self.worker.tell(self.shared, KeyEvents::EVICTED, "evicted", db, name);
            self.worker.publish_told(self.shared, lsn);
            self.worker.tally.totals.evicted_keys += 1;
        }
        let (trash, grown_bytes) = locked.unlock();
        self.worker.wake_receivers(self.shared);
        self.worker.store_bytes += grown_bytes;
        self.shared.janitor.free(trash);
    }
}
