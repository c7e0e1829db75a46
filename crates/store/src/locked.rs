//! Some locked stripes: the only way to read or change data.

use std::cell::Cell;
use std::ops::{Bound, Deref, DerefMut};

use base::time::UnixMs;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::change::{Change, Kind};
use crate::deferred_free::DeferredFree;
use crate::entry::{Entry, EntryRef};
use crate::error::StoreError;
use crate::indexes::{IndexId, Posting, Start, Touch};
use crate::key::Key;
use crate::key::stripe_of;
use crate::key::{PartitionKey, TableId};
use crate::keyspace::Keyspace;
use crate::mutation::Mutation;
use crate::object::Object;
use crate::params::{DbStats, Params, ScanCursor};
use crate::stripe::{Applying, Due, StatsSums, Stripe};
use crate::types::{Encoding, Partition, Scalar, Seconds, Series, Stream, Text};
use crate::value::Value;
use crate::versions::{Given, Version};
use crate::views::{HashRef, ListRef, SetRef, ZSetRef};
use crate::watch::{ChangedKeys, Reader, Ticket, WatchFlag};
use crate::{DATABASES, STRIPES};

#[derive(Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) index: u16,
    pub(crate) stripe: MutexGuard<'a, Stripe>,
}

/// The locked stripes, in the order of their numbers. A command almost always has one: it is kept
/// in place, and dropping none costs one comparison.
#[derive(Debug, Default)]
pub(crate) enum Guards<'a> {
    #[default]
    None,
    One(Guard<'a>),
    Several(Vec<Guard<'a>>),
}

impl<'a> Guards<'a> {
    fn insert(&mut self, place: usize, guard: Guard<'a>) {
        let mut guards = match std::mem::take(self) {
            Guards::None => Vec::new(),
            Guards::One(guard) => vec![guard],
            Guards::Several(guards) => guards,
        };
        guards.insert(place, guard);
        *self = Guards::of(guards);
    }

    /// One stripe must be in place: see [`Locked::position`].
    fn of(mut guards: Vec<Guard<'a>>) -> Guards<'a> {
        if guards.len() == 1 {
            return guards.pop().map_or(Guards::None, Guards::One);
        }
        Guards::Several(guards)
    }
}

pub(crate) fn stripe_number(stripe: usize) -> u16 {
    u16::try_from(stripe).expect("STRIPES fits u16")
}

impl<'a> Deref for Guards<'a> {
    type Target = [Guard<'a>];

    #[inline]
    fn deref(&self) -> &[Guard<'a>] {
        match self {
            Guards::None => &[],
            Guards::One(guard) => std::slice::from_ref(guard),
            Guards::Several(guards) => guards,
        }
    }
}

impl DerefMut for Guards<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Guards::None => &mut [],
            Guards::One(guard) => std::slice::from_mut(guard),
            Guards::Several(guards) => guards,
        }
    }
}

/// A key that a scan visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'a> {
    Live(&'a [u8]),
    /// Present, but expired.
    Overdue(&'a [u8]),
}

/// Stripes held by this thread until the value is dropped or [unlocked](Locked::unlock).
#[derive(Debug)]
pub struct Locked<'a> {
    keyspace: &'a Keyspace,
    params: &'a Params,
    guards: Guards<'a>,
    grown_bytes: isize,
    trash: DeferredFree,
    lookups: Cell<Lookups>,
}

/// A string with its expiry.
#[derive(Debug, Clone, Copy)]
pub struct StoredString<'a> {
    pub value: Scalar<'a>,
    pub expiry: Option<UnixMs>,
}

