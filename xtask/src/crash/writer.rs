//! A client that writes: it sends steps in pipelines until the server has ended, compares every
//! reply with its model, and then determines the valid states after a restart.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::Bytes;
use super::generate::{Generator, Habits, SHARED_COUNTERS};
use super::model::{Expected, Model};
use super::op::{Step, counter_key};
use super::verify::{self, number_of};
use crate::resp::{Connection, Value};

/// Steps sent before their replies are read.
const DEPTH_MAX: usize = 48;
/// Maximum number of steps of a round that may be lost: all of them are tried one by one
/// afterwards. A client that has sent that many waits for the end.
const UNDECIDED_STEPS_MAX: usize = 10_000;
/// Pause between pipelines of a client whose replies do not wait for the log, so that it leaves the
/// processors to the others and still writes when the server ends.
const RELAXED_PAUSE: Duration = Duration::from_millis(1);

/// What ends a client's work.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection broke: expected while the server is being stopped, wrong at other times.
    Transport(anyhow::Error),
    /// The server sent a wrong answer.
    Wrong(String),
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        Self::Transport(error)
    }
}

/// Judges the end of a client: an error unless the server's end caused it.
pub(crate) fn judge_end(name: &str, fault: Fault, stopping: &AtomicBool) -> Result<(), String> {
    match fault {
        Fault::Transport(_) if stopping.load(Ordering::SeqCst) => Ok(()),
        Fault::Transport(error) => Err(format!("{name}: connection lost under load: {error:#}")),
        Fault::Wrong(what) => Err(format!("{name}: {what}")),
    }
}

/// One client's increments of one shared counter since the last restart.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Increments {
    pub(crate) sent: i64,
    pub(crate) acknowledged: i64,
    /// The highest value that an increment returned.
    pub(crate) highest: i64,
}

/// A client with its keys.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) name: String,
    /// All its keys begin with this.
    pub(crate) prefix: String,
    /// The database of its keys.
    pub(crate) database: usize,
    /// `CLIENT DURABILITY` of its connection; `None`: the server's setting, `always`.
    pub(crate) durability: Option<&'static str>,
    generator: Generator,
    /// State after every acknowledged step.
    model: Model,
    /// State at the last restart, and the steps acknowledged since: kept if they may be lost.
    base: Model,
    history: Vec<Step>,
    /// Sent steps without a reply.
    unacknowledged: VecDeque<Step>,
    pub(crate) increments: [Increments; SHARED_COUNTERS],
    /// Steps acknowledged in this round.
    pub(crate) acknowledged: u64,
}

impl Writer {
    pub(crate) fn new(habits: Habits, database: usize, durability: Option<&'static str>) -> Self {
        Self {
            name: format!("client {}", habits.prefix.trim_end_matches(':')),
            prefix: habits.prefix.clone(),
            database,
            durability,
            generator: Generator::new(habits),
            model: Model::default(),
            base: Model::default(),
            history: Vec::new(),
            unacknowledged: VecDeque::new(),
            increments: [Increments::default(); SHARED_COUNTERS],
            acknowledged: 0,
        }
    }

    /// Writes until the connection breaks. An error is a violation by the server.
    pub(crate) fn run(
        &mut self,
        address: &str,
        seed: u64,
        stopping: &AtomicBool,
    ) -> Result<(), String> {
        self.generator.reseed(seed);
        match self.write(address) {
            Ok(never) => match never {},
            Err(fault) => judge_end(&self.name, fault, stopping),
        }
    }

    fn write(&mut self, address: &str) -> Result<std::convert::Infallible, Fault> {
        let mut connection = Connection::open(address)?;
        expect_ok(&mut connection, &["SELECT", &self.database.to_string()])?;
        if let Some(durability) = self.durability {
            expect_ok(&mut connection, &["CLIENT", "DURABILITY", durability])?;
        }
        let mut requests = Vec::new();
        loop {
            let depth = self.generator.depth(DEPTH_MAX);
            if self.history.len() + depth > UNDECIDED_STEPS_MAX {
                let reply = connection.read()?;
                return Err(Fault::Wrong(format!("a reply to no request: {reply:?}")));
            }
            requests.clear();
            for _ in 0..depth {
                let step = self.generator.step();
                if let Step::Share(counter) = step {
                    self.increments[counter].sent += 1;
                }
                step.encode(&mut requests);
                self.unacknowledged.push_back(step);
            }
            connection.send_raw(&requests)?;
            while !self.unacknowledged.is_empty() {
                self.read_reply(&mut connection)?;
            }
            if self.durability.is_some() {
                thread::sleep(RELAXED_PAUSE);
            }
        }
    }

