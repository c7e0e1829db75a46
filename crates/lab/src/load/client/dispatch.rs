//! Dispatching: callers that wait for a connection, and due requests of a schedule.

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Output};

use super::super::shared::Mail;
use super::super::spec::Sharing;
use super::{At, Client, Session, TIMER_ARRIVAL};

/// Limit of unsent bytes on a connection for further requests of an open loop.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// Requests of an open loop that a thread sends in one turn.
const LAUNCHES_MAX: usize = 4096;

impl Client {
    /// Assigns free connections to waiting users.
    pub(super) fn dispatch(&mut self, connections: &mut Connections<'_, Session>, at: At) {
        match (self.arrivals.is_some(), self.plan.sharing) {
            (false, _) => self.dispatch_users(connections, at),
            (true, Sharing::Blocking) => self.dispatch_due(connections, at),
            (true, Sharing::Multiplexed) => self.spread_due(connections, at),
        }
    }

    fn dispatch_users(&mut self, connections: &mut Connections<'_, Session>, at: At) {
        while !self.waiting.is_empty() {
            let Some((id, _)) = self.free.pop() else { return };
            let Some((session, out)) = connections.get_mut(id) else { continue };
            let Some(user) = self.waiting.pop_front() else { return };
            if !self.launch(session, user, at, out) {
                // No more requests are sent.
                self.waiting.clear();
            }
        }
    }

    fn dispatch_due(&mut self, connections: &mut Connections<'_, Session>, at: At) {
        let pipeline = self.plan.pipeline as usize;
        let mut launched = 0;
        while self.due(at).is_some() && launched < LAUNCHES_MAX {
            let Some((id, free_since_ns)) = self.free.pop() else { return };
            let Some((session, out)) = connections.get_mut(id) else { continue };
            let count = self.launch_due(session, pipeline, free_since_ns, at, out);
            if count == 0 {
                self.free.push((id, free_since_ns));
                return;
            }
            launched += count;
        }
    }

    /// Sends requests to the connections in turn, regardless of their requests in flight.
    fn spread_due(&mut self, connections: &mut Connections<'_, Session>, at: At) {
        // Requests that waited for capacity are not late because of the generator.
        let ready_ns = if std::mem::take(&mut self.was_full) { at.now_ns } else { 0 };
        let (mut full, mut launched) = (0, 0);
        while self.due(at).is_some() && launched < LAUNCHES_MAX {
            if full == self.ids.len() {
                self.was_full = true;
                return;
            }
            self.turn = (self.turn + 1) % self.ids.len();
            let Some((session, out)) = connections.get_mut(self.ids[self.turn]) else {
                full += 1;
                continue;
            };
            if session.flights.is_full() || out.pending_bytes() >= UNSENT_BYTES_MAX {
                full += 1;
                continue;
            }
            full = 0;
            launched += 1;
            if self.launch_due(session, 1, ready_ns, at, out) == 0 {
                return;
            }
        }
    }

    /// Handles an idle connection of an open loop: it sends a due request, or waits.
    pub(super) fn reuse(&mut self, id: ConnId, session: &mut Session, at: At, out: &mut Output) {
        if self.plan.sharing == Sharing::Multiplexed || !session.flights.is_empty() {
            return;
        }
        let pipeline = self.plan.pipeline as usize;
        if self.launch_due(session, pipeline, at.now_ns, at, out) == 0 {
            self.free.push((id, at.now_ns));
        }
    }

    /// Sets a timer for the next due request. If a request is due but was not sent, it waits for a
    /// reply or for capacity, which cause a turn by themselves, or for the next turn.
    pub(super) fn set_alarm(&mut self, cx: &mut Context<'_, Mail>, at: At) {
        let Some(arrivals) = &self.arrivals else { return };
        let next_ns = arrivals.next_ns();
        if next_ns > at.now_ns && next_ns < at.phase.until_ns && next_ns < self.timer_ns {
            self.timer_ns = next_ns;
            cx.set_timer(MonoNs(next_ns), TIMER_ARRIVAL);
        }
        let may_send = !self.was_full && !self.shared.is_spent() && self.can_send();
        if may_send && self.due(at).is_some() {
            cx.poll();
        }
    }

    /// Whether a connection appears to be free.
    fn can_send(&self) -> bool {
        match self.plan.sharing {
            Sharing::Blocking => !self.free.is_empty() || self.can_dial(),
            Sharing::Multiplexed => !self.ids.is_empty(),
        }
    }
}
