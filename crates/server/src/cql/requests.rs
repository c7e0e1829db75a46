//! Requests to responses: what each opcode does.

use std::sync::Arc;

use base::time::Now;
use rand::Rng as _;
use store::Params;
use wire::cql::{
    BatchStatement, Compression, Flags, Header, Limits, MalformedBody, Notes, Opcode, Parameters,
    Request, ResponseEncoder, Version, decode_request, decompress_body,
};

use super::engine::{ClientState, Engine, Reply, statement_id};
use super::error::CqlError;
use super::pool::{Call, PoolReply};
use super::prepared::PreparedLimits;
use super::processor::Processor;
use super::request_kind::RequestKind;
use super::session::{Phase, Session};
use crate::config::ReplyPath;
use crate::resp::LOG_FAILED;
use crate::shared::Shared;
use crate::worker::Worker;

type Result<T> = std::result::Result<T, CqlError>;

/// What a request needs that is not its connection's. Lives for one read of one connection.
pub(crate) struct Requests<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) limits: Limits,
    /// The share of statements that is refused because memory gets scarce.
    pub(crate) overload_odds: f64,
    pub(crate) now: Now,
}

/// Where the response of one request goes, and in which form.
pub(super) struct Answer<'e, 'o> {
    pub(super) encoder: ResponseEncoder<'e>,
    pub(super) stream: i16,
    pub(super) out: &'o mut Vec<u8>,
}

/// A client that asks for tracing is told so, in the versions that have warnings.
const TRACING_WARNING: [&str; 1] = ["Tracing is not recorded by this server"];

/// What `stub` says: how early statements are answered.
mod stub {
    pub(super) const UNGATED: usize = 1;
    pub(super) const PLANNED: usize = 2;
    pub(super) const DECODED: usize = 3;
    pub(super) const HEADER: usize = 4;
}

