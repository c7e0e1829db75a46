//! Compression of the upstream's responses, for clients that accept it.
//!
//! All bytes that arrive together are compressed and forwarded together, so a response that is
//! generated slowly is not delayed.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use wire::http::{Fields, Request, ResponseHead};

use super::proxy::has_token;
use crate::content::encoding::{self, COMPRESSED_BYTES_MIN, Coding};
use crate::content::media;

/// Maximum number of responses that are compressed at a time, per worker: an encoder takes 0.3 MiB.
/// Further ones are forwarded as they are.
const PACKINGS_MAX: usize = 64;
/// Input that is compressed before others are served: about a millisecond.
pub(super) const PACKED_PER_TURN_BYTES: usize = 64 << 10;
/// Headers whose value holds only for the bytes as the upstream sends them.
// Source: RFC 9530 2, 3 (digests); RFC 1864 (Content-MD5, obsolete)
const DIGESTS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];

/// Whether a client accepts a compressed response to this request. A range refers to the bytes of
/// the upstream.
// Source: RFC 9110 12.5.3 (Accept-Encoding), 14.2 (Range); RFC 9111 5.2.1.6 (no-transform)
pub(super) fn is_accepted(request: &Request<'_>) -> bool {
    let headers = request.headers();
    headers.clone().get("range").is_none()
        && !has_token(headers.clone(), "cache-control", b"no-transform")
        && encoding::choose(headers, |coding| coding == Coding::Gzip).is_some()
}

/// Whether a response may be compressed: its bytes then depend on what the client accepts.
/// Event streams consist of short messages.
// Source: RFC 9110 7.7 (transformations), RFC 9111 5.2.2.6 (no-transform)
pub(super) fn is_packable(head: &ResponseHead<'_>) -> bool {
    let headers = head.headers();
    let get = |name: &str| headers.clone().get(name);
    !matches!(head.status, 204 | 206 | 304)
        && head.content_length.is_none_or(|bytes| bytes >= COMPRESSED_BYTES_MIN as u64)
        && get("content-type").is_some_and(media::is_compressible)
        && get("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case(b"identity"))
        && get("content-range").is_none()
        && !DIGESTS.iter().any(|name| get(name).is_some())
        && !has_token(headers.clone(), "cache-control", b"no-transform")
}

/// Whether the response has no header for caches yet that its bytes depend on the client.
pub(super) fn lacks_vary(headers: &Fields<'_>) -> bool {
    !has_token(headers.clone(), "vary", b"accept-encoding")
        && !has_token(headers.clone(), "vary", b"*")
}

/// Returns a header line as it is for the compressed response; `None` if it does not apply.
// Source: RFC 9110 8.8.1 (a strong validator changes with the bytes), 14.3 (Accept-Ranges)
pub(super) fn packed_line<'a>(
    name: &str,
    value: &'a [u8],
    weak: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    if is("accept-ranges") || is("content-encoding") {
        return None;
    }
    if is("etag") && !value.starts_with(b"W/") {
        weak.extend_from_slice(b"W/");
        weak.extend_from_slice(value);
        return Some(weak);
    }
    Some(value)
}

/// Starts compressions of one worker.
#[derive(Debug)]
pub(super) struct Packings {
    /// `None` if responses are not compressed. Each compression in progress has a reference.
    count: Option<Arc<()>>,
}

impl Packings {
    pub(super) fn new(is_enabled: bool) -> Packings {
        Packings { count: is_enabled.then(Arc::default) }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.count.is_some()
    }

    /// `None` if too many are in progress.
    pub(super) fn begin(&self) -> Option<Packing> {
        let count = self.count.as_ref()?;
        (Arc::strong_count(count) <= PACKINGS_MAX).then(|| Packing {
            encoder: GzEncoder::new(Vec::new(), Compression::fast()),
            _count: Arc::clone(count),
        })
    }
}

/// A response being compressed.
#[derive(Debug)]
pub(super) struct Packing {
    encoder: GzEncoder<Vec<u8>>,
    _count: Arc<()>,
}

const IN_MEMORY: &str = "writing to memory cannot fail";

impl Packing {
    pub(super) fn add(&mut self, body: &[u8]) {
        self.encoder.write_all(body).expect(IN_MEMORY);
    }

    /// Returns what the client needs to read all of the input so far.
    pub(super) fn flush(&mut self) -> Vec<u8> {
        self.encoder.flush().expect(IN_MEMORY);
        std::mem::take(self.encoder.get_mut())
    }

