//! Byte strings in the order of the user: packed blocks of a few kilobytes in a ring.
//!
//! Known weakness: chunks are not merged after removals from the middle (Redis does not either), so
//! a list in which LREM left one element per chunk takes about 60 bytes more than necessary per
//! element, until it is next loaded from a snapshot.

use std::collections::VecDeque;

use super::packed::Packed;
use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::blob::prefetch;
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// A list of byte strings.
///
/// Ends: amortised O(1). An index: O(chunks up to it from the nearer end + elements of one chunk).
#[derive(Debug, Default)]
pub struct List {
    /// None of them is empty.
    chunks: VecDeque<Packed>,
    len: usize,
    /// Allocations of all chunks.
    chunk_heap_bytes: usize,
}

/// The place of an element.
struct Place {
    chunk: usize,
    /// Index within the chunk.
    index: usize,
}

fn fits(chunk: &Packed, value: &[u8], compact: &Compact) -> bool {
    chunk.len() < compact.list_chunk_entries_max
        && chunk.bytes_with(value.len()) <= compact.list_chunk_bytes_max
}

impl List {
    /// No elements, no allocation.
    pub fn new() -> List {
        List::default()
    }

    pub(crate) fn of_packed(packed: Packed) -> List {
        let mut list = List { len: packed.len(), ..List::default() };
        if !packed.is_empty() {
            list.insert_chunk(0, packed);
        }
        list
    }

    /// The block of a list that has only one.
    pub(crate) fn packed(&self) -> Option<&Packed> {
        self.chunks.front().filter(|_| self.chunks.len() == 1)
    }

    /// Number of elements. O(1).
    pub fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes one chunk and keeps the account of its memory.
    fn edit<R>(&mut self, chunk: usize, change: impl FnOnce(&mut Packed) -> R) -> R {
        let packed = &mut self.chunks[chunk];
        self.chunk_heap_bytes -= packed.heap_bytes();
        let result = change(packed);
        self.chunk_heap_bytes += packed.heap_bytes();
        result
    }

