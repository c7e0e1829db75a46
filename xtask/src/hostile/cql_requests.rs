//! Well-formed but malicious requests of CQL: by their content, and by their number.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::cql::{
    BatchKind, BatchStatement, Consistency, Parameters, ParametersToSend, Response, Value, Version,
};

use super::ask::{self, connect};
use super::cql::{PROTOCOL_ERROR, encoder, message, read_replies, refused, said, startup};
use super::crowds::{CROWD, skipped_crowd};
use super::stage::Stage;
use super::{Check, Outcome, Scene};
use crate::cql::client::nothing;
use crate::cql::connection::{Connection, Manner};

const QUERY: u8 = 0x07;
const SYNTAX_ERROR: i32 = 0x2000;
const INVALID: i32 = 0x2200;
const UNPREPARED: i32 = 0x2500;
/// Nesting of terms; the limit is in `docs/reference/limits.md`.
const DEPTH: usize = 20_000;
const STREAMS: i16 = 1000;
/// Rows of the table that is scanned.
const ROWS: i32 = 2000;
const UNREAD: usize = 400;
const NON_READERS: usize = 10;
/// Maximum memory for a client that does not read: the buffer of its replies, and one reply of a
/// page.
const UNREAD_BYTES_MAX: u64 = 8 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "CQL: invalid UTF-8", suits_any_server: false, run: utf8 },
    Check { name: "CQL: deep nesting", suits_any_server: false, run: nesting },
    Check { name: "CQL: values that are none", suits_any_server: false, run: values },
    Check { name: "CQL: unknown ids and forged states", suits_any_server: false, run: forged },
    Check { name: "CQL: huge batches", suits_any_server: false, run: batches },
    Check { name: "CQL: unread replies", suits_any_server: false, run: unread },
    Check { name: "CQL: 10,000 connections at once", suits_any_server: false, run: crowd },
    Check { name: "CQL: 1,000 streams, half of them slow", suits_any_server: false, run: streams },
];

fn utf8(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    for text in [&b"\xff\xfe"[..], b"SELECT '\xc3\x28'", b"\xed\xa0\x80", b"SELECT \"\xf8\" FROM t"]
    {
        let length = u32::try_from(text.len())?.to_be_bytes();
        let body = [&length[..], text, &[0, 1, 0]].concat();
        refused(&stage.address, &message(4, 0, 5, QUERY, &body), PROTOCOL_ERROR)?;
    }
    // A value that is not text, for a text column.
    let values = [(None, Value::Bytes(b"\xc3\x28"))];
    let with = ParametersToSend { parameters: Parameters::new(Consistency::One), values: &values };
    let mut bytes = Vec::new();
    let text = "INSERT INTO hostile.t (p, c, v) VALUES (1, 1, ?)";
    encoder(Version::V4).query(5, text, &with, &mut bytes);
    refused(&stage.address, &bytes, INVALID)?;
    stage.clear()
}

