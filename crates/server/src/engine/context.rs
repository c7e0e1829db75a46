//! Reactor state that one unit of its work borrows.

use base::time::Now;
use reactor::ConnId;
use store::Params;
use wire::resp::ReplyRoom;

use crate::engine::commit::Record;
use crate::engine::gate::Gate;
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::ServerState;

/// Reactor state that a request or a background cycle uses while it runs.
#[derive(Debug)]
pub(crate) struct ReactorContext<'a> {
    pub(crate) shared: &'a ServerState,
    pub(crate) params: &'a Params,
    pub(crate) reactor: &'a mut ReactorState,
    /// Buffers of the log record. Empty between units of work.
    pub(crate) record: &'a mut Record,
    pub(crate) now: Now,
    /// Permission for large replies.
    pub(crate) replies: Option<&'a ReplyRoom>,
}

impl ReactorContext<'_> {
    /// Reborrows the state for a part of the work.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> ReactorContext<'_> {
        ReactorContext {
            shared: self.shared,
            params: self.params,
            reactor: self.reactor,
            record: self.record,
            now: self.now,
            replies: self.replies,
        }
    }

    /// Queues the invalidations of changed keys for the clients that track them, but none for
    /// `except`.
    #[inline]
    pub(crate) fn send_invalidations(&mut self, except: Option<ConnId>) {
        if self.record.has_news() {
            self.record.send_invalidations(self.shared, except);
        }
    }

    /// Whether a reply that waits for `gate` would wait forever.
    #[inline]
    pub(crate) fn is_lost(&self, gate: Gate) -> bool {
        self.reactor.is_lost(self.shared, gate)
    }
}
