//! Compressed strings: LZF. There is no maintained crate for it.

/// The longest copy, of three bytes: no byte of input stands for more than 88 of output.
const COPY_BYTES_MAX: usize = 264;
const COPY_INPUT_BYTES: usize = 3;

/// The bytes are not LZF, or not of this length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Appends the `len` bytes that `input` stands for. On an error `out` has a part of them.
// Source: LibLZF 3.6 `lzf_d.c`
pub(super) fn decode(mut input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
    if len > input.len().saturating_mul(COPY_BYTES_MAX / COPY_INPUT_BYTES) {
        return Err(Malformed);
    }
    let start = out.len();
    out.reserve(len);
    while let Some((&control, rest)) = input.split_first() {
        input = rest;
        let control = usize::from(control);
        let room = start + len - out.len();
        if control < 32 {
            let (literal, rest) = input.split_at_checked(control + 1).ok_or(Malformed)?;
            if literal.len() > room {
                return Err(Malformed);
            }
            out.extend_from_slice(literal);
            input = rest;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += take(&mut input)?;
            }
            let distance = ((control & 31) << 8) + take(&mut input)? + 1;
            let count = count + 2;
            let from = out.len().checked_sub(distance).filter(|from| *from >= start);
            let from = from.filter(|_| count <= room).ok_or(Malformed)?;
            // Source and target may overlap: what follows `from` repeats after `distance` bytes, so
            // that each block can be twice as long as the one before.
            let end = out.len() + count;
            while out.len() < end {
                let block = (end - out.len()).min(out.len() - from);
                out.extend_from_within(from..from + block);
            }
        }
    }
    if out.len() - start == len { Ok(()) } else { Err(Malformed) }
}

fn take(input: &mut &[u8]) -> Result<usize, Malformed> {
    let (&byte, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    Ok(usize::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(input: &[u8], len: usize, expected: Option<&[u8]>) {
        let mut out = b"before".to_vec();
        let result = decode(input, len, &mut out).is_ok().then(|| &out[6..]);
        assert_eq!(result, expected, "{input:?}");
    }

    #[test]
    fn literals_and_copies_are_decoded() {
        check(b"", 0, Some(b""));
        check(b"\x02abc", 3, Some(b"abc"));
        // A copy of 5 bytes from one byte back, then a long one.
        check(b"\x00a\x60\x00", 6, Some(b"aaaaaa"));
        check(b"\x00a\xe0\x01\x00", 11, Some(b"aaaaaaaaaaa"));
        check(b"\x01ab\x40\x01", 6, Some(b"ababab"));
    }

    #[test]
    fn wrong_lengths_and_distances_are_refused() {
        check(b"\x02ab", 3, None);
        check(b"\x02abc", 2, None);
        check(b"\x02abc", 4, None);
        // A copy from before the string, although the buffer has bytes there.
        check(b"\x00a\x60\x01", 6, None);
        check(b"\x00a\x60", 6, None);
        check(b"\x00a\xe0", 6, None);
        check(b"\x00a", usize::MAX, None);
    }

    /// Copies byte by byte, as the specification describes it.
    fn copied(text: &[u8], distance: usize, count: usize) -> Vec<u8> {
        let mut out = text.to_vec();
        for _ in 0..count {
            out.push(out[out.len() - distance]);
        }
        out
    }

    proptest! {
        #[test]
        fn copies_repeat_what_they_overlap(
            text in proptest::collection::vec(any::<u8>(), 1..32),
            distance in 1usize..32,
            count in 9usize..=COPY_BYTES_MAX,
        ) {
            let distance = distance.min(text.len());
            let literal = u8::try_from(text.len() - 1).unwrap();
            let copy = [0xe0, u8::try_from(count - 9).unwrap(), u8::try_from(distance - 1).unwrap()];
            let input = [&[literal], &text[..], &copy].concat();
            check(&input, text.len() + count, Some(&copied(&text, distance, count)));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(
            input in proptest::collection::vec(any::<u8>(), 0..60),
            len in 0usize..300,
        ) {
            let mut out = Vec::new();
            let result = decode(&input, len, &mut out);
            prop_assert!(out.len() <= len);
            prop_assert!(result.is_err() || out.len() == len);
        }
    }
}
