//! x^y mod 2^64 for several tasks at once.

/// Width of an exponent in bits.
const EXPONENT_BITS: u32 = 16;

/// Returns each base to the power of its exponent, mod 2^64. All lanes take all 16 steps: the
/// multiplier processes one lane while another waits for its result, and no branch depends on the
/// data.
#[inline]
pub(crate) fn powers<const LANES: usize>(x: &[u16; LANES], y: &[u16; LANES]) -> [u64; LANES] {
    let mut results = [1_u64; LANES];
    let mut squares = x.map(u64::from);
    for bit in 0..EXPONENT_BITS {
        for lane in 0..LANES {
            let factor = if y[lane] >> bit & 1 == 1 { squares[lane] } else { 1 };
            results[lane] = results[lane].wrapping_mul(factor);
            squares[lane] = squares[lane].wrapping_mul(squares[lane]);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Inputs;

    #[test]
    fn powers_are_those_of_the_standard_library() {
        let inputs = Inputs::new(3);
        let mut pairs = vec![(1, 1), (2, 63), (2, 64), (65_535, 65_535), (65_534, 1), (1, 65_535)];
        pairs.extend((0..10_000).map(|id| inputs.of(id)));
        for chunk in pairs.chunks_exact(2) {
            let [(x0, y0), (x1, y1)] = [chunk[0], chunk[1]];
            let expected =
                [(x0, y0), (x1, y1)].map(|(x, y)| u64::from(x).wrapping_pow(u32::from(y)));
            assert_eq!(powers(&[x0, x1], &[y0, y1]), expected, "{chunk:?}");
        }
    }
}
