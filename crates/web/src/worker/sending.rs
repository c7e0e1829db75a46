//! Sends long files, a piece at a time: see [`LongFile`].

use std::sync::Arc;

use base::time::MonoNs;
use reactor::{ConnId, Connections, Context, Flow, Next, Output};

use super::client::{Client, Wait};
use super::disk::{Mail, Piece};
use super::server::{Server, Session};
use crate::content::long::LongFile;

/// A file on its way to a client.
///
/// Its request stays in the input until the last piece is handed over: so the reactor comes back for the
/// next one, and reads nothing meanwhile.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(super) file: Arc<LongFile>,
    /// What is left.
    pub(super) offset: u64,
    pub(super) end: u64,
    /// How much of the input the request is.
    pub(super) request_bytes: usize,
    /// The connection ends with it.
    pub(super) closes: bool,
    /// The next piece has just been brought into memory.
    pub(super) is_brought: bool,
}

/// Too many wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Crowded;

impl Server {
    /// Hands the next piece over, or has it brought into memory first. `input_bytes` begin with the
    /// request.
    pub(super) fn send_piece(
        &mut self,
        id: ConnId,
        client: &mut Client,
        mut sending: Sending,
        now: MonoNs,
        input_bytes: usize,
        out: &mut Output,
    ) -> Result<Flow, Crowded> {
        let number = LongFile::piece_of(sending.offset);
        let piece_end = sending.file.end_of(number).min(sending.end);
        client.since = now;
        let is_brought = std::mem::take(&mut sending.is_brought);
        if !is_brought && !sending.file.is_in_memory(number, now) {
            let goes_on = piece_end < sending.end;
            let piece = Piece { file: Arc::clone(&sending.file), number, goes_on };
            if !self.disk.ask_piece(piece, id) {
                return Err(Crowded);
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
            // Nothing is left for another turn.
            Next::Read { needed: 0 }
        };
        Ok(Flow { consumed, next })
    }

    /// Somebody who may wait has brought a piece into memory, or could not.
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
                // Its answer has begun, and will never be whole.
                cx.reset(id);
                continue;
            }
            if let Some(sending) = &mut client.sending {
                sending.is_brought = true;
            }
            cx.resume(id);
        }
    }
}
