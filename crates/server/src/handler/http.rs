//! HTTP: decodes requests and sends their responses in order.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use base::memory::LimitReached;
use base::time::{MonoNs, Now};
use foldhash::fast::RandomState;
use reactor::{ConnId, ConnInfo, Connections, Context, Level, Next, Output};
use wire::http::{CONTINUE, Limits, Request, RequestBatch};

use super::protocol::{Obstacle, Opened, Protocol, Step, Then};
use super::session::http_of;
use super::{ReactorHandler, Session as AnySession};
use crate::commands::acl::follow_users_of_subscriber;
use crate::commands::execute::Deferred;
use crate::config::{Durability, OutputLimit, Settings};
use crate::engine::accounts::Charges;
use crate::engine::acl::{Acl, Standing};
use crate::engine::client_row::ClientRow;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::pubsub::Subscriptions;
use crate::engine::reactor_state::level_of_write;
use crate::engine::requests::RequestKinds;
use crate::engine::secret::FAILED_LOGIN_NS;
use crate::http::changes::HEARTBEAT;
use crate::http::{
    Delayed, Exchange, PausedStatement, Phase, Pipeline, PipelineStop, ROUTES, Response,
    ResponseOptions, Scratch, Session, Wait, client_of, find, resume_statement, statement_error,
};
use crate::protocol::ClientProtocol;
use crate::statements::scan_queue::ScanQueue;

/// Maximum requests decoded at a time.
const BATCH_REQUESTS_MAX: usize = 64;

/// Interval of heartbeats on change feeds and subscriptions.
const HEARTBEAT_NS: u64 = 15_000_000_000;

/// State of one reactor for its HTTP connections.
#[derive(Debug)]
pub(super) struct HttpReactorState {
    batch: RequestBatch,
    scratch: Scratch,
    date: DateText,
    /// Paused statements.
    pub(super) scans: ScanQueue<PausedStatement>,
    /// Change feeds with too much unsent output to read the next part. Can contain closed
    /// connections.
    undelivered: Vec<ConnId>,
    /// Connections that had unread output at the last sweep, with their total bytes sent and the
    /// time when this total last grew.
    takers: HashMap<ConnId, (u64, MonoNs), RandomState>,
}

impl Default for HttpReactorState {
    fn default() -> HttpReactorState {
        HttpReactorState {
            batch: RequestBatch::new(),
            scratch: Scratch::default(),
            date: DateText::default(),
            scans: ScanQueue::default(),
            undelivered: Vec::new(),
            takers: HashMap::default(),
        }
    }
}

/// The action for a connection in a timeout check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stay,
    /// There is no request: close without a response.
    Close,
    /// The request arrives too slowly: respond with 408.
    Slow,
    /// The client does not read its response.
    Abort,
}

impl Protocol for Session {
    fn open(opened: &Opened<'_>) -> Session {
        Session::new(opened.id, opened.peer, opened.at)
    }

