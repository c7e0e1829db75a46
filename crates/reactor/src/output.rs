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

/// The levels of a reactor: gates are compared with one of them. Both only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What this machine has completed.
    Local = 0,
    /// What other machines have completed as well: never above the local level.
    Remote = 1,
}

/// The current levels, by [`Level`].
pub(crate) type Levels = [u64; 2];

/// A level, and the value that it must reach. One word, because every held reply has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate(u64);

impl Gate {
    fn new(level: Level, value: u64) -> Gate {
        // The greatest value is never reached, with or without its first bit.
        Gate((value.min(u64::MAX >> 1) << 1) | level as u64)
    }

    fn value(self) -> u64 {
        self.0 >> 1
    }

    fn level(self) -> Level {
        if self.0 & 1 == 0 { Level::Local } else { Level::Remote }
    }

    #[inline]
    fn is_open(self, levels: Levels) -> bool {
        self.value() <= levels[self.level() as usize]
    }

    /// Whether `other` is open whenever this gate is.
    fn covers(self, other: Gate) -> bool {
        self.value() >= other.value() && self.level() as usize >= other.level() as usize
    }
}

/// Bytes up to the stream position `end` wait for `gate`.
#[derive(Debug, Clone, Copy)]
struct Mark {
    end: u64,
    gate: Gate,
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
/// changes, so bytes after a closed gate wait as well.
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
    /// The reactor's levels at the last update: gates at or below them are open.
    levels: Levels,
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
            levels: [0; 2],
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
    /// when this level of the reactor is at least `gate`. A gate of 0 permits it as soon as order
    /// allows.
    ///
    /// One call per batch is cheaper than one per reply: each new gate costs a 16-byte mark.
    pub fn hold(&mut self, level: Level, gate: u64) {
        let end = self.end();
        if end == self.gated {
            return;
        }
        assert!(self.gated < end, "bytes only leave below `released`");
        let gate = Gate::new(level, gate);
        self.gated = end;
        match self.marks.back_mut() {
            None if gate.is_open(self.levels) => self.released = end,
            Some(last) if last.gate.covers(gate) => last.end = end,
            _ => self.marks.push_back(Mark { end, gate }),
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

    /// Whether output waits for a gate of the remote level.
    pub(crate) fn waits_for_remote(&self) -> bool {
        self.marks.iter().any(|mark| mark.gate.level() == Level::Remote)
    }

    /// Whether the output that waits first must wait longer.
    pub(crate) fn is_closed(&self, levels: Levels) -> bool {
        self.marks.front().is_some_and(|mark| !mark.gate.is_open(levels))
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
        self.hold(Level::Local, 0);
    }

    /// Opens the gates up to `levels`.
    pub(crate) fn release(&mut self, levels: Levels) {
        self.levels = levels;
        let open = levels.map(|level| planted::shifted("gate comparison", level));
        while let Some(first) = self.marks.front()
            && first.gate.is_open(open)
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
    pub(crate) fn lend(&mut self, scratch: &mut Vec<u8>, levels: Levels) -> bool {
        self.levels = levels;
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
        output.hold(Level::Local, gate);
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
        output.release([9, 0]);
        assert_eq!(output.releasable(), b"");
        output.release([10, 0]);
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
        output.release([5, 0]);
        assert_eq!(output.releasable(), b"");
        output.release([10, 0]);
        assert_eq!(output.releasable(), b"ab");
    }

    #[test]
    fn a_gate_of_the_remote_level_covers_the_local_one() {
        let mut output = Output::default();
        output.release([20, 4]);
        for (level, gate) in [(Level::Remote, 10), (Level::Local, 7), (Level::Remote, 9)] {
            output.buffer().push(b'a');
            output.hold(level, gate);
        }
        assert_eq!(output.marks.len(), 1);
        output.buffer().push(b'b');
        output.hold(Level::Local, 30);
        output.release([20, 9]);
        assert_eq!(output.releasable(), b"");
        output.release([20, 10]);
        assert_eq!(output.releasable(), b"aaa");
        output.release([30, 10]);
        assert_eq!(output.releasable(), b"aaab");
    }

    #[test]
    fn an_open_gate_makes_no_mark() {
        let mut output = Output::default();
        output.release([100, 0]);
        appended(&mut output, b"a", 100);
        assert!(output.marks.is_empty());
        assert_eq!(output.releasable(), b"a");
    }

    #[test]
    fn a_lent_buffer_is_returned_and_the_rest_is_kept() {
        let mut scratch = Vec::with_capacity(SCRATCH_BYTES);
        let mut output = Output::default();
        assert!(output.lend(&mut scratch, [0; 2]));
        appended(&mut output, b"sent", 0);
        appended(&mut output, b"held", 1);
        output.advance(4);
        output.settle(&mut scratch);
        assert_eq!(scratch.capacity(), SCRATCH_BYTES);
        assert!(scratch.is_empty());
        assert!(output.heap_bytes() < 256);
        output.release([1, 0]);
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
        /// Compares with a list of (byte, level, gate): the bytes sent are the longest prefix whose
        /// gates are all open.
        #[test]
        fn releases_the_longest_open_prefix(
            parts in prop::collection::vec((1_usize..20, 0_u64..50, any::<bool>()), 1..40),
            steps in prop::collection::vec((0_u64..60, 0_u64..60), 1..20),
            step in 1_usize..16,
        ) {
            let mut output = Output::default();
            let mut scratch = Vec::with_capacity(SCRATCH_BYTES);
            let mut model: Vec<(u8, Level, u64)> = Vec::new();
            let mut levels = [0; 2];
            let mut taken = Vec::new();
            let mut next_byte = 0_u8;
            let mut steps = steps.into_iter().cycle();
            for (length, gate, is_remote) in parts {
                let level = if is_remote { Level::Remote } else { Level::Local };
                let lent = output.lend(&mut scratch, levels);
                for _ in 0..length {
                    next_byte = next_byte.wrapping_add(1);
                    output.buffer().push(next_byte);
                    model.push((next_byte, level, gate));
                }
                output.hold(level, gate);
                if lent { output.settle(&mut scratch); }
                let (local, remote) = steps.next().unwrap();
                levels = [levels[0].max(local), levels[1].max(remote.min(local))];
                output.release(levels);
                let is_open = |part: &&(u8, Level, u64)| part.2 <= levels[part.1 as usize];
                let open = model.iter().take_while(is_open).count();
                prop_assert_eq!(output.releasable().len(), open - taken.len());
                let count = output.releasable().len().min(step);
                taken.extend_from_slice(&output.releasable()[..count]);
                output.advance(count);
                output.free_if_empty();
            }
            output.release([u64::MAX; 2]);
            taken.extend_from_slice(output.releasable());
            let expected: Vec<u8> = model.iter().map(|(byte, ..)| *byte).collect();
            prop_assert_eq!(taken, expected);
        }
    }
}
