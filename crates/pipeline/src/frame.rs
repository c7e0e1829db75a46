//! One frame: a 64-byte header, then a payload. This module encodes and decodes; it does no I/O.
//!
//! ```text
//! offset size  field, all big-endian
//!      0    4  magic "MYPL"
//!      4    1  version, 1
//!      5    1  kind
//!      6    2  zero
//!      8    8  stream: identifies the generator
//!     16    4  epoch: incarnation of that generator, from 1
//!     20    4  count: tasks of a batch; frames granted or acknowledged
//!     24    8  sequence number of a batch within its epoch
//!     32    8  id of the batch's first task
//!     40    8  when the batch was due, ns of the generator's own clock
//!     48    4  length of the payload
//!     52    4  CRC-32C of the payload
//!     56    4  time the executor computed, us
//!     60    4  CRC-32C of bytes 0 to 59
//! ```
//!
//! After a header with a wrong checksum the start of the next frame is unknown, so the connection
//! ends. A payload with a wrong checksum is skipped, and the sender is notified.

use thiserror::Error;

use crate::intervals::INTERVALS_MAX;
use crate::task::{BATCH_MAX, Ids};

pub const HEADER_BYTES: usize = 64;
pub const VERSION: u8 = 1;
/// Payload limit. 4,096 results are 176 KiB; the rest allows larger batches and other tasks.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Limit for all frames except batches and welcomes.
pub const CONTROL_BYTES_MAX: usize = 1 << 20;
/// Limit for a Hello. Its longest text is the path of a directory.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Limit for a reason text. It may quote peer input, so senders truncate it.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// Limit for a status. The largest one lists 64 missing ranges and 64 wrong ids. A monitor keeps
/// one per part and shows all of them on a page.
pub const STATUS_BYTES_MAX: usize = 16 << 10;
/// Limit for a welcome. It lists all ranges of collected ids, up to the maximum number of gaps,
/// each in up to 43 characters.
pub const WELCOME_BYTES_MAX: usize = 8 << 20;

const MAGIC: [u8; 4] = *b"MYPL";

const _: () = assert!(STATUS_BYTES_MAX <= CONTROL_BYTES_MAX);
const _: () = assert!(CONTROL_BYTES_MAX <= WELCOME_BYTES_MAX);
const _: () = assert!(WELCOME_BYTES_MAX <= PAYLOAD_BYTES_MAX);
const _: () = assert!(INTERVALS_MAX * 43 + 1_000 <= WELCOME_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX <= u32::MAX as usize);

/// Type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First frame from each connecting peer: its identity, as JSON.
    Hello = 1,
    /// Reply to `Hello`, as JSON.
    Welcome = 2,
    /// Allows the peer to send `count` more batches.
    Credit = 3,
    /// Tasks for an executor.
    Data = 4,
    /// Results of a batch.
    Result = 5,
    /// Acknowledges collected batches: pairs of u64, first and last sequence number.
    Ack = 6,
    /// Requests that damaged batches, or those without results, be resent: pairs as in `Ack`.
    Nack = 7,
    /// No more tasks follow. To a collector: all are acknowledged, so send the account.
    Finish = 8,
    /// The account, as JSON. The generator confirms it with an empty frame of this kind.
    Account = 9,
    /// Why the sender ends the connection, as text.
    Refusal = 10,
    /// Status of a part of the pipeline, as JSON, for a monitor.
    Status = 11,
    /// Reason why an executor could not compute the batch, as text.
    Failed = 12,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Hello,
        Self::Welcome,
        Self::Credit,
        Self::Data,
        Self::Result,
        Self::Ack,
        Self::Nack,
        Self::Finish,
        Self::Account,
        Self::Refusal,
        Self::Status,
        Self::Failed,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether a frame of this kind carries tasks or results.
    pub fn is_batch(self) -> bool {
        matches!(self, Self::Data | Self::Result)
    }

    /// Returns the payload limit, for senders and receivers alike.
    pub fn payload_bytes_max(self) -> usize {
        match self {
            Self::Data | Self::Result => PAYLOAD_BYTES_MAX,
            Self::Welcome => WELCOME_BYTES_MAX,
            Self::Status => STATUS_BYTES_MAX,
            Self::Hello => HELLO_BYTES_MAX,
            Self::Refusal | Self::Failed => REASON_BYTES_MAX,
            _ => CONTROL_BYTES_MAX,
        }
    }
}

/// Reason why bytes are not a valid frame. The connection cannot be used afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("header checksum mismatch")]
    Checksum,
    #[error("not a pipeline connection: the stream starts with {0:02x?}")]
    Magic([u8; 4]),
    #[error("frame version {0} is not supported; this program supports version {VERSION}")]
    Version(u8),
    #[error("unknown frame kind {0} in version {VERSION}")]
    Kind(u8),
    #[error("{kind:?} frame of {bytes} bytes exceeds the limit")]
    TooLong { kind: Kind, bytes: usize },
    #[error("invalid batch of {count} tasks from id {first}")]
    Batch { first: u64, count: u32 },
    #[error("reserved bytes are not zero")]
    Reserved,
}

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub stream: u64,
    pub epoch: u32,
    pub count: u32,
    pub sequence: u64,
    pub first_id: u64,
    pub due_ns: u64,
    pub payload_bytes: u32,
    pub payload_crc: u32,
    pub service_us: u32,
}

