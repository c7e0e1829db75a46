//! One TCP connection that carries frames.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::frame::{
    CONTROL_BYTES_MAX, FrameError, HEADER_BYTES, Header, Kind, REASON_BYTES_MAX, WELCOME_BYTES_MAX,
};
use crate::message::Hello;

/// For a connection to be made, and for all that is heard in the handshake: one who sends a byte now
/// and then is cut off too.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// After so long a silence the kernel asks whether the other host is still there, and after three
/// questions without an answer the connection ends. A machine that lost its power says nothing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_QUESTIONS: u32 = 3;

/// Memory for a payload grows with what has arrived of it. A length that is only promised takes this much.
const PROMISED_BYTES_MAX: usize = 64 << 10;

/// Why a connection is of no use any more.
#[derive(Debug, Error)]
pub enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the other side closed the connection")]
    Closed,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a payload of {bytes} bytes, where {max} were agreed")]
    TooLong { bytes: usize, max: usize },
    #[error("a batch of {count} tasks, where {max} were agreed")]
    TooMany { count: u32, max: u32 },
    #[error("a {found:?} frame where {expected} was due")]
    Unexpected { found: Kind, expected: &'static str },
    #[error("a damaged frame in the handshake")]
    Damaged,
    #[error("the other side refused: {0}")]
    Refused(String),
    #[error("{0}")]
    Strange(String),
    #[error("a message that is not understood: {0}")]
    Message(#[from] serde_json::Error),
}

/// Logs when a peer becomes unreachable, once for each reason, and when it is back.
#[derive(Debug)]
pub struct Reachability {
    peer: &'static str,
    address: SocketAddr,
    trouble: Mutex<Option<String>>,
}

impl Reachability {
    pub fn new(peer: &'static str, address: SocketAddr) -> Self {
        Self { peer, address, trouble: Mutex::new(None) }
    }

    /// One attempt. The caller repeats it.
    pub fn connect(&self) -> Result<Link, LinkError> {
        match Link::connect(self.address) {
            Ok(link) => {
                self.found();
                Ok(link)
            }
            Err(error) => {
                let error = error.into();
                self.lost(&error);
                Err(error)
            }
        }
    }

    /// An attempt failed, and will be repeated.
    pub fn lost(&self, error: &LinkError) {
        let reason = error.reason();
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&reason) {
            tracing::warn!(
                peer = self.peer,
                "could not connect to {}: {reason}; retrying",
                self.address
            );
            *trouble = Some(reason);
        }
    }

    pub fn found(&self) {
        if self.trouble.lock().take().is_some() {
            tracing::info!(peer = self.peer, "connected to {}", self.address);
        }
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.peer, self.address)
    }
}

impl LinkError {
    /// In the operator's words, without the number of the system's error.
    fn reason(&self) -> String {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
            WouldBlock,
        };
        match self {
            Self::Io(error) => match error.kind() {
                // A read that timed out.
                WouldBlock => TimedOut.to_string(),
                kind @ (ConnectionRefused | ConnectionReset | HostUnreachable
                | NetworkUnreachable | TimedOut) => kind.to_string(),
                _ => error.to_string(),
            },
            other => other.to_string(),
        }
    }
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Its payload is in the buffer.
    Frame(Header),
    /// The header is right, the payload is not what was sent.
    Damaged(Header),
}

/// Sends and receives whole frames; blocking. One thread per direction at most.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    payload_bytes_max: usize,
    /// Of the handshake.
    deadline: Option<Instant>,
}

/// Reads until a moment, if there is one.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Option<Instant>,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(bytes)
    }
}

