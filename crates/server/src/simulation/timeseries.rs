//! Time series and named databases survive crashes, restarts and snapshots; points expire on time.

use std::collections::BTreeMap;

use binlog::Faults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::resp::{Reply, decode_reply, encode_request};

use super::replication::take_snapshot;
use super::tests::{Announce, seeds};
use super::world::{Plan, World};

/// Seeds per `cargo test`.
const SEEDS: u64 = 40;
const ROUNDS: usize = 12;
const STEP_S: u64 = 60;
const STEP_NS: u64 = STEP_S * 1_000_000_000;

/// Value and expiry, in seconds since the start, of each point.
type Model = BTreeMap<i64, (String, Option<u64>)>;

fn ask(world: &mut World, command: &str) -> Reply {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    let mut request = Vec::new();
    encode_request(&words, &mut request);
    let bytes = world.ask(&request);
    let (reply, read) = decode_reply(&bytes).expect("RESP").expect("a reply");
    assert_eq!(read, bytes.len(), "{command}: one reply");
    reply
}

fn texts(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.iter().flat_map(texts).collect(),
        Reply::Bulk(bytes) | Reply::Simple(bytes) | Reply::Error(bytes) => {
            vec![String::from_utf8_lossy(bytes).into_owned()]
        }
        Reply::Integer(number) => vec![number.to_string()],
        Reply::Null => vec!["nil".to_owned()],
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(world: &mut World, command: &str, expected: &[&str]) {
    let found = ask(world, command);
    assert_eq!(texts(&found), expected, "{command}");
}

fn change(world: &mut World, model: &mut Model, random: &mut SmallRng, now_s: u64) {
    let timestamp: i64 = random.random_range(-200..200);
    if random.random_bool(0.2) {
        check(world, &format!("TSREM ts {timestamp} {}", timestamp + 1), &["OK"]);
        model.remove(&timestamp);
        model.remove(&(timestamp + 1));
        return;
    }
    let value = format!("{}", random.random_range(0..1_000_000));
    let ttl_s = random.random_bool(0.5).then(|| random.random_range(1..5) * STEP_S + STEP_S / 2);
    let option = ttl_s.map_or(String::new(), |ttl_s| format!(" EXPIRE_IN {ttl_s}"));
    check(world, &format!("TSADD ts {timestamp} {value} 0 zero{option}"), &["OK"]);
    let expiry_s = ttl_s.map(|ttl_s| now_s + ttl_s);
    model.insert(timestamp, (value, expiry_s));
    model.insert(0, ("zero".to_owned(), expiry_s));
}

fn run(seed: u64) {
    let _announce = Announce(seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut world = World::new(seed, Plan::default());
    let mut model = Model::new();
    let mut now_s = 0;
    for _ in 0..ROUNDS {
        for _ in 0..random.random_range(0..40) {
            change(&mut world, &mut model, &mut random, now_s);
        }
        match random.random_range(0..6) {
            0 | 1 => {
                world.advance(STEP_NS);
                now_s += STEP_S;
                // Reactors remove expired points at their next tick.
                (0..world.plan.reactors).for_each(|reactor| {
                    world.step(reactor);
                });
            }
            2 => world.die(true, Faults::default()),
            3 => world.die(false, Faults::default()),
            4 => {
                take_snapshot(&mut world);
                world.restart().unwrap();
            }
            _ => {
                take_snapshot(&mut world);
                world.restore_snapshot_alone();
            }
        }
        compare(&mut world, &mut model, now_s);
    }
}

fn compare(world: &mut World, model: &mut Model, now_s: u64) {
    model.retain(|_, (_, expiry_s)| expiry_s.is_none_or(|at| at > now_s));
    let expected: Vec<String> =
        model.iter().flat_map(|(at, (value, _))| [at.to_string(), value.clone()]).collect();
    for command in ["TSRANGEBYTIME ts -inf +inf", "TSLASTN ts 1000"] {
        assert_eq!(texts(&ask(world, command)), expected, "{command}");
    }
    let count = model.len().to_string();
    check(world, "TSCARD ts", &[&count]);
    if let Some((at, (value, _))) = model.iter().next() {
        check(world, &format!("TSGET ts {at}"), &[value]);
    }
}

#[test]
fn points_survive_crashes_and_expire_on_time() {
    seeds(SEEDS).for_each(run);
}

#[test]
fn a_series_whose_points_have_all_expired_is_deleted() {
    let mut world = World::new(1, Plan::default());
    check(&mut world, "TSADD ts 1 a 2 b EXPIRE_IN 30", &["OK"]);
    check(&mut world, "TSADD ts 3 c EXPIRE_IN 90", &["OK"]);
    check(&mut world, "COPY ts copy", &["1"]);
    check(&mut world, "RENAME ts moved", &["OK"]);
    let tick = |world: &mut World| {
        world.advance(STEP_NS);
        for _ in 0..3 {
            (0..2).for_each(|reactor| {
                world.step(reactor);
            });
            world.write_log();
        }
    };
    let bytes = |world: &mut World| texts(&ask(world, "MEMORY USAGE moved"));
    let before = bytes(&mut world);
    tick(&mut world);
    for key in ["copy", "moved"] {
        check(&mut world, &format!("TSRANGEBYTIME {key} -inf +inf"), &["3", "c"]);
        check(&mut world, &format!("TTL {key}"), &["-1"]);
    }
    assert_ne!(bytes(&mut world), before, "the points were removed");
    world.die(true, Faults::default());
    check(&mut world, "TSCARD moved", &["1"]);
    tick(&mut world);
    check(&mut world, "EXISTS copy moved ts", &["0"]);
    check(&mut world, "DBSIZE", &["0"]);
}

#[test]
fn names_of_databases_survive_a_crash_and_a_snapshot() {
    let mut world = World::new(2, Plan::default());
    check(&mut world, "CREATEDB orders", &["OK"]);
    check(&mut world, "CREATEDB events", &["OK"]);
    check(&mut world, "DELETEDB orders", &["OK"]);
    check(&mut world, "CREATEDB users", &["OK"]);
    world.die(true, Faults::default());
    check(&mut world, "LISTDB", &["0", "events", "users"]);
    take_snapshot(&mut world);
    world.restore_snapshot_alone();
    check(&mut world, "LISTDB", &["0", "events", "users"]);
    let mut request = Vec::new();
    for command in ["SELECT users", "SET k v", "DBSIZE"] {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        encode_request(&words, &mut request);
    }
    assert_eq!(world.ask(&request), b"+OK\r\n+OK\r\n:1\r\n");
    world.restart().unwrap();
    check(&mut world, "DELETEDB users", &["OK"]);
    world.die(true, Faults::default());
    check(&mut world, "LISTDB", &["0", "events"]);
}
