//! Identifiers of entries in requests and replies.

use store::types::StreamId;
use wire::resp::ReplyWriter;

use crate::commands::fail::{Fail, shown};

const INVALID: Fail = Fail::text("ERR Invalid stream ID specified as stream command argument");

/// Maximum bytes of an identifier in a request.
const TEXT_BYTES_MAX: usize = 127;

/// Bytes of two numbers and a dash.
const ID_TEXT_BYTES_MAX: usize = 41;

/// The part of an identifier after which the server chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    /// `*`
    Nothing,
    /// `ms-*`
    Milliseconds(u64),
    Whole(StreamId),
}

/// Parses `ms` or `ms-seq`; `seq` is what a missing number is.
// Source: Redis 7.2 `t_stream.c`, `streamGenericParseIDOrReply`
pub(super) fn parse_id(text: &[u8], seq: u64) -> Result<StreamId, Fail> {
    match parse_parts(text, seq)? {
        Chosen::Whole(id) => Ok(id),
        Chosen::Milliseconds(_) | Chosen::Nothing => Err(INVALID),
    }
}

/// Parses an identifier of which the server may choose the number.
pub(super) fn parse_parts(text: &[u8], seq: u64) -> Result<Chosen, Fail> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(INVALID);
    }
    let text = shown(text);
    let Some(dash) = memchr::memchr(b'-', text) else {
        return Ok(Chosen::Whole(StreamId { ms: number(text)?, seq }));
    };
    let (ms, rest) = (number(&text[..dash])?, &text[dash + 1..]);
    if rest == b"*" {
        return Ok(Chosen::Milliseconds(ms));
    }
    Ok(Chosen::Whole(StreamId { ms, seq: number(rest)? }))
}

/// Parses a number as `strtoull` does: white space, a sign and zeros may precede the digits, and
/// a negative number wraps if it is not in its shortest form.
// Source: Redis 7.2 `util.c`, `string2ull`
fn number(text: &[u8]) -> Result<u64, Fail> {
    if let Some(number) = wire::resp::parse_i64_strict(text) {
        return u64::try_from(number).map_err(|_| INVALID);
    }
    let start = text.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b);
    let (is_negative, digits) = match &text[start.unwrap_or(text.len())..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let number = number.ok_or(INVALID)?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

/// One end of a range: `-`, `+`, an identifier, or `(` and an identifier that does not belong to
/// it.
// Source: Redis 7.2 `t_stream.c`, `streamParseIntervalIDOrReply`
fn parse_end(text: &[u8], seq: u64) -> Result<(StreamId, bool), Fail> {
    match text {
        b"-" => Ok((StreamId::MIN, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', rest @ ..] if !rest.is_empty() => Ok((parse_id(rest, seq)?, true)),
        _ => Ok((parse_id(text, seq)?, false)),
    }
}

/// Parses the first identifier of a range.
pub(super) fn parse_range_start(text: &[u8]) -> Result<StreamId, Fail> {
    match parse_end(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or(Fail::text("ERR invalid start ID for the interval")),
    }
}

/// Parses the last identifier of a range.
pub(super) fn parse_range_end(text: &[u8]) -> Result<StreamId, Fail> {
    match parse_end(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or(Fail::text("ERR invalid end ID for the interval")),
    }
}

/// Writes an identifier as `ms-seq`.
pub(super) fn reply_id(reply: &mut ReplyWriter<'_>, id: StreamId) {
    let mut text = IdText::new();
    reply.bulk(text.format(id));
}

/// Room for the text of an identifier.
pub(super) struct IdText {
    bytes: [u8; ID_TEXT_BYTES_MAX],
}

impl IdText {
    pub(super) fn new() -> IdText {
        IdText { bytes: [0; ID_TEXT_BYTES_MAX] }
    }

    pub(super) fn format(&mut self, id: StreamId) -> &[u8] {
        let mut buffer = itoa::Buffer::new();
        let ms = buffer.format(id.ms).as_bytes();
        let dash = ms.len();
        self.bytes[..dash].copy_from_slice(ms);
        self.bytes[dash] = b'-';
        let seq = buffer.format(id.seq).as_bytes();
        let end = dash + 1 + seq.len();
        self.bytes[dash + 1..end].copy_from_slice(seq);
        &self.bytes[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        let id = |ms, seq| Ok(StreamId { ms, seq });
        for (text, expected) in [
            ("5", id(5, 9)),
            ("5-6", id(5, 6)),
            ("0-0", id(0, 0)),
            ("18446744073709551615-18446744073709551615", Ok(StreamId::MAX)),
            ("007-01", id(7, 1)),
            ("+5-1", id(5, 1)),
            (" 5-1", id(5, 1)),
            ("5- -1", id(5, u64::MAX)),
            ("5-1\0x", id(5, 1)),
            ("18446744073709551616-1", Err(INVALID)),
            ("5--1", Err(INVALID)),
            ("-5", Err(INVALID)),
            ("5-", Err(INVALID)),
            ("5-*", Err(INVALID)),
            ("5-1-1", Err(INVALID)),
            ("x", Err(INVALID)),
            ("", Err(INVALID)),
            ("-", Err(INVALID)),
            ("+", Err(INVALID)),
        ] {
            assert_eq!(parse_id(text.as_bytes(), 9), expected, "{text}");
        }
        assert_eq!(parse_parts(b"5-*", 0), Ok(Chosen::Milliseconds(5)));
        assert_eq!(parse_id(&[b'1'; 128], 0), Err(INVALID));
        for id in [StreamId::MIN, StreamId::MAX, StreamId { ms: 1 << 40, seq: 7 }] {
            assert_eq!(IdText::new().format(id), id.to_string().as_bytes());
        }
    }

    #[test]
    fn ends_of_ranges() {
        let id = |ms, seq| Ok(StreamId { ms, seq });
        for (text, first, last) in [
            ("-", id(0, 0), id(0, 0)),
            ("+", Ok(StreamId::MAX), Ok(StreamId::MAX)),
            ("5", id(5, 0), id(5, u64::MAX)),
            ("5-3", id(5, 3), id(5, 3)),
            ("(5-3", id(5, 4), id(5, 2)),
            ("(5", id(5, 1), id(5, u64::MAX - 1)),
        ] {
            assert_eq!(parse_range_start(text.as_bytes()), first, "{text}");
            assert_eq!(parse_range_end(text.as_bytes()), last, "{text}");
        }
        assert!(parse_range_start(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(parse_range_end(b"(0-0").is_err());
        for text in ["(", "(-", "(+", "*"] {
            assert_eq!(parse_range_start(text.as_bytes()), Err(INVALID));
        }
    }
}
