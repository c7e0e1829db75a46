//! The order of a large sorted set: scores with table indexes, in chunks, with counts per chunk.
//!
//! A chunk is a sorted array of at most [`CHUNK_ENTRIES_MAX`] entries and keeps a copy of its last
//! one, so that a search touches the chunks' own array and then one chunk. A Fenwick tree of the
//! chunks' lengths turns a place into a rank and back in O(log chunks). Entries hold no member
//! bytes: the caller, which has the table, compares them.
//!
//! Cost with n members: search O(log n), change O(log n + entries of a chunk), and O(n / entries of
//! a chunk) when a chunk is cut or merged, which one in about 64 changes does at most. Memory: 16
//! bytes an entry and about a tenth of spare room.

use super::allocation_bytes;

const CHUNK_ENTRIES_MAX: usize = 256;
/// A chunk that has become smaller than this is merged with a neighbour ...
const CHUNK_ENTRIES_MIN: usize = 64;
/// ... unless they have more than this together.
const MERGED_ENTRIES_MAX: usize = 192;
/// Entries by which a chunk grows at a time.
const GROWTH_ENTRIES: usize = 32;

const _: () = assert!(CHUNK_ENTRIES_MIN < CHUNK_ENTRIES_MAX / 2);
const _: () = assert!(MERGED_ENTRIES_MAX < CHUNK_ENTRIES_MAX);
const _: () = assert!(MERGED_ENTRIES_MAX > CHUNK_ENTRIES_MIN, "a merged chunk is not small again");

/// A member: its score, and its index in the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) score: f64,
    pub(crate) index: u32,
}

/// The place of an entry, or where it would be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: usize,
    offset: usize,
}

#[derive(Debug, Clone)]
struct Chunk {
    /// Never empty.
    entries: Vec<Entry>,
    last: Entry,
}

