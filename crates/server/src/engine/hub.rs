//! Several servers that all take writes: the peers of this server, and what it has received from
//! each. `docs/operate/hub.md` describes the group; `crate::replica` has the links to the peers.
//!
//! The peers are rows of a partition that no table of CQL has, as the history of replication: so
//! they, and how far each is followed, are in the log and in snapshots. They describe this server
//! alone.

use std::collections::{BTreeMap, VecDeque};

use base::time::{MonoNs, UnixMs};
use parking_lot::{Mutex, MutexGuard};
use store::{Keyspace, Locked, Mutation, Params, PartitionKey, StoreError, Version, Writes};
use wire::replication::EpochId;

use super::link_state::{LinkState, Request};
use super::local_tables::PEERS;
use super::signal::Signal;
use super::stored_rows;
use crate::config::{MasterAddress, Settings};

/// The place of the rows.
pub(crate) const STORED: PartitionKey<'static> =
    PartitionKey { table: PEERS, token: 0, bytes: b"peers" };

const ROW_VERSION: u8 = 1;

/// Peers of one server. Each has a thread and a connection.
pub(crate) const PEERS_MAX: usize = 64;

/// A server whose writes this server receives.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: MasterAddress,
    /// Different after each change of the peer.
    pub(crate) generation: u64,
    /// How far its log is merged. `None`: not at all, or the copy has not ended.
    pub(crate) place: Request,
    /// How far the log of this server records that: after a restart, the link continues there.
    pub(crate) stored: u64,
    pub(crate) state: LinkState,
    /// The end of what was received of the peer's log.
    pub(crate) source_position: u64,
    pub(crate) heard: MonoNs,
    /// Values that were received.
    pub(crate) received: u64,
    /// Received values that this server did not store, because it had newer ones.
    pub(crate) lost: u64,
    /// Received values in [`Conflict`] with that of this server.
    pub(crate) conflicts: u64,
}

impl Peer {
    fn new(address: MasterAddress, place: Request, generation: u64) -> Peer {
        Peer {
            address,
            generation,
            place,
            stored: place.map_or(0, |(_, position)| position),
            state: LinkState::Connecting,
            source_position: 0,
            heard: MonoNs(0),
            received: 0,
            lost: 0,
            conflicts: 0,
        }
    }

    /// How far its log is merged.
    pub(crate) fn position(&self) -> u64 {
        self.place.map_or(0, |(_, position)| position)
    }

    /// Bytes of its log that are known to follow.
    pub(crate) fn lag_bytes(&self) -> u64 {
        self.source_position.saturating_sub(self.position())
    }
}

/// The peers by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: BTreeMap<u16, Peer>,
    generation: u64,
}

impl Peers {
    pub(crate) fn all(&self) -> &BTreeMap<u16, Peer> {
        &self.all
    }

    /// The peer, unless it was replaced or removed.
    pub(crate) fn get_mut(&mut self, server: u16, generation: u64) -> Option<&mut Peer> {
        self.all.get_mut(&server).filter(|peer| peer.generation == generation)
    }

    /// Adds a peer, or gives it another address.
    pub(crate) fn put(&mut self, server: u16, address: MasterAddress, place: Request) {
        self.generation += 1;
        self.all.insert(server, Peer::new(address, place, self.generation));
    }

    pub(crate) fn remove(&mut self, server: u16) {
        self.all.remove(&server);
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }
}

/// Conflicts that are remembered, to show what the group loses.
pub(crate) const CONFLICTS_MAX: usize = 16;

/// Bytes that are remembered of the name of a key.
const NAME_BYTES_MAX: usize = 256;

/// Two servers wrote a key, neither having the value of the other; one of the values was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) db: u8,
    /// The name of the key, cut short if it is long.
    pub(crate) name: Box<[u8]>,
    pub(crate) winner: Version,
    pub(crate) loser: Version,
    pub(crate) found: UnixMs,
}

impl Conflict {
    /// `versions`: of both values, in any order.
    pub(crate) fn new((db, name): (u8, &[u8]), versions: [Version; 2], found: UnixMs) -> Conflict {
        let [one, other] = versions;
        let name = name[..name.len().min(NAME_BYTES_MAX)].into();
        Conflict { db, name, winner: one.max(other), loser: one.min(other), found }
    }

    /// Whether it is of the same values.
    fn is_same(&self, other: &Conflict) -> bool {
        (self.winner, self.loser, self.db) == (other.winner, other.loser, other.db)
            && self.name == other.name
    }
}