    fn insert_chunk(&mut self, chunk: usize, packed: Packed) {
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(1 + self.chunks.len() / 4); // most lists have one chunk
        }
        self.chunk_heap_bytes += packed.heap_bytes();
        self.chunks.insert(chunk, packed);
    }

    fn remove_chunks(&mut self, chunks: std::ops::Range<usize>) {
        for packed in self.chunks.drain(chunks) {
            self.chunk_heap_bytes -= packed.heap_bytes();
        }
        if self.chunks.capacity() > 4 * self.chunks.len() {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
    }

    fn remove_if_empty(&mut self, chunk: usize) {
        if self.chunks[chunk].is_empty() {
            self.remove_chunks(chunk..chunk + 1);
        }
    }

    /// The place of an index below `len`; walks from the nearer end.
    fn place(&self, index: usize) -> Place {
        let mut from_end = self.len - index;
        if index < from_end {
            let mut from_start = index;
            for (chunk, packed) in self.chunks.iter().enumerate() {
                if from_start < packed.len() {
                    return Place { chunk, index: from_start };
                }
                from_start -= packed.len();
            }
        }
        for (chunk, packed) in self.chunks.iter().enumerate().rev() {
            if from_end <= packed.len() {
                return Place { chunk, index: packed.len() - from_end };
            }
            from_end -= packed.len();
        }
        unreachable!("the lengths of the chunks sum up to the length of the list")
    }

    /// Puts an element before all others. Amortised O(1).
    pub fn push_front(&mut self, value: &[u8], compact: &Compact) {
        if !self.chunks.front().is_some_and(|chunk| fits(chunk, value, compact)) {
            if !self.is_empty() {
                self.edit(0, Packed::shrink);
            }
            self.insert_chunk(0, Packed::equal(value.len()));
        }
        self.edit(0, |packed| packed.push_front(value));
        self.len += 1;
    }

    /// Appends an element. Amortised O(1).
    pub fn push_back(&mut self, value: &[u8], compact: &Compact) {
        if !self.chunks.back().is_some_and(|chunk| fits(chunk, value, compact)) {
            if let Some(last) = self.chunks.len().checked_sub(1) {
                self.edit(last, Packed::shrink);
            }
            self.insert_chunk(self.chunks.len(), Packed::equal(value.len()));
        }
        self.edit(self.chunks.len() - 1, |packed| packed.push_back(value));
        self.len += 1;
    }

    /// Takes the first element. Amortised O(1).
    pub fn pop_front(&mut self) -> Option<Box<[u8]>> {
        if self.is_empty() {
            return None;
        }
        let popped = self.edit(0, Packed::pop_front);
        debug_assert!(popped.is_some(), "no chunk is empty");
        self.remove_if_empty(0);
        self.len -= 1;
        popped
    }

    /// Takes the last element. Amortised O(1).
    pub fn pop_back(&mut self) -> Option<Box<[u8]>> {
        let last = self.chunks.len().checked_sub(1)?;
        let popped = self.edit(last, Packed::pop_back);
        debug_assert!(popped.is_some(), "no chunk is empty");
        self.remove_if_empty(last);
        self.len -= 1;
        popped
    }

    /// The element at `index`, counted from the front. Cost: see [`List`].
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        if index >= self.len {
            return None;
        }
        let place = self.place(index);
        self.chunks[place.chunk].get(place.index)
    }

    /// Replaces the element at `index`; false if there is none. Cost: see [`List`].
    pub fn set(&mut self, index: usize, value: &[u8], compact: &Compact) -> bool {
        if index >= self.len {
            return false;
        }
        let place = self.place(index);
        let packed = &self.chunks[place.chunk];
        let at = packed.position(place.index);
        let old_len = packed.get(place.index).map_or(0, <[u8]>::len);
        let bytes = packed.bytes_after_replacing(old_len, value.len());
        if bytes <= compact.list_chunk_bytes_max || packed.len() == 1 {
            self.edit(place.chunk, |packed| packed.replace(at, value));
        } else {
            self.remove_range(index, index + 1);
            self.insert(index, value, compact);
        }
        true
    }

    /// Inserts an element so that it gets `index`; false if `index` is greater than `len`.
    /// Cost: see [`List`]; a full chunk is cut in two.
    pub fn insert(&mut self, index: usize, value: &[u8], compact: &Compact) -> bool {
        if index > self.len {
            return false;
        }
        if index == 0 {
            self.push_front(value, compact);
        } else if index == self.len {
            self.push_back(value, compact);
        } else {
            self.insert_inside(index, value, compact);
        }
        true
    }

    /// Inserts between the elements `index - 1` and `index`, which both exist.
    fn insert_inside(&mut self, index: usize, value: &[u8], compact: &Compact) {
        let left = self.place(index - 1);
        self.len += 1;
        let cut = left.index + 1;
        if fits(&self.chunks[left.chunk], value, compact) {
            return self.edit(left.chunk, |packed| {
                packed.insert(packed.position(cut), value);
            });
        }
        if cut < self.chunks[left.chunk].len() {
            let right = self.edit(left.chunk, |packed| packed.split_off(cut));
            self.insert_chunk(left.chunk + 1, right);
        }
        if fits(&self.chunks[left.chunk], value, compact) {
            self.edit(left.chunk, |packed| packed.push_back(value));
        } else if fits(&self.chunks[left.chunk + 1], value, compact) {
            self.edit(left.chunk + 1, |packed| packed.push_front(value));
        } else {
            self.insert_chunk(left.chunk + 1, Packed::equal(value.len()));
            self.edit(left.chunk + 1, |packed| packed.push_back(value));
        }
    }

    /// Removes the elements at `start..end`, as far as there are any. O(chunks).
    pub fn remove_range(&mut self, start: usize, end: usize) {
        let end = end.min(self.len);
        if start >= end {
            return;
        }
        let (first, last) = (self.place(start), self.place(end - 1));
        self.len -= end - start;
        if first.chunk == last.chunk {
            self.remove_inside(first.chunk, first.index..last.index + 1);
            return self.remove_if_empty(first.chunk);
        }
        self.remove_inside(last.chunk, 0..last.index + 1);
        let first_len = self.chunks[first.chunk].len();
        self.remove_inside(first.chunk, first.index..first_len);
        let from = first.chunk + usize::from(!self.chunks[first.chunk].is_empty());
        let to = last.chunk + usize::from(self.chunks[last.chunk].is_empty());
        self.remove_chunks(from..to);
        debug_assert!(self.is_consistent());
    }

    /// Whether the chunks are what the list counts. O(chunks).
    fn is_consistent(&self) -> bool {
        let elements: usize = self.chunks.iter().map(Packed::len).sum();
        let heap_bytes: usize = self.chunks.iter().map(Packed::heap_bytes).sum();
        elements == self.len
            && heap_bytes == self.chunk_heap_bytes
            && self.chunks.iter().all(|chunk| !chunk.is_empty())
    }

    fn remove_inside(&mut self, chunk: usize, range: std::ops::Range<usize>) {
        self.edit(chunk, |packed| {
            let bytes = packed.position(range.start)..packed.position(range.end);
            packed.remove(bytes, range.len());
        });
    }

    /// Keeps only the elements at `start..end`. O(chunks removed).
    pub fn trim(&mut self, start: usize, end: usize) {
        if start >= end {
            return self.remove_range(0, self.len);
        }
        self.remove_range(end, self.len);
        self.remove_range(0, start);
    }

    /// Removes elements equal to `value`: the first `count` of them, or the last `-count` if
    /// negative, or all if 0. Returns how many. O(bytes).
    pub fn remove_matching(&mut self, count: i64, value: &[u8]) -> usize {
        let wanted = match count {
            0 => usize::MAX,
            _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
        };
        let mut left = wanted;
        for step in 0..self.chunks.len() {
            if left == 0 {
                break;
            }
            let chunk = if count < 0 { self.chunks.len() - 1 - step } else { step };
            left -= self.remove_matching_in(chunk, left, count < 0, value);
        }
        let removed = wanted - left;
        if removed > 0 {
            self.len -= removed;
            self.drop_empty_chunks();
        }
        debug_assert!(self.is_consistent());
        removed
    }

    /// Removes the first or last `count_max` matches of one chunk, and returns how many.
    fn remove_matching_in(
        &mut self,
        chunk: usize,
        count_max: usize,
        from_back: bool,
        value: &[u8],
    ) -> usize {
        let matches = self.chunks[chunk].iter().filter(|element| *element == value).count();
        let count = matches.min(count_max);
        if count == 0 {
            return 0;
        }
        let skip = if from_back { matches - count } else { 0 };
        let mut seen = 0;
        self.edit(chunk, |packed| {
            packed.retain(|element| {
                if element != value {
                    return true;
                }
                seen += 1;
                !(skip < seen && seen <= skip + count)
            });
        });
        count
    }

    fn drop_empty_chunks(&mut self) {
        let dropped = self.chunks.iter().filter(|chunk| chunk.is_empty());
        self.chunk_heap_bytes -= dropped.map(Packed::heap_bytes).sum::<usize>();
        self.chunks.retain(|chunk| !chunk.is_empty());
        let end = self.chunks.len();
        self.remove_chunks(end..end);
    }

    /// All elements; from either end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.chunks.iter().flat_map(Packed::iter)
    }

    /// All elements, the last first.
    pub fn iter_rev(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().rev()
    }

    /// The elements from `index` on. Cost of the start: see [`List`].
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let place = if index < self.len {
            self.place(index)
        } else {
            Place { chunk: self.chunks.len(), index: 0 }
        };
        self.chunks.range(place.chunk..).flat_map(Packed::iter).skip(place.index)
    }

    /// Prefetches what points at the elements of the first and the last chunk.
    pub(crate) fn prefetch_chunks(&self) {
        self.ends().for_each(|chunk| prefetch(&raw const *chunk));
    }

    /// Prefetches the elements at both ends.
    pub(crate) fn prefetch_elements(&self) {
        self.chunks.front().into_iter().for_each(Packed::prefetch);
        self.chunks.back().into_iter().for_each(Packed::prefetch_end);
    }

    fn ends(&self) -> impl Iterator<Item = &Packed> {
        self.chunks.front().into_iter().chain(self.chunks.back())
    }

    /// Bytes of heap, without the value itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        allocation_bytes(self.chunks.capacity() * size_of::<Packed>()) + self.chunk_heap_bytes
    }

    /// `Listpack` while there is one chunk of the usual size, else `Quicklist`.
    pub fn encoding(&self, compact: &Compact) -> Encoding {
        let is_small = |chunk: &Packed| chunk.framed_bytes() <= compact.list_chunk_bytes_max;
        let is_one = self.chunks.len() <= 1 && self.chunks.iter().all(is_small);
        if is_one { Encoding::Listpack } else { Encoding::Quicklist }
    }

    /// Appends: number of elements v, then each as length v and bytes (v = LEB128 varint). O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len as u64);
        self.iter().for_each(|element| put_bytes(out, element));
    }

    /// Takes what `encode` wrote off the front of `input`.
    pub fn decode(input: &mut &[u8], compact: &Compact) -> Result<List, Malformed> {
        let mut list = List::new();
        for _ in 0..take_varint(input)? {
            list.push_back(take_bytes(input)?, compact);
        }
        Ok(list)
    }
}

