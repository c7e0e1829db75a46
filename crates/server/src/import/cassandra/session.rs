//! A connection to a server of CQL's native protocol.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use wire::cql::{
    BatchKind, BatchStatement, Consistency, Direction, EnvelopeError, HEADER_BYTES, Header, Limits,
    Parameters, ParametersToSend, RequestEncoder, Response, Rows, StatementToSend, Value, Version,
    decode_response,
};

use super::failure::Failure;
use crate::import::place::Place;

/// Version 4: servers since Cassandra 2.2 have it.
const ENCODER: RequestEncoder = RequestEncoder { version: Version::V4, compression: None };
/// Longest time without a byte from a server. A change of the schema takes Cassandra a while.
const SILENCE_MAX: Duration = Duration::from_mins(1);
const READ_BYTES: usize = 64 << 10;
/// Rows of the schema and of the progress; a server that sends more is refused.
const LISTED_ROWS_MAX: usize = 1 << 20;
const LISTED_BYTES_MAX: usize = 256 << 20;
/// Pages may be empty.
const LISTED_PAGES_MAX: usize = 10_000;
const LISTED_PAGE_ROWS: i32 = 1000;
const DEFAULT_USER: &str = "cassandra";

// Source: native_protocol_v4.spec 9 "Error codes"
const SERVER_ERROR: i32 = 0x0000;
const TRANSIENT_ERRORS: std::ops::Range<i32> = 0x1000..0x1400;
const UNPREPARED: i32 = 0x2500;

/// Which of the two servers a connection is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Source,
    Target,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Target => "target",
        }
    }

    /// A row that one replica has not received yet must not be left out.
    fn consistency(self) -> Consistency {
        match self {
            Role::Source => Consistency::LocalQuorum,
            Role::Target => Consistency::One,
        }
    }
}

/// A page of a result: the given number of rows, after the position of the last page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) rows: i32,
    pub(super) after: Option<&'a [u8]>,
}

/// A connection. Only one thread uses it.
#[derive(Debug)]
pub(super) struct Session<'s> {
    socket: TcpStream,
    role: Role,
    stop: &'s AtomicBool,
    received: Vec<u8>,
    used: usize,
    /// Bytes that the message lacks whose first bytes were received.
    missing: usize,
}

/// A message of a server.
#[derive(Debug)]
pub(super) struct Message {
    header: Header,
    body: Vec<u8>,
    role: Role,
}

impl Message {
    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(super) fn stream(&self) -> i16 {
        self.header.stream
    }

    pub(super) fn of_no_request(&self) -> Failure {
        anyhow!("the {} answered a request that was not sent", self.role.name()).into()
    }

