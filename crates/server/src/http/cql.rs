//! `POST /cql`: runs a statement whose values and rows are JSON.
//!
//! The types of the statement's markers determine how values are read, and the types of its columns
//! determine how rows are written, as in INSERT JSON and SELECT JSON. The connection keeps no
//! state, not even USE: each request names its keyspace.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cql::error::CqlError;
use cql::json_limits;
use cql::plan::prepared::PreparedStatement;
use cql::schema::Catalog;
use cql::types::CqlType;
use cql::value::{check_size, json, text::put_json};
use foldhash::fast::RandomState;
use serde_json::value::RawValue;
use wire::cql::{Columns, Consistency, Encoded, OwnedValues, Parameters, Reader, SchemaChange};
use wire::http::Request;
use wire::resp::write_json_text;

use super::column;
use super::exchange::{Answered, Exchange, JSON, Response, ResponseOptions, durability};
use super::trace::StatementTrace;
use crate::commands::execute::Deferred;
use crate::config::CqlAuthenticator;
use crate::engine::refusal::LOG_FAILED;
use crate::statements::execute::Paused;
use crate::statements::executor::{ClientState, CqlExecutor, Executed, Turn};
use crate::statements::result_sink::{ResultRows, ResultSink};
use crate::statements::scan_queue::{PausedRequest, ROWS_PER_TURN};
use reactor::ConnId;

/// Rows per page if the request does not specify it; the default of drivers. Without pages, a whole
/// result would be converted to JSON at once.
const PAGE_ROWS: i32 = 5_000;
/// Maximum length of an error text.
const ERROR_BYTES_MAX: usize = 1024;

/// Planned statements cached per reactor; one more clears the cache.
const STATEMENTS_MAX: usize = 256;
/// Maximum length of a cached statement.
const STATEMENT_BYTES_MAX: usize = 4096;

type Result<T> = std::result::Result<T, CqlError>;

/// The parsed body. Unknown members are an error, so that a misspelled one is noticed.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    statement: String,
    values: CallValues<'a>,
    keyspace: Option<String>,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    /// Whether the answer contains a trace.
    trace: bool,
}

#[derive(Debug, Default)]
enum CallValues<'a> {
    #[default]
    None,
    InOrder(Vec<&'a RawValue>),
    Named(BTreeMap<String, &'a RawValue>),
}

pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    match durability(request) {
        Ok(Some(durability)) => exchange.choose_durability(durability),
        Ok(None) => {}
        Err(text) => return Ok(exchange.fail(400, text)),
    }
    let call = Call::read(request.body());
    if call.as_ref().is_ok_and(|call| exchange.is_stopped(call)) {
        return Err(exchange.context.reason_of_pause());
    }
    let ran = call.and_then(|call| match exchange.run_cql(&call) {
        // Plan the statement again for the altered table.
        Err(CqlError::TableAltered) => exchange.run_cql(&call),
        ran => ran,
    });
    match ran {
        Err(CqlError::Contended) => Err(Deferred::Contended),
        ran => Ok(exchange.statement_response(ran)),
    }
}

/// Resumes a paused statement.
pub(crate) fn resume(exchange: &mut Exchange<'_>, paused: PausedStatement) -> Response {
    let PausedStatement { request, paused, .. } = paused;
    let ran = exchange.run_bound(request, Some(paused));
    exchange.statement_response(ran)
}

/// Statements that this reactor has planned, by their text.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<String, Arc<PreparedStatement>, RandomState>);

impl Statements {
    fn find(
        &self,
        text: &str,
        keyspace: Option<&str>,
        catalog: &Arc<Catalog>,
    ) -> Option<Arc<PreparedStatement>> {
        let found = self.0.get(text)?;
        let is_same = found.is_qualified || found.keyspace.as_deref() == keyspace;
        (is_same && found.is_current(catalog)).then(|| Arc::clone(found))
    }

    fn keep(&mut self, text: &str, statement: &Arc<PreparedStatement>) {
        if text.len() > STATEMENT_BYTES_MAX {
            return;
        }
        if self.0.len() >= STATEMENTS_MAX {
            self.0.clear();
        }
        self.0.insert(text.to_owned(), Arc::clone(statement));
    }
}

/// A statement with its values.
#[derive(Debug)]
struct BoundRequest {
    statement: Arc<PreparedStatement>,
    client: ClientState,
    values: OwnedValues,
    page_size: i32,
    paging_state: Option<Vec<u8>>,
    trace: Option<StatementTrace>,
}

