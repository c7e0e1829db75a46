//! The encoded form of a stripe: the mutations that rebuild it.
//!
//! A block is a sequence of `Set` and `Put` mutations, then `Partition`, then `Version`, in the encoding of [`crate::Mutation`], so
//! that there is one codec, one golden test and one path for changes.
//!
//! Known weakness: a stripe stays locked while it is encoded. At 10 M keys that is 2,441 keys; a
//! single collection of a million members keeps its stripe locked for as long as encoding takes.
//! Other stripes are not affected.

use base::time::UnixMs;

use crate::entry::EntryRef;
use crate::error::StoreError;
use crate::items::Writes;
use crate::key::Key;
use crate::keyspace::Keyspace;
use crate::mutation::Mutation;
use crate::params::Params;
use crate::stripe::{Applying, Stripe};
use crate::types::Malformed;
use crate::versions::Version;
use crate::{DATABASES, DeferredFree, STRIPES};

/// The contents of one stripe after everything logged before `lsn`, and nothing logged after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotBlock {
    pub stripe: usize,
    pub lsn: u64,
    /// Number of mutations.
    pub keys: u64,
    pub bytes: Vec<u8>,
}

impl Keyspace {
    /// Encodes one stripe into `block`, whose buffer is reused. `position` reads the log's next
    /// position; it is called under the stripe's lock, which is what makes the block consistent.
    pub fn snapshot_stripe(
        &self,
        stripe: usize,
        position: impl FnOnce() -> u64,
        block: &mut SnapshotBlock,
    ) {
        assert!(stripe < STRIPES);
        block.bytes.clear();
        block.stripe = stripe;
        block.keys = 0;
        let locked = self.stripe(stripe);
        block.lsn = position();
        locked.encode(&mut block.bytes, |_| block.keys += 1);
        if stripe == 0 {
            block.keys += self.encode_floors(&mut block.bytes);
        }
    }

    /// Appends the floors of databases, which are of all stripes. Returns their number.
    fn encode_floors(&self, out: &mut Vec<u8>) -> u64 {
        let mut count = 0;
        for db in 0..DATABASES {
            let db = u8::try_from(db).expect("DATABASES fits u8");
            let version = self.floor(db);
            if version != Version::NONE {
                Mutation::Floor { db, version }.encode(out);
                count += 1;
            }
        }
        count
    }
}

impl Stripe {
    /// Appends the contents of the stripe, and passes each entry to `visit` in the order of the
    /// bytes, then `None` for each partition and version.
    fn encode(&self, out: &mut Vec<u8>, mut visit: impl FnMut(Option<EntryRef<'_>>)) {
        let mut encoded = Vec::new();
        for (db, contents) in self.dbs.iter() {
            for entry in contents.table.iter() {
                let change = self.value(entry, UnixMs(0)).to_change(entry.expiry(), &mut encoded);
                let key = Key { bytes: entry.key(), hash: 0 };
                Mutation::Key { db, key, change }.encode(out);
                visit(Some(entry));
            }
        }
        for (key, partition) in self.tables.iter() {
            encoded.clear();
            partition.encode(&mut encoded);
            let writes = Writes::of_partition(&encoded);
            Mutation::Partition { key, writes }.encode(out);
            visit(None);
        }
        for (db, bytes, given) in self.versions.iter().flat_map(|versions| versions.iter()) {
            Mutation::Version { db, key: Key { bytes, hash: 0 }, given }.encode(out);
            visit(None);
        }
    }

    /// Rebuilds the stripe from its encoded form, as a restart would. Access times, watches, and
    /// positions in the log stay. On an error nothing has changed.
    pub(crate) fn reload(
        &mut self,
        params: &Params,
        hash_of: &dyn Fn(&[u8]) -> u64,
        trash: &mut DeferredFree,
    ) -> Result<(), StoreError> {
        let (mut bytes, mut accesses) = (Vec::new(), Vec::new());
        self.encode(&mut bytes, |entry| accesses.extend(entry.map(EntryRef::access)));
        let mut fresh = Stripe::default();
        let mut input = bytes.as_slice();
        for access in accesses {
            let mutation =
                Mutation::decode(&mut input, hash_of).map_err(|Malformed| StoreError::Malformed)?;
            let Mutation::Key { db, key, change } = mutation else {
                return Err(StoreError::Malformed);
            };
            fresh.apply(db, key, &change, &mut Applying { params, hash_of, trash })?;
            let place = fresh.place(db, key).ok_or(StoreError::Malformed)?;
            fresh.entry(db, place).set_access(access);
        }
        debug_assert_eq!(fresh.dbs.keys(), self.dbs.keys(), "the bytes hold every key");
        std::mem::swap(&mut fresh.tables, &mut self.tables);
        std::mem::swap(&mut fresh.versions, &mut self.versions);
        fresh.bytes += fresh.tables.heap_bytes() + fresh.version_bytes();
        std::mem::swap(&mut fresh.pending, &mut self.pending);
        std::mem::swap(&mut fresh.watches, &mut self.watches);
        std::mem::replace(self, fresh).flush_all(trash);
        Ok(())
    }
}

/// Applies a block to an empty stripe. Returns the number of mutations.
pub fn load_block(
    keyspace: &Keyspace,
    params: &Params,
    mut bytes: &[u8],
) -> Result<u64, StoreError> {
    let mut keys = 0;
    while !bytes.is_empty() {
        let mutation = Mutation::decode(&mut bytes, |key| keyspace.hash(key))
            .map_err(|Malformed| StoreError::Malformed)?;
        keyspace.replay(&mutation, params, |_| false)?;
        keys += 1;
    }
    Ok(keys)
}
