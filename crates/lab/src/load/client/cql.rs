//! CQL connections: setup, and replies by stream.

use reactor::Output;
use wire::cql::{Direction, Header, Opcode, Response, decode_response};

use super::super::cql::unprepared_id;
use super::super::cql::{ENCODER, Message, STARTUP, Statements, UNPREPARED, error_name, next};
use super::super::shared::Notice;
use super::{At, Client, Decoded, Flights, Requests, Session};

/// Additional state of a CQL connection.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The peer is an echo server.
    is_echo: bool,
    /// Statements that the server has evicted, with the requests that wait for them.
    forgotten: Vec<Forgotten>,
}

/// A statement that is being prepared again.
#[derive(Debug)]
struct Forgotten {
    position: usize,
    /// Of the requests; the first one is used for the PREPARE.
    streams: Vec<u16>,
}

impl State {
    fn direction(&self) -> Direction {
        if self.is_echo { Direction::Request } else { Direction::Response }
    }
}

impl Client {
    fn statements(&mut self) -> &mut Statements {
        match &mut self.requests {
            Requests::Statements(statements) => statements,
            Requests::Words(_) => unreachable!("CQL has statements"),
        }
    }

    /// Handles the handshake: STARTUP, the login if requested, and one PREPARE for each statement,
    /// whose streams are their positions. Returns the bytes consumed.
    pub(super) fn greet(
        &mut self,
        session: &mut Session,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, String> {
        if input.starts_with(&startup()) {
            session.cql.is_echo = true;
            self.statements().set_for_echo();
            session.setup_left = 0;
            self.notify(Notice::Ready);
            return Ok(startup().len());
        }
        let mut consumed = 0;
        while session.setup_left > 0 {
            let message = next(&input[consumed..], Direction::Response);
            let Some(message) = message.map_err(|error| error.to_string())? else { break };
            consumed += message.bytes();
            self.take_greeting(session, &message, out)?;
        }
        Ok(consumed)
    }

    fn take_greeting(
        &mut self,
        session: &mut Session,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match decoded(&message.header, message.body)? {
            Response::Ready | Response::AuthSuccess(_) => {
                let statements = self.statements();
                session.setup_left = statements.len();
                for position in 0..statements.len() {
                    statements.ask(position, stream_of(position), out);
                }
            }
            Response::Authenticate(_) => {
                ENCODER.auth_response(0, self.plan.login.as_deref().unwrap_or_default(), out);
            }
            Response::Prepared(reply) => {
                let position = usize::try_from(message.header.stream).unwrap_or(usize::MAX);
                let statements = self.statements();
                if position >= statements.len() {
                    return Err("unsolicited PREPARED response from the server".to_owned());
                }
                statements.set(position, &reply)?;
                session.setup_left -= 1;
                if session.setup_left == 0 {
                    self.notify(Notice::Ready);
                }
            }
            Response::Event(..) => {}
            Response::Error { code, message, .. } => {
                let name = error_name(code);
                return Err(format!("the server refused the setup: {name}: {message}"));
            }
            other => return Err(format!("the server answered {other:?} to the setup")),
        }
        Ok(())
    }

    /// Counts the available replies, whose users continue.
    pub(super) fn take_messages(
        &mut self,
        session: &mut Session,
        input: &[u8],
        at: At,
        out: &mut Output,
    ) -> Result<Decoded, String> {
        let direction = session.cql.direction();
        let is_measuring = at.phase.has(at.now_ns);
        let mut decoded = Decoded::default();
        loop {
            let message = next(&input[decoded.consumed..], direction);
            let Some(message) = message.map_err(|error| error.to_string())? else { break };
            decoded.consumed += message.bytes();
            let Some(stream) = message.stream().map_err(|error| error.to_string())? else {
                continue;
            };
            if message.opcode == Opcode::Error || !session.cql.forgotten.is_empty() {
                let landed = self.take_special(session, &message, stream, at, out)?;
                decoded.count += landed;
                continue;
            }
            self.tally.rows_missing += u64::from(is_measuring && message.has_no_rows());
            self.land(session, stream, at, out)?;
            decoded.count += 1;
        }
        Ok(decoded)
    }

    /// Completes the request on this stream.
    #[inline]
    fn land(
        &mut self,
        session: &mut Session,
        stream: u16,
        at: At,
        out: &mut Output,
    ) -> Result<(), String> {
        let Flights::Streams(streams) = &mut session.flights else {
            unreachable!("CQL has streams");
        };
        let flight = streams.land(stream);
        let flight = flight.ok_or_else(|| format!("unsolicited response on stream {stream}"))?;
        self.landed(session, flight, 1, at, out);
        Ok(())
    }

    /// Handles an error, or any reply while statements are being prepared again. Returns the number
    /// of replies that count.
    fn take_special(
        &mut self,
        session: &mut Session,
        message: &Message<'_>,
        stream: u16,
        at: At,
        out: &mut Output,
    ) -> Result<u32, String> {
        let is_measuring = at.phase.has(at.now_ns);
        let of_forgotten =
            session.cql.forgotten.iter().position(|one| one.streams.first() == Some(&stream));
        match decoded(&message.header, message.body)? {
            Response::Error { code: UNPREPARED, details, .. } if of_forgotten.is_none() => {
                let id =
                    unprepared_id(details).ok_or("an UNPREPARED error without a statement id")?;
                let is_new = self.repeat_later(session, id, stream, out.buffer())?;
                self.tally.prepared_again += u64::from(is_measuring && is_new);
                Ok(0)
            }
            Response::Prepared(reply) if of_forgotten.is_some() => {
                let forgotten = session.cql.forgotten.swap_remove(of_forgotten.unwrap_or_default());
                let (Requests::Statements(statements), draws) =
                    (&mut self.requests, &mut self.draws)
                else {
                    unreachable!("CQL has statements");
                };
                statements.set(forgotten.position, &reply)?;
                for stream in forgotten.streams {
                    statements.encode(forgotten.position, stream, draws, out.buffer());
                }
                Ok(0)
            }
            Response::Error { code, .. } => {
                let streams = match of_forgotten {
                    // Requests that waited for the statement fail with it.
                    Some(index) => session.cql.forgotten.swap_remove(index).streams,
                    None => vec![stream],
                };
                let mut count = 0;
                for stream in streams {
                    if is_measuring {
                        self.tally.count_error(error_name(code));
                    }
                    self.land(session, stream, at, out)?;
                    count += 1;
                }
                Ok(count)
            }
            _ => self.land(session, stream, at, out).map(|()| 1),
        }
    }

    /// Queues a request whose statement the server has evicted until it is prepared again. Returns
    /// true if the PREPARE has not been sent yet.
    fn repeat_later(
        &mut self,
        session: &mut Session,
        id: &[u8],
        stream: u16,
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let statements = self.statements();
        let position = statements.find(id).ok_or("UNPREPARED error for an unknown statement")?;
        let is_there = matches!(&session.flights, Flights::Streams(streams) if streams.has(stream));
        if !is_there {
            return Err(format!("unsolicited response on stream {stream}"));
        }
        let forgotten = &mut session.cql.forgotten;
        if let Some(one) = forgotten.iter_mut().find(|one| one.position == position) {
            one.streams.push(stream);
            return Ok(false);
        }
        forgotten.push(Forgotten { position, streams: vec![stream] });
        statements.ask(position, stream, out);
        Ok(true)
    }
}

/// The first message of a connection, which an echo server returns.
fn startup() -> Vec<u8> {
    let mut bytes = Vec::new();
    ENCODER.startup(0, &STARTUP, &mut bytes);
    bytes
}

/// Converts a position: a mix has far fewer operations than there are streams.
fn stream_of(position: usize) -> u16 {
    u16::try_from(position).expect("check() bounds the operations of a mix")
}

fn decoded<'a>(header: &Header, body: &'a [u8]) -> Result<Response<'a>, String> {
    decode_response(header, body).map(|(response, _)| response).map_err(|error| error.to_string())
}