impl Requests<'_> {
    /// Answers one message: appends its response to `out`, or parks it until the log is as far as it
    /// needs, or leaves it to the end of a wait or to the pool.
    pub(crate) fn answer(
        &mut self,
        session: &mut Session,
        own: &mut Processor,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let kind = RequestKind::of(header.opcode);
        session.requests += 1;
        session.last_request = kind;
        let settings = &self.worker.settings;
        if settings.log_cql_requests {
            let stream = header.stream;
            tracing::info!(id = session.id.0, stream, bytes = body.len(), ?kind, "CQL request");
        }
        let start = out.len();
        let clock_start = self.worker.stamp;
        let responded = if session.phase == Phase::Ready && kind.is_statement() {
            if settings.reply == ReplyPath::Pool && settings.stub < stub::HEADER {
                return self.hand_over(session, header, body, out);
            }
            let shared = self.shared;
            let compression = session.compression;
            shared.processors.with(own, |processor| {
                self.statement(&mut session.client, processor, header, body, compression, out)
            })
        } else {
            self.handshake(session, header, body, out)
        };
        let gate = responded.unwrap_or_else(|error| {
            out.truncate(start);
            self.refuse(header, session.compression, &error, out);
            0
        });
        self.executed(kind, clock_start);
        if gate > self.worker.durable {
            let is_parked = self.hold(session, header, gate, &out[start..]);
            out.truncate(start);
            if !is_parked {
                self.refuse(header, session.compression, &log_failed(), out);
            }
        }
    }

    /// Runs a request on a thread of the pool: appends its response, and returns its gate.
    pub(crate) fn run_call(
        &mut self,
        client: &mut ClientState,
        own: &mut Processor,
        header: &Header,
        body: &[u8],
        compression: Option<Compression>,
        out: &mut Vec<u8>,
    ) -> u64 {
        let shared = self.shared;
        let clock_start = self.worker.stamp;
        let responded = shared.processors.with(own, |processor| {
            self.statement(client, processor, header, body, compression, out)
        });
        let gate = responded.unwrap_or_else(|error| {
            out.clear();
            self.refuse(header, compression, &error, out);
            0
        });
        self.executed(RequestKind::of(header.opcode), clock_start);
        gate
    }

    fn executed(&mut self, kind: RequestKind, clock_start: u64) {
        let stamp = self.worker.clock.now();
        let ns = self.worker.clock.delta_ns(clock_start, stamp);
        self.worker.stamp = stamp;
        self.worker.tally.executed(kind.command_id(), ns);
        self.worker.tally.totals.commands += 1;
    }

    /// Gives the request to the pool.
    fn hand_over(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let call = Call {
            reactor: self.worker.index,
            id: session.id,
            header: *header,
            body: body.to_vec(),
            compression: session.compression,
            limits: self.limits,
            client: session.client.clone(),
        };
        if self.shared.pool.push(call, self.worker.settings.cql_service_queue_length) {
            session.in_flight += 1;
        } else {
            let calls_max = self.worker.settings.cql_service_queue_length;
            let error = CqlError::Overloaded(format!(
                "Call dropped due to backpressure. The service queue is full, it has {calls_max} \
                 items."
            ));
            self.refuse(header, session.compression, &error, out);
        }
    }

    /// A response of the pool has come.
    pub(crate) fn take_reply(
        &mut self,
        session: &mut Session,
        reply: PoolReply,
        out: &mut Vec<u8>,
    ) {
        session.in_flight -= 1;
        if reply.keyspace.is_some() {
            session.client.keyspace = reply.keyspace;
        }
        if reply.gate <= self.worker.durable {
            out.extend_from_slice(&reply.message);
        } else if !self.hold(session, &reply.header, reply.gate, &reply.message) {
            self.refuse(&reply.header, session.compression, &log_failed(), out);
        }
    }

    /// Parks a response until the log is as far as it needs. False if it never will be.
    fn hold(&mut self, session: &mut Session, header: &Header, gate: u64, message: &[u8]) -> bool {
        let log = &self.shared.log;
        if log.poisoned().is_some() && gate > log.durable().0 {
            return false;
        }
        self.worker.note_gate(gate, RequestKind::of(header.opcode).command_id());
        session.parked.push(gate, message);
        true
    }

    fn refuse(
        &mut self,
        header: &Header,
        compression: Option<Compression>,
        error: &CqlError,
        out: &mut Vec<u8>,
    ) {
        let kind = RequestKind::of(header.opcode);
        self.worker.tally.error(Some(kind.command_id()), error.name());
        let encoder = encoder(header, compression);
        encoder.error(header.stream, error.kind(), &error.to_string(), out);
    }

    /// Appends the response to what is no statement. Returns the log position that it waits for;
    /// 0: none.
    fn handshake(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        session.admit(Opcode::from_byte(header.opcode).map_err(malformed)?)?;
        let compression = session.compression;
        let body = decompress_body(header, body, compression, &self.limits).map_err(malformed)?;
        // A custom payload means nothing here.
        let (request, _) = decode_request(header, &body).map_err(malformed)?;
        let encoder = encoder(header, compression);
        let mut answer = Answer { encoder, stream: header.stream, out };
        match request {
            Request::Options => {
                Self::options(&mut answer);
                Ok(0)
            }
            Request::Startup(options) => self.startup(session, &options, &mut answer),
            Request::AuthResponse(token) => self.auth_response(session, token, &mut answer),
            Request::Register(events) => Self::register(session, &events, &mut answer),
            Request::Query { .. }
            | Request::Prepare { .. }
            | Request::Execute { .. }
            | Request::Batch(_) => Err(malformed(MalformedBody::WrongSide)),
        }
    }

    /// Appends the response to a statement. Returns the log position that it waits for; 0: none.
    fn statement(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        header: &Header,
        body: &[u8],
        compression: Option<Compression>,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let encoder = encoder(header, compression);
        let mut answer = Answer { encoder, stream: header.stream, out };
        let stub = self.worker.settings.stub;
        if stub >= stub::HEADER && header.opcode != Opcode::Prepare as u8 {
            return Ok(answer.void());
        }
        if self.overload_odds > 0.0 && self.worker.random.random_bool(self.overload_odds) {
            return Err(CqlError::Overloaded("Server is under memory pressure".to_owned()));
        }
        let body = decompress_body(header, body, compression, &self.limits).map_err(malformed)?;
        let (request, _) = decode_request(header, &body).map_err(malformed)?;
        if stub == stub::DECODED && !matches!(request, Request::Prepare { .. }) {
            return Ok(answer.void());
        }
        let gate = self.run(client, processor, &request, &mut answer)?;
        Ok(if stub == stub::UNGATED { 0 } else { gate })
    }

    fn run(
        &mut self,
        client: &mut ClientState,
        processor: &mut Processor,
        request: &Request<'_>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<u64> {
        let is_stub = self.worker.settings.stub >= stub::PLANNED;
        match request {
            Request::Prepare { statement, keyspace } => {
                let keyspace = keyspace.or(client.keyspace.as_deref());
                self.prepare(processor, statement, keyspace, answer)
            }
            Request::Query { statement, parameters } => {
                let keyspace = parameters.keyspace.or(client.keyspace.as_deref());
                let mut engine = self.engine(processor);
                let statement = engine.prepare(statement, keyspace)?;
                if is_stub {
                    return Ok(answer.void());
                }
                engine.execute(client, &statement, parameters, &mut answer.reply())
            }
            Request::Execute { id, result_metadata_id, parameters } => {
                self.learn(processor, id)?;
                if is_stub {
                    return Ok(answer.void());
                }
                let Processor { record, known } = processor;
                let statement = known.get(id).ok_or_else(|| unprepared(id))?;
                let mut reply = answer.reply();
                reply.has_old_metadata =
                    result_metadata_id.is_some_and(|id| id != statement.result_metadata_id);
                // The client needs the columns that it does not know.
                let skip_metadata = parameters.skip_metadata && !reply.has_old_metadata;
                let parameters = Parameters { skip_metadata, ..*parameters };
                let mut engine = Engine {
                    shared: self.shared,
                    params: self.params,
                    worker: self.worker,
                    record,
                    now: self.now,
                };
                engine.execute(client, statement, &parameters, &mut reply)
            }
            Request::Batch(batch) => {
                for (statement, _) in batch.statements.iter() {
                    if let BatchStatement::Prepared(id) = statement {
                        self.learn(processor, id)?;
                    }
                }
                if is_stub {
                    return Ok(answer.void());
                }
                let Processor { record, known } = processor;
                let find = |id: &[u8]| known.get(id).map(Arc::clone);
                let mut engine = Engine {
                    shared: self.shared,
                    params: self.params,
                    worker: self.worker,
                    record,
                    now: self.now,
                };
                engine.batch(client, batch, &find, &mut answer.reply())
            }
            _ => Err(malformed(MalformedBody::WrongSide)),
        }
    }

    fn engine<'e>(&'e mut self, processor: &'e mut Processor) -> Engine<'e> {
        Engine {
            shared: self.shared,
            params: self.params,
            worker: self.worker,
            record: &mut processor.record,
            now: self.now,
        }
    }

    /// Makes sure that a prepared statement is known.
    fn learn(&self, processor: &mut Processor, id: &[u8]) -> Result<()> {
        let catalog = self.shared.catalog.load();
        let table = &self.shared.prepared;
        let is_known = processor.known.learn(table, id, &catalog, self.now.mono);
        if is_known { Ok(()) } else { Err(unprepared(id)) }
    }

    fn prepare(
        &mut self,
        processor: &mut Processor,
        text: &str,
        keyspace: Option<&str>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<u64> {
        let id = statement_id(text, keyspace);
        if self.learn(processor, &id).is_err() {
            let statement = self.engine(processor).prepare(text, keyspace)?;
            let settings = &self.worker.settings;
            let limits = PreparedLimits {
                statements_max: settings.prepared_statements_max,
                bytes_max: settings.prepared_statements_bytes_max,
            };
            let catalog = Arc::clone(&statement.catalog);
            let entry = self.shared.prepared.insert(statement, limits, self.now.mono);
            processor.known.add(entry, &catalog);
        }
        let statement = processor.known.get(&id).ok_or_else(|| unprepared(&id))?;
        answer.encoder.prepared(answer.stream, &statement.reply(), answer.out);
        Ok(0)
    }
}

impl Answer<'_, '_> {
    fn reply(&mut self) -> Reply<'_> {
        let Answer { encoder, stream, out } = self;
        Reply { encoder: *encoder, stream: *stream, out, has_old_metadata: false }
    }

    /// Done, and there is nothing to say.
    fn void(&mut self) -> u64 {
        self.encoder.void(self.stream, self.out);
        0
    }
}

/// The form of the response to a request. What agrees on the form is answered without any.
fn encoder(header: &Header, compression: Option<Compression>) -> ResponseEncoder<'static> {
    let is_traced = header.flags.has(Flags::TRACING) && header.version >= Version::V4;
    let warnings: &[&str] = if is_traced { &TRACING_WARNING } else { &[] };
    let notes = Notes { warnings, ..Notes::default() };
    ResponseEncoder { version: header.version, compression, notes }
}

/// What the response says may not be there after a restart.
fn log_failed() -> CqlError {
    CqlError::Server(LOG_FAILED.to_owned())
}

fn unprepared(id: &[u8]) -> CqlError {
    CqlError::Unprepared(id.to_vec())
}

fn malformed(error: MalformedBody) -> CqlError {
    CqlError::Protocol(error.to_string())
}
