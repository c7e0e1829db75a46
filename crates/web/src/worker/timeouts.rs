//! Time as clients feel it: who sends or takes too slowly is let go.
//!
//! All connections are looked at every so often; nothing is paid per request. A connection may live
//! longer than its time by one interval.

use base::time::MonoNs;
use reactor::{ConnId, ConnInfo, Connections, Context};

use super::client::{Client, Wait};
use super::disk::Mail;
use super::pace::{Demand, Pace};
use super::server::{Server, Session};

/// Connections are looked at this often, at least and at most.
const SWEEP_NS_MIN: u64 = 20_000_000;
const SWEEP_NS_MAX: u64 = 1_000_000_000;
/// While the worker ends.
const DRAIN_SWEEP_NS: u64 = 50_000_000;
/// A client that has asked for nothing for so long since the worker began to end is let go; one that
/// is about to ask gets its answer, and learns from it that the connection ends.
const DRAIN_IDLE_NS: u64 = 500_000_000;

/// Connections that are let go at one look, so that a crowd that came at once does not stop the others
/// when its time is over; the rest follows at the next look.
const LET_GO_MAX: usize = 256;
/// A disk that has not given a file by then does not.
const DISK_NS_MAX: u64 = 30_000_000_000;

/// Why a connection is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stay,
    /// Nothing was asked for: close without a word.
    Close,
    /// A request came too slowly: 408.
    Slow,
    /// An answer is not taken, or never comes.
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

    /// Looks at all connections.
    pub(super) fn sweep(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let now = cx.now().mono;
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            self.go_on_accepting();
        }
        let mut slow: Vec<ConnId> = Vec::new();
        let mut let_go = 0;
        self.has_overdue = false;
        for (info, session) in connections.list() {
            let Session::Client(client) = session else { continue };
            if info.is_in_handshake && client.wait == Wait::First {
                // The handshake has a time of its own, also while the worker ends. Nobody can ask before
                // it is over.
                client.since = now;
            }
            let verdict = if info.output_bytes != 0 || info.attached_bytes != 0 {
                self.judge_taker(client, info.sent_bytes, now)
            } else {
                client.pace = None;
                self.judge_wait(client, &info, now)
            };
            if verdict == Verdict::Stay {
                continue;
            }
            if let_go == LET_GO_MAX {
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
        self.proxy.sweep(cx);
        self.shed.descriptors += self.intake.take_refused();
        self.shed.queue_timeouts += self.proxy.take_timed_out();
        self.refused.add(self.shed);
        self.shed.report();
        self.ledger.flush();
    }

    /// Something is there to be taken.
    fn judge_taker(&self, client: &mut Client, taken_bytes: u64, now: MonoNs) -> Verdict {
        if client.wait == Wait::Idle {
            // It has its answer when it has taken it.
            client.since = now;
        }
        let demand = Demand {
            window_ns: self.config.write_timeout_ms.saturating_mul(1_000_000),
            rate_min: self.config.write_rate_min,
        };
        let pace = client.pace.get_or_insert_with(|| Pace::begin(taken_bytes, now));
        if pace.falls_short(taken_bytes, now, demand) { Verdict::Abort } else { Verdict::Stay }
    }

    fn judge_wait(&self, client: &Client, info: &ConnInfo, now: MonoNs) -> Verdict {
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
                // Who has sent most of it at once has not earned to be silent for hours.
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
            let words = "the request did not come in time";
            let sent = self.site.refuse_with(408, words, now, out.buffer());
            self.ledger.note_no_request(client.remote, sent, now);
        }
        cx.close(id);
    }

    /// Ends the worker when its last connection is gone, or its time is over.
    pub(super) fn end_if_drained(&mut self, cx: &mut Context<'_, Mail>) {
        let Some(drain) = self.drain else { return };
        let now = cx.now().mono;
        if self.all_clients() == 0 {
            // What another worker has passed on before it knew.
            self.take_mail(cx);
        }
        if (self.all_clients() == 0 && !cx.has_arrivals()) || drain.until <= now {
            if self.clients != 0 {
                tracing::warn!(connections = self.clients, "connections are cut off");
            }
            self.ledger.flush();
            self.publish();
            cx.end(now);
        }
    }
}
