//! Invariants for every input: called by the fuzzers, by the tests that replay their corpora, and
//! by the property tests. A violation panics.

use super::batch::{Fields, Request, RequestBatch};
use super::client::{Event, ResponseDecoder, encode_request};
use super::limits::{Limits, RequestError};
use super::request::RequestDecoder;

/// Inputs up to this length are also tried byte by byte.
const BYTEWISE_BYTES_MAX: usize = 4096;

/// Limits so low that short inputs reach them.
const NARROW: Limits =
    Limits { head_bytes_max: 64, fields_max: 2, target_bytes_max: 6, body_bytes_max: 4 };

/// Requests: every split of the input into pieces gives the same requests, the same bytes used and
/// the same error; encoding the decoded requests and decoding them again changes nothing.
pub fn check_requests(data: &[u8]) {
    for limits in [Limits::DEFAULT, NARROW] {
        let whole = decode_in_pieces(data, &limits, data.len().max(1), usize::MAX);
        for (piece_bytes, requests_max) in [(1, usize::MAX), (3, 1), (17, 2), (700, 3), (5000, 64)]
        {
            if piece_bytes >= 700 || data.len() <= BYTEWISE_BYTES_MAX {
                let pieces = decode_in_pieces(data, &limits, piece_bytes, requests_max);
                assert_eq!(pieces, whole, "pieces of {piece_bytes} bytes");
            }
        }
    }
    let decoded = decode_in_pieces(data, &Limits::DEFAULT, data.len().max(1), usize::MAX);
    for request in decoded.requests {
        check_again(&request);
    }
}

/// A decoded request that is forwarded, as by a proxy, decodes to the same single request.
fn check_again(request: &Owned) {
    let headers: Vec<(&str, &[u8])> = request
        .headers
        .iter()
        .filter(|(name, _)| {
            let framing = ["content-length", "transfer-encoding", "expect", "host"];
            !framing.iter().any(|other| name.eq_ignore_ascii_case(other))
        })
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .chain([("Host", &b"a"[..])])
        .collect();
    let mut encoded = Vec::new();
    encode_request(&request.method, &request.target, &headers, Some(&request.body), &mut encoded);
    // Room for an added Host line and for the length.
    let limits = Limits { head_bytes_max: 20 << 10, fields_max: 102, ..Limits::DEFAULT };
    let again = decode_in_pieces(&encoded, &limits, encoded.len(), usize::MAX);
    assert_eq!((again.error, again.requests.len(), again.consumed_bytes), (None, 1, encoded.len()));
    let again = &again.requests[0];
    assert_eq!((&again.method, &again.target), (&request.method, &request.target));
    assert_eq!(again.body, request.body);
}

/// Answers: every split of the input into pieces gives the same heads, bodies and errors.
pub fn check_responses(data: &[u8]) {
    for is_to_head in [false, true] {
        let whole = responses_in_pieces(data, is_to_head, data.len().max(1));
        for piece_bytes in [1, 3, 17, 700, 5000] {
            if piece_bytes >= 700 || data.len() <= BYTEWISE_BYTES_MAX {
                let pieces = responses_in_pieces(data, is_to_head, piece_bytes);
                assert_eq!(pieces, whole, "pieces of {piece_bytes} bytes");
            }
        }
    }
}

/// Heads and bodies as text, and an error as the last item.
#[cfg(test)]
pub(super) fn responses_of(data: &[u8], is_to_head: bool) -> Vec<String> {
    responses_in_pieces(data, is_to_head, data.len().max(1))
}

#[derive(Debug, PartialEq)]
struct Owned {
    method: Vec<u8>,
    target: Vec<u8>,
    headers: Vec<(String, Vec<u8>)>,
    trailers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    keeps_alive: bool,
}

impl Owned {
    fn of(request: &Request<'_>) -> Self {
        let path = request.path();
        assert!(!path.is_empty());
        assert!(request.query().is_none_or(|query| query.len() < request.target().len()));
        Self {
            method: request.method_text().to_vec(),
            target: request.target().to_vec(),
            headers: owned_lines(request.headers()),
            trailers: owned_lines(request.trailers()),
            body: request.body().to_vec(),
            keeps_alive: request.keeps_alive(),
        }
    }
}

fn owned_lines(fields: Fields<'_>) -> Vec<(String, Vec<u8>)> {
    let lines = fields.map(|(name, value)| {
        assert!(!name.is_empty());
        assert!(!value.iter().any(|byte| b"\r\n\0".contains(byte)));
        (name.to_owned(), value.to_vec())
    });
    lines.collect()
}

#[derive(Debug, PartialEq)]
struct Decoded {
    requests: Vec<Owned>,
    consumed_bytes: usize,
    error: Option<RequestError>,
}

/// Decodes like a connection that receives `piece_bytes` at a time.
fn decode_in_pieces(
    data: &[u8],
    limits: &Limits,
    piece_bytes: usize,
    requests_max: usize,
) -> Decoded {
    let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
    let mut decoded = Decoded { requests: Vec::new(), consumed_bytes: 0, error: None };
    let mut end = 0;
    while end < data.len() && !decoder.has_ended() {
        end = data.len().min(end + piece_bytes);
        loop {
            let input = &data[decoded.consumed_bytes..end];
            let used = decoder.decode(input, limits, requests_max, &mut batch);
            assert!(used <= input.len());
            assert!(batch.len() <= requests_max);
            assert!(decoder.needed() <= input.len().max(16 << 10));
            for index in 0..batch.len() {
                assert!(batch.end(index) <= used);
                decoded.requests.push(Owned::of(&batch.get(index, input)));
            }
            decoded.consumed_bytes += used;
            decoded.error = batch.error();
            if used == 0 || decoder.has_ended() {
                break;
            }
        }
    }
    decoded
}

/// Reads like a connection that receives `piece_bytes` at a time and then ends.
fn responses_in_pieces(data: &[u8], is_to_head: bool, piece_bytes: usize) -> Vec<String> {
    let mut decoder = ResponseDecoder::new();
    decoder.expect_to_head(is_to_head);
    let (mut words, mut body) = (Vec::new(), Vec::new());
    let (mut at, mut end) = (0, 0);
    loop {
        match decoder.decode(&data[at..end], &Limits::DEFAULT) {
            Err(error) => {
                words.push(format!("error: {error}"));
                return words;
            }
            Ok((0, Event::Unfinished)) if end == data.len() => break,
            Ok((0, Event::Unfinished)) => end = data.len().min(end + piece_bytes),
            Ok((used, event)) => {
                at += used;
                match event {
                    Event::Unfinished => {}
                    Event::Head(head) => {
                        let mut text = head.status.to_string();
                        for (name, value) in head.headers() {
                            text += " ";
                            text += name;
                            text += "=";
                            text += &value.escape_ascii().to_string();
                        }
                        text += if head.keeps_alive { " keep" } else { " close" };
                        words.push(text);
                    }
                    Event::Body(piece) => {
                        assert!(!piece.is_empty());
                        body.extend_from_slice(piece);
                    }
                    Event::End => words.push(std::mem::take(&mut body).escape_ascii().to_string()),
                }
            }
        }
    }
    match decoder.end_of_input() {
        Ok(true) => words.push(body.escape_ascii().to_string()),
        Ok(false) if at == data.len() => {}
        // The decoder only tracks complete lines.
        Ok(false) => words.push("error: the connection ended inside a response".to_owned()),
        Err(error) => words.push(format!("error: {error}")),
    }
    words
}
