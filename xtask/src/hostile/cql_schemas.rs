//! Schemas that are accepted, statement by statement, and add up to what no response can carry.

use anyhow::{Result, ensure};
use wire::cql::{BatchKind, BatchStatement, Consistency, Parameters, Version};

use super::cql::{Stage, encoder, nothing, refused, said};
use super::{Check, Outcome, Scene};
use crate::cql::connection::{Connection, Manner};

const SYNTAX_ERROR: i32 = 0x2000;
const INVALID: i32 = 0x2200;
/// Tables of a batch: their names have more bytes than a warning can.
const TABLES: usize = 720;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "CQL: long warnings", suits_any_server: false, run: warnings },
    Check { name: "CQL: types that grow by their names", suits_any_server: false, run: types },
    Check { name: "CQL: empty tuples, long numbers", suits_any_server: false, run: terms },
];

fn warnings(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::set(scene, &[])?;
    let mut connection = Connection::open(&stage.address)?;
    let keyspace = "k".repeat(48);
    connection.must(&format!(
        "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', \
         'replication_factor': 1}}"
    ))?;
    let names: Vec<String> = (0..TABLES).map(|nth| format!("{keyspace}.t{nth:0>47}")).collect();
    for name in &names {
        connection.must(&format!("CREATE TABLE {name} (p int PRIMARY KEY)"))?;
    }
    let texts: Vec<String> =
        names.iter().map(|name| format!("INSERT INTO {name} (p) VALUES (1)")).collect();
    let batch: Vec<_> = texts.iter().map(|text| (BatchStatement::Text(text), &[][..])).collect();
    let parameters = Parameters::new(Consistency::One);
    let mut client = stage.client(Version::V4)?;
    let reply = client.ask(|to, out| to.batch(1, BatchKind::Unlogged, &batch, &parameters, out))?;
    let (response, notes) = reply.decode()?;
    ensure!(said(&response) == "VOID", "a batch of {TABLES} tables: {response:?}");
    let longest = notes.warnings.iter().map(|warning| warning.len()).max();
    ensure!(longest == Some(usize::from(u16::MAX)), "warnings of {longest:?} bytes");
    drop(client);
    connection.must(&format!("DROP KEYSPACE {keyspace}"))?;
    drop(connection);
    stage.others_are_served()?;
    stage.subject.stop()?;
    Ok(Outcome::Passed)
}

fn types(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::set(scene, &[])?;
    let mut connection = Connection::open(&stage.address)?;
    let is_refused = |statement: &str| -> Result<bool> {
        let mut connection = Connection::open(&stage.address)?;
        let answer = connection.query(statement, Manner::default())?;
        Ok(answer.first().is_some_and(|line| line.starts_with("error 2200")))
    };
    let table =
        |name: &str, of: &str| format!("CREATE TABLE hostile.{name} (p int PRIMARY KEY, v {of})");
    let wide = format!("tuple<{}>", vec!["int"; 70_000].join(","));
    ensure!(is_refused(&table("wide", &wide))?, "a tuple of 70,000 parts is accepted");
    let field = |nth: usize| format!("{}{nth} int", "f".repeat(100));
    let fields: Vec<String> = (0..600).map(field).collect();
    connection.must(&format!("CREATE TYPE hostile.named ({})", fields.join(", ")))?;
    let vector = table("vectors", "vector<frozen<named>, 2>");
    ensure!(is_refused(&vector)?, "a vector with a long class name is accepted");
    // Each type has the one before in many levels, or many times.
    for (name, around) in [("deep", 28), ("broad", 0)] {
        connection.must(&format!("CREATE TYPE hostile.{name}0 (a int)"))?;
        let mut last = 0;
        for nth in 1..500 {
            let before = format!("frozen<{name}{}>", nth - 1);
            let of = match around {
                0 => ["a", "b", "c", "d"].map(|field| format!("{field} {before}")).join(", "),
                levels => {
                    format!("a {}{before}{}", "frozen<list<".repeat(levels), ">>".repeat(levels))
                }
            };
            if is_refused(&format!("CREATE TYPE hostile.{name}{nth} ({of})"))? {
                break;
            }
            last = nth;
        }
        ensure!(last < 32, "{last} types within each other are accepted");
        connection.must(&table(name, &format!("frozen<{name}{last}>")))?;
        for statement in [
            format!("SELECT v FROM hostile.{name}"),
            format!("SELECT JSON * FROM hostile.{name}"),
            format!("DESCRIBE TABLE hostile.{name}"),
        ] {
            connection.must(&statement)?;
        }
    }
    connection.must("DESCRIBE KEYSPACE hostile")?;
    drop(connection);
    stage.clear()?;
    Ok(Outcome::Passed)
}

fn terms(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::set(scene, &[])?;
    let digits = "9".repeat(1_600_000);
    for (statement, code) in [
        ("SELECT * FROM hostile.t WHERE () IN ()".to_owned(), SYNTAX_ERROR),
        ("SELECT key FROM system.local WHERE () = (1)".to_owned(), SYNTAX_ERROR),
        (format!("SELECT (varint) {digits} FROM hostile.t"), INVALID),
        (format!("SELECT (decimal) {digits}.5 FROM hostile.t"), INVALID),
    ] {
        for prepares in [false, true] {
            let mut bytes = Vec::new();
            if prepares {
                encoder(Version::V4).prepare(5, &statement, None, &mut bytes);
            } else {
                encoder(Version::V4).query(5, &statement, &nothing(), &mut bytes);
            }
            refused(&stage.address, &bytes, code)?;
        }
    }
    stage.clear()?;
    Ok(Outcome::Passed)
}
