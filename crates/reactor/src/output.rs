//! Bytes to be sent to a peer, some of which must wait.

use base::planted;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Size of the one output buffer that a reactor lends to the connection being served.
pub(crate) const SCRATCH_BYTES: usize = 256 * 1024;
/// A lent buffer that grew beyond this is freed, not returned to the reactor.
const SCRATCH_BYTES_MAX: usize = 4 * SCRATCH_BYTES;
/// Sent bytes are removed from the front of a long buffer when they are at least this many.
const COMPACT_BYTES: usize = 64 * 1024;
/// Empty mark queues up to this length stay allocated: a connection that writes always has marks,
/// and 8 marks are 128 bytes.
const MARKS_KEPT: usize = 8;

/// Bytes up to the stream position `end` wait for `gate`.
#[derive(Debug, Clone, Copy)]
struct Mark {
    end: u64,
    gate: u64,
}

/// Fields that few connections use, boxed because every connection pays for the space.
#[derive(Debug, Default)]
struct Extra {
    /// The file that follows the bytes.
    tail: Option<Tail>,
    /// Bytes that were encrypted for the peer and that the kernel does not have yet.
    encrypted_bytes: usize,
    /// Total bytes of attached files that the kernel has, or that are encrypted.
    file_bytes_sent: u64,
}

/// A part of a file that follows the bytes of an [`Output`].
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) offset: u64,
    pub(crate) bytes_left: u64,
}

/// Bytes to one peer, in order, with gates.
///
/// A handler appends to [`Output::buffer`] and calls [`Output::hold`] when the appended bytes may
/// be sent only at some level of the reactor (the server uses log positions as levels). Order never
/// changes, so bytes after a closed gate wait as well; gates of one connection never decrease.
///
/// Invariant, as stream positions: `base + sent <= released <= gated <= base + bytes.len()`.
/// Bytes below `released` may be sent, those up to `gated` wait for a mark, those above were
/// appended since the last `hold`.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    /// How much of `bytes` the kernel has; with TLS, how much of it is encrypted.
    sent: usize,
    /// Stream position of `bytes[0]`.
    base: u64,
    released: u64,
    gated: u64,
    gate_max: u64,
    /// The reactor's level at the last update: gates at or below it are open.
    level: u64,
    marks: VecDeque<Mark>,
    /// How much was pending before the first append since the last flush, or `UNTOUCHED`.
    appended: usize,
    extra: Option<Box<Extra>>,
}

/// Nothing was appended since the last flush.
const UNTOUCHED: usize = usize::MAX;

impl Default for Output {
    fn default() -> Output {
        Output {
            bytes: Vec::new(),
            sent: 0,
            base: 0,
            released: 0,
            gated: 0,
            gate_max: 0,
            level: 0,
            marks: VecDeque::new(),
            appended: UNTOUCHED,
            extra: None,
        }
    }
}

