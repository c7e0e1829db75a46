//! One TCP connection that carries frames.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::frame::{
    CONTROL_BYTES_MAX, FrameError, HEADER_BYTES, Header, Kind, REASON_BYTES_MAX, WELCOME_BYTES_MAX,
};
use crate::message::Hello;

/// Limit for establishing a connection, and for the whole handshake: a peer that trickles bytes is
/// also disconnected.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit for the welcome of a collector, which it sends when the epoch is on its disk. A busy disk
/// takes many seconds for this, and another attempt would need another epoch.
const WELCOME_TIMEOUT: Duration = Duration::from_mins(1);

/// After this much silence the kernel probes the peer, and closes the connection after three probes
/// without an answer. A machine that lost power sends no FIN.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// Payload buffers grow with the bytes received. Initial allocation for a length that is only
/// announced.
const ANNOUNCED_BYTES_MAX: usize = 64 << 10;

/// Reason why a connection cannot be used any longer.
#[derive(Debug, Error)]
pub enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("payload of {bytes} bytes exceeds the agreed {max}")]
    TooLong { bytes: usize, max: usize },
    #[error("batch of {count} tasks exceeds the agreed {max}")]
    TooMany { count: u32, max: u32 },
    #[error("unexpected {found:?} frame: expected {expected}")]
    Unexpected { found: Kind, expected: &'static str },
    #[error("damaged frame in the handshake")]
    Damaged,
    #[error("the peer refused the connection: {0}")]
    Refused(String),
    #[error("{0}")]
    Strange(String),
    #[error("malformed message: {0}")]
    Message(#[from] serde_json::Error),
}

/// Waits until a link has something to read. Fails if the peer of the `other` link has closed it.
pub fn wait_readable(link: &Link, other: &Link) -> io::Result<()> {
    let mut ends =
        [PollFd::new(&link.stream, PollFlags::IN), PollFd::new(&other.stream, PollFlags::RDHUP)];
    while let Err(error) = poll(&mut ends, None) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    if ends[0].revents().is_empty() { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

/// Logs when a peer becomes unreachable, once per reason, and when it is reachable again.
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

    /// Makes one connection attempt. The caller retries.
    pub fn connect(&self) -> Result<Link, LinkError> {
        self.connect_unless(|| false)
    }

    /// Makes one connection attempt, whose failure is expected if the run has ended by then.
    pub fn connect_unless(&self, is_over: impl Fn() -> bool) -> Result<Link, LinkError> {
        match Link::connect(self.address) {
            Ok(link) => {
                self.found();
                Ok(link)
            }
            Err(error) => {
                let error = error.into();
                if !is_over() {
                    self.lost(&error);
                }
                Err(error)
            }
        }
    }

    /// Records a failed attempt that the caller will repeat.
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
    /// Describes the error in the operator's terms, without the system's error number.
    fn reason(&self) -> String {
        use io::ErrorKind::{
            ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
            WouldBlock,
        };
        match self {
            Self::Io(error) => match error.kind() {
                // A read timeout.
                WouldBlock => TimedOut.to_string(),
                kind @ (ConnectionRefused | ConnectionReset | HostUnreachable
                | NetworkUnreachable | TimedOut) => kind.to_string(),
                _ => error.to_string(),
            },
            other => other.to_string(),
        }
    }
}

/// A received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The payload is in the buffer.
    Frame(Header),
    /// The header is valid, but the payload does not match its checksum.
    Damaged(Header),
}

/// Sends and receives whole frames, blocking. Each direction belongs to at most one thread.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    payload_bytes_max: usize,
    /// Deadline of the handshake.
    deadline: Option<Instant>,
}

/// A reader with an optional deadline.
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

    /// Disables Nagle's algorithm: frames are written as a whole, so batching writes gains nothing.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
        stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
        let deadline = Some(Instant::now() + HANDSHAKE_TIMEOUT);
        Ok(Self { stream, payload_bytes_max: CONTROL_BYTES_MAX, deadline })
    }

    /// Raises the handshake's limits of payload and time to those of a collector's welcome.
    pub fn expect_welcome(&mut self) {
        self.payload_bytes_max = WELCOME_BYTES_MAX;
        self.deadline = Some(Instant::now() + WELCOME_TIMEOUT);
    }

    /// Ends the handshake: accepts batches up to this size, and no longer treats silence as a
    /// failure.
    pub fn open_for(&mut self, payload_bytes_max: usize) -> io::Result<()> {
        self.payload_bytes_max = payload_bytes_max.max(CONTROL_BYTES_MAX);
        self.deadline = None;
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    /// Treats silence of this duration as a failure from now on.
    pub fn wait_at_most(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    /// Returns a second handle for the other direction of the connection.
    pub fn try_clone(&self) -> io::Result<Self> {
        let stream = self.stream.try_clone()?;
        Ok(Self { stream, ..*self })
    }

    pub fn peer(&self) -> String {
        self.stream.peer_addr().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string())
    }

    /// Ends this direction: the peer receives what was sent, then the end.
    pub fn end_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Whether the peer sends nothing more, even if some of what it has sent is unread.
    pub fn has_peer_ended(&self) -> io::Result<bool> {
        let mut end = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut end, Some(&at_once)) {
            Ok(_) | Err(Errno::INTR) => Ok(!end[0].revents().is_empty()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes the connection for all its handles. Closing twice is harmless.
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a frame, in one system call if the socket buffer has space.
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

    /// Sends a frame with a JSON payload.
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
    /// largest payload received and is never cleared.
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Received, LinkError> {
        self.receive_in(payload, |_| ())
    }

    /// Does the same, and calls `reserve` with the size of the payload before it is read.
    pub fn receive_in(
        &mut self,
        payload: &mut Vec<u8>,
        reserve: impl FnOnce(usize),
    ) -> Result<Received, LinkError> {
        let mut from = Timed { stream: &self.stream, deadline: self.deadline };
        read_frame(&mut from, self.payload_bytes_max, payload, reserve)
    }

    /// Receives the expected handshake frame, or the reason of a refusal.
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

    /// Receives the first message of a peer. Refuses a peer that cannot be served.
    pub fn receive_hello(&mut self) -> Result<Hello, LinkError> {
        let hello: Hello = self.receive_message(Kind::Hello, &mut Vec::new())?;
        if let Err(reason) = hello.check() {
            self.refuse(&reason);
            return Err(LinkError::Strange(reason));
        }
        Ok(hello)
    }

    /// Shuts down this direction and waits until the peer has read everything and closes the
    /// connection.
    pub fn finish(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_read_timeout(Some(timeout))?;
        match self.stream.read(&mut [0; 1])? {
            0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected bytes after the end")),
        }
    }

    /// Sends the reason why this connection ends. The peer may have disconnected already.
    pub fn refuse(&mut self, reason: &str) {
        if let Err(error) = self.send_reason(Header::control(Kind::Refusal, 0, 0), reason) {
            tracing::debug!(%error, "could not send refusal");
        }
        self.close();
    }

    /// Sends a frame with a text payload, truncated to the limit.
    pub fn send_reason(&mut self, header: Header, reason: &str) -> io::Result<()> {
        let bytes = &reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)];
        self.send(&header.with_payload(bytes), bytes)
    }
}

