//! Messages of channels: from what waits for this reactor to those of its connections that get them.

use std::ops::ControlFlow;

use reactor::{ConnId, Connections, Context, Next, Output};

use super::{ReactorHandler, Session as AnySession};
use crate::engine::gate::{Gate, Lsn};
use crate::engine::mail::Mail;
use crate::engine::pubsub::{MatchedSubscription, Message, Place};
use crate::engine::server_state::ServerState;
use crate::engine::worker::{Worker, is_lost};
use crate::http::Encoding;
use crate::resp::Session;

/// Messages that are handed out in one turn, as bytes: what is over waits for the next one, so that
/// who reads has a chance to, and others are served in between.
const TURN_MESSAGES_BYTES_MAX: usize = 1 << 20;

/// The same as bytes of all those who get them: a turn goes over it by what one of them gets of one
/// message. Small in unit tests, so that they need not fill it.
const TURN_OUTPUT_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// A message for those who get it in one way.
#[derive(Debug)]
struct Parcel<'a> {
    number: u64,
    message: &'a Message,
    way: MatchedSubscription<'a>,
    /// The last one who has got it so.
    after: Option<ConnId>,
}

impl ReactorHandler {
    /// Hands out what others, and this reactor's own connections, have published.
    pub(super) fn deliver_messages(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        self.worker.publish_some(&self.shared);
        if self.worker.pubsub.has_matched_its_share(&self.shared.pubsub) {
            cx.poll();
        }
        if self.worker.pubsub.take_has_opened() {
            self.wake_publishers();
        }
        if !self.worker.pubsub.take(&self.shared.pubsub) {
            return;
        }
        self.refresh(cx.now());
        let (mut message_bytes, mut output_bytes_left) = (0, TURN_OUTPUT_BYTES_MAX);
        while message_bytes < TURN_MESSAGES_BYTES_MAX {
            let Some((number, message)) = self.worker.pubsub.front() else { return };
            // What its sender did before is lost: nobody is told of it.
            let is_told = !self.worker.is_lost(&self.shared, message.gate());
            if is_told && !self.hand_out(cx, connections, number, &message, &mut output_bytes_left)
            {
                break;
            }
            self.worker.pubsub.finish_front(&self.shared.pubsub);
            message_bytes += message.memory_bytes();
        }
        if self.worker.pubsub.take_has_opened() {
            self.wake_publishers();
        }
        if self.worker.pubsub.has_pending() {
            cx.poll();
        }
    }

    /// Has other reactors resume connections that have published more than this one could hand out.
    fn wake_publishers(&self) {
        let wakers = self.shared.links().wakers().enumerate();
        wakers.filter(|(index, _)| *index != self.worker.index).for_each(|(_, one)| one.wake());
    }

    /// Has a connection wait that has filled a reactor's queue, until the reactor has handed half of it out,
    /// or whose changes have left messages, until these are on their way: nothing more is read from it.
    pub(super) fn hold_publisher(&mut self, id: ConnId, next: Next) -> Next {
        let Some(backlog) = self.worker.backlog.take() else { return next };
        // Other connections are closed, or wait for something else first.
        if !matches!(next, Next::Read { .. } | Next::Again) {
            return next;
        }
        self.publishers.push((id, backlog));
        Next::Pause
    }

    /// Resumes connections that have waited for messages to be on their way, or to be handed out.
    pub(super) fn resume_publishers(&mut self, cx: &mut Context<'_, Mail>) {
        let directory = &self.shared.pubsub;
        self.publishers.retain(|(id, backlog)| {
            let stays = directory.stays(*backlog);
            if !stays {
                cx.resume(*id);
            }
            stays
        });
    }

    /// Hands one message out, going on where the last turn has left it. False if this turn has handed
    /// out enough before all have got it.
    fn hand_out(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        number: u64,
        message: &Message,
        output_bytes_left: &mut usize,
    ) -> bool {
        let place = self.worker.pubsub.place();
        for (index, way) in message.ways().enumerate().skip(place.way) {
            let after = if index == place.way { place.after } else { None };
            let parcel = Parcel { number, message, way, after };
            let handed = self.deliver(cx, connections, &parcel, output_bytes_left);
            if let ControlFlow::Break(after) = handed {
                self.worker.pubsub.leave_at(Place { way: index, after });
                return false;
            }
        }
        true
    }

    /// Hands a message out to those who get it in one way. Breaks off behind the one that it names when
    /// the bytes of the turn are used up.
    fn deliver(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        parcel: &Parcel<'_>,
        output_bytes_left: &mut usize,
    ) -> ControlFlow<Option<ConnId>> {
        let Parcel { number, message, way, after } = *parcel;
        let mut last = after;
        // By encoding, made once for all who want it so.
        let mut events: [Option<Vec<u8>>; Encoding::COUNT] = Default::default();
        let now = self.now.mono;
        let Worker { pubsub, accounts, settings, durable, gate_max, .. } = &mut self.worker;
        let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
        for id in pubsub.receivers(number, way, after) {
            if *output_bytes_left == 0 {
                return ControlFlow::Break(last);
            }
            last = Some(id);
            let Some((session, out)) = connections.get_mut(id) else { continue };
            let Some(subscriptions) = session.protocol().subscriptions() else { continue };
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
                if let Some(subscriptions) = session.protocol().subscriptions() {
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
            *output_bytes_left = output_bytes_left.saturating_sub(bytes);
        }
        ControlFlow::Continue(())
    }
}

/// Gives a connection what was published for it so far, before its next request is served: what that
/// says comes later. False if it must be closed, as it leaves too much unread.
pub(super) fn catch_up(
    shared: &ServerState,
    worker: &mut Worker,
    session: &mut Session,
    out: &mut Output,
) -> bool {
    let Session { id, protocol, last_gate, subscriptions: Some(subscriptions), .. } = session
    else {
        return true;
    };
    let Worker { pubsub, settings, durable, gate_max, .. } = worker;
    let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
    pubsub.catch_up(&shared.pubsub, *id, subscriptions, |message, way| {
        if is_lost(shared, *durable, message.gate()) {
            return true;
        }
        let pending_bytes = out.pending_bytes();
        if is_over(pending_bytes, message.output_bytes(way), hard_bytes) {
            cut(shared, *id, pending_bytes);
            return false;
        }
        message.write(*protocol, way, out.buffer());
        *last_gate = (*last_gate).max(message.gate());
        *gate_max = (*gate_max).max(hold(out, message, *durable));
        true
    })
}

/// Whether a connection would have more unread than it may when it got this message, too.
fn is_over(pending_bytes: usize, bytes: usize, hard_bytes: u64) -> bool {
    hard_bytes != 0 && pending_bytes.saturating_add(bytes) as u64 > hard_bytes
}

/// What was appended leaves when what its sender did before is on the disk. Returns the position.
fn hold(out: &mut Output, message: &Message, durable: Lsn) -> Gate {
    let gate = message.gate().unless_open_at(durable);
    out.hold(gate.position());
    gate
}

#[cold]
fn cut(shared: &ServerState, id: ConnId, pending_bytes: usize) {
    shared.pubsub.client_cut();
    tracing::warn!(client = id.0, pending_bytes, "a subscriber does not read, and is closed");
}
