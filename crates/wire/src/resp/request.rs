//! The decoder of requests: all complete requests of a read, without copying them.

use super::batch::{RequestBatch, Span};
use super::inline;
use super::limits::{Limits, ProtocolError};
use super::number::parse_i64_strict;

/// Positions are 32 bits wide: bytes beyond wait until the bytes before them are consumed.
const INPUT_BYTES_MAX: usize = u32::MAX as usize;
/// An incomplete request of at most this many bytes is parsed again from its start when more bytes
/// arrive: that is cheaper than saving the position, and its arguments need no memory in the
/// decoder.
const REREAD_BYTES_MAX: usize = 512;
/// Smallest value to which [`RequestDecoder::needed`] is reduced.
const NEEDED_BYTES_MIN: usize = 16 << 10;
/// `Cursor::bulk_bytes` before the argument's length line was read.
const BULK_UNKNOWN: u32 = u32::MAX;

/// Decodes the requests of one connection.
///
/// An incomplete request is passed again, followed by more bytes; the decoder stores its position,
/// so a request in many pieces costs O(its bytes) in total. It allocates memory only for an
/// incomplete request with many arguments.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    /// Complete arguments of the incomplete request; positions from its start.
    spans: Vec<Span>,
    cursor: Cursor,
    needed_bytes: u32,
}

const _: () = assert!(size_of::<RequestDecoder>() <= 64);

/// Position in the incomplete request, from its start.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// First byte that is not parsed yet.
    at: u32,
    /// Bytes from `at` on that are known to contain no line end.
    scanned: u32,
    /// Missing arguments; 0 while even the first line is incomplete.
    args_left: u32,
    /// Length of the argument whose bytes start at `at`, or `BULK_UNKNOWN`.
    bulk_bytes: u32,
}

impl Cursor {
    const START: Self = Self { at: 0, scanned: 0, args_left: 0, bulk_bytes: BULK_UNKNOWN };
}

impl Default for Cursor {
    fn default() -> Self {
        Self::START
    }
}

/// Result of parsing the bytes at the front.
enum Step {
    /// A request, now in the batch, or an empty one; it takes this many bytes.
    Done(usize),
    /// The request continues after the input.
    Unfinished(Cursor),
}

