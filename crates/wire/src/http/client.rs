//! The client's side: writes requests and decodes answers incrementally.

use std::mem::MaybeUninit;

use thiserror::Error;

use super::batch::{Field, Fields, Span, keeps_alive};
use super::chunked::{Chunked, Piece};
use super::fields::{Framing, HeadEnd, Summary, find_end};
use super::limits::{FIELDS_MAX, Limits, RequestError};
use super::response::put_value;

/// Appends a request. A body gets its Content-Length; `None` is for methods without one. Control
/// characters in values become spaces.
// Source: RFC 9112 3 (request line), 6.2 (Content-Length)
pub fn encode_request(
    method: &[u8],
    target: &[u8],
    headers: &[(&str, &[u8])],
    body: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    debug_assert!(target.iter().all(u8::is_ascii_graphic));
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in headers {
        put_line(out, name, value);
    }
    if let Some(body) = body {
        put_line(out, "Content-Length", itoa::Buffer::new().format(body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default());
}

fn put_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    put_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Bytes that are not an answer; the connection is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResponseError {
    #[error("malformed status line or header")]
    Malformed,
    #[error("too large response head")]
    HeadTooLarge,
    /// The lines that determine where the body ends are wrong or contradict each other.
    #[error("ambiguous length of the response's body: {0}")]
    Framing(RequestError),
    #[error("the connection ended inside a response")]
    Truncated,
}

/// Result of decoding the bytes at the front.
#[derive(Debug)]
pub enum Event<'a> {
    /// More bytes are needed.
    Unfinished,
    /// The head of an answer; 1xx answers (except 101) are followed by another head.
    Head(ResponseHead<'a>),
    /// A piece of the body, never empty.
    Body(&'a [u8]),
    /// The answer is complete; the next bytes belong to another one.
    End,
}

/// The head of an answer, borrowed.
#[derive(Debug, Clone)]
pub struct ResponseHead<'a> {
    pub status: u16,
    /// Whether the connection may be used again after this answer.
    pub keeps_alive: bool,
    /// Length of the body, if the head specifies it.
    pub content_length: Option<u64>,
    bytes: &'a [u8],
    fields: &'a [Field],
}

impl<'a> ResponseHead<'a> {
    /// All header lines in order.
    pub fn headers(&self) -> Fields<'a> {
        Fields { bytes: self.bytes, fields: self.fields.iter() }
    }
}

/// The expected next element.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A head, with the number of bytes that are complete lines.
    Head(usize),
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    /// The end must still be reported.
    Complete,
}

/// Decodes the answers of one connection, in order. Before each answer, call
/// [`expect_to_head`](Self::expect_to_head) to set whether its request was HEAD.
#[derive(Debug)]
pub struct ResponseDecoder {
    state: State,
    is_to_head: bool,
    fields: Vec<Field>,
}

impl Default for ResponseDecoder {
    fn default() -> Self {
        Self { state: State::Head(0), is_to_head: false, fields: Vec::new() }
    }
}

