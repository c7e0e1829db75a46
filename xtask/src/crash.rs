//! `cargo xtask crash` kills the server under load, and `cargo xtask powercut` cuts the power of
//! its disk, repeatedly on the same data; both then check that no data is missing that must be
//! there. `docs/internals/crash-testing.md` specifies the checks and the reasons for them.

mod cql;
mod cql_state;
mod generate;
mod model;
mod observer;
mod op;
mod plan;
mod power;
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
use rand::SeedableRng;
use rand::rngs::StdRng;

use self::cql::{CqlObserver, CqlWriter};
use self::generate::{HUGE_VALUES, Habits, HugeValues, KINDS, SHARED_COUNTERS};
use self::model::{Model, shown};
use self::observer::Observer;
use self::plan::{Ending, Plan};
use self::power::PowerDisk;
use self::subject::Addresses;
pub(crate) use self::subject::{Home, Process, Settings, Subject};
use self::writer::Writer;
use crate::cql::connection::Connection as CqlConnection;
use crate::process::TempDir;
use crate::resp::{Connection, Value};
use crate::tally::Tally;

/// Keys, fields and values.
type Bytes = Vec<u8>;

/// Clients whose acknowledged writes must survive.
const DURABLE_WRITERS: usize = 4;
/// Durability of the other writers, set by CLIENT DURABILITY: their last writes may be lost, but in
/// order.
const RELAXED: [&str; 2] = ["never", "interval"];
const OBSERVERS: usize = 2;
/// Clients that write through CQL.
const CQL_WRITERS: usize = 3;
/// The database of the client that flushes it from time to time.
const FLUSHED_DATABASE: usize = 1;
const FLUSH_ODDS: f64 = 0.01;
/// Identifies the random choices of a power cut among the parts of a round; clients count from 1.
const POWER_PART: u64 = 1 << 32;

/// Values of the clients whose writes must survive power cuts: larger than any segment.
const POWER_HUGE_VALUES: HugeValues = HugeValues { odds: 0.004, bytes_max: 1_500_000 };
/// By then the canary, which acknowledges before it syncs, must have lost a write.
const CANARY_CUTS: u64 = 10;

/// How rounds end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disaster {
    Kill,
    PowerCut,
}

impl Disaster {
    /// The chore, and the name of its option for the number of rounds.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Kill => ("crash", "--rounds"),
            Self::PowerCut => ("powercut", "--cuts"),
        }
    }

    fn plan(self, seed: u64, round: u64) -> Plan {
        match self {
            Self::Kill => Plan::new(seed, round),
            Self::PowerCut => Plan::of_power_cut(seed, round),
        }
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) subject: Subject,
    pub(crate) disaster: Disaster,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
}

/// Runs power cuts, after a canary: a server that acknowledges before it syncs must be detected, or
/// the test itself is wrong. `None`: power cuts are impossible on this machine, and the reason was
/// printed.
pub(crate) fn run_power_cuts(root: &Path, options: &Options) -> Result<Option<Tally>> {
    let probe = TempDir::new("powercut")?;
    if let Err(missing) = PowerDisk::mount(probe.path(), options.seed)? {
        println!("powercut: NOT TESTED: {missing}");
        return Ok(None);
    }
    let mut tally = Tally::default();
    if options.subject == Subject::Myriad {
        let canary = Options { subject: Subject::Forgetful, rounds: CANARY_CUTS, ..*options };
        match run_rounds(root, &canary)? {
            None => {
                tally.failed += 1;
                println!("powercut: FAILED: the canary acknowledges early, and nothing was lost");
                return Ok(Some(tally));
            }
            Some(failure) => {
                tally.passed += 1;
                let lost = format!("{:#}", failure.error);
                let lost = lost.lines().next().unwrap_or_default();
                println!("powercut: the canary is found out in round {}: {lost}", failure.round);
            }
        }
    }
    tally += run(root, options)?;
    Ok(Some(tally))
}

/// The round that failed. Its directory, with the evidence, is removed when the value is dropped.
struct Failure {
    round: u64,
    error: anyhow::Error,
    folder: TempDir,
}

