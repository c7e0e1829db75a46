//! HTTP connections: a thread opens them itself, for many requests or for one, and parses responses
//! incrementally.
//!
//! A connection for one request costs `socket`, `connect`, `send`, the reads of the response and of
//! its end, and `close`. The server closes first, so that the `TIME_WAIT` state belongs to the
//! server's port, and the load does not exhaust its own ports.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Flow, Next, Output, Peer};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wire::http::{Event, Limits, ResponseDecoder, ResponseError};

use super::super::flights::{Flight, Flights};
use super::super::shared::{Mail, Notice, now_ns};
use super::{At, Client, Session, Stage, TIMER_ARRIVAL, Waiting, cql, record};

/// Connections opened in one turn. A load that starts with thousands of clients would overflow any
/// queue; responses are processed in between.
const DIALS_MAX: usize = 64;
/// Delay after a connection attempt fails immediately: retrying at once would only count errors.
const PAUSE_NS: u64 = 1_000_000;
/// How long responses in flight are awaited when the load ends.
pub(super) const ABANDON_AFTER_NS: u64 = 100_000_000;

/// The HTTP configuration of a thread.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a load")]
pub(crate) struct HttpPlan {
    pub(crate) address: SocketAddr,
    /// Maximum number of open connections.
    pub(crate) connections: usize,
    /// A connection is used for many requests.
    pub(crate) is_kept: bool,
    /// A response is everything until the end of the connection.
    pub(crate) is_headless: bool,
    pub(crate) is_to_head: bool,
    pub(crate) ignores_answers: bool,
    pub(crate) body_bytes: Option<u64>,
    pub(crate) timeout_ns: u64,
}

/// Opens connections.
#[derive(Debug)]
pub(super) struct Dialer {
    plan: HttpPlan,
    /// Number of connections that may still be opened.
    permits: usize,
    /// Time since permits are available.
    room_since_ns: u64,
    /// Connections that are being opened, in order, with their first requests.
    dialed: VecDeque<(ConnId, Flight)>,
    paused_until_ns: u64,
}

impl Dialer {
    pub(super) fn new(plan: HttpPlan) -> Dialer {
        let permits = plan.connections;
        Dialer { plan, permits, room_since_ns: 0, dialed: VecDeque::new(), paused_until_ns: 0 }
    }

    pub(super) fn is_dialing(&self) -> bool {
        !self.dialed.is_empty()
    }

    /// Returns a permit after a connection has closed.
    fn release(&mut self, now_ns: u64) {
        if self.permits == 0 {
            self.room_since_ns = now_ns;
        }
        self.permits += 1;
    }
}

/// Additional state of an HTTP connection.
#[derive(Debug, Default)]
pub(super) struct State {
    decoder: ResponseDecoder,
    status: u16,
    body_bytes: u64,
    /// The connection ends after the response.
    is_last: bool,
    /// User that continues when the connection is closed.
    parked: Option<u32>,
    /// The peer has closed the connection.
    has_ended: bool,
    /// Reason why its requests have failed, if known before it is closed.
    failure: Option<&'static str>,
}

impl Client {
    fn http(&mut self) -> &mut Dialer {
        self.dialer.as_mut().expect("only called for loads over HTTP")
    }

    /// Whether a connection may be opened.
    pub(super) fn can_dial(&self) -> bool {
        self.dialer.as_ref().is_some_and(|dialer| dialer.permits > 0)
    }

    /// Opens connections for waiting users, up to the limit.
    pub(super) fn dial_waiting(&mut self, cx: &mut Context<'_, Mail>, at: At) {
        for _ in 0..DIALS_MAX {
            if !self.can_dial() || at.now_ns < self.http().paused_until_ns {
                return;
            }
            let Some(flight) = self.next_to_dial(at) else { return };
            self.dial(cx, flight, at);
        }
        cx.poll();
    }

    fn next_to_dial(&mut self, at: At) -> Option<Flight> {
        if self.arrivals.is_some() {
            let ready_ns = self.http().room_since_ns;
            return self.next_due(ready_ns, at);
        }
        let user = self.waiting.pop_front()?;
        let flight = self.next_flight(user, at);
        if flight.is_none() {
            // No more requests are sent.
            self.waiting.clear();
        }
        flight
    }

