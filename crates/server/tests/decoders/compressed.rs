//! Small encodings of large values.

use wire::rdb::{Version, end_payload, put_length};

/// Bytes that a copy of LZF appends.
const COPY_BYTES: usize = 264;

/// A payload of RESTORE: a type, then `head`, then this string.
pub(crate) fn payload(kind: u8, head: &[u8], string: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut out = [&[kind], head, string, tail].concat();
    end_payload(&mut out, Version::WRITTEN);
    out
}

/// `start`, then `part` repeated until there are about `bytes`, then `end`, as a compressed string.
pub(crate) fn repeated(start: &[u8], part: &[u8], bytes: usize, end: &[u8]) -> Vec<u8> {
    // Whole parts: a copy has 264 bytes, and so has one that repeats parts of 2, 3, 4 or 8 bytes.
    assert_eq!(COPY_BYTES % part.len(), 0);
    let copies = bytes / COPY_BYTES;
    let literal = |text: &[u8]| {
        let parts = text.chunks(32);
        let one = |part: &[u8]| [&[u8::try_from(part.len() - 1).unwrap()], part].concat();
        parts.flat_map(one).collect::<Vec<u8>>()
    };
    let distance = u8::try_from(part.len() - 1).unwrap();
    let copied = [0xe0, 0xff, distance].repeat(copies);
    let compressed = [literal(start), literal(part), copied, literal(end)].concat();
    let len = start.len() + part.len() + copies * COPY_BYTES + end.len();
    let mut out = vec![0xc3];
    put_length(&mut out, compressed.len() as u64);
    put_length(&mut out, len as u64);
    out.extend_from_slice(&compressed);
    out
}

/// Parts of [`repeated`], with the first one.
fn parts(part: &[u8], bytes: usize) -> usize {
    1 + bytes / COPY_BYTES * (COPY_BYTES / part.len())
}

fn le32(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap().to_le_bytes()
}

/// A listpack with elements of two bytes after `head`.
pub(crate) fn listpack(head: &[u8], part: &[u8], bytes: usize) -> Vec<u8> {
    let len = 7 + head.len() + parts(part, bytes) * part.len();
    let start = [&le32(len)[..], &[0xff, 0xff], head].concat();
    repeated(&start, part, bytes, &[0xff])
}

/// A ziplist of the number 1.
pub(crate) fn ziplist(bytes: usize) -> Vec<u8> {
    let part = [2, 0xf2];
    let len = 11 + 2 + parts(&part, bytes) * 2;
    let start = [&le32(len)[..], &le32(len - 3), &[0xff, 0xff, 0, 0xf2]].concat();
    repeated(&start, &part, bytes, &[0xff])
}

/// An intset of zeros.
pub(crate) fn intset(bytes: usize) -> Vec<u8> {
    let part = [0, 0];
    let start = [le32(2), le32(parts(&part, bytes))].concat();
    // The last literal is the last member.
    repeated(&start, &part, bytes - COPY_BYTES, &[0; COPY_BYTES])
}

/// A part of a stream: entries without fields.
pub(crate) fn stream_part(bytes: usize) -> Vec<u8> {
    let entry = [2, 1, 0, 1, 1, 1, 3, 1];
    let count = le32(parts(&entry, bytes));
    let head = [&[0xf3], &count[..], &[5, 0, 1, 0, 1, 0, 1]].concat();
    listpack(&head, &entry, bytes)
}
