//! Integers of variable length, as CQL's protocol encodes them.
// Source: native_protocol_v5.spec 3 "[vint]" and "[unsigned vint]"

/// Appends a signed number.
pub(crate) fn put_vint(value: i64, out: &mut Vec<u8>) {
    put_unsigned_vint((value << 1 ^ value >> 63).cast_unsigned(), out);
}

/// Removes a signed number from the front.
pub(crate) fn take_vint(input: &mut &[u8]) -> Option<i64> {
    let zigzag = take_unsigned_vint(input)?;
    Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
}

/// Appends an unsigned number.
pub(crate) fn put_unsigned_vint(value: u64, out: &mut Vec<u8>) {
    let bits = 64 - value.leading_zeros().min(63);
    // Each byte after the first costs one bit of the first.
    let extra = ((bits - 1) / 7).min(8) as usize;
    let bytes = value.to_be_bytes();
    if extra == 8 {
        out.push(0xFF);
        out.extend_from_slice(&bytes);
        return;
    }
    let start = out.len();
    out.extend_from_slice(&bytes[7 - extra..]);
    out[start] |= !(0xFF_u8 >> extra);
}

/// Removes an unsigned number from the front.
pub(crate) fn take_unsigned_vint(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    let extra = first.leading_ones() as usize;
    let (after, rest) = rest.split_at_checked(extra)?;
    *input = rest;
    let start = if extra >= 8 { 0 } else { u64::from(first & (0xFF >> extra)) };
    Some(after.iter().fold(start, |value, &byte| value << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_numbers_are_short() {
        for (value, expected) in
            [(0, &[0][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (64, &[0x80, 0x80])]
        {
            let mut out = Vec::new();
            put_vint(value, &mut out);
            assert_eq!(out, expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_read_back(value: i64, shift in 0..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_vint(value, &mut out);
            let mut input = &out[..];
            prop_assert_eq!(take_vint(&mut input), Some(value));
            prop_assert!(input.is_empty());
            prop_assert_eq!(take_vint(&mut &out[..out.len() - 1]), None);
        }
    }
}
