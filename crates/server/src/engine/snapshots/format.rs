//! Framing of a snapshot's blocks: `docs/internals/snapshot-format.md`.

use base::time::UnixMs;
use store::{STRIPES, SnapshotBlock};

use crate::engine::records::Progress;

const MAGIC: &[u8; 7] = b"MYRSNAP";
/// The version that this program writes.
pub(super) const VERSION: u8 = 4;
/// The oldest version that this program reads: its end has no clock. That of version 2 has no
/// position in a stream. Version 3 has no versions of keys that name another version.
pub(super) const VERSION_MIN: u8 = 1;
const END_MAGIC: &[u8; 8] = b"MYRSNEND";
pub(super) const HEADER_BYTES: usize = 40;
pub(super) const BLOCK_HEADER_BYTES: usize = 32;

pub(crate) fn header(seed: u64, now: UnixMs) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..7].copy_from_slice(MAGIC);
    bytes[7] = VERSION;
    bytes[8..16].copy_from_slice(&seed.to_le_bytes());
    bytes[16..24].copy_from_slice(&(STRIPES as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&now.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..32]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Contents of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u8,
    pub(super) seed: u64,
    pub(super) taken_unix_ms: u64,
}

/// Returns the version in a valid header, whether this program reads it or not.
pub(super) fn version_of(bytes: &[u8; HEADER_BYTES]) -> Option<u8> {
    let crc_fits = le32(&bytes[32..]) == crc32c::crc32c(&bytes[..32]);
    (&bytes[..7] == MAGIC && crc_fits).then_some(bytes[7])
}

/// Decodes a header. The error describes the corruption.
pub(super) fn read_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, &'static str> {
    let version = version_of(bytes).ok_or("malformed snapshot header")?;
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err("unsupported version");
    }
    if le64(&bytes[16..]) != STRIPES as u64 {
        return Err("wrong number of stripes");
    }
    Ok(Header { version, seed: le64(&bytes[8..]), taken_unix_ms: le64(&bytes[24..]) })
}

pub(crate) fn block_header(block: &SnapshotBlock) -> [u8; BLOCK_HEADER_BYTES] {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let stripe = u32::try_from(block.stripe).expect("STRIPES fits u32");
    bytes[..4].copy_from_slice(&stripe.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.lsn.to_le_bytes());
    bytes[16..24].copy_from_slice(&block.keys.to_le_bytes());
    bytes[24..32].copy_from_slice(&(block.bytes.len() as u64).to_le_bytes());
    let crc = block_crc(&bytes, &block.bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn block_crc(header: &[u8; BLOCK_HEADER_BYTES], content: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[8..]), content);
    crc32c::crc32c_append(crc, &header[..4])
}

/// Contents of the end of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) keys: u64,
    pub(crate) progress: Progress,
}

impl End {
    pub(super) fn bytes_of(version: u8) -> usize {
        match version {
            1 => 24,
            2 => 32,
            _ => 40,
        }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = END_MAGIC.to_vec();
        bytes.extend_from_slice(&self.keys.to_le_bytes());
        bytes.extend_from_slice(&self.progress.newest_timestamp.to_le_bytes());
        bytes.extend_from_slice(&self.progress.stream_position.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.resize(End::bytes_of(VERSION), 0);
        bytes
    }

    /// Decodes an end. `None` if the bytes are malformed. The length of `bytes` depends on the
    /// version.
    pub(super) fn decode(bytes: &[u8]) -> Option<End> {
        let (content, crc) = bytes.split_at(bytes.len() - 8);
        let crc_fits = le32(crc) == crc32c::crc32c(content);
        let (magic, numbers) = content.split_at(8);
        let number = |at: usize| numbers.get(8 * at..8 * at + 8).map_or(0, le64);
        let progress =
            Progress { newest_timestamp: number(1).cast_signed(), stream_position: number(2) };
        (magic == END_MAGIC && crc_fits).then_some(End { keys: number(0), progress })
    }
}

pub(super) fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

pub(super) fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_header_and_end_is_checked() {
        let bytes = header(7, UnixMs(9));
        let read = read_header(&bytes).unwrap();
        assert_eq!((read.version, read.seed, read.taken_unix_ms), (VERSION, 7, 9));
        for at in 0..36 {
            let mut flipped = bytes;
            flipped[at] ^= 4;
            assert!(read_header(&flipped).is_err(), "byte {at}");
        }
        let end = End { keys: 5, progress: Progress { newest_timestamp: -3, stream_position: 6 } };
        let bytes = end.encode();
        assert_eq!(bytes.len(), End::bytes_of(VERSION));
        assert_eq!(End::decode(&bytes), Some(end));
        for at in 0..36 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert_eq!(End::decode(&flipped), None, "byte {at}");
        }
    }
}
