//! Readers that follow the log: replicas and change feeds.
//!
//! A follower reads only what the writer has published. The end of a file means nothing to it; it
//! continues with the next segment at the position where that segment starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;

use crate::disk::read_full_at;
use crate::log::Log;
use crate::record::{self, Header, KIND_MARK, Lsn, Mark, RECORD_HEADER_BYTES, Record};
use crate::segment::{Segment, file_name};
use crate::slot::{Scope, Signal, Slot};
use crate::to_usize;
use crate::waiter::Waiter;

/// Why a follower cannot continue.
#[derive(Debug, Error)]
pub enum FollowError {
    #[error("position {from} has been truncated: the log starts at {first}")]
    Truncated { from: Lsn, first: Lsn },
    #[error("position {from} is beyond the end of the log, {end}")]
    Beyond { from: Lsn, end: Lsn },
    #[error("no valid record at {at} in {file}: damaged, or not a position where a record starts")]
    Damaged { at: Lsn, file: String },
    #[error(
        "the follower at position {at} lagged by more than {lag_bytes_max} bytes and was disconnected: \
         start again from a snapshot"
    )]
    TooFarBehind { at: Lsn, lag_bytes_max: u64 },
    #[error("could not read {file}: {source}")]
    Read { file: String, source: io::Error },
}

/// Approximate size of a batch; a larger record forms a batch of its own.
const BATCH_BYTES: u64 = 256 << 10;
const _: () = assert!(BATCH_BYTES >= RECORD_HEADER_BYTES as u64, "a batch shows a record's length");

/// Reads the log from a position on. Keeps the segments that it has not read, unless it lags by
/// more than [`Options::follower_lag_bytes_max`](crate::Options). `LogStats::follower_lag_bytes`
/// reports the lag.
#[derive(Debug)]
pub struct Follower {
    log: Arc<Log>,
    slot: Arc<Slot>,
}

/// Whole, verified records that follow each other, in a buffer that is reused.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    start: Lsn,
    end: Lsn,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Capacity of the buffer for the next records.
    pub fn bytes_held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees the memory of a large record, and drops the contents of the batch.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() > to_usize(BATCH_BYTES) {
            self.bytes = Vec::new();
        }
    }

    /// Where the first record starts.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Where the last record ends: the position at which to continue.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The users' records in order; the log's own marks are left out.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.all().filter(|record| record.kind != KIND_MARK)
    }

    /// The log's own marks in order. A mark is in a later group than what it describes.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.all().filter_map(|record| Mark::read(&record))
    }

    fn all(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = &self.bytes[..];
        let mut start = self.start;
        std::iter::from_fn(move || {
            let header = Header::decode(rest)?;
            let (bytes, behind) = rest.split_at(header.record_bytes());
            let end = Lsn(start.0 + bytes.len() as u64);
            let record = header.record(start, end, &bytes[RECORD_HEADER_BYTES..]);
            (rest, start) = (behind, end);
            Some(record)
        })
    }
}

impl Log {
    /// Returns a reader that starts at `from`, which must be the start of a record or the end of
    /// the log. The records from there on are kept until the follower is dropped or lags too far.
    pub fn follow(self: &Arc<Self>, from: Lsn, scope: Scope) -> Result<Follower, FollowError> {
        let signal = Arc::new(Signal::default());
        let slot = Arc::new(Slot {
            position: AtomicU64::new(from.0),
            is_abandoned: AtomicBool::new(false),
            scope,
            waiter: Waiter::new(),
            signal: Arc::clone(&signal),
        });
        slot.waiter.set_waker(Box::new(move || signal.raise()));
        // Under the followers' lock, so that no truncation runs between the check and the hold.
        let mut followers = self.followers.lock();
        let first = self.segments.lock().first().map_or(Lsn(0), |segment| segment.base);
        let end = self.next();
        if from < first {
            return Err(FollowError::Truncated { from, first });
        }
        if from > end {
            return Err(FollowError::Beyond { from, end });
        }
        followers.push(Arc::clone(&slot));
        self.followers_count.store(followers.len(), Ordering::SeqCst);
        Ok(Follower { log: Arc::clone(self), slot })
    }
}

impl Follower {
    /// Where the next batch starts.
    pub fn position(&self) -> Lsn {
        self.slot.position()
    }

    /// How far it may read.
    pub fn scope(&self) -> Scope {
        self.slot.scope
    }

