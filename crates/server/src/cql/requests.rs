//! Request execution: handles each opcode and encodes the response.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::memory::LimitReached;
use base::time::Now;
use cql::error::CqlError;
use cql::plan::prepared::{PreparedStatement, statement_id};
use rand::Rng as _;
use store::Params;
use wire::cql::{
    BatchStatement, Compression, Direction, EnvelopeError, Flags, HEADER_BYTES, Header, Limits,
    MalformedBody, Notes, Opcode, Parameters, Request, ResponseEncoder, Version, decode_request,
    decompress_body,
};
use wire::resp::SMALL_REPLY_BYTES;

use super::auth::{Credentials, NEEDS_ALL_RIGHTS};
use super::handshake::{DURABILITY, durability_of};
use super::password_checks::Party;
use super::pool::{Call, Pool};
use super::processor::{Processor, with_processor};
use super::request_kind::RequestKind;
use super::request_lines::{RequestLines, RequestLogEntry};
use super::session::{Phase, Session, Wait};
use super::state::CqlState;
use super::traces;
use super::wire_reply::WireReply;
use crate::config::Durability;
use crate::engine::acl::{Identity, Standing};
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::mail::{CqlReply, Mail};
use crate::engine::prepared::{PreparedLimits, StatementCache};
use crate::engine::reactor_state::{ReactorState, level_of_write};
use crate::engine::refusal::LOG_FAILED;
use crate::engine::requests::RequestId;
use crate::engine::server_state::ServerState;
use crate::protocol::ClientProtocol;
use crate::statements::execute::{Paused, Places};
use crate::statements::executor::{ClientState, CqlExecutor, Executed, Turn};
use crate::statements::scan_queue::{PausedRequest, ROWS_PER_TURN, ScanQueue};
use reactor::ConnId;
use reactor::Level;

type Result<T> = std::result::Result<T, CqlError>;

/// State outside the connection that a request needs, borrowed for one read of one connection.
pub(crate) struct Requests<'a> {
    pub(crate) shared: &'a ServerState,
    pub(crate) cql: &'a CqlState,
    pub(crate) params: &'a Params,
    pub(crate) reactor: &'a mut ReactorState,
    pub(crate) limits: Limits,
    pub(crate) connection: ConnId,
    /// The fraction of statements rejected because of memory pressure.
    pub(crate) overload_odds: f64,
    pub(crate) now: Now,
    /// True on a thread of a pool, where a long request delays no other client.
    pub(crate) allows_expensive: bool,
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum RequestStatus {
    /// The response was appended, and must wait for this gate.
    Answered(Gate),
    /// Nothing was appended: the statement continues in a later turn.
    Paused(Box<Paused>, Arc<PreparedStatement>),
    /// Nothing was appended: the request takes too long for a reactor.
    TooLong,
    /// Nothing was appended: CLIENT PAUSE, FAILOVER or a full log stops the request.
    Stopped,
}

/// Why a request has not run: it is to be passed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRun {
    /// CLIENT PAUSE or FAILOVER stops it.
    Paused,
    /// It may write, and the log has no room.
    Room,
    /// Another reactor holds its data.
    Contended,
}

/// A request whose statement is paused.
#[derive(Debug)]
pub(crate) struct PausedScan {
    pub(crate) id: ConnId,
    header: Header,
    /// The body as received, possibly compressed.
    body: Vec<u8>,
    compression: Option<Compression>,
    client: ClientState,
    statement: Arc<PreparedStatement>,
    paused: Box<Paused>,
    /// Time spent on the request so far.
    ns: u64,
}

impl PausedRequest for PausedScan {
    fn bytes(&self) -> usize {
        self.paused.bytes() + self.body.len()
    }
}

/// CQL execution state of one reactor.
#[derive(Debug)]
pub(crate) struct ExecutionState {
    pub(crate) processor: Processor,
    pub(crate) scans: ScanQueue<PausedScan>,
    pub(crate) request_lines: RequestLines,
}

impl ExecutionState {
    pub(crate) fn new(request_lines: RequestLines) -> ExecutionState {
        let processor = Processor::default();
        ExecutionState { processor, scans: ScanQueue::default(), request_lines }
    }
}

/// The destination and the encoding of one response.
pub(super) struct Answer<'e, 'o> {
    pub(super) encoder: ResponseEncoder<'e>,
    pub(super) stream: i16,
    pub(super) out: &'o mut Vec<u8>,
}

