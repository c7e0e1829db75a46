//! RESP: decodes requests and runs them in batches, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::memory::LimitReached;
use base::time::MonoNs;
use reactor::{ConnId, Context, Level, Next, Output};
use store::Depth;
use wire::resp::{Limits, ReplyWriter};

use super::ReactorHandler;
use super::protocol::{Obstacle, Opened, Protocol, Step, Then};
use super::pubsub::catch_up;
use super::waits::write_wait_reply;
use crate::commands::client::end_tracking;
use crate::commands::execute::prepare;
use crate::commands::registry::{Entry, REGISTRY};
use crate::commands::session::{Session, Wait};
use crate::commands::transactions::end_watches;
use crate::config::{OutputLimit, Settings};
use crate::engine::accounts::Charges;
use crate::engine::acl::{Acl, Identity, Standing};
use crate::engine::client_row::ClientRow;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::pubsub::Subscriptions;
use crate::engine::reactor_state::level_of_write;
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;

/// Maximum requests decoded at a time. More do not fit into the L1 cache together with their keys.
const BATCH_REQUESTS_MAX: usize = 64;
/// Number of keys above which no command with several keys has them prefetched.
const PREFETCHED_KEYS_MAX: usize = 256;

impl Protocol for Session {
    fn open(opened: &Opened<'_>) -> Session {
        let identity = Identity::newcomer(opened.acl);
        let mut session =
            Session::new(opened.id, opened.peer, opened.at, identity, opened.durability);
        if let Some(node) = opened.endpoint.node {
            session.source = u16::try_from(node.source).unwrap_or(u16::MAX);
        }
        session.is_pinned = opened.endpoint.node.is_some() || opened.endpoint.is_admin;
        session.details.remote = opened.remote;
        session
    }

