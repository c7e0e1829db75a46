//! Chunked bodies, decoded incrementally.

use super::fields::{HeadEnd, find_end};
use super::limits::{CHUNK_LINE_BYTES_MAX, Limits, RequestError, framing_bytes_max};

/// Maximum number of digits of a chunk's length: 15 hexadecimal digits cannot overflow.
const LENGTH_DIGITS_MAX: usize = 15;

/// The expected next element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The line with a chunk's length.
    Length,
    /// Content, with the number of missing bytes.
    Data(u64),
    /// The line end after the content.
    DataEnd,
    /// Trailers, with the number of bytes that are complete lines.
    Trailers(usize),
    Over,
}

/// Position in a chunked body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunked {
    state: State,
    payload_bytes: u64,
    framing_bytes: u64,
}

/// Meaning of the bytes at the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// More input is needed; bytes that were used are framing.
    More,
    /// All bytes used are content.
    Data,
    /// The body is complete; the bytes used are its trailers and the empty line.
    End,
}

impl Chunked {
    pub(super) const START: Self =
        Self { state: State::Length, payload_bytes: 0, framing_bytes: 0 };

    /// Reads on at the front of `input`, and returns the bytes used with their meaning. Framing is
    /// used completely or not at all, so the caller must pass unused bytes again.
    // Source: RFC 9112 7.1 (chunked transfer coding)
    pub(super) fn next(
        &mut self,
        input: &[u8],
        payload_bytes_max: u64,
        limits: &Limits,
    ) -> Result<(usize, Piece), RequestError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                State::Length => {
                    let Some(line_bytes) = self.read_length(rest, payload_bytes_max)? else {
                        return Ok((used, Piece::More));
                    };
                    used += line_bytes;
                }
                // The framing before the content is returned separately.
                State::Data(_) if rest.is_empty() || used > 0 => return Ok((used, Piece::More)),
                State::Data(left) => {
                    let count = left.min(rest.len() as u64);
                    self.state =
                        if left == count { State::DataEnd } else { State::Data(left - count) };
                    return Ok((usize::try_from(count).unwrap_or(rest.len()), Piece::Data));
                }
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        used += 2;
                        self.state = State::Length;
                    }
                    [] | [b'\r'] => return Ok((used, Piece::More)),
                    _ => return Err(RequestError::Chunk),
                },
                State::Trailers(_) if used > 0 => return Ok((used, Piece::More)),
                State::Trailers(scanned) => {
                    return self.read_trailers(rest, scanned, limits);
                }
                State::Over => return Ok((used, Piece::End)),
            }
        }
    }

    /// Whether everything except trailers and the empty line has been read.
    fn read_trailers(
        &mut self,
        rest: &[u8],
        scanned: usize,
        limits: &Limits,
    ) -> Result<(usize, Piece), RequestError> {
        match find_end(rest, scanned, limits.head_bytes_max) {
            HeadEnd::At(end) => {
                self.state = State::Over;
                Ok((end, Piece::End))
            }
            HeadEnd::Unfinished(scanned) => {
                self.state = State::Trailers(scanned);
                Ok((0, Piece::More))
            }
            HeadEnd::BareLineFeed => Err(RequestError::BareLineFeed),
            HeadEnd::TooLong => Err(RequestError::HeadTooLarge),
        }
    }

    /// The bytes of the length line, or none if it is not complete.
    // Source: RFC 9112 7.1 (chunk-size), 7.1.1 (chunk extensions)
    fn read_length(
        &mut self,
        rest: &[u8],
        payload_bytes_max: u64,
    ) -> Result<Option<usize>, RequestError> {
        let window = &rest[..rest.len().min(CHUNK_LINE_BYTES_MAX)];
        let Some(line_feed) = memchr::memchr(b'\n', window) else {
            let is_too_long = rest.len() >= CHUNK_LINE_BYTES_MAX;
            return if is_too_long { Err(RequestError::Chunk) } else { Ok(None) };
        };
        let Some(line) = window[..line_feed].strip_suffix(b"\r") else {
            return Err(RequestError::BareLineFeed);
        };
        let length = parse_length_line(line).ok_or(RequestError::Chunk)?;
        self.payload_bytes = self.payload_bytes.saturating_add(length);
        if self.payload_bytes > payload_bytes_max {
            return Err(RequestError::BodyTooLarge);
        }
        // The line and the line end after the content.
        self.framing_bytes += line_feed as u64 + 3;
        if self.framing_bytes > framing_bytes_max(self.payload_bytes) {
            return Err(RequestError::ChunkFraming);
        }
        self.state = if length == 0 { State::Trailers(0) } else { State::Data(length) };
        Ok(Some(line_feed + 1))
    }
}