    /// Reads the answer to the oldest unacknowledged step.
    fn read_reply(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        let Some(step) = self.unacknowledged.front() else { return Ok(()) };
        if let Step::Transaction(ops) = step {
            let queued = Value::Simple(b"QUEUED".to_vec());
            let ok = Value::Simple(b"OK".to_vec());
            for expected in std::iter::once(&ok).chain(std::iter::repeat_n(&queued, ops.len())) {
                let reply = connection.read()?;
                if reply != *expected {
                    return Err(Fault::Wrong(format!("{step:?} got {reply:?}")));
                }
            }
        }
        let reply = connection.read()?;
        // From here on the step is acknowledged, even if the reply is wrong.
        let Some(step) = self.unacknowledged.pop_front() else { return Ok(()) };
        self.acknowledged += 1;
        match (&step, self.model.take(&step)) {
            (_, Some(expected)) => check_reply(&step, &expected, &reply)?,
            (Step::Share(counter), None) => self.note_increment(*counter, &reply)?,
            (_, None) => {}
        }
        if self.durability.is_some() {
            self.history.push(step);
        }
        Ok(())
    }

    fn note_increment(&mut self, counter: usize, reply: &Value) -> Result<(), Fault> {
        let increments = &mut self.increments[counter];
        let value = number_of(reply).map_err(Fault::Wrong)?;
        if value <= increments.highest {
            let highest = increments.highest;
            return Err(Fault::Wrong(format!("INCR gives {value} after {highest}")));
        }
        increments.highest = value;
        increments.acknowledged += 1;
        Ok(())
    }

    /// Whether acknowledged steps must not be lost.
    pub(crate) fn is_durable(&self, lossless: bool) -> bool {
        lossless || self.durability.is_none()
    }

    /// The number of steps that the next restart may include or not.
    pub(crate) fn undecided(&self, lossless: bool) -> usize {
        let lost = if self.is_durable(lossless) { 0 } else { self.history.len() };
        lost + self.unacknowledged.len()
    }

    /// Compares the keys found after a restart with the valid states, and continues from them.
    /// `lossless`: the server was stopped by SIGTERM, so that no acknowledged step may be missing.
    /// Returns the number of undecided steps in the state.
    pub(crate) fn settle(&mut self, found: &Model, lossless: bool) -> Result<usize, String> {
        let settled = if self.is_durable(lossless) {
            verify::settle(&self.model, self.unacknowledged.iter(), found)
        } else {
            let steps = self.history.iter().chain(&self.unacknowledged);
            verify::settle(&self.base, steps, found)
        };
        let steps = settled.map_err(|what| format!("{}: {what}", self.name))?;
        self.model.clone_from(found);
        self.history.clear();
        self.unacknowledged.clear();
        self.acknowledged = 0;
        if self.durability.is_some() {
            self.base.clone_from(found);
        }
        Ok(steps)
    }

    /// Continues from the values of the shared counters after the restart.
    pub(crate) fn settle_counters(&mut self, found: &[i64; SHARED_COUNTERS]) {
        for (increments, value) in self.increments.iter_mut().zip(found) {
            *increments = Increments { sent: 0, acknowledged: 0, highest: *value };
        }
    }

    /// The keys of the shared counters.
    pub(crate) fn counter_keys() -> [Bytes; SHARED_COUNTERS] {
        std::array::from_fn(counter_key)
    }
}

fn check_reply(step: &Step, expected: &Expected, reply: &Value) -> Result<(), Fault> {
    if expected.matches(reply) {
        return Ok(());
    }
    Err(Fault::Wrong(format!("{step:?}\n  expected {expected:?}\n  found    {reply:?}")))
}

fn expect_ok(connection: &mut Connection, args: &[&str]) -> Result<(), Fault> {
    match connection.call(args)? {
        Value::Simple(text) if text == b"OK" => Ok(()),
        other => Err(Fault::Wrong(format!("{} is answered {other:?}", args.join(" ")))),
    }
}
