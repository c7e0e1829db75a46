//! What a reactor lends to one piece of its work.

use base::time::Now;
use store::Params;

use crate::engine::commit::Record;
use crate::engine::gate::Gate;
use crate::engine::shared::Shared;
use crate::engine::worker::Worker;

/// What a request, and a cycle of housekeeping, needs of the reactor that runs it.
#[derive(Debug)]
pub(crate) struct ReactorContext<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    /// Buffers of the log record. Empty between units of work.
    pub(crate) record: &'a mut Record,
    pub(crate) now: Now,
}

impl ReactorContext<'_> {
    /// The same for a part of the work.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> ReactorContext<'_> {
        ReactorContext {
            shared: self.shared,
            params: self.params,
            worker: self.worker,
            record: self.record,
            now: self.now,
        }
    }

    /// Whether a reply that waits for `gate` would wait forever.
    #[inline]
    pub(crate) fn is_lost(&self, gate: Gate) -> bool {
        self.worker.is_lost(self.shared, gate)
    }
}
