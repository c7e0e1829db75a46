//! A connection to a server of the Redis protocol: one request at a time, or many in one write.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use wire::resp::{Reply, decode_reply, encode_request};

/// A server on this machine normally responds immediately; one that merges on shared cores may not.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit for a reply: INFO has a few KiB.
const REPLY_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;

/// Whether the connection was lost, or could not be opened: the server may have the requests or not.
pub(super) fn is_lost(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<io::Error>)
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a request of words without blanks, and returns its reply, which is not an error.
    pub(super) fn ask(&mut self, request: &str) -> Result<Reply> {
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        encode_request(&words, &mut bytes);
        self.stream.write_all(&bytes).context("could not send a request")?;
        self.take().with_context(|| request.to_owned())
    }

    /// Sends several encoded requests, and reads their replies, of which none is an error.
    pub(super) fn send(&mut self, requests: &[u8], count: usize) -> Result<()> {
        self.stream.write_all(requests).context("could not send requests")?;
        for _ in 0..count {
            self.take()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Reply> {
        loop {
            if let Some((reply, bytes)) = decode_reply(&self.received)? {
                self.received.drain(..bytes);
                if let Reply::Error(text) = &reply {
                    bail!("refused: {}", String::from_utf8_lossy(text));
                }
                return Ok(reply);
            }
            ensure!(self.received.len() < REPLY_BYTES_MAX, "a reply is too long");
            let held = self.received.len();
            self.received.resize(held + READ_BYTES, 0);
            let read = self.stream.read(&mut self.received[held..]);
            let count = read.context("could not read a reply")?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.received.truncate(held + count);
        }
    }
}
