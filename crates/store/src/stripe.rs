//! One stripe of the keyspace: its tables, collections and expiries, and how a change affects them.

#![expect(
    clippy::cast_possible_truncation,
    reason = "some bits of a hash name the stripe and the database"
)]

use base::time::UnixMs;

use crate::DATABASES;
use crate::change::{Change, End, Kind};
use crate::databases::{Databases, Db};
use crate::deferred_free::{DeferredFree, Garbage};
use crate::encoded::value_of;
use crate::entry::{Entry, EntryRef, STRING_BYTES_MAX};
use crate::error::StoreError;
use crate::expiries::{ElementExpiries, Expiries, Expiry};
use crate::indexes::{Registry, Touch};
use crate::key::{Key, PartitionKey, STRIPE_BITS, STRIPE_SHIFT, TableId};
use crate::object::{Depth, Object, Objects};
use crate::params::{DbStats, Params};
use crate::partitions::Tables;
use crate::pending::Pending;
use crate::small::{self, Rework, Small, SmallKind};
use crate::table::Place;
use crate::types::{
    Compact, Hash, List, Malformed, Partition, Point, Series, Set, Stream, Text, ZSet,
};
use crate::value::Value;
use crate::versions::{Given, Versions};
use crate::watch::{Presence, Readers, Watches};

/// A removed string of at least this size is freed after the lock is released; smaller ones at
/// once.
const TRASH_BYTES_MIN: usize = 16 * 1024;

/// Sums over stripes, from which [`DbStats`] is computed.
#[derive(Debug, Default)]
pub(crate) struct StatsSums {
    dbs: [DbStats; DATABASES],
    /// Sums of expiry times, wrapping.
    expiries: [u64; DATABASES],
    bytes: usize,
}

impl StatsSums {
    pub(crate) fn finish(self, now: UnixMs) -> ([DbStats; DATABASES], usize) {
        let mut dbs = self.dbs;
        for (stats, sum) in dbs.iter_mut().zip(self.expiries) {
            let mean = sum.checked_div(stats.expires).unwrap_or(0);
            stats.ttl_ms_mean = mean.saturating_sub(now.0);
        }
        (dbs, self.bytes)
    }
}

/// Laid out by hand: together with the lock before it, the first cache line holds all that a plain
/// read needs, the next two what a write needs in addition. [`STRIPE_LINES`] are prefetched.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Stripe {
    /// Heap bytes of all entries, collections and tables, allocator rounding included.
    pub(crate) bytes: usize,
    pub(crate) dbs: Databases,
    pub(crate) pending: Pending,
    pub(crate) watches: Watches,
    pub(crate) tables: Tables,
    objects: Objects,
    expiries: Expiries,
    /// `None` if no collection has an element that expires.
    element_expiries: Option<Box<ElementExpiries>>,
    /// `None` if no key has a version.
    pub(crate) versions: Option<Box<Versions>>,
}

/// What has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The key, or all fields of its hash.
    Key,
    /// Some fields of the hash.
    Fields,
    /// Points of the time series.
    Points,
}

/// Cache lines of a stripe that a command on one key touches.
pub(crate) const STRIPE_LINES: usize = 3;

/// The same for a read or change of one partition: `tables` follows those lines.
pub(crate) const PARTITION_LINES: usize = STRIPE_LINES + 1;

/// The same for a command on a collection, which finds it in `objects`.
pub(crate) const COLLECTION_LINES: usize = PARTITION_LINES;

/// The lock and its padding, which precede the stripe in its slot.
const LOCK_BYTES: usize = 8;
const _: () = assert!(LOCK_BYTES + std::mem::offset_of!(Stripe, pending) == 64);
const _: () = assert!(LOCK_BYTES + std::mem::offset_of!(Stripe, tables) == STRIPE_LINES * 64);
const _: () = assert!(
    LOCK_BYTES + std::mem::offset_of!(Stripe, tables) + size_of::<Tables>() <= PARTITION_LINES * 64
);
const _: () = assert!(
    LOCK_BYTES + std::mem::offset_of!(Stripe, objects) + Objects::SLOTS_BYTES
        <= COLLECTION_LINES * 64
);

/// Inputs of a change other than the change itself.
pub(crate) struct Applying<'a> {
    pub(crate) params: &'a Params,
    pub(crate) hash_of: &'a dyn Fn(&[u8]) -> u64,
    pub(crate) trash: &'a mut DeferredFree,
}

impl Stripe {
    pub(crate) fn place(&self, db: u8, key: Key<'_>) -> Option<Place> {
        self.dbs[db].table.find_key(key.hash, key.bytes)
    }

