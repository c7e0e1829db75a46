//! Clients that write through CQL: each has its own tables, sends statements in pipelines until the
//! server has ended, and then determines the valid states after a restart. All of them race for
//! rows and share a counter.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wire::cql::{Response, Version};

use super::cql_state::{self, Expected, PUBLISHED, State, Step};
use super::writer::{Fault, judge_end};
use crate::cql::client::{Client, Message, nothing};
use crate::cql::connection::{Connection, Manner};

/// Statements sent before their answers are read; each has its own stream.
const DEPTH_MAX: usize = 32;
/// Rows of races in one round.
const RACES: i64 = 40;
/// Maximum number of lines in an error.
const SHOWN_MAX: usize = 6;
/// Versions of the protocol: each client uses one of them, and another one in the next round.
const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

/// A client with its tables.
#[derive(Debug)]
pub(crate) struct CqlWriter {
    /// The prefix of its tables' names.
    pub(crate) name: String,
    /// The state before the statements in flight.
    state: State,
    /// Statements in order of sending; answered ones are kept until all are answered.
    in_flight: Vec<Step>,
    /// The number of leading statements that must be found: one of them, or a later one, was
    /// acknowledged.
    decided: usize,
    pub(crate) acknowledged: u64,
    /// Increments of the shared counter since the last restart.
    shares_sent: i64,
    shares_acknowledged: i64,
    /// Races in which it took part, and the winner reported to it.
    raced: BTreeMap<i64, Option<String>>,
}

/// A client that reads what others publish.
#[derive(Debug)]
pub(crate) struct CqlObserver {
    targets: Vec<String>,
    /// The greatest version by client.
    seen: BTreeMap<String, i64>,
    pub(crate) reads: u64,
}

impl CqlWriter {
    pub(crate) fn new(number: usize) -> CqlWriter {
        CqlWriter {
            name: format!("w{number}"),
            state: State::default(),
            in_flight: Vec::new(),
            decided: 0,
            acknowledged: 0,
            shares_sent: 0,
            shares_acknowledged: 0,
            raced: BTreeMap::new(),
        }
    }

    /// Writes until the connection breaks. An error is a violation by the server.
    pub(crate) fn run(
        &mut self,
        address: &str,
        seed: u64,
        round: u64,
        stopping: &AtomicBool,
    ) -> Result<(), String> {
        match self.write(address, &mut StdRng::seed_from_u64(seed), round) {
            Ok(never) => match never {},
            Err(fault) => judge_end(&format!("CQL client {}", self.name), fault, stopping),
        }
    }

    fn write(
        &mut self,
        address: &str,
        random: &mut StdRng,
        round: u64,
    ) -> Result<Infallible, Fault> {
        let version = VERSIONS[random.random_range(0..VERSIONS.len())];
        let mut client = Client::open(address, version, None)?;
        let races = i64::try_from(round).unwrap_or(0) * RACES;
        loop {
            let mut ahead = self.state.clone();
            let mut expected = Vec::new();
            let mut requests = Vec::new();
            let depth = random.random_range(1..=DEPTH_MAX);
            for stream in 0..depth {
                let race = races + random.random_range(0..RACES);
                let step = ahead.step(random, race);
                expected.push(ahead.take(&step));
                match step {
                    Step::Share => self.shares_sent += 1,
                    Step::Race { k } => drop(self.raced.entry(k).or_default()),
                    _ => {}
                }
                let stream = i16::try_from(stream).expect("the depth is small");
                let statement = step.statement(&self.name);
                client.encoder.query(stream, &statement, &nothing(), &mut requests);
                self.in_flight.push(step);
            }
            client.send(&requests)?;
            for _ in 0..depth {
                let message = client.receive()?;
                self.note(&message, &expected)?;
            }
            self.state = ahead;
            self.in_flight.clear();
            self.decided = 0;
        }
    }

