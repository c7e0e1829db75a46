//! Memory that the reply of a reactor's running request has reserved.

use std::cell::Cell;
use std::sync::Arc;

use base::memory::Tracker;
use wire::resp::{ReplyMemory, ReplyRoom, SMALL_REPLY_BYTES};

use crate::config::MemoryTrackers;
use crate::protocol::ClientProtocol;

/// Copies of a reply that exist while its buffer grows.
const REPLY_COPIES: u64 = 2;

/// Copies of an HTTP response that exist while it is built: the command's reply, the content, the
/// output.
pub(crate) const ANSWER_COPIES: u64 = 3;

/// Reserves in the tracker of unread replies, so that the replies that several reactors build at
/// the same time share what `memory-limit` leaves.
#[derive(Debug)]
struct ReplyReservation {
    tracker: Arc<Tracker>,
    copies: u64,
    reserved_bytes: Cell<u64>,
}

/// Returns the permission for large replies of one reactor and protocol.
pub(crate) fn reply_room(memory: &MemoryTrackers, protocol: ClientProtocol) -> ReplyRoom {
    ReplyRoom::new(Box::new(ReplyReservation {
        tracker: Arc::clone(memory.output.of(protocol)),
        copies: if protocol == ClientProtocol::Http { ANSWER_COPIES } else { REPLY_COPIES },
        reserved_bytes: Cell::new(0),
    }))
}

impl ReplyMemory for ReplyReservation {
    fn reserve(&self, bytes: usize) -> Result<(), String> {
        let bytes = (bytes as u64).saturating_mul(self.copies);
        self.tracker.try_consume(bytes).map_err(|reached| reached.to_string())?;
        self.reserved_bytes.set(self.reserved_bytes.get() + bytes);
        Ok(())
    }

    fn release(&self) {
        self.tracker.release(self.reserved_bytes.take());
    }
}

impl Drop for ReplyReservation {
    fn drop(&mut self) {
        self.release();
    }
}

/// The charge of a finished reply until its connection takes it over. Ends when dropped.
#[derive(Debug)]
pub(crate) struct UnsentReply {
    tracker: Arc<Tracker>,
    bytes: u64,
}

impl UnsentReply {
    /// `None`: the reply is small.
    pub(crate) fn new(memory: &MemoryTrackers, bytes: usize) -> Option<UnsentReply> {
        if bytes <= SMALL_REPLY_BYTES {
            return None;
        }
        let tracker = Arc::clone(memory.output.of(ClientProtocol::Resp));
        tracker.consume(bytes as u64);
        Some(UnsentReply { tracker, bytes: bytes as u64 })
    }
}

impl Drop for UnsentReply {
    fn drop(&mut self) {
        self.tracker.release(self.bytes);
    }
}
