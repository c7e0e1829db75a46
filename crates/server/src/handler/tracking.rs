//! Sends invalidation messages to the clients that track keys.

use reactor::{ConnId, Connections, Context, Level};
use wire::resp::{Protocol, ReplyWriter};

use super::{ReactorHandler, Session as AnySession};
use crate::commands::Session;
use crate::engine::invalidations::Invalidation;
use crate::engine::mail::Mail;

/// The channel of the messages that RESP2 clients receive.
const CHANNEL: &[u8] = b"__redis__:invalidate";

impl ReactorHandler {
    /// Queues the invalidations of this turn's changes, and sends those of this reactor's clients.
    pub(super) fn deliver_invalidations(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        self.context().send_invalidations(None);
        let queue = self.shared.invalidations.take(self.reactor.index);
        if queue.is_empty() {
            return;
        }
        if queue.is_flushed {
            let mut ids = Vec::new();
            for (id, _, session, _) in connections.iter() {
                if session.as_resp().is_some_and(|session| session.tracks) {
                    ids.push(id);
                }
            }
            for id in ids {
                self.invalidate(cx, connections, id, None, false);
            }
        }
        for one in &queue.items {
            self.invalidate(cx, connections, one.client, one.key.as_deref(), one.is_redirected);
        }
    }

    /// Sends a message about a key to a client, or to the one to which it redirects messages. As in
    /// Redis, each key has a message of its own: clients may read only the first key of one.
    // Source: Redis 7.2 `tracking.c`, `sendTrackingMessage`
    fn invalidate(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        key: Option<&[u8]>,
        is_redirected: bool,
    ) {
        let Some((session, out)) = connections.get_mut(id) else { return };
        let Some(session) = session.as_resp() else { return };
        let target = session.details.tracking().and_then(|tracking| tracking.redirect);
        if !is_redirected {
            if !session.tracks {
                return;
            }
            if let Some(target) = target {
                self.redirect(session, target, key, out.buffer());
                return;
            }
        }
        // It would be in the middle of the file or the stream.
        if session.is_receiver() {
            return;
        }
        write_message(session, key, is_redirected, out.buffer());
        out.hold(Level::Local, session.last_gate.position());
        self.reactor.accounts.resp().charge_output(&mut session.charges, out.pending_bytes());
        let hard_bytes = self.reactor.settings.client_output_buffer_limit.pubsub.hard_bytes;
        if hard_bytes != 0 && out.pending_bytes() as u64 > hard_bytes {
            cx.abort(id);
        }
    }

    /// Hands a message to the reactor of another client.
    fn redirect(
        &self,
        session: &mut Session,
        target: ConnId,
        key: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let published = &self.shared.published;
        let found = published.iter().position(|one| one.lock().clients.contains_key(&target.0));
        if let Some(reactor) = found {
            let key = key.map(Box::from);
            let invalidation = Invalidation { client: target, key, is_redirected: true };
            if self.shared.invalidations.send(reactor, invalidation) {
                self.shared.links().wake(reactor);
            }
            return;
        }
        let Some(tracking) = session.details.rare_if_set().and_then(|rare| rare.tracking.as_mut())
        else {
            return;
        };
        tracking.is_broken = true;
        if session.protocol == Protocol::Resp3 {
            let mut writer = ReplyWriter::new(out, session.protocol);
            writer.push(2);
            writer.bulk(b"tracking-redir-broken");
            writer.count(target.0);
        }
    }
}

/// Writes a message: a push in RESP3; in RESP2 a message of the channel, if it was redirected to a
/// subscriber.
fn write_message(session: &Session, key: Option<&[u8]>, is_redirected: bool, out: &mut Vec<u8>) {
    let mut writer = ReplyWriter::new(out, session.protocol);
    match session.protocol {
        Protocol::Resp3 => {
            writer.push(2);
            writer.bulk(b"invalidate");
        }
        Protocol::Resp2 if is_redirected && session.subscriptions.is_some() => {
            writer.array(3);
            writer.bulk(b"message");
            writer.bulk(CHANNEL);
        }
        Protocol::Resp2 => return,
    }
    match key {
        None => writer.null(),
        Some(key) => {
            writer.array(1);
            writer.bulk(key);
        }
    }
}
