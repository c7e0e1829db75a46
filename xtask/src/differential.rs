//! `cargo xtask cql-differential`: random schemas and statements, for Myriad and a real Cassandra,
//! or for an undisturbed Myriad and one that is killed and restarted repeatedly.
//!
//! Every statement is sent to both, with the same timestamps, as a literal or with values for its
//! markers. The answers must be equal, byte by byte and word by word. After a difference, the
//! statements before it are reduced to the necessary ones, and printed. `docs/migrate/cassandra.md`
//! lists the known differences.

mod bind;
mod change;
mod disturbed;
mod encode;
mod known;
mod query;
mod schema;
mod shrink;
mod term;
mod types;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wire::cql::Version;

use crate::cql::bound::{Batch, Named};
use crate::cql::connection::{Connection, Manner};
use crate::process::{Server, Target};
use crate::tally::Tally;
use disturbed::Disturbed;
use schema::{TABLE, Table, Times};
use types::USER_TYPE;

/// The keyspace of all tables.
const KEYSPACE: &str = "differential";
/// Time of a schema's first statement; each later one runs a second later. Far in the future, so
/// that no data expires in the background.
const START_SECONDS: i32 = 1_900_000_000;
/// Maximum number of steps after which the disturbed server is killed.
const UNDISTURBED_MAX: usize = 15;
/// Probability of ALTER TABLE: a change of a schema takes Cassandra a while.
const ALTERS: f64 = 0.02;
/// Cassandra's error while an index is being built, the number of attempts, and the pause between
/// them.
const READ_FAILURE: &str = "error 1300";
const INDEX_TRIES_MAX: u32 = 10;
const INDEX_PAUSE: Duration = Duration::from_millis(50);
/// Schemas with differences after which a run ends.
const FAILURES_MAX: u64 = 50;

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) schemas: u64,
    /// Statements for each.
    pub(crate) statements: usize,
    pub(crate) against: Against,
}

/// The reference server.
#[derive(Debug)]
pub(crate) enum Against {
    /// At `host:port`.
    Address(String),
    /// A second, undisturbed Myriad.
    Itself,
}

/// One statement and the way it is sent.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    text: String,
    manner: Manner,
    way: Way,
    /// A later step may depend on it, so it is removed only after a trial.
    is_change: bool,
}

/// The way a statement is sent to a server.
#[derive(Debug, Clone, PartialEq)]
enum Way {
    /// As QUERY, with values for its markers.
    Direct(Vec<Named>),
    /// As PREPARE and EXECUTE.
    Prepared(Vec<Named>),
    /// As BATCH. The text of the step is equivalent, without markers.
    Batch(Batch),
}

/// The two servers.
struct Pair {
    myriad: Connection,
    other: Connection,
    /// The connection of `myriad` to a server that is killed from time to time, if requested.
    disturbed: Option<Disturbed>,
    /// Makes names of tables and types unique.
    number: u64,
}

/// Different answers of two servers to one step.
#[derive(Debug)]
struct Difference {
    at: usize,
    is_change: bool,
    /// The keywords of the statement.
    asked: String,
    myriad: Vec<String>,
    other: Vec<String>,
}

impl Difference {
    /// Whether the data of the two servers differs, so that later answers are meaningless. A
    /// rejected read changes no data, and neither does a different description of a prepared
    /// statement.
    fn is_data(&self) -> bool {
        !self.is_of_preparation() && (self.is_change || !self.is_refused())
    }

    fn is_of_preparation(&self) -> bool {
        known::parted(&self.myriad)[0] == known::parted(&self.other)[0]
    }

    fn is_refused(&self) -> bool {
        self.myriad.iter().chain(&self.other).any(|line| line.starts_with("error"))
    }

    /// Identifies differences that are shown only once: for errors, their texts without names and
    /// numbers; for answers, the differing part and the kind of statement.
    fn kind(&self) -> String {
        let part = |lines: &[String]| {
            let error = lines.iter().find(|line| line.starts_with("error"));
            let words = error.map_or("an answer", String::as_str).split_whitespace();
            let words = words.filter(|word| word.chars().all(|it| it.is_ascii_alphabetic()));
            words.collect::<Vec<_>>().join(" ")
        };
        if self.is_of_preparation() {
            return format!("answers to PREPARE differ: {}", self.asked);
        }
        if !self.is_refused() {
            let columns = self.myriad.first() == self.other.first();
            let rows = self.myriad.len() == self.other.len();
            let what = match (columns, rows) {
                (false, _) => "columns",
                (true, false) => "the number of rows",
                (true, true) => "rows",
            };
            return format!("{what} differ: {}", self.asked);
        }
        format!("{} / {}", part(&self.myriad), part(&self.other))
    }
}

