//! Schemas whose statements are accepted one by one, but whose description would exceed any
//! response.

use anyhow::{Result, ensure};
use wire::cql::Version;

use super::cql::{encoder, refused};
use super::stage::Stage;
use super::{Check, Outcome, Scene};
use crate::cql::client::nothing;
use crate::cql::connection::{Connection, Manner};

const SYNTAX_ERROR: i32 = 0x2000;
const INVALID: i32 = 0x2200;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "CQL: types that grow by their names", suits_any_server: false, run: types },
    Check { name: "CQL: empty tuples, long numbers", suits_any_server: false, run: terms },
];

fn types(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
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
    // Each type contains the one before, deeply nested or many times.
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
    stage.clear()
}

fn terms(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::cql(scene, &[])?;
    let mut connection = Connection::open(&stage.address)?;
    connection.must("CREATE TABLE hostile.numbers (p int PRIMARY KEY, v varint, d decimal)")?;
    drop(connection);
    let digits = "9".repeat(100_000);
    for (statement, code) in [
        ("SELECT * FROM hostile.t WHERE () IN ()".to_owned(), SYNTAX_ERROR),
        ("SELECT key FROM system.local WHERE () = (1)".to_owned(), SYNTAX_ERROR),
        (format!("INSERT INTO hostile.numbers (p, v) VALUES (1, {digits})"), INVALID),
        (format!("INSERT INTO hostile.numbers (p, d) VALUES (1, {digits}.5)"), SYNTAX_ERROR),
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
    stage.clear()
}
