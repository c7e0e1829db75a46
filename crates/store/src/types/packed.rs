//! Byte strings one after another in one allocation: the compact form of every collection.
//!
//! ```text
//! header  varint   length of the content
//! content bytes
//! back    varint, its bytes in reverse order: length of header and content
//! ```
//!
//! The header allows iteration from the left, the back length from the right; an element of less
//! than 126 bytes costs two bytes in addition to its content. In an *equal* block, which lists begin
//! with, all elements have one length and are their contents alone, until one of another length is
//! added: then all get frames. The block may start with a gap, so that adding and removing elements
//! at either end does not move the others.
//!
//! Positions (`at`) are byte offsets from the first element. They are valid only until the
//! next change. The bytes are always made here: input is added element by element.

use std::ops::Range;

use super::{LARGE_ALLOCATION_BYTES, allocation_bytes};
use crate::blob::{prefetch, prefetch_block};

const CONTINUES: u8 = 0x80;
const VARINT_BYTES_MAX: usize = 10;
const _: () = assert!(VARINT_BYTES_MAX == usize::BITS.div_ceil(7) as usize, "seven bits a byte");
/// Unused bytes above which a block is copied into a smaller one: as many as it holds, and these.
const WASTE_BYTES: usize = 64;

/// See the module's documentation. All searches are linear; all changes move at most the block.
#[derive(Clone, Default)]
pub(crate) struct Packed {
    /// The gap, then the elements.
    bytes: Vec<u8>,
    /// Length of the gap.
    start: usize,
    /// Number of elements.
    count: u32,
    /// The length of the elements of an equal block, 0 if they have frames.
    width: u32,
}

/// One element and its place.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    /// Position of the element after it, or the end.
    pub(crate) next: usize,
}

fn varint_len(number: usize) -> usize {
    ((usize::BITS - (number | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Bytes that an element with a content of `len` bytes takes in a block.
pub(crate) fn element_bytes(len: usize) -> usize {
    let span = varint_len(len) + len;
    span + varint_len(span)
}

/// Varint at the front of `bytes`: the number, and how many bytes it took.
fn read_forward(bytes: &[u8]) -> (usize, usize) {
    read_varint(bytes.iter())
}

/// Varint at the back of `bytes`, last byte first: likewise.
fn read_backward(bytes: &[u8]) -> (usize, usize) {
    read_varint(bytes.iter().rev())
}

fn read_varint<'a>(bytes: impl Iterator<Item = &'a u8>) -> (usize, usize) {
    let mut number = 0;
    for (index, &byte) in bytes.take(VARINT_BYTES_MAX).enumerate() {
        number |= usize::from(byte & !CONTINUES) << (7 * index);
        if byte & CONTINUES == 0 {
            return (number, index + 1);
        }
    }
    unreachable!("a block ends between elements");
}

fn low_bits(number: usize) -> u8 {
    number.to_le_bytes()[0] & !CONTINUES
}

fn write_varint(slot: &mut [u8], mut number: usize) {
    let last = slot.len() - 1;
    for byte in &mut slot[..last] {
        *byte = low_bits(number) | CONTINUES;
        number >>= 7;
    }
    slot[last] = low_bits(number);
}

/// Fills `slot`, which has exactly the element's size, with the joined parts.
fn write_element(slot: &mut [u8], head: &[u8], tail: &[u8]) {
    let len = head.len() + tail.len();
    debug_assert_eq!(slot.len(), element_bytes(len));
    let header_len = varint_len(len);
    let span = header_len + len;
    let (front, back) = slot.split_at_mut(span);
    write_varint(&mut front[..header_len], len);
    front[header_len..header_len + head.len()].copy_from_slice(head);
    front[header_len + head.len()..].copy_from_slice(tail);
    write_varint(back, span);
    back.reverse();
}

/// Bytes that a block takes which has grown to `len` bytes: up to the next class of the allocator.
fn grown_bytes(len: usize) -> usize {
    let room = if len > LARGE_ALLOCATION_BYTES { len / 8 } else { 0 };
    allocation_bytes(len + room)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "calls take two fifths of the instructions of LRANGE")]
fn element_at(live: &[u8], at: usize, width: u32) -> Element<'_> {
    if width > 0 {
        let next = at + width as usize;
        return Element { bytes: &live[at..next], at, next };
    }
    let byte = live[at];
    // Nearly all lengths are one byte long; this is the inner loop of every search.
    let (len, header_len) =
        if byte < CONTINUES { (usize::from(byte), 1) } else { read_forward(&live[at..]) };
    let content = at + header_len;
    let span = header_len + len;
    let back_len = if span < usize::from(CONTINUES) { 1 } else { varint_len(span) };
    Element { bytes: &live[content..content + len], at, next: at + span + back_len }
}

#[inline]
fn element_before(live: &[u8], end: usize, width: u32) -> Element<'_> {
    if width > 0 {
        return element_at(live, end - width as usize, width);
    }
    let (span, back_len) = read_backward(&live[..end]);
    element_at(live, end - back_len - span, width)
}

