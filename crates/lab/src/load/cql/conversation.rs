//! A synchronous connection for operations before or after a load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use wire::cql::{
    Direction, HEADER_BYTES, Header, Limits, Opcode, Parameters, ParametersToSend, Response,
    decode_response,
};

use super::super::spec::{CqlWork, SocketWork};
use super::{ENCODER, STARTUP, error_name, login_token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A schema change takes Cassandra seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Responses on this connection are short.
const ANSWER: Limits = Limits { body_bytes_max: 16 << 20 };

#[derive(Debug)]
pub(crate) struct Conversation {
    stream: TcpStream,
    /// The last response.
    body: Vec<u8>,
}

impl Conversation {
    /// Connects and logs in. Returns `None` for an echo server.
    pub(crate) fn begin(work: &SocketWork, cql: &CqlWork) -> Result<Option<Conversation>> {
        let Some(mut conversation) = Self::connect(work.address)? else { return Ok(None) };
        let mut request = Vec::new();
        ENCODER.startup(0, &STARTUP, &mut request);
        let mut header = conversation.ask(&request)?;
        if header.opcode == Opcode::Authenticate as u8 {
            let token = login_token(&cql.user, work.password.as_deref().unwrap_or_default());
            request.clear();
            ENCODER.auth_response(0, &token, &mut request);
            header = conversation.ask(&request)?;
        }
        match conversation.response(&header)? {
            Response::Ready | Response::AuthSuccess(_) => Ok(Some(conversation)),
            other => bail!("the server answered {other:?} to a login"),
        }
    }

    /// Connects to a server. Returns `None` for an echo server.
    pub(crate) fn connect(address: SocketAddr) -> Result<Option<Conversation>> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut conversation = Conversation { stream, body: Vec::new() };
        let mut request = Vec::new();
        ENCODER.options(0, &mut request);
        conversation.stream.write_all(&request)?;
        let mut head = [0; HEADER_BYTES];
        conversation.stream.read_exact(&mut head).context("no response to OPTIONS")?;
        if head[..] == request[..HEADER_BYTES] {
            return Ok(None);
        }
        conversation.take(&head)?;
        Ok(Some(conversation))
    }

    /// Executes a statement without values.
    pub(crate) fn run(&mut self, statement: &str) -> Result<()> {
        let parameters = Parameters::new(wire::cql::Consistency::LocalOne);
        let mut request = Vec::new();
        ENCODER.query(0, statement, &ParametersToSend { parameters, values: &[] }, &mut request);
        let header = self.ask(&request).with_context(|| statement.to_owned())?;
        match self.response(&header)? {
            Response::Error { code, message, .. } => {
                bail!("{statement}: {} {message}", error_name(code))
            }
            _ => Ok(()),
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<Header> {
        self.stream.write_all(request)?;
        loop {
            let mut head = [0; HEADER_BYTES];
            self.stream.read_exact(&mut head).context("no response")?;
            let header = self.take(&head)?;
            if header.opcode != Opcode::Event as u8 {
                return Ok(header);
            }
        }
    }

    /// Reads the body of a response.
    fn take(&mut self, head: &[u8]) -> Result<Header> {
        let header = Header::decode(head, Direction::Response, None, &ANSWER)?;
        let header = header.expect("the buffer has the size of a header");
        self.body.resize(header.body_bytes, 0);
        self.stream.read_exact(&mut self.body).context("truncated response")?;
        Ok(header)
    }

    fn response(&self, header: &Header) -> Result<Response<'_>> {
        Ok(decode_response(header, &self.body)?.0)
    }
}

/// Executes the statements of the schema.
pub(crate) fn prepare_schema(work: &SocketWork) -> Result<()> {
    let Some(cql) = work.cql.as_ref().filter(|cql| !cql.schema.is_empty()) else { return Ok(()) };
    let Some(mut conversation) = Conversation::begin(work, cql)? else { return Ok(()) };
    cql.schema
        .iter()
        .try_for_each(|statement| conversation.run(statement))
        .context("could not create the schema")
}
