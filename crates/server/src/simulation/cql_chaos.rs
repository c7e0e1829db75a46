//! Statements of CQL on disks that tear and fail: what was answered is there after each crash, and
//! what is there is what some first part of the statements has made of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::cql::Version;

use super::chaos::{Life, cql_plan, pick, recovery_faults};
use super::cql_client::Client;
use super::cql_model::{LIVES, LONG_LIVES, Outcome, State, Statement, TABLES, creation, table};
use super::tests::{Announce, seeds};
use super::world::{Seen, World};
use crate::config::Durability;

/// Seeds that each `cargo test` tries.
const SEEDS: u64 = 60;
const CLIENTS: usize = 2;
const ACTIONS_MAX: usize = 160;
const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];
/// Indistinguishable states of a client's tables; above this number the client empties its tables.
const STATES_MAX: usize = 10;
/// Short TTLs have expired by then.
const LATER_NS: u64 = 50_000_000_000;
/// A refusal of a server whose log has failed.
const FAILED: &str = "ERROR 0000 ";

/// A client, its tables, and what it was told of them.
struct Writer {
    client: Client,
    /// Its tables' names have it.
    number: usize,
    /// What the tables may have held when this life of the server began. They look the same.
    bases: Vec<State>,
    /// After all that was sent.
    state: State,
    /// In the order in which they are run; the stream of each is its place.
    sent: Vec<(Statement, Outcome)>,
    /// So many of the first are on the disk.
    promised: usize,
    answered: usize,
    /// The log has failed: from then on nothing is as it was foreseen.
    is_refused: bool,
    /// The log refused something and may have taken what came later: nothing is known of this life.
    is_lost: bool,
    writes: usize,
    /// What its cells may have.
    lives: &'static [u32],
}

fn version(world: &mut World) -> Version {
    pick(&mut world.random, &VERSIONS)
}

/// Runs reactors and log until a client has all its answers.
fn answers(world: &mut World, client: &mut Client) -> Vec<String> {
    let mut replies = client.ask(world);
    while world.write_log() {
        replies.extend(client.ask(world));
    }
    replies
}

fn ask(world: &mut World, client: &mut Client, text: &str) -> String {
    client.query(0, text);
    let replies = answers(world, client);
    let [reply] = &replies[..] else { panic!("{text}: {replies:?}") };
    reply.strip_prefix("0 ").expect("it came by its stream").to_owned()
}

impl Writer {
    /// With tables on a disk that does what it says.
    fn new(world: &mut World, number: usize, lives: &'static [u32]) -> Writer {
        let version = version(world);
        let mut client = Client::start(world, version, None);
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        let keyspace = format!("CREATE KEYSPACE IF NOT EXISTS k WITH replication = {replication}");
        for text in [vec![keyspace], creation(number).to_vec()].concat() {
            let reply = ask(world, &mut client, &text);
            assert!(reply == "VOID" || reply.starts_with("CHANGE "), "{text}: {reply}");
        }
        Writer {
            client,
            number,
            bases: vec![State::default()],
            state: State::default(),
            sent: Vec::new(),
            promised: 0,
            answered: 0,
            is_refused: false,
            is_lost: false,
            writes: 0,
            lives,
        }
    }

    fn talk(&mut self, random: &mut SmallRng) {
        for _ in 0..pick(random, &[1, 1, 2, 5, 20]) {
            let statement = Statement::random(random, &self.state, self.lives, &mut self.writes);
            let outcome = self.state.apply(&statement);
            let stream = i16::try_from(self.sent.len()).expect("a life is short");
            self.client.query(stream, &statement.text(self.number));
            self.sent.push((statement, outcome));
        }
    }

