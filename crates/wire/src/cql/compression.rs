//! Compressed bodies.

use super::limits::{Limits, MalformedBody};

/// A longer response is sent uncompressed, which both sides must accept: compressing this much
/// takes some 20 ms.
pub(super) const COMPRESSED_BYTES_MAX: usize = 8 << 20;

/// A compression algorithm that a client may request in STARTUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Versions 3 to 5.
    Lz4,
    /// Versions 3 and 4.
    Snappy,
}

impl Compression {
    /// The name in OPTIONS and STARTUP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Lz4, Self::Snappy].into_iter().find(|known| known.name().eq_ignore_ascii_case(name))
    }

    /// Appends the compressed body, in the form of an envelope of versions 3 and 4.
    // Source: native_protocol_v4.spec 5 "Compression"
    pub(super) fn compress(self, body: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Lz4 => {
                let length =
                    u32::try_from(body.len()).expect("a body is checked to be below 2 GiB");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&lz4_flex::block::compress(body));
            }
            Self::Snappy => {
                let compressed = snap::raw::Encoder::new().compress_vec(body);
                out.extend_from_slice(&compressed.expect("a body is checked to be below 2 GiB"));
            }
        }
    }

    /// Decompresses the body of an envelope whose flag marks it as compressed. The announced length
    /// is checked against the limits before memory is allocated for it.
    pub fn decompress(self, body: &[u8], limits: &Limits) -> Result<Vec<u8>, MalformedBody> {
        match self {
            Self::Lz4 => {
                let (length, block) = body.split_first_chunk().ok_or(MalformedBody::Compression)?;
                let length = u32::from_be_bytes(*length) as usize;
                lz4_block(block, length, limits.body_bytes_max).ok_or(MalformedBody::Compression)
            }
            Self::Snappy => {
                let length = snap::raw::decompress_len(body).ok();
                let length_max = body.len().saturating_mul(SNAPPY_RATIO_MAX);
                length
                    .filter(|length| *length <= limits.body_bytes_max.min(length_max))
                    .and_then(|_| snap::raw::Decoder::new().decompress_vec(body).ok())
                    .ok_or(MalformedBody::Compression)
            }
        }
    }
}

/// Maximum expansion of one byte of a Snappy block: three bytes copy up to 64.
// Source: snappy, `format_description.txt` 2.2 "Copies"
const SNAPPY_RATIO_MAX: usize = 22;
/// Maximum expansion of one byte of an LZ4 block.
const LZ4_RATIO_MAX: usize = 255;

/// Decompresses a block to exactly `length` bytes.
pub(super) fn lz4_block(block: &[u8], length: usize, length_max: usize) -> Option<Vec<u8>> {
    if length > length_max || length > block.len().saturating_mul(LZ4_RATIO_MAX) {
        return None;
    }
    let mut body = vec![0; length];
    let count = lz4_flex::block::decompress_into(block, &mut body).ok()?;
    (count == length).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_survive_both_algorithms() {
        for compression in [Compression::Lz4, Compression::Snappy] {
            for body in [Vec::new(), b"abc".to_vec(), vec![b'x'; 100_000]] {
                let mut out = Vec::new();
                compression.compress(&body, &mut out);
                let back = compression.decompress(&out, &Limits::DEFAULT);
                assert_eq!(back.as_ref(), Ok(&body), "{compression:?}");
            }
            assert_eq!(Compression::from_name(compression.name()), Some(compression));
        }
    }

    #[test]
    fn very_long_bodies_stay_as_they_are() {
        for compression in [Compression::Lz4, Compression::Snappy] {
            for (bytes, is_compressed) in [(COMPRESSED_BYTES_MAX, false), (1 << 20, true)] {
                let mut out = vec![0x84, 0, 0, 0, 8, 0, 0, 0, 0];
                out.resize(out.len() + bytes, b'x');
                super::super::compress_body(&mut out, 0, Some(compression));
                assert_eq!(out[1] == 1, is_compressed, "the flag");
                assert_eq!(out.len() < bytes, is_compressed);
            }
        }
    }

    #[test]
    fn the_announced_length_is_limited() {
        let limits = Limits { body_bytes_max: 1000 };
        for compression in [Compression::Lz4, Compression::Snappy] {
            let mut out = Vec::new();
            compression.compress(&[0; 1001], &mut out);
            assert_eq!(compression.decompress(&out, &limits), Err(MalformedBody::Compression));
            for cut in 0..out.len() {
                assert!(compression.decompress(&out[..cut], &Limits::DEFAULT).is_err(), "{cut}");
            }
        }
        // 200 MB from 8 bytes.
        let lz4 = [0x0b, 0xeb, 0xc2, 0x00, 1, 2, 3, 4];
        let refused = Compression::Lz4.decompress(&lz4, &Limits::DEFAULT);
        assert_eq!(refused, Err(MalformedBody::Compression));
    }
}