/// The length in `line`, whose extensions are checked for characters only.
// Source: RFC 9112 7.1 (chunk-size = 1*HEXDIG), 7.1.1
fn parse_length_line(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, extensions) = line.split_at(digits);
    if digits.is_empty() || digits.len() > LENGTH_DIGITS_MAX {
        return None;
    }
    let trimmed = extensions.trim_ascii_start();
    if !extensions.is_empty() && trimmed.first() != Some(&b';') {
        return None;
    }
    if extensions.iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content and trailers, or the error.
    fn check(input: &str, expected: Result<(&str, &str), RequestError>) {
        for piece_bytes in [1, 2, 3, input.len().max(1)] {
            assert_eq!(
                read(input.as_bytes(), piece_bytes).map(|found| found.map_or_else(
                    || ("unfinished".to_owned(), String::new()),
                    |(body, trailers)| (
                        String::from_utf8(body).unwrap(),
                        String::from_utf8(trailers).unwrap()
                    )
                )),
                expected.map(|(body, trailers)| (body.to_owned(), trailers.to_owned())),
                "{input:?} in pieces of {piece_bytes}"
            );
        }
    }

    type Whole = Option<(Vec<u8>, Vec<u8>)>;

    fn read(input: &[u8], piece_bytes: usize) -> Result<Whole, RequestError> {
        let (mut chunked, mut body) = (Chunked::START, Vec::new());
        let (mut at, mut end) = (0, 0);
        while end < input.len() {
            end = input.len().min(end + piece_bytes);
            loop {
                let (used, piece) = chunked.next(&input[at..end], 100, &Limits::DEFAULT)?;
                let bytes = &input[at..at + used];
                at += used;
                match piece {
                    Piece::Data => body.extend_from_slice(bytes),
                    Piece::End => return Ok(Some((body, bytes.to_vec()))),
                    Piece::More if used == 0 => break,
                    Piece::More => {}
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn bodies_are_put_together() {
        check("0\r\n\r\n", Ok(("", "\r\n")));
        check("3\r\nabc\r\n0\r\n\r\n", Ok(("abc", "\r\n")));
        check("3;a=b\r\nabc\r\n0a ;x\r\n0123456789\r\n0\r\nT: v\r\n\r\n", {
            Ok(("abc0123456789", "T: v\r\n\r\n"))
        });
        check("3\r\nabc\r\n", Ok(("unfinished", "")));
        check("3\r\nabc\r\n0\r\nT: v\r\n", Ok(("unfinished", "")));
    }

    #[test]
    fn ambiguous_bodies_are_rejected() {
        check("3\nabc\r\n0\r\n\r\n", Err(RequestError::BareLineFeed));
        check("3\r\nabcd\r\n0\r\n\r\n", Err(RequestError::Chunk));
        check("3\r\nabc\n0\r\n\r\n", Err(RequestError::Chunk));
        check("+3\r\nabc\r\n", Err(RequestError::Chunk));
        check("0x3\r\nabc\r\n", Err(RequestError::Chunk));
        check(" 3\r\nabc\r\n", Err(RequestError::Chunk));
        check("3 \r\nabc\r\n", Err(RequestError::Chunk));
        check("\r\n", Err(RequestError::Chunk));
        check("3;a\rb\r\nabc\r\n", Err(RequestError::Chunk));
        check("0000000000000003\r\nabc\r\n", Err(RequestError::Chunk));
        check("0\r\nT: v\n\r\n", Err(RequestError::BareLineFeed));
    }

    #[test]
    fn content_and_framing_have_bounds() {
        check("65\r\n", Err(RequestError::BodyTooLarge));
        check("fffffffffffffff\r\n", Err(RequestError::BodyTooLarge));
        check(&format!("3;{}\r\n", "x".repeat(CHUNK_LINE_BYTES_MAX)), Err(RequestError::Chunk));
        let one = format!("1;{}\r\nx\r\n", "x".repeat(CHUNK_LINE_BYTES_MAX - 10));
        check(&one.repeat(90), Err(RequestError::ChunkFraming));
        let body = "x".repeat(100);
        check(&format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(100)), Ok((&body, "\r\n")));
    }
}
