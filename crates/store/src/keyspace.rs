//! All stripes, and how a set of them is locked without ever waiting in a circle.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use base::stages::CycleClock;
use base::time::UnixMs;
use foldhash::quality::FixedState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use thiserror::Error;

use crate::access::AccessClock;
use crate::blob::prefetch;
use crate::indexes::{Definitions, Registry};
use crate::locked::{Guard, Guards, Locked, Seen};
use crate::mutation::{Key, Mutation};
use crate::partitions::{Reach, TableId, stripe_of_token};
use crate::stripe::{PARTITION_LINES, STRIPE_LINES, StatsSums, Stripe, stripe_of};
use crate::types::Compact;
use crate::watch::WatchFlag;
use crate::{DATABASES, STRIPES, Trash};

/// Why a change was not made. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    #[error("a change that does not fit the data it is applied to")]
    Malformed,
}

/// What a reactor gives to every access of the data: the time and the thresholds.
#[derive(Debug, Clone)]
pub struct Params {
    now: Cell<UnixMs>,
    pub access: AccessClock,
    pub compact: Compact,
}

impl Params {
    pub fn new(now: UnixMs, access: AccessClock, compact: Compact) -> Params {
        Params { now: Cell::new(now), access, compact }
    }

    #[inline]
    pub fn now(&self) -> UnixMs {
        self.now.get()
    }

    /// Moves the time on between two commands of a long turn. What is locked sees the new time.
    pub fn set_now(&self, now: UnixMs) {
        self.now.set(now);
    }
}

/// What one database holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DbStats {
    pub keys: u64,
    pub expires: u64,
    /// Mean time to live of the keys that expire, in milliseconds.
    pub ttl_ms_mean: u64,
    /// Bytes of its hash tables, beside entries and collections.
    pub table_bytes: u64,
    /// Bytes of its places in the queues of expiries.
    pub expiry_bytes: u64,
}

/// Where a SCAN goes on: stripe in the upper half, place inside the stripe in the lower. 0 is the
/// start, and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanCursor(pub u64);

impl ScanCursor {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is masked")]
    pub(crate) fn split(self) -> (usize, u32) {
        (usize::try_from(self.0 >> 32).unwrap_or(usize::MAX), (self.0 & u64::from(u32::MAX)) as u32)
    }

    pub(crate) fn join(stripe: usize, place: u32) -> ScanCursor {
        if stripe >= STRIPES {
            return ScanCursor(0);
        }
        ScanCursor((stripe as u64) << 32 | u64::from(place))
    }
}

/// One cache line apart, so that two reactors in neighbouring stripes do not share one.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Slot(Mutex<Stripe>);

/// How often a stripe was found locked, and how long was waited in all; a wait that goes on is
/// counted, its time not yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockWaits {
    pub count: u64,
    pub ns: u64,
}

/// Written only by who has waited; away from what every request reads.
#[repr(align(128))]
#[derive(Debug, Default)]
struct LockWaitCounters {
    count: AtomicU64,
    ns: AtomicU64,
}

/// The shared data. All methods take `&self`: any reactor may call them at any time.
#[derive(Debug)]
pub struct Keyspace {
    slots: Box<[Slot]>,
    hasher: FixedState,
    seed: u64,
    /// Read only by who has to wait for a stripe, to count how long; nothing else depends on it.
    cycles: CycleClock,
    waits: LockWaitCounters,
    pub(crate) indexes: Registry,
}

impl Keyspace {
    /// `seed` makes the hashes of this process unpredictable to its clients. A snapshot carries it,
    /// since what it says of a stripe holds for these hashes only.
    pub fn new(seed: u64) -> Keyspace {
        let slots = (0..STRIPES).map(|_| Slot::default()).collect();
        Keyspace {
            slots,
            hasher: FixedState::with_seed(seed),
            seed,
            cycles: CycleClock::new(),
            waits: LockWaitCounters::default(),
            indexes: Registry::default(),
        }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The stripe of a key: a scan is there when it meets it.
    pub fn stripe_of_key(&self, key: &[u8]) -> usize {
        stripe_of(self.hash(key))
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash(bytes) }
    }

