//! `cargo xtask chaos`: servers in network namespaces, whose links are cut and slowed, whose clocks
//! are seconds apart, and which are killed and stopped, while clients write by RESP and by CQL.
//! Afterwards all servers must have the same data, and every write that was acknowledged.
//!
//! Needs root, and `ip` of iproute2. Each server has two links: by one it reaches the other servers,
//! by the other one clients reach it, so that a server that is cut off still takes writes.

mod client;
mod clock;
mod compare;
mod cql_client;
mod hub;
mod ledger;
mod network;
mod operator;
mod replicas;
mod resp_client;
mod server;
mod writer;

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use anyhow::{Result, bail};

use crate::tally::Tally;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Three masters and their hub.
    Hub,
    /// A master and two replicas, which take over from it.
    Replicas,
}

impl Subject {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "hub" => Ok(Self::Hub),
            "replicas" => Ok(Self::Replicas),
            other => bail!("chaos takes hub or replicas, not {other:?}"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) subject: Subject,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<Tally> {
    println!("chaos: {:?}, {} seconds, seed {}", options.subject, options.seconds, options.seed);
    let run = || match options.subject {
        Subject::Hub => hub::run(root, options),
        Subject::Replicas => replicas::run(root, options),
    };
    // The thread enters a network namespace, which it cannot leave.
    thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    })
}

/// Why the test cannot run here. `None`: it can.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !clock::is_possible() {
        return Some("clocks can be set on x86-64 only");
    }
    (!network::is_possible()).then_some("network namespaces need root, and ip of iproute2")
}

/// Counts checks, and prints what failed.
#[derive(Debug, Default)]
struct Findings(Tally);

impl Findings {
    fn expect(&mut self, is_right: bool, what: impl FnOnce() -> String) {
        if is_right {
            self.0.passed += 1;
        } else {
            self.0.failed += 1;
            println!("chaos: {}", what());
        }
    }

    /// Each of the texts is a failure; none is a check that has passed.
    fn expect_none(&mut self, faults: &[String]) {
        self.expect(faults.is_empty(), || faults.join("\nchaos: "));
    }
}
