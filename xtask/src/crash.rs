//! `cargo xtask crash`: kills the server under load, again and again on the same data, and looks
//! whether everything is there that must be. `docs/crash-testing.md` says what is checked and why.

mod cql;
mod cql_state;
mod generate;
mod model;
mod observer;
mod op;
mod plan;
mod subject;
mod verify;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::cql::{CqlObserver, CqlWriter};
use self::generate::{Habits, KINDS, SHARED_COUNTERS};
use self::model::{Model, shown};
use self::observer::Observer;
use self::plan::{Ending, Plan};
pub(crate) use self::subject::Subject;
use self::subject::{Addresses, Home, Process};
use self::writer::Writer;
use crate::cql::connection::Connection as CqlConnection;
use crate::process::TempDir;
use crate::resp::{Connection, Value};
use crate::tally::Tally;

/// Keys, fields and values.
type Bytes = Vec<u8>;

/// Clients whose acknowledged writes must stay.
const DURABLE_WRITERS: usize = 4;
/// What the other writers ask for by CLIENT DURABILITY: their last writes may go, but in order.
const RELAXED: [&str; 2] = ["never", "interval"];
const OBSERVERS: usize = 2;
/// Clients that write by CQL.
const CQL_WRITERS: usize = 3;
/// The database of the client that empties it from time to time.
const FLUSHED_DATABASE: usize = 1;
const FLUSH_ODDS: f64 = 0.01;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) subject: Subject,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
}

/// Runs the rounds; ends at the first that fails.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let folder = TempDir::new("crash")?;
    let data = folder.path().join("data");
    fs::create_dir(&data).with_context(|| format!("create {}", data.display()))?;
    let home = Home {
        root: root.to_owned(),
        data,
        crashed: folder.path().join("crashed"),
        log: folder.path().join("server.log"),
    };
    println!("crash: seed {}, {} rounds", options.seed, options.rounds);
    let mut tally = Tally::default();
    let mut test = Test::start(*options, home)?;
    for round in 0..options.rounds {
        match test.round(round) {
            Ok(line) => {
                println!("crash: round {round}: {line}");
                tally.passed += 1;
            }
            Err(error) => {
                tally.failed += 1;
                report(options, round, &error, folder.path());
                drop(test);
                // The directory is the evidence: its value must not remove it.
                std::mem::forget(folder);
                return Ok(tally);
            }
        }
    }
    Ok(tally)
}

fn report(options: &Options, round: u64, error: &anyhow::Error, folder: &Path) {
    println!("crash: FAILED: seed {}, round {round}: {error:#}", options.seed);
    println!(
        "crash: {} keeps server.log, crashed/ (the data as the server left it) and data/ (after \
         the restart)",
        folder.display()
    );
    println!(
        "crash: again: cargo xtask crash --server {} --seed {} --rounds {}",
        options.subject.name(),
        options.seed,
        options.rounds.max(round + 1)
    );
}

/// The server between two rounds, and all that is known about its data.
#[derive(Debug)]
struct Test {
    options: Options,
    home: Home,
    /// `None` only while it is being restarted.
    server: Option<(Process, Addresses)>,
    writers: Vec<Writer>,
    observers: Vec<Observer>,
    /// None if the server does not speak CQL.
    cql_writers: Vec<CqlWriter>,
    cql_observer: CqlObserver,
    /// As found at the last restart.
    counters: [i64; SHARED_COUNTERS],
    cql_counter: i64,
}

impl Test {
    fn start(options: Options, home: Home) -> Result<Self> {
        let plan = Plan::new(options.seed, 0);
        let mut process = options.subject.start(&home, plan.settings)?;
        let addresses = process.wait_ready()?;
        let cql_writers = if addresses.cql.is_some() { CQL_WRITERS } else { 0 };
        let cql_writers: Vec<CqlWriter> = (0..cql_writers).map(CqlWriter::new).collect();
        if let Some(address) = &addresses.cql {
            cql::create(address, &cql_writers).context("create the tables of CQL's clients")?;
        }
        let writers = writers(options.subject);
        let targets = writers.iter().filter(|writer| writer.database == 0);
        let targets: Vec<String> = targets.map(|writer| writer.prefix.clone()).collect();
        let observer = |number| Observer::new(format!("observer {number}"), targets.clone());
        Ok(Self {
            options,
            home,
            server: Some((process, addresses)),
            cql_observer: CqlObserver::new(cql_writers.iter().map(|it| it.name.clone()).collect()),
            cql_writers,
            cql_counter: 0,
            observers: (0..OBSERVERS).map(observer).collect(),
            writers,
            counters: [0; SHARED_COUNTERS],
        })
    }

