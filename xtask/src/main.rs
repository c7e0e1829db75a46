//! `cargo xtask`: the project's chores. Requires only cargo, except where a chore documents more.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // chores print to the terminal

mod chaos;
mod ci;
mod clients;
mod console;
mod cql;
mod crash;
mod differential;
mod hostile;
mod lab_smoke;
mod lab_truth;
#[path = "../../crates/server/src/simulation/linear.rs"]
mod linear;
mod linearizable;
mod measure;
mod process;
mod redis_differential;
mod report;
mod resp;
mod rust_tests;
mod states;
mod steps;
mod tally;
mod tidy;
mod transcript;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;

use crate::process::Target;
use crate::tally::Tally;

const HELP: &str = "\
Chores of the project.

  cargo xtask ci [--only STEP]...            all checks before a merge; `ci --list` names the steps
  cargo xtask tidy                           rules of the project that the compiler does not check
  cargo xtask measure [--tree DIR]           figures about the code, of this tree or of another one
  cargo xtask transcripts --server SERVER [--update] [FILTER]
                                             golden dialogues; --update writes the replies
  cargo xtask cql --server myriad|cassandra=HOST:PORT [--update] [FILTER]
                                             the same for CQL; scripts/peers/cassandra.sh starts a Cassandra
  cargo xtask cql-differential --against HOST:PORT|itself [--seed S] [--schemas N] [--statements N]
                                             random statements, for Myriad and a Cassandra, or for
                                             Myriad and one that is killed repeatedly
  cargo xtask redis-differential [--against redis|HOST:PORT] [--server myriad|HOST:PORT]
                                 [--seed S] [--commands N]
                                             random commands, for Myriad and a Redis; both servers
                                             are emptied; a million commands
  cargo xtask clients --server SERVER [--only NAME]...
                                             suites of real clients; needs their languages
  cargo xtask crash [--rounds N] [--seed S] [--server myriad|redis|forgetful]
                                             kill -9 under load, restart, compare; 20 rounds
  cargo xtask powercut [--cuts N] [--seed S] [--server myriad|forgetful]
                                             the same with a disk that loses unsynced data;
                                             20 cuts; needs /dev/fuse
  cargo xtask linearizable [--server myriad|forgetful] [--reactors N] [--rounds N] [--seed S]
                                             concurrent clients of a server that is killed repeatedly:
                                             one order explains all replies; 100 rounds
  cargo xtask hostile [--server myriad|HOST:PORT] [--seed S] [FILTER]
                                             malicious clients; about a minute
  cargo xtask states [--seconds N] [--round-seconds N] [--seed S] [--program PATH] [STATE]
                                             random commands after thousands of functions, users,
                                             groups, subscriptions, near limits; a minute
  cargo xtask chaos hub|replicas [--seconds N] [--seed S]
                                             three masters and their hub, or a master and replicas
                                             that take over, killed and cut off under load, lose
                                             nothing and become equal; a minute; needs root
  cargo xtask lab-truth [--tries N]          a server compared with itself is not reported as
                                             different, one made 5 % slower is; about 9 minutes
                                             on a quiet machine
  cargo xtask report                         the lab's pages in headless Chromium
  cargo xtask console                        the server's console in headless Chromium, under load

