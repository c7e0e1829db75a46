//! Requests, and keys that clients are blocked on, whose data another reactor has held for too long:
//! they run again later, so that this reactor serves others.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context};

use super::{CONTENDED_TIMER, ReactorHandler, Session};
use crate::engine::mail::Mail;
use crate::engine::reactor_state::RETRY_NS;

/// The pause between two attempts doubles up to this: each decodes the request again.
const RETRY_NS_MAX: u64 = 16_000_000;

/// Connections with such requests, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Contended {
    queue: VecDeque<ConnId>,
    /// The open ones.
    open: HashSet<ConnId>,
    /// When all of them run again, if that is determined.
    retry_at: Option<MonoNs>,
    /// The last pause; 0: there was no attempt without success.
    pause_ns: u64,
}

impl ReactorHandler {
    pub(super) fn add_contended(&mut self, id: ConnId) {
        self.contended.queue.push_back(id);
        self.contended.open.insert(id);
        self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_contended(&mut self, id: ConnId) {
        if self.contended.open.remove(&id) {
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs what is contended again when the pause has ended.
    pub(super) fn retry_contended(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.contended.open.is_empty() && self.reactor.contended_keys.is_empty() {
            self.contended = Contended::default();
            return;
        }
        let now = cx.now().mono;
        let Some(at) = self.contended.retry_at else {
            let pause_ns = (self.contended.pause_ns * 2).clamp(RETRY_NS, RETRY_NS_MAX);
            // The turn began before its waits.
            let at = MonoNs(now.0 + self.reactor.lock_waits_ns() + pause_ns);
            (self.contended.retry_at, self.contended.pause_ns) = (Some(at), pause_ns);
            cx.set_timer(at, CONTENDED_TIMER);
            return;
        };
        if now < at {
            return;
        }
        self.contended.retry_at = None;
        self.record.changed.ready.extend(self.reactor.contended_keys.drain(..));
        for id in std::mem::take(&mut self.contended.queue) {
            if !self.contended.open.contains(&id) {
                continue;
            }
            self.remove_contended(id);
            if let Some((session, _)) = connections.get_mut(id) {
                session.protocol().end_pause();
                cx.resume(id);
            }
        }
    }
}
