//! An HTTP response: status, some headers, content.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::serve::request::Refusal;

/// Pages are self-contained, and only request updates of the run.
const CONTENT_POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; ",
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
);

/// Input of a refused client that is discarded, so that closing does not reset the connection
/// before the response is read.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Answer {
    status: &'static str,
    kind: &'static str,
    /// Additional headers, each with its line end.
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

    /// Adds the content's version, which a browser uses to check for a newer one.
    pub(crate) fn with_version(mut self, version: &str) -> Self {
        self.headers = format!("ETag: {version}\r\n");
        self
    }

    pub(crate) fn not_modified(version: &str) -> Self {
        Self::text("304 Not Modified", "").with_version(version)
    }

    pub(crate) fn not_found() -> Self {
        Self::text("404 Not Found", "Page not found.\n")
    }

    pub(crate) fn crowded() -> Self {
        Self::text("503 Service Unavailable", "Too many connections; try again.\n")
    }

    /// The run's folder is unreadable; `reason` is for the user of this program.
    pub(crate) fn failed(reason: &str) -> Self {
        Self::text("500 Internal Server Error", reason)
    }

    /// Returns `None` if the client has disconnected.
    pub(crate) fn refusal(refusal: Refusal) -> Option<Self> {
        Some(match refusal {
            Refusal::Disconnected => return None,
            Refusal::Malformed => Self::text("400 Bad Request", "Malformed HTTP request.\n"),
            Refusal::ForeignOrigin => {
                Self::text("403 Forbidden", "Use an IP address or localhost as the host name.\n")
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

    /// Sends the response and closes the connection: one request each.
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
