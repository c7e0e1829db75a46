//! TLS between a socket and its session: the credentials of listeners, and the state of one
//! connection.
//!
//! [`Channel`] decrypts and encrypts; it does not access sockets. Input passes through
//! [`Channel::decrypt`] to the connection's input; permitted output passes through
//! [`Channel::encrypt`] to the [`Outbox`]. Gates, limits and order are those of the plain bytes: no
//! byte is encrypted before it may be sent, and at most [`ENCRYPT_BYTES_MAX`] before the kernel has
//! taken them.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ServerConfig, SupportedCipherSuite};

/// Maximum plain bytes encrypted at once: four records. What the kernel does not take of them is
/// kept with the connection.
pub(crate) const ENCRYPT_BYTES_MAX: usize = 64 * 1024;
/// Maximum encrypted bytes kept because a record, or a handshake message over several records, is
/// incomplete. The library refuses longer ones: 64 KiB of a message, 18 KiB of a record.
pub(crate) const PARTIAL_BYTES_MAX: usize = 96 * 1024;
/// The same after the handshake: one record. No longer messages follow.
// Source: RFC 5246 6.2.3 (16 KiB and 2 KiB), RFC 8446 5.2
const LIVE_PARTIAL_BYTES_MAX: usize = 20 * 1024;
/// Bytes that a record adds to its content: header, nonce, type and tag.
// Source: RFC 8446 5.2, RFC 5288 3
const RECORD_EXTRA_BYTES: usize = 5 + 8 + 1 + 16;
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Room for the messages that the library creates itself: alerts, key updates.
const CONTROL_BYTES: usize = 512;
/// Memory that the library allocates for an established connection: keys, session, the client's
/// certificate. With a client certificate, an idle connection took 7.7 KB more than a plain one,
/// measured.
const LIBRARY_BYTES: usize = 6 * 1024;

/// Memory of an idle TLS connection in addition to [`crate::CONNECTION_BYTES`].
pub const TLS_BYTES: usize = size_of::<Channel>() + LIBRARY_BYTES;

/// Certificate, key and settings of one or more listeners, replaceable while they are in use.
#[derive(Debug)]
pub struct Tls {
    config: Mutex<Arc<ServerConfig>>,
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>) -> Tls {
        Tls { config: Mutex::new(config) }
    }

    /// New connections use `config`; existing ones keep theirs.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.lock() = config;
    }

    pub(crate) fn channel(&self) -> Result<Box<Channel>, rustls::Error> {
        let config = Arc::clone(&self.config.lock());
        Ok(Box::new(Channel::new(UnbufferedServerConnection::new(config)?)))
    }
}

/// Encrypted bytes to be sent to a peer, in order.
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

    /// Returns the reactor's buffer; moves what could not be sent to a buffer of its own.
    pub(crate) fn settle(&mut self, scratch: &mut Vec<u8>) {
        let rest = self.unsent().to_vec();
        std::mem::swap(&mut self.bytes, scratch);
        scratch.clear();
        self.bytes = rest;
        self.sent = 0;
    }

    /// Frees the buffer when it is empty.
    pub(crate) fn free_if_empty(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() != 0 {
            self.bytes = Vec::new();
        }
    }

    /// Appends what `write` puts into the room that it is passed, at most `room` bytes.
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

/// Whether `records` leave a sixteenth of what keys allow, or less.
fn is_nearly_used_up(records: u64, records_max: u64) -> bool {
    records >= records_max - records_max / 16
}

