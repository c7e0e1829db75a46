//! Clients of both protocols use the same values on a disk with torn writes and failures. Their
//! replies must be consistent with some sequential order of all operations, across crashes.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;
use wire::cql::Version;
use wire::resp::{Reply, decode_reply};

use super::chaos::{Life, cql_plan, pick, recovery_faults};
use super::cql_client::{Client, run_reactors};
use super::linear::{Operation, is_linearizable};
use super::registers::{Action, Answer, Deed, REGISTERS};
use super::tests::{Announce, seeds};
use super::world::{Seen, World};
use crate::config::Durability;

/// Seeds per `cargo test`.
const SEEDS: u64 = 200;
const CLIENTS: usize = 4;
const ACTIONS_MAX: usize = 200;
/// Unanswered requests per client. The check tries overlapping operations in every order.
const WAITING_MAX: usize = 3;
const UNFIT: &str = "no order of these operations explains their answers";

/// The operations on each register, with the logical times of their events.
#[derive(Default)]
struct Histories {
    deeds: BTreeMap<usize, Vec<Operation<Deed>>>,
    /// The logical time of the last event.
    moment: usize,
    /// The last value that any client wrote.
    value: u32,
}

/// An unanswered request: its register, and its index among the register's deeds.
#[derive(Clone, Copy)]
struct Waiting {
    register: usize,
    deed: usize,
}

impl Histories {
    fn begin(&mut self, register: usize, action: Action, now_ms: u64) -> Waiting {
        self.moment += 1;
        let deeds = self.deeds.entry(register).or_default();
        let what = Deed { action, answer: Answer::Unknown, from_ms: now_ms, to_ms: now_ms };
        // An operation without a reply overlaps all later ones.
        let (invoked, completed) = (self.moment, usize::MAX);
        deeds.push(Operation { what, invoked, completed, is_certain: false });
        Waiting { register, deed: deeds.len() - 1 }
    }

    fn end(&mut self, waiting: Waiting, answer: Answer, now_ms: u64) {
        self.moment += 1;
        let deeds =
            self.deeds.get_mut(&waiting.register).expect("the operation was recorded at its start");
        let operation = &mut deeds[waiting.deed];
        operation.completed = self.moment;
        operation.is_certain = answer != Answer::Unknown;
        (operation.what.answer, operation.what.to_ms) = (answer, now_ms);
    }

    fn check(&self) {
        for (register, operations) in &self.deeds {
            // A read without a reply carries no information.
            let is_informative =
                |one: &&Operation<Deed>| one.is_certain || one.what.action != Action::Read;
            let operations: Vec<_> = operations.iter().filter(is_informative).cloned().collect();
            let fits = is_linearizable(&None, &operations, |state, deed: &Deed| deed.step(state));
            assert!(fits, "{:?}: {UNFIT}: {operations:#?}", REGISTERS[*register]);
        }
    }
}

/// A client's end of a connection.
enum Line {
    /// Unanswered requests by stream.
    Cql(Box<Client>, BTreeMap<i16, Waiting>),
    /// Unanswered requests in order, and the bytes of an incomplete answer.
    Resp(SimClient, VecDeque<Waiting>, Vec<u8>),
}

impl Line {
    fn new(world: &mut World) -> Line {
        if world.chance(0.5) {
            return Line::Resp(world.sim().connect(), VecDeque::new(), Vec::new());
        }
        let version = pick(&mut world.random, &[Version::V4, Version::V5]);
        Line::Cql(Box::new(Client::start(world, version, None)), BTreeMap::new())
    }

    fn sim(&self) -> &SimClient {
        match self {
            Line::Cql(client, _) => &client.sim,
            Line::Resp(sim, ..) => sim,
        }
    }

    fn waiting(&self) -> usize {
        match self {
            Line::Cql(_, waiting) => waiting.len(),
            Line::Resp(_, waiting, _) => waiting.len(),
        }
    }

