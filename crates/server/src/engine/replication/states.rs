//! What a peer of a group of masters is sent: the present value and version of each key that the
//! records of the log changed, and the changed rows of tables as they are in the log.
//!
//! A value is read when it is sent: several changes of one key in a batch are sent once, and a
//! value that another server has replaced meanwhile is not sent by its first author.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use binlog::Batch;
use store::{Change, Key, Mutation, SnapshotBlock, Version};
use wire::replication::{FRAME_BYTES, Kind, put_frame};

use super::feeder::{Feed, FeedError};
use crate::engine::gate::Gate;
use crate::engine::local_tables::is_local;
use crate::engine::records;

/// Changes that are still to be sent, all of one batch.
#[derive(Debug, Default)]
pub(super) struct States {
    /// Rows and emptied databases, as mutations.
    whole: Vec<u8>,
    keys: VecDeque<(u8, Vec<u8>)>,
}

fn malformed<E>(_: E) -> FeedError {
    FeedError::Malformed
}

impl States {
    /// The changes of a batch that a peer is sent.
    pub(super) fn of_batch(feed: &Feed<'_>, peer: u16, batch: &Batch) -> Result<States, FeedError> {
        let mut whole = Vec::new();
        let mut keys = BTreeSet::new();
        for record in batch.records() {
            let contents = records::contents(&record).ok_or(FeedError::Kind(record.kind))?;
            let (mut input, mut rows, mut author) = (contents.mutations, Vec::new(), None);
            while !input.is_empty() {
                let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
                match mutation {
                    Mutation::Version { db, key, version } if version != Version::NONE => {
                        keys.insert((db, key.bytes.to_vec()));
                    }
                    Mutation::Partition { key, .. } if !is_local(key.table) => {
                        mutation.encode(&mut rows);
                    }
                    Mutation::Truncate { .. } => mutation.encode(&mut rows),
                    Mutation::Floor { version, .. } if feed.hub.sends(peer, version.server) => {
                        mutation.encode(&mut whole);
                    }
                    Mutation::Origin { server } => author = Some(server),
                    _ => {}
                }
            }
            let server = author.unwrap_or(feed.hub.server);
            if !rows.is_empty() && feed.hub.sends(peer, server) {
                whole.append(&mut rows);
                Mutation::Origin { server }.encode(&mut whole);
            }
        }
        Ok(States { whole, keys: keys.into_iter().collect() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.keys.is_empty()
    }

    /// Appends a frame with the next changes; its end is `end` if they are the last ones. Returns
    /// the end, and the gate of the values.
    pub(super) fn put_next(
        &mut self,
        feed: &Feed<'_>,
        peer: u16,
        (position, end): (u64, u64),
        out: &mut Vec<u8>,
    ) -> (u64, Gate) {
        let mut payload = std::mem::take(&mut self.whole);
        let mut gate = Gate::OPEN;
        while payload.len() < FRAME_BYTES
            && let Some((db, name)) = self.keys.pop_front()
        {
            let key = feed.keyspace.key(&name);
            let locked = feed.keyspace.lock_one(key.hash, feed.params);
            let version = locked.version(db, key);
            if version != Version::NONE && feed.hub.sends(peer, version.server) {
                locked.encode_state(db, key, &mut payload);
                Mutation::Version { db, key, version }.encode(&mut payload);
                gate = gate.max(Gate::from_store(locked.gate(db, key.hash)));
            }
        }
        let end = if self.keys.is_empty() { end } else { position };
        let kind = if payload.is_empty() { Kind::Heartbeat } else { Kind::States };
        put_frame(kind, position, end, out, |out| out.extend_from_slice(&payload));
        (end, gate)
    }
}

/// Appends the contents of a stripe as frames: all values with their versions, deletions, and rows,
/// also what the peer wrote itself: it may have lost that.
pub(super) fn put_stripe(
    feed: &Feed<'_>,
    block: &SnapshotBlock,
    position: u64,
    out: &mut Vec<u8>,
) -> Result<(), FeedError> {
    let mut versions = BTreeMap::new();
    let mut input = block.bytes.as_slice();
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
        if let Mutation::Version { db, key, version } = mutation {
            versions.insert((db, key.bytes), version);
        }
    }
    let mut frames = Frames { position, payload: Vec::new(), out };
    let mut input = block.bytes.as_slice();
    let put_key = |frames: &mut Frames<'_>, db, key: Key<'_>, change, version: Version| {
        Mutation::Key { db, key, change }.encode(&mut frames.payload);
        Mutation::Version { db, key, version }.encode(&mut frames.payload);
    };
    // A value that is older than the number of this server loses to all others.
    let oldest = Version { server: feed.hub.server, ..Version::NONE };
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
        match mutation {
            Mutation::Key { db, key, change } => {
                let version = versions.remove(&(db, key.bytes)).unwrap_or(oldest);
                put_key(&mut frames, db, key, change, version);
            }
            Mutation::Partition { key, .. } if !is_local(key.table) => {
                mutation.encode(&mut frames.payload);
                Mutation::Origin { server: feed.hub.server }.encode(&mut frames.payload);
            }
            Mutation::Floor { .. } => mutation.encode(&mut frames.payload),
            _ => {}
        }
        frames.flush_above(FRAME_BYTES);
    }
    for ((db, bytes), version) in versions {
        put_key(&mut frames, db, Key { bytes, hash: 0 }, Change::Delete, version);
        frames.flush_above(FRAME_BYTES);
    }
    frames.flush_above(0);
    Ok(())
}

/// Frames of a copy, which all have the same position.
struct Frames<'a> {
    position: u64,
    payload: Vec<u8>,
    out: &'a mut Vec<u8>,
}

impl Frames<'_> {
    fn flush_above(&mut self, bytes: usize) {
        if self.payload.len() > bytes {
            put_frame(Kind::States, self.position, self.position, self.out, |out| {
                out.append(&mut self.payload);
            });
        }
    }
}
