//! A SELECT between two of its pieces.

use cql::moment::Moment;
use store::Seconds;

use super::paging::PagingState;
use super::redis::Gathering;
use super::result::Progress;
use crate::engine::gate::Gate;

/// All that a SELECT has done so far.
#[derive(Debug)]
pub(crate) struct Paused {
    pub(super) done: Done,
    pub(super) when: When,
}

/// What there is of its response.
#[derive(Debug)]
pub(super) struct Done {
    /// The last row that was looked at.
    pub(super) at: PagingState,
    pub(super) progress: Progress,
    /// The value of the Redis protocol that it is in.
    pub(super) gathering: Option<Gathering>,
    /// The log position that it waits for.
    pub(super) gate: Gate,
}

/// The time that a statement began with is its time to the end.
#[derive(Debug)]
pub(super) struct When {
    pub(super) moment: Moment,
    pub(super) now: Seconds,
}

impl Paused {
    /// What was gathered.
    pub(crate) fn bytes(&self) -> usize {
        let gathering = self.done.gathering.as_ref();
        self.done.progress.bytes() + gathering.map_or(0, Gathering::bytes)
    }
}
