//! Replies to browsers and Prometheus: one request per connection.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::address::is_local_host;
use parking_lot::Mutex;

use crate::monitor::board::Board;
use crate::slots::Slots;

const PAGE: &str = include_str!("page.html");
/// Limit for a request head. Browsers send far less.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Limit for receiving a whole request, and then for sending the response.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of concurrent connections, each with a thread; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
const TURN: Duration = Duration::from_millis(20);

const FOREIGN_HOST: &str = "Request this page by IP address, as localhost, or by host name.\n";

const CONTENT_POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; ",
    "script-src 'unsafe-inline'; connect-src 'self'",
);

pub(super) fn serve(listener: &TcpListener, board: &Mutex<Board>, is_over: &AtomicBool) {
    let slots = Slots::new(CONNECTIONS_MAX);
    let slots = &slots;
    thread::scope(|scope| {
        while !is_over.load(Ordering::SeqCst) {
            let Some(slot) = slots.take() else {
                thread::sleep(TURN);
                continue;
            };
            match listener.accept() {
                Ok((stream, _)) => {
                    scope.spawn(move || {
                        if let Err(error) = answer(stream, board) {
                            tracing::debug!(%error, "could not reply to HTTP client");
                        }
                        drop(slot);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TURN),
                Err(error) => {
                    tracing::warn!(%error, "could not accept HTTP connection");
                    thread::sleep(TURN);
                }
            }
        }
    });
}

/// Returns the remaining time for a read or a write.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(mut stream: TcpStream, board: &Mutex<Board>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let request = read_request(&mut stream)?;
    let (status, kind, content) = match request.as_ref().map(|request| &*request.path) {
        Some(_) if request.as_ref().is_some_and(|request| !request.is_local) => {
            ("403 Forbidden", "text/plain", FOREIGN_HOST.to_owned())
        }
        Some("/") => ("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        Some("/status.json") => ("200 OK", "application/json", board.lock().json()?),
        Some("/metrics") => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", board.lock().prometheus())
        }
        Some(_) => ("404 Not Found", "text/plain", "Page not found.\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "Only GET is supported.\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {CONTENT_POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        content.len()
    );
    let until = Instant::now() + TIMEOUT;
    for mut rest in [head.as_bytes(), content.as_bytes()] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(until)?))?;
            match stream.write(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => rest = &rest[count..],
            }
        }
    }
    Ok(())
}

/// The parts of a request that matter here.
struct PageRequest {
    path: String,
    /// Whether the Host header denotes this machine.
    is_local: bool,
}

/// Whether every Host is an IP address, `localhost`, or the name of this machine. A request for any
/// other name may originate from a page of another site (DNS rebinding).
fn is_local(headers: &[httparse::Header<'_>]) -> bool {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_bytes();
    let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    hosts.all(|header| {
        let name = header.value.split(|byte| *byte == b':').next().unwrap_or_default();
        is_local_host(header.value) || name.eq_ignore_ascii_case(machine)
    })
}

/// Returns `None` unless the request is a GET with a head of acceptable size.
fn read_request(stream: &mut TcpStream) -> io::Result<Option<PageRequest>> {
    let mut head = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    let until = Instant::now() + TIMEOUT;
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let count = stream.read(&mut head[filled..])?;
        filled += count;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head[..filled]) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.filter(|_| request.method == Some("GET"));
                let path = path.and_then(|path| path.split('?').next());
                let is_local = is_local(request.headers);
                return Ok(path.map(|path| PageRequest { path: path.to_owned(), is_local }));
            }
            Ok(httparse::Status::Partial) if count > 0 && filled < HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that never completes its request does not block others.
    #[test]
    fn slow_clients_do_not_block_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (board, is_over) = (Mutex::new(Board::default()), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &board, &is_over));
            let slow: Vec<TcpStream> =
                (1..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut quick = TcpStream::connect(address).unwrap();
            quick.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut answer = String::new();
            quick.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            drop(slow);
            is_over.store(true, Ordering::SeqCst);
        });
    }

    /// The name of another site may resolve to this machine (DNS rebinding).
    #[test]
    fn pages_require_a_local_host_name() {
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy().into_owned();
        for (host, expected) in [
            ("localhost:80", true),
            ("127.0.0.1:9000", true),
            ("[::1]:9000", true),
            (&*machine, true),
            (&*format!("{machine}:80"), true),
            ("evil.example:9000", false),
            ("127.0.0.1.evil.example", false),
            ("0.0.0.0", false),
        ] {
            let local = httparse::Header { name: "Host", value: b"localhost" };
            let request = httparse::Header { name: "host", value: host.as_bytes() };
            assert_eq!(is_local(&[request]), expected, "{host}");
            assert_eq!(is_local(&[local, request]), expected, "{host}");
        }
        assert!(is_local(&[]), "HTTP/1.0");
    }
}