/// Runs the rounds; ends at the first that fails.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let Some(failure) = run_rounds(root, options)? else {
        return Ok(Tally { passed: options.rounds, failed: 0 });
    };
    report(options, failure.round, &failure.error, failure.folder.path());
    // Dropping the value must not remove the evidence.
    std::mem::forget(failure.folder);
    Ok(Tally { passed: failure.round, failed: 1 })
}

fn run_rounds(root: &Path, options: &Options) -> Result<Option<Failure>> {
    let (chore, _) = options.disaster.words();
    let folder = TempDir::new(chore)?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).with_context(|| format!("create {}", disk.display()))?;
    let power = match options.disaster {
        Disaster::Kill => None,
        Disaster::PowerCut => {
            Some(PowerDisk::mount(&disk, options.seed)?.map_err(anyhow::Error::msg)?)
        }
    };
    let home = Home {
        root: root.to_owned(),
        data: disk.join("data"),
        crashed: folder.path().join("crashed"),
        log: folder.path().join("server.log"),
    };
    println!(
        "{chore}: {}, seed {}, {} rounds",
        options.subject.name(),
        options.seed,
        options.rounds
    );
    let mut test = Test::start(*options, home, power)?;
    for round in 0..options.rounds {
        match test.round(round) {
            Ok(line) => println!("{chore}: round {round}: {line}"),
            Err(error) => {
                test.keep_data()?;
                drop(test);
                return Ok(Some(Failure { round, error, folder }));
            }
        }
    }
    Ok(None)
}

fn report(options: &Options, round: u64, error: &anyhow::Error, folder: &Path) {
    let (chore, rounds) = options.disaster.words();
    println!("{chore}: FAILED: seed {}, round {round}: {error:#}", options.seed);
    println!(
        "{chore}: {} keeps server.log, crashed/ (the data after the crash) and data/ (after the \
         restart)",
        folder.display()
    );
    println!(
        "{chore}: again: cargo xtask {chore} --server {} --seed {} {rounds} {}",
        options.subject.name(),
        options.seed,
        options.rounds.max(round + 1)
    );
}

/// The server between two rounds, and the expected state of its data.
#[derive(Debug)]
struct Test {
    options: Options,
    home: Home,
    /// `None` only during a restart.
    server: Option<(Process, Addresses)>,
    writers: Vec<Writer>,
    observers: Vec<Observer>,
    /// None if the server does not support CQL.
    cql_writers: Vec<CqlWriter>,
    cql_observer: CqlObserver,
    /// Their values at the last restart.
    counters: [i64; SHARED_COUNTERS],
    cql_counter: i64,
    /// The disk of `home`, if its power is cut. Declared after the server, which ends first.
    power: Option<PowerDisk>,
}

impl Test {
    fn start(options: Options, home: Home, power: Option<PowerDisk>) -> Result<Self> {
        let plan = options.disaster.plan(options.seed, 0);
        let mut process = options.subject.start(&home, plan.settings)?;
        let addresses = process.wait_ready()?;
        let cql_writers = if addresses.cql.is_some() { CQL_WRITERS } else { 0 };
        let cql_writers: Vec<CqlWriter> = (0..cql_writers).map(CqlWriter::new).collect();
        if let Some(address) = &addresses.cql {
            cql::create(address, &cql_writers).context("create the tables of CQL's clients")?;
        }
        let writers = writers(&options);
        let targets = writers.iter().filter(|writer| writer.database == 0);
        let targets: Vec<String> = targets.map(|writer| writer.prefix.clone()).collect();
        let observer = |number| Observer::new(format!("observer {number}"), targets.clone());
        Ok(Self {
            options,
            home,
            power,
            server: Some((process, addresses)),
            cql_observer: CqlObserver::new(cql_writers.iter().map(|it| it.name.clone()).collect()),
            cql_writers,
            cql_counter: 0,
            observers: (0..OBSERVERS).map(observer).collect(),
            writers,
            counters: [0; SHARED_COUNTERS],
        })
    }

