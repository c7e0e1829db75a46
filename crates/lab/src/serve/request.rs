//! Reads one untrusted request: a head of limited size, within limited time, of the few kinds that
//! the live view supports.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// Limit for a head. Browsers send far less.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// Limit for header lines. Browsers send fewer.
const HEADERS_MAX: usize = 64;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Without the query.
    pub(crate) path: String,
    /// HEAD: the response has no content.
    pub(crate) is_head: bool,
    /// The version of the content that the browser has.
    pub(crate) if_none_match: Option<String>,
}

/// Reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    /// Only GET and HEAD are supported.
    Method,
    /// The head was not received in time.
    Slow,
    /// The head is too long or has too many lines.
    TooLarge,
    /// The host name is not this machine's: a page of another site may be reading through the
    /// browser.
    ForeignOrigin,
    /// The connection was closed: no response is possible.
    Disconnected,
}

/// Reads until the end of the head. `timeout` applies to the whole head: trickling bytes does not
/// extend it.
pub(crate) fn read(stream: &mut TcpStream, timeout: Duration) -> Result<Request, Refusal> {
    let deadline = Instant::now() + timeout;
    let is_local = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let mut head = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Slow);
        }
        stream.set_read_timeout(Some(left)).map_err(|_| Refusal::Disconnected)?;
        match stream.read(&mut head[filled..]) {
            Ok(0) => return Err(Refusal::Disconnected),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Refusal::Slow);
            }
            Err(_) => return Err(Refusal::Disconnected),
        }
        if let Some(request) = parse(&head[..filled], is_local)? {
            return Ok(request);
        }
        if filled == HEAD_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
    }
}

/// Returns `None` if the head is incomplete.
fn parse(bytes: &[u8], is_local: bool) -> Result<Option<Request>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::Malformed),
    }
    let is_head = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Method),
    };
    let value = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    if is_local && value("host").is_some_and(|host| !is_own_name(host)) {
        return Err(Refusal::ForeignOrigin);
    }
    let target = head.path.unwrap_or_default();
    Ok(Some(Request {
        path: target.split('?').next().unwrap_or_default().to_owned(),
        is_head,
        if_none_match: value("if-none-match").map(str::to_owned),
    }))
}

/// Whether a host is `localhost`, or an IP address, with or without a port.
fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Option<&str>, Refusal>) {
        let found = parse(text.as_bytes(), true).map(|request| request.map(|request| request.path));
        assert_eq!(found, expected.map(|path| path.map(str::to_owned)), "{text:?}");
    }

    #[test]
    fn requests_are_of_few_kinds() {
        check("GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n", Ok(Some("/")));
        check("HEAD /a?b=c HTTP/1.0\r\n\r\n", Ok(Some("/a")));
        check("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", Ok(Some("/")));
        check("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", Ok(Some("/")));
        check("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", Err(Refusal::ForeignOrigin));
        check("GET / HTTP/1.1\r\n", Ok(None));
        check("", Ok(None));
        check("POST / HTTP/1.1\r\n\r\n", Err(Refusal::Method));
        check("GET / HTTP/9.9\r\n\r\n", Err(Refusal::Malformed));
        check("\0\u{1}\u{2}\r\n\r\n", Err(Refusal::Malformed));
        check("*1\r\n$4\r\nPING\r\n", Err(Refusal::Malformed));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        check(&many, Err(Refusal::TooLarge));
    }
}
