//! `cargo xtask linearizable`: concurrent clients of a server that is killed and restarted.
//!
//! Several connections use the same keys by single commands, blocking commands, transactions with
//! and without WATCH, and scripts. Every request and reply is recorded with logical times. For each
//! object, some sequential order of all operations must explain all replies, across the crashes:
//! what was acknowledged is there, and what was in flight took effect before the crash or never.

mod object;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::crash::{Home, Process, Settings, Subject};
use crate::linear::{Operation, is_linearizable};
use crate::process::TempDir;
use crate::resp::{Connection, Value};
use crate::tally::Tally;
use object::{Action, Deed, Keys, State, is_null};

/// Connections. The check tries overlapping operations in every order.
const CLIENTS: usize = 6;
/// Objects at a time, and rounds for which each is used: every history spans a crash.
const OBJECTS: usize = 3;
const LIFE_ROUNDS: u64 = 2;
/// Operations of a client in one round.
const OPERATIONS_MAX: usize = 150;
/// Time from the first request of a round until the server is killed.
const LOAD_MS: std::ops::Range<u64> = 50..250;
/// Probability of WATCH, GET and EXEC.
const WATCHING: f64 = 0.08;
/// Distance of values that are set: increments never reach the next one.
const VALUE_STEP: i64 = 1_000_000;
/// Operations that are shown after a failure.
const SHOWN_MAX: usize = 16;
/// Small, so that the log rotates and snapshots are taken.
const SEGMENT_BYTES: u64 = 64 << 10;
const SNAPSHOT_LOG_BYTES: u64 = 256 << 10;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) subject: Subject,
    pub(crate) reactors: u32,
    pub(crate) rounds: u64,
    pub(crate) seed: u64,
}

/// Operations by object.
type Histories = BTreeMap<usize, Vec<Operation<Deed>>>;

/// Runs all rounds. Each object is one check, and failures are shown.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    check_rounds(root, options, show)
}

fn check_rounds(root: &Path, options: &Options, report: fn(&[Operation<Deed>])) -> Result<Tally> {
    println!(
        "linearizable: {}, {} reactors, seed {}, {} rounds",
        options.subject.name(),
        options.reactors,
        options.seed,
        options.rounds
    );
    let folder = TempDir::new("linear")?;
    let home = Home {
        root: root.to_owned(),
        data: folder.path().join("data"),
        crashed: folder.path().join("crashed"),
        log: folder.path().join("server.log"),
    };
    let mut test = Test { options: *options, moment: 0, value: 0, histories: Histories::new() };
    let (mut tally, mut operations) = (Tally::default(), 0);
    for round in 0..options.rounds {
        test.round(&home, round)?;
        if (round + 1) % LIFE_ROUNDS != 0 && round + 1 != options.rounds {
            continue;
        }
        for (number, history) in std::mem::take(&mut test.histories) {
            operations += history.len();
            if check(&history) {
                tally.passed += 1;
            } else {
                tally.failed += 1;
                println!(
                    "linearizable: round {round}, object {number}: no order explains the replies"
                );
                report(&history);
            }
        }
    }
    println!("linearizable: {operations} operations on {} objects", tally.passed + tally.failed);
    Ok(tally)
}

/// Whether the checker notices a server that loses acknowledged writes.
pub(crate) fn canary(root: &Path, options: &Options) -> Result<Tally> {
    let options = Options { subject: Subject::Forgetful, ..*options };
    let tally = check_rounds(root, &options, |_| {})?;
    let is_found = tally.failed > 0;
    println!("linearizable: lost writes were {}", if is_found { "found" } else { "NOT found" });
    Ok(Tally { passed: u64::from(is_found), failed: u64::from(!is_found) })
}

fn check(history: &[Operation<Deed>]) -> bool {
    is_linearizable(&State::default(), history, |state, deed: &Deed| deed.step(state))
}

/// Shows the last operations of the shortest beginning that is impossible.
fn show(history: &[Operation<Deed>]) {
    let mut ends: Vec<usize> = history.iter().map(|one| one.completed).collect();
    ends.sort_unstable();
    let until = |end: usize| -> Vec<Operation<Deed>> {
        let begun = history.iter().filter(|one| one.invoked < end).cloned();
        let cut = |mut one: Operation<Deed>| {
            if one.completed > end {
                (one.completed, one.is_certain, one.what.reply) = (usize::MAX, false, None);
            }
            one
        };
        begun.map(cut).filter(|one| one.is_certain || !one.what.action.is_read()).collect()
    };
    let at = ends.partition_point(|end| check(&until(*end)));
    let mut shown = until(ends[at.min(ends.len() - 1)]);
    shown.sort_by_key(|one| one.invoked);
    for one in &shown[shown.len().saturating_sub(SHOWN_MAX)..] {
        println!("  {}..{} {:?}", one.invoked, one.completed, one.what);
    }
}

struct Test {
    options: Options,
    /// The logical time of the last event.
    moment: usize,
    /// The last value that a client wrote.
    value: i64,
    histories: Histories,
}

