//! What goes back to a browser: a status, a few headers, a content.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::serve::request::Refusal;

/// Pages bring all they need with them, and ask for nothing but news of the run.
const CONTENT_POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; ",
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
);

/// What a refused sender may still have on its way: read, so that closing does not cut the answer
/// off before it is seen.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Answer {
    status: &'static str,
    kind: &'static str,
    /// Extra headers, each with its line end.
    headers: String,
    content: Vec<u8>,
}

impl Answer {
    pub(crate) fn page(content: String) -> Self {
        Self::ok("text/html; charset=utf-8", content)
    }

    pub(crate) fn ok(kind: &'static str, content: String) -> Self {
        Self { status: "200 OK", kind, headers: String::new(), content: content.into_bytes() }
    }

    /// The content's version, by which a browser asks whether there is a newer one.
    pub(crate) fn with_version(mut self, version: &str) -> Self {
        self.headers = format!("ETag: {version}\r\n");
        self
    }

    pub(crate) fn not_modified(version: &str) -> Self {
        Self::text("304 Not Modified", "").with_version(version)
    }

    pub(crate) fn not_found() -> Self {
        Self::text("404 Not Found", "There is no such page.\n")
    }

    pub(crate) fn crowded() -> Self {
        Self::text("503 Service Unavailable", "Too many at once: try again.\n")
    }

    /// The run's folder cannot be read: `reason` is for the one who started this program.
    pub(crate) fn failed(reason: &str) -> Self {
        Self::text("500 Internal Server Error", reason)
    }

    /// `None` where nobody is left to be answered.
    pub(crate) fn refusal(refusal: Refusal) -> Option<Self> {
        Some(match refusal {
            Refusal::Gone => return None,
            Refusal::Malformed => Self::text("400 Bad Request", "That is no HTTP request.\n"),
            Refusal::Stranger => {
                Self::text("403 Forbidden", "Ask by an address, or by localhost.\n")
            }
            Refusal::Slow => Self::text("408 Request Timeout", "The request took too long.\n"),
            Refusal::TooLarge => Self::text(
                "431 Request Header Fields Too Large",
                "The request's head is too large.\n",
            ),
            Refusal::Method => {
                let mut answer =
                    Self::text("405 Method Not Allowed", "Only GET and HEAD are served.\n");
                answer.headers.push_str("Allow: GET, HEAD\r\n");
                answer
            }
        })
    }

    fn text(status: &'static str, content: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            headers: String::new(),
            content: content.as_bytes().to_vec(),
        }
    }

    /// Sends it and ends the connection: one request each.
    pub(crate) fn send(&self, stream: &mut TcpStream, is_head: bool) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\
             Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: {CONTENT_POLICY}\r\nConnection: close\r\n\r\n",
            self.status,
            self.kind,
            self.content.len(),
            self.headers,
        );
        stream.write_all(head.as_bytes())?;
        if !is_head {
            stream.write_all(&self.content)?;
        }
        stream.shutdown(Shutdown::Write)?;
        drain(stream)
    }
}

fn drain(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(DRAIN_TIMEOUT))?;
    let mut buffer = [0; 4096];
    let mut drained = 0;
    while drained < DRAINED_BYTES_MAX {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => drained += count,
        }
    }
    Ok(())
}
