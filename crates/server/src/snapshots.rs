//! Snapshots: the whole data in one file, taken stripe by stripe while the server works, so that the
//! log before it can go.
//!
//! The format is `docs/snapshot-format.md`. A snapshot counts once it has its final name, which it
//! gets after it is synced, and after the log is durable up to the newest position it contains: it
//! must never hold a write that the log may still lose, least of all half of a transaction.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::time::{MonoNs, UnixMs};
use binlog::{Disk, DiskFile, Lsn, read_full_at, write_all_at};
use parking_lot::Mutex;
use store::{Keyspace, Params, STRIPES, SnapshotBlock, load_block};

use crate::config::Settings;
use crate::shared::{Mail, Shared};

const MAGIC: &[u8; 8] = b"MYRSNAP\x01";
const END_MAGIC: &[u8; 8] = b"MYRSNEND";
const HEADER_BYTES: usize = 40;
const BLOCK_HEADER_BYTES: usize = 32;
const END_BYTES: usize = 24;
const TEMPORARY_NAME: &str = "snapshot.tmp";
/// Blocks are gathered to writes of about this size.
const WRITE_BYTES: usize = 1 << 20;
/// A stripe larger than this is damage, not data: 4,096 of them would be 64 TiB.
const BLOCK_BYTES_MAX: u64 = 16 << 30;

/// One snapshot was, is or will be running.
#[derive(Debug, Default, Clone)]
pub(crate) struct SnapshotStatus {
    /// Number of the one that runs.
    pub(crate) running: Option<u64>,
    pub(crate) last_number: u64,
    pub(crate) last_ok: bool,
    pub(crate) last_unix_ms: u64,
    pub(crate) last_took_ms: u64,
    pub(crate) last_bytes: u64,
    pub(crate) last_keys: u64,
    pub(crate) finished: u64,
    pub(crate) succeeded: u64,
    /// When the one that runs, or the last one, began.
    pub(crate) began: MonoNs,
    /// Records in the log when the last good one began: what it may not contain came after.
    pub(crate) records_before: u64,
    /// The log's position when the last one began.
    log_position: u64,
}

/// A snapshot is running already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AlreadyRunning;

#[derive(Debug)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    status: Mutex<SnapshotStatus>,
    requests: Mutex<Option<SyncSender<u64>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Snapshots {
    /// `last_unix_ms`: when the snapshot was taken that the data came from, or the start.
    pub(crate) fn new(disk: Arc<dyn Disk>, last_unix_ms: u64, log_position: u64) -> Snapshots {
        let status = SnapshotStatus {
            last_ok: true,
            last_unix_ms,
            log_position,
            ..SnapshotStatus::default()
        };
        Snapshots {
            disk,
            status: Mutex::new(status),
            requests: Mutex::new(None),
            thread: Mutex::new(None),
        }
    }

    /// Starts the thread that takes them.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let taker = self.taker();
        let of_thread = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || run(&of_thread, taker))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// The worker that takes them; from now on they can be asked for. One per server.
    pub(crate) fn taker(&self) -> Taker {
        let (sender, requests) = sync_channel(1);
        *self.requests.lock() = Some(sender);
        Taker { requests, running: None }
    }

    /// Waits for a running snapshot and ends the thread.
    pub(crate) fn stop(&self) {
        self.requests.lock().take();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the snapshot thread panicked");
        }
    }

    pub(crate) fn status(&self) -> SnapshotStatus {
        self.status.lock().clone()
    }

    /// Begins a snapshot. Returns its number; [`Mail::SnapshotDone`] will name it.
    pub(crate) fn begin(&self, log_position: u64) -> Result<u64, AlreadyRunning> {
        let mut status = self.status.lock();
        if status.running.is_some() {
            return Err(AlreadyRunning);
        }
        let number = status.last_number + 1;
        let requests = self.requests.lock();
        let sender = requests.as_ref().ok_or(AlreadyRunning)?;
        sender.try_send(number).map_err(|_| AlreadyRunning)?;
        status.running = Some(number);
        status.last_number = number;
        status.log_position = log_position;
        Ok(number)
    }

    /// Begins one when enough log has gathered since the last.
    pub(crate) fn consider(&self, shared: &Shared, settings: &Settings) {
        let limit_bytes = settings.snapshot_log_bytes;
        let next = shared.log.next().0;
        let gathered_bytes = next.saturating_sub(self.status.lock().log_position);
        if limit_bytes > 0 && gathered_bytes >= limit_bytes && shared.log.poisoned().is_none() {
            // Another one may have begun in between: then there is nothing to do.
            if let Ok(number) = self.begin(next) {
                tracing::info!(number, gathered_bytes, "the log has grown: taking a snapshot");
            }
        }
    }
}

