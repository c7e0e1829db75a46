//! CQL: decodes and runs messages, and releases replies as the log becomes durable.

use std::net::SocketAddr;

use base::memory::{LimitReached, Tracker};
use base::time::MonoNs;
use cql::error::CqlError;
use cql::schema::Event;
use reactor::{ConnId, Connections, Context, Level, Next, Output};
use wire::cql::{EnvelopeError, Header, Limits, NodeEvent, encode_segments};

use super::protocol::{Obstacle, Opened, Protocol, Step, Then};
use super::session::{cql_of, http_of};
use super::{ReactorHandler, Session as AnySession};
use crate::config::{OutputLimit, Settings};
use crate::cql::frames::{self, End, FrameError, Framing};
use crate::cql::request_kind::RequestKind;
use crate::cql::request_lines::RequestLines;
use crate::cql::requests::{ExecutionState, NotRun, Requests};
use crate::cql::{Phase, Session, Wait};
use crate::engine::accounts::Charges;
use crate::engine::acl::{Acl, Standing};
use crate::engine::client_row::ClientRow;
use crate::engine::commit::Record;
use crate::engine::gate::{Gate, Lsn};
use crate::engine::mail::{CqlReply, Mail};
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;
use crate::statements::scan_queue::OF_CONNECTION_MAX;

/// Maximum message body until the handshake and the authentication are complete.
const UNAUTHENTICATED_BODY_BYTES_MAX: usize = 64 * 1024;

/// Step in which the received part of a long message is charged to its connection.
const CHARGED_STEP_BYTES: usize = 1 << 20;

/// Capacity above which the reply buffer is freed after use.
const REPLIES_BYTES_KEPT_MAX: usize = 1 << 20;

/// Level of the experiment `stub` that echoes the input.
const STUB_ECHO: usize = 5;

/// State of one reactor for its CQL connections.
#[derive(Debug)]
pub(super) struct CqlReactorState {
    /// Replies of one read, buffered to be sent together.
    replies: Vec<u8>,
    /// Connections with parked replies. Can contain closed connections and duplicates.
    parked: Vec<ConnId>,
    /// Bytes of parked replies of all connections.
    parked_bytes: usize,
    /// The durable log position at the last release of parked replies.
    released: (Lsn, Lsn),
    /// Connections that are paused until parked replies are sent.
    full: Vec<ConnId>,
    /// CQL execution state of this reactor.
    execution: ExecutionState,
}

impl CqlReactorState {
    /// The record of the changes that this reactor's statements make.
    pub(super) fn record(&mut self) -> &mut Record {
        &mut self.execution.processor.record
    }

    pub(super) fn new(request_lines: RequestLines) -> CqlReactorState {
        CqlReactorState {
            replies: Vec::new(),
            parked: Vec::new(),
            parked_bytes: 0,
            released: Default::default(),
            full: Vec::new(),
            execution: ExecutionState::new(request_lines),
        }
    }

    /// Writes the buffered lines of the request log.
    pub(super) fn write_request_lines(&mut self) {
        self.execution.request_lines.write();
    }

    /// Whether there are paused statements.
    pub(super) fn has_paused(&self) -> bool {
        !self.execution.scans.is_empty()
    }
}

/// The reason why reading stopped before the end of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The session waits or closes.
    Session,
    /// The next message cannot run now.
    NotRun(NotRun),
    /// Too many replies wait for the log, or too many statements of the connection are paused.
    Replies,
    /// The rest is served in a later turn.
    Turn,
    /// The message size limits have changed.
    Limits,
}

/// One read of one connection.
struct Serving<'a> {
    requests: Requests<'a>,
    session: &'a mut Session,
    out: &'a mut Output,
    replies: &'a mut Vec<u8>,
    own: &'a mut ExecutionState,
    started: u64,
    pause_bytes: usize,
    in_flight_max: usize,
    /// Whether the parked replies of all connections exceed the reactor's limit.
    is_reactor_full: bool,
    stop: Stop,
}

