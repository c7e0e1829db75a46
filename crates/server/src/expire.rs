//! Active expiry: keys whose time has come leave even if nobody asks for them.
//!
//! Each reactor looks at its share of the stripes at every tick. A stripe knows its next expiry, so
//! a stripe without due keys costs one try of its lock, and no key is looked at in vain.

use store::{Change, Mutation, Params, STRIPES};

use crate::config::KeyEvents;
use crate::latency::LatencyEvent;
use crate::resp::cx::Record;
use crate::resp::notices::EXPIRED;
use crate::shared::Shared;
use crate::worker::Worker;

/// A tick ends after this long; the next one goes on where it stopped. Times `active-expire-effort`.
const CYCLE_NS_MAX: u64 = 1_000_000;

/// Keys deleted under one lock, so that a stripe full of due keys is not held for long.
const KEYS_PER_LOCK_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Cycle<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
}

impl Cycle<'_> {
    /// Visits the stripes that are `worker.index` modulo `reactors`, starting at `from`. Returns
    /// where to go on.
    pub(crate) fn run(&mut self, from: usize, reactors: usize) -> usize {
        if !self.shared.log.takes_writes() {
            return from;
        }
        let effort = self.worker.settings.active_expire_effort as u64;
        let budget_ns = CYCLE_NS_MAX * effort.max(1);
        let start = self.worker.clock.now();
        let share = (self.worker.index..STRIPES).step_by(reactors);
        let (before, after): (Vec<usize>, Vec<usize>) = share.partition(|stripe| *stripe < from);
        for stripe in after.into_iter().chain(before) {
            while self.shared.keyspace.has_due(stripe, self.params.now) {
                if self.elapsed_ns(start) > budget_ns || !self.has_room() {
                    self.note_latency(start);
                    return stripe;
                }
                self.expire_some(stripe);
            }
        }
        self.note_latency(start);
        0
    }

    /// Room for records, and for messages about keys: to those who hand these out the keys may come faster
    /// than they can.
    fn has_room(&self) -> bool {
        self.shared.log.has_room(self.worker.index) && !self.shared.pubsub.is_full()
    }

    fn elapsed_ns(&self, start: u64) -> u64 {
        self.worker.clock.delta_ns(start, self.worker.clock.now())
    }

    fn note_latency(&self, start: u64) {
        let ns = self.elapsed_ns(start);
        if self.worker.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::ExpireCycle, self.params.now, ns / 1_000_000);
        }
    }

    fn expire_some(&mut self, stripe: usize) {
        self.record.clear();
        let mut locked = self.shared.keyspace.lock_stripe(stripe, self.params);
        for _ in 0..KEYS_PER_LOCK_MAX {
            let Some((db, name)) = locked.next_expired() else { break };
            let key = locked.key(&name);
            let mutation = Mutation::Key { db, key, change: Change::Delete };
            if locked.apply(&mutation).is_ok() {
                mutation.encode(&mut self.record.bytes);
                self.record.written.push((db, key.hash));
                self.worker.tally.totals.expired_keys += 1;
                self.worker.tell(self.shared, KeyEvents::EXPIRED, EXPIRED, db, &name);
            }
        }
        if !self.record.bytes.is_empty() {
            let lsn = self.worker.append(self.shared, &self.record.bytes);
            for (db, hash) in &self.record.written {
                locked.note_write(*db, *hash, lsn, self.worker.durable);
            }
            self.worker.publish_told(self.shared, lsn);
        }
        let (trash, grown_bytes) = locked.unlock();
        self.worker.wake_receivers(self.shared);
        self.worker.store_bytes += grown_bytes;
        self.shared.janitor.free(trash);
    }
}