fn nesting(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let nested = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(DEPTH), close.repeat(DEPTH))
    };
    let insert = |value: &str| format!("INSERT INTO hostile.t (p, c, l) VALUES (1, 1, {value})");
    let json = |value: &str| insert_json(&format!("{{\"p\": 1, \"c\": 1, \"l\": {value}}}"));
    for (statement, code) in [
        (insert(&nested("[", "1", "]")), SYNTAX_ERROR),
        (insert(&nested("{", "1", "}")), SYNTAX_ERROR),
        (insert(&nested("(", "1", ")")), SYNTAX_ERROR),
        (insert(&nested("{1: ", "1", "}")), SYNTAX_ERROR),
        (insert(&nested("(int)", "1", "")), SYNTAX_ERROR),
        (insert(&nested("-", "v", "")), SYNTAX_ERROR),
        (insert(&nested("abs(", "1", ")")), SYNTAX_ERROR),
        (format!("SELECT {} FROM hostile.t", nested("abs(", "p", ")")), SYNTAX_ERROR),
        (format!("SELECT p{} FROM hostile.t", "[1]".repeat(DEPTH)), SYNTAX_ERROR),
        (format!("SELECT {} FROM hostile.t", nested("cast(", "p", " as int)")), SYNTAX_ERROR),
        (
            format!(
                "CREATE TABLE hostile.n (p {} PRIMARY KEY)",
                nested("frozen<list<", "int", ">>")
            ),
            SYNTAX_ERROR,
        ),
        (json(&nested("[", "1", "]")), INVALID),
        (json(&nested("{\"a\":", "1", "}")), INVALID),
        (insert_json(&nested("[", "", "")), INVALID),
    ] {
        let mut bytes = Vec::new();
        encoder(Version::V4).query(5, &statement, &nothing(), &mut bytes);
        refused(&stage.address, &bytes, code)
            .with_context(|| statement.chars().take(60).collect::<String>())?;
        encoder(Version::V4).prepare(5, &statement, None, &mut bytes);
    }
    // Long, but flat: these end quickly, with or without an error.
    let mut connection = Connection::open(&stage.address)?;
    for statement in [
        format!("SELECT p FROM hostile.t WHERE {}", vec!["p = 1"; 50_000].join(" AND ")),
        format!("SELECT {} FROM hostile.t WHERE p = 1", vec!["p"; 50_000].join(", ")),
        format!("SELECT 1{} FROM hostile.t WHERE p = 1", " + 1".repeat(50_000)),
        insert(&format!("[{}]", vec!["1"; 60_000].join(", "))),
        format!("SELECT p FROM hostile.t WHERE p IN ({})", vec!["1"; 70_000].join(", ")),
        "(".repeat(1_000_000),
        format!("SELECT '{}", "x".repeat(8 << 20)),
        "/*".repeat(1_000_000),
    ] {
        connection
            .query(&statement, Manner::default())
            .with_context(|| statement.chars().take(60).collect::<String>())?;
    }
    drop(connection);
    stage.clear()
}

fn insert_json(text: &str) -> String {
    format!("INSERT INTO hostile.t JSON '{text}'")
}

/// Values whose bytes are malformed for their type.
fn values(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let long = vec![b'k'; 70_000];
    let many = [&i32::MAX.to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 7]].concat();
    let negative = [&(-1_i32).to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 7]].concat();
    let inner = [&1_i32.to_be_bytes()[..], &(-2_i32).to_be_bytes()].concat();
    let behind = [&1_i32.to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 7, 9, 9]].concat();
    for (column, value) in [
        ("p", &b"abc"[..]),
        ("p", &[]),
        ("p", &[0; 5]),
        ("p", &long),
        ("c", &[0; 3]),
        ("l", &many),
        ("l", &negative),
        ("l", &inner),
        ("l", &behind),
        ("l", &[0]),
        ("m", &many),
        ("m", &behind),
        ("m", &[0, 0, 0, 1]),
    ] {
        let places = ["p", "c", column];
        let names = if column == "p" || column == "c" { "p, c" } else { "p, c, l" };
        let names = names.replace('l', column);
        let one = [0, 0, 0, 1];
        let given = |name: &str| if name == column { value } else { &one };
        let values: Vec<_> = places[..names.split(", ").count()]
            .iter()
            .map(|name| (None, Value::Bytes(given(name))))
            .collect();
        let marks = vec!["?"; values.len()].join(", ");
        let text = format!("INSERT INTO hostile.t ({names}) VALUES ({marks})");
        let parameters = Parameters::new(Consistency::One);
        let with = ParametersToSend { parameters, values: &values };
        let mut bytes = Vec::new();
        encoder(Version::V4).query(5, &text, &with, &mut bytes);
        refused(&stage.address, &bytes, INVALID)
            .with_context(|| format!("{column}: {}", ask::shown(value)))?;
    }
    // Too many values and too few.
    for count in [0, 1, 3, 60_000] {
        let values = vec![(None, Value::Bytes(&[0, 0, 0, 1][..])); count];
        let parameters = Parameters::new(Consistency::One);
        let with = ParametersToSend { parameters, values: &values };
        let mut bytes = Vec::new();
        let text = "INSERT INTO hostile.t (p, c) VALUES (?, ?)";
        encoder(Version::V4).query(5, text, &with, &mut bytes);
        refused(&stage.address, &bytes, INVALID).with_context(|| format!("{count} values"))?;
    }
    stage.clear()
}

