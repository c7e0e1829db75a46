//! Reads snapshots.

use std::io;
use std::sync::Arc;

use base::time::UnixMs;
use binlog::{Disk, DiskFile, read_full_at};
use store::{Keyspace, Params, STRIPES, load_block};

use super::format::{BLOCK_HEADER_BYTES, End, HEADER_BYTES, block_crc, le32, le64, read_header};
use super::{remove_leftover, snapshot_names};
use crate::engine::records::Progress;

/// Bytes per read of the file: most blocks are much smaller.
const READ_BYTES: usize = 1 << 20;

/// A loaded snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) keyspace: Keyspace,
    /// Log position of each stripe: the data already includes the log before it.
    pub(crate) floors: Vec<u64>,
    pub(crate) keys: u64,
    pub(crate) taken_unix_ms: u64,
    pub(crate) progress: Progress,
}

impl Snapshot {
    /// The state without a snapshot: no data, and the complete log to replay.
    pub(crate) fn none(seed: u64, now: UnixMs) -> Snapshot {
        let (keyspace, floors) = (Keyspace::new(seed), vec![0; STRIPES]);
        let (taken_unix_ms, progress) = (now.0, Progress::default());
        Snapshot { keyspace, floors, keys: 0, taken_unix_ms, progress }
    }
}

/// Reason why a snapshot cannot be used. There is no older one: publishing a snapshot removes
/// its predecessor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("could not read the data directory: {0}")]
    Io(#[from] io::Error),
    #[error(
        "{file} is damaged at offset {offset} ({what}): copy the directory away, then restore this \
         file from a backup"
    )]
    Damaged { file: String, offset: u64, what: &'static str },
}

/// Loads the newest snapshot; `None` if there is none. Removes the leftover of an interrupted one.
pub(crate) fn load(disk: &dyn Disk, params: &Params) -> Result<Option<Snapshot>, LoadError> {
    remove_leftover(disk)?;
    read(disk, params)
}

/// Like [`load`], without changing any file.
pub(crate) fn read(disk: &dyn Disk, params: &Params) -> Result<Option<Snapshot>, LoadError> {
    let Some((_, name)) = snapshot_names(disk)?.pop() else { return Ok(None) };
    let file = disk.open(&name)?;
    let size_bytes = file.size()?;
    let (pieces, used, offset) = (Vec::new(), 0, 0);
    Reader { name, file, size_bytes, pieces, used, offset, params }.load().map(Some)
}

struct Reader<'a> {
    name: String,
    file: Arc<dyn DiskFile>,
    size_bytes: u64,
    /// Bytes read ahead, and the number of them already used.
    pieces: Vec<u8>,
    used: usize,
    /// File offset of the next unused byte.
    offset: u64,
    params: &'a Params,
}

impl Reader<'_> {
    fn load(mut self) -> Result<Snapshot, LoadError> {
        let mut head = [0; HEADER_BYTES];
        self.read(&mut head)?;
        let head = read_header(&head).map_err(|what| self.damaged_at(0, what))?;
        let keyspace = Keyspace::new(head.seed);
        let (mut floors, mut keys) = (Vec::with_capacity(STRIPES), 0);
        for stripe in 0..STRIPES {
            let (floor, count) = self.load_block(&keyspace, stripe)?;
            floors.push(floor);
            keys += count;
        }
        let at = self.offset;
        let mut tail = vec![0; End::bytes_of(head.version)];
        self.read(&mut tail)?;
        let end = End::decode(&tail).filter(|end| end.keys == keys);
        let end = end.ok_or_else(|| self.damaged_at(at, "malformed end of the snapshot"))?;
        let (taken_unix_ms, progress) = (head.taken_unix_ms, end.progress);
        Ok(Snapshot { keyspace, floors, keys, taken_unix_ms, progress })
    }

    fn load_block(&mut self, keyspace: &Keyspace, stripe: usize) -> Result<(u64, u64), LoadError> {
        let at = self.offset;
        let mut head = [0; BLOCK_HEADER_BYTES];
        self.read(&mut head)?;
        let len = le64(&head[24..]);
        // Do not allocate memory for bytes that the file does not contain.
        if le32(&head) as usize != stripe || len > self.size_bytes.saturating_sub(self.offset) {
            return Err(self.damaged_at(at, "malformed block header"));
        }
        let mut bytes = vec![0; usize::try_from(len).expect("64-bit platform")];
        self.read(&mut bytes)?;
        if le32(&head[4..]) != block_crc(&head, &bytes) {
            return Err(self.damaged_at(at, "wrong block checksum"));
        }
        let keys = load_block(keyspace, self.params, &bytes)
            .map_err(|_| self.damaged_at(at, "malformed block contents"))?;
        if keys != le64(&head[16..]) {
            return Err(self.damaged_at(at, "wrong number of keys in a block"));
        }
        Ok((le64(&head[8..]), keys))
    }

    fn read(&mut self, mut wanted: &mut [u8]) -> Result<(), LoadError> {
        loop {
            let held = &self.pieces[self.used..];
            let count = held.len().min(wanted.len());
            wanted[..count].copy_from_slice(&held[..count]);
            self.used += count;
            self.offset += count as u64;
            wanted = &mut wanted[count..];
            if wanted.is_empty() {
                return Ok(());
            }
            if wanted.len() >= READ_BYTES {
                let count = read_full_at(&*self.file, self.offset, wanted)?;
                self.offset += count as u64;
                return if count == wanted.len() { Ok(()) } else { Err(self.ends_early()) };
            }
            self.pieces.resize(READ_BYTES, 0);
            let count = read_full_at(&*self.file, self.offset, &mut self.pieces)?;
            self.pieces.truncate(count);
            self.used = 0;
            if count == 0 {
                return Err(self.ends_early());
            }
        }
    }

    fn ends_early(&self) -> LoadError {
        self.damaged_at(self.offset, "unexpected end of file")
    }

    fn damaged_at(&self, offset: u64, what: &'static str) -> LoadError {
        LoadError::Damaged { file: self.name.clone(), offset, what }
    }
}
