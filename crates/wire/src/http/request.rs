//! The decoder of requests: all complete requests of a read, without copying them.

use std::mem::MaybeUninit;

use super::batch::{
    Entry, Field, Method, Request, RequestBatch, RequestLine, Span, authority, keeps_alive,
};
use super::chunked::{Chunked, Piece};
use super::fields::{Framing, HeadEnd, Summary, find_end, is_host};
use super::limits::{FIELDS_MAX, Limits, RequestError};

/// Positions are 32 bits wide: bytes beyond wait until the bytes before them are consumed.
const INPUT_BYTES_MAX: usize = u32::MAX as usize;
/// Smallest value to which [`RequestDecoder::needed`] is reduced.
const NEEDED_BYTES_MIN: usize = 16 << 10;

/// State of the request at the front.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Start,
    /// This many bytes are complete lines of its head.
    Head(usize),
    /// The head is complete and takes this many bytes; the body is incomplete.
    Body { head_bytes: usize, body: Body },
    /// The last request of the connection, or an error, was decoded.
    Over,
}

#[derive(Debug, Clone, Copy)]
enum Body {
    Length(usize),
    /// Read up to the position `at` of the request.
    Chunked {
        at: usize,
        chunked: Chunked,
    },
}

/// Decodes the requests of one connection.
///
/// An incomplete request is passed again, followed by more bytes; the decoder stores its position
/// and reads no byte of a body twice except to reassemble chunks. It owns no memory.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    state: State,
    wants_continue: bool,
    needed_bytes: usize,
}

const _: () = assert!(size_of::<RequestDecoder>() <= 80);

