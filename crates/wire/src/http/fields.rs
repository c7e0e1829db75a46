//! Header lines: where they end, and the meaning of those lines that frame a message.

use std::net::Ipv6Addr;

use super::limits::RequestError;

/// Where a head ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadEnd {
    /// After the empty line, at this position.
    At(usize),
    /// Not yet; this many bytes are complete lines.
    Unfinished(usize),
    /// A line ends with LF alone. Some parsers accept that as a line end and some do not.
    BareLineFeed,
    TooLong,
}

/// Searches for the empty line that ends a head or trailers, from `scanned` on. The result depends
/// on the bytes alone and not on the pieces in which they arrived.
// Source: RFC 9112 2.1 (message format), 2.2 (a bare LF may be recognized; here it is refused)
pub(super) fn find_end(bytes: &[u8], scanned: usize, bytes_max: usize) -> HeadEnd {
    let window = &bytes[..bytes.len().min(bytes_max)];
    let mut line = scanned;
    while let Some(offset) = memchr::memchr(b'\n', &window[line..]) {
        let line_feed = line + offset;
        if offset == 0 || window[line_feed - 1] != b'\r' {
            return HeadEnd::BareLineFeed;
        }
        if offset == 1 {
            return HeadEnd::At(line_feed + 1);
        }
        line = line_feed + 1;
    }
    if bytes.len() >= bytes_max { HeadEnd::TooLong } else { HeadEnd::Unfinished(line) }
}

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The header lines do not specify it.
    Unspecified,
    Length(u64),
    Chunked,
}

/// The header lines that concern the message and the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    pub(super) framing: Framing,
    pub(super) hosts: usize,
    pub(super) says_close: bool,
    pub(super) says_keep_alive: bool,
    pub(super) expects_continue: bool,
}

impl Summary {
    pub(super) const EMPTY: Self = Self {
        framing: Framing::Unspecified,
        hosts: 0,
        says_close: false,
        says_keep_alive: false,
        expects_continue: false,
    };

    /// Adds one header line to the summary.
    #[inline]
    pub(super) fn note(&mut self, name: &str, value: &[u8]) -> Result<(), RequestError> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("host") => {
                self.hosts += 1;
                if self.hosts > 1 || !is_host(value) {
                    return Err(RequestError::Host);
                }
            }
            6 if is("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(RequestError::Expectation);
                }
                self.expects_continue = true;
            }
            10 if is("connection") => {
                self.says_close |= has_token(value, "close");
                self.says_keep_alive |= has_token(value, "keep-alive");
            }
            14 if is("content-length") => self.note_length(value)?,
            17 if is("transfer-encoding") => self.note_coding(value)?,
            _ => {}
        }
        Ok(())
    }

    /// One number in digits, once. A list of equal numbers is legal and rejected all the same: no
    /// client sends it except to probe how servers parse it.
    // Source: RFC 9110 8.6 (Content-Length = 1*DIGIT); RFC 9112 6.3 rule 5
    fn note_length(&mut self, value: &[u8]) -> Result<(), RequestError> {
        match self.framing {
            Framing::Unspecified => {}
            Framing::Chunked => return Err(RequestError::AmbiguousLength),
            Framing::Length(_) => return Err(RequestError::ContentLength),
        }
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| is_number);
        let length = text.and_then(|text| text.parse().ok());
        self.framing = Framing::Length(length.ok_or(RequestError::ContentLength)?);
        Ok(())
    }

    /// `chunked` alone, once: no other coding is in use.
    // Source: RFC 9112 6.1 (Transfer-Encoding), 6.3 rules 3 and 4
    fn note_coding(&mut self, value: &[u8]) -> Result<(), RequestError> {
        match self.framing {
            Framing::Unspecified => {}
            Framing::Length(_) => return Err(RequestError::AmbiguousLength),
            Framing::Chunked => return Err(RequestError::TransferEncoding),
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.framing = Framing::Chunked;
            return Ok(());
        }
        let mut codings = tokens(value);
        let last = codings.next_back().unwrap_or_default();
        let is_chunked_last = last.eq_ignore_ascii_case(b"chunked");
        if !is_chunked_last || codings.any(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
            return Err(RequestError::TransferEncoding);
        }
        Err(RequestError::UnknownCoding)
    }
}

/// The elements of a list in a header line.
// Source: RFC 9110 5.6.1 (lists)
pub(super) fn tokens(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a list of tokens contains this one.
pub(super) fn has_token(value: &[u8], token: &str) -> bool {
    tokens(value).any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether a value is `host [ ":" port ]`: a registered name, an IPv4 address or an IPv6 address in
/// brackets. Empty is allowed, because requests for a target without an authority carry an empty
/// Host.
///
/// Two parsers that split `a:b:c` or `[::1` at different colons serve different hosts, so every
/// ambiguous form is rejected.
// Source: RFC 9110 7.2 (Host), RFC 3986 3.2.2 (host), 3.2.3 (port)
pub(super) fn is_host(value: &[u8]) -> bool {
    if value.is_empty() {
        return true;
    }
    let (is_name_valid, rest) = if let Some(inside) = value.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', inside) else { return false };
        let address = std::str::from_utf8(&inside[..end]).ok();
        let is_address = address.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok());
        (is_address, &inside[end + 1..])
    } else {
        let end = memchr::memchr(b':', value).unwrap_or(value.len());
        (is_registered_name(&value[..end]), &value[end..])
    };
    is_name_valid && is_port(rest)
}

