//! Segments with checksums, which contain the envelopes in version 5.

use super::compression::{COMPRESSED_BYTES_MAX, lz4_block};
use super::envelope::HEADER_BYTES;
use super::limits::SegmentError;

/// Maximum payload bytes of one segment, before and after compression.
pub const PAYLOAD_BYTES_MAX: usize = (1 << LENGTH_BITS) - 1;
const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const HEADER_CHECKSUM_BYTES: usize = 3;
const PAYLOAD_CHECKSUM_BYTES: usize = 4;
/// Maximum overhead of a segment in addition to its payload.
const SEGMENT_BYTES: usize = 5 + HEADER_CHECKSUM_BYTES + PAYLOAD_CHECKSUM_BYTES;
/// Bytes that the checksum of payloads includes before the payload.
const PAYLOAD_CHECKSUM_SEED: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

/// The format of a connection's segments, negotiated in STARTUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentFormat {
    Plain,
    Lz4,
}

impl SegmentFormat {
    fn header_bytes(self) -> usize {
        match self {
            Self::Plain => 3,
            Self::Lz4 => 5,
        }
    }
}

/// The payload of one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    pub payload: Payload<'a>,
    /// Whether it contains one or more complete envelopes; otherwise it is a part of one large
    /// envelope.
    pub is_self_contained: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A slice of the input.
    Received(&'a [u8]),
    Decompressed(Vec<u8>),
}

impl Payload<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Received(bytes) => bytes,
            Self::Decompressed(bytes) => bytes,
        }
    }
}

/// Decodes the segment at the front of `input`: the segment and the bytes it takes, or `None` if it
/// is incomplete.
// Source: native_protocol_v5.spec 2.2 "Frame format"
pub fn decode_segment(
    input: &[u8],
    format: SegmentFormat,
) -> Result<Option<(Segment<'_>, usize)>, SegmentError> {
    let header_bytes = format.header_bytes();
    let Some(header) = input.get(..header_bytes + HEADER_CHECKSUM_BYTES) else { return Ok(None) };
    let (header, checksum) = header.split_at(header_bytes);
    let found = u32::try_from(little_endian(checksum)).expect("3 bytes");
    let computed = crc24(header);
    if found != computed {
        return Err(SegmentError::HeaderChecksum { found, computed });
    }
    let bits = little_endian(header);
    let length = |shift: u32| usize::try_from(bits >> shift & LENGTH_MASK).expect("17 bits");
    let (payload_bytes, original_bytes, flag_at) = match format {
        SegmentFormat::Plain => (length(0), 0, LENGTH_BITS),
        SegmentFormat::Lz4 => (length(0), length(LENGTH_BITS), 2 * LENGTH_BITS),
    };
    let is_self_contained = bits >> flag_at & 1 == 1;
    let payload_at = header_bytes + HEADER_CHECKSUM_BYTES;
    let end = payload_at + payload_bytes + PAYLOAD_CHECKSUM_BYTES;
    let Some(rest) = input.get(payload_at..end) else { return Ok(None) };
    let (payload, checksum) = rest.split_at(payload_bytes);
    let found = u32::try_from(little_endian(checksum)).expect("4 bytes");
    let computed = crc32(payload);
    if found != computed {
        return Err(SegmentError::PayloadChecksum { found, computed });
    }
    // An original length of zero marks an uncompressed payload.
    let payload = if original_bytes == 0 {
        Payload::Received(payload)
    } else {
        let body = lz4_block(payload, original_bytes, PAYLOAD_BYTES_MAX);
        Payload::Decompressed(body.ok_or(SegmentError::Compression)?)
    };
    Ok(Some((Segment { payload, is_self_contained }, end)))
}

/// Appends `envelopes`, a sequence of complete messages, as segments: each contains as many
/// messages as fit, and a message too large for one is split over segments of its own. The segments
/// of a very long message are not compressed.
pub fn encode_segments(envelopes: &[u8], format: SegmentFormat, out: &mut Vec<u8>) {
    let mut rest = envelopes;
    while !rest.is_empty() {
        let whole = whole_envelopes(rest);
        let (chunk, is_self_contained) = if whole == 0 {
            let (envelope, _) = rest.split_at(envelope_bytes(rest));
            (envelope, false)
        } else {
            (&rest[..whole], true)
        };
        let is_compressed = chunk.len() <= COMPRESSED_BYTES_MAX;
        if !is_compressed {
            // One allocation: growing step by step would take longer than copying the content.
            out.reserve(chunk.len() + chunk.len().div_ceil(PAYLOAD_BYTES_MAX) * SEGMENT_BYTES);
        }
        for piece in chunk.chunks(PAYLOAD_BYTES_MAX) {
            encode_segment(piece, (is_self_contained, is_compressed), format, out);
        }
        rest = &rest[chunk.len()..];
    }
}

/// Bytes of the messages at the front that fit into one segment together.
fn whole_envelopes(input: &[u8]) -> usize {
    let mut end = 0;
    while end < input.len() {
        let next = end + envelope_bytes(&input[end..]);
        if next > PAYLOAD_BYTES_MAX {
            break;
        }
        end = next;
    }
    end
}

/// Bytes of the message at the front, including its header.
fn envelope_bytes(input: &[u8]) -> usize {
    let length = input[HEADER_BYTES - 4..HEADER_BYTES].try_into().expect("4 bytes");
    HEADER_BYTES + u32::from_be_bytes(length) as usize
}