    /// First pass over a batch: ask for the stripe's own cache lines.
    #[inline]
    pub fn prefetch_stripe(&self, hash: u64) {
        let slot = (&raw const self.slots[stripe_of(hash)]).cast::<u8>();
        (0..STRIPE_LINES).for_each(|line| prefetch(slot.wrapping_add(64 * line)));
    }

    /// Second pass: ask for the bucket. Skipped when somebody holds the stripe.
    #[inline]
    pub fn prefetch_bucket(&self, db: u8, hash: u64) {
        if let Some(stripe) = self.slots[stripe_of(hash)].0.try_lock() {
            stripe.dbs[db].table.prefetch_bucket(hash);
        }
    }

    /// Third pass: ask for the entry.
    #[inline]
    pub fn prefetch_entry(&self, db: u8, hash: u64) {
        if let Some(stripe) = self.slots[stripe_of(hash)].0.try_lock() {
            stripe.dbs[db].table.prefetch_entry(hash);
        }
    }

    /// The passes over requests for partitions: asks for the memory on the way to one, as far as it can be
    /// known when the step before has brought its part. Skipped when somebody holds the stripe.
    #[inline]
    pub fn prefetch_partition(&self, table: TableId, token: i64, reach: Reach) {
        let slot = &self.slots[stripe_of_token(token)];
        if reach == Reach::Stripe {
            let slot = (&raw const *slot).cast::<u8>();
            return (0..PARTITION_LINES).for_each(|line| prefetch(slot.wrapping_add(64 * line)));
        }
        if let Some(stripe) = slot.0.try_lock() {
            stripe.tables.prefetch(table, token, reach);
        }
    }

