//! A stripe as bytes: the mutations that build it again.
//!
//! A block is a sequence of `Set` and `Put` mutations in the bytes of [`crate::Mutation`], so that
//! there is one codec, one golden test and one way in.
//!
//! Known weakness: a stripe stays locked while it is encoded. At 10 M keys that is 2,441 keys or
//! about 100 us; a single collection of a million members holds its stripe for tens of
//! milliseconds. Other stripes are not affected.

use crate::keyspace::{Keyspace, Params, StoreError};
use crate::mutation::{Change, Key, Mutation};
use crate::stripe::Object;
use crate::types::Malformed;
use crate::{DATABASES, STRIPES};

/// What one stripe held when everything logged before `lsn` had been applied to it, and nothing
/// logged after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotBlock {
    pub stripe: usize,
    pub lsn: u64,
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
        let mut encoded = Vec::new();
        let locked = self.stripe(stripe);
        block.lsn = position();
        for db in 0..DATABASES {
            for entry in locked.tables[db].iter() {
                let expiry = entry.expiry();
                let change = match locked.object_of(entry) {
                    None => {
                        Change::Set { value: entry.string_value().expect("no collection"), expiry }
                    }
                    Some(object) => {
                        encoded.clear();
                        Object::encode(object, &mut encoded);
                        Change::Put { kind: object.kind(), encoded: &encoded, expiry }
                    }
                };
                let key = Key { bytes: entry.key(), hash: 0 };
                let db = u8::try_from(db).expect("sixteen databases");
                Mutation::Key { db, key, change }.encode(&mut block.bytes);
                block.keys += 1;
            }
        }
    }
}

/// Applies a block to an empty stripe. Returns the number of keys.
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