impl Output {
    /// The buffer to append to. Only append: earlier bytes may belong to other replies.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.appended == UNTOUCHED {
            self.appended = self.pending_bytes();
        }
        &mut self.bytes
    }

    /// Everything appended since the last `hold`, or since the callback began, may be sent only
    /// when the reactor's level is at least `gate`. `hold(0)` permits it as soon as order allows.
    ///
    /// One call per batch is cheaper than one per reply: each new gate costs a 16-byte mark.
    pub fn hold(&mut self, gate: u64) {
        let end = self.end();
        if end == self.gated {
            return;
        }
        assert!(self.gated < end, "bytes only leave below `released`");
        self.gate_max = self.gate_max.max(gate);
        self.gated = end;
        match self.marks.back_mut() {
            None if self.gate_max <= self.level => self.released = end,
            Some(last) if last.gate == self.gate_max => last.end = end,
            last => {
                let last_gate = last.map_or(0, |last| last.gate);
                assert!(last_gate < self.gate_max, "gates of one connection never shrink");
                self.marks.push_back(Mark { end, gate: self.gate_max });
            }
        }
    }

    /// Makes the kernel send `bytes` of `file`, from `offset` on, after everything appended so far.
    /// Until they are sent, the connection is not read and its handler not called; if the file
    /// turns out to be shorter, the connection is closed. At most one file at a time, and nothing
    /// may be appended after it.
    pub fn attach(&mut self, file: Arc<OwnedFd>, offset: u64, bytes: u64) {
        assert!(self.tail().is_none(), "a file follows already");
        if bytes != 0 {
            // Marks the output as changed even if nothing was appended.
            self.buffer();
            self.extra.get_or_insert_default().tail =
                Some(Tail { file, offset, bytes_left: bytes });
        }
    }

    /// Bytes of an attached file that the kernel does not have yet.
    pub fn attached_bytes(&self) -> u64 {
        self.tail().map_or(0, |tail| tail.bytes_left)
    }

    pub(crate) fn tail(&self) -> Option<&Tail> {
        self.extra.as_ref()?.tail.as_ref()
    }

    /// The kernel took `count` bytes of the attached file.
    pub(crate) fn advance_tail(&mut self, count: usize) {
        let Some(extra) = &mut self.extra else { return };
        extra.file_bytes_sent += count as u64;
        if let Some(tail) = &mut extra.tail {
            tail.offset += count as u64;
            tail.bytes_left = tail.bytes_left.saturating_sub(count as u64);
            if tail.bytes_left == 0 {
                extra.tail = None;
            }
        }
        self.free_extra();
    }

    /// Bytes that the kernel has taken since the connection began, files included. With TLS the
    /// value is reduced by the encryption overhead of bytes that are not sent yet, so it shrinks a
    /// little when more is encrypted, and is exact again when they are sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        let (of_files, encrypted) = self
            .extra
            .as_ref()
            .map_or((0, 0), |extra| (extra.file_bytes_sent, extra.encrypted_bytes as u64));
        (self.base + self.sent as u64 + of_files).saturating_sub(encrypted)
    }

    /// Bytes that the kernel does not have yet, held or not; an attached file does not count.
    pub fn pending_bytes(&self) -> usize {
        self.unsent_bytes() + self.extra.as_ref().map_or(0, |extra| extra.encrypted_bytes)
    }

    /// The part of [`Output::pending_bytes`] that is neither encrypted nor sent.
    fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sets the number of bytes that are encrypted and not sent yet.
    pub(crate) fn note_encrypted(&mut self, bytes: usize) {
        if bytes != 0 || self.extra.is_some() {
            self.extra.get_or_insert_default().encrypted_bytes = bytes;
            self.free_extra();
        }
    }

    fn free_extra(&mut self) {
        self.extra.take_if(|extra| {
            extra.tail.is_none() && extra.encrypted_bytes == 0 && extra.file_bytes_sent == 0
        });
    }

    /// Drops what is not encrypted yet, held or not, and the attached file.
    pub(crate) fn discard(&mut self) {
        self.gated = self.end();
        self.released = self.gated;
        self.marks.clear();
        if let Some(extra) = &mut self.extra {
            extra.tail = None;
            self.free_extra();
        }
        self.sent = self.bytes.len();
    }

    /// Bytes that wait for a gate.
    pub fn held_bytes(&self) -> usize {
        usize::try_from(self.gated - self.released).unwrap_or(usize::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent_bytes() == 0
    }

    /// The lowest gate that output waits for.
    pub(crate) fn first_gate(&self) -> Option<u64> {
        self.marks.front().map(|mark| mark.gate)
    }

    /// Whether something was appended since the last call, and how many bytes were pending then.
    pub(crate) fn take_appended(&mut self) -> Option<usize> {
        let before = std::mem::replace(&mut self.appended, UNTOUCHED);
        (before != UNTOUCHED).then_some(before)
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.appended != UNTOUCHED
    }

    /// Ends a callback: bytes it appended without a gate are sent as order allows.
    pub(crate) fn end_callback(&mut self) {
        self.hold(0);
    }

    /// Opens the gates up to `level`.
    pub(crate) fn release(&mut self, level: u64) {
        self.level = level;
        let open = planted::shifted("gate comparison", level);
        while let Some(first) = self.marks.front()
            && first.gate <= open
        {
            assert!(self.released < first.end, "what may leave stays free to leave");
            self.released = first.end;
            self.marks.pop_front();
        }
        assert!(self.released <= self.gated, "only bytes with a gate leave");
        if self.marks.is_empty() {
            assert_eq!(self.released, self.gated, "bytes that are held wait for a mark");
        }
        if self.marks.is_empty() && self.marks.capacity() > MARKS_KEPT {
            self.marks = VecDeque::new();
        }
    }

    /// What may be sent now.
    pub(crate) fn releasable(&self) -> &[u8] {
        let end = usize::try_from(self.released.saturating_sub(self.base)).unwrap_or(0);
        self.bytes.get(self.sent..end).unwrap_or_default()
    }

    /// The kernel took `count` bytes of [`Output::releasable`].
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        let sent = self.base + self.sent as u64;
        assert!(sent <= self.released, "held bytes do not leave");
        let whole = self.sent == self.bytes.len();
        if whole || (self.sent >= COMPACT_BYTES && self.sent * 2 >= self.bytes.len()) {
            self.cut();
        }
    }

    /// Borrows the reactor's buffer unless bytes are waiting here. True if it was borrowed.
    pub(crate) fn lend(&mut self, scratch: &mut Vec<u8>, level: u64) -> bool {
        self.level = level;
        let lend = self.bytes.capacity() == 0;
        if lend {
            std::mem::swap(&mut self.bytes, scratch);
        }
        lend
    }

    /// Returns the reactor's buffer; moves what could not be sent to a buffer of its own.
    pub(crate) fn settle(&mut self, scratch: &mut Vec<u8>) {
        self.cut();
        std::mem::swap(&mut self.bytes, scratch);
        if !scratch.is_empty() {
            if scratch.len() >= scratch.capacity() / 2 {
                self.bytes = std::mem::take(scratch);
            } else {
                self.bytes = scratch.as_slice().to_vec();
                scratch.clear();
            }
        }
        if scratch.capacity() == 0 || scratch.capacity() > SCRATCH_BYTES_MAX {
            *scratch = Vec::with_capacity(SCRATCH_BYTES);
        }
    }

    /// Frees the connection's own buffer when it is empty.
    pub(crate) fn free_if_empty(&mut self) {
        if self.is_empty() && self.bytes.capacity() != 0 {
            self.cut();
            self.bytes = Vec::new();
        }
    }

    /// The buffer itself, emptied, when the connection is gone.
    pub(crate) fn into_buffer(mut self) -> Vec<u8> {
        self.bytes.clear();
        self.bytes
    }

    /// Heap memory, for accounting.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.marks.capacity() * size_of::<Mark>()
    }

    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Drops the sent bytes from the front of the buffer.
    fn cut(&mut self) {
        self.base += self.sent as u64;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..self.sent);
        }
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn appended(output: &mut Output, bytes: &[u8], gate: u64) {
        output.buffer().extend_from_slice(bytes);
        output.hold(gate);
    }

    #[test]
    fn a_gate_holds_all_following_bytes() {
        let mut output = Output::default();
        appended(&mut output, b"free", 0);
        appended(&mut output, b"held", 10);
        output.buffer().extend_from_slice(b"tail");
        output.end_callback();
        assert_eq!(output.releasable(), b"free");
        assert_eq!(output.held_bytes(), 8);
        output.advance(4);
        output.release(9);
        assert_eq!(output.releasable(), b"");
        output.release(10);
        assert_eq!(output.releasable(), b"heldtail");
        output.advance(8);
        assert!(output.is_empty());
    }

    #[test]
    fn gates_never_shrink() {
        let mut output = Output::default();
        appended(&mut output, b"a", 10);
        appended(&mut output, b"b", 5);
        assert_eq!(output.marks.len(), 1);
        output.release(5);
        assert_eq!(output.releasable(), b"");
        output.release(10);
        assert_eq!(output.releasable(), b"ab");
    }

    #[test]
    fn an_open_gate_makes_no_mark() {
        let mut output = Output::default();
        output.release(100);
        appended(&mut output, b"a", 100);
        assert!(output.marks.is_empty());
        assert_eq!(output.releasable(), b"a");
    }

    #[test]
    fn a_lent_buffer_is_returned_and_the_rest_is_kept() {
        let mut scratch = Vec::with_capacity(SCRATCH_BYTES);
        let mut output = Output::default();
        assert!(output.lend(&mut scratch, 0));
        appended(&mut output, b"sent", 0);
        appended(&mut output, b"held", 1);
        output.advance(4);
        output.settle(&mut scratch);
        assert_eq!(scratch.capacity(), SCRATCH_BYTES);
        assert!(scratch.is_empty());
        assert!(output.heap_bytes() < 256);
        output.release(1);
        assert_eq!(output.releasable(), b"held");
        output.advance(4);
        output.free_if_empty();
        assert!(output.heap_bytes() <= MARKS_KEPT * 16);
        assert_eq!(output.sent_bytes(), 8);
    }

    #[test]
    fn sent_bytes_include_files_and_never_shrink() {
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut output = Output::default();
        appended(&mut output, b"head", 0);
        output.attach(Arc::new(file), 0, 10);
        output.advance(3);
        assert_eq!(output.sent_bytes(), 3);
        output.advance(1);
        output.advance_tail(4);
        assert_eq!((output.sent_bytes(), output.attached_bytes()), (8, 6));
        output.advance_tail(6);
        output.free_if_empty();
        appended(&mut output, b"next", 0);
        output.advance(4);
        assert_eq!((output.sent_bytes(), output.attached_bytes()), (18, 0));
    }

    #[test]
    fn encrypted_bytes_are_not_sent_bytes() {
        let mut output = Output::default();
        // A handshake: it appended no output.
        output.note_encrypted(2000);
        assert_eq!((output.sent_bytes(), output.pending_bytes()), (0, 2000));
        output.note_encrypted(0);
        appended(&mut output, &[0; 1000], 0);
        output.advance(1000);
        for (encrypted, sent) in [(1022, 0), (1000, 0), (400, 600), (0, 1000)] {
            output.note_encrypted(encrypted);
            assert_eq!((output.sent_bytes(), output.pending_bytes()), (sent, encrypted));
        }
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        output.attach(Arc::new(file), 0, 100);
        output.advance_tail(100);
        for (encrypted, sent) in [(122, 978), (100, 1000), (0, 1100)] {
            output.note_encrypted(encrypted);
            assert_eq!(output.sent_bytes(), sent);
        }
    }

    proptest! {
        /// Compares with a list of (byte, gate): the bytes sent at a level are the longest prefix
        /// whose gates are all open.
        #[test]
        fn releases_the_longest_open_prefix(
            parts in prop::collection::vec((1_usize..20, 0_u64..50), 1..40),
            levels in prop::collection::vec(0_u64..60, 1..20),
            step in 1_usize..16,
        ) {
            let mut output = Output::default();
            let mut scratch = Vec::with_capacity(SCRATCH_BYTES);
            let mut model: Vec<(u8, u64)> = Vec::new();
            let mut level = 0;
            let mut taken = Vec::new();
            let mut next_byte = 0_u8;
            let mut levels = levels.into_iter().cycle();
            for (length, gate) in parts {
                let lent = output.lend(&mut scratch, level);
                for _ in 0..length {
                    next_byte = next_byte.wrapping_add(1);
                    output.buffer().push(next_byte);
                    model.push((next_byte, gate));
                }
                output.hold(gate);
                if lent { output.settle(&mut scratch); }
                level = level.max(levels.next().unwrap());
                output.release(level);
                let open = model.iter().take_while(|(_, gate)| *gate <= level).count();
                prop_assert_eq!(output.releasable().len(), open - taken.len());
                let count = output.releasable().len().min(step);
                taken.extend_from_slice(&output.releasable()[..count]);
                output.advance(count);
                output.free_if_empty();
            }
            output.release(u64::MAX);
            taken.extend_from_slice(output.releasable());
            let expected: Vec<u8> = model.iter().map(|(byte, _)| *byte).collect();
            prop_assert_eq!(taken, expected);
        }
    }
}