/// Empty, or a colon and a 16-bit number, which may be missing.
fn is_port(text: &[u8]) -> bool {
    let Some((colon, digits)) = text.split_first() else { return true };
    let port = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
    *colon == b':' && (digits.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_ok()))
}

/// Bytes of a registered name outside of escapes, except the comma: lists of hosts are ambiguous. A
/// table, because every request has a host.
// Source: RFC 3986 3.2.2 (reg-name), 2.3 (unreserved), 2.2 (sub-delims)
static IS_NAME_BYTE: [bool; 256] = {
    let allowed = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-._~!$&'()*+;=";
    let mut table = [false; 256];
    let mut index = 0;
    while index < allowed.len() {
        table[allowed[index] as usize] = true;
        index += 1;
    }
    table
};

fn is_registered_name(name: &[u8]) -> bool {
    if name.iter().all(|byte| IS_NAME_BYTE[usize::from(*byte)]) {
        return !name.is_empty();
    }
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                tail
            }
            (byte, tail) if IS_NAME_BYTE[usize::from(*byte)] => tail,
            _ => return false,
        };
    }
    !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_end(bytes: &str, bytes_max: usize, expected: HeadEnd) {
        assert_eq!(find_end(bytes.as_bytes(), 0, bytes_max), expected, "{bytes:?}");
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        check_end("GET / HTTP/1.1\r\n\r\n", 100, HeadEnd::At(18));
        check_end("GET / HTTP/1.1\r\n\r\n", 18, HeadEnd::At(18));
        check_end("GET / HTTP/1.1\r\n\r\n", 17, HeadEnd::TooLong);
        check_end("GET / HTTP/1.1\r\na", 100, HeadEnd::Unfinished(16));
        check_end("GET / HTTP/1.1\n\r\n", 100, HeadEnd::BareLineFeed);
        check_end("a: b\r\n\n", 100, HeadEnd::BareLineFeed);
        check_end("\n", 100, HeadEnd::BareLineFeed);
        check_end("\r\n", 100, HeadEnd::At(2));
    }

    fn check_framing(lines: &[(&str, &str)], expected: Result<Framing, RequestError>) {
        let mut summary = Summary::EMPTY;
        let noted = lines.iter().try_for_each(|(name, value)| summary.note(name, value.as_bytes()));
        assert_eq!(noted.map(|()| summary.framing), expected, "{lines:?}");
    }

    #[test]
    fn repeated_lengths_are_rejected() {
        let (length, coding) = ("Content-Length", "Transfer-Encoding");
        check_framing(&[], Ok(Framing::Unspecified));
        check_framing(&[(length, "5")], Ok(Framing::Length(5)));
        check_framing(&[(length, "0005")], Ok(Framing::Length(5)));
        check_framing(&[(coding, "Chunked")], Ok(Framing::Chunked));
        for value in ["", "+5", "-1", "5, 5", "5 5", "0x5", "18446744073709551616", "5;"] {
            check_framing(&[(length, value)], Err(RequestError::ContentLength));
        }
        check_framing(&[(length, "5"), (length, "5")], Err(RequestError::ContentLength));
        check_framing(&[(length, "5"), (coding, "chunked")], Err(RequestError::AmbiguousLength));
        check_framing(&[(coding, "chunked"), (length, "5")], Err(RequestError::AmbiguousLength));
        for value in ["chunked, gzip", "identity", "", "chunked, chunked", "xchunked", "chunked;"] {
            check_framing(&[(coding, value)], Err(RequestError::TransferEncoding));
        }
        check_framing(&[(coding, "gzip, chunked")], Err(RequestError::UnknownCoding));
        let twice = [(coding, "chunked"), (coding, "chunked")];
        check_framing(&twice, Err(RequestError::TransferEncoding));
    }

    #[test]
    fn hosts_are_names() {
        for host in [
            "",
            "a.example",
            "a:80",
            "a:",
            "[::1]",
            "[::1]:80",
            "[::ffff:127.0.0.1]:65535",
            "127.0.0.1",
            "a_b",
            "%41b",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["a b", "a/b", "a@b", "a,b", "a?b", "a\tb", "ä"] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "[::1",
            "::1",
            "[::1]80",
            "[::1]:x",
            "[]",
            "[a]",
            "[::1%25eth0]",
            "a:b:c",
            "a:b",
            "a:80:80",
            "127.0.0.1:abc",
            "a:65536",
            "a:+80",
            ":80",
            "a[b]",
            "a]",
            "a%4",
            "%zz",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