    /// Sends the request for an action, if the protocol has one.
    fn send(&mut self, histories: &mut Histories, register: usize, action: Action, now_ms: u64) {
        match self {
            Line::Cql(client, waiting) => {
                let Some(text) = REGISTERS[register].statement(action) else { return };
                let free = (0..i16::MAX).find(|stream| !waiting.contains_key(stream));
                let stream = free.expect("few requests are in flight");
                waiting.insert(stream, histories.begin(register, action, now_ms));
                client.query(stream, &text);
            }
            Line::Resp(sim, waiting, _) => {
                let Some(words) = REGISTERS[register].command(action) else { return };
                let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                let mut bytes = Vec::new();
                wire::resp::encode_request(&words, &mut bytes);
                waiting.push_back(histories.begin(register, action, now_ms));
                sim.send(&bytes);
            }
        }
    }

    fn receive(&mut self, histories: &mut Histories, now_ms: u64) {
        match self {
            Line::Cql(client, waiting) => {
                for reply in client.replies() {
                    let (stream, summary) =
                        reply.split_once(' ').expect("a reply begins with its stream");
                    let stream = stream.parse().expect("a number");
                    let one = waiting.remove(&stream).expect("an answer to a request");
                    let action = histories.deeds[&one.register][one.deed].what.action;
                    let answer = REGISTERS[one.register].answer_of(action, summary);
                    histories.end(one, answer, now_ms);
                }
            }
            Line::Resp(sim, waiting, unread) => {
                unread.extend(sim.received());
                while let Ok(Some((reply, bytes))) = decode_reply(unread) {
                    let one = waiting.pop_front().expect("an answer to a request");
                    let action = histories.deeds[&one.register][one.deed].what.action;
                    let answer = answer_of(action, &reply);
                    unread.drain(..bytes);
                    histories.end(one, answer, now_ms);
                }
            }
        }
    }

    /// Closes a lost connection: its unanswered requests may or may not have been executed.
    fn discard_queue(self, histories: &mut Histories, now_ms: u64) {
        let waiting: Vec<Waiting> = match self {
            Line::Cql(_, waiting) => waiting.into_values().collect(),
            Line::Resp(_, waiting, _) => waiting.into(),
        };
        for one in waiting {
            histories.end(one, Answer::Unknown, now_ms);
        }
    }
}

/// The answer in a reply of the Redis protocol.
fn answer_of(action: Action, reply: &Reply) -> Answer {
    match (action, reply) {
        (_, Reply::Error(_)) => Answer::Unknown,
        (Action::Read, Reply::Bulk(value)) => {
            let text = std::str::from_utf8(value).expect("digits");
            Answer::Value(Some(text.parse().expect("a number")))
        }
        (Action::Read, _) => Answer::Value(None),
        // HSET returns whether the field is new.
        (Action::Put(..), _) => Answer::Done,
        (_, Reply::Integer(count)) => Answer::Applied(*count > 0),
        (action, reply) => panic!("{action:?}: {reply:?}"),
    }
}

fn now_ms(world: &mut World) -> u64 {
    world.sim().now().unix.0
}

/// Runs a server of this seed, with its crashes and restarts.
fn run(seed: u64, durability: Durability) -> Seen {
    let mut random = SmallRng::seed_from_u64(!seed);
    let plan = cql_plan(&mut random, 3, durability);
    let mut world = World::new(seed, plan);
    let mut client = Client::start(&mut world, Version::V4, None);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    for text in [
        format!("CREATE KEYSPACE k WITH replication = {replication}"),
        "CREATE TABLE k.r (p int PRIMARY KEY, v int)".to_owned(),
    ] {
        client.query(0, &text);
        let mut replies = client.ask(&mut world);
        while world.write_log() {
            replies.extend(client.ask(&mut world));
        }
        assert!(replies[0].starts_with("0 CHANGE "), "{replies:?}");
    }
    let mut histories = Histories::default();
    for _ in 0..random.random_range(1..=3) {
        live(&mut world, &mut histories);
        look(&mut world, &mut histories);
        histories.check();
    }
    world.seen
}