    fn request_names() -> Vec<&'static str> {
        ROUTES.iter().map(|route| route.name).collect()
    }

    fn may_be_on_spare() -> bool {
        true
    }

    fn id(&self) -> ConnId {
        self.id
    }

    fn kind(&self) -> ClientProtocol {
        ClientProtocol::Http
    }

    fn step(
        &mut self,
        server: &mut ReactorHandler,
        cx: &mut Context<'_, Mail>,
        input: &[u8],
        started: u64,
        out: &mut Output,
    ) -> Step {
        server.http.date.update(server.now);
        if let Some(pipeline) = self.pipeline.take() {
            let then = server.resume_pipeline(self, *pipeline, out);
            // The last byte of the pipeline's request, which was left unread.
            let consumed = usize::from(self.pipeline.is_none());
            if then == Then::Step {
                self.note_phase(true, server.now.mono);
            }
            return Step::new(consumed, then);
        }
        let mut batch = std::mem::take(&mut server.http.batch);
        let (step, has_served) = server.step_http(self, input, &mut batch, started, out);
        server.http.batch = batch;
        if self.wait == Some(Wait::Refusal) {
            let at = MonoNs(server.now.mono.0.saturating_add(FAILED_LOGIN_NS));
            server.wake_at(cx, self.id, at);
        }
        self.note_phase(has_served, server.now.mono);
        step
    }

    fn reject(
        &mut self,
        server: &mut ReactorHandler,
        reached: &LimitReached,
        out: &mut Output,
    ) -> Next {
        if self.pipeline.is_some() {
            // The response has already begun: only closing the connection can show that it is
            // incomplete.
            server.reactor.tally.error(None, status_kind(503));
            return Next::Abort;
        }
        server.refuse_http(self, 503, &reached.to_string(), out);
        Next::Close
    }

    fn pause(&mut self, obstacle: Obstacle) {
        self.wait = Some(match obstacle {
            Obstacle::LogSpace => Wait::Room,
            Obstacle::ClientPause | Obstacle::Keys => Wait::Pause,
        });
    }

    fn end_pause(&mut self) {
        self.wait = None;
    }

    /// Sends the delayed response to a wrong password.
    fn wake(&mut self, server: &mut ReactorHandler, cx: &mut Context<'_, Mail>, out: &mut Output) {
        let Some(refusal) = self.refusal.take() else { return };
        self.wait = None;
        self.since = server.now.mono;
        out.buffer().extend_from_slice(&refusal.bytes);
        out.hold(Level::Local, 0);
        if refusal.closes {
            self.closing = true;
            cx.close(self.id);
        } else {
            cx.resume(self.id);
        }
    }

    fn kept_bytes(&self) -> (usize, usize) {
        // The remaining commands of a pipeline count as input.
        (self.pipeline.as_ref().map_or(0, |pipeline| pipeline.bytes), 0)
    }

    fn charges(&self) -> Charges {
        self.charges
    }

    fn charges_mut(&mut self) -> &mut Charges {
        &mut self.charges
    }

    fn is_subscriber(&self) -> bool {
        self.is_stream()
    }

    fn output_limit(&mut self, settings: &Settings) -> (&mut Option<MonoNs>, OutputLimit) {
        let limits = &settings.client_output_buffer_limit;
        let limit = if self.subscription.is_some() { limits.pubsub } else { limits.normal };
        (&mut self.above_soft_since, limit)
    }

    fn row(&mut self, reactor: usize, now: MonoNs, _: &RequestKinds) -> ClientRow {
        Session::row(self, reactor, now)
    }

    fn update_row(&mut self, row: &mut ClientRow, now: MonoNs, _: &RequestKinds) {
        Session::update_row(self, row, now);
    }

    fn subscriptions(&mut self) -> Option<&mut Subscriptions> {
        self.subscription.as_mut().map(|one| one.names_mut())
    }

    /// Only a stream outlives its request.
    fn follow_users(&mut self, acl: &Acl) -> Standing {
        let names = self.subscription.as_ref().map(|subscription| subscription.names());
        match &mut self.identity {
            Some(identity) if self.wait == Some(Wait::Subscription) => {
                follow_users_of_subscriber(identity, acl, names)
            }
            Some(identity) if self.wait == Some(Wait::Feed) => identity.follow_unrestricted(acl),
            _ => Standing::Valid,
        }
    }

    fn outlives_peer(&self) -> bool {
        Session::outlives_peer(self)
    }

    fn is_endless(&self) -> bool {
        self.is_stream()
    }

    fn may_migrate(&self) -> bool {
        !self.is_stream()
    }

    fn may_expire(&self) -> bool {
        false // HTTP has its own timeouts
    }

    fn arrive(&mut self, _: &mut ReactorHandler) -> (Level, Gate) {
        (level_of_write(self.durability), self.last_gate)
    }

    fn closed(&mut self, server: &mut ReactorHandler) {
        match self.wait {
            Some(Wait::Feed) => server.feeds.close(self.id),
            Some(Wait::Refusal) => server.deadlines.cancel(self.id),
            _ => {}
        }
    }
}

