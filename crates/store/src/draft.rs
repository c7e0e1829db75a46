//! A private copy of one key, on which changes are tried.

use base::time::UnixMs;
use parking_lot::Mutex;

use crate::deferred_free::DeferredFree;
use crate::error::StoreError;
use crate::key::Key;
use crate::key::stripe_of;
use crate::keyspace::Keyspace;
use crate::locked::{Guard, Guards, Locked};
use crate::mutation::Mutation;
use crate::params::Params;
use crate::stripe::{Applying, Stripe};

/// A copy of one key in a stripe of its own.
///
/// For a unit of work whose later changes depend on its earlier ones, and which may be rejected as
/// a unit: all changes are tried on drafts, so none has to be undone.
#[derive(Debug)]
pub struct Draft {
    stripe: Mutex<Stripe>,
    index: u16,
}

impl Locked<'_> {
    /// Copies a key, even one that has expired but is still stored. O(value).
    pub fn draft(&self, db: u8, key: Key<'_>) -> Result<Draft, StoreError> {
        let index = u16::try_from(stripe_of(key.hash)).expect("STRIPES fits u16");
        let mut copy = Stripe::default();
        let own = self.stripe(key.hash);
        if let Some(place) = own.place(db, key) {
            let entry = own.entry(db, place);
            let mut encoded = Vec::new();
            let change = own.value(entry, UnixMs(0)).to_change(entry.expiry(), &mut encoded);
            let keyspace = self.keyspace();
            let mut cx = Applying {
                params: self.params(),
                hash_of: &|bytes| keyspace.hash(bytes),
                trash: &mut DeferredFree::default(),
            };
            copy.apply(db, key, &change, &mut cx)?;
        }
        Ok(Draft { stripe: Mutex::new(copy), index })
    }
}

impl Draft {
    /// The copy in the place of the key, in the keyspace that it was copied from.
    pub fn lock<'d>(&'d self, keyspace: &'d Keyspace, params: &'d Params) -> Locked<'d> {
        let guard = Guard { index: self.index, stripe: self.stripe.lock() };
        Locked::new(keyspace, params, Guards::One(guard))
    }

    /// Applies encoded changes to the copy.
    pub fn change(
        &self,
        keyspace: &Keyspace,
        params: &Params,
        mut encoded: &[u8],
    ) -> Result<(), StoreError> {
        let mut locked = self.lock(keyspace, params);
        while !encoded.is_empty() {
            let mutation = Mutation::decode(&mut encoded, |key| keyspace.hash(key))
                .map_err(|_| StoreError::Malformed)?;
            locked.apply_mutation(&mutation)?;
        }
        Ok(())
    }
}
