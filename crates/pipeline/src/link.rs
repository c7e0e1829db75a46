//! One TCP connection that carries frames.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::frame::{CONTROL_BYTES_MAX, FrameError, HEADER_BYTES, Header, Kind};

/// For a connection to be made, and for each step of the handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

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
    #[error("a {found:?} frame where {expected} was due")]
    Unexpected { found: Kind, expected: &'static str },
    #[error("a damaged frame in the handshake")]
    Damaged,
    #[error("the other side refused: {0}")]
    Refused(String),
    #[error("a message that is not understood: {0}")]
    Message(#[from] serde_json::Error),
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
}

impl Link {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, HANDSHAKE_TIMEOUT)?)
    }

    /// Frames leave when they are complete: there is nothing to wait for.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
        stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
        Ok(Self { stream, payload_bytes_max: CONTROL_BYTES_MAX })
    }

    /// After the handshake: batches up to this size come, and silence is no failure.
    pub fn open_for(&mut self, payload_bytes_max: usize) -> io::Result<()> {
        self.payload_bytes_max = payload_bytes_max.max(CONTROL_BYTES_MAX);
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
        Ok(Self { stream, payload_bytes_max: self.payload_bytes_max })
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
        if payload.len() > CONTROL_BYTES_MAX {
            return Err(LinkError::TooLong { bytes: payload.len(), max: CONTROL_BYTES_MAX });
        }
        Ok(self.send(&header.with_payload(&payload), &payload)?)
    }

    /// Waits for a frame. The payload is in the first bytes of `payload`, which grows to the
    /// largest that came and is never cleared.
    pub fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Received, LinkError> {
        let mut head = [0; HEADER_BYTES];
        self.read_exact(&mut head)?;
        let header = Header::decode(&head)?;
        let bytes = header.payload_len();
        if bytes > self.payload_bytes_max {
            return Err(LinkError::TooLong { bytes, max: self.payload_bytes_max });
        }
        if payload.len() < bytes {
            payload.resize(bytes, 0);
        }
        let payload = &mut payload[..bytes];
        self.read_exact(payload)?;
        if header.matches(payload) {
            return Ok(Received::Frame(header));
        }
        Ok(Received::Damaged(header))
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

    /// Tells the other side why this ends. It may be gone already.
    pub fn refuse(&mut self, reason: &str) {
        let header = Header::control(Kind::Refusal, 0, 0).with_payload(reason.as_bytes());
        if let Err(error) = self.send(&header, reason.as_bytes()) {
            tracing::debug!(%error, reason, "a refusal was not heard");
        }
        self.close();
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), LinkError> {
        match self.stream.read_exact(bytes) {
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
}