impl Packed {
    /// An equal block for elements of `len` bytes.
    pub(crate) fn equal(len: usize) -> Packed {
        Packed { width: u32::try_from(len).unwrap_or(0), ..Packed::default() }
    }

    fn is_equal_to(&self, len: usize) -> bool {
        self.width > 0 && self.width as usize == len
    }

    /// Bytes that an element takes in this block, which has frames or elements of this length.
    fn element_bytes(&self, len: usize) -> usize {
        if self.width > 0 { len } else { element_bytes(len) }
    }

    /// Bytes of all elements with their frames.
    pub(crate) fn framed_bytes(&self) -> usize {
        match self.width {
            0 => self.live_bytes(),
            width => self.len() * element_bytes(width as usize),
        }
    }

    /// Bytes of all elements after one of `len` bytes was added.
    pub(crate) fn bytes_with(&self, len: usize) -> usize {
        if self.is_equal_to(len) {
            return self.live_bytes() + len;
        }
        self.framed_bytes() + element_bytes(len)
    }

    /// Bytes of all elements after one of `old` bytes was replaced by one of `new` bytes.
    pub(crate) fn bytes_after_replacing(&self, old: usize, new: usize) -> usize {
        if self.is_equal_to(new) {
            return self.live_bytes();
        }
        self.framed_bytes() - element_bytes(old) + element_bytes(new)
    }

    /// Prepares a block for an element of `len` bytes at a position. Returns the position, which
    /// differs if the elements got frames.
    fn admit(&mut self, at: usize, len: usize) -> usize {
        if self.width == 0 || self.is_equal_to(len) {
            return at;
        }
        let width = self.width as usize;
        let framed_at = at / width * element_bytes(width);
        let mut framed = Packed::default();
        framed.bytes.reserve_exact(grown_bytes(self.framed_bytes() + element_bytes(len)));
        self.iter().for_each(|element| framed.push_back(element));
        *self = framed;
        framed_at
    }

    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn live(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Bytes of all elements: also the position of the end.
    pub(crate) fn live_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    /// Prefetches the first elements.
    pub(crate) fn prefetch(&self) {
        prefetch_block(self.live().as_ptr(), self.live_bytes());
    }

    /// Prefetches the last elements.
    pub(crate) fn prefetch_end(&self) {
        prefetch(self.bytes.as_ptr_range().end.wrapping_sub(1));
    }

    /// The element that starts at `at`, nothing at the end. O(1).
    pub(crate) fn element(&self, at: usize) -> Option<Element<'_>> {
        (at < self.live_bytes()).then(|| element_at(self.live(), at, self.width))
    }

