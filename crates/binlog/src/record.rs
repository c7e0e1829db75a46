//! One record: its position, its bytes, and when it is valid.
//!
//! ```text
//! offset size  field
//!      0    4  payload length, u32 little-endian
//!      4    1  kind: 0 never occurs, 1..=254 belong to the user, 255 is a mark of the log
//!      5    4  checksum, u32 little-endian
//!      9  len  payload
//! ```
//!
//! The checksum is the CRC-32C of: salt (u64), payload, start LSN (u64), length (u32), kind (u32),
//! all little-endian. The salt belongs to the log, the LSN to the record: bytes of another log, of
//! an earlier use of a recycled segment, or made by a client never pass.

use std::fmt;

use base::planted;

use crate::crc;
use crate::to_usize;

/// Bytes before the payload.
pub const RECORD_HEADER_BYTES: usize = 9;
/// The longest payload: twice the longest Redis value.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Kind of the log's own marks; see [`mark_payload`]. Users' kinds are 1 to 254.
pub const KIND_MARK: u8 = 255;
/// Kind 0 is invalid: zeros never look like a record, whatever their checksum.
const KIND_NONE: u8 = 0;
/// Size of the smallest and the largest mark with its header: the search for proof of durability
/// looks for these bytes.
pub(crate) const MARK_BYTES_MIN: usize = RECORD_HEADER_BYTES + MARK_PAYLOAD_BYTES;
pub(crate) const MARK_BYTES_MAX: usize = RECORD_HEADER_BYTES + TIMED_MARK_PAYLOAD_BYTES;
const MARK_PAYLOAD_BYTES: usize = 8;
const TIMED_MARK_PAYLOAD_BYTES: usize = 20;

/// Size of a seal with its header: a full segment keeps this much room after its last record.
pub(crate) const SEAL_BYTES: usize = RECORD_HEADER_BYTES + SEAL_PAYLOAD_BYTES;
const SEAL_PAYLOAD_BYTES: usize = 16;

const _: () = assert!(PAYLOAD_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(
    MARK_PAYLOAD_BYTES != SEAL_PAYLOAD_BYTES && TIMED_MARK_PAYLOAD_BYTES != SEAL_PAYLOAD_BYTES,
    "marks and seals differ in their length"
);

/// A position in the endless stream of record bytes: where a record starts or ends; the next one
/// starts where the previous one ends. Segment headers and unused ends of segments do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// One record of the log, borrowed from the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub start: Lsn,
    /// Start of the next record; durable once [`Log::durable`](crate::Log::durable) reaches it.
    pub end: Lsn,
    pub kind: u8,
    pub payload: &'a [u8],
}

/// Checksums of one log, all starting from its salt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksum(u32);

impl Checksum {
    pub(crate) fn new(salt: u64) -> Self {
        Self(crc32c::crc32c(&salt.to_le_bytes()))
    }

    /// The part that does not depend on the record's position: computed before any lock is taken.
    #[inline]
    pub(crate) fn of_payload(self, payload: &[u8]) -> u32 {
        crc::append(self.0, payload)
    }
}

/// Extends the checksum of a payload by its next part.
pub(crate) fn append_payload(payload_crc: u32, part: &[u8]) -> u32 {
    crc::append(payload_crc, part)
}

/// Completes the checksum of a payload with the record's position, length and kind.
#[inline]
fn finish(payload_crc: u32, start: Lsn, length: u32, kind: u8) -> u32 {
    let mut trailer = [0; 16];
    trailer[..8].copy_from_slice(&start.0.to_le_bytes());
    trailer[8..12].copy_from_slice(&length.to_le_bytes());
    trailer[12] = kind;
    crc::append(payload_crc, &trailer)
}

/// Appends the record's bytes. The payload is at most [`PAYLOAD_BYTES_MAX`], checked by the caller.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, start: Lsn, kind: u8, payload: &[u8], payload_crc: u32) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "recovery refuses a longer record");
    let length = u32::try_from(planted::shifted("record length", payload.len() as u64));
    let length = length.expect("checked against PAYLOAD_BYTES_MAX");
    let crc = finish(payload_crc, start, length, kind);
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = kind;
    header[5..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
}

/// The fields of a record's nine header bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) payload_bytes: usize,
    kind: u8,
    crc: u32,
}

