//! Readers that go along with the log: replicas, change feeds.
//!
//! A follower reads what the writer has published and nothing else: the end of a file tells it
//! nothing, and it goes to the next segment only at the position where that one starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;

use crate::disk::read_full_at;
use crate::log::Log;
use crate::record::{self, Header, KIND_MARK, Lsn, RECORD_HEADER_BYTES, Record};
use crate::segment::{Segment, file_name};
use crate::slot::{Scope, Signal, Slot};
use crate::to_usize;
use crate::waiter::Waiter;

/// Why a follower cannot go on.
#[derive(Debug, Error)]
pub enum FollowError {
    #[error("the log starts at {first}: what stood at {wanted} has been truncated")]
    Truncated { wanted: Lsn, first: Lsn },
    #[error("{wanted} lies beyond the end of the log, {end}")]
    Beyond { wanted: Lsn, end: Lsn },
    #[error("no valid record at {at} in {file}: damaged, or not a position where a record starts")]
    Damaged { at: Lsn, file: String },
    #[error(
        "the follower at {at} was more than {lag_bytes_max} bytes behind and is given up: \
         start again from a snapshot"
    )]
    GivenUp { at: Lsn, lag_bytes_max: u64 },
    #[error("reading {file}: {source}")]
    Read { file: String, source: io::Error },
}

/// A batch has about so many bytes; a larger record comes alone.
const BATCH_BYTES: u64 = 256 << 10;
const _: () = assert!(BATCH_BYTES >= RECORD_HEADER_BYTES as u64, "a batch shows a record's length");

/// Reads the log from a position on. Holds the segments that it has not read yet, as long as it is
/// not further behind than [`Options::follower_lag_bytes_max`](crate::Options); how far that is
/// stands in `LogStats::follower_lag_bytes`.
#[derive(Debug)]
pub struct Follower {
    log: Arc<Log>,
    slot: Arc<Slot>,
}

/// Whole, checked records that follow each other, in a buffer that is used again.
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

    /// Memory that it holds for the next records.
    pub fn bytes_held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives the memory of a large record back. What the batch holds is gone.
    pub fn shrink(&mut self) {
        if self.bytes.capacity() > to_usize(BATCH_BYTES) {
            self.bytes = Vec::new();
        }
    }

    /// Where the first record starts.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Where the last record ends: the position to go on from.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The users' records in order; the log's own marks are left out.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
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
        .filter(|record| record.kind != KIND_MARK)
    }
}

impl Log {
    /// A reader that starts at `from`, which must be where a record starts or the log ends. The
    /// records from there on are kept as long as the follower lives and keeps up.
    pub fn follow(self: &Arc<Self>, from: Lsn, scope: Scope) -> Result<Follower, FollowError> {
        let signal = Arc::new(Signal::default());
        let slot = Arc::new(Slot {
            position: AtomicU64::new(from.0),
            given_up: AtomicBool::new(false),
            scope,
            waiter: Waiter::new(),
            signal: Arc::clone(&signal),
        });
        slot.waiter.set_waker(Box::new(move || signal.raise()));
        // Under the followers' lock, so that no truncation comes between looking and holding.
        let mut followers = self.followers.lock();
        let first = self.segments.lock().first().map_or(Lsn(0), |segment| segment.base);
        let end = self.next();
        if from < first {
            return Err(FollowError::Truncated { wanted: from, first });
        }
        if from > end {
            return Err(FollowError::Beyond { wanted: from, end });
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

    /// Has `waker` called, from the writer's thread, each time [`Follower::wake_when_readable`] was
    /// asked for and there is something to read.
    pub fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        let signal = Arc::clone(&self.slot.signal);
        self.slot.waiter.set_waker(Box::new(move || {
            signal.raise();
            waker();
        }));
    }

    /// Asks for one wake-up when there is something to read, the log is poisoned, or the follower
    /// is given up.
    pub fn wake_when_readable(&self) {
        let wanted = Lsn(self.position().0 + 1);
        let over = || self.log.is_poisoned() || !self.slot.holds();
        self.slot.waiter.arm(wanted, || self.limit() >= wanted || over());
    }

    /// Blocks until there is something to read, the log is poisoned, the follower is given up, or
    /// the time is over. Returns whether there is something to read, if only that error.
    pub fn wait(&self, timeout: Duration) -> bool {
        *self.slot.signal.raised.lock() = false;
        self.wake_when_readable();
        let mut raised = self.slot.signal.raised.lock();
        if !*raised {
            self.slot.signal.changed.wait_for(&mut raised, timeout);
        }
        self.limit() > self.position() || !self.slot.holds()
    }

    /// Reads on. False, and an empty batch, when there is nothing new.
    ///
    /// In a poisoned log everything durable can still be read. After [`FollowError::GivenUp`] the
    /// follower is of no more use.
    pub fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, FollowError> {
        let read = self.read_on(batch);
        // Last, as segments may have been truncated, and used again, while they were read.
        if self.slot.holds() { read } else { Err(self.given_up()) }
    }

    fn given_up(&self) -> FollowError {
        let lag_bytes_max = self.log.follower_lag_bytes_max;
        FollowError::GivenUp { at: self.position(), lag_bytes_max }
    }

    fn read_on(&self, batch: &mut Batch) -> Result<bool, FollowError> {
        loop {
            let position = self.position();
            batch.bytes.clear();
            (batch.start, batch.end) = (position, position);
            let limit = self.limit();
            if position >= limit {
                return Ok(false);
            }
            let (segment, end) = self.segment_at(position, limit).ok_or_else(|| self.given_up())?;
            self.read(&segment, end, batch)?;
            self.slot.position.store(batch.end.0, Ordering::SeqCst);
            if batch.records().next().is_some() {
                return Ok(true);
            }
        }
    }

    fn limit(&self) -> Lsn {
        // What was written but not synced in a poisoned log may not be what the file holds.
        match self.slot.scope {
            Scope::Written if !self.log.is_poisoned() => self.log.written(),
            Scope::Written | Scope::Durable => self.log.durable(),
        }
    }

    /// The segment that holds `position`, and how far it may be read. None if it is truncated, which
    /// happens only to a follower that has been given up.
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
            batch.bytes.resize(want, 0);
            let offset = segment.offset(batch.start);
            let count = read_full_at(&*segment.file, offset, &mut batch.bytes)
                .map_err(|source| FollowError::Read { file: file_name(segment.number), source })?;
            batch.bytes.truncate(count);
            // A bad record further on is met by the next batch.
            let whole = record::valid_bytes(self.log.checksum, batch.start, &batch.bytes);
            if whole > 0 {
                batch.bytes.truncate(whole);
                batch.end = Lsn(batch.start.0 + whole as u64);
                assert!(batch.end <= end, "a follower reads only what is published");
                return Ok(());
            }
            // Nothing whole: either one record larger than a batch, or no record at all.
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

    /// Whether a long record stands here. Its length may be any bytes of another record, where a
    /// position was guessed: no memory is taken for it before the checksum of all of it is right.
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
    }
}
