//! Malformed bytes of CQL: garbage, flipped bits, truncation, false lengths, wrong checksums.

use std::io::Write;
use std::net::Shutdown;

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use wire::cql::{
    BatchKind, BatchStatement, Compression, Consistency, HEADER_BYTES, Parameters,
    ParametersToSend, SegmentFormat, Value, Version, encode_segments,
};

use super::ask::{self, connect};
use super::cql::{PROTOCOL_ERROR, encoder, message, read_replies, refused, replies, say, startup};
use super::stage::Stage;
use super::{Check, Outcome, Scene};
use crate::cql::client::nothing;

const GARBAGE_CONNECTIONS: usize = 300;
const GARBAGE_BYTES_MAX: usize = 4096;
const MUTANTS: usize = 600;
const LORISES: usize = 32;
/// The opcode of QUERY.
const QUERY: u8 = 0x07;
/// Version 4, compressed.
const COMPRESSED: u8 = 0x01;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "CQL: garbage", suits_any_server: false, run: garbage },
    Check { name: "CQL: requests with flipped bytes", suits_any_server: false, run: mutants },
    Check { name: "CQL: requests cut anywhere", suits_any_server: false, run: cuts },
    Check { name: "CQL: lengths that lie", suits_any_server: false, run: lies },
    Check { name: "CQL: opcodes and versions", suits_any_server: false, run: codes },
    Check { name: "CQL: segments with wrong checksums", suits_any_server: false, run: checksums },
    Check { name: "CQL: compressed bombs", suits_any_server: false, run: bombs },
    Check { name: "CQL: one byte at a time", suits_any_server: false, run: lorises },
];

fn garbage(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut random = SmallRng::seed_from_u64(scene.seed);
    for _ in 0..GARBAGE_CONNECTIONS {
        let mut bytes = vec![0; random.random_range(1..=GARBAGE_BYTES_MAX)];
        random.fill_bytes(&mut bytes);
        match random.random_range(0..3) {
            0 => {}
            // Half of them begin like the protocol.
            1 => bytes[0] = random.random_range(3..6),
            _ => {
                let version = [Version::V3, Version::V4, Version::V5][random.random_range(0..3)];
                bytes.splice(..0, startup(version, None));
            }
        }
        ask::say_and_leave(&stage.address, &bytes)?;
    }
    stage.clear()
}

/// Requests of every kind.
fn dialogue(version: Version) -> Vec<Vec<u8>> {
    let to = encoder(version);
    let text = "INSERT INTO hostile.t (p, c, v, b, l, m) VALUES (?, ?, ?, ?, ?, ?)";
    let list = [0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7];
    let map = [&list[..], &[0, 0, 0, 1, b'x']].concat();
    let values = [
        Value::Bytes(&[0, 0, 0, 1]),
        Value::Bytes(&[0, 0, 0, 2]),
        Value::Bytes(b"text"),
        Value::Null,
        Value::Bytes(&list),
        Value::Bytes(&map),
    ];
    let named: Vec<_> = values.iter().map(|value| (None, *value)).collect();
    let parameters = Parameters {
        page_size: Some(10),
        serial_consistency: Some(Consistency::Serial),
        timestamp: Some(1_000),
        ..Parameters::new(Consistency::One)
    };
    let with = ParametersToSend { parameters, values: &named };
    let batch = [(BatchStatement::Text(text), &values[..])];
    let mut requests = vec![Vec::new(); 6];
    to.query(1, text, &with, &mut requests[0]);
    to.query(2, "SELECT * FROM hostile.t", &nothing(), &mut requests[1]);
    to.prepare(3, text, None, &mut requests[2]);
    to.execute(4, &[7; 16], &[7; 16], &with, &mut requests[3]);
    to.batch(5, BatchKind::Logged, &batch, &parameters, &mut requests[4]);
    to.register(6, &["SCHEMA_CHANGE", "STATUS_CHANGE"], &mut requests[5]);
    requests
}

/// The requests in the framing of their version.
fn framed(version: Version, requests: &[u8]) -> Vec<u8> {
    if version != Version::V5 {
        return requests.to_vec();
    }
    let mut out = Vec::new();
    encode_segments(requests, SegmentFormat::Plain, &mut out);
    out
}

fn mutants(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut random = SmallRng::seed_from_u64(scene.seed ^ 1);
    for _ in 0..MUTANTS {
        let version = [Version::V3, Version::V4, Version::V5][random.random_range(0..3)];
        let mut requests = dialogue(version);
        for _ in 0..random.random_range(1..4) {
            let request = random.random_range(0..requests.len());
            let bytes = &mut requests[request];
            // In segments only bodies are damaged, so that their checksums are right.
            let first = if version == Version::V5 { HEADER_BYTES } else { 0 };
            let at = random.random_range(first..bytes.len());
            match random.random_range(0..3) {
                1 if version != Version::V5 => drop(bytes.remove(at)),
                2 if version != Version::V5 => bytes.insert(at, [0, 1, 0x7f, 0x80, 0xff][at % 5]),
                _ => bytes[at] = random.random(),
            }
        }
        let all = [startup(version, None), framed(version, &requests.concat())].concat();
        ask::say_and_leave(&stage.address, &all)?;
    }
    stage.clear()
}

/// Wherever the input is cut, exactly the requests before the cut are answered.
fn cuts(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let requests = dialogue(Version::V4);
    let all = requests.concat();
    for cut in 0..=all.len() {
        let (mut end, mut whole) = (0, 0);
        for request in &requests {
            end += request.len();
            whole += usize::from(end <= cut);
        }
        let found = say(&stage.address, Version::V4, &all[..cut])?;
        ensure!(found.len() == whole, "cut after {cut} bytes: {found:?}");
    }
    stage.clear()
}

