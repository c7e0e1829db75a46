//! The checksum of files and payloads.

use std::fmt;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

// Source: Redis 7.2 `crc64.c`: Jones polynomial, reflected, without initial value
static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of bytes that arrive in pieces.
pub(super) struct Checksum(Digest<'static, u64, Table<16>>);

impl Checksum {
    pub(super) fn new() -> Checksum {
        Checksum(CRC.digest())
    }

    pub(super) fn of(bytes: &[u8]) -> u64 {
        CRC.checksum(bytes)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.clone().finalize()
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({:016x})", self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        let bytes = b"123456789";
        assert_eq!(Checksum::of(bytes), 0xe9c6_d914_c4b8_d9ca);
        let mut pieces = Checksum::new();
        bytes.chunks(2).for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.value(), Checksum::of(bytes));
    }
}
