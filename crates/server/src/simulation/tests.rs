//! Properties that hold for every seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::planted::{Planted, plant};

use super::chaos;
use super::world::{Canary, Plan, Seen, World};

/// Seeds per `cargo test`.
const SEEDS: u64 = 1000;

/// Prints the seed when a run panics on any thread.
pub(super) struct Announce(pub(super) u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed}; again: MYRIAD_SEED={seed} cargo test -p server simulation");
        }
    }
}

/// The first `count` seeds, or those of the environment: `MYRIAD_SEED=7`, or
/// `MYRIAD_SEED=1..100000`.
pub(super) fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MYRIAD_SEED") else { return 0..count };
    let number = |text: &str| text.parse::<u64>().expect("MYRIAD_SEED is a number or a range");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

#[test]
fn no_crash_loses_acknowledged_writes() {
    let mut sum = Seen::default();
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        sum += chaos::run(seed, None);
    }
    if seeds(SEEDS) == (0..SEEDS) {
        check_coverage(&sum);
    }
}

/// Runs that never reach the interesting events prove nothing.
fn check_coverage(sum: &Seen) {
    let counts = [
        sum.failed_logs,
        sum.power_failures,
        sum.failed_starts,
        sum.snapshots,
        sum.segments,
        sum.losses,
        sum.moves,
    ];
    let least = usize::try_from(SEEDS).unwrap() / 50;
    assert!(counts.iter().all(|count| *count >= least), "{sum:?}");
}

/// The checks are effective: a server that is broken on purpose is detected by at least one of a
/// few seeds.
#[test]
fn a_broken_server_is_caught() {
    for canary in [Canary::OpensGates, Canary::Reorders, Canary::LyingDisk] {
        let is_caught = |seed: &u64| {
            catch_unwind(AssertUnwindSafe(|| chaos::run(*seed, Some(canary)))).is_err()
        };
        let caught = (0..20).filter(is_caught).count();
        assert!(caught >= 10, "{canary:?} was caught by {caught} of 20 seeds");
    }
}

/// Off-by-one errors, each where it would lose data or replies.
const PLANTED: [(&str, i64); 6] = [
    ("durable position", 1),
    ("durable position", -1),
    ("lanes taken", -1),
    ("record length", 1),
    ("record length", -1),
    ("gate comparison", -1),
];

/// The first seed that detects an error, and the failure's message.
fn find_planted(place: &'static str, delta: i64) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        plant(Some(Planted { place, delta }));
        let run = catch_unwind(AssertUnwindSafe(|| chaos::run(seed, None)));
        plant(None);
        let panic = run.err()?;
        let text = panic.downcast_ref::<String>().cloned();
        Some((seed, text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))?))
    })
}

#[test]
fn each_planted_off_by_one_is_found() {
    for (place, delta) in PLANTED {
        let found = find_planted(place, delta);
        let (seed, message) = found.unwrap_or_else(|| panic!("{place} {delta:+} is not detected"));
        println!("{place} {delta:+}: seed {seed}: {message}");
    }
}

/// Runs a reactor until it is idle.
fn turn(world: &mut World, reactor: usize) {
    while world.step(reactor) {}
}

/// Kills a connection by CLIENT KILL from reactor `from`, before or after the connection leaves
/// reactor 0 for reactor 1.
#[track_caller]
fn check_killed(from: usize, leaves_first: bool) {
    let mut world = World::new(1, Plan::default());
    let (killer, victim) = (world.sim().connect(), world.sim().connect());
    for reactor in [0, 1, 0, 1] {
        turn(&mut world, reactor);
        world.sim().migrate(killer.id(), from);
        world.sim().migrate(victim.id(), 0);
    }
    let kill = |world: &mut World| {
        killer.send(format!("CLIENT KILL ID {}\r\n", victim.id().0).as_bytes());
        turn(world, from);
    };
    if leaves_first {
        assert!(world.sim().migrate(victim.id(), 1));
        kill(&mut world);
    } else {
        kill(&mut world);
        assert!(world.sim().migrate(victim.id(), 1));
    }
    assert_eq!(killer.received(), b":1\r\n");
    killer.send(b"CLIENT LIST\r\n");
    for reactor in [from, 0, 1] {
        turn(&mut world, reactor);
    }
    let list = String::from_utf8(killer.received()).unwrap();
    assert_eq!(list.lines().filter(|line| line.starts_with("id=")).count(), 1, "{list}");
    assert!(victim.is_closed(), "a connection survived CLIENT KILL by moving");
}

#[test]
fn a_connection_that_moves_is_killed() {
    check_killed(0, true);
    // When the order arrives, the connection has left the reactor.
    check_killed(1, false);
}