    fn dial(&mut self, cx: &mut Context<'_, Mail>, flight: Flight, at: At) {
        let dialer = self.http();
        match connect(dialer.plan.address, dialer.plan.is_kept) {
            Ok(socket) => {
                let peer = Peer { remote: None, local: None, listener: Peer::ADOPTED };
                let id = cx.adopt(socket, peer, false);
                dialer.permits -= 1;
                dialer.dialed.push_back((id, flight));
            }
            Err(error) => {
                let until_ns = at.now_ns + PAUSE_NS;
                dialer.paused_until_ns = until_ns;
                cx.set_timer(MonoNs(until_ns), TIMER_ARRIVAL);
                self.count_failed(failure_of(error), u64::from(flight.left), at);
                self.wait_again(flight.user, at);
            }
        }
    }

    /// Handles an established connection: sends its first requests.
    pub(super) fn open_dialed(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        out: &mut Output,
    ) -> Session {
        let at = At { now_ns: now_ns(), phase: self.phase() };
        let dialer = self.http();
        let (dialed, flight) = dialer.dialed.pop_front().expect("connections are opened in order");
        assert_eq!(dialed, id, "connections open in the order in which they were dialed");
        let (is_kept, ignores_answers) = (dialer.plan.is_kept, dialer.plan.ignores_answers);
        let mut state = State::default();
        state.decoder.expect_to_head(dialer.plan.is_to_head);
        let mut session = Session {
            setup_left: 0,
            flights: Flights::Ordered(VecDeque::new()),
            cql: cql::State::default(),
            http: state,
            last_reply_ns: at.now_ns,
            is_stalled: false,
        };
        if is_kept {
            self.ids.push(id);
        }
        self.send(&mut session, flight, at, out);
        if ignores_answers {
            cx.close(id);
        }
        session
    }

    /// Processes the available response data; users of complete responses continue.
    pub(super) fn take_answers(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let at = At { now_ns: now_ns(), phase: self.phase() };
        session.last_reply_ns = at.now_ns;
        let before = session.flights.requests();
        let decoded = if self.http().plan.is_headless {
            session.http.body_bytes += input.len() as u64;
            Ok(input.len())
        } else {
            self.decode(session, input, cx.now().mono.0, at, out)
        };
        let consumed = match decoded {
            Ok(consumed) => consumed,
            Err(failure) => {
                session.http.failure = Some(failure);
                return Flow { consumed: input.len(), next: Next::Abort };
            }
        };
        if at.phase.has(at.now_ns) {
            self.tally.received_bytes += consumed as u64;
        }
        let is_answered = session.flights.requests() < before;
        let is_kept = self.http().plan.is_kept && !session.http.is_last;
        if is_answered && is_kept && self.arrivals.is_some() {
            self.reuse(id, session, at, out);
        }
        Flow::read(consumed)
    }

