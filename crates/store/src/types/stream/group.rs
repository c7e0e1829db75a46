//! Consumer groups of a stream: what was delivered to which consumer, and is not acknowledged yet.

use super::id::StreamId;
use super::runs::{Keyed, Runs};
use crate::types::allocation_bytes;
use crate::varint::{Malformed, put_bytes, put_varint, take_bytes, take_varint};

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub id: StreamId,
    /// Time of the last delivery in milliseconds since the Unix epoch.
    pub delivered_ms: u64,
    /// Number of deliveries.
    pub deliveries: u64,
    /// Slot of the consumer.
    consumer: u32,
}

impl Keyed for Pending {
    fn id(&self) -> StreamId {
        self.id
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Consumer {
    name: Box<[u8]>,
    /// Time of the last attempt to read or claim, in milliseconds since the Unix epoch.
    pub seen_ms: u64,
    /// Time of the last successful one.
    pub active_ms: Option<u64>,
    pending: Runs<StreamId>,
}

impl Consumer {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Number of pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Identifiers of the pending entries from one on.
    pub fn pending_from(&self, id: StreamId) -> impl Iterator<Item = StreamId> {
        self.pending.iter_from(id).copied()
    }

    fn heap_bytes(&self) -> usize {
        allocation_bytes(size_of::<Consumer>())
            + allocation_bytes(self.name.len())
            + self.pending.heap_bytes()
    }
}

/// A consumer group. Lookup of a consumer: O(log consumers); of a pending entry: O(log pending).
#[derive(Debug, Clone)]
pub struct Group {
    name: Box<[u8]>,
    /// Entries up to this one were delivered.
    pub last_id: StreamId,
    /// Entries ever added to the stream up to `last_id`; `None` if unknown.
    pub entries_read: Option<u64>,
    pending: Runs<Pending>,
    /// Pending entries refer to their place here.
    consumers: Vec<Option<Box<Consumer>>>,
    /// Slots in the order of the names.
    by_name: Vec<u32>,
    /// Allocations of all consumers.
    consumer_heap_bytes: usize,
}

impl Group {
    pub(super) fn new(name: &[u8]) -> Group {
        Group {
            name: name.into(),
            last_id: StreamId::MIN,
            entries_read: None,
            pending: Runs::default(),
            consumers: Vec::new(),
            by_name: Vec::new(),
            consumer_heap_bytes: 0,
        }
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// O(1).
    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.name.len())
            + self.pending.heap_bytes()
            + allocation_bytes(self.consumers.capacity() * size_of::<Option<Box<Consumer>>>())
            + allocation_bytes(self.by_name.capacity() * size_of::<u32>())
            + self.consumer_heap_bytes
    }

    fn slot(&self, slot: u32) -> &Consumer {
        self.consumers[slot as usize].as_ref().expect("a slot in use")
    }

    fn search(&self, name: &[u8]) -> Result<usize, usize> {
        self.by_name.binary_search_by(|slot| (*self.slot(*slot).name).cmp(name))
    }

    fn slot_of(&self, name: &[u8]) -> Option<u32> {
        self.search(name).ok().map(|at| self.by_name[at])
    }

    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.slot_of(name).map(|slot| self.slot(slot))
    }

    pub fn consumers_len(&self) -> usize {
        self.by_name.len()
    }

