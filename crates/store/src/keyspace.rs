//! All stripes, and the order of locking that excludes deadlocks.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::stages::CycleClock;
use base::time::UnixMs;
use foldhash::quality::FixedState;
use parking_lot::{Mutex, MutexGuard};

use crate::indexes::{Definitions, Registry};
use crate::key::Key;
use crate::key::{PartitionKey, TableId, stripe_of};
use crate::params::DbStats;
use crate::stripe::{StatsSums, Stripe};
use crate::versions::Version;
use crate::watch::{AwaitedKeys, Readers, WatchFlag};
use crate::{DATABASES, DeferredFree, STRIPES};

/// One cache line apart, so that two reactors in neighbouring stripes do not share one.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Slot(pub(crate) Mutex<Stripe>);

/// Time of one wait for a stripe, after which the thread may give up.
const LOCK_WAIT: Duration = Duration::from_micros(500);

/// How often a thread found a stripe locked, and the total time of these waits. A wait in progress
/// is counted, but its time is not yet included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockWaits {
    pub count: u64,
    pub ns: u64,
}

/// Written only by threads that have waited; separate from what every request reads.
#[repr(align(128))]
#[derive(Debug, Default)]
struct LockWaitCounters {
    count: AtomicU64,
    ns: AtomicU64,
}

/// The shared data. All methods take `&self`: any reactor may call them at any time.
#[derive(Debug)]
pub struct Keyspace {
    pub(crate) slots: Box<[Slot]>,
    hasher: FixedState,
    seed: u64,
    /// Read only by a thread that has to wait for a stripe, to measure the wait; nothing else
    /// depends on it.
    cycles: CycleClock,
    waits: LockWaitCounters,
    /// See [`Keyspace::awaited_keys`].
    awaited: AtomicUsize,
    awaited_endings: AtomicUsize,
    /// See [`Keyspace::readers`].
    readers: AtomicUsize,
    read_keys: AtomicUsize,
    pub(crate) indexes: Registry,
    /// Of each database: the version at which it was emptied. Changes while all stripes are locked.
    floors: Mutex<[Version; DATABASES]>,
}

impl Keyspace {
    /// `seed` makes the hashes of this process unpredictable to its clients. A snapshot contains
    /// it, because its assignment of keys to stripes holds for these hashes only.
    pub fn new(seed: u64) -> Keyspace {
        let slots = (0..STRIPES).map(|_| Slot::default()).collect();
        Keyspace {
            slots,
            hasher: FixedState::with_seed(seed),
            seed,
            cycles: CycleClock::new(),
            waits: LockWaitCounters::default(),
            awaited: AtomicUsize::new(0),
            awaited_endings: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            read_keys: AtomicUsize::new(0),
            indexes: Registry::default(),
            floors: Mutex::default(),
        }
    }

    /// The version at which a database was emptied: lesser ones are not stored any more.
    pub fn floor(&self, db: u8) -> Version {
        self.floors.lock()[usize::from(db)]
    }

    /// Raises the floor of a database, or removes it.
    pub(crate) fn set_floor(&self, db: u8, version: Version) {
        let floor = &mut self.floors.lock()[usize::from(db)];
        *floor = if version == Version::NONE { version } else { version.max(*floor) };
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The stripe of a key: a scan that reaches this stripe visits the key.
    pub fn stripe_of_key(&self, key: &[u8]) -> usize {
        stripe_of(self.hash(key))
    }

    /// The tables that have partitions. Visits every partition, and locks one stripe after the
    /// other: the caller must hold none.
    pub fn tables(&self) -> BTreeSet<TableId> {
        let of_stripe = |index| -> BTreeSet<TableId> {
            self.stripe(index).tables.iter().map(|(key, _)| key.table).collect()
        };
        (0..STRIPES).flat_map(of_stripe).collect()
    }

    /// The stripe of a partition, the same in every keyspace.
    pub fn stripe_of_partition(key: PartitionKey<'_>) -> usize {
        stripe_of(key.hash())
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash(bytes) }
    }

    /// Whether a key of this stripe has expired. False if the stripe is currently locked.
    pub fn has_due(&self, stripe: usize, now: UnixMs) -> bool {
        self.slots[stripe].0.try_lock().is_some_and(|stripe| stripe.has_due(now))
    }

