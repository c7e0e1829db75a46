//! The manifest: that a directory holds a log, and a position up to which this log is durable.
//!
//! Segments prove each other: a full one names its successor, and marks in later ones refer to
//! earlier ones. But no segment proves the newest one, and none remains when all files are missing.
//! The manifest closes this gap. It states a lower bound, which stays true however old it is. It is
//! written when a log is created, opened and closed, and by the helper thread when a new segment is
//! in use, never by the writer between two groups.
//!
//! ```text
//! offset size  field
//!      0    8  magic "MYRIADLM"
//!      8    4  format version, u32
//!     12    4  zero
//!     16    8  sequence number of this copy, u64
//!     24    8  salt of the log, u64
//!     32    8  origin, u64: position of the log's very first record; 2^64 - 1: unknown
//!     40    8  durable, u64: the log was durable up to here
//!     48    8  number of the segment that holds this position, u64
//!     56    4  zero
//!     60    4  CRC-32C of bytes 0..60
//!     64       zeros up to 4096
//! ```
//!
//! Two copies, 4096 bytes each, are written in turn, so that a torn write leaves the other one.

use std::io;
use std::sync::Arc;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::disk::{Disk, DiskFile, read_full_at, write_all_at};
use crate::record::Lsn;
use crate::segment::FORMAT_VERSION;

pub(crate) const MANIFEST_NAME: &str = "log.manifest";
const TEMPORARY_NAME: &str = "log.manifest.tmp";
const MAGIC: [u8; 8] = *b"MYRIADLM";
const CRC_AT: usize = 60;
const USED_BYTES: usize = 64;
const COPIES: u64 = 2;
const ORIGIN_UNKNOWN: u64 = u64::MAX;

const _: () = assert!(USED_BYTES == CRC_AT + size_of::<u32>());
const _: () = assert!(USED_BYTES <= BLOCK_BYTES, "a write of one copy leaves the other alone");

/// The contents of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    sequence: u64,
    pub(crate) salt: u64,
    /// `None` for a log that was created by a version without manifests.
    pub(crate) origin: Option<Lsn>,
    /// The log is durable at least up to here.
    pub(crate) durable: Lsn,
    /// The segment that was in use at that time.
    pub(crate) number: u64,
}

/// What is found under the manifest's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Valid(Manifest),
    /// Neither copy is valid. The file gets its name only when it is durable, so this is damage.
    Damaged,
}

impl Manifest {
    pub(crate) fn new(salt: u64, origin: Option<Lsn>, durable: Lsn, number: u64) -> Self {
        Self { version: FORMAT_VERSION, sequence: 0, salt, origin, durable, number }
    }

