//! The state of a paused SELECT.

use cql::moment::Moment;
use store::Seconds;

use super::paging::PagingState;
use super::redis::Gathering;
use super::result::Progress;
use crate::engine::gate::Gate;

/// The progress of a paused SELECT.
#[derive(Debug)]
pub(crate) struct Paused {
    /// In a box: most SELECT statements are not paused, and pass its absence on.
    pub(super) done: Box<Done>,
    pub(super) when: When,
}

/// The part of the response produced so far.
#[derive(Debug)]
pub(super) struct Done {
    /// The last row that was examined.
    pub(super) at: PagingState,
    pub(super) progress: Progress,
    /// The Redis value that is being read.
    pub(super) gathering: Option<Gathering>,
    /// The log position that the response waits for.
    pub(super) gate: Gate,
}

/// The time at which the statement began. It stays the same until the end.
#[derive(Debug)]
pub(super) struct When {
    pub(super) moment: Moment,
    pub(super) now: Seconds,
}

impl Paused {
    /// Bytes of the rows collected so far.
    pub(crate) fn bytes(&self) -> usize {
        let gathering = self.done.gathering.as_ref();
        self.done.progress.bytes() + gathering.map_or(0, Gathering::bytes)
    }
}