fn run(shared: &Shared, mut taker: Taker) {
    const PAUSE: Duration = Duration::from_millis(1);
    while let Ok(number) = taker.requests.recv() {
        taker.begin(shared, number);
        loop {
            match taker.step(shared) {
                Progress::More => {}
                Progress::WaitsForLog => std::thread::sleep(PAUSE),
                Progress::Idle => break,
            }
        }
    }
}

/// Takes the snapshots that are asked for, in small steps: the thread's work without the thread.
#[derive(Debug)]
pub(crate) struct Taker {
    requests: Receiver<u64>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    began: MonoNs,
    records_before: u64,
    /// None before the first step.
    file: Option<Draft>,
}

/// What [`Taker::step`] has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is no snapshot to take.
    Idle,
    More,
    /// Nothing, before the log is durable up to what the snapshot holds.
    WaitsForLog,
}

impl Taker {
    /// Begins the snapshot that was asked for, if there is one.
    #[cfg(test)]
    pub(crate) fn take_request(&mut self, shared: &Shared) {
        if self.running.is_none()
            && let Ok(number) = self.requests.try_recv()
        {
            self.begin(shared, number);
        }
    }

    fn begin(&mut self, shared: &Shared, number: u64) {
        let began = crate::clock::mono_now();
        shared.snapshots.status.lock().began = began;
        let records_before = shared.log.stats().records;
        self.running = Some(Running { number, began, records_before, file: None });
    }

    /// Writes the next part of the snapshot that was begun.
    pub(crate) fn step(&mut self, shared: &Shared) -> Progress {
        let Some(running) = &mut self.running else { return Progress::Idle };
        let ended = match running.step(&*shared.snapshots.disk, shared) {
            Ok(Step::More) => return Progress::More,
            Ok(Step::WaitsForLog) => return Progress::WaitsForLog,
            Ok(Step::Done(written)) => Ok(written),
            Err(error) => Err(error),
        };
        running.end(shared, ended);
        self.running = None;
        Progress::Idle
    }
}

impl Running {
    fn step(&mut self, disk: &dyn Disk, shared: &Shared) -> io::Result<Step> {
        match &mut self.file {
            Some(draft) => draft.step(disk, shared),
            empty => {
                *empty = Some(Draft::create(disk, shared.keyspace.seed())?);
                Ok(Step::More)
            }
        }
    }

    fn end(&self, shared: &Shared, ended: io::Result<Written>) {
        let number = self.number;
        let took_ms = crate::clock::mono_now().since(self.began) / 1_000_000;
        let ok = ended.is_ok();
        let mut status = shared.snapshots.status.lock();
        status.running = None;
        status.last_ok = ok;
        status.last_took_ms = took_ms;
        status.finished += 1;
        match ended {
            Ok(written) => {
                status.succeeded += 1;
                status.records_before = self.records_before;
                status.last_unix_ms = crate::clock::unix_now().0;
                status.last_bytes = written.bytes;
                status.last_keys = written.keys;
                let (keys, bytes) = (written.keys, written.bytes);
                tracing::info!(number, keys, bytes, took_ms, "snapshot taken");
            }
            Err(error) => tracing::error!(number, %error, "snapshot failed"),
        }
        drop(status);
        shared.broadcast(&Mail::SnapshotDone { number, ok });
    }
}

#[derive(Debug, Clone, Copy)]
struct Written {
    keys: u64,
    bytes: u64,
}