impl frames::Reader for Serving<'_> {
    fn framing(&mut self) -> &mut Framing {
        &mut self.session.framing
    }

    fn look_ahead(&mut self, messages: &[u8]) -> usize {
        if self.session.phase != Phase::Ready {
            return messages.len();
        }
        self.requests.look_ahead(&self.own.processor, messages, self.session.framing.agreed)
    }

    fn message(&mut self, header: &Header, body: &[u8]) -> frames::Step {
        if let Some(stop) = self.obstacle() {
            self.stop = stop;
            return frames::Step::NotNow;
        }
        let phase = self.session.phase;
        let out = match self.session.framing.segments {
            None => self.out.buffer(),
            Some(_) => &mut *self.replies,
        };
        if let Err(reason) = self.requests.answer(self.session, self.own, header, body, out) {
            self.stop = Stop::NotRun(reason);
            return frames::Step::NotNow;
        }
        self.stop = if self.session.closing || self.session.wait.is_some() {
            Stop::Session
        } else if self.session.phase != phase {
            Stop::Limits
        } else {
            return frames::Step::Next;
        };
        frames::Step::Stop
    }

    fn oversized(&mut self, header: &Header, error: EnvelopeError) {
        self.requests.refuse_oversized(header, error, self.replies);
    }
}

impl Serving<'_> {
    /// The reason why the next message cannot run now.
    fn obstacle(&mut self) -> Option<Stop> {
        let Requests { shared, reactor, .. } = &mut self.requests;
        reactor.check_room(shared);
        let parked = &self.session.parked;
        let unanswered = self.session.unanswered();
        let is_full = unanswered >= self.in_flight_max
            || parked.bytes() > self.pause_bytes
            || self.session.paused_scans >= OF_CONNECTION_MAX;
        if is_full || (self.is_reactor_full && !parked.is_empty()) {
            return Some(Stop::Replies);
        }
        let pending = self.out.pending_bytes() + self.replies.len();
        reactor.must_yield(self.started, pending).then_some(Stop::Turn)
    }
}

impl Protocol for Session {
    fn open(opened: &Opened<'_>) -> Session {
        Session::new(opened.id, opened.peer, opened.durability)
    }