impl Header {
    /// None unless it can be the header of a record: kind and length are in range.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let payload_bytes = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let kind = bytes[4];
        let crc = u32::from_le_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        let plausible = kind != KIND_NONE && payload_bytes <= PAYLOAD_BYTES_MAX;
        plausible.then_some(Self { payload_bytes, kind, crc })
    }

    /// Whether this is the header of a record at `start` with a payload of this checksum.
    pub(crate) fn fits(self, start: Lsn, payload_crc: u32) -> bool {
        let length = u32::try_from(self.payload_bytes);
        length.is_ok_and(|length| finish(payload_crc, start, length, self.kind) == self.crc)
    }

    pub(crate) fn record_bytes(self) -> usize {
        RECORD_HEADER_BYTES + self.payload_bytes
    }

    /// The record of this header, whose checksum has been verified.
    pub(crate) fn record(self, start: Lsn, end: Lsn, payload: &[u8]) -> Record<'_> {
        Record { start, end, kind: self.kind, payload }
    }
}

/// Decodes the record at the start of `bytes`; `None` unless it is complete and belongs to `start`.
pub(crate) fn decode(checksum: Checksum, start: Lsn, bytes: &[u8]) -> Option<Record<'_>> {
    let header = Header::decode(bytes)?;
    let payload = bytes.get(RECORD_HEADER_BYTES..header.record_bytes())?;
    let end = Lsn(start.0.checked_add(header.record_bytes() as u64)?);
    let length = u32::try_from(header.payload_bytes).ok()?;
    let crc = finish(checksum.of_payload(payload), start, length, header.kind);
    (crc == header.crc).then_some(Record { start, end, kind: header.kind, payload })
}

/// What a mark states: everything before `durable` was on stable storage when the mark was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub durable: Lsn,
    /// When that became durable, before the position was published: microseconds since the Unix
    /// epoch. `None` in a log without a wall clock.
    pub unix_us: Option<i64>,
}

impl Mark {
    /// Appends the payload of the mark.
    pub(crate) fn encode(self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&self.durable.0.to_le_bytes());
        if let Some(unix_us) = self.unix_us {
            payload.extend_from_slice(&unix_us.to_le_bytes());
            payload.extend_from_slice(&[0; 4]);
        }
    }

    /// None for any other record.
    pub(crate) fn read(record: &Record<'_>) -> Option<Self> {
        if record.kind != KIND_MARK || !is_mark_payload(record.payload.len()) {
            return None;
        }
        let (durable, rest) = record.payload.split_first_chunk::<8>()?;
        let unix_us = rest.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes));
        Some(Self { durable: Lsn(u64::from_le_bytes(*durable)), unix_us })
    }
}

fn is_mark_payload(bytes: usize) -> bool {
    bytes == MARK_PAYLOAD_BYTES || bytes == TIMED_MARK_PAYLOAD_BYTES
}

/// The file in which the log continues. Written after the last record of a full segment, at the
/// position where the next segment starts; takes up no positions itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal {
    /// Number of the next segment.
    pub(crate) successor: u64,
    /// Size of its file, which was durable before this seal was written.
    pub(crate) successor_bytes: u64,
}

impl Seal {
    /// The bytes of a seal at `at`.
    pub(crate) fn encode(self, checksum: Checksum, at: Lsn) -> Vec<u8> {
        let mut payload = [0; SEAL_PAYLOAD_BYTES];
        payload[..8].copy_from_slice(&self.successor.to_le_bytes());
        payload[8..].copy_from_slice(&self.successor_bytes.to_le_bytes());
        let mut bytes = Vec::with_capacity(SEAL_BYTES);
        encode(&mut bytes, at, KIND_MARK, &payload, checksum.of_payload(&payload));
        assert_eq!(bytes.len(), SEAL_BYTES, "a full segment keeps this much room");
        bytes
    }

