//! The thread that makes RDB files for clients.

use std::sync::Arc;
use std::time::Duration;

use base::time::UnixMs;
use reactor::ConnId;

use super::clock;
use super::gate::Gate;
use super::mail::Mail;
use super::rdb_file::{Counts, Part, Scratch};
use super::server_state::{ServerState, params};

/// Retry interval when a reactor's mailbox is full.
const MAILBOX_REST: Duration = Duration::from_millis(1);

/// Starts the thread.
pub(crate) fn start(shared: &Arc<ServerState>) -> std::io::Result<()> {
    let of_thread = Arc::clone(shared);
    let run = move || {
        let mut scratch = Scratch::default();
        while of_thread.rdb_transfers.signal.wait() {
            serve(&of_thread, clock::unix_now(), &mut scratch);
        }
    };
    let thread = std::thread::Builder::new().name("rdb".to_owned()).spawn(run)?;
    shared.rdb_transfers.set_thread(thread);
    Ok(())
}

/// Sends one part to each client that is ready for it.
pub(crate) fn serve(shared: &ServerState, now: UnixMs, scratch: &mut Scratch) {
    let transfers = &shared.rdb_transfers;
    let keyspace = &shared.keyspace;
    let params = params(&shared.settings.load(), now, keyspace.seed(), 0);
    for (id, reactor) in transfers.ready() {
        let Some(mut file) = transfers.take(id) else { continue };
        let position = || Gate::at(shared.log.next());
        let part = match file.next_part(keyspace, &params, &position, scratch) {
            Ok(part) => {
                if part.is_last {
                    note_complete(id, file.counts);
                }
                part
            }
            Err(error) => {
                tracing::warn!(client = id.0, %error, "RDB file abandoned");
                // The client is disconnected without the mark, so that it reports an error.
                Part { bytes: Vec::new(), gate: Gate::OPEN, is_last: true }
            }
        };
        let Part { bytes, gate, is_last } = part;
        // Update the state before sending: the reactor may answer at once.
        if is_last {
            transfers.close(id);
        } else {
            transfers.put_back(id, file);
        }
        send(shared, reactor, Mail::RdbPart { id, bytes: bytes.into(), gate, is_last });
    }
}

fn note_complete(id: ConnId, Counts { keys, omitted }: Counts) {
    tracing::info!(client = id.0, keys, "RDB file made for a client");
    if omitted > 0 {
        tracing::warn!(client = id.0, keys = omitted, "keys were left out of an RDB file");
    }
}

/// Sends mail, and retries while the mailbox of the reactor is full: this thread has no other work.
fn send(shared: &ServerState, reactor: usize, mut mail: Mail) {
    while let Err(undelivered) = shared.links().mailboxes()[reactor].send(mail) {
        if shared.rdb_transfers.signal.is_over() {
            return;
        }
        mail = undelivered.0;
        std::thread::sleep(MAILBOX_REST);
    }
}
