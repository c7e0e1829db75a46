//! CRC-32C, optimized for many short records.

/// Above this length, the three interleaved streams of the library are faster than one.
const SHORT_BYTES_MAX: usize = 256;

/// Extends the checksum `crc` of the preceding bytes by `bytes`.
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() > SHORT_BYTES_MAX {
        return crc32c::crc32c_append(crc, bytes);
    }
    append_short(crc, bytes)
}

/// The library first checks alignment and block lengths: 135 instructions for 28 bytes instead of
/// 20.
#[cfg(all(target_arch = "x86_64", target_feature = "sse4.2"))]
#[inline]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    use safe_arch::{crc32_u8, crc32_u32, crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words
        .iter()
        .fold(u64::from(!crc), |state, word| crc32_u64(state, u64::from_le_bytes(*word)));
    // The instruction has cleared the upper half.
    let mut state = u32::try_from(state & u64::from(u32::MAX)).expect("it is masked");
    let (half, rest) = rest.as_chunks::<4>();
    for word in half {
        state = crc32_u32(state, u32::from_le_bytes(*word));
    }
    for byte in rest {
        state = crc32_u8(state, *byte);
    }
    !state
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.2")))]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_length_has_the_checksum_of_the_library(
            crc: u32,
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            start in 0..8_usize,
        ) {
            let bytes = &bytes[start.min(bytes.len())..];
            prop_assert_eq!(super::append(crc, bytes), crc32c::crc32c_append(crc, bytes));
        }
    }
}
