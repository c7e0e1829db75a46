//! Replication: the role of this server, its replicas, and the stream that they read.
//!
//! A replica receives a copy of all data, stripe by stripe, then the records of its source's log
//! ([`feeder`]); it applies each record as a unit of work that goes to its own log. `history` has
//! the positions of the stream, `stored` keeps them in the data. [`super::role_change`] changes the
//! role, and `crate::replica` is the other end of the stream.

pub(crate) mod epoch_file;
mod failover;
mod feeder;
mod history;
mod members;
mod promotion;
mod replicas;
mod states;
mod stored;
mod unsynced;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use base::time::MonoNs;
use binlog::Log;
use parking_lot::{Mutex, MutexGuard};
use reactor::ConnId;
use store::{Keyspace, Params};
use wire::replication::{Epoch, EpochId};

use super::gate::Gate;
pub(crate) use super::link_state::{LinkState, Request};
use super::refusal::{ABANDONED, INCOMPLETE};
use super::signal::Signal;
use crate::config::{MasterAddress, ReplicaRules, Settings};
pub(crate) use failover::{Failover, FailoverStage};
pub(crate) use feeder::{Feed, Feeder, Reader};
pub(crate) use history::{History, Place};
pub(crate) use members::{Members, Peer, Present, Update, is_usable, visible_host};
pub(crate) use promotion::{ANSWER_NS_MAX, OldMaster, Promotion, REPLACED};
pub(crate) use replicas::{ProgramVersion, Replaced, Replica, Replicas, RunId, SILENCE_NS_MAX};
pub(crate) use stored::{StoredRow, put, remove, stored, stored_hash};
use unsynced::Unsynced;

/// Why a copy or file of the data ends.
pub(crate) const GIVEN_UP: &str = "this server has given up its data for that of its master";

/// What a server does with writes of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    Master = 0,
    /// Refuses writes; reads see the data as of some position of the stream.
    Replica = 1,
    /// Refuses reads as well: the copy of the data is incomplete.
    Copying = 2,
}

/// The connection to the source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    /// `None`: this server is a master.
    pub(crate) source: Option<MasterAddress>,
    /// Different after each change of the source.
    pub(crate) generation: u64,
    /// The reactors must end what clients wait for at this server as a master.
    pub(crate) was_master: bool,
    pub(crate) state: LinkState,
    /// When the source was last heard; of a connection that is down, when that ended.
    pub(crate) heard: MonoNs,
    /// How far the source's log was durable when it was last heard.
    pub(crate) source_position: u64,
    /// Bytes of the copy that have been received.
    pub(crate) copied_bytes: u64,
    /// Version of the program of the source; empty until it is known.
    pub(crate) source_program: String,
    /// Where the connection to the source leads to; `None` until the stream has begun.
    pub(crate) peer: Option<SocketAddr>,
    /// The configuration names the source, and FAILOVER of that source has promoted this server
    /// since. If the source follows this server, this server stays the master.
    pub(crate) is_outdated: bool,
}

#[derive(Debug)]
pub(crate) struct Replication {
    role: AtomicU8,
    /// The position of the stream up to which a replica has applied it. Locked before stripes, and
    /// while a record is applied.
    applied: Mutex<u64>,
    /// The same for readers, which may have locked stripes.
    published: AtomicU64,
    /// How often the data was given up for a copy of a master. Changed while `applied` is locked.
    given_up: AtomicU64,
    history: Mutex<History>,
    link: Mutex<Link>,
    replicas: Replicas,
    pub(crate) unsynced: Unsynced,
    /// Whether it is stored that another server has replaced this one. Locked by the thread of
    /// promotions, which waits for the disk meanwhile.
    pub(crate) is_replaced_stored: Mutex<bool>,
    failover: Mutex<Option<Failover>>,
    promotion: Mutex<Option<Promotion>>,
    old_master: Mutex<Option<OldMaster>>,
    /// Wakes the thread that promotes this server and notifies its old master.
    pub(crate) promotions: Signal,
    /// The servers that drivers of CQL know.
    pub(crate) members: Members,
    /// Wakes the thread of the link.
    pub(crate) signal: Signal,
}