/// Maximum queued statements with passwords: about one minute of work for one thread.
const PASSWORDS_WAITING_MAX: usize = 1024;

/// Maximum attempts to plan a request. An attempt fails only if a table is altered in the
/// microseconds between planning and locking.
const PLANS_MAX: usize = 8;

/// Levels of the experiment `stub`: the stage at which prepared statements and batches are
/// answered. Queries always run, because clients create tables with them and drivers use them to
/// read system tables.
mod stub {
    pub(super) const UNGATED: usize = 1;
    pub(super) const PLANNED: usize = 2;
    pub(super) const DECODED: usize = 3;
    pub(super) const HEADER: usize = 4;
}

impl Requests<'_> {
    /// Handles one message: appends its response to `out`, parks it until its gate opens, or leaves
    /// it to a timer, a later turn or the pool. An error: none of these, and the request has not run.
    pub(crate) fn answer(
        &mut self,
        session: &mut Session,
        own: &mut ExecutionState,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), NotRun> {
        let may_differ = header.flags.has(Flags::CUSTOM_PAYLOAD) && session.phase == Phase::Ready;
        let of_connection = session.client.durability;
        let has_run = self.answer_one(session, own, header, body, out);
        if has_run.is_ok() && self.reactor.settings.log_cql_requests {
            let kind = RequestKind::of(header.opcode);
            let seen = RequestLogEntry { id: session.id, stream: header.stream, kind };
            own.request_lines.note(seen, self.now);
        }
        // Another one was for this request alone.
        if may_differ {
            session.client.durability = of_connection;
        }
        has_run
    }

    fn answer_one(
        &mut self,
        session: &mut Session,
        own: &mut ExecutionState,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), NotRun> {
        let kind = RequestKind::of(header.opcode);
        session.requests += 1;
        session.last_request = kind;
        self.shared.activities.begin(self.reactor.index, self.request_id(kind));
        let start = out.len();
        let clock_start = self.reactor.stamp;
        let responded = if !self.may_still_act(session) {
            session.closing = true;
            Err(CqlError::Unauthorized(NEEDS_ALL_RIGHTS.to_owned()))
        } else if session.phase == Phase::Ready && kind.is_statement() {
            #[cfg(feature = "experiments")]
            if self.reactor.settings.experiments.replies_by_pool()
                && self.reactor.settings.experiments.stub() < stub::HEADER
            {
                self.hand_over(session, header, body, out);
                return Ok(());
            }
            let (cql, compression) = (self.cql, session.compression);
            with_processor(cql, &mut own.processor, |processor| {
                self.statement(&mut session.client, processor, header, body, compression, out)
            })
        } else {
            self.handshake(session, header, body, out)
        };
        let responded = match responded {
            Ok(RequestStatus::TooLong) => {
                out.truncate(start);
                self.hand_over_long(session, header, body, out);
                return Ok(());
            }
            Ok(RequestStatus::Stopped) => {
                session.requests -= 1; // it will be answered again
                let is_paused = self.shared.pause.at(self.now.mono).is_some();
                return Err(if is_paused { NotRun::Paused } else { NotRun::Room });
            }
            Err(CqlError::Contended) => {
                out.truncate(start);
                session.requests -= 1;
                return Err(NotRun::Contended);
            }
            Ok(RequestStatus::Paused(paused, statement)) => {
                out.truncate(start);
                let scan = PausedScan {
                    id: session.id,
                    header: *header,
                    body: body.to_vec(),
                    compression: session.compression,
                    client: session.client.clone(),
                    statement,
                    paused,
                    ns: self.spend(clock_start),
                };
                let Err(error) = own.scans.push(scan) else {
                    session.in_flight += 1;
                    session.paused_scans += 1;
                    return Ok(());
                };
                Err(error)
            }
            Ok(RequestStatus::Answered(gate)) => Ok(gate),
            Err(error) => Err(error),
        };
        let ns = self.spend(clock_start);
        self.finish(session, (header, body), responded, (start, ns), out);
        Ok(())
    }

    /// Whether the client's user still has the rights with which the client became ready.
    fn may_still_act(&self, session: &mut Session) -> bool {
        let acl = &self.shared.acl;
        let is_free = |identity: &Identity| identity.is_free_at(acl.generation());
        session.identity.as_deref().is_none_or(is_free)
            || session.follow_users(acl) == Standing::Valid
    }

    /// Prefetches the memory that the next requests will access: requests of `messages` that name
    /// one partition each, up to the number of concurrent prefetches. Returns the number of bytes
    /// examined.
    pub(crate) fn look_ahead(
        &mut self,
        own: &Processor,
        messages: &[u8],
        agreed: Option<Version>,
    ) -> usize {
        self.reactor.tally.parsed(0);
        let experiments = &self.reactor.settings.experiments;
        if experiments.replies_by_pool() || experiments.stub() >= stub::PLANNED {
            return messages.len();
        }
        let mut places = Places::default();
        let mut done = 0;
        while !places.is_full()
            && let Some(rest) = messages.get(done..)
            && let Ok(Some(header)) = Header::decode(rest, Direction::Request, agreed, &self.limits)
            && let Some(body) = rest.get(HEADER_BYTES..header.envelope_bytes())
        {
            let is_alone = done == 0 && messages.len() <= header.envelope_bytes();
            done += header.envelope_bytes();
            if is_alone && header.opcode != Opcode::Batch as u8 {
                return done; // there is no other request to overlap with
            }
            note_places(own, &header, body, &mut places);
        }
        if places.len() > 1 {
            let clock_start = self.reactor.stamp;
            places.prefetch(&self.shared.keyspace);
            let ns = self.spend(clock_start);
            self.reactor.tally.parsed(ns / places.len() as u64);
        }
        done
    }

    /// Completes the response that begins at `start`: keeps it in `out`, parks it, or replaces it
    /// with an error.
    fn finish(
        &mut self,
        session: &mut Session,
        (header, body): (&Header, &[u8]),
        responded: Result<Gate>,
        (start, ns): (usize, u64),
        out: &mut Vec<u8>,
    ) {
        let gate = responded.unwrap_or_else(|error| {
            out.truncate(start);
            self.refuse(header, session.compression, &error, out);
            Gate::OPEN
        });
        if let Err(reached) = self.check_reply(out.len() - start) {
            // The request took effect, so its gate still applies.
            out.truncate(start);
            let error = CqlError::Overloaded(reached.to_string());
            self.refuse(header, session.compression, &error, out);
        }
        let gate = gate.max(self.schema_gate(header, session.client.durability));
        self.executed(RequestKind::of(header.opcode), ns);
        self.show(session, (header, body), ns, out.len() - start);
        let level = self.reactor.level(session.client.durability);
        if !self.reactor.is_open(gate, level) {
            let is_parked = self.hold(session, header, (level, gate), &out[start..]);
            out.truncate(start);
            if !is_parked {
                self.refuse(header, session.compression, &log_failed(), out);
            }
        }
    }

    /// Checks for the memory of a response of this size with its copies: rows, message, output.
    #[inline]
    fn check_reply(&mut self, bytes: usize) -> std::result::Result<(), LimitReached> {
        if bytes <= SMALL_REPLY_BYTES {
            return Ok(());
        }
        self.reactor.accounts.buffers(ClientProtocol::Cql).check_answer(bytes)
    }

    /// Resumes a statement. When it is complete, its response is appended or parked.
    pub(crate) fn resume(
        &mut self,
        session: &mut Session,
        own: &mut ExecutionState,
        scan: PausedScan,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let clock_start = self.reactor.stamp;
        let kind = RequestKind::of(scan.header.opcode);
        self.shared.activities.begin(self.reactor.index, self.request_id(kind));
        let cql = self.cql;
        let PausedScan { id, header, body, compression, mut client, statement, paused, ns } = scan;
        let responded = with_processor(cql, &mut own.processor, |processor| {
            let of = (&header, &body[..], compression, ns);
            self.run_paused(&mut client, processor, &statement, paused, of, out)
        });
        let ns = ns + self.spend(clock_start);
        let responded = match responded {
            Ok(RequestStatus::Paused(paused, statement)) => {
                out.truncate(start);
                let scan =
                    PausedScan { id, header, body, compression, client, statement, paused, ns };
                let Err(error) = own.scans.push(scan) else { return };
                // The queue rejected the request: respond with an error.
                session.in_flight -= 1;
                session.paused_scans -= 1;
                out.truncate(start);
                self.executed(RequestKind::of(header.opcode), ns);
                return self.refuse(&header, compression, &error, out);
            }
            Ok(RequestStatus::Answered(gate)) => Ok(gate),
            Ok(RequestStatus::TooLong | RequestStatus::Stopped) => {
                unreachable!("it was admitted when it began")
            }
            Err(error) => Err(error),
        };
        session.in_flight -= 1;
        session.paused_scans -= 1;
        let of_connection = std::mem::replace(&mut session.client.durability, client.durability);
        self.finish(session, (&header, &body), responded, (start, ns), out);
        session.client.durability = of_connection;
    }

    fn run_paused(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        statement: &Arc<PreparedStatement>,
        paused: Box<Paused>,
        (header, body, compression, ns): (&Header, &[u8], Option<Compression>, u64),
        out: &mut Vec<u8>,
    ) -> Result<RequestStatus> {
        let encoder = encoder(header, compression);
        let mut answer = Answer { encoder, stream: header.stream, out };
        let body = decompress_body(header, body, compression, &self.limits).map_err(malformed)?;
        let (request, _) = decode_request(header, &body).map_err(malformed)?;
        let (parameters, metadata_id) = match &request {
            Request::Query { parameters, .. } => (parameters, None),
            Request::Execute { parameters, result_metadata_id, .. } => {
                (parameters, *result_metadata_id)
            }
            _ => return Err(malformed(MalformedBody::WrongSide)),
        };
        let of = (statement, metadata_id);
        let begun = Some(paused);
        if !traces::is_traced(header) {
            let record = &mut processor.record;
            return self.execute(client, record, of, parameters, begun, &mut answer);
        }
        let traced = (header, &request, ns);
        self.run_traced(client, processor, traced, &mut answer, |own, client, processor, answer| {
            own.execute(client, &mut processor.record, of, parameters, begun, answer)
        })
    }

    /// Runs a statement. `metadata_id`: the result metadata that the client has cached. `begun`:
    /// the progress from earlier turns.
    fn execute(
        &mut self,
        client: &mut ClientState,
        record: &mut Record,
        (statement, metadata_id): (&Arc<PreparedStatement>, Option<&[u8]>),
        parameters: &Parameters<'_>,
        begun: Option<Box<Paused>>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<RequestStatus> {
        let mut reply = answer.reply();
        let has_old_metadata = metadata_id.is_some_and(|id| id != statement.result_metadata_id);
        // Send the columns if the client's cached metadata is outdated.
        reply.skip_columns = parameters.skip_metadata && !has_old_metadata;
        reply.new_metadata_id = has_old_metadata.then_some(&statement.result_metadata_id[..]);
        let rows_max = if self.allows_expensive { 0 } else { ROWS_PER_TURN };
        let defers = begun.is_none() && !self.allows_expensive;
        let mut executor = self.executor(record);
        executor.defers = defers;
        let turn = Turn { rows_max, begun };
        Ok(match executor.execute(client, statement, parameters, turn, &mut reply)? {
            Executed::Done(gate) => RequestStatus::Answered(gate),
            Executed::Paused(paused) => RequestStatus::Paused(paused, Arc::clone(statement)),
        })
    }

    /// Runs a request on a thread of the pool, appends its response, and returns its gate.
    pub(crate) fn run_call(
        &mut self,
        client: &mut ClientState,
        own: &mut Processor,
        header: &Header,
        body: &[u8],
        compression: Option<Compression>,
        out: &mut Vec<u8>,
    ) -> Gate {
        let cql = self.cql;
        let clock_start = self.reactor.stamp;
        let responded = with_processor(cql, own, |processor| {
            self.statement(client, processor, header, body, compression, out)
        });
        let gate = match responded {
            Ok(RequestStatus::Answered(gate)) => gate,
            Ok(RequestStatus::TooLong | RequestStatus::Paused(..) | RequestStatus::Stopped) => {
                unreachable!("threads of a pool run everything")
            }
            Err(error) => {
                out.clear();
                self.refuse(header, compression, &error, out);
                Gate::OPEN
            }
        };
        let ns = self.spend(clock_start);
        self.executed(RequestKind::of(header.opcode), ns);
        gate.max(self.schema_gate(header, client.durability))
    }

    /// The gate of the schema for the response to a statement.
    fn schema_gate(&self, header: &Header, durability: Durability) -> Gate {
        if !RequestKind::of(header.opcode).is_statement() {
            return Gate::OPEN;
        }
        self.cql.statements.schema.gate_of_response(durability, &self.shared.log)
    }

    /// Returns the time since `clock_start`, and restarts the clock for other work.
    fn spend(&mut self, clock_start: u64) -> u64 {
        self.reactor.stamp = self.reactor.clock.now();
        self.reactor.clock.delta_ns(clock_start, self.reactor.stamp)
    }

    /// Returns the ID of a request kind in counters and timers.
    fn request_id(&self, kind: RequestKind) -> RequestId {
        self.shared.request_kinds.id(ClientProtocol::Cql, kind as usize)
    }

    /// Counts an executed request.
    fn executed(&mut self, kind: RequestKind, ns: u64) {
        self.reactor.tally.executed(self.request_id(kind), ns);
        self.reactor.tally.totals.commands += 1;
    }

    /// Queues the request in the pool that runs all statements.
    #[cfg(feature = "experiments")]
    fn hand_over(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let calls_max = self.reactor.settings.experiments.cql_service_queue_length;
        self.push(&self.cql.pool, calls_max, session, header, body, out);
    }

    /// Queues a request with a password in the pool for password hashing.
    fn hand_over_long(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        if session.phase == Phase::Login {
            return self.check_later(session, header, body, out);
        }
        let pool = &self.cql.password_pool;
        self.push(pool, PASSWORDS_WAITING_MAX, session, header, body, out);
    }

    /// Queues the password check of a login.
    fn check_later(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let published = self.shared.published[self.reactor.index].lock();
        let remote = published.clients.get(&session.id.0).and_then(|row| row.remote.internet());
        drop(published);
        let role = self.role_of(session, header, body);
        let party = Party::new(remote.map(|address| address.ip()), role.as_deref());
        let call = self.call(session, header, body);
        let refused = self.cql.password_pool.push_login(party, call);
        let error = CqlError::Overloaded(
            "Call dropped due to backpressure. Too many logins wait.".to_owned(),
        );
        if refused.is_some() {
            self.shared.cql_pool_overflows.fetch_add(1, Ordering::Relaxed);
        }
        match refused {
            Some(call) if call.id == session.id => {
                return self.refuse(header, session.compression, &error, out);
            }
            // The rejected login belongs to another connection, possibly of another reactor.
            Some(Call { reactor_index, id, header, compression, .. }) => {
                let mut message = Vec::new();
                self.refuse(&header, compression, &error, &mut message);
                let reply = CqlReply {
                    id,
                    header,
                    gate: Gate::OPEN,
                    message,
                    durability: Durability::default(),
                    keyspace: None,
                    access: None,
                };
                let mailbox = &self.shared.links().mailboxes()[reactor_index];
                if mailbox.send(Mail::CqlReply(Box::new(reply))).is_err() {
                    tracing::warn!(
                        reactor = reactor_index,
                        "could not deliver the refusal of a login: mailbox full"
                    );
                }
            }
            None => {}
        }
        session.in_flight += 1;
        session.wait = Some(Wait::Check);
    }

    /// Returns the role of a login; `None` if the role does not exist.
    fn role_of(&self, session: &Session, header: &Header, body: &[u8]) -> Option<String> {
        let body = decompress_body(header, body, session.compression, &self.limits).ok()?;
        let (Request::AuthResponse(Some(token)), _) = decode_request(header, &body).ok()? else {
            return None;
        };
        let user = Credentials::decode(token).ok()?.user;
        self.shared.roles.load().role(user).map(|_| user.to_owned())
    }

    fn call(&self, session: &Session, header: &Header, body: &[u8]) -> Call {
        Call {
            reactor_index: self.reactor.index,
            id: session.id,
            header: *header,
            body: body.to_vec(),
            compression: session.compression,
            limits: self.limits,
            client: session.client.clone(),
        }
    }

    fn push(
        &mut self,
        pool: &Pool,
        calls_max: usize,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let call = self.call(session, header, body);
        if pool.push(call, calls_max) {
            session.in_flight += 1;
        } else {
            self.shared.cql_pool_overflows.fetch_add(1, Ordering::Relaxed);
            let error = CqlError::Overloaded(format!(
                "Call dropped due to backpressure. The service queue is full, it has {calls_max} \
                 items."
            ));
            self.refuse(header, session.compression, &error, out);
        }
    }

    /// Handles a response from a pool.
    pub(crate) fn take_reply(&mut self, session: &mut Session, reply: CqlReply, out: &mut Vec<u8>) {
        session.in_flight -= 1;
        if session.wait == Some(Wait::Check) {
            return self.end_check(session, reply, out);
        }
        if reply.keyspace.is_some() {
            session.client.keyspace = reply.keyspace;
        }
        let level = level_of_write(reply.durability);
        if self.reactor.is_open(reply.gate, level) {
            out.extend_from_slice(&reply.message);
        } else if !self.hold(session, &reply.header, (level, reply.gate), &reply.message) {
            self.refuse(&reply.header, session.compression, &log_failed(), out);
        }
    }

    /// Parks a response until its gate opens. Returns false if it never will.
    fn hold(
        &mut self,
        session: &mut Session,
        header: &Header,
        (level, gate): (Level, Gate),
        message: &[u8],
    ) -> bool {
        let log = &self.shared.log;
        if log.poisoned().is_some() && !gate.is_open_at(log.durable()) {
            return false;
        }
        let id = self.request_id(RequestKind::of(header.opcode));
        self.reactor.note_gate(gate, level, id);
        session.parked.push(level, gate, message);
        true
    }

    fn refuse(
        &mut self,
        header: &Header,
        compression: Option<Compression>,
        error: &CqlError,
        out: &mut Vec<u8>,
    ) {
        let id = self.request_id(RequestKind::of(header.opcode));
        self.reactor.tally.error(Some(id), error.name());
        let encoder = encoder(header, compression);
        encoder.error(header.stream, error.kind(), &error.to_string(), out);
    }

    /// Responds to a message whose body is skipped because it is too large.
    pub(crate) fn refuse_oversized(
        &mut self,
        header: &Header,
        error: EnvelopeError,
        out: &mut Vec<u8>,
    ) {
        self.refuse(header, None, &CqlError::Invalid(error.to_string()), out);
    }

    /// Appends the response to a request other than a statement.
    fn handshake(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<RequestStatus> {
        session.admit(Opcode::from_byte(header.opcode).map_err(malformed)?)?;
        let compression = session.compression;
        let body = decompress_body(header, body, compression, &self.limits).map_err(malformed)?;
        // The custom payload is ignored.
        let (request, _) = decode_request(header, &body).map_err(malformed)?;
        let encoder = encoder(header, compression);
        let mut answer = Answer { encoder, stream: header.stream, out };
        match request {
            Request::Options => self.options(session, &mut answer)?,
            Request::Startup(options) => self.startup(session, &options, &mut answer)?,
            Request::AuthResponse(token) => {
                return self.auth_response(session, token, &mut answer);
            }
            Request::Register(events) => Self::register(session, &events, &mut answer)?,
            Request::Query { .. }
            | Request::Prepare { .. }
            | Request::Execute { .. }
            | Request::Batch(_) => return Err(malformed(MalformedBody::WrongSide)),
        }
        Ok(RequestStatus::Answered(Gate::OPEN))
    }

    /// Appends the response to a statement, and returns its outcome.
    fn statement(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        header: &Header,
        body: &[u8],
        compression: Option<Compression>,
        out: &mut Vec<u8>,
    ) -> Result<RequestStatus> {
        let encoder = encoder(header, compression);
        let mut answer = Answer { encoder, stream: header.stream, out };
        let is_repeated = [Opcode::Execute as u8, Opcode::Batch as u8].contains(&header.opcode);
        let stub = if is_repeated { self.reactor.settings.experiments.stub() } else { 0 };
        if stub >= stub::HEADER {
            return answer.void();
        }
        if self.overload_odds > 0.0 && self.reactor.random.random_bool(self.overload_odds) {
            return Err(CqlError::Overloaded("Server is under memory pressure".to_owned()));
        }
        if self.reactor.refuses_old {
            self.reactor.tally.totals.refused_old += 1;
            let text = "The server is overloaded and the request has waited for too long";
            return Err(CqlError::Overloaded(text.to_owned()));
        }
        let body = decompress_body(header, body, compression, &self.limits).map_err(malformed)?;
        let (request, extras) = decode_request(header, &body).map_err(malformed)?;
        if self.is_stopped(client, processor, &request) {
            return Ok(RequestStatus::Stopped);
        }
        if let Some((_, word)) = extras.custom_payload.iter().find(|(name, _)| *name == DURABILITY)
        {
            let word = String::from_utf8_lossy(word.unwrap_or_default());
            client.durability = durability_of(&word)?;
        }
        if stub >= stub::DECODED {
            return answer.void();
        }
        let is_stub = stub >= stub::PLANNED;
        let ran = if traces::is_traced(header) && !is_stub {
            let of = (header, &request, 0);
            self.run_traced(
                client,
                processor,
                of,
                &mut answer,
                |own, client, processor, answer| own.run(client, processor, &request, answer),
            )?
        } else {
            self.run(client, processor, &request, &mut answer)?
        };
        Ok(match ran {
            RequestStatus::Answered(_) if stub == stub::UNGATED => {
                RequestStatus::Answered(Gate::OPEN)
            }
            ran => ran,
        })
    }

    /// Whether CLIENT PAUSE, FAILOVER or a full log stops a request. A statement with an error is not
    /// stopped.
    fn is_stopped(
        &mut self,
        client: &ClientState,
        processor: &mut Processor,
        request: &Request<'_>,
    ) -> bool {
        // What runs on a pool was admitted by its reactor.
        if self.allows_expensive || matches!(request, Request::Prepare { .. }) {
            return false;
        }
        let (shared, now) = (self.shared, self.now.mono);
        let Some(pause) = self.reactor.pause(&shared.pause, now) else { return false };
        pause.stops(|| match request {
            Request::Query { statement, parameters } => {
                let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
                let statement = self.executor(&mut processor.record).prepare(statement, keyspace);
                statement.is_ok_and(|statement| statement.plan.may_write())
            }
            Request::Execute { id, .. } => self
                .find_valid(&mut processor.known, id)
                .is_ok_and(|statement| statement.plan.may_write()),
            _ => true,
        })
    }

    /// Runs a request, and retries if a table is altered between planning and locking.
    pub(super) fn run(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        request: &Request<'_>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<RequestStatus> {
        for _ in 0..PLANS_MAX {
            let ran = self.run_planned(client, processor, request, answer);
            if !matches!(ran, Err(CqlError::TableAltered)) {
                return ran;
            }
        }
        Err(CqlError::TableAltered)
    }

    fn run_planned(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        request: &Request<'_>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<RequestStatus> {
        let allows_expensive = self.allows_expensive;
        match request {
            Request::Prepare { statement, keyspace } => {
                let keyspace = keyspace.or(client.keyspace.as_deref());
                self.prepare(processor, statement, keyspace, answer)
            }
            Request::Query { statement, parameters } => {
                let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
                let statement =
                    self.executor(&mut processor.record).prepare(statement, keyspace)?;
                if is_expensive(&statement, client) && !allows_expensive {
                    return Ok(RequestStatus::TooLong);
                }
                let of = (&Arc::new(statement), None);
                self.execute(client, &mut processor.record, of, parameters, None, answer)
            }
            Request::Execute { id, result_metadata_id, parameters } => {
                let Processor { record, known } = processor;
                let statement = self.find_valid(known, id)?;
                if self.is_stub() {
                    return answer.void();
                }
                if is_expensive(statement, client) && !allows_expensive {
                    return Ok(RequestStatus::TooLong);
                }
                let of = (statement, *result_metadata_id);
                self.execute(client, record, of, parameters, None, answer)
            }
            Request::Batch(batch) => {
                for (statement, _) in batch.statements.iter() {
                    if let BatchStatement::Prepared(id) = statement {
                        self.find_valid(&mut processor.known, id)?;
                    }
                }
                if self.is_stub() {
                    return answer.void();
                }
                let Processor { record, known } = processor;
                let find = |id: &[u8]| known.get(id);
                let mut executor = self.executor(record);
                executor.defers = !allows_expensive;
                executor
                    .batch(client, batch, &find, &mut answer.reply())
                    .map(RequestStatus::Answered)
            }
            Request::AuthResponse(token) => {
                self.check_login(client, *token, answer)?;
                Ok(RequestStatus::Answered(Gate::OPEN))
            }
            _ => Err(malformed(MalformedBody::WrongSide)),
        }
    }

    /// Whether the experiment `stub` skips the execution of prepared statements and batches.
    fn is_stub(&self) -> bool {
        self.reactor.settings.experiments.stub() >= stub::PLANNED
    }

    /// Borrows the state to run a statement, and takes the current time.
    pub(super) fn executor<'e>(&'e mut self, record: &'e mut Record) -> CqlExecutor<'e> {
        let now = self.reactor.time(self.params);
        let Requests { shared, params, reactor, cql, .. } = self;
        let context = ReactorContext { shared, params, reactor, record, now, replies: None };
        CqlExecutor { context, statements: &cql.statements, defers: false }
    }

    /// Returns a prepared statement, and adds it to the cache if necessary.
    fn find_valid<'k>(
        &self,
        known: &'k mut StatementCache,
        id: &[u8],
    ) -> Result<&'k Arc<PreparedStatement>> {
        let catalog = self.shared.catalog.load();
        let found = known.find_valid(&self.shared.prepared, id, &catalog, self.now.mono);
        found.ok_or_else(|| unprepared(id))
    }

    fn prepare(
        &mut self,
        processor: &mut Processor,
        text: &str,
        keyspace: Option<&str>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<RequestStatus> {
        let mut id = statement_id(text, None);
        let is_qualified = |statement: &Arc<PreparedStatement>| statement.is_qualified;
        if !self.find_valid(&mut processor.known, &id).is_ok_and(is_qualified) {
            id = statement_id(text, keyspace);
        }
        if self.find_valid(&mut processor.known, &id).is_err() {
            let statement = self.executor(&mut processor.record).prepare(text, keyspace)?;
            let settings = &self.reactor.settings;
            let limits = PreparedLimits {
                statements_max: settings.internals.prepared_statements_max(),
                bytes_max: settings.prepared_statements_bytes_max,
            };
            let catalog = Arc::clone(&statement.catalog);
            id = statement.id;
            let entry = self.shared.prepared.insert(statement, limits, self.now.mono);
            processor.known.add(entry, &catalog);
        }
        let statement = processor.known.get(&id).ok_or_else(|| unprepared(&id))?;
        answer.encoder.prepared(answer.stream, &statement.reply(), answer.out)?;
        Ok(RequestStatus::Answered(Gate::OPEN))
    }
}

