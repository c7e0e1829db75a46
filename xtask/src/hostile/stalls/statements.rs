//! Statements of CQL and requests of HTTP at their limits.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use wire::cql::{Compression, Version};

use super::super::ask::{connect, read_to_end, shown};
use super::super::subject::Subject;
use super::{Probe, Stall};
use crate::cql::connection::{Connection, Manner};

/// Digits of a number, at their limit.
const DIGITS: usize = 10_000;
const ROWS: usize = 20_000;
const ROWS_PER_BATCH: usize = 1_000;
/// Together as long as the maximum result without pages.
const LARGE_ROWS: usize = 63;
const LARGE_ROW_BYTES: usize = 1 << 20;

/// Statements that create the data for the others.
const SCHEMA: &[&str] = &[
    "CREATE KEYSPACE stalls WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE stalls.t (p int, c int, v text, n varint, l list<int>, PRIMARY KEY (p, c))",
    "CREATE TABLE stalls.large (p int, c int, v text, PRIMARY KEY (p, c))",
];

const STATEMENTS: &[&str] = &[
    "SELECT * FROM stalls.t",
    "SELECT count(*) FROM stalls.t",
    "SELECT * FROM stalls.t WHERE p = 1",
    "SELECT * FROM stalls.t WHERE p = 1 ORDER BY c DESC",
    "SELECT * FROM stalls.t WHERE v = 'nosuch' ALLOW FILTERING",
    "SELECT sum(c), max(v) FROM stalls.t",
    "DELETE FROM stalls.t WHERE p = 1 AND c > 10",
    "SELECT CAST(n AS text) FROM stalls.t WHERE p = 2",
    "SELECT * FROM redis.zsets LIMIT 10",
    "SELECT * FROM redis.hashes WHERE key = 0x68617368 LIMIT 10",
    "SELECT count(*) FROM redis.hashes WHERE key = 0x68617368",
    "SELECT field FROM redis.hashes WHERE key = 0x68617368 AND value = 0x00 ALLOW FILTERING",
    "SELECT key, sum(score), max(member) FROM redis.zsets WHERE key = 0x7a736574 GROUP BY key",
    "SELECT member FROM redis.sets WHERE key = 0x736574 ORDER BY member DESC",
    "SELECT \"index\", count(*) FROM redis.lists WHERE key = 0x6c697374 GROUP BY key, \"index\"",
    "SELECT DISTINCT key FROM redis.sets",
    "UPDATE redis.hashes SET value = 0x76 WHERE key = 0x68617368 AND field = 0x6530 IF value = 0x00",
    "DELETE FROM redis.hashes WHERE key = 0x68617368 AND field > 0x7a",
    "SELECT count(*) FROM redis.strings",
    "SELECT * FROM system_schema.columns",
    "TRUNCATE stalls.t",
];