/// Reads a frame from untrusted bytes. Refuses a payload above the limit before reading it.
pub(crate) fn read_frame(
    from: &mut impl Read,
    payload_bytes_max: usize,
    payload: &mut Vec<u8>,
    reserve: impl FnOnce(usize),
) -> Result<Received, LinkError> {
    let mut head = [0; HEADER_BYTES];
    read_exact(from, &mut head)?;
    let header = Header::decode(&head)?;
    let bytes = header.payload_len();
    if bytes > payload_bytes_max {
        return Err(LinkError::TooLong { bytes, max: payload_bytes_max });
    }
    reserve(bytes);
    let mut filled = 0;
    while filled < bytes {
        let end = bytes.min(payload.len().max(2 * filled).max(ANNOUNCED_BYTES_MAX));
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
        // If the peer closes with unread input, the kernel reports a reset.
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

    /// The handshake timeout limits the total time, not the time between two bytes.
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
            // Either error is possible, depending on whether the deadline passes during the wait or
            // before.
            LinkError::Io(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            }
            _ => false,
        };
        // After a stall all 64 bytes may be buffered; they are not a valid header.
        assert!(is_late || matches!(refused, LinkError::Frame(_)), "{refused}");
        link.close();
        drop(link);
        slow.join().unwrap();
    }

    #[test]
    fn an_announced_payload_takes_no_memory() {
        let mut header = Header::control(Kind::Data, 1, 1);
        (header.count, header.payload_bytes) = (1, 64 << 20);
        let mut payload = Vec::new();
        let promised = read_frame(&mut &header.encode()[..], 64 << 20, &mut payload, |_| ());
        assert!(matches!(promised, Err(LinkError::Closed)), "{promised:?}");
        assert!(payload.capacity() <= ANNOUNCED_BYTES_MAX, "{}", payload.capacity());
        // Twice the number of bytes that arrived.
        let mut input = header.encode().to_vec();
        input.resize(HEADER_BYTES + 5 * ANNOUNCED_BYTES_MAX, 7);
        let broken = read_frame(&mut &input[..], 64 << 20, &mut payload, |_| ());
        assert!(matches!(broken, Err(LinkError::Closed)), "{broken:?}");
        assert!(payload.capacity() <= 10 * ANNOUNCED_BYTES_MAX, "{}", payload.capacity());
    }

    #[test]
    fn payloads_of_every_length_arrive_whole() {
        let mut payload = Vec::new();
        for bytes in
            [0, 1, ANNOUNCED_BYTES_MAX - 1, ANNOUNCED_BYTES_MAX, 3 * ANNOUNCED_BYTES_MAX + 1, 9]
        {
            let sent: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut header = Header::control(Kind::Data, 1, 1);
            header.count = 1;
            let header = header.with_payload(&sent);
            let input = [&header.encode()[..], &sent].concat();
            let received = read_frame(&mut &input[..], 1 << 20, &mut payload, |_| ()).unwrap();
            assert_eq!(received, Received::Frame(header));
            assert_eq!(payload[..bytes], sent);
        }
    }

    /// A reason may quote text from a peer, which escaping makes longer.
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
    fn long_and_late_welcomes_are_received_if_expected() {
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
        // The time of the other handshakes has passed: the collector's disk was busy.
        from.deadline = Some(Instant::now());
        from.expect_welcome();
        let found: String = from.receive_message(Kind::Welcome, &mut Vec::new()).unwrap();
        assert_eq!(found, message);
        from.open_for(0).unwrap();
        let refused = from.receive(&mut Vec::new()).unwrap_err();
        assert!(matches!(refused, LinkError::TooLong { .. }), "{refused}");
        drop(from);
        // Unread bytes may have been sent before.
        let _ = sender.join().unwrap();
    }
}