impl ReactorHandler {
    /// Runs one step without a pipeline: see [`Protocol::step`]. Also returns whether a request was
    /// answered.
    fn step_http(
        &mut self,
        session: &mut Session,
        input: &[u8],
        batch: &mut RequestBatch,
        started: u64,
        out: &mut Output,
    ) -> (Step, bool) {
        let limits = http_limits(&self.reactor.settings);
        let decode_start = self.reactor.stamp;
        let taken = session.decoder.decode(input, &limits, BATCH_REQUESTS_MAX, batch);
        self.reactor.stamp = self.reactor.clock.now();
        let parse_ns = self.reactor.clock.delta_ns(decode_start, self.reactor.stamp);
        self.reactor.tally.parsed(parse_ns / (batch.len().max(1) as u64));
        let (answered, then) = self.answer_batch(session, input, batch, started, out);
        let has_served = answered > 0;
        if let Some(then) = then {
            // The unanswered requests are decoded again in a later step.
            session.decoder.restart();
            let mut consumed = answered.checked_sub(1).map_or(0, |last| batch.end(last));
            if session.pipeline.is_some() {
                // Leave one byte of the request unread: the reactor resumes only connections with
                // unread input.
                consumed -= 1;
            }
            return (Step::new(consumed, then), has_served);
        }
        if let Some(error) = batch.error() {
            self.refuse_http(session, error.status(), &error.to_string(), out);
            return (Step::new(taken, Then::Close), has_served);
        }
        if batch.len() == BATCH_REQUESTS_MAX && taken < input.len() {
            return (Step::new(taken, Then::Step), has_served);
        }
        // True once per request, when its head is complete; not again when more of the body
        // arrives.
        let has_new_head =
            session.decoder.is_in_body() && (has_served || session.phase != Phase::Body);
        let rest = &input[taken..];
        if has_new_head && self.answer_head(session, rest, batch, out) {
            let waits = session.wait == Some(Wait::Refusal);
            return (Step::new(taken, if waits { Then::Wait } else { Then::Close }), has_served);
        }
        if session.decoder.take_continue() {
            out.buffer().extend_from_slice(CONTINUE);
        }
        let missing = session.decoder.needed();
        let needed = if missing == 0 { 0 } else { rest.len() + missing };
        (Step::new(taken, Then::Read { needed }), has_served)
    }

    /// Answers the requests of a batch in order. Returns the number of answered requests, and the
    /// next action if not all were answered or if no response may follow the last one.
    fn answer_batch(
        &mut self,
        session: &mut Session,
        input: &[u8],
        batch: &RequestBatch,
        started: u64,
        out: &mut Output,
    ) -> (usize, Option<Then>) {
        for index in 0..batch.len() {
            self.reactor.check_room(&self.shared);
            let request = batch.get(index, input);
            let may_leave = self.reactor.is_spare && !self.reactor.is_draining;
            if may_leave && find(&request).1.needs_data() {
                return (index, Some(Then::Leave));
            }
            let mut options = ResponseOptions::of(&request);
            let gate = match self.answer(session, &request, &mut options, out) {
                Ok(gate) => gate,
                Err(deferred) => return (index, Some(Then::Pause(deferred.into()))),
            };
            self.hold_answer(session, gate, out);
            let then = after_answer(session, options);
            if then != Then::Step {
                return (index + 1, Some(then));
            }
            if self.reactor.has_new_settings {
                self.derive_params();
            }
            if self.reactor.must_yield(started, out.pending_bytes()) {
                return (index + 1, Some(Then::Turn));
            }
        }
        (batch.len(), None)
    }

