//! The serving loop of all protocols: backpressure, turns, pauses and memory accounting.

use std::sync::atomic::Ordering;

use reactor::{Context, Flow, Next, Output};

use super::ReactorHandler;
use super::protocol::{Obstacle, Protocol, Step, Then};
use crate::engine::mail::Mail;

impl ReactorHandler {
    /// Serves the input of one connection after a read or a pause.
    pub(super) fn serve(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut dyn Protocol,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let started = self.begin_read(cx);
        self.reactor.stamp = started;
        self.reactor.backlog = None;
        self.update_output_charge(session, out);
        let mut consumed = 0;
        let mut waits_for_keys = false;
        let next = loop {
            let step = session.step(self, cx, &input[consumed..], started, out);
            consumed += step.consumed;
            debug_assert!(consumed <= input.len(), "a step consumes what it was given");
            if self.reactor.has_new_settings {
                self.derive_params();
            }
            break match step.then {
                Then::Step if self.reactor.must_yield(started, out.pending_bytes()) => Next::Again,
                Then::Step if consumed == input.len() => Next::Read { needed: 0 },
                Then::Step => continue,
                Then::Read { needed } => Next::Read { needed },
                Then::Turn => Next::Again,
                Then::Leave => Next::Leave,
                Then::Pause(obstacle) => {
                    session.pause(obstacle);
                    match obstacle {
                        Obstacle::LogSpace => {
                            self.waiting_for_log_space.push(session.id());
                            self.shared.log.request_write();
                        }
                        Obstacle::ClientPause => {
                            self.postponed.insert(session.id());
                            self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
                        }
                        Obstacle::Keys => {
                            waits_for_keys = true;
                            self.add_contended(session.id());
                        }
                    }
                    Next::Pause
                }
                Then::Wait => Next::Pause,
                Then::Close => Next::Close,
                Then::Abort => Next::Abort,
            };
        };
        if !waits_for_keys {
            self.remove_contended(session.id());
        }
        self.shared.activities.end(self.reactor.index);
        let next = self.charge(session, input.len() - consumed, out).unwrap_or(next);
        let (now, id, kinds) = (self.now.mono, session.id(), &self.shared.request_kinds);
        self.reactor.publish(&self.shared, id, |row| session.update_row(row, now, kinds));
        Flow { consumed, next: self.hold_publisher(id, next) }
    }

    /// Updates the charge for unread replies, of which the peer may have read some. Otherwise they
    /// would still limit the size of the next reply.
    #[inline]
    fn update_output_charge(&mut self, session: &mut dyn Protocol, out: &Output) {
        if session.charges().has_output() {
            let output = out.pending_bytes() + session.kept_bytes().1;
            let buffers = self.reactor.accounts.buffers(session.kind());
            buffers.charge_output(session.charges_mut(), output);
        }
    }

    /// Ends the reservations for replies, which are charged to their connections.
    #[inline]
    pub(super) fn release_replies(&self) {
        let _ = (self.resp_replies.release(), self.http_replies.release());
    }

    /// Charges the connection for its buffers. Ends the connection if there is no memory for its
    /// input.
    fn charge(
        &mut self,
        session: &mut dyn Protocol,
        unread: usize,
        out: &mut Output,
    ) -> Option<Next> {
        let (input, output) = session.kept_bytes();
        let (input, output) = (unread + input, out.pending_bytes() + output);
        let buffers = self.reactor.accounts.buffers(session.kind());
        let charged = buffers.charge(session.charges_mut(), input, output);
        self.release_replies();
        let reached = charged.err()?;
        Some(session.reject(self, &reached, out))
    }
}

impl Step {
    pub(super) fn new(consumed: usize, then: Then) -> Step {
        Step { consumed, then }
    }
}
