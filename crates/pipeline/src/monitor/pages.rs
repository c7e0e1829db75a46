//! The answers to browsers and Prometheus: one request per connection.

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
/// Heads of browsers are far below.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// For a whole request, and then for its answer: a slow client is disconnected.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Connections that are served at once, each by a thread; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
const TURN: Duration = Duration::from_millis(20);

const STRANGE_HOST: &str =
    "Ask for this page by an address, as localhost, or by the name of its machine.\n";

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
                            tracing::debug!(%error, "a browser was not answered");
                        }
                        drop(slot);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TURN),
                Err(error) => {
                    tracing::warn!(%error, "could not accept a browser's connection");
                    thread::sleep(TURN);
                }
            }
        }
    });
}

/// What is left of the time for a read or a write.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(mut stream: TcpStream, board: &Mutex<Board>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let asked = read_request(&mut stream)?;
    let (status, kind, content) = match asked.as_ref().map(|asked| &*asked.path) {
        Some(_) if asked.as_ref().is_some_and(|asked| !asked.is_local) => {
            ("403 Forbidden", "text/plain", STRANGE_HOST.to_owned())
        }
        Some("/") => ("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        Some("/status.json") => ("200 OK", "application/json", board.lock().json()?),
        Some("/metrics") => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", board.lock().prometheus())
        }
        Some(_) => ("404 Not Found", "text/plain", "There is no such page.\n".to_owned()),
        None => ("400 Bad Request", "text/plain", "Only GET is answered.\n".to_owned()),
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

/// What a client asks for.
struct Asked {
    path: String,
    /// By a name that only this machine has.
    is_local: bool,
}

/// Whether every Host is an address, `localhost`, or the name of this machine. A request for any other name may
/// come from a page of another site (DNS rebinding).
fn is_local(headers: &[httparse::Header<'_>]) -> bool {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_bytes();
    let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    hosts.all(|header| {
        let name = header.value.split(|byte| *byte == b':').next().unwrap_or_default();
        is_local_host(header.value) || name.eq_ignore_ascii_case(machine)
    })
}

/// `None`: no GET request with a head of usual size.
fn read_request(stream: &mut TcpStream) -> io::Result<Option<Asked>> {
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
                return Ok(path.map(|path| Asked { path: path.to_owned(), is_local }));
            }
            Ok(httparse::Status::Partial) if count > 0 && filled < HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that never completes its request does not keep others from the page.
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

    /// Another site's name may resolve to this machine (DNS rebinding).
    #[test]
    fn a_page_is_shown_only_by_names_of_this_machine() {
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
            let asked = httparse::Header { name: "host", value: host.as_bytes() };
            assert_eq!(is_local(&[asked]), expected, "{host}");
            assert_eq!(is_local(&[local, asked]), expected, "{host}");
        }
        assert!(is_local(&[]), "HTTP/1.0");
    }
}