    fn response(&self) -> Result<Response<'_>, Failure> {
        let role = self.role.name();
        let decoded = decode_response(&self.header, &self.body);
        let (response, _) =
            decoded.map_err(|error| anyhow!("the {role} sent a malformed message: {error}"))?;
        let Response::Error { code, message, .. } = response else { return Ok(response) };
        let text = format!("the {role} answered: {message:.1000} (code {code:#06x})");
        if code == SERVER_ERROR || code == UNPREPARED || TRANSIENT_ERRORS.contains(&code) {
            return Err(Failure::Transient(text));
        }
        Err(Failure::Refused(text))
    }

    pub(super) fn rows(&self) -> Result<Rows<'_>, Failure> {
        match self.response()? {
            Response::Rows(rows) => Ok(rows),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Fails unless the statement was executed and has no rows.
    pub(super) fn expect_done(&self) -> Result<(), Failure> {
        match self.response()? {
            Response::Void | Response::SchemaChange(_) => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, response: &Response<'_>) -> Failure {
        anyhow!("the {} sent an unexpected response: {response:.100?}", self.role.name()).into()
    }
}

impl<'s> Session<'s> {
    /// Connects and logs in.
    pub(super) fn open(
        place: &Place,
        role: Role,
        stop: &'s AtomicBool,
    ) -> Result<Session<'s>, Failure> {
        let name = role.name();
        let socket = place.connect().map_err(|error| {
            let shown = place.shown();
            Failure::Transient(format!("could not connect to the {name} {shown}: {error}"))
        })?;
        let mut session = Session { socket, role, stop, received: Vec::new(), used: 0, missing: 0 };
        let mut request = Vec::new();
        ENCODER.startup(0, &[("CQL_VERSION", "3.0.0")], &mut request);
        let answer = session.ask(&request)?;
        match answer.response()? {
            Response::Ready => Ok(session),
            Response::Authenticate(_) => {
                session.log_in(place)?;
                Ok(session)
            }
            other => Err(answer.unexpected(&other)),
        }
    }

    // Source: native_protocol_v4.spec 4.2.3 "AUTHENTICATE"; the token is that of SASL's PLAIN
    fn log_in(&mut self, place: &Place) -> Result<(), Failure> {
        let Some(password) = &place.password else {
            return Err(anyhow!("the {} requires a password", self.role.name()).into());
        };
        let user = if place.user.is_empty() { DEFAULT_USER } else { &place.user };
        let token = format!("\0{user}\0{password}");
        let mut request = Vec::new();
        ENCODER.auth_response(0, token.as_bytes(), &mut request);
        let answer = self.ask(&request)?;
        match answer.response()? {
            Response::AuthSuccess(_) => Ok(()),
            other => Err(answer.unexpected(&other)),
        }
    }

    /// Prepares a statement. Returns its identifier.
    pub(super) fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, Failure> {
        let mut request = Vec::new();
        ENCODER.prepare(0, statement, None, &mut request);
        let answer = self.ask(&request)?;
        match answer.response()? {
            Response::Prepared(prepared) => Ok(prepared.id.to_vec()),
            other => Err(answer.unexpected(&other)),
        }
    }

    /// Appends the execution of a prepared statement to `out`.
    pub(super) fn encode_execute(
        &self,
        stream: i16,
        id: &[u8],
        values: &[Value<'_>],
        page: Option<Page<'_>>,
        out: &mut Vec<u8>,
    ) {
        let values: Vec<_> = values.iter().map(|value| (None, *value)).collect();
        let with = ParametersToSend { parameters: self.parameters(page), values: &values };
        ENCODER.execute(stream, id, &[], &with, out);
    }

    /// Appends the atomic execution of prepared statements for one partition to `out`.
    pub(super) fn encode_batch(
        &self,
        stream: i16,
        statements: &[(&[u8], &[Value<'_>])],
        out: &mut Vec<u8>,
    ) {
        let statements: Vec<StatementToSend<'_>> =
            statements.iter().map(|(id, values)| (BatchStatement::Prepared(id), *values)).collect();
        ENCODER.batch(stream, BatchKind::Unlogged, &statements, &self.parameters(None), out);
    }

    fn parameters<'p>(&self, page: Option<Page<'p>>) -> Parameters<'p> {
        let mut parameters = Parameters::new(self.role.consistency());
        parameters.page_size = page.map(|page| page.rows);
        parameters.paging_state = page.and_then(|page| page.after);
        parameters
    }

    /// Executes a statement and reads one page of its result.
    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        page: Option<Page<'_>>,
    ) -> Result<Message, Failure> {
        let values: Vec<_> = values.iter().map(|value| (None, *value)).collect();
        let with = ParametersToSend { parameters: self.parameters(page), values: &values };
        let mut request = Vec::new();
        ENCODER.query(0, statement, &with, &mut request);
        self.ask(&request)
    }

    /// Executes a statement without rows.
    pub(super) fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<(), Failure> {
        self.query(statement, values, None)?.expect_done()
    }

    /// Executes a conditional statement. Returns whether its condition was met.
    pub(super) fn is_applied(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<bool, Failure> {
        let message = self.query(statement, values, None)?;
        let rows = message.rows()?;
        Ok(rows.cells().next().flatten() == Some(&[1]))
    }

    /// All rows of a short result.
    pub(super) fn list(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Vec<Option<Vec<u8>>>>, Failure> {
        let mut listed = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        let mut bytes = 0;
        for _ in 0..LISTED_PAGES_MAX {
            let page = Page { rows: LISTED_PAGE_ROWS, after: after.as_deref() };
            let message = self.query(statement, values, Some(page))?;
            let rows = message.rows()?;
            let cells: Vec<_> = rows.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
            listed.extend(cells.chunks(rows.metadata.columns.max(1)).map(<[_]>::to_vec));
            after = rows.metadata.paging_state.map(<[u8]>::to_vec);
            bytes += message.bytes();
            if listed.len() > LISTED_ROWS_MAX || bytes > LISTED_BYTES_MAX {
                break;
            }
            if after.is_none() {
                return Ok(listed);
            }
        }
        let name = self.role.name();
        Err(anyhow!("{statement}: the {name} sent too many rows, bytes or pages").into())
    }

    fn ask(&mut self, request: &[u8]) -> Result<Message, Failure> {
        self.send(request)?;
        self.receive()
    }

    /// Sends encoded requests. Their responses must be short enough to wait in the buffers of the
    /// sockets, or be one.
    pub(super) fn send(&mut self, mut requests: &[u8]) -> Result<(), Failure> {
        let mut began = Instant::now();
        while !requests.is_empty() {
            self.check_stop()?;
            match self.socket.write(requests) {
                Ok(0) => return Err(self.lost(&ErrorKind::WriteZero.into())),
                Ok(count) => {
                    requests = &requests[count..];
                    began = Instant::now();
                }
                Err(error) if is_timeout(&error) && began.elapsed() < SILENCE_MAX => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Result<Message, Failure> {
        let mut began = Instant::now();
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            self.check_stop()?;
            if self.receive_some()? {
                began = Instant::now();
            } else if began.elapsed() >= SILENCE_MAX {
                return Err(self.lost(&ErrorKind::TimedOut.into()));
            }
        }
    }

    fn take(&mut self) -> Result<Option<Message>, Failure> {
        let input = &self.received[self.used..];
        let version = Some(ENCODER.version);
        let header = Header::decode(input, Direction::Response, version, &Limits::DEFAULT);
        let header = header.map_err(|error| {
            let text = format!("the {} sent a malformed message: {error}", self.role.name());
            match error {
                EnvelopeError::TooLarge { .. } => Failure::TooLarge(text),
                _ => Failure::Final(anyhow!(text)),
            }
        })?;
        let Some(header) = header else { return Ok(None) };
        let Some(envelope) = input.get(..header.envelope_bytes()) else {
            self.missing = header.envelope_bytes() - input.len();
            return Ok(None);
        };
        let body = envelope[HEADER_BYTES..].to_vec();
        self.used += header.envelope_bytes();
        self.missing = 0;
        Ok(Some(Message { header, body, role: self.role }))
    }

    /// One read, up to the timeout of the socket. False: nothing has arrived.
    fn receive_some(&mut self) -> Result<bool, Failure> {
        self.received.drain(..self.used);
        self.used = 0;
        let held = self.received.len();
        let room = if self.missing == 0 { READ_BYTES } else { self.missing };
        // The sum remains the same until the message is complete: the memory is allocated once.
        self.received.shrink_to(held + room);
        self.received.reserve_exact(room);
        self.received.resize(held + room.min(READ_BYTES), 0);
        let read = self.socket.read(&mut self.received[held..]);
        self.received.truncate(held + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(self.lost(&std::io::Error::other("it was closed"))),
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn check_stop(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) { Err(Failure::Stopped) } else { Ok(()) }
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        let name = self.role.name();
        Failure::Transient(format!("the connection to the {name} failed: {error}"))
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