impl Chunk {
    fn new(mut entries: Vec<Entry>) -> Chunk {
        entries.shrink_to(entries.len() + GROWTH_ENTRIES);
        let last = *entries.last().expect("chunks are made of at least one entry");
        Chunk { entries, last }
    }

    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.entries.capacity() * size_of::<Entry>())
    }

    /// After a change: refreshes the copy of the last entry and frees spare room.
    fn settle(&mut self) {
        if let Some(last) = self.entries.last() {
            self.last = *last;
        }
        if self.entries.capacity() > self.entries.len() + 2 * GROWTH_ENTRIES {
            self.entries.shrink_to(self.entries.len() + GROWTH_ENTRIES);
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    chunks: Vec<Chunk>,
    counts: Counts,
    len: usize,
    /// Allocations of all chunks.
    chunk_heap_bytes: usize,
}

impl Ranked {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.chunks.capacity() * size_of::<Chunk>())
            + allocation_bytes(self.counts.sums.capacity() * size_of::<u32>())
            + self.chunk_heap_bytes
    }

    /// The first place whose entry is not `before`; `before` must be true for a prefix of all.
    pub(crate) fn partition(&self, before: impl Fn(Entry) -> bool) -> Place {
        let chunk = self.chunks.partition_point(|chunk| before(chunk.last));
        let offset = self
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.entries.partition_point(|entry| before(*entry)));
        Place { chunk, offset }
    }

    pub(crate) fn get(&self, place: Place) -> Option<Entry> {
        self.chunks.get(place.chunk)?.entries.get(place.offset).copied()
    }

    /// Number of entries before a place.
    pub(crate) fn rank(&self, place: Place) -> usize {
        self.counts.before(place.chunk) + place.offset
    }

    /// The place of a rank, or the end.
    pub(crate) fn place(&self, rank: usize) -> Place {
        if rank >= self.len {
            return Place { chunk: self.chunks.len(), offset: 0 };
        }
        let (chunk, offset) = self.counts.find(rank);
        Place { chunk, offset }
    }

    /// The entries of `start..end` by rank, both at most `len`.
    pub(crate) fn range(&self, start: usize, end: usize) -> Iter<'_> {
        Iter {
            chunks: &self.chunks,
            front: self.place(start),
            back: self.place(end),
            remaining: end.saturating_sub(start),
        }
    }

    /// Changes one chunk and updates the account of its memory.
    fn edit<R>(&mut self, chunk: usize, change: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
        let edited = &mut self.chunks[chunk];
        self.chunk_heap_bytes -= edited.heap_bytes();
        let result = change(&mut edited.entries);
        edited.settle();
        self.chunk_heap_bytes += edited.heap_bytes();
        result
    }

    fn insert_chunk(&mut self, chunk: usize, entries: Vec<Entry>) {
        let new = Chunk::new(entries);
        self.chunk_heap_bytes += new.heap_bytes();
        self.chunks.insert(chunk, new);
        self.recount();
    }

    fn remove_chunk(&mut self, chunk: usize) -> Vec<Entry> {
        let removed = self.chunks.remove(chunk);
        self.chunk_heap_bytes -= removed.heap_bytes();
        if self.chunks.capacity() > 4 * self.chunks.len() {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
        self.recount();
        removed.entries
    }

    fn recount(&mut self) {
        self.counts.rebuild(self.chunks.iter().map(|chunk| chunk.entries.len()));
    }

    /// Inserts an entry at the place that `partition` gave for it.
    pub(crate) fn insert(&mut self, place: Place, entry: Entry) {
        self.len += 1;
        let Place { chunk, offset } = self.room(place);
        if chunk == self.chunks.len() || self.chunks[chunk].entries.len() == CHUNK_ENTRIES_MAX {
            return self.insert_chunk(chunk, vec![entry]);
        }
        self.edit(chunk, |entries| {
            if entries.len() == entries.capacity() {
                entries.reserve_exact(GROWTH_ENTRIES);
            }
            entries.insert(offset, entry);
        });
        self.counts.add(chunk);
        debug_assert_eq!(
            self.counts.before(self.chunks.len()),
            self.len,
            "ranks count all entries"
        );
    }

    /// The same place, in a chunk with room. A full one is cut in half, unless the place is at the
    /// very start or the very end of all: then the caller makes a new chunk, so that chunks filled
    /// in order are full.
    fn room(&mut self, place: Place) -> Place {
        let Place { chunk, offset } = place;
        if chunk == self.chunks.len() {
            return match self.chunks.last() {
                Some(last) if last.entries.len() < CHUNK_ENTRIES_MAX => {
                    Place { chunk: chunk - 1, offset: last.entries.len() }
                }
                _ => place,
            };
        }
        let is_start = chunk == 0 && offset == 0;
        if is_start || self.chunks[chunk].entries.len() < CHUNK_ENTRIES_MAX {
            return place;
        }
        let half = CHUNK_ENTRIES_MAX / 2;
        let right = self.edit(chunk, |entries| entries.split_off(half));
        self.insert_chunk(chunk + 1, right);
        if offset <= half { place } else { Place { chunk: chunk + 1, offset: offset - half } }
    }

    /// Removes the entry at a place.
    pub(crate) fn remove(&mut self, place: Place) {
        self.len -= 1;
        let Place { chunk, offset } = place;
        self.edit(chunk, |entries| entries.remove(offset));
        let left = self.chunks[chunk].entries.len();
        if left == 0 {
            self.remove_chunk(chunk);
            return;
        }
        self.counts.subtract(chunk);
        debug_assert_eq!(
            self.counts.before(self.chunks.len()),
            self.len,
            "ranks count all entries"
        );
        if left < CHUNK_ENTRIES_MIN {
            self.merge(chunk);
        }
    }

    /// Merges a small chunk with the smaller of its neighbours, if both fit into one.
    fn merge(&mut self, chunk: usize) {
        let len = |chunk: usize| self.chunks.get(chunk).map(|chunk| chunk.entries.len());
        let before = chunk.checked_sub(1).and_then(|left| Some((len(left)?, left)));
        let after = len(chunk + 1).map(|len| (len, chunk));
        let Some((neighbour_len, left)) = before.into_iter().chain(after).min() else { return };
        if self.chunks[chunk].entries.len() + neighbour_len > MERGED_ENTRIES_MAX {
            return;
        }
        let right = self.remove_chunk(left + 1);
        self.edit(left, |entries| entries.extend_from_slice(&right));
        debug_assert!(self.chunks[left].entries.len() <= CHUNK_ENTRIES_MAX);
        self.recount();
    }

    /// Replaces the entry at a place by one that belongs at the same place.
    pub(crate) fn replace(&mut self, place: Place, entry: Entry) {
        self.edit(place.chunk, |entries| entries[place.offset] = entry);
    }

    /// Entries just before and just after a place, where they are in the same chunk.
    pub(crate) fn neighbours(&self, place: Place) -> Option<(Entry, Entry)> {
        let entries = &self.chunks.get(place.chunk)?.entries;
        Some((*entries.get(place.offset.checked_sub(1)?)?, *entries.get(place.offset + 1)?))
    }

    #[cfg(test)]
    pub(crate) fn recounted_chunk_heap_bytes(&self) -> (usize, usize) {
        assert!(self.chunks.iter().all(|chunk| chunk.entries.last() == Some(&chunk.last)));
        (self.chunk_heap_bytes, self.chunks.iter().map(Chunk::heap_bytes).sum())
    }
}

