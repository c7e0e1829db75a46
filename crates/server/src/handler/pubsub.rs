//! Delivers published messages from the reactor's queue to its subscribed connections.

use std::ops::ControlFlow;

use reactor::{ConnId, Connections, Context, Level, Next, Output};

use super::{ReactorHandler, Session as AnySession};
use crate::commands::Session;
use crate::engine::gate::{Gate, Lsn};
use crate::engine::mail::Mail;
use crate::engine::pubsub::{MatchedSubscription, Message, Place};
use crate::engine::reactor_state::{ReactorState, is_lost};
use crate::engine::server_state::ServerState;
use crate::http::Encoding;
use crate::protocol::ClientProtocol;

/// Maximum bytes of messages delivered in one turn. The rest waits for the next turn, so that
/// subscribers can read and other connections are served in between.
const TURN_MESSAGES_BYTES_MAX: usize = 1 << 20;

/// Maximum output bytes of one turn over all subscribers. A turn can exceed it by the output of one
/// message to one subscriber. Small in unit tests, so that they need not fill it.
const TURN_OUTPUT_BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// A message and the connections that receive it through one matched subscription.
#[derive(Debug)]
struct Delivery<'a> {
    number: u64,
    message: &'a Message,
    matched: MatchedSubscription<'a>,
    /// The last connection that received it through this subscription.
    after: Option<ConnId>,
}

impl ReactorHandler {
    /// Delivers the messages that this and other reactors published.
    pub(super) fn deliver_messages(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        self.reactor.publish_some(&self.shared);
        if self.reactor.pubsub.has_matched_its_share(&self.shared.pubsub) {
            cx.poll();
        }
        if self.reactor.pubsub.take_opened_flag() {
            self.wake_publishers();
        }
        if !self.reactor.pubsub.take(&self.shared.pubsub) {
            return;
        }
        self.refresh(cx.now());
        let (mut message_bytes, mut output_bytes_left) = (0, TURN_OUTPUT_BYTES_MAX);
        while message_bytes < TURN_MESSAGES_BYTES_MAX {
            let Some((number, message)) = self.reactor.pubsub.front() else { return };
            // The writes that precede the message are lost, so it is not delivered.
            let is_deliverable = !self.reactor.is_lost(&self.shared, message.gate());
            if is_deliverable
                && !self.hand_out(cx, connections, number, &message, &mut output_bytes_left)
            {
                break;
            }
            self.reactor.pubsub.finish_front(&self.shared.pubsub);
            message_bytes += message.memory_bytes();
        }
        if self.reactor.pubsub.take_opened_flag() {
            self.wake_publishers();
        }
        if self.reactor.pubsub.has_pending() {
            cx.poll();
        }
    }

    /// Wakes the other reactors, so that they resume publishers that waited for space in this
    /// reactor's queue.
    fn wake_publishers(&self) {
        let wakers = self.shared.links().wakers().enumerate();
        wakers.filter(|(index, _)| *index != self.reactor.index).for_each(|(_, one)| one.wake());
    }

    /// Pauses a publisher that filled a reactor's queue until half of the queue is delivered, or
    /// whose changes produced deferred messages until these are published. The connection is not
    /// read during the pause.
    pub(super) fn hold_publisher(&mut self, id: ConnId, next: Next) -> Next {
        let Some(backlog) = self.reactor.backlog.take() else { return next };
        // Any other outcome already closes the connection or pauses it.
        if !matches!(next, Next::Read { .. } | Next::Again) {
            return next;
        }
        self.publishers.push((id, backlog));
        Next::Pause
    }

    /// Resumes publishers whose messages have been published or delivered.
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

    /// Delivers one message, resuming where the last turn stopped. Returns false if the output
    /// limit of the turn was reached before all subscribers received it.
    fn hand_out(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        number: u64,
        message: &Message,
        output_bytes_left: &mut usize,
    ) -> bool {
        let place = self.reactor.pubsub.place();
        for (index, matched) in
            message.matched_subscriptions().enumerate().skip(place.subscription_index)
        {
            let after = if index == place.subscription_index { place.after } else { None };
            let delivery = Delivery { number, message, matched, after };
            let handed = self.deliver(cx, connections, &delivery, output_bytes_left);
            if let ControlFlow::Break(after) = handed {
                self.reactor.pubsub.leave_at(Place { subscription_index: index, after });
                return false;
            }
        }
        true
    }

