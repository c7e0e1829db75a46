//! Reply gates: requests group commits, opens gates that became durable, and handles log failure.

use super::{ReactorHandler, Session};
use crate::engine::gate::Gate;
use crate::engine::latency::LatencyEvent;
use crate::engine::mail::Mail;
use base::stages::Stage;
use binlog::Lsn;
use reactor::{ConnId, ConnInfo, Connections, Context, Level};

/// Maximum connection reads between two groups at which the reactor still spins.
const AWAKE_REQUESTS_MAX: u32 = 4;

/// The event for which a reactor spins.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Log,
    /// The next request of the clients that received their replies.
    Peers,
}

/// Maximum time for which a busy reactor gathers requests before it requests a group commit. An
/// idle reactor requests one immediately. See `docs/decisions/0001-gather-before-a-group.md`.
const GATHER_NS_MAX: u64 = 1_000_000;

impl ReactorHandler {
    /// Requests the log sync that this turn needs, and opens the gates that are now durable.
    pub(super) fn settle_with_log(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        // The time is stale if only the log woke the reactor in this turn.
        self.refresh(cx.now());
        self.reactor.refresh_positions(&self.shared);
        cx.set_level(Level::Local, self.reactor.durable.0);
        self.settle_with_replicas(cx, connections);
        self.release_parked(cx, connections);
        let durable = self.reactor.durable;
        self.record_log_waits(durable);
        if self.log_spin.is_waiting() && self.requested_gate.is_open_at(durable) {
            self.log_spin.end(self.now.mono, self.awake_ns_max());
            self.stay_awake(cx, Awaited::Peers);
            self.served_since_group = 0;
        }
        if !self.reactor.gate_max.is_open_at(durable) && !self.gathers(cx) {
            self.stay_awake(cx, Awaited::Log);
            let log = &self.shared.log;
            if let Some(lsn) = self.reactor.gate_max.lsn() {
                log.request_sync(lsn);
            }
            log.wake_when_durable(self.reactor.index, Lsn(durable.0 + 1));
            if log.poisoned().is_some() {
                self.fail_log();
                close_held_replies(cx, connections, Level::Local);
                self.reactor.gate_max = Gate::at(durable);
            }
        }
        self.reactor.write_for_replicas(&self.shared);
        if !self.waiting_for_log_space.is_empty() && !self.shared.is_lane_full(self.reactor.lane) {
            for id in std::mem::take(&mut self.waiting_for_log_space) {
                let Some((session, _)) = connections.get_mut(id) else { continue };
                session.protocol().end_pause();
                cx.resume(id);
            }
        }
    }

    /// Maximum time to spin for one event.
    pub(super) fn awake_ns_max(&self) -> u64 {
        self.reactor.settings.log_spin_us.saturating_mul(1000)
    }

    /// Whether to delay the group for requests that are ready on this reactor right now. A group
    /// costs about 20 us of CPU time, so a busy reactor adds more members first: it polls once
    /// more, and requests the group when no request was ready or `GATHER_NS_MAX` has elapsed.
    pub(super) fn gathers(&mut self, cx: &mut Context<'_, Mail>) -> bool {
        let gate_max = self.reactor.gate_max;
        if gate_max <= self.requested_gate {
            return false;
        }
        let since = *self.gathering_since.get_or_insert(self.now.mono);
        if std::mem::take(&mut self.served) && self.now.mono.since(since) < GATHER_NS_MAX {
            cx.poll();
            return true;
        }
        self.gathering_since = None;
        self.requested_gate = gate_max;
        false
    }

    /// Makes the reactor spin if the log or the clients usually respond soon: putting a core to
    /// sleep and waking it can take longer than the wait itself. Applies only at a low request
    /// rate, because batches are more efficient at a high one. See
    /// `docs/decisions/0002-stay-awake-for-a-group.md`.
    fn stay_awake(&mut self, cx: &mut Context<'_, Mail>, awaited: Awaited) {
        let awake_ns_max = self.awake_ns_max();
        let spin = match awaited {
            Awaited::Log => &mut self.log_spin,
            Awaited::Peers => &mut self.peer_spin,
        };
        spin.begin(self.now.mono);
        let awake_ns = spin.awake_ns(self.now.mono, awake_ns_max);
        // With a slow disk, the wake-up latency of a core does not matter.
        if self.is_log_fast() && self.served_since_group <= AWAKE_REQUESTS_MAX {
            cx.spin(awake_ns);
        }
    }

    /// Whether log syncs usually complete soon enough to spin for them.
    pub(crate) fn is_log_fast(&self) -> bool {
        self.log_spin.is_short(self.awake_ns_max())
    }

    /// Refuses writes from now on.
    fn fail_log(&mut self) {
        if !self.log_failed {
            self.log_failed = true;
            tracing::error!("the log has failed: writes are refused from now on");
        }
    }

    pub(super) fn record_log_waits(&mut self, durable: Lsn) {
        let waits = &mut self.reactor.log_waits;
        if waits.front().is_none_or(|wait| !wait.gate.is_open_at(durable)) {
            return;
        }
        let stamp = self.reactor.clock.now();
        let mut longest_ns = 0;
        let mut published = self.shared.published[self.reactor.index].lock();
        while let Some(wait) = waits.front().filter(|wait| wait.gate.is_open_at(durable)) {
            let ns = self.reactor.clock.delta_ns(wait.since, stamp);
            published.timers.record_n(usize::from(wait.command), Stage::WaitForLog, ns, wait.count);
            longest_ns = longest_ns.max(ns);
            waits.pop_front();
        }
        drop(published);
        if self.reactor.is_latency_event(longest_ns) {
            let ms = longest_ns / 1_000_000;
            self.shared.latency.lock().note(LatencyEvent::LogSync, self.now.unix, ms);
        }
    }
}

/// Closes the connections whose replies wait for a level that will not rise, without a reply:
/// the server cannot determine whether their writes will survive. What waits for the
/// remote level waits for the local one, too.
pub(super) fn close_held_replies(
    cx: &mut Context<'_, Mail>,
    connections: &mut Connections<'_, Session>,
    level: Level,
) -> usize {
    let is_held = |info: &ConnInfo, session: &Session| match level {
        Level::Local => info.held_bytes > 0 || session.as_protocol().kept_bytes().1 > 0,
        Level::Remote => info.waits_for_remote || session.waits_for_replicas(),
    };
    let held = connections.list().filter(|(info, session)| is_held(info, session));
    let held: Vec<ConnId> = held.map(|(info, _)| info.id).collect();
    for id in &held {
        cx.abort(*id);
    }
    held.len()
}
