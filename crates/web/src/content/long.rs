//! A file that is too long to be cached: the kernel sends it from the page cache, one piece at a
//! time.
//!
//! `sendfile` blocks its caller if the data is not in memory. A piece is therefore sent only when
//! it is in memory, and otherwise loaded first by a thread that may block.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::MonoNs;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

/// Unit of checking, loading and sending: a disk reads this much in a few milliseconds.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// A piece that was in memory this recently is assumed to be there still.
const FRESH_NS: u64 = 1_000_000_000;
/// Pieces of a file for which this time is recorded, 8 bytes each; later pieces are checked every
/// time.
const PIECES_NOTED_MAX: u64 = 1024;
/// Distance of the probed bytes: the kernel reads and evicts larger runs.
const STEP_BYTES: usize = 32 << 10;
/// Size of a read while loading a piece.
const READ_BYTES: usize = 256 << 10;

/// Identifies a piece of an open file.
pub(crate) type PieceKey = (RawFd, u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct LongFile {
    fd: Arc<OwnedFd>,
    bytes: u64,
    /// When each of the first pieces was last found in memory; 0: never.
    seen_ns: Box<[AtomicU64]>,
}

impl LongFile {
    pub(crate) fn new(fd: OwnedFd, bytes: u64) -> LongFile {
        let noted = bytes.div_ceil(PIECE_BYTES).min(PIECES_NOTED_MAX);
        let seen_ns = (0..noted).map(|_| AtomicU64::new(0)).collect();
        // Disables readahead for sending: loading does it. The advice may fail without
        // consequences, as below.
        let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        LongFile { fd: Arc::new(fd), bytes, seen_ns }
    }

    /// Reads the whole file, which may block. It is shorter if the file was truncated.
    pub(crate) fn read_all(&self) -> rustix::io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.bytes).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::io::pread(&self.fd, &mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Returns the piece that contains the byte at `offset`.
    pub(crate) fn piece_of(offset: u64) -> u64 {
        offset / PIECE_BYTES
    }

    pub(crate) fn key(&self, piece: u64) -> PieceKey {
        (self.fd.as_raw_fd(), piece)
    }

    /// Returns the end offset of a piece.
    pub(crate) fn end_of(&self, piece: u64) -> u64 {
        piece.saturating_add(1).saturating_mul(PIECE_BYTES).min(self.bytes)
    }

    /// Whether a piece is in the page cache. Free if it was found within the last second, else one
    /// system call per 32 KiB. If the file system does not support the check, only the recorded
    /// times count.
    pub(crate) fn is_in_memory(&self, piece: u64, now: MonoNs) -> bool {
        let seen_ns = self.noted(piece).map_or(0, |seen| seen.load(Ordering::Relaxed));
        if seen_ns != 0 && now.since(MonoNs(seen_ns)) < FRESH_NS {
            return true;
        }
        let end = self.end_of(piece);
        let places = (piece.saturating_mul(PIECE_BYTES)..end).step_by(STEP_BYTES);
        let is_there = places.chain(end.checked_sub(1)).all(|place| self.has(place));
        if is_there {
            self.note_in_memory(piece, now);
        }
        is_there
    }

    /// Records that a piece is in memory.
    pub(crate) fn note_in_memory(&self, piece: u64, now: MonoNs) {
        if let Some(seen) = self.noted(piece) {
            seen.store(now.0.max(1), Ordering::Relaxed);
        }
    }

    fn noted(&self, piece: u64) -> Option<&AtomicU64> {
        self.seen_ns.get(usize::try_from(piece).ok()?)
    }

    /// Whether the byte at `place` can be read without blocking.
    // Source: readv(2), RWF_NOWAIT
    fn has(&self, place: u64) -> bool {
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        loop {
            match rustix::io::preadv2(&self.fd, &mut parts, place, ReadWriteFlags::NOWAIT) {
                // Includes a truncated file, which does not require waiting.
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Loads a piece into memory, blocking for the disk. With `has_next` the kernel reads the next
    /// one ahead.
    pub(crate) fn load(&self, piece: u64, has_next: bool) -> Result<(), Errno> {
        let end = self.end_of(piece);
        let mut at = piece.saturating_mul(PIECE_BYTES);
        let ahead = if has_next { 2 * PIECE_BYTES } else { PIECE_BYTES };
        let _ = rustix::fs::fadvise(&self.fd, at, NonZeroU64::new(ahead), Advice::WillNeed);
        let mut bytes = vec![0; READ_BYTES];
        while at < end {
            match rustix::io::pread(&self.fd, &mut bytes[..], at) {
                // The file was truncated; the sender detects that.
                Ok(0) => break,
                Ok(count) => at += count as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn long(name: &str, bytes: u64) -> LongFile {
        let name = format!("myriad-web-long-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, vec![7; usize::try_from(bytes).unwrap()]).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        LongFile::new(file.into(), bytes)
    }

    #[test]
    fn files_fall_into_pieces() {
        let file = long("pieces", 2 * PIECE_BYTES + 5);
        assert_eq!(file.seen_ns.len(), 3);
        assert_eq!((file.end_of(0), file.end_of(2)), (PIECE_BYTES, 2 * PIECE_BYTES + 5));
        let places = [0, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + 4];
        assert_eq!(places.map(LongFile::piece_of), [0, 0, 1, 2]);
        assert_ne!(file.key(0), file.key(1));
        let huge = LongFile::new(File::open("/dev/null").unwrap().into(), u64::MAX);
        assert_eq!(huge.seen_ns.len() as u64, PIECES_NOTED_MAX);
        assert_eq!(huge.end_of(LongFile::piece_of(u64::MAX - 1)), u64::MAX);
    }

    #[test]
    fn a_check_is_valid_for_a_second() {
        let file = long("seen", 3 * PIECE_BYTES);
        // The file system may not support the check; then recorded times count.
        file.note_in_memory(1, MonoNs(7));
        assert!(file.is_in_memory(1, MonoNs(7)));
        assert!(file.is_in_memory(1, MonoNs(6 + FRESH_NS)));
        let knows = file.has(0);
        assert_eq!(file.is_in_memory(1, MonoNs(7 + FRESH_NS)), knows);
        file.load(2, true).unwrap();
        assert_eq!(file.is_in_memory(2, MonoNs(1)), knows);
    }
}
