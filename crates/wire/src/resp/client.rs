//! The client's side: requests out, replies in.

use super::limits::{Limits, ProtocolError};
use super::number::{parse_f64, parse_i64_strict};
use super::reply::{Protocol, ReplyWriter};

/// Maximum nesting of arrays in a reply.
pub const REPLY_DEPTH_MAX: usize = 64;
/// Maximum number of elements of an array, set or push, and of pairs of a map.
const REPLY_ELEMENTS_MAX: i64 = 1 << 30;
/// Longest simple string, error, number or length line, in bytes.
const REPLY_LINE_BYTES_MAX: usize = 64 << 10;

/// Appends a request as an array of bulk strings.
// Source: Redis protocol specification, "Sending commands to a Redis server"
pub fn encode_request(args: &[&[u8]], out: &mut Vec<u8>) {
    let mut writer = ReplyWriter::new(out, Protocol::Resp2);
    writer.array(args.len());
    for arg in args {
        writer.bulk(arg);
    }
}

/// A reply of either protocol version, owned. Attributes are skipped.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-` or `!`: code and message.
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1` or `_`
    Null,
    /// `*-1`
    NullArray,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`: the digits, with their sign.
    BigNumber(Vec<u8>),
    /// `=`
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// The text without the format.
        text: Vec<u8>,
    },
}

/// Decodes the reply at the front of `input`: the reply and the bytes it takes, or `None` if it is
/// incomplete. Allocates no memory for an incomplete or malformed reply.
pub fn decode_reply(input: &[u8]) -> Result<Option<(Reply, usize)>, ProtocolError> {
    let Some(len) = reply_len(input)? else { return Ok(None) };
    let mut at = 0;
    let reply = build(input, &mut at)?;
    debug_assert!(reply.is_none() || at == len);
    Ok(reply.map(|reply| (reply, len)))
}

/// The bytes that the reply at the front of `input` takes, or `None` if it is incomplete. Makes all
/// checks of [`decode_reply`]; allocates no memory.
pub fn reply_len(input: &[u8]) -> Result<Option<usize>, ProtocolError> {
    if let Some(len) = plain_len(input) {
        return Ok(Some(len));
    }
    // Most replies have no elements, and then no nesting to track.
    match read_value(input, 0)? {
        None => Ok(None),
        Some((Value::Aggregate(..), _)) => skip_values(input, 0, 1),
        Some((_, next)) => Ok(Some(next)),
    }
}

/// Like [`reply_len`], for the most frequent replies: a complete bulk string, or a flat array of
/// them, well below all limits. `None` means undecided. Load generators spend a considerable part
/// of their time on finding the ends of replies.
// Source: Redis protocol specification, "RESP protocol description"
#[inline]
fn plain_len(input: &[u8]) -> Option<usize> {
    match input.first()? {
        b'$' => plain_bulk_end(input, 0),
        b'*' => {
            let (count, mut at) = plain_number(input, 1)?;
            for _ in 0..count {
                if *input.get(at)? != b'$' {
                    return None;
                }
                at = plain_bulk_end(input, at)?;
            }
            Some(at)
        }
        _ => None,
    }
}

/// The position after the bulk string at `at`.
#[inline]
fn plain_bulk_end(input: &[u8], at: usize) -> Option<usize> {
    let (len, start) = plain_number(input, at + 1)?;
    let end = start + len;
    (input.get(end..end + 2)? == b"\r\n").then_some(end + 2)
}

/// A number without sign and the position after its line.
#[inline]
fn plain_number(input: &[u8], at: usize) -> Option<(usize, usize)> {
    /// Every number with at most this many digits is below the limits of lengths and counts.
    const DIGITS_MAX: usize = 8;
    let line = input.get(at..)?;
    let mut number = 0;
    for (position, &byte) in line.iter().take(DIGITS_MAX + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 && !(position == 1 && number == 0) {
            number = number * 10 + usize::from(digit);
            continue;
        }
        let is_end = byte == b'\r' && position > 0 && line.get(position + 1) == Some(&b'\n');
        return is_end.then_some((number, at + position + 2));
    }
    None
}

/// The position after the next `count` values from `at` on.
fn skip_values(input: &[u8], at: usize, count: u64) -> Result<Option<usize>, ProtocolError> {
    // Remaining values on each open level.
    let mut left = [0_u64; REPLY_DEPTH_MAX + 1];
    left[0] = count;
    let mut depth = 0;
    let mut at = at;
    loop {
        if left[depth] == 0 {
            if depth == 0 {
                return Ok(Some(at));
            }
            depth -= 1;
            continue;
        }
        let Some((value, next)) = read_value(input, at)? else { return Ok(None) };
        at = next;
        let Value::Aggregate(kind, count) = value else {
            left[depth] -= 1;
            continue;
        };
        if !matches!(kind, Aggregate::Attribute) {
            left[depth] -= 1;
        }
        if depth == REPLY_DEPTH_MAX {
            return Err(ProtocolError::TooDeepReply);
        }
        depth += 1;
        left[depth] = kind.values(count);
    }
}