    /// Position of the element `index`, or the end; walks from the nearer end.
    pub(crate) fn position(&self, index: usize) -> usize {
        let (live, count) = (self.live(), self.len());
        if index >= count {
            live.len()
        } else if self.width > 0 {
            index * self.width as usize
        } else if index <= count / 2 {
            (0..index).fold(0, |at, _| element_at(live, at, 0).next)
        } else {
            (index..count).fold(live.len(), |end, _| element_before(live, end, 0).at)
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.element(self.position(index)).map(|element| element.bytes)
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        let live = self.live();
        Iter { live, front: 0, back: live.len(), remaining: self.len(), width: self.width }
    }

    /// All elements with their positions, front to back.
    pub(crate) fn elements(&self) -> impl Iterator<Item = Element<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let element = self.element(at)?;
            at = element.next;
            Some(element)
        })
    }

    /// Amortised O(1) beyond the copy of the value.
    pub(crate) fn push_back(&mut self, value: &[u8]) {
        self.insert(self.live_bytes(), value);
    }

    /// Amortised O(1) beyond the copy of the value.
    pub(crate) fn push_front(&mut self, value: &[u8]) {
        self.insert(0, value);
    }

    pub(crate) fn insert(&mut self, at: usize, value: &[u8]) {
        self.insert_joined(at, value, &[]);
    }

    /// Inserts one element whose content is `head` and then `tail`.
    pub(crate) fn insert_joined(&mut self, at: usize, head: &[u8], tail: &[u8]) {
        debug_assert!(at <= self.live_bytes(), "an element starts at most at the end");
        let len = head.len() + tail.len();
        let at = self.admit(at, len);
        let new = self.element_bytes(len);
        self.resize_hole(at, 0, new);
        self.write(at, head, tail);
        self.count += 1;
    }

    /// Writes an element into a hole of its size.
    fn write(&mut self, at: usize, head: &[u8], tail: &[u8]) {
        let hole = self.start + at;
        let end = hole + self.element_bytes(head.len() + tail.len());
        let slot = &mut self.bytes[hole..end];
        if self.width == 0 {
            return write_element(slot, head, tail);
        }
        slot[..head.len()].copy_from_slice(head);
        slot[head.len()..].copy_from_slice(tail);
    }

    /// Replaces the content of the element at `at`.
    pub(crate) fn replace(&mut self, at: usize, value: &[u8]) {
        let at = self.admit(at, value.len());
        let old = element_at(self.live(), at, self.width).next - at;
        self.resize_hole(at, old, self.element_bytes(value.len()));
        self.write(at, value, &[]);
        self.settle();
    }

    /// Removes the `count` elements that lie in `range`; at the ends amortised O(1).
    pub(crate) fn remove(&mut self, range: Range<usize>, count: usize) {
        debug_assert!(count <= self.len());
        self.resize_hole(range.start, range.len(), 0);
        self.count -= u32::try_from(count).expect("at most all elements");
        debug_assert_eq!(self.count == 0, self.live_bytes() == 0, "elements fill the block");
        self.settle();
    }

    pub(crate) fn pop_front(&mut self) -> Option<Box<[u8]>> {
        let element = self.element(0)?;
        let (popped, end) = (element.bytes.into(), element.next);
        self.remove(0..end, 1);
        Some(popped)
    }

    pub(crate) fn pop_back(&mut self) -> Option<Box<[u8]>> {
        if self.is_empty() {
            return None;
        }
        let end = self.live_bytes();
        let element = element_before(self.live(), end, self.width);
        let (popped, at) = (element.bytes.into(), element.at);
        self.remove(at..end, 1);
        Some(popped)
    }

    /// Keeps the elements for which `keep` returns true, in one pass.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let (mut read, mut write, mut kept) = (0, 0, 0);
        while let Some(element) = self.element(read) {
            let next = element.next;
            if keep(element.bytes) {
                let source = self.start + read..self.start + next;
                self.bytes.copy_within(source, self.start + write);
                write += next - read;
                kept += 1;
            }
            read = next;
        }
        debug_assert!(kept <= self.count);
        self.bytes.truncate(self.start + write);
        self.count = kept;
        self.settle();
    }

    /// Cuts the block before the element `index`, and returns the elements from there on.
    pub(crate) fn split_off(&mut self, index: usize) -> Packed {
        debug_assert!(index <= self.len());
        let at = self.start + self.position(index);
        let bytes = self.bytes[at..].to_vec();
        let index = u32::try_from(index).expect("at most all elements");
        let right = Packed { bytes, start: 0, count: self.count - index, width: self.width };
        self.bytes.truncate(at);
        self.count = index;
        self.settle();
        right
    }

    /// Resizes the `old` bytes at `at` to `new` bytes, whose contents are undefined.
    fn resize_hole(&mut self, at: usize, old: usize, new: usize) {
        let expected_bytes = self.live_bytes() - old + new;
        if at == 0 && self.start + old >= new {
            self.start = self.start + old - new;
        } else if at == 0 && old == 0 && self.count > 0 {
            self.open_gap(new);
        } else if new > old {
            let grow = new - old;
            self.reserve_back(grow);
            let (hole, end) = (self.start + at, self.bytes.len());
            self.bytes.resize(end + grow, 0);
            self.bytes.copy_within(hole + old..end, hole + new);
        } else {
            let (hole, end) = (self.start + at, self.bytes.len());
            self.bytes.copy_within(hole + old..end, hole + new);
            self.bytes.truncate(end - (old - new));
        }
        debug_assert_eq!(self.live_bytes(), expected_bytes, "other elements keep their sizes");
    }

    /// Makes room for `grow` bytes before the first element, and up to the next class of the
    /// allocator: the following pushes pay for the copy.
    fn open_gap(&mut self, grow: usize) {
        let live = self.live();
        let capacity = grown_bytes(live.len() + grow);
        let gap = capacity - live.len();
        let mut bytes = Vec::with_capacity(capacity);
        bytes.resize(gap, 0);
        bytes.extend_from_slice(live);
        self.bytes = bytes;
        self.start = gap - grow;
    }

    /// Makes room for `grow` bytes after the last element: from the gap if that is large (a queue),
    /// else from the allocator, up to its next class.
    fn reserve_back(&mut self, grow: usize) {
        if self.bytes.capacity() - self.bytes.len() >= grow {
            return;
        }
        let live = self.live_bytes();
        if self.start >= grow.max(live / 2) {
            self.bytes.drain(..self.start);
            self.start = 0;
        } else if self.start > 0 {
            self.reallocate(grown_bytes(live + grow));
        } else {
            self.bytes.reserve_exact(grown_bytes(live + grow) - live);
        }
    }

    /// Frees memory after a removal. Amortised O(1): a copy of the live bytes follows the removal
    /// of about as many.
    fn settle(&mut self) {
        let live = self.live_bytes();
        if self.bytes.capacity() - live > live + WASTE_BYTES {
            self.reallocate(live + live / 4);
        }
    }

    /// Frees spare room: for a block that has reached the limit of its owner.
    pub(crate) fn shrink(&mut self) {
        let live = self.live_bytes();
        if allocation_bytes(live) < self.heap_bytes() {
            self.reallocate(live);
        }
    }

    fn reallocate(&mut self, capacity: usize) {
        let live = self.live();
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(live);
        self.bytes = bytes;
        self.start = 0;
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(<[u8]>::escape_ascii)).finish()
    }
}