SERVER is redis (the installed redis-server), myriad (target/release/myriad) or HOST:PORT.";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True if everything passed.
fn run() -> Result<bool> {
    let mut parser = lexopt::Parser::from_env();
    let Some(argument) = parser.next()? else {
        println!("{HELP}");
        return Ok(false);
    };
    let chore = match argument {
        Short('h') | Long("help") => "help".to_owned(),
        Value(word) => word.string()?,
        other => return Err(other.unexpected().into()),
    };
    match chore.as_str() {
        "help" => {
            println!("{HELP}");
            Ok(true)
        }
        "ci" => run_ci(&mut parser),
        "tidy" => run_tidy(&mut parser),
        "measure" => run_measure(&mut parser),
        "transcripts" => run_transcripts(&mut parser),
        "cql" => run_cql(&mut parser),
        "cql-differential" => run_differential(&mut parser),
        "redis-differential" => run_redis_differential(&mut parser),
        "clients" => run_clients(&mut parser),
        "crash" => run_crash(&mut parser),
        "linearizable" => run_linearizable(&mut parser),
        "powercut" => run_powercut(&mut parser),
        "hostile" => run_hostile(&mut parser),
        "states" => run_states(&mut parser),
        "chaos" => run_chaos(&mut parser),
        "lab-truth" => run_lab_truth(&mut parser),
        "report" => Ok(finish(report::run(&root()?)?)),
        "console" => Ok(finish(console::run(&root()?)?)),
        other => bail!("no chore {other:?}: see cargo xtask --help"),
    }
}

fn run_ci(parser: &mut lexopt::Parser) -> Result<bool> {
    let mut only = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => only.push(parser.value()?.string()?),
            Long("list") => {
                ci::names().for_each(|name| println!("{name}"));
                return Ok(true);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(finish(ci::run(&root()?, &only)?))
}

fn run_tidy(parser: &mut lexopt::Parser) -> Result<bool> {
    if let Some(argument) = parser.next()? {
        return Err(argument.unexpected().into());
    }
    Ok(finish(tidy::run(&root()?)?))
}

fn run_measure(parser: &mut lexopt::Parser) -> Result<bool> {
    let mut tree = root()?;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("tree") => tree = parser.value()?.into(),
            other => return Err(other.unexpected().into()),
        }
    }
    measure::run(&tree)?;
    Ok(true)
}

fn run_transcripts(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut target, mut filter, mut update) = (None, None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => target = Some(Target::parse(&parser.value()?.string()?)?),
            Long("update") => update = true,
            Value(text) if filter.is_none() => filter = Some(text.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let target = target.context("--server redis|myriad|HOST:PORT is needed")?;
    let options = transcript::Options { target, filter, update };
    Ok(finish(transcript::run_all(&root()?, &options)?))
}

fn run_cql(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut peer, mut filter, mut update) = (None, None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => {
                let server = parser.value()?.string()?;
                peer = Some(match server.strip_prefix("cassandra=") {
                    Some(address) => cql::Peer::Cassandra(address.to_owned()),
                    None if server == "myriad" => cql::Peer::Myriad,
                    None => bail!("--server takes myriad or cassandra=HOST:PORT, not {server:?}"),
                });
            }
            Long("update") => update = true,
            Value(text) if filter.is_none() => filter = Some(text.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let peer = peer.context("--server myriad|cassandra=HOST:PORT is needed")?;
    Ok(finish(cql::run_all(&root()?, &cql::Options { peer, filter, update })?))
}

fn run_differential(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut against, mut seed, mut schemas, mut statements) = (None, any_seed(), 100, 100);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("against") => against = Some(parser.value()?.string()?),
            Long("seed") => seed = parser.value()?.parse()?,
            Long("schemas") => schemas = parser.value()?.parse()?,
            Long("statements") => statements = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let against = match against.context("--against HOST:PORT|itself is needed: a Cassandra")? {
        word if word == "itself" => differential::Against::Itself,
        address => differential::Against::Address(address),
    };
    let options = differential::Options { seed, schemas, statements, against };
    Ok(finish(differential::run(&root()?, &options)?))
}

fn run_redis_differential(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut against, mut myriad) = (Target::Redis, Target::Myriad);
    let (mut seed, mut commands) = (any_seed(), 1_000_000);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("against") => against = Target::parse(&parser.value()?.string()?)?,
            Long("server") => myriad = Target::parse(&parser.value()?.string()?)?,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("commands") => commands = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let options = redis_differential::Options { seed, commands, against, myriad };
    Ok(finish(redis_differential::run(&root()?, &options)?))
}