    fn guard(&self, stripe: usize) -> Guard<'_> {
        let index = u16::try_from(stripe).expect("STRIPES fits u16");
        Guard { index, stripe: self.stripe(stripe) }
    }

    /// Locks the stripe of one key.
    #[inline]
    pub fn lock_one<'a>(&'a self, hash: u64, params: &'a Params) -> Locked<'a> {
        Locked::new(self, params, Guards::One(self.guard(stripe_of(hash))))
    }

    /// Locks the stripes of these keys, in the order of their numbers, each once.
    pub fn lock<'a>(&'a self, hashes: impl Iterator<Item = u64>, params: &'a Params) -> Locked<'a> {
        let mut stripes: SmallVec<[usize; 8]> = hashes.map(stripe_of).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut guards = stripes.into_iter().map(|stripe| self.guard(stripe));
        let guards = match guards.len() {
            0 => Guards::None,
            1 => guards.next().map_or(Guards::None, Guards::One),
            _ => Guards::Several(guards.collect()),
        };
        Locked::new(self, params, guards)
    }

    /// Locks everything. Costs 4,096 locks of 10 ns: for commands that are about all keys.
    pub fn lock_all<'a>(&'a self, params: &'a Params) -> Locked<'a> {
        let guards = (0..STRIPES).map(|stripe| self.guard(stripe)).collect();
        Locked::new(self, params, Guards::Several(guards))
    }

    pub fn lock_stripe<'a>(&'a self, stripe: usize, params: &'a Params) -> Locked<'a> {
        Locked::new(self, params, Guards::One(self.guard(stripe)))
    }

    /// Is some key of this stripe due to expire? False when the stripe is locked right now.
    pub fn has_due(&self, stripe: usize, now: UnixMs) -> bool {
        self.slots[stripe].0.try_lock().is_some_and(|stripe| stripe.has_due(now))
    }

    #[inline]
    pub(crate) fn stripe(&self, index: usize) -> MutexGuard<'_, Stripe> {
        let slot = &self.slots[index].0;
        slot.try_lock().unwrap_or_else(|| self.wait_for(slot))
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
        (0..STRIPES).map(|index| self.stripe(index).watches.len()).sum()
    }

    /// [`Locked::unwatch`] for a caller that holds no stripe.
    pub fn unwatch(&self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.stripe(stripe_of(key.hash)).watches.remove(db, key, flag);
    }

    /// Waits for stripes since the start. An uncontended lock costs nothing to count.
    pub fn lock_waits(&self) -> LockWaits {
        LockWaits {
            count: self.waits.count.load(Ordering::Relaxed),
            ns: self.waits.ns.load(Ordering::Relaxed),
        }
    }

    /// Says which indexes tables are to have from now on. Each stripe gets and loses them when
    /// [`Keyspace::settle_indexes`] comes by.
    pub fn set_indexes(&self, tables: BTreeMap<TableId, Definitions>) {
        self.indexes.set(tables);
    }

    /// Another number each time that tables are to have other indexes: all stripes are to be settled.
    pub fn index_generation(&self) -> u64 {
        self.indexes.generation()
    }

    /// Gives the tables of a stripe the indexes that they are to have, and takes the others. Holds its
    /// lock for as long as a walk over its partitions. Returns what is to be dropped, and by how many
    /// bytes the data grew.
    pub fn settle_indexes(&self, stripe: usize) -> (Trash, isize) {
        let mut trash = Trash::default();
        let mut locked = self.stripe(stripe);
        let before = locked.bytes.cast_signed();
        locked.settle(&self.indexes, &mut trash);
        let grown_bytes = locked.bytes.cast_signed() - before;
        drop(locked);
        (trash, grown_bytes)
    }

    /// What each database holds, and the bytes of all. Locks one stripe after the other: the caller
    /// must hold none.
    pub fn stats(&self, now: UnixMs) -> ([DbStats; DATABASES], usize) {
        let mut sums = StatsSums::default();
        (0..STRIPES).for_each(|index| self.stripe(index).add_stats(&mut sums));
        sums.finish(now)
    }

    /// Replays one logged mutation. `skip(stripe)` says that a snapshot of that stripe already
    /// holds it. Returns whether it fitted the data.
    pub fn replay(
        &self,
        mutation: &Mutation<'_>,
        params: &Params,
        skip: impl Fn(usize) -> bool,
    ) -> Result<(), StoreError> {
        match mutation {
            Mutation::Key { key, .. } if skip(stripe_of(key.hash)) => Ok(()),
            Mutation::Key { key, .. } => self.lock_one(key.hash, params).apply_mutation(mutation),
            Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => {
                if skip(stripe_of(key.hash())) {
                    return Ok(());
                }
                self.lock_one(key.hash(), params).apply_mutation(mutation)
            }
            Mutation::Truncate { table } => {
                for index in (0..STRIPES).filter(|index| !skip(*index)) {
                    self.stripe(index).truncate(*table, &mut Trash::default());
                }
                Ok(())
            }
            Mutation::Flush { db } => {
                for index in (0..STRIPES).filter(|index| !skip(*index)) {
                    self.stripe(index).flush(*db, &mut Trash::default());
                }
                Ok(())
            }
        }
    }

    /// Visits keys of a database until about `count` were seen, one stripe lock at a time; expired ones
    /// count. Every key that is present from the first to the last call of a scan is visited.
    ///
    /// Returns where to go on, and the log position of what was seen (0: durable or empty).
    pub fn scan(
        &self,
        db: u8,
        cursor: ScanCursor,
        count: usize,
        params: &Params,
        mut visit: impl FnMut(&Locked<'_>, Seen<'_>),
    ) -> (ScanCursor, u64) {
        let (mut stripe, mut place) = cursor.split();
        let (mut seen, mut gate) = (0, 0);
        while stripe < STRIPES {
            let locked = self.lock_stripe(stripe, params);
            gate = gate.max(locked.gate_all());
            loop {
                place = locked.scan_step(db, place, |key| {
                    seen += 1;
                    visit(&locked, key);
                });
                if place == 0 || seen >= count {
                    break;
                }
            }
            if place == 0 {
                stripe += 1;
            }
            if seen >= count {
                break;
            }
        }
        (ScanCursor::join(stripe, place), gate)
    }
}
