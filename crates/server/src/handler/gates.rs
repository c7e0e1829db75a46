//! Between replies and the log: which group to ask for, which gates are open, what a failed log means.

use super::{ReactorHandler, Session};
use crate::engine::gate::Gate;
use crate::engine::latency::LatencyEvent;
use crate::engine::mail::Mail;
use base::stages::Stage;
use binlog::Lsn;
use reactor::{ConnId, Connections, Context};

/// Reads of connections between two groups up to which the reactor stays awake in between.
const AWAKE_REQUESTS_MAX: u32 = 4;

/// What a reactor stays awake for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Log,
    /// The next request of those that got their replies.
    Peers,
}

/// Longest time for which a busy reactor gathers requests before it asks the log for a group. An idle
/// reactor asks at once. See `docs/decisions/0001-gather-before-a-group.md`.
const GATHER_NS_MAX: u64 = 1_000_000;

impl ReactorHandler {
    /// Tells the log what this turn wants of it, and opens the gates that it has reached.
    pub(super) fn settle_with_log(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        // A turn in which only the log has called has told nobody the time yet.
        self.refresh(cx.now());
        let durable = self.shared.log.durable();
        self.worker.durable = durable;
        cx.set_level(durable.0);
        self.release_parked(cx, connections);
        self.record_log_waits(durable);
        if self.log_spin.is_waiting() && self.asked_gate.is_open_at(durable) {
            self.log_spin.end(self.now.mono, self.awake_ns_max());
            self.stay_awake(cx, Awaited::Peers);
            self.served_since_group = 0;
        }
        if !self.worker.gate_max.is_open_at(durable) && !self.gathers(cx) {
            self.stay_awake(cx, Awaited::Log);
            let log = &self.shared.log;
            if let Some(lsn) = self.worker.gate_max.lsn() {
                log.request_sync(lsn);
            }
            log.wake_when_durable(self.worker.index, Lsn(durable.0 + 1));
            if log.poisoned().is_some() {
                self.give_up_held_replies(cx, connections);
            }
        }
        if !self.waiting_for_log_space.is_empty() && self.has_log_space() {
            for id in std::mem::take(&mut self.waiting_for_log_space) {
                let Some((session, _)) = connections.get_mut(id) else { continue };
                session.protocol().end_pause();
                cx.resume(id);
            }
        }
    }

    /// How long the reactor may stay awake for one thing.
    pub(super) fn awake_ns_max(&self) -> u64 {
        self.worker.settings.log_spin_us.saturating_mul(1000)
    }

    /// Whether a group should wait for requests that are ready on this reactor right now. A group
    /// costs its core about 20 us, so while there is work it is worth more members: the reactor
    /// looks once more, and asks for the group when nothing was ready, or after a moment.
    pub(super) fn gathers(&mut self, cx: &mut Context<'_, Mail>) -> bool {
        let gate_max = self.worker.gate_max;
        if gate_max <= self.asked_gate {
            return false;
        }
        let since = *self.gathering_since.get_or_insert(self.now.mono);
        if std::mem::take(&mut self.served) && self.now.mono.since(since) < GATHER_NS_MAX {
            cx.poll();
            return true;
        }
        self.gathering_since = None;
        self.asked_gate = gate_max;
        false
    }

    /// Has the reactor stay awake for a log and for peers that answer soon: letting a core sleep and
    /// waking it again can take longer than what is waited for. Only while few requests come, as more
    /// of them are served better together. See `docs/decisions/0002-stay-awake-for-a-group.md`.
    fn stay_awake(&mut self, cx: &mut Context<'_, Mail>, awaited: Awaited) {
        let awake_ns_max = self.awake_ns_max();
        let spin = match awaited {
            Awaited::Log => &mut self.log_spin,
            Awaited::Peers => &mut self.peer_spin,
        };
        spin.begin(self.now.mono);
        let awake_ns = spin.awake_ns(self.now.mono, awake_ns_max);
        // Who waits for a slow disk anyway does not notice how fast a core wakes up.
        if self.log_answers_soon() && self.served_since_group <= AWAKE_REQUESTS_MAX {
            cx.spin(awake_ns);
        }
    }

    /// Whether the log does what it is asked for so soon that staying awake pays.
    pub(crate) fn log_answers_soon(&self) -> bool {
        self.log_spin.is_short(self.awake_ns_max())
    }

    /// The log will never reach some gates: nobody can say whether those writes will be found after
    /// a restart, so their connections are closed without an answer.
    pub(super) fn give_up_held_replies(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if !self.log_failed {
            self.log_failed = true;
            tracing::error!("the log has failed: writes are refused from now on");
        }
        let held: Vec<ConnId> = connections
            .list()
            .filter(|(info, session)| {
                info.held_bytes > 0 || session.as_protocol().kept_bytes().1 > 0
            })
            .map(|(info, _)| info.id)
            .collect();
        for id in held {
            cx.abort(id);
        }
        self.worker.gate_max = Gate::at(self.worker.durable);
    }

    pub(super) fn record_log_waits(&mut self, durable: Lsn) {
        let waits = &mut self.worker.log_waits;
        if waits.front().is_none_or(|wait| !wait.gate.is_open_at(durable)) {
            return;
        }
        let stamp = self.worker.clock.now();
        let mut longest_ns = 0;
        let mut published = self.shared.published[self.worker.index].lock();
        while let Some(wait) = waits.front().filter(|wait| wait.gate.is_open_at(durable)) {
            let ns = self.worker.clock.delta_ns(wait.since, stamp);
            published.timers.record_n(usize::from(wait.command), Stage::WaitForLog, ns, wait.count);
            longest_ns = longest_ns.max(ns);
            waits.pop_front();
        }
        drop(published);
        if self.worker.is_latency_event(longest_ns) {
            let ms = longest_ns / 1_000_000;
            self.shared.latency.lock().note(LatencyEvent::LogSync, self.now.unix, ms);
        }
    }
}