    /// Load, end, restart, check. A line about what happened.
    fn round(&mut self, round: u64) -> Result<String> {
        let plan = Plan::new(self.options.seed, round);
        self.load(round, &plan)?;
        let acknowledged: u64 = self.writers.iter().map(|writer| writer.acknowledged).sum();
        let reads: u64 = self.observers.iter().map(|observer| observer.reads).sum();
        let lossless = plan.ending == Ending::Terminate;
        let undecided: usize = self.writers.iter().map(|writer| writer.undecided(lossless)).sum();
        let statements: u64 = self.cql_writers.iter().map(|writer| writer.acknowledged).sum();
        let in_flight: usize = self.cql_writers.iter().map(CqlWriter::undecided).sum();
        let cql_reads = self.cql_observer.reads;
        let addresses = self.restart(&plan, round)?;
        let kept = self.verify(&addresses.resp, lossless)?;
        let mut line = format!(
            "{plan}: {acknowledged} steps acknowledged, {reads} reads, {undecided} undecided \
             of which {kept} are there"
        );
        if let Some(address) = &addresses.cql {
            let kept = self.verify_cql(address)?;
            line = format!(
                "{line}; by CQL {statements}, {cql_reads} reads, {in_flight} undecided of which \
                 {kept} are there"
            );
        }
        Ok(line)
    }

    /// Runs all clients until the server is gone.
    fn load(&mut self, round: u64, plan: &Plan) -> Result<()> {
        let (process, addresses) = self.server.take().context("the server runs between rounds")?;
        let subject = self.options.subject;
        let seed = self.options.seed;
        let stopping = AtomicBool::new(false);
        let (writers, observers) = (&mut self.writers, &mut self.observers);
        let (cql_writers, cql_observer) = (&mut self.cql_writers, &mut self.cql_observer);
        let (ended, complaints) = thread::scope(|scope| {
            let (stopping, address) = (&stopping, addresses.resp.as_str());
            let mut clients = Vec::new();
            let mut number = 0;
            for writer in writers {
                number += 1;
                let seed = plan::mix(seed, round, number);
                clients.push(scope.spawn(move || writer.run(address, seed, stopping)));
            }
            for observer in observers {
                number += 1;
                observer.reads = 0;
                let seed = plan::mix(seed, round, number);
                clients.push(scope.spawn(move || observer.run(address, seed, stopping)));
            }
            if let Some(address) = addresses.cql.as_deref() {
                for writer in cql_writers {
                    number += 1;
                    let seed = plan::mix(seed, round, number);
                    clients.push(scope.spawn(move || writer.run(address, seed, round, stopping)));
                }
                let seed = plan::mix(seed, round, number + 1);
                clients.push(scope.spawn(move || cql_observer.run(address, seed, stopping)));
            }
            let ended = end(process, address, subject, plan, stopping);
            let complaints: Vec<String> = clients
                .into_iter()
                .filter_map(|client| match client.join() {
                    Ok(result) => result.err(),
                    Err(_) => Some("a client of this test panicked".to_owned()),
                })
                .collect();
            (ended, complaints)
        });
        if !complaints.is_empty() {
            bail!("{}", complaints.join("\n"));
        }
        ended
    }

    /// Starts the server on its data, after killing it in the middle of that as often as planned.
    fn restart(&mut self, plan: &Plan, round: u64) -> Result<Addresses> {
        self.home.keep_crashed()?;
        let settings = Plan::new(self.options.seed, round + 1).settings;
        for delay_ms in &plan.recovery_kills_ms {
            let process = self.options.subject.start(&self.home, settings)?;
            thread::sleep(Duration::from_millis(*delay_ms));
            process.kill()?;
        }
        let mut process = self.options.subject.start(&self.home, settings)?;
        let addresses = process.wait_ready().context("after the crash")?;
        self.server = Some((process, addresses.clone()));
        Ok(addresses)
    }

    /// Reads everything back. How many undecided steps are there.
    fn verify(&mut self, address: &str, lossless: bool) -> Result<usize> {
        let mut connection = Connection::open(address)?;
        let mut databases = BTreeMap::new();
        for database in [0, FLUSHED_DATABASE] {
            databases.insert(database, verify::read_database(&mut connection, database)?);
        }
        self.check_seen(&databases[&0])?;
        self.check_counters(&databases[&0], lossless)?;
        let mut kept = 0;
        for writer in &mut self.writers {
            let database = databases.get_mut(&writer.database).context("all databases are read")?;
            let found = verify::split_off(database, &writer.prefix);
            kept += writer.settle(&found, lossless).map_err(anyhow::Error::msg)?;
        }
        let known = Writer::counter_keys();
        let left = databases.values().flat_map(|database| database.entries.keys());
        if let Some(stranger) = left.into_iter().find(|key| !known.contains(key)) {
            bail!("key {} is nobody's", shown(stranger));
        }
        Ok(kept)
    }

