//! Invariants for every input: called by the fuzzers, by the tests that replay their corpora, and
//! by the property tests. A violation panics.

use super::batch::{OwnedArgs, RequestBatch};
use super::client::{Reply, decode_reply, encode_request, reply_len};
use super::limits::{Limits, ProtocolError};
use super::reply::{Protocol, ReplyWriter};
use super::request::RequestDecoder;

/// Inputs up to this length are also tried byte by byte.
const BYTEWISE_BYTES_MAX: usize = 4096;

/// Limits so low that short inputs reach them.
const NARROW: Limits =
    Limits { bulk_bytes_max: 20, args_max: 3, inline_bytes_max: 16, authenticated: true };

/// Requests: every split of the input into pieces gives the same requests, the same bytes used and
/// the same error; encoding the decoded requests and decoding them again changes nothing.
pub fn check_requests(data: &[u8]) {
    for limits in [Limits::DEFAULT, Limits::UNAUTHENTICATED, NARROW] {
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
    let mut encoded = Vec::new();
    for request in &decoded.requests {
        encode_request(&request.as_args().iter().collect::<Vec<_>>(), &mut encoded);
    }
    let again = decode_in_pieces(&encoded, &Limits::DEFAULT, encoded.len().max(1), usize::MAX);
    let expected =
        Decoded { requests: decoded.requests, consumed_bytes: encoded.len(), error: None };
    assert_eq!(again, expected);
}

/// Replies: the length agrees with the decoder, no prefix of the input is a reply or an error, and
/// writing the decoded reply and decoding it again changes nothing.
pub fn check_reply(data: &[u8]) {
    let len = reply_len(data);
    let decoded = decode_reply(data);
    match (&len, &decoded) {
        (Ok(Some(len)), Ok(Some((_, used)))) => assert_eq!(len, used),
        (Ok(None), Ok(None)) => {}
        (Err(expected), Err(error)) => assert_eq!(expected, error),
        _ => panic!("{len:?} is not what was decoded: {decoded:?}"),
    }
    let Ok(Some((reply, used))) = decoded else { return };
    assert!(used <= data.len());
    for end in 0..used.min(BYTEWISE_BYTES_MAX) {
        assert_eq!(reply_len(&data[..end]), Ok(None), "the first {end} bytes");
    }
    let written = written(&reply);
    let (again, again_used) =
        decode_reply(&written).expect("a written reply is well formed").expect("and complete");
    assert_eq!(again_used, written.len());
    assert_eq!(self::written(&again), written);
}

/// Writes a decoded reply again.
pub fn write_reply(reply: &Reply, writer: &mut ReplyWriter<'_>) {
    match reply {
        Reply::Simple(text) => writer.simple(&String::from_utf8_lossy(text)),
        Reply::Error(text) => writer.error(&String::from_utf8_lossy(text)),
        Reply::Integer(value) => writer.integer(*value),
        Reply::Bulk(bytes) => writer.bulk(bytes),
        Reply::Null => writer.null(),
        Reply::NullArray => writer.null_array(),
        Reply::Array(list) => {
            writer.array(list.len());
            write_list(list, writer);
        }
        Reply::Set(list) => {
            writer.set(list.len());
            write_list(list, writer);
        }
        Reply::Push(list) => {
            writer.push(list.len());
            write_list(list, writer);
        }
        Reply::Map(pairs) => {
            writer.map(pairs.len());
            for (key, value) in pairs {
                write_reply(key, writer);
                write_reply(value, writer);
            }
        }
        Reply::Double(value) => writer.double(*value),
        Reply::Boolean(value) => writer.boolean(*value),
        Reply::BigNumber(digits) => writer.big_number(&String::from_utf8_lossy(digits)),
        Reply::Verbatim { format, text } => match std::str::from_utf8(format) {
            Ok(format) => writer.verbatim(format, text),
            Err(_) => writer.bulk(text),
        },
    }
}

fn write_list(list: &[Reply], writer: &mut ReplyWriter<'_>) {
    for element in list {
        write_reply(element, writer);
    }
}

fn written(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    write_reply(reply, &mut ReplyWriter::new(&mut out, Protocol::Resp3));
    out
}

#[derive(Debug, PartialEq)]
struct Decoded {
    requests: Vec<OwnedArgs>,
    consumed_bytes: usize,
    error: Option<ProtocolError>,
}

/// Decodes like a connection that receives `piece_bytes` at a time.
fn decode_in_pieces(
    data: &[u8],
    limits: &Limits,
    piece_bytes: usize,
    requests_max: usize,
) -> Decoded {
    let mut decoder = RequestDecoder::new();
    let mut batch = RequestBatch::new();
    let mut decoded = Decoded { requests: Vec::new(), consumed_bytes: 0, error: None };
    let mut end = 0;
    while end < data.len() && decoded.error.is_none() {
        end = data.len().min(end + piece_bytes);
        loop {
            let input = &data[decoded.consumed_bytes..end];
            let used = decoder.decode(input, limits, requests_max, &mut batch);
            assert!(used <= input.len());
            assert!(batch.len() <= requests_max);
            assert!(decoder.needed() <= input.len().max(16 << 10));
            decoded.requests.extend((0..batch.len()).map(|index| {
                let args = batch.get(index, input);
                assert!(!args.is_empty());
                args.to_owned()
            }));
            decoded.consumed_bytes += used;
            decoded.error = batch.error().copied();
            if used == 0 || decoded.error.is_some() {
                break;
            }
        }
    }
    decoded
}
