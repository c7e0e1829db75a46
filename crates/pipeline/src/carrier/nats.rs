//! A client for brokers with the NATS protocol: lines and payloads over one connection, with a
//! sending and a receiving half. Blocking; for trusted networks, without TLS.

// Source: docs.nats.io, reference/protocols/client

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use thiserror::Error;

/// Limit for connecting and for the broker's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for a line. A broker lists all its known peers in one line.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Default limit of a broker for one message.
const MESSAGE_BYTES_DEFAULT: usize = 1 << 20;
const CONNECT: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\
    \"version\":\"1\",\"protocol\":1,\"echo\":false,\"name\":\"myriad pipeline\"}\r\nPING\r\n";

/// Reason why a broker cannot be used.
#[derive(Debug, Error)]
pub(super) enum BrokerError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("the broker reported {0}")]
    Reported(String),
    #[error("the broker requires {0}, which is not supported")]
    Requires(&'static str),
    #[error("not a NATS broker: {0:?}")]
    Malformed(String),
    #[error("message of {bytes} bytes exceeds the limit of {max}")]
    TooLong { bytes: usize, max: usize },
    #[error("received message {found} instead of {expected}: the broker dropped messages")]
    Missing { expected: u64, found: u64 },
    #[error("message too short")]
    Short,
    #[error("unknown message kind {0}")]
    Kind(u8),
}

/// The broker's greeting.
#[derive(Debug, Deserialize)]
struct Info {
    max_payload: Option<usize>,
    #[serde(default)]
    auth_required: bool,
    #[serde(default)]
    tls_required: bool,
}

/// The sending half; shared by threads.
#[derive(Debug, Clone)]
pub(super) struct NatsSender {
    stream: Arc<Mutex<TcpStream>>,
    /// Limit for one message.
    pub(super) message_bytes_max: usize,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct NatsReceiver {
    from: BufReader<TcpStream>,
    line: Vec<u8>,
    sender: NatsSender,
    message_bytes_max: usize,
}

/// One line from a broker.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A message of this many bytes follows.
    Message(usize),
    Ping,
    Pong,
    /// A line that can be ignored.
    Other,
}

/// Connects to a broker. Messages above `message_bytes_max` are refused before they are read.
pub(super) fn connect(
    address: SocketAddr,
    message_bytes_max: usize,
) -> Result<(NatsSender, NatsReceiver), BrokerError> {
    let stream = TcpStream::connect_timeout(&address, GREETING_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let from = BufReader::with_capacity(message_bytes_max, stream.try_clone()?);
    let stream = Arc::new(Mutex::new(stream));
    let sender = NatsSender { stream, message_bytes_max: MESSAGE_BYTES_DEFAULT };
    let mut receiver = NatsReceiver { from, line: Vec::new(), sender, message_bytes_max };
    receiver.read_line()?;
    let info = receiver.line.strip_prefix(b"INFO ").ok_or_else(|| receiver.malformed())?;
    let info: Info = serde_json::from_slice(info).map_err(|_| receiver.malformed())?;
    if info.tls_required {
        return Err(BrokerError::Requires("TLS"));
    }
    if info.auth_required {
        return Err(BrokerError::Requires("a password"));
    }
    receiver.sender.message_bytes_max = info.max_payload.unwrap_or(MESSAGE_BYTES_DEFAULT);
    receiver.sender.stream.lock().write_all(CONNECT)?;
    loop {
        receiver.read_line()?;
        if parse(&receiver.line)? == Line::Pong {
            break;
        }
    }
    receiver.wait_at_most(None)?;
    Ok((receiver.sender.clone(), receiver))
}

impl NatsSender {
    /// Subscribes to a subject. Each message to a group is delivered to one of its members.
    pub(super) fn subscribe(&self, subject: &str, group: Option<&str>) -> io::Result<()> {
        let group = group.map(|group| format!("{group} ")).unwrap_or_default();
        self.stream.lock().write_all(format!("SUB {subject} {group}1\r\n").as_bytes())
    }

    /// Publishes the concatenation of `parts`.
    pub(super) fn publish(&self, subject: &str, parts: &[&[u8]]) -> Result<(), BrokerError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > self.message_bytes_max {
            return Err(BrokerError::TooLong { bytes, max: self.message_bytes_max });
        }
        let head = format!("PUB {subject} {bytes}\r\n");
        let mut message = Vec::with_capacity(head.len() + bytes + 2);
        message.extend_from_slice(head.as_bytes());
        for part in parts {
            message.extend_from_slice(part);
        }
        message.extend_from_slice(b"\r\n");
        Ok(self.stream.lock().write_all(&message)?)
    }

    /// Shuts down the sending direction; data already sent is still delivered. Repeating it is
    /// harmless.
    pub(super) fn end(&self) {
        let _ = self.stream.lock().shutdown(Shutdown::Write);
    }

    /// Returns a handle that can close both halves.
    pub(super) fn stream(&self) -> io::Result<TcpStream> {
        self.stream.lock().try_clone()
    }
}

