//! What names a key and a partition, and the stripe of each.

use crate::{DATABASES, STRIPES};

/// A key with its hash, computed once per request.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

pub(crate) const STRIPE_BITS: u32 = STRIPES.trailing_zeros();
pub(crate) const STRIPE_SHIFT: u32 = u64::BITS - STRIPE_BITS;

const _: () = assert!(STRIPES.is_power_of_two(), "the top bits of a hash name the stripe");
const _: () = assert!(STRIPES <= u16::MAX as usize + 1, "guards hold the number in a u16");
const _: () = assert!(DATABASES <= 1 << STRIPE_BITS, "expiries tag a hash with the database");
const _: () = assert!(PARTITIONS_DB as usize >= DATABASES, "no numbered database has this number");

/// The stripe of a hash: its top bits.
#[inline]
pub fn stripe_of(hash: u64) -> usize {
    (hash >> STRIPE_SHIFT) as usize
}

/// Identifies a table; never reused. 0 is not a valid identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u128);

/// A partition's place: its table, the token of its key, and the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionKey<'a> {
    pub table: TableId,
    /// Where the key is on the ring. The store knows no hash function of keys: it is the caller's to
    /// give a key the same token each time.
    pub token: i64,
    pub bytes: &'a [u8],
}

/// Stands for partitions where keys have the number of their database.
pub const PARTITIONS_DB: u8 = u8::MAX;

/// Tokens as numbers that begin at 0.
pub(crate) fn ordinal(token: i64) -> u64 {
    token.cast_unsigned() ^ (1 << 63)
}

pub(crate) fn token_of(ordinal: u64) -> i64 {
    (ordinal ^ (1 << 63)).cast_signed()
}

/// The stripe whose partitions have this token: where a walk from there begins.
pub fn stripe_of_token(token: i64) -> usize {
    stripe_of(ordinal(token))
}

impl PartitionKey<'_> {
    /// As [`crate::Key::hash`]: the upper half comes from the token and names the stripe; the lower
    /// half differs between tables.
    #[expect(clippy::cast_possible_truncation, reason = "all bits of the table count")]
    pub fn hash(&self) -> u64 {
        let TableId(id) = self.table;
        let folded = (id ^ (id >> 32) ^ (id >> 64) ^ (id >> 96)) as u32;
        ordinal(self.token) ^ u64::from(folded)
    }
}