fn run_clients(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut target, mut only) = (None, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => target = Some(Target::parse(&parser.value()?.string()?)?),
            Long("only") => only.push(parser.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let target = target.context("--server redis|myriad|HOST:PORT is needed")?;
    Ok(finish(clients::run(&root()?, &target, &only)?))
}

fn run_crash(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut subject, mut rounds, mut seed) = (crash::Subject::Myriad, 20, any_seed());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => subject = crash::Subject::parse(&parser.value()?.string()?)?,
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let disaster = crash::Disaster::Kill;
    Ok(finish(crash::run(&root()?, &crash::Options { subject, disaster, rounds, seed })?))
}

fn run_linearizable(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut subject, mut reactors) = (crash::Subject::Myriad, 4);
    let (mut rounds, mut seed) = (100, any_seed());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => subject = crash::Subject::parse(&parser.value()?.string()?)?,
            Long("reactors") => reactors = parser.value()?.parse()?,
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let options = linearizable::Options { subject, reactors, rounds, seed };
    Ok(finish(linearizable::run(&root()?, &options)?))
}

fn run_powercut(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut subject, mut rounds, mut seed) = (crash::Subject::Myriad, 20, any_seed());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => subject = crash::Subject::parse(&parser.value()?.string()?)?,
            Long("cuts") => rounds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if subject == crash::Subject::Redis {
        bail!("--server takes myriad or forgetful here");
    }
    let disaster = crash::Disaster::PowerCut;
    let options = crash::Options { subject, disaster, rounds, seed };
    Ok(crash::run_power_cuts(&root()?, &options)?.is_none_or(finish))
}

fn run_hostile(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut target, mut seed, mut filter) = (Target::Myriad, any_seed(), None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("server") => target = Target::parse(&parser.value()?.string()?)?,
            Long("seed") => seed = parser.value()?.parse()?,
            Value(text) if filter.is_none() => filter = Some(text.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if target == Target::Redis {
        bail!("--server takes myriad or HOST:PORT here");
    }
    let selection = hostile::Selection::Named(filter.unwrap_or_default());
    let verdict = hostile::run(&root()?, &hostile::Options { target, seed, selection })?;
    println!("{verdict}");
    Ok(verdict.tally.failed == 0)
}

fn run_states(parser: &mut lexopt::Parser) -> Result<bool> {
    let (program, seed, only) = (None, any_seed(), None);
    let mut options = states::Options { program, seed, seconds: 60, round_seconds: 3, only };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("program") => options.program = Some(parser.value()?.into()),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("round-seconds") => options.round_seconds = parser.value()?.parse()?,
            Value(name) if options.only.is_none() => options.only = Some(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(finish(states::run(&root()?, &options)?))
}

fn run_chaos(parser: &mut lexopt::Parser) -> Result<bool> {
    let (mut subject, mut seconds, mut seed) = (None, 60, any_seed());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            Value(word) if subject.is_none() => {
                subject = Some(chaos::Subject::parse(&word.string()?)?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let subject = subject.context("chaos hub|replicas is needed")?;
    Ok(finish(chaos::run(&root()?, &chaos::Options { subject, seconds, seed })?))
}

fn run_lab_truth(parser: &mut lexopt::Parser) -> Result<bool> {
    let mut tries = lab_truth::TRIES_DEFAULT;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("tries") => tries = parser.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(finish(lab_truth::run(&root()?, tries)?))
}

/// The seed of a run for which none is given.
fn any_seed() -> u64 {
    rand::random::<u32>().into()
}

/// Prints the last line of a run.
fn finish(tally: Tally) -> bool {
    println!("{tally}");
    tally.failed == 0
}

/// The repository's root: above this crate.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run this by cargo xtask")?;
    let root = PathBuf::from(manifest);
    Ok(root.parent().context("xtask is not in a folder of the repository")?.to_owned())
}
