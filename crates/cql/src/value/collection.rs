//! Values with parts: each part follows its length in 4 bytes.

use thiserror::Error;

/// Bytes that are not a valid collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("Not enough bytes to read a part of a collection")]
pub struct Malformed;

/// Removes a 4-byte number from the front.
pub(crate) fn take_count(input: &mut &[u8]) -> Result<i32, Malformed> {
    let (count, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(i32::from_be_bytes(*count))
}

/// Removes one part from the front; None is null.
pub fn take_part<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Ok(bytes) = usize::try_from(take_count(input)?) else { return Ok(None) };
    let (part, rest) = input.split_at_checked(bytes).ok_or(Malformed)?;
    *input = rest;
    Ok(Some(part))
}

/// The parts of a list or set; of a map, alternating keys and values (`per_item` is 2).
// Source: native_protocol_v5.spec 6 "Data Type Serialization Formats", list, map and set
pub fn items(mut input: &[u8], per_item: usize) -> Result<Vec<&[u8]>, Malformed> {
    let count = usize::try_from(take_count(&mut input)?).map_err(|_| Malformed)?;
    // Every part takes at least 4 bytes, so a false count cannot cause a large allocation.
    let parts = count.checked_mul(per_item).filter(|parts| *parts <= input.len() / 4);
    let parts = parts.or((count == 0).then_some(0)).ok_or(Malformed)?;
    let found: Result<Vec<&[u8]>, Malformed> =
        (0..parts).map(|_| take_part(&mut input)?.ok_or(Malformed)).collect();
    if input.is_empty() { found } else { Err(Malformed) }
}

/// The parts of a tuple or of a user-defined type. Missing ones at the end are null, because fields
/// may have been added since.
pub fn fields(mut input: &[u8], count: usize) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        found.push(if input.is_empty() { None } else { take_part(&mut input)? });
    }
    if input.is_empty() { Ok(found) } else { Err(Malformed) }
}

/// Appends a part after its length.
pub fn put_part(part: Option<&[u8]>, out: &mut Vec<u8>) {
    match part {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            put_count(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends the number of parts.
pub fn put_count(count: usize, out: &mut Vec<u8>) {
    let count = i32::try_from(count).expect("values are below 2 GiB");
    out.extend_from_slice(&count.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_back_and_false_lengths_are_found() {
        let mut list = Vec::new();
        put_count(2, &mut list);
        put_part(Some(b"a"), &mut list);
        put_part(Some(b""), &mut list);
        assert_eq!(items(&list, 1), Ok(vec![&b"a"[..], b""]));
        assert_eq!(items(&list[..list.len() - 1], 1), Err(Malformed));
        assert_eq!(items(&[0, 0, 0, 0], 2), Ok(vec![]));
        assert_eq!(items(&[0x7f, 0xff, 0xff, 0xff], 2), Err(Malformed));
        assert_eq!(items(&[0xff, 0xff, 0xff, 0xff], 1), Err(Malformed));
        let mut tuple = Vec::new();
        put_part(Some(b"x"), &mut tuple);
        put_part(None, &mut tuple);
        assert_eq!(fields(&tuple, 3), Ok(vec![Some(&b"x"[..]), None, None]));
        assert_eq!(fields(&tuple, 1), Err(Malformed));
    }
}
