//! Malformed bytes: garbage, truncated requests, false lengths, slow input.

use std::io::Write;

use anyhow::{Context, Result};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::ask::{self, connect, expect_bytes, expect_closed, expect_silence};
use super::bystander::Habit;
use super::stage::Stage;
use super::{Check, Outcome, Scene};
use crate::resp::request;

const GARBAGE_CONNECTIONS: usize = 400;
const GARBAGE_BYTES_MAX: usize = 4096;
const MUTANTS: usize = 1000;
const LORISES: usize = 64;
/// `timeout` of the check: the bystander must not become idle when the machine halts it.
const IDLE_S: &str = "15";
/// The longest inline request and length line.
const LINE_BYTES_MAX: usize = 64 << 10;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "garbage", suits_any_server: true, run: garbage },
    Check { name: "requests with flipped bytes", suits_any_server: true, run: mutants },
    Check { name: "requests cut anywhere", suits_any_server: true, run: cuts },
    Check { name: "lengths that lie", suits_any_server: true, run: lies },
    Check { name: "promises without bytes", suits_any_server: true, run: promises },
    Check { name: "one byte at a time", suits_any_server: true, run: lorises },
    Check { name: "idle connections are closed", suits_any_server: false, run: idle },
];

fn garbage(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let mut random = SmallRng::seed_from_u64(scene.seed);
    for _ in 0..GARBAGE_CONNECTIONS {
        let mut bytes = vec![0; random.random_range(1..=GARBAGE_BYTES_MAX)];
        random.fill_bytes(&mut bytes);
        // Half of them begin like the protocol.
        if random.random_bool(0.5) {
            bytes[0] = *b"*$+-:".get(random.random_range(0..5_usize)).context("in range")?;
        }
        ask::say_and_leave(&stage.address, &bytes)?;
    }
    stage.clear()
}

/// Requests and their answers, harmless however they are truncated.
fn dialogue() -> Vec<(Vec<u8>, &'static [u8])> {
    vec![
        (request(&["SET", "victim", "value"]), b"+OK\r\n"),
        (request(&["GET", "victim"]), b"$5\r\nvalue\r\n"),
        (b"PING\r\n".to_vec(), b"+PONG\r\n"),
        (b"*0\r\n".to_vec(), b""),
        (request(&["ECHO", "a\r\nb"]), b"$4\r\na\r\nb\r\n"),
        (b"ECHO \"quo ted\"\r\n".to_vec(), b"$7\r\nquo ted\r\n"),
        (request(&["STRLEN", "victim"]), b":5\r\n"),
    ]
}

fn mutants(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let valid: Vec<u8> = dialogue().into_iter().flat_map(|(sent, _)| sent).collect();
    let mut random = SmallRng::seed_from_u64(scene.seed ^ 1);
    for _ in 0..MUTANTS {
        let mut bytes = valid.clone();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = random.random(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *b"0123456789\r\n$*-\"".get(at % 16).context("in range")?),
            }
        }
        ask::say_and_leave(&stage.address, &bytes)?;
    }
    stage.clear()
}

/// Wherever the input is cut, exactly the requests before the cut are answered.
fn cuts(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(&[])?;
    let dialogue = dialogue();
    let valid: Vec<u8> = dialogue.iter().flat_map(|(sent, _)| sent.clone()).collect();
    for cut in 0..=valid.len() {
        let (mut end, mut expected) = (0, Vec::new());
        for (sent, answer) in &dialogue {
            end += sent.len();
            // An inline request is complete at its line feed, an array at its last byte.
            if end <= cut {
                expected.extend_from_slice(answer);
            }
        }
        let mut stream = connect(&subject.address)?;
        stream.write_all(&valid[..cut])?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let answer = ask::read_to_end(&mut stream)?;
        anyhow::ensure!(
            answer == expected,
            "cut after {cut} bytes: expected {}, got {}",
            ask::shown(&expected),
            ask::shown(&answer)
        );
    }
    subject.stop()?;
    Ok(Outcome::Passed)
}

fn lies(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let long_inline = vec![b'x'; LINE_BYTES_MAX + 1];
    let long_count = [b"*".as_slice(), &vec![b'1'; LINE_BYTES_MAX + 1]].concat();
    let long_length = [b"*1\r\n$".as_slice(), &vec![b'1'; LINE_BYTES_MAX + 1]].concat();
    let refused: [(&[u8], &str); 20] = [
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*4294967297\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999999\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1x\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$-2147483648\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$4294967300\r\nPING\r\n", "invalid bulk length"),
        (b"*1\r\n$18446744073709551615\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$4x\r\nPING\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"ECHO \"open\r\n", "unbalanced quotes in request"),
        (&long_inline, "too big inline request"),
        (&long_count, "too big mbulk count string"),
        (&long_length, "too big bulk count string"),
    ];
    for (bytes, reason) in refused {
        let expected = format!("-ERR Protocol error: {reason}\r\n");
        expect_closed(&stage.address, bytes, expected.as_bytes())?;
    }
    // An empty request is ignored without an answer, and the next one is served.
    for bytes in ["*0\r\n", "*-1\r\n", "*-2147483648\r\n", "\r\n"] {
        let mut stream = connect(&stage.address)?;
        stream.write_all(bytes.as_bytes())?;
        stream.write_all(b"PING\r\n")?;
        expect_bytes(&mut stream, b"+PONG\r\n").with_context(|| format!("{bytes:?}"))?;
    }
    stage.clear()
}

/// The maximum announced lengths cost no memory until the bytes arrive.
fn promises(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let mut streams = Vec::new();
    for number in 0..200 {
        let mut stream = connect(&stage.address)?;
        stream.write_all(match number % 3 {
            0 => b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$536870912\r\n",
            1 => b"*1048576\r\n",
            _ => b"*3\r\n$3\r\nSET\r\n$536870912\r\nx",
        })?;
        streams.push(stream);
    }
    stage.others_are_served()?;
    stage.subject.until_flat(stage.before_bytes)?;
    for stream in &mut streams {
        expect_silence(stream)?;
    }
    streams.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

/// Many connections, each of which sends its next byte after all others have sent theirs.
fn lorises(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let dialogue = dialogue();
    let sent: Vec<u8> = dialogue.iter().flat_map(|(sent, _)| sent.clone()).collect();
    let expected: Vec<u8> = dialogue.iter().flat_map(|(_, answer)| *answer).copied().collect();
    let mut streams = Vec::new();
    for _ in 0..LORISES {
        streams.push(connect(&stage.address)?);
    }
    for byte in &sent {
        for stream in &mut streams {
            stream.write_all(&[*byte])?;
        }
        stage.others_complete(1)?;
    }
    for stream in &mut streams {
        expect_bytes(stream, &expected)?;
    }
    drop(streams);
    stage.clear()
}

/// Option `timeout`: an idle connection is closed, even within a request; others stay.
fn idle(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&["--timeout", IDLE_S])?, Habit::Writes)?;
    let beginnings: [&[u8]; 4] = [b"", b"*", b"*2\r\n$4\r\nECHO\r\n$100\r\nhalf", b"PIN"];
    let mut streams = Vec::new();
    for begun in beginnings {
        let mut stream = connect(&stage.address)?;
        stream.write_all(begun)?;
        streams.push(stream);
    }
    for stream in &mut streams {
        let answer = ask::read_to_end(stream)?;
        anyhow::ensure!(answer.is_empty(), "an idle connection got {}", ask::shown(&answer));
    }
    stage.clear()
}
