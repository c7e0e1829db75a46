//! One segment file: its name, its header, and the offset of a log position in it.
//!
//! ```text
//! offset size  field
//!      0    8  magic "MYRIADLG"
//!      8    4  format version, u32
//!     12    4  header size, u32: 4096
//!     16    8  number, u64: the same as in the file's name
//!     24    8  base LSN, u64: position of the first record
//!     32    8  durable LSN, u64: known to be durable when this header was written
//!     40    8  salt of the log, u64
//!     48    4  flags, u32: bit 0 = the file was used before, so old bytes follow
//!     52    8  size of the file when it became a segment, u64; zero in version 1
//!     60    4  CRC-32C of bytes 0..60
//!     64       zeros up to 4096, then the records
//! ```

use std::io;
use std::sync::Arc;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::disk::{Disk, DiskFile, read_full_at, write_all_at};
use crate::record::{Lsn, SEAL_BYTES};
use crate::to_usize;

/// Records start here. The header has a block of its own, so writing records never rewrites it.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Version of the format that this code writes.
pub(crate) const FORMAT_VERSION: u32 = 3;
/// The oldest version that this code reads: its full segments have no seal, its headers no size.
pub(crate) const FORMAT_VERSION_MIN: u32 = 1;
/// Segments of this version and later end with a seal when they are full.
const SEAL_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"MYRIADLG";
const HEADER_CRC_AT: usize = 60;
const HEADER_USED_BYTES: usize = 64;
const FLAG_RECYCLED: u32 = 1;
/// Whole files are read and written in pieces of this size.
const CHUNK_BYTES: usize = 1 << 20;

const _: () = assert!(
    SEGMENT_HEADER_BYTES.is_multiple_of(BLOCK_BYTES) && CHUNK_BYTES.is_multiple_of(BLOCK_BYTES),
    "headers and pieces are whole blocks of the disk"
);
const _: () = assert!(HEADER_USED_BYTES == HEADER_CRC_AT + size_of::<u32>());
const _: () = assert!(HEADER_USED_BYTES <= SEGMENT_HEADER_BYTES);
const _: () = assert!(FORMAT_VERSION_MIN < SEAL_VERSION, "the oldest version has no seals");
const _: () = assert!(SEAL_VERSION <= FORMAT_VERSION, "new segments are sealed");
const _: () = assert!(SEAL_BYTES < SEGMENT_HEADER_BYTES, "the smallest segment has room for it");

/// The fields of a valid segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u32,
    pub(crate) number: u64,
    pub(crate) base: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) salt: u64,
    pub(crate) recycled: bool,
    /// Size of the file when it became a segment: it is never shorter. 0 in version 1.
    pub(crate) file_bytes: u64,
}

