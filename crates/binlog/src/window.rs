//! Joins the records of several lanes into one gap-free run of bytes, in whole blocks of the disk.
//!
//! A position is a byte offset, so no merge is needed: every piece is copied to its offset. Bytes
//! after the complete part (an append took its position on a lane that had just been taken) stay,
//! with holes between them, until the next group fills these.
//!
//! ```text
//! base            written             complete       end
//!  | carried        | new               | with holes  |
//!  block     block     block     block     block
//! ```
//!
//! The disk takes whole blocks, so the block in which a group ends is written with zeros after the
//! group, and written again with the next group, which begins with the bytes carried over from it.

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::lane::LaneBuffer;
use crate::to_usize;

/// Bytes of the log from `base` on, which is where a block starts in the segment.
#[derive(Debug)]
pub(crate) struct Window {
    base: u64,
    /// Initialised memory; only placed bytes have a meaning.
    bytes: AlignedBuffer,
    /// The disk's block size: a power of two, at most [`BLOCK_BYTES`].
    block_bytes: usize,
    /// Leading bytes that are in the file already; less than a block.
    carried: usize,
    /// Bytes placed after those, without holes.
    placed: usize,
    /// Offset after the last byte placed.
    end: usize,
    /// Memory kept from group to group.
    bytes_kept: usize,
    /// Bytes that the zeros after a group replace during a write.
    aside: Vec<u8>,
}

impl Window {
    /// Continues at `at`. `carried`: the bytes of the file between the start of `at`'s block and
    /// `at`.
    pub(crate) fn new(at: u64, carried: &[u8], block_bytes: usize, group_bytes_max: usize) -> Self {
        assert!(block_bytes.is_power_of_two());
        assert!(block_bytes <= BLOCK_BYTES, "memory is aligned to BLOCK_BYTES");
        assert!(carried.len() < block_bytes, "whole blocks are never written again");
        let bytes_kept = group_bytes_max.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        let mut bytes = AlignedBuffer::new(bytes_kept);
        bytes[..carried.len()].copy_from_slice(carried);
        Self {
            base: at - carried.len() as u64,
            bytes,
            block_bytes,
            carried: carried.len(),
            placed: 0,
            end: carried.len(),
            bytes_kept,
            aside: Vec::with_capacity(block_bytes),
        }
    }

    /// Copies all of a lane's records to their offsets.
    pub(crate) fn place(&mut self, lane: &LaneBuffer) {
        let mut from = 0;
        let written = self.base + self.carried as u64;
        for run in &lane.runs {
            assert!(run.start >= written, "a record is placed before its group is written");
            let at = to_usize(run.start - self.base);
            let end = at + run.bytes;
            if end > self.bytes.len() {
                self.grow(end);
            }
            self.bytes[at..end].copy_from_slice(&lane.bytes[from..from + run.bytes]);
            self.end = self.end.max(end);
            from += run.bytes;
        }
        assert_eq!(from, lane.bytes.len(), "the runs cover the lane");
        self.placed += from;
        assert!(self.carried + self.placed <= self.end, "no two records share a position");
    }

    /// Grows to whole blocks, so that there is always room for the zeros after a group.
    #[cold]
    fn grow(&mut self, end: usize) {
        let half_more = self.bytes.len() / 2 * 3;
        self.bytes.resize(end.max(half_more).next_multiple_of(BLOCK_BYTES));
    }

    /// Where the gap-free part ends. All records below `limit` have been placed; without any holes,
    /// the part after `limit` is complete too.
    pub(crate) fn complete(&self, limit: u64) -> u64 {
        let end = self.base + self.end as u64;
        let no_holes = self.carried + self.placed == self.end;
        if no_holes { end } else { limit.min(end) }
    }

    /// The bytes to be written before the position `to`.
    pub(crate) fn unwritten(&self, to: u64) -> &[u8] {
        &self.bytes[self.carried..to_usize(to - self.base)]
    }

