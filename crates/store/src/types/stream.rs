//! Entries in the order of their identifiers, and the consumer groups that read them.
//!
//! Entries are in packed blocks, as large as Redis's nodes: approximate trimming removes whole
//! blocks, and its replies show where they end.
//!
//! Known weakness: when all entries of a block in the middle are deleted, the handles of the blocks
//! between it and the nearer end are moved, 80 bytes each, once per block.

mod block;
mod group;
mod id;
mod runs;

use std::collections::VecDeque;
use std::ops::Range;

pub use block::StreamEntry;
pub use group::{Consumer, Group, Pending};
pub use id::StreamId;

use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::blob::prefetch_block;
use crate::varint::{put_varint, take_varint};
use block::Block;

/// An ordered log of entries with consumer groups. Unlike other collections it may be empty.
///
/// Append: amortised O(bytes). Search: O(log blocks + entries of one block). Search of a group:
/// O(log groups).
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// None of them is empty.
    blocks: VecDeque<Block>,
    len: usize,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    /// In the order of their names.
    groups: Vec<Group>,
    /// Allocations of all blocks.
    block_heap_bytes: usize,
    /// Allocations of all groups.
    group_heap_bytes: usize,
}

/// Which entries a trim removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// All but the given number of last entries.
    MaxLen(u64),
    /// Entries less than this one.
    MinId(StreamId),
}

/// A change does not fit the stream; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfOrder;

impl Stream {
    /// No entries, no allocation.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Number of entries. O(1).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of entries and pending entries: what a copy copies. O(groups).
    pub fn elements(&self) -> usize {
        self.len + self.groups.iter().map(Group::pending_len).sum::<usize>()
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Identifier of the last entry that was added, or the one that XSETID set.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Greatest identifier that was deleted other than by a trim; [`StreamId::MIN`]: none.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Entries that were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// Identifier of the first entry; [`StreamId::MIN`] without entries.
    pub fn first_entry_id(&self) -> StreamId {
        self.blocks.front().map_or(StreamId::MIN, Block::first_id)
    }

    /// Identifier of the last entry; [`StreamId::MIN`] without entries.
    pub fn last_entry_id(&self) -> StreamId {
        self.blocks.back().map_or(StreamId::MIN, Block::last_id)
    }

    /// Number of blocks.
    pub fn blocks_len(&self) -> usize {
        self.blocks.len()
    }

    /// Nodes of the radix tree in which Redis would keep the blocks. O(blocks).
    // Source: Redis 7.2 `rax.c`: a node for each unbranched part, each branch, and each end
    pub fn tree_nodes(&self) -> usize {
        if self.blocks.is_empty() { 1 } else { self.tree_nodes_of(0..self.blocks.len(), 0) }
    }

    /// Nodes below the first `depth` bytes, which these keys share.
    fn tree_nodes_of(&self, blocks: Range<usize>, depth: usize) -> usize {
        const KEY_BYTES: usize = 16;
        let key = |at: usize| {
            let id = self.blocks[at].base;
            u128::from(id.ms) << 64 | u128::from(id.seq)
        };
        let shared = |one: usize, two: usize| (key(one) ^ key(two)).leading_zeros() as usize / 8;
        if blocks.len() == 1 {
            return if depth < KEY_BYTES { 2 } else { 1 };
        }
        let branch = shared(blocks.start, blocks.end - 1);
        let mut nodes = 1 + usize::from(branch > depth);
        let mut start = blocks.start;
        while start < blocks.end {
            let mut end = start + 1;
            while end < blocks.end && shared(start, end) > branch {
                end += 1;
            }
            nodes += self.tree_nodes_of(start..end, branch + 1);
            start = end;
        }
        nodes
    }

    /// Appends an entry: name, value, name, value ..., at least one pair. `id` must be greater than
    /// [`Stream::last_id`].
    pub fn add<'f>(
        &mut self,
        id: StreamId,
        fields: impl Iterator<Item = &'f [u8]> + Clone,
        compact: &Compact,
    ) -> Result<(), OutOfOrder> {
        if id <= self.last_id {
            return Err(OutOfOrder);
        }
        let content_bytes: usize = fields.clone().map(<[u8]>::len).sum();
        if !self.blocks.back().is_some_and(|block| block.has_room(content_bytes, compact)) {
            if let Some(last) = self.blocks.len().checked_sub(1) {
                self.edit(last, Block::shrink);
            }
            if self.blocks.capacity() == 0 {
                self.blocks.reserve_exact(1); // many streams have one block
            }
            let block = Block::new(id, fields.clone().step_by(2));
            self.block_heap_bytes += block.heap_bytes();
            self.blocks.push_back(block);
        }
        self.edit(self.blocks.len() - 1, |block| block.add(id, fields));
        self.len += 1;
        self.last_id = id;
        self.entries_added = self.entries_added.saturating_add(1);
        Ok(())
    }

