//! Long walks of SELECT that share their reactor: piece by piece, with other requests in between.
//!
//! A statement that has looked at [`ROWS_PER_TURN`] rows puts what it has so far beside its request, and
//! goes on in the next turn of the reactor. Its response leaves when it is whole, by its stream, or as the
//! answer to the request of HTTP that it came with.

use std::collections::VecDeque;
use std::sync::Arc;

use cql::error::CqlError;
use cql::plan::prepared::PreparedStatement;
use wire::cql::{Compression, Header};

use super::engine::ClientState;
use super::execute::Paused;
use crate::http::Terms;
use reactor::ConnId;

/// Rows that a statement looks at before others are served: about a millisecond. Few in unit tests, so
/// that they need not fill big tables.
pub(crate) const ROWS_PER_TURN: usize = if cfg!(test) { 256 } else { 4096 };

/// Walks of one reactor that may wait; one more is refused.
const WAITING_MAX: usize = 1024;

/// Walks of one connection that may wait: no further request of it is read until half of them are over.
/// Who does not read holds so many, and leaves the rest of [`WAITING_MAX`] to others.
pub(crate) const OF_CONNECTION_MAX: u32 = 64;

const _: () = assert!((OF_CONNECTION_MAX as usize) < WAITING_MAX);

/// The same for the rows that they have gathered, and their requests; a single one may have more.
const GATHERED_BYTES_MAX: usize = 256 << 20;

/// A request whose statement goes on later.
#[derive(Debug)]
pub(crate) struct Walking {
    pub(crate) id: ConnId,
    pub(crate) header: Header,
    /// As it was sent.
    pub(crate) body: Vec<u8>,
    pub(crate) compression: Option<Compression>,
    pub(crate) client: ClientState,
    pub(crate) statement: Arc<PreparedStatement>,
    pub(crate) paused: Box<Paused>,
    /// Time spent on it so far.
    pub(crate) ns: u64,
    /// Of a request of HTTP: what holds for its answer.
    pub(crate) terms: Option<Terms>,
}

impl Walking {
    /// What it keeps while it waits.
    fn bytes(&self) -> usize {
        self.paused.bytes() + self.body.len()
    }
}

/// The walks of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Rows that the running statement may look at before it pauses; 0: it goes to its end.
    pub(crate) rows_max: usize,
    /// What the running statement has done before.
    pub(crate) begun: Option<Box<Paused>>,
    /// What the statement that has just run has done, if it is to go on.
    pub(crate) paused: Option<Box<Paused>>,
    /// That statement.
    pub(crate) statement: Option<Arc<PreparedStatement>>,
    waiting: VecDeque<Walking>,
    gathered_bytes: usize,
    /// How often a statement has paused.
    #[cfg(test)]
    pub(crate) pauses: usize,
}

impl Walks {
    /// Before a statement that may pause.
    pub(crate) fn begin(&mut self) {
        self.rows_max = ROWS_PER_TURN;
    }

    /// Whether one more may wait. One that may not does not go to its end instead: others would wait for it.
    pub(super) fn admit(&self, paused: &Paused) -> Result<(), CqlError> {
        let others = self.gathered_bytes;
        let is_long = others > 0 && others.saturating_add(paused.bytes()) > GATHERED_BYTES_MAX;
        if self.waiting.len() < WAITING_MAX && !is_long {
            return Ok(());
        }
        Err(CqlError::Overloaded(
            "Too many statements are paused, or have gathered too many rows: try again".to_owned(),
        ))
    }

    /// As if statements that wait had gathered this.
    #[cfg(test)]
    pub(super) fn pretend_gathered(&mut self, bytes: usize) {
        self.gathered_bytes = bytes;
    }

    /// Behind it: what it has done, if it is to go on.
    pub(crate) fn end(&mut self) -> Option<(Box<Paused>, Arc<PreparedStatement>)> {
        self.rows_max = 0;
        self.begun = None;
        Some((self.paused.take()?, self.statement.take()?))
    }

    pub(crate) fn push(&mut self, walking: Walking) {
        self.gathered_bytes += walking.bytes();
        #[cfg(test)]
        {
            self.pauses += 1;
        }
        self.waiting.push_back(walking);
    }

    /// The one that has waited the longest.
    pub(crate) fn pop(&mut self) -> Option<Walking> {
        let walking = self.waiting.pop_front()?;
        self.gathered_bytes -= walking.bytes();
        Some(walking)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