fn forged(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let long = vec![0_u8; 60_000];
    for id in [&[7; 16][..], &[], &[1; 3], &long[..]] {
        let mut bytes = Vec::new();
        encoder(Version::V4).execute(5, id, &[], &nothing(), &mut bytes);
        refused(&stage.address, &bytes, UNPREPARED)?;
    }
    let mut connection = Connection::open(&stage.address)?;
    for c in 0..20 {
        connection.must(&format!("INSERT INTO hostile.t (p, c, v) VALUES (1, {c}, 'v')"))?;
    }
    // A valid paging state, and manipulated variants of it.
    let mut client = stage.client(Version::V4)?;
    let parameters = Parameters { page_size: Some(3), ..Parameters::new(Consistency::One) };
    let with = ParametersToSend { parameters, values: &[] };
    let reply = client.ask(|to, out| to.query(1, "SELECT * FROM hostile.t", &with, out))?;
    let Response::Rows(rows) = reply.decode()?.0 else { anyhow::bail!("no rows: {reply:?}") };
    let state = rows.metadata.paging_state.context("there are more rows")?.to_vec();
    let mut random = SmallRng::seed_from_u64(scene.seed);
    let others = ["SELECT * FROM hostile.t WHERE p = 5", "SELECT * FROM system_schema.tables"];
    for round in 0..2000 {
        let mut forged = state.clone();
        for _ in 0..random.random_range(0..4) {
            match random.random_range(0..3) {
                0 if !forged.is_empty() => {
                    let at = random.random_range(0..forged.len());
                    forged[at] = random.random();
                }
                1 => forged.truncate(random.random_range(0..=forged.len())),
                _ => forged.push(random.random()),
            }
        }
        let parameters = Parameters { paging_state: Some(&forged), ..parameters };
        let with = ParametersToSend { parameters, values: &[] };
        let text = others.get(round % 3).unwrap_or(&"SELECT * FROM hostile.t");
        let reply = client.ask(|to, out| to.query(1, text, &with, out))?;
        let reply = said(&reply.decode()?.0);
        let is_right =
            reply.ends_with("rows") || reply.starts_with(&format!("{PROTOCOL_ERROR:04x}"));
        ensure!(is_right, "a forged state is answered {reply}");
    }
    drop((client, connection));
    stage.clear()
}

/// Maximum number of unprepared statements in a batch (docs/reference/limits.md).
const BATCH_TEXTS_MAX: usize = 16_384;

fn batches(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let version = Version::V4;
    let text = "INSERT INTO hostile.t (p, c) VALUES (1, 1)";
    let parameters = Parameters::new(Consistency::One);
    // The maximum number of unprepared statements, in one partition; one more; and the maximum that
    // the protocol can express.
    let many = vec![(BatchStatement::Text(text), &[][..]); 65_535];
    let mut client = stage.client(version)?;
    let most = &many[..BATCH_TEXTS_MAX];
    let reply = client.ask(|to, out| to.batch(1, BatchKind::Unlogged, most, &parameters, out))?;
    ensure!(said(&reply.decode()?.0) == "VOID", "{BATCH_TEXTS_MAX} statements: {reply:?}");
    drop(client);
    for more in [&many[..=BATCH_TEXTS_MAX], &many] {
        let mut bytes = Vec::new();
        encoder(version).batch(5, BatchKind::Unlogged, more, &parameters, &mut bytes);
        refused(&stage.address, &bytes, INVALID)?;
    }
    // Over many partitions: too large.
    let texts: Vec<String> = (0..BATCH_TEXTS_MAX)
        .map(|p| format!("INSERT INTO hostile.t (p, c, v) VALUES ({p}, 1, 'some text')"))
        .collect();
    let many: Vec<_> = texts.iter().map(|text| (BatchStatement::Text(text), &[][..])).collect();
    let mut bytes = Vec::new();
    encoder(version).batch(5, BatchKind::Logged, &many, &parameters, &mut bytes);
    refused(&stage.address, &bytes, INVALID)?;
    // A false number of statements, and nonexistent kinds.
    for body in [&[0, 0xff, 0xff, 0][..], &[9, 0, 0, 0, 1, 0], &[0, 0, 1, 7, 0, 0], &[0]] {
        refused(&stage.address, &message(4, 0, 5, 0x0d, body), PROTOCOL_ERROR)?;
    }
    for (inner, code) in [
        ("SELECT p FROM hostile.t", INVALID),
        ("BEGIN BATCH APPLY BATCH", INVALID),
        ("DROP TABLE hostile.t", INVALID),
        ("nonsense", SYNTAX_ERROR),
    ] {
        let statements = [(BatchStatement::Text(inner), &[][..])];
        let mut bytes = Vec::new();
        encoder(version).batch(5, BatchKind::Logged, &statements, &parameters, &mut bytes);
        refused(&stage.address, &bytes, code).with_context(|| inner.to_owned())?;
    }
    stage.clear()
}

