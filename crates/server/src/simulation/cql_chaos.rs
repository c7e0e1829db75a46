//! CQL statements on disks with torn writes and failures. Acknowledged statements survive every
//! crash, and the recovered data are the result of some prefix of the statements.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::cql::Version;

use super::chaos::{Life, cql_plan, pick, recovery_faults};
use super::cql_client::{Client, ask};
use super::cql_model::{LIVES, LONG_LIVES, Outcome, State, Statement, TABLES, creation, table};
use super::tests::{Announce, seeds};
use super::world::{Seen, World};
use crate::config::Durability;

/// Seeds per `cargo test`.
const SEEDS: u64 = 60;
const CLIENTS: usize = 2;
const ACTIONS_MAX: usize = 160;
const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];
/// Indistinguishable states of a client's tables; above this number the client empties its tables.
const STATES_MAX: usize = 10;
/// Short TTLs have expired by then.
const LATER_NS: u64 = 50_000_000_000;
/// The refusal by a server whose log has failed.
const FAILED: &str = "ERROR 0000 ";

/// A client, its tables, and the replies that it received.
struct Writer {
    client: Client,
    /// Part of its tables' names.
    number: usize,
    /// Possible contents of the tables when the server last started. They are indistinguishable.
    bases: Vec<State>,
    /// The content after all statements that were sent.
    state: State,
    /// In order of execution; the stream of each is its index.
    sent: Vec<(Statement, Outcome)>,
    /// The number of leading statements that must be durable.
    promised: usize,
    answered: usize,
    /// The log has failed: from then on outcomes differ from the expected ones.
    is_refused: bool,
    /// The log refused a write and may have accepted later ones: the content is unknown until a
    /// restart.
    is_lost: bool,
    writes: usize,
    /// The TTLs that its cells may have.
    lives: &'static [u32],
}

fn version(world: &mut World) -> Version {
    pick(&mut world.random, &VERSIONS)
}

impl Writer {
    /// Creates the writer and its tables, on a disk without faults.
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
            let stream = i16::try_from(self.sent.len()).expect("few statements per start");
            self.client.query(stream, &statement.text(self.number));
            self.sent.push((statement, outcome));
        }
    }

    /// Checks the replies that have arrived. Writes may be refused by a failed or stalled log.
    fn receive(&mut self, log_failed: bool, log_stalled: bool) {
        for reply in self.client.replies() {
            let (stream, response) = reply.split_once(' ').expect("a reply begins with its stream");
            let at: usize = stream.parse().expect("a stream of this client");
            let (statement, outcome) = &self.sent[at];
            self.answered += 1;
            let is_refused = response.starts_with(FAILED);
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
                expected.iter().any(|words| response.starts_with(words)),
                "{}: {response} instead of {expected:?}",
                statement.text(self.number)
            );
            if *outcome == Outcome::Written {
                self.promised = self.promised.max(at + 1);
            }
        }
    }

    /// Reconnects, and finds a prefix of the statements that explains the content.
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

/// Runs a server with this seed through all its restarts. Its clients rely on `always`.
fn run(seed: u64, durability: Durability) -> Seen {
    let mut random = SmallRng::seed_from_u64(!seed);
    let plan = cql_plan(&mut random, 2, durability);
    let mut world = World::new(seed, plan);
    // In some runs each crash sets the clock back.
    let is_set_back = random.random_bool(0.4);
    let ttls: &[u32] = if is_set_back { &LONG_LIVES } else { &LIVES };
    let writer = |number| Writer::new(&mut world, number, ttls);
    let mut writers: Vec<_> = (0..CLIENTS).map(writer).collect();
    for _ in 0..random.random_range(1..=3) {
        live(&mut world, &mut writers, is_set_back);
    }
    world.seen
}

/// Runs the server from a start to a crash, and checks what survives.
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
        // A connection whose replies are held forever is closed.
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
fn no_crash_loses_acknowledged_statements() {
    let mut sum = Seen::default();
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        sum += run(seed, Durability::Always);
    }
    if seeds(SEEDS) == (0..SEEDS) {
        // Runs that never reach the interesting events prove nothing.
        let counts = [sum.failed_logs, sum.power_failures, sum.snapshots, sum.segments, sum.moves];
        assert!(counts.iter().all(|count| *count >= 3), "{sum:?}");
    }
}

/// Tests the check itself: from lost writes it must detect a server that replies before its log is
/// written.
#[test]
fn a_server_that_acknowledges_too_early_is_caught() {
    let is_caught = |seed: &u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(*seed, Durability::Never)));
        let complaint = outcome.err().and_then(|complaint| complaint.downcast::<String>().ok());
        complaint.is_some_and(|text| text.contains(" was promised "))
    };
    let caught = (0..10).filter(is_caught).count();
    assert!(caught >= 5, "it was caught by {caught} of 10 seeds");
}
