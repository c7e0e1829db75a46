//! Numbers, LEB128 or of fixed length, and length-prefixed byte strings, as log records and snapshots hold them.

/// The bytes are not what `encode` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes of a value")]
pub struct Malformed;

const CONTINUES: u8 = 0x80;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= u64::from(CONTINUES) {
        out.push((number & 0x7f) as u8 | CONTINUES);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

pub(crate) fn take_varint(input: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        let bits = u64::from(byte & !CONTINUES);
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        number |= bits << shift;
        if byte & CONTINUES == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
    let (bytes, rest) = input.split_at_checked(len).ok_or(Malformed)?;
    *input = rest;
    Ok(bytes)
}

pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn take_u64(input: &mut &[u8]) -> Result<u64, Malformed> {
    let (bytes, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
    *input = rest;
    Ok(u64::from_le_bytes(*bytes))
}

pub(crate) fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    let (bytes, rest) = input.split_first_chunk().ok_or(Malformed)?;
    *input = rest;
    Ok(u32::from_le_bytes(*bytes))
}

pub(crate) fn take_u8(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (byte, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    Ok(*byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_edges_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(take_varint(&mut bytes.as_slice()), Ok(number));
        }
        assert_eq!(take_varint(&mut [0xff; 10].as_slice()), Err(Malformed));
        assert_eq!(take_varint(&mut [0x80].as_slice()), Err(Malformed));
    }
}
