//! Memory for direct writes: it starts at a multiple of [`BLOCK_BYTES`].

use std::ops::{Deref, DerefMut};

/// Direct writes start and end at multiples of this, in the file and in memory: at least what disks
/// require, and the page size, so that no page is written twice.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Initialised memory that grows only by copying. The allocation is one block larger than
/// requested, so that it contains an aligned start.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    size: usize,
}

impl AlignedBuffer {
    /// A buffer of zeros.
    pub(crate) fn new(size: usize) -> Self {
        let memory = vec![0; size + BLOCK_BYTES];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        assert!(start <= BLOCK_BYTES, "bytes can be aligned to any power of two");
        Self { memory, start, size }
    }

    /// Moves the contents to a buffer of another size; new bytes are zero.
    pub(crate) fn resize(&mut self, size: usize) {
        let mut other = Self::new(size);
        let kept = size.min(self.size);
        other[..kept].copy_from_slice(&self[..kept]);
        *self = other;
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.size]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.size]
    }
}

/// Whether bytes may be written at `offset` in blocks of `block_bytes`.
pub(crate) fn is_aligned(offset: u64, bytes: &[u8], block_bytes: usize) -> bool {
    offset.is_multiple_of(block_bytes as u64)
        && bytes.len().is_multiple_of(block_bytes)
        && bytes.as_ptr().align_offset(block_bytes) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_aligned_and_keeps_its_bytes() {
        for size in [0, 1, 4095, 4096, 100_000, 1 << 20] {
            let mut buffer = AlignedBuffer::new(size);
            assert_eq!(buffer.len(), size);
            assert!(is_aligned(8192, &buffer[..size / BLOCK_BYTES * BLOCK_BYTES], BLOCK_BYTES));
            buffer.fill(7);
            buffer.resize(size + 5000);
            assert!(buffer[..size].iter().all(|&byte| byte == 7));
            assert!(buffer[size..].iter().all(|&byte| byte == 0));
            buffer.resize(size / 2);
            assert_eq!(buffer.len(), size / 2);
        }
    }

    #[test]
    fn misplaced_bytes_are_told_from_aligned_ones() {
        let buffer = AlignedBuffer::new(3 * BLOCK_BYTES);
        assert!(is_aligned(0, &buffer, BLOCK_BYTES));
        assert!(!is_aligned(512, &buffer, BLOCK_BYTES));
        assert!(!is_aligned(0, &buffer[..512], BLOCK_BYTES));
        assert!(!is_aligned(0, &buffer[512..512 + BLOCK_BYTES], BLOCK_BYTES));
        assert!(is_aligned(1, &buffer[1..6], 1), "any place is a multiple of 1");
    }
}
