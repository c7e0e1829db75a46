//! One generator thread: a reactor whose connections send requests and receive replies.

mod cql;
mod dispatch;
mod http;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Flow, Handler, Next, Output, Peer};

use self::http::Dialer;
pub(crate) use self::http::HttpPlan;
use super::arrivals::{Arrivals, Share};
use super::cql::Statements;
use super::draws::Draws;
use super::flights::{Flight, Flights, Streams};
use super::replies::{self, Kind};
use super::shared::{Mail, Notice, Shared, now_ns};
use super::spec::{Arrival, Protocol, Sharing};
use super::tally::Tally;
use super::template::Mix;

/// Interval at which stalled connections are detected.
const STALL_CHECK_NS: u64 = 500_000_000;

const TIMER_ARRIVAL: u64 = 0;
const TIMER_STALL: u64 = 1;
const TIMER_BEGIN: u64 = 2;
const TIMER_ABANDON: u64 = 3;

/// The configuration of a thread.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    /// The first requests on each connection, and their number.
    pub(crate) setup: Arc<[u8]>,
    pub(crate) setup_count: usize,
    /// The login response for CQL.
    pub(crate) login: Option<Vec<u8>>,
    /// With HTTP, where threads open connections themselves.
    pub(crate) http: Option<HttpPlan>,
    pub(crate) users: usize,
    pub(crate) sharing: Sharing,
    pub(crate) pipeline: u32,
    pub(crate) arrival: Arrival,
    pub(crate) share: Share,
    pub(crate) window_ns: u64,
    pub(crate) seed: u64,
}

/// Construction of requests.
#[derive(Debug)]
pub(crate) enum Requests {
    /// Words; replies arrive in order.
    Words(Mix),
    /// Prepared statements; replies identify their stream.
    Statements(Statements),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    setup_left: usize,
    flights: Flights,
    /// State of a CQL connection.
    cql: cql::State,
    /// State of an HTTP connection.
    http: http::State,
    /// Time of the last reply, or when nothing was in flight.
    last_reply_ns: u64,
    is_stalled: bool,
}

/// A user without a connection.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    user: u32,
    since_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Client {
    plan: Plan,
    shared: Arc<Shared>,
    notices: Sender<Notice>,
    requests: Requests,
    draws: Draws,
    /// Open connections, in no order.
    ids: Vec<ConnId>,
    /// Unused connections, with the time since when. May contain closed ones.
    free: Vec<(ConnId, u64)>,
    /// Users of a closed loop that wait for a connection.
    waiting: VecDeque<Waiting>,
    /// Of an open loop.
    arrivals: Option<Arrivals>,
    /// With HTTP.
    dialer: Option<Dialer>,
    /// The earliest time for which a timer is set.
    timer_ns: u64,
    /// Next connection in an open loop with multiplexed connections.
    turn: usize,
    /// Whether no connection had capacity.
    was_full: bool,
    in_flight: u64,
    start_ns: u64,
    stage: Stage,
    has_reported_idle: bool,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connections are being opened.
    Idle,
    Running,
    /// No more requests are sent.
    Finishing,
    /// Results were reported; connections do not matter any longer.
    Over,
}

/// The bounds of the measured phase, as currently known.
#[derive(Debug, Clone, Copy)]
struct Phase {
    from_ns: u64,
    until_ns: u64,
}

impl Phase {
    fn has(self, ns: u64) -> bool {
        self.from_ns <= ns && ns < self.until_ns
    }
}

impl Client {
    pub(crate) fn new(
        plan: Plan,
        shared: Arc<Shared>,
        notices: Sender<Notice>,
        requests: Requests,
        draws: Draws,
    ) -> Client {
        let dialer = plan.http.clone().map(Dialer::new);
        Client {
            plan,
            dialer,
            shared,
            notices,
            requests,
            draws,
            ids: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            arrivals: None,
            timer_ns: u64::MAX,
            turn: 0,
            was_full: false,
            in_flight: 0,
            start_ns: 0,
            stage: Stage::Idle,
            has_reported_idle: false,
            tally: Tally::new(),
        }
    }

    fn phase(&self) -> Phase {
        Phase {
            from_ns: self.shared.from_ns.load(Ordering::Relaxed),
            until_ns: self.shared.until_ns.load(Ordering::Relaxed),
        }
    }

