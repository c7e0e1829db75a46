//! Content codings: negotiation with the client, and compression.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use wire::http::Fields;

/// Shorter contents are not compressed, because the headers would offset the gain.
pub(crate) const COMPRESSED_BYTES_MIN: usize = 512;

/// A coding, in order of preference: the best compression first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    pub(crate) const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Returns its name in `Content-Encoding`.
    // Source: RFC 9110 8.4.1 (gzip), RFC 7932 (br), RFC 8878 (zstd)
    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns the extension of files in this coding.
    pub(crate) fn extension(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b".br",
            Coding::Zstd => b".zst",
            Coding::Gzip => b".gz",
        }
    }
}

/// Returns the best coding that `has` offers and the client accepts; `None` for the unencoded
/// content.
// Source: RFC 9110 12.5.3 (Accept-Encoding), 12.4.2 (quality values)
pub(crate) fn choose(headers: Fields<'_>, has: impl Fn(Coding) -> bool) -> Option<Coding> {
    let lines: Vec<&[u8]> = headers.get_all("accept-encoding").collect();
    let mut best: Option<(u16, Coding)> = None;
    for coding in Coding::ALL.into_iter().filter(|&coding| has(coding)) {
        let quality = quality(&lines, coding.name());
        if quality > 0 && best.is_none_or(|(most, _)| quality > most) {
            best = Some((quality, coding));
        }
    }
    best.map(|(_, coding)| coding)
}

/// Returns the client's weight for a coding, in thousandths; 0 if it is not accepted.
fn quality(lines: &[&[u8]], name: &str) -> u16 {
    let mut of_any = 0;
    for element in lines.iter().flat_map(|line| line.split(|&byte| byte == b',')) {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let weight =
            parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
        let weight = weight.map_or(1000, thousandths);
        if coding.eq_ignore_ascii_case(name.as_bytes()) {
            return weight;
        }
        if coding == b"*" {
            of_any = weight;
        }
    }
    of_any
}

/// Parses a weight: `0.25` -> 250. Malformed weights are 0.
fn thousandths(text: &[u8]) -> u16 {
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f32>().ok());
    match value {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 1000"
        )]
        Some(value) if (0.0..=1.0).contains(&value) => (value * 1000.0).round() as u16,
        _ => 0,
    }
}

/// Compresses the content with gzip; `None` if the result is not shorter.
pub(crate) fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    if content.len() < COMPRESSED_BYTES_MIN {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(content.len() / 2), Compression::default());
    encoder.write_all(content).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() < content.len())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use wire::http::{Limits, RequestBatch, RequestDecoder};

    use super::*;

    fn check(line: &str, has: &[Coding], expected: Option<Coding>) {
        let input = format!("GET / HTTP/1.0\r\nAccept-Encoding: {line}\r\n\r\n");
        let mut batch = RequestBatch::new();
        RequestDecoder::new().decode(input.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
        let headers = batch.get(0, input.as_bytes()).headers();
        assert_eq!(choose(headers, |coding| has.contains(&coding)), expected, "{line}");
    }

    #[test]
    fn clients_get_an_accepted_coding() {
        let all = Coding::ALL;
        check("gzip, deflate, br, zstd", &all, Some(Coding::Brotli));
        check("gzip, deflate, br, zstd", &[Coding::Gzip], Some(Coding::Gzip));
        check("gzip;q=1.0, br;q=0.5", &all, Some(Coding::Gzip));
        check("GZIP", &all, Some(Coding::Gzip));
        check("*", &all, Some(Coding::Brotli));
        check("*;q=0.1, br;q=0", &all, Some(Coding::Zstd));
        check("identity", &all, None);
        check("", &all, None);
        check("gzip;q=0", &all, None);
        check("gzip;q=x", &all, None);
        check("gzip;Q=0, br;Q=0.5", &all, Some(Coding::Brotli));
        check("br", &[], None);
    }

    #[test]
    fn gzip_can_be_unpacked_and_is_shorter() {
        let content = b"content ".repeat(200);
        let packed = gzip(&content).unwrap();
        assert!(packed.len() < content.len() / 4);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, content);
        assert_eq!(gzip(b"short"), None);
        let noise: Vec<u8> =
            (0..2000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(gzip(&noise).is_none_or(|packed| packed.len() < noise.len()));
    }
}
