//! The choice of the key to evict when memory is full.
//!
//! Source: the eight policies of Redis's `maxmemory-policy`. Like Redis, this samples a few keys
//! and evicts the best of them; unlike Redis, the samples come from stripes chosen at random, one
//! lock at a time, and `volatile-ttl` evicts the key that expires first in the sampled stripes.

use crate::STRIPES;
use crate::access::AccessRule;
use crate::entry::EntryRef;
use crate::keyspace::Keyspace;
use crate::params::Params;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionPolicy {
    NoEviction,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl EvictionPolicy {
    fn is_volatile(self) -> bool {
        use EvictionPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }

    /// Whether an access must update the LFU counter for this policy.
    pub fn uses_frequency(self) -> bool {
        matches!(self, EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu)
    }
}

/// A key to evict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub db: u8,
    pub key: Vec<u8>,
    score: u64,
}

/// Stripes to sample before the store concludes that there is nothing to evict; then it checks all.
const EMPTY_TRIES_MAX: usize = 32;

impl Keyspace {
    /// The best of about `samples` keys to evict; `None` when no key qualifies. Takes one stripe
    /// lock at a time, so the key may have been removed when the caller locks its stripe.
    pub fn eviction_candidate(
        &self,
        policy: EvictionPolicy,
        samples: usize,
        params: &Params,
        mut random: impl FnMut() -> u64,
    ) -> Option<Candidate> {
        if policy == EvictionPolicy::NoEviction {
            return None;
        }
        let mut best: Option<Candidate> = None;
        let (mut seen, mut empty) = (0, 0);
        while seen < samples && empty < EMPTY_TRIES_MAX {
            let stripe = usize::try_from(random() % STRIPES as u64).expect("below STRIPES");
            match self.sample_stripe(stripe, policy, params, random(), &mut best) {
                0 => empty += 1,
                count => seen += count,
            }
        }
        if best.is_none() {
            let start = usize::try_from(random() % STRIPES as u64).expect("below STRIPES");
            (0..STRIPES).map(|step| (start + step) % STRIPES).find(|stripe| {
                self.sample_stripe(*stripe, policy, params, random(), &mut best) > 0
            });
        }
        best
    }

    /// Samples up to two keys of a stripe; keeps the better one. Returns how many there were.
    fn sample_stripe(
        &self,
        index: usize,
        policy: EvictionPolicy,
        params: &Params,
        random: u64,
        best: &mut Option<Candidate>,
    ) -> usize {
        const KEYS_PER_STRIPE: usize = 2;
        // A script may hold it for long.
        let Some(stripe) = self.try_stripe(index) else { return 0 };
        let keys: Vec<(u8, EntryRef<'_>)> = if policy == EvictionPolicy::VolatileTtl {
            stripe.soonest().into_iter().collect()
        } else if policy.is_volatile() {
            stripe.sample_volatile(random, KEYS_PER_STRIPE)
        } else {
            let sampled = stripe.dbs.iter().flat_map(|(db, contents)| {
                contents.table.sample(random).take(KEYS_PER_STRIPE).map(move |entry| (db, entry))
            });
            sampled.collect()
        };
        for (db, entry) in &keys {
            let score = score(policy, params, *entry, random);
            if best.as_ref().is_none_or(|best| score > best.score) {
                *best = Some(Candidate { db: *db, key: entry.key().to_vec(), score });
            }
        }
        keys.len()
    }
}

/// The candidate with the highest score is evicted.
fn score(policy: EvictionPolicy, params: &Params, entry: EntryRef<'_>, random: u64) -> u64 {
    match policy {
        EvictionPolicy::VolatileTtl => entry.expiry().map_or(0, |at| u64::MAX - at.0),
        EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => random,
        _ => match params.access.rule() {
            AccessRule::Lru => params.access.idle_seconds(entry.access()),
            AccessRule::Lfu { .. } => 255 - u64::from(params.access.frequency(entry.access())),
        },
    }
}