impl Header {
    /// Creates a frame without tasks.
    pub fn control(kind: Kind, stream: u64, epoch: u32) -> Self {
        Self {
            kind,
            stream,
            epoch,
            count: 0,
            sequence: 0,
            first_id: 0,
            due_ns: 0,
            payload_bytes: 0,
            payload_crc: 0,
            service_us: 0,
        }
    }

    /// Returns the header with the length and checksum of this payload.
    ///
    /// # Panics
    /// If the payload exceeds the limit of its kind: senders check their sizes at startup.
    #[must_use]
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        assert!(payload.len() <= self.kind.payload_bytes_max());
        self.payload_bytes = u32::try_from(payload.len()).expect("limits fit 32 bits");
        self.payload_crc = crc32c::crc32c(payload);
        self
    }

    pub fn ids(&self) -> Ids {
        Ids { first: self.first_id, count: self.count }
    }

    pub fn payload_len(&self) -> usize {
        usize::try_from(self.payload_bytes).expect("32 bits fit")
    }

    /// Whether the payload has the length and checksum in this header.
    pub fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_len() && crc32c::crc32c(payload) == self.payload_crc
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(4, &[VERSION, self.kind as u8, 0, 0]);
        put(8, &self.stream.to_be_bytes());
        put(16, &self.epoch.to_be_bytes());
        put(20, &self.count.to_be_bytes());
        put(24, &self.sequence.to_be_bytes());
        put(32, &self.first_id.to_be_bytes());
        put(40, &self.due_ns.to_be_bytes());
        put(48, &self.payload_bytes.to_be_bytes());
        put(52, &self.payload_crc.to_be_bytes());
        put(56, &self.service_us.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Checks everything that does not need the payload. Checks magic and version before the
    /// checksum, so that a peer with another protocol gets a meaningful error.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let magic = *bytes.first_chunk().expect("64 bytes are more than 4");
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        if bytes[4] != VERSION {
            return Err(FrameError::Version(bytes[4]));
        }
        if crc32c::crc32c(&bytes[..60]) != be32(bytes, 60) {
            return Err(FrameError::Checksum);
        }
        if bytes[6..8] != [0, 0] {
            return Err(FrameError::Reserved);
        }
        let header = Self {
            kind: Kind::from_byte(bytes[5]).ok_or(FrameError::Kind(bytes[5]))?,
            stream: be64(bytes, 8),
            epoch: be32(bytes, 16),
            count: be32(bytes, 20),
            sequence: be64(bytes, 24),
            first_id: be64(bytes, 32),
            due_ns: be64(bytes, 40),
            payload_bytes: be32(bytes, 48),
            payload_crc: be32(bytes, 52),
            service_us: be32(bytes, 56),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FrameError> {
        let bytes = self.payload_len();
        if bytes > self.kind.payload_bytes_max() {
            return Err(FrameError::TooLong { kind: self.kind, bytes });
        }
        let (first, count) = (self.first_id, self.count);
        let is_batch =
            (1..=BATCH_MAX).contains(&count) && first.checked_add(u64::from(count)).is_some();
        if self.kind.is_batch() && !is_batch {
            return Err(FrameError::Batch { first, count });
        }
        Ok(())
    }
}

fn be32(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("every field is inside"))
}

fn be64(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_be_bytes(*bytes[at..].first_chunk().expect("every field is inside"))
}

/// Appends pairs of sequence numbers in the format of `Ack` and `Nack`.
pub fn encode_pairs(pairs: &[(u64, u64)], payload: &mut Vec<u8>) {
    for (first, last) in pairs {
        payload.extend_from_slice(&first.to_be_bytes());
        payload.extend_from_slice(&last.to_be_bytes());
    }
}

/// Decodes the pairs of a payload. Returns `None` unless it consists of ordered pairs, first not
/// above last.
pub fn decode_pairs(payload: &[u8]) -> Option<impl Iterator<Item = (u64, u64)>> {
    let (chunks, rest) = payload.as_chunks::<16>();
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().expect("half of 16 bytes"));
    let pairs = chunks.iter().map(move |chunk| (number(&chunk[..8]), number(&chunk[8..])));
    let is_ordered = pairs.clone().all(|(first, last)| first <= last);
    (rest.is_empty() && is_ordered).then_some(pairs)
}