/// The state of one connection between its socket and its session.
pub(crate) struct Channel {
    library: UnbufferedServerConnection,
    /// Encrypted bytes of an incomplete record.
    partial: Vec<u8>,
    pub(crate) outbox: Outbox,
    /// Counted among the unfinished handshakes of its reactor.
    pub(crate) is_counted: bool,
    /// The peer has sent its `close_notify` alert.
    has_ended: bool,
    /// Our `close_notify` alert is sent, or nothing may be sent any more.
    sent_close_notify: bool,
    encrypted_records: u64,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Channel")
            .field("partial_bytes", &self.partial.len())
            .field("unsent_bytes", &self.outbox.unsent().len())
            .field("has_ended", &self.has_ended)
            .field("sent_close_notify", &self.sent_close_notify)
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
            sent_close_notify: false,
            encrypted_records: 0,
        }
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        !self.library.is_handshaking()
    }

    /// The verified certificate of the peer in DER, once the handshake is complete.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.library.peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }

    /// Whether the peer has sent its `close_notify` alert.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the keys are nearly used up and cannot be updated (TLS 1.2): the connection must be
    /// closed in an orderly way while that is possible.
    pub(crate) fn is_nearly_used_up(&self) -> bool {
        let Some(SupportedCipherSuite::Tls12(suite)) = self.library.negotiated_cipher_suite()
        else {
            return false;
        };
        is_nearly_used_up(self.encrypted_records, suite.common.confidentiality_limit)
    }

    /// Encrypted bytes from earlier reads, to be passed again in front of the next ones.
    pub(crate) fn partial(&self) -> &[u8] {
        &self.partial
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.partial.capacity() + self.outbox.bytes.capacity()
    }

    /// Takes [`Channel::partial`] followed by new bytes, and appends their content to `plain`.
    /// Replies of the TLS protocol are appended to the outbox. After an error no further decryption
    /// or encryption is allowed: see [`Channel::queue_alert`].
    pub(crate) fn decrypt(
        &mut self,
        encrypted: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        let mut start = 0;
        let result = loop {
            let (done, result) = self.advance(&mut encrypted[start..], plain);
            start += done;
            match result {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Bytes after the close_notify alert are ignored.
        // Source: RFC 8446 6.1
        let rest = if self.has_ended { &[][..] } else { &encrypted[start..] };
        // The library reads it again, even without new bytes: see `queue_alert` and `encrypt`.
        let rest_bytes = rest.len();
        self.keep(rest);
        let rest_bytes_max =
            if self.is_established() { LIVE_PARTIAL_BYTES_MAX } else { PARTIAL_BYTES_MAX };
        if rest_bytes > rest_bytes_max {
            return Err(rustls::Error::General("endless message".to_owned()));
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

    /// One step of the library: how many bytes are consumed, and whether another step may follow.
    fn advance(
        &mut self,
        encrypted: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> (usize, Result<bool, rustls::Error>) {
        let UnbufferedStatus { mut discard, state } = self.library.process_tls_records(encrypted);
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
                append_control(&mut self.outbox, |room| data.encode(room));
                Ok(true)
            }
            // It is in the outbox, before everything that is encrypted later.
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(true)
            }
            Ok(ConnectionState::PeerClosed) => {
                self.has_ended = true;
                Ok(true)
            }
            // The server does not offer it, so no client may send any.
            Ok(ConnectionState::ReadEarlyData(_)) => {
                Err(rustls::Error::General("early data was not offered".to_owned()))
            }
            // Blocked, idle, or closed on both sides: no progress without more input.
            Ok(_) => Ok(false),
        };
        (discard, goes_on)
    }

    /// Appends `plain`, encrypted, to the outbox. Fails when the keys are used up (TLS 1.2 only:
    /// later versions update them).
    pub(crate) fn encrypt(&mut self, plain: &[u8]) -> Result<(), EncryptError> {
        assert!(
            plain.len() <= ENCRYPT_BYTES_MAX,
            "the outbox is bounded by the piece encrypted at once"
        );
        let records = plain.len().div_ceil(RECORD_BYTES_MAX);
        self.encrypted_records += records as u64;
        let room = plain.len() + records * RECORD_EXTRA_BYTES + CONTROL_BYTES;
        let Channel { library, partial, outbox, .. } = self;
        // Whole records were decrypted on arrival, so this call only returns the permitted
        // operations.
        let UnbufferedStatus { discard, state } = library.process_tls_records(partial);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return Err(EncryptError::EncryptExhausted);
        };
        let encrypted = match outbox.append(room, |room| traffic.encrypt(plain, room)) {
            Err(EncryptError::InsufficientSize(size)) => {
                outbox.append(size.required_size, |room| traffic.encrypt(plain, room))
            }
            other => other,
        };
        partial.drain(..discard);
        encrypted
    }

    /// Appends our `close_notify` alert, once.
    pub(crate) fn queue_close_notify(&mut self) {
        if std::mem::replace(&mut self.sent_close_notify, true) || !self.is_established() {
            return;
        }
        let Channel { library, partial, outbox, .. } = self;
        let state = library.process_tls_records(partial).state;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            // Without it the peer sees a broken connection, which is what a failure here leads to
            // anyway.
            let _ = outbox.append(CONTROL_BYTES, |room| traffic.queue_close_notify(room));
        }
    }

    /// Takes the alert that explains the failure, if there is one.
    pub(crate) fn queue_alert(&mut self) {
        self.sent_close_notify = true;
        let Channel { library, partial, outbox, .. } = self;
        while library.wants_write()
            && let Ok(ConnectionState::EncodeTlsData(mut data)) =
                library.process_tls_records(partial).state
        {
            append_control(outbox, |room| data.encode(room));
        }
    }
}

/// Appends a message whose encoder reports the required room.
fn append_control(
    outbox: &mut Outbox,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) {
    let mut room = CONTROL_BYTES;
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
    fn a_connection_ends_before_its_keys_are_used_up() {
        assert!(!is_nearly_used_up(0, 1 << 24));
        assert!(!is_nearly_used_up((1 << 24) - (1 << 20) - 1, 1 << 24));
        assert!(is_nearly_used_up((1 << 24) - (1 << 20), 1 << 24));
        assert!(!is_nearly_used_up(u64::MAX / 2, u64::MAX), "unlimited keys");
    }
}