impl RequestDecoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes complete requests from the front of `input` into `batch` (cleared first), at most
    /// `requests_max`. Returns the bytes they take; the caller must pass the rest again at the
    /// front next time, followed by more bytes.
    ///
    /// Decoding ends after a request that closes the connection, and after an error, which is in
    /// [`RequestBatch::error`]. Later bytes are ignored: see [`has_ended`](Self::has_ended).
    // Source: RFC 9112 2.2 (empty lines before a request line are ignored), 9.3.2 (pipelining)
    pub fn decode(
        &mut self,
        input: &[u8],
        limits: &Limits,
        requests_max: usize,
        batch: &mut RequestBatch,
    ) -> usize {
        batch.clear();
        self.needed_bytes = 0;
        let input = &input[..input.len().min(INPUT_BYTES_MAX)];
        let mut consumed = 0;
        while batch.len() < requests_max && !self.has_ended() {
            if matches!(self.state, State::Start) {
                while input[consumed..].starts_with(b"\r\n") {
                    consumed += 2;
                }
            }
            // A single CR may become an empty line.
            if matches!(&input[consumed..], [] | [b'\r']) && !self.is_inside() {
                break;
            }
            match self.read_one(input, consumed, limits, batch) {
                Ok(Some(end)) => {
                    consumed = end;
                    let entry = batch.entries.last().expect("a request was just pushed");
                    let goes_on = keeps_alive(entry.line.minor_version, &entry.summary);
                    self.state = if goes_on { State::Start } else { State::Over };
                    self.wants_continue = false;
                }
                Ok(None) => break,
                Err(error) => {
                    batch.error = Some(error);
                    self.state = State::Over;
                    self.wants_continue = false;
                }
            }
        }
        consumed
    }

    /// Resets the state of the incomplete request: for a caller that consumes less than
    /// [`decode`](Self::decode) returned, and so passes complete requests again.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether decoding has ended: the last request closes the connection, or there was an error.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether the input ends within a request.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Head(_) | State::Body { .. })
    }

    /// Whether the incomplete request has its complete head.
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Body { .. })
    }

    /// The incomplete request at the front of `input`, without its body; none if its head is
    /// incomplete or its body complete. Clears `batch`.
    pub fn head<'b>(
        &self,
        input: &'b [u8],
        limits: &Limits,
        batch: &'b mut RequestBatch,
    ) -> Option<Request<'b>> {
        let State::Body { head_bytes, .. } = self.state else { return None };
        batch.clear();
        let head = parse_head(input.get(..head_bytes)?, 0, limits, batch).ok()?;
        push(input, 0, head_bytes, &head, None, limits, batch).ok()?;
        Some(batch.get(0, input))
    }

    /// True once when the peer waits for [`CONTINUE`](super::CONTINUE) before it sends the body.
    /// Send it after the answers to earlier requests.
    // Source: RFC 9110 10.1.1 (Expect)
    pub fn take_continue(&mut self) -> bool {
        std::mem::take(&mut self.wants_continue)
    }

    /// Minimum number of bytes that the incomplete request still needs, 0 if unknown: a hint for
    /// the size of the read buffer.
    ///
    /// Never more than the received bytes of the request (or 16 KiB), so announced bytes that never
    /// arrive cause an allocation of at most twice the received bytes.
    pub fn needed(&self) -> usize {
        self.needed_bytes
    }

    /// Pushes the request at `start` and returns where it ends; none if it is incomplete.
    fn read_one(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
        batch: &mut RequestBatch,
    ) -> Result<Option<usize>, RequestError> {
        let rest = &input[start..];
        if let State::Body { head_bytes, body } = self.state {
            let Some(body) = self.read_body(rest, head_bytes, body, limits)? else {
                return Ok(None);
            };
            // The parsed lines refer to an input that is gone: parse it again, it is known to be
            // valid.
            let head = parse_head(&rest[..head_bytes], start, limits, batch)?;
            return push(input, start, head_bytes, &head, Some(body), limits, batch).map(Some);
        }
        let scanned = match self.state {
            State::Head(scanned) => scanned,
            _ if !is_token(rest[0]) => return Err(RequestError::Malformed),
            _ => 0,
        };
        let head_bytes = match find_end(rest, scanned, limits.head_bytes_max) {
            HeadEnd::At(end) => end,
            HeadEnd::Unfinished(scanned) => {
                self.state = State::Head(scanned);
                return Ok(None);
            }
            HeadEnd::BareLineFeed => return Err(RequestError::BareLineFeed),
            HeadEnd::TooLong => return Err(too_long(&rest[..limits.head_bytes_max])),
        };
        let field_first = batch.fields.len();
        let head = parse_head(&rest[..head_bytes], start, limits, batch)?;
        let body = match head.summary.framing {
            Framing::Unspecified | Framing::Length(0) => {
                return push(input, start, head_bytes, &head, None, limits, batch).map(Some);
            }
            Framing::Length(length) => {
                let length = usize::try_from(length).map_err(|_| RequestError::BodyTooLarge)?;
                if length > limits.body_bytes_max {
                    return Err(RequestError::BodyTooLarge);
                }
                Body::Length(length)
            }
            Framing::Chunked => Body::Chunked { at: head_bytes, chunked: Chunked::START },
        };
        if let Some(body) = self.read_body(rest, head_bytes, body, limits)? {
            return push(input, start, head_bytes, &head, Some(body), limits, batch).map(Some);
        }
        batch.fields.truncate(field_first);
        let has_body_bytes = rest.len() > head_bytes;
        self.wants_continue =
            head.summary.expects_continue && head.line.minor_version >= 1 && !has_body_bytes;
        Ok(None)
    }

    /// The body if it is complete, with the position of its end; otherwise stores the progress.
    fn read_body(
        &mut self,
        rest: &[u8],
        head_bytes: usize,
        body: Body,
        limits: &Limits,
    ) -> Result<Option<WholeBody>, RequestError> {
        match body {
            Body::Length(length) => {
                let end = head_bytes + length;
                if rest.len() >= end {
                    return Ok(Some(WholeBody { end, is_chunked: false }));
                }
                self.needed_bytes = (end - rest.len()).min(rest.len().max(NEEDED_BYTES_MIN));
                self.state = State::Body { head_bytes, body };
            }
            Body::Chunked { mut at, mut chunked } => {
                let body_bytes_max = limits.body_bytes_max as u64;
                loop {
                    let (used, piece) = chunked.next(&rest[at..], body_bytes_max, limits)?;
                    at += used;
                    match piece {
                        Piece::End => return Ok(Some(WholeBody { end: at, is_chunked: true })),
                        Piece::More if used == 0 => break,
                        Piece::More | Piece::Data => {}
                    }
                }
                self.state = State::Body { head_bytes, body: Body::Chunked { at, chunked } };
            }
        }
        Ok(None)
    }
}