/// Runs all schemas. Each kind of difference is shown once.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let server = Server::start(root, &Target::Myriad)?;
    let address = server.cql_address.clone().context("it listens for CQL")?;
    let connection = Connection::open_as(&address, Version::V5, None)?;
    let mut pair = match &options.against {
        Against::Address(believed) => Pair {
            myriad: connection,
            other: Connection::open_as(believed, Version::V5, None)?,
            disturbed: None,
            number: 0,
        },
        Against::Itself => {
            let disturbed = Disturbed::start(root)?;
            Pair {
                myriad: disturbed.connect()?,
                other: connection,
                disturbed: Some(disturbed),
                number: 0,
            }
        }
    };
    pair.both(&format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"))?;
    pair.both(&format!(
        "CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    ))?;
    pair.both(&format!("USE {KEYSPACE}"))?;
    println!("cql-differential: seed {}, {} schemas", options.seed, options.schemas);
    let started = Instant::now();
    let (mut tally, mut kinds) = (Tally::default(), BTreeSet::new());
    for schema in 0..options.schemas {
        let seed = options.seed.wrapping_add(schema);
        let steps = steps(seed, options.statements);
        let differences = pair.replay(&steps, Difference::is_data)?;
        if differences.is_empty() {
            tally.passed += 1;
            continue;
        }
        tally.failed += 1;
        for difference in differences {
            if kinds.insert(difference.kind()) {
                report(&mut pair, seed, &steps, difference)?;
            } else {
                println!("DIFFERENT, seed {seed}: as above: {}", difference.kind());
            }
        }
        if tally.failed == FAILURES_MAX {
            println!("cql-differential: {FAILURES_MAX} differences are enough");
            break;
        }
    }
    pair.both(&format!("DROP KEYSPACE {KEYSPACE}"))?;
    println!("cql-differential: {:.0} s", started.elapsed().as_secs_f64());
    Ok(tally)
}

/// All statements of one schema.
fn steps(seed: u64, statements: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut table = Table::random(&mut random);
    let mut steps: Vec<Step> = table
        .creation()
        .into_iter()
        .map(|text| {
            let way = Way::Direct(Vec::new());
            Step { text, manner: Manner::default(), way, is_change: true }
        })
        .collect();
    let mut now = START_SECONDS;
    for _ in 0..statements {
        now += 1;
        let is_change = random.random_bool(0.5);
        if random.random_bool(ALTERS) {
            let manner = Manner { now_in_seconds: Some(now), ..Manner::default() };
            let text = table.alter(&mut random);
            steps.push(Step { text, manner, way: Way::Direct(Vec::new()), is_change: true });
            continue;
        }
        let text = if is_change {
            change::change(&mut random, &table)
        } else if random.random_bool(0.3) {
            query::everything(&table)
        } else {
            query::select(&mut random, &table)
        };
        let is_timed = is_change && table.times == Times::Client && !table.is_counter;
        let manner = Manner {
            page_rows: (!is_change && random.random_bool(0.2)).then(|| random.random_range(1..5)),
            timestamp: is_timed.then(|| random.random_range(1..60)),
            now_in_seconds: Some(now),
        };
        let (text, way) = bind::sent(&mut random, &text);
        steps.push(Step { text, manner, way, is_change });
    }
    steps
}

impl Pair {
    /// Runs a statement that must succeed on both.
    fn both(&mut self, statement: &str) -> Result<()> {
        self.myriad.must(statement).context("myriad")?;
        self.other.must(statement).context("the other server")
    }

    /// Ends the disturbed server, and starts it again.
    fn disturb(&mut self) -> Result<()> {
        let Some(disturbed) = &mut self.disturbed else { return Ok(()) };
        disturbed.restart()?;
        self.myriad = disturbed.connect()?;
        self.myriad.must(&format!("USE {KEYSPACE}"))
    }

    /// Runs all steps on a new table, until a difference matches `ends`.
    fn replay(
        &mut self,
        steps: &[Step],
        ends: impl Fn(&Difference) -> bool,
    ) -> Result<Vec<Difference>> {
        self.number += 1;
        let mut found = Vec::new();
        let has_index = steps.iter().any(|step| step.text.starts_with("CREATE INDEX"));
        for (at, step) in steps.iter().enumerate() {
            if at % UNDISTURBED_MAX == UNDISTURBED_MAX - 1 {
                self.disturb()?;
            }
            let named = self.named_step(step);
            let [myriad, other] = [&mut self.myriad, &mut self.other]
                .map(|connection| ask(connection, &named, has_index));
            let myriad = myriad.with_context(|| format!("myriad: {}", named.text))?;
            let other = other.with_context(|| format!("the other server: {}", named.text))?;
            if !known::is_same(&step.text, has_index, &myriad, &other) {
                let (asked, is_change) = (keywords(&step.text), step.is_change);
                let difference = Difference { at, is_change, asked, myriad, other };
                let is_end = ends(&difference);
                found.push(difference);
                if is_end {
                    break;
                }
            }
        }
        let drop = self.named(&format!("DROP TABLE IF EXISTS {TABLE}"));
        self.both(&drop)?;
        Ok(found)
    }

    fn named_step(&self, step: &Step) -> Step {
        let mut step = Step { text: self.named(&step.text), ..step.clone() };
        if let Way::Batch(batch) = &mut step.way {
            for part in &mut batch.parts {
                part.text = self.named(&part.text);
            }
        }
        step
    }

    fn named(&self, text: &str) -> String {
        let number = self.number;
        text.replace(TABLE, &format!("t{number}")).replace(USER_TYPE, &format!("u{number}"))
    }
}

/// The answer of one server.
fn ask(connection: &mut Connection, step: &Step, has_index: bool) -> Result<Vec<String>> {
    for _ in 0..INDEX_TRIES_MAX {
        let answer = ask_once(connection, step)?;
        let is_late = has_index && answer.iter().any(|line| line.starts_with(READ_FAILURE));
        if !is_late {
            return Ok(answer);
        }
        std::thread::sleep(INDEX_PAUSE);
    }
    ask_once(connection, step)
}

fn ask_once(connection: &mut Connection, step: &Step) -> Result<Vec<String>> {
    match &step.way {
        Way::Direct(values) => connection.query_bound(&step.text, values, step.manner),
        Way::Prepared(values) => connection.execute_bound(&step.text, values, step.manner),
        Way::Batch(batch) => connection.batch(batch, step.manner),
    }
}

/// Words in capitals, each once, and functions.
fn keywords(statement: &str) -> String {
    let words = statement.split(|it: char| !it.is_ascii_alphabetic() && it != '_');
    let mut found: Vec<&str> = Vec::new();
    for word in words {
        let is_keyword = word.len() > 1 && word.chars().all(|it| it.is_ascii_uppercase());
        let is_function = statement.contains(&format!(" {word}("));
        if (is_keyword || is_function && word.len() > 2) && !found.contains(&word) {
            found.push(word);
        }
    }
    found.join(" ")
}

fn report(pair: &mut Pair, seed: u64, steps: &[Step], difference: Difference) -> Result<()> {
    let steps = &steps[..=difference.at];
    let (steps, difference) = if difference.is_data() {
        shrink::shrink(pair, steps, difference)?
    } else {
        // The types, the table as it was made and altered, and the statement.
        let (last, before) = steps.split_last().expect("something differs");
        let is_schema =
            |step: &&Step| ["CREATE ", "ALTER "].iter().any(|word| step.text.starts_with(word));
        let schema = before.iter().filter(is_schema);
        (schema.chain([last]).cloned().collect(), difference)
    };
    println!("DIFFERENT, seed {seed}:");
    for step in &steps {
        let Manner { page_rows, timestamp, now_in_seconds } = step.manner;
        let mut notes = String::new();
        if let Some(timestamp) = timestamp {
            notes = format!("{notes} timestamp {timestamp}");
        }
        if let Some(now) = now_in_seconds {
            notes = format!("{notes} at {}", now - START_SECONDS);
        }
        if let Some(rows) = page_rows {
            notes = format!("{notes} pages of {rows}");
        }
        let step = pair.named_step(step);
        notes.push_str(&bind::way_of(&step.way));
        println!("  > {};  --{notes}", step.text);
        if let Way::Batch(batch) = &step.way {
            for part in &batch.parts {
                println!("    {};  --{}", part.text, bind::part_of(part));
            }
        }
    }
    for (name, lines) in [("myriad", &difference.myriad), ("other ", &difference.other)] {
        for line in lines {
            println!("  {name}  {line}");
        }
    }
    Ok(())
}