    /// Evaluates one answer.
    fn note(&mut self, message: &Message, expected: &[Expected]) -> Result<(), Fault> {
        let at = usize::try_from(message.header.stream).ok().filter(|at| *at < expected.len());
        let wrong = |what: String| Err(Fault::Wrong(what));
        let Some(at) = at else {
            return wrong(format!("an answer on stream {}", message.header.stream));
        };
        let (response, _) = message.decode()?;
        let step = &self.in_flight[at];
        let mut is_write = true;
        match (&response, expected[at]) {
            (Response::Void, Expected::Done) | (Response::SchemaChange(_), Expected::Schema) => {}
            (Response::Rows(rows), Expected::Applied(wanted)) => {
                is_write = wanted;
                if rows.cells().next().flatten() != Some(&[u8::from(wanted)][..]) {
                    return wrong(format!("{step:?} got {response:?}, not {wanted}"));
                }
            }
            (Response::Rows(rows), Expected::Open) => {
                let Step::Race { k } = *step else {
                    return wrong(format!("{step:?} is not a race"));
                };
                is_write = rows.cells().next().flatten() == Some(&[1]);
                let winner = if is_write {
                    self.name.clone()
                } else {
                    // `[applied]`, the key, the winner.
                    let winner = rows.cells().nth(2).flatten().context("a winner")?;
                    String::from_utf8_lossy(winner).into_owned()
                };
                match self.raced.insert(k, Some(winner.clone())).flatten() {
                    Some(before) if before != winner => {
                        return wrong(format!("race {k} was won by {before} and by {winner}"));
                    }
                    _ => {}
                }
            }
            _ => return wrong(format!("{step:?} got {response:?}")),
        }
        if *step == Step::Share {
            self.shares_acknowledged += 1;
        }
        self.acknowledged += 1;
        // A condition that did not hold does not acknowledge earlier statements.
        if is_write {
            self.decided = self.decided.max(at + 1);
        }
        Ok(())
    }

    /// The number of statements that the next restart may include or not.
    pub(crate) fn undecided(&self) -> usize {
        self.in_flight.len() - self.decided
    }

    /// Compares the state found after a restart with the valid ones, and continues from it. Returns
    /// the number of undecided statements in it.
    pub(crate) fn settle(&mut self, connection: &mut Connection) -> Result<usize> {
        let found = read(connection, &self.name)?;
        let mut nearest: Option<(usize, usize, BTreeSet<String>)> = None;
        let mut state = self.state.clone();
        for taken in 0..=self.in_flight.len() {
            if taken > 0 {
                state.take(&self.in_flight[taken - 1]);
            }
            if taken < self.decided {
                continue;
            }
            let lines = state.lines(&self.name);
            if lines == found {
                let kept = taken - self.decided;
                self.state = state;
                self.in_flight.clear();
                self.decided = 0;
                self.acknowledged = 0;
                return Ok(kept);
            }
            let distance = lines.symmetric_difference(&found).count();
            if nearest.as_ref().is_none_or(|(least, ..)| distance < *least) {
                nearest = Some((distance, taken, lines));
            }
        }
        let (_, taken, lines) = nearest.context("one state was tried at least")?;
        let missing: Vec<&String> = lines.difference(&found).take(SHOWN_MAX).collect();
        let extra: Vec<&String> = found.difference(&lines).take(SHOWN_MAX).collect();
        bail!(
            "CQL client {}: the data is not what any prefix of its {} statements in flight gives, \
             of which {} are decided; nearest is after {taken}:\n    expected {missing:#?}\n    found \
             {extra:#?}",
            self.name,
            self.in_flight.len(),
            self.decided
        );
    }
}

impl CqlObserver {
    pub(crate) fn new(targets: Vec<String>) -> CqlObserver {
        CqlObserver { targets, seen: BTreeMap::new(), reads: 0 }
    }

    /// Reads until the connection breaks. An error is a violation by the server.
    pub(crate) fn run(
        &mut self,
        address: &str,
        seed: u64,
        stopping: &AtomicBool,
    ) -> Result<(), String> {
        self.reads = 0;
        match self.observe(address, &mut StdRng::seed_from_u64(seed)) {
            Ok(never) => match never {},
            Err(fault) => judge_end("CQL observer", fault, stopping),
        }
    }

    fn observe(&mut self, address: &str, random: &mut StdRng) -> Result<Infallible, Fault> {
        let mut connection = Connection::open(address)?;
        loop {
            let target = self.targets[random.random_range(0..self.targets.len())].clone();
            let place = random.random_range(0..PUBLISHED.len());
            let version = published(&mut connection, &target, place)?;
            let seen = self.seen.entry(target.clone()).or_default();
            if version < *seen {
                return Err(Fault::Wrong(format!(
                    "reads version {version} of {target} after {seen}: a write was undone"
                )));
            }
            *seen = version;
            self.reads += 1;
        }
    }

