//! What a peer of a group of masters is sent: the present value and version of each key that the
//! records of the log changed, and the changed rows of tables as they are in the log.
//!
//! A value is read when it is sent: several changes of one key in a batch are sent once, and a
//! value that another server has replaced meanwhile is not sent by its first author.

use std::collections::{BTreeMap, HashSet, VecDeque};

use binlog::Batch;
use smallvec::SmallVec;
use store::{Change, Given, Key, Mutation, SnapshotBlock, Version};
use wire::replication::{FRAME_BYTES, FrameWriter, Kind};

use super::feeder::{Feed, FeedError};
use crate::engine::gate::Gate;
use crate::engine::local_tables::is_local;
use crate::engine::records;

/// Changes that are still to be sent, all of one batch.
#[derive(Debug, Default)]
pub(super) struct States {
    /// Rows and emptied databases, as mutations.
    whole: Vec<u8>,
    keys: VecDeque<Name>,
}

#[derive(Debug)]
struct Name {
    db: u8,
    hash: u64,
    bytes: SmallVec<[u8; 24]>,
}

/// Keys whose memory is loaded at a time.
const AHEAD: usize = 16;

fn malformed<E>(_: E) -> FeedError {
    FeedError::Malformed
}

impl States {
    /// The changes of a batch that a peer is sent. A change whose author the peer does not read here
    /// is left out: if another one replaces it, that has a record of its own.
    pub(super) fn of_batch(feed: &Feed<'_>, peer: u16, batch: &Batch) -> Result<States, FeedError> {
        let mut whole = Vec::new();
        let mut keys = VecDeque::new();
        let mut known = HashSet::new();
        for record in batch.records() {
            let contents = records::contents(&record).ok_or(FeedError::Kind(record.kind))?;
            let (mut input, mut rows, mut author) = (contents.mutations, Vec::new(), None);
            while !input.is_empty() {
                let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
                match mutation {
                    Mutation::Version { db, key, given }
                        if given.version != Version::NONE
                            && feed.hub.sends(peer, given.version.server)
                            && known.insert((db, key.bytes)) =>
                    {
                        let hash = feed.keyspace.hash(key.bytes);
                        keys.push_back(Name { db, hash, bytes: key.bytes.into() });
                    }
                    Mutation::Partition { key, .. } if !is_local(key.table) => {
                        mutation.encode(&mut rows);
                    }
                    Mutation::Truncate { .. } => mutation.encode(&mut rows),
                    Mutation::Floor { version, .. } if feed.hub.sends(peer, version.server) => {
                        mutation.encode(&mut whole);
                    }
                    Mutation::Origin { .. } => author = Some(mutation),
                    _ => {}
                }
            }
            if rows.is_empty() {
                continue;
            }
            let own = Mutation::Origin {
                server: feed.hub.server,
                newest_timestamp: contents.stamp.unwrap_or(i64::MIN),
            };
            let author = author.unwrap_or(own);
            if matches!(author, Mutation::Origin { server, .. } if feed.hub.sends(peer, server)) {
                whole.append(&mut rows);
                author.encode(&mut whole);
            }
        }
        Ok(States { whole, keys })
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
        writer: &mut FrameWriter,
        out: &mut Vec<u8>,
    ) -> (u64, Gate) {
        let mut payload = std::mem::take(&mut self.whole);
        let mut gate = Gate::OPEN;
        let mut loaded = 0;
        while payload.len() < FRAME_BYTES {
            if loaded == 0 {
                let next = self.keys.iter().take(AHEAD);
                feed.keyspace.prefetch_keys(next.map(|name| (name.db, name.hash)));
                loaded = AHEAD;
            }
            loaded -= 1;
            let Some(Name { db, hash, bytes }) = self.keys.pop_front() else { break };
            let key = Key { bytes: &bytes, hash };
            let locked = feed.keyspace.lock_one(key.hash, feed.params);
            let given = locked.given(db, key);
            if given.version != Version::NONE && feed.hub.sends(peer, given.version.server) {
                locked.encode_state(db, key, &mut payload);
                Mutation::Version { db, key, given }.encode(&mut payload);
                gate = gate.max(Gate::from_store(locked.gate(db, key.hash)));
            }
        }
        let end = if self.keys.is_empty() { end } else { position };
        let kind = if payload.is_empty() { Kind::Heartbeat } else { Kind::States };
        writer.put(kind, (position, end), out, |out| out.extend_from_slice(&payload));
        (end, gate)
    }
}

/// Appends the contents of a stripe as frames: all values with their versions, deletions, and rows,
/// also what the peer wrote itself: it may have lost that.
pub(super) fn put_stripe(
    feed: &Feed<'_>,
    block: &SnapshotBlock,
    position: u64,
    writer: &mut FrameWriter,
    out: &mut Vec<u8>,
) -> Result<(), FeedError> {
    let mut versions = BTreeMap::new();
    let mut input = block.bytes.as_slice();
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
        if let Mutation::Version { db, key, given } = mutation {
            versions.insert((db, key.bytes), given);
        }
    }
    let mut frames = Frames { position, payload: Vec::new(), writer, out };
    let mut input = block.bytes.as_slice();
    let put_key = |frames: &mut Frames<'_>, db, key: Key<'_>, change, given: Given| {
        Mutation::Key { db, key, change }.encode(&mut frames.payload);
        Mutation::Version { db, key, given }.encode(&mut frames.payload);
    };
    // A value that is older than the number of this server loses to all others.
    let oldest = Given::first(Version { server: feed.hub.server, ..Version::NONE });
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |_| 0).map_err(malformed)?;
        match mutation {
            Mutation::Key { db, key, change } => {
                let given = versions.remove(&(db, key.bytes)).unwrap_or(oldest);
                put_key(&mut frames, db, key, change, given);
            }
            Mutation::Partition { key, .. } if !is_local(key.table) => {
                mutation.encode(&mut frames.payload);
                // The end of the copy has the newest timestamp of all.
                let (server, newest_timestamp) = (feed.hub.server, i64::MIN);
                Mutation::Origin { server, newest_timestamp }.encode(&mut frames.payload);
            }
            Mutation::Floor { .. } => mutation.encode(&mut frames.payload),
            _ => {}
        }
        frames.flush_above(FRAME_BYTES);
    }
    for ((db, bytes), given) in versions {
        put_key(&mut frames, db, Key { bytes, hash: 0 }, Change::Delete, given);
        frames.flush_above(FRAME_BYTES);
    }
    frames.flush_above(0);
    Ok(())
}

/// Frames of a copy, which all have the same position.
struct Frames<'a> {
    position: u64,
    payload: Vec<u8>,
    writer: &'a mut FrameWriter,
    out: &'a mut Vec<u8>,
}

impl Frames<'_> {
    fn flush_above(&mut self, bytes: usize) {
        if self.payload.len() > bytes {
            self.writer.put(Kind::States, (self.position, self.position), self.out, |out| {
                out.append(&mut self.payload);
            });
        }
    }
}
