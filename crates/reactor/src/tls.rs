//! TLS between a socket and its session: what listeners present, and the state of one connection.
//!
//! [`Channel`] turns sealed bytes into plain ones and back; it knows no socket. What is read goes through
//! [`Channel::open`] into the connection's input, what may leave goes from its output through
//! [`Channel::seal`] into the [`Outbox`]. Gates, limits and order are those of the plain bytes: nothing
//! is sealed before it may leave, and no more than [`SEAL_BYTES_MAX`] before the kernel has taken it.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ServerConfig, SupportedCipherSuite};

/// Most plain bytes that are sealed at once: four records. What the kernel does not take of them is
/// kept with the connection.
pub(crate) const SEAL_BYTES_MAX: usize = 64 * 1024;
/// Most sealed bytes that are kept because a record, or a message of the handshake over several
/// records, has not come whole. The library refuses longer ones: 64 KiB of a message, 18 KiB of a record.
pub(crate) const PARTIAL_BYTES_MAX: usize = 96 * 1024;
/// The same after the handshake: a record. Nothing longer is said then.
// Source: RFC 5246 6.2.3 (16 KiB and 2 KiB), RFC 8446 5.2
const LIVE_PARTIAL_BYTES_MAX: usize = 20 * 1024;
/// What a record adds to its content: header, nonce, type and tag.
// Source: RFC 8446 5.2, RFC 5288 3
const RECORD_EXTRA_BYTES: usize = 5 + 8 + 1 + 16;
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Room for the messages that the library sends on its own: alerts, updates of keys.
const OWN_WORDS_BYTES: usize = 512;
/// What the library allocates for an established connection: keys, session, the client's certificate. With
/// one of those an idle connection was measured to take 7.7 KB more than a plain one.
const LIBRARY_BYTES: usize = 6 * 1024;

/// What a TLS connection costs beyond [`crate::CONNECTION_BYTES`] while it does nothing.
pub const TLS_BYTES: usize = size_of::<Channel>() + LIBRARY_BYTES;

/// Certificate, key and rules of one or more listeners, replaceable while they are in use.
#[derive(Debug)]
pub struct Tls {
    config: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>) -> Tls {
        Tls { config: Mutex::new(config) }
    }

    /// Connections that come from now on use `config`; those that are there keep what they have.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.lock() = config;
    }

    pub(crate) fn channel(&self) -> Result<Box<Channel>, rustls::Error> {
        let config = Arc::clone(&self.config.lock());
        Ok(Box::new(Channel::new(UnbufferedServerConnection::new(config)?)))
    }
}

/// Sealed bytes on their way to a peer, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// How much of `bytes` the kernel has.
    sent: usize,
}

impl Outbox {
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The kernel took `count` bytes of [`Outbox::unsent`].
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }

    /// Borrows the reactor's buffer unless bytes are waiting here. True if it was borrowed.
    pub(crate) fn lend(&mut self, scratch: &mut Vec<u8>) -> bool {
        let lend = self.bytes.is_empty();
        if lend {
            std::mem::swap(&mut self.bytes, scratch);
        }
        lend
    }

    /// Gives the reactor's buffer back; keeps what could not be sent in a buffer of its own.
    pub(crate) fn settle(&mut self, scratch: &mut Vec<u8>) {
        let rest = self.unsent().to_vec();
        std::mem::swap(&mut self.bytes, scratch);
        scratch.clear();
        self.bytes = rest;
        self.sent = 0;
    }

    /// Frees the buffer when nothing is in it.
    pub(crate) fn free_if_empty(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() != 0 {
            self.bytes = Vec::new();
        }
    }

    /// Appends what `write` puts into the room that it is given, at most `room` bytes.
    fn append<E>(
        &mut self,
        room: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.bytes.resize(start + room, 0);
        let written = write(&mut self.bytes[start..]);
        self.bytes.truncate(start + written.as_ref().copied().unwrap_or(0));
        written.map(|_| ())
    }
}

/// Whether so many records leave a sixteenth of what keys allow, or less.
fn is_worn_out(records: u64, records_max: u64) -> bool {
    records >= records_max - records_max / 16
}

/// The state of one connection between its socket and its session.
pub(crate) struct Channel {
    library: UnbufferedServerConnection,
    /// Sealed bytes that are no whole record yet.
    partial: Vec<u8>,
    pub(crate) outbox: Outbox,
    /// Counted among the unfinished handshakes of its reactor.
    pub(crate) is_counted: bool,
    /// The peer has said that nothing more comes.
    has_ended: bool,
    /// We have said it, or may not say anything any more.
    said_goodbye: bool,
    sealed_records: u64,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Channel")
            .field("partial_bytes", &self.partial.len())
            .field("unsent_bytes", &self.outbox.unsent().len())
            .field("has_ended", &self.has_ended)
            .field("said_goodbye", &self.said_goodbye)
            .finish_non_exhaustive()
    }
}

impl Channel {
    fn new(library: UnbufferedServerConnection) -> Channel {
        Channel {
            library,
            partial: Vec::new(),
            outbox: Outbox::default(),
            is_counted: false,
            has_ended: false,
            said_goodbye: false,
            sealed_records: 0,
        }
    }

    /// Whether the handshake is over.
    pub(crate) fn is_established(&self) -> bool {
        !self.library.is_handshaking()
    }

