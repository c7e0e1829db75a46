//! Locking stripes of the keyspace, replay, and scans.

use smallvec::SmallVec;

use crate::STRIPES;
use crate::deferred_free::DeferredFree;
use crate::error::StoreError;
use crate::key::stripe_of;
use crate::keyspace::Keyspace;
use crate::locked::{Guard, Guards, Locked, Seen, stripe_number};
use crate::mutation::{Mutation, Scope};
use crate::params::{Params, ScanCursor};

impl Keyspace {
    #[inline]
    fn try_guard(&self, stripe: usize) -> Option<Guard<'_>> {
        Some(Guard { index: stripe_number(stripe), stripe: self.try_stripe(stripe)? })
    }

    /// Locks a stripe. `None` if it is not free when `give_up` becomes true.
    #[inline]
    pub(crate) fn guard_unless(
        &self,
        stripe: usize,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Guard<'_>> {
        let locked = match self.try_stripe(stripe) {
            Some(locked) => locked,
            None => self.wait_unless(stripe, give_up)?,
        };
        Some(Guard { index: stripe_number(stripe), stripe: locked })
    }

    /// Locks the stripe of one key.
    #[inline]
    pub fn lock_one<'a>(&'a self, hash: u64, params: &'a Params) -> Locked<'a> {
        self.lock_stripe(stripe_of(hash), params)
    }

    /// Like [`Keyspace::lock_one`]. `None` if the stripe is not free when `give_up` becomes true.
    #[inline]
    pub fn lock_one_unless<'a>(
        &'a self,
        hash: u64,
        params: &'a Params,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Locked<'a>> {
        self.lock_stripe_unless(stripe_of(hash), params, give_up)
    }

    /// Locks the stripes of these keys, each once.
    pub fn lock<'a>(&'a self, hashes: impl Iterator<Item = u64>, params: &'a Params) -> Locked<'a> {
        let locked = self.lock_unless(hashes, params, |_| false);
        locked.expect("it never gives up")
    }

    /// Like [`Keyspace::lock`]. `None` if a stripe is not free when `give_up` becomes true.
    pub fn lock_unless<'a>(
        &'a self,
        hashes: impl Iterator<Item = u64>,
        params: &'a Params,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Locked<'a>> {
        let stripes: SmallVec<[usize; 8]> = hashes.map(stripe_of).collect();
        let guards = self.lock_stripes(stripes, give_up)?;
        Some(Locked::new(self, params, guards))
    }

    /// Locks every stripe. Costs 4,096 locks of 10 ns: for commands that affect all keys.
    pub fn lock_all<'a>(&'a self, params: &'a Params) -> Locked<'a> {
        self.lock_all_unless(params, |_| false).expect("it never gives up")
    }

    /// Like [`Keyspace::lock_all`]. `None` if a stripe is not free when `give_up` becomes true.
    pub fn lock_all_unless<'a>(
        &'a self,
        params: &'a Params,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Locked<'a>> {
        let guards = self.lock_stripes((0..STRIPES).collect(), give_up)?;
        Some(Locked::new(self, params, guards))
    }

    /// Locks stripes, each once. A thread that waits for a stripe holds no other, so no thread
    /// that holds one waits for this thread: a script may need more stripes while it runs.
    pub(crate) fn lock_stripes(
        &self,
        mut stripes: SmallVec<[usize; 8]>,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Guards<'_>> {
        stripes.sort_unstable();
        stripes.dedup();
        match stripes.as_slice() {
            [] => return Some(Guards::None),
            [stripe] => return self.guard_unless(*stripe, give_up).map(Guards::One),
            _ => {}
        }
        let mut waited = None;
        loop {
            match self.try_stripes(&stripes, waited.take()) {
                Ok(guards) => return Some(Guards::Several(guards)),
                Err(taken) => {
                    let stripe = self.wait_unless(taken, &give_up)?;
                    waited = Some(Guard { index: stripe_number(taken), stripe });
                }
            }
        }
    }

    /// Locks several stripes, of which `held` may be one. Otherwise returns the first one that
    /// another thread holds for long, and holds none.
    fn try_stripes<'a>(
        &'a self,
        stripes: &[usize],
        mut held: Option<Guard<'a>>,
    ) -> Result<Vec<Guard<'a>>, usize> {
        /// Attempts to lock a stripe: most are held for less than a microsecond.
        const ATTEMPTS: usize = 200;
        let mut guards = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            let index = stripe_number(*stripe);
            if let Some(guard) = held.take_if(|guard| guard.index == index) {
                guards.push(guard);
                continue;
            }
            let locked = (0..ATTEMPTS).find_map(|_| {
                let locked = self.try_guard(*stripe);
                if locked.is_none() {
                    std::hint::spin_loop();
                }
                locked
            });
            guards.push(locked.ok_or(*stripe)?);
        }
        Ok(guards)
    }

    #[inline]
    pub fn lock_stripe<'a>(&'a self, stripe: usize, params: &'a Params) -> Locked<'a> {
        let guard = Guard { index: stripe_number(stripe), stripe: self.stripe(stripe) };
        Locked::new(self, params, Guards::One(guard))
    }

    /// Like [`Keyspace::lock_stripe`]. `None` if the stripe is not free when `give_up` becomes true.
    #[inline]
    pub fn lock_stripe_unless<'a>(
        &'a self,
        stripe: usize,
        params: &'a Params,
        give_up: impl Fn(u64) -> bool,
    ) -> Option<Locked<'a>> {
        let guard = self.guard_unless(stripe, give_up)?;
        Some(Locked::new(self, params, Guards::One(guard)))
    }

    /// Like [`Keyspace::lock_stripe`]. `None` if another thread holds the stripe, for work that can
    /// be done later.
    pub fn try_lock_stripe<'a>(&'a self, stripe: usize, params: &'a Params) -> Option<Locked<'a>> {
        let guard = self.try_guard(stripe)?;
        Some(Locked::new(self, params, Guards::One(guard)))
    }

    /// Replays one logged mutation. `skip(stripe)` is true if a snapshot of that stripe already
    /// holds it. Fails if the mutation does not fit the data.
    pub fn replay(
        &self,
        mutation: &Mutation<'_>,
        params: &Params,
        skip: impl Fn(usize) -> bool,
    ) -> Result<(), StoreError> {
        match mutation {
            Mutation::Key { .. }
            | Mutation::Version { .. }
            | Mutation::Partition { .. }
            | Mutation::Purge { .. } => match mutation.scope() {
                Scope::One(hash) if !skip(stripe_of(hash)) => {
                    self.lock_one(hash, params).apply_mutation(mutation)
                }
                _ => Ok(()),
            },
            // A snapshot may hold it already: then its later changes are replayed, too.
            Mutation::Floor { db, version } => {
                self.set_floor(*db, *version);
                Ok(())
            }
            Mutation::Origin { .. } => Ok(()),
            Mutation::Truncate { table } => {
                for index in (0..STRIPES).filter(|index| !skip(*index)) {
                    self.stripe(index).truncate(*table, &mut DeferredFree::default());
                }
                Ok(())
            }
            Mutation::Flush { db } => {
                for index in (0..STRIPES).filter(|index| !skip(*index)) {
                    // No client caches a key before the replay has ended.
                    let _none = self.stripe(index).flush(*db, &mut DeferredFree::default());
                }
                Ok(())
            }
            Mutation::Swap { dbs } => {
                for index in (0..STRIPES).filter(|index| !skip(*index)) {
                    let _none = self.stripe(index).swap(*dbs, params.expiry_now());
                }
                Ok(())
            }
        }
    }

    /// Visits keys of a database until about `count` were visited, one stripe lock at a time;
    /// expired ones count. Every key that is present from the first to the last call of a scan is
    /// visited. Ends early at a stripe that is not free when `give_up` becomes true; `None` if that is
    /// the first one.
    ///
    /// Returns the cursor for the next call, and the log position of the visited data (0: durable
    /// or empty).
    pub fn scan(
        &self,
        db: u8,
        cursor: ScanCursor,
        count: usize,
        params: &Params,
        give_up: impl Fn(u64) -> bool,
        mut visit: impl FnMut(&Locked<'_>, Seen<'_>),
    ) -> Option<(ScanCursor, u64)> {
        let (first, mut place) = cursor.split();
        let (mut stripe, mut seen, mut gate) = (first, 0, 0);
        while stripe < STRIPES {
            let Some(locked) = self.lock_stripe_unless(stripe, params, &give_up) else {
                // The same cursor would mean that the scan is complete if it is 0.
                if stripe == first {
                    return None;
                }
                break;
            };
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
        Some((ScanCursor::join(stripe, place), gate))
    }
}