    /// Changes one block and keeps the account of its memory.
    fn edit<R>(&mut self, block: usize, change: impl FnOnce(&mut Block) -> R) -> R {
        let block = &mut self.blocks[block];
        self.block_heap_bytes -= block.heap_bytes();
        let result = change(block);
        self.block_heap_bytes += block.heap_bytes();
        result
    }

    /// The block that has the identifier or could have it: the last one that begins before it.
    fn block_of(&self, id: StreamId) -> usize {
        self.blocks.partition_point(|block| block.base <= id).saturating_sub(1)
    }

    fn find(&self, id: StreamId) -> Option<(usize, usize)> {
        let at = self.block_of(id);
        let block = self.blocks.get(at)?;
        let place = block.seek(id);
        (block.entry(place)?.entry.id == id).then_some((at, place))
    }

    /// Whether there is an entry with the identifier.
    pub fn contains(&self, id: StreamId) -> bool {
        self.find(id).is_some()
    }

    /// The entry with the identifier.
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        let (block, place) = self.find(id)?;
        Some(self.blocks[block].entry(place)?.entry)
    }

    /// Entries from `first` to `last`, both inclusive.
    pub fn range(&self, first: StreamId, last: StreamId) -> impl Iterator<Item = StreamEntry<'_>> {
        let mut block = self.block_of(first);
        let mut at = self.blocks.get(block).map_or(0, |block| block.seek(first));
        std::iter::from_fn(move || {
            loop {
                let current = self.blocks.get(block)?;
                if let Some(found) = current.entry(at) {
                    at = found.next;
                    return Some(found.entry);
                }
                block += 1;
                at = self.blocks.get(block)?.start();
            }
        })
        .take_while(move |entry| entry.id <= last)
    }

    /// Entries from `last` down to `first`, both inclusive.
    pub fn range_rev(
        &self,
        first: StreamId,
        last: StreamId,
    ) -> impl Iterator<Item = StreamEntry<'_>> {
        let mut block = self.block_of(last);
        let end = |block: &Block| last.next().map_or(block.end(), |after| block.seek(after));
        let mut at = self.blocks.get(block).map_or(0, end);
        std::iter::from_fn(move || {
            loop {
                let current = self.blocks.get(block)?;
                if at > current.start() {
                    at = current.before(at);
                    return current.entry(at).map(|found| found.entry);
                }
                block = block.checked_sub(1)?;
                at = self.blocks[block].end();
            }
        })
        .take_while(move |entry| entry.id >= first)
    }

    /// Number of entries that a trim removes from the front. `blocks_only`: whole blocks, and at
    /// most the given number of entries (0: no limit), as `~` demands.
    // Source: Redis 7.2 `t_stream.c`, `streamTrim`
    pub fn trimmed(&self, trim: Trim, blocks_only: Option<u64>) -> u64 {
        let mut removed = 0;
        for block in &self.blocks {
            let count = u64::from(block.count);
            let left = self.len as u64 - removed;
            if matches!(trim, Trim::MaxLen(max) if left <= max)
                || blocks_only.is_some_and(|limit| limit > 0 && removed + count > limit)
            {
                break;
            }
            let is_whole = match trim {
                Trim::MaxLen(max) => left - count >= max,
                Trim::MinId(min) => block.last < min,
            };
            if !is_whole {
                if blocks_only.is_none() {
                    removed += match trim {
                        Trim::MaxLen(max) => left - max,
                        Trim::MinId(min) => block.count_before(min).into(),
                    };
                }
                break;
            }
            removed += count;
        }
        removed
    }

    /// Removes the first entries, at most all.
    pub fn remove_front(&mut self, count: u64) {
        let mut left = usize::try_from(count).unwrap_or(usize::MAX).min(self.len);
        self.len -= left;
        while let Some(block) = self.blocks.front() {
            let count = block.count as usize;
            if count > left {
                break;
            }
            self.remove_block(0);
            left -= count;
        }
        if left > 0 {
            let left = u32::try_from(left).expect("less than one block has");
            self.edit(0, |block| block.remove_front(left));
        }
        debug_assert!(self.is_consistent());
    }

    fn remove_block(&mut self, at: usize) {
        if let Some(block) = self.blocks.remove(at) {
            self.block_heap_bytes -= block.heap_bytes();
        }
        if self.blocks.capacity() > 4 * self.blocks.len() + 4 {
            self.blocks.shrink_to(2 * self.blocks.len());
        }
    }

    /// Deletes an entry; false if there is none with the identifier.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let Some((block, place)) = self.find(id) else { return false };
        if self.blocks[block].count == 1 {
            self.remove_block(block);
        } else {
            self.edit(block, |block| block.remove(place));
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        debug_assert!(self.is_consistent());
        true
    }

    /// Sets what XSETID sets; `None` leaves a number as it is.
    pub fn set_ids(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) -> Result<(), OutOfOrder> {
        if last_id < self.last_entry_id() {
            return Err(OutOfOrder);
        }
        if let Some(block) = self.blocks.back_mut() {
            block.last = block.last.min(last_id);
        }
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
        Ok(())
    }

    /// Prefetches what points at the entries of the first and the last block.
    pub(crate) fn prefetch_blocks(&self) {
        self.ends().for_each(|block| prefetch_block(&raw const *block, size_of::<Block>()));
    }

    /// Prefetches the entries at both ends.
    pub(crate) fn prefetch_entries(&self) {
        self.ends().for_each(Block::prefetch);
    }

    fn ends(&self) -> impl Iterator<Item = &Block> {
        self.blocks.front().into_iter().chain(self.blocks.back())
    }

    /// Bytes of heap, without the value itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        allocation_bytes(self.blocks.capacity() * size_of::<Block>())
            + self.block_heap_bytes
            + allocation_bytes(self.groups.capacity() * size_of::<Group>())
            + self.group_heap_bytes
    }

    pub fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    /// Whether the sums are those of the blocks. Only for assertions: O(blocks).
    fn is_consistent(&self) -> bool {
        const BLOCKS_MAX: usize = 64;
        self.blocks.len() > BLOCKS_MAX
            || self.len == self.blocks.iter().map(|block| block.count as usize).sum()
                && self.block_heap_bytes == self.blocks.iter().map(Block::heap_bytes).sum()
                && self.blocks.iter().all(|block| block.count > 0)
    }

    /// Appends: last identifier, greatest deleted one, entries added v, number of blocks v and the
    /// blocks, number of groups v and the groups. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.last_id.encode(out);
        self.max_deleted_id.encode(out);
        put_varint(out, self.entries_added);
        put_varint(out, self.blocks.len() as u64);
        self.blocks.iter().for_each(|block| block.encode(out));
        put_varint(out, self.groups.len() as u64);
        self.groups.iter().for_each(|group| group.encode(out));
    }

    /// Takes what `encode` wrote off the front of `input`.
    pub fn decode(input: &mut &[u8]) -> Result<Stream, Malformed> {
        let mut stream = Stream::new();
        stream.last_id = StreamId::decode(input)?;
        stream.max_deleted_id = StreamId::decode(input)?;
        stream.entries_added = take_varint(input)?;
        for _ in 0..take_varint(input)? {
            let block = Block::decode(input)?;
            if stream.blocks.back().is_some_and(|before| block.base <= before.last) {
                return Err(Malformed);
            }
            stream.len += block.count as usize;
            stream.block_heap_bytes += block.heap_bytes();
            if stream.blocks.capacity() == 0 {
                stream.blocks.reserve_exact(1);
            }
            stream.blocks.push_back(block);
        }
        if stream.blocks.back().is_some_and(|block| stream.last_id < block.last) {
            return Err(Malformed);
        }
        for _ in 0..take_varint(input)? {
            let group = Group::decode(input)?;
            if stream.groups.last().is_some_and(|before| group.name() <= before.name()) {
                return Err(Malformed);
            }
            stream.group_heap_bytes += group.heap_bytes();
            stream.groups.push(group);
        }
        Ok(stream)
    }
}