/// Every number in every request is replaced by one that is too large, negative, or zero.
fn lies(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut after = Vec::new();
    encoder(Version::V4).options(77, &mut after);
    for request in dialogue(Version::V4) {
        for at in 9..request.len() {
            // One connection for all false numbers at one position: a malformed body does not end
            // it.
            let mut bytes = Vec::new();
            let mut count = 1;
            for lie in [
                &[0xff; 4][..],
                &[0xff, 0xff, 0xff, 0xfe],
                &[0x80, 0, 0, 0],
                &[0x7f, 0xff, 0xff, 0xff],
                &[0; 4],
                &[0xff; 2],
                &[0; 2],
                &[0x7f, 0xff],
            ] {
                let mut liar = request.clone();
                let end = (at + lie.len()).min(liar.len());
                liar[at..end].copy_from_slice(&lie[..end - at]);
                bytes.extend_from_slice(&liar);
                count += 1;
            }
            bytes.extend_from_slice(&after);
            let found = say(&stage.address, Version::V4, &bytes)?;
            ensure!(found.len() == count, "a lie at byte {at}: {found:?}");
        }
    }
    // Bodies above the limit, announced only.
    for length in [0x0100_0001_u32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        let bytes = [&[4, 0, 0, 9, QUERY][..], &length.to_be_bytes()].concat();
        let found = say(&stage.address, Version::V4, &bytes)?;
        let is_told = found.iter().any(|(stream, said)| *stream == 9 && said.contains("too big"));
        ensure!(is_told, "a body of {length} bytes: {found:?}");
    }
    // Announced bodies within the limit cost no memory until they arrive.
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&startup(Version::V4, None))?;
        read_replies(&mut stream, 1)?;
        stream.write_all(&[4, 0, 0, 9, QUERY, 0, 0xff, 0, 0])?;
        streams.push(stream);
    }
    stage.others_are_served()?;
    streams.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

fn codes(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    for opcode in 0..=255_u8 {
        // STARTUP, OPTIONS, QUERY, PREPARE, EXECUTE, REGISTER, BATCH, AUTH_RESPONSE
        if [0x01, 0x05, 0x07, 0x09, 0x0a, 0x0b, 0x0d, 0x0f].contains(&opcode) {
            continue;
        }
        refused(&stage.address, &message(4, 0, 5, opcode, b""), PROTOCOL_ERROR)
            .with_context(|| format!("opcode {opcode:#04x}"))?;
    }
    for version in (0..128).filter(|version| !(3..6).contains(version)) {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&message(version, 0, 5, 0x05, b""))?;
        let answer = ask::read_to_end(&mut stream)?;
        let found = replies(&answer)?;
        let is_told =
            found.iter().any(|(_, said)| said.contains("Invalid or unsupported protocol version"));
        ensure!(is_told && found.len() == 1, "version {version}: {found:?}");
    }
    stage.clear()
}

/// No part of a segment with a wrong checksum is executed: one error, then the connection ends.
fn checksums(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut request = Vec::new();
    let text = "INSERT INTO hostile.t (p, c) VALUES (99, 99)";
    encoder(Version::V5).query(3, text, &nothing(), &mut request);
    let good = framed(Version::V5, &request);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let mut stream = connect(&stage.address)?;
        stream.write_all(&startup(Version::V5, None))?;
        stream.write_all(&bytes)?;
        // After an increased length the server waits for more bytes.
        stream.shutdown(Shutdown::Write)?;
        ask::read_to_end(&mut stream)?;
    }
    let mut request = Vec::new();
    encoder(Version::V4).query(1, "SELECT p FROM hostile.t WHERE p = 99", &nothing(), &mut request);
    let found = say(&stage.address, Version::V4, &request)?;
    ensure!(found == [(1, "0 rows".to_owned())], "a damaged segment was run: {found:?}");
    stage.clear()
}

/// Compressed bodies whose announced size is too large or false.
fn bombs(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    for compression in [Compression::Lz4, Compression::Snappy] {
        for length in [0_u32, 1, 1 << 24, (1 << 28) + 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            let body = match compression {
                Compression::Lz4 => {
                    [&length.to_be_bytes()[..], &[0x1f, b'x', 1, 0, 0xff, 0xff, 0xff, 0x00]]
                        .concat()
                }
                Compression::Snappy => [varint(length), vec![0x00, b'x', 0xfe, 1, 0]].concat(),
            };
            let all = [
                startup(Version::V4, Some(compression)),
                message(4, COMPRESSED, 5, QUERY, &body).repeat(50),
                message(4, 0, 6, 0x05, b""),
            ];
            let answer = ask::say_and_leave(&stage.address, &all.concat())?;
            // READY, and an error at least, compressed or not.
            ensure!(answer.len() > 9, "{} of {length}: no answer", compression.name());
        }
        stage.others_are_served()?;
    }
    stage.clear()
}

fn varint(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_be_bytes()[3] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_be_bytes()[3]);
    bytes
}

/// Many connections, each of which sends its next byte after all others have sent theirs.
fn lorises(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut sent = startup(Version::V4, None);
    sent.extend_from_slice(&dialogue(Version::V4).concat());
    let mut streams = Vec::new();
    for _ in 0..LORISES {
        streams.push(connect(&stage.address)?);
    }
    for byte in &sent {
        for stream in &mut streams {
            stream.write_all(&[*byte])?;
        }
    }
    for stream in &mut streams {
        let found = read_replies(stream, 7)?;
        ensure!(found.len() == 7, "{found:?}");
    }
    stage.others_are_served()?;
    drop(streams);
    stage.clear()
}
