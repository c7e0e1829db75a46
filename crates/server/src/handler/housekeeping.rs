//! Periodic work of a reactor: expiry, memory accounting, rates, the MONITOR feed.

use super::protocol::Protocol;
use super::rdb::is_stuck;
use super::{ReactorHandler, Session, TICK};
use crate::config::Settings;
use crate::engine::invalidations::reader_bytes;
use crate::engine::latency::LatencyEvent;
use crate::engine::mail::Mail;
use crate::engine::published::PublishedStats;
use crate::engine::server_state::ServerState;
use base::time::MonoNs;
use reactor::{Connections, Context};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::STRIPES;

/// Interval at which the buffer sizes in CLIENT LIST are updated.
const SURVEY_NS: u64 = 1_000_000_000;
/// Minimum window in which keys and clients are counted before the counts are shown. A window ends
/// at the next survey, so it can be longer by one survey interval.
const WINDOW_NS: u64 = 5_000_000_000;

impl ReactorHandler {
    /// Updates the buffer sizes in CLIENT LIST, enforces output limits, ends the window of the
    /// busiest keys and clients when it has elapsed, and adds a point to the history.
    pub(super) fn survey(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.now.mono.since(self.surveyed) < SURVEY_NS {
            return;
        }
        self.surveyed = self.now.mono;
        self.survey_connections(cx, connections);
        self.shared.transfers.beat(self.reactor.index);
        self.sweep_http(cx, connections);
        self.limit_waits_for_replicas(cx, connections);
        if self.reactor.index == 0 {
            self.history.sample(&self.shared, self.now);
            // Replicas may have been silent for too long.
            let rules = self.reactor.settings.replica_rules();
            self.shared.replication.change_replicas(rules, self.now.mono, |_| {});
        }
    }

    fn survey_connections(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let mut published = self.shared.published[self.reactor.index].lock();
        let timeout = self.reactor.settings.repl_timeout();
        for (info, session) in connections.list() {
            if let Some(row) = published.clients.get_mut(&info.id.0) {
                row.measure(&info);
            }
            if session.as_resp().is_some_and(|session| {
                is_stuck(session, info.output_bytes, info.sent_bytes, self.now.mono, timeout)
            }) {
                tracing::warn!(
                    client = info.id.0,
                    "a client does not read what it has requested; disconnecting"
                );
                cx.abort(info.id);
                continue;
            }
            let session = session.protocol();
            // No other code path updates the charge after the output is sent.
            if session.is_subscriber() {
                let buffers = self.reactor.accounts.buffers(session.kind());
                buffers.charge_output(session.charges_mut(), info.output_bytes);
            }
            if is_output_over(&self.reactor.settings, session, info.output_bytes, self.now.mono) {
                cx.abort(info.id);
            }
        }
        let PublishedStats { timers, latency, .. } = &mut *published;
        latency.read(timers, &self.shared.request_kinds);
        let window_ns = self.now.mono.since(self.window_began);
        if window_ns >= WINDOW_NS {
            self.window_began = self.now.mono;
            published.end_window(window_ns);
        }
    }

    /// Publishes the counts of requests that ended in this turn without a read of their connection:
    /// their wait ended.
    pub(super) fn publish_counts(&mut self) {
        if self.reactor.tally.has_unpublished() {
            let mut published = self.shared.published[self.reactor.index].lock();
            self.reactor.tally.publish(&mut published, self.reactor.settings.latency_tracking);
        }
    }

    pub(super) fn record_writes(&mut self, cx: &Context<'_, Mail>) {
        let write_ns = cx.stats().write_ns;
        let ns = write_ns - std::mem::replace(&mut self.reactor.write_ns, write_ns);
        if ns > 0 && self.reactor.tally.has_unwritten() {
            let mut published = self.shared.published[self.reactor.index].lock();
            self.reactor.tally.written(&mut published, ns);
        }
    }

    pub(super) fn account_memory(&mut self) {
        let grown_bytes = std::mem::take(&mut self.reactor.store_bytes);
        self.reactor.accounts.store_grew(grown_bytes);
        let ServerState { pubsub, monitor_feeds, invalidations, keyspace, .. } = &*self.shared;
        let index = self.reactor.index;
        let mut message_bytes = pubsub.pending_bytes(index) + monitor_feeds.pending_bytes(index);
        message_bytes += invalidations.queued_bytes(index);
        if index == 0 {
            message_bytes += reader_bytes(keyspace.readers());
            message_bytes += pubsub.unmatched_bytes();
        }
        self.reactor.accounts.messages_hold(message_bytes as u64);
        self.release_replies();
    }

    /// Runs the background work of this reactor, `hz` times a second.
    pub(super) fn tick(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let hz = self.reactor.settings.hz.max(1) as u64;
        self.next_tick = MonoNs(self.now.mono.0 + 1_000_000_000 / hz);
        cx.set_timer(self.next_tick, TICK);
        self.meet_deadlines(cx, connections);
        // The spare reactor must not wait for a stripe.
        if !self.reactor.is_spare {
            self.expire_due();
            self.evict_surplus(cx);
            self.purge_old(hz);
        }
        self.reactor.leftovers.remove(&self.shared.keyspace);
        self.tidy_prepared();
        self.survey(cx, connections);
        self.account_memory();
        self.reactor.accounts.flush();
        self.reactor.refresh_room(&self.shared);
        self.reactor.limit_output(&self.shared);
        self.cql.write_request_lines();
        if self.reactor.index == 0 {
            self.follow_members();
            self.sample_rates();
        }
    }