/// Builds the value at `at`, which was skipped before: complete, well formed and not too deep.
fn build(input: &[u8], at: &mut usize) -> Result<Option<Reply>, ProtocolError> {
    loop {
        let Some((value, next)) = read_value(input, *at)? else { return Ok(None) };
        *at = next;
        let (kind, count) = match value {
            Value::Simple(text) => return Ok(Some(Reply::Simple(text.to_vec()))),
            Value::Error(text) => return Ok(Some(Reply::Error(text.to_vec()))),
            Value::Integer(value) => return Ok(Some(Reply::Integer(value))),
            Value::Bulk(bytes) => return Ok(Some(Reply::Bulk(bytes.to_vec()))),
            Value::Null => return Ok(Some(Reply::Null)),
            Value::NullArray => return Ok(Some(Reply::NullArray)),
            Value::Double(value) => return Ok(Some(Reply::Double(value))),
            Value::Boolean(value) => return Ok(Some(Reply::Boolean(value))),
            Value::BigNumber(digits) => return Ok(Some(Reply::BigNumber(digits.to_vec()))),
            Value::Verbatim(format, text) => {
                return Ok(Some(Reply::Verbatim { format, text: text.to_vec() }));
            }
            Value::Aggregate(kind, count) => (kind, count),
        };
        let reply = match kind {
            Aggregate::Array => Reply::Array(build_list(input, at, count)?),
            Aggregate::Set => Reply::Set(build_list(input, at, count)?),
            Aggregate::Push => Reply::Push(build_list(input, at, count)?),
            Aggregate::Map => Reply::Map(build_pairs(input, at, count)?),
            Aggregate::Attribute => {
                let Some(next) = skip_values(input, *at, kind.values(count))? else {
                    return Ok(None);
                };
                *at = next;
                continue;
            }
        };
        return Ok(Some(reply));
    }
}

/// All elements were read before, so `count` is correct and may be allocated.
fn build_list(input: &[u8], at: &mut usize, count: u32) -> Result<Vec<Reply>, ProtocolError> {
    let mut list = Vec::with_capacity(count as usize);
    for _ in 0..count {
        list.extend(build(input, at)?);
    }
    Ok(list)
}

fn build_pairs(
    input: &[u8],
    at: &mut usize,
    count: u32,
) -> Result<Vec<(Reply, Reply)>, ProtocolError> {
    let mut pairs = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let key = build(input, at)?;
        pairs.extend(key.zip(build(input, at)?));
    }
    Ok(pairs)
}

#[derive(Clone, Copy)]
enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    /// A map with attributes of the next value; not a value itself.
    Attribute,
}

impl Aggregate {
    /// Values that follow a header of `count`.
    fn values(self, count: u32) -> u64 {
        match self {
            Self::Array | Self::Set | Self::Push => u64::from(count),
            Self::Map | Self::Attribute => u64::from(count) * 2,
        }
    }
}

/// One value, borrowed; of an aggregate, only the header.
enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
    NullArray,
    Double(f64),
    Boolean(bool),
    BigNumber(&'a [u8]),
    Verbatim([u8; 3], &'a [u8]),
    Aggregate(Aggregate, u32),
}

/// Reads the value at `at`; returns it and the position after it (of an aggregate: after its
/// header).
///
/// Rejects streamed strings and aggregates (`$?`, `*?`), which no server sends, as invalid.
// Source: RESP3 specification (antirez/RESP3 spec.md), "RESP3 types"
fn read_value(input: &[u8], at: usize) -> Result<Option<(Value<'_>, usize)>, ProtocolError> {
    let Some(&kind) = input.get(at) else { return Ok(None) };
    if !b"+-:$*_,#(!=%~>|".contains(&kind) {
        return Err(ProtocolError::UnknownReplyType(kind));
    }
    let Some((text, next)) = read_line(input, at + 1)? else { return Ok(None) };
    let value = match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Integer(read_integer(text)?),
        b'$' if text == b"-1" => Value::Null,
        b'*' if text == b"-1" => Value::NullArray,
        b'$' | b'!' | b'=' => return read_blob(kind, text, input, next),
        b'_' if text.is_empty() => Value::Null,
        b',' => Value::Double(read_double(text)?),
        b'#' if text == b"t" => Value::Boolean(true),
        b'#' if text == b"f" => Value::Boolean(false),
        b'(' if is_big_number(text) => Value::BigNumber(text),
        b'*' => Value::Aggregate(Aggregate::Array, read_count(text)?),
        b'~' => Value::Aggregate(Aggregate::Set, read_count(text)?),
        b'>' => Value::Aggregate(Aggregate::Push, read_count(text)?),
        b'%' => Value::Aggregate(Aggregate::Map, read_count(text)?),
        b'|' => Value::Aggregate(Aggregate::Attribute, read_count(text)?),
        _ => return Err(ProtocolError::InvalidReply),
    };
    Ok(Some((value, next)))
}

