//! Active expiry: deletes expired keys, and expired fields of hashes and points of time series, that
//! no client reads.
//!
//! Each reactor checks its share of the stripes at every tick. A stripe stores its next expiry, so a
//! stripe without expired keys costs one attempt to lock it, and only expired keys are read.

use base::time::MonoNs;
use store::{Due, Key, STRIPES, Value};

use crate::config::{KeyEvent, KeyEvents};
use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;
use crate::engine::latency::LatencyEvent;
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::ServerState;

/// A tick ends after this long; the next one continues there. Multiplied by `active-expire-effort`.
const CYCLE_NS_MAX: u64 = 1_000_000;

/// No key is added to a longer record: names may be long, and the log has its limit.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Points that are visited under one lock, so that a large series is not locked for long: 20 ns
/// each.
const POINTS_PER_LOCK_MAX: usize = 4096;

const POINTS_EXPIRED: KeyEvent = KeyEvent { class: KeyEvents::MODULE, name: "tsexpired" };

/// Fields of one hash were removed because they have expired.
pub(crate) const FIELDS_EXPIRED: KeyEvent = KeyEvent { class: KeyEvents::HASH, name: "hexpired" };

/// Fields removed under one lock, likewise.
const FIELDS_PER_LOCK_MAX: usize = 128;

/// Keys deleted under one lock, so that a stripe full of expired keys is not locked for long.
const KEYS_PER_LOCK_MAX: usize = 32;

impl ReactorContext<'_> {
    /// Visits the stripes that are `reactor.index` modulo `reactors`, beginning at `from`. Returns
    /// where the next tick continues.
    pub(crate) fn expire_cycle(&mut self, from: usize, reactors: usize) -> usize {
        if !self.shared.may_change_data() {
            return from;
        }
        let effort = self.reactor.settings.active_expire_effort as u64;
        let budget_ns = CYCLE_NS_MAX * effort.max(1);
        let start = self.reactor.clock.now();
        let share = (self.reactor.index..STRIPES).step_by(reactors);
        let (before, after): (Vec<usize>, Vec<usize>) = share.partition(|stripe| *stripe < from);
        for stripe in after.into_iter().chain(before) {
            while self.shared.keyspace.has_due(stripe, self.params.now()) {
                let is_late = self.elapsed_ns(start) > budget_ns;
                if is_late || !has_room(self.shared, self.reactor) {
                    self.reactor.tally.totals.expiry_ticks_cut += u64::from(is_late);
                    self.note_expire_latency(start);
                    return stripe;
                }
                self.expire_some(stripe);
            }
        }
        self.note_expire_latency(start);
        0
    }

    fn elapsed_ns(&self, start: u64) -> u64 {
        self.reactor.clock.delta_ns(start, self.reactor.clock.now())
    }

    fn note_expire_latency(&self, start: u64) {
        let ns = self.elapsed_ns(start);
        if self.reactor.is_latency_event(ns) {
            let mut events = self.shared.latency.lock();
            events.note(LatencyEvent::ExpireCycle, self.params.now(), ns / 1_000_000);
        }
    }

    /// Does nothing if another thread holds the stripe: a script may for long.
    fn expire_some(&mut self, stripe: usize) {
        let ReactorContext { shared, params, reactor, record, .. } = self;
        let Some(locked) = shared.keyspace.try_lock_stripe(stripe, params) else { return };
        let mut unit = Unit::of_server(shared, reactor, record, locked);
        for _ in 0..KEYS_PER_LOCK_MAX {
            if unit.record_bytes() > RECORD_BYTES_MAX {
                break;
            }
            let Some((db, name, due)) = unit.next_expired() else { break };
            let key = unit.key(&name);
            let expire = match due {
                Due::Key => expire_key,
                Due::Fields => expire_fields,
                Due::Points => purge_series,
            };
            expire(&mut unit, shared, reactor, db, key);
            if due != Due::Key {
                break;
            }
        }
        unit.commit_then(reactor, |reactor, gate| reactor.queue_events(shared, gate));
        reactor.publish_some(shared);
    }

    /// Deletes the given keys that have expired. Keys of one stripe are adjacent, as SCAN finds them.
    pub(crate) fn expire_found(&mut self, db: u8, names: &[Vec<u8>]) {
        let ReactorContext { shared, params, reactor, record, .. } = self;
        let stripe_of = |name: &[u8]| shared.keyspace.stripe_of_key(name);
        for of_stripe in names.chunk_by(|one, next| stripe_of(one) == stripe_of(next)) {
            for some in of_stripe.chunks(KEYS_PER_LOCK_MAX) {
                if !can_expire(shared, reactor) {
                    return;
                }
                let stripe = stripe_of(&some[0]);
                let Some(locked) = shared.keyspace.try_lock_stripe(stripe, params) else { break };
                let mut unit = Unit::of_server(shared, reactor, record, locked);
                for name in some {
                    let key = unit.key(name);
                    if has_room_for(&unit, key) && unit.is_overdue(db, key) {
                        expire_key(&mut unit, shared, reactor, db, key);
                    }
                }
                unit.commit_then(reactor, |reactor, gate| reactor.queue_events(shared, gate));
                reactor.publish_some(shared);
            }
        }
    }
}

