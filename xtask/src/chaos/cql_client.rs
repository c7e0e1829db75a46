//! A writer by CQL: rows, batches over two partitions, conditions, collections and counters, and
//! rows of the keyspace `redis`, which are the keys of the other protocol.

use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use rand::Rng;
use rand::rngs::SmallRng;

use super::client::{Account, Client, Unavailable};
use crate::cql::connection::{Connection, Manner};

/// Partitions of shared rows, and rows in each.
const PARTITIONS: u32 = 10;
const ROWS: u32 = 8;
/// Keys of writer N's pair: it and this one.
const OTHER_HALF: u64 = 1_000_000;

/// All rows with what decides a merge of them: all servers must have the same.
pub(super) const READS: [&str; 5] = [
    "SELECT w, k, v, WRITETIME(v), twin, WRITETIME(twin) FROM chaos.own",
    "SELECT w, n FROM chaos.counted",
    "SELECT w, k, log, seen, latest FROM chaos.grown",
    "SELECT k, c, s, WRITETIME(s), v, WRITETIME(v), TTL(v), tags, places FROM chaos.shared",
    "SELECT keyspace_name, table_name, column_name, type FROM system_schema.columns",
];

/// Creates the tables of all writers.
pub(super) fn create_tables(address: &str) -> Result<()> {
    let mut connection = Connection::open(address)?;
    for statement in [
        "CREATE KEYSPACE chaos WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 1}",
        "CREATE TABLE chaos.own (w bigint, k bigint, v bigint, twin bigint, PRIMARY KEY (w, k))",
        "CREATE TABLE chaos.counted (w bigint PRIMARY KEY, n counter)",
        "CREATE TABLE chaos.grown (w bigint, k bigint, log list<bigint>, seen set<bigint>, \
         latest map<int, bigint>, PRIMARY KEY (w, k))",
        "CREATE TABLE chaos.shared (k int, c int, s text static, v bigint, tags set<int>, \
         places map<int, int>, PRIMARY KEY (k, c))",
    ] {
        connection.must(statement)?;
    }
    Ok(())
}

/// Starts of the errors of a server that is unavailable for a while: too few replicas, incomplete
/// data, a request that has waited for too long, no master.
const UNAVAILABLE: [&str; 4] = [
    "error 1000 ",
    "error 1001 LOADING ",
    "error 1001 The server is overloaded ",
    "error 2200 This server is a replica ",
];

pub(super) struct CqlClient {
    connection: Connection,
    number: u64,
}

fn error_of(line: &str) -> Error {
    if UNAVAILABLE.iter().any(|start| line.starts_with(start)) {
        return Unavailable(line.to_owned()).into();
    }
    anyhow!(line.to_owned())
}

impl CqlClient {
    pub(super) fn open(address: &str, account: Account, timeout: Duration) -> Result<Self> {
        let connection = Connection::open_durable(address, account.durability, timeout)?;
        Ok(Self { connection, number: account.number })
    }

    fn run(&mut self, statement: &str) -> Result<Vec<String>> {
        let mut lines = self.connection.query(statement, Manner::default())?;
        match lines.first() {
            Some(line) if line.starts_with("error") => {
                Err(error_of(line).context(statement.to_owned()))
            }
            Some(_) => Ok(lines.split_off(1)),
            None => bail!("{statement} is not answered"),
        }
    }

    /// Runs a statement with a condition. True if the condition held.
    fn is_applied(&mut self, statement: &str) -> Result<bool> {
        let rows = self.run(statement)?;
        Ok(rows.first().is_some_and(|row| row.starts_with("true")))
    }

    /// The values of two columns, which every write sets to the same value.
    fn twins(&mut self, writer: u64, register: u64) -> Result<Option<u64>> {
        let statement =
            format!("SELECT v, twin FROM chaos.own WHERE w = {writer} AND k = {register}");
        let rows = self.run(&statement)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (value, twin) = row.split_once(" | ").context("two columns")?;
        ensure!(value == twin, "a row is torn: {statement}: {row}");
        Ok(Some(value.parse()?))
    }
}

