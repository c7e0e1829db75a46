//! A connection on which requests are sent in batches.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use anyhow::bail;
use wire::resp::{Reply, decode_reply, encode_request};

use super::SILENCE_MAX;
use crate::import::place::Place;

/// Requests and bytes after which a batch is sent.
const BATCH_REQUESTS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// No reply that an import asks for is longer: one of DUMP has at most 512 MB.
const REPLY_BYTES_MAX: usize = 1 << 30;

/// A connection. Replies come in the order of the requests.
#[derive(Debug)]
pub(super) struct Peer {
    socket: TcpStream,
    requests: Vec<u8>,
    requested: usize,
    /// Requests that were sent, and whose replies were not read.
    pub(super) pending: usize,
    received: Vec<u8>,
    used: usize,
}

impl Peer {
    /// Connects and logs in.
    pub(super) fn connect(place: &Place) -> anyhow::Result<Peer> {
        let mut peer = Peer::try_connect(place)?;
        if let Some(words) = place.login() {
            peer.expect_ok(&words)?;
        }
        // Without a password, or with a wrong one, this fails with the reason.
        peer.expect_ok(&[b"PING"])?;
        Ok(peer)
    }

    fn try_connect(place: &Place) -> io::Result<Peer> {
        Ok(Peer {
            socket: place.connect()?,
            requests: Vec::new(),
            requested: 0,
            pending: 0,
            received: Vec::new(),
            used: 0,
        })
    }

    /// Adds a request to the batch.
    pub(super) fn push(&mut self, words: &[&[u8]]) {
        encode_request(words, &mut self.requests);
        self.requested += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.requested >= BATCH_REQUESTS || self.requests.len() >= BATCH_BYTES
    }

    /// Sends the batch, once the replies of the one before were read.
    pub(super) fn send(&mut self) -> io::Result<()> {
        assert_eq!(self.pending, 0, "replies must be read first");
        let mut requests = std::mem::take(&mut self.requests);
        self.write(&requests)?;
        requests.clear();
        requests.shrink_to(2 * BATCH_BYTES);
        self.requests = requests;
        self.pending = std::mem::take(&mut self.requested);
        Ok(())
    }

    /// Sends requests that are encoded.
    pub(super) fn send_encoded(&mut self, requests: &[u8], count: usize) -> io::Result<()> {
        assert_eq!(self.pending + self.requested, 0, "replies must be read first");
        self.write(requests)?;
        self.pending = count;
        Ok(())
    }

    /// Ends the connection: what was not received yet is lost.
    pub(super) fn shut_down(&mut self) {
        // It fails if the connection has ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Writes requests. A server that waits until its replies are read does not delay this indefinitely.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut began = Instant::now();
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    began = Instant::now();
                }
                Err(error) if is_timeout(&error) && began.elapsed() < SILENCE_MAX => {
                    self.receive_some()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the next reply.
    pub(super) fn read(&mut self) -> io::Result<Reply> {
        loop {
            let decoded = decode_reply(&self.received[self.used..])
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if let Some((reply, len)) = decoded {
                self.used += len;
                self.pending = self.pending.saturating_sub(1);
                return Ok(reply);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let began = Instant::now();
        while !self.receive_some()? {
            if began.elapsed() >= SILENCE_MAX {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// One read, up to the timeout of the socket. False: nothing has arrived.
    fn receive_some(&mut self) -> io::Result<bool> {
        if self.received.len() - self.used > REPLY_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "replies of more than 1 GiB"));
        }
        self.received.drain(..self.used);
        self.used = 0;
        let held = self.received.len();
        self.received.shrink_to(held.max(READ_BYTES));
        // A long reply is decoded again after each read: it grows by parts of its length.
        self.received.resize(held + READ_BYTES.max(held / 2), 0);
        let read = self.socket.read(&mut self.received[held..]);
        self.received.truncate(held + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::ConnectionAborted, "it was closed")),
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends one request and reads its reply.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.push(words);
        self.send()?;
        self.read()
    }

    pub(super) fn expect_ok(&mut self, words: &[&[u8]]) -> anyhow::Result<()> {
        match self.ask(words)? {
            Reply::Simple(_) => Ok(()),
            other => bail!("{}: {}", words[0].escape_ascii(), shown(&other)),
        }
    }

    /// A text, such as that of INFO.
    pub(super) fn text(&mut self, words: &[&[u8]]) -> anyhow::Result<String> {
        match self.ask(words)? {
            Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => bail!("{}: {}", words[0].escape_ascii(), shown(&other)),
        }
    }
}

/// A field of a section of INFO.
pub(super) fn info_field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

pub(super) fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("an unexpected reply: {other:.100?}"),
    }
}
