//! The position of a partition on Cassandra's ring: drivers compute the same to choose a node.

/// Murmur3 of a partition key, as Cassandra's `Murmur3Partitioner` computes it: the first half of
/// the x64 variant of 128 bits, with the tail bytes sign-extended. The empty key, which no
/// partition has, sorts before all others.
// Source: Cassandra's org.apache.cassandra.utils.MurmurHash and dht.Murmur3Partitioner
pub fn token(partition_key: &[u8]) -> i64 {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    if partition_key.is_empty() {
        return i64::MIN;
    }
    let mut h1 = 0_u64;
    let mut h2 = 0_u64;
    let (blocks, tail) = partition_key.as_chunks::<16>();
    for block in blocks {
        let (first, second) = block.split_at(8);
        let k1 = u64::from_le_bytes(first.try_into().expect("8 bytes"));
        let k2 = u64::from_le_bytes(second.try_into().expect("8 bytes"));
        h1 ^= k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let part = |bytes: &[u8]| {
        bytes.iter().enumerate().fold(0_u64, |sum, (nth, &byte)| sum ^ signed(byte) << (8 * nth))
    };
    let (first, second) = tail.split_at(tail.len().min(8));
    h2 ^= part(second).wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    h1 ^= part(first).wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let length = partition_key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let token = mixed(h1).wrapping_add(mixed(h2)).cast_signed();
    // The smallest number is reserved: it sorts before all tokens.
    if token == i64::MIN { i64::MAX } else { token }
}

/// A sign-extended byte.
fn signed(byte: u8) -> u64 {
    i64::from(byte.cast_signed()).cast_unsigned()
}

fn mixed(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of Cassandra's drivers.
    #[test]
    fn tokens_are_those_of_the_drivers() {
        for (key, expected) in [
            (&b""[..], i64::MIN),
            (b"123", -7_468_325_962_851_647_638),
            (&b"\x00\xff\x10\xfa\x99".repeat(10), 5_837_342_703_291_459_765),
            (&b"\xfe".repeat(8), -8_927_430_733_708_461_935),
            (&b"\x10".repeat(8), 1_446_172_840_243_228_796),
            (b"9223372036854775807", 7_162_290_910_810_015_547),
        ] {
            assert_eq!(token(key), expected, "{key:?}");
        }
    }
}
