//! What a browser and Prometheus get: one request per connection, answered by one thread.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::monitor::board::Board;

const PAGE: &str = include_str!("page.html");
/// Heads of browsers are far below.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// For each read and write: who is slower is let go, as others wait.
const TIMEOUT: Duration = Duration::from_millis(500);
const TURN: Duration = Duration::from_millis(20);

const CONTENT_POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; ",
    "script-src 'unsafe-inline'; connect-src 'self'",
);

pub(super) fn serve(listener: &TcpListener, board: &Mutex<Board>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = answer(stream, board) {
                    tracing::debug!(%error, "a browser was not answered");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TURN),
            Err(error) => {
                tracing::warn!(%error, "a browser could not be taken in");
                thread::sleep(TURN);
            }
        }
    }
}

fn answer(mut stream: TcpStream, board: &Mutex<Board>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (status, kind, content) = match read_path(&mut stream)?.as_deref() {
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
    stream.write_all(head.as_bytes())?;
    stream.write_all(content.as_bytes())
}

/// `None`: no GET request with a head of usual size.
fn read_path(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let count = stream.read(&mut head[filled..])?;
        filled += count;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head[..filled]) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.filter(|_| request.method == Some("GET"));
                let path = path.and_then(|path| path.split('?').next());
                return Ok(path.map(str::to_owned));
            }
            Ok(httparse::Status::Partial) if count > 0 && filled < HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) | Err(_) => return Ok(None),
        }
    }
}
