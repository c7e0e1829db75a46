//! Parsing of replies, as far as a generator needs it: their ends, and whether they are errors.

use super::spec::Protocol;

/// Limit of a line in memcached's text protocol: a key has at most 250 bytes.
const LINE_BYTES_MAX: usize = 2048;

/// Kind of the first value in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reply,
    Error,
    /// Unsolicited.
    Push,
}

/// Bytes that violate the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0}")]
    Resp(#[from] wire::resp::ProtocolError),
    #[error("reply violates memcached's text protocol: {0:?}")]
    Memcached(String),
}

/// Returns the length and kind of the first reply; `None` if it is incomplete.
#[inline]
pub(crate) fn next(protocol: Protocol, input: &[u8]) -> Result<Option<(usize, Kind)>, Malformed> {
    match protocol {
        Protocol::Resp | Protocol::RespInline => {
            let kind = match input.first() {
                None => return Ok(None),
                Some(b'-' | b'!') => Kind::Error,
                Some(b'>') => Kind::Push,
                Some(_) => Kind::Reply,
            };
            Ok(wire::resp::reply_len(input)?.map(|len| (len, kind)))
        }
        Protocol::Memcached => memcached(input),
        Protocol::Cql => unreachable!("CQL messages are identified by stream"),
        Protocol::Http => unreachable!("HTTP responses are parsed incrementally"),
    }
}

/// Returns the code of an error: `WRONGTYPE`, `SERVER_ERROR`.
pub(crate) fn first_word(reply: &[u8]) -> String {
    let text = match reply {
        // A blob error is preceded by a line with its length.
        [b'!', ..] => reply.splitn(2, |&byte| byte == b'\n').nth(1).unwrap_or_default(),
        _ => reply.strip_prefix(b"-").unwrap_or(reply),
    };
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

// Source: memcached doc/protocol.txt, "Error strings", "Retrieval command", "Storage commands"
fn memcached(input: &[u8]) -> Result<Option<(usize, Kind)>, Malformed> {
    let mut at = 0;
    loop {
        let Some((line, next)) = line(input, at)? else { return Ok(None) };
        let kind = match line {
            b"END" | b"STORED" | b"NOT_STORED" => Kind::Reply,
            b"ERROR" => Kind::Error,
            _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
                Kind::Error
            }
            _ => {
                let bytes = value_bytes(line).ok_or_else(|| refusal(line))?;
                let end = next.checked_add(bytes + 2).ok_or_else(|| refusal(line))?;
                if input.len() < end {
                    return Ok(None);
                }
                if &input[end - 2..end] != b"\r\n" {
                    return Err(refusal(line));
                }
                at = end;
                continue;
            }
        };
        return Ok(Some((next, kind)));
    }
}

fn line(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let rest = &input[at..input.len().min(at + LINE_BYTES_MAX)];
    match rest.iter().position(|&byte| byte == b'\n') {
        Some(end) if end > 0 && rest[end - 1] == b'\r' => {
            Ok(Some((&rest[..end - 1], at + end + 1)))
        }
        Some(end) => Err(refusal(&rest[..end])),
        None if rest.len() == LINE_BYTES_MAX => Err(refusal(rest)),
        None => Ok(None),
    }
}

/// Parses `VALUE key flags bytes`, at most 1 GiB.
fn value_bytes(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("VALUE ")?.split(' ').skip(2);
    words.next()?.parse().ok().filter(|&bytes| bytes <= 1 << 30)
}

fn refusal(line: &[u8]) -> Malformed {
    Malformed::Memcached(String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every proper prefix of the input is an incomplete reply.
    fn check(protocol: Protocol, input: &[u8], expected: Kind) {
        for end in 0..input.len() {
            assert_eq!(next(protocol, &input[..end]), Ok(None), "{end} of {input:?}");
        }
        let mut with_more = input.to_vec();
        with_more.extend_from_slice(b"+");
        assert_eq!(next(protocol, &with_more), Ok(Some((input.len(), expected))));
    }

    #[test]
    fn replies_of_redis() {
        check(Protocol::Resp, b"+OK\r\n", Kind::Reply);
        check(Protocol::Resp, b"$3\r\nabc\r\n", Kind::Reply);
        check(Protocol::Resp, b"-ERR no\r\n", Kind::Error);
        check(Protocol::Resp, b"!6\r\nERR no\r\n", Kind::Error);
        check(Protocol::Resp, b">2\r\n+invalidate\r\n_\r\n", Kind::Push);
        assert!(next(Protocol::Resp, b"what").is_err());
    }

    #[test]
    fn replies_of_memcached() {
        check(Protocol::Memcached, b"STORED\r\n", Kind::Reply);
        check(Protocol::Memcached, b"END\r\n", Kind::Reply);
        check(Protocol::Memcached, b"VALUE k 0 5\r\na\r\nbc\r\nEND\r\n", Kind::Reply);
        check(Protocol::Memcached, b"SERVER_ERROR out of memory\r\n", Kind::Error);
        for wrong in [&b"what\r\n"[..], b"VALUE k 0 2\r\nabc\r\nEND\r\n", b"END\n", &[b'x'; 3000]] {
            assert!(next(Protocol::Memcached, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn errors_are_told_apart_by_their_first_word() {
        assert_eq!(first_word(b"-WRONGTYPE Operation against\r\n"), "WRONGTYPE");
        assert_eq!(first_word(b"!9\r\nERR a\r\nb\r\n"), "ERR");
        assert_eq!(first_word(b"SERVER_ERROR busy\r\n"), "SERVER_ERROR");
        assert_eq!(first_word(b"ERROR\r\n"), "ERROR");
    }
}