    /// Delivers a message through one matched subscription. Breaks with the last connection that
    /// received it when the output limit of the turn is reached.
    fn deliver(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        delivery: &Delivery<'_>,
        output_bytes_left: &mut usize,
    ) -> ControlFlow<Option<ConnId>> {
        let Delivery { number, message, matched, after } = *delivery;
        let mut last = after;
        // Encoded events by encoding, each built once for all its subscribers.
        let mut events: [Option<Vec<u8>>; Encoding::COUNT] = Default::default();
        let now = self.now.mono;
        let ReactorState { pubsub, accounts, settings, durable, gate_max, .. } = &mut self.reactor;
        let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
        for id in pubsub.receivers(number, matched, after) {
            if *output_bytes_left == 0 {
                return ControlFlow::Break(last);
            }
            last = Some(id);
            let Some((session, out)) = connections.get_mut(id) else { continue };
            let Some(subscriptions) = session.protocol().subscriptions() else { continue };
            if subscriptions.is_cut || number < subscriptions.seen {
                continue;
            }
            let event = if let AnySession::Http(session) = &*session {
                let Some(subscription) = &session.subscription else { continue };
                let event = events[subscription.encoding().index()]
                    .get_or_insert_with(|| subscription.event(message, matched));
                Some(event.as_slice())
            } else {
                None
            };
            let bytes = event.map_or_else(|| message.output_bytes(matched), <[u8]>::len);
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
                    accounts
                        .buffers(ClientProtocol::Http)
                        .charge_output(&mut session.charges, out.pending_bytes());
                }
                (AnySession::Resp(session), _) => {
                    message.write(session.protocol, matched, out.buffer());
                    accounts.resp().charge_output(&mut session.charges, out.pending_bytes());
                    // The gate must follow the connection to another reactor.
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

/// Delivers the messages published so far to a connection before its next request runs, so that the
/// request's reply follows them. Returns false if the connection must be closed because its unread
/// output exceeds the limit.
pub(super) fn catch_up(
    shared: &ServerState,
    reactor: &mut ReactorState,
    session: &mut Session,
    out: &mut Output,
) -> bool {
    let Session { id, protocol, last_gate, subscriptions: Some(subscriptions), .. } = session
    else {
        return true;
    };
    let ReactorState { pubsub, settings, durable, gate_max, .. } = reactor;
    let hard_bytes = settings.client_output_buffer_limit.pubsub.hard_bytes;
    pubsub.catch_up(&shared.pubsub, *id, subscriptions, |message, matched| {
        if is_lost(shared, *durable, message.gate()) {
            return true;
        }
        let pending_bytes = out.pending_bytes();
        if is_over(pending_bytes, message.output_bytes(matched), hard_bytes) {
            cut(shared, *id, pending_bytes);
            return false;
        }
        message.write(*protocol, matched, out.buffer());
        *last_gate = (*last_gate).max(message.gate());
        *gate_max = (*gate_max).max(hold(out, message, *durable));
        true
    })
}

/// Whether this message would make a connection's unread output exceed the hard limit.
fn is_over(pending_bytes: usize, bytes: usize, hard_bytes: u64) -> bool {
    hard_bytes != 0 && pending_bytes.saturating_add(bytes) as u64 > hard_bytes
}

/// Holds the appended output until the publisher's preceding writes are durable. Returns the gate.
fn hold(out: &mut Output, message: &Message, durable: Lsn) -> Gate {
    let gate = message.gate().unless_open_at(durable);
    out.hold(Level::Local, gate.position());
    gate
}

#[cold]
fn cut(shared: &ServerState, id: ConnId, pending_bytes: usize) {
    shared.pubsub.client_cut();
    tracing::warn!(client = id.0, pending_bytes, "subscriber closed: too much unread output");
}
