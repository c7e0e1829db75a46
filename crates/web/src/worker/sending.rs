//! Sends long files, one piece at a time: see [`LongFile`].

use std::sync::Arc;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Flow, Next, Output};

use super::client::{Client, Wait};
use super::disk::{Mail, Piece};
use super::server::{Server, Session};
use crate::content::long::LongFile;

/// A file being sent to a client.
///
/// Its request stays in the input until the last piece is queued, so the reactor calls again for
/// the next one, and does not read in the meantime.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(super) file: Arc<LongFile>,
    /// Start of the unsent part.
    pub(super) offset: u64,
    pub(super) end: u64,
    /// Length of the request in the input.
    pub(super) request_bytes: usize,
    /// The connection ends after the file.
    pub(super) closes: bool,
    /// The next piece has just been loaded into memory.
    pub(super) is_loaded: bool,
}

/// Too many clients wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskQueueFull;

impl Server {
    /// Queues the next piece, or has it loaded into memory first. `input_bytes` begins with the
    /// request.
    pub(super) fn send_piece(
        &mut self,
        id: ConnId,
        client: &mut Client,
        mut sending: Sending,
        now: MonoNs,
        input_bytes: usize,
        out: &mut Output,
    ) -> Result<Flow, DiskQueueFull> {
        let number = LongFile::piece_of(sending.offset);
        let piece_end = sending.file.end_of(number).min(sending.end);
        client.since = now;
        let is_loaded = std::mem::take(&mut sending.is_loaded);
        if !is_loaded && !sending.file.is_in_memory(number, now) {
            let has_next = piece_end < sending.end;
            let piece = Piece { file: Arc::clone(&sending.file), number, has_next };
            if !self.disk.ask_piece(piece, id) {
                return Err(DiskQueueFull);
            }
            client.wait = Wait::Disk;
            client.sending = Some(sending);
            return Ok(Flow { consumed: 0, next: Next::Pause });
        }
        let bytes = piece_end.saturating_sub(sending.offset);
        out.attach(Arc::clone(sending.file.fd()), sending.offset, bytes);
        if piece_end < sending.end {
            sending.offset = piece_end;
            client.wait = Wait::Turn;
            client.sending = Some(sending);
            return Ok(Flow { consumed: 0, next: Next::Again });
        }
        client.wait = Wait::Idle;
        let consumed = sending.request_bytes.min(input_bytes);
        let next = if sending.closes {
            Next::Close
        } else if consumed < input_bytes {
            Next::Again
        } else {
            // Nothing remains for another turn.
            Next::Read { needed: 0 }
        };
        Ok(Flow { consumed, next })
    }

    /// Handles the result of loading a piece.
    pub(super) fn take_piece(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        piece: &Piece,
        is_there: bool,
    ) {
        if is_there {
            piece.file.note_in_memory(piece.number, cx.now().mono);
        }
        for id in self.disk.waiting_for_piece(piece) {
            let Some((Session::Client(client), _)) = connections.get_mut(id) else { continue };
            if !is_there {
                // The response has begun, and cannot be completed.
                cx.reset(id);
                continue;
            }
            if let Some(sending) = &mut client.sending {
                sending.is_loaded = true;
            }
            cx.resume(id);
        }
    }
}