    /// Sends a notice. The director ends only after it has received the notices of all threads, or
    /// ignores them.
    fn notify(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }

    /// Counts `replies` for the oldest flights of a connection; the users of completed flights
    /// continue. Returns false for unsolicited replies.
    fn settle(
        &mut self,
        session: &mut Session,
        mut replies: u32,
        at: At,
        out: &mut Output,
    ) -> bool {
        while replies > 0 {
            let Flights::Ordered(flights) = &mut session.flights else { return false };
            let Some(flight) = flights.front_mut() else { return false };
            let count = replies.min(flight.left);
            replies -= count;
            flight.left -= count;
            let landed = *flight;
            if landed.left == 0 {
                flights.pop_front();
            }
            self.landed(session, landed, count, at, out);
        }
        true
    }

    /// Handles replies of a flight; after the last one, its user continues.
    fn landed(
        &mut self,
        session: &mut Session,
        flight: Flight,
        count: u32,
        at: At,
        out: &mut Output,
    ) {
        self.in_flight -= u64::from(count);
        record(&mut self.tally, self.arrivals.is_some(), flight, count, at);
        if flight.left == 0 && self.arrivals.is_none() {
            self.continue_user(session, flight.user, at, out);
        }
    }

    /// Continues a user of a closed loop: it, or the longest waiting user, sends on this
    /// connection.
    fn continue_user(&mut self, session: &mut Session, user: u32, at: At, out: &mut Output) {
        let ready = Waiting { user, since_ns: at.now_ns };
        let next = match self.waiting.pop_front() {
            Some(next) => {
                self.waiting.push_back(ready);
                next
            }
            None => ready,
        };
        self.launch(session, next, at, out);
    }

    /// Sends the next requests of a user of a closed loop. Returns false if there are none.
    fn launch(&mut self, session: &mut Session, user: Waiting, at: At, out: &mut Output) -> bool {
        let Some(flight) = self.next_flight(user, at) else { return false };
        self.send(session, flight, at, out);
        true
    }

    /// Returns the next requests of a user of a closed loop, if any.
    fn next_flight(&mut self, user: Waiting, at: At) -> Option<Flight> {
        if self.stage != Stage::Running || at.now_ns >= at.phase.until_ns {
            return None;
        }
        let is_measuring = at.phase.has(at.now_ns);
        let count = self.shared.grant(self.plan.pipeline, is_measuring);
        let (due_ns, sent_ns) = (user.since_ns, at.now_ns);
        (count > 0).then_some(Flight { left: count, user: user.user, due_ns, sent_ns })
    }

    fn send(&mut self, session: &mut Session, flight: Flight, at: At, out: &mut Output) {
        if session.flights.is_empty() {
            session.last_reply_ns = at.now_ns;
        }
        let buffer = out.buffer();
        let before = buffer.len();
        let draws = &mut self.draws;
        match (&mut self.requests, &mut session.flights) {
            (Requests::Words(mix), Flights::Ordered(flights)) => {
                for _ in 0..flight.left {
                    mix.encode(draws, buffer);
                }
                flights.push_back(flight);
            }
            (Requests::Statements(statements), Flights::Streams(streams)) => {
                streams.launch(flight, |stream| {
                    let position = statements.choose(draws);
                    statements.encode(position, stream, draws, buffer);
                });
            }
            _ => unreachable!("the protocol determines whether flights have streams"),
        }
        self.in_flight += u64::from(flight.left);
        if at.phase.has(at.now_ns) {
            self.tally.sent_bytes += (buffer.len() - before) as u64;
        }
    }

    /// Sends up to `most` due requests of an open loop. Returns their number.
    fn launch_due(
        &mut self,
        session: &mut Session,
        most: usize,
        ready_ns: u64,
        at: At,
        out: &mut Output,
    ) -> usize {
        let mut sent = 0;
        while sent < most {
            let Some(flight) = self.next_due(ready_ns, at) else { break };
            self.send(session, flight, at, out);
            sent += 1;
        }
        sent
    }

    /// Returns the next request of an open loop, if it is due. `ready_ns`: when capacity for it
    /// became available.
    fn next_due(&mut self, ready_ns: u64, at: At) -> Option<Flight> {
        let due_ns = self.due(at)?;
        let is_measuring = at.phase.has(at.now_ns);
        if self.shared.grant(1, is_measuring) == 0 {
            return None;
        }
        self.advance();
        if is_measuring {
            self.tally.lag.saturating_record(at.now_ns - due_ns.max(ready_ns).min(at.now_ns));
        }
        Some(Flight { left: 1, user: 0, due_ns, sent_ns: at.now_ns })
    }