    /// Borrows the state that a request of this connection needs.
    fn exchange(
        &mut self,
        session: &mut Session,
        durability: Durability,
        out: &Output,
    ) -> Exchange<'_> {
        self.http.scratch.clear();
        Exchange {
            context: ReactorContext {
                shared: &self.shared,
                params: &self.params,
                reactor: &mut self.reactor,
                record: &mut self.record,
                now: self.now,
                replies: Some(&self.http_replies),
            },
            statements: &self.statements,
            feeds: &self.feeds,
            scratch: &mut self.http.scratch,
            pending_bytes: out.pending_bytes(),
            client: client_of(session, &self.shared.acl, durability),
        }
    }

    /// Appends the response to one request. Returns its gate, unless the request is deferred.
    fn answer(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        options: &mut ResponseOptions,
        out: &mut Output,
    ) -> Result<Gate, Deferred> {
        let clock_start = self.reactor.stamp;
        let (number, route) = find(request);
        let id = self.shared.request_kinds.id(ClientProtocol::Http, number);
        self.shared.activities.begin(self.reactor.index, id);
        let durability = self.reactor.settings.durability;
        let mut exchange = self.exchange(session, durability, out);
        let response = route.answer(&mut exchange, request)?;
        session.durability = exchange.client.durability;
        session.identity = Some(exchange.client.identity);
        session.requests += 1;
        session.last_request = id;
        if response.is_stream() {
            *options = options.until_close();
        }
        Ok(self.end_answer(session, response, *options, (clock_start, 0), out))
    }

    /// Appends a response, or queues its paused statement to continue in the next turn. `started`:
    /// when the current part began, and the time spent on previous parts. Returns the gate of the
    /// response.
    fn end_answer(
        &mut self,
        session: &mut Session,
        mut response: Response,
        options: ResponseOptions,
        started: (u64, u64),
        out: &mut Output,
    ) -> Gate {
        if let Some(mut paused) = response.paused.take() {
            paused.options = options;
            paused.ns = self.spend(started);
            match self.http.scans.push(*paused) {
                Ok(()) => {
                    session.wait = Some(Wait::Scan);
                    return Gate::OPEN;
                }
                Err(error) => {
                    response = statement_error(&error, &mut self.http.scratch.body);
                }
            }
        }
        let has_begun = response.pipeline.is_some() || response.is_continuation;
        let scratch = &mut self.http.scratch;
        if !has_begun
            && !response.is_stream()
            && let Err(reached) =
                self.reactor.accounts.buffers(ClientProtocol::Http).check_answer(scratch.body.len())
        {
            // The request took effect, so its gate still applies.
            let refused = Response::error(503, &format!("OOM {reached}"), &mut scratch.body);
            response = Response { gate: response.gate, ..refused };
        }
        let options = if response.pipeline.is_some() { options.for_parts() } else { options };
        let HttpReactorState { scratch, date, .. } = &self.http;
        if response.is_delayed {
            let mut refusal = Delayed { bytes: Vec::new(), closes: options.closes };
            options.write(&response, &scratch.body, &date.text, &mut refusal.bytes);
            session.refusal = Some(Box::new(refusal));
            session.wait = Some(Wait::Refusal);
            self.reactor.tally.error(Some(session.last_request), status_kind(response.status));
            return Gate::OPEN;
        }
        options.write(&response, &scratch.body, &date.text, out.buffer());
        self.http.scratch.clear();
        if let Some(mut pipeline) = response.pipeline.take() {
            pipeline.options = options;
            pipeline.ns = self.spend(started);
            session.pipeline = Some(pipeline);
            return response.gate;
        }
        if let Some(follower) = response.follower.take() {
            session.wait = Some(Wait::Feed);
            self.feeds.open(session.id, self.reactor.index, follower);
        }
        if let Some(subscription) = response.subscription.take() {
            session.wait = Some(Wait::Subscription);
            session.subscription = Some(subscription);
        }
        let ns = self.spend(started);
        self.reactor.tally.executed(session.last_request, ns);
        if response.status >= 400 {
            self.reactor.tally.error(Some(session.last_request), status_kind(response.status));
        }
        response.gate
    }

    /// Returns the time spent on a request so far, and restarts the clock for other work.
    fn spend(&mut self, (clock_start, before_ns): (u64, u64)) -> u64 {
        self.reactor.stamp = self.reactor.clock.now();
        before_ns + self.reactor.clock.delta_ns(clock_start, self.reactor.stamp)
    }

    /// Holds a response until its gate opens.
    fn hold_answer(&mut self, session: &mut Session, gate: Gate, out: &mut Output) {
        let level = self.reactor.level(session.durability);
        if !self.reactor.is_open(gate, level) {
            self.reactor.note_gate(gate, level, session.last_request);
            session.last_gate = session.last_gate.max(gate);
        }
        out.hold(level, gate.position());
    }

    /// Resumes a CQL statement whose connection waits for it.
    pub(super) fn resume_exchange(
        &mut self,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        paused: PausedStatement,
        out: &mut Output,
    ) {
        let started = (self.reactor.stamp, paused.ns);
        let options = paused.options;
        self.http.date.update(self.now);
        let mut exchange = self.exchange(session, session.durability, out);
        let response = resume_statement(&mut exchange, paused);
        session.identity = Some(exchange.client.identity);
        session.wait = None;
        let gate = self.end_answer(session, response, options, started, out);
        if session.wait.is_none() {
            self.hold_answer(session, gate, out);
            session.since = self.now.mono;
            if options.closes {
                session.closing = true;
                cx.close(session.id);
            } else {
                cx.resume(session.id);
            }
        }
        self.publish_http(session);
    }

    /// Runs more commands of a pipeline.
    fn resume_pipeline(
        &mut self,
        session: &mut Session,
        pipeline: Pipeline,
        out: &mut Output,
    ) -> Then {
        self.reactor.check_room(&self.shared);
        let (options, started) = (pipeline.options, (self.reactor.stamp, pipeline.ns));
        let mut exchange = self.exchange(session, session.durability, out);
        let response = pipeline.run(&mut exchange).expect("only its first command is postponed");
        session.identity = Some(exchange.client.identity);
        let gate = self.end_answer(session, response, options, started, out);
        self.hold_answer(session, gate, out);
        after_answer(session, options)
    }

    /// Answers the unfinished request at the front of `rest` by its head alone if its body will not
    /// be read: the client is not authorized, or the route takes no body. The connection closes
    /// after the response.
    fn answer_head(
        &mut self,
        session: &mut Session,
        rest: &[u8],
        batch: &mut RequestBatch,
        out: &mut Output,
    ) -> bool {
        let limits = http_limits(&self.reactor.settings);
        let Some(request) = session.decoder.head(rest, &limits, batch) else { return false };
        if find(&request).1.reads_body_of(&request, &self.shared.acl, &self.shared.settings.load())
        {
            return false;
        }
        let mut options = ResponseOptions::of(&request).until_close();
        let Ok(gate) = self.answer(session, &request, &mut options, out) else { return false };
        self.hold_answer(session, gate, out);
        session.closing = session.wait != Some(Wait::Refusal);
        true
    }

    /// Responds to a malformed request, and closes the connection.
    fn refuse_http(&mut self, session: &mut Session, status: u16, text: &str, out: &mut Output) {
        session.closing = true;
        self.reactor.tally.error(None, status_kind(status));
        let mut body = Vec::new();
        let response = Response::error(status, &format!("ERR {text}"), &mut body);
        ResponseOptions::REFUSED.write(&response, &body, &self.http.date.text, out.buffer());
        out.hold(Level::Local, 0);
    }

    fn publish_http(&mut self, session: &Session) {
        let now = self.now.mono;
        self.reactor.publish(&self.shared, session.id, |row| session.update_row(row, now));
    }

    /// Sends the next part of the log to a change feed.
    pub(super) fn deliver_changes(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
        id: ConnId,
        part: &[u8],
        is_last: bool,
    ) {
        let Some((session, out)) = http_of(connections, id) else { return };
        out.buffer().extend_from_slice(part);
        self.reactor
            .accounts
            .buffers(ClientProtocol::Http)
            .charge_output(&mut session.charges, out.pending_bytes());
        session.since = self.now.mono;
        if is_last {
            return cx.close(id);
        }
        self.http.undelivered.push(id);
        // Run the next turn immediately, which checks how much the kernel accepted.
        cx.poll();
    }

    /// Requests the next parts for the change feeds that have sent enough of their output.
    pub(super) fn note_delivered(&mut self, connections: &mut Connections<'_, AnySession>) {
        if self.http.undelivered.is_empty() {
            return;
        }
        let pause_bytes = self.reactor.output_pause_bytes();
        let feeds = &self.feeds;
        self.http.undelivered.retain(|id| {
            let Some((session, out)) = http_of(connections, *id) else {
                return false;
            };
            let is_untaken = out.pending_bytes() > pause_bytes / 2;
            if !is_untaken && session.wait == Some(Wait::Feed) {
                feeds.taken(*id);
            }
            is_untaken
        });
    }

    /// Closes connections that send or read too slowly. Called once a second, so a connection can
    /// exceed its timeout by one second.
    pub(super) fn sweep_http(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, AnySession>,
    ) {
        let (now, settings) = (self.now.mono, &self.reactor.settings);
        let mut slow = Vec::new();
        let before = std::mem::take(&mut self.http.takers);
        for (info, session) in connections.list() {
            let Some(session) = session.as_http() else { continue };
            if self.publishers.iter().any(|(id, _)| *id == info.id) {
                continue;
            }
            let mut untaken_ns = 0;
            // Held output cannot be read yet. Input from the client does not count as progress.
            if info.held_bytes < info.output_bytes {
                // A decreased total is not progress.
                let seen = before.get(&info.id).filter(|(taken, _)| *taken >= info.sent_bytes);
                let seen = seen.copied().unwrap_or((info.sent_bytes, now));
                self.http.takers.insert(info.id, seen);
                untaken_ns = now.since(seen.1);
            }
            match judge(session, &info, untaken_ns, settings, now) {
                Verdict::Stay => {}
                Verdict::Close => cx.close(info.id),
                Verdict::Abort => cx.abort(info.id),
                Verdict::Slow => slow.push(info.id),
            }
        }
        self.http.date.update(self.now);
        let now = self.now.mono;
        for (_, _, session, out) in connections.iter() {
            let Some(session) = session.as_http() else { continue };
            if session.is_stream() && now.since(session.since) >= HEARTBEAT_NS {
                session.since = now;
                if out.pending_bytes() == 0 {
                    out.buffer().extend_from_slice(HEARTBEAT);
                }
            }
        }
        for id in slow {
            if let Some((session, out)) = http_of(connections, id) {
                self.refuse_http(session, 408, "the request did not arrive in time", out);
            }
            cx.close(id);
        }
    }
}