    fn request_names() -> Vec<&'static str> {
        REGISTRY.names().collect()
    }

    fn may_be_on_spare() -> bool {
        true
    }

    fn id(&self) -> ConnId {
        self.id
    }

    fn kind(&self) -> ClientProtocol {
        ClientProtocol::Resp
    }

    fn step(
        &mut self,
        server: &mut ReactorHandler,
        cx: &mut Context<'_, Mail>,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Step {
        if self.subscriptions.is_some() && !catch_up(&server.shared, &mut server.reactor, self, out)
        {
            return Step::new(0, Then::Abort);
        }
        server.reactor.check_room(&server.shared);
        let decode_start = server.reactor.stamp;
        let limits = server.limits(self);
        // One at a time before AUTH, which changes the limits.
        let requests_max = if self.identity.is_authenticated() { BATCH_REQUESTS_MAX } else { 1 };
        let taken = self.decoder.decode(input, &limits, requests_max, &mut server.batch);
        server.prepare(self, input);
        server.reactor.stamp = server.reactor.clock.now();
        let parse_ns = server.reactor.clock.delta_ns(decode_start, server.reactor.stamp);
        server.reactor.tally.parsed(parse_ns / (server.batch.len().max(1) as u64));
        let left_at = server
            .run_batch(self, input, started, out)
            .filter(|count| *count < server.batch.len())
            .map(|count| count.checked_sub(1).map_or(0, |last| server.batch.end(last)));
        if left_at.is_some() {
            self.decoder.restart();
        }
        let consumed = left_at.unwrap_or(taken);
        let then = if std::mem::take(&mut server.reactor.is_leaving) {
            Then::Leave
        } else if self.subscriptions.as_ref().is_some_and(|all| all.is_cut) {
            Then::Abort
        } else if self.closing {
            Then::Close
        } else if self.wait == Some(Wait::Pause) {
            Then::Pause(Obstacle::ClientPause)
        } else if self.wait == Some(Wait::Room) {
            Then::Pause(Obstacle::LogSpace)
        } else if self.wait == Some(Wait::Keys) {
            Then::Pause(Obstacle::Keys)
        } else if self.wait.is_some() {
            server.begin_wait(cx, self);
            Then::Wait
        } else if left_at.is_some() {
            Then::Step
        } else if let Some(error) = server.batch.error() {
            server.reject_resp(self, &format!("ERR {error}"), out);
            Then::Close
        } else if server.batch.len() < requests_max || consumed == input.len() {
            Then::Read { needed: unread_needed(self, input.len() - consumed) }
        } else {
            Then::Step
        };
        Step::new(consumed, then)
    }

    fn reject(
        &mut self,
        server: &mut ReactorHandler,
        reached: &LimitReached,
        out: &mut Output,
    ) -> Next {
        server.reject_resp(self, &format!("OOM {reached}"), out);
        Next::Close
    }

    fn pause(&mut self, obstacle: Obstacle) {
        self.wait = Some(match obstacle {
            Obstacle::LogSpace => Wait::Room,
            Obstacle::ClientPause => Wait::Pause,
            Obstacle::Keys => Wait::Keys,
        });
    }

    fn end_pause(&mut self) {
        self.wait = None;
    }

    fn wake(&mut self, server: &mut ReactorHandler, cx: &mut Context<'_, Mail>, out: &mut Output) {
        let Some(Wait::Until { at, reply }) = self.wait else { return };
        if server.now.mono < at {
            server.retry(cx, self, at);
        } else if self.stop_waiting(&server.shared, &mut server.reactor, server.now) {
            let shared = Arc::clone(&server.shared);
            let write =
                |writer: &mut ReplyWriter<'_>| write_wait_reply(writer, &shared.replication, reply);
            server.end_wait(cx, self, write, out);
        } else {
            // Its request is running again: decide when that has ended.
            server.wake_at(cx, self.id, MonoNs(server.now.mono.0 + 1));
        }
    }

    fn charges(&self) -> Charges {
        let watched = self.watched.as_deref().map_or(0, |all| all.charged_bytes);
        self.charges.with_watched(watched)
    }

    fn charges_mut(&mut self) -> &mut Charges {
        &mut self.charges
    }

    fn is_subscriber(&self) -> bool {
        self.monitor || self.subscriptions.is_some() || self.is_receiver()
    }

    fn output_limit(&mut self, settings: &Settings) -> (&mut Option<MonoNs>, OutputLimit) {
        let limits = &settings.client_output_buffer_limit;
        let limit = if self.is_receiver() {
            limits.replica
        } else if self.is_subscriber() {
            limits.pubsub
        } else {
            limits.normal
        };
        (&mut self.details.above_soft_since, limit)
    }

    fn row(&mut self, reactor: usize, now: MonoNs, _: &RequestKinds) -> ClientRow {
        Session::row(self, reactor, now)
    }

    fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, _: &RequestKinds) {
        Session::update_row(self, row, now);
    }

    fn is_authenticated(&self) -> bool {
        self.identity.is_authenticated()
    }

    fn subscriptions(&mut self) -> Option<&mut Subscriptions> {
        self.subscriptions.as_deref_mut()
    }

    fn follow_users(&mut self, acl: &Acl) -> Standing {
        Session::follow_users(self, acl)
    }

    fn outlives_peer(&self) -> bool {
        matches!(self.wait, Some(Wait::Room | Wait::Keys))
    }

    fn may_migrate(&self) -> bool {
        self.may_move()
    }

    fn may_expire(&self) -> bool {
        !self.is_subscriber()
    }

    fn arrive(&mut self, _: &mut ReactorHandler) -> (Level, Gate) {
        (level_of_write(self.durability), self.last_gate)
    }

    fn closed(&mut self, server: &mut ReactorHandler) {
        end_watches(&server.shared, &mut server.reactor, self);
        end_tracking(&server.shared, self);
        if self.awaits_reply() {
            server.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
            server.forget_replica_wait(self);
            server.deadlines.cancel(self.id);
            if !self.stop_waiting(&server.shared, &mut server.reactor, server.now) {
                self.leave_keys(&server.shared, &mut server.reactor);
            }
            self.count_pending(&server.shared, &mut server.reactor, server.now);
        }
        if self.is_receiver() {
            server.shared.transfers.close(self.id);
        }
        if self.is_replica() {
            let rules = server.reactor.settings.replica_rules();
            server.shared.replication.change_replicas(rules, server.now.mono, |all| {
                all.remove(&self.id);
            });
        }
        if self.monitor {
            server.shared.monitors.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl ReactorHandler {
    fn limits(&self, session: &Session) -> Limits {
        if session.identity.is_authenticated() {
            let bulk_bytes_max = self.reactor.settings.proto_max_bulk_len_bytes;
            let bulk_bytes_max = usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX);
            Limits { bulk_bytes_max, ..Limits::DEFAULT }
        } else {
            Limits::UNAUTHENTICATED
        }
    }

    /// Finds the commands and keys of the batch, and prefetches the keys' memory. Takes several
    /// passes, because each address is known only when the previous load has completed.
    fn prepare(&mut self, session: &Session, input: &[u8]) {
        self.prepared.clear();
        self.prefetched.clear();
        self.collections.clear();
        let keyspace = &self.shared.keyspace;
        for index in 0..self.batch.len() {
            let args = self.batch.get(index, input);
            let prepared = prepare(&self.shared, args);
            self.prepared.push(prepared);
            let Some(Entry { command, .. }) = prepared.entry else { continue };
            let is_collection = command.group.has_collections();
            let room = PREFETCHED_KEYS_MAX.saturating_sub(self.prefetched.len());
            let mut prefetch = |hash| {
                keyspace.prefetch_stripe(hash, is_collection);
                self.prefetched.push(hash);
                if is_collection {
                    self.collections.push(hash);
                }
            };
            if let Some(hash) = prepared.hash {
                prefetch(hash);
            } else {
                let keys = command.likely_keys(args).take(room);
                keys.for_each(|at| prefetch(keyspace.hash(args.get(at))));
            }
        }
        if self.prefetched.len() < 2 {
            return;
        }
        let db = session.db;
        for hash in &self.prefetched {
            keyspace.prefetch_bucket(db, *hash);
        }
        for hash in &self.prefetched {
            keyspace.prefetch_entry(db, *hash);
        }
        for depth in Depth::ALL {
            let mut is_last = true;
            for hash in &self.collections {
                is_last &= !keyspace.prefetch_collection(db, *hash, depth);
            }
            if is_last {
                break;
            }
        }
    }

    /// Runs the decoded batch. Returns the number of requests that ran if the rest must wait or be
    /// prepared again.
    fn run_batch(
        &mut self,
        session: &mut Session,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Option<usize> {
        let mut context = ReactorContext {
            shared: &self.shared,
            params: &self.params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now: self.now,
            replies: Some(&self.resp_replies),
        };
        for (index, prepared) in self.prepared.iter().enumerate() {
            if context.reactor.is_spare && context.must_leave(session, prepared.id()) {
                context.reactor.is_leaving = true;
                return Some(index);
            }
            let args = self.batch.get(index, input);
            let (gate_before, written_before) = (session.last_gate, session.last_write);
            let mut reply =
                ReplyWriter::new(out.buffer(), session.protocol).within(context.replies);
            let start = reply.mark();
            let gate = context.request(session, *prepared, args, reply.reborrow());
            if context.is_lost(gate) {
                context.reply_lost(session, gate_before, start, &mut reply);
                out.hold(Level::Local, 0);
            } else if let level = if session.last_write == written_before {
                context.reactor.level(session.durability)
            } else {
                level_of_write(session.durability)
            } && !context.reactor.is_open(gate, level)
            {
                context.reactor.note_gate(gate, level, session.last_command);
                out.hold(level, gate.position());
            } else {
                out.hold(Level::Local, 0);
            }
            if matches!(session.wait, Some(Wait::Pause | Wait::Room | Wait::Keys)) {
                return Some(index);
            }
            // Like all messages, the connection's own messages follow the reply to the publishing
            // command.
            if session.subscriptions.is_some()
                && !catch_up(context.shared, context.reactor, session, out)
            {
                return Some(index + 1);
            }
            let goes_on = !session.closing && session.wait.is_none();
            let reactor = &context.reactor;
            let must_yield = reactor.must_yield(started, out.pending_bytes());
            if !goes_on || must_yield || reactor.has_new_settings {
                return Some(index + 1);
            }
        }
        None
    }

    /// Reports an error outside any request, and ends the connection.
    fn reject_resp(&mut self, session: &mut Session, text: &str, out: &mut Output) {
        ReplyWriter::new(out.buffer(), session.protocol).error(text);
        self.reactor.tally.error(None, text);
        session.closing = true;
    }
}

/// Unread bytes needed to complete the unfinished request; 0: unknown.
fn unread_needed(session: &Session, unread: usize) -> usize {
    match session.decoder.needed() {
        0 => 0,
        more => unread + more,
    }
}