impl RequestDecoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes complete requests from the front of `input` into `batch` (cleared first), at most
    /// `requests_max`. Returns the bytes they take; the caller must pass the rest again at the
    /// front next time, followed by newly arrived bytes.
    ///
    /// `input` is all unread input, up to 4 GiB, and starts at the start of a request. Requests
    /// without arguments (`*0`, `*-1`, an empty line) are consumed silently, as in Redis. After a
    /// malformed request [`RequestBatch::error`] is set and the connection must be closed.
    pub fn decode(
        &mut self,
        input: &[u8],
        limits: &Limits,
        requests_max: usize,
        batch: &mut RequestBatch,
    ) -> usize {
        batch.clear();
        let input = &input[..input.len().min(INPUT_BYTES_MAX)];
        self.needed_bytes = 0;
        let mut consumed = 0;
        while consumed < input.len() && batch.len() < requests_max {
            let span_first = batch.spans.len();
            let step = if input[consumed] == b'*' {
                self.read_multibulk(input, consumed, limits, batch)
            } else {
                self.read_inline(&input[consumed..], limits, batch)
            };
            match step {
                Ok(Step::Done(bytes)) => {
                    consumed += bytes;
                    batch.note_end(consumed);
                }
                Ok(Step::Unfinished(cursor)) => {
                    self.park(cursor, input.len() - consumed, consumed, span_first, batch);
                    break;
                }
                Err(error) => {
                    batch.spans.truncate(span_first);
                    batch.error = Some(error);
                    *self = Self::default();
                    break;
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

    /// Minimum number of bytes that the incomplete request still needs, 0 if unknown: a hint for
    /// the size of the read buffer.
    ///
    /// Never more than the received bytes of the request (or 16 KiB), so announced bytes that never
    /// arrive cause an allocation of at most twice the received bytes.
    pub fn needed(&self) -> usize {
        self.needed_bytes as usize
    }

    /// Reads the request at `start`, whose first byte is `*`.
    // Source: Redis protocol specification, "Sending commands to a Redis server"
    #[inline]
    fn read_multibulk(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
        batch: &mut RequestBatch,
    ) -> Result<Step, ProtocolError> {
        let mut cursor = self.cursor;
        self.cursor = Cursor::START;
        let request = &input[start..];
        let is_resumed = cursor.args_left > 0;
        if !is_resumed {
            match read_length(request, 0, cursor.scanned, limits) {
                Length::Value(count, next) => {
                    cursor =
                        Cursor { at: next, args_left: args_count(count, limits)?, ..Cursor::START };
                }
                Length::Unfinished(scanned) => {
                    return Ok(Step::Unfinished(Cursor { scanned, ..Cursor::START }));
                }
                Length::TooLong => return Err(ProtocolError::TooBigMultibulkCount),
                Length::Malformed => return Err(ProtocolError::InvalidMultibulkLength),
            }
            if cursor.args_left == 0 {
                return Ok(Step::Done(cursor.at as usize));
            }
        }
        let span_first = batch.spans.len();
        let spans = if is_resumed { &mut self.spans } else { &mut batch.spans };
        read_args(request, start, &mut cursor, limits, spans)?;
        if cursor.args_left > 0 {
            return Ok(Step::Unfinished(cursor));
        }
        if is_resumed {
            batch.spans.append(&mut self.spans);
            self.spans = Vec::new();
        }
        batch.push_request(span_first);
        Ok(Step::Done(cursor.at as usize))
    }

    /// Reads an inline request: a line of words.
    // Source: Redis protocol specification, "Inline commands"; Redis 7.0 networking.c processInlineBuffer
    // behaviour (a bare LF ends the line, too)
    fn read_inline(
        &mut self,
        request: &[u8],
        limits: &Limits,
        batch: &mut RequestBatch,
    ) -> Result<Step, ProtocolError> {
        let scanned = request.len().min(self.cursor.scanned as usize);
        self.cursor = Cursor::START;
        let line_end = memchr::memchr(b'\n', &request[scanned..]).map(|offset| scanned + offset);
        if line_end.unwrap_or(request.len()) > limits.inline_bytes_max {
            return Err(ProtocolError::TooBigInline);
        }
        let Some(line_end) = line_end else {
            let scanned = position(request.len());
            return Ok(Step::Unfinished(Cursor { scanned, ..Cursor::START }));
        };
        let line = &request[..line_end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let span_first = batch.spans.len();
        inline::split_args(line, &mut batch.inline_bytes, &mut batch.spans)?;
        if batch.spans.len() > span_first {
            batch.push_inline_request(span_first);
        }
        Ok(Step::Done(line_end + 1))
    }

    /// Saves the state of the incomplete request at `start`, of which `available` bytes have
    /// arrived.
    fn park(
        &mut self,
        cursor: Cursor,
        available: usize,
        start: usize,
        span_first: usize,
        batch: &mut RequestBatch,
    ) {
        if cursor.bulk_bytes != BULK_UNKNOWN {
            let end = cursor.at as usize + cursor.bulk_bytes as usize + 2;
            let missing = end.saturating_sub(available);
            self.needed_bytes = position(missing.min(available.max(NEEDED_BYTES_MIN)));
        }
        let is_remembered = cursor.at as usize + cursor.scanned as usize > REREAD_BYTES_MAX;
        let spans = batch.spans.drain(span_first..);
        if is_remembered {
            self.spans.extend(spans.map(|span| span.moved_down(start)));
            self.cursor = cursor;
        }
    }
}

/// Reads arguments from `cursor` on until all are complete or the input ends; `start` is the
/// position of `request` in the buffer that the spans refer to.
#[inline]
fn read_args(
    request: &[u8],
    start: usize,
    cursor: &mut Cursor,
    limits: &Limits,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut at = cursor.at as usize;
    while cursor.args_left > 0 {
        if cursor.bulk_bytes == BULK_UNKNOWN {
            match request.get(at) {
                None => break,
                Some(b'$') => {}
                Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
            }
            match read_length(request, at, cursor.scanned, limits) {
                Length::Value(bytes, next) => {
                    cursor.bulk_bytes = bulk_bytes(bytes, limits)?;
                    cursor.scanned = 0;
                    at = next as usize;
                }
                Length::Unfinished(scanned) => {
                    cursor.scanned = scanned;
                    break;
                }
                Length::TooLong => return Err(ProtocolError::TooBigBulkCount),
                Length::Malformed => return Err(ProtocolError::InvalidBulkLength),
            }
        }
        let bytes = cursor.bulk_bytes as usize;
        // Redis accepts any two bytes as the end.
        if request.len() < at + bytes + 2 {
            break;
        }
        spans.push(Span::new(start + at, bytes));
        at += bytes + 2;
        cursor.bulk_bytes = BULK_UNKNOWN;
        cursor.args_left -= 1;
    }
    cursor.at = position(at);
    Ok(())
}

/// The number of arguments that `*<count>` announces; 0 for an empty request.
// Source: Redis 7.0 networking.c processMultibulkBuffer behaviour, with the 1,048,576 of earlier versions
#[inline]
fn args_count(count: i64, limits: &Limits) -> Result<u32, ProtocolError> {
    if count <= 0 {
        return Ok(0);
    }
    let args = u32::try_from(count).map_err(|_| ProtocolError::InvalidMultibulkLength)?;
    if args as usize <= limits.args_max {
        Ok(args)
    } else if !limits.authenticated && args as usize <= Limits::DEFAULT.args_max {
        Err(ProtocolError::UnauthenticatedMultibulkLength)
    } else {
        Err(ProtocolError::InvalidMultibulkLength)
    }
}

/// The length of an argument that `$<bytes>` announces.
// Source: Redis 7.0 networking.c processMultibulkBuffer behaviour
#[inline]
fn bulk_bytes(bytes: i64, limits: &Limits) -> Result<u32, ProtocolError> {
    let bytes = u32::try_from(bytes).map_err(|_| ProtocolError::InvalidBulkLength)?;
    if bytes as usize <= limits.bulk_bytes_max && bytes != BULK_UNKNOWN {
        Ok(bytes)
    } else if !limits.authenticated && bytes as usize <= Limits::DEFAULT.bulk_bytes_max {
        Err(ProtocolError::UnauthenticatedBulkLength)
    } else {
        Err(ProtocolError::InvalidBulkLength)
    }
}

/// A line with a type's byte and a number.
enum Length {
    /// The number, and the position after the line.
    Value(i64, u32),
    /// The line continues after the input; the given number of its bytes contain no line end.
    Unfinished(u32),
    TooLong,
    Malformed,
}

/// Reads the length line whose type byte is at `at`; its first `scanned` bytes contain no line end.
#[inline]
fn read_length(request: &[u8], at: usize, scanned: u32, limits: &Limits) -> Length {
    let line = &request[at..];
    // One or two digits, as in almost every line.
    match *line {
        [_, ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Length::Value(i64::from(ones - b'0'), position(at + 4))
        }
        [_, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            let value = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            Length::Value(value, position(at + 5))
        }
        _ => read_longer_length(line, at, scanned, limits),
    }
}

/// [`read_length`] of a number of three digits or more. A separate function, so that the short case
/// is inlined.
#[inline(never)]
fn read_longer_length(line: &[u8], at: usize, scanned: u32, limits: &Limits) -> Length {
    /// Digits that the fast path handles; longer numbers are rare or invalid.
    const SHORT_DIGITS_MAX: usize = 7;

    let mut value = 0_u32;
    let mut index = 1;
    while index <= SHORT_DIGITS_MAX {
        let Some(&byte) = line.get(index) else { break };
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value * 10 + u32::from(digit);
        index += 1;
    }
    let has_plain_digits = index == 2 || (index > 2 && line[1] != b'0');
    if has_plain_digits && line.get(index..index + 2) == Some(b"\r\n") {
        return Length::Value(i64::from(value), position(at + index + 2));
    }
    read_long_length(line, at, scanned as usize, limits)
}

/// [`read_length`] of any line: incomplete, with a long number, or malformed.
#[cold]
fn read_long_length(line: &[u8], at: usize, scanned: usize, limits: &Limits) -> Length {
    let window_end = line.len().min(limits.inline_bytes_max.saturating_add(1));
    let scanned = window_end.min(scanned);
    let Some(offset) = memchr::memchr(b'\r', &line[scanned..window_end]) else {
        let is_too_long = window_end > limits.inline_bytes_max;
        return if is_too_long {
            Length::TooLong
        } else {
            Length::Unfinished(position(line.len()))
        };
    };
    let line_end = scanned + offset;
    // Redis accepts any byte as the LF.
    if line.len() < line_end + 2 {
        return Length::Unfinished(position(line_end));
    }
    match line.get(1..line_end).and_then(parse_i64_strict) {
        Some(value) => Length::Value(value, position(at + line_end + 2)),
        None => Length::Malformed,
    }
}

/// A position in the input, which ends before `u32::MAX`.
#[inline]
fn position(place: usize) -> u32 {
    debug_assert!(place <= INPUT_BYTES_MAX);
    #[expect(clippy::cast_possible_truncation, reason = "the input is cut to INPUT_BYTES_MAX")]
    let place = place as u32;
    place
}

#[cfg(test)]
mod tests {
    #[test]
    fn requests_left_for_later_are_decoded_again() {
        let input = b"*1\r\n$4\r\nPING\r\n\r\nECHO x\r\n*2\r\n$3\r\nGET\r\n$900\r\nk";
        let mut decoder = super::RequestDecoder::new();
        let mut batch = super::RequestBatch::new();
        let limits = super::Limits::DEFAULT;
        assert_eq!(decoder.decode(input, &limits, 10, &mut batch), batch.end(1));
        assert_eq!(batch.len(), 2);
        let rest = &input[batch.end(0)..];
        decoder.restart();
        decoder.decode(rest, &limits, 10, &mut batch);
        assert_eq!(batch.len(), 1);
        assert_eq!(batch.get(0, rest).get(0), b"ECHO");
    }

    use proptest::prelude::*;

    use super::super::check::check_requests;
    use super::super::{OwnedArgs, encode_request};
    use super::*;

    /// Decodes all of `input` at once and compares requests, bytes used and error.
    #[track_caller]
    fn check(input: &[u8], expected: &[&[&str]], consumed: usize, error: Option<&str>) {
        check_within(&Limits::DEFAULT, input, expected, consumed, error);
    }

    #[track_caller]
    fn check_within(
        limits: &Limits,
        input: &[u8],
        expected: &[&[&str]],
        consumed: usize,
        error: Option<&str>,
    ) {
        let mut batch = RequestBatch::new();
        let used = RequestDecoder::new().decode(input, limits, usize::MAX, &mut batch);
        let decoded: Vec<OwnedArgs> =
            (0..batch.len()).map(|index| batch.get(index, input).to_owned()).collect();
        let expected: Vec<OwnedArgs> = expected.iter().map(|args| args.iter().collect()).collect();
        assert_eq!(decoded, expected);
        assert_eq!(used, consumed);
        assert_eq!(batch.error().map(ToString::to_string).as_deref(), error);
        check_requests(input);
    }

    #[test]
    fn complete_requests_are_taken_and_the_rest_is_left() {
        check(b"", &[], 0, None);
        check(b"*1\r\n$4\r\nPING\r\n", &[&["PING"]], 14, None);
        let two = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET";
        check(two, &[&["GET", "k"], &["PING"]], 34, None);
        check(b"*1\rX$4\rXPINGXX*1\r\n$4\r\nPING\r\n", &[&["PING"], &["PING"]], 28, None);
        check(b"*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n", &[&["", "\r\n"]], 18, None);
        check(b"*1\r\n$10\r\n0123456789\r\nPING\r\n", &[&["0123456789"], &["PING"]], 27, None);
    }

    #[test]
    fn requests_without_arguments_are_consumed_silently() {
        check(b"*0\r\n*-1\r\n\r\n\n  \r\n", &[], 16, None);
        check(b"*0\r\n*1\r\n$1\r\na\r\n*-7\r\n", &[&["a"]], 20, None);
    }

    #[test]
    fn inline_requests_end_with_lf_or_crlf() {
        check(b"PING\r\n", &[&["PING"]], 6, None);
        check(b"PING\n", &[&["PING"]], 5, None);
        check(b"SET k \"a\\x20b\"\r\nGET k", &[&["SET", "k", "a b"]], 16, None);
        check(b"GET 'a\r\n", &[], 0, Some("Protocol error: unbalanced quotes in request"));
    }

    #[test]
    fn malformed_requests_end_the_batch_with_the_text_of_redis() {
        let ping: &[&str] = &["PING"];
        for (input, error) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*\r\n", "invalid multibulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("*+1\r\n", "invalid multibulk length"),
            ("*1048577\r\n", "invalid multibulk length"),
            ("*4294967297\r\n", "invalid multibulk length"),
            ("*99999999999999999999\r\n", "invalid multibulk length"),
            ("*1\r\nPING\r\n", "expected '$', got 'P'"),
            ("*1\r\n:1\r\n", "expected '$', got ':'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
            ("*1\r\n$007\r\n", "invalid bulk length"),
            ("*1\r\n$536870913\r\n", "invalid bulk length"),
            ("*1\r\n$4294967295\r\n", "invalid bulk length"),
            ("*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
        ] {
            let input = format!("*1\r\n$4\r\nPING\r\n{input}");
            check(input.as_bytes(), &[ping], 14, Some(&format!("Protocol error: {error}")));
        }
    }

    #[test]
    fn lines_longer_than_the_limit_are_refused() {
        let long = "1".repeat(Limits::DEFAULT.inline_bytes_max);
        for (front, back, error) in [
            ("*", "", "too big mbulk count string"),
            ("*", "\r\n", "too big mbulk count string"),
            ("*1\r\n$", "", "too big bulk count string"),
            ("a", "", "too big inline request"),
            ("a", "\n", "too big inline request"),
        ] {
            let input = format!("{front}{long}{back}");
            check(input.as_bytes(), &[], 0, Some(&format!("Protocol error: {error}")));
        }
        check(format!("{long}\n").as_bytes(), &[&[&long]], long.len() + 1, None);
    }

    #[test]
    fn a_line_end_in_two_pieces_is_found_after_a_long_argument() {
        for count in ["0000000001", "1234567890x", "-12345678901"] {
            let value = "v".repeat(REREAD_BYTES_MAX);
            let input = format!("*3\r\n${}\r\n{value}\r\n${count}\r\n", value.len());
            check(input.as_bytes(), &[], 0, Some("Protocol error: invalid bulk length"));
        }
    }

    #[test]
    fn the_largest_numbers_are_taken_and_wait_for_their_bytes() {
        check(b"*1048576\r\n$1\r\na\r\n", &[], 0, None);
        check(b"*1\r\n$536870912\r\na", &[], 0, None);
    }

    #[test]
    fn unauthenticated_peers_may_send_little() {
        let limits = Limits::UNAUTHENTICATED;
        let refused = |input: &[u8], error| check_within(&limits, input, &[], 0, Some(error));
        refused(b"*11\r\n", "Protocol error: unauthenticated multibulk length");
        refused(b"*1048577\r\n", "Protocol error: invalid multibulk length");
        refused(b"*1\r\n$16385\r\n", "Protocol error: unauthenticated bulk length");
        refused(b"*1\r\n$536870913\r\n", "Protocol error: invalid bulk length");
        check_within(&limits, b"*10\r\n$16384\r\n", &[], 0, None);
    }

    #[test]
    fn no_more_requests_are_taken_than_requested() {
        let input = b"PING\r\nPING\r\nPING\r\n";
        let mut batch = RequestBatch::new();
        let mut decoder = RequestDecoder::new();
        assert_eq!(decoder.decode(input, &Limits::DEFAULT, 2, &mut batch), 12);
        assert_eq!(batch.len(), 2);
        assert_eq!(decoder.decode(&input[12..], &Limits::DEFAULT, 2, &mut batch), 6);
        assert_eq!(batch.len(), 1);
        assert_eq!(decoder.decode(input, &Limits::DEFAULT, 0, &mut batch), 0);
    }

    #[test]
    fn a_million_arguments_in_pieces_cost_no_more_than_their_bytes() {
        let mut input = b"*1048576\r\n".to_vec();
        for _ in 0..1_048_576 {
            input.extend_from_slice(b"$1\r\na\r\n");
        }
        let mut batch = RequestBatch::new();
        let mut decoder = RequestDecoder::new();
        for end in (0..input.len()).step_by(1000) {
            assert_eq!(decoder.decode(&input[..end], &Limits::DEFAULT, 9, &mut batch), 0);
            assert!(batch.is_empty());
        }
        assert!(decoder.spans.len() > 1_048_000);
        assert_eq!(decoder.decode(&input, &Limits::DEFAULT, 9, &mut batch), input.len());
        assert_eq!(batch.get(0, &input).len(), 1_048_576);
        assert_eq!(decoder.spans.capacity(), 0);
    }

    #[test]
    fn an_unfinished_request_of_few_arguments_takes_no_memory() {
        let mut batch = RequestBatch::new();
        let mut decoder = RequestDecoder::new();
        let input = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100000\r\nxxxx";
        assert_eq!(decoder.decode(input, &Limits::DEFAULT, 9, &mut batch), 0);
        assert_eq!(decoder.spans.capacity(), 0);
    }

    #[test]
    fn the_hint_grows_with_what_has_arrived() {
        let mut batch = RequestBatch::new();
        let mut decoder = RequestDecoder::new();
        let mut needed = |input: &[u8]| {
            decoder.decode(input, &Limits::DEFAULT, 9, &mut batch);
            decoder.needed()
        };
        assert_eq!(needed(b"*1\r\n$100"), 0);
        assert_eq!(needed(b"*1\r\n$100\r\nabc"), 99);
        let mut lie = b"*1\r\n$536870912\r\n".to_vec();
        assert_eq!(needed(&lie), NEEDED_BYTES_MIN);
        lie.resize(100_000, b'x');
        assert_eq!(needed(&lie), 100_000);
        assert_eq!(needed(b"PING\r\n"), 0);
    }

    fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
        let arg = prop_oneof![
            8 => prop::collection::vec(any::<u8>(), 0..20),
            1 => prop::collection::vec(any::<u8>(), 500..1500),
        ];
        prop::collection::vec(prop::collection::vec(arg, 1..8), 0..8)
    }

    /// Almost valid requests, which reach deeper code than random bytes.
    fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
        let token = prop::sample::select(vec![
            "*1\r\n",
            "*2\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*",
            "$",
            "$0\r\n",
            "$3\r\n",
            "$12\r\n",
            "\r\n",
            "\r",
            "\n",
            "GET\r\n",
            "'",
            "\"",
            "\\x4",
            "1",
            "-",
            " ",
            "abc",
            "$16\r\n0123456789abcdef\r\n",
        ]);
        prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn encoded_requests_decode_to_themselves(requests in requests()) {
            let mut input = Vec::new();
            for request in &requests {
                let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
                encode_request(&args, &mut input);
            }
            let mut batch = RequestBatch::new();
            let used = RequestDecoder::new().decode(&input, &Limits::DEFAULT, usize::MAX, &mut batch);
            prop_assert_eq!(used, input.len());
            prop_assert_eq!(batch.len(), requests.len());
            for (index, request) in requests.iter().enumerate() {
                prop_assert!(batch.get(index, &input).iter().eq(request.iter().map(Vec::as_slice)));
            }
            check_requests(&input);
        }

        #[test]
        fn two_pieces_give_the_frames_of_the_whole(requests in requests(), split: prop::sample::Index) {
            let mut input = Vec::new();
            for request in &requests {
                let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
                encode_request(&args, &mut input);
            }
            let split = split.index(input.len() + 1);
            let mut batch = RequestBatch::new();
            let mut decoder = RequestDecoder::new();
            let used = decoder.decode(&input[..split], &Limits::DEFAULT, usize::MAX, &mut batch);
            let first: Vec<OwnedArgs> =
                (0..batch.len()).map(|index| batch.get(index, &input).to_owned()).collect();
            let rest = &input[used..];
            prop_assert_eq!(decoder.decode(rest, &Limits::DEFAULT, usize::MAX, &mut batch), rest.len());
            let second = (0..batch.len()).map(|index| batch.get(index, rest).to_owned());
            let decoded: Vec<OwnedArgs> = first.into_iter().chain(second).collect();
            let expected: Vec<OwnedArgs> = requests.iter().map(|args| args.iter().collect()).collect();
            prop_assert_eq!(decoded, expected);
        }

        #[test]
        fn any_split_of_any_bytes_gives_the_same_frames(input: Vec<u8>) {
            check_requests(&input);
        }

        #[test]
        fn any_split_of_nearly_valid_bytes_gives_the_same_frames(input in nearly_requests()) {
            check_requests(&input);
        }
    }
}
