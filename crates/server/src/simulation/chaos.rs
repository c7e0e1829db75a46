//! Chooses the events of a run from its seed: commands, turns, time, faults, crashes.

use std::ops::RangeInclusive;

use binlog::Faults as DiskFaults;
use rand::Rng;
use rand::rngs::SmallRng;
use reactor::Faults as NetworkFaults;

use super::cql_client::run_reactors;
use super::model::{Bytes, Command, command};
use super::world::{Canary, Plan, Seen, World};
use crate::config::Durability;

/// A key's name indicates its usual type.
const KEYS: [&str; 11] = [
    "text0", "text1", "text2", "hash0", "hash1", "list0", "list1", "set0", "set1", "zset0", "zset1",
];
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const CLIENTS_MAX: usize = 5;
const ACTIONS_MAX: usize = 220;

/// Commands whose replies together reveal all data except the names of other keys.
pub(super) fn questions() -> Vec<Command> {
    let ask = |key: &str| {
        let of_members = |name: &str| command(&[&[name, key], MEMBERS.as_slice()].concat());
        vec![
            command(&["GET", key]),
            command(&["HLEN", key]),
            of_members("HMGET"),
            command(&[&["HPEXPIRETIME", key, "FIELDS", "4"], MEMBERS.as_slice()].concat()),
            command(&["LRANGE", key, "0", "-1"]),
            command(&["SCARD", key]),
            of_members("SMISMEMBER"),
            command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            command(&["PEXPIRETIME", key]),
        ]
    };
    KEYS.iter().flat_map(|key| ask(key)).collect()
}

/// Runs a server with this seed through all its restarts.
pub(super) fn run(seed: u64, canary: Option<Canary>) -> Seen {
    let mut world = World::new(seed, plan(seed, canary));
    let starts = world.random.random_range(1..=3);
    for _ in 0..starts {
        live(&mut world);
    }
    world.seen
}

fn plan(seed: u64, canary: Option<Canary>) -> Plan {
    use rand::SeedableRng;
    let mut random = SmallRng::seed_from_u64(!seed);
    Plan {
        reactors: random.random_range(1..=3),
        has_spare: false,
        durability: pick(
            &mut random,
            &[Durability::Always, Durability::Always, Durability::Interval],
        ),
        segment_bytes: 4096 * random.random_range(2..=8),
        lane_bytes: 4096 * random.random_range(1..=4),
        step_ns: pick(&mut random, &[0, 100, 5_000, 40_000]),
        sync_ns: 0,
        canary,
        options: Vec::new(),
    }
}

pub(super) fn pick<T: Copy>(random: &mut SmallRng, choices: &[T]) -> T {
    choices[random.random_range(0..choices.len())]
}

/// Runs the server from a start to a crash and the recovery from it.
fn live(world: &mut World) {
    let random = &mut world.random;
    let network = pick(random, &[NetworkFaults::default(), NetworkFaults::harmless()]);
    let actions = random.random_range(10..=ACTIONS_MAX);
    let faults_from = random.random_range(0..actions);
    let faults = disk_faults(random);
    let clients = random.random_range(1..=CLIENTS_MAX);
    let settles = random.random_bool(0.3);
    world.sim().set_faults(network);
    (0..clients).for_each(|_| greet(world));
    let mut is_on = true;
    for number in 0..actions {
        if number == faults_from {
            world.disk.set_faults(faults);
        }
        act(world);
        is_on = world.is_powered();
        if !is_on {
            world.seen.power_failures += 1;
            break;
        }
    }
    if is_on && settles {
        world.disk.set_faults(DiskFaults::default());
        // Do not wait for clients that read a few bytes at a time.
        world.clients.iter().for_each(|client| client.sim.set_window(usize::MAX));
        world.settle();
        check_settled(world);
    }
    let power_cut = !is_on || world.chance(0.8);
    let recovery_faults = recovery_faults(&mut world.random);
    world.crash(power_cut, recovery_faults);
}

pub(super) fn disk_faults(random: &mut SmallRng) -> DiskFaults {
    let mut faults =
        DiskFaults { short_write: pick(random, &[0.0, 0.0, 0.3]), ..DiskFaults::default() };
    match random.random_range(0..10) {
        0..3 => faults.power_off_after = Some(random.random_range(0..60)),
        3 => faults.write_error = 0.1,
        4 => faults.sync_error = 0.1,
        5 => faults.capacity_bytes = Some(random.random_range(20_000..400_000)),
        _ => {}
    }
    faults
}

pub(super) fn recovery_faults(random: &mut SmallRng) -> DiskFaults {
    let mut faults = DiskFaults::default();
    match random.random_range(0..10) {
        0..2 => faults.power_off_after = Some(random.random_range(0..30)),
        2 => faults.write_error = 0.2,
        3 => faults.sync_error = 0.2,
        _ => {}
    }
    faults
}

