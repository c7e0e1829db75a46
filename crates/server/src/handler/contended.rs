//! Requests, and keys that clients are blocked on, whose data another reactor has held for too long:
//! they run again later, so that this reactor serves others.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context};

use super::{CONTENDED_TIMER, ReactorHandler, Session};
use crate::engine::mail::Mail;
use crate::engine::reactor_state::RETRY_NS;

/// While a script is slow, the pause between two attempts doubles up to this: each decodes the request
/// again.
const RETRY_NS_MAX: u64 = 16_000_000;

/// Connections with such requests, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Contended {
    queue: VecDeque<ConnId>,
    /// Those whose request has not run, also while it is tried again: blocked clients for INFO.
    waiting: HashSet<ConnId>,
    /// When they run again unless a script is slow, and when they do in any case.
    retry_at: Option<(MonoNs, MonoNs)>,
    /// The last pause; 0: none since the queue was empty.
    pause_ns: u64,
}

impl ReactorHandler {
    pub(super) fn add_contended(&mut self, id: ConnId) {
        self.contended.queue.push_back(id);
        if self.contended.waiting.insert(id) {
            self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn remove_contended(&mut self, id: ConnId) {
        if !self.contended.waiting.is_empty() && self.contended.waiting.remove(&id) {
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs what is contended again when the pause has ended.
    pub(super) fn retry_contended(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.contended.waiting.is_empty() && !self.reactor.has_contended_keys() {
            // Almost every turn ends here.
            if self.contended.pause_ns != 0 || !self.contended.queue.is_empty() {
                self.contended = Contended::default();
            }
            return;
        }
        if self.contended.queue.is_empty() && !self.reactor.has_contended_keys() {
            return; // their requests will run, but their clients do not read
        }
        let now = cx.now().mono;
        let Some((check_at, retry_at)) = self.contended.retry_at else {
            let pause_ns = (self.contended.pause_ns * 2).clamp(RETRY_NS, RETRY_NS_MAX);
            // The turn began before its waits.
            let from = now.0 + self.reactor.lock_waits_ns();
            let check_at = MonoNs(from + RETRY_NS);
            self.contended.retry_at = Some((check_at, MonoNs(from + pause_ns)));
            self.contended.pause_ns = pause_ns;
            cx.set_timer(check_at, CONTENDED_TIMER);
            return;
        };
        if now < check_at {
            return;
        }
        if now < retry_at && self.shared.running_scripts.is_slow() {
            let check_at = MonoNs(now.0 + RETRY_NS);
            self.contended.retry_at = Some((check_at, retry_at));
            cx.set_timer(check_at, CONTENDED_TIMER);
            return;
        }
        self.contended.retry_at = None;
        self.record.changed.ready.extend(self.reactor.take_contended_keys());
        for id in std::mem::take(&mut self.contended.queue) {
            if !self.contended.waiting.contains(&id) {
                continue;
            }
            if let Some((session, _)) = connections.get_mut(id) {
                session.protocol().end_pause();
                cx.resume(id);
            }
        }
    }
}
