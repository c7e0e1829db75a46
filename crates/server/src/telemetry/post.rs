//! POST over HTTP/1.1 on a connection of its own, within a time.
//!
//! A library would need TLS, threads or a runtime of its own for what is one request, of which only
//! the status of the answer is read.
// Source: RFC 9112 3 (request line), 4 (status line)

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use crate::config::CollectorUrl;

/// Limit of one exchange.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read for its status.
const STATUS_BYTES_MAX: usize = 256;
/// Bytes that are sent between two checks of the time.
const PIECE_BYTES: usize = 64 << 10;

/// Why a message was not taken.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    /// Whether the same message may be taken later.
    pub(super) may_retry: bool,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure { text: error.to_string(), may_retry: true }
    }
}

/// Sends a message in JSON to a path below the endpoint.
pub(super) fn post(endpoint: &CollectorUrl, path: &str, message: &str) -> Result<(), Failure> {
    let status = exchange(endpoint, path, message).map_err(|error| Failure {
        text: format!("POST {endpoint}{path}: {error}"),
        may_retry: true,
    })?;
    if (200..300).contains(&status) {
        return Ok(());
    }
    // Source: OTLP 1.5, "Retryable Response Codes"
    let may_retry = matches!(status, 429 | 502 | 503 | 504);
    Err(Failure { text: format!("POST {endpoint}{path}: status {status}"), may_retry })
}

fn exchange(endpoint: &CollectorUrl, path: &str, message: &str) -> std::io::Result<u16> {
    let deadline = Instant::now() + TIMEOUT;
    let mut stream = connect(endpoint, deadline)?;
    let head = format!(
        "POST {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        endpoint.path,
        endpoint.authority(),
        message.len()
    );
    for piece in [head.as_bytes()].into_iter().chain(message.as_bytes().chunks(PIECE_BYTES)) {
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(piece)?;
    }
    let (mut answer, mut piece) = (Vec::new(), [0; STATUS_BYTES_MAX]);
    while !answer.contains(&b'\n') && answer.len() < STATUS_BYTES_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    status(&answer).ok_or_else(|| std::io::Error::other("the answer is not HTTP"))
}

fn connect(endpoint: &CollectorUrl, deadline: Instant) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the host has no address");
    for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The time until the deadline, which a socket takes only if it is not zero.
fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The status in the first line of an answer.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let line = str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.0 ").or_else(|| line.strip_prefix("HTTP/1.1 "))?;
    rest.get(..3)?.parse().ok().filter(|status| (100..600).contains(status))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Sends a message to a collector that gives this answer. Returns the outcome, and what the
    /// collector has read.
    fn ask(answer: &'static [u8]) -> (Result<(), Failure>, String) {
        let listener = TcpListener::bind("[::1]:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let collector = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let mut lines = BufReader::new(&stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                lines.read_line(&mut head).expect("a head");
            }
            let mut body = [0; 2];
            lines.read_exact(&mut body).expect("a body");
            (&stream).write_all(answer).expect("an open connection");
            head + str::from_utf8(&body).expect("text")
        });
        let endpoint = format!("http://[::1]:{port}/prefix").parse().expect("a URL");
        let outcome = post(&endpoint, "/v1/metrics", "{}");
        (outcome, collector.join().expect("it does not panic").replace(&port.to_string(), "PORT"))
    }

    #[test]
    fn a_message_is_taken_refused_or_tried_again() {
        let (outcome, asked) = ask(b"HTTP/1.1 200 OK\r\n");
        assert!(outcome.is_ok(), "{outcome:?}");
        let expected = "POST /prefix/v1/metrics HTTP/1.1\r\nHost: [::1]:PORT\r\n\
                        Content-Type: application/json\r\nContent-Length: 2\r\n\
                        Connection: close\r\n\r\n{}";
        assert_eq!(asked, expected);
        for (answer, may_retry) in [
            (&b"HTTP/1.1 503 Busy\r\n\r\n"[..], true),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false),
            (b"HTTP/1.1 200", false),
            (b"", true),
            (b"SMTP\r\n", true),
            (b"HTTP/1.1 2\r\n", true),
            (&[b'x'; 10_000], true),
        ] {
            let (outcome, _) = ask(answer);
            let shown = answer.escape_ascii();
            match outcome {
                Ok(()) => assert!(answer.starts_with(b"HTTP/1.1 200"), "{shown}"),
                Err(failure) => assert_eq!(failure.may_retry, may_retry, "{shown}: {failure:?}"),
            }
        }
    }

    #[test]
    fn a_collector_that_is_not_there_may_come_later() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let endpoint = format!("http://{address}").parse().expect("a URL");
        let failure = post(&endpoint, "/v1/metrics", "{}").expect_err("nothing listens");
        assert!(failure.may_retry && failure.text.contains("refused"), "{failure:?}");
    }
}