    /// Judges what has arrived. Writes may be refused by a log that has failed, or was stalled.
    fn receive(&mut self, log_failed: bool, log_stalled: bool) {
        for reply in self.client.replies() {
            let (stream, said) = reply.split_once(' ').expect("a stream stands before it");
            let at: usize = stream.parse().expect("a stream of this client");
            let (statement, outcome) = &self.sent[at];
            self.answered += 1;
            let is_refused = said.starts_with(FAILED);
            self.is_refused |= log_failed && is_refused;
            self.is_lost |= log_stalled && is_refused;
            if self.is_refused || self.is_lost {
                continue;
            }
            let expected: &[&str] = match (outcome, statement) {
                (Outcome::Unknown, _) => &["ERROR 2200 "],
                (Outcome::Refused, _) => &["ROWS 00"],
                (
                    Outcome::Written,
                    Statement::InsertIfAbsent { .. }
                    | Statement::UpdateIf { .. }
                    | Statement::DeleteIfPresent { .. },
                ) => &["ROWS 01"],
                _ => &["VOID", "CHANGE "],
            };
            assert!(
                expected.iter().any(|words| said.starts_with(words)),
                "{}: {said} instead of {expected:?}",
                statement.text(self.number)
            );
            if *outcome == Outcome::Written {
                self.promised = self.promised.max(at + 1);
            }
        }
    }

    /// Connects anew, and looks for the statements that have made what is there.
    fn check(&mut self, world: &mut World) {
        let version = version(world);
        self.client = Client::start(world, version, None);
        if std::mem::take(&mut self.is_lost) {
            self.begin_anew(world);
            return;
        }
        let shown = self.shown(world);
        let mut found = Vec::new();
        for base in &self.bases {
            let mut state = base.clone();
            for count in 0..=self.sent.len() {
                if let Some(before) = count.checked_sub(1) {
                    state.apply(&self.sent[before].0);
                }
                if count >= self.promised && state.shown() == shown {
                    found.push(state.clone());
                }
            }
        }
        assert!(
            !found.is_empty(),
            "client {} was promised {} of {} statements, and finds {shown:#?} instead of {:#?}",
            self.number,
            self.promised,
            self.sent.len(),
            self.state.shown()
        );
        if found.len() > STATES_MAX {
            let text = format!("TRUNCATE {}", table("t", self.number));
            assert_eq!(ask(world, &mut self.client, &text), "VOID");
            found.truncate(1);
            found[0].forget_writes();
        }
        self.state = found[0].clone();
        self.bases = found;
        self.sent.clear();
        (self.promised, self.answered, self.is_refused) = (0, 0, false);
    }

    fn begin_anew(&mut self, world: &mut World) {
        let emptied =
            TABLES[..3].iter().map(|(name, _)| format!("TRUNCATE {}", table(name, self.number)));
        let spare = format!("DROP TABLE IF EXISTS {}", table("x", self.number));
        for text in emptied.chain([spare]) {
            let reply = ask(world, &mut self.client, &text);
            assert!(reply == "VOID" || reply.starts_with("CHANGE "), "{text}: {reply}");
        }
        self.state = State::default();
        self.bases = vec![State::default()];
        self.sent.clear();
        (self.promised, self.answered, self.is_refused) = (0, 0, false);
    }

    fn shown(&mut self, world: &mut World) -> Vec<Option<Vec<String>>> {
        let show = |(name, columns): &(&str, &str)| {
            let text = format!("SELECT {columns} FROM {}", table(name, self.number));
            let reply = ask(world, &mut self.client, &text);
            if reply.starts_with("ERROR 2200 ") {
                return None;
            }
            let cells = reply.strip_prefix("ROWS ").unwrap_or_else(|| panic!("{text}: {reply}"));
            let cells: Vec<&str> = cells.split_whitespace().collect();
            let width = columns.split(',').count();
            let mut rows: Vec<String> = cells.chunks(width).map(|row| row.join(" ")).collect();
            rows.sort_unstable();
            Some(rows)
        };
        TABLES.iter().map(show).collect()
    }
}