    /// One round: load, end, restart, check. Returns a line that describes it.
    fn round(&mut self, round: u64) -> Result<String> {
        let plan = self.options.disaster.plan(self.options.seed, round);
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

    /// Runs all clients until the server has ended.
    fn load(&mut self, round: u64, plan: &Plan) -> Result<()> {
        let (process, addresses) = self.server.take().context("the server runs between rounds")?;
        let subject = self.options.subject;
        let seed = self.options.seed;
        let stopping = AtomicBool::new(false);
        let mut random = StdRng::seed_from_u64(plan::mix(seed, round, POWER_PART));
        let power = self.power.as_mut().map(|power| (power, &mut random));
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
            let ended = end(process, address, subject, plan, stopping, power);
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

    /// Starts the server on its data, after killing it during the start as often as planned.
    fn restart(&mut self, plan: &Plan, round: u64) -> Result<Addresses> {
        self.home.keep_crashed()?;
        let mut random = StdRng::seed_from_u64(plan::mix(self.options.seed, round, POWER_PART + 1));
        let settings = self.options.disaster.plan(self.options.seed, round + 1).settings;
        for delay_ms in &plan.recovery_kills_ms {
            let process = self.options.subject.start(&self.home, settings)?;
            thread::sleep(Duration::from_millis(*delay_ms));
            match &mut self.power {
                None => process.kill()?,
                Some(power) => power.cut(Some(process), &mut random)?,
            }
        }
        let mut process = self.options.subject.start(&self.home, settings)?;
        let addresses = process.wait_ready().context("after the crash")?;
        self.server = Some((process, addresses.clone()));
        Ok(addresses)
    }

    /// Copies the data from a temporary disk to the directory named by the report.
    fn keep_data(&mut self) -> Result<()> {
        self.server = None;
        match self.power {
            Some(_) => self.home.keep_data(),
            None => Ok(()),
        }
    }

    /// Reads all data back. Returns how many undecided steps it contains.
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

    /// Reads back and checks the data written through CQL.
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

    /// Checks that every value that a reader has seen, or a newer one, is still there.
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

    /// Checks that shared counters contain every acknowledged increment and none that was not sent.
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
fn writers(options: &Options) -> Vec<Writer> {
    let huge = match options.disaster {
        Disaster::Kill => HUGE_VALUES,
        Disaster::PowerCut => POWER_HUGE_VALUES,
    };
    let mut writers: Vec<Writer> = (0..DURABLE_WRITERS)
        .map(|number| {
            let prefix = format!("c{number}:");
            let habits = Habits { prefix, keys: 4 * KINDS, flush_odds: 0.0, shares: true, huge };
            Writer::new(habits, 0, None)
        })
        .collect();
    // Every permitted loss is tried, so the values of these clients are smaller.
    let huge = HUGE_VALUES;
    let prefix = "flusher:".to_owned();
    let habits = Habits { prefix, keys: 2 * KINDS, flush_odds: FLUSH_ODDS, shares: false, huge };
    writers.push(Writer::new(habits, FLUSHED_DATABASE, None));
    for durability in RELAXED {
        let prefix = format!("{durability}:");
        let habits = Habits { prefix, keys: KINDS, flush_odds: 0.0, shares: true, huge };
        let durability = options.subject.has_durability_by_connection().then_some(durability);
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
    power: Option<(&mut PowerDisk, &mut StdRng)>,
) -> Result<()> {
    thread::sleep(Duration::from_millis(plan.load_ms));
    if let Some(lead_us) = plan.snapshot_lead_us {
        start_snapshot(address, subject)?;
        thread::sleep(Duration::from_micros(lead_us));
    }
    stopping.store(true, Ordering::SeqCst);
    match plan.ending {
        Ending::Kill => match power {
            None => process.kill(),
            Some((disk, random)) => disk.cut(Some(process), random),
        },
        Ending::Terminate => {
            let status = process.terminate()?;
            if !status.success() {
                bail!("after SIGTERM the server ends with {status}");
            }
            power.map_or(Ok(()), |(disk, random)| disk.cut(None, random))
        }
    }
}

/// Starts a snapshot; one may be running already.
fn start_snapshot(address: &str, subject: Subject) -> Result<()> {
    let command = subject.snapshot_command();
    match Connection::open(address)?.call(&[command])? {
        Value::Simple(_) => Ok(()),
        Value::Error(text) if text.windows(11).any(|words| words == b"in progress") => Ok(()),
        other => bail!("{command} is answered {other:?}"),
    }
}
