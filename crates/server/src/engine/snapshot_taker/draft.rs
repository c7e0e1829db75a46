//! A snapshot that is being written.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use binlog::{Disk, DiskFile, Lsn, write_all_at};
use store::{Keyspace, STRIPES, SnapshotBlock};

use crate::engine::records::Progress;
use crate::engine::server_state::ServerState;
use crate::engine::snapshots::format::{End, block_header, header};
use crate::engine::snapshots::{TEMPORARY_NAME, file_name, remove_leftover, snapshot_names};

/// Approximate bytes per write. Between two writes the disk space and a shutdown request are
/// checked.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes that may wait for the final sync, which bounds the delay of abandoning a snapshot.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;
/// Log files that a snapshot leaves space for: writes would stop without them.
const LOG_SEGMENTS_KEPT: u64 = 2;
/// Memory per byte of the file: small values take at most twice their size in the file.
const MEMORY_PER_BYTE: u64 = 2;

#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

pub(super) enum Step {
    More,
    WaitsForLog,
    Done(Written),
}

/// Bytes to be written to a file in large pieces.
#[derive(Debug)]
struct Pieces {
    file: Arc<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    stop: Arc<AtomicBool>,
    buffer: Vec<u8>,
    offset: u64,
    synced: u64,
    /// Disk bytes that a snapshot must not use.
    kept_bytes: u64,
}

impl Pieces {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < WRITE_BYTES {
            self.buffer.extend_from_slice(bytes);
            return if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) };
        }
        self.flush()?;
        bytes.chunks(WRITE_BYTES).try_for_each(|piece| self.write(piece))
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        check_not_stopped(&self.stop)?;
        check_room(&*self.disk, bytes.len() as u64, self.kept_bytes)?;
        write_all_at(&*self.file, self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        if self.offset - self.synced >= UNSYNCED_BYTES_MAX { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.synced = self.offset;
        Ok(())
    }
}

fn check_not_stopped(stop: &AtomicBool) -> io::Result<()> {
    if stop.load(Ordering::SeqCst) {
        return Err(io::Error::new(ErrorKind::Interrupted, "the server is stopping"));
    }
    Ok(())
}

fn check_room(disk: &dyn Disk, needed: u64, kept: u64) -> io::Result<()> {
    match disk.free_bytes()? {
        Some(free) if free < needed.saturating_add(kept) => {
            let text = format!(
                "the disk has {free} free bytes: the snapshot needs {needed} more, and {kept} are \
                 kept for the log"
            );
            Err(io::Error::new(ErrorKind::StorageFull, text))
        }
        _ => Ok(()),
    }
}

/// A snapshot that is being written under a temporary name.
#[derive(Debug)]
pub(super) struct Draft {
    pieces: Pieces,
    block: SnapshotBlock,
    next_stripe: usize,
    keys: u64,
    /// See [`Progress::stream_position`].
    stream_position: u64,
    /// Lowest and highest log position of a stripe.
    first: u64,
    last: u64,
    is_whole: bool,
}

/// Writes data that does not change meanwhile, as of a position beyond the whole log.
pub(crate) fn write_whole(
    disk: &Arc<dyn Disk>,
    keyspace: &Keyspace,
    position: u64,
    progress: Progress,
) -> io::Result<()> {
    remove_leftover(&**disk)?;
    let mut draft = Draft::begin(Arc::clone(disk), Arc::default(), keyspace.seed(), 0)?;
    while draft.next_stripe < STRIPES {
        draft.put_stripe(keyspace, || position)?;
    }
    draft.end(progress)?;
    draft.name()
}

impl Draft {
    pub(super) fn create(shared: &ServerState) -> io::Result<Draft> {
        let disk = Arc::clone(&shared.snapshots.disk);
        let kept_bytes = LOG_SEGMENTS_KEPT * shared.settings.load().log_segment_bytes;
        remove_leftover(&*disk)?;
        // Fails early if the snapshot cannot fit.
        let expected_bytes = shared.memory.store.current_bytes() / MEMORY_PER_BYTE;
        check_room(&*disk, expected_bytes, kept_bytes)?;
        let stop = Arc::clone(&shared.snapshots.stop);
        Self::begin(disk, stop, shared.keyspace.seed(), kept_bytes)
    }

