//! Requests of HTTP that would monopolize a reactor or its memory.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::ask::{connect, expect_integer, expect_simple, read_to_end, reset, shown};
use super::bystander::Habit;
use super::stage::Stage;
use super::subject::Subject;
use super::{Check, Outcome, Scene};

/// All connections share one reactor with the bystander.
const OPTIONS: &[&str] = &["--http", "127.0.0.1:0", "--reactors", "1", "--durability", "never"];
/// Rounds of the bystander during a long request. It would complete one if the request blocked the
/// reactor.
const ROUNDS: u64 = 50;
const ELEMENTS: usize = 50_000;
const KEYS_OF_MSET: usize = 10_000;
const COMMANDS: usize = 500;
/// The server's limit, `http-body-bytes-max`.
const BODY_BYTES: usize = 16 << 20;
/// Maximum cost of a rejected body, relative to reading a valid body of the same length.
const COST_RATIO_MAX: u64 = 3;
/// Processor times are measured in ticks of this length; two of them are noise.
const NOISE_MS: u64 = 20;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "HTTP pipelines of long commands", suits_any_server: false, run: pipelines },
    Check { name: "JSON bodies of many values", suits_any_server: false, run: bodies },
    Check { name: "HTTP responses that are not read", suits_any_server: false, run: unread },
];

/// `memory-limit` of the check of unread answers.
const LIMIT_BYTES: u64 = 512 << 20;
/// More than the kernel buffers for a client that does not read.
const VALUE_BYTES: usize = 16 << 20;
/// Number of unread answers; together they take some three times the limit.
const UNREAD: usize = 100;

/// Sends one request and reads its whole answer.
fn ask(subject: &Subject, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
    let address = subject.http_address.as_ref().context("no HTTP")?;
    let mut stream = connect(address)?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    read_to_end(&mut stream)
}

fn expect_status(answer: &[u8], status: u16) -> Result<()> {
    let line = format!("HTTP/1.1 {status} ");
    ensure!(answer.starts_with(line.as_bytes()), "expected {status}, got {}", shown(answer));
    Ok(())
}

fn count(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| *window == part).count()
}

fn pipelines(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(OPTIONS)?;
    let mut control = subject.connect()?;
    let elements = vec!["x"; ELEMENTS];
    let push = [&["RPUSH", "big"][..], &elements].concat();
    expect_integer(&control.call(&push)?, ELEMENTS as u64)?;
    let keys: Vec<String> = (0..ELEMENTS).map(|number| format!("key:{number}")).collect();
    for part in keys.chunks(KEYS_OF_MSET) {
        let set: Vec<&str> = part.iter().flat_map(|key| [key.as_str(), "x"]).collect();
        expect_simple(&control.call(&[&["MSET"][..], &set].concat())?, "OK")?;
    }
    let stage = Stage::resp(subject, Habit::Talks)?;
    for command in [r#"["LPOS","big","nosuch"]"#, r#"["KEYS","nothing*"]"#] {
        let before = stage.completed();
        let body = format!("[{}]", vec![command; COMMANDS].join(","));
        let answer = ask(&stage.subject, "POST", "/pipeline", body.as_bytes())?;
        let rounds = stage.completed() - before;
        expect_status(&answer, 200)?;
        let results = count(&answer, b"\"result\":");
        ensure!(results == COMMANDS, "{results} results of {command}");
        ensure!(rounds >= ROUNDS, "the bystander had {rounds} rounds during {command}");
    }
    drop(control);
    stage.end()
}

fn bodies(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(OPTIONS)?;
    let fill = |start: &str, part: &str, end: &str| {
        let count = (BODY_BYTES - start.len() - end.len()) / part.len();
        [start, &part.repeat(count), end].concat()
    };
    let value = fill(r#"["SET","a",""#, "x", "\"]");
    let cost_ms = |path: &str, body: &str, status: u16| -> Result<u64> {
        let before_ms = subject.cpu_ms()?;
        let answer = ask(&subject, "POST", path, body.as_bytes())?;
        expect_status(&answer, status).with_context(|| format!("{path} {}", &body[..40]))?;
        Ok(subject.cpu_ms()? - before_ms)
    };
    let valid_ms = cost_ms("/", &value, 200)?;
    let statement = r#"{"statement":"SELECT","values":["#;
    for (path, body) in [
        ("/pipeline", fill("[", "[\"PING\"],", "[\"PING\"]]")),
        ("/pipeline", fill("[", "[],", "[]]")),
        ("/multi-exec", fill("[[", "1,", "1]]")),
        ("/", fill("[", "[", "")),
        ("/", fill("[", "1,", "1]")),
        ("/cql", fill(statement, "1,", "1]}")),
        ("/cql", fill(statement, "[1],", "1]}")),
    ] {
        let ms = cost_ms(path, &body, 400)?;
        ensure!(
            ms <= COST_RATIO_MAX * valid_ms + NOISE_MS,
            "{path} {}...: {ms} ms to reject, a valid body costs {valid_ms} ms",
            &body[..40]
        );
    }
    subject.stop()?;
    Ok(Outcome::Passed)
}

/// Clients that request large values and do not read: their answers stay within the limit, and a
/// client that reads gets its own answer afterwards.
fn unread(scene: &Scene<'_>) -> Result<Outcome> {
    let limit = LIMIT_BYTES.to_string();
    let subject = scene.start(&[OPTIONS, &["--memory-limit", &limit]].concat())?;
    let value = vec![b'v'; VALUE_BYTES];
    subject.connect()?.call(&[b"SET".as_slice(), b"a", &value])?;
    let address = subject.http_address.as_ref().context("no HTTP")?.clone();
    let stage = Stage::resp(subject, Habit::Talks)?;
    let subject = &stage.subject;
    let get = r#"["GET","a"]"#;
    for (method, path, body) in [
        ("GET", "/kv/a", String::new()),
        ("POST", "/", get.to_owned()),
        ("POST", "/pipeline", format!("[{get},{get},{get}]")),
        ("POST", "/multi-exec", format!("[{get}]")),
    ] {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}");
        let request = format!("{head}\r\n\r\n{body}");
        let mut streams = Vec::new();
        let mut most_bytes = 0;
        for _ in 0..UNREAD {
            let mut stream = connect(&address)?;
            set_socket_recv_buffer_size(&stream, 4 << 10)?;
            stream.write_all(request.as_bytes())?;
            streams.push(stream);
            most_bytes = most_bytes.max(subject.resident_bytes()?);
        }
        stage.others_are_served()?;
        most_bytes = most_bytes.max(subject.resident_bytes()?);
        let held_bytes = most_bytes.saturating_sub(stage.before_bytes);
        ensure!(
            held_bytes <= LIMIT_BYTES + LIMIT_BYTES / 10,
            "{path}: unread answers take {} MiB of {} MiB",
            held_bytes >> 20,
            LIMIT_BYTES >> 20
        );
        ensure!(held_bytes > LIMIT_BYTES / 3, "{path}: the answers took {} MiB", held_bytes >> 20);
        streams.into_iter().try_for_each(reset)?;
        super::until("answers are given again", || {
            Ok(ask(subject, "GET", "/kv/a", b"")?.len() > VALUE_BYTES)
        })?;
    }
    stage.clear()
}