    /// Returns the number of processed bytes.
    fn decode(
        &mut self,
        session: &mut Session,
        input: &[u8],
        turn_ns: u64,
        at: At,
        out: &mut Output,
    ) -> Result<usize, &'static str> {
        let mut consumed = 0;
        loop {
            let http = &mut session.http;
            let decoded = http.decoder.decode(&input[consumed..], &Limits::DEFAULT);
            let (used, event) = decoded.map_err(failure_of_answer)?;
            consumed += used;
            match event {
                Event::Unfinished if used == 0 => return Ok(consumed),
                Event::Unfinished => {}
                Event::Head(head) => {
                    (http.status, http.is_last) = (head.status, !head.keeps_alive);
                    http.body_bytes = 0;
                }
                Event::Body(piece) => http.body_bytes += piece.len() as u64,
                Event::End => self.end_answer(session, turn_ns, at, out)?,
            }
        }
    }

    /// Handles a complete response.
    fn end_answer(
        &mut self,
        session: &mut Session,
        turn_ns: u64,
        at: At,
        out: &mut Output,
    ) -> Result<(), &'static str> {
        let flight = take_one(session).ok_or("unsolicited response")?;
        self.in_flight -= 1;
        let plan = &self.http().plan;
        let is_kept = plan.is_kept && !session.http.is_last;
        match fault(plan, &session.http) {
            None => {
                record(&mut self.tally, self.arrivals.is_some(), flight, 1, at);
                self.count_done(1, turn_ns, at);
            }
            Some(failure) => self.count_failed(failure, 1, at),
        }
        if flight.left > 0 || self.arrivals.is_some() {
            return Ok(());
        }
        if is_kept {
            self.continue_user(session, flight.user, at, out);
        } else {
            session.http.parked = Some(flight.user);
        }
        Ok(())
    }

    /// Handles the end of the connection: a response without another delimiter is complete now.
    pub(super) fn end_of_answers(&mut self, session: &mut Session) {
        session.http.has_ended = true;
        let plan = &self.http().plan;
        if plan.ignores_answers {
            return;
        }
        let is_over = if plan.is_headless {
            Ok(session.http.body_bytes > 0)
        } else {
            session.http.decoder.end_of_input()
        };
        match is_over {
            Ok(true) => self.end_last(session),
            Ok(false) => {}
            Err(error) => session.http.failure = Some(failure_of_answer(error)),
        }
    }

    /// Completes the last response of a connection, which ends with it.
    fn end_last(&mut self, session: &mut Session) {
        let at = At { now_ns: now_ns(), phase: self.phase() };
        let plan = &self.http().plan;
        if plan.ignores_answers || plan.is_headless {
            // Without a head there is no status: the received data is the response.
            session.http.status = 200;
        }
        session.http.is_last = true;
        // No more requests are sent here, so nothing is appended.
        let ended = self.end_answer(session, at.now_ns, at, &mut Output::default());
        session.http.failure = ended.err();
    }

    /// Handles a closed connection: its unanswered requests have failed, and its users continue.
    pub(super) fn hung_up(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, mut session: Session) {
        let at = At { now_ns: now_ns(), phase: self.phase() };
        self.http().release(at.now_ns);
        if let Some(position) = self.ids.iter().position(|open| *open == id) {
            self.ids.swap_remove(position);
        }
        if self.stage == Stage::Over {
            return;
        }
        // It was closed when its request was sent.
        let ignores_answers = self.http().plan.ignores_answers && session.http.has_ended;
        if ignores_answers && session.http.failure.is_none() {
            self.end_last(&mut session);
        }
        let requests = session.flights.requests();
        self.in_flight -= requests;
        if requests > 0 {
            let gone = if session.http.has_ended { "closed" } else { "reset" };
            self.count_failed(session.http.failure.unwrap_or(gone).to_owned(), requests, at);
        }
        let users: Vec<u32> = session.flights.list().map(|flight| flight.user).collect();
        for user in users.into_iter().chain(session.http.parked) {
            self.wait_again(user, at);
        }
        if ignores_answers || session.http.failure.is_some() {
            // When closed by this side at the end of a turn, waiting users have been processed
            // already.
            cx.poll();
        }
    }

    /// Closes connections that exceed the timeout. O(connections), twice a second.
    pub(super) fn end_overdue(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let Some(dialer) = &self.dialer else { return };
        let oldest_ns = now_ns().saturating_sub(dialer.plan.timeout_ns);
        for (info, session) in connections.list() {
            let sent_ns = session.flights.list().map(|flight| flight.sent_ns).min();
            // A connection that has been answered must also close within the timeout.
            let since_ns = sent_ns.or(session.http.parked.map(|_| session.last_reply_ns));
            if since_ns.is_some_and(|since_ns| since_ns < oldest_ns) {
                session.http.failure = Some("timed out");
                cx.abort(info.id);
            }
        }
    }

    /// All results are reported: do not wait for connections that are not established.
    pub(super) fn leave(
        &self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.dialer.is_some() {
            connections.list().for_each(|(info, _)| cx.abort(info.id));
        }
    }

    /// Leaves unanswered requests unfinished.
    pub(super) fn abandon(&mut self, reactor: usize) {
        if self.stage == Stage::Finishing && !self.has_reported_idle {
            self.has_reported_idle = true;
            self.notify(Notice::Idle { reactor });
        }
    }

    /// Counts failures in the measured phase, like operations. Later failures were in flight at its
    /// end.
    fn count_failed(&mut self, failure: String, count: u64, at: At) {
        if at.phase.has(at.now_ns) {
            self.tally.count_errors(failure, count);
        } else if at.now_ns >= at.phase.until_ns {
            self.tally.unfinished += count;
        }
    }

    /// Makes a user of a closed loop wait for another connection.
    fn wait_again(&mut self, user: u32, at: At) {
        if self.arrivals.is_none() {
            self.waiting.push_back(Waiting { user, since_ns: at.now_ns });
        }
    }
}