/// A copy may have less spare room than the original, so its memory is recounted.
impl Clone for List {
    fn clone(&self) -> List {
        let chunks = self.chunks.clone();
        let chunk_heap_bytes = chunks.iter().map(Packed::heap_bytes).sum();
        List { chunks, len: self.len, chunk_heap_bytes }
    }
}

/// The same elements in the same order, in whatever chunks.
impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for List {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque as Oracle;

    fn small() -> Compact {
        Compact { list_chunk_bytes_max: 40, list_chunk_entries_max: 5, ..Compact::default() }
    }

    fn check(list: &List, oracle: &Oracle<Vec<u8>>, seed: usize) {
        assert_eq!(list.len(), oracle.len());
        assert!(list.iter().eq(oracle.iter()));
        assert!(list.iter_rev().eq(oracle.iter().rev()));
        let from = seed % (oracle.len() + 2);
        assert!(list.iter_from(from).eq(oracle.iter().skip(from)));
        assert_eq!(list.get(from), oracle.get(from).map(Vec::as_slice));
        assert!(list.chunks.iter().all(|chunk| !chunk.is_empty()));
        let counted: usize = list.chunks.iter().map(Packed::heap_bytes).sum();
        assert_eq!(list.chunk_heap_bytes, counted);
        for chunk in &list.chunks {
            assert!(chunk.len() <= 5);
            assert!(chunk.live_bytes() <= 40 || chunk.len() == 1);
        }
    }

    fn round_trip(list: &List, compact: &Compact) {
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        let mut input = bytes.as_slice();
        assert_eq!(List::decode(&mut input, compact).as_ref(), Ok(list));
        assert!(input.is_empty());
        assert_eq!(List::decode(&mut &bytes[..bytes.len() - 1], compact), Err(Malformed));
    }

    /// What LREM does, without chunks.
    fn remove_matching(oracle: &mut Oracle<Vec<u8>>, count: i64, value: &[u8]) -> usize {
        let matches: Vec<usize> = (0..oracle.len()).filter(|&i| oracle[i] == value).collect();
        let wanted = usize::try_from(count.unsigned_abs()).unwrap().min(matches.len());
        let chosen = match count {
            0 => &matches[..],
            1.. => &matches[..wanted],
            _ => &matches[matches.len() - wanted..],
        };
        for index in chosen.iter().rev() {
            oracle.remove(*index);
        }
        chosen.len()
    }

    #[derive(Debug, Clone)]
    enum Step {
        PushFront(Vec<u8>),
        PushBack(Vec<u8>),
        PopFront,
        PopBack,
        Set(usize, Vec<u8>),
        Insert(usize, Vec<u8>),
        RemoveRange(usize, usize),
        Trim(usize, usize),
        RemoveMatching(i64, Vec<u8>),
        Clone,
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => proptest::collection::vec(0u8..3, 0..3),
            2 => proptest::collection::vec(any::<u8>(), 5..20),
            1 => proptest::collection::vec(any::<u8>(), 30..300),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = || 0usize..60;
        prop_oneof![
            6 => value().prop_map(Step::PushFront),
            6 => value().prop_map(Step::PushBack),
            2 => Just(Step::PopFront),
            2 => Just(Step::PopBack),
            3 => (index(), value()).prop_map(|(index, value)| Step::Set(index, value)),
            6 => (index(), value()).prop_map(|(index, value)| Step::Insert(index, value)),
            1 => (index(), index()).prop_map(|(start, end)| Step::RemoveRange(start, end)),
            1 => (0usize..5, index()).prop_map(|(start, end)| Step::Trim(start, end)),
            2 => (-3i64..4, value()).prop_map(|(count, value)| Step::RemoveMatching(count, value)),
            1 => Just(Step::Clone),
        ]
    }

    fn apply(list: &mut List, oracle: &mut Oracle<Vec<u8>>, step: Step, compact: &Compact) {
        match step {
            Step::PushFront(value) => {
                list.push_front(&value, compact);
                oracle.push_front(value);
            }
            Step::PushBack(value) => {
                list.push_back(&value, compact);
                oracle.push_back(value);
            }
            Step::PopFront => assert_eq!(list.pop_front().map(Vec::from), oracle.pop_front()),
            Step::PopBack => assert_eq!(list.pop_back().map(Vec::from), oracle.pop_back()),
            Step::Set(index, value) => {
                assert_eq!(list.set(index, &value, compact), index < oracle.len());
                if let Some(element) = oracle.get_mut(index) {
                    *element = value;
                }
            }
            Step::Insert(index, value) => {
                assert_eq!(list.insert(index, &value, compact), index <= oracle.len());
                if index <= oracle.len() {
                    oracle.insert(index, value);
                }
            }
            Step::RemoveRange(start, end) => {
                list.remove_range(start, end);
                let end = end.min(oracle.len());
                oracle.drain(start.min(end)..end);
            }
            Step::Trim(start, end) => {
                list.trim(start, end);
                let kept = oracle.drain(..).take(end).skip(start).collect();
                *oracle = kept;
            }
            Step::RemoveMatching(count, value) => {
                let expected = remove_matching(oracle, count, &value);
                assert_eq!(list.remove_matching(count, &value), expected);
            }
            Step::Clone => *list = list.clone(),
        }
    }

    proptest! {
        #[test]
        fn a_list_is_as_the_oracle(steps in proptest::collection::vec(step(), 1..120)) {
            let (mut list, mut oracle, compact) = (List::new(), Oracle::new(), small());
            for (index, step) in steps.into_iter().enumerate() {
                apply(&mut list, &mut oracle, step, &compact);
                check(&list, &oracle, index * 13);
            }
            round_trip(&list, &compact);
        }
    }

    #[test]
    fn one_chunk_is_a_listpack_and_two_are_a_quicklist() {
        let compact = Compact::default();
        let mut list = List::new();
        while list.encoding(&compact) == Encoding::Listpack {
            list.push_back(&[0; 78], &compact);
        }
        assert_eq!(list.len(), 8192 / 80 + 1);
        list.pop_front();
        list.trim(0, 50);
        assert_eq!(list.encoding(&compact), Encoding::Listpack);
    }

    // Source: Redis 7.2 `quicklist.c`, `quicklistNodeExceedsLimit`
    #[test]
    fn a_number_of_elements_is_a_limit_of_8_kib_as_well() {
        for (size, bytes, expected) in [
            (128, 8000, Encoding::Listpack),
            (128, 9000, Encoding::Quicklist),
            (-2, 9000, Encoding::Quicklist),
            (-3, 9000, Encoding::Listpack),
            (-6, 60_000, Encoding::Listpack),
            (0, 10, Encoding::Listpack),
        ] {
            let compact = Compact::default().with_list_size(size);
            let mut list = List::new();
            list.push_back(&vec![0; bytes], &compact);
            assert_eq!(list.encoding(&compact), expected, "{size} {bytes}");
            list.push_back(&vec![0; bytes], &compact);
            assert_eq!(list.encoding(&compact), Encoding::Quicklist, "{size} {bytes}");
        }
    }

    #[test]
    fn a_long_list_takes_little_more_than_its_elements() {
        let compact = Compact::default();
        let mut list = List::new();
        for number in 0..20_000u32 {
            list.push_back(&number.to_le_bytes(), &compact);
            list.push_front(&number.to_le_bytes(), &compact);
        }
        let content_bytes = list.len() * 4;
        assert!(list.heap_bytes() < content_bytes * 23 / 20, "{}", list.heap_bytes());
    }

    #[test]
    fn a_queue_does_not_grow_with_what_went_through_it() {
        let compact = Compact::default();
        let mut list = List::new();
        for number in 0..100_000u32 {
            list.push_back(&number.to_le_bytes(), &compact);
            if number >= 100 {
                assert_eq!(list.pop_front().as_deref(), Some(&(number - 100).to_le_bytes()[..]));
            }
        }
        assert!(list.heap_bytes() < 10_000, "{}", list.heap_bytes());
    }
}