/// Runs a server of this seed through all of its lives. Its clients rely on `always`.
fn run(seed: u64, durability: Durability) -> Seen {
    let mut random = SmallRng::seed_from_u64(!seed);
    let plan = cql_plan(&mut random, 2, durability);
    let mut world = World::new(seed, plan);
    // In some runs the clock is set back in each crash.
    let is_set_back = random.random_bool(0.4);
    let lives: &[u32] = if is_set_back { &LONG_LIVES } else { &LIVES };
    let writer = |number| Writer::new(&mut world, number, lives);
    let mut writers: Vec<_> = (0..CLIENTS).map(writer).collect();
    for _ in 0..random.random_range(1..=3) {
        live(&mut world, &mut writers, is_set_back);
    }
    world.seen
}

/// One life: from a start to a crash and what it has left.
fn live(world: &mut World, writers: &mut [Writer], is_set_back: bool) {
    let life = Life::random(world, 10..=ACTIONS_MAX);
    let ending = life.run(world, |world| act(world, writers));
    let (log_failed, log_stalled) = (world.log_failed(), world.log_stalled);
    for writer in &mut *writers {
        writer.receive(log_failed, log_stalled);
        if ending.is_served {
            assert_eq!(writer.answered, writer.sent.len(), "client {}", writer.number);
        }
    }
    let power_cut = !ending.has_power || world.chance(0.8);
    let recovery_faults = recovery_faults(&mut world.random);
    if is_set_back {
        let ns = pick(&mut world.random, &[1_000_000, 5_000_000_000, 3_600_000_000_000]);
        world.set_clock_back(ns);
    }
    world.crash(power_cut, recovery_faults);
    if !is_set_back {
        world.advance(LATER_NS);
    }
    for writer in writers {
        writer.check(world);
    }
}

fn act(world: &mut World, writers: &mut [Writer]) {
    let nth = world.random.random_range(0..writers.len());
    let reactor = world.random.random_range(0..world.plan.reactors);
    let (log_failed, log_stalled) = (world.log_failed(), world.log_stalled);
    let writer = &mut writers[nth];
    match world.random.random_range(0..100) {
        // A connection whose answers are held for ever is closed.
        0..30 if !writer.client.sim.is_closed() => writer.talk(&mut world.random),
        30..62 => {
            world.step(reactor);
        }
        62..76 => {
            world.write_log();
        }
        76..86 => writer.receive(log_failed, log_stalled),
        86..91 => {
            let ns = pick(&mut world.random, &[1_000, 100_000, 3_000_000, 150_000_000]);
            world.advance(ns);
        }
        91 => world.begin_snapshot(),
        92..97 => {
            let steps = world.random.random_range(1..3000);
            world.go_on_with_snapshot(steps);
        }
        97 => world.prepare_segment(),
        98 => {
            let moves = world.sim().migrate(writer.client.sim.id(), reactor);
            world.seen.moves += usize::from(moves);
        }
        _ => {}
    }
}

#[test]
fn no_crash_takes_back_statements_that_were_answered() {
    let mut sum = Seen::default();
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        sum += run(seed, Durability::Always);
    }
    if seeds(SEEDS) == (0..SEEDS) {
        // Runs that never come to what they are for prove nothing.
        let counts = [sum.failed_logs, sum.power_failures, sum.snapshots, sum.segments, sum.moves];
        assert!(counts.iter().all(|count| *count >= 3), "{sum:?}");
    }
}

/// Tests the check itself: it must detect a server that answers before its log is written, by the lost writes.
#[test]
fn a_forgetful_server_is_caught() {
    let is_caught = |seed: &u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(*seed, Durability::Never)));
        let complaint = outcome.err().and_then(|complaint| complaint.downcast::<String>().ok());
        complaint.is_some_and(|text| text.contains(" was promised "))
    };
    let caught = (0..10).filter(is_caught).count();
    assert!(caught >= 5, "it was caught by {caught} of 10 seeds");
}
