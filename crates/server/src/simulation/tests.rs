//! What must hold for every seed, and how single parts behave.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::chaos;
use super::world::{Canary, Seen};

/// Seeds that each `cargo test` tries.
const SEEDS: u64 = 1000;

/// Names the seed when a run fails, whoever panicked.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed}; again: MYRIAD_SEED={seed} cargo test -p server simulation");
        }
    }
}

/// All seeds, or those of the environment: `MYRIAD_SEED=7`, or `MYRIAD_SEED=1..100000`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("MYRIAD_SEED") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("MYRIAD_SEED is a number or a range");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

#[test]
fn no_crash_takes_back_what_was_promised() {
    let mut sum = Seen::default();
    for seed in seeds() {
        let _announce = Announce(seed);
        sum += chaos::run(seed, None);
    }
    if seeds() == (0..SEEDS) {
        check_coverage(&sum);
    }
}

/// Runs that never come to what they are for prove nothing.
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

/// The net has no hole: a server that is broken on purpose is caught by one of a few seeds.
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