/// What the first bytes of a segment file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// In use: the header belongs to this file.
    Active(SegmentHeader),
    /// A valid header of another number: a recycled file that is not in use yet, or a file that was
    /// given the name of another one.
    Other(SegmentHeader),
    /// Prepared but not in use yet, or a header that never reached the disk whole.
    Unused,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> AlignedBuffer {
        let mut bytes = AlignedBuffer::new(SEGMENT_HEADER_BYTES);
        let header_bytes = u32::try_from(SEGMENT_HEADER_BYTES).expect("4096 fits");
        let flags = if self.recycled { FLAG_RECYCLED } else { 0 };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&header_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.to_le_bytes());
        bytes[48..52].copy_from_slice(&flags.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.file_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..HEADER_USED_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` unless magic and checksum are valid. The caller checks the version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER_USED_BYTES>()?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | (u64::from(u32_at(at + 4)) << 32);
        let valid =
            bytes[..8] == MAGIC && u32_at(HEADER_CRC_AT) == crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        valid.then(|| Self {
            version: u32_at(8),
            number: u64_at(16),
            base: Lsn(u64_at(24)),
            durable: Lsn(u64_at(32)),
            salt: u64_at(40),
            recycled: u32_at(48) & FLAG_RECYCLED != 0,
            file_bytes: u64_at(52),
        })
    }
}

/// Name of the segment with this number. Numbers only grow.
pub(crate) fn file_name(number: u64) -> String {
    format!("log-{number:020}.seg")
}

/// The number in a segment's name; None for any other file.
pub(crate) fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".seg")?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A segment in use.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) version: u32,
    pub(crate) base: Lsn,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Usable bytes of the file, whole blocks; the rest is not allocated.
    pub(crate) capacity_bytes: u64,
}

impl Segment {
    /// The offset in the file of a position at or after the base.
    pub(crate) fn offset(&self, at: Lsn) -> u64 {
        assert!(self.base <= at, "earlier segments hold the positions before the base");
        SEGMENT_HEADER_BYTES as u64 + (at.0 - self.base.0)
    }

    /// Bytes left for records from `at` on.
    pub(crate) fn room(&self, at: Lsn) -> u64 {
        let seal_bytes = if self.is_sealed_when_full() { SEAL_BYTES as u64 } else { 0 };
        self.capacity_bytes.saturating_sub(self.offset(at) + seal_bytes)
    }

    /// A segment that an older version began is filled as that version would have done.
    pub(crate) fn is_sealed_when_full(&self) -> bool {
        self.version >= SEAL_VERSION
    }
}

/// A file with its final name, ready to become a segment.
#[derive(Debug)]
pub(crate) struct Blank {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) size_bytes: u64,
    pub(crate) recycled: bool,
}

/// Reads and classifies the header of the file with this number.
pub(crate) fn read_header(file: &dyn DiskFile, number: u64) -> io::Result<HeaderState> {
    let mut bytes = [0; HEADER_USED_BYTES];
    let count = read_full_at(file, 0, &mut bytes)?;
    Ok(match SegmentHeader::decode(&bytes[..count]) {
        Some(header) if header.number == number => HeaderState::Active(header),
        Some(header) => HeaderState::Other(header),
        None => HeaderState::Unused,
    })
}

/// Creates a file full of written zeros. The zeros are written and not only allocated, because the
/// first write into an allocated but unwritten block adds a change of metadata to each sync.
///
/// Durable on return. On error the incomplete file is removed as far as the disk allows.
pub(crate) fn create_blank(disk: &dyn Disk, number: u64, size_bytes: u64) -> io::Result<Blank> {
    let name = file_name(number);
    // Filling a disk to its last block only to remove the file again would harm other programs.
    if disk.free_bytes()?.is_some_and(|free_bytes| free_bytes < size_bytes) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let file = disk.create_direct(&name)?;
    let filled =
        write_zeros(&*file, size_bytes).and_then(|()| file.sync()).and_then(|()| disk.sync_dir());
    if let Err(error) = filled {
        // The first error is reported; the next start removes a leftover file.
        disk.remove(&name).ok();
        return Err(error);
    }
    Ok(Blank { number, file, size_bytes, recycled: false })
}

fn write_zeros(file: &dyn DiskFile, size_bytes: u64) -> io::Result<()> {
    // Large writes leave large folios in the page cache, and for each small write into one of them
    // the kernel checks all of its blocks: 2.0 us instead of 0.5 us.
    let piece_bytes = if file.block_bytes() == 1 { BLOCK_BYTES } else { CHUNK_BYTES };
    let zeros = AlignedBuffer::new(to_usize(size_bytes.min(piece_bytes as u64)));
    let mut at = 0;
    while at < size_bytes {
        let count = (size_bytes - at).min(zeros.len() as u64);
        write_all_at(file, at, &zeros[..to_usize(count)])?;
        at += count;
    }
    Ok(())
}

/// Writes zeros over everything from `from` to the end of the file that is not zero already.
pub(crate) fn clear_tail(file: &dyn DiskFile, from: u64) -> io::Result<()> {
    rewrite_blocks(file, from, file.size()?, &mut |at, blocks| {
        let kept = to_usize(from.saturating_sub(at)).min(blocks.len());
        let behind = &mut blocks[kept..];
        let holds_bytes = behind.iter().any(|&byte| byte != 0);
        behind.fill(0);
        holds_bytes
    })
}

/// Writes the existing bytes again, so that the next sync makes them durable.
///
/// A sync that failed in an earlier run of the process may have left pages in the kernel's cache
/// that are marked clean but never reached the disk: they can be read, and syncing them again has
/// no effect.
pub(crate) fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    rewrite_blocks(file, from, to, &mut |_, _| true)
}

/// Reads all blocks between `from` and `to` in pieces, passes each to `change` with its offset, and
/// writes it if that returns true. After the end of the file there are zeros.
fn rewrite_blocks(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    change: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> io::Result<()> {
    let block_bytes = file.block_bytes();
    let mut at = from - from % block_bytes as u64;
    let bytes = to.saturating_sub(at).min(CHUNK_BYTES as u64);
    let mut chunk = AlignedBuffer::new(to_usize(bytes).next_multiple_of(block_bytes));
    while at < to {
        let want = to_usize((to - at).min(chunk.len() as u64)).next_multiple_of(block_bytes);
        let count = read_full_at(file, at, &mut chunk[..want])?;
        if count == 0 {
            break;
        }
        let blocks = &mut chunk[..count.next_multiple_of(block_bytes)];
        blocks[count..].fill(0);
        if change(at, blocks) {
            write_all_at(file, at, blocks)?;
        }
        at += blocks.len() as u64;
    }
    Ok(())
}

/// The bytes before `at` in its block: the next write has to repeat them.
pub(crate) fn read_carried(segment: &Segment, at: Lsn) -> io::Result<Vec<u8>> {
    let offset = segment.offset(at);
    let count = offset % segment.file.block_bytes() as u64;
    let mut bytes = vec![0; to_usize(count)];
    let read = read_full_at(&*segment.file, offset - count, &mut bytes)?;
    if read == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Turns a blank file into a segment by writing its header. Durable with the next sync of the file.
pub(crate) fn activate(
    blank: Blank,
    base: Lsn,
    durable: Lsn,
    salt: u64,
    first_record_bytes: u64,
) -> io::Result<Segment> {
    assert!(durable <= base, "the segments before this one hold all that is durable");
    let Blank { number, file, size_bytes, recycled } = blank;
    let version = FORMAT_VERSION;
    let file_bytes = size_bytes;
    let header =
        SegmentHeader { version, number, base, durable, salt, recycled, file_bytes }.encode();
    write_all_at(&*file, 0, &header)?;
    let needed_bytes = SEGMENT_HEADER_BYTES as u64 + first_record_bytes + SEAL_BYTES as u64;
    let capacity_bytes = size_bytes.max(needed_bytes.next_multiple_of(SEGMENT_HEADER_BYTES as u64));
    Ok(Segment { number, version, base, file, capacity_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_are_pinned() {
        let header = SegmentHeader {
            version: 2,
            number: 3,
            base: Lsn(0x0102_0304_0506_0708),
            durable: Lsn(9),
            salt: 0xaabb,
            recycled: true,
            file_bytes: 0x20_0000,
        };
        let bytes = header.encode();
        let mut want = b"MYRIADLG\x02\0\0\0\0\x10\0\0\x03\0\0\0\0\0\0\0".to_vec();
        want.extend_from_slice(b"\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0");
        want.extend_from_slice(b"\xbb\xaa\0\0\0\0\0\0\x01\0\0\0\0\0\x20\0\0\0\0\0");
        assert_eq!(bytes[..60], want[..]);
        assert_eq!(bytes[60..64], crc32c::crc32c(&want).to_le_bytes());
        assert!(bytes[64..].iter().all(|&byte| byte == 0));
        assert_eq!(bytes.len(), 4096);
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for at in 0..64 {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert_eq!(SegmentHeader::decode(&flipped), None, "byte {at}");
        }
    }

    #[test]
    fn names_round_trip() {
        assert_eq!(file_name(17), "log-00000000000000000017.seg");
        assert_eq!(parse_file_name(&file_name(u64::MAX)), Some(u64::MAX));
        for name in ["LOCK", "log-17.seg", "log-0000000000000000001x.seg", "log-.seg", ""] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
        assert_eq!(parse_file_name("log-99999999999999999999.seg"), None);
    }
}
