//! Eviction of keys when memory is full.

use store::{Change, Mutation};

use crate::config::{KeyEvent, KeyEvents};
use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;
use crate::engine::latency::LatencyEvent;
use crate::engine::replication::Role;
use crate::engine::room::NoRoom;
use crate::engine::server_state::eviction_policy;

/// Maximum keys evicted for one command. After the limit is lowered, usage shrinks over many
/// commands, so that no single command waits for all of it.
const KEYS_PER_COMMAND_MAX: usize = 128;

const EVICTED: KeyEvent = KeyEvent { class: KeyEvents::EVICTED, name: "evicted" };

impl ReactorContext<'_> {
    /// Evicts keys until a request of `request_bytes` fits, or until the limit of one command.
    #[inline]
    pub(crate) fn make_room(&mut self, request_bytes: usize) -> Result<(), NoRoom> {
        if self.reactor.room.has(self.shared.used_bytes(), request_bytes) {
            return Ok(());
        }
        self.evict_for(request_bytes)
    }

    #[cold]
    fn evict_for(&mut self, request_bytes: usize) -> Result<(), NoRoom> {
        // A replica holds what its master holds. Source: Redis 7.2, `replica-ignore-maxmemory`
        if self.shared.replication.role() != Role::Master {
            return Ok(());
        }
        let room = self.reactor.room;
        let limit_bytes = room.target(request_bytes);
        let start = self.reactor.clock.now();
        let policy = eviction_policy(self.reactor.settings.maxmemory_policy);
        let samples = self.reactor.settings.maxmemory_samples;
        let mut evicted = 0;
        while self.used_bytes() > limit_bytes && evicted < KEYS_PER_COMMAND_MAX {
            let (shared, reactor) = (self.shared, &mut *self.reactor);
            let found = shared
                .keyspace
                .eviction_candidate(policy, samples, self.params, || reactor.random());
            let Some(candidate) = found else { break };
            self.evict(candidate.db, &candidate.key);
            evicted += 1;
        }
        let ns = self.reactor.clock.delta_ns(start, self.reactor.clock.now());
        if self.reactor.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::EvictionCycle, self.now.unix, ns / 1_000_000);
        }
        if evicted > 0 || self.used_bytes() <= limit_bytes {
            return Ok(());
        }
        let is_maxmemory = room.maxmemory_bytes == room.used_bytes_max;
        Err(NoRoom { option: if is_maxmemory { "maxmemory" } else { "memory-limit" } })
    }

    /// Returns the tracked bytes plus the bytes that this reactor has not reported to the trackers
    /// yet.
    fn used_bytes(&self) -> u64 {
        self.shared.used_bytes().saturating_add_signed(self.reactor.store_bytes as i64)
    }

    fn evict(&mut self, db: u8, name: &[u8]) {
        let ReactorContext { shared, reactor, record, params, .. } = self;
        let key = shared.keyspace.key(name);
        // A script that holds the stripe by now may do so for long; another key is found.
        let Some(locked) = shared.keyspace.lock_one_unless(key.hash, params, |_| true) else {
            return;
        };
        let mut unit = Unit::of_server(shared, reactor, record, locked);
        if !unit.contains(db, key) && !unit.is_overdue(db, key) {
            return; // deleted in the meantime
        }
        if unit.change(&Mutation::Key { db, key, change: Change::Delete }).is_ok() {
            reactor.publish_event(shared, EVICTED, db, name);
            reactor.tally.totals.evicted_keys += 1;
        }
        unit.commit_then(reactor, |reactor, gate| reactor.queue_events(shared, gate));
        reactor.publish_some(shared);
    }
}
