//! Timeouts of client connections: disconnects clients that send or read too slowly.
//!
//! A periodic sweep checks all connections, so requests incur no cost. A connection may exceed its
//! limit by one interval.

use base::time::MonoNs;
use reactor::{ConnId, ConnInfo, Connections, Context};

use super::client::{Client, Wait};
use super::disk::Mail;
use super::pace::{Demand, Pace};
use super::server::{Server, Session};

/// Limits of the sweep interval.
const SWEEP_NS_MIN: u64 = 20_000_000;
const SWEEP_NS_MAX: u64 = 1_000_000_000;
/// Sweep interval while the worker ends.
const DRAIN_SWEEP_NS: u64 = 50_000_000;
/// Grace period for idle clients since the worker began to end. A client that sends a request in
/// this time gets a response, which announces the end of the connection.
const DRAIN_IDLE_NS: u64 = 500_000_000;

/// Maximum number of connections closed in one sweep, so that many simultaneous timeouts do not
/// delay other clients; the next sweep continues.
const CLOSED_PER_SWEEP_MAX: usize = 256;
/// A disk operation that takes longer is considered failed.
const DISK_NS_MAX: u64 = 30_000_000_000;

/// Reason for closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stay,
    /// No request is pending: close without a response.
    Close,
    /// A request arrived too slowly: 408.
    Slow,
    /// A response is not read, or never arrives.
    Abort,
}

impl Server {
    pub(super) fn sweep_interval_ns(&self) -> u64 {
        if self.drain.is_some() {
            return if self.has_overdue { SWEEP_NS_MIN } else { DRAIN_SWEEP_NS };
        }
        let config = &self.config;
        let times = [
            config.head_timeout_ms,
            config.idle_timeout_ms,
            config.write_timeout_ms,
            config.upstream_timeout_ms,
            config.upstream_queue_timeout_ms,
            config.websocket_idle_timeout_ms,
        ];
        let least_ms = times.into_iter().min().unwrap_or(1);
        let is_short = self.rests_until.is_some() || self.has_overdue;
        let rest_ns = if is_short { SWEEP_NS_MIN } else { SWEEP_NS_MAX };
        (least_ms.saturating_mul(1_000_000) / 8).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX).min(rest_ns)
    }

    /// Checks all connections.
    pub(super) fn sweep(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let now = cx.now().mono;
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            self.resume_accepting();
        }
        let mut slow: Vec<ConnId> = Vec::new();
        let mut let_go = 0;
        self.has_overdue = false;
        for (info, session) in connections.list() {
            let Session::Client(client) = session else { continue };
            if info.is_in_handshake && client.wait == Wait::First {
                // The handshake has its own time limit, even while the worker ends. No request is
                // possible before it completes.
                client.since = now;
            }
            let verdict = if info.output_bytes != 0 || info.attached_bytes != 0 {
                self.check_reader(client, info.sent_bytes, now)
            } else {
                client.pace = None;
                self.check_wait(client, &info, now)
            };
            if verdict == Verdict::Stay {
                continue;
            }
            if let_go == CLOSED_PER_SWEEP_MAX {
                self.has_overdue = true;
                break;
            }
            let_go += 1;
            client.wait = Wait::End;
            match verdict {
                Verdict::Stay => {}
                Verdict::Close => cx.close(info.id),
                Verdict::Abort => cx.reset(info.id),
                Verdict::Slow => slow.push(info.id),
            }
        }
        for id in slow {
            self.answer_slow(cx, connections, id);
        }
        self.limit_memory(cx, connections);
        self.proxy.sweep(cx);
        self.rejections.descriptors += self.intake.take_refused();
        self.rejections.queue_timeouts += self.proxy.take_timed_out();
        self.refused.add(self.rejections);
        self.rejections.report();
        self.ledger.flush();
    }

    /// Checks a client with pending output.
    fn check_reader(&self, client: &mut Client, taken_bytes: u64, now: MonoNs) -> Verdict {
        if client.wait == Wait::Idle {
            // The wait for its next request begins when it has read the response.
            client.since = now;
        }
        let demand = Demand {
            window_ns: self.config.write_timeout_ms.saturating_mul(1_000_000),
            rate_min: self.config.write_rate_min,
        };
        let pace = client.pace.get_or_insert_with(|| Pace::begin(taken_bytes, now));
        if pace.falls_short(taken_bytes, now, demand) { Verdict::Abort } else { Verdict::Stay }
    }

    fn check_wait(&self, client: &Client, info: &ConnInfo, now: MonoNs) -> Verdict {
        let waited_ns = now.since(client.since);
        let head_ns = self.config.head_timeout_ms.saturating_mul(1_000_000);
        let idle_ns = self.config.idle_timeout_ms.saturating_mul(1_000_000);
        let drained_ns = self.drain.map_or(0, |drain| now.since(drain.began));
        match client.wait {
            Wait::Idle => {
                let is_idle = waited_ns > idle_ns;
                let is_left = waited_ns.min(drained_ns) > DRAIN_IDLE_NS;
                if is_idle || is_left { Verdict::Close } else { Verdict::Stay }
            }
            Wait::First => {
                let is_left = waited_ns.min(drained_ns) > DRAIN_IDLE_NS;
                if waited_ns > head_ns || is_left { Verdict::Close } else { Verdict::Stay }
            }
            Wait::Head if waited_ns > head_ns => Verdict::Slow,
            Wait::Disk if waited_ns > DISK_NS_MAX => Verdict::Abort,
            Wait::Head | Wait::Upstream | Wait::Tunnel | Wait::Disk | Wait::Turn | Wait::End => {
                Verdict::Stay
            }
            Wait::Body => {
                let earned_ns = (info.input_bytes as u64).saturating_mul(1_000_000_000);
                let earned_ns = earned_ns / self.config.body_rate_min;
                // An early burst of data does not permit hours of silence afterwards.
                let is_silent = now.since(info.last_activity) > idle_ns;
                let is_slow = is_silent || waited_ns > head_ns.saturating_add(earned_ns);
                if is_slow { Verdict::Slow } else { Verdict::Stay }
            }
        }
    }

    fn answer_slow(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        id: ConnId,
    ) {
        let now = cx.now();
        if let Some((Session::Client(client), out)) = connections.get_mut(id) {
            let words = "the request was not received in time";
            let sent = self.site.refuse_with(408, words, now, out.buffer());
            self.ledger.note_no_request(client.remote, sent, now);
        }
        cx.close(id);
    }

    /// Ends the worker when its last connection has closed, or its time limit has passed.
    pub(super) fn end_if_drained(&mut self, cx: &mut Context<'_, Mail>) {
        let Some(drain) = self.drain else { return };
        let now = cx.now().mono;
        if self.all_clients() == 0 {
            // Connections passed on by workers that did not know of the shutdown.
            self.take_mail(cx);
        }
        if (self.all_clients() == 0 && !cx.has_arrivals()) || drain.until <= now {
            if self.clients != 0 {
                tracing::warn!(connections = self.clients, "closing remaining connections");
            }
            self.ledger.flush();
            self.publish();
            cx.end(now);
        }
    }
}
