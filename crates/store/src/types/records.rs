//! Keys with their contents, one after another in chunks of a few kilobytes.
//!
//! A record: length of the key v, length of the content v, key, content (v = LEB128 varint). New
//! records go to the open chunk. A removed record stays as unused bytes until its chunk is freed: a
//! chunk that is less than half in use is reported by [`Records::take_sparse`], and its owner moves
//! the others. So at most half of the chunks' bytes are unused, and what a removal costs is bounded
//! by the size of a chunk.

use super::allocation_bytes;
use crate::varint::{put_varint, take_varint};

/// A record that is longer than half of this has a chunk of its own.
const CHUNK_BYTES: usize = 4096;
const _: () = assert!(CHUNK_BYTES <= u16::MAX as usize, "an offset fits u16");

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: [u8; 4],
    offset: [u8; 2],
}

const _: () = assert!(size_of::<Place>() == 6, "no padding");

impl Place {
    fn new(chunk: usize, offset: usize) -> Place {
        let chunk = u32::try_from(chunk).expect("memory ends before 2^32 chunks");
        let offset = u16::try_from(offset).expect("records begin within CHUNK_BYTES");
        Place { chunk: chunk.to_le_bytes(), offset: offset.to_le_bytes() }
    }

    fn chunk(self) -> usize {
        u32::from_le_bytes(self.chunk) as usize
    }

    fn offset(self) -> usize {
        usize::from(u16::from_le_bytes(self.offset))
    }
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Bytes of records that were not removed.
    live_bytes: usize,
}

