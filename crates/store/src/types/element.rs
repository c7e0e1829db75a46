//! Elements in packed bytes: of small collections, and of the blocks of streams.
//!
//! The forms are those of the elements of a Redis listpack without their back lengths: a number
//! whose text is canonical takes 1 to 9 bytes, other content its bytes and a header. Redis decides
//! by the bytes of a listpack when a node of a stream is full, and approximate trimming removes
//! whole nodes, so this module also computes the bytes that a listpack would have.
//!
//! Source: Redis 7.2 `listpack.c`, `lpEncodeGetType` and `lpEncodeBacklenBytes`

#![expect(
    clippy::cast_possible_truncation,
    reason = "each form takes the low bytes of a number whose range was checked"
)]

use smallvec::SmallVec;

use crate::types::text::{Scalar, canonical_integer};
use crate::varint::Malformed;

const SHORT_BYTES_MAX: usize = 63;
const MEDIUM_BYTES_MAX: usize = 4095;
/// Smaller first bytes are a number themselves.
pub(crate) const SHORT: u8 = 0x80;
const MEDIUM: u8 = 0xe0;
const LONG: u8 = 0xf0;
const INTEGER_13: u8 = 0xc0;
const INTEGER_16: u8 = 0xf1;
const INTEGER_24: u8 = 0xf2;
const INTEGER_32: u8 = 0xf3;
const INTEGER_64: u8 = 0xf4;
/// No element begins with this byte or a greater one.
pub(crate) const UNUSED_FROM: u8 = 0xf5;

/// A growing buffer of bytes.
pub(crate) trait Out {
    fn push(&mut self, byte: u8);
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    #[inline]
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        Vec::extend_from_slice(self, bytes);
    }
}

impl<const N: usize> Out for SmallVec<[u8; N]>
where
    [u8; N]: smallvec::Array<Item = u8>,
{
    #[inline]
    fn push(&mut self, byte: u8) {
        SmallVec::push(self, byte);
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        SmallVec::extend_from_slice(self, bytes);
    }
}

/// Appends one element. Equal contents have equal bytes.
#[inline]
pub(crate) fn put(out: &mut impl Out, bytes: &[u8]) {
    match canonical_integer(bytes) {
        Some(number) => put_integer(out, number),
        None => put_bytes(out, bytes),
    }
}

/// Appends the element of a number.
pub(crate) fn put_integer(out: &mut impl Out, number: i64) {
    let bytes = number.to_le_bytes();
    match integer_bytes(number) {
        1 => out.push(bytes[0]),
        2 => out.extend_from_slice(&[INTEGER_13 | (bytes[1] & 0x1f), bytes[0]]),
        3 => out.extend_from_slice(&[INTEGER_16, bytes[0], bytes[1]]),
        4 => out.extend_from_slice(&[INTEGER_24, bytes[0], bytes[1], bytes[2]]),
        5 => out.extend_from_slice(&[INTEGER_32, bytes[0], bytes[1], bytes[2], bytes[3]]),
        _ => {
            out.push(INTEGER_64);
            out.extend_from_slice(&bytes);
        }
    }
}

fn put_bytes(out: &mut impl Out, bytes: &[u8]) {
    let len = bytes.len();
    if len <= SHORT_BYTES_MAX {
        out.push(SHORT | len as u8);
    } else if len <= MEDIUM_BYTES_MAX {
        out.extend_from_slice(&[MEDIUM | (len >> 8) as u8, len as u8]);
    } else {
        let len = u32::try_from(len).expect("an argument has less than 4 GiB");
        out.push(LONG);
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(bytes);
}

fn split<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (bytes, rest) = input.split_at_checked(len).ok_or(Malformed)?;
    *input = rest;
    Ok(bytes)
}

/// Takes a signed number of `N` bytes.
fn take_number<const N: usize>(input: &mut &[u8]) -> Result<i64, Malformed> {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(split(input, N)?);
    let unused_bits = 64 - 8 * N as u32;
    Ok(i64::from_le_bytes(bytes) << unused_bits >> unused_bits)
}

