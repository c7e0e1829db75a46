//! Connections that wait for a point in time, a snapshot, or the end of CLIENT PAUSE.

use super::{PAUSE_TIMER, ReactorHandler, Session as AnySession};
use crate::commands::session::{ReplyMode, Session, Wait, WaitReply};
use crate::engine::mail::Mail;
use crate::engine::server_state::ServerState;
use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Output};
use std::sync::atomic::Ordering;
use wire::resp::ReplyWriter;

impl ReactorHandler {
    /// Counts a connection as blocked by its last command, and sets its timer.
    pub(super) fn begin_wait(&mut self, cx: &mut Context<'_, Mail>, session: &mut Session) {
        self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
        // The maximum time means no deadline: only CLIENT UNBLOCK or a disconnect ends the wait.
        if let Some(Wait::Until { at, .. }) = session.wait
            && at != MonoNs(u64::MAX)
        {
            self.wake_at(cx, session.id, at);
        }
    }

    /// Schedules a call to [`reactor::Handler::timer`] for a connection.
    pub(super) fn wake_at(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, at: MonoNs) {
        let token = self.next_token;
        self.next_token += 1;
        self.timed.insert(token, id);
        cx.set_timer(at, token);
    }

    /// Cancels the timer of a connection.
    pub(super) fn forget_time(&mut self, id: ConnId) {
        self.timed.retain(|_, waiting| *waiting != id);
    }

    /// Resumes the connections that CLIENT PAUSE stopped, or sets a timer if the pause has not
    /// ended.
    pub(super) fn end_pause(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        if self.postponed.is_empty() {
            return;
        }
        if let Some(until) = self.shared.pause.until(cx.now().mono) {
            if until != self.pause_timer {
                self.pause_timer = until;
                cx.set_timer(until, PAUSE_TIMER);
            }
            return;
        }
        for id in std::mem::take(&mut self.postponed) {
            let Some((session, _)) = connections.get_mut(id) else { continue };
            session.protocol().end_pause();
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
            cx.resume(id);
        }
    }

    /// Ends a connection's wait, appends the reply, and resumes the connection.
    pub(super) fn end_wait(
        shared: &ServerState,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        write: impl FnOnce(&mut ReplyWriter<'_>),
        out: &mut Output,
    ) {
        let delayed = session.details.delayed_reply.take();
        session.wait = None;
        shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        if session.reply_mode != ReplyMode::Off {
            match delayed {
                None => write(&mut ReplyWriter::new(out.buffer(), session.protocol)),
                Some(reply) => out.buffer().extend_from_slice(&reply),
            }
        }
        out.hold(session.last_gate.position());
        cx.resume(session.id);
        let mut published = shared.published[cx.index()].lock();
        if let Some(row) = published.clients.get_mut(&session.id.0) {
            session.update_row(row, cx.now().mono);
        }
    }
}

pub(super) fn write_wait_reply(writer: &mut ReplyWriter<'_>, reply: WaitReply) {
    match reply {
        WaitReply::Ok => writer.ok(),
        WaitReply::Integer(number) => writer.integer(number),
        WaitReply::Pair(local, replicas) => {
            writer.array(2);
            writer.integer(local);
            writer.integer(replicas);
        }
        // `end_wait` writes it; absent if the log failed and an error was sent instead.
        WaitReply::Delayed => {}
    }
}