impl Answer<'_, '_> {
    fn reply(&mut self) -> WireReply<'_> {
        let Answer { encoder, stream, out } = self;
        WireReply {
            encoder: *encoder,
            stream: *stream,
            out,
            skip_columns: false,
            new_metadata_id: None,
        }
    }

    /// Appends a response without a result.
    fn void(&mut self) -> Result<RequestStatus> {
        self.encoder.void(self.stream, self.out)?;
        Ok(RequestStatus::Answered(Gate::OPEN))
    }
}

/// Returns the encoder for the response to a request. The response to the request that negotiates
/// the compression is not compressed.
fn encoder(header: &Header, compression: Option<Compression>) -> ResponseEncoder<'static> {
    ResponseEncoder { version: header.version, compression, notes: Notes::default() }
}

/// Returns the error for a response whose writes may be lost in a restart.
fn log_failed() -> CqlError {
    CqlError::Server(LOG_FAILED.to_owned())
}

/// Adds the partitions that a request will access. Ignores errors, which execution will report.
fn note_places(own: &Processor, header: &Header, body: &[u8], places: &mut Places) {
    let is_prepared = [Opcode::Execute as u8, Opcode::Batch as u8].contains(&header.opcode);
    if !is_prepared || header.flags.has(Flags::COMPRESSED) {
        return;
    }
    match decode_request(header, body) {
        Ok((Request::Execute { id, parameters, .. }, _)) => {
            if let Some(statement) = own.known.get(id) {
                places.add(statement, &parameters.values);
            }
        }
        Ok((Request::Batch(batch), _)) => {
            for (statement, values) in batch.statements.iter() {
                if places.is_full() {
                    return;
                }
                if let BatchStatement::Prepared(id) = statement
                    && let Some(statement) = own.known.get(id)
                {
                    places.add(statement, &values);
                }
            }
        }
        _ => {}
    }
}

/// Whether a statement hashes a password. If logins are disabled, it is rejected before hashing,
/// and there are no threads for it.
fn is_expensive(statement: &PreparedStatement, client: &ClientState) -> bool {
    client.access.is_some() && statement.is_expensive()
}

fn unprepared(id: &[u8]) -> CqlError {
    CqlError::Unprepared(id.to_vec())
}

fn malformed(error: MalformedBody) -> CqlError {
    CqlError::Protocol(error.to_string())
}
