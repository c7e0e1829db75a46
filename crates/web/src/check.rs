//! Properties that hold for every request: called by the fuzzers and by the tests that replay their
//! corpora. A violated property panics.

use wire::http::{Limits, Method, RequestBatch, RequestDecoder};

use crate::content::path;
use crate::worker::encode_for_check;

/// Maximum number of requests in one input.
const REQUESTS_MAX: usize = 64;

/// Checks that a file name never leaves the root, and that the upstream parses a forwarded request
/// as a single request for the routed path.
pub fn check_heads(data: &[u8]) {
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    decoder.decode(data, &Limits::DEFAULT, REQUESTS_MAX, &mut batch);
    for index in 0..batch.len() {
        let request = batch.get(index, data);
        if let Ok(name) = path::parse(request.path()) {
            let mut parts = name.bytes.split(|&byte| byte == b'/');
            let is_safe = |part: &[u8]| !part.is_empty() && !matches!(part, b"." | b"..");
            assert!(name.bytes.is_empty() || parts.all(is_safe), "{}", name.bytes.escape_ascii());
            assert!(!name.bytes.contains(&0));
            assert!(!path::has_dot_segments(request.path()), "{}", request.path().escape_ascii());
        }
        if matches!(request.method(), Method::Connect | Method::Trace | Method::Other) {
            continue;
        }
        let sent = encode_for_check(&request);
        let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
        // The server's own additions: header lines, and the path of a folder.
        let limits = Limits {
            head_bytes_max: 2 * Limits::DEFAULT.head_bytes_max,
            target_bytes_max: 2 * Limits::DEFAULT.target_bytes_max,
            fields_max: Limits::DEFAULT.fields_max + 8,
            ..Limits::DEFAULT
        };
        let used = decoder.decode(&sent, &limits, REQUESTS_MAX, &mut batch);
        assert_eq!((batch.error(), batch.len(), used), (None, 1, sent.len()));
        let read = batch.get(0, &sent);
        assert_eq!(read.method_text(), request.method_text());
        assert_eq!(read.body(), request.body());
        assert_eq!(path::has_dot_segments(read.path()), path::has_dot_segments(request.path()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Minimum number of files: an empty corpus would make the test vacuous.
    const FILES_MIN: usize = 20;

    #[test]
    fn the_corpus_of_heads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http_request");
        let mut count = 0;
        for file in fs::read_dir(&folder).expect("the corpus is checked in") {
            let path = file.unwrap().path();
            println!("{}", path.display());
            super::check_heads(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count >= FILES_MIN, "{count} files in {}", folder.display());
    }
}