/// A complete body, up to the position `end` of its request.
#[derive(Debug, Clone, Copy)]
struct WholeBody {
    end: usize,
    is_chunked: bool,
}

struct Head {
    line: RequestLine,
    summary: Summary,
    field_first: usize,
}

/// Adds the request at `start`, whose header lines are already in the batch, and returns its end in
/// the input.
fn push(
    input: &[u8],
    start: usize,
    head_bytes: usize,
    head: &Head,
    body: Option<WholeBody>,
    limits: &Limits,
    batch: &mut RequestBatch,
) -> Result<usize, RequestError> {
    let trailer_first = batch.fields.len();
    let body_start = start + head_bytes;
    let (body, is_gathered, end) = match body {
        None => (Span::default(), false, body_start),
        Some(WholeBody { end, is_chunked: false }) => {
            (Span::new(body_start, end - head_bytes), false, start + end)
        }
        Some(WholeBody { end, is_chunked: true }) => {
            (gather(input, body_start, limits, batch)?, true, start + end)
        }
    };
    let position = |place: usize| u32::try_from(place).expect("inputs are cut to INPUT_BYTES_MAX");
    batch.entries.push(Entry {
        line: head.line,
        summary: head.summary,
        field_first: position(head.field_first),
        trailer_first: position(trailer_first),
        field_end: position(batch.fields.len()),
        body,
        is_gathered,
        end: position(end),
    });
    Ok(end)
}

/// Reassembles the chunks of a complete body, and reads its trailers.
fn gather(
    input: &[u8],
    body_start: usize,
    limits: &Limits,
    batch: &mut RequestBatch,
) -> Result<Span, RequestError> {
    let gathered_first = batch.gathered.len();
    let mut chunked = Chunked::START;
    let mut at = body_start;
    loop {
        let (used, piece) = chunked.next(&input[at..], limits.body_bytes_max as u64, limits)?;
        match piece {
            Piece::Data => batch.gathered.extend_from_slice(&input[at..at + used]),
            Piece::End => {
                parse_trailers(&input[at..at + used], at, limits, batch)?;
                break;
            }
            Piece::More => assert!(used != 0, "the body is complete"),
        }
        at += used;
    }
    Ok(Span::new(gathered_first, batch.gathered.len() - gathered_first))
}

/// Reads trailers into the batch. They are stored separately from the headers, so that none can
/// pass for one; trailers that frame a message are rejected all the same.
// Source: RFC 9112 7.1.2 (chunked trailer section), RFC 9110 6.5.1 (limitations on use of trailers)
fn parse_trailers(
    lines: &[u8],
    start: usize,
    limits: &Limits,
    batch: &mut RequestBatch,
) -> Result<(), RequestError> {
    if lines == b"\r\n" {
        return Ok(());
    }
    let mut headers = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let slots = &mut headers[..limits.fields_max.min(FIELDS_MAX)];
    let parsed = match httparse::parse_headers(lines, slots) {
        Ok(httparse::Status::Complete((_, parsed))) => parsed,
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadTooLarge),
        Ok(httparse::Status::Partial) | Err(_) => return Err(RequestError::Chunk),
    };
    for header in parsed {
        let frames = ["transfer-encoding", "content-length", "host", "trailer"];
        if frames.iter().any(|name| header.name.eq_ignore_ascii_case(name)) {
            return Err(RequestError::Chunk);
        }
        batch.fields.push(Field {
            name: Span::within(lines, header.name.as_bytes(), start),
            value: Span::within(lines, header.value, start),
        });
    }
    Ok(())
}

