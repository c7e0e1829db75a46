//! Eviction of keys when memory is full.

use store::{Change, Mutation};

use crate::config::{KeyEvent, KeyEvents};
use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;
use crate::engine::latency::LatencyEvent;
use crate::engine::replication::Role;
use crate::engine::room::NoRoom;
use crate::engine::server_state::eviction_policy;

/// Maximum keys evicted for one command, or in one turn without a command. After the limit is
/// lowered, usage shrinks over many of them, so that no client waits for all of it.
const KEYS_AT_A_TIME_MAX: usize = 128;

const EVICTED: KeyEvent = KeyEvent { class: KeyEvents::EVICTED, name: "evicted" };

/// Result of an attempt to get below a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eviction {
    /// Memory is below the limit.
    Enough,
    /// It is not yet, and there are more keys.
    Unfinished,
    /// It is not, and no key may be evicted.
    Exhausted,
}

impl ReactorContext<'_> {
    /// Evicts keys until a request of `request_bytes` fits, or until the limit of one command.
    #[inline]
    pub(crate) fn make_room(&mut self, request_bytes: usize) -> Result<(), NoRoom> {
        if self.reactor.room.has(self.shared.used_bytes(), request_bytes) {
            return Ok(());
        }
        self.evict_for(request_bytes)
    }

    /// Evicts some keys if memory is above the limit although no client writes. Returns whether
    /// more are to be evicted.
    pub(crate) fn evict_surplus(&mut self) -> bool {
        let room = self.reactor.room;
        if room.has(self.shared.used_bytes(), 0)
            || self.shared.pause.at(self.now.mono).is_some()
            || !self.shared.may_change_data()
            || !self.shared.log.has_room(self.reactor.index)
        {
            return false;
        }
        self.evict_to(room.target(0)) == Eviction::Unfinished
    }

    #[cold]
    fn evict_for(&mut self, request_bytes: usize) -> Result<(), NoRoom> {
        // A replica holds what its master holds. Source: Redis 7.2, `replica-ignore-maxmemory`
        if self.shared.replication.role() != Role::Master {
            return Ok(());
        }
        let room = self.reactor.room;
        if self.evict_to(room.target(request_bytes)) != Eviction::Exhausted {
            return Ok(());
        }
        let is_maxmemory = room.maxmemory_bytes == room.used_bytes_max;
        Err(NoRoom { option: if is_maxmemory { "maxmemory" } else { "memory-limit" } })
    }

    /// Evicts up to [`KEYS_AT_A_TIME_MAX`] keys until no more than `limit_bytes` are used.
    fn evict_to(&mut self, limit_bytes: u64) -> Eviction {
        let start = self.reactor.clock.now();
        let policy = eviction_policy(self.reactor.settings.maxmemory_policy);
        let samples = self.reactor.settings.maxmemory_samples;
        let mut result = Eviction::Enough;
        for tried in 0.. {
            if self.used_bytes() <= limit_bytes {
                break;
            }
            if tried == KEYS_AT_A_TIME_MAX {
                result = Eviction::Unfinished;
                break;
            }
            let (shared, reactor) = (self.shared, &mut *self.reactor);
            let found = shared
                .keyspace
                .eviction_candidate(policy, samples, self.params, || reactor.random());
            let Some(candidate) = found else {
                result = Eviction::Exhausted;
                break;
            };
            self.evict(candidate.db, &candidate.key);
        }
        let ns = self.reactor.clock.delta_ns(start, self.reactor.clock.now());
        if self.reactor.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::EvictionCycle, self.now.unix, ns / 1_000_000);
        }
        result
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