/// Consumer groups.
impl Stream {
    fn search(&self, name: &[u8]) -> Result<usize, usize> {
        self.groups.binary_search_by(|group| group.name().cmp(name))
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.search(name).ok().map(|at| &self.groups[at])
    }

    /// All groups in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.groups.iter()
    }

    /// Changes a group, if it exists, and keeps the account of its memory.
    fn edit_group(&mut self, name: &[u8], change: impl FnOnce(&mut Group)) {
        if let Ok(at) = self.search(name) {
            let group = &mut self.groups[at];
            self.group_heap_bytes -= group.heap_bytes();
            change(group);
            self.group_heap_bytes += group.heap_bytes();
        }
    }

    /// Creates a group, or sets what an existing one has read.
    pub fn set_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>) {
        if let Err(at) = self.search(name) {
            let group = Group::new(name);
            self.group_heap_bytes += group.heap_bytes();
            self.groups.insert(at, group);
        }
        self.edit_group(name, |group| {
            group.last_id = last_id;
            group.entries_read = entries_read;
        });
    }

    /// Deletes a group with its consumers and pending entries.
    pub fn remove_group(&mut self, name: &[u8]) {
        if let Ok(at) = self.search(name) {
            let group = self.groups.remove(at);
            self.group_heap_bytes -= group.heap_bytes();
        }
    }

    /// Creates a consumer, or sets its times; `active_ms`: `None` leaves that time as it is.
    pub fn set_consumer(
        &mut self,
        group: &[u8],
        name: &[u8],
        seen_ms: u64,
        active_ms: Option<u64>,
    ) {
        self.edit_group(group, |group| group.set_consumer(name, seen_ms, active_ms));
    }

    /// Sets the time at which an existing consumer was last seen.
    pub fn note_seen(&mut self, group: &[u8], name: &[u8], seen_ms: u64) {
        self.edit_group(group, |group| group.note_seen(name, seen_ms));
    }

    /// Deletes a consumer with its pending entries.
    pub fn remove_consumer(&mut self, group: &[u8], name: &[u8]) {
        self.edit_group(group, |group| group.delete_consumer(name));
    }

    /// Makes entries pending for a consumer, which is created if needed: identifiers with their
    /// numbers of deliveries.
    pub fn assign(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        delivered_ms: u64,
        entries: impl Iterator<Item = (StreamId, u64)>,
    ) {
        self.edit_group(group, |group| group.assign(consumer, delivered_ms, entries));
    }

    /// Removes pending entries. Ignores identifiers of other entries.
    pub fn acknowledge(&mut self, group: &[u8], ids: impl Iterator<Item = StreamId>) {
        self.edit_group(group, |group| {
            ids.for_each(|id| {
                group.acknowledge(id);
            });
        });
    }
}

/// The same entries in the same blocks, and the same groups.
impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        let numbers = |it: &Stream| (it.len, it.last_id, it.max_deleted_id, it.entries_added);
        numbers(self) == numbers(other)
            && self.blocks == other.blocks
            && self.groups == other.groups
    }
}

impl Eq for Stream {}
