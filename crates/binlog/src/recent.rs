//! The newest bytes of the log in memory, for followers that keep up with the writer. The kernel
//! has no copy of a direct write, so a follower would read them back from the disk.

use std::collections::VecDeque;

use crate::record::Lsn;
use crate::to_usize;

/// What the writer has written last, without gaps.
#[derive(Debug)]
pub(crate) struct Recent {
    bytes_max: usize,
    base: u64,
    bytes: VecDeque<u8>,
}

impl Recent {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, base: 0, bytes: VecDeque::new() }
    }

    /// Frees the memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    /// Notes bytes that have been written at `at`.
    pub(crate) fn note(&mut self, at: Lsn, bytes: &[u8]) {
        let end = self.base + self.bytes.len() as u64;
        if at.0 != end {
            self.bytes.clear();
            self.base = at.0;
        }
        let kept = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
        self.base = at.0 + bytes.len() as u64 - self.bytes.len() as u64;
        assert!(self.bytes.len() <= self.bytes_max);
    }

    /// Replaces the contents of `out` by the `count` bytes at `at`. False if they are not all here.
    pub(crate) fn read(&self, at: Lsn, count: usize, out: &mut Vec<u8>) -> bool {
        let Some(from) = at.0.checked_sub(self.base) else { return false };
        let end = from.saturating_add(count as u64);
        if end > self.bytes.len() as u64 {
            return false;
        }
        let (from, end) = (to_usize(from), to_usize(end));
        let (front, back) = self.bytes.as_slices();
        let part = |slice: &[u8], start: usize| {
            let local = |at: usize| at.saturating_sub(start).min(slice.len());
            local(from)..local(end)
        };
        out.clear();
        out.extend_from_slice(&front[part(front, 0)]);
        out.extend_from_slice(&back[part(back, front.len())]);
        assert_eq!(out.len(), count);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES_MAX: usize = 1_000_000;

    /// The byte at a position.
    fn byte_at(at: u64) -> u8 {
        at.to_le_bytes()[0] ^ at.to_le_bytes()[1].wrapping_mul(31)
    }

    fn bytes_at(at: u64, count: usize) -> Vec<u8> {
        (at..at + count as u64).map(byte_at).collect()
    }

    proptest! {
        #[test]
        fn what_is_read_was_noted_and_the_newest_can_be_read(
            writes in prop::collection::vec((0_u64..3, 1_usize..700_000), 1..12),
            reads in prop::collection::vec((0_u64..3_000_000, 1_usize..400_000), 20),
        ) {
            let mut recent = Recent::new(BYTES_MAX);
            let (mut at, mut contiguous) = (100, 0);
            for (gap, count) in writes {
                contiguous = if gap > 0 { 0 } else { contiguous };
                at += gap;
                recent.note(Lsn(at), &bytes_at(at, count));
                at += count as u64;
                contiguous = (contiguous + count).min(BYTES_MAX);
                let mut out = b"old".to_vec();
                let start = at - contiguous as u64;
                prop_assert!(recent.read(Lsn(start), contiguous, &mut out));
                prop_assert_eq!(&out, &bytes_at(start, contiguous));
                prop_assert!(!recent.read(Lsn(start), contiguous + 1, &mut out));
                prop_assert!(!recent.read(Lsn(start - 1), 1, &mut out));
                for (from, count) in &reads {
                    if recent.read(Lsn(*from), *count, &mut out) {
                        prop_assert_eq!(&out, &bytes_at(*from, *count));
                    }
                }
            }
        }
    }
}