    /// Counts replies that arrived at `at`, and were in the kernel's buffer when the turn began at
    /// `turn_ns`.
    fn count_done(&mut self, count: u32, turn_ns: u64, at: At) {
        self.tally.last_reply_ns = at.now_ns;
        let progress = &self.shared.progress[self.plan.share.index].0;
        progress.store(progress.load(Ordering::Relaxed) + u64::from(count), Ordering::Relaxed);
        if at.phase.has(at.now_ns) {
            let position = (at.now_ns - at.phase.from_ns) / self.plan.window_ns;
            self.tally.count(position, u64::from(count));
            if self.arrivals.is_none() {
                // Time that the replies waited because others were processed first.
                let lag_ns = at.now_ns.saturating_sub(turn_ns);
                self.tally.lag.saturating_record_n(lag_ns, u64::from(count));
            }
        }
    }

    /// Returns the due time of the next request, if it has passed.
    fn due(&self, at: At) -> Option<u64> {
        let due_ns = self.arrivals.as_ref()?.next_ns();
        let is_due = due_ns <= at.now_ns && due_ns < at.phase.until_ns;
        (is_due && self.stage == Stage::Running && at.now_ns < at.phase.until_ns).then_some(due_ns)
    }

    fn advance(&mut self) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.advance();
        }
    }

    fn begin(&mut self, connections: &mut Connections<'_, Session>) {
        // A thread that starts after the end has nothing to do, but must still finish.
        if self.stage == Stage::Idle {
            self.stage = Stage::Running;
        }
        let start_ns = self.start_ns;
        let at = At { now_ns: now_ns(), phase: self.phase() };
        self.free = self.ids.iter().map(|id| (*id, start_ns)).collect();
        if let Arrival::Open { per_second, schedule } = self.plan.arrival {
            let (share, seed) = (self.plan.share, self.plan.seed);
            self.arrivals = Some(Arrivals::new(per_second, schedule, share, seed, start_ns));
            return;
        }
        let users = 0..u32::try_from(self.plan.users).unwrap_or(u32::MAX);
        let mut users = users.map(|user| Waiting { user, since_ns: at.now_ns });
        if self.plan.sharing == Sharing::Blocking {
            self.waiting = users.collect();
            return;
        }
        let ids = self.ids.clone();
        for id in ids.iter().cycle().take(if ids.is_empty() { 0 } else { self.plan.users }) {
            let Some((session, out)) = connections.get_mut(*id) else { continue };
            let Some(user) = users.next() else { return };
            self.launch(session, user, at, out);
        }
    }

    /// Reports once that this thread is idle.
    fn report_if_idle(&mut self, reactor: usize) {
        let is_finishing = self.stage == Stage::Finishing;
        let has_none = self.ids.is_empty() && self.dialer.is_none();
        let may_end = is_finishing || self.shared.is_spent() || has_none;
        let is_dialing = self.dialer.as_ref().is_some_and(Dialer::is_dialing);
        if may_end && self.in_flight == 0 && !is_dialing && !self.has_reported_idle {
            self.has_reported_idle = true;
            self.notify(Notice::Idle { reactor });
        }
    }

    fn detect_stalls(&mut self, connections: &mut Connections<'_, Session>, reactor: usize) {
        let now_ns = now_ns();
        let (mut all, mut stalled) = (0, 0);
        for (_, session) in connections.list() {
            let waits = !session.flights.is_empty();
            let waited_ns = now_ns.saturating_sub(session.last_reply_ns);
            let is_stalled = waits && waited_ns > self.shared.stall_ns;
            if is_stalled && !session.is_stalled {
                session.is_stalled = true;
                self.tally.stalled += 1;
            }
            all += 1;
            stalled += usize::from(is_stalled);
        }
        if all > 0 && all == stalled {
            self.notify(Notice::Stalled { reactor });
        }
    }

    /// Counts requests that are due in the measured phase and will not be sent.
    fn count_unsent(&mut self) {
        let phase = self.phase();
        let Some(arrivals) = &mut self.arrivals else { return };
        while arrivals.next_ns() < phase.until_ns {
            if phase.has(arrivals.next_ns()) {
                self.tally.unsent += 1;
            }
            arrivals.advance();
        }
    }

    fn report(&mut self, connections: &mut Connections<'_, Session>, reactor: usize) {
        self.stage = Stage::Over;
        self.count_unsent();
        for (_, session) in connections.list() {
            let requests = session.flights.requests();
            match self.dialer {
                None => self.tally.lost += requests,
                Some(_) => self.tally.unfinished += requests,
            }
        }
        let tally = std::mem::replace(&mut self.tally, Tally::new());
        self.notify(Notice::Report { reactor, tally: Box::new(tally) });
    }

    /// Handles the replies to the setup, none of which may be an error.
    fn set_up(&mut self, session: &mut Session, input: &[u8], out: &mut Output) -> Flow {
        if self.plan.protocol == Protocol::Cql {
            return match self.greet(session, input, out.buffer()) {
                Ok(consumed) => Flow::read(consumed),
                Err(reason) => self.fail(reason),
            };
        }
        let mut consumed = 0;
        while session.setup_left > 0 {
            match replies::next(self.plan.protocol, &input[consumed..]) {
                Ok(None) => return Flow::read(consumed),
                Ok(Some((_, Kind::Error))) => {
                    let text = String::from_utf8_lossy(&input[consumed..]);
                    let line = text.lines().next().unwrap_or_default();
                    return self.fail(format!("the server refused the setup: {line}"));
                }
                Ok(Some((len, kind))) => {
                    consumed += len;
                    session.setup_left -= usize::from(kind == Kind::Reply);
                }
                Err(error) => return self.fail(error.to_string()),
            }
        }
        self.notify(Notice::Ready);
        Flow::read(consumed)
    }

    /// Counts the available replies, whose users continue.
    fn take_replies(
        &mut self,
        session: &mut Session,
        input: &[u8],
        at: At,
        out: &mut Output,
    ) -> Result<Decoded, String> {
        let is_measuring = at.phase.has(at.now_ns);
        let mut decoded = Decoded::default();
        loop {
            match replies::next(self.plan.protocol, &input[decoded.consumed..]) {
                Ok(None) => break,
                Ok(Some((len, kind))) => {
                    if kind == Kind::Error && is_measuring {
                        let reply = &input[decoded.consumed..decoded.consumed + len];
                        self.tally.count_error(replies::first_word(reply));
                    }
                    decoded.consumed += len;
                    decoded.count += u32::from(kind != Kind::Push);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        if self.settle(session, decoded.count, at, out) {
            return Ok(decoded);
        }
        let text = String::from_utf8_lossy(input);
        let line = text.lines().next().unwrap_or_default();
        Err(format!("unsolicited reply from the server: {line}"))
    }

    fn fail(&self, reason: String) -> Flow {
        self.notify(Notice::Failed(reason));
        Flow { consumed: 0, next: Next::Abort }
    }
}

/// Result of one read.
#[derive(Debug, Clone, Copy, Default)]
struct Decoded {
    /// Bytes.
    consumed: usize,
    /// Replies.
    count: u32,
}

/// The time, and the phase.
#[derive(Debug, Clone, Copy)]
struct At {
    now_ns: u64,
    phase: Phase,
}

/// Records replies. In a closed loop they count if they arrive in the measured phase; in an open
/// loop if they were due in it, so that late replies are not excluded.
fn record(tally: &mut Tally, is_open: bool, flight: Flight, count: u32, at: At) {
    let counts_at_ns = if is_open { flight.due_ns } else { at.now_ns };
    if at.phase.has(counts_at_ns) {
        let count = u64::from(count);
        tally.corrected.saturating_record_n(at.now_ns.saturating_sub(flight.due_ns), count);
        tally.raw.saturating_record_n(at.now_ns.saturating_sub(flight.sent_ns), count);
    }
}

impl Handler for Client {
    type Session = Session;
    type Mail = Mail;

    fn open(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        _peer: &Peer,
        out: &mut Output,
    ) -> Session {
        if self.dialer.is_some() {
            return self.open_dialed(cx, id, out);
        }
        self.ids.push(id);
        out.buffer().extend_from_slice(&self.plan.setup);
        if self.plan.setup_count == 0 {
            self.notify(Notice::Ready);
        }
        let flights = match self.requests {
            Requests::Words(_) => Flights::Ordered(VecDeque::new()),
            Requests::Statements(_) => Flights::Streams(Streams::default()),
        };
        Session {
            setup_left: self.plan.setup_count,
            flights,
            cql: cql::State::default(),
            http: http::State::default(),
            last_reply_ns: cx.now().mono.0,
            is_stalled: false,
        }
    }

    fn data(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        if session.setup_left > 0 {
            return self.set_up(session, input, out);
        }
        if self.dialer.is_some() {
            return self.take_answers(cx, id, session, input, out);
        }
        let at = At { now_ns: now_ns(), phase: self.phase() };
        let is_measuring = at.phase.has(at.now_ns);
        let decoded = match self.plan.protocol {
            Protocol::Cql => self.take_messages(session, input, at, out),
            _ => self.take_replies(session, input, at, out),
        };
        let Decoded { consumed, count } = match decoded {
            Ok(decoded) => decoded,
            Err(reason) => return self.fail(reason),
        };
        if count == 0 {
            return Flow::read(consumed);
        }
        session.last_reply_ns = at.now_ns;
        if self.arrivals.is_some() {
            self.reuse(id, session, at, out);
        }
        self.count_done(count, cx.now().mono.0, at);
        if is_measuring {
            self.tally.received_bytes += consumed as u64;
        }
        Flow::read(consumed)
    }

    fn closing(&mut self, _id: ConnId, session: &mut Session, _out: &mut Output) {
        if self.dialer.is_some() {
            self.end_of_answers(session);
        }
    }

    fn closed(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: Session) {
        if self.dialer.is_some() {
            return self.hung_up(cx, id, session);
        }
        if let Some(position) = self.ids.iter().position(|open| *open == id) {
            self.ids.swap_remove(position);
        }
        if self.stage == Stage::Over {
            return;
        }
        if session.setup_left > 0 {
            self.notify(Notice::Failed("the server closed a connection during setup".to_owned()));
        }
        let lost = session.flights.requests();
        self.in_flight -= lost;
        self.tally.lost += lost;
        self.tally.broken += 1;
        // With blocking sharing its users use another connection; otherwise they end.
        if self.plan.sharing == Sharing::Blocking {
            let since_ns = cx.now().mono.0;
            let users = session.flights.list().map(|flight| flight.user);
            self.waiting.extend(users.map(|user| Waiting { user, since_ns }));
        }
    }

    fn may_migrate(&self, _session: &Session) -> bool {
        false
    }

    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        mail: Mail,
    ) {
        match mail {
            Mail::Begin { start_ns } => {
                self.start_ns = start_ns;
                cx.set_timer(MonoNs(start_ns), TIMER_BEGIN);
                cx.set_timer(MonoNs(start_ns + STALL_CHECK_NS), TIMER_STALL);
            }
            Mail::Finish => {
                self.stage = Stage::Finishing;
                self.has_reported_idle = false;
                if self.dialer.is_some() {
                    cx.set_timer(MonoNs(now_ns() + http::ABANDON_AFTER_NS), TIMER_ABANDON);
                }
            }
            Mail::Report => {
                self.report(connections, cx.index());
                self.leave(cx, connections);
            }
        }
    }

    fn timer(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        token: u64,
    ) {
        match token {
            // Due requests are sent before the wait.
            TIMER_ARRIVAL => self.timer_ns = u64::MAX,
            TIMER_BEGIN => self.begin(connections),
            _ if self.stage == Stage::Over => {}
            TIMER_ABANDON => self.abandon(cx.index()),
            _ => {
                self.end_overdue(cx, connections);
                self.detect_stalls(connections, cx.index());
                cx.set_timer(MonoNs(cx.now().mono.0 + STALL_CHECK_NS), TIMER_STALL);
            }
        }
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if matches!(self.stage, Stage::Idle | Stage::Over) {
            return;
        }
        let has_room = !self.free.is_empty() || self.can_dial();
        if self.arrivals.is_some() || (!self.waiting.is_empty() && has_room) {
            let at = At { now_ns: now_ns(), phase: self.phase() };
            self.dispatch(connections, at);
            self.dial_waiting(cx, at);
            self.set_alarm(cx, at);
        }
        self.report_if_idle(cx.index());
    }
}