    /// None for any other record.
    pub(crate) fn read(record: &Record<'_>) -> Option<Self> {
        if record.kind != KIND_MARK {
            return None;
        }
        let payload: &[u8; SEAL_PAYLOAD_BYTES] = record.payload.try_into().ok()?;
        let (successor, bytes) = payload.split_at(8);
        Some(Self {
            successor: u64::from_le_bytes(successor.try_into().ok()?),
            successor_bytes: u64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

/// Whether a mark may start here. Cheap enough to be asked at every byte of a segment.
pub(crate) fn may_be_mark(bytes: &[u8]) -> bool {
    bytes.len() >= MARK_BYTES_MIN
        && bytes[4] == KIND_MARK
        && bytes[1..4] == [0; 3]
        && is_mark_payload(usize::from(bytes[0]))
}

/// Bytes of the leading whole records of `bytes` that fit into `room`. `bytes` is of our making.
pub(crate) fn whole_records_within(bytes: &[u8], room: u64) -> usize {
    let mut fits = 0;
    while let Some(header) = Header::decode(&bytes[fits..]) {
        if (fits + header.record_bytes()) as u64 > room {
            break;
        }
        fits += header.record_bytes();
    }
    fits
}

/// Bytes of the leading whole and valid records of `bytes`, the first of which starts at `start`.
pub(crate) fn valid_bytes(checksum: Checksum, start: Lsn, bytes: &[u8]) -> usize {
    let (mut valid, mut at) = (0, start);
    while let Some(record) = decode(checksum, at, &bytes[valid..]) {
        valid += to_usize(record.end.0 - at.0);
        at = record.end;
    }
    valid
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(start: Lsn, kind: u8, payload: &[u8], salt: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, start, kind, payload, Checksum::new(salt).of_payload(payload));
        bytes
    }

    #[test]
    fn bytes_are_pinned() {
        let bytes = encoded(Lsn(0x1122), 7, b"hello", 0x0123_4567_89ab_cdef);
        let by_hand = {
            let mut covered = 0x0123_4567_89ab_cdef_u64.to_le_bytes().to_vec();
            covered.extend_from_slice(b"hello");
            covered.extend_from_slice(&[0x22, 0x11, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0]);
            crc32c::crc32c(&covered)
        };
        assert_eq!(by_hand, 0xfd95_1d85);
        assert_eq!(bytes, b"\x05\x00\x00\x00\x07\x85\x1d\x95\xfdhello");
    }

    #[test]
    fn zeros_are_never_a_record() {
        for start in 0..10_000 {
            assert_eq!(decode(Checksum::new(0), Lsn(start), &[0; 64]), None);
        }
    }

    #[test]
    fn whole_records_stop_at_the_room() {
        let mut bytes = encoded(Lsn(0), 1, b"abc", 0);
        bytes.extend(encoded(Lsn(12), 1, b"d", 0));
        assert_eq!(whole_records_within(&bytes, 11), 0);
        assert_eq!(whole_records_within(&bytes, 12), 12);
        assert_eq!(whole_records_within(&bytes, 21), 12);
        assert_eq!(whole_records_within(&bytes, 22), 22);
    }

    proptest! {
        #[test]
        fn decodes_what_it_encoded(
            start in 0..u64::MAX / 2,
            kind in 1..=255_u8,
            payload in prop::collection::vec(any::<u8>(), 0..300),
            salt: u64,
        ) {
            let bytes = encoded(Lsn(start), kind, &payload, salt);
            let end = Lsn(start + bytes.len() as u64);
            let want = Record { start: Lsn(start), end, kind, payload: &payload };
            prop_assert_eq!(decode(Checksum::new(salt), Lsn(start), &bytes), Some(want));
        }

        #[test]
        fn refuses_another_place_salt_cut_or_bit(
            start in 0..u64::MAX / 2,
            payload in prop::collection::vec(any::<u8>(), 0..100),
            salt: u64,
            pick: prop::sample::Index,
            bit in 0..8_u32,
        ) {
            let bytes = encoded(Lsn(start), 9, &payload, salt);
            let checksum = Checksum::new(salt);
            prop_assert_eq!(decode(checksum, Lsn(start + 1), &bytes), None);
            prop_assert_eq!(decode(Checksum::new(salt ^ 1), Lsn(start), &bytes), None);
            prop_assert_eq!(decode(checksum, Lsn(start), &bytes[..pick.index(bytes.len())]), None);
            let mut flipped = bytes.clone();
            flipped[pick.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(decode(checksum, Lsn(start), &flipped), None);
        }

        #[test]
        fn never_panics_on_garbage(start: u64, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(decode(Checksum::new(1), Lsn(start), &bytes), None);
        }
    }
}