/// A request whose statement is paused.
#[derive(Debug)]
pub(crate) struct PausedStatement {
    pub(crate) id: ConnId,
    request: BoundRequest,
    paused: Box<Paused>,
    /// Time spent so far.
    pub(crate) ns: u64,
    pub(crate) options: ResponseOptions,
}

impl PausedRequest for PausedStatement {
    fn bytes(&self) -> usize {
        self.paused.bytes() + self.request.values.bytes()
    }
}

/// Builds an error response with Cassandra's code and wording.
pub(crate) fn statement_error(error: &CqlError, body: &mut Vec<u8>) -> Response {
    let status = match error {
        CqlError::Unauthorized(_) => 403,
        CqlError::BadCredentials(_) => 401,
        CqlError::AlreadyExists { .. } => 409,
        CqlError::Overloaded(_) | CqlError::Unavailable { .. } => 503,
        CqlError::Server(_) => 500,
        _ => 400,
    };
    let text = shortened(error.to_string());
    let response = Response::error(status, &text, body);
    body.pop();
    body.extend_from_slice(format!(",\"code\":{}}}", error.kind().code()).as_bytes());
    response
}

/// Truncates a text that quotes client input, which may be megabytes.
fn shortened(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text.push_str("...");
    }
    text
}

fn bad(text: impl Into<String>) -> CqlError {
    CqlError::Protocol(text.into())
}

impl<'a> Call<'a> {
    /// Parses a body whose size is within the limits.
    pub(super) fn read(body: &'a [u8]) -> Result<Call<'a>> {
        json_limits::check(body).map_err(|error| bad(error.to_string()))?;
        Call::parse(body)
    }

    fn parse(body: &'a [u8]) -> Result<Call<'a>> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body)
            .map_err(|error| bad(format!("the body is not a JSON object: {error}")))?;
        let mut call = Call::default();
        for (name, raw) in members {
            let wrong = |error: serde_json::Error| bad(format!("{name}: {error}"));
            match name.as_str() {
                "statement" => call.statement = serde_json::from_str(raw.get()).map_err(wrong)?,
                "keyspace" => call.keyspace = serde_json::from_str(raw.get()).map_err(wrong)?,
                "trace" => call.trace = serde_json::from_str(raw.get()).map_err(wrong)?,
                "page_size" => call.page_size = serde_json::from_str(raw.get()).map_err(wrong)?,
                "values" => call.values = CallValues::parse(raw.get()).map_err(wrong)?,
                "paging_state" => {
                    let text: Option<String> = serde_json::from_str(raw.get()).map_err(wrong)?;
                    let decoded = text.map(|text| STANDARD.decode(text)).transpose();
                    call.paging_state = decoded.map_err(|error| bad(format!("{name}: {error}")))?;
                }
                _ => return Err(bad(format!("unknown member {name}"))),
            }
        }
        if call.statement.is_empty() {
            return Err(bad("no statement"));
        }
        Ok(call)
    }

    /// Returns the values as raw JSON.
    pub(super) fn raws(&self) -> Vec<&'a RawValue> {
        match &self.values {
            CallValues::None => Vec::new(),
            CallValues::InOrder(raws) => raws.clone(),
            CallValues::Named(members) => members.values().copied().collect(),
        }
    }

    /// Binds the values in the order and encoding of the statement's markers.
    fn bind(&self, statement: &PreparedStatement) -> Result<OwnedValues> {
        let raws: Vec<Option<&RawValue>> = match &self.values {
            CallValues::None => Vec::new(),
            CallValues::InOrder(raws) => raws.iter().copied().map(Some).collect(),
            CallValues::Named(members) => {
                let markers = &statement.values;
                let known = |name: &String| markers.iter().any(|marker| marker.name == *name);
                if let Some(name) = members.keys().find(|name| !known(name)) {
                    return Err(CqlError::invalid(format!("No bind variable {name}")));
                }
                markers.iter().map(|marker| members.get(&marker.name).copied()).collect()
            }
        };
        if raws.len() != statement.values.len() {
            return Err(CqlError::invalid(format!(
                "there were {} markers(?) in CQL but {} bound variables",
                statement.values.len(),
                raws.len()
            )));
        }
        // A named value is bound to each marker with its name.
        let (mut values, mut bytes) = (OwnedValues::default(), 0);
        for (raw, marker) in raws.into_iter().zip(&statement.values) {
            let missing = || CqlError::invalid(format!("no value for {}", marker.name));
            let value = json::decode_raw(raw.ok_or_else(missing)?, &marker.of)
                .map_err(|error| CqlError::invalid(format!("{}: {error}", marker.name)))?;
            bytes += value.as_ref().map_or(0, Vec::len);
            check_size(bytes)?;
            values.push(value.as_deref())?;
        }
        Ok(values)
    }
}

