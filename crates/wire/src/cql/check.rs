//! Invariants for any bytes: called by the fuzzers and, on their corpora, by the tests.

use super::{
    Compression, Direction, HEADER_BYTES, Header, Limits, PAYLOAD_BYTES_MAX, Request, Response,
    SegmentFormat, decode_request, decode_response, decode_segment, decompress_body,
};

/// Any bytes decode to requests or are rejected; every split of them has the same result. Decoded
/// requests are read to their end.
pub fn check_requests(data: &[u8]) {
    let limits = Limits { body_bytes_max: 1 << 20 };
    let mut input = data;
    let mut agreed = None;
    while let Ok(Some(header)) = Header::decode(input, Direction::Request, agreed, &limits) {
        for cut in 0..HEADER_BYTES {
            let part = Header::decode(&input[..cut], Direction::Request, agreed, &limits);
            assert_eq!(part, Ok(None), "a header is complete or incomplete");
        }
        agreed = Some(header.version);
        let Some(body) = input.get(HEADER_BYTES..header.envelope_bytes()) else { return };
        for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
            if let Ok(body) = decompress_body(&header, body, compression, &limits) {
                check_request(&header, &body);
            }
        }
        input = &input[header.envelope_bytes()..];
    }
}

fn check_request(header: &Header, body: &[u8]) {
    let Ok((request, _)) = decode_request(header, body) else { return };
    match request {
        Request::Query { parameters, .. } | Request::Execute { parameters, .. } => {
            assert_eq!(parameters.values.iter().count(), parameters.values.len());
        }
        Request::Batch(batch) => {
            for (_, values) in batch.statements.iter() {
                assert_eq!(values.iter().count(), values.len());
            }
            assert_eq!(batch.statements.iter().count(), batch.statements.len());
        }
        _ => {}
    }
}

/// Any bytes decode to responses or are rejected.
pub fn check_responses(data: &[u8]) {
    let limits = Limits { body_bytes_max: 1 << 20 };
    let mut input = data;
    while let Ok(Some(header)) = Header::decode(input, Direction::Response, None, &limits) {
        let Some(body) = input.get(HEADER_BYTES..header.envelope_bytes()) else { return };
        if let Ok((Response::Rows(rows), _)) = decode_response(&header, body) {
            assert_eq!(rows.cells().count(), rows.count * rows.metadata.columns);
        }
        input = &input[header.envelope_bytes()..];
    }
}

/// Any bytes decode to segments or are rejected; every prefix of an incomplete segment is
/// incomplete.
pub fn check_segments(data: &[u8]) {
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        let mut input = data;
        while let Ok(Some((segment, bytes))) = decode_segment(input, format) {
            assert!(bytes <= input.len());
            assert!(segment.payload.bytes().len() <= PAYLOAD_BYTES_MAX);
            assert_eq!(decode_segment(&input[..bytes - 1], format), Ok(None));
            input = &input[bytes..];
        }
    }
}