    /// Returns the rest.
    pub(super) fn finish(self) -> Vec<u8> {
        self.encoder.finish().expect(IN_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::MultiGzDecoder;
    use wire::http::{Event, Limits, RequestBatch, RequestDecoder, ResponseDecoder};

    use super::*;

    #[track_caller]
    fn check_response(lines: &str, expected: bool) {
        let text = format!("HTTP/1.1 {lines}\r\n\r\n");
        let mut decoder = ResponseDecoder::new();
        let Ok((_, Event::Head(head))) = decoder.decode(text.as_bytes(), &Limits::DEFAULT) else {
            panic!("{lines}: not a head");
        };
        assert_eq!(is_packable(&head), expected, "{lines}");
    }

    #[test]
    fn only_plain_text_is_compressed() {
        for kind in ["application/json", "text/html; charset=utf-8", "application/problem+json"] {
            check_response(&format!("200 OK\r\nContent-Type: {kind}"), true);
        }
        for kind in ["image/png", "text/event-stream", "application/octet-stream", "video/mp4"] {
            check_response(&format!("200 OK\r\nContent-Type: {kind}"), false);
        }
        check_response("200 OK", false);
        let json = |status: &str, more: &str| {
            format!("{status}\r\nContent-Type: application/json\r\n{more}")
        };
        check_response(&json("200 OK", "Content-Length: 512"), true);
        check_response(&json("200 OK", "Content-Length: 511"), false);
        check_response(&json("404 Not Found", "A: b"), true);
        check_response(&json("206 Partial Content", "Content-Range: bytes 0-9/1000"), false);
        check_response(&json("304 Not Modified", "A: b"), false);
        check_response(&json("200 OK", "Content-Encoding: br"), false);
        check_response(&json("200 OK", "Content-Encoding: identity"), true);
        check_response(&json("200 OK", "Cache-Control: private, No-Transform"), false);
        check_response(&json("200 OK", "Content-Digest: sha-256=:AA==:"), false);
    }

    #[test]
    fn clients_decide() {
        for (lines, expected) in [
            ("Accept-Encoding: gzip, br\r\n", true),
            ("Accept-Encoding: br\r\n", false),
            ("Accept-Encoding: gzip;q=0\r\n", false),
            ("Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n", false),
            ("Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n", false),
            ("", false),
        ] {
            let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let mut batch = RequestBatch::new();
            RequestDecoder::new().decode(input.as_bytes(), &Limits::DEFAULT, 1, &mut batch);
            assert_eq!(is_accepted(&batch.get(0, input.as_bytes())), expected, "{lines}");
        }
    }

    #[test]
    fn entity_tags_become_weak() {
        let line = |name: &str, value: &str| {
            let mut weak = Vec::new();
            let line = packed_line(name, value.as_bytes(), &mut weak);
            line.map(|line| String::from_utf8(line.to_vec()).unwrap())
        };
        assert_eq!(line("ETag", "\"a\"").as_deref(), Some("W/\"a\""));
        assert_eq!(line("etag", "W/\"a\"").as_deref(), Some("W/\"a\""));
        assert_eq!(line("Accept-Ranges", "bytes"), None);
        assert_eq!(line("X", "y").as_deref(), Some("y"));
    }

    #[test]
    fn each_part_can_be_read_when_it_is_flushed() {
        let mut packing = Packings::new(true).begin().unwrap();
        let mut packed = Vec::new();
        for part in ["{\"a\":1}", "{\"b\":2}"] {
            packing.add(part.as_bytes());
            packed.extend(packing.flush());
            let mut found = vec![0; 7];
            let read = MultiGzDecoder::new(packed.as_slice()).read_exact(&mut found);
            assert!(read.is_ok() && found.starts_with(b"{\"a\""), "{read:?}");
        }
        packed.extend(packing.finish());
        let mut text = String::new();
        MultiGzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"a\":1}{\"b\":2}");
    }

    #[test]
    fn compressions_are_limited() {
        let packings = Packings::new(true);
        let mut all: Vec<Packing> = std::iter::from_fn(|| packings.begin()).collect();
        assert_eq!(all.len(), PACKINGS_MAX);
        all.pop();
        assert!(packings.begin().is_some());
        assert!(Packings::new(false).begin().is_none());
    }
}