    fn begin(
        disk: Arc<dyn Disk>,
        stop: Arc<AtomicBool>,
        seed: u64,
        kept_bytes: u64,
    ) -> io::Result<Draft> {
        let file = disk.create(TEMPORARY_NAME)?;
        let buffer = header(seed, crate::engine::clock::unix_now()).to_vec();
        let pieces = Pieces { file, disk, stop, buffer, offset: 0, synced: 0, kept_bytes };
        let block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
        Ok(Draft {
            pieces,
            block,
            next_stripe: 0,
            keys: 0,
            stream_position: 0,
            first: u64::MAX,
            last: 0,
            is_whole: false,
        })
    }

    pub(super) fn step(&mut self, shared: &ServerState) -> io::Result<Step> {
        check_not_stopped(&self.pieces.stop)?;
        if self.next_stripe < STRIPES {
            // The position in the stream is that of the oldest block, where recovery begins: the
            // records after it name theirs. No record is applied while it is locked.
            let applied = (self.next_stripe == 0).then(|| shared.replication.applied());
            self.stream_position = applied.as_ref().map_or(self.stream_position, |at| **at);
            self.put_stripe(&shared.keyspace, || shared.log.next().0)?;
            return Ok(Step::More);
        }
        if !self.is_whole {
            // Taken after the last block: no write in the blocks has a newer timestamp.
            let newest_timestamp = shared.write_clock.newest();
            self.end(Progress { newest_timestamp, stream_position: self.stream_position })?;
            self.is_whole = true;
        }
        // Records below `last` may not have reached a lane yet; `next` already counts them.
        if shared.log.durable().0 < self.last {
            if let Some(cause) = shared.log.poisoned() {
                return Err(io::Error::other(cause.to_string()));
            }
            shared.log.request_sync(Lsn(self.last));
            return Ok(Step::WaitsForLog);
        }
        self.publish(shared)?;
        Ok(Step::Done(Written { keys: self.keys, bytes: self.pieces.offset }))
    }

    fn put_stripe(
        &mut self,
        keyspace: &Keyspace,
        position: impl FnOnce() -> u64,
    ) -> io::Result<()> {
        let Draft { block, pieces, .. } = self;
        keyspace.snapshot_stripe(self.next_stripe, position, block);
        pieces.put(&block_header(block))?;
        pieces.put(&block.bytes)?;
        self.next_stripe += 1;
        self.keys += block.keys;
        self.first = self.first.min(block.lsn);
        self.last = self.last.max(block.lsn);
        Ok(())
    }

    fn end(&mut self, progress: Progress) -> io::Result<()> {
        self.pieces.put(&End { keys: self.keys, progress }.encode())?;
        self.pieces.flush()?;
        self.pieces.sync()
    }

    /// Renames the file to its final name, which makes the snapshot valid.
    fn name(&self) -> io::Result<()> {
        self.pieces.disk.rename(TEMPORARY_NAME, &file_name(self.first))?;
        self.pieces.disk.sync_dir()
    }

    /// Publishes the snapshot under its final name, then frees what it replaces.
    fn publish(&self, shared: &ServerState) -> io::Result<()> {
        self.name()?;
        let disk = &*self.pieces.disk;
        let names = snapshot_names(disk)?;
        for (_, old) in names.into_iter().filter(|(position, _)| *position < self.first) {
            disk.remove(&old)?;
        }
        shared.log.truncate_before(Lsn(self.first.min(backlog_start(shared))))
    }
}
/// Where the part of the log begins that replicas may continue from after a disconnect. Without
/// replicas so far there is none, as in Redis.
fn backlog_start(shared: &ServerState) -> u64 {
    if shared.replication.epochs().0.is_none() {
        return u64::MAX;
    }
    let bytes = shared.settings.load().repl_backlog_bytes;
    shared.log.next().0.saturating_sub(bytes)
}
