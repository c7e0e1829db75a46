//! The common beginning and end of a check: a server, and clients that must be served throughout.

use anyhow::{Context, Result};

use super::Outcome;
use super::bystander::{Bystander, Habit};
use super::subject::Subject;

/// Rounds of a bystander that prove that it is served.
const ROUNDS: u64 = 200;

/// A server under attack, and clients that must be served.
pub(super) struct Stage {
    pub(super) subject: Subject,
    /// The address under attack.
    pub(super) address: String,
    pub(super) bystanders: Vec<Bystander>,
    /// Rounds of each bystander that prove that it is served.
    pub(super) rounds: u64,
    /// Resident memory before the attack.
    pub(super) before_bytes: u64,
}

impl Stage {
    /// A stage with one bystander, a client of the Redis protocol.
    pub(super) fn resp(subject: Subject, habit: Habit) -> Result<Stage> {
        let bystanders = vec![Bystander::start(&subject.address, habit)?];
        let (address, before_bytes) = (subject.address.clone(), subject.resident_bytes()?);
        Ok(Stage { subject, address, bystanders, rounds: ROUNDS, before_bytes })
    }

    /// Rounds that the bystanders have completed.
    pub(super) fn completed(&self) -> u64 {
        self.bystanders.iter().map(Bystander::completed).sum()
    }

    /// Waits until each bystander has completed this many more rounds.
    pub(super) fn others_complete(&self, rounds: u64) -> Result<()> {
        self.bystanders.iter().try_for_each(|it| it.completes(rounds))
    }

    /// Checks that the others are served.
    pub(super) fn others_are_served(&self) -> Result<()> {
        self.others_complete(self.rounds)
    }

    /// Checks that the others were served, that memory use is back to normal, and that the server
    /// ends cleanly.
    pub(super) fn clear(self) -> Result<Outcome> {
        self.others_are_served()?;
        let others = self.bystanders.len() as u64;
        self.subject.until_connections(others).context("connections stay")?;
        self.subject.until_flat(self.before_bytes)?;
        self.stop()
    }

    /// Like [`Stage::clear`], for attacks after which connections or data remain.
    pub(super) fn end(self) -> Result<Outcome> {
        self.others_are_served()?;
        self.stop()
    }

    fn stop(self) -> Result<Outcome> {
        for bystander in self.bystanders {
            bystander.stop()?;
        }
        self.subject.stop()?;
        Ok(Outcome::Passed)
    }
}