impl Replication {
    /// Reads the stored history. `applied`: the position that the log's last record names.
    pub(crate) fn load(
        keyspace: &Keyspace,
        params: &Params,
        log: &Log,
        applied: u64,
    ) -> Result<Replication, &'static str> {
        let locked = keyspace.lock_one(stored_hash(), params);
        let stored = stored::stored_history(&locked)?;
        drop(locked);
        let is_incomplete = stored.as_ref().is_some_and(History::is_empty);
        let history = stored.unwrap_or_default();
        let applied = history.position(log.next()).unwrap_or(applied);
        let role = if is_incomplete { Role::Copying } else { Role::Master };
        Ok(Replication {
            role: AtomicU8::new(role as u8),
            applied: Mutex::new(applied),
            published: AtomicU64::new(applied),
            given_up: AtomicU64::new(0),
            history: Mutex::new(history),
            link: Mutex::default(),
            replicas: Replicas::new(applied),
            unsynced: Unsynced::default(),
            is_replaced_stored: Mutex::new(false),
            failover: Mutex::default(),
            promotion: Mutex::default(),
            old_master: Mutex::default(),
            promotions: Signal::default(),
            members: Members::default(),
            signal: Signal::default(),
        })
    }

    #[inline]
    pub(crate) fn role(&self) -> Role {
        match self.role.load(Ordering::SeqCst) {
            0 => Role::Master,
            1 => Role::Replica,
            _ => Role::Copying,
        }
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Ordering::SeqCst);
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }

    /// Locks the position up to which a replica has applied the stream. To be locked before
    /// stripes.
    pub(crate) fn applied(&self) -> MutexGuard<'_, u64> {
        self.applied.lock()
    }

    /// Different after each time that the data was given up for a copy of a master.
    pub(crate) fn data_number(&self) -> u64 {
        self.given_up.load(Ordering::SeqCst)
    }

    pub(crate) fn note_given_up(&self) {
        self.given_up.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether this server is to be a replica, and does not follow its master.
    pub(crate) fn lacks_master(&self) -> bool {
        let link = self.link();
        link.source.is_some() && link.state != LinkState::Connected
    }

    /// Whether `replica-serve-stale-data` forbids requests for data now.
    pub(crate) fn is_stale(&self, settings: &Settings) -> bool {
        !settings.replica_serve_stale_data && self.lacks_master()
    }

    /// Error reply to requests for data while the copy is incomplete.
    pub(crate) fn incomplete(&self) -> &'static str {
        if self.link().source.is_some() { INCOMPLETE } else { ABANDONED }
    }

    /// The newest epoch and the one before it.
    pub(crate) fn epochs(&self) -> (Option<Epoch>, Option<Epoch>) {
        let history = self.history.lock();
        (history.epoch().copied(), history.previous().copied())
    }

    /// The position of the stream up to which this server has data for replicas: on a master durable
    /// data, or all if it sends that, and on a replica applied records.
    pub(crate) fn position(&self, log: &Log) -> u64 {
        if self.role() == Role::Master {
            let end = if self.sends_unsynced(log) { log.next() } else { log.durable() };
            self.history.lock().position(end).unwrap_or(end.0)
        } else {
            self.published()
        }
    }

    /// The same for clients: 0 while there has been neither a replica nor a master, as in Redis.
    pub(crate) fn shown_position(&self, log: &Log) -> u64 {
        let has_begun = self.history.lock().epoch().is_some();
        if has_begun { self.position(log) } else { 0 }
    }

    /// The position of the stream up to which a replica has applied it.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    pub(crate) fn publish_applied(&self, position: u64) {
        self.published.store(position, Ordering::SeqCst);
    }

    /// Refuses writes of clients from now on.
    pub(crate) fn refuse_writes(&self) {
        if self.role() == Role::Master {
            self.set_role(Role::Replica);
        }
    }

    /// The position of the stream where the data ends, on disk or not.
    pub(crate) fn end(&self, log: &Log) -> u64 {
        let own = self.history.lock().position(log.next());
        own.unwrap_or_else(|| self.published())
    }

    /// Makes the server a replica of `source`. Writes are refused from now on; the thread of the
    /// link does the rest. False if it is that already.
    pub(crate) fn set_source(&self, source: MasterAddress) -> bool {
        let mut link = self.link.lock();
        if link.source.as_ref() == Some(&source) {
            return false;
        }
        let was_master = link.source.is_none() || link.was_master;
        self.refuse_writes();
        let (source, generation) = (Some(source), link.generation + 1);
        *link = Link { source, generation, was_master, ..Link::default() };
        drop(link);
        *self.old_master.lock() = None;
        self.signal.raise();
        self.promotions.raise();
        true
    }

    /// The replicas of this server.
    pub(crate) fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Changes the replicas.
    pub(crate) fn change_replicas(
        &self,
        rules: ReplicaRules,
        now: MonoNs,
        change: impl FnOnce(&mut BTreeMap<ConnId, Replica>),
    ) {
        let era = self.history.lock().own().copied();
        self.replicas.change(era, rules, now, change);
    }

    /// Number of replicas that have the local log up to a position on disk.
    pub(crate) fn confirmations(&self, written: Gate) -> usize {
        let position = match written.lsn() {
            Some(written) => self.history.lock().position(written),
            None => (written == Gate::OPEN).then_some(0),
        };
        position.map_or(0, |position| self.replicas.count(position))
    }
}

/// A new, random name of an epoch.
pub(crate) fn epoch_id(mut random: impl FnMut() -> u64) -> EpochId {
    let text = format!("{:016x}{:016x}{:08x}", random(), random(), random() & 0xffff_ffff);
    text.as_bytes().try_into().expect("40 digits")
}