/// The line that starts at `at`, without its CR LF, and the position after it.
fn read_line(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &input[at..];
    let window = &rest[..rest.len().min(REPLY_LINE_BYTES_MAX + 1)];
    let Some(line_end) = memchr::memchr(b'\r', window) else {
        let is_too_long = window.len() > REPLY_LINE_BYTES_MAX;
        return if is_too_long { Err(ProtocolError::TooLongReplyLine) } else { Ok(None) };
    };
    match rest.get(line_end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((&rest[..line_end], at + line_end + 2))),
        Some(_) => Err(ProtocolError::InvalidReply),
    }
}

/// The payload at `at`; the line before it contains its length.
fn read_blob<'a>(
    kind: u8,
    length: &[u8],
    input: &'a [u8],
    at: usize,
) -> Result<Option<(Value<'a>, usize)>, ProtocolError> {
    let len = parse_i64_strict(length)
        .and_then(|len| usize::try_from(len).ok())
        .filter(|&len| len <= Limits::DEFAULT.bulk_bytes_max)
        .ok_or(ProtocolError::InvalidReply)?;
    let end = at + len;
    let payload = match input.get(end..end + 2) {
        None => return Ok(None),
        Some(b"\r\n") => &input[at..end],
        Some(_) => return Err(ProtocolError::InvalidReply),
    };
    let value = match (kind, payload) {
        (b'$', _) => Value::Bulk(payload),
        (b'!', _) => Value::Error(payload),
        (_, &[a, b, c, b':', ref text @ ..]) => Value::Verbatim([a, b, c], text),
        _ => return Err(ProtocolError::InvalidReply),
    };
    Ok(Some((value, end + 2)))
}

fn read_count(text: &[u8]) -> Result<u32, ProtocolError> {
    parse_i64_strict(text)
        .filter(|count| (0..=REPLY_ELEMENTS_MAX).contains(count))
        .and_then(|count| u32::try_from(count).ok())
        .ok_or(ProtocolError::InvalidReply)
}

/// Unlike Redis in requests, the specification allows a plus sign in replies.
fn read_integer(text: &[u8]) -> Result<i64, ProtocolError> {
    let digits = match text {
        [b'+', digits @ ..] if !digits.starts_with(b"-") => digits,
        _ => text,
    };
    parse_i64_strict(digits).ok_or(ProtocolError::InvalidReply)
}

