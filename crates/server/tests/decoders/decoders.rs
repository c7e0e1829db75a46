//! The table of decoders.

use cql::type_name::Native;
use cql::types::CqlType;
use serde_json::value::RawValue;
use server::{http_check, script_check};
use store::Mutation;
use wire::cql::{
    Compression, Direction, Header as CqlHeader, Limits as CqlLimits, SegmentFormat,
    decode_request, decode_response, decode_segment, encode_segments,
};
use wire::http::{Limits as HttpLimits, RequestBatch as HttpBatch, RequestDecoder as HttpDecoder};
use wire::rdb::{FileReader, Limits, decode_functions, decode_payload, end_payload};
use wire::replication::{FrameReader, HEADER_BYTES, Header, Kind};
use wire::resp::{self, RequestBatch, RequestDecoder, decode_reply};

use crate::compressed::{intset, listpack, payload, repeated, stream_part, ziplist};

/// A decoder, and an input that is far smaller than what it describes.
pub(crate) struct Decoder {
    pub(crate) name: &'static str,
    /// The source files that it covers, in `crates`.
    pub(crate) files: &'static [&'static str],
    pub(crate) input: fn() -> Vec<u8>,
    /// Returns what the peer is answered, or what the decoder returns.
    pub(crate) decode: fn(&[u8]) -> String,
    /// A part of the outcome.
    pub(crate) outcome: &'static str,
    /// Bytes that it may allocate, in total.
    pub(crate) bytes_max: usize,
}

pub(crate) const INPUT_BYTES_MAX: usize = 2 << 20;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Of a value: so small that a decompressed part alone fits, but not its elements.
const VALUE_BYTES_MAX: usize = MIB + MIB / 4;
/// What that allows: the part, the elements, and what a growing buffer adds.
const VALUE_ALLOCATED_MAX: usize = 2 * VALUE_BYTES_MAX;
const TOO_LARGE: &str = "a value has more bytes than allowed";