/// Fills the table for scans.
fn fill(stage: &Stage) -> Result<()> {
    let mut client = stage.client(Version::V4)?;
    let text = "x".repeat(500);
    for p in 0..ROWS {
        let stream = i16::try_from(p % 100)?;
        let insert = format!("INSERT INTO hostile.t (p, c, v) VALUES ({p}, 1, '{text}')");
        let mut bytes = Vec::new();
        client.encoder.query(stream, &insert, &nothing(), &mut bytes);
        client.send(&bytes)?;
        // A window of a hundred.
        if stream == 99 {
            for _ in 0..100 {
                let reply = client.receive()?;
                ensure!(said(&reply.decode()?.0) == "VOID", "an insert is answered {reply:?}");
            }
        }
    }
    Ok(())
}

fn unread(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    fill(&stage)?;
    let before_bytes = stage.subject.resident_bytes()?;
    let mut bytes = startup(Version::V4, None);
    for _ in 0..UNREAD {
        encoder(Version::V4).query(1, "SELECT * FROM hostile.t", &nothing(), &mut bytes);
    }
    let mut peers = Vec::new();
    for _ in 0..NON_READERS {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&bytes)?;
        peers.push(stream);
    }
    stage.others_are_served()?;
    let grown_bytes = stage.subject.resident_bytes()?.saturating_sub(before_bytes);
    let allowed_bytes = NON_READERS as u64 * UNREAD_BYTES_MAX + (32 << 20);
    ensure!(
        grown_bytes <= allowed_bytes,
        "{NON_READERS} clients that do not read cost {} MiB",
        grown_bytes >> 20
    );
    // A client that reads late gets everything.
    let mut late = peers.pop().context("there are many")?;
    let found = read_replies(&mut late, 1 + 20)?;
    ensure!(found[1..].iter().all(|(_, said)| *said == format!("{ROWS} rows")), "read late");
    drop(late);
    peers.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

fn crowd(scene: &Scene<'_>) -> Result<Outcome> {
    if let Some(skipped) = skipped_crowd() {
        return Ok(skipped);
    }
    let stage = Stage::cql(scene, &["--maxclients", "10100"])?;
    let mut peers = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        let mut stream = connect(&stage.address).with_context(|| format!("connection {number}"))?;
        stream.write_all(&startup(Version::V4, None))?;
        peers.push(stream);
    }
    for stream in &mut peers {
        let found = read_replies(stream, 1)?;
        ensure!(found == [(0, "READY".to_owned())], "STARTUP: {found:?}");
    }
    stage.others_are_served()?;
    // Resets leave no socket in the kernel, so that the next run can use all ports.
    peers.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

/// Scans and durable writes among fast reads: each is answered once, on its stream, and slow
/// requests do not delay fast ones.
fn streams(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    fill(&stage)?;
    for version in [Version::V3, Version::V4, Version::V5] {
        let mut client = stage.client(version)?;
        let mut requests = Vec::new();
        for stream in 0..STREAMS {
            let text = match stream % 4 {
                0 => "SELECT count(*) FROM hostile.t WHERE v >= 'x' ALLOW FILTERING".to_owned(),
                1 => format!("INSERT INTO hostile.t (p, c) VALUES (7, {stream})"),
                2 => format!("SELECT v FROM hostile.t WHERE p = {stream} AND c = 1"),
                _ => "SELECT release_version FROM system.local".to_owned(),
            };
            client.encoder.query(stream, &text, &nothing(), &mut requests);
        }
        client.send(&requests)?;
        let mut answered = BTreeSet::new();
        for _ in 0..STREAMS {
            let reply = client.receive()?;
            let stream = reply.header.stream;
            let expected = if stream % 4 == 1 { "VOID" } else { "1 rows" };
            let found = said(&reply.decode()?.0);
            ensure!(found == expected, "stream {stream} is answered {found}");
            ensure!(answered.insert(stream), "stream {stream} is answered twice");
        }
        stage.others_are_served()?;
    }
    stage.clear()
}