fn encode_segment(
    payload: &[u8],
    (is_self_contained, is_compressed): (bool, bool),
    format: SegmentFormat,
    out: &mut Vec<u8>,
) {
    let flag = u64::from(is_self_contained);
    match format {
        SegmentFormat::Plain => {
            let bits = payload.len() as u64 | flag << LENGTH_BITS;
            encode_parts(bits, format, payload, out);
        }
        SegmentFormat::Lz4 => {
            let compressed = is_compressed.then(|| lz4_flex::block::compress(payload));
            // A payload that does not become smaller is sent uncompressed.
            let smaller = compressed.as_deref().filter(|it| it.len() < payload.len());
            let (body, original_bytes) = smaller.map_or((payload, 0), |it| (it, payload.len()));
            let bits = body.len() as u64
                | (original_bytes as u64) << LENGTH_BITS
                | flag << (2 * LENGTH_BITS);
            encode_parts(bits, format, body, out);
        }
    }
}

fn encode_parts(bits: u64, format: SegmentFormat, payload: &[u8], out: &mut Vec<u8>) {
    let header = bits.to_le_bytes();
    let header = &header[..format.header_bytes()];
    out.extend_from_slice(header);
    out.extend_from_slice(&crc24(header).to_le_bytes()[..HEADER_CHECKSUM_BYTES]);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32(payload).to_le_bytes());
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The checksum of headers, computed bit by bit: they have 3 or 5 bytes.
// Source: native_protocol_v5.spec 2.2.1 "Frame header", CRC-24 with a polynomial of 0x1974F0B
fn crc24(header: &[u8]) -> u32 {
    const START: u32 = 0x0087_5060;
    const POLYNOMIAL: u32 = 0x0197_4F0B;
    header.iter().fold(START, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 16, |sum, _| {
            let shifted = sum << 1;
            if shifted & 0x0100_0000 == 0 { shifted } else { shifted ^ POLYNOMIAL }
        })
    })
}

fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&PAYLOAD_CHECKSUM_SEED);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [SegmentFormat; 2] = [SegmentFormat::Plain, SegmentFormat::Lz4];

    fn envelope(body: &[u8]) -> Vec<u8> {
        let mut out = vec![5, 0, 0, 0, 7];
        out.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    /// All segments of `input`, which must have no bytes after them.
    fn segments(mut input: &[u8], format: SegmentFormat) -> Vec<(Vec<u8>, bool)> {
        let mut found = Vec::new();
        while let Some((segment, bytes)) = decode_segment(input, format).unwrap() {
            found.push((segment.payload.bytes().to_vec(), segment.is_self_contained));
            input = &input[bytes..];
        }
        assert!(input.is_empty());
        found
    }

    /// The expected bytes were computed with zlib's CRC32 and a CRC24 written in another language.
    #[test]
    fn a_segment_has_the_bytes_of_the_specification() {
        let mut out = Vec::new();
        encode_segment(b"abc", (true, true), SegmentFormat::Plain, &mut out);
        assert_eq!(
            out,
            [0x03, 0x00, 0x02, 0x42, 0x96, 0x7c, 0x61, 0x62, 0x63, 0x08, 0x7a, 0x36, 0xc5]
        );
        assert_eq!(segments(&out, SegmentFormat::Plain), [(b"abc".to_vec(), true)]);
    }

    #[test]
    fn small_envelopes_share_a_segment_and_large_ones_are_cut() {
        let small: Vec<u8> = (0..3).flat_map(|_| envelope(b"x")).collect();
        let large = envelope(&vec![7; 2 * PAYLOAD_BYTES_MAX]);
        for format in FORMATS {
            let mut out = Vec::new();
            encode_segments(&[&small[..], &large, &small].concat(), format, &mut out);
            let found = segments(&out, format);
            let flags: Vec<bool> = found.iter().map(|(_, whole)| *whole).collect();
            assert_eq!(flags, [true, false, false, false, true]);
            assert_eq!(found[0].0, small);
            assert_eq!(
                found[1..4].iter().map(|(bytes, _)| &bytes[..]).collect::<Vec<_>>().concat(),
                large
            );
            assert_eq!(found[4].0, small);
        }
    }

    #[test]
    fn very_long_messages_are_not_compressed() {
        for (bytes, is_compressed) in [(COMPRESSED_BYTES_MAX, false), (1 << 20, true)] {
            let message = envelope(&vec![7; bytes]);
            let mut out = Vec::new();
            encode_segments(&message, SegmentFormat::Lz4, &mut out);
            assert_eq!(out.len() < bytes / 2, is_compressed);
            let found = segments(&out, SegmentFormat::Lz4);
            assert_eq!(found.into_iter().flat_map(|(bytes, _)| bytes).collect::<Vec<_>>(), message);
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for format in FORMATS {
            let mut out = Vec::new();
            encode_segments(&envelope(&[b'a'; 40]), format, &mut out);
            for bit in 0..out.len() * 8 {
                let mut damaged = out.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_segment(&damaged, format).is_err(), "{format:?} bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_messages_are_read_back_and_incomplete_until_their_last_byte(
            sizes in proptest::collection::vec(0_usize..200_000, 1..5),
        ) {
            let messages: Vec<u8> = sizes.iter().flat_map(|&size| envelope(&vec![1; size])).collect();
            for format in FORMATS {
                let mut out = Vec::new();
                encode_segments(&messages, format, &mut out);
                let found = segments(&out, format);
                let joined: Vec<u8> = found.into_iter().flat_map(|(bytes, _)| bytes).collect();
                prop_assert_eq!(&joined, &messages);
                let (_, first) = decode_segment(&out, format).unwrap().unwrap();
                prop_assert_eq!(decode_segment(&out[..first - 1], format), Ok(None));
            }
        }
    }
}
