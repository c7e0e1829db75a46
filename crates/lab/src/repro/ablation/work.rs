//! The exercise in its naive form: one task, ten hashes, one after the other.

use sha2::{Digest, Sha256};

use pipeline::task::Inputs;

pub(super) const SEED: u64 = 1;
pub(super) const DIGEST_BYTES: usize = 32;
/// Number of hash iterations per task.
pub(super) const LINKS: usize = 10;

/// Returns x and y of a task.
pub(super) fn input(id: u64) -> (u16, u16) {
    Inputs::new(SEED).of(id)
}

/// Returns x^y mod 2^64, little-endian, and 24 zeros: the first hash input.
pub(super) fn message(x: u16, y: u16) -> [u8; DIGEST_BYTES] {
    let power = u64::from(x).wrapping_pow(u32::from(y));
    let mut message = [0; DIGEST_BYTES];
    message[..8].copy_from_slice(&power.to_le_bytes());
    message
}

/// Returns the result of a task.
pub(super) fn digest(x: u16, y: u16) -> [u8; DIGEST_BYTES] {
    (0..LINKS).fold(message(x, y), |bytes, _| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipeline::task::{BatchTask as _, Codec, Exercise, Kernel, OUTPUT_BYTES};

    #[test]
    fn it_is_the_exercise() {
        let task = Exercise::new(Codec::Sha256Le, SEED, Kernel::Serial);
        for id in 0..50 {
            let (x, y) = input(id);
            let mut record = [0; OUTPUT_BYTES];
            record[..8].copy_from_slice(&id.to_be_bytes());
            record[8..10].copy_from_slice(&x.to_be_bytes());
            record[10..12].copy_from_slice(&y.to_be_bytes());
            record[12..].copy_from_slice(&digest(x, y));
            assert_eq!(task.verify(&record), Ok(true));
        }
    }
}
