//! Which register an element belongs to, and the value that it gives to it.

use super::sketch::REGISTERS;

/// Bits of a hash that select the register.
const REGISTER_BITS: u32 = 14;
const _: () = assert!(1 << REGISTER_BITS == REGISTERS);

/// Bits of a hash that are left.
pub(super) const RANK_BITS: u32 = 64 - REGISTER_BITS;

/// A register, and the value that it must have at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) register: usize,
    /// 1 to 51: the position of the lowest 1 among the bits that are left.
    pub(super) rank: u8,
}

// Source: Redis 7.2 `hyperloglog.c`, `hllPatLen`
pub(super) fn place_of(element: &[u8]) -> Place {
    let hash = murmur(element);
    let register = usize::try_from(hash % REGISTERS as u64).expect("below 16,384");
    let rest = hash >> REGISTER_BITS | 1 << RANK_BITS;
    let rank = u8::try_from(rest.trailing_zeros() + 1).expect("at most 51");
    Place { register, rank }
}

/// `MurmurHash64A` for little-endian words, with the seed of Redis.
// Source: Austin Appleby, MurmurHash2_64; Redis 7.2 `hyperloglog.c`, `hllPatLen` (the seed)
fn murmur(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        hash ^= (word ^ word >> SHIFT).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}