    pub(super) fn sample_rates(&mut self) {
        let counters = self.shared.links().stats_sum();
        let commands = self.shared.totals().commands;
        let (input, output) = (counters.input_bytes, counters.output_bytes);
        let totals = [commands, input, output, counters.turns, counters.busy_ns];
        self.shared.rates.sample(self.now.mono, totals);
        let log = self.shared.log.stats();
        let lane_bytes: usize = log.lane_bytes.iter().sum();
        self.reactor.accounts.log_holds(lane_bytes as u64);
        if log.syncs > self.log_syncs && self.reactor.is_latency_event(log.sync_ns_last) {
            let took_ms = log.sync_ns_last / 1_000_000;
            self.shared.latency.lock().note(LatencyEvent::LogSync, self.now.unix, took_ms);
        }
        self.log_syncs = log.syncs;
        self.shared.consider_snapshot(&self.reactor.settings, self.now.mono);
    }

    /// Deletes expired keys in this reactor's share of the stripes.
    pub(super) fn expire_due(&mut self) {
        let is_on = self.reactor.settings.active_expire
            && !self.reactor.settings.import_mode
            && self.shared.active_expire.load(Ordering::Relaxed)
            && self.shared.pause.at(self.now.mono).is_none();
        if !is_on {
            return;
        }
        let reactors = self.shared.reactors.regular;
        let from = self.next_expiry_stripe;
        self.next_expiry_stripe = self.context().expire_cycle(from, reactors);
    }

    /// Evicts keys while memory is above the limit, without a write that asks for it: the limit
    /// was lowered, or something other than keys has grown.
    pub(super) fn evict_surplus(&mut self, cx: &mut Context<'_, Mail>) {
        self.has_surplus = self.context().evict_surplus();
        if self.has_surplus {
            cx.poll(); // continues in the next turn
        }
    }

    /// Purges expired cells and old deletions of CQL tables in this reactor's share of the stripes.
    fn purge_old(&mut self, hz: u64) {
        let reactors = self.shared.reactors.regular;
        let count = crate::engine::purge::stripes_per_tick(hz, reactors);
        let from = self.next_purge_stripe;
        self.next_purge_stripe = self.context().purge_cycle(from, reactors, count);
    }

    /// Builds missing table indexes, and drops obsolete ones, in this reactor's share of the
    /// stripes. Works for a limited time per turn, until all stripes are done.
    pub(super) fn settle_indexes(&mut self, cx: &mut Context<'_, Mail>) {
        let keyspace = &self.shared.keyspace;
        let generation = keyspace.index_generation();
        if generation != self.index_generation {
            self.index_generation = generation;
            self.next_index_stripe = self.reactor.index;
        }
        if self.next_index_stripe >= STRIPES {
            return;
        }
        let reactors = self.shared.reactors.regular;
        let start = self.reactor.clock.now();
        while self.next_index_stripe < STRIPES {
            let Some((trash, grown_bytes)) = keyspace.settle_indexes(self.next_index_stripe) else {
                // In a later turn, the next tick's at the latest.
                return;
            };
            self.reactor.store_bytes += grown_bytes;
            self.shared.free_thread.free(trash);
            self.next_index_stripe += reactors;
            if self.reactor.clock.has_passed_ms(start, self.reactor.clock.now()) {
                cx.poll();
                return;
            }
        }
    }

    /// Writes lines to the clients in MONITOR mode.
    pub(super) fn deliver_monitor_lines(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        lines: &[u8],
    ) {
        let hard_bytes = self.reactor.settings.client_output_buffer_limit.pubsub.hard_bytes;
        let has_lost = self.shared.monitor_feeds.taken(self.reactor.index, lines.len());
        for (id, _, session, out) in connections.iter() {
            if !session.as_resp().is_some_and(|session| session.monitor) {
                continue;
            }
            if has_lost {
                cx.abort(id); // the client could not detect the missing lines
                continue;
            }
            out.buffer().extend_from_slice(lines);
            if hard_bytes != 0 && out.pending_bytes() as u64 > hard_bytes {
                cx.abort(id); // output must not grow without bound until the next survey
            }
        }
    }

    pub(super) fn deliver_monitor_feed(&mut self) {
        if self.reactor.monitor_feed.is_empty() {
            return;
        }
        let lines: Arc<[u8]> = std::mem::take(&mut self.reactor.monitor_feed).into();
        let ServerState { monitor_feeds, .. } = &*self.shared;
        for (reactor, mailbox) in self.shared.links().mailboxes().iter().enumerate() {
            if monitor_feeds.add(reactor, lines.len())
                && mailbox.send(Mail::Monitor(Arc::clone(&lines))).is_err()
            {
                monitor_feeds.lose(reactor, lines.len());
            }
        }
    }
}

/// Whether the client's unread output exceeds `client-output-buffer-limit`.
fn is_output_over(
    settings: &Settings,
    session: &mut dyn Protocol,
    pending_bytes: usize,
    now: MonoNs,
) -> bool {
    let (since, limit) = session.output_limit(settings);
    let pending_bytes = pending_bytes as u64;
    if limit.soft_bytes == 0 || pending_bytes <= limit.soft_bytes {
        *since = None;
    } else if since.is_none() {
        *since = Some(now);
    }
    let soft_ns = limit.soft_seconds.saturating_mul(1_000_000_000);
    let is_over_soft = since.is_some_and(|since| now.since(since) >= soft_ns);
    is_over_soft || (limit.hard_bytes != 0 && pending_bytes > limit.hard_bytes)
}
