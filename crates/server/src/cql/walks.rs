//! Long walks of SELECT that share their reactor: piece by piece, with other requests in between.
//!
//! A statement that has looked at [`ROWS_PER_TURN`] rows puts what it has so far beside its request, and
//! goes on in the next turn of the reactor. Its response leaves when it is whole, by its stream, or as the
//! answer to the request of HTTP that it came with.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::cql::{Compression, Header};

use super::engine::{ClientState, PreparedStatement};
use super::execute::Paused;
use crate::http::Terms;
use crate::resp::session::ConnId;

/// Rows that a statement looks at before others are served: about a millisecond. Few in unit tests, so
/// that they need not fill big tables.
pub(crate) const ROWS_PER_TURN: usize = if cfg!(test) { 256 } else { 4096 };

/// Walks of one reactor that may wait; when there are more, the next one goes to its end at once.
const WAITING_MAX: usize = 1024;

/// Walks of one connection that may wait: no further request of it is read until half of them are over.
/// Who does not read holds so many, and leaves the rest of [`WAITING_MAX`] to others.
pub(crate) const OF_CONNECTION_MAX: u32 = 64;

const _: () = assert!((OF_CONNECTION_MAX as usize) < WAITING_MAX);

/// The same for the rows that they have gathered, and their requests.
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
}

impl Walks {
    /// Before a statement that may pause.
    pub(crate) fn begin(&mut self) {
        let is_full =
            self.waiting.len() >= WAITING_MAX || self.gathered_bytes >= GATHERED_BYTES_MAX;
        self.rows_max = if is_full { 0 } else { ROWS_PER_TURN };
    }

    /// Behind it: what it has done, if it is to go on.
    pub(crate) fn end(&mut self) -> Option<(Box<Paused>, Arc<PreparedStatement>)> {
        self.rows_max = 0;
        self.begun = None;
        Some((self.paused.take()?, self.statement.take()?))
    }

    pub(crate) fn push(&mut self, walking: Walking) {
        self.gathered_bytes += walking.bytes();
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
