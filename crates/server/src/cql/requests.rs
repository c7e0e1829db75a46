//! Requests to responses: what each opcode does.

use std::sync::Arc;

use base::time::Now;
use store::Params;
use wire::cql::{
    Flags, Header, Limits, Notes, Opcode, Request, ResponseEncoder, Version, decode_request,
    decompress_body,
};

use super::engine::{Engine, Reply, statement_id};
use super::error::CqlError;
use super::prepared::{Known, PreparedLimits};
use super::request_kind::RequestKind;
use super::session::Session;
use crate::resp::LOG_FAILED;
use crate::resp::cx::Record;
use crate::shared::Shared;
use crate::worker::Worker;

type Result<T> = std::result::Result<T, CqlError>;

/// What a request needs that is not its connection's. Lives for one read of one connection.
pub(crate) struct Requests<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
    pub(crate) known: &'a mut Known,
    pub(crate) limits: Limits,
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

impl Requests<'_> {
    /// Answers one message: appends its response to `out`, or parks it until the log is as far as it
    /// needs, or leaves it to the end of a wait.
    pub(crate) fn answer(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        let kind = RequestKind::of(header.opcode);
        session.requests += 1;
        session.last_request = kind;
        let start = out.len();
        let clock_start = self.worker.stamp;
        let gate = self.respond(session, header, body, out).unwrap_or_else(|error| {
            out.truncate(start);
            self.refuse(session, header, kind, &error, out);
            0
        });
        if gate > self.worker.durable {
            self.hold(session, header, kind, gate, start, out);
        }
        let stamp = self.worker.clock.now();
        let ns = self.worker.clock.delta_ns(clock_start, stamp);
        self.worker.stamp = stamp;
        self.worker.tally.executed(kind.command_id(), ns);
        self.worker.tally.totals.commands += 1;
    }

    /// The response at the end of `out` waits for the log.
    fn hold(
        &mut self,
        session: &mut Session,
        header: &Header,
        kind: RequestKind,
        gate: u64,
        start: usize,
        out: &mut Vec<u8>,
    ) {
        let log = &self.shared.log;
        if log.poisoned().is_some() && gate > log.durable().0 {
            out.truncate(start);
            let error = CqlError::Server(LOG_FAILED.to_owned());
            return self.refuse(session, header, kind, &error, out);
        }
        self.worker.note_gate(gate, kind.command_id());
        session.parked.push(gate, &out[start..]);
        out.truncate(start);
    }

    fn refuse(
        &mut self,
        session: &Session,
        header: &Header,
        kind: RequestKind,
        error: &CqlError,
        out: &mut Vec<u8>,
    ) {
        self.worker.tally.error(Some(kind.command_id()), error.name());
        let encoder = encoder(session, header);
        encoder.error(header.stream, error.kind(), &error.to_string(), out);
    }

    /// Appends the response. Returns the log position that it waits for; 0: none.
    fn respond(
        &mut self,
        session: &mut Session,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let malformed = |error: wire::cql::MalformedBody| CqlError::Protocol(error.to_string());
        session.admit(Opcode::from_byte(header.opcode).map_err(malformed)?)?;
        let body =
            decompress_body(header, body, session.compression, &self.limits).map_err(malformed)?;
        // A custom payload means nothing here.
        let (request, _) = decode_request(header, &body).map_err(malformed)?;
        let encoder = encoder(session, header);
        let mut answer = Answer { encoder, stream: header.stream, out };
        match request {
            Request::Options => Self::options(&mut answer),
            Request::Startup(options) => self.startup(session, &options, &mut answer),
            Request::AuthResponse(token) => self.auth_response(session, token, &mut answer),
            Request::Register(events) => Self::register(session, &events, &mut answer),
            Request::Prepare { statement, keyspace } => {
                self.prepare(session, statement, keyspace, &mut answer)
            }
            Request::Query { statement, parameters } => {
                let keyspace = parameters.keyspace.or(session.client.keyspace.as_deref());
                let mut engine = self.engine();
                let statement = engine.prepare(statement, keyspace)?;
                engine.execute(&mut session.client, &statement, &parameters, &mut answer.reply())
            }
            Request::Execute { id, result_metadata_id, mut parameters } => {
                self.learn(id)?;
                let statement = self.known.get(id).ok_or_else(|| unprepared(id))?;
                let is_old =
                    result_metadata_id.is_some_and(|id| id != statement.result_metadata_id);
                if is_old {
                    parameters.skip_metadata = false;
                }
                let mut reply = answer.reply();
                reply.has_old_metadata = is_old;
                let mut engine = Engine {
                    shared: self.shared,
                    params: self.params,
                    worker: self.worker,
                    record: self.record,
                    now: self.now,
                };
                engine.execute(&mut session.client, statement, &parameters, &mut reply)
            }
            Request::Batch(batch) => {
                for (statement, _) in batch.statements.iter() {
                    if let wire::cql::BatchStatement::Prepared(id) = statement {
                        self.learn(id)?;
                    }
                }
                let known = &*self.known;
                let find = |id: &[u8]| known.get(id).map(Arc::clone);
                let mut engine = Engine {
                    shared: self.shared,
                    params: self.params,
                    worker: self.worker,
                    record: self.record,
                    now: self.now,
                };
                engine.batch(&mut session.client, &batch, &find, &mut answer.reply())
            }
        }
    }

    fn engine(&mut self) -> Engine<'_> {
        Engine {
            shared: self.shared,
            params: self.params,
            worker: self.worker,
            record: self.record,
            now: self.now,
        }
    }

    /// Makes sure that a prepared statement is known.
    fn learn(&mut self, id: &[u8]) -> Result<()> {
        let catalog = self.shared.catalog.load();
        let is_known = self.known.learn(&self.shared.prepared, id, &catalog, self.now.mono);
        if is_known { Ok(()) } else { Err(unprepared(id)) }
    }

    fn prepare(
        &mut self,
        session: &Session,
        text: &str,
        keyspace: Option<&str>,
        answer: &mut Answer<'_, '_>,
    ) -> Result<u64> {
        let keyspace = keyspace.or(session.client.keyspace.as_deref());
        let id = statement_id(text, keyspace);
        if self.learn(&id).is_err() {
            let statement = self.engine().prepare(text, keyspace)?;
            let settings = &self.worker.settings;
            let limits = PreparedLimits {
                statements_max: settings.prepared_statements_max,
                bytes_max: settings.prepared_statements_bytes_max,
            };
            let catalog = Arc::clone(&statement.catalog);
            let entry = self.shared.prepared.insert(statement, limits, self.now.mono);
            self.known.add(entry, &catalog);
        }
        let statement = self.known.get(&id).ok_or_else(|| unprepared(&id))?;
        answer.encoder.prepared(answer.stream, &statement.reply(), answer.out);
        Ok(0)
    }
}

impl Answer<'_, '_> {
    fn reply(&mut self) -> Reply<'_> {
        let Answer { encoder, stream, out } = self;
        Reply { encoder: *encoder, stream: *stream, out, has_old_metadata: false }
    }
}

/// The form of the response to a request. What agrees on the form is answered without any.
fn encoder(session: &Session, header: &Header) -> ResponseEncoder<'static> {
    let is_traced = header.flags.has(Flags::TRACING) && header.version >= Version::V4;
    let warnings: &[&str] = if is_traced { &TRACING_WARNING } else { &[] };
    ResponseEncoder {
        version: header.version,
        compression: session.compression,
        notes: Notes { warnings, ..Notes::default() },
    }
}

fn unprepared(id: &[u8]) -> CqlError {
    CqlError::Unprepared(id.to_vec())
}