    #[inline]
    pub(crate) fn stripe(&self, index: usize) -> MutexGuard<'_, Stripe> {
        let slot = &self.slots[index].0;
        slot.try_lock().unwrap_or_else(|| self.wait_for(slot))
    }

    /// Locks a stripe unless another thread holds it.
    #[inline]
    pub(crate) fn try_stripe(&self, index: usize) -> Option<MutexGuard<'_, Stripe>> {
        self.slots[index].0.try_lock()
    }

    /// Waits for a stripe until `give_up` is true. It is called with the nanoseconds of each wait,
    /// of about [`LOCK_WAIT`] or until the stripe is free, and before the first one with 0.
    #[cold]
    pub(crate) fn wait_unless(
        &self,
        index: usize,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<MutexGuard<'_, Stripe>> {
        self.waits.count.fetch_add(1, Ordering::Relaxed);
        let started = self.cycles.now();
        let mut last = started;
        let mut gives_up = give_up(0);
        let mut guard = None;
        while guard.is_none() && !gives_up {
            guard = self.slots[index].0.try_lock_for(LOCK_WAIT);
            let now = self.cycles.now();
            gives_up = give_up(self.cycles.delta_ns(last, now).max(1));
            last = now;
        }
        let waited_ns = self.cycles.delta_ns(started, last);
        self.waits.ns.fetch_add(waited_ns, Ordering::Relaxed);
        guard
    }

    #[cold]
    fn wait_for<'a>(&self, slot: &'a Mutex<Stripe>) -> MutexGuard<'a, Stripe> {
        self.waits.count.fetch_add(1, Ordering::Relaxed);
        let started = self.cycles.now();
        let guard = slot.lock();
        let waited_ns = self.cycles.delta_ns(started, self.cycles.now());
        self.waits.ns.fetch_add(waited_ns, Ordering::Relaxed);
        guard
    }

    /// Keys that transactions watch, each counted once per database. Locks one stripe after the other.
    pub fn watched_keys(&self) -> usize {
        (0..STRIPES).map(|index| self.stripe(index).watches.watched()).sum()
    }

    /// Keys that clients are blocked on, each counted once per database.
    pub fn awaited_keys(&self) -> AwaitedKeys {
        AwaitedKeys {
            all: self.awaited.load(Ordering::Relaxed),
            ending: self.awaited_endings.load(Ordering::Relaxed),
        }
    }

    /// Readers of all keys, and keys with readers.
    pub fn readers(&self) -> Readers {
        Readers {
            all: self.readers.load(Ordering::Relaxed),
            keys: self.read_keys.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn readers_came(&self, grown: Readers) {
        self.readers.fetch_add(grown.all, Ordering::Relaxed);
        self.read_keys.fetch_add(grown.keys, Ordering::Relaxed);
    }

    pub(crate) fn readers_left(&self, removed: Readers) {
        self.readers.fetch_sub(removed.all, Ordering::Relaxed);
        self.read_keys.fetch_sub(removed.keys, Ordering::Relaxed);
    }

    pub(crate) fn note_awaited(&self, grown: AwaitedKeys) {
        self.awaited.fetch_add(grown.all, Ordering::Relaxed);
        self.awaited_endings.fetch_add(grown.ending, Ordering::Relaxed);
    }

    /// [`Locked::unwatch`] for a caller that holds no stripe. False, without an effect, if another
    /// thread holds the key's.
    #[must_use]
    pub fn try_unwatch(&self, db: u8, key: Key<'_>, flag: &WatchFlag) -> bool {
        let Some(mut stripe) = self.try_stripe(stripe_of(key.hash)) else { return false };
        stripe.watches.remove(db, key, flag);
        true
    }

    /// Removes the ticket of a client that was blocked on a key. False, without an effect, if
    /// another thread holds the key's stripe.
    #[must_use]
    pub fn try_stop_waiting(&self, db: u8, key: Key<'_>, ticket: u64) -> bool {
        let Some(mut stripe) = self.try_stripe(stripe_of(key.hash)) else { return false };
        let shrunk = stripe.watches.remove_ticket(db, key, ticket);
        self.awaited.fetch_sub(shrunk.all, Ordering::Relaxed);
        self.awaited_endings.fetch_sub(shrunk.ending, Ordering::Relaxed);
        true
    }

    /// Waits for stripes since the start. An uncontended lock adds no cost.
    pub fn lock_waits(&self) -> LockWaits {
        LockWaits {
            count: self.waits.count.load(Ordering::Relaxed),
            ns: self.waits.ns.load(Ordering::Relaxed),
        }
    }

    /// Sets the indexes that tables must have from now on. [`Keyspace::settle_indexes`] adds and
    /// removes them in each stripe.
    pub fn set_indexes(&self, tables: BTreeMap<TableId, Definitions>) {
        self.indexes.set(tables);
    }

    /// A number that changes whenever the definitions of indexes change: then all stripes must be
    /// settled.
    pub fn index_generation(&self) -> u64 {
        self.indexes.generation()
    }

    /// Adds and removes indexes of the tables in a stripe, as defined by [`Keyspace::set_indexes`].
    /// Holds the lock of the stripe during a scan of its partitions. Returns what is to be dropped,
    /// and the number of bytes by which the data grew; `None` if another thread holds the stripe.
    pub fn settle_indexes(&self, stripe: usize) -> Option<(DeferredFree, isize)> {
        let mut trash = DeferredFree::default();
        let mut locked = self.try_stripe(stripe)?;
        let before = locked.bytes.cast_signed();
        locked.settle(&self.indexes, &mut trash);
        let grown_bytes = locked.bytes.cast_signed() - before;
        drop(locked);
        Some((trash, grown_bytes))
    }

    /// Whether a field of a hash expires, and has not expired. Locks one stripe after the other.
    pub fn has_timed_fields(&self, now: UnixMs) -> bool {
        (0..STRIPES).any(|index| self.stripe(index).has_timed_fields(now))
    }

    /// Statistics of each database, and the bytes of all. Locks one stripe after the other: the
    /// caller must hold none.
    pub fn stats(&self, now: UnixMs) -> ([DbStats; DATABASES], usize) {
        self.stats_unless(now, |_| false).expect("it never gives up")
    }

    /// Like [`Keyspace::stats`]. `None` if a stripe is not free when `give_up` becomes true.
    pub fn stats_unless(
        &self,
        now: UnixMs,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<([DbStats; DATABASES], usize)> {
        let mut sums = StatsSums::default();
        for index in 0..STRIPES {
            self.guard_unless(index, &give_up)?.stripe.add_stats(&mut sums);
        }
        Some(sums.finish(now))
    }
}