/// Path and body of POST requests.
const POSTS: &[(&str, &str, usize)] = &[
    ("/", r#"["SMEMBERS","set"]"#, 0),
    ("/pipeline", r#"["LPOS","list","nosuch"]"#, 100),
    ("/pipeline", r#"["PING"]"#, 10_000),
    ("/multi-exec", r#"["INCR","n"]"#, 10_000),
];

const GETS: &[&str] =
    &["/metrics", "/api/v1/overview", "/api/v1/connections", "/api/v1/requests", "/api/v1/memory"];

pub(super) fn run(subject: &Subject, probe: &mut Probe, stalls: &mut Vec<Stall>) -> Result<()> {
    let address = subject.cql_address.as_ref().context("no CQL")?;
    let mut connection = Connection::open(address)?;
    fill(&mut connection)?;
    whole_results(address, probe, stalls)?;
    let varint = format!("INSERT INTO stalls.t (p, c, n) VALUES (2, 0, {})", "7".repeat(DIGITS));
    for statement in std::iter::once(varint.as_str()).chain(STATEMENTS.iter().copied()) {
        let name: String = statement.chars().take(70).collect();
        let time = probe.shortest(|probe| {
            probe.measure(|| {
                let lines = connection.query(statement, Manner::paged(Some(5_000)))?;
                ensure!(!lines.iter().any(|it| it.starts_with("error")), "{:?}", lines.first());
                Ok(())
            })
        });
        stalls.push(Stall { time: time.with_context(|| name.clone())?, name });
    }
    for (path, command, times) in POSTS {
        let body = match times {
            0 => (*command).to_owned(),
            times => format!("[{}]", vec![*command; *times].join(",")),
        };
        let name = format!("POST {path} {command} x {times}");
        let time = probe.shortest(|probe| probe.measure(|| http(subject, "POST", path, &body)));
        stalls.push(Stall { time: time.with_context(|| name.clone())?, name });
    }
    for path in GETS {
        let name = format!("GET {path}");
        let time = probe.shortest(|probe| probe.measure(|| http(subject, "GET", path, "")));
        stalls.push(Stall { time: time.with_context(|| name.clone())?, name });
    }
    Ok(())
}

/// A result of the maximum size without pages, in every encoding.
fn whole_results(address: &str, probe: &mut Probe, stalls: &mut Vec<Stall>) -> Result<()> {
    for (version, compression) in [
        (Version::V4, None),
        (Version::V4, Some(Compression::Lz4)),
        (Version::V4, Some(Compression::Snappy)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        let name = format!("SELECT v FROM stalls.large, {version:?}, {compression:?}");
        let mut connection = Connection::open_as(address, version, compression)?;
        let time = probe.shortest(|probe| {
            probe.measure(|| {
                let lines = connection.query("SELECT v FROM stalls.large", Manner::default())?;
                ensure!(lines.len() == LARGE_ROWS + 1, "{:?}", lines.first());
                Ok(())
            })
        });
        stalls.push(Stall { time: time.with_context(|| name.clone())?, name });
    }
    let mut connection = Connection::open(address)?;
    insert_large(&mut connection, LARGE_ROWS)?;
    insert_large(&mut connection, LARGE_ROWS + 1)?;
    let lines = connection.query("SELECT v FROM stalls.large", Manner::default())?;
    let is_refused = lines.iter().any(|it| it.starts_with("error 1001 The result has more than"));
    ensure!(is_refused, "{:?}", lines.first());
    let lines = connection.query("SELECT v FROM stalls.large", Manner::paged(Some(5_000)))?;
    let rows = lines.iter().filter(|it| it.len() >= LARGE_ROW_BYTES).count();
    ensure!(rows == LARGE_ROWS + 2, "{rows} rows");
    connection.must("DROP TABLE stalls.large")
}

fn fill(connection: &mut Connection) -> Result<()> {
    SCHEMA.iter().try_for_each(|statement| connection.must(statement))?;
    for first in (0..ROWS).step_by(ROWS_PER_BATCH) {
        let inserts: Vec<String> = (first..first + ROWS_PER_BATCH)
            .map(|c| format!("INSERT INTO stalls.t (p, c, v) VALUES (1, {c}, 'v{c}');"))
            .collect();
        connection.must(&format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", inserts.concat()))?;
    }
    (0..LARGE_ROWS).try_for_each(|c| insert_large(connection, c))
}

fn insert_large(connection: &mut Connection, c: usize) -> Result<()> {
    let words: Vec<String> =
        (0..LARGE_ROW_BYTES / 16).map(|at| format!("{:016x}", at * c)).collect();
    let text = words.concat();
    connection.must(&format!("INSERT INTO stalls.large (p, c, v) VALUES (1, {c}, '{text}')"))
}

fn http(subject: &Subject, method: &str, path: &str, body: &str) -> Result<()> {
    let mut stream = connect(subject.http_address.as_ref().context("no HTTP")?)?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let answer = read_to_end(&mut stream)?;
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", shown(&answer));
    Ok(())
}