/// The plan of a server with CQL on a disk with torn writes and failures.
pub(super) fn cql_plan(random: &mut SmallRng, reactors_max: usize, durability: Durability) -> Plan {
    Plan {
        reactors: random.random_range(1..=reactors_max),
        segment_bytes: 4096 * random.random_range(3..=8),
        lane_bytes: 4096 * random.random_range(2..=4),
        durability,
        options: vec![("cql", "127.0.0.1:0".to_owned())],
        ..Plan::default()
    }
}

/// The events between a start of the server and the crash that ends it.
pub(super) struct Life {
    actions: usize,
    /// The action before which the disk begins to fail.
    faults_from: usize,
    faults: DiskFaults,
    /// Whether the disk recovers and all requests are answered before the crash.
    settles: bool,
}

/// The state of the server before its crash.
pub(super) struct Ending {
    pub(super) has_power: bool,
    /// Whether every request must have been answered.
    pub(super) is_served: bool,
}

impl Life {
    pub(super) fn random(world: &mut World, actions: RangeInclusive<usize>) -> Life {
        let actions = world.random.random_range(actions);
        Life {
            actions,
            faults_from: world.random.random_range(0..actions),
            faults: disk_faults(&mut world.random),
            settles: world.chance(0.3),
        }
    }

    /// Acts until all actions are done or the power fails.
    pub(super) fn run(&self, world: &mut World, mut act: impl FnMut(&mut World)) -> Ending {
        for number in 0..self.actions {
            if number == self.faults_from {
                world.disk.set_faults(self.faults);
            }
            act(world);
            if !world.is_powered() {
                world.seen.power_failures += 1;
                break;
            }
        }
        let has_power = world.is_powered();
        if has_power && self.settles {
            world.disk.set_faults(DiskFaults::default());
            // A full log retries after a tenth of a second.
            let times = if world.log_stalled { 10 } else { 1 };
            (0..times).for_each(|_| world.settle());
            run_reactors(world);
        }
        let log_failed = world.log_failed();
        world.seen.failed_logs += usize::from(log_failed);
        Ending { has_power, is_served: has_power && self.settles && !log_failed }
    }
}

/// Checks the server after all work has finished.
fn check_settled(world: &mut World) {
    if world.log_failed() {
        world.seen.failed_logs += 1;
        check_failed_log(world);
    } else {
        world.check_served();
    }
}

/// Checks that no reply is held forever, that writes are refused, and that durable data can be
/// read.
fn check_failed_log(world: &mut World) {
    for client in world.clients.iter().filter(|client| !client.is_over()) {
        assert!(client.is_served(), "a connection waits for a failed log");
    }
    let durable = world.shared().log.durable().0;
    let keys = world.oracle.durable_keys(durable);
    let refused = world.oracle.refused;
    let reader = world.connect();
    world.send(reader, command(&["CLIENT", "DURABILITY", "always"]));
    for key in keys {
        world.send(reader, vec![b"GET".to_vec(), key]);
    }
    world.send(reader, command(&["SET", "text0", "never"]));
    world.settle();
    assert_eq!(world.oracle.refused, refused, "a reader of durable data was refused");
    let reader = &world.clients[reader];
    assert!(!reader.sim.is_closed(), "a reader of durable data was closed");
    assert!(reader.is_served(), "a reader of durable data was not answered");
}

/// Connects a client.
fn greet(world: &mut World) {
    let client = world.connect();
    let word = pick(&mut world.random, &["always", "always", "always", "interval", "never"]);
    world.send(client, command(&["CLIENT", "DURABILITY", word]));
}

fn act(world: &mut World) {
    let client = world.random.random_range(0..world.clients.len());
    let reactor = world.random.random_range(0..world.plan.reactors);
    match world.random.random_range(0..100) {
        0..30 => talk(world, client),
        30..60 => {
            world.step(reactor);
        }
        60..72 => {
            world.write_log();
        }
        72..84 => world.receive(client),
        84..90 => {
            let ns = pick(&mut world.random, &[1_000, 100_000, 3_000_000, 40_000_000, 150_000_000]);
            world.advance(ns);
        }
        90 => world.begin_snapshot(),
        91..95 => {
            let steps = world.random.random_range(1..3000);
            world.go_on_with_snapshot(steps);
        }
        95 => world.prepare_segment(),
        96 => {
            world.migrate(client, reactor);
        }
        97 => leave(world, client),
        98 => {
            let window = world.random.random_range(1..2000);
            world.clients[client].sim.set_window(window);
        }
        _ => greet_another(world),
    }
}

