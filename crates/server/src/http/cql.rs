//! `POST /cql`: a statement with values as JSON, its rows as JSON.
//!
//! Values are read by the types of the statement's markers, rows are written by the types of their
//! columns, both as INSERT JSON and SELECT JSON do it. The connection remembers nothing, no USE either:
//! the keyspace comes with each request.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cql::error::CqlError;
use cql::json_limits;
use cql::plan::prepared::PreparedStatement;
use cql::value::{check_size, json, text::put_json};
use serde_json::value::RawValue;
use wire::cql::{
    Consistency, Direction, HEADER_BYTES, Header, Limits, Metadata, Notes, Parameters,
    ParametersToSend, Request as CqlRequest, RequestEncoder, Response, ResponseEncoder, Value,
    Version, decode_request, decode_response,
};
use wire::http::Request;

use super::column;
use super::exchange::{Answered, Exchange, JSON, Outcome, durability};
use super::reply;
use crate::commit::LOG_FAILED;
use crate::config::CqlAuthenticator;
use crate::cql::engine::{ClientState, Engine, Reply};
use crate::cql::execute::Paused;
use crate::cql::walks::Walking;

/// Rows of a page where the request does not say how many, as drivers have it. A result without pages would be
/// turned into JSON at once.
const PAGE_ROWS: i32 = 5_000;
/// Bytes of an error's text.
const ERROR_BYTES_MAX: usize = 1024;
const VERSION: Version = Version::V5;
const STREAM: i16 = 0;

type Result<T> = std::result::Result<T, CqlError>;

/// What the body says. Unknown members are an error, so that a misspelt one is not lost.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    statement: String,
    values: Given<'a>,
    keyspace: Option<String>,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