    pub(crate) fn entry(&self, db: u8, place: Place) -> EntryRef<'_> {
        self.dbs[db].table.entry(place)
    }

    /// The entry of a key that has not expired.
    #[inline]
    pub(crate) fn live(&self, db: u8, key: Key<'_>, now: UnixMs) -> Option<EntryRef<'_>> {
        let table = &self.dbs[db].table;
        let entry = table.entry(table.find_key(key.hash, key.bytes)?);
        (!self.is_overdue(entry, now)).then_some(entry)
    }

    /// Whether a key has expired, or all fields of its hash.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see the function of this name")]
    pub(crate) fn is_overdue(&self, entry: EntryRef<'_>, now: UnixMs) -> bool {
        is_overdue(&self.objects, entry, now)
    }

    /// The hash of a key, if a field of it expires.
    pub(crate) fn timed_hash(&self, entry: EntryRef<'_>) -> Option<&Hash> {
        match self.object_of(entry).filter(|_| entry.has_times()) {
            Some(Object::Hash(hash)) => Some(hash),
            _ => None,
        }
    }

    /// The value of an entry, without the fields that have expired at `now`.
    #[inline]
    pub(crate) fn value<'a>(&'a self, entry: EntryRef<'a>, now: UnixMs) -> Value<'a> {
        if let Some(value) = entry.string_value() {
            return Value::String(value.into());
        }
        if let Some(kind) = entry.small_kind() {
            return Value::of_small(kind, entry.small());
        }
        value_of(self.object_of(entry).expect("not a string"), now)
    }

    /// The collection of an entry, unless it is a small one.
    pub(crate) fn object_of(&self, entry: EntryRef<'_>) -> Option<&Object> {
        entry.collection_index().map(|index| self.objects.get(index))
    }

    /// Prefetches a part of the collection that a key with this hash probably has. False if no part
    /// follows.
    #[inline]
    pub(crate) fn prefetch_collection(&self, db: u8, hash: u64, depth: Depth) -> bool {
        let Some(entry) = self.dbs[db].table.likely(hash) else { return false };
        let Some(index) = entry.collection_index() else {
            // The following passes are of other keys in the batch.
            if depth == Depth::Slot {
                entry.prefetch_all();
            }
            return false;
        };
        self.objects.prefetch(index, depth)
    }

    /// Applies one change. On an error nothing has changed.
    pub(crate) fn apply(
        &mut self,
        db: u8,
        key: Key<'_>,
        change: &Change<'_>,
        cx: &mut Applying<'_>,
    ) -> Result<(), StoreError> {
        match *change {
            Change::Set { value, expiry } => self.set(db, key, value, expiry, cx),
            Change::Edit { offset, bytes } => self.edit(db, key, offset, bytes, cx)?,
            Change::Delete => {
                self.remove(db, key, cx);
            }
            Change::Expire { at } => self.expire(db, key, at),
            Change::Put { kind, encoded, expiry } => {
                let object = Object::decode(kind, encoded, &cx.params.compact)
                    .map_err(|Malformed| StoreError::Malformed)?;
                self.remove(db, key, cx);
                self.insert_object(db, key, object, expiry, cx);
            }
            Change::HashSet { .. }
            | Change::HashUpdate { .. }
            | Change::HashExpire { .. }
            | Change::HashRemove { .. } => {
                self.change_object(db, key, Kind::Hash, change, cx)?;
            }
            Change::Stream(_) => self.change_object(db, key, Kind::Stream, change, cx)?,
            Change::SeriesAdd { .. } | Change::SeriesRemove { .. } | Change::SeriesPurge { .. } => {
                self.change_object(db, key, Kind::Series, change, cx)?;
            }
            Change::SetAdd { .. } | Change::SetRemove { .. } => {
                self.change_object(db, key, Kind::Set, change, cx)?;
            }
            Change::ZSetAdd { .. } | Change::ZSetRemove { .. } => {
                self.change_object(db, key, Kind::ZSet, change, cx)?;
            }
            Change::ListPush { .. }
            | Change::ListPop { .. }
            | Change::ListSet { .. }
            | Change::ListInsert { .. }
            | Change::ListRemove { .. }
            | Change::ListTrim { .. } => self.change_object(db, key, Kind::List, change, cx)?,
        }
        if !self.watches.is_empty() && change.concerns_watchers() {
            let exists_now = self.place(db, key).is_some();
            self.watches.touch(db, key, exists_now);
        }
        Ok(())
    }

    pub(crate) fn given(&self, db: u8, key: Key<'_>) -> Given {
        self.versions.as_ref().map_or_else(Given::default, |versions| versions.get(db, key))
    }

    /// Returns the number of bytes by which the stripe grew.
    pub(crate) fn set_version(
        &mut self,
        db: u8,
        key: Key<'_>,
        given: Given,
        hash_of: &dyn Fn(&[u8]) -> u64,
    ) -> isize {
        let versions = self.versions.get_or_insert_default();
        let grown_bytes = versions.set(db, key, given, hash_of);
        self.bytes = self.bytes.strict_add_signed(grown_bytes);
        grown_bytes
    }

    pub(crate) fn version_bytes(&self) -> usize {
        self.versions.as_ref().map_or(0, |versions| versions.heap_bytes())
    }

    /// Changes one partition.
    pub(crate) fn change_partition(
        &mut self,
        key: PartitionKey<'_>,
        registry: &Registry,
        touch: Touch<'_>,
        change: impl FnOnce(&mut Partition),
    ) {
        let grown_bytes = self.tables.change(key, registry, touch, change);
        self.bytes = self.bytes.strict_add_signed(grown_bytes);
    }

    /// Adds and removes indexes of the tables, as the registry defines them.
    pub(crate) fn settle(&mut self, registry: &Registry, trash: &mut DeferredFree) {
        let grown_bytes = self.tables.settle(registry, |index| trash.push(Garbage::Index(index)));
        self.bytes = self.bytes.strict_add_signed(grown_bytes);
    }

    /// Empties a table.
    pub(crate) fn truncate(&mut self, table: TableId, trash: &mut DeferredFree) {
        if let Some(table) = self.tables.truncate(table) {
            self.bytes -= table.bytes();
            trash.push(Garbage::Partitions(table));
        }
    }

    fn set(
        &mut self,
        db: u8,
        key: Key<'_>,
        value: &[u8],
        expiry: Option<UnixMs>,
        cx: &mut Applying<'_>,
    ) {
        let table = &mut self.dbs[db].table;
        let Some(place) = table.find_key(key.hash, key.bytes) else {
            return self.insert_string(db, key, value, expiry, cx);
        };
        if let Some(index) = table.entry(place).collection_index() {
            self.drop_object(db, key.hash, index, cx.trash);
        }
        let (old_bytes, new_bytes, old_expiry) = self.dbs[db].table.update(place, |entry| {
            let (old_bytes, old_expiry) =
                (entry.as_ref().allocation_bytes(), entry.as_ref().expiry());
            entry.set_string(value, expiry);
            cx.params.access.touch(entry.as_ref());
            (old_bytes, entry.as_ref().allocation_bytes(), old_expiry)
        });
        self.bytes = self.bytes + new_bytes - old_bytes;
        if old_expiry.is_some() || expiry.is_some() {
            self.note_expiry(db, key.hash, old_expiry, expiry);
        }
    }

    fn insert_string(
        &mut self,
        db: u8,
        key: Key<'_>,
        value: &[u8],
        expiry: Option<UnixMs>,
        cx: &mut Applying<'_>,
    ) {
        self.insert_entry(db, key.hash, Entry::string(key.bytes, value, expiry), cx);
        self.note_expiry(db, key.hash, None, expiry);
    }

    fn insert_object(
        &mut self,
        db: u8,
        key: Key<'_>,
        object: Object,
        expiry: Option<UnixMs>,
        cx: &mut Applying<'_>,
    ) {
        let soonest = object.soonest();
        let entry = self.entry_of(key.bytes, object, expiry);
        self.insert_entry(db, key.hash, entry, cx);
        self.note_expiry(db, key.hash, None, expiry);
        self.note_element_expiry(db, key.hash, None, soonest);
    }

    /// An entry with a collection, small if it can be.
    fn entry_of(&mut self, key: &[u8], object: Object, expiry: Option<UnixMs>) -> Entry {
        if let Some((kind, scratch)) = Small::of_object(&object) {
            return Entry::of_small(key, kind, scratch.block(), expiry);
        }
        let has_times = object.soonest().is_some();
        let mut entry =
            Entry::collection(key, self.objects.insert(object, &mut self.bytes), expiry);
        entry.note_times(has_times);
        entry
    }

    /// Removes the collection of an entry.
    fn drop_object(&mut self, db: u8, hash: u64, index: u32, trash: &mut DeferredFree) {
        let object = self.objects.remove(index, &mut self.bytes);
        self.note_element_expiry(db, hash, object.soonest(), None);
        trash.push(Garbage::Object(object));
    }

    fn insert_entry(&mut self, db: u8, hash: u64, entry: Entry, cx: &Applying<'_>) {
        entry.as_ref().set_access(cx.params.access.fresh());
        let table = &mut self.dbs[db].table;
        let before = table.table_bytes();
        self.bytes += entry.as_ref().allocation_bytes();
        table.insert(hash, entry, cx.hash_of);
        self.bytes = self.bytes + table.table_bytes() - before;
    }

    /// Takes the collection of a key and leaves an empty one, with which the key is then deleted.
    pub(crate) fn take_object(&mut self, db: u8, key: Key<'_>) -> Option<Object> {
        let place = self.place(db, key)?;
        let table = &mut self.dbs[db].table;
        let entry = table.entry(place);
        if let Some(kind) = entry.small_kind() {
            let object = entry.small().to_object(kind);
            self.bytes -= entry.allocation_bytes();
            table.update(place, Entry::clear_small);
            self.bytes += table.entry(place).allocation_bytes();
            return Some(object);
        }
        let index = entry.collection_index()?;
        table.update(place, |entry| entry.note_times(false));
        let object = self.objects.get_mut(index);
        let empty = match object.kind() {
            Kind::Hash => Object::Hash(Hash::new()),
            Kind::List => Object::List(List::new()),
            Kind::Set => Object::Set(Set::new()),
            Kind::ZSet => Object::ZSet(ZSet::new()),
            Kind::Stream => Object::Stream(Box::new(Stream::new())),
            Kind::Series => Object::Series(Box::new(Series::new())),
        };
        self.bytes = self.bytes + empty.heap_bytes() - object.heap_bytes();
        let taken = std::mem::replace(object, empty);
        self.note_element_expiry(db, key.hash, taken.soonest(), None);
        Some(taken)
    }

    /// Sets a key to a collection, whatever it held.
    pub(crate) fn put_object(
        &mut self,
        db: u8,
        key: Key<'_>,
        object: Object,
        expiry: Option<UnixMs>,
        cx: &mut Applying<'_>,
    ) {
        self.remove(db, key, cx);
        self.insert_object(db, key, object, expiry, cx);
        if !self.watches.is_empty() {
            self.watches.touch(db, key, true);
        }
    }

    fn edit(
        &mut self,
        db: u8,
        key: Key<'_>,
        offset: u64,
        bytes: &[u8],
        cx: &mut Applying<'_>,
    ) -> Result<(), StoreError> {
        let offset = usize::try_from(offset).map_err(|_| StoreError::Malformed)?;
        let end = offset.checked_add(bytes.len()).ok_or(StoreError::Malformed)?;
        if end > STRING_BYTES_MAX {
            return Err(StoreError::TooLong);
        }
        if self.place(db, key).is_none() {
            self.insert_string(db, key, b"", None, cx);
        }
        let place = self.place(db, key).expect("present or just inserted");
        let table = &mut self.dbs[db].table;
        if table.entry(place).string_value().is_none() {
            return Err(StoreError::WrongType);
        }
        let old_bytes = table.entry(place).allocation_bytes();
        table.update(place, |entry| entry.edit_string(offset, bytes));
        let entry = table.entry(place);
        debug_assert!(entry.string_value().is_some_and(|value| Text::from(value).len() >= end));
        cx.params.access.touch(entry);
        self.bytes = self.bytes + entry.allocation_bytes() - old_bytes;
        Ok(())
    }

    /// Removes a key and its value.
    pub(crate) fn remove(&mut self, db: u8, key: Key<'_>, cx: &mut Applying<'_>) -> bool {
        let Some(place) = self.place(db, key) else { return false };
        let table = &mut self.dbs[db].table;
        let before = table.table_bytes();
        let removed = table.remove(key.hash, place, cx.hash_of);
        let entry = removed.as_ref();
        let entry_bytes = entry.allocation_bytes();
        self.bytes = self.bytes + table.table_bytes() - before - entry_bytes;
        if let Some(index) = entry.collection_index() {
            self.drop_object(db, key.hash, index, cx.trash);
        }
        if let Some(at) = entry.expiry() {
            self.note_expiry(db, key.hash, Some(at), None);
        }
        if entry_bytes >= TRASH_BYTES_MIN {
            cx.trash.push(Garbage::Entry(removed));
        }
        debug_assert!(self.place(db, key).is_none(), "a key has one entry");
        true
    }

    fn expire(&mut self, db: u8, key: Key<'_>, at: Option<UnixMs>) {
        let Some(place) = self.place(db, key) else { return };
        let table = &mut self.dbs[db].table;
        let entry = table.entry(place);
        let (old_bytes, old) = (entry.allocation_bytes(), entry.expiry());
        table.update(place, |entry| entry.set_expiry(at));
        self.bytes = self.bytes + table.entry(place).allocation_bytes() - old_bytes;
        self.note_expiry(db, key.hash, old, at);
    }

    fn change_object(
        &mut self,
        db: u8,
        key: Key<'_>,
        kind: Kind,
        change: &Change<'_>,
        cx: &mut Applying<'_>,
    ) -> Result<(), StoreError> {
        let compact = &cx.params.compact;
        let Some(place) = self.place(db, key) else { return self.create(db, key, change, cx) };
        let entry = self.dbs[db].table.entry(place);
        if let Some(small) = entry.small_kind() {
            if small.kind() != kind {
                return Err(StoreError::WrongType);
            }
            return self.change_small(db, key, (place, small), change, cx);
        }
        let index = entry.collection_index().ok_or(StoreError::WrongType)?;
        let is_purge = matches!(change, Change::SeriesPurge { .. });
        if !is_purge {
            cx.params.access.touch(entry);
        }
        let object = self.objects.get_mut(index);
        if object.kind() != kind {
            return Err(StoreError::WrongType);
        }
        debug_assert!(object.keeps_key(), "an empty collection is deleted with its key");
        let (before, soonest_before) = (object.heap_bytes(), object.soonest());
        change_collection(object, change, compact)?;
        self.bytes = self.bytes + object.heap_bytes() - before;
        let (keeps_key, soonest) = (object.keeps_key(), object.soonest());
        if soonest != soonest_before {
            let table = &mut self.dbs[db].table;
            table.update(place, |entry| entry.note_times(soonest.is_some()));
            self.note_element_expiry(db, key.hash, soonest_before, soonest);
        }
        if !keeps_key {
            self.remove(db, key, cx);
            return Ok(());
        }
        Ok(())
    }

    /// Makes the change of a collection that does not exist yet.
    fn create(
        &mut self,
        db: u8,
        key: Key<'_>,
        change: &Change<'_>,
        cx: &mut Applying<'_>,
    ) -> Result<(), StoreError> {
        let compact = &cx.params.compact;
        if let Ok((kind, scratch)) = small::create(change, compact) {
            let entry = Entry::of_small(key.bytes, kind, scratch.block(), None);
            self.insert_entry(db, key.hash, entry, cx);
            return Ok(());
        }
        let Some(mut object) = created_by(change) else { return Ok(()) };
        change_collection(&mut object, change, compact)?;
        if object.keeps_key() {
            self.insert_object(db, key, object, None, cx);
        }
        Ok(())
    }

    /// Changes a small collection, in its other form if it must be.
    fn change_small(
        &mut self,
        db: u8,
        key: Key<'_>,
        (place, kind): (Place, SmallKind),
        change: &Change<'_>,
        cx: &mut Applying<'_>,
    ) -> Result<(), StoreError> {
        let compact = &cx.params.compact;
        let (before, after, result) = self.dbs[db].table.update(place, |entry| {
            debug_assert!(entry.as_ref().small().len() > 0, "an empty one is deleted with its key");
            cx.params.access.touch(entry.as_ref());
            let before = entry.as_ref().allocation_bytes();
            let result = small::change(entry, kind, change, compact);
            (before, entry.as_ref().allocation_bytes(), result)
        });
        self.bytes = self.bytes + after - before;
        if let Err(Rework) = result {
            let mut object = self.entry(db, place).small().to_object(kind);
            change_collection(&mut object, change, compact)?;
            self.replace_small(db, key.hash, place, object);
        }
        let entry = self.entry(db, place);
        let is_empty = match self.object_of(entry) {
            Some(object) => !object.keeps_key(),
            None => entry.small().len() == 0,
        };
        if is_empty {
            self.remove(db, key, cx);
        }
        Ok(())
    }

    /// Replaces a small collection in its entry.
    fn replace_small(&mut self, db: u8, hash: u64, place: Place, object: Object) {
        let old = self.entry(db, place);
        let (key, expiry, access) = (old.key().to_vec(), old.expiry(), old.access());
        let soonest = object.soonest();
        let entry = self.entry_of(&key, object, expiry);
        entry.as_ref().set_access(access);
        self.bytes += entry.as_ref().allocation_bytes();
        let old = self.dbs[db].table.update(place, |held| std::mem::replace(held, entry));
        self.bytes -= old.as_ref().allocation_bytes();
        self.note_element_expiry(db, hash, None, soonest);
    }

    /// Sets the time at which a consumer of a stream was last seen, if it exists.
    pub(crate) fn note_seen(
        &mut self,
        db: u8,
        key: Key<'_>,
        (group, consumer): (&[u8], &[u8]),
        seen_ms: u64,
    ) {
        let Some(place) = self.place(db, key) else { return };
        let Some(index) = self.dbs[db].table.entry(place).collection_index() else { return };
        if let Object::Stream(stream) = self.objects.get_mut(index) {
            stream.note_seen(group, consumer, seen_ms);
        }
    }

    fn note_expiry(&mut self, db: u8, hash: u64, old: Option<UnixMs>, new: Option<UnixMs>) {
        let tag = self.dbs.tag(db);
        let counts = &mut self.dbs[db];
        if let Some(at) = old {
            assert!(counts.expires > 0, "each expiry is counted");
            counts.expires -= 1;
            counts.expiry_sum = counts.expiry_sum.wrapping_sub(at.0);
        }
        if let Some(at) = new {
            counts.expires += 1;
            counts.expiry_sum = counts.expiry_sum.wrapping_add(at.0);
        }
        debug_assert!(counts.expires as usize <= counts.table.len(), "each key has one expiry");
        if let Some(at) = new.filter(|_| old != new) {
            self.push_expiry(Expiry { at, tagged_hash: tagged(hash, tag) });
        }
    }

    fn push_expiry(&mut self, expiry: Expiry) {
        let before = self.expiries.heap_bytes();
        let live: usize = self.dbs.iter().map(|(_, db)| db.expires as usize).sum();
        if self.expiries.is_stale(live) {
            let mut expiries = std::mem::take(&mut self.expiries);
            expiries.rebuild(|expiry| self.expiring_key(expiry).is_some());
            self.expiries = expiries;
        }
        self.expiries.push(expiry);
        self.bytes = self.bytes + self.expiries.heap_bytes() - before;
    }

    /// Notes that the first expiry of an element of a collection changes.
    fn note_element_expiry(&mut self, db: u8, hash: u64, old: Option<UnixMs>, new: Option<UnixMs>) {
        if old == new {
            return;
        }
        let tag = self.dbs.tag(db);
        let mut expiries = self.element_expiries.take().unwrap_or_else(|| {
            let expiries = Box::<ElementExpiries>::default();
            self.bytes += expiries.heap_bytes();
            expiries
        });
        let before = expiries.heap_bytes();
        let keys = &mut expiries.keys[usize::from(tag)];
        *keys = *keys + u32::from(new.is_some()) - u32::from(old.is_some());
        self.dbs[db].has_times = *keys > 0;
        if let Some(at) = new {
            if expiries.first.is_stale(expiries.live()) {
                expiries.first.rebuild(|expiry| self.timed_key(expiry).is_some());
            }
            expiries.first.push(Expiry { at, tagged_hash: tagged(hash, tag) });
        }
        self.bytes = self.bytes + expiries.heap_bytes() - before;
        self.keep_element_expiries(expiries);
    }

    /// Drops the expiries when no collection has elements that expire any more.
    fn keep_element_expiries(&mut self, expiries: Box<ElementExpiries>) {
        if expiries.live() > 0 {
            self.element_expiries = Some(expiries);
        } else {
            self.bytes -= expiries.heap_bytes();
        }
    }

    /// The database and entry to which a heap item refers, unless it is outdated.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method itself takes an entry of one lifetime"
    )]
    fn expiring_key(&self, expiry: Expiry) -> Option<(u8, EntryRef<'_>)> {
        self.find_expiring(expiry, |entry| entry.expiry())
    }

    /// The same for the first element of a collection.
    fn timed_key(&self, expiry: Expiry) -> Option<(u8, EntryRef<'_>)> {
        let timed = |entry: EntryRef<'_>| self.object_of(entry).filter(|_| entry.has_times());
        self.find_expiring(expiry, |entry| timed(entry)?.soonest())
    }

    fn find_expiring(
        &self,
        expiry: Expiry,
        time_of: impl Fn(EntryRef<'_>) -> Option<UnixMs>,
    ) -> Option<(u8, EntryRef<'_>)> {
        let tag = (expiry.tagged_hash >> STRIPE_SHIFT) as u8; // below DATABASES by construction
        let db = self.dbs.tagged(tag)?;
        let table = &self.dbs[db].table;
        let place = table.find(expiry.tagged_hash, |entry| time_of(entry) == Some(expiry.at))?;
        Some((db, table.entry(place)))
    }

    /// A key that has expired, or of which elements have, if there is one. Drops outdated items on
    /// the way.
    pub(crate) fn next_expired(&mut self, now: UnixMs) -> Option<(u8, Vec<u8>, Due)> {
        while self.expiries.has_due(now) {
            let next = self.expiries.pop()?;
            if let Some((db, entry)) = self.expiring_key(next) {
                // Another key may share tag and expiry time: it needs its own item, and has one.
                return Some((db, entry.key().to_vec(), Due::Key));
            }
        }
        while let Some(next) = self.element_expiries.as_ref()?.first.first() {
            if next.at > now {
                break;
            }
            if let Some((db, entry)) = self.timed_key(next) {
                let due = match self.object_of(entry) {
                    _ if self.is_overdue(entry, now) => Due::Key,
                    Some(Object::Series(_)) => Due::Points,
                    _ => Due::Fields,
                };
                // The item stays: it is outdated once no element expires at its time.
                return Some((db, entry.key().to_vec(), due));
            }
            self.element_expiries.as_mut()?.first.pop();
        }
        None
    }

    /// Adds this stripe to sums over several.
    pub(crate) fn add_stats(&self, sums: &mut StatsSums) {
        sums.bytes += self.bytes;
        for (number, db) in self.dbs.iter() {
            let index = usize::from(number);
            let stats = &mut sums.dbs[index];
            stats.keys += db.table.len() as u64;
            stats.expires += u64::from(db.expires);
            stats.table_bytes += db.table.table_bytes() as u64;
            stats.expiry_bytes += u64::from(db.expires) * Expiries::ITEM_BYTES as u64;
            stats.timed_keys += u64::from(self.timed_keys(self.dbs.tag(number)));
            sums.expiries[index] = sums.expiries[index].wrapping_add(db.expiry_sum);
        }
    }

    /// Whether a field of a hash expires, and has not expired. O(collections with elements that
    /// expire).
    pub(crate) fn has_timed_fields(&self, now: UnixMs) -> bool {
        let Some(elements) = &self.element_expiries else { return false };
        elements.first.as_slice().iter().any(|first| {
            let hash = self.timed_key(first.0).and_then(|(_, entry)| self.timed_hash(entry));
            hash.is_some_and(|hash| hash.at(now).has_times())
        })
    }

    /// Keys of a database with elements that expire.
    fn timed_keys(&self, tag: u8) -> u32 {
        self.element_expiries.as_ref().map_or(0, |expiries| expiries.keys[usize::from(tag)])
    }

    /// Whether a key of this stripe, or an element of one, has expired. Two comparisons.
    pub(crate) fn has_due(&self, now: UnixMs) -> bool {
        let elements = self.element_expiries.as_ref();
        self.expiries.has_due(now) || elements.is_some_and(|elements| elements.first.has_due(now))
    }

    /// Up to `count` keys with an expiry, from a random place of the heap, for volatile eviction.
    pub(crate) fn sample_volatile(&self, random: u64, count: usize) -> Vec<(u8, EntryRef<'_>)> {
        let heap = self.expiries.as_slice();
        if heap.is_empty() {
            return Vec::new();
        }
        let start = usize::try_from(random % heap.len() as u64).expect("below a length");
        let around = heap[start..].iter().chain(&heap[..start]);
        around.take(count * 4).filter_map(|e| self.expiring_key(e.0)).take(count).collect()
    }

    /// The key that expires first, for `volatile-ttl`.
    pub(crate) fn soonest(&self) -> Option<(u8, EntryRef<'_>)> {
        self.expiries.as_slice().iter().take(16).find_map(|e| self.expiring_key(e.0))
    }

    /// Empties one database of this stripe, or all; tables stay. Returns the number of readers that
    /// the caller notifies.
    pub(crate) fn flush(&mut self, db: Option<u8>, trash: &mut DeferredFree) -> Readers {
        let dbs = &self.dbs;
        let removed =
            self.watches.flush(db, |db, key| dbs[db].table.find_key(key.hash, key.bytes).is_some());
        if let Some(versions) = &mut self.versions {
            self.bytes -= versions.clear(db, trash);
        }
        let is_flushed = |index: u8| db.is_none_or(|db| db == index);
        if self.dbs.iter().all(|(index, db)| is_flushed(index) || db.table.len() == 0) {
            self.flush_all(trash);
        } else if let Some(db) = db {
            self.flush_one(db, trash);
        }
        removed
    }

    /// Exchanges two databases. Returns the number of readers that the caller notifies. O(1) but for
    /// watched keys.
    pub(crate) fn swap(&mut self, dbs: [u8; 2], now: UnixMs) -> Readers {
        self.dbs.swap(dbs[0], dbs[1]);
        if let Some(versions) = &mut self.versions {
            versions.swap(dbs);
        }
        let (databases, objects) = (&self.dbs, &self.objects);
        self.watches.swap(dbs, |db, key| {
            let Db { table, .. } = &databases[db];
            let entry = table.entry(table.find_key(key.hash, key.bytes)?);
            Some(if is_overdue(objects, entry, now) { Presence::Overdue } else { Presence::Live })
        })
    }

    /// No key remains, so no entry is visited: O(tables), and the time to free them. Versions stay.
    pub(crate) fn flush_all(&mut self, trash: &mut DeferredFree) {
        trash.push_databases(std::mem::take(&mut self.dbs));
        let objects = std::mem::take(&mut self.objects);
        if !objects.slots.is_empty() {
            trash.push(Garbage::Objects(objects));
        }
        self.expiries = Expiries::default();
        self.element_expiries = None;
        let kept = self.tables.heap_bytes() + self.version_bytes();
        debug_assert!(self.bytes >= kept, "tables and versions are a part of the account");
        self.bytes = kept;
    }

    fn flush_one(&mut self, db: u8, trash: &mut DeferredFree) {
        if let Some(mut expiries) = self.element_expiries.take() {
            expiries.keys[usize::from(self.dbs.tag(db))] = 0;
            self.keep_element_expiries(expiries);
        }
        let Db { table, .. } = self.dbs.take(db);
        self.bytes -= table.table_bytes();
        for entry in table.iter() {
            self.bytes -= entry.allocation_bytes();
            if let Some(index) = entry.collection_index() {
                trash.push(Garbage::Object(self.objects.remove(index, &mut self.bytes)));
            }
        }
        if table.len() > 0 {
            trash.push(Garbage::Table(table));
        }
    }
}

