//! The collections of a stripe.

use base::time::UnixMs;

use crate::blob::{prefetch, prefetch_block};
use crate::change::Kind;
use crate::types::{Compact, Hash, List, Malformed, Series, Set, Stream, ZSet, allocation_bytes};

/// The parts of a collection beyond the entry of its key, in the order in which they are
/// prefetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Its slot among the collections of the stripe.
    Slot,
    /// What the slot points at.
    Object,
    /// The elements, or what points at chunks of them.
    Contents,
    /// The first and the last chunk, or what points at their elements.
    Chunks,
    /// The elements of these chunks.
    Elements,
}

impl Depth {
    /// In the order in which they are prefetched.
    pub const ALL: [Depth; 5] =
        [Depth::Slot, Depth::Object, Depth::Contents, Depth::Chunks, Depth::Elements];
}

#[derive(Debug)]
pub(crate) enum Object {
    Hash(Hash),
    List(List),
    Set(Set),
    ZSet(ZSet),
    Stream(Box<Stream>),
    Series(Box<Series>),
}

impl Object {
    pub(crate) fn len(&self) -> usize {
        match self {
            Object::Hash(hash) => hash.len(),
            Object::List(list) => list.len(),
            Object::Set(set) => set.len(),
            Object::ZSet(zset) => zset.len(),
            Object::Stream(stream) => stream.elements(),
            Object::Series(series) => series.len(),
        }
    }

    /// Whether the key stays: an empty collection is deleted with its key, but not a stream.
    pub(crate) fn keeps_key(&self) -> bool {
        matches!(self, Object::Stream(_)) || self.len() > 0
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Object::Hash(hash) => hash.heap_bytes(),
            Object::List(list) => list.heap_bytes(),
            Object::Set(set) => set.heap_bytes(),
            Object::ZSet(zset) => zset.heap_bytes(),
            Object::Stream(stream) => allocation_bytes(size_of::<Stream>()) + stream.heap_bytes(),
            Object::Series(series) => allocation_bytes(size_of::<Series>()) + series.heap_bytes(),
        }
    }

    /// When the next of its elements expires, apart from the key: a field or a point.
    pub(crate) fn soonest(&self) -> Option<UnixMs> {
        match self {
            Object::Hash(hash) => hash.earliest_expiry(),
            Object::Series(series) => series.soonest(),
            _ => None,
        }
    }

    /// Prefetches a part of the collection. False if no part follows.
    fn prefetch(&self, depth: Depth) -> bool {
        match (self, depth) {
            (Object::Hash(hash), _) => hash.prefetch(),
            (Object::Set(set), _) => set.prefetch(),
            (Object::ZSet(zset), _) => zset.prefetch(),
            (Object::List(list), Depth::Contents) => {
                list.prefetch_chunks();
                return true;
            }
            (Object::List(list), _) => list.prefetch_elements(),
            (Object::Stream(stream), Depth::Contents) => {
                prefetch_block(&raw const **stream, size_of::<Stream>());
                return true;
            }
            (Object::Stream(stream), Depth::Chunks) => {
                stream.prefetch_blocks();
                return true;
            }
            (Object::Stream(stream), _) => stream.prefetch_entries(),
            (Object::Series(series), _) => {
                prefetch_block(&raw const **series, size_of::<Series>());
            }
        }
        false
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Object::Hash(_) => Kind::Hash,
            Object::List(_) => Kind::List,
            Object::Set(_) => Kind::Set,
            Object::ZSet(_) => Kind::ZSet,
            Object::Stream(_) => Kind::Stream,
            Object::Series(_) => Kind::Series,
        }
    }

    pub(crate) fn decode(
        kind: Kind,
        mut bytes: &[u8],
        compact: &Compact,
    ) -> Result<Object, Malformed> {
        let object = match kind {
            Kind::Hash => Object::Hash(Hash::decode(&mut bytes, compact)?),
            Kind::List => Object::List(List::decode(&mut bytes, compact)?),
            Kind::Set => Object::Set(Set::decode(&mut bytes, compact)?),
            Kind::ZSet => Object::ZSet(ZSet::decode(&mut bytes, compact)?),
            Kind::Stream => Object::Stream(Box::new(Stream::decode(&mut bytes)?)),
            Kind::Series => Object::Series(Box::new(Series::decode(&mut bytes)?)),
        };
        if bytes.is_empty() && object.keeps_key() { Ok(object) } else { Err(Malformed) }
    }
}

/// The collections of a stripe, by the index in their entry.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Objects {
    pub(crate) slots: Vec<Option<Box<Object>>>,
    free: Vec<u32>,
}

impl Objects {
    /// `bytes`: the account of the stripe, which grows by the size of the object.
    pub(crate) fn insert(&mut self, object: Object, bytes: &mut usize) -> u32 {
        *bytes = *bytes + object_bytes(&object) - self.slots_bytes();
        let object = Some(Box::new(object));
        let index = if let Some(index) = self.free.pop() {
            debug_assert!(self.slots[index as usize].is_none(), "a free slot is empty");
            self.slots[index as usize] = object;
            index
        } else {
            self.slots.push(object);
            u32::try_from(self.slots.len() - 1).expect("a stripe has < 2^32 collections")
        };
        *bytes += self.slots_bytes();
        index
    }

    pub(crate) fn slots_bytes(&self) -> usize {
        allocation_bytes(self.slots.capacity() * size_of::<Option<Box<Object>>>())
            + allocation_bytes(self.free.capacity() * size_of::<u32>())
    }

    /// Bytes of the fields through which a collection is found.
    pub(crate) const SLOTS_BYTES: usize = size_of::<Vec<Option<Box<Object>>>>();

    /// Prefetches a part of a collection. False if no part follows.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32, depth: Depth) -> bool {
        let slot = self.slots.get(index as usize);
        match (depth, slot) {
            (Depth::Slot, Some(slot)) => prefetch(slot),
            (Depth::Object, Some(Some(object))) => {
                prefetch_block(&raw const **object, size_of::<Object>());
            }
            (_, Some(Some(object))) => return object.prefetch(depth),
            (_, Some(None) | None) => return false,
        }
        true
    }

    pub(crate) fn get(&self, index: u32) -> &Object {
        self.slots[index as usize].as_ref().expect("an entry points at its collection")
    }

    /// Whether a collection is a hash of which all fields have expired.
    pub(crate) fn has_expired(&self, index: u32, now: UnixMs) -> bool {
        matches!(self.get(index), Object::Hash(hash) if hash.is_overdue(now))
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Object {
        self.slots[index as usize].as_mut().expect("an entry points at its collection")
    }

    /// `bytes`: the account of the stripe, which shrinks by the size of the object.
    pub(crate) fn remove(&mut self, index: u32, bytes: &mut usize) -> Object {
        let object = self.slots[index as usize].take().expect("an entry points at its collection");
        *bytes = *bytes - object_bytes(&object) - self.slots_bytes();
        self.free.push(index);
        debug_assert!(self.free.len() <= self.slots.len(), "a slot is freed once");
        if self.free.len() == self.slots.len() {
            *self = Objects::default();
        }
        *bytes += self.slots_bytes();
        *object
    }
}

fn object_bytes(object: &Object) -> usize {
    allocation_bytes(size_of::<Object>()) + object.heap_bytes()
}