/// Returns the next action after a response or a part of one.
fn after_answer(session: &mut Session, options: ResponseOptions) -> Then {
    if session.wait.is_some() {
        return Then::Wait;
    }
    if let Some(pipeline) = &session.pipeline {
        return match pipeline.stop {
            PipelineStop::Turn => Then::Turn,
            PipelineStop::Deferred(deferred) => Then::Pause(deferred.into()),
        };
    }
    if options.closes {
        session.closing = true;
        return Then::Close;
    }
    Then::Step
}

fn judge(
    session: &Session,
    info: &ConnInfo,
    untaken_ns: u64,
    settings: &Settings,
    now: MonoNs,
) -> Verdict {
    const MS: u64 = 1_000_000;
    let waits = matches!(session.wait, Some(Wait::Room | Wait::Pause | Wait::Scan | Wait::Refusal));
    if waits && !session.closing {
        return Verdict::Stay;
    }
    if info.output_bytes > 0 {
        let is_stuck = untaken_ns > settings.internals.http_write_timeout_ms().saturating_mul(MS);
        return if is_stuck { Verdict::Abort } else { Verdict::Stay };
    }
    if session.closing || session.is_stream() || session.pipeline.is_some() {
        return Verdict::Stay;
    }
    let waited_ns = now.since(session.since);
    let head_ns = settings.internals.http_head_timeout_ms().saturating_mul(MS);
    let (allowed_ns, verdict) = match session.phase {
        Phase::Idle => (settings.http_idle_timeout_ms.saturating_mul(MS), Verdict::Close),
        // No input has arrived since the connection was opened.
        Phase::Head if info.input_bytes == 0 => (head_ns, Verdict::Close),
        Phase::Head => (head_ns, Verdict::Slow),
        // Apply the idle timeout too: a client that sent most of a large body at once must not stay
        // silent for hours.
        Phase::Body
            if now.since(info.last_activity) > settings.http_idle_timeout_ms.saturating_mul(MS) =>
        {
            return Verdict::Slow;
        }
        Phase::Body => {
            let earned_ns = (info.input_bytes as u64).saturating_mul(1000 * MS);
            (
                head_ns.saturating_add(earned_ns / settings.internals.http_body_rate_min()),
                Verdict::Slow,
            )
        }
    };
    if waited_ns > allowed_ns { verdict } else { Verdict::Stay }
}

