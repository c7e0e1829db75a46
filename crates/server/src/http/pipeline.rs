//! `POST /pipeline`: commands that run over as many turns of their reactor as they need.
//!
//! A pipeline stops when it has run for as long as one connection may in a turn, when its answer is as long as
//! what a connection may leave unread, when the log has no room, and during CLIENT PAUSE. Its connection keeps
//! the commands that are left and resumes in a later turn. An answer that is complete after the first turn
//! has a length; the results of others follow in chunks, each as soon as its writes are durable.

use std::vec::IntoIter;

use wire::resp::OwnedArgs;

use super::command::refusal;
use super::exchange::{Answered, Exchange, JSON, Outcome, Postponed, Terms};
use super::reply::{self, Encoding};

/// Why commands of a pipeline are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipelineStop {
    /// Its share of the turn is used up, or too many of its messages are on their way.
    Turn,
    /// The log has no room.
    Room,
    /// CLIENT PAUSE.
    Pause,
}

/// Commands that are still to be run.
#[derive(Debug)]
pub(crate) struct Pipeline {
    commands: IntoIter<OwnedArgs>,
    encoding: Encoding,
    /// Memory of all its commands.
    pub(crate) bytes: usize,
    /// Whether a command was run, and so an answer begun.
    has_begun: bool,
    /// Set when it has stopped.
    pub(crate) stop: PipelineStop,
    /// How its answer is sent; set when it has stopped.
    pub(crate) terms: Terms,
    /// Time spent on it so far.
    pub(crate) ns: u64,
}

impl Pipeline {
    pub(super) fn new(commands: Vec<OwnedArgs>, encoding: Encoding) -> Pipeline {
        Pipeline {
            bytes: commands.iter().map(OwnedArgs::memory_bytes).sum(),
            commands: commands.into_iter(),
            encoding,
            has_begun: false,
            stop: PipelineStop::Turn,
            terms: Terms::REFUSED,
            ns: 0,
        }
    }

    /// Runs commands to the end, or until the pipeline has to stop; then the outcome has it.
    pub(crate) fn run(mut self, exchange: &mut Exchange<'_>) -> Answered {
        let started = exchange.worker.stamp;
        let pause_bytes = exchange.worker.settings.output_pause_bytes;
        let mut outcome = Outcome::new(200, JSON);
        outcome.is_continuation = self.has_begun;
        loop {
            let Some(args) = self.commands.as_slice().first() else {
                exchange.scratch.body.push(b']');
                return Ok(outcome);
            };
            exchange.scratch.replies.clear();
            let ran = match refusal(args.as_args()) {
                Some(text) => Err(text),
                None => match exchange.run(args) {
                    Err(Postponed) if !self.has_begun => return Err(Postponed),
                    Err(Postponed) => {
                        self.stop = PipelineStop::Pause;
                        break;
                    }
                    Ok(gate) => Ok(gate),
                },
            };
            let scratch = &mut *exchange.scratch;
            scratch.body.push(if self.has_begun { b',' } else { b'[' });
            self.has_begun = true;
            match ran {
                Err(text) => reply::write_error(&text, &mut scratch.body),
                Ok(gate) => {
                    outcome.gate = outcome.gate.max(gate);
                    reply::write_result(&scratch.replies, self.encoding, &mut scratch.body);
                }
            }
            self.commands.next();
            if self.commands.len() == 0 {
                continue;
            }
            if exchange.worker.has_served_its_share(started)
                || exchange.scratch.body.len() as u64 > pause_bytes
                || exchange.worker.backlog.is_some()
            {
                self.stop = PipelineStop::Turn;
                break;
            }
            if !exchange.shared.log.has_room(exchange.worker.index) {
                self.stop = PipelineStop::Room;
                break;
            }
        }
        outcome.pipeline = Some(Box::new(self));
        Ok(outcome)
    }
}