/// A copy may have less spare room than the original, so its memory is recounted.
impl Clone for Ranked {
    fn clone(&self) -> Ranked {
        let chunks = self.chunks.clone();
        let chunk_heap_bytes = chunks.iter().map(Chunk::heap_bytes).sum();
        Ranked { chunks, counts: self.counts.clone(), len: self.len, chunk_heap_bytes }
    }
}

/// Entries by rank, from both ends.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a> {
    chunks: &'a [Chunk],
    front: Place,
    /// Just after the last entry.
    back: Place,
    remaining: usize,
}

impl Iterator for Iter<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        self.remaining = self.remaining.checked_sub(1)?;
        let entries = &self.chunks[self.front.chunk].entries;
        let entry = entries[self.front.offset];
        self.front.offset += 1;
        if self.front.offset == entries.len() {
            self.front = Place { chunk: self.front.chunk + 1, offset: 0 };
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Entry> {
        self.remaining = self.remaining.checked_sub(1)?;
        if self.back.offset == 0 {
            let chunk = self.back.chunk - 1;
            self.back = Place { chunk, offset: self.chunks[chunk].entries.len() };
        }
        self.back.offset -= 1;
        Some(self.chunks[self.back.chunk].entries[self.back.offset])
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Fenwick tree: `sums[i]` is the sum of the lengths of the last `lowbit(i + 1)` chunks up to `i`.
#[derive(Debug, Clone, Default)]
struct Counts {
    sums: Vec<u32>,
}

fn lowbit(number: usize) -> usize {
    number & number.wrapping_neg()
}

impl Counts {
    fn rebuild(&mut self, lengths: impl Iterator<Item = usize>) {
        self.sums.clear();
        self.sums.extend(lengths.map(|len| u32::try_from(len).expect("a chunk is small")));
        for index in 1..=self.sums.len() {
            let parent = index + lowbit(index);
            if parent <= self.sums.len() {
                self.sums[parent - 1] += self.sums[index - 1];
            }
        }
        if self.sums.capacity() > 4 * self.sums.len() {
            self.sums.shrink_to(2 * self.sums.len());
        }
    }

    fn add(&mut self, chunk: usize) {
        self.each_above(chunk, |sum| *sum += 1);
    }

    fn subtract(&mut self, chunk: usize) {
        self.each_above(chunk, |sum| *sum -= 1);
    }

    fn each_above(&mut self, chunk: usize, change: impl Fn(&mut u32)) {
        let mut index = chunk + 1;
        while index <= self.sums.len() {
            change(&mut self.sums[index - 1]);
            index += lowbit(index);
        }
    }

    /// Entries in the chunks before `chunk`.
    fn before(&self, chunk: usize) -> usize {
        let (mut index, mut sum) = (chunk, 0);
        while index > 0 {
            sum += self.sums[index - 1] as usize;
            index -= lowbit(index);
        }
        sum
    }

    /// The chunk that holds a rank below the number of entries, and the offset in it.
    fn find(&self, rank: usize) -> (usize, usize) {
        let (mut chunk, mut rest) = (0, rank);
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            if let Some(&sum) = self.sums.get(chunk + step - 1)
                && sum as usize <= rest
            {
                chunk += step;
                rest -= sum as usize;
            }
            step /= 2;
        }
        (chunk, rest)
    }
}
