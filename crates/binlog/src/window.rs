//! Where records of several lanes become one gap-free run of bytes.
//!
//! A position is a byte offset, so no merge is needed: every piece is copied to where it belongs.
//! What lies beyond the complete part (an append took its position on a lane that was taken
//! earlier) stays, with its holes, until the next group fills them.

use crate::lane::LaneBuffer;
use crate::to_usize;

/// Bytes of the log from `base` on; the first [`Window::complete`] of them have no holes.
#[derive(Debug)]
pub(crate) struct Window {
    base: u64,
    /// Initialised memory; only what was placed means something.
    bytes: Vec<u8>,
    /// Bytes placed, holes not counted.
    placed: usize,
    /// Offset after the last byte placed.
    end: usize,
    /// Memory kept from group to group.
    bytes_kept: usize,
}

impl Window {
    pub(crate) fn new(base: u64, bytes_kept: usize) -> Self {
        Self { base, bytes: Vec::new(), placed: 0, end: 0, bytes_kept }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.placed == 0
    }

    /// Copies all of a lane's records to their places.
    pub(crate) fn place(&mut self, lane: &LaneBuffer) {
        let mut from = 0;
        for run in &lane.runs {
            let at = to_usize(run.start - self.base);
            let end = at + run.bytes;
            if end > self.bytes.len() {
                self.bytes.resize(end.max(self.bytes_kept), 0);
            }
            self.bytes[at..end].copy_from_slice(&lane.bytes[from..from + run.bytes]);
            self.end = self.end.max(end);
            from += run.bytes;
        }
        self.placed += from;
    }

    /// The gap-free part. Everything below `limit` is known to have been placed; if there are no
    /// holes at all, the part beyond is complete too.
    pub(crate) fn complete(&self, limit: u64) -> &[u8] {
        let sure = to_usize(limit.saturating_sub(self.base)).min(self.end);
        let complete = if self.placed == self.end { self.end } else { sure };
        &self.bytes[..complete]
    }

    /// Drops `count` complete bytes at the front.
    pub(crate) fn advance(&mut self, count: usize) {
        self.bytes.copy_within(count..self.end, 0);
        self.base += count as u64;
        self.end -= count;
        self.placed -= count;
        if self.end <= self.bytes_kept && self.bytes.len() > 2 * self.bytes_kept {
            self.bytes.truncate(self.bytes_kept);
            self.bytes.shrink_to_fit();
        }
    }

    /// Moves an empty window: its bytes went past it.
    pub(crate) fn skip_to(&mut self, base: u64) {
        debug_assert!(self.is_empty());
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Run;

    fn lane(pieces: &[(u64, &[u8])]) -> LaneBuffer {
        LaneBuffer {
            bytes: pieces.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect(),
            runs: pieces
                .iter()
                .map(|(start, bytes)| Run { start: *start, bytes: bytes.len() })
                .collect(),
            records: 0,
        }
    }

    #[test]
    fn holes_are_filled_by_the_next_group() {
        let mut window = Window::new(50, 4);
        window.place(&lane(&[(52, b"cd"), (58, b"ij")]));
        window.place(&lane(&[(50, b"ab")]));
        assert_eq!(window.complete(54), b"abcd");
        window.advance(4);
        assert_eq!(window.complete(54), b"");
        window.place(&lane(&[(54, b"efgh")]));
        assert_eq!(window.complete(58), b"efghij", "no hole is left, so all is complete");
        window.advance(6);
        assert!(window.is_empty());
    }

    #[test]
    fn memory_of_a_huge_group_is_given_back() {
        let mut window = Window::new(0, 16);
        window.place(&lane(&[(0, &[7; 1000])]));
        assert_eq!(window.complete(1000).len(), 1000);
        window.advance(1000);
        assert_eq!(window.bytes.len(), 16);
    }
}