fn read_double(text: &[u8]) -> Result<f64, ProtocolError> {
    match text {
        b"nan" | b"-nan" => Ok(f64::NAN),
        _ => parse_f64(text).ok_or(ProtocolError::InvalidReply),
    }
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::check::{check_reply, write_reply};
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: Reply) {
        let mut bytes = input.as_bytes().to_vec();
        bytes.extend_from_slice(b"+next\r\n");
        assert_eq!(decode_reply(&bytes), Ok(Some((expected, input.len()))));
        assert_eq!(reply_len(&bytes), Ok(Some(input.len())));
        check_reply(input.as_bytes());
    }

    #[track_caller]
    fn check_refused(input: &str, expected: ProtocolError) {
        assert_eq!(decode_reply(input.as_bytes()), Err(expected), "{input:?}");
        check_reply(input.as_bytes());
    }

    #[test]
    fn every_type_is_decoded() {
        check("+OK\r\n", Reply::Simple(b"OK".to_vec()));
        check("-ERR no\r\n", Reply::Error(b"ERR no".to_vec()));
        check("!5\r\nE\r\nno\r\n", Reply::Error(b"E\r\nno".to_vec()));
        check(":-7\r\n", Reply::Integer(-7));
        check(":+7\r\n", Reply::Integer(7));
        check("$3\r\na\r\n\r\n", Reply::Bulk(b"a\r\n".to_vec()));
        check("$-1\r\n", Reply::Null);
        check("_\r\n", Reply::Null);
        check("*-1\r\n", Reply::NullArray);
        check("*0\r\n", Reply::Array(vec![]));
        check("*2\r\n:1\r\n*1\r\n_\r\n", {
            Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![Reply::Null])])
        });
        check("%1\r\n+k\r\n#t\r\n", {
            Reply::Map(vec![(Reply::Simple(b"k".to_vec()), Reply::Boolean(true))])
        });
        check("~1\r\n#f\r\n", Reply::Set(vec![Reply::Boolean(false)]));
        check(">1\r\n,1.5\r\n", Reply::Push(vec![Reply::Double(1.5)]));
        check(",-inf\r\n", Reply::Double(f64::NEG_INFINITY));
        check("(-12345678901234567890\r\n", Reply::BigNumber(b"-12345678901234567890".to_vec()));
        check("=8\r\ntxt:Some\r\n", Reply::Verbatim { format: *b"txt", text: b"Some".to_vec() });
        assert!(matches!(decode_reply(b",nan\r\n"), Ok(Some((Reply::Double(v), 6))) if v.is_nan()));
    }

    #[test]
    fn attributes_are_skipped_at_any_position() {
        check("|1\r\n+ttl\r\n:3600\r\n+v\r\n", Reply::Simple(b"v".to_vec()));
        check("*2\r\n|1\r\n+a\r\n*1\r\n:0\r\n:1\r\n|0\r\n:2\r\n", {
            Reply::Array(vec![Reply::Integer(1), Reply::Integer(2)])
        });
    }

    #[test]
    fn malformed_replies_are_refused() {
        check_refused("?\r\n", ProtocolError::UnknownReplyType(b'?'));
        for input in [
            ":\r\n",
            ":x\r\n",
            ":+-1\r\n",
            "$-2\r\n",
            "$x\r\n",
            "$1\r\nabc",
            "*-2\r\n",
            "*?\r\n",
            "%-1\r\n",
            "_x\r\n",
            "#x\r\n",
            ",x\r\n",
            ",\r\n",
            "(1x\r\n",
            "(\r\n",
            "=3\r\ntxt\r\n",
            "=4\r\ntxtx\r\n",
            "+a\rb",
            "$536870913\r\n",
            "*1073741825\r\n",
            "*99999999999999999999\r\n",
            "$01\r\na\r\n",
            "*01\r\n$1\r\na\r\n",
            "$\r\n\r\n",
            "*1\r\n$1\r\na\rb",
        ] {
            check_refused(input, ProtocolError::InvalidReply);
        }
        let long = format!("+{}", "a".repeat(REPLY_LINE_BYTES_MAX + 1));
        check_refused(&long, ProtocolError::TooLongReplyLine);
    }

    #[test]
    fn levels_are_limited_and_counts_may_be_false() {
        let deepest = format!("{}:1\r\n", "*1\r\n".repeat(REPLY_DEPTH_MAX));
        assert!(matches!(decode_reply(deepest.as_bytes()), Ok(Some(_))));
        let deeper = format!("*1\r\n{deepest}");
        check_refused(&deeper, ProtocolError::TooDeepReply);
        assert_eq!(decode_reply(b"*1073741824\r\n:1\r\n"), Ok(None));
        assert_eq!(decode_reply(b"$536870912\r\nab"), Ok(None));
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..12);
        let leaf = prop_oneof![
            "[ -~]{0,8}".prop_map(|text| Reply::Simple(text.into_bytes())),
            "ERR [ -~]{0,8}".prop_map(|text| Reply::Error(text.into_bytes())),
            any::<i64>().prop_map(Reply::Integer),
            bytes().prop_map(Reply::Bulk),
            Just(Reply::Null),
            prop::num::f64::NORMAL.prop_map(Reply::Double),
            any::<bool>().prop_map(Reply::Boolean),
            "-?[0-9]{1,30}".prop_map(|text| Reply::BigNumber(text.into_bytes())),
            bytes().prop_map(|text| Reply::Verbatim { format: *b"mkd", text }),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let list = || prop::collection::vec(inner.clone(), 0..5);
            let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
            prop_oneof![
                list().prop_map(Reply::Array),
                list().prop_map(Reply::Set),
                list().prop_map(Reply::Push),
                pairs.prop_map(Reply::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_replies_decode_to_themselves(reply in replies()) {
            let mut out = Vec::new();
            write_reply(&reply, &mut ReplyWriter::new(&mut out, Protocol::Resp3));
            prop_assert_eq!(decode_reply(&out), Ok(Some((reply, out.len()))));
            check_reply(&out);
        }

        #[test]
        fn each_resp2_form_is_one_reply(reply in replies()) {
            let mut out = Vec::new();
            write_reply(&reply, &mut ReplyWriter::new(&mut out, Protocol::Resp2));
            prop_assert_eq!(reply_len(&out), Ok(Some(out.len())));
        }

        #[test]
        fn any_bytes_are_a_reply_or_an_error_or_unfinished(input: Vec<u8>) {
            check_reply(&input);
        }

        #[test]
        fn damaged_replies_never_panic(reply in replies(), place: prop::sample::Index, byte: u8) {
            let mut out = Vec::new();
            write_reply(&reply, &mut ReplyWriter::new(&mut out, Protocol::Resp3));
            let place = place.index(out.len());
            out[place] = byte;
            check_reply(&out);
        }
    }
}