impl Test {
    /// Load, SIGKILL. The next round restarts the server.
    fn round(&mut self, home: &Home, round: u64) -> Result<()> {
        let settings = Settings {
            reactors: self.options.reactors,
            segment_bytes: SEGMENT_BYTES,
            snapshot_log_bytes: SNAPSHOT_LOG_BYTES,
        };
        let mut process = self.options.subject.start(home, settings)?;
        let address = process.wait_ready()?.resp;
        let mut random = StdRng::seed_from_u64(self.options.seed.wrapping_add(round << 16));
        let load = Duration::from_millis(random.random_range(LOAD_MS));
        let first = usize::try_from(round / LIFE_ROUNDS)? * OBJECTS;
        let clock = Clock {
            moment: AtomicUsize::new(self.moment),
            value: AtomicI64::new(self.value),
            objects: first..first + OBJECTS,
        };
        let recorded = Self::load(process, &address, &clock, load, random.random())?;
        let crash = clock.moment.into_inner() + 1;
        (self.moment, self.value) = (crash, clock.value.into_inner());
        for (object, mut operation) in recorded {
            operation.completed = operation.completed.min(crash);
            // A read without a reply carries no information.
            if operation.is_certain || !operation.what.action.is_read() {
                self.histories.entry(object).or_default().push(operation);
            }
        }
        Ok(())
    }

    fn load(
        process: Process,
        address: &str,
        clock: &Clock,
        load: Duration,
        seed: u64,
    ) -> Result<Recorded> {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS as u64)
                .map(|number| {
                    let random = StdRng::seed_from_u64(seed.wrapping_add(number));
                    scope.spawn(move || Client::run(address, clock, random))
                })
                .collect();
            // The moment of the end is arbitrary: the verdict does not depend on it.
            thread::sleep(load);
            process.kill()?;
            let mut recorded = Recorded::new();
            for client in clients {
                let one = client.join().map_err(|_| anyhow!("a client panicked"))?;
                recorded.extend(one?);
            }
            Ok(recorded)
        })
    }
}

/// What the clients share.
#[derive(Debug)]
struct Clock {
    moment: AtomicUsize,
    value: AtomicI64,
    objects: std::ops::Range<usize>,
}

impl Clock {
    fn tick(&self) -> usize {
        self.moment.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn new_value(&self) -> i64 {
        self.value.fetch_add(VALUE_STEP, Ordering::SeqCst) + VALUE_STEP
    }
}

/// Operations with the number of their object.
type Recorded = Vec<(usize, Operation<Deed>)>;

struct Client<'c> {
    clock: &'c Clock,
    connection: Connection,
    recorded: Recorded,
}

impl<'c> Client<'c> {
    /// Uses the objects until the server ends.
    fn run(address: &str, clock: &'c Clock, mut random: StdRng) -> Result<Recorded> {
        // It may have been killed already.
        let Ok(connection) = Connection::open(address) else { return Ok(Recorded::new()) };
        let mut client = Client { clock, connection, recorded: Recorded::new() };
        for _ in 0..OPERATIONS_MAX {
            let object = random.random_range(clock.objects.clone());
            let goes_on = if random.random_bool(WATCHING) {
                client.watched_set(object)?
            } else {
                let action = Action::random(&mut random, &mut || clock.new_value());
                client.act(object, action)?.is_some()
            };
            if !goes_on {
                break;
            }
        }
        Ok(client.recorded)
    }

    /// Reads the counter and sets it, unless another client changes it meanwhile.
    fn watched_set(&mut self, object: usize) -> Result<bool> {
        let get = Action::Get.requests(Keys { number: object }).remove(0);
        if self.connection.call(&["WATCH", &get[1]]).is_err() {
            return Ok(false);
        }
        let Some(seen) = self.act(object, Action::Get)? else { return Ok(false) };
        let seen = match &seen {
            Value::Bulk(Some(text)) => Some(String::from_utf8_lossy(text).parse()?),
            other if is_null(other) => None,
            other => bail!("GET is answered {other:?}"),
        };
        let value = self.clock.new_value();
        Ok(self.act(object, Action::WatchedSet { seen, value })?.is_some())
    }

    /// Runs and records one operation. None: the server has ended.
    fn act(&mut self, object: usize, action: Action) -> Result<Option<Value>> {
        let requests = action.requests(Keys { number: object });
        let invoked = self.clock.tick();
        let reply = self.exchange(&requests);
        let completed = if reply.is_some() { self.clock.tick() } else { usize::MAX };
        if let Some(Value::Error(text)) = &reply {
            let text = String::from_utf8_lossy(text);
            return Err(anyhow!("{text}")).with_context(|| format!("{action:?}"));
        }
        let what = Deed { action, reply: reply.clone() };
        let is_certain = reply.is_some();
        self.recorded.push((object, Operation { what, invoked, completed, is_certain }));
        Ok(reply)
    }

    /// The reply to the last request.
    fn exchange(&mut self, requests: &[Vec<String>]) -> Option<Value> {
        for request in requests {
            self.connection.send(request).ok()?;
        }
        let mut last = None;
        for _ in requests {
            last = Some(self.connection.read().ok()?);
        }
        last
    }
}
