//! Input that could not be consumed yet and must be kept between turns.

/// The buffer grows by at least this much, so that a trickling peer costs few reads.
const GROWTH_BYTES_MIN: usize = 16 * 1024;
/// The buffer grows by at most this much, or by as much as has already arrived: an announced length
/// alone does not allocate memory.
const GROWTH_BYTES_MAX: usize = 1024 * 1024;

/// Has no capacity when no input is kept.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// How much of `bytes` is consumed.
    start: usize,
}

impl Input {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Replaces the content with `rest`, in a buffer just large enough.
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.start = 0;
        self.bytes.clear();
        if rest.is_empty() {
            self.free();
        } else {
            self.bytes.reserve_exact(rest.len());
            self.bytes.extend_from_slice(rest);
        }
    }

    /// Drops `count` bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.is_empty() {
            self.free();
        }
    }

    pub(crate) fn free(&mut self) {
        self.start = 0;
        if self.bytes.capacity() != 0 {
            self.bytes = Vec::new();
        }
    }

    /// The buffer with room to read into when `needed` unread bytes are required: that much, but no
    /// more than has arrived (or 1 MiB), and at most one byte above `bytes_max` in total.
    pub(crate) fn with_room(&mut self, needed: usize, bytes_max: usize) -> &mut Vec<u8> {
        self.with_room_for(1, needed, bytes_max)
    }

    /// Like [`Input::with_room`], with room for at least `count` bytes that are appended at once:
    /// they may exceed `bytes_max`.
    pub(crate) fn with_room_for(
        &mut self,
        count: usize,
        needed: usize,
        bytes_max: usize,
    ) -> &mut Vec<u8> {
        if self.start != 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let arrived = self.bytes.len();
        // Room for the missing bytes, and for further bytes that arrive together with them.
        let missing = needed.saturating_sub(arrived).saturating_add(count - 1);
        if self.bytes.capacity() - arrived < missing.clamp(count, GROWTH_BYTES_MIN.max(count)) {
            let growth = missing.clamp(GROWTH_BYTES_MIN, arrived.max(GROWTH_BYTES_MAX));
            self.bytes.reserve_exact(growth.min(bytes_max.saturating_sub(arrived)).max(count));
        }
        &mut self.bytes
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_what_arrives_not_with_what_is_promised() {
        let mut input = Input::default();
        input.keep(b"$536870912\r\n");
        let mut arrived = input.unread().len();
        while arrived < 8 << 20 {
            let bytes = input.with_room(536_870_926, 1 << 30);
            assert!(bytes.capacity() > arrived);
            assert!(bytes.capacity() <= 2 * arrived + GROWTH_BYTES_MAX);
            bytes.resize(bytes.capacity(), b'x');
            arrived = bytes.len();
        }
    }

    #[test]
    fn never_exceeds_its_bound() {
        let mut input = Input::default();
        input.keep(b"abc");
        assert!(input.with_room(1 << 20, 100).capacity() <= 100);
    }

    #[test]
    fn keeps_what_is_not_consumed() {
        let mut input = Input::default();
        input.keep(b"abcdef");
        input.consume(2);
        assert_eq!(input.unread(), b"cdef");
        input.with_room(0, 100).extend_from_slice(b"gh");
        assert_eq!(input.unread(), b"cdefgh");
        input.consume(6);
        assert_eq!(input.heap_bytes(), 0);
    }
}