enum Given<'a> {
    #[default]
    None,
    InOrder(Vec<&'a RawValue>),
    Named(BTreeMap<String, &'a RawValue>),
}

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn answer(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    match durability(request) {
        Ok(Some(durability)) => exchange.choose_durability(durability),
        Ok(None) => {}
        Err(text) => return Ok(exchange.fail(400, text)),
    }
    let ran = json_limits::check(request.body())
        .map_err(|error| bad(error.to_string()))
        .and_then(|()| Call::parse(request.body()))
        .and_then(|call| match exchange.run_cql(&call) {
            // It is planned for the table as it is now.
            Err(CqlError::TableAltered) => exchange.run_cql(&call),
            ran => ran,
        });
    Ok(ran.unwrap_or_else(|error| fail(exchange, &error)))
}

/// Goes on with a statement that has paused.
pub(crate) fn go_on(exchange: &mut Exchange<'_>, walking: Walking) -> Outcome {
    let Walking { header, body, client, statement, paused, .. } = walking;
    let message = Message { header, body, client, statement };
    let ran = exchange.run_message(message, Some(paused));
    ran.unwrap_or_else(|error| fail(exchange, &error))
}

/// A statement as the message that a driver would send: what it means stands in one place.
struct Message {
    header: Header,
    body: Vec<u8>,
    client: ClientState,
    statement: Arc<PreparedStatement>,
}

/// An error with Cassandra's code and words.
fn fail(exchange: &mut Exchange<'_>, error: &CqlError) -> Outcome {
    let status = match error {
        CqlError::Unauthorized(_) => 403,
        CqlError::BadCredentials(_) => 401,
        CqlError::AlreadyExists { .. } => 409,
        CqlError::Overloaded(_) | CqlError::Unavailable { .. } => 503,
        CqlError::Server(_) => 500,
        _ => 400,
    };
    let text = shortened(error.to_string());
    let outcome = Outcome::error(status, &text, &mut exchange.scratch.body);
    let body = &mut exchange.scratch.body;
    body.pop();
    body.extend_from_slice(format!(",\"code\":{}}}", error.kind().code()).as_bytes());
    outcome
}

/// Cuts a text that repeats what the client has sent, which may be megabytes.
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
    pub(super) fn parse(body: &'a [u8]) -> Result<Call<'a>> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body)
            .map_err(|error| bad(format!("the body is no JSON object: {error}")))?;
        let mut call = Call::default();
        for (name, raw) in members {
            let wrong = |error: serde_json::Error| bad(format!("{name}: {error}"));
            match name.as_str() {
                "statement" => call.statement = serde_json::from_str(raw.get()).map_err(wrong)?,
                "keyspace" => call.keyspace = serde_json::from_str(raw.get()).map_err(wrong)?,
                "page_size" => call.page_size = serde_json::from_str(raw.get()).map_err(wrong)?,
                "values" => call.values = Given::parse(raw.get()).map_err(wrong)?,
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

    /// The values as they are written.
    pub(super) fn raws(&self) -> Vec<&'a RawValue> {
        match &self.values {
            Given::None => Vec::new(),
            Given::InOrder(raws) => raws.clone(),
            Given::Named(members) => members.values().copied().collect(),
        }
    }

    /// The values in the order and the form of the statement's markers.
    fn bind(&self, statement: &PreparedStatement) -> Result<Vec<Option<Vec<u8>>>> {
        let raws: Vec<Option<&RawValue>> = match &self.values {
            Given::None => Vec::new(),
            Given::InOrder(raws) => raws.iter().copied().map(Some).collect(),
            Given::Named(members) => {
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
        // A named value is repeated for each marker of its name.
        let mut bytes = 0;
        let decode = |(raw, marker): (Option<&RawValue>, &cql::expression::Marker)| {
            let missing = || CqlError::invalid(format!("no value for {}", marker.name));
            let value = json::decode_raw(raw.ok_or_else(missing)?, &marker.of)
                .map_err(|error| CqlError::invalid(format!("{}: {error}", marker.name)))?;
            bytes += value.as_ref().map_or(0, Vec::len);
            check_size(bytes)?;
            Ok(value)
        };
        raws.into_iter().zip(&statement.values).map(decode).collect()
    }
}

impl<'a> Given<'a> {
    fn parse(text: &'a str) -> serde_json::Result<Given<'a>> {
        match text.as_bytes().first() {
            Some(b'{') => serde_json::from_str(text).map(Given::Named),
            _ => serde_json::from_str(text).map(Given::InOrder),
        }
    }
}

impl Exchange<'_> {
    fn run_cql(&mut self, call: &Call<'_>) -> Result<Outcome> {
        // The password of the server says nothing of what a role may do.
        if self.worker.settings.cql_authenticator == CqlAuthenticator::Password {
            let text = "roles log in to CQL, which is not done by HTTP: see cql-authenticator";
            return Err(CqlError::Unauthorized(text.to_owned()));
        }
        let client = ClientState {
            keyspace: call.keyspace.clone(),
            access: None,
            durability: self.durability(),
            local: self.local(),
        };
        let Exchange { shared, cql, params, worker, record, .. } = self;
        let now = worker.time(params);
        let engine = Engine { shared, cql, params, worker, record, now };
        let statement = engine.prepare(&call.statement, call.keyspace.as_deref())?;
        if statement.takes_long() {
            let text = "passwords of roles are hashed for too long to do it by HTTP";
            return Err(CqlError::invalid(text));
        }
        let values = call.bind(&statement)?;
        let mut message = Vec::new();
        let parameters = Parameters {
            page_size: Some(call.page_size.filter(|rows| *rows > 0).unwrap_or(PAGE_ROWS)),
            paging_state: call.paging_state.as_deref(),
            ..Parameters::new(Consistency::One)
        };
        let values: Vec<_> = values
            .iter()
            .map(|value| (None, value.as_deref().map_or(Value::Null, Value::Bytes)))
            .collect();
        let to_send = ParametersToSend { parameters, values: &values };
        let encoder = RequestEncoder { version: VERSION, compression: None };
        encoder.query(STREAM, "", &to_send, &mut message);
        let header = decode_header(&message, Direction::Request);
        let body = message.split_off(HEADER_BYTES);
        let statement = Arc::new(statement);
        self.run_message(Message { header, body, client, statement }, None)
    }

    /// Runs a statement from its beginning or from where it has paused, to its end or to where it pauses.
    fn run_message(&mut self, message: Message, begun: Option<Box<Paused>>) -> Result<Outcome> {
        let id = self.connection();
        let Message { header, body, mut client, statement } = message;
        let (request, _) =
            decode_request(&header, &body).map_err(|error| bad(error.to_string()))?;
        let CqlRequest::Query { parameters, .. } = request else {
            unreachable!("a query was encoded")
        };
        let Exchange { shared, cql, params, worker, record, scratch, .. } = self;
        worker.walks.begin();
        worker.walks.begun = begun;
        let now = worker.time(params);
        let mut engine = Engine { shared, cql, params, worker, record, now };
        let encoder =
            ResponseEncoder { version: VERSION, compression: None, notes: Notes::default() };
        let out = &mut scratch.replies;
        let mut reply = Reply { encoder, stream: STREAM, out, has_old_metadata: false };
        let ran = engine.execute(&mut client, &statement, &parameters, &mut reply);
        if worker.walks.paused.is_some() {
            worker.walks.statement = Some(statement);
        }
        if let Some((paused, statement)) = worker.walks.end() {
            let walking = Walking {
                id,
                header,
                body,
                compression: None,
                client,
                statement,
                paused,
                ns: 0,
                terms: None,
            };
            return Ok(Outcome::paused(walking));
        }
        let gate = ran?;
        if !gate.is_open_at(self.worker.durable)
            && self.shared.log.poisoned().is_some()
            && !gate.is_open_at(self.shared.log.durable())
        {
            return Err(CqlError::Server(LOG_FAILED.to_owned()));
        }
        let scratch = &mut *self.scratch;
        let header = decode_header(&scratch.replies, Direction::Response);
        let (response, notes) = decode_response(&header, &scratch.replies[HEADER_BYTES..])
            .map_err(|error| CqlError::Server(error.to_string()))?;
        write_response(&response, &notes.warnings, &mut scratch.body);
        Ok(Outcome::new(200, JSON).gated(gate))
    }
}

fn decode_header(message: &[u8], direction: Direction) -> Header {
    let limits = Limits { body_bytes_max: usize::MAX };
    let header = Header::decode(message, direction, Some(VERSION), &limits);
    header.ok().flatten().expect("this server has just written it")
}

fn write_response(response: &Response<'_>, warnings: &[&str], out: &mut Vec<u8>) {
    let rows = if let Response::Rows(rows) = response { Some(rows) } else { None };
    let nothing = Metadata::default();
    let metadata = rows.map_or(&nothing, |rows| &rows.metadata);
    out.extend_from_slice(b"{\"columns\":[");
    let types: Vec<_> = metadata.specs.iter().map(|spec| column::of_wire(&spec.3)).collect();
    for (index, ((keyspace, table, name, _), of)) in metadata.specs.iter().zip(&types).enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        for (member, text) in
            [("{\"keyspace\":", *keyspace), (",\"table\":", table), (",\"name\":", name)]
        {
            out.extend_from_slice(member.as_bytes());
            reply::write_text(text.as_bytes(), out);
        }
        out.extend_from_slice(b",\"type\":");
        reply::write_text(of.to_string().as_bytes(), out);
        out.push(b'}');
    }
    out.extend_from_slice(b"],\"rows\":[");
    let mut text = String::new();
    for (index, cell) in rows.iter().flat_map(|rows| rows.cells()).enumerate() {
        let place = index % metadata.columns;
        text.push_str(match (index, place) {
            (0, _) => "[",
            (_, 0) => "],[",
            _ => ",",
        });
        match cell {
            None => text.push_str("null"),
            Some(bytes) => put_json(bytes, &types[place], &mut text),
        }
    }
    if !text.is_empty() {
        text.push(']');
    }
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"],\"paging_state\":");
    match metadata.paging_state {
        None => out.extend_from_slice(b"null"),
        Some(state) => reply::write_text(STANDARD.encode(state).as_bytes(), out),
    }
    if !warnings.is_empty() {
        out.extend_from_slice(b",\"warnings\":");
        serde_json::to_writer(&mut *out, warnings).expect("strings into a vector always fit");
    }
    out.push(b'}');
}