    fn encode(&self) -> AlignedBuffer {
        let mut bytes = AlignedBuffer::new(BLOCK_BYTES);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let origin = self.origin.map_or(ORIGIN_UNKNOWN, |origin| origin.0);
        bytes[32..40].copy_from_slice(&origin.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.durable.0.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..USED_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` unless magic and checksum are valid. The caller checks the version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<USED_BYTES>()?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | (u64::from(u32_at(at + 4)) << 32);
        let is_valid = bytes[..8] == MAGIC && u32_at(CRC_AT) == crc32c::crc32c(&bytes[..CRC_AT]);
        is_valid.then(|| Self {
            version: u32_at(8),
            sequence: u64_at(16),
            salt: u64_at(24),
            origin: Some(Lsn(u64_at(32))).filter(|origin| origin.0 != ORIGIN_UNKNOWN),
            durable: Lsn(u64_at(40)),
            number: u64_at(48),
        })
    }
}

/// The newest valid copy.
pub(crate) fn read(disk: &dyn Disk) -> io::Result<Found> {
    if !disk.list()?.iter().any(|name| name == MANIFEST_NAME) {
        return Ok(Found::Nothing);
    }
    let file = disk.open(MANIFEST_NAME)?;
    let mut newest: Option<Manifest> = None;
    for copy in 0..COPIES {
        let mut bytes = [0; USED_BYTES];
        let count = read_full_at(&*file, copy * BLOCK_BYTES as u64, &mut bytes)?;
        let found = Manifest::decode(&bytes[..count]);
        newest = newest.into_iter().chain(found).max_by_key(|manifest| manifest.sequence);
    }
    Ok(newest.map_or(Found::Damaged, Found::Valid))
}

/// The manifest of an open log.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    file: Arc<dyn DiskFile>,
    newest: Manifest,
    /// A write or sync has failed. A further one would replace the copy that is known to be valid.
    is_broken: bool,
}

impl ManifestFile {
    /// Creates the file, under its name only once it is durable.
    pub(crate) fn create(disk: &dyn Disk, manifest: Manifest) -> io::Result<Self> {
        if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
            disk.remove(TEMPORARY_NAME)?;
        }
        let file = disk.create_direct(TEMPORARY_NAME)?;
        for copy in 0..COPIES {
            write_all_at(&*file, copy * BLOCK_BYTES as u64, &manifest.encode())?;
        }
        file.sync()?;
        disk.rename(TEMPORARY_NAME, MANIFEST_NAME)?;
        disk.sync_dir()?;
        Ok(Self { file, newest: manifest, is_broken: false })
    }

    /// The existing file, whose newest copy is `newest`.
    pub(crate) fn open(disk: &dyn Disk, newest: Manifest) -> io::Result<Self> {
        let file = disk.open_direct(MANIFEST_NAME)?;
        Ok(Self { file, newest, is_broken: false })
    }

    /// Records that the log is durable up to `durable`, in segment `number`. Blocking: one write
    /// and one sync, if the position has grown.
    pub(crate) fn advance(&mut self, number: u64, durable: Lsn) -> io::Result<()> {
        if durable <= self.newest.durable {
            return Ok(());
        }
        if self.is_broken {
            return Err(io::Error::other("an earlier write to it has failed"));
        }
        let sequence = self.newest.sequence + 1;
        let next = Manifest { version: FORMAT_VERSION, sequence, durable, number, ..self.newest };
        let offset = sequence % COPIES * BLOCK_BYTES as u64;
        self.is_broken = true;
        write_all_at(&*self.file, offset, &next.encode())?;
        self.file.sync()?;
        self.is_broken = false;
        self.newest = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_disk::{FaultDisk, Faults};

    fn manifest(durable: u64) -> Manifest {
        Manifest::new(0xaabb, Some(Lsn(5)), Lsn(durable), 3)
    }

    #[test]
    fn bytes_are_pinned() {
        let bytes = Manifest { sequence: 9, ..manifest(0x0102_0304) }.encode();
        let mut want = b"MYRIADLM\x03\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\xbb\xaa\0\0\0\0\0\0".to_vec();
        want.extend_from_slice(
            b"\x05\0\0\0\0\0\0\0\x04\x03\x02\x01\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0",
        );
        assert_eq!(bytes[..60], want[..]);
        assert!(bytes[64..].iter().all(|&byte| byte == 0));
        for at in 0..64 {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert_eq!(Manifest::decode(&flipped), None, "byte {at}");
        }
    }

    #[test]
    fn the_newest_copy_counts_and_an_older_bound_changes_nothing() {
        let disk = FaultDisk::new(1);
        assert_eq!(read(&disk).unwrap(), Found::Nothing);
        let mut file = ManifestFile::create(&disk, manifest(10)).unwrap();
        for durable in [20, 15, 30] {
            file.advance(4, Lsn(durable)).unwrap();
        }
        let Found::Valid(newest) = read(&disk).unwrap() else { panic!("must be valid") };
        assert_eq!((newest.durable, newest.number, newest.sequence), (Lsn(30), 4, 2));
        assert_eq!(newest.origin, Some(Lsn(5)));
        assert!(disk.damage(MANIFEST_NAME, 3, 1), "copy 0 is the newest");
        let Found::Valid(older) = read(&disk).unwrap() else { panic!("copy 1 is valid") };
        assert_eq!(older.durable, Lsn(20));
        assert!(disk.damage(MANIFEST_NAME, 4096 + 3, 1));
        assert_eq!(read(&disk).unwrap(), Found::Damaged);
    }

    #[test]
    fn a_power_cut_leaves_a_valid_copy_that_is_no_older_than_the_last_sync() {
        for seed in 0..300 {
            let disk = FaultDisk::new(seed);
            let mut file = ManifestFile::create(&disk, manifest(10)).unwrap();
            let power_off_after = Some(seed % 12);
            let faults = Faults { power_off_after, sync_error: 0.2, ..Faults::default() };
            disk.set_faults(faults);
            let mut synced = 10;
            for durable in 11..20 {
                if file.advance(4, Lsn(durable)).is_ok() {
                    synced = durable;
                }
            }
            disk.power_cut();
            let Found::Valid(found) = read(&disk).unwrap() else { panic!("seed {seed}") };
            assert!(found.durable.0 >= synced, "seed {seed}");
        }
    }
}