impl Chunk {
    fn is_sparse(&self) -> bool {
        2 * self.live_bytes < self.bytes.len()
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Records {
    chunks: Vec<Chunk>,
    /// Chunks without bytes.
    free: Vec<u32>,
    /// The chunk that gets new records.
    open: usize,
    /// Chunks whose records are to be moved; some may no longer be such.
    sparse: Vec<u32>,
    /// Allocations of all chunks.
    chunk_heap_bytes: usize,
}

/// A copy may have less spare room than the original, so its memory is recounted.
impl Clone for Records {
    fn clone(&self) -> Records {
        let chunks = self.chunks.clone();
        let heap_bytes = chunks.iter().map(|chunk| allocation_bytes(chunk.bytes.capacity()));
        let chunk_heap_bytes = heap_bytes.sum();
        let (free, sparse) = (self.free.clone(), self.sparse.clone());
        Records { chunks, free, open: self.open, sparse, chunk_heap_bytes }
    }
}

/// Lengths of key and content, and position of the key.
fn head(bytes: &[u8]) -> (usize, usize, usize) {
    let mut rest = bytes;
    let mut len = || usize::try_from(take_varint(&mut rest).expect("made by `add`"));
    let (key_len, content_len) = (len().expect("as it was"), len().expect("as it was"));
    (key_len, content_len, bytes.len() - rest.len())
}

fn number(chunk: usize) -> u32 {
    u32::try_from(chunk).expect("memory ends before 2^32 chunks")
}

impl Records {
    /// Key and content of a record.
    #[inline]
    pub(crate) fn read(&self, place: Place) -> (&[u8], &[u8]) {
        let bytes = &self.chunks[place.chunk()].bytes[place.offset()..];
        let (key_len, content_len, key_at) = match *bytes {
            // Nearly all lengths are one byte long.
            [key_len @ ..0x80, content_len @ ..0x80, ..] => {
                (usize::from(key_len), usize::from(content_len), 2)
            }
            _ => head(bytes),
        };
        let (key, rest) = bytes[key_at..].split_at(key_len);
        (key, &rest[..content_len])
    }

    fn len_at(&self, place: Place) -> usize {
        let (key_len, content_len, key_at) =
            head(&self.chunks[place.chunk()].bytes[place.offset()..]);
        key_at + key_len + content_len
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, key: &[u8], content: &[u8]) -> Place {
        let short = |len: usize| u8::try_from(len).ok().filter(|len| *len < 0x80);
        if let (Some(key_len), Some(content_len)) = (short(key.len()), short(content.len())) {
            return self.append(&[&[key_len, content_len], key, content]);
        }
        let mut lengths = Vec::new();
        put_varint(&mut lengths, key.len() as u64);
        put_varint(&mut lengths, content.len() as u64);
        self.append(&[&lengths, key, content])
    }

    fn append(&mut self, parts: &[&[u8]]) -> Place {
        let len = parts.iter().map(|part| part.len()).sum();
        let chunk = if 2 * len > CHUNK_BYTES { self.new_chunk() } else { self.open_chunk(len) };
        let edited = &mut self.chunks[chunk];
        self.chunk_heap_bytes -= allocation_bytes(edited.bytes.capacity());
        let offset = edited.bytes.len();
        if edited.bytes.capacity() - offset < len {
            // The sizes of the allocator up to that of a chunk; a long record has its own size.
            let wanted = allocation_bytes((offset + len).max(64));
            edited.bytes.reserve_exact(wanted - offset);
        }
        for part in parts {
            edited.bytes.extend_from_slice(part);
        }
        edited.live_bytes += len;
        self.chunk_heap_bytes += allocation_bytes(edited.bytes.capacity());
        Place::new(chunk, offset)
    }

    fn new_chunk(&mut self) -> usize {
        if let Some(chunk) = self.free.pop() {
            return chunk as usize;
        }
        self.chunks.push(Chunk::default());
        self.chunks.len() - 1
    }

    /// The open chunk, with room for `len` bytes.
    fn open_chunk(&mut self, len: usize) -> usize {
        let is_open = self
            .chunks
            .get(self.open)
            .is_some_and(|chunk| !chunk.bytes.is_empty() && chunk.bytes.len() + len <= CHUNK_BYTES);
        if !is_open {
            let closed = self.open;
            self.open = self.new_chunk();
            self.note(closed);
        }
        self.open
    }

    /// Notes a chunk that is to be emptied, unless it is the open one.
    fn note(&mut self, chunk: usize) {
        let is_sparse = self.chunks.get(chunk).is_some_and(Chunk::is_sparse);
        if is_sparse && chunk != self.open {
            self.sparse.push(number(chunk));
        }
    }

    /// Replaces the content of a record by one of the same length. False: the lengths differ.
    pub(crate) fn overwrite(&mut self, place: Place, content: &[u8]) -> bool {
        let bytes = &mut self.chunks[place.chunk()].bytes[place.offset()..];
        let (key_len, content_len, key_at) = head(bytes);
        if content_len != content.len() {
            return false;
        }
        let at = key_at + key_len;
        bytes[at..at + content_len].copy_from_slice(content);
        true
    }

    pub(crate) fn remove(&mut self, place: Place) {
        let len = self.len_at(place);
        let chunk = place.chunk();
        self.chunks[chunk].live_bytes -= len;
        if self.chunks[chunk].live_bytes > 0 {
            return self.note(chunk);
        }
        self.release(chunk);
    }

    fn release(&mut self, chunk: usize) {
        let released = std::mem::take(&mut self.chunks[chunk]);
        self.chunk_heap_bytes -= allocation_bytes(released.bytes.capacity());
        self.free.push(number(chunk));
        if self.open == chunk {
            self.open = usize::MAX;
        }
        if self.free.len() == self.chunks.len() {
            (self.chunks, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// A chunk whose records the owner moves.
    pub(crate) fn take_sparse(&mut self) -> Option<usize> {
        while let Some(chunk) = self.sparse.pop() {
            let chunk = chunk as usize;
            if chunk != self.open && self.chunks.get(chunk).is_some_and(Chunk::is_sparse) {
                return Some(chunk);
            }
        }
        None
    }

    /// Whether all records of a chunk were removed.
    pub(crate) fn is_free(&self, chunk: usize) -> bool {
        self.chunks[chunk].bytes.is_empty()
    }

    /// The places of all records of a chunk, removed ones included.
    pub(crate) fn places(&self, chunk: usize) -> Vec<Place> {
        let (mut places, mut offset) = (Vec::new(), 0);
        while offset < self.chunks[chunk].bytes.len() {
            let place = Place::new(chunk, offset);
            places.push(place);
            offset += self.len_at(place);
        }
        places
    }

    /// Moves a record to the open chunk.
    pub(crate) fn move_to_open(&mut self, place: Place) -> Place {
        let (offset, len) = (place.offset(), self.len_at(place));
        let record = self.chunks[place.chunk()].bytes[offset..offset + len].to_vec();
        let moved = self.append(&[&record]);
        self.remove(place);
        moved
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.chunks.capacity() * size_of::<Chunk>())
            + allocation_bytes(self.sparse.capacity() * size_of::<u32>())
            + allocation_bytes(self.free.capacity() * size_of::<u32>())
            + self.chunk_heap_bytes
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let heap = self.chunks.iter().map(|chunk| allocation_bytes(chunk.bytes.capacity()));
        assert_eq!(heap.sum::<usize>(), self.chunk_heap_bytes);
        assert!(self.chunks.iter().all(|chunk| chunk.live_bytes <= chunk.bytes.len()));
    }
}
