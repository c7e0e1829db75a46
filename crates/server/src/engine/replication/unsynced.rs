//! Records that replicas are sent before they are on the disk of their master. With `durability
//! interval` and `never` a client is answered before the log is synced, and replicas show its write
//! as early.
//!
//! A power cut can lose such records, and the log continue differently. So the next run begins an
//! epoch where the log ended, before a replica is sent anything: what a replica has beyond is set
//! aside. [`epoch_file`] stores that this is due. The epoch is begun no earlier, since its record is
//! a write: a server that was replaced while it was down, and has no other one, needs no copy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use binlog::{Disk, Log, Lsn, SyncPolicy};
use parking_lot::Mutex;
use store::{Keyspace, Params};
use wire::replication::EpochId;

use super::{Replication, Role, epoch_file, stored_hash};

/// See [`Unsynced::lost_from`].
const NOTHING_LOST: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Unsynced {
    lost_from: AtomicU64,
    must_begin: AtomicBool,
    /// Replicas may be sent unsynced records.
    is_active: AtomicBool,
    state: Mutex<State>,
}

/// What the thread that feeds replicas knows. No lock is taken while this is locked.
#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// The epoch of which it is stored that records are sent unsynced.
    stored: Option<EpochId>,
    /// The epoch of which it could not be stored.
    failed: Option<EpochId>,
    /// The newest epoch that was fed, and a position after its record in the log.
    begun: Option<(EpochId, Lsn)>,
}

impl Default for Unsynced {
    fn default() -> Unsynced {
        Unsynced {
            lost_from: AtomicU64::new(NOTHING_LOST),
            must_begin: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }
}

impl Unsynced {
    /// Where an epoch must begin before replicas are sent anything.
    pub(crate) fn lost_from(&self) -> Option<u64> {
        let position = self.lost_from.load(Ordering::SeqCst);
        (position != NOTHING_LOST).then_some(position)
    }

    /// Notes where an epoch must begin. `at_once`: this could not be stored.
    pub(crate) fn note_lost(&self, from: u64, at_once: bool) {
        self.lost_from.store(from, Ordering::SeqCst);
        self.must_begin.store(at_once, Ordering::SeqCst);
    }

    pub(crate) fn must_begin_at_once(&self) -> bool {
        self.must_begin.load(Ordering::SeqCst)
    }

    /// Notes that the epoch has begun, or that the history is another one.
    pub(crate) fn reset(&self) {
        self.lost_from.store(NOTHING_LOST, Ordering::SeqCst);
        self.must_begin.store(false, Ordering::SeqCst);
        self.is_active.store(false, Ordering::SeqCst);
    }

    /// Whether replicas may be sent unsynced records, so that they wait for each write of the log.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }
}

impl Replication {
    /// Whether replicas are sent records before these are on the disk of this server.
    pub(crate) fn sends_unsynced(&self, log: &Log) -> bool {
        self.role() == Role::Master && log.sync_policy() != SyncPolicy::Always
    }

    /// Whether a replica that knows this epoch as the newest may be sent unsynced records now: it is
    /// stored that it is. Only for the thread that feeds replicas, which must have locked nothing.
    /// Blocks once in an epoch.
    pub(crate) fn may_send_unsynced(
        &self,
        epoch: &EpochId,
        (disk, log): (&dyn Disk, &Log),
        (keyspace, params): (&Keyspace, &Params),
    ) -> bool {
        if !self.sends_unsynced(log) || self.unsynced.lost_from().is_some() {
            return false;
        }
        let mut state = *self.unsynced.state.lock();
        if [state.stored, state.failed].contains(&Some(*epoch)) {
            return state.stored == Some(*epoch);
        }
        let begun = match state.begun {
            Some((known, begun)) if known == *epoch => begun,
            _ => {
                // The unit that began the epoch has been logged when its stripe can be locked.
                drop(keyspace.lock_one(stored_hash(), params));
                log.next()
            }
        };
        state.begun = Some((*epoch, begun));
        if log.durable() < begun {
            log.request_sync(begun);
        } else {
            match epoch_file::write(disk, epoch_file::UNSYNCED, epoch, u64::MAX) {
                Ok(()) => state.stored = Some(*epoch),
                Err(error) => {
                    state.failed = Some(*epoch);
                    tracing::warn!(
                        %error,
                        "could not store that replicas are sent unsynced writes; they follow what \
                         is synced"
                    );
                }
            }
        }
        *self.unsynced.state.lock() = state;
        let is_stored = state.stored == Some(*epoch);
        self.unsynced.is_active.store(is_stored, Ordering::SeqCst);
        is_stored
    }
}