/// Always inlined: a call would load the address of the objects first, from a cache line that is
/// not prefetched for a string.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a cache miss of each command on a string: 2 % of INCR")]
fn is_overdue(objects: &Objects, entry: EntryRef<'_>, now: UnixMs) -> bool {
    entry.is_expired(now) || entry.has_times() && have_fields_expired(objects, entry, now)
}

#[cold]
fn have_fields_expired(objects: &Objects, entry: EntryRef<'_>, now: UnixMs) -> bool {
    entry.collection_index().is_some_and(|index| objects.has_expired(index, now))
}

/// The hash of a key with the tag of its database in the bits that name the stripe.
fn tagged(hash: u64, tag: u8) -> u64 {
    (hash << STRIPE_BITS >> STRIPE_BITS) | u64::from(tag) << STRIPE_SHIFT
}

/// The empty collection with which a change of an absent key begins; `None` if the key stays
/// absent.
fn created_by(change: &Change<'_>) -> Option<Object> {
    Some(match change {
        Change::HashSet { .. } | Change::HashUpdate { .. } => Object::Hash(Hash::new()),
        Change::ListPush { .. } => Object::List(List::new()),
        Change::SetAdd { .. } => Object::Set(Set::new()),
        Change::ZSetAdd { .. } => Object::ZSet(ZSet::new()),
        Change::SeriesAdd { .. } => Object::Series(Box::new(Series::new())),
        Change::Stream(change) if change.get().creates() => Object::Stream(Box::new(Stream::new())),
        _ => return None,
    })
}

