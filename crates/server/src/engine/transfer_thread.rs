//! The thread that makes RDB files and replication streams for clients.

use std::sync::Arc;

use base::time::Now;
use reactor::ConnId;

use super::clock;
use super::gate::Gate;
use super::mail::{Mail, send_patiently};
use super::rdb_file::{Counts, Part, Scratch};
use super::replication::{Feed, GIVEN_UP};
use super::server_state::{ServerState, params};
use super::transfers::{Content, Taken};

/// Starts the thread.
pub(crate) fn start(shared: &Arc<ServerState>) -> std::io::Result<()> {
    let of_thread = Arc::clone(shared);
    shared.transfers.thread.start("transfers", move || {
        let mut scratch = Scratch::default();
        while of_thread.transfers.signal.wait() {
            serve(&of_thread, clock::now(), &mut scratch);
        }
    })
}

/// Ends a connection.
const LAST: Part = Part { bytes: Vec::new(), gate: Gate::OPEN, is_last: true };

/// Sends one part to each client that is ready for it.
pub(crate) fn serve(shared: &ServerState, now: Now, scratch: &mut Scratch) {
    let transfers = &shared.transfers;
    let keyspace = &shared.keyspace;
    let settings = shared.settings.load();
    let params = params(&settings, now.unix, keyspace.seed(), 0);
    let rules = settings.replica_rules();
    let ServerState { log, replication, write_clock, hub, .. } = shared;
    let (params, now) = (&params, now.mono);
    let disk = &*shared.snapshots.disk;
    let feed = Feed { keyspace, log, disk, replication, write_clock, hub, params, now, rules };
    for (id, reactor) in transfers.ready() {
        let Some(taken) = transfers.take(id) else { continue };
        let Taken { mut content, is_idle, is_ended } = taken;
        let part = match &mut *content {
            _ if is_ended => Some(LAST),
            Content::File(file) => {
                let position = || Gate::at(shared.log.next());
                let part = file.next_part(keyspace, params, &position, scratch);
                let part = part.map_err(|error| error.to_string());
                // After the part was made: its data may have been removed meanwhile.
                let is_given_up = replication.data_number() != file.data_number;
                let part = if is_given_up { Err(GIVEN_UP.to_owned()) } else { part };
                Some(part.unwrap_or_else(|error| {
                    tracing::warn!(client = id.0, error, "RDB file abandoned");
                    // The client is disconnected without the mark, so that it reports an error.
                    LAST
                }))
            }
            Content::Stream(feeder) => {
                let signal = Arc::clone(&transfers.signal);
                let wake = move || signal.raise();
                feeder.next_part(&feed, &mut scratch.block, is_idle, wake)
            }
        };
        let Some(Part { bytes, gate, is_last }) = part else {
            transfers.put_back(id, content, true);
            continue;
        };
        // Update the state before sending: the reactor may answer at once.
        if is_last {
            if let Content::File(file) = &*content
                && !bytes.is_empty()
            {
                note_complete(id, file.counts);
            }
            transfers.close(id);
        } else {
            transfers.put_back(id, content, false);
        }
        let mail = Mail::RdbPart { id, bytes, gate, is_last };
        send_patiently(&shared.links().mailboxes()[reactor], mail, &transfers.signal);
    }
}

fn note_complete(id: ConnId, Counts { keys, omitted }: Counts) {
    tracing::info!(client = id.0, keys, "RDB file made for a client");
    if omitted > 0 {
        tracing::warn!(client = id.0, keys = omitted, "keys were left out of an RDB file");
    }
}