fn http_limits(settings: &Settings) -> Limits {
    let body_bytes_max = usize::try_from(settings.http_body_bytes_max).unwrap_or(usize::MAX);
    Limits { body_bytes_max, ..Limits::DEFAULT }
}

/// Error name in the error counters.
fn status_kind(status: u16) -> &'static str {
    match status {
        401 => "HTTP_UNAUTHORIZED",
        403 => "HTTP_FORBIDDEN",
        404 => "HTTP_NOT_FOUND",
        405 => "HTTP_METHOD",
        408 => "HTTP_TIMEOUT",
        412 => "HTTP_PRECONDITION",
        413 => "HTTP_TOO_LARGE",
        500.. => "HTTP_SERVER",
        _ => "HTTP_CLIENT",
    }
}

/// The value of the `Date` header, formatted once per second.
#[derive(Debug, Default)]
struct DateText {
    seconds: u64,
    text: String,
}

impl DateText {
    fn update(&mut self, now: Now) {
        let seconds = now.unix.0 / 1000;
        if seconds != self.seconds || self.text.is_empty() {
            self.seconds = seconds;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            #[expect(clippy::disallowed_methods, reason = "the clock of this machine")]
            let text = httpdate::fmt_http_date(time);
            self.text = text;
        }
    }
}