/// Elements from both ends.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a> {
    live: &'a [u8],
    front: usize,
    back: usize,
    remaining: usize,
    width: u32,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.remaining = self.remaining.checked_sub(1)?;
        let element = element_at(self.live, self.front, self.width);
        self.front = element.next;
        Some(element.bytes)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let element = element_before(self.live, self.back, self.width);
        self.back = element.at;
        Some(element.bytes)
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(packed: &Packed, oracle: &[Vec<u8>]) {
        assert_eq!(packed.len(), oracle.len());
        assert!(packed.iter().eq(oracle.iter()));
        assert!(packed.iter().rev().eq(oracle.iter().rev()));
        for index in 0..=oracle.len() {
            assert_eq!(packed.get(index), oracle.get(index).map(Vec::as_slice));
        }
        let framed: usize = oracle.iter().map(|element| element_bytes(element.len())).sum();
        assert_eq!(packed.framed_bytes(), framed);
        let contents: usize = oracle.iter().map(Vec::len).sum();
        let bytes = if packed.width > 0 { contents } else { framed };
        assert_eq!(packed.live_bytes(), bytes);
        let capacity = packed.bytes.capacity();
        assert!(capacity <= 2 * bytes + WASTE_BYTES, "{capacity} for {bytes}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(usize, Vec<u8>),
        PushFront(Vec<u8>),
        PushBack(Vec<u8>),
        Replace(usize, Vec<u8>),
        Remove(usize, usize),
        PopFront,
        PopBack,
        Retain(u8),
        SplitOff(usize),
    }

    /// Lengths on both sides of every step of the varints that tests can afford.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![8 => 0usize..10, 2 => 120usize..132, 1 => 16_378usize..16_390];
        (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
    }

    fn step() -> impl Strategy<Value = Step> {
        steps_with(value)
    }

    /// Steps with elements of one length.
    fn step_of(len: usize) -> impl Strategy<Value = Step> {
        steps_with(move || any::<u8>().prop_map(move |byte| vec![byte; len]))
    }

    fn steps_with<S: Strategy<Value = Vec<u8>>>(
        value: impl Fn() -> S,
    ) -> impl Strategy<Value = Step> {
        let index = || 0usize..20;
        prop_oneof![
            4 => (index(), value()).prop_map(|(index, value)| Step::Insert(index, value)),
            4 => value().prop_map(Step::PushFront),
            4 => value().prop_map(Step::PushBack),
            3 => (index(), value()).prop_map(|(index, value)| Step::Replace(index, value)),
            2 => (index(), 0usize..4).prop_map(|(index, count)| Step::Remove(index, count)),
            2 => Just(Step::PopFront),
            2 => Just(Step::PopBack),
            1 => any::<u8>().prop_map(Step::Retain),
            1 => index().prop_map(Step::SplitOff),
        ]
    }

    fn apply(packed: &mut Packed, oracle: &mut Vec<Vec<u8>>, step: Step) {
        match step {
            Step::Insert(index, value) => {
                let index = index.min(oracle.len());
                let bytes = packed.bytes_with(value.len());
                packed.insert_joined(
                    packed.position(index),
                    &value[..value.len() / 2],
                    &value[value.len() / 2..],
                );
                assert_eq!(packed.live_bytes(), bytes);
                oracle.insert(index, value);
            }
            Step::PushFront(value) => {
                packed.push_front(&value);
                oracle.insert(0, value);
            }
            Step::PushBack(value) => {
                packed.push_back(&value);
                oracle.push(value);
            }
            Step::Replace(index, value) => {
                if index < oracle.len() {
                    let bytes = packed.bytes_after_replacing(oracle[index].len(), value.len());
                    packed.replace(packed.position(index), &value);
                    assert_eq!(packed.live_bytes(), bytes);
                    oracle[index] = value;
                }
            }
            Step::Remove(index, count) => {
                let start = index.min(oracle.len());
                let end = (start + count).min(oracle.len());
                packed.remove(packed.position(start)..packed.position(end), end - start);
                oracle.drain(start..end);
            }
            Step::PopFront => {
                let expected = (!oracle.is_empty()).then(|| oracle.remove(0));
                assert_eq!(packed.pop_front().map(Vec::from), expected);
            }
            Step::PopBack => assert_eq!(packed.pop_back().map(Vec::from), oracle.pop()),
            Step::Retain(byte) => {
                packed.retain(|element| element.first() != Some(&byte));
                oracle.retain(|element| element.first() != Some(&byte));
            }
            Step::SplitOff(index) => {
                let index = index.min(oracle.len());
                check(&packed.split_off(index), &oracle.split_off(index));
            }
        }
    }

    proptest! {
        #[test]
        fn a_block_is_as_the_oracle(
            width in 0usize..4,
            equal in proptest::collection::vec(step_of(2), 0..40),
            steps in proptest::collection::vec(step(), 1..80),
        ) {
            let (mut packed, mut oracle) = (Packed::equal(width), Vec::new());
            for step in equal.into_iter().chain(steps) {
                apply(&mut packed, &mut oracle, step);
                check(&packed, &oracle);
            }
        }
    }

    #[test]
    fn a_short_element_costs_two_bytes_beyond_its_content() {
        assert_eq!(element_bytes(0), 2);
        assert_eq!(element_bytes(126), 128);
        assert_eq!(element_bytes(127), 130);
    }
}