/// Takes one reply of the oldest request on a connection.
fn take_one(session: &mut Session) -> Option<Flight> {
    let Flights::Ordered(flights) = &mut session.flights else {
        unreachable!("HTTP has no streams")
    };
    let flight = flights.front_mut()?;
    flight.left -= 1;
    let answered = *flight;
    if answered.left == 0 {
        flights.pop_front();
    }
    Some(answered)
}

/// Returns the error of a complete response, if any.
fn fault(plan: &HttpPlan, answer: &State) -> Option<String> {
    let has_body = !plan.is_to_head && !plan.ignores_answers;
    let is_other = has_body && plan.body_bytes.is_some_and(|bytes| bytes != answer.body_bytes);
    match answer.status {
        200..=299 if !is_other => None,
        200..=299 => Some("length".to_owned()),
        status => Some(format!("status {status}")),
    }
}

fn failure_of_answer(error: ResponseError) -> &'static str {
    match error {
        ResponseError::Truncated => "cut short",
        ResponseError::Malformed | ResponseError::HeadTooLarge | ResponseError::Framing(_) => {
            "malformed"
        }
    }
}

fn failure_of(error: Errno) -> String {
    match error {
        Errno::CONNREFUSED => "refused".to_owned(),
        Errno::ADDRNOTAVAIL => "no free port".to_owned(),
        Errno::MFILE | Errno::NFILE => "no free descriptor".to_owned(),
        error => error.to_string(),
    }
}

/// Creates a socket that is connected or connecting. On one machine a refusal is known immediately.
fn connect(address: SocketAddr, is_kept: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if is_kept {
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(Errno::INPROGRESS) => rustix::net::sockopt::socket_error(&socket)?.map(|()| socket),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> HttpPlan {
        HttpPlan {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            connections: 1,
            is_kept: true,
            is_headless: false,
            is_to_head: false,
            ignores_answers: false,
            body_bytes: None,
            timeout_ns: 1,
        }
    }

    #[test]
    fn an_answer_is_good_by_its_status_and_its_length() {
        let answer = |status, body_bytes| State { status, body_bytes, ..State::default() };
        let strict = HttpPlan { body_bytes: Some(27), ..plan() };
        let to_head = HttpPlan { is_to_head: true, ..strict.clone() };
        for (plan, status, bytes, expected) in [
            (&plan(), 200, 5, None),
            (&plan(), 404, 5, Some("status 404")),
            (&plan(), 301, 0, Some("status 301")),
            (&strict, 200, 27, None),
            (&strict, 206, 26, Some("length")),
            (&strict, 503, 27, Some("status 503")),
            (&to_head, 200, 0, None),
        ] {
            let found = fault(plan, &answer(status, bytes));
            assert_eq!(found.as_deref(), expected, "{status} {bytes}");
        }
    }

    #[test]
    fn a_refusal_on_this_machine_is_known_at_once() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(connect(listener.local_addr().unwrap(), true).is_ok());
        // The socket is kept but not listening: the port of a closed listener might be reused.
        let silent = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&silent, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = rustix::net::getsockname(&silent).unwrap().try_into().unwrap();
        assert_eq!(failure_of(connect(address, false).unwrap_err()), "refused");
    }

    #[test]
    fn permits_come_back_and_say_since_when() {
        let mut dialer = Dialer::new(plan());
        dialer.permits = 0;
        dialer.release(7);
        dialer.release(9);
        assert_eq!((dialer.permits, dialer.room_since_ns), (2, 7));
        assert!(!dialer.is_dialing());
    }
}