/// Reads a complete head, which starts at `start` of the input, into the batch's header lines.
// Source: RFC 9112 3 (request line), 5 (field syntax: no space before the colon, no folded lines)
fn parse_head(
    head: &[u8],
    start: usize,
    limits: &Limits,
    batch: &mut RequestBatch,
) -> Result<Head, RequestError> {
    let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let slots = &mut headers[..limits.fields_max.min(FIELDS_MAX)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, slots) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadTooLarge),
        Err(httparse::Error::Version) => {
            let known = with_known_version(head)?;
            // The copy differs in one digit, so this recurses at most once.
            return parse_head(&known, start, limits, batch);
        }
        Ok(_) | Err(_) => return Err(RequestError::Malformed),
    }
    let (Some(method_text), Some(target), Some(minor_version)) =
        (request.method, request.path, request.version)
    else {
        return Err(RequestError::Malformed);
    };
    let method = Method::of(method_text);
    if target.len() > limits.target_bytes_max {
        return Err(RequestError::TargetTooLong);
    }
    check_target(method, target.as_bytes())?;
    let field_first = batch.fields.len();
    let mut summary = Summary::EMPTY;
    for header in request.headers.iter() {
        summary.note(header.name, header.value)?;
        batch.fields.push(Field {
            name: Span::within(head, header.name.as_bytes(), start),
            value: Span::within(head, header.value, start),
        });
    }
    // Source: RFC 9112 3.2 (a request without Host, or with several, is answered with 400)
    if minor_version >= 1 && summary.hosts != 1 {
        return Err(RequestError::Host);
    }
    // Source: RFC 9112 6.1 (a transfer coding in HTTP/1.0 is faulty framing)
    if minor_version == 0 && summary.framing == Framing::Chunked {
        return Err(RequestError::TransferEncoding);
    }
    let line = RequestLine {
        method,
        method_text: Span::within(head, method_text.as_bytes(), start),
        target: Span::within(head, target.as_bytes(), start),
        minor_version,
    };
    Ok(Head { line, summary, field_first })
}

/// One of the four forms, of visible ASCII without a fragment.
// Source: RFC 9112 3.2.1 to 3.2.4; RFC 9110 4.2.4 (user information is not accepted)
fn check_target(method: Method, target: &[u8]) -> Result<(), RequestError> {
    if !target.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(RequestError::Target);
    }
    let is_good = match target {
        [b'/', ..] => method != Method::Connect,
        b"*" => method == Method::Options,
        _ if method == Method::Connect => is_host(target) && target.contains(&b':'),
        _ => {
            let is_web = |scheme: &[u8]| {
                target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            };
            let is_named = authority(target).is_some_and(|name| !name.is_empty() && is_host(name));
            is_named && (is_web(b"http://") || is_web(b"https://"))
        }
    };
    if is_good { Ok(()) } else { Err(RequestError::Target) }
}

/// Converts a head of HTTP/1.2 or later to HTTP/1.1. Rejects another major version, and a request
/// line that is not three words.
// Source: RFC 9110 2.5 (a higher minor version is served as the highest known), 15.6.6 (505 is about the
// major version); RFC 9112 2.3 (HTTP-version), 3 (request line)
fn with_known_version(head: &[u8]) -> Result<Vec<u8>, RequestError> {
    let line_end = memchr::memchr(b'\r', head).unwrap_or(head.len());
    let mut words = head[..line_end].split(|&byte| byte == b' ');
    let (Some(_), Some(_), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RequestError::Malformed);
    };
    match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => {
            let mut known = head.to_vec();
            known[line_end - 1] = b'1';
            Ok(known)
        }
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(RequestError::Version)
        }
        _ => Err(RequestError::Malformed),
    }
}

/// Which limit a head exceeds, given its allowed part `start`.
fn too_long(start: &[u8]) -> RequestError {
    if memchr::memchr(b'\n', start).is_none() {
        RequestError::TargetTooLong
    } else {
        RequestError::HeadTooLarge
    }
}

/// Whether a method may start with this byte.
// Source: RFC 9110 5.6.2 (tokens)
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