/// Takes one element.
#[inline]
pub(crate) fn take<'a>(input: &mut &'a [u8]) -> Result<Scalar<'a>, Malformed> {
    let (&head, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    Ok(match head {
        0..SHORT => Scalar::Int(i64::from(head)),
        SHORT..INTEGER_13 => Scalar::Bytes(split(input, usize::from(head & 0x3f))?),
        INTEGER_13..MEDIUM => {
            let number = i64::from(head & 0x1f) << 8 | i64::from(split(input, 1)?[0]);
            Scalar::Int(number << 51 >> 51)
        }
        MEDIUM..LONG => {
            let len = usize::from(head & 0xf) << 8 | usize::from(split(input, 1)?[0]);
            Scalar::Bytes(split(input, len)?)
        }
        LONG => {
            let (len, rest) = input.split_first_chunk().ok_or(Malformed)?;
            *input = rest;
            Scalar::Bytes(split(input, u32::from_le_bytes(*len) as usize)?)
        }
        INTEGER_16 => Scalar::Int(take_number::<2>(input)?),
        INTEGER_24 => Scalar::Int(take_number::<3>(input)?),
        INTEGER_32 => Scalar::Int(take_number::<4>(input)?),
        INTEGER_64 => Scalar::Int(take_number::<8>(input)?),
        _ => return Err(Malformed),
    })
}

/// Length of the element at the front of `bytes`, which `put` made.
#[inline]
pub(crate) fn len(bytes: &[u8]) -> usize {
    match bytes[0] {
        0..SHORT => 1,
        head @ SHORT..INTEGER_13 => 1 + usize::from(head & 0x3f),
        INTEGER_13..MEDIUM => 2,
        head @ MEDIUM..LONG => 2 + (usize::from(head & 0xf) << 8 | usize::from(bytes[1])),
        LONG => {
            let len = bytes[1..].first_chunk().expect("the bytes were made by `put`");
            5 + u32::from_le_bytes(*len) as usize
        }
        INTEGER_16 => 3,
        INTEGER_24 => 4,
        INTEGER_32 => 5,
        INTEGER_64 => 9,
        UNUSED_FROM.. => unreachable!("the bytes were made by `put`"),
    }
}

/// Bytes of the element of a number.
fn integer_bytes(number: i64) -> usize {
    match number {
        0..=127 => 1,
        -4096..=4095 => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    }
}

/// Bytes in a listpack of an element that has `bytes` bytes here: the back length is added.
pub(crate) fn listpack_bytes(bytes: usize) -> usize {
    let back = match bytes {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    bytes + back
}

/// Bytes of a number in a listpack.
pub(crate) fn listpack_integer_bytes(number: i64) -> usize {
    integer_bytes(number) + 1
}

/// Bytes of a number of elements in a listpack.
pub(crate) fn listpack_count_bytes(count: usize) -> usize {
    listpack_integer_bytes(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &[u8], bytes: usize) {
        let mut out = Vec::new();
        put(&mut out, content);
        assert_eq!(out.len(), bytes, "{}", content.escape_ascii());
        assert_eq!(len(&out), bytes, "{}", content.escape_ascii());
        let mut input = out.as_slice();
        let element = take(&mut input).expect("own bytes");
        element.with_bytes(|decoded| assert_eq!(decoded, content));
        assert!(input.is_empty());
        for cut in 0..out.len() {
            assert_eq!(take(&mut &out[..cut]), Err(Malformed));
        }
    }

    #[test]
    fn numbers_take_the_bytes_of_their_range() {
        for (numbers, bytes) in [
            (vec![0, 1, 127], 1),
            (vec![128, 4095, -1, -4096], 2),
            (vec![4096, -4097, 0x7fff, -0x8000], 3),
            (vec![0x8000, -0x8001, 0x7f_ffff, -0x80_0000], 4),
            (vec![0x80_0000, -0x80_0001, i64::from(i32::MAX), i64::from(i32::MIN)], 5),
            (vec![1 << 31, i64::from(i32::MIN) - 1, i64::MAX, i64::MIN], 9),
        ] {
            for number in numbers {
                check(number.to_string().as_bytes(), bytes);
                assert_eq!(listpack_integer_bytes(number), bytes + 1);
            }
        }
    }

    #[test]
    fn other_content_takes_its_bytes_and_a_header() {
        for text in ["", "x", "-0", "01", "+1", " 1", "9223372036854775808", "-"] {
            check(text.as_bytes(), text.len() + 1);
        }
        for (len, header) in [(63, 1), (64, 2), (4095, 2), (4096, 5), (70_000, 5)] {
            check(&vec![b'x'; len], len + header);
        }
        assert_eq!(take(&mut &[0xf5][..]), Err(Malformed));
        assert_eq!(take(&mut &[0xff][..]), Err(Malformed));
    }

    #[test]
    fn back_lengths_have_seven_bits_a_byte() {
        for (bytes, total) in [(127, 128), (128, 130), (16_382, 16_384), (16_383, 16_386)] {
            assert_eq!(listpack_bytes(bytes), total);
        }
    }
}