/// Bytes on their way into a file, in large pieces.
#[derive(Debug)]
struct Pieces {
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    offset: u64,
}

impl Pieces {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all_at(&*self.file, self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn file_name(position: u64) -> String {
    format!("snapshot-{position:020}.myr")
}

fn position_of(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-")?.strip_suffix(".myr")?.parse().ok()
}

fn snapshot_names(disk: &dyn Disk) -> io::Result<Vec<(u64, String)>> {
    let mut names: Vec<(u64, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| position_of(&name).map(|position| (position, name)))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// A snapshot that is being written and has no name yet.
#[derive(Debug)]
struct Draft {
    pieces: Pieces,
    block: SnapshotBlock,
    next_stripe: usize,
    keys: u64,
    /// Lowest and highest position of a stripe.
    first: u64,
    last: u64,
    is_synced: bool,
}

enum Step {
    More,
    WaitsForLog,
    Done(Written),
}

impl Draft {
    fn create(disk: &dyn Disk, seed: u64) -> io::Result<Draft> {
        if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
            disk.remove(TEMPORARY_NAME)?;
        }
        let file = disk.create(TEMPORARY_NAME)?;
        let mut pieces = Pieces { file, buffer: Vec::new(), offset: 0 };
        pieces.put(&header(seed, crate::clock::unix_now()))?;
        let block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
        Ok(Draft {
            pieces,
            block,
            next_stripe: 0,
            keys: 0,
            first: u64::MAX,
            last: 0,
            is_synced: false,
        })
    }

    fn step(&mut self, disk: &dyn Disk, shared: &Shared) -> io::Result<Step> {
        if self.next_stripe < STRIPES {
            self.put_stripe(shared)?;
            return Ok(Step::More);
        }
        if !self.is_synced {
            self.pieces.put(&end(self.keys))?;
            self.pieces.flush()?;
            self.pieces.file.sync()?;
            self.is_synced = true;
        }
        // Records below `last` may still be on their way into a lane; `next` counts them already.
        if shared.log.durable().0 < self.last {
            if let Some(cause) = shared.log.poisoned() {
                return Err(io::Error::other(cause.to_string()));
            }
            shared.log.request_sync(Lsn(self.last));
            return Ok(Step::WaitsForLog);
        }
        self.publish(disk, shared)?;
        Ok(Step::Done(Written { keys: self.keys, bytes: self.pieces.offset }))
    }

    fn put_stripe(&mut self, shared: &Shared) -> io::Result<()> {
        let Draft { block, pieces, .. } = self;
        shared.keyspace.snapshot_stripe(self.next_stripe, || shared.log.next().0, block);
        pieces.put(&block_header(block))?;
        pieces.put(&block.bytes)?;
        self.next_stripe += 1;
        self.keys += block.keys;
        self.first = self.first.min(block.lsn);
        self.last = self.last.max(block.lsn);
        Ok(())
    }

    /// Gives it its name; then what it replaces can go.
    fn publish(&self, disk: &dyn Disk, shared: &Shared) -> io::Result<()> {
        disk.rename(TEMPORARY_NAME, &file_name(self.first))?;
        disk.sync_dir()?;
        let names = snapshot_names(disk)?;
        for (_, old) in names.into_iter().filter(|(position, _)| *position < self.first) {
            disk.remove(&old)?;
        }
        shared.log.truncate_before(Lsn(self.first))
    }
}

fn header(seed: u64, now: UnixMs) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&seed.to_le_bytes());
    bytes[16..24].copy_from_slice(&(STRIPES as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&now.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..32]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn block_header(block: &SnapshotBlock) -> [u8; BLOCK_HEADER_BYTES] {
    let mut bytes = [0; BLOCK_HEADER_BYTES];
    let stripe = u32::try_from(block.stripe).expect("STRIPES fits u32");
    bytes[..4].copy_from_slice(&stripe.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.lsn.to_le_bytes());
    bytes[16..24].copy_from_slice(&block.keys.to_le_bytes());
    bytes[24..32].copy_from_slice(&(block.bytes.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[8..]), &block.bytes);
    let crc = crc32c::crc32c_append(crc, &stripe.to_le_bytes());
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn end(keys: u64) -> [u8; END_BYTES] {
    let mut bytes = [0; END_BYTES];
    bytes[..8].copy_from_slice(END_MAGIC);
    bytes[8..16].copy_from_slice(&keys.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A snapshot that was read back.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) keyspace: Keyspace,
    /// By stripe: what the log holds before this position is in the data already.
    pub(crate) floors: Vec<u64>,
    pub(crate) keys: u64,
    pub(crate) taken_unix_ms: u64,
}

/// Why a snapshot cannot be used. There is no second one: what it replaced is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("reading the data directory: {0}")]
    Io(#[from] io::Error),
    #[error(
        "{file} is damaged at offset {offset} ({what}): copy the directory away, then restore this \
         file from a backup"
    )]
    Damaged { file: String, offset: u64, what: &'static str },
}

/// Loads the newest snapshot; `None` when there is none. Removes what an interrupted one left.
pub(crate) fn load(disk: &dyn Disk, params: &Params) -> Result<Option<Loaded>, LoadError> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
        disk.remove(TEMPORARY_NAME)?;
    }
    let Some((_, name)) = snapshot_names(disk)?.pop() else { return Ok(None) };
    let file = disk.open(&name)?;
    Reader { name, file, offset: 0, params }.load().map(Some)
}