/// Deletes an expired key, counts it, and publishes the event.
pub(crate) fn expire_key(
    unit: &mut Unit<'_>,
    shared: &ServerState,
    reactor: &mut ReactorState,
    db: u8,
    key: Key<'_>,
) {
    let fields = unit.overdue_fields(db, key);
    if unit.expire(db, key).is_err() {
        return;
    }
    let Some(fields) = fields else {
        reactor.tally.totals.expired_keys += 1;
        return reactor.publish_event(shared, KeyEvent::EXPIRED, db, key.bytes);
    };
    reactor.tally.totals.expired_fields += fields as u64;
    reactor.publish_event(shared, FIELDS_EXPIRED, db, key.bytes);
    reactor.publish_event(shared, KeyEvent::DELETED, db, key.bytes);
}

/// Removes some fields of a hash that have expired, at least one.
fn expire_fields(
    unit: &mut Unit<'_>,
    shared: &ServerState,
    reactor: &mut ReactorState,
    db: u8,
    key: Key<'_>,
) {
    if expire_some_fields(unit, shared, reactor, db, key) == 0 && unit.is_untouched() {
        // Its name alone is longer than records of several fields may be.
        let field = unit.due_fields(db, key, 1, usize::MAX);
        remove_fields(unit, shared, reactor, db, key, &field);
    }
}

/// Removes some fields of a hash that have expired, as many as the record has room for. Returns
/// their number. The others remain invisible.
pub(crate) fn expire_some_fields(
    unit: &mut Unit<'_>,
    shared: &ServerState,
    reactor: &mut ReactorState,
    db: u8,
    key: Key<'_>,
) -> usize {
    let room_bytes = RECORD_BYTES_MAX.saturating_sub(unit.record_bytes() + key.bytes.len());
    let fields = unit.due_fields(db, key, FIELDS_PER_LOCK_MAX, room_bytes);
    remove_fields(unit, shared, reactor, db, key, &fields);
    fields.len()
}

fn remove_fields(
    unit: &mut Unit<'_>,
    shared: &ServerState,
    reactor: &mut ReactorState,
    db: u8,
    key: Key<'_>,
    fields: &[Vec<u8>],
) {
    let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
    if !fields.is_empty() && unit.expire_fields(db, key, &fields).is_ok() {
        reactor.tally.totals.expired_fields += fields.len() as u64;
        reactor.publish_event(shared, FIELDS_EXPIRED, db, key.bytes);
    }
}

/// Removes expired points of a time series, as many as one lock may take, and publishes the events.
fn purge_series(
    unit: &mut Unit<'_>,
    shared: &ServerState,
    reactor: &mut ReactorState,
    db: u8,
    key: Key<'_>,
) {
    let at = unit.params().now();
    let Some(Value::Series(series)) = unit.peek(db, key) else { return };
    let Some(points) = series.due(at, POINTS_PER_LOCK_MAX) else { return };
    if unit.expire_points(db, key, points).is_ok() {
        reactor.publish_event(shared, POINTS_EXPIRED, db, key.bytes);
        if !unit.contains(db, key) {
            reactor.publish_event(shared, KeyEvent::DELETED, db, key.bytes);
        }
    }
}

/// Whether a command that only reads may delete the expired keys that it finds. Otherwise
/// the next background cycle or write deletes them; no client sees them.
pub(crate) fn may_expire_at_reads(
    shared: &ServerState,
    reactor: &ReactorState,
    now: MonoNs,
) -> bool {
    can_expire(shared, reactor) && shared.pause.at(now).is_none()
}

fn can_expire(shared: &ServerState, reactor: &ReactorState) -> bool {
    shared.may_change_data() && has_room(shared, reactor)
}

/// Room for records, and for messages about keys: keys may expire faster than reactors deliver the messages.
fn has_room(shared: &ServerState, reactor: &ReactorState) -> bool {
    let pubsub = &shared.pubsub;
    shared.log.has_room(reactor.index) && !pubsub.is_any_full() && !pubsub.has_unmatched()
}

/// Whether a record that other keys may be on has room for the deletion of one more.
pub(crate) fn has_room_for(unit: &Unit<'_>, key: Key<'_>) -> bool {
    unit.record_bytes() + key.bytes.len() <= RECORD_BYTES_MAX
}
