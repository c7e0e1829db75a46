//! `POST /pipeline`: commands that may take several turns of their reactor.
//!
//! A pipeline stops when it has used its connection's share of the turn, when its unsent response
//! reaches the limit of unread output, when the log has no free space, and during CLIENT PAUSE. The
//! connection keeps the remaining commands and resumes in a later turn. A response that is complete
//! after the first turn has a Content-Length; otherwise results are sent in chunks, each as soon as
//! its writes are durable.

use std::vec::IntoIter;

use wire::resp::{JsonStrings, OwnedArgs};

use super::command::refusal;
use super::exchange::{Answered, Exchange, JSON, ReplyForm, Response, ResponseOptions};
use super::reply;
use crate::commands::execute::Deferred;

/// Reason why commands of a pipeline remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipelineStop {
    /// The share of the turn is used up, or too many of its messages are in flight.
    Turn,
    /// The next command is deferred.
    Deferred(Deferred),
}

/// The remaining commands of a pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    commands: IntoIter<OwnedArgs>,
    strings: JsonStrings,
    db: u8,
    /// Memory of all commands.
    pub(crate) bytes: usize,
    /// Whether a command has run, so that the response has begun.
    has_begun: bool,
    /// Set when the pipeline stops.
    pub(crate) stop: PipelineStop,
    /// How the response is sent; set when the pipeline stops.
    pub(crate) options: ResponseOptions,
    /// Time spent so far.
    pub(crate) ns: u64,
}

impl Pipeline {
    pub(super) fn new(commands: Vec<OwnedArgs>, strings: JsonStrings, db: u8) -> Pipeline {
        Pipeline {
            bytes: commands.iter().map(OwnedArgs::memory_bytes).sum(),
            commands: commands.into_iter(),
            strings,
            db,
            has_begun: false,
            stop: PipelineStop::Turn,
            options: ResponseOptions::REFUSED,
            ns: 0,
        }
    }

    /// Runs commands until the end or until the pipeline must stop. In the second case the response
    /// holds the pipeline.
    pub(crate) fn run(mut self, exchange: &mut Exchange<'_>) -> Answered {
        let started = exchange.context.reactor.stamp;
        exchange.client.db = self.db;
        let mut response = Response::new(200, JSON);
        response.is_continuation = self.has_begun;
        loop {
            let Some(args) = self.commands.as_slice().first() else {
                exchange.scratch.body.push(b']');
                return Ok(response);
            };
            let before = exchange.scratch.body.len();
            exchange.scratch.body.push(if self.has_begun { b',' } else { b'[' });
            let prepared = exchange.prepare(args);
            match refusal(prepared) {
                Some(text) => reply::write_error(&text, &mut exchange.scratch.body),
                None => match exchange.run(prepared, args, ReplyForm::Json(self.strings)) {
                    Ok(ran) => response.gate = response.gate.max(ran.gate),
                    Err(deferred) if !self.has_begun => return Err(deferred),
                    Err(deferred) => {
                        exchange.scratch.body.truncate(before);
                        self.stop = PipelineStop::Deferred(deferred);
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
            if exchange.context.reactor.must_yield(started, pending_bytes) {
                self.stop = PipelineStop::Turn;
                break;
            }
            exchange.context.reactor.check_room(exchange.context.shared);
        }
        response.pipeline = Some(Box::new(self));
        Ok(response)
    }
}
