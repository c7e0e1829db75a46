//! `POST /pipeline`: commands that run over as many turns of their reactor as they need.
//!
//! A pipeline stops when it has run for as long as one connection may in a turn, when its answer is as long as
//! what a connection may leave unread, when the log has no room, and during CLIENT PAUSE. Its connection keeps
//! the commands that are left and resumes in a later turn. An answer that is complete after the first turn
//! has a length; the results of others follow in chunks, each as soon as its writes are durable.

use std::vec::IntoIter;

use wire::resp::{JsonStrings, OwnedArgs};

use super::command::refusal;
use super::exchange::{Answered, Exchange, JSON, Outcome, Postponed, ReplyForm, Terms};
use super::reply;

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
    strings: JsonStrings,
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
    pub(super) fn new(commands: Vec<OwnedArgs>, strings: JsonStrings) -> Pipeline {
        Pipeline {
            bytes: commands.iter().map(OwnedArgs::memory_bytes).sum(),
            commands: commands.into_iter(),
            strings,
            has_begun: false,
            stop: PipelineStop::Turn,
            terms: Terms::REFUSED,
            ns: 0,
        }
    }

    /// Runs commands to the end, or until the pipeline has to stop; then the outcome has it.
    pub(crate) fn run(mut self, exchange: &mut Exchange<'_>) -> Answered {
        let started = exchange.context.worker.stamp;
        let mut outcome = Outcome::new(200, JSON);
        outcome.is_continuation = self.has_begun;
        loop {
            let Some(args) = self.commands.as_slice().first() else {
                exchange.scratch.body.push(b']');
                return Ok(outcome);
            };
            let before = exchange.scratch.body.len();
            exchange.scratch.body.push(if self.has_begun { b',' } else { b'[' });
            let prepared = exchange.prepare(args);
            match refusal(prepared) {
                Some(text) => reply::write_error(&text, &mut exchange.scratch.body),
                None => match exchange.run(prepared, args, ReplyForm::Json(self.strings)) {
                    Ok(ran) => outcome.gate = outcome.gate.max(ran.gate),
                    Err(Postponed) if !self.has_begun => return Err(Postponed),
                    Err(Postponed) => {
                        exchange.scratch.body.truncate(before);
                        self.stop = PipelineStop::Pause;
                        break;
                    }
                },
            }
            self.has_begun = true;
            self.commands.next();
            if self.commands.len() == 0 {
                continue;
            }
            let pending_bytes = exchange.pending_bytes + exchange.scratch.body.len();
            if exchange.context.worker.must_yield(started, pending_bytes) {
                self.stop = PipelineStop::Turn;
                break;
            }
            if !exchange.context.shared.log.has_room(exchange.context.worker.index) {
                self.stop = PipelineStop::Room;
                break;
            }
        }
        outcome.pipeline = Some(Box::new(self));
        Ok(outcome)
    }
}