    /// Checks that everything it has seen, or a newer version, is there.
    pub(crate) fn check(&self, connection: &mut Connection) -> Result<()> {
        for (target, seen) in &self.seen {
            for place in 0..PUBLISHED.len() {
                let version = published(connection, target, place)?;
                if version < *seen {
                    bail!("CQL observer: {target} is at {version}, and {seen} was read");
                }
            }
        }
        Ok(())
    }
}

fn published(connection: &mut Connection, client: &str, place: usize) -> Result<i64> {
    let statement = cql_state::read_published(client, place);
    let rows = rows(connection, &statement)?;
    rows.first().map_or(Ok(0), |row| row.parse().with_context(|| format!("the version {row}")))
}

/// The rows of a SELECT; the first line names the columns.
fn rows(connection: &mut Connection, statement: &str) -> Result<Vec<String>> {
    let lines = connection.query(statement, Manner::default())?;
    if lines.first().is_none_or(|line| line.starts_with("error")) {
        bail!("{statement} is answered {lines:?}");
    }
    Ok(lines[1..].to_vec())
}

/// All rows of a client, as [`State::lines`].
fn read(connection: &mut Connection, client: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut add = |name: &str, rows: Vec<String>| {
        found.extend(rows.into_iter().map(|row| format!("{name} {row}")));
    };
    for (name, statement) in cql_state::read_rows(client) {
        add(&name, rows(connection, &statement)?);
    }
    for name in cql_state::spares(client) {
        let columns = format!(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'crash' AND \
             table_name = '{name}'"
        );
        let columns = rows(connection, &columns)?;
        if columns.is_empty() {
            continue;
        }
        add(&name, vec![format!("has {}", columns.join(", "))]);
        add(&name, rows(connection, &format!("SELECT k, a FROM crash.{name}"))?);
    }
    Ok(found)
}

/// Creates the tables of all clients.
pub(crate) fn create(address: &str, writers: &[CqlWriter]) -> Result<()> {
    let mut connection = Connection::open(address)?;
    connection.must(
        "CREATE KEYSPACE IF NOT EXISTS crash WITH replication = {'class': 'SimpleStrategy', \
         'replication_factor': 1}",
    )?;
    connection.must("CREATE TABLE IF NOT EXISTS crash.race (k bigint PRIMARY KEY, winner text)")?;
    connection.must("CREATE TABLE IF NOT EXISTS crash.shared (k int PRIMARY KEY, n counter)")?;
    for writer in writers {
        for statement in cql_state::creation(&writer.name) {
            connection.must(&statement)?;
        }
    }
    Ok(())
}

/// Checks shared data: each race has the winner that was reported, and the counter includes every
/// acknowledged increment and none that was not sent. Returns the counter.
pub(crate) fn check_shared(
    connection: &mut Connection,
    writers: &mut [CqlWriter],
    counter: i64,
) -> Result<i64> {
    let found = rows(connection, "SELECT k, winner FROM crash.race")?;
    let found: BTreeMap<&str, &str> =
        found.iter().filter_map(|row| row.split_once(" | ")).collect();
    for writer in &*writers {
        for (k, reported) in &writer.raced {
            let winner = found.get(k.to_string().as_str()).map(|winner| winner.trim_matches('\''));
            if reported.is_some() && reported.as_deref() != winner {
                let name = &writer.name;
                bail!("race {k}: {name} got {reported:?} as the winner, found {winner:?}");
            }
            let was_sent =
                |winner| writers.iter().any(|it| it.name == winner && it.raced.contains_key(k));
            if winner.is_some_and(|winner| !was_sent(winner)) {
                bail!("race {k} was won by {winner:?}, which did not take part");
            }
        }
    }
    let value = rows(connection, "SELECT n FROM crash.shared")?;
    let value: i64 = value.first().map_or(Ok(0), |row| row.parse())?;
    let acknowledged: i64 = writers.iter().map(|writer| writer.shares_acknowledged).sum();
    let sent: i64 = writers.iter().map(|writer| writer.shares_sent).sum();
    if !(counter + acknowledged..=counter + sent).contains(&value) {
        let (least, most) = (counter + acknowledged, counter + sent);
        bail!("the shared counter of CQL: expected {least} to {most}, found {value}");
    }
    for writer in writers {
        writer.raced.clear();
        (writer.shares_sent, writer.shares_acknowledged) = (0, 0);
    }
    Ok(value)
}
