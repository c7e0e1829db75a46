//! Sends parts of RDB files and of the replication stream to the clients that requested them.

use std::time::Duration;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Level, Output};

use super::{ReactorHandler, Session as AnySession};
use crate::commands::session::{Progress, Session};
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::reactor_state::is_gated;
use crate::protocol::ClientProtocol;

/// A client that is receiving a file or the stream.
fn receiver<'a>(
    connections: &'a mut Connections<'_, AnySession>,
    id: ConnId,
) -> Option<(&'a mut Session, &'a mut Output)> {
    let (session, out) = connections.get_mut(id)?;
    let session = session.as_resp().filter(|session| session.is_receiver())?;
    Some((session, out))
}

impl ReactorHandler {
    /// Appends a part of a file to the output of its client. The last one ends the connection, as
    /// in Redis.
    pub(super) fn deliver_rdb_part(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        (bytes, gate): (Vec<u8>, Gate),
        is_last: bool,
    ) {
        let Some((session, out)) = receiver(connections, id) else { return };
        let buffer = out.buffer();
        if buffer.is_empty() {
            *buffer = bytes;
        } else {
            buffer.extend_from_slice(&bytes);
        }
        if is_gated(session.durability) {
            session.last_gate = session.last_gate.max(gate);
            if !self.reactor.is_open(gate, Level::Local) {
                self.reactor.note_gate(gate, Level::Local, session.last_command);
            }
        }
        out.hold(Level::Local, session.last_gate.position());
        let buffers = self.reactor.accounts.buffers(ClientProtocol::Resp);
        buffers.charge_output(&mut session.charges, out.pending_bytes());
        if is_last {
            return cx.close(id);
        }
        self.unread_parts.push(id);
        // The next turn follows at once, and finds how much the kernel has accepted.
        cx.poll();
    }

    /// Requests the next parts for clients that have read most of the previous ones.
    pub(super) fn request_rdb_parts(&mut self, connections: &mut Connections<'_, AnySession>) {
        if self.unread_parts.is_empty() {
            return;
        }
        let unread_bytes_max = self.reactor.output_pause_bytes() / 2;
        let transfers = &self.shared.transfers;
        self.unread_parts.retain(|id| {
            let Some((_, out)) = receiver(connections, *id) else { return false };
            let is_unread = out.pending_bytes() > unread_bytes_max;
            if !is_unread {
                transfers.taken(*id);
            }
            is_unread
        });
    }
}

/// Whether a client has read nothing of its file or stream for `repl-timeout`.
pub(super) fn is_stuck(
    session: &mut Session,
    unread_bytes: usize,
    sent_bytes: u64,
    now: MonoNs,
    timeout: Duration,
) -> bool {
    if !session.is_receiver() {
        return false;
    }
    let progress = &mut session.details.rare().progress;
    if unread_bytes == 0 || sent_bytes != progress.sent_bytes {
        *progress = Progress { sent_bytes, at: now };
    }
    u128::from(now.since(progress.at)) >= timeout.as_nanos()
}