    /// All consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.by_name.iter().map(|slot| self.slot(*slot))
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(id)
    }

    pub fn first_pending(&self) -> Option<&Pending> {
        self.pending.first()
    }

    pub fn last_pending(&self) -> Option<&Pending> {
        self.pending.last()
    }

    /// Pending entries of all consumers from an identifier on.
    pub fn pending_from(&self, id: StreamId) -> impl Iterator<Item = &Pending> {
        self.pending.iter_from(id)
    }

    /// The consumer of a pending entry of this group.
    pub fn consumer_of(&self, pending: &Pending) -> &Consumer {
        self.slot(pending.consumer)
    }

    /// Changes one consumer and keeps the account of its memory.
    fn edit<R>(&mut self, slot: u32, change: impl FnOnce(&mut Consumer) -> R) -> R {
        let consumer = self.consumers[slot as usize].as_mut().expect("a slot in use");
        self.consumer_heap_bytes -= consumer.heap_bytes();
        let result = change(consumer);
        self.consumer_heap_bytes += consumer.heap_bytes();
        result
    }

    /// The slot of a consumer, which is created if needed.
    fn slot_or_new(&mut self, name: &[u8]) -> u32 {
        let at = match self.search(name) {
            Ok(at) => return self.by_name[at],
            Err(at) => at,
        };
        let consumer = Box::new(Consumer {
            name: name.into(),
            seen_ms: 0,
            active_ms: None,
            pending: Runs::default(),
        });
        self.consumer_heap_bytes += consumer.heap_bytes();
        // Slots are free only after a consumer was deleted, which is rare.
        let free = if self.by_name.len() < self.consumers.len() {
            self.consumers.iter().position(Option::is_none)
        } else {
            None
        };
        let slot = free.unwrap_or_else(|| {
            self.consumers.push(None);
            self.consumers.len() - 1
        });
        self.consumers[slot] = Some(consumer);
        let slot = u32::try_from(slot).expect("a group has < 2^32 consumers");
        self.by_name.insert(at, slot);
        slot
    }

    /// Sets the times of a consumer, which is created if needed.
    pub(super) fn set_consumer(&mut self, name: &[u8], seen_ms: u64, active_ms: Option<u64>) {
        let slot = self.slot_or_new(name);
        self.edit(slot, |consumer| {
            consumer.seen_ms = seen_ms;
            consumer.active_ms = active_ms.or(consumer.active_ms);
        });
    }

    /// Updates the time of the last attempt of a consumer to read.
    pub(super) fn note_seen(&mut self, name: &[u8], seen_ms: u64) {
        if let Some(slot) = self.slot_of(name) {
            self.edit(slot, |consumer| consumer.seen_ms = seen_ms);
        }
    }

    /// Makes entries pending for a consumer, which is created if needed, with a number of
    /// deliveries each.
    pub(super) fn assign(
        &mut self,
        name: &[u8],
        delivered_ms: u64,
        entries: impl Iterator<Item = (StreamId, u64)>,
    ) {
        let consumer = self.slot_or_new(name);
        for (id, deliveries) in entries {
            let old = self.pending.insert(Pending { id, delivered_ms, deliveries, consumer });
            match old {
                Some(old) if old.consumer == consumer => continue,
                Some(old) => {
                    self.edit(old.consumer, |consumer| consumer.pending.remove(id));
                }
                None => {}
            }
            self.edit(consumer, |consumer| consumer.pending.insert(id));
        }
    }

    /// Removes a pending entry; false if it is not pending.
    pub(super) fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(old) = self.pending.remove(id) else { return false };
        self.edit(old.consumer, |consumer| consumer.pending.remove(id));
        true
    }

    /// Deletes a consumer with its pending entries.
    pub(super) fn delete_consumer(&mut self, name: &[u8]) {
        let Ok(at) = self.search(name) else { return };
        let slot = self.by_name.remove(at);
        let consumer = self.consumers[slot as usize].take().expect("a slot in use");
        self.consumer_heap_bytes -= consumer.heap_bytes();
        for id in consumer.pending.iter() {
            self.pending.remove(*id);
        }
        if self.by_name.is_empty() {
            self.consumers = Vec::new();
            self.by_name = Vec::new();
        }
    }

    /// Appends: name, last identifier, entries read + 1 v (0: unknown), number of consumers v and
    /// for each the name, time seen v, time active + 1 v (0: never), number of pending entries v
    /// and for each the identifier as its difference, number of the consumer v, time v, count v.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.name);
        self.last_id.encode(out);
        put_varint(out, self.entries_read.map_or(0, |read| read.saturating_add(1)));
        put_varint(out, self.by_name.len() as u64);
        let mut numbers = vec![0u64; self.consumers.len()];
        for (number, slot) in (0u64..).zip(&self.by_name) {
            numbers[*slot as usize] = number;
            let consumer = self.slot(*slot);
            put_bytes(out, &consumer.name);
            put_varint(out, consumer.seen_ms);
            put_varint(out, consumer.active_ms.map_or(0, |active| active.saturating_add(1)));
        }
        put_varint(out, self.pending.len() as u64);
        let mut before = StreamId::MIN;
        for pending in self.pending.iter() {
            pending.id.encode_after(before, out);
            before = pending.id;
            put_varint(out, numbers[pending.consumer as usize]);
            put_varint(out, pending.delivered_ms);
            put_varint(out, pending.deliveries);
        }
    }

    pub(super) fn decode(input: &mut &[u8]) -> Result<Group, Malformed> {
        let mut group = Group::new(take_bytes(input)?);
        group.last_id = StreamId::decode(input)?;
        group.entries_read = take_varint(input)?.checked_sub(1);
        for number in 0..take_varint(input)? {
            let name = take_bytes(input)?;
            let (seen_ms, active_ms) = (take_varint(input)?, take_varint(input)?.checked_sub(1));
            group.set_consumer(name, seen_ms, active_ms);
            if group.by_name.len() as u64 != number + 1 {
                return Err(Malformed);
            }
        }
        let mut before = None;
        for _ in 0..take_varint(input)? {
            let id = StreamId::decode_after(before.unwrap_or(StreamId::MIN), input)?;
            if before.is_some_and(|before| id <= before) {
                return Err(Malformed);
            }
            before = Some(id);
            let consumer = u32::try_from(take_varint(input)?).map_err(|_| Malformed)?;
            if consumer as usize >= group.consumers.len() {
                return Err(Malformed);
            }
            let (delivered_ms, deliveries) = (take_varint(input)?, take_varint(input)?);
            group.pending.insert(Pending { id, delivered_ms, deliveries, consumer });
            group.edit(consumer, |consumer| consumer.pending.insert(id));
        }
        Ok(group)
    }
}

/// The same consumers and pending entries, whatever their slots.
impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        self.name == other.name
            && (self.last_id, self.entries_read) == (other.last_id, other.entries_read)
            && self.consumers().eq(other.consumers())
            && self.pending.len() == other.pending.len()
            && self.pending.iter().zip(other.pending.iter()).all(|(one, two)| {
                let numbers = |it: &Pending| (it.id, it.delivered_ms, it.deliveries);
                numbers(one) == numbers(two)
                    && self.consumer_of(one).name == other.consumer_of(two).name
            })
    }
}