impl Link {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, HANDSHAKE_TIMEOUT)?)
    }

    /// Frames leave when they are complete: there is nothing to wait for.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_QUESTIONS)?;
        stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
        let deadline = Some(Instant::now() + HANDSHAKE_TIMEOUT);
        Ok(Self { stream, payload_bytes_max: CONTROL_BYTES_MAX, deadline })
    }

    /// In the handshake: the other side is one whose welcome may be long.
    pub fn expect_welcome(&mut self) {
        self.payload_bytes_max = WELCOME_BYTES_MAX;
    }

    /// After the handshake: batches up to this size come, and silence is no failure.
    pub fn open_for(&mut self, payload_bytes_max: usize) -> io::Result<()> {
        self.payload_bytes_max = payload_bytes_max.max(CONTROL_BYTES_MAX);
        self.deadline = None;
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    /// From now on silence is a failure after this long.
    pub fn wait_at_most(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    /// A second handle on the same connection, for the other direction.
    pub fn try_clone(&self) -> io::Result<Self> {
        let stream = self.stream.try_clone()?;
        Ok(Self { stream, ..*self })
    }

    pub fn peer(&self) -> String {
        self.stream.peer_addr().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string())
    }

    /// Ends the connection for all its handles. Ending one that has ended is no failure.
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// One system call where the kernel has room.
    pub fn send(&mut self, header: &Header, payload: &[u8]) -> io::Result<()> {
        let head = header.encode();
        let mut sent = 0;
        while sent < HEADER_BYTES + payload.len() {
            let slices = match sent.checked_sub(HEADER_BYTES) {
                None => [IoSlice::new(&head[sent..]), IoSlice::new(payload)],
                Some(at) => [IoSlice::new(&payload[at..]), IoSlice::new(&[])],
            };
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A frame whose payload is JSON.
    pub fn send_message<T: Serialize>(
        &mut self,
        header: Header,
        message: &T,
    ) -> Result<(), LinkError> {
        let payload = serde_json::to_vec(message)?;
        let max = header.kind.payload_bytes_max();
        if payload.len() > max {
            return Err(LinkError::TooLong { bytes: payload.len(), max });
        }
        Ok(self.send(&header.with_payload(&payload), &payload)?)
    }

    /// Waits for a frame. The payload is in the first bytes of `payload`, which grows to the
    /// largest that came and is never cleared.
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Received, LinkError> {
        let mut from = Timed { stream: &self.stream, deadline: self.deadline };
        read_frame(&mut from, self.payload_bytes_max, payload)
    }

    /// A step of a handshake: this kind of frame, or the reason of a refusal.
    pub fn receive_message<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        payload: &mut Vec<u8>,
    ) -> Result<T, LinkError> {
        let Received::Frame(header) = self.receive(payload)? else {
            return Err(LinkError::Damaged);
        };
        let bytes = &payload[..header.payload_len()];
        if header.kind == Kind::Refusal {
            return Err(LinkError::Refused(String::from_utf8_lossy(bytes).into_owned()));
        }
        if header.kind != kind {
            return Err(LinkError::Unexpected { found: header.kind, expected: "another message" });
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// The first message of a peer. One that cannot be served is refused.
    pub fn receive_hello(&mut self) -> Result<Hello, LinkError> {
        let hello: Hello = self.receive_message(Kind::Hello, &mut Vec::new())?;
        if let Err(reason) = hello.check() {
            self.refuse(&reason);
            return Err(LinkError::Strange(reason));
        }
        Ok(hello)
    }

    /// Ends this direction and waits until the other side, having read everything, ends the
    /// connection.
    pub fn finish(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_read_timeout(Some(timeout))?;
        match self.stream.read(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes after the end")),
        }
    }

    /// Sends the reason why this connection ends. The other side may be gone already.
    pub fn refuse(&mut self, reason: &str) {
        if let Err(error) = self.send_reason(Header::control(Kind::Refusal, 0, 0), reason) {
            tracing::debug!(%error, "could not send a refusal");
        }
        self.close();
    }

    /// A frame whose payload is a text for people, cut if it is too long.
    pub fn send_reason(&mut self, header: Header, reason: &str) -> io::Result<()> {
        let bytes = &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        self.send(&header.with_payload(bytes), bytes)
    }
}

/// A frame from whatever bytes come; a payload above the limit is refused before it is read.
pub(crate) fn read_frame(
    from: &mut impl Read,
    payload_bytes_max: usize,
    payload: &mut Vec<u8>,
) -> Result<Received, LinkError> {
    let mut head = [0; HEADER_BYTES];
    read_exact(from, &mut head)?;
    let header = Header::decode(&head)?;
    let bytes = header.payload_len();
    if bytes > payload_bytes_max {
        return Err(LinkError::TooLong { bytes, max: payload_bytes_max });
    }
    let mut filled = 0;
    while filled < bytes {
        let end = bytes.min(payload.len().max(2 * filled).max(PROMISED_BYTES_MAX));
        if payload.len() < end {
            payload.resize(end, 0);
        }
        read_exact(from, &mut payload[filled..end])?;
        filled = end;
    }
    if header.matches(&payload[..bytes]) {
        return Ok(Received::Frame(header));
    }
    Ok(Received::Damaged(header))
}

fn read_exact(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), LinkError> {
    match from.read_exact(bytes) {
        // With something unread on the other side, an end looks like a reset.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
            ) =>
        {
            Err(LinkError::Closed)
        }
        read => Ok(read?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (to, listener.accept().unwrap().0)
    }

    /// What is left of the handshake's time counts, not the time between two bytes.
    #[test]
    fn the_handshake_ends_in_time() {
        let (mut slow, stream) = pair();
        let mut link = Link::new(stream).unwrap();
        link.deadline = Some(Instant::now() + Duration::from_millis(50));
        let slow = std::thread::spawn(move || {
            while slow.write_all(b"M").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let refused = link.receive(&mut Vec::new()).unwrap_err();
        let is_late = match &refused {
            // The kernel says either, as the time ends while it waits or before.
            LinkError::Io(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            }
            _ => false,
        };
        // On a machine that stood still all 64 bytes may be there: they are no header.
        assert!(is_late || matches!(refused, LinkError::Frame(_)), "{refused}");
        link.close();
        drop(link);
        slow.join().unwrap();
    }

    #[test]
    fn a_promised_payload_takes_no_memory() {
        let mut header = Header::control(Kind::Data, 1, 1);
        (header.count, header.payload_bytes) = (1, 64 << 20);
        let mut payload = Vec::new();
        let promised = read_frame(&mut &header.encode()[..], 64 << 20, &mut payload);
        assert!(matches!(promised, Err(LinkError::Closed)), "{promised:?}");
        assert!(payload.capacity() <= PROMISED_BYTES_MAX, "{}", payload.capacity());
        // Twice of what has arrived.
        let mut input = header.encode().to_vec();
        input.resize(HEADER_BYTES + 5 * PROMISED_BYTES_MAX, 7);
        let broken = read_frame(&mut &input[..], 64 << 20, &mut payload);
        assert!(matches!(broken, Err(LinkError::Closed)), "{broken:?}");
        assert!(payload.capacity() <= 10 * PROMISED_BYTES_MAX, "{}", payload.capacity());
    }

    #[test]
    fn payloads_of_every_length_arrive_whole() {
        let mut payload = Vec::new();
        for bytes in
            [0, 1, PROMISED_BYTES_MAX - 1, PROMISED_BYTES_MAX, 3 * PROMISED_BYTES_MAX + 1, 9]
        {
            let sent: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut header = Header::control(Kind::Data, 1, 1);
            header.count = 1;
            let header = header.with_payload(&sent);
            let input = [&header.encode()[..], &sent].concat();
            let received = read_frame(&mut &input[..], 1 << 20, &mut payload).unwrap();
            assert_eq!(received, Received::Frame(header));
            assert_eq!(payload[..bytes], sent);
        }
    }

    /// A reason may quote a peer's own text, which is longer when it is escaped.
    #[test]
    fn long_reasons_are_cut() {
        let (to, from) = pair();
        let (mut to, mut from) = (Link::new(to).unwrap(), Link::new(from).unwrap());
        to.refuse(&"\u{e4}".repeat(CONTROL_BYTES_MAX));
        let refused = from.receive_message::<()>(Kind::Welcome, &mut Vec::new()).unwrap_err();
        let LinkError::Refused(reason) = refused else { panic!("{refused}") };
        assert_eq!(reason, "\u{e4}".repeat(REASON_BYTES_MAX / 2));
    }

    #[test]
    fn long_welcomes_come_to_whoever_expects_them() {
        let (to, from) = pair();
        let (mut to, mut from) = (Link::new(to).unwrap(), Link::new(from).unwrap());
        let message = "x".repeat(CONTROL_BYTES_MAX);
        let welcome = Header::control(Kind::Welcome, 1, 1);
        let hello = Header::control(Kind::Hello, 1, 1);
        assert!(matches!(to.send_message(hello, &message), Err(LinkError::TooLong { .. })));
        let sent = message.clone();
        let sender = std::thread::spawn(move || {
            to.send_message(welcome, &sent).unwrap();
            to.send_message(welcome, &sent)
        });
        from.expect_welcome();
        let found: String = from.receive_message(Kind::Welcome, &mut Vec::new()).unwrap();
        assert_eq!(found, message);
        from.open_for(0).unwrap();
        let refused = from.receive(&mut Vec::new()).unwrap_err();
        assert!(matches!(refused, LinkError::TooLong { .. }), "{refused}");
        drop(from);
        // What nobody read may have gone out before.
        let _ = sender.join().unwrap();
    }
}
