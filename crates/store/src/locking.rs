//! Locking stripes of the keyspace, replay, and scans.

use smallvec::SmallVec;

use crate::STRIPES;
use crate::deferred_free::DeferredFree;
use crate::key::stripe_of;
use crate::keyspace::Keyspace;
use crate::locked::{Guard, Guards, Locked, Seen};
use crate::mutation::Mutation;
use crate::params::{Params, ScanCursor, StoreError};

impl Keyspace {
    #[inline]
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

    /// Locks every stripe. Costs 4,096 locks of 10 ns: for commands that affect all keys.
    pub fn lock_all<'a>(&'a self, params: &'a Params) -> Locked<'a> {
        let guards = (0..STRIPES).map(|stripe| self.guard(stripe)).collect();
        Locked::new(self, params, Guards::Several(guards))
    }

    pub fn lock_stripe<'a>(&'a self, stripe: usize, params: &'a Params) -> Locked<'a> {
        Locked::new(self, params, Guards::One(self.guard(stripe)))
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
        }
    }

    /// Visits keys of a database until about `count` were visited, one stripe lock at a time;
    /// expired ones count. Every key that is present from the first to the last call of a scan is
    /// visited.
    ///
    /// Returns the cursor for the next call, and the log position of the visited data (0: durable
    /// or empty).
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
