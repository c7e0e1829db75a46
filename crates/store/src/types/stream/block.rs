//! Some entries of a stream in one allocation.
//!
//! ```text
//! names    elements   names of the fields of the block's first entry
//! gap                 removed entries
//! entries
//! ```
//!
//! An entry (v = LEB128 varint):
//!
//! ```text
//! ms      v          milliseconds since the block's base
//! seq     v          if ms is 0, difference from the number of the base; else the number
//! fields  v          0: the names are those of the block; else the number of fields
//! content elements   values, or name, value, name, value ...
//! back    v          its bytes in reverse order: length of all of the above
//! ```
//!
//! The back length allows to find an entry from the end of the block without reading the content of
//! those after it. Positions (`at`) are byte offsets into the block, valid until the next change.

use super::id::StreamId;
use crate::blob::{prefetch, prefetch_block};
use crate::types::element;
use crate::types::text::Scalar;
use crate::types::{Compact, allocation_bytes};
use crate::varint::{Malformed, put_bytes, put_varint, take_bytes, take_varint};

/// Bytes of a listpack without elements: its header and its end.
const LISTPACK_BYTES: usize = 7;
/// Numbers of a listpack entry in addition to its fields: flags, both parts of the identifier.
const LISTPACK_NUMBERS: usize = 3;
/// Unused bytes above which a block is copied into a smaller one: three times those in use, and
/// these.
const WASTE_BYTES: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct Block {
    /// Identifier of the first entry that was added, even if it is removed.
    pub(super) base: StreamId,
    /// Identifier of the last entry that was added, likewise.
    pub(super) last: StreamId,
    bytes: Vec<u8>,
    /// Position of the first entry.
    start: usize,
    /// Number of names.
    names: u32,
    /// Number of entries.
    pub(super) count: u32,
    /// Number of removed entries.
    deleted: u32,
    /// Bytes that Redis would use, without its two counts of entries. Redis marks removed entries
    /// as such, so they count.
    listpack_bytes: u32,
}

/// One entry of a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamEntry<'a> {
    pub id: StreamId,
    fields: usize,
    /// The block's names; `None` if the content has the names.
    names: Option<&'a [u8]>,
    content: &'a [u8],
}

impl<'a> StreamEntry<'a> {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields
    }

    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Names and values, in the order in which they were given.
    pub fn fields(self) -> impl Iterator<Item = (Scalar<'a>, Scalar<'a>)> {
        let StreamEntry { fields, mut names, mut content, .. } = self;
        let take = |input: &mut &'a [u8]| element::take(input).expect("a block holds elements");
        (0..fields).map(move |_| {
            let name = take(names.as_mut().unwrap_or(&mut content));
            (name, take(&mut content))
        })
    }
}