impl<'a> CallValues<'a> {
    fn parse(text: &'a str) -> serde_json::Result<CallValues<'a>> {
        match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text).map(CallValues::Named),
            _ => serde_json::from_str(text).map(CallValues::InOrder),
        }
    }
}

impl Exchange<'_> {
    /// Whether CLIENT PAUSE, FAILOVER or a full log stops a statement. One with an error is not stopped.
    fn is_stopped(&mut self, call: &Call<'_>) -> bool {
        let (shared, now) = (self.context.shared, self.context.now.mono);
        let Some(pause) = self.context.reactor.pause(&shared.pause, now) else { return false };
        pause.stops(|| {
            let statement = self.plan(&call.statement, call.keyspace.as_deref());
            statement.is_ok_and(|statement| statement.plan.may_write())
        })
    }

    fn run_cql(&mut self, call: &Call<'_>) -> Result<Response> {
        // The server's password does not identify a role, so the role's permissions are unknown.
        if self.context.reactor.settings.cql_authenticator == CqlAuthenticator::Password {
            let text = "CQL over HTTP is not supported with cql-authenticator 'password'";
            return Err(CqlError::Unauthorized(text.to_owned()));
        }
        let mut trace = call.trace.then(|| StatementTrace::new(&self.context.reactor.clock));
        let statement = self.plan(&call.statement, call.keyspace.as_deref())?;
        note(&mut trace, || "Statement planned, or its plan found".to_owned());
        if statement.is_expensive() {
            let text = "statements that hash a role's password are not supported over HTTP";
            return Err(CqlError::invalid(text));
        }
        let mut request = BoundRequest {
            client: ClientState {
                keyspace: call.keyspace.clone(),
                access: None,
                durability: self.client.durability,
                local: self.local(),
            },
            values: call.bind(&statement)?,
            page_size: call.page_size.filter(|rows| *rows > 0).unwrap_or(PAGE_ROWS),
            paging_state: call.paging_state.clone(),
            statement,
            trace,
        };
        note(&mut request.trace, || format!("{} values bound", request.statement.values.len()));
        self.run_bound(request, None)
    }

    /// The response to a statement, or its error, with the gate of the schema.
    fn statement_response(&mut self, ran: Result<Response>) -> Response {
        let response = ran.unwrap_or_else(|error| statement_error(&error, &mut self.scratch.body));
        let durability = self.client.durability;
        let log = &self.context.shared.log;
        let of_schema = self.statements.schema.gate_of_response(durability, log);
        let gate = response.gate.max(of_schema);
        response.gated(gate)
    }

    /// Plans a statement, unless this reactor has already planned it for the current schema.
    fn plan(&mut self, text: &str, keyspace: Option<&str>) -> Result<Arc<PreparedStatement>> {
        let catalog = self.context.shared.catalog.load_full();
        if let Some(known) = self.scratch.statements.find(text, keyspace, &catalog) {
            return Ok(known);
        }
        let statement = Arc::new(PreparedStatement::new(text, keyspace, catalog)?);
        self.scratch.statements.keep(text, &statement);
        Ok(statement)
    }

    /// Runs a statement from its beginning or from where it paused, until it completes or pauses.
    fn run_bound(
        &mut self,
        mut request: BoundRequest,
        begun: Option<Box<Paused>>,
    ) -> Result<Response> {
        let id = self.connection();
        let parameters = Parameters {
            values: request.values.as_values(),
            page_size: Some(request.page_size),
            paging_state: request.paging_state.as_deref(),
            ..Parameters::new(Consistency::One)
        };
        let Exchange { context, statements, scratch, .. } = self;
        context.now = context.reactor.time(context.params);
        let defers = begun.is_none();
        let mut executor = CqlExecutor { context: context.reborrow(), statements, defers };
        let turn = Turn { rows_max: ROWS_PER_TURN, begun };
        let (client, statement) = (&mut request.client, &request.statement);
        let mut result = JsonResult { out: &mut scratch.body, rows: 0 };
        let executed = executor.execute(client, statement, &parameters, turn, &mut result)?;
        let rows = result.rows;
        match executed {
            Executed::Paused(paused) => {
                request.trace.iter_mut().for_each(|trace| trace.note_pause(ROWS_PER_TURN));
                let options = ResponseOptions::REFUSED;
                Ok(Response::paused(PausedStatement { id, request, paused, ns: 0, options }))
            }
            Executed::Done(gate) if self.context.reactor.is_lost(self.context.shared, gate) => {
                Err(CqlError::Server(LOG_FAILED.to_owned()))
            }
            Executed::Done(gate) => {
                if let Some(trace) = &mut request.trace {
                    trace.note(format!("Statement run, rows: {rows}"));
                    let waits_for = gate.unless_open_at(self.context.reactor.durable).lsn();
                    if let Some(lsn) = waits_for {
                        trace.note(format!("Answer waits for position {lsn} of the log"));
                    }
                    trace.append_to(&mut self.scratch.body);
                }
                Ok(Response::new(200, JSON).gated(gate))
            }
        }
    }
}

