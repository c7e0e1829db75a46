//! Active expiry: keys whose time has come leave even if nobody asks for them.
//!
//! Each reactor looks at its share of the stripes at every tick. A stripe knows its next expiry, so
//! a stripe without due keys costs one try of its lock, and no key is looked at in vain.

use store::{Change, Mutation, Params, STRIPES};

use crate::commit::{Record, Unit};
use crate::config::KeyEvents;
use crate::latency::LatencyEvent;

use crate::resp::notices::EXPIRED;
use crate::shared::Shared;
use crate::worker::Worker;

/// A tick ends after this long; the next one goes on where it stopped. Times `active-expire-effort`.
const CYCLE_NS_MAX: u64 = 1_000_000;

/// A record that is longer takes no further key: names may be long, and the log has its limit.
const RECORD_BYTES_MAX: usize = 1 << 20;

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
            while self.shared.keyspace.has_due(stripe, self.params.now()) {
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
        self.shared.log.has_room(self.worker.index) && !self.shared.pubsub.is_any_full()
    }

    fn elapsed_ns(&self, start: u64) -> u64 {
        self.worker.clock.delta_ns(start, self.worker.clock.now())
    }

    fn note_latency(&self, start: u64) {
        let ns = self.elapsed_ns(start);
        if self.worker.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::ExpireCycle, self.params.now(), ns / 1_000_000);
        }
    }

    fn expire_some(&mut self, stripe: usize) {
        let Cycle { shared, params, worker, record } = self;
        let locked = shared.keyspace.lock_stripe(stripe, params);
        let mut unit = Unit::new(shared, worker, record, locked);
        for _ in 0..KEYS_PER_LOCK_MAX {
            if unit.record_bytes() > RECORD_BYTES_MAX {
                break;
            }
            let Some((db, name)) = unit.next_expired() else { break };
            let key = unit.key(&name);
            if unit.change(&Mutation::Key { db, key, change: Change::Delete }).is_ok() {
                worker.tally.totals.expired_keys += 1;
                worker.tell(shared, KeyEvents::EXPIRED, EXPIRED, db, &name);
            }
        }
        unit.commit_then(worker, |worker, gate| worker.publish_told(shared, gate));
        worker.wake_receivers(shared);
    }
}