/// Counts of key lookups that found a key, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u32,
    pub misses: u32,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(
        keyspace: &'a Keyspace,
        params: &'a Params,
        guards: Guards<'a>,
    ) -> Locked<'a> {
        let lookups = Cell::new(Lookups::default());
        Locked { keyspace, params, guards, grown_bytes: 0, trash: DeferredFree::default(), lookups }
    }

    /// Releases the locks. Returns the number of bytes by which the data grew.
    #[inline]
    pub fn unlock(&mut self) -> isize {
        self.guards = Guards::None;
        std::mem::take(&mut self.grown_bytes)
    }

    /// What the changes removed, if anything, to be dropped while no lock is held.
    #[inline]
    pub fn take_trash(&mut self) -> Option<DeferredFree> {
        (!self.trash.is_empty()).then(|| std::mem::take(&mut self.trash))
    }

    /// Whether no stripe is locked: for a command without keys, and after [`Locked::unlock`].
    #[inline]
    pub fn is_unlocked(&self) -> bool {
        self.guards.is_empty()
    }

    /// Bytes by which the data has grown since the stripes were locked.
    pub fn grown_bytes(&self) -> isize {
        self.grown_bytes
    }

    pub fn params(&self) -> &'a Params {
        self.params
    }

    pub fn keyspace(&self) -> &'a Keyspace {
        self.keyspace
    }

    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.keyspace.key(bytes)
    }

    /// True when every stripe is held.
    pub fn is_all(&self) -> bool {
        self.guards.len() == STRIPES
    }

    /// Whether the stripe of a key is locked.
    #[inline]
    pub fn holds(&self, hash: u64) -> bool {
        self.place_of(stripe_of(hash)).is_ok()
    }

    /// Where a stripe is among the locked ones, or belongs.
    #[inline]
    fn place_of(&self, stripe: usize) -> Result<usize, usize> {
        self.guards.binary_search_by_key(&stripe, |guard| usize::from(guard.index))
    }

    /// Locks the stripe of one more key. False if another thread holds it.
    pub fn try_add(&mut self, hash: u64) -> bool {
        self.try_add_stripe(stripe_of(hash))
    }

    /// Locks every stripe. False if another thread holds one of them: then some more are locked.
    pub fn try_add_all(&mut self) -> bool {
        (0..STRIPES).all(|stripe| self.try_add_stripe(stripe))
    }

    fn try_add_stripe(&mut self, stripe: usize) -> bool {
        let Err(place) = self.place_of(stripe) else { return true };
        let Some(guard) = self.keyspace.try_stripe(stripe) else { return false };
        self.guards.insert(place, Guard { index: stripe_number(stripe), stripe: guard });
        true
    }

    /// Unlocks the stripes, and locks them again with those of more keys. Nothing may have been
    /// changed under the locks. False, with no stripe locked, if one is not free when `give_up`
    /// becomes true.
    pub fn relock_with(&mut self, hashes: &[u64], give_up: impl Fn(u64) -> bool) -> bool {
        let stripes = self.stripes().chain(hashes.iter().map(|hash| stripe_of(*hash))).collect();
        self.relock(stripes, give_up)
    }

    /// Like [`Locked::relock_with`], with every stripe.
    pub fn relock_all(&mut self, give_up: impl Fn(u64) -> bool) -> bool {
        self.relock((0..STRIPES).collect(), give_up)
    }

    /// The numbers of the locked stripes.
    pub fn stripes(&self) -> impl Iterator<Item = usize> {
        self.guards.iter().map(|guard| usize::from(guard.index))
    }

    /// Like [`Locked::relock_with`], with these stripes.
    pub fn relock(&mut self, stripes: SmallVec<[usize; 8]>, give_up: impl Fn(u64) -> bool) -> bool {
        assert!(self.trash.is_empty(), "nothing was removed");
        assert!(self.grown_bytes == 0, "nothing was changed");
        self.guards = Guards::None;
        let locked = self.keyspace.lock_stripes(stripes, give_up);
        let is_locked = locked.is_some();
        self.guards = locked.unwrap_or_default();
        is_locked
    }

    /// Locks the stripe of one more key. Waits for it until `give_up` is true: false then.
    pub fn add_unless(&mut self, hash: u64, give_up: impl Fn(u64) -> bool) -> bool {
        let stripe = stripe_of(hash);
        let Err(place) = self.place_of(stripe) else { return true };
        let Some(guard) = self.keyspace.wait_unless(stripe, give_up) else { return false };
        self.guards.insert(place, Guard { index: stripe_number(stripe), stripe: guard });
        true
    }

    #[inline]
    fn position(&self, hash: u64) -> usize {
        if self.guards.len() == 1 {
            debug_assert_eq!(usize::from(self.guards[0].index), stripe_of(hash));
            return 0;
        }
        self.place_of(stripe_of(hash)).expect("a command touches only the keys that it declared")
    }

    #[inline]
    pub(crate) fn stripe(&self, hash: u64) -> &Stripe {
        &self.guards[self.position(hash)].stripe
    }

    fn stripe_mut(&mut self, hash: u64) -> &mut Stripe {
        let position = self.position(hash);
        &mut self.guards[position].stripe
    }

    #[inline]
    fn live(&self, db: u8, key: Key<'_>) -> Option<(&Stripe, EntryRef<'_>)> {
        let stripe = self.stripe(key.hash);
        let found = stripe.live(db, key, self.params.expiry_now()).map(|entry| (stripe, entry));
        let mut lookups = self.lookups.get();
        match found {
            Some(_) => lookups.hits += 1,
            None => lookups.misses += 1,
        }
        self.lookups.set(lookups);
        found
    }

    /// Lookups since the last call.
    #[inline]
    pub fn take_lookups(&self) -> Lookups {
        self.lookups.take()
    }

    /// The value of a key; the read counts as a use of the key.
    #[inline]
    pub fn get(&self, db: u8, key: Key<'_>) -> Option<Value<'_>> {
        let (stripe, entry) = self.live(db, key)?;
        self.params.access.touch(entry);
        Some(stripe.value(entry, self.params.expiry_now()))
    }

    /// The value of a key; the read does not count as a use of the key: OBJECT, TYPE, SCAN.
    pub fn peek(&self, db: u8, key: Key<'_>) -> Option<Value<'_>> {
        let (stripe, entry) = self.live(db, key)?;
        Some(stripe.value(entry, self.params.expiry_now()))
    }

    pub fn contains(&self, db: u8, key: Key<'_>) -> bool {
        self.live(db, key).is_some()
    }

    #[inline]
    pub fn string(&self, db: u8, key: Key<'_>) -> Result<Option<Text<'_>>, StoreError> {
        Ok(self.string_and_expiry(db, key)?.map(|found| found.value.into()))
    }

    /// A string and its expiry, found at once: for a write that keeps the expiry. The objects of the
    /// stripe stay untouched: they are not in the cache lines that are prefetched for a string.
    #[inline]
    pub fn string_and_expiry(
        &self,
        db: u8,
        key: Key<'_>,
    ) -> Result<Option<StoredString<'_>>, StoreError> {
        let Some((_, entry)) = self.live(db, key) else { return Ok(None) };
        self.params.access.touch(entry);
        let value = entry.string_value().ok_or(StoreError::WrongType)?;
        Ok(Some(StoredString { value, expiry: entry.expiry() }))
    }

    pub fn hash(&self, db: u8, key: Key<'_>) -> Result<Option<HashRef<'_>>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    pub fn list(&self, db: u8, key: Key<'_>) -> Result<Option<ListRef<'_>>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::List(list)) => Ok(Some(list)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    pub fn set(&self, db: u8, key: Key<'_>) -> Result<Option<SetRef<'_>>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::Set(set)) => Ok(Some(set)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    pub fn zset(&self, db: u8, key: Key<'_>) -> Result<Option<ZSetRef<'_>>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::ZSet(zset)) => Ok(Some(zset)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    pub fn stream(&self, db: u8, key: Key<'_>) -> Result<Option<&Stream>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    pub fn series(&self, db: u8, key: Key<'_>) -> Result<Option<&Series>, StoreError> {
        match self.get(db, key) {
            None => Ok(None),
            Some(Value::Series(series)) => Ok(Some(series)),
            Some(_) => Err(StoreError::WrongType),
        }
    }

    /// `None`: no such key. `Some(None)`: it never expires.
    pub fn expiry(&self, db: u8, key: Key<'_>) -> Option<Option<UnixMs>> {
        self.live(db, key).map(|(_, entry)| entry.expiry())
    }

    /// False when no key of this stripe and database, and no element of one, has an expiry: two
    /// comparisons.
    #[inline]
    pub fn may_expire(&self, db: u8, hash: u64) -> bool {
        let db = &self.stripe(hash).dbs[db];
        db.expires > 0 || db.has_times
    }

    /// Whether the key is present although it, or every field of its hash, has expired. A write
    /// deletes it first.
    pub fn is_overdue(&self, db: u8, key: Key<'_>) -> bool {
        let stripe = self.stripe(key.hash);
        let now = self.params.expiry_now();
        stripe.place(db, key).is_some_and(|at| stripe.is_overdue(stripe.entry(db, at), now))
    }

    /// The number of fields of a hash that is [overdue](Locked::is_overdue) only because all of
    /// them have expired.
    pub fn overdue_fields(&self, db: u8, key: Key<'_>) -> Option<usize> {
        let stripe = self.stripe(key.hash);
        let (entry, now) = (stripe.entry(db, stripe.place(db, key)?), self.params.expiry_now());
        let hash = stripe.timed_hash(entry).filter(|_| !entry.is_expired(now))?;
        hash.is_overdue(now).then(|| hash.len())
    }

    /// Whether a key, or a field of its hash, that had not expired at `from` has expired since.
    pub fn has_expired_since(&self, db: u8, key: Key<'_>, from: UnixMs) -> bool {
        let stripe = self.stripe(key.hash);
        let now = self.params.expiry_now();
        let Some(place) = stripe.place(db, key) else { return false };
        let entry = stripe.entry(db, place);
        entry.expiry().is_some_and(|at| from < at && at <= now)
            || stripe.timed_hash(entry).is_some_and(|hash| hash.has_expired_since(from, now))
    }

    /// Some fields of a hash that have expired, with at most `bytes_max` bytes.
    pub fn due_fields(
        &self,
        db: u8,
        key: Key<'_>,
        count_max: usize,
        bytes_max: usize,
    ) -> Vec<Vec<u8>> {
        let stripe = self.stripe(key.hash);
        let (mut fields, mut bytes) = (Vec::new(), 0);
        let Some(place) = stripe.place(db, key) else { return fields };
        let Some(hash) = stripe.timed_hash(stripe.entry(db, place)) else { return fields };
        hash.visit_due(self.params.expiry_now(), |field| {
            bytes += field.len();
            if bytes <= bytes_max {
                fields.push(field.to_vec());
            }
            fields.len() < count_max && bytes <= bytes_max
        });
        fields
    }

    /// The single writer: makes the change that `mutation` describes, at run time and in recovery. On
    /// an error nothing has changed.
    pub fn apply_mutation(&mut self, mutation: &Mutation<'_>) -> Result<(), StoreError> {
        match mutation {
            Mutation::Key { db, key, change } => {
                let position = self.position(key.hash);
                let stripe = &mut *self.guards[position].stripe;
                let before = stripe.bytes.cast_signed();
                let keyspace = self.keyspace;
                let mut cx = Applying {
                    params: self.params,
                    hash_of: &|bytes| keyspace.hash(bytes),
                    trash: &mut self.trash,
                };
                let result = stripe.apply(*db, *key, change, &mut cx);
                self.grown_bytes += stripe.bytes.cast_signed() - before;
                result
            }
            Mutation::Partition { key, writes } => {
                self.change_partition(*key, Touch::Writes(*writes), |partition| {
                    writes.iter().for_each(|write| partition.write(write));
                });
                Ok(())
            }
            Mutation::Purge { key, now, gc_before } => {
                self.change_partition(*key, Touch::All, |partition| {
                    partition.purge(*now, *gc_before);
                });
                Ok(())
            }
            Mutation::Truncate { table } => {
                assert!(self.is_all(), "a table is in every stripe");
                for guard in self.guards.iter_mut() {
                    let before = guard.stripe.bytes.cast_signed();
                    guard.stripe.truncate(*table, &mut self.trash);
                    self.grown_bytes += guard.stripe.bytes.cast_signed() - before;
                }
                Ok(())
            }
            Mutation::Flush { db } => {
                assert!(self.is_all(), "a flush needs every stripe");
                for guard in self.guards.iter_mut() {
                    let before = guard.stripe.bytes.cast_signed();
                    let removed = guard.stripe.flush(*db, &mut self.trash);
                    self.keyspace.readers_left(removed);
                    self.grown_bytes += guard.stripe.bytes.cast_signed() - before;
                }
                Ok(())
            }
            Mutation::Version { db, key, given } => {
                let keyspace = self.keyspace;
                let stripe = self.stripe_mut(key.hash);
                let hash_of = |name: &[u8]| keyspace.hash(name);
                self.grown_bytes += stripe.set_version(*db, *key, *given, &hash_of);
                Ok(())
            }
            Mutation::Floor { db, version } => {
                assert!(self.is_all(), "a floor is of every stripe");
                self.keyspace.set_floor(*db, *version);
                Ok(())
            }
            Mutation::Origin { .. } => Ok(()),
            Mutation::Swap { dbs } => {
                assert!(self.is_all(), "a database is in every stripe");
                for guard in self.guards.iter_mut() {
                    let removed = guard.stripe.swap(*dbs, self.params.expiry_now());
                    self.keyspace.readers_left(removed);
                }
                Ok(())
            }
        }
    }

    /// Makes the change of a [`Mutation::Key`] whose `Put` carries the collection of another key,
    /// which the next mutation deletes: moves the collection instead of building it again. False:
    /// that key has no collection, and nothing has changed.
    pub fn move_collection(
        &mut self,
        (from_db, from): (u8, Key<'_>),
        (db, key): (u8, Key<'_>),
        expiry: Option<UnixMs>,
    ) -> bool {
        let position = self.position(from.hash);
        let stripe = &mut *self.guards[position].stripe;
        let before = stripe.bytes.cast_signed();
        let Some(object) = stripe.take_object(from_db, from) else { return false };
        self.grown_bytes += stripe.bytes.cast_signed() - before;
        let position = self.position(key.hash);
        let stripe = &mut *self.guards[position].stripe;
        let before = stripe.bytes.cast_signed();
        let keyspace = self.keyspace;
        let mut cx = Applying {
            params: self.params,
            hash_of: &|bytes| keyspace.hash(bytes),
            trash: &mut self.trash,
        };
        stripe.put_object(db, key, object, expiry, &mut cx);
        self.grown_bytes += stripe.bytes.cast_signed() - before;
        true
    }

    fn change_partition(
        &mut self,
        key: PartitionKey<'_>,
        touch: Touch<'_>,
        change: impl FnOnce(&mut Partition),
    ) {
        let keyspace = self.keyspace;
        let registry = &keyspace.indexes;
        let stripe = self.stripe_mut(key.hash());
        let before = stripe.bytes.cast_signed();
        stripe.change_partition(key, registry, touch, change);
        let grown_bytes = stripe.bytes.cast_signed() - before;
        self.grown_bytes += grown_bytes;
    }

    /// A partition, if anything of it is stored.
    #[inline]
    pub fn partition(&self, key: PartitionKey<'_>) -> Option<&Partition> {
        self.stripe(key.hash()).tables.get(key)
    }

    /// The partitions of a table in the first locked stripe from a place on, in token order: token,
    /// key, partition. See [`Keyspace::lock_stripe`] and [`crate::stripe_of_token`].
    pub fn partitions<'s>(
        &'s self,
        table: TableId,
        from: Bound<(i64, &[u8])>,
    ) -> impl Iterator<Item = (i64, &'s [u8], &'s Partition)> + use<'s, 'a> {
        let found = self.guards.first().map(|guard| guard.stripe.tables.range(table, from));
        found.into_iter().flatten()
    }

    /// Whether the locked stripes have no partition of any table.
    pub fn has_no_tables(&self) -> bool {
        self.guards.iter().all(|guard| guard.stripe.tables.is_empty())
    }

    /// The entries of an index of a table for a term in the first locked stripe, from `start` on,
    /// in the order of a scan. `None`: the stripe does not have this index yet, and must be
    /// scanned.
    pub fn find<'s>(
        &'s self,
        table: TableId,
        index: IndexId,
        term: &[u8],
        start: Start<'_>,
    ) -> Option<impl Iterator<Item = Posting> + use<'s, 'a>> {
        self.guards.first()?.stripe.tables.look_up(table, index, term, start)
    }

    /// Token and key of those partitions of a table in the first locked stripe in which a
    /// [`Mutation::Purge`] of these times would remove something.
    pub fn garbage<'s>(
        &'s self,
        table: TableId,
        now: Seconds,
        gc_before: Seconds,
    ) -> impl Iterator<Item = (i64, &'s [u8])> + use<'s, 'a> {
        let stripe = self.guards.first().map(|guard| &guard.stripe.tables);
        let found = stripe.map(|tables| tables.with_garbage(table, now, gc_before));
        found.into_iter().flatten()
    }

    /// Partitions of a table in the locked stripes, and their heap bytes.
    pub fn table_stats(&self, table: TableId) -> (usize, usize) {
        let stats = self.guards.iter().map(|guard| guard.stripe.tables.stats(table));
        stats.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Records that the log holds a write of this key up to `lsn`; the log is known to be durable
    /// up to `durable`. Returns whether [`Locked::take_changed`] is to be called.
    #[inline]
    pub fn note_write(&mut self, db: u8, hash: u64, lsn: u64, durable: u64) -> bool {
        let stripe = self.stripe_mut(hash);
        stripe.pending.note(db, hash, lsn, durable);
        stripe.watches.has_changed()
    }

    pub fn note_flush(&mut self, lsn: u64) {
        self.guards.iter_mut().for_each(|guard| guard.stripe.pending.note_all(lsn));
    }

    /// The log position that must be durable before this key's value may be shown.
    #[inline]
    pub fn gate(&self, db: u8, hash: u64) -> u64 {
        self.stripe(hash).pending.gate(db, hash)
    }

    /// The same for everything that is locked.
    pub fn gate_all(&self) -> u64 {
        self.guards.iter().map(|guard| guard.stripe.pending.gate_all()).max().unwrap_or(0)
    }

    /// Raises `flag` when a key changes that it does not watch yet, until [`Locked::unwatch`].
    pub fn watch(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        let is_overdue = self.is_overdue(db, key);
        self.stripe_mut(key.hash).watches.add(db, key, flag, is_overdue);
    }

    pub fn unwatch(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.stripe_mut(key.hash).watches.remove(db, key, flag);
    }

    /// Adds the ticket of a client that is blocked on a key, until [`Keyspace::stop_waiting`].
    /// Tickets of one key are added in the order of their numbers.
    pub fn wait_for(&mut self, db: u8, key: Key<'_>, ticket: Ticket) {
        let grown = self.stripe_mut(key.hash).watches.add_ticket(db, key, ticket);
        self.keyspace.note_awaited(grown);
    }

    /// Tickets of the clients that are blocked on a key, in order.
    pub fn tickets(&self, db: u8, key: Key<'_>) -> impl Iterator<Item = Ticket> + use<'_> {
        self.stripe(key.hash).watches.tickets(db, key)
    }

    /// Number of the first ticket from `first` on that the present value of the key can serve.
    pub fn next_ticket(&self, db: u8, key: Key<'_>, first: u64) -> Option<u64> {
        let found =
            self.live(db, key).map(|(stripe, entry)| stripe.value(entry, self.params.expiry_now()));
        let kind = found.and_then(|value| value.collection_kind());
        self.stripe(key.hash).watches.next_ticket(db, key, first, kind)
    }

    /// Moves the changed keys of the locked stripes that concern clients.
    pub fn take_changed(&mut self, changed: &mut ChangedKeys) {
        for guard in self.guards.iter_mut().filter(|guard| guard.stripe.watches.has_changed()) {
            let removed = guard.stripe.watches.take_changed(changed);
            self.keyspace.readers_left(removed);
        }
    }

    /// Adds a client that caches a key, until the key changes.
    pub fn add_reader(&mut self, db: u8, key: Key<'_>, reader: Reader) {
        let grown = self.stripe_mut(key.hash).watches.add_reader(db, key, reader);
        self.keyspace.readers_came(grown);
    }

    /// Seconds since the last use and LFU counter of a key.
    pub fn access(&self, db: u8, key: Key<'_>) -> Option<(u64, u32)> {
        let (_, entry) = self.live(db, key)?;
        let clock = &self.params.access;
        Some((clock.idle_seconds(entry.access()), clock.frequency(entry.access())))
    }

    /// Gives a key the idle time or the counter that it had in another server, whichever the
    /// eviction policy uses.
    pub fn set_access(&self, db: u8, key: Key<'_>, idle_seconds: Option<u64>, counter: Option<u8>) {
        let moved = self.params.access.moved(idle_seconds, counter);
        if let (Some(access), Some((_, entry))) = (moved, self.live(db, key)) {
            entry.set_access(access);
        }
    }

    /// The encoding of the value, as OBJECT ENCODING reports it.
    pub fn encoding(&self, db: u8, key: Key<'_>) -> Option<Encoding> {
        let (stripe, entry) = self.live(db, key)?;
        Some(match stripe.value(entry, self.params.expiry_now()) {
            Value::String(_) if entry.is_edited() => Encoding::Raw,
            Value::String(text) => match Encoding::of_string(&text) {
                Encoding::Int if entry.is_text() => Encoding::Embstr,
                encoding => encoding,
            },
            Value::Hash(hash) => hash.encoding(),
            Value::List(list) => list.encoding(&self.params.compact),
            Value::Set(set) => set.encoding(),
            Value::ZSet(zset) => zset.encoding(),
            Value::Stream(stream) => stream.encoding(),
            Value::Series(series) => series.encoding(),
        })
    }

    /// Records that a number was written as text (INCRBYFLOAT). This does not change the data, so
    /// it is not logged and is lost in a restart, as in Redis.
    pub fn mark_text(&mut self, db: u8, key: Key<'_>) {
        let stripe = self.stripe_mut(key.hash);
        if let Some(place) = stripe.place(db, key) {
            stripe.dbs[db].table.update(place, Entry::mark_text);
        }
    }

    /// Records that a consumer of a stream tried to read. As in Redis, this is not logged, so a
    /// restart loses it unless a later change or a snapshot has recorded it.
    pub fn note_seen(&mut self, db: u8, key: Key<'_>, consumer: (&[u8], &[u8]), seen_ms: u64) {
        self.stripe_mut(key.hash).note_seen(db, key, consumer, seen_ms);
    }

    /// Heap bytes of a key and its value.
    pub fn memory_bytes(&self, db: u8, key: Key<'_>) -> Option<usize> {
        let (stripe, entry) = self.live(db, key)?;
        let object = stripe.object_of(entry).map_or(0, Object::heap_bytes);
        Some(entry.allocation_bytes() + object)
    }

    /// Appends the bytes of a collection as in [`crate::Change::Put`]; `None` for a string or a
    /// missing key.
    pub fn encode_collection(&self, db: u8, key: Key<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let (stripe, entry) = self.live(db, key)?;
        let value = stripe.value(entry, self.params.expiry_now());
        value.encode(out);
        value.collection_kind()
    }

    /// Like [`Keyspace::stats`], for a caller that already holds every stripe (EXEC).
    pub fn stats(&self) -> ([DbStats; DATABASES], usize) {
        assert!(self.is_all(), "stats of all keys need every stripe");
        let mut sums = StatsSums::default();
        self.guards.iter().for_each(|guard| guard.stripe.add_stats(&mut sums));
        sums.finish(self.params.now())
    }

    /// The version of a key's present value, or of its deletion.
    pub fn version(&self, db: u8, key: Key<'_>) -> Version {
        self.given(db, key).version
    }

    /// The same, with what its writer had seen.
    pub fn given(&self, db: u8, key: Key<'_>) -> Given {
        self.stripe(key.hash).given(db, key)
    }

    /// Appends the present state of a key: `Set`, `Put` or `Delete`, whether it has expired or not.
    pub fn encode_state(&self, db: u8, key: Key<'_>, out: &mut Vec<u8>) {
        let stripe = self.stripe(key.hash);
        let mut encoded = Vec::new();
        let change = match stripe.place(db, key) {
            None => Change::Delete,
            Some(place) => {
                let entry = stripe.entry(db, place);
                stripe.value(entry, UnixMs(0)).to_change(entry.expiry(), &mut encoded)
            }
        };
        Mutation::Key { db, key, change }.encode(out);
    }

    /// Whether the key is stored, expired or not.
    pub fn is_stored(&self, db: u8, key: Key<'_>) -> bool {
        self.stripe(key.hash).place(db, key).is_some()
    }

    /// Names of up to `count` keys of a database in the first locked stripe that have a lesser
    /// version than this.
    pub fn older_keys(&self, db: u8, version: Version, count: usize) -> Vec<Vec<u8>> {
        let stripe = &self.guards[0].stripe;
        let names = stripe.dbs[db].table.iter().map(EntryRef::key);
        let older = names.filter(|name| stripe.given(db, self.key(name)).version < version);
        older.take(count).map(<[u8]>::to_vec).collect()
    }

    /// Database and name of up to `count` keys of the first locked stripe that do not exist and
    /// whose versions are of before `time`.
    pub fn old_deletions(&self, time: u64, count: usize) -> Vec<(u8, Vec<u8>)> {
        let stripe = &self.guards[0].stripe;
        let versions = stripe.versions.iter().flat_map(|versions| versions.iter());
        let old = versions.filter(|(db, name, given)| {
            given.version.time < time && stripe.place(*db, self.key(name)).is_none()
        });
        old.take(count).map(|(db, name, _)| (db, name.to_vec())).collect()
    }

    /// Rebuilds all data from its snapshot form, as a restart would. The data stays the same, so
    /// nothing is logged, but its forms are those of fresh data. Needs every stripe and, for a
    /// moment, the memory of one stripe twice. O(N).
    pub fn reload(&mut self) -> Result<(), StoreError> {
        assert!(self.is_all(), "a reload needs every stripe");
        let Locked { keyspace, params, guards, grown_bytes, trash, .. } = self;
        for guard in guards.iter_mut() {
            let before = guard.stripe.bytes.cast_signed();
            guard.stripe.reload(params, &|bytes| keyspace.hash(bytes), trash)?;
            *grown_bytes += guard.stripe.bytes.cast_signed() - before;
        }
        Ok(())
    }

    /// Keys of a database in the locked stripes, including expired ones that are not yet removed.
    pub fn len(&self, db: u8) -> usize {
        self.guards.iter().map(|guard| guard.stripe.dbs[db].table.len()).sum()
    }

    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// Calls `visit` with every live key of the locked stripes: database, name, value, expiry.
    pub fn for_each_value(&self, mut visit: impl FnMut(u8, &[u8], Value<'_>, Option<UnixMs>)) {
        let now = self.params.expiry_now();
        for guard in self.guards.iter() {
            for (db, contents) in guard.stripe.dbs.iter() {
                for entry in contents.table.iter() {
                    if !guard.stripe.is_overdue(entry, now) {
                        let value = guard.stripe.value(entry, now);
                        visit(db, entry.key(), value, entry.expiry());
                    }
                }
            }
        }
    }

    /// Calls `visit` with every live key of a database in the locked stripes.
    pub fn for_each_key(&self, db: u8, mut visit: impl FnMut(&[u8])) {
        let now = self.params.expiry_now();
        for guard in self.guards.iter() {
            let stripe = &guard.stripe;
            let live = stripe.dbs[db].table.iter().filter(|entry| !stripe.is_overdue(*entry, now));
            live.for_each(|entry| visit(entry.key()));
        }
    }

    /// A key chosen at random among the locked stripes; `None` when there is none.
    pub fn random_key(&self, db: u8, mut random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        let count = self.guards.len() as u64;
        let start = usize::try_from(random() % count).expect("below a length");
        let (before, after) = self.guards.split_at(start);
        let now = self.params.expiry_now();
        after.iter().chain(before).find_map(|guard| {
            let table = &guard.stripe.dbs[db].table;
            let mut sample = table.sample(random());
            let live = sample.find(|entry| !guard.stripe.is_overdue(*entry, now));
            live.map(|entry| entry.key().to_vec())
        })
    }

    /// Like [`Keyspace::scan`], for a caller that already holds every stripe (EXEC).
    pub fn scan(
        &self,
        db: u8,
        cursor: ScanCursor,
        count: usize,
        mut visit: impl FnMut(Seen<'_>),
    ) -> ScanCursor {
        assert!(self.is_all(), "a scan of all keys needs every stripe");
        let (mut stripe, mut place) = cursor.split();
        let mut seen = 0;
        while stripe < STRIPES && seen < count {
            place = self.scan_guard(stripe, db, place, |key| {
                seen += 1;
                visit(key);
            });
            if place == 0 {
                stripe += 1;
            }
        }
        ScanCursor::join(stripe, place)
    }

    /// One step of a scan in the first locked stripe: see [`Keyspace::scan`].
    pub(crate) fn scan_step(&self, db: u8, place: u32, visit: impl FnMut(Seen<'_>)) -> u32 {
        self.scan_guard(0, db, place, visit)
    }

    fn scan_guard(
        &self,
        position: usize,
        db: u8,
        place: u32,
        mut visit: impl FnMut(Seen<'_>),
    ) -> u32 {
        let stripe = &self.guards[position].stripe;
        let now = self.params.expiry_now();
        let hash = |key: &[u8]| self.keyspace.hash(key);
        stripe.dbs[db].table.scan(place, hash, |entry| {
            let key = entry.key();
            let is_overdue = stripe.is_overdue(entry, now);
            visit(if is_overdue { Seen::Overdue(key) } else { Seen::Live(key) });
        })
    }

    /// The database and name of a key in the first locked stripe that has expired, or of which
    /// fields or points have. The caller deletes it, or [some fields](Locked::due_fields), or purges
    /// points, before the next call.
    pub fn next_expired(&mut self) -> Option<(u8, Vec<u8>, Due)> {
        let now = self.params.expiry_now();
        self.guards[0].stripe.next_expired(now)
    }
}
