//! Connections that wait for keys, a point in time, a snapshot, or the end of CLIENT PAUSE.

use super::{DEADLINE_TIMER, PAUSE_TIMER, ReactorHandler, Session as AnySession};
use crate::commands::session::{ReplyMode, Session, Wait, WaitReply};
use crate::engine::blocked::BlockedReply;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::reactor_state::{is_gated, level_of_write};
use crate::engine::replication::Replication;
use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Level, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::resp::ReplyWriter;

impl ReactorHandler {
    /// Counts a connection as blocked by its last command, and sets its timer. A client that
    /// receives a file is not blocked.
    pub(super) fn begin_wait(&mut self, cx: &mut Context<'_, Mail>, session: &mut Session) {
        if session.wait == Some(Wait::Transfer) {
            return;
        }
        self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
        // The maximum time means no deadline: only CLIENT UNBLOCK or a disconnect ends the wait.
        if let Some(Wait::Until { at, reply }) = session.wait {
            if matches!(reply, WaitReply::Replicas(_)) {
                self.replica_waits.clients.push(session.id);
            }
            let retry_at = session.details.blocked().map(|client| client.retry_at());
            self.wake_before(cx, session.id, at.min(retry_at.unwrap_or(at)));
        }
    }

    /// Replies OK, or an error, to all clients that wait for the same.
    pub(super) fn end_waits(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        wait: Wait,
        (error, gate): (Option<&str>, Gate),
    ) {
        for (_, _, session, out) in connections.iter() {
            let Some(session) = session.as_resp().filter(|one| one.wait == Some(wait)) else {
                continue;
            };
            if let Some(error) = error {
                self.reactor.tally.error(Some(session.last_command), error);
            }
            session.last_gate = session.last_gate.max(gate);
            let write = |writer: &mut ReplyWriter<'_>| match error {
                None => writer.ok(),
                Some(error) => writer.error(error),
            };
            self.end_wait(cx, session, write, out);
        }
    }

    fn wake_before(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, at: MonoNs) {
        if at != MonoNs(u64::MAX) {
            self.wake_at(cx, id, at);
        }
    }

    /// Runs a waiting request again at the time that it has set. `deadline`: of the wait.
    pub(super) fn retry(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &Session,
        deadline: MonoNs,
    ) {
        let Some(client) = session.details.blocked().cloned() else { return };
        let retry_at = self.context().retry(&client).max(MonoNs(self.now.mono.0 + 1));
        self.wake_before(cx, session.id, deadline.min(retry_at));
    }

    /// Schedules a call to [`super::protocol::Protocol::wake`] for a connection.
    pub(super) fn wake_at(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, at: MonoNs) {
        self.deadlines.set(id, at);
        self.arm_deadlines(cx);
    }

    fn arm_deadlines(&mut self, cx: &mut Context<'_, Mail>) {
        if let Some(at) = self.deadlines.timer(self.now.mono, self.next_tick) {
            cx.set_timer(at, DEADLINE_TIMER);
        }
    }

    /// Wakes the connections whose deadlines have passed.
    pub(super) fn meet_deadlines(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        while let Some(id) = self.deadlines.take_due(self.now.mono) {
            if let Some((session, out)) = connections.get_mut(id) {
                session.protocol().wake(self, cx, out);
            }
        }
        self.arm_deadlines(cx);
    }

    /// Sends the reply of a MIGRATE, after its deletions are on disk.
    pub(super) fn end_migration(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        error: Option<&str>,
        gate: Gate,
    ) {
        let Some((session, out)) = connections.get_mut(id) else { return };
        let waiting = Some(Wait::Migration);
        let Some(session) = session.as_resp().filter(|session| session.wait == waiting) else {
            return;
        };
        if let Some(error) = error {
            self.reactor.tally.error(Some(session.last_command), error);
        }
        let level = level_of_write(session.durability);
        if is_gated(session.durability) {
            session.last_gate = session.last_gate.max(gate);
            if !self.reactor.is_open(gate, level) {
                self.reactor.note_gate(gate, level, session.last_command);
            }
        }
        let write = |writer: &mut ReplyWriter<'_>| match error {
            None => writer.ok(),
            Some(error) => writer.error(error),
        };
        self.end_wait_at(cx, session, level, write, out);
    }

    /// Serves the clients that are blocked on keys which changed in this turn, and sends the replies
    /// to those of this reactor.
    pub(super) fn serve_blocked(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        if self.reactor.index == 0 {
            self.shared.blocked.take_changed_elsewhere(&mut self.record.changed.ready);
        }
        self.context().serve_blocked();
        if !self.record.changed.ready.is_empty() {
            cx.poll(); // the rest follows in the next turn
        }
        for client in self.shared.blocked.take_served(self.reactor.index) {
            let Some((session, out)) = connections.get_mut(client.connection.id) else { continue };
            let (Some(session), Some(reply)) = (session.as_resp(), client.take_reply()) else {
                continue;
            };
            session.last_write = reply.written.unwrap_or(session.last_write);
            session.last_gate = session.last_gate.max(reply.gate);
            let level = match reply.written {
                Some(_) => level_of_write(session.durability),
                None => self.reactor.level(session.durability),
            };
            if !self.reactor.is_open(reply.gate, level) {
                self.reactor.note_gate(reply.gate, level, session.last_command);
            }
            session.leave_keys(&self.shared, &mut self.reactor);
            let BlockedReply { bytes, charge, .. } = reply;
            let write = |writer: &mut ReplyWriter<'_>| {
                // A reply may have a gigabyte.
                if writer.out.is_empty() {
                    *writer.out = bytes;
                } else {
                    writer.out.extend_from_slice(&bytes);
                }
            };
            self.end_wait_at(cx, session, level, write, out);
            drop(charge);
        }
    }

    /// Resumes the connections that a pause stopped when it has ended, and sets a timer for the
    /// pause in effect. A different pause may stop fewer of them.
    pub(super) fn end_pause(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        if self.postponed.is_empty() {
            return;
        }
        if let Some(pause) = self.shared.pause.at(cx.now().mono) {
            if pause.until == self.pause_timer {
                return;
            }
            self.pause_timer = pause.until;
            cx.set_timer(pause.until, PAUSE_TIMER);
        }
        for id in std::mem::take(&mut self.postponed) {
            let Some((session, _)) = connections.get_mut(id) else { continue };
            session.protocol().end_pause();
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
            cx.resume(id);
        }
    }

    /// Ends the wait of a client: with an error, or as if its time had passed.
    pub(super) fn unblock(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        error: Option<&'static str>,
    ) {
        let Some((session, out)) = connections.get_mut(id) else { return };
        let Some(session) = session.as_resp() else { return };
        let Some(Wait::Until { reply, .. }) = session.wait else { return };
        if !session.stop_waiting(&self.shared, &mut self.reactor, self.now) {
            // Its request is running again: decide when that has ended.
            let mail = Mail::Unblock { id, error };
            if self.shared.links().mailboxes()[self.reactor.index].send(mail).is_err() {
                tracing::warn!(client = id.0, "could not deliver an unblock request to a reactor");
            }
            return;
        }
        if let Some(error) = error {
            self.reactor.tally.error(Some(session.last_command), error);
        }
        let shared = Arc::clone(&self.shared);
        let write = |writer: &mut ReplyWriter<'_>| match error {
            Some(error) => writer.error(error),
            None => write_wait_reply(writer, &shared.replication, reply),
        };
        self.end_wait(cx, session, write, out);
    }

    /// Ends a connection's wait, appends the reply of a read, and resumes the connection.
    pub(super) fn end_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        write: impl FnOnce(&mut ReplyWriter<'_>),
        out: &mut Output,
    ) {
        let level = match session.wait {
            Some(Wait::Until { reply: WaitReply::Delayed, .. }) => {
                level_of_write(session.durability)
            }
            _ => self.reactor.level(session.durability),
        };
        self.end_wait_at(cx, session, level, write, out);
    }

    /// Ends a connection's wait with a reply that is sent when a level has reached the gate.
    fn end_wait_at(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        level: Level,
        write: impl FnOnce(&mut ReplyWriter<'_>),
        out: &mut Output,
    ) {
        let delayed = session.details.rare_if_set().and_then(|rare| rare.delayed_reply.take());
        self.forget_replica_wait(session);
        session.count_pending(&self.shared, &mut self.reactor, self.now);
        session.wait = None;
        self.deadlines.cancel(session.id);
        self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        let mode = session.reply_mode;
        if mode == ReplyMode::Skip {
            session.reply_mode = ReplyMode::On;
        }
        if mode == ReplyMode::On {
            match delayed {
                None => write(&mut ReplyWriter::new(out.buffer(), session.protocol)),
                Some(reply) => out.buffer().extend_from_slice(&reply),
            }
        }
        self.reactor.accounts.resp().charge_output(&mut session.charges, out.pending_bytes());
        out.hold(level, session.last_gate.position());
        cx.resume(session.id);
        let mut published = self.shared.published[cx.index()].lock();
        if let Some(row) = published.clients.get_mut(&session.id.0) {
            session.update_row(row, cx.now().mono);
        }
    }
}

pub(super) fn write_wait_reply(
    writer: &mut ReplyWriter<'_>,
    replication: &Replication,
    reply: WaitReply,
) {
    match reply {
        WaitReply::Replicas(wait) => wait.write(writer, replication),
        WaitReply::Ok => writer.ok(),
        WaitReply::NullArray => writer.null_array(),
        // `end_wait` writes it; absent if the log failed and an error was sent instead.
        WaitReply::Delayed => {}
    }
}
