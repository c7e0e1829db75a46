//! Reactor state that one unit of its work borrows.

use base::time::Now;
use store::Params;

use crate::engine::commit::Record;
use crate::engine::gate::Gate;
use crate::engine::server_state::ServerState;
use crate::engine::worker::Worker;

/// Reactor state that a request or a background cycle uses while it runs.
#[derive(Debug)]
pub(crate) struct ReactorContext<'a> {
    pub(crate) shared: &'a ServerState,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    /// Buffers of the log record. Empty between units of work.
    pub(crate) record: &'a mut Record,
    pub(crate) now: Now,
}

impl ReactorContext<'_> {
    /// Reborrows the state for a part of the work.
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