fn change_collection(
    object: &mut Object,
    change: &Change<'_>,
    compact: &Compact,
) -> Result<(), StoreError> {
    match (object, *change) {
        (Object::Hash(hash), Change::HashSet { pairs }) => {
            let mut items = pairs.iter();
            while let (Some(field), Some(value)) = (items.next(), items.next()) {
                hash.set(field, value, compact);
            }
        }
        (Object::Hash(hash), Change::HashUpdate { pairs }) => {
            let mut items = pairs.iter();
            while let (Some(field), Some(value)) = (items.next(), items.next()) {
                hash.set_value(field, value, compact);
            }
        }
        (Object::Hash(hash), Change::HashExpire { at, fields }) => {
            fields.iter().for_each(|field| {
                hash.expire(field, at, compact);
            });
        }
        (Object::Hash(hash), Change::HashRemove { fields }) => {
            fields.iter().for_each(|field| {
                hash.remove(field);
            });
        }
        (Object::Set(set), Change::SetAdd { members }) => members.iter().for_each(|member| {
            set.add(member, compact);
        }),
        (Object::Set(set), Change::SetRemove { members }) => members.iter().for_each(|member| {
            set.remove(member);
        }),
        (Object::ZSet(zset), Change::ZSetAdd { members }) => {
            members.iter().for_each(|(score, member)| {
                zset.add(member, score, compact);
            });
        }
        (Object::ZSet(zset), Change::ZSetRemove { members }) => {
            members.iter().for_each(|member| {
                zset.remove(member);
            });
        }
        (Object::Stream(stream), Change::Stream(change)) => {
            return change.get().apply(stream, compact);
        }
        (Object::Series(series), Change::SeriesAdd { points, expiry }) => {
            for (timestamp, value) in points.iter() {
                series.add(Point { timestamp, value, expiry });
            }
        }
        (Object::Series(series), Change::SeriesRemove { timestamps }) => {
            timestamps.iter().for_each(|timestamp| {
                series.remove(timestamp);
            });
        }
        (Object::Series(series), Change::SeriesPurge { at, first, last }) => {
            series.purge(at, first, last);
        }
        (Object::List(list), change) => return change_list(list, &change, compact),
        _ => return Err(StoreError::WrongType),
    }
    Ok(())
}