struct Reader<'a> {
    name: String,
    file: Arc<dyn DiskFile>,
    offset: u64,
    params: &'a Params,
}

impl Reader<'_> {
    fn load(mut self) -> Result<Loaded, LoadError> {
        let head: [u8; HEADER_BYTES] = self.take()?;
        let crc_fits = le32(&head[32..]) == crc32c::crc32c(&head[..32]);
        if &head[..8] != MAGIC || !crc_fits {
            return Err(self.damaged("not the header of a snapshot of this version"));
        }
        if le64(&head[16..]) != STRIPES as u64 {
            return Err(self.damaged("another number of stripes"));
        }
        let keyspace = Keyspace::new(le64(&head[8..]));
        let (mut floors, mut keys) = (Vec::with_capacity(STRIPES), 0);
        for stripe in 0..STRIPES {
            let (floor, count) = self.load_block(&keyspace, stripe)?;
            floors.push(floor);
            keys += count;
        }
        let tail: [u8; END_BYTES] = self.take()?;
        let crc_fits = le32(&tail[16..]) == crc32c::crc32c(&tail[..16]);
        if &tail[..8] != END_MAGIC || !crc_fits || le64(&tail[8..]) != keys {
            return Err(self.damaged("not the end of a snapshot"));
        }
        Ok(Loaded { keyspace, floors, keys, taken_unix_ms: le64(&head[24..]) })
    }

    fn load_block(&mut self, keyspace: &Keyspace, stripe: usize) -> Result<(u64, u64), LoadError> {
        let head: [u8; BLOCK_HEADER_BYTES] = self.take()?;
        let len = le64(&head[24..]);
        let left = self.file.size()?.saturating_sub(self.offset);
        if le32(&head) as usize != stripe || len > BLOCK_BYTES_MAX.min(left) {
            return Err(self.damaged("not the header of the next block"));
        }
        let mut bytes = vec![0; usize::try_from(len).expect("64-bit platform")];
        self.read(&mut bytes)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[8..]), &bytes);
        if le32(&head[4..]) != crc32c::crc32c_append(crc, &head[..4]) {
            return Err(self.damaged("checksum of a block"));
        }
        let keys = load_block(keyspace, self.params, &bytes)
            .map_err(|_| self.damaged("contents of a block"))?;
        if keys != le64(&head[16..]) {
            return Err(self.damaged("number of keys of a block"));
        }
        Ok((le64(&head[8..]), keys))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), LoadError> {
        if read_full_at(&*self.file, self.offset, bytes)? < bytes.len() {
            return Err(self.damaged("the file ends too early"));
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> LoadError {
        LoadError::Damaged { file: self.name.clone(), offset: self.offset, what }
    }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}