/// An entry with the position after it.
pub(super) struct Found<'a> {
    pub(super) entry: StreamEntry<'a>,
    pub(super) next: usize,
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn varint_len(number: usize) -> usize {
    ((usize::BITS - (number | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Appends a number whose last byte is read first.
fn put_back_length(out: &mut Vec<u8>, number: usize) {
    let start = out.len();
    put_varint(out, number as u64);
    out[start..].reverse();
}

/// The number that ends the bytes, and its length.
fn back_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0usize;
    for (index, &byte) in bytes.iter().rev().take(9).enumerate() {
        number |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

impl Block {
    /// A block without entries, for which the caller adds the entry `base`.
    pub(super) fn new<'f>(base: StreamId, names: impl Iterator<Item = &'f [u8]>) -> Block {
        let mut block = Block {
            base,
            last: base,
            bytes: Vec::new(),
            start: 0,
            names: 0,
            count: 0,
            deleted: 0,
            listpack_bytes: 0,
        };
        let mut listpack_bytes = LISTPACK_BYTES;
        for name in names {
            let before = block.bytes.len();
            element::put(&mut block.bytes, name);
            listpack_bytes += element::listpack_bytes(block.bytes.len() - before);
            block.names += 1;
        }
        listpack_bytes += element::listpack_integer_bytes(block.names.into());
        listpack_bytes += element::listpack_integer_bytes(0);
        block.listpack_bytes = saturated(listpack_bytes);
        block.start = block.bytes.len();
        block
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    /// Prefetches the names and first entries, and the end, where the next entry goes.
    pub(super) fn prefetch(&self) {
        prefetch_block(self.bytes.as_ptr(), self.bytes.len());
        prefetch(self.bytes.as_ptr_range().end);
    }

    /// Whether an entry whose names and values have `content_bytes` may be added.
    // Source: Redis 7.2 `t_stream.c`, `streamAppendItem`
    pub(super) fn has_room(&self, content_bytes: usize, compact: &Compact) -> bool {
        let counts = element::listpack_integer_bytes(self.count.into())
            + element::listpack_integer_bytes(self.deleted.into());
        let entries = self.count as usize + self.deleted as usize;
        (self.listpack_bytes as usize + counts).saturating_add(content_bytes)
            < compact.stream_block_bytes_max
            && entries < compact.stream_block_entries_max
    }

    /// Appends an entry: name, value, name, value ... `id` must be greater than all others.
    pub(super) fn add<'f>(&mut self, id: StreamId, fields: impl Iterator<Item = &'f [u8]> + Clone) {
        debug_assert!(id >= self.base && (self.count == 0 || id > self.last));
        let (count, is_same) = self.compare_names(fields.clone());
        let start = self.bytes.len();
        let ms = id.ms - self.base.ms;
        put_varint(&mut self.bytes, ms);
        put_varint(&mut self.bytes, if ms == 0 { id.seq - self.base.seq } else { id.seq });
        put_varint(&mut self.bytes, if is_same { 0 } else { count as u64 });
        let seq_difference = id.seq.wrapping_sub(self.base.seq).cast_signed();
        let mut listpack_bytes = element::listpack_integer_bytes(0)
            + element::listpack_integer_bytes(ms.cast_signed())
            + element::listpack_integer_bytes(seq_difference);
        for (index, bytes) in fields.enumerate() {
            if is_same && index % 2 == 0 {
                continue;
            }
            let before = self.bytes.len();
            element::put(&mut self.bytes, bytes);
            listpack_bytes += element::listpack_bytes(self.bytes.len() - before);
        }
        let mut elements = count + LISTPACK_NUMBERS;
        if !is_same {
            elements += count + 1;
            listpack_bytes += element::listpack_count_bytes(count);
        }
        listpack_bytes += element::listpack_count_bytes(elements);
        self.listpack_bytes = self.listpack_bytes.saturating_add(saturated(listpack_bytes));
        let len = self.bytes.len() - start;
        put_back_length(&mut self.bytes, len);
        self.count += 1;
        self.last = id;
    }

    /// Number of fields, and whether their names are those of the block.
    fn compare_names<'f>(&self, mut fields: impl Iterator<Item = &'f [u8]>) -> (usize, bool) {
        let mut names = self.bytes.as_slice();
        let (mut count, mut is_same) = (0, true);
        while let (Some(name), Some(_)) = (fields.next(), fields.next()) {
            if is_same {
                is_same = count < self.names as usize
                    && element::take(&mut names).is_ok_and(|known| match known {
                        Scalar::Bytes(known) => known == name,
                        Scalar::Int(_) => known.with_bytes(|known| known == name),
                    });
            }
            count += 1;
        }
        (count, is_same && count == self.names as usize)
    }

    /// Frees spare room: for a block to which no entry will be added.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the numbers of an entry: identifier, number of fields (0: the block's), content.
    #[inline]
    fn head(&self, at: usize) -> Result<(StreamId, usize, &[u8]), Malformed> {
        let mut input = &self.bytes[at..];
        let (ms, seq) = (take_varint(&mut input)?, take_varint(&mut input)?);
        let fields = usize::try_from(take_varint(&mut input)?).map_err(|_| Malformed)?;
        let seq = if ms == 0 { self.base.seq.checked_add(seq).ok_or(Malformed)? } else { seq };
        let ms = self.base.ms.checked_add(ms).ok_or(Malformed)?;
        Ok((StreamId { ms, seq }, fields, input))
    }

    fn id_at(&self, at: usize) -> StreamId {
        self.head(at).expect("a block holds entries").0
    }

    /// The entry at a position.
    pub(super) fn entry(&self, at: usize) -> Option<Found<'_>> {
        (at < self.bytes.len()).then(|| self.read(at).expect("a block holds entries"))
    }

    fn read(&self, at: usize) -> Result<Found<'_>, Malformed> {
        let (id, fields, content) = self.head(at)?;
        let is_same = fields == 0;
        let elements =
            if is_same { self.names as usize } else { fields.checked_mul(2).ok_or(Malformed)? };
        let mut rest = content;
        for _ in 0..elements {
            element::take(&mut rest)?;
        }
        let end = self.bytes.len() - rest.len();
        let entry = StreamEntry {
            id,
            fields: if is_same { self.names as usize } else { fields },
            names: is_same.then_some(&self.bytes[..]),
            content,
        };
        Ok(Found { entry, next: end + varint_len(end - at) })
    }

    /// Position of the entry that ends at `end`, which is not the first one's start.
    pub(super) fn before(&self, end: usize) -> usize {
        let (len, back) = back_length(&self.bytes[..end]).expect("a block holds entries");
        end - back - len
    }

    /// Position of the first entry that is not less than `id`, or the end. Reads the entries after
    /// it, without their content.
    pub(super) fn seek(&self, id: StreamId) -> usize {
        let mut at = self.end();
        if self.count == 0 || id > self.last {
            return at;
        }
        if self.id_at(self.start) >= id {
            return self.start;
        }
        loop {
            let before = self.before(at);
            if self.id_at(before) < id {
                return at;
            }
            at = before;
        }
    }

    pub(super) fn first_id(&self) -> StreamId {
        self.id_at(self.start)
    }

    pub(super) fn last_id(&self) -> StreamId {
        self.id_at(self.before(self.end()))
    }

    /// Number of entries less than `id`.
    pub(super) fn count_before(&self, id: StreamId) -> u32 {
        let first = self.seek(id);
        let (mut at, mut count) = (self.end(), self.count);
        while at > first {
            at = self.before(at);
            count -= 1;
        }
        count
    }

    /// Removes the entry at a position.
    pub(super) fn remove(&mut self, at: usize) {
        let next = self.entry(at).expect("an entry starts here").next;
        if at == self.start {
            self.start = next;
        } else {
            self.bytes.drain(at..next);
        }
        self.count -= 1;
        self.deleted = self.deleted.saturating_add(1);
        self.settle();
    }

    /// Removes the first `count` entries; at least one remains.
    pub(super) fn remove_front(&mut self, count: u32) {
        debug_assert!(count < self.count);
        if count <= self.count / 2 {
            for _ in 0..count {
                self.start = self.entry(self.start).expect("counted").next;
            }
        } else {
            let mut at = self.end();
            for _ in count..self.count {
                at = self.before(at);
            }
            self.start = at;
        }
        self.count -= count;
        self.deleted = self.deleted.saturating_add(count);
        self.settle();
    }

    fn names_bytes(&self) -> &[u8] {
        let mut rest = self.bytes.as_slice();
        for _ in 0..self.names {
            element::take(&mut rest).expect("a block starts with its names");
        }
        &self.bytes[..self.bytes.len() - rest.len()]
    }

    fn entries_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Frees memory after a removal.
    fn settle(&mut self) {
        let used = self.bytes.len() - self.start;
        if self.bytes.capacity() > WASTE_BYTES + 4 * used {
            let names = self.names_bytes();
            if names.len() + used < self.bytes.capacity() / 2 {
                let bytes = [names, self.entries_bytes()].concat();
                self.start = names.len();
                self.bytes = bytes;
            }
        }
    }

    /// Appends: base, last, names v, entries v, removed entries v, listpack bytes v, then the names
    /// and entries as length v and bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.base.encode(out);
        self.last.encode(out);
        for number in [self.names, self.count, self.deleted, self.listpack_bytes] {
            put_varint(out, number.into());
        }
        put_bytes(out, self.names_bytes());
        put_bytes(out, self.entries_bytes());
    }

    pub(super) fn decode(input: &mut &[u8]) -> Result<Block, Malformed> {
        let (base, last) = (StreamId::decode(input)?, StreamId::decode(input)?);
        let mut number = || u32::try_from(take_varint(input)?).map_err(|_| Malformed);
        let (names, count, deleted, listpack_bytes) = (number()?, number()?, number()?, number()?);
        let (names_bytes, entries_bytes) = (take_bytes(input)?, take_bytes(input)?);
        let (bytes, start) = ([names_bytes, entries_bytes].concat(), names_bytes.len());
        let block = Block { base, last, bytes, start, names, count, deleted, listpack_bytes };
        block.check()?;
        Ok(block)
    }

    fn check(&self) -> Result<(), Malformed> {
        let mut names = &self.bytes[..self.start];
        for _ in 0..self.names {
            element::take(&mut names)?;
        }
        if !names.is_empty() || self.names == 0 || self.count == 0 {
            return Err(Malformed);
        }
        let (mut at, mut before) = (self.start, None);
        for _ in 0..self.count {
            if at >= self.bytes.len() {
                return Err(Malformed);
            }
            let found = self.read(at)?;
            let id = found.entry.id;
            if before.is_some_and(|before| id <= before) || id < self.base || id > self.last {
                return Err(Malformed);
            }
            let entry = self.bytes.get(at..found.next).ok_or(Malformed)?;
            let (len, back) = back_length(entry).ok_or(Malformed)?;
            if len + back != entry.len() || back != varint_len(len) {
                return Err(Malformed);
            }
            (at, before) = (found.next, Some(id));
        }
        if at == self.bytes.len() { Ok(()) } else { Err(Malformed) }
    }
}

/// The same entries in the same bytes, whatever their gaps.
impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        let numbers =
            |block: &Block| (block.base, block.last, block.count, block.deleted, block.names);
        numbers(self) == numbers(other)
            && self.listpack_bytes == other.listpack_bytes
            && self.names_bytes() == other.names_bytes()
            && self.entries_bytes() == other.entries_bytes()
    }
}