fn list_index(index: u64, end: usize) -> Result<usize, StoreError> {
    usize::try_from(index).ok().filter(|index| *index < end).ok_or(StoreError::Malformed)
}

fn change_list(list: &mut List, change: &Change<'_>, compact: &Compact) -> Result<(), StoreError> {
    match *change {
        Change::ListPush { end: End::Front, values } => {
            values.iter().for_each(|value| list.push_front(value, compact));
        }
        Change::ListPush { end: End::Back, values } => {
            values.iter().for_each(|value| list.push_back(value, compact));
        }
        Change::ListPop { end, count } => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len());
            match end {
                End::Front => list.remove_range(0, count),
                End::Back => list.remove_range(list.len() - count, list.len()),
            }
        }
        Change::ListSet { index, value } => {
            let index = list_index(index, list.len())?;
            list.set(index, value, compact);
        }
        Change::ListInsert { index, value } => {
            let index = list_index(index, list.len() + 1)?;
            list.insert(index, value, compact);
        }
        Change::ListRemove { count, value } => {
            list.remove_matching(count, value);
        }
        Change::ListTrim { start, count } => {
            let start = usize::try_from(start).unwrap_or(usize::MAX).min(list.len());
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len() - start);
            list.remove_range(start + count, list.len());
            list.remove_range(0, start);
        }
        _ => return Err(StoreError::WrongType),
    }
    Ok(())
}