#[derive(Debug)]
pub(crate) struct Hub {
    /// The number of this server; 0: it is in no group.
    pub(crate) server: u16,
    /// Whether this server passes on what others wrote, and takes no writes of clients.
    pub(crate) relays: bool,
    peers: Mutex<Peers>,
    /// The latest ones, newest first.
    conflicts: Mutex<VecDeque<Conflict>>,
    /// Wakes the thread that starts links.
    pub(crate) signal: Signal,
}

impl Hub {
    /// Reads the stored peers. Fails if the data is that of a server with another number.
    pub(crate) fn load(
        keyspace: &Keyspace,
        params: &Params,
        settings: &Settings,
    ) -> Result<Hub, String> {
        let mut peers = Peers::default();
        let locked = keyspace.lock_one(STORED.hash(), params);
        for (row, bytes) in stored_rows::rows(&locked, STORED) {
            let server = <[u8; 2]>::try_from(row).map(u16::from_be_bytes);
            let server = server.map_err(|_| "the number of a stored peer is malformed")?;
            if !bytes.is_empty() {
                let (address, place) = decode(&bytes).ok_or("a stored peer is malformed")?;
                if !address.host.is_empty() {
                    peers.put(server, address, place);
                } else if server != settings.server_id {
                    return Err(format!(
                        "the data is that of server {server} of a group of masters: set server-id \
                         to {server}"
                    ));
                }
            }
        }
        let signal = Signal::default();
        signal.raise();
        let (server, relays) = (settings.server_id, settings.hub);
        Ok(Hub { server, relays, peers: Mutex::new(peers), conflicts: Mutex::default(), signal })
    }

    /// To be locked after stripes.
    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock()
    }

    /// Whether the data of a peer is not copied to its end yet.
    pub(crate) fn is_copying(&self) -> bool {
        self.peers.lock().all.values().any(|peer| peer.place.is_none())
    }

    /// False: the conflict is one of the latest. A link that begins again repeats values.
    pub(crate) fn note_conflict(&self, conflict: Conflict) -> bool {
        let mut conflicts = self.conflicts.lock();
        if conflicts.iter().any(|known| known.is_same(&conflict)) {
            return false;
        }
        conflicts.truncate(CONFLICTS_MAX - 1);
        conflicts.push_front(conflict);
        true
    }

    /// The latest conflicts, newest first.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        self.conflicts.lock().iter().cloned().collect()
    }

    /// Whether a peer reads what `author` wrote: no write returns to its author, and only a hub
    /// passes on what others wrote.
    pub(crate) fn sends(&self, peer: u16, author: u16) -> bool {
        author != peer && (self.relays || author == self.server)
    }
}

/// The address in the row that holds the number of this server itself.
pub(crate) const ITSELF: MasterAddress = MasterAddress { host: String::new(), port: 0 };

/// Stores a peer, or that there is none of this number: passes the mutation to `apply`.
pub(crate) fn put(
    locked: &Locked<'_>,
    server: u16,
    peer: Option<(&MasterAddress, Request)>,
    apply: impl FnOnce(&Mutation<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let timestamp = stored_rows::next_timestamp(locked, STORED);
    let bytes = peer.map_or_else(Vec::new, |(address, place)| encode(address, place));
    let row = server.to_be_bytes();
    let writes = [stored_rows::put(&row, &bytes, timestamp)];
    apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })
}

/// Version 1: version u8, port u16, epoch (40 bytes, zeros for none), position u64, host.
fn encode(address: &MasterAddress, place: Request) -> Vec<u8> {
    let (epoch, position) = place.unwrap_or(([0; 40], 0));
    let mut bytes = vec![ROW_VERSION];
    bytes.extend_from_slice(&address.port.to_le_bytes());
    bytes.extend_from_slice(&epoch);
    bytes.extend_from_slice(&position.to_le_bytes());
    bytes.extend_from_slice(address.host.as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(MasterAddress, Request)> {
    let (&version, rest) = bytes.split_first()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk::<40>()?;
    let (position, host) = rest.split_first_chunk()?;
    let host = str::from_utf8(host).ok()?.to_owned();
    let place = (*epoch != [0; 40]).then_some((*epoch as EpochId, u64::from_le_bytes(*position)));
    let address = MasterAddress { host, port: u16::from_le_bytes(*port) };
    (version == ROW_VERSION).then_some((address, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_peer_keeps_its_meaning() {
        let address = MasterAddress { host: "::1".to_owned(), port: 6379 };
        for place in [None, Some(([b'a'; 40], 7))] {
            let bytes = encode(&address, place);
            assert_eq!(decode(&bytes), Some((address.clone(), place)));
            assert_eq!(decode(&bytes[..50]), None);
        }
    }
}