fn note(trace: &mut Option<StatementTrace>, text: impl FnOnce() -> String) {
    if let Some(trace) = trace {
        trace.note(text());
    }
}

/// A sink that appends a result as a JSON object.
#[derive(Debug)]
struct JsonResult<'a> {
    out: &'a mut Vec<u8>,
    rows: usize,
}

impl JsonResult<'_> {
    fn no_rows(&mut self, warnings: &[&str]) -> Encoded {
        let columns = Columns { keyspace: "", table: "", columns: &[] };
        self.rows(&ResultRows { columns, paging_state: None, cells: &[], count: 0, warnings })
    }

    fn columns(&mut self, columns: &Columns<'_>, types: &[CqlType]) {
        for (index, (column, of)) in columns.columns.iter().zip(types).enumerate() {
            self.out.extend_from_slice(if index > 0 { b"," } else { b"" });
            for (member, text) in [
                ("{\"keyspace\":", columns.keyspace),
                (",\"table\":", columns.table),
                (",\"name\":", &column.name),
            ] {
                self.out.extend_from_slice(member.as_bytes());
                write_json_text(text.as_bytes(), self.out);
            }
            self.out.extend_from_slice(b",\"type\":");
            write_json_text(of.to_string().as_bytes(), self.out);
            self.out.push(b'}');
        }
    }
}

impl ResultSink for JsonResult<'_> {
    fn void(&mut self, warnings: &[&str]) -> Encoded {
        self.no_rows(warnings)
    }

    fn set_keyspace(&mut self, _: &str) -> Encoded {
        self.no_rows(&[])
    }

    fn schema_changed(&mut self, _: &SchemaChange<'_>, warnings: &[&str]) -> Encoded {
        self.no_rows(warnings)
    }

    fn rows(&mut self, rows: &ResultRows<'_>) -> Encoded {
        self.rows = rows.count;
        let types: Vec<CqlType> = rows
            .columns
            .columns
            .iter()
            .map(|column| column::of_wire(&column.column_type))
            .collect();
        self.out.extend_from_slice(b"{\"columns\":[");
        self.columns(&rows.columns, &types);
        self.out.extend_from_slice(b"],\"rows\":[");
        let mut text = String::new();
        let mut cells = Reader::new(rows.cells);
        for row in 0..rows.count {
            text.push_str(if row == 0 { "[" } else { ",[" });
            for (place, of) in types.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                match cells.bytes().expect("the engine has encoded a cell for each column") {
                    None => text.push_str("null"),
                    Some(bytes) => put_json(bytes, of, &mut text),
                }
            }
            text.push(']');
        }
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"],\"paging_state\":");
        match rows.paging_state {
            None => self.out.extend_from_slice(b"null"),
            Some(state) => write_json_text(STANDARD.encode(state).as_bytes(), self.out),
        }
        if !rows.warnings.is_empty() {
            self.out.extend_from_slice(b",\"warnings\":");
            serde_json::to_writer(&mut *self.out, rows.warnings)
                .expect("strings into a vector always fit");
        }
        self.out.push(b'}');
        Ok(())
    }
}