/// Runs the server from a start to a crash.
fn live(world: &mut World, histories: &mut Histories) {
    let life = Life::random(world, 20..=ACTIONS_MAX);
    let mut lines: Vec<Line> = (0..CLIENTS).map(|_| Line::new(world)).collect();
    let ending = life.run(world, |world| act(world, &mut lines, histories));
    let now_ms = now_ms(world);
    for mut line in lines {
        line.receive(histories, now_ms);
        assert!(!ending.is_served || line.waiting() == 0, "a client has no reply yet");
        line.discard_queue(histories, now_ms);
    }
    let power_cut = !ending.has_power || world.chance(0.8);
    let recovery_faults = recovery_faults(&mut world.random);
    world.die(power_cut, recovery_faults);
}

/// Reads all registers while the disk is reliable.
fn look(world: &mut World, histories: &mut Histories) {
    let mut line = Line::Cql(Box::new(Client::start(world, Version::V4, None)), BTreeMap::new());
    for register in 0..REGISTERS.len() {
        let now = now_ms(world);
        line.send(histories, register, Action::Read, now);
    }
    run_reactors(world);
    while world.write_log() {
        run_reactors(world);
    }
    let now = now_ms(world);
    line.receive(histories, now);
    assert_eq!(line.waiting(), 0, "a client has no reply yet");
}

fn act(world: &mut World, lines: &mut [Line], histories: &mut Histories) {
    let nth = world.random.random_range(0..lines.len());
    let reactor = world.random.random_range(0..world.plan.reactors);
    let now_ms = now_ms(world);
    let line = &mut lines[nth];
    match world.random.random_range(0..100) {
        0..34 if line.sim().is_closed() => {
            let new = Line::new(world);
            std::mem::replace(line, new).discard_queue(histories, now_ms);
        }
        0..34 if line.waiting() < WAITING_MAX => {
            let register = world.random.random_range(0..REGISTERS.len());
            histories.value += 1;
            let value = histories.value;
            let known = value.saturating_sub(world.random.random_range(1..12));
            let known = newest(histories, register).filter(|_| world.chance(0.7)).unwrap_or(known);
            let action = REGISTERS[register].random_action(&mut world.random, value, known);
            line.send(histories, register, action, now_ms);
        }
        34..64 => {
            world.step(reactor);
        }
        64..78 => {
            world.write_log();
        }
        78..88 => line.receive(histories, now_ms),
        88..93 => {
            let ns = [1_000, 3_000_000, 150_000_000, 1_200_000_000];
            let ns = pick(&mut world.random, &ns);
            world.advance(ns);
        }
        93 => world.begin_snapshot(),
        94..97 => {
            let steps = world.random.random_range(1..3000);
            world.go_on_with_snapshot(steps);
        }
        97 => world.prepare_segment(),
        98 => {
            let moves = world.sim().migrate(line.sim().id(), reactor);
            world.seen.moves += usize::from(moves);
        }
        _ => {}
    }
}

/// The likely value of a register: the last one written to it.
fn newest(histories: &Histories, register: usize) -> Option<u32> {
    let deeds = histories.deeds.get(&register)?;
    deeds.iter().rev().find_map(|one| match (one.what.action, one.what.answer) {
        (_, Answer::Value(value)) => value,
        (Action::Put(value, _), _) | (Action::PutIfAbsent(value), Answer::Applied(true)) => {
            Some(value)
        }
        (Action::Swap { value, .. }, Answer::Applied(true)) => Some(value),
        _ => None,
    })
}

#[test]
fn replies_of_both_protocols_are_linearizable() {
    let mut sum = Seen::default();
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        sum += run(seed, Durability::Always);
    }
    if seeds(SEEDS) == (0..SEEDS) {
        // Runs without faults and moves would prove nothing.
        let counts = [sum.failed_logs, sum.power_failures, sum.moves];
        assert!(counts.iter().all(|count| *count >= 3), "{sum:?}");
    }
}

/// Tests the check itself: from lost writes it must detect a server that replies before its log is
/// written.
#[test]
fn a_server_that_replies_too_early_is_caught() {
    let is_caught = |seed: &u64| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(*seed, Durability::Never)));
        let complaint = outcome.err().and_then(|complaint| complaint.downcast::<String>().ok());
        complaint.is_some_and(|text| text.contains(UNFIT))
    };
    let caught = (0..10).filter(is_caught).count();
    assert!(caught >= 3, "it was caught by {caught} of 10 seeds");
}