    /// The same of what was written by CQL.
    fn verify_cql(&mut self, address: &str) -> Result<usize> {
        let mut connection = CqlConnection::open(address)?;
        self.cql_observer.check(&mut connection)?;
        self.cql_counter =
            cql::check_shared(&mut connection, &mut self.cql_writers, self.cql_counter)?;
        let mut kept = 0;
        for writer in &mut self.cql_writers {
            kept += writer.settle(&mut connection)?;
        }
        Ok(kept)
    }

    /// What a reader has seen is there, or something newer.
    fn check_seen(&self, found: &Model) -> Result<()> {
        for observer in &self.observers {
            for (key, seen) in &observer.seen {
                let value =
                    verify::number_in(found.entries.get(key)).map_err(anyhow::Error::msg)?;
                if value < *seen {
                    let name = &observer.name;
                    bail!(
                        "{name}: key {}\n    expected at least {seen}, which it read\n    found    \
                         {value}",
                        shown(key)
                    );
                }
            }
        }
        Ok(())
    }

    /// Shared counters hold every acknowledged increment and none that was not sent.
    fn check_counters(&mut self, found: &Model, lossless: bool) -> Result<()> {
        let mut values = [0; SHARED_COUNTERS];
        for (counter, key) in Writer::counter_keys().iter().enumerate() {
            let value = verify::number_in(found.entries.get(key)).map_err(anyhow::Error::msg)?;
            let (mut at_least, mut at_most) = (self.counters[counter], self.counters[counter]);
            let mut highest = at_least;
            for writer in &self.writers {
                let increments = writer.increments[counter];
                at_most += increments.sent;
                if writer.is_durable(lossless) {
                    at_least += increments.acknowledged;
                    highest = highest.max(increments.highest);
                }
            }
            let at_least = at_least.max(highest);
            if !(at_least..=at_most).contains(&value) {
                bail!("counter {}: expected {at_least} to {at_most}, found {value}", shown(key));
            }
            values[counter] = value;
        }
        self.counters = values;
        self.writers.iter_mut().for_each(|writer| writer.settle_counters(&values));
        Ok(())
    }
}

/// The clients that write.
fn writers(subject: Subject) -> Vec<Writer> {
    let mut writers: Vec<Writer> = (0..DURABLE_WRITERS)
        .map(|number| {
            let prefix = format!("c{number}:");
            let habits = Habits { prefix, keys: 4 * KINDS, flush_odds: 0.0, shares: true };
            Writer::new(habits, 0, None)
        })
        .collect();
    let prefix = "flusher:".to_owned();
    let habits = Habits { prefix, keys: 2 * KINDS, flush_odds: FLUSH_ODDS, shares: false };
    writers.push(Writer::new(habits, FLUSHED_DATABASE, None));
    for durability in RELAXED {
        let prefix = format!("{durability}:");
        let habits = Habits { prefix, keys: KINDS, flush_odds: 0.0, shares: true };
        let durability = subject.has_durability_by_connection().then_some(durability);
        writers.push(Writer::new(habits, 0, durability));
    }
    writers
}

/// Ends the server as planned, under load.
fn end(
    process: Process,
    address: &str,
    subject: Subject,
    plan: &Plan,
    stopping: &AtomicBool,
) -> Result<()> {
    thread::sleep(Duration::from_millis(plan.load_ms));
    if let Some(lead_us) = plan.snapshot_lead_us {
        start_snapshot(address, subject)?;
        thread::sleep(Duration::from_micros(lead_us));
    }
    stopping.store(true, Ordering::SeqCst);
    match plan.ending {
        Ending::Kill => process.kill(),
        Ending::Terminate => {
            let status = process.terminate()?;
            if !status.success() {
                bail!("after SIGTERM the server ends with {status}");
            }
            Ok(())
        }
    }
}

/// Asks for a snapshot; one may be running already.
fn start_snapshot(address: &str, subject: Subject) -> Result<()> {
    let command = subject.snapshot_command();
    match Connection::open(address)?.call(&[command])? {
        Value::Simple(_) => Ok(()),
        Value::Error(text) if text.windows(11).any(|words| words == b"in progress") => Ok(()),
        other => bail!("{command} is answered {other:?}"),
    }
}
