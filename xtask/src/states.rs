//! `cargo xtask states`: random commands in states that random commands do not reach.
//!
//! Each round starts a server, builds some extreme states (`build`): thousands of functions, users,
//! groups, subscriptions, nearly full limits. Then random clients act (`act`), while another client
//! must be served. Every reply must be well-formed, and the server must neither end nor panic. At
//! the end of a round it is stopped by SIGTERM and started again with the same data.

mod act;
mod build;
mod line;
mod subject;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};
use rand::{Rng, SeedableRng};

use self::act::Actor;
use self::build::{Builder, STATES, State};
use self::subject::{Bystander, Subject};
use crate::tally::Tally;

/// States of a round, in addition to the one whose turn it is.
const MORE_STATES_MAX: usize = 3;
/// Batches of requests after the restart.
const BATCHES_AFTER_RESTART: usize = 20;
/// Actors of a round: connections that act in turn.
const ACTORS: usize = 4;

/// Command line options.
#[derive(Debug)]
pub(crate) struct Options {
    /// `None`: the release build of this tree.
    pub(crate) program: Option<PathBuf>,
    pub(crate) seed: u64,
    /// No round begins after this time, once each state has had its turn.
    pub(crate) seconds: u64,
    /// Time in which the clients of a round act.
    pub(crate) round_seconds: u64,
    /// Only rounds with this state.
    pub(crate) only: Option<String>,
}

/// What a round has done.
#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    errors: u64,
    slowest: Duration,
}

/// Runs rounds until the time has passed, and at least one for each state.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => crate::process::myriad(root)?,
    };
    println!("states: seed {}, {} s", options.seed, options.seconds);
    let (started, mut tally, mut counts) = (Instant::now(), Tally::default(), Counts::default());
    let mut rounds = BTreeMap::<&str, u64>::new();
    for seed in options.seed.. {
        let least = if options.only.is_some() { 1 } else { STATES.len() as u64 };
        let is_late = started.elapsed() >= Duration::from_secs(options.seconds);
        if is_late && seed - options.seed >= least {
            break;
        }
        let mut random = StdRng::seed_from_u64(seed);
        let states = choose(&mut random, seed, options.only.as_deref())?;
        let names: Vec<&str> = states.iter().map(|state| state.name).collect();
        for name in &names {
            *rounds.entry(name).or_default() += 1;
        }
        match round(&program, &states, &mut random, options.round_seconds, &mut counts) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                tally.failed += 1;
                println!("FAILED, seed {seed}, states {}: {error:#}", names.join(" "));
            }
        }
    }
    for (name, rounds) in rounds {
        println!("states: {rounds} rounds with {name}");
    }
    println!(
        "states: {} requests, {} of them refused, slowest answer to the bystander {} ms, {} s",
        counts.requests,
        counts.errors,
        counts.slowest.as_millis(),
        started.elapsed().as_secs()
    );
    Ok(tally)
}

/// The states of a round: one after the other for consecutive seeds, with some others.
fn choose(random: &mut StdRng, seed: u64, only: Option<&str>) -> Result<Vec<&'static State>> {
    let first = match only {
        Some(name) => STATES.iter().find(|state| state.name == name).context("no such state")?,
        None => &STATES[usize::try_from(seed % STATES.len() as u64)?],
    };
    let mut states = vec![first];
    for _ in 0..random.random_range(0..=MORE_STATES_MAX) {
        let another = STATES.choose(random).expect("some");
        if states.iter().all(|known| known.name != another.name) {
            states.push(another);
        }
    }
    Ok(states)
}

fn round(
    program: &Path,
    states: &[&State],
    random: &mut StdRng,
    seconds: u64,
    counts: &mut Counts,
) -> Result<()> {
    let options: Vec<&str> = states.iter().flat_map(|state| state.options).copied().collect();
    let mut subject = Subject::start(program, &options)?;
    // What fails because the server has ended is not the reason.
    let probes = match attack(&subject, states, random, seconds, counts) {
        Ok(probes) => probes,
        Err(error) => return Err(subject.reason(error)),
    };
    subject.stop()?;
    subject.restart(program, &options)?;
    if let Err(error) = act_again(&subject, &probes, random, counts) {
        return Err(subject.reason(error.context("after the restart")));
    }
    subject.stop()
}

/// Returns requests that must succeed after a restart.
fn attack(
    subject: &Subject,
    states: &[&State],
    random: &mut StdRng,
    seconds: u64,
    counts: &mut Counts,
) -> Result<Vec<Vec<String>>> {
    let mut actors = actors(subject)?;
    let bystander = Bystander::start(&subject.address)?;
    let mut builder = Builder::new(subject, random);
    for state in states {
        (state.build)(&mut builder).with_context(|| format!("build {}", state.name))?;
    }
    let Builder { held, probes, .. } = builder;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let actor = actors.choose_mut(random).expect("some");
        actor.act(subject, random, counts)?;
    }
    counts.slowest = counts.slowest.max(bystander.stop()?);
    drop(held);
    Ok(probes)
}

/// What the states have stored is there.
fn act_again(
    subject: &Subject,
    probes: &[Vec<String>],
    random: &mut StdRng,
    counts: &mut Counts,
) -> Result<()> {
    let mut actors = actors(subject)?;
    let bystander = Bystander::start(&subject.address)?;
    let mut line = line::Line::open(&subject.address)?;
    for probe in probes {
        line.ask(probe)?;
    }
    for _ in 0..BATCHES_AFTER_RESTART {
        actors.choose_mut(random).expect("some").act(subject, random, counts)?;
    }
    counts.slowest = counts.slowest.max(bystander.stop()?);
    Ok(())
}

fn actors(subject: &Subject) -> Result<Vec<Actor>> {
    let actors: Vec<Actor> = (0..ACTORS).map(|_| Actor::new(subject)).collect::<Result<_>>()?;
    ensure!(actors.iter().all(Actor::knows_commands), "COMMAND LIST is empty");
    Ok(actors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_turn() {
        let mut random = StdRng::seed_from_u64(1);
        let mut state_of = |seed| choose(&mut random, seed, None).unwrap()[0].name;
        let mut first: Vec<&str> = (7..7 + STATES.len() as u64).map(&mut state_of).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), STATES.len());
        assert!(choose(&mut random, 1, Some("nothing")).is_err());
    }
}
