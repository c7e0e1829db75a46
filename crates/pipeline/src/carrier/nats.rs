//! A message broker that speaks NATS' client protocol: lines and payloads over one connection, one
//! half to send with and one to hear with. Blocking; for networks that are trusted, without TLS.

// Source: docs.nats.io, reference/protocols/client

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use thiserror::Error;

/// For a connection to be made and greeted.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// A broker says in one line which others it knows.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// What a broker takes in one message if it does not say otherwise.
const MESSAGE_BYTES_USUAL: usize = 1 << 20;
const CONNECT: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\
    \"version\":\"1\",\"protocol\":1,\"echo\":false,\"name\":\"myriad pipeline\"}\r\nPING\r\n";

/// Why a broker is of no use.
#[derive(Debug, Error)]
pub(super) enum BrokerError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("the broker says {0}")]
    Said(String),
    #[error("the broker wants {0}, which this program has not")]
    Wants(&'static str),
    #[error("this is no broker: {0:?}")]
    Strange(String),
    #[error("a message of {bytes} bytes, where {max} were agreed")]
    TooLong { bytes: usize, max: usize },
    #[error("message {found} came where {expected} was due: the broker has dropped some")]
    Missing { expected: u64, found: u64 },
    #[error("a message that is too short")]
    Short,
    #[error("a message of kind {0}")]
    Kind(u8),
}

/// What a broker says first.
#[derive(Debug, Deserialize)]
struct Info {
    max_payload: Option<usize>,
    #[serde(default)]
    auth_required: bool,
    #[serde(default)]
    tls_required: bool,
}

/// The half that speaks; shared by threads.
#[derive(Debug, Clone)]
pub(super) struct Speaker {
    stream: Arc<Mutex<TcpStream>>,
    /// Of one message.
    pub(super) message_bytes_max: usize,
}

/// The half that hears.
#[derive(Debug)]
pub(super) struct Hearer {
    from: BufReader<TcpStream>,
    line: Vec<u8>,
    speaker: Speaker,
    message_bytes_max: usize,
}

/// One line of a broker.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A message of so many bytes follows.
    Message(usize),
    Ping,
    Pong,
    /// Nothing that matters here.
    Other,
}

/// Messages above `message_bytes_max` are refused before they are read.
pub(super) fn connect(
    address: SocketAddr,
    message_bytes_max: usize,
) -> Result<(Speaker, Hearer), BrokerError> {
    let stream = TcpStream::connect_timeout(&address, GREETING_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let from = BufReader::with_capacity(message_bytes_max, stream.try_clone()?);
    let stream = Arc::new(Mutex::new(stream));
    let speaker = Speaker { stream, message_bytes_max: MESSAGE_BYTES_USUAL };
    let mut hearer = Hearer { from, line: Vec::new(), speaker, message_bytes_max };
    hearer.read_line()?;
    let info = hearer.line.strip_prefix(b"INFO ").ok_or_else(|| hearer.strange())?;
    let info: Info = serde_json::from_slice(info).map_err(|_| hearer.strange())?;
    if info.tls_required {
        return Err(BrokerError::Wants("TLS"));
    }
    if info.auth_required {
        return Err(BrokerError::Wants("a password"));
    }
    hearer.speaker.message_bytes_max = info.max_payload.unwrap_or(MESSAGE_BYTES_USUAL);
    hearer.speaker.stream.lock().write_all(CONNECT)?;
    loop {
        hearer.read_line()?;
        if parse(&hearer.line)? == Line::Pong {
            break;
        }
    }
    hearer.wait_at_most(None)?;
    Ok((hearer.speaker.clone(), hearer))
}

impl Speaker {
    /// From now on messages of this subject come; those of a group come to one of its members.
    pub(super) fn subscribe(&self, subject: &str, group: Option<&str>) -> io::Result<()> {
        let group = group.map(|group| format!("{group} ")).unwrap_or_default();
        self.stream.lock().write_all(format!("SUB {subject} {group}1\r\n").as_bytes())
    }

    /// `parts` together are the message.
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

    /// No more is said; what was said is still taken. Ending what has ended is no failure.
    pub(super) fn end(&self) {
        let _ = self.stream.lock().shutdown(Shutdown::Write);
    }

    /// A handle to end both halves with.
    pub(super) fn stream(&self) -> io::Result<TcpStream> {
        self.stream.lock().try_clone()
    }
}

impl Hearer {
    /// `None`: silence is no failure.
    pub(super) fn wait_at_most(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.from.get_ref().set_read_timeout(timeout)
    }

    /// The next message, in `message`. Questions whether one is still there are answered meanwhile.
    pub(super) fn next(&mut self, message: &mut Vec<u8>) -> Result<(), BrokerError> {
        loop {
            self.read_line()?;
            match parse(&self.line)? {
                Line::Message(bytes) => return self.read_message(bytes, message),
                Line::Ping => self.speaker.stream.lock().write_all(b"PONG\r\n")?,
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
            return Err(self.strange());
        }
        Ok(())
    }

    /// Without its end.
    fn read_line(&mut self) -> Result<(), BrokerError> {
        self.line.clear();
        match (&mut self.from).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line) {
            Ok(0) => return Err(BrokerError::Closed),
            // With something unread on the other side, an end looks like a reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(BrokerError::Closed);
            }
            read => read?,
        };
        if self.line.pop() != Some(b'\n') {
            return Err(self.strange());
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(())
    }

    fn strange(&self) -> BrokerError {
        strange(&self.line)
    }
}

fn strange(line: &[u8]) -> BrokerError {
    let shown = &line[..line.len().min(60)];
    BrokerError::Strange(String::from_utf8_lossy(shown).into_owned())
}

fn parse(line: &[u8]) -> Result<Line, BrokerError> {
    let text = std::str::from_utf8(line).map_err(|_| strange(line))?;
    let mut words = text.split_ascii_whitespace();
    match words.next() {
        Some("MSG") => {
            // Subject, number of the subscription, perhaps whom to answer, length.
            let bytes = words.nth(2).map(|third| words.next().unwrap_or(third));
            let bytes = bytes.and_then(|bytes| bytes.parse().ok());
            Ok(Line::Message(bytes.ok_or_else(|| strange(line))?))
        }
        Some("PING") => Ok(Line::Ping),
        Some("PONG") => Ok(Line::Pong),
        Some("+OK" | "INFO") => Ok(Line::Other),
        Some("-ERR") => Err(BrokerError::Said(text["-ERR".len()..].trim().to_owned())),
        _ => Err(strange(line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
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
            assert!(matches!(parse(line.as_bytes()), Err(BrokerError::Strange(_))), "{line}");
        }
        let said = parse(b"-ERR 'Slow Consumer'").unwrap_err();
        assert_eq!(said.to_string(), "the broker says 'Slow Consumer'");
        assert!(parse(&[0xff]).is_err());
    }
}
