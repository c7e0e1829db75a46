//! Loading the memory of a batch ahead of its requests, so that their cache misses overlap.
//!
//! A batch is visited in passes: the address of each part is known only when the part before it has
//! been loaded. A stripe that another thread holds is skipped.

use std::ops::Range;

use crate::blob::prefetch;
use crate::key::{TableId, stripe_of, stripe_of_token};
use crate::keyspace::Keyspace;
use crate::object::Depth;
use crate::partitions::Reach;
use crate::stripe::{COLLECTION_LINES, PARTITION_LINES, STRIPE_LINES};

impl Keyspace {
    #[inline]
    fn prefetch_lines(&self, stripe: usize, lines: Range<usize>) {
        let slot = (&raw const self.slots[stripe]).cast::<u8>();
        lines.for_each(|line| prefetch(slot.wrapping_add(64 * line)));
    }

    /// First pass: prefetches the stripe's own cache lines.
    #[inline]
    pub fn prefetch_stripe(&self, hash: u64, is_collection: bool) {
        // Loops of constant lengths have no counters.
        self.prefetch_lines(stripe_of(hash), 0..STRIPE_LINES);
        if is_collection {
            self.prefetch_lines(stripe_of(hash), STRIPE_LINES..COLLECTION_LINES);
        }
    }

    /// Second pass: prefetches the bucket.
    #[inline]
    pub fn prefetch_bucket(&self, db: u8, hash: u64) {
        if let Some(stripe) = self.try_stripe(stripe_of(hash)) {
            stripe.dbs[db].table.prefetch_bucket(hash);
        }
    }

    /// Third pass: prefetches the entry.
    #[inline]
    pub fn prefetch_entry(&self, db: u8, hash: u64) {
        if let Some(stripe) = self.try_stripe(stripe_of(hash)) {
            stripe.dbs[db].table.prefetch_entry(hash);
        }
    }

    /// The passes over some keys that are changed or read next, with databases and hashes.
    pub fn prefetch_keys(&self, keys: impl Iterator<Item = (u8, u64)> + Clone) {
        keys.clone().for_each(|(_, hash)| self.prefetch_stripe(hash, false));
        keys.clone().for_each(|(db, hash)| self.prefetch_bucket(db, hash));
        keys.for_each(|(db, hash)| self.prefetch_entry(db, hash));
    }

    /// Further passes over keys of collections. False if the next pass would find nothing.
    #[inline]
    pub fn prefetch_collection(&self, db: u8, hash: u64, depth: Depth) -> bool {
        let Some(stripe) = self.try_stripe(stripe_of(hash)) else { return false };
        stripe.prefetch_collection(db, hash, depth)
    }

    /// The passes over requests for partitions.
    #[inline]
    pub fn prefetch_partition(&self, table: TableId, token: i64, reach: Reach) {
        let stripe = stripe_of_token(token);
        if reach == Reach::Stripe {
            return self.prefetch_lines(stripe, 0..PARTITION_LINES);
        }
        if let Some(stripe) = self.try_stripe(stripe) {
            stripe.tables.prefetch(table, token, reach);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;

    use super::*;
    use crate::types::{Compact, StreamId};
    use crate::{
        AccessClock, AccessRule, Change, End, Items, Mutation, Params, StreamChange,
        StreamChangeRef,
    };

    /// The parts that the passes find, up to the last.
    fn found(keyspace: &Keyspace, name: &[u8]) -> usize {
        let hash = keyspace.hash(name);
        let passes = Depth::ALL.into_iter();
        passes.take_while(|depth| keyspace.prefetch_collection(0, hash, *depth)).count()
    }

    #[test]
    fn passes_end_with_the_last_part_of_a_collection() {
        let keyspace = Keyspace::new(7);
        let access = AccessClock::new(AccessRule::Lru, UnixMs(0), 1);
        let params = Params::new(UnixMs(0), access, Compact::default());
        let apply = |name: &[u8], change: Change<'_>| {
            let key = keyspace.key(name);
            let mutation = Mutation::Key { db: 0, key, change };
            keyspace.lock_one(key.hash, &params).apply_mutation(&mutation).expect("a valid change");
        };
        let values = vec![&[b'v'; 40][..]; 2_000];
        let values = Items::Slice(&values);
        apply(b"string", Change::Set { value: b"value", expiry: None });
        apply(b"set", Change::SetAdd { members: Items::Slice(&[&[b'm'; 5_000]]) });
        apply(b"list", Change::ListPush { end: End::Back, values });
        let fields = Items::Slice(&[b"field", b"value"]);
        let entry = StreamChange::Add { id: StreamId { ms: 1, seq: 1 }, fields };
        apply(b"stream", Change::Stream(StreamChangeRef::Given(&entry)));
        let expected = [("absent", 0), ("string", 0), ("set", 2), ("list", 3), ("stream", 4)];
        for (name, parts) in expected {
            assert_eq!(found(&keyspace, name.as_bytes()), parts, "{name}");
        }
        let stripe = keyspace.lock_one(keyspace.hash(b"list"), &params);
        assert_eq!(found(&keyspace, b"list"), 0, "another thread holds the stripe");
        drop(stripe);
    }
}