impl Client for CqlClient {
    fn set(&mut self, register: u64, value: u64) -> Result<()> {
        let writer = self.number;
        let at = format!("WHERE w = {writer} AND k = {register}");
        let update = format!("UPDATE chaos.own SET v = {value}, twin = {value} {at}");
        let insert = format!(
            "INSERT INTO chaos.own (w, k, v, twin) VALUES ({writer}, {register}, {value}, {value})"
        );
        match register % 3 {
            0 => self.run(&insert).map(drop),
            1 => self.run(&update).map(drop),
            _ => {
                let is_set = self.is_applied(&format!("{update} IF v < {value}"))?
                    || self.is_applied(&format!("{insert} IF NOT EXISTS"))?;
                ensure!(is_set, "register {register} has neither an old value nor none");
                Ok(())
            }
        }
    }

    fn get(&mut self, register: u64) -> Result<Option<u64>> {
        self.twins(self.number, register)
    }

    fn append(&mut self, list: u64, value: u64) -> Result<()> {
        let slot = value % 10;
        self.run(&format!(
            "UPDATE chaos.grown SET log = log + [{value}], seen = seen + {{{value}}}, \
             latest[{slot}] = {value} WHERE w = {} AND k = {list}",
            self.number
        ))
        .map(drop)
    }

    fn list(&mut self, list: u64) -> Result<Vec<u64>> {
        let at = format!("WHERE w = {} AND k = {list}", self.number);
        let rows = self.run(&format!("SELECT log, seen FROM chaos.grown {at}"))?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        let (log, seen) = row.split_once(" | ").context("two columns")?;
        let same = log.trim_matches(['[', ']']) == seen.trim_matches(['{', '}']);
        ensure!(same, "the list and the set of a row differ: {row}");
        let numbers = log.trim_matches(['[', ']']).split(", ").map(str::parse);
        Ok(numbers.collect::<Result<_, _>>()?)
    }

    fn increment(&mut self) -> Result<()> {
        let writer = self.number;
        self.run(&format!("UPDATE chaos.counted SET n = n + 1 WHERE w = {writer}")).map(drop)
    }

    fn count(&mut self) -> Result<u64> {
        let rows = self.run(&format!("SELECT n FROM chaos.counted WHERE w = {}", self.number))?;
        Ok(rows.first().map_or(Ok(0), |row| row.parse())?)
    }

    fn set_pair(&mut self, value: u64) -> Result<()> {
        let insert = |writer| {
            format!("INSERT INTO chaos.own (w, k, v, twin) VALUES ({writer}, 0, {value}, {value});")
        };
        let (first, second) =
            (insert(self.number + OTHER_HALF), insert(self.number + 2 * OTHER_HALF));
        self.run(&format!("BEGIN BATCH {first} {second} APPLY BATCH")).map(drop)
    }

    fn pair(&mut self) -> Result<[Option<u64>; 2]> {
        let writer = self.number;
        Ok([self.twins(writer + OTHER_HALF, 0)?, self.twins(writer + 2 * OTHER_HALF, 0)?])
    }

    fn change_shared(&mut self, random: &mut SmallRng) -> Result<()> {
        let (k, c) = (random.random_range(0..PARTITIONS), random.random_range(0..ROWS));
        let value = random.random_range(0..1000);
        let (at, writer) = (format!("WHERE k = {k} AND c = {c}"), self.number);
        let statement = match random.random_range(0..12) {
            0 => format!("INSERT INTO chaos.shared (k, c, v) VALUES ({k}, {c}, {value})"),
            1 => format!("UPDATE chaos.shared USING TTL 2 SET v = {value} {at}"),
            2 => format!("UPDATE chaos.shared SET s = '{writer}-{value}' WHERE k = {k}"),
            3 => format!("UPDATE chaos.shared SET tags = tags + {{{}}} {at}", value % 20),
            4 => format!("UPDATE chaos.shared SET tags = {{{value}}}, v = {value} {at}"),
            5 => format!("UPDATE chaos.shared SET places[{}] = {value} {at}", value % 20),
            6 => format!("DELETE places[{}] FROM chaos.shared {at}", value % 20),
            7 => format!("DELETE v FROM chaos.shared {at}"),
            8 => format!("DELETE FROM chaos.shared WHERE k = {k} AND c > {c}"),
            9 => format!("DELETE FROM chaos.shared {at} IF v > {value}"),
            10 => format!(
                "UPDATE redis.hashes SET value = textAsBlob('{value}') \
                 WHERE key = textAsBlob('ch{k}') AND field = textAsBlob('f{c}')"
            ),
            _ => format!(
                "INSERT INTO redis.zsets (key, member, score) \
                 VALUES (textAsBlob('cz{k}'), textAsBlob('m{c}'), {value})"
            ),
        };
        self.run(&statement).map(drop)
    }
}