    fn request_names() -> Vec<&'static str> {
        RequestKind::NAMES.to_vec()
    }

    fn id(&self) -> ConnId {
        self.id
    }

    fn kind(&self) -> ClientProtocol {
        ClientProtocol::Cql
    }

    fn step(
        &mut self,
        server: &mut ReactorHandler,
        cx: &mut Context<'_, Mail>,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Step {
        if server.reactor.settings.experiments.stub() == STUB_ECHO {
            out.buffer().extend_from_slice(input);
            return Step::new(input.len(), Then::Read { needed: 0 });
        }
        let parked_before = self.parked.bytes();
        let (consumed, end, stop) = server.read_cql(self, input, started, out);
        let then = match end {
            End::Unfinished { needed } => {
                let step = input.len() - consumed + CHARGED_STEP_BYTES;
                Then::Read { needed: needed.min(step) }
            }
            End::Broken(error) => {
                server.refuse_bytes(self, error, out);
                Then::Close
            }
            End::Stopped => server.after_stop(cx, self, stop),
        };
        server.note_parked(self, parked_before);
        Step::new(consumed, then)
    }

    fn reject(
        &mut self,
        server: &mut ReactorHandler,
        reached: &LimitReached,
        out: &mut Output,
    ) -> Next {
        server.cql_error(self, 0, &CqlError::Overloaded(reached.to_string()), out);
        self.closing = true;
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

    /// Sends the delayed response to a wrong password.
    fn wake(&mut self, server: &mut ReactorHandler, cx: &mut Context<'_, Mail>, out: &mut Output) {
        let Some(Wait::Login { at }) = self.wait else { return };
        if at > server.now.mono {
            return;
        }
        self.refuse_login(&mut server.cql.replies);
        server.cql.send_replies(self, out);
        if self.closing {
            cx.close(self.id);
        } else {
            cx.resume(self.id);
        }
    }

    fn kept_bytes(&self) -> (usize, usize) {
        (self.framing.kept_bytes(), self.parked.bytes())
    }

    fn charges(&self) -> Charges {
        self.charges
    }

    fn charges_mut(&mut self) -> &mut Charges {
        &mut self.charges
    }

    fn output_limit(&mut self, settings: &Settings) -> (&mut Option<MonoNs>, OutputLimit) {
        (&mut self.above_soft_since, settings.client_output_buffer_limit.normal)
    }

    fn row(&mut self, reactor: usize, now: MonoNs, kinds: &RequestKinds) -> ClientRow {
        Session::row(self, reactor, now, kinds)
    }

    fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, kinds: &RequestKinds) {
        Session::update_row(self, row, now, kinds);
    }

    fn must_authenticate(&self, settings: &Settings, acl: &Acl) -> bool {
        !acl.users().admit_without_password(settings.authority(ClientProtocol::Cql))
    }

    fn is_authenticated(&self) -> bool {
        self.is_ready()
    }

    fn follow_users(&mut self, acl: &Acl) -> Standing {
        Session::follow_users(self, acl)
    }

    fn outlives_peer(&self) -> bool {
        Session::outlives_peer(self)
    }

    fn end_input(&mut self) -> bool {
        Session::end_input(self)
    }

    fn may_migrate(&self) -> bool {
        // Helper threads send their responses to this reactor.
        self.in_flight == 0
    }

    fn may_expire(&self) -> bool {
        self.parked.is_empty() && self.in_flight == 0
    }

    fn depart(&mut self, server: &mut ReactorHandler) {
        server.forget_cql(self);
    }

    fn arrive(&mut self, server: &mut ReactorHandler) -> (Level, Gate) {
        self.is_listed = false;
        server.note_parked(self, 0);
        // Some gates may already be open: check them in the next turn.
        server.cql.released = Default::default();
        let level = if self.parked.waits_for_remote() { Level::Remote } else { Level::Local };
        (level, self.parked.gate_max())
    }

    fn closing(&mut self, server: &mut ReactorHandler, out: &mut Output) {
        server.hand_over_parked(self, out);
    }

    fn closed(&mut self, server: &mut ReactorHandler) {
        server.forget_cql(self);
    }
}