impl ResponseDecoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the next answer is to a HEAD request, and so has no body whatever its head
    /// specifies.
    pub fn expect_to_head(&mut self, is_to_head: bool) {
        self.is_to_head = is_to_head;
    }

    /// Whether an answer is partly read. False between answers.
    pub fn is_inside(&self) -> bool {
        !matches!(self.state, State::Head(0))
    }

    /// Reads the front of `input`, and returns the bytes used with their meaning. The caller must
    /// pass unused bytes again, followed by more bytes. Bodies are not limited: their pieces are
    /// returned as they arrive.
    // Source: RFC 9112 6.3 (message body length), 7.1
    pub fn decode<'a>(
        &'a mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<(usize, Event<'a>), ResponseError> {
        match self.state {
            State::Complete => {
                self.state = State::Head(0);
                Ok((0, Event::End))
            }
            _ if input.is_empty() => Ok((0, Event::Unfinished)),
            State::Head(scanned) => self.read_head(input, scanned, limits),
            State::Length(left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - count as u64;
                self.state = if left == 0 { State::Complete } else { State::Length(left) };
                Ok((count, Event::Body(&input[..count])))
            }
            State::Chunked(mut chunked) => {
                let next = chunked.next(input, u64::MAX, limits);
                let (used, piece) = next.map_err(ResponseError::Framing)?;
                self.state = State::Chunked(chunked);
                match piece {
                    Piece::More => Ok((used, Event::Unfinished)),
                    Piece::Data => Ok((used, Event::Body(&input[..used]))),
                    Piece::End => {
                        self.state = State::Head(0);
                        Ok((used, Event::End))
                    }
                }
            }
            State::UntilClose => Ok((input.len(), Event::Body(input))),
        }
    }

    /// Called when the peer has closed: true if that completes an answer, false between answers.
    pub fn end_of_input(&mut self) -> Result<bool, ResponseError> {
        match self.state {
            State::Head(0) => Ok(false),
            State::UntilClose | State::Complete => {
                self.state = State::Head(0);
                Ok(true)
            }
            State::Head(_) | State::Length(_) | State::Chunked(_) => Err(ResponseError::Truncated),
        }
    }

    fn read_head<'a>(
        &'a mut self,
        input: &'a [u8],
        scanned: usize,
        limits: &Limits,
    ) -> Result<(usize, Event<'a>), ResponseError> {
        let end = match find_end(input, scanned, limits.head_bytes_max) {
            HeadEnd::At(end) => end,
            HeadEnd::Unfinished(scanned) => {
                self.state = State::Head(scanned);
                return Ok((0, Event::Unfinished));
            }
            HeadEnd::BareLineFeed => return Err(ResponseError::Malformed),
            HeadEnd::TooLong => return Err(ResponseError::HeadTooLarge),
        };
        let head = self.parse_head(&input[..end], limits)?;
        let (status, summary, minor_version) = head;
        let content_length = match summary.framing {
            Framing::Length(length) => Some(length),
            Framing::Unspecified | Framing::Chunked => None,
        };
        self.state = self.body_of(status, &summary);
        let ends_with_connection = matches!(self.state, State::UntilClose);
        let keeps_alive = keeps_alive(minor_version, &summary) && !ends_with_connection;
        let head = ResponseHead {
            status,
            keeps_alive,
            content_length,
            bytes: input,
            fields: &self.fields,
        };
        Ok((end, Event::Head(head)))
    }

    /// Where the body of an answer ends.
    // Source: RFC 9112 6.3 rules 1, 2, 4, 6, 8
    fn body_of(&self, status: u16, summary: &Summary) -> State {
        if matches!(status, 100 | 102..=199) {
            return State::Head(0);
        }
        if self.is_to_head || matches!(status, 101 | 204 | 304) {
            return State::Complete;
        }
        match summary.framing {
            Framing::Length(0) => State::Complete,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunked::START),
            Framing::Unspecified => State::UntilClose,
        }
    }

    /// Status, a summary of the header lines, and the minor version; the lines are added to
    /// `fields`.
    // Source: RFC 9112 4 (status line), 5 (field syntax)
    fn parse_head(
        &mut self,
        head: &[u8],
        limits: &Limits,
    ) -> Result<(u16, Summary, u8), ResponseError> {
        let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let slots = &mut headers[..limits.fields_max.min(FIELDS_MAX)];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            head,
            slots,
        );
        match parsed {
            Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::HeadTooLarge),
            Ok(_) | Err(_) => return Err(ResponseError::Malformed),
        }
        let (Some(status), Some(minor_version)) = (response.code, response.version) else {
            return Err(ResponseError::Malformed);
        };
        self.fields.clear();
        let mut summary = Summary::EMPTY;
        for header in response.headers.iter() {
            // Host and Expect are meaningless in an answer.
            if !["host", "expect"].iter().any(|name| header.name.eq_ignore_ascii_case(name)) {
                summary.note(header.name, header.value).map_err(ResponseError::Framing)?;
            }
            self.fields.push(Field {
                name: Span::within(head, header.name.as_bytes(), 0),
                value: Span::within(head, header.value, 0),
            });
        }
        Ok((status, summary, minor_version))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{check_responses, responses_of};
    use super::*;

    fn check(input: &str, expected: &[&str]) {
        assert_eq!(responses_of(input.as_bytes(), false), expected, "{input:?}");
        check_responses(input.as_bytes());
    }

    #[test]
    fn answers_with_every_kind_of_body() {
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            &["200 Content-Length=2 keep", "hi"],
        );
        check("HTTP/1.1 204 \r\n\r\nHTTP/1.1 304\r\n\r\n", &["204 keep", "", "304 keep", ""]);
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n",
            &["200 Transfer-Encoding=chunked keep", "hi"],
        );
        check("HTTP/1.1 200 OK\r\n\r\nuntil the end", &["200 close", "until the end"]);
        check("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", &["200 Content-Length=0 close", ""]);
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", {
            &["100 keep", "200 Content-Length=0 keep", ""]
        });
    }

    #[test]
    fn malformed_answers_are_rejected() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh", {
            &["200 Content-Length=2 keep", "error: the connection ended inside a response"]
        });
        check("ICY 200 OK\r\n\r\n", &["error: malformed status line or header"]);
        check("HTTP/1.1 200 OK\n\n", &["error: malformed status line or header"]);
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(
            both,
            &["error: ambiguous length of the response's body: both Content-Length and \
                       Transfer-Encoding"],
        );
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let found = responses_of(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true);
        assert_eq!(found, ["200 Content-Length=2 keep", ""]);
    }

    #[test]
    fn no_value_ends_its_line() {
        let mut out = Vec::new();
        encode_request(b"GET", b"/", &[("A", b"b\r\nC: d")], Some(b"x"), &mut out);
        assert_eq!(out, b"GET / HTTP/1.1\r\nA: b  C: d\r\nContent-Length: 1\r\n\r\nx");
    }
}