    /// Has `waker` called each time [`Follower::wake_when_readable`] was asked for and there is
    /// something to read, from the writer's thread or at once from the one that asks: it must hold
    /// no lock that the waker takes.
    pub fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        let signal = Arc::clone(&self.slot.signal);
        self.slot.waiter.set_waker(Box::new(move || {
            signal.raise();
            waker();
        }));
    }

    /// Requests one wake-up when there is something to read, the log is poisoned, or the follower
    /// is disconnected.
    pub fn wake_when_readable(&self) {
        let target = Lsn(self.position().0 + 1);
        let has_ended = || self.log.is_poisoned() || !self.slot.holds();
        self.slot.waiter.arm(target, || self.limit() >= target || has_ended());
    }

    /// Blocks until there is something to read, the log is poisoned, the follower is disconnected,
    /// or the timeout has elapsed. Returns whether there is something to read, including an error.
    pub fn wait(&self, timeout: Duration) -> bool {
        *self.slot.signal.raised.lock() = false;
        self.wake_when_readable();
        let mut raised = self.slot.signal.raised.lock();
        if !*raised {
            self.slot.signal.changed.wait_for(&mut raised, timeout);
        }
        self.limit() > self.position() || !self.slot.holds()
    }

    /// Reads the next records and marks. False, and an empty batch, when there is nothing new.
    ///
    /// In a poisoned log everything durable can still be read. After [`FollowError::TooFarBehind`] the
    /// follower cannot be used any more.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, FollowError> {
        let read = self.read_on(batch);
        // Last, as segments may have been truncated, and used again, while they were read.
        if self.slot.holds() { read } else { Err(self.too_far_behind()) }
    }

    fn too_far_behind(&self) -> FollowError {
        let lag_bytes_max = self.log.follower_lag_bytes_max;
        FollowError::TooFarBehind { at: self.position(), lag_bytes_max }
    }

    fn read_on(&self, batch: &mut Batch) -> Result<bool, FollowError> {
        let position = self.position();
        batch.bytes.clear();
        (batch.start, batch.end) = (position, position);
        let limit = self.limit();
        if position >= limit {
            return Ok(false);
        }
        let (segment, end) =
            self.segment_at(position, limit).ok_or_else(|| self.too_far_behind())?;
        self.read(&segment, end, batch)?;
        self.slot.position.store(batch.end.0, Ordering::SeqCst);
        Ok(true)
    }

    fn limit(&self) -> Lsn {
        // In a poisoned log, bytes that were written but not synced may differ from those in the
        // file.
        match self.slot.scope {
            Scope::Written if !self.log.is_poisoned() => self.log.written(),
            Scope::Written | Scope::Durable => self.log.durable(),
        }
    }

    /// The segment that holds `position`, and the end of its readable part. `None` if it is
    /// truncated, which happens only to a disconnected follower.
    fn segment_at(&self, position: Lsn, limit: Lsn) -> Option<(Segment, Lsn)> {
        let segments = self.log.segments.lock();
        let after = segments.partition_point(|segment| segment.base <= position);
        let end = segments.get(after).map_or(limit, |next| next.base.min(limit));
        let at = after.checked_sub(1)?;
        Some((segments[at].clone(), end))
    }

    fn read(&self, segment: &Segment, end: Lsn, batch: &mut Batch) -> Result<(), FollowError> {
        assert!(batch.start < end, "there is something to read");
        let available = end.0 - batch.start.0;
        let mut want = to_usize(available.min(BATCH_BYTES));
        loop {
            if !self.log.recent.lock().read(batch.start, want, &mut batch.bytes) {
                batch.bytes.resize(want, 0);
                let offset = segment.offset(batch.start);
                let count = read_full_at(&*segment.file, offset, &mut batch.bytes);
                let file = || file_name(segment.number);
                let count = count.map_err(|source| FollowError::Read { file: file(), source })?;
                batch.bytes.truncate(count);
            }
            // A bad record further on is met by the next batch.
            let whole = record::valid_bytes(self.log.checksum, batch.start, &batch.bytes);
            if whole > 0 {
                batch.bytes.truncate(whole);
                batch.end = Lsn(batch.start.0 + whole as u64);
                assert!(batch.end <= end, "a follower reads only what is published");
                return Ok(());
            }
            // No whole record: either one record larger than a batch, or an invalid one.
            let header = Header::decode(&batch.bytes);
            let bytes = header.map_or(0, Header::record_bytes);
            let is_longer = bytes > want && bytes as u64 <= available;
            if !is_longer || !self.is_record(header, segment, batch.start)? {
                let file = file_name(segment.number);
                return Err(FollowError::Damaged { at: batch.start, file });
            }
            want = bytes;
        }
    }

    /// Whether a long record starts here. Where the caller guessed the position, the length may be
    /// any bytes of another record, so no memory is allocated before the checksum of the whole
    /// record matches.
    fn is_record(
        &self,
        header: Option<Header>,
        segment: &Segment,
        at: Lsn,
    ) -> Result<bool, FollowError> {
        let Some(header) = header else { return Ok(false) };
        let mut piece = vec![0; to_usize(BATCH_BYTES)];
        let mut crc = self.log.checksum.of_payload(&[]);
        let mut offset = segment.offset(at) + RECORD_HEADER_BYTES as u64;
        let mut left = header.payload_bytes;
        while left > 0 {
            let want = left.min(piece.len());
            let count = read_full_at(&*segment.file, offset, &mut piece[..want])
                .map_err(|source| FollowError::Read { file: file_name(segment.number), source })?;
            if count < want {
                return Ok(false);
            }
            crc = record::append_payload(crc, &piece[..want]);
            offset += want as u64;
            left -= want;
        }
        Ok(header.fits(at, crc))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followers = self.log.followers.lock();
        followers.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        self.log.followers_count.store(followers.len(), Ordering::SeqCst);
        if followers.is_empty() {
            self.log.recent.lock().clear();
        }
    }
}
