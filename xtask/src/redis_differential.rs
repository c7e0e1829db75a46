//! `cargo xtask redis-differential`: random requests of the Redis protocol, for Myriad and a Redis.
//!
//! Both servers get the same sequences on empty data: all types, transactions, scripts, expiry,
//! errors, values of one server that the other restores. The replies must be equal; where Redis
//! defines no order, without their order (`agree`). At the end of a sequence all data is read. After a
//! difference, the steps before it are reduced to the necessary ones, and printed.

mod agree;
mod forms;
mod grammar;
mod known;
mod pair;
mod sequence;
mod shrink;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::process::{Server, Target};
use crate::tally::Tally;
use crate::transcript::notation::Node;
use grammar::Grammar;
use pair::{Difference, Pair};
use sequence::Step;

/// Steps of one sequence, before the steps that read all data.
const STEPS: usize = 300;
/// Kinds of differences after which a run ends.
const KINDS_MAX: usize = 60;
/// Maximum number of lines of a reply that are shown.
const LINES_MAX: usize = 40;

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    /// Commands after which the run ends.
    pub(crate) commands: u64,
    /// Which server is right.
    pub(crate) against: Target,
    pub(crate) myriad: Target,
}

/// Runs sequences until there were enough commands. Each kind of difference is shown once.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let myriad = Server::start_with(root, &options.myriad, &["--durability", "never"])?;
    let other = Server::start(root, &options.against)?;
    let mut pair =
        Pair { myriad: myriad.address.clone(), other: other.address.clone(), commands: 0 };
    println!("redis-differential: seed {}, {} commands", options.seed, options.commands);
    let started = Instant::now();
    let grammar = Grammar::new();
    let (mut tally, mut kinds) = (Tally::default(), BTreeMap::<String, u64>::new());
    let (mut seed, mut commands) = (options.seed, 0);
    while commands < options.commands && kinds.len() < KINDS_MAX {
        let steps = sequence::steps(&grammar, seed, STEPS);
        let before = pair.commands;
        let found = pair.replay(&steps)?;
        commands += pair.commands - before;
        match found {
            None => tally.passed += 1,
            Some(difference) => {
                tally.failed += 1;
                let times = kinds.entry(difference.kind.clone()).or_default();
                *times += 1;
                if *times == 1 {
                    report(&mut pair, seed, &steps, difference)?;
                }
            }
        }
        seed = seed.wrapping_add(1);
    }
    for (kind, times) in &kinds {
        println!("redis-differential: {times} times: {kind}");
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "redis-differential: {commands} commands, {} sequences, {seconds:.0} s",
        tally.passed + tally.failed
    );
    Ok(tally)
}

fn report(pair: &mut Pair, seed: u64, steps: &[Step], difference: Difference) -> Result<()> {
    let (steps, difference) = shrink::shrink(pair, steps, difference)?;
    println!("DIFFERENT, seed {seed}: {}", difference.kind);
    for step in &steps {
        match step {
            Step::Ask { connection: 0, words, .. } => println!("  > {}", pair::show(words)),
            Step::Ask { connection, words, .. } => {
                println!("  {connection}> {}", pair::show(words));
            }
            Step::Exchange { from, to } => println!(
                "  RESTORE {} 0 (DUMP {} of the other server) REPLACE",
                String::from_utf8_lossy(to),
                String::from_utf8_lossy(from)
            ),
        }
    }
    for (name, value) in [("myriad", &difference.myriad), ("other ", &difference.other)] {
        for line in Node::of(value).lines().iter().take(LINES_MAX) {
            println!("  {name}  {line}");
        }
    }
    Ok(())
}