    /// Whether the peer has said that nothing more comes.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the keys are nearly used up, and cannot be changed (TLS 1.2): the connection is to be
    /// closed in good order while it can be.
    pub(crate) fn is_worn_out(&self) -> bool {
        let Some(SupportedCipherSuite::Tls12(suite)) = self.library.negotiated_cipher_suite()
        else {
            return false;
        };
        is_worn_out(self.sealed_records, suite.common.confidentiality_limit)
    }

    /// Sealed bytes that came before and are to be shown again in front of the next ones.
    pub(crate) fn partial(&self) -> &[u8] {
        &self.partial
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.partial.capacity() + self.outbox.bytes.capacity()
    }

    /// Takes [`Channel::partial`] and what has come behind it, and appends what it says to `plain`. What
    /// the peer is to be told meanwhile is in the outbox. After an error nothing may be opened or sealed
    /// any more: see [`Channel::give_up`].
    pub(crate) fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        let mut start = 0;
        let result = loop {
            let (done, result) = self.advance(&mut sealed[start..], plain);
            start += done;
            match result {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // What comes behind the goodbye counts for nothing.
        // Source: RFC 8446 6.1
        let rest = if self.has_ended { &[][..] } else { &sealed[start..] };
        // The library looks at it again, even if there is nothing new: see `give_up` and `seal`.
        let rest_bytes = rest.len();
        self.keep(rest);
        let rest_bytes_max =
            if self.is_established() { LIVE_PARTIAL_BYTES_MAX } else { PARTIAL_BYTES_MAX };
        if rest_bytes > rest_bytes_max {
            return Err(rustls::Error::General("a message without end".to_owned()));
        }
        result
    }

    fn keep(&mut self, rest: &[u8]) {
        self.partial.clear();
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.reserve_exact(rest.len());
            self.partial.extend_from_slice(rest);
        }
    }

    /// One step of the library: how many bytes are done with, and whether there may be more to do.
    fn advance(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> (usize, Result<bool, rustls::Error>) {
        let UnbufferedStatus { mut discard, state } = self.library.process_tls_records(sealed);
        let goes_on = match state {
            Err(error) => Err(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut read = Ok(true);
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            discard += record.discard;
                            plain.extend_from_slice(record.payload);
                        }
                        Err(error) => read = Err(error),
                    }
                }
                read
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                append_words(&mut self.outbox, |room| data.encode(room));
                Ok(true)
            }
            // It is in the outbox, in front of everything that is sealed later.
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(true)
            }
            Ok(ConnectionState::PeerClosed) => {
                self.has_ended = true;
                Ok(true)
            }
            // It is not offered, so nobody may send any.
            Ok(ConnectionState::ReadEarlyData(_)) => {
                Err(rustls::Error::General("early data was not offered".to_owned()))
            }
            // Blocked, at rest, or closed on both sides: nothing without more input.
            Ok(_) => Ok(false),
        };
        (discard, goes_on)
    }

    /// Appends `plain`, sealed, to the outbox. Fails when the keys are used up (TLS 1.2 only: later
    /// versions change them).
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), EncryptError> {
        assert!(plain.len() <= SEAL_BYTES_MAX, "the outbox is bounded by what is sealed at once");
        let records = plain.len().div_ceil(RECORD_BYTES_MAX);
        self.sealed_records += records as u64;
        let room = plain.len() + records * RECORD_EXTRA_BYTES + OWN_WORDS_BYTES;
        let Channel { library, partial, outbox, .. } = self;
        // Whole records were opened when they came, so this says no more than what may be done.
        let UnbufferedStatus { discard, state } = library.process_tls_records(partial);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return Err(EncryptError::EncryptExhausted);
        };
        let sealed = match outbox.append(room, |room| traffic.encrypt(plain, room)) {
            Err(EncryptError::InsufficientSize(size)) => {
                outbox.append(size.required_size, |room| traffic.encrypt(plain, room))
            }
            other => other,
        };
        partial.drain(..discard);
        sealed
    }

    /// Says once that nothing more comes.
    pub(crate) fn say_goodbye(&mut self) {
        if std::mem::replace(&mut self.said_goodbye, true) || !self.is_established() {
            return;
        }
        let Channel { library, partial, outbox, .. } = self;
        let state = library.process_tls_records(partial).state;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            // Without it the peer sees a broken connection, which a failure here makes of it anyway.
            let _ = outbox.append(OWN_WORDS_BYTES, |room| traffic.queue_close_notify(room));
        }
    }

    /// Takes the alert that says why the connection breaks off, if there is one.
    pub(crate) fn give_up(&mut self) {
        self.said_goodbye = true;
        let Channel { library, partial, outbox, .. } = self;
        while library.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                library.process_tls_records(partial).state
        {
            append_words(outbox, |room| data.encode(room));
        }
    }
}

/// Appends a message that says itself how long it is.
fn append_words(
    outbox: &mut Outbox,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) {
    let mut room = OWN_WORDS_BYTES;
    loop {
        match outbox.append(room, &mut encode) {
            Err(EncodeError::InsufficientSize(size)) if size.required_size > room => {
                room = size.required_size;
            }
            result => {
                result.expect("a message is encoded once, into enough room");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_wear_out_before_their_end() {
        assert!(!is_worn_out(0, 1 << 24));
        assert!(!is_worn_out((1 << 24) - (1 << 20) - 1, 1 << 24));
        assert!(is_worn_out((1 << 24) - (1 << 20), 1 << 24));
        assert!(!is_worn_out(u64::MAX / 2, u64::MAX), "keys without an end");
    }
}