impl ReactorHandler {
    /// Runs as much of the input as possible. Returns the consumed bytes and why reading ended.
    fn read_cql(
        &mut self,
        session: &mut Session,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> (usize, End, Stop) {
        let limits = self.cql_limits(session);
        let pause_bytes = self.reactor.output_pause_bytes();
        let held_bytes_max = self.shared.links().limits().held_bytes_max.bytes();
        let in_flight_max = self.reactor.settings.internals.cql_requests_in_flight_max();
        let overload_odds = self.overload_odds();
        let (mut requests, state) = self.requests(session.id, limits);
        requests.overload_odds = overload_odds;
        let mut serving = Serving {
            requests,
            session,
            out,
            replies: &mut state.replies,
            own: &mut state.execution,
            started,
            pause_bytes,
            in_flight_max,
            is_reactor_full: state.parked_bytes > held_bytes_max,
            stop: Stop::Session,
        };
        let (consumed, end) = frames::read(&mut serving, input, limits);
        let stop = serving.stop;
        state.send_replies(session, out);
        (consumed, end, stop)
    }

    /// Borrows the state to run a connection's requests, and the other CQL state of the reactor.
    fn requests(
        &mut self,
        connection: ConnId,
        limits: Limits,
    ) -> (Requests<'_>, &mut CqlReactorState) {
        let ReactorHandler { shared, cql_state, params, reactor, cql: state, now, .. } = self;
        let requests = Requests {
            shared,
            cql: cql_state,
            params,
            reactor,
            limits,
            connection,
            overload_odds: 0.0,
            now: *now,
            allows_expensive: false,
        };
        (requests, state)
    }

    /// The fraction of statements to reject: from 0 at the soft limit of a request memory tracker
    /// to 1 at its limit.
    #[expect(clippy::cast_precision_loss, reason = "odds")]
    fn overload_odds(&self) -> f64 {
        if !self.reactor.settings.throttle_cql_calls {
            return 0.0;
        }
        let memory = &self.shared.memory;
        let odds = |tracker: &Tracker| {
            let (Some(soft), Some(limit)) = (tracker.soft_limit_bytes(), tracker.limit_bytes())
            else {
                return 0.0;
            };
            let over = tracker.current_bytes().saturating_sub(soft);
            (over as f64 / limit.saturating_sub(soft).max(1) as f64).min(1.0)
        };
        odds(memory.read_buffer.of(ClientProtocol::Cql)).max(odds(&memory.read_buffer.all))
    }

    fn cql_limits(&self, session: &Session) -> Limits {
        let bytes_max = self.reactor.settings.native_transport_max_frame_bytes;
        let body_bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let is_known = session.phase == Phase::Ready;
        let unauthenticated_max = body_bytes_max.min(UNAUTHENTICATED_BODY_BYTES_MAX);
        Limits { body_bytes_max: if is_known { body_bytes_max } else { unauthenticated_max } }
    }

    /// Returns the next action after reading stopped before the end of the input.
    fn after_stop(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        stop: Stop,
    ) -> Then {
        match stop {
            Stop::Limits => return Then::Step,
            Stop::Turn => return Then::Turn,
            Stop::NotRun(NotRun::Room) => return Then::Pause(Obstacle::LogSpace),
            Stop::NotRun(NotRun::Paused) => return Then::Pause(Obstacle::ClientPause),
            Stop::NotRun(NotRun::Contended) => return Then::Pause(Obstacle::Keys),
            Stop::Replies => {
                session.wait = Some(Wait::Replies);
                self.cql.full.push(session.id);
            }
            Stop::Session => {}
        }
        if let Some(Wait::Login { at }) = session.wait {
            self.wake_at(cx, session.id, at);
        }
        if session.closing { Then::Close } else { Then::Wait }
    }

    /// Sends a protocol error for malformed input, and stops reading.
    fn refuse_bytes(&mut self, session: &mut Session, error: FrameError, out: &mut Output) {
        let error_reply = CqlError::Protocol(error.to_string());
        self.cql_error(session, error.stream(), &error_reply, out);
        session.closing = true;
    }

    /// Sends an error outside any decoded request.
    fn cql_error(&mut self, session: &Session, stream: i16, error: &CqlError, out: &mut Output) {
        self.reactor.tally.error(None, error.name());
        session.encoder().error(stream, error.kind(), &error.to_string(), &mut self.cql.replies);
        self.cql.send_replies(session, out);
    }

    fn publish_cql(&mut self, session: &mut Session) {
        let (now, kinds) = (self.now.mono, &self.shared.request_kinds);
        let id = session.id;
        self.reactor.publish(&self.shared, id, |row| session.update_row(row, now, kinds));
    }

    /// Updates the totals after a connection's parked bytes changed from `before`.
    fn note_parked(&mut self, session: &mut Session, before: usize) {
        let state = &mut self.cql;
        state.parked_bytes = state.parked_bytes - before + session.parked.bytes();
        if !session.parked.is_empty() && !std::mem::replace(&mut session.is_listed, true) {
            state.parked.push(session.id);
        }
    }

    /// Sends the parked replies whose gates are open.
    pub(super) fn release_parked(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        let reached = (self.reactor.durable, self.reactor.replicated);
        if reached != self.cql.released && !self.cql.parked.is_empty() {
            self.cql.released = reached;
            let mut listed = std::mem::take(&mut self.cql.parked);
            let mut left_bytes = 0;
            listed.retain(|id| {
                let Some((session, out)) = cql_of(connections, *id) else {
                    return false; // closed, or its replies were handed over
                };
                self.cql.release(session, reached, out);
                left_bytes += session.parked.bytes();
                session.is_listed = !session.parked.is_empty();
                session.is_listed
            });
            debug_assert_eq!(
                left_bytes, self.cql.parked_bytes,
                "each parked reply is counted once"
            );
            self.cql.parked.append(&mut listed);
            // Paused statements may have waited for this.
            if self.cql.has_paused() {
                cx.poll();
            }
        }
        if !self.cql.full.is_empty() {
            self.resume_full(cx, connections);
        }
    }

    /// Resumes connections that waited for their parked replies to be sent.
    fn resume_full(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        let held_bytes_max = cx.links().limits().held_bytes_max.bytes();
        let is_reactor_full = self.cql.parked_bytes > held_bytes_max;
        let pause_bytes = self.reactor.output_pause_bytes();
        let in_flight_max = self.reactor.settings.internals.cql_requests_in_flight_max();
        self.cql.full.retain(|id| {
            let Some((session, _)) = cql_of(connections, *id) else {
                return false;
            };
            let parked = &session.parked;
            let is_free = session.unanswered() <= in_flight_max / 2
                && parked.bytes() <= pause_bytes / 2
                && session.paused_scans <= OF_CONNECTION_MAX / 2;
            let goes_on = session.unanswered() == 0 || (is_free && !is_reactor_full);
            if goes_on && session.wait == Some(Wait::Replies) {
                session.wait = None;
                cx.resume(*id);
            }
            !goes_on
        });
    }

    /// Moves the parked replies of a connection that is no longer read to its output, in gate
    /// order. Each is held until its gate opens.
    fn hand_over_parked(&mut self, session: &mut Session, out: &mut Output) {
        self.cql.parked_bytes -= session.parked.bytes();
        let segments = session.framing.segments;
        out.hold(Level::Local, 0);
        session.parked.take_by_gate(|level, gate, reply| {
            match segments {
                None => out.buffer().extend_from_slice(reply),
                Some(format) => encode_segments(reply, format, out.buffer()),
            }
            out.hold(level, gate.position());
        });
    }

    /// Removes a connection that is leaving this reactor from the totals.
    fn forget_cql(&mut self, session: &Session) {
        self.cql.parked_bytes -= session.parked.bytes();
        if matches!(session.wait, Some(Wait::Login { .. })) {
            self.deadlines.cancel(session.id);
        }
    }

    /// Sends a schema change event to the registered connections once the change is durable.
    pub(super) fn send_schema_event(
        &mut self,
        connections: &mut Connections<'_, AnySession>,
        event: &Event,
        gate: Gate,
    ) {
        let mut message = Vec::new();
        for (_, _, session, out) in connections.iter() {
            let Some(session) = session.as_cql().filter(|one| one.events.wants_schema()) else {
                continue;
            };
            message.clear();
            if let Err(error) = session.encoder().schema_event(&event.wire(), &mut message) {
                tracing::warn!(%error, "could not encode a schema event");
                continue;
            }
            let before = session.parked.bytes();
            if gate.is_open_at(self.reactor.durable) {
                self.cql.replies.append(&mut message);
                self.cql.send_replies(session, out);
            } else {
                session.parked.push(Level::Local, gate, &message);
            }
            self.note_parked(session, before);
        }
        self.reactor.gate_max = self.reactor.gate_max.max(gate);
    }

    /// Handles a response from the pool. Its connection may be closed.
    pub(super) fn take_reply(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        reply: CqlReply,
    ) {
        let Some((session, out)) = cql_of(connections, reply.id) else { return };
        let before = session.parked.bytes();
        let limits = self.cql_limits(session);
        let (mut requests, state) = self.requests(session.id, limits);
        let was_checked = session.wait == Some(Wait::Check);
        requests.take_reply(session, reply, &mut state.replies);
        state.send_replies(session, out);
        self.note_parked(session, before);
        match session.wait {
            Some(Wait::Login { at }) => self.wake_at(cx, session.id, at),
            None if was_checked => cx.resume(session.id),
            _ if session.is_done() => cx.close(session.id),
            _ => {}
        }
    }

    /// Resumes paused statements for a limited time, each for at most one part.
    pub(super) fn resume_scans(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        let started = self.reactor.clock.now();
        self.reactor.stamp = started;
        let mut has_moved = false;
        let (mut cql, mut http) = (self.cql.execution.scans.len(), self.http.scans.len());
        // Alternate between the protocols, so that neither waits for all statements of the other.
        while cql + http > 0 && !self.reactor.has_served_its_share(started) {
            if cql > 0 {
                cql -= 1;
                has_moved |= self.resume_cql(cx, connections);
            }
            if http > 0 {
                http -= 1;
                self.resume_http(cx, connections);
                has_moved = true;
            }
        }
        if has_moved && self.has_scans() {
            cx.poll();
        }
    }

    /// Whether statements of any protocol are paused.
    pub(super) fn has_scans(&self) -> bool {
        self.cql.has_paused() || !self.http.scans.is_empty()
    }

    /// Resumes the CQL statement that has waited longest. Returns false if its client must first
    /// read other replies. In that case, an event of the connection or the log triggers the next
    /// attempt.
    fn resume_cql(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) -> bool {
        let Some(scan) = self.cql.execution.scans.pop() else { return false };
        let pause_bytes = self.reactor.output_pause_bytes();
        // The connection is closed: drop its statement.
        let Some((session, out)) = cql_of(connections, scan.id) else {
            return true;
        };
        if out.pending_bytes() > pause_bytes {
            if !session.is_full {
                // The whole output may be sent at the end of this turn.
                cx.poll();
            }
            self.cql.execution.scans.restore(scan);
            return false;
        }
        if session.parked.bytes() > pause_bytes {
            self.cql.execution.scans.restore(scan);
            return false;
        }
        let before = session.parked.bytes();
        let limits = self.cql_limits(session);
        let (mut requests, state) = self.requests(session.id, limits);
        requests.resume(session, &mut state.execution, scan, &mut state.replies);
        state.send_replies(session, out);
        self.note_parked(session, before);
        self.publish_cql(session);
        if session.is_done() {
            cx.close(session.id);
        }
        true
    }

    /// Resumes the HTTP statement that has waited longest.
    fn resume_http(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        let Some(paused) = self.http.scans.pop() else { return };
        if let Some((session, out)) = http_of(connections, paused.id) {
            self.resume_exchange(cx, session, paused, out);
        }
    }

    /// Number of paused statements.
    #[cfg(test)]
    pub(crate) fn paused_scan_count(&self) -> usize {
        self.cql.execution.scans.len() + self.http.scans.len()
    }

    /// Total number of pauses of statements.
    #[cfg(test)]
    pub(crate) fn scan_pause_count(&self) -> usize {
        self.cql.execution.scans.pauses + self.http.scans.pauses
    }

    /// Removes dropped prepared statements from this reactor's cache.
    pub(super) fn tidy_prepared(&mut self) {
        let table = &self.shared.prepared;
        self.cql.execution.processor.known.forget_removed(table);
        #[cfg(feature = "experiments")]
        if self.reactor.index == 0 {
            self.cql_state.processors.forget_removed(table);
        }
    }
}

impl CqlReactorState {
    /// Sends a change of a server to a registered connection.
    pub(super) fn send_node_event(
        &mut self,
        session: &Session,
        event: NodeEvent,
        node: SocketAddr,
        out: &mut Output,
    ) {
        match session.encoder().node_event(event, node, &mut self.replies) {
            Ok(()) => self.send_replies(session, out),
            Err(error) => tracing::warn!(%error, "could not encode an event of a server"),
        }
    }

    /// Sends the buffered replies in the framing that the connection negotiated.
    fn send_replies(&mut self, session: &Session, out: &mut Output) {
        if self.replies.is_empty() {
            return;
        }
        match session.framing.segments {
            None => out.buffer().extend_from_slice(&self.replies),
            Some(format) => encode_segments(&self.replies, format, out.buffer()),
        }
        self.replies.clear();
        if self.replies.capacity() > REPLIES_BYTES_KEPT_MAX {
            self.replies = Vec::new();
        }
    }

    fn release(&mut self, session: &mut Session, reached: (Lsn, Lsn), out: &mut Output) {
        let before = session.parked.bytes();
        session.parked.release(reached, &mut self.replies);
        self.parked_bytes = self.parked_bytes - before + session.parked.bytes();
        self.send_replies(session, out);
    }
}