/// Property for the fuzzer and the tests: no input panics, and every accepted header encodes to the
/// same bytes.
pub fn check_bytes(bytes: &[u8]) {
    if let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        if let Ok(header) = Header::decode(head) {
            assert_eq!(&header.encode(), head);
            let payload = &rest[..rest.len().min(header.payload_len())];
            let _ = header.matches(payload);
        }
        // The fuzzer cannot guess a checksum, so set the correct one.
        let mut corrected = *head;
        corrected[..4].copy_from_slice(&MAGIC);
        corrected[4] = VERSION;
        let crc = crc32c::crc32c(&corrected[..60]);
        corrected[60..].copy_from_slice(&crc.to_be_bytes());
        if let Ok(header) = Header::decode(&corrected) {
            assert_eq!(header.encode(), corrected);
            assert!(header.payload_len() <= PAYLOAD_BYTES_MAX);
            assert!(!header.kind.is_batch() || header.ids().end() > header.first_id);
        }
    }
    if let Some(pairs) = decode_pairs(bytes) {
        let pairs: Vec<_> = pairs.collect();
        let mut written = Vec::new();
        encode_pairs(&pairs, &mut written);
        assert_eq!(written, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch() -> Header {
        let mut header = Header::control(Kind::Data, 0x0102_0304_0506_0708, 9);
        header.count = 4096;
        header.sequence = 10;
        header.first_id = 11;
        header.due_ns = 12;
        header.service_us = 13;
        header.with_payload(b"123456789")
    }

    #[test]
    fn bytes_are_those_of_the_document() {
        let bytes = batch().encode();
        #[rustfmt::skip]
        let expected = [
            b'M', b'Y', b'P', b'L', 1, 4, 0, 0,  1, 2, 3, 4, 5, 6, 7, 8,
            0, 0, 0, 9,  0, 0, 16, 0,  0, 0, 0, 0, 0, 0, 0, 10,  0, 0, 0, 0, 0, 0, 0, 11,
            0, 0, 0, 0, 0, 0, 0, 12,  0, 0, 0, 9,  0xe3, 0x06, 0x92, 0x83,  0, 0, 0, 13,
        ];
        assert_eq!(bytes[..60], expected);
        assert_eq!(Header::decode(&bytes), Ok(batch()));
        assert!(batch().matches(b"123456789"));
        assert!(!batch().matches(b"123456780"));
        assert!(!batch().matches(b"12345678"));
    }

    fn refused(change: impl Fn(&mut [u8; HEADER_BYTES]), fix_checksum: bool) -> FrameError {
        let mut bytes = batch().encode();
        change(&mut bytes);
        if fix_checksum {
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&crc.to_be_bytes());
        }
        Header::decode(&bytes).unwrap_err()
    }

    #[test]
    fn other_headers_are_refused() {
        assert_eq!(refused(|bytes| bytes[0] = b'G', true), FrameError::Magic(*b"GYPL"));
        assert_eq!(refused(|bytes| bytes[4] = 2, true), FrameError::Version(2));
        assert_eq!(refused(|bytes| bytes[5] = 13, true), FrameError::Kind(13));
        assert_eq!(refused(|bytes| bytes[7] = 1, true), FrameError::Reserved);
        assert_eq!(refused(|bytes| bytes[30] ^= 4, false), FrameError::Checksum);
        let count = refused(|bytes| bytes[20..24].fill(0), true);
        assert_eq!(count, FrameError::Batch { first: 11, count: 0 });
        let past_the_end = refused(|bytes| bytes[32..40].fill(0xff), true);
        assert_eq!(past_the_end, FrameError::Batch { first: u64::MAX, count: 4096 });
        let long = refused(|bytes| bytes[48] = 0x10, true);
        assert_eq!(long, FrameError::TooLong { kind: Kind::Data, bytes: 0x1000_0009 });
        let control = refused(|bytes| (bytes[5], bytes[49]) = (1, 0x20), true);
        assert_eq!(control, FrameError::TooLong { kind: Kind::Hello, bytes: 0x20_0009 });
    }

    #[test]
    fn every_changed_bit_of_a_header_is_found() {
        let right = batch().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut wrong = right;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn pairs_in_disorder_are_refused() {
        let mut payload = Vec::new();
        encode_pairs(&[(1, 1), (3, 9)], &mut payload);
        assert_eq!(decode_pairs(&payload).unwrap().collect::<Vec<_>>(), [(1, 1), (3, 9)]);
        assert!(decode_pairs(&payload[1..]).is_none());
        payload[7] = 2;
        assert!(decode_pairs(&payload).is_none());
    }

    proptest! {
        #[test]
        fn headers_are_read_back(
            kind in 0..12_usize,
            (stream, epoch, sequence) in any::<(u64, u32, u64)>(),
            count in 1..=BATCH_MAX,
            first_id in 0..=u64::MAX - u64::from(BATCH_MAX),
            (due_ns, service_us) in any::<(u64, u32)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut header = Header::control(Kind::ALL[kind], stream, epoch);
            (header.count, header.sequence, header.first_id) = (count, sequence, first_id);
            (header.due_ns, header.service_us) = (due_ns, service_us);
            let header = header.with_payload(&payload);
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
            prop_assert!(header.matches(&payload));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check_bytes(&bytes);
        }
    }
}
