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
                self.invalidate(cx, connections, id, &[None], false);
            }
        }
        let mut items = queue.items;
        items.sort_by_key(|one| (one.client.0, one.is_redirected));
        for group in
            items.chunk_by(|a, b| (a.client, a.is_redirected) == (b.client, b.is_redirected))
        {
            let keys: Vec<Option<&[u8]>> = group.iter().map(|one| one.key.as_deref()).collect();
            self.invalidate(cx, connections, group[0].client, &keys, group[0].is_redirected);
        }
    }

    /// Sends one message about keys to a client, or to the one to which it redirects messages.
    // Source: Redis 7.2 `tracking.c`, `sendTrackingMessage`
    fn invalidate(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        keys: &[Option<&[u8]>],
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
                self.redirect(session, target, keys, out.buffer());
                return;
            }
        }
        // It would be in the middle of the file or the stream.
        if session.is_receiver() {
            return;
        }
        write_message(session, keys, is_redirected, out.buffer());
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
        keys: &[Option<&[u8]>],
        out: &mut Vec<u8>,
    ) {
        let published = &self.shared.published;
        let found = published.iter().position(|one| one.lock().clients.contains_key(&target.0));
        if let Some(reactor) = found {
            for key in keys {
                let key = key.map(Box::from);
                let invalidation = Invalidation { client: target, key, is_redirected: true };
                if self.shared.invalidations.send(reactor, invalidation) {
                    self.shared.links().wake(reactor);
                }
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
fn write_message(
    session: &Session,
    keys: &[Option<&[u8]>],
    is_redirected: bool,
    out: &mut Vec<u8>,
) {
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
    if keys.contains(&None) {
        return writer.null();
    }
    writer.array(keys.len());
    keys.iter().flatten().for_each(|key| writer.bulk(key));
}
