//! Messages of channels: from what waits for this reactor to those of its connections that get them.

use reactor::{ConnId, Connections, Context, Output};

use super::{Server, Session as AnySession};
use crate::http::Encoding;
use crate::pubsub::{Message, Way};
use crate::resp::Session;
use crate::shared::{Mail, Shared};
use crate::worker::Worker;

/// Messages that are handed out in one turn, as bytes: what is over waits for the next one, so that
/// who reads has a chance to, and others are served in between.
const TURN_MESSAGES_BYTES_MAX: usize = 1 << 20;

/// The same as bytes of all those who get them.
const TURN_OUTPUT_BYTES_MAX: usize = 16 << 20;

impl Server {
    /// Hands out what others, and this reactor's own connections, have published.
    pub(super) fn deliver_messages(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        if !self.worker.pubsub.take(&self.shared.pubsub) {
            return;
        }
        self.refresh(cx.now());
        let (mut message_bytes, mut output_bytes) = (0, 0);
        while message_bytes < TURN_MESSAGES_BYTES_MAX && output_bytes < TURN_OUTPUT_BYTES_MAX {
            let Some((number, message)) = self.worker.pubsub.pop() else { return };
            for way in message.ways() {
                output_bytes += self.deliver(cx, connections, number, &message, way);
            }
            message_bytes += message.memory_bytes();
            self.shared.pubsub.delivered(message.memory_bytes());
        }
        if self.worker.pubsub.has_pending() {
            cx.poll();
        }
    }

    /// Hands one message out to those who get it in this way. Returns the bytes of it.
    fn deliver(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        number: u64,
        message: &Message,
        way: Way<'_>,
    ) -> usize {
        let mut output_bytes = 0;
        // By encoding, made once for all who want it so.
        let mut events: [Option<Vec<u8>>; Encoding::COUNT] = Default::default();
        let now = self.now.mono;
        let Worker { pubsub, accounts, settings, durable, gate_max, .. } = &mut self.worker;
        let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
        for id in pubsub.receivers(number, way) {
            let Some((session, out)) = connections.get_mut(id) else { continue };
            let Some(subscriptions) = session.subscriptions() else { continue };
            if subscriptions.is_cut || number < subscriptions.seen {
                continue;
            }
            let event = match &*session {
                AnySession::Resp(_) => None,
                AnySession::Http(session) => {
                    let Some(subscription) = &session.subscription else { continue };
                    let event = events[subscription.encoding().index()]
                        .get_or_insert_with(|| subscription.event(message, way));
                    Some(event.as_slice())
                }
                AnySession::Cql(_) => continue,
            };
            let bytes = event.map_or_else(|| message.output_bytes(way), <[u8]>::len);
            let pending_bytes = out.pending_bytes();
            if is_over(pending_bytes, bytes, hard_bytes) {
                if let Some(subscriptions) = session.subscriptions() {
                    subscriptions.is_cut = true;
                }
                cut(&self.shared, id, pending_bytes);
                cx.abort(id);
                continue;
            }
            match (&mut *session, event) {
                (AnySession::Http(session), Some(event)) => {
                    out.buffer().extend_from_slice(event);
                    session.since = now;
                    accounts.http.charge_output(&mut session.charges, out.pending_bytes());
                }
                (AnySession::Resp(session), _) => {
                    message.write(session.protocol, way, out.buffer());
                    accounts.resp.charge_output(&mut session.charges, out.pending_bytes());
                    // Wherever the connection goes, its output waits for that.
                    session.last_gate = session.last_gate.max(message.gate());
                }
                _ => continue,
            }
            *gate_max = (*gate_max).max(hold(out, message, *durable));
            output_bytes += bytes;
        }
        output_bytes
    }

    /// Gives a connection what was published for it so far, before its requests are served: what they
    /// say comes later. False if it must be closed, as it leaves too much unread.
    pub(super) fn catch_up(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let Some(subscriptions) = session.subscriptions.as_deref_mut() else { return true };
        self.worker.pubsub.take(&self.shared.pubsub);
        let Worker { pubsub, settings, durable, gate_max, .. } = &mut self.worker;
        let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
        for (number, message) in pubsub.pending_from(subscriptions.seen) {
            for way in message.ways().filter(|way| pubsub.receives(session.id, number, *way)) {
                let pending_bytes = out.pending_bytes();
                if is_over(pending_bytes, message.output_bytes(way), hard_bytes) {
                    subscriptions.is_cut = true;
                    cut(&self.shared, session.id, pending_bytes);
                    return false;
                }
                message.write(session.protocol, way, out.buffer());
                session.last_gate = session.last_gate.max(message.gate());
                *gate_max = (*gate_max).max(hold(out, message, *durable));
            }
        }
        subscriptions.seen = pubsub.taken();
        true
    }
}

/// Whether a connection would have more unread than it may when it got this message, too.
fn is_over(pending_bytes: usize, bytes: usize, hard_bytes: u64) -> bool {
    hard_bytes != 0 && pending_bytes.saturating_add(bytes) as u64 > hard_bytes
}

/// What was appended leaves when what its sender did before is on the disk. Returns the position.
fn hold(out: &mut Output, message: &Message, durable: u64) -> u64 {
    let gate = if message.gate() > durable { message.gate() } else { 0 };
    out.hold(gate);
    gate
}

#[cold]
fn cut(shared: &Shared, id: ConnId, pending_bytes: usize) {
    shared.pubsub.client_cut();
    tracing::warn!(client = id.0, pending_bytes, "a subscriber does not read, and is closed");
}