pub(crate) const DECODERS: &[Decoder] = &[
    Decoder {
        name: "RESP request",
        files: &["wire/src/resp/request.rs"],
        input: || b"*1048576\r\n$536870912\r\nabc".to_vec(),
        decode: |input| {
            let (mut decoder, mut batch) = (RequestDecoder::new(), RequestBatch::new());
            let used = decoder.decode(input, &resp::Limits::DEFAULT, 64, &mut batch);
            format!("{used} bytes, {} requests, {:?}", batch.len(), batch.error())
        },
        outcome: "0 requests, None",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "RESP reply",
        files: &["wire/src/resp/client.rs"],
        input: || b"*1000000000\r\n%500000000\r\n_\r\n".to_vec(),
        decode: |input| format!("{:?}", decode_reply(input)),
        outcome: "None",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "CQL request",
        files: &["wire/src/cql/request.rs", "wire/src/cql/envelope.rs"],
        input: || {
            // A query with a consistency, the flag of values, and 65,535 of them.
            let body = b"\x00\x00\x00\x01x\x00\x01\x01\xff\xff\x7f\xff\xff\xff";
            [&[4, 0, 0, 1, 7, 0, 0, 0][..], &[u8::try_from(body.len()).unwrap()], body].concat()
        },
        decode: |input| {
            let header = cql_header(input, Direction::Request);
            format!("{:?}", decode_request(&header, &input[9..]).err())
        },
        outcome: "Some(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "CQL body, LZ4",
        files: &["wire/src/cql/compression.rs", "wire/src/cql/mod.rs"],
        input: || [&(16_u32 << 20).to_be_bytes()[..], b"abcd"].concat(),
        decode: |input| decompressed(Compression::Lz4, input),
        outcome: "Err(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "CQL body, Snappy",
        files: &["wire/src/cql/compression.rs"],
        input: || b"\x80\x80\x80\x08abcd".to_vec(),
        decode: |input| decompressed(Compression::Snappy, input),
        outcome: "Err(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "CQL segment",
        files: &["wire/src/cql/segment.rs"],
        input: || {
            let mut envelope = vec![5, 0, 0, 1, 7, 0, 1, 0, 0];
            envelope.resize(9 + 64 * KIB, 0);
            let mut out = Vec::new();
            encode_segments(&envelope, SegmentFormat::Lz4, &mut out);
            out
        },
        decode: |input| {
            let segment = decode_segment(input, SegmentFormat::Lz4).unwrap().unwrap().0;
            format!("{} bytes", segment.payload.bytes().len())
        },
        outcome: "65545 bytes",
        bytes_max: 128 * KIB,
    },
    Decoder {
        name: "CQL rows",
        files: &["wire/src/cql/client.rs", "wire/src/cql/types.rs"],
        input: || {
            // A result of rows: without metadata, 2^31 - 1 columns and as many rows.
            let body = b"\x00\x00\x00\x02\x00\x00\x00\x04\x7f\xff\xff\xff\x7f\xff\xff\xffabc";
            [&[0x84, 0, 0, 1, 8, 0, 0, 0][..], &[u8::try_from(body.len()).unwrap()], body].concat()
        },
        decode: |input| {
            let header = cql_header(input, Direction::Response);
            format!("{:?}", decode_response(&header, &input[9..]).err())
        },
        outcome: "Some(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "CQL value in JSON",
        files: &["cql/src/value/json.rs"],
        input: || b"[1, 2]".to_vec(),
        decode: |input| {
            let raw: &RawValue = serde_json::from_slice(input).unwrap();
            let of = CqlType::Vector(Box::new(CqlType::Native(Native::Int)), 2_000_000_000);
            format!("{:?}", cql::value::json::decode_raw(raw, &of))
        },
        outcome: "Err(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "HTTP request",
        files: &["wire/src/http/request.rs"],
        input: || b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\nabc".to_vec(),
        decode: |input| {
            let (mut decoder, mut batch) = (HttpDecoder::new(), HttpBatch::new());
            let used = decoder.decode(input, &HttpLimits::DEFAULT, 64, &mut batch);
            format!("{used} bytes, {} requests, {:?}", batch.len(), batch.error())
        },
        outcome: "0 requests, None",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "HTTP chunks",
        files: &["wire/src/http/client.rs"],
        input: || {
            let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            [head, "7fffffffffffffff\r\nabc"].concat().into_bytes()
        },
        decode: |input| {
            let (mut decoder, mut batch) = (HttpDecoder::new(), HttpBatch::new());
            decoder.decode(input, &HttpLimits::DEFAULT, 64, &mut batch);
            format!("{:?}", batch.error())
        },
        outcome: "Some(",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "JSON commands",
        files: &["server/src/http/command.rs"],
        input: || [&b"[["[..], &b"1],[".repeat(400_000), b"1]]"].concat(),
        decode: |input| format!("{:?}", http_check::parse_commands(input)),
        outcome: "the request has more than 10000 commands",
        bytes_max: 16 * KIB,
    },
    Decoder {
        name: "JSON of a statement",
        files: &["server/src/http/cql.rs"],
        input: || [&br#"{"statement":"x","values":["#[..], &b"1,".repeat(400_000), b"1]}"].concat(),
        decode: |input| format!("{:?}", http_check::parse_call(input)),
        outcome: "the request has more than 131072 JSON values",
        bytes_max: 16 * KIB,
    },
    Decoder {
        name: "RDB string",
        files: &[
            "wire/src/rdb/input.rs",
            "wire/src/rdb/lzf.rs",
            "wire/src/rdb/payload.rs",
            "wire/src/rdb/value.rs",
        ],
        input: || payload(0, &[], &repeated(b"v", b"v", 100 * MIB, b"v"), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "RDB file",
        files: &["wire/src/rdb/file.rs"],
        input: || {
            [&b"REDIS0011\x00\x01k"[..], &repeated(b"v", b"v", 100 * MIB, b"v"), b"\xff"].concat()
        },
        decode: |input| {
            let mut reader = FileReader::new(input).unwrap().limited(limits());
            reader.read_item().map_or_else(|error| error.to_string(), |_| "a value".into())
        },
        outcome: TOO_LARGE,
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "RDB list of elements that are not there",
        files: &[],
        input: || payload(1, b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x01a", &[]),
        decode: restored,
        outcome: "the data ends",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "RDB list of ziplists",
        files: &[],
        input: || payload(10, &[], &ziplist(MIB), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "RDB intset",
        files: &[],
        input: || payload(11, &[], &intset(MIB), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "RDB zipmap",
        files: &[],
        input: || payload(9, &[], &repeated(&[0], &[0, 0, 0], MIB, &[0xff]), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "RDB listpack",
        files: &["wire/src/rdb/packed.rs"],
        input: || payload(20, &[], &listpack(&[], &[1, 1], MIB), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "RDB stream of entries",
        files: &["wire/src/rdb/stream.rs"],
        input: || payload(15, &[&[1, 16][..], &[0; 16]].concat(), &stream_part(MIB), &[]),
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "RDB stream of pending entries",
        files: &[],
        // No entries, its last id, one group with its last id: then an id, a time and a count each.
        input: || {
            let head = [0, 0, 0, 0, 1, 1, b'g', 0, 0, 0x80, 0, 1, 0, 0];
            let pending = |id: u64| [&[0; 8][..], &id.to_be_bytes(), &[0; 8], &[1]].concat();
            payload(15, &head, &[], &(0..65_536).flat_map(pending).collect::<Vec<u8>>())
        },
        decode: restored,
        outcome: TOO_LARGE,
        bytes_max: VALUE_ALLOCATED_MAX,
    },
    Decoder {
        name: "libraries of FUNCTION RESTORE",
        files: &[],
        input: || {
            let mut out = [&[0xf5][..], &repeated(b"#", b"v", 100 * MIB, b"v")].concat();
            end_payload(&mut out, wire::rdb::Version::WRITTEN);
            out
        },
        decode: |input| format!("{:?}", decode_functions(input, limits()).err()),
        outcome: "TooLarge",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "frame of a replication stream, a group or a backup",
        files: &["wire/src/replication/mod.rs", "wire/src/replication/stream.rs"],
        // Version 2, compressed: the checksum of the chain, the length 2^30, three bytes.
        input: || frame(&[&[0; 8][..], &(1_u32 << 30).to_le_bytes(), b"abc"].concat()),
        decode: |input| {
            let (head, payload) = input.split_first_chunk::<HEADER_BYTES>().unwrap();
            let header = Header::decode(head).unwrap();
            format!("{:?}", FrameReader::default().open(&header, payload).err())
        },
        outcome: "compressed contents",
        bytes_max: 4 * KIB,
    },
    Decoder {
        name: "mutation of a replication stream",
        files: &["store/src/items.rs", "store/src/mutation.rs"],
        // Members of a set: 2^62 of them.
        input: || [&[17, 0, 1, b'k'][..], &[0xff; 8], &[0x3f]].concat(),
        decode: |input| {
            for kind in 0..=u8::MAX {
                let any = [&[kind], &input[1..]].concat();
                let _ = Mutation::decode(&mut &any[..], |_| 0);
            }
            format!("{:?}", Mutation::decode(&mut &input[..], |_| 0).err())
        },
        outcome: "Malformed",
        bytes_max: 64 * KIB,
    },
    Decoder {
        name: "cjson.decode",
        files: &["server/src/commands/scripting/cjson/decode.rs"],
        input: || [&b"["[..], &b"{},".repeat(300_000), b"1]"].concat(),
        decode: |input| script("cjson.decode", input),
        outcome: "not enough memory",
        bytes_max: SCRIPT_ALLOCATED_MAX,
    },
    Decoder {
        name: "cmsgpack.unpack",
        files: &["server/src/commands/scripting/cmsgpack.rs"],
        input: || [&b"\xdd\xff\xff\xff\xff"[..], &[0x80; 500_000]].concat(),
        decode: |input| script("cmsgpack.unpack", input),
        outcome: "not enough memory",
        bytes_max: SCRIPT_ALLOCATED_MAX,
    },
    Decoder {
        name: "struct.unpack",
        files: &["server/src/commands/scripting/structs.rs"],
        input: || b"b".repeat(500_000),
        decode: |input| script("function(text) return struct.unpack(text, text) end", input),
        outcome: "too many results to unpack",
        bytes_max: SCRIPT_ALLOCATED_MAX,
    },
];

fn cql_header(input: &[u8], direction: Direction) -> CqlHeader {
    CqlHeader::decode(input, direction, None, &CqlLimits::DEFAULT).unwrap().unwrap()
}

fn decompressed(compression: Compression, input: &[u8]) -> String {
    format!("{:?}", compression.decompress(input, &CqlLimits::DEFAULT).map(|body| body.len()))
}

fn limits() -> Limits {
    Limits { bytes_max: VALUE_BYTES_MAX as u64, ..Limits::NONE }
}

fn restored(input: &[u8]) -> String {
    decode_payload(input, limits()).map_or_else(|error| error.to_string(), |_| "a value".into())
}

/// A compressed frame, with its checksum.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut out = b"MYRS\x02\x00\x01\x00\0\0\0\0".to_vec();
    out[5] = Kind::Block as u8;
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    let sum = [&out[..8], &out[12..], payload].concat();
    let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(&sum);
    out[8..12].copy_from_slice(&sum.to_le_bytes());
    [&out[..], payload].concat()
}

const SCRIPT_BYTES_MAX: usize = 4 * MIB;
/// With a new interpreter, the argument, and what is freed meanwhile.
const SCRIPT_ALLOCATED_MAX: usize = 3 * SCRIPT_BYTES_MAX;

fn script(function: &str, input: &[u8]) -> String {
    let script = format!("return tostring(select(2, pcall({function}, ...)))");
    script_check::run(&script, input, SCRIPT_BYTES_MAX).unwrap_or_else(|error| error)
}