/// Disconnects a client in a random way.
fn leave(world: &mut World, client: usize) {
    let resets = world.chance(0.5);
    let client = &mut world.clients[client];
    if resets {
        client.sim.reset();
    } else {
        client.sim.close();
    }
    client.is_removed = true;
}

fn greet_another(world: &mut World) {
    if world.clients.len() < CLIENTS_MAX {
        greet(world);
    }
}

/// Sends something from a client.
fn talk(world: &mut World, client: usize) {
    if world.clients[client].is_over() {
        world.reconnect(client);
        return;
    }
    let count = pick(&mut world.random, &[1, 1, 1, 2, 5, 20]);
    for _ in 0..count {
        let is_in_multi = world.clients[client].is_in_multi;
        let next = match (is_in_multi, world.random.random_range(0..10)) {
            (true, 0..4) => command(&["EXEC"]),
            (false, 0) => command(&["MULTI"]),
            _ => random_command(&mut world.random),
        };
        world.send(client, next);
    }
}

fn key_of(random: &mut SmallRng, kind: &str) -> Bytes {
    let fitting: Vec<&str> = KEYS.iter().filter(|key| key.starts_with(kind)).copied().collect();
    let any = random.random_bool(0.1);
    pick(random, if any { &KEYS } else { &fitting }).as_bytes().to_vec()
}

/// A value that is usually short, sometimes longer than a lane or a segment.
fn value_of(random: &mut SmallRng) -> Bytes {
    let number = random.random::<u32>().to_string();
    let repeats = match random.random_range(0..40) {
        0 => 1500,
        1..4 => 100,
        _ => 1,
    };
    number.repeat(repeats).into_bytes()
}

pub(super) fn random_command(random: &mut SmallRng) -> Command {
    let member = pick(random, &MEMBERS).as_bytes().to_vec();
    let small = random.random_range(1..300).to_string().into_bytes();
    let value = value_of(random);
    let (text, other) = (key_of(random, "text"), key_of(random, "text"));
    let (hash, list) = (key_of(random, "hash"), key_of(random, "list"));
    let (set, scores) = (key_of(random, "set"), key_of(random, "zset"));
    let any = key_of(random, "");
    let words = |name: &str, words: Vec<Bytes>| [vec![name.into()], words].concat();
    let one = || vec![b"FIELDS".to_vec(), b"1".to_vec(), member.clone()];
    match random.random_range(0..66) {
        0..6 => words("SET", vec![text, value]),
        6 => words("SET", vec![text, value, b"PX".to_vec(), small]),
        7 => words("SET", vec![text, value, b"NX".to_vec()]),
        8..12 => words("APPEND", vec![text, value]),
        12..16 => words("INCR", vec![text]),
        16..18 => words("MSET", vec![text, value.clone(), other, small]),
        18..20 => words("MGET", vec![text, other]),
        20..25 => words("GET", vec![text]),
        25..28 => words("HSET", vec![hash, member, value]),
        28 => words("HDEL", vec![hash, member]),
        29 => words("HMGET", vec![hash, member]),
        30..33 => words("LPUSH", vec![list, value, small]),
        33 => words("RPUSH", vec![list, value]),
        34 => words("LPOP", vec![list]),
        35..37 => words("RPOP", vec![list]),
        37 => words("LRANGE", vec![list, b"0".to_vec(), b"-1".to_vec()]),
        38..40 => words("SADD", vec![set, member]),
        40 => words("SREM", vec![set, member]),
        41 => words("SMISMEMBER", vec![set, member]),
        42..44 => words("ZADD", vec![scores, small, member]),
        44 => words("ZREM", vec![scores, member]),
        45 => {
            let all = ["0", "-1", "WITHSCORES"].map(|word| word.as_bytes().to_vec());
            words("ZRANGE", [vec![scores], all.to_vec()].concat())
        }
        46..48 => words("DEL", vec![any, text]),
        48 => words("EXISTS", vec![any, text]),
        49..52 => words("PEXPIRE", vec![any, small]),
        52 => words("PERSIST", vec![any]),
        53 => words("PEXPIRETIME", vec![any]),
        54..57 => words("RENAME", vec![any, text]),
        57 => words("FLUSHDB", vec![]),
        58 => words("HPEXPIRE", [vec![hash, small], one()].concat()),
        59 => {
            let timed = vec![hash, b"PX".to_vec(), small];
            words("HSETEX", [timed, one(), vec![value]].concat())
        }
        60 => words("HGETEX", [vec![hash, b"PX".to_vec(), small], one()].concat()),
        61 => words("HPERSIST", [vec![hash], one()].concat()),
        62 => words("HGETDEL", [vec![hash], one()].concat()),
        63 => words("HPEXPIRETIME", [vec![hash], one()].concat()),
        _ => words("GET", vec![any]),
    }
}