    /// Has `write` store the next `count` bytes, which are complete: passes it the position of a
    /// block's start and whole blocks from there on. On success continues after those bytes.
    pub(crate) fn write<E>(
        &mut self,
        count: usize,
        write: impl FnOnce(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(count <= self.placed, "only placed bytes are written");
        let until = self.carried + count;
        assert!(until <= self.end);
        let padded = until.next_multiple_of(self.block_bytes);
        self.aside.clear();
        self.aside.extend_from_slice(&self.bytes[until..padded]);
        self.bytes[until..padded].fill(0);
        write(self.base, &self.bytes[..padded])?;
        self.bytes[until..padded].copy_from_slice(&self.aside);
        self.placed -= count;
        self.carried = until % self.block_bytes;
        self.drop_front(until - self.carried);
        Ok(())
    }

    /// The leading bytes that are in the file already, and the position of the first one.
    pub(crate) fn carried(&self) -> (u64, &[u8]) {
        (self.base, &self.bytes[..self.carried])
    }

    /// Continues in a new segment: the bytes after the written ones start a block there.
    pub(crate) fn start_block(&mut self) {
        self.drop_front(self.carried);
        self.carried = 0;
    }

    fn drop_front(&mut self, count: usize) {
        self.bytes.copy_within(count..self.end, 0);
        self.base += count as u64;
        self.end -= count;
        if self.end <= self.bytes_kept && self.bytes.len() > 2 * self.bytes_kept {
            self.bytes.resize(self.bytes_kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Run;

    fn lane(pieces: &[(u64, &[u8])]) -> LaneBuffer {
        let mut lane = LaneBuffer::with_capacity(0);
        for (start, bytes) in pieces {
            lane.bytes.extend_from_slice(bytes);
            lane.runs.push(Run { start: *start, bytes: bytes.len() });
        }
        lane
    }

    /// Writes the complete part; returns its position and its bytes.
    fn write(window: &mut Window, limit: u64) -> (u64, Vec<u8>) {
        let count = window.unwritten(window.complete(limit)).len();
        let mut got = None;
        window
            .write(count, |at, bytes| {
                got = Some((at, bytes.to_vec()));
                Ok::<(), ()>(())
            })
            .unwrap();
        got.unwrap()
    }

    #[test]
    fn holes_are_filled_by_the_next_group() {
        let mut window = Window::new(50, b"", 1, 4);
        window.place(&lane(&[(52, b"cd"), (58, b"ij")]));
        window.place(&lane(&[(50, b"ab")]));
        assert_eq!(write(&mut window, 54), (50, b"abcd".to_vec()));
        assert_eq!(window.complete(54), 54);
        window.place(&lane(&[(54, b"efgh")]));
        assert_eq!(window.complete(58), 60, "no hole is left, so all is complete");
        assert_eq!(write(&mut window, 58), (54, b"efghij".to_vec()));
        assert_eq!((window.placed, window.end), (0, 0));
    }

    #[test]
    fn a_partial_block_is_carried_and_padded_with_zeros() {
        let mut window = Window::new(102, b"xy", 4, 4);
        window.place(&lane(&[(102, b"abc"), (106, b"ef")]));
        assert_eq!(write(&mut window, 105), (100, b"xyabc\0\0\0".to_vec()));
        window.place(&lane(&[(105, b"d")]));
        assert_eq!(window.unwritten(108), b"def", "the zeros were for the disk only");
        assert_eq!(write(&mut window, 106), (104, b"cdef".to_vec()));
        window.place(&lane(&[(108, b"gh")]));
        assert_eq!(write(&mut window, 110), (108, b"gh\0\0".to_vec()), "nothing was carried");
        window.place(&lane(&[(110, b"ij")]));
        window.start_block();
        assert_eq!(write(&mut window, 112), (110, b"ij\0\0".to_vec()), "as in a new segment");
    }

    #[test]
    fn a_failed_write_moves_nothing() {
        let mut window = Window::new(0, b"", 4, 4);
        window.place(&lane(&[(0, b"abc")]));
        window.write(3, |_, _| Err(())).unwrap_err();
        assert_eq!((window.base, window.carried, window.complete(3)), (0, 0, 3));
    }

    #[test]
    fn memory_of_a_huge_group_is_given_back() {
        let mut window = Window::new(0, b"", BLOCK_BYTES, 16);
        window.place(&lane(&[(0, &vec![7; 100_000])]));
        assert_eq!(write(&mut window, 100_000).1.len(), 25 * BLOCK_BYTES);
        assert_eq!(window.bytes.len(), 2 * BLOCK_BYTES);
        assert_eq!(window.end, 100_000 % BLOCK_BYTES);
    }
}
