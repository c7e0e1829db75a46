//! A lane: the records of one appender that wait for the writer, in the order of their positions.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::record::{self, Lsn, RECORD_HEADER_BYTES};
use crate::waiter::Waiter;

/// Bytes of a lane that are contiguous in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) bytes: usize,
}

/// Bytes ahead of the records that are brought into the cache at a time. While a lane fills, keys
/// displace its memory from the cache, and records are too far apart for the processor to foresee
/// the next line: the lock after each record would wait for it.
const WARMED_BYTES: usize = 2048;

/// Encoded records and their positions. The writer swaps a lane's buffer with an empty one.
#[derive(Debug, Default)]
pub(crate) struct LaneBuffer {
    pub(crate) bytes: Vec<u8>,
    /// Cover `bytes` in order. One run as long as no other lane appends in between.
    pub(crate) runs: Vec<Run>,
    pub(crate) records: u64,
    /// End of the memory that was brought into the cache.
    warm_end: usize,
}

impl LaneBuffer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Brings the memory of the next records into the cache.
    #[inline]
    fn warm(&mut self, record_bytes: usize) {
        let len = self.bytes.len();
        if len + record_bytes > self.warm_end && record_bytes < WARMED_BYTES {
            self.warm_end = (len + WARMED_BYTES).min(self.bytes.capacity());
            self.bytes.resize(self.warm_end, 0);
            self.bytes.truncate(len);
        }
    }

    /// Empties the buffer, and frees the memory that a huge record has left in it.
    pub(crate) fn reset(&mut self, bytes_kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes_kept);
        self.runs.clear();
        self.runs.shrink_to(bytes_kept / RECORD_HEADER_BYTES);
        self.records = 0;
        self.warm_end = 0;
    }

    #[inline]
    fn note_run(&mut self, start: u64, bytes: usize) {
        let end = self.runs.last().map_or(0, |last| last.start + last.bytes as u64);
        debug_assert!(end <= start, "positions of one lane grow");
        match self.runs.last_mut() {
            Some(last) if last.start + last.bytes as u64 == start => last.bytes += bytes,
            _ => self.runs.push(Run { start, bytes }),
        }
    }
}

/// The queue of one appender. Aligned so that two lanes never share a cache line or a prefetched pair.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Lane {
    buffer: Mutex<LaneBuffer>,
    /// Bytes in `buffer`; written under its lock, read without it. A thread that sees a record's
    /// position taken also sees its bytes counted here, until the writer takes them.
    held_bytes: AtomicUsize,
    /// The owner found the lane full and must be woken when there is room.
    is_room_requested: AtomicBool,
    pub(crate) waiter: Waiter,
}

impl Lane {
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self {
            buffer: Mutex::new(LaneBuffer::with_capacity(capacity_bytes)),
            held_bytes: AtomicUsize::new(0),
            is_room_requested: AtomicBool::new(false),
            waiter: Waiter::new(),
        }
    }

    /// Assigns the record its position in the log and copies it. Returns where it ends and how many
    /// bytes the lane holds now.
    ///
    /// The position is taken under the lane's lock. So a thread that reads `next` and then takes
    /// the lane finds all of its records below the position that it read: see `writer`.
    #[inline]
    pub(crate) fn append(
        &self,
        next: &AtomicU64,
        kind: u8,
        payload: &[u8],
        payload_crc: u32,
    ) -> (Lsn, usize) {
        let record_bytes = RECORD_HEADER_BYTES + payload.len();
        let mut buffer = self.buffer.lock();
        buffer.warm(record_bytes);
        let held_bytes = buffer.bytes.len() + record_bytes;
        self.held_bytes.store(held_bytes, Ordering::Release);
        let start = next.fetch_add(record_bytes as u64, Ordering::SeqCst);
        record::encode(&mut buffer.bytes, Lsn(start), kind, payload, payload_crc);
        debug_assert_eq!(buffer.bytes.len(), held_bytes, "the position covers these bytes");
        buffer.note_run(start, record_bytes);
        buffer.records += 1;
        (Lsn(start + record_bytes as u64), held_bytes)
    }

    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::SeqCst)
    }

    /// Records in the lane. Takes the lane's lock, so it is too slow for every request.
    pub(crate) fn held_records(&self) -> u64 {
        self.buffer.lock().records
    }

    /// Requests a wake-up when the writer has taken the lane. The caller must read
    /// [`Lane::held_bytes`] once more afterwards.
    pub(crate) fn request_room(&self) {
        self.is_room_requested.store(true, Ordering::SeqCst);
    }

    /// Swaps the lane's content with the empty `buffer`.
    pub(crate) fn take(&self, empty: &mut LaneBuffer) {
        assert!(empty.bytes.is_empty());
        assert!(empty.runs.is_empty());
        assert_eq!(empty.records, 0);
        let mut buffer = self.buffer.lock();
        assert_eq!(self.held_bytes(), buffer.bytes.len(), "what appenders see is what is held");
        std::mem::swap(&mut *buffer, empty);
        self.held_bytes.store(0, Ordering::SeqCst);
    }

    /// Wakes the owner if it waits for room in the lane.
    pub(crate) fn wake_for_room(&self) {
        if self.is_room_requested.load(Ordering::SeqCst)
            && self.is_room_requested.swap(false, Ordering::SeqCst)
        {
            self.waiter.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_only_without_a_gap() {
        let next = AtomicU64::new(100);
        let lane = Lane::new(64);
        assert_eq!(lane.append(&next, 1, b"a", 0), (Lsn(110), 10));
        assert_eq!(lane.append(&next, 1, b"bc", 0), (Lsn(121), 21));
        next.fetch_add(5, Ordering::SeqCst);
        lane.append(&next, 1, b"", 0);
        let mut taken = LaneBuffer::default();
        lane.take(&mut taken);
        let runs: Vec<_> = taken.runs.iter().map(|run| (run.start, run.bytes)).collect();
        assert_eq!(runs, [(100, 21), (126, 9)]);
        assert_eq!((taken.bytes.len(), taken.records, lane.held_bytes()), (30, 3, 0));
    }

    #[test]
    fn memory_of_a_huge_record_is_freed() {
        let mut buffer = LaneBuffer::with_capacity(100);
        buffer.bytes.resize(1 << 20, 0);
        buffer.reset(100);
        assert!(buffer.bytes.capacity() < 1 << 20);
    }
}
