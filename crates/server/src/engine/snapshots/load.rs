//! Reads snapshots.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use base::time::UnixMs;
use binlog::{Disk, DiskFile, read_full_at};
use store::{Keyspace, Params, STRIPES, load_block};

use super::format::{BLOCK_HEADER_BYTES, End, HEADER_BYTES, block_crc, le32, le64, read_header};
use super::{remove_leftover, snapshot_names};
use crate::engine::records::Progress;

/// Bytes of blocks that a thread is sent at a time, or a larger block: most are much smaller.
const PART_BYTES: usize = 256 << 10;
/// Parts that wait for a thread.
const PARTS_MAX: usize = 1;

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

/// Loads the newest snapshot by `threads` threads; `None` if there is none. Removes the leftover of
/// an interrupted one.
pub(crate) fn load(
    disk: &dyn Disk,
    params: &Params,
    threads: usize,
) -> Result<Option<Snapshot>, LoadError> {
    remove_leftover(disk)?;
    read(disk, params, threads)
}

/// Like [`load`], without changing any file.
pub(crate) fn read(
    disk: &dyn Disk,
    params: &Params,
    threads: usize,
) -> Result<Option<Snapshot>, LoadError> {
    let Some((_, name)) = snapshot_names(disk)?.pop() else { return Ok(None) };
    let file = disk.open(&name)?;
    let size_bytes = file.size()?;
    let (pieces, used, offset) = (Vec::new(), 0, 0);
    Reader { name, file, size_bytes, pieces, used, offset, params }.load(threads).map(Some)
}

/// The data of one stripe, as the file has it.
struct Block {
    /// Where it begins in the file.
    at: u64,
    head: [u8; BLOCK_HEADER_BYTES],
    bytes: Vec<u8>,
}

impl Block {
    fn keys(&self) -> u64 {
        le64(&self.head[16..])
    }

    fn load(&self, keyspace: &Keyspace, params: &Params) -> Result<(), &'static str> {
        if le32(&self.head[4..]) != block_crc(&self.head, &self.bytes) {
            return Err("wrong block checksum");
        }
        let keys =
            load_block(keyspace, params, &self.bytes).map_err(|_| "malformed block contents")?;
        if keys == self.keys() { Ok(()) } else { Err("wrong number of keys in a block") }
    }
}

/// A damaged block: where it begins, and what is wrong.
type Fault = (u64, &'static str);

/// Loads blocks until there are no more, or one is damaged.
fn load_blocks(
    parts: &Receiver<Vec<Block>>,
    keyspace: &Keyspace,
    params: &Params,
) -> Result<(), Fault> {
    parts
        .iter()
        .flatten()
        .try_for_each(|block| block.load(keyspace, params).map_err(|what| (block.at, what)))
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
    fn load(mut self, threads: usize) -> Result<Snapshot, LoadError> {
        let mut head = [0; HEADER_BYTES];
        self.read(&mut head)?;
        let head = read_header(&head).map_err(|what| self.damaged_at(0, what))?;
        let keyspace = Keyspace::new(head.seed);
        let (floors, keys) = self.load_stripes(&keyspace, threads)?;
        let at = self.offset;
        let mut tail = vec![0; End::bytes_of(head.version)];
        self.read(&mut tail)?;
        let end = End::decode(&tail).filter(|end| end.keys == keys);
        let end = end.ok_or_else(|| self.damaged_at(at, "malformed end of the snapshot"))?;
        let (taken_unix_ms, progress) = (head.taken_unix_ms, end.progress);
        Ok(Snapshot { keyspace, floors, keys, taken_unix_ms, progress })
    }

    /// Reads the blocks of all stripes, which `threads` threads check and load. Returns the log
    /// position of each stripe, and the number of all keys.
    fn load_stripes(
        &mut self,
        keyspace: &Keyspace,
        threads: usize,
    ) -> Result<(Vec<u64>, u64), LoadError> {
        thread::scope(|scope| {
            let start = || {
                let (sender, parts) = sync_channel(PARTS_MAX);
                let params = self.params.clone();
                (sender, scope.spawn(move || load_blocks(&parts, keyspace, &params)))
            };
            let (senders, loaders): (Vec<SyncSender<Vec<Block>>>, Vec<_>) =
                (0..threads.max(1)).map(|_| start()).unzip();
            let (mut floors, mut keys) = (Vec::with_capacity(STRIPES), 0);
            let mut read = Ok(());
            for sender in senders.iter().cycle() {
                let part;
                (part, read) = self.read_part(floors.len());
                floors.extend(part.iter().map(|block| le64(&block.head[8..])));
                // Not checked yet.
                keys = part.iter().map(Block::keys).fold(keys, u64::wrapping_add);
                let has_fault = sender.send(part).is_err();
                if has_fault || read.is_err() || floors.len() == STRIPES {
                    break;
                }
            }
            drop(senders);
            let faults = loaders
                .into_iter()
                .filter_map(|loader| loader.join().expect("a damaged block is an error").err());
            // The first fault of the file, as if it were read by one thread.
            match faults.min() {
                Some((at, what)) => Err(self.damaged_at(at, what)),
                None => read.map(|()| (floors, keys)),
            }
        })
    }

    /// Reads the blocks of some stripes, from `first` on, and the error that ended them early.
    fn read_part(&mut self, first: usize) -> (Vec<Block>, Result<(), LoadError>) {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for stripe in first..STRIPES {
            match self.read_block(stripe) {
                Ok(block) => {
                    bytes += BLOCK_HEADER_BYTES + block.bytes.len();
                    part.push(block);
                }
                Err(error) => return (part, Err(error)),
            }
            if bytes >= PART_BYTES {
                break;
            }
        }
        (part, Ok(()))
    }

    fn read_block(&mut self, stripe: usize) -> Result<Block, LoadError> {
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
        Ok(Block { at, head, bytes })
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