impl NatsReceiver {
    /// Sets the read timeout; `None` disables it.
    pub(super) fn wait_at_most(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.from.get_ref().set_read_timeout(timeout)
    }

    /// Receives the next message into `message`. Replies to pings in the meantime.
    pub(super) fn next(&mut self, message: &mut Vec<u8>) -> Result<(), BrokerError> {
        loop {
            self.read_line()?;
            match parse(&self.line)? {
                Line::Message(bytes) => return self.read_message(bytes, message),
                Line::Ping => self.sender.stream.lock().write_all(b"PONG\r\n")?,
                Line::Pong | Line::Other => {}
            }
        }
    }

    fn read_message(&mut self, bytes: usize, message: &mut Vec<u8>) -> Result<(), BrokerError> {
        if bytes > self.message_bytes_max {
            return Err(BrokerError::TooLong { bytes, max: self.message_bytes_max });
        }
        message.resize(bytes, 0);
        self.from.read_exact(message)?;
        let mut end = [0; 2];
        self.from.read_exact(&mut end)?;
        if &end != b"\r\n" {
            return Err(self.malformed());
        }
        Ok(())
    }

    /// Reads a line without its terminator.
    fn read_line(&mut self) -> Result<(), BrokerError> {
        self.line.clear();
        match (&mut self.from).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line) {
            Ok(0) => return Err(BrokerError::Closed),
            // If the peer closes with unread input, the kernel reports a reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(BrokerError::Closed);
            }
            read => read?,
        };
        if self.line.pop() != Some(b'\n') {
            return Err(self.malformed());
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(())
    }

    fn malformed(&self) -> BrokerError {
        malformed(&self.line)
    }
}

fn malformed(line: &[u8]) -> BrokerError {
    let shown = &line[..line.len().min(60)];
    BrokerError::Malformed(String::from_utf8_lossy(shown).into_owned())
}

fn parse(line: &[u8]) -> Result<Line, BrokerError> {
    let text = std::str::from_utf8(line).map_err(|_| malformed(line))?;
    let mut words = text.split_ascii_whitespace();
    match words.next() {
        Some("MSG") => {
            // Subject, subscription id, optional reply subject, length.
            let bytes = words.nth(2).map(|third| words.next().unwrap_or(third));
            let bytes = bytes.and_then(|bytes| bytes.parse().ok());
            Ok(Line::Message(bytes.ok_or_else(|| malformed(line))?))
        }
        Some("PING") => Ok(Line::Ping),
        Some("PONG") => Ok(Line::Pong),
        Some("+OK" | "INFO") => Ok(Line::Other),
        Some("-ERR") => Err(BrokerError::Reported(text["-ERR".len()..].trim().to_owned())),
        _ => Err(malformed(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        for (line, expected) in [
            ("MSG a.b 1 5", Line::Message(5)),
            ("MSG a.b 1 answer.to 70", Line::Message(70)),
            ("PING", Line::Ping),
            ("PONG", Line::Pong),
            ("+OK", Line::Other),
            ("INFO {}", Line::Other),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap(), expected, "{line}");
        }
        for line in ["", "MSG a.b 1", "MSG a.b 1 x", "MSG a.b 1 -1", "HTTP/1.1 400", "\u{fffd}"] {
            assert!(matches!(parse(line.as_bytes()), Err(BrokerError::Malformed(_))), "{line}");
        }
        let reported = parse(b"-ERR 'Slow Consumer'").unwrap_err();
        assert_eq!(reported.to_string(), "the broker reported 'Slow Consumer'");
        assert!(parse(&[0xff]).is_err());
    }
}
