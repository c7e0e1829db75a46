//! Records that replicas are sent before they are on the disk of their master. With `durability
//! interval` and `never` a client is answered before the log is synced, and replicas show its write
//! as early.
//!
//! A power cut can lose such records, and the log continue differently. So the next run begins an
//! epoch where the log ended, before a replica continues: what a replica has beyond is set aside.
//! [`epoch_file`] stores that this is due. The epoch is begun no earlier, since its record is a
//! write: a server that was replaced while it was down, and has no other one, needs no copy.

use binlog::{Disk, Log, Lsn, SyncPolicy};
use parking_lot::Mutex;
use store::{Keyspace, Params};
use wire::replication::EpochId;

use super::{Replication, Role, epoch_file, stored_hash};

#[derive(Debug, Default)]
pub(crate) struct Unsynced(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Where an epoch must begin before replicas are sent anything.
    lost_from: Option<u64>,
    /// The epoch of which it is stored that records are sent unsynced.
    stored: Option<EpochId>,
    /// The epoch of which it could not be stored.
    failed: Option<EpochId>,
    /// The newest epoch that a feeder has seen, and a position after its record in the log.
    begun: Option<(EpochId, Lsn)>,
}

impl Unsynced {
    pub(crate) fn lost_from(&self) -> Option<u64> {
        self.0.lock().lost_from
    }

    /// Sets where an epoch must begin. `None`: it has begun, or the history is another one.
    pub(crate) fn set_lost_from(&self, position: Option<u64>) {
        self.0.lock().lost_from = position;
    }
}

impl Replication {
    /// Whether replicas are sent records before these are on the disk of this server.
    pub(crate) fn sends_unsynced(&self, log: &Log) -> bool {
        self.role() == Role::Master && log.sync_policy() != SyncPolicy::Always
    }

    /// Whether a replica that knows this epoch as the newest may be sent unsynced records now: it is
    /// stored that it is. The caller must have locked no stripe. May block, once in an epoch.
    pub(crate) fn may_send_unsynced(
        &self,
        epoch: &EpochId,
        (disk, log): (&dyn Disk, &Log),
        (keyspace, params): (&Keyspace, &Params),
    ) -> bool {
        if !self.sends_unsynced(log) {
            return false;
        }
        let mut state = self.unsynced.0.lock();
        if state.stored.as_ref() == Some(epoch) {
            return true;
        }
        if state.lost_from.is_some() || state.failed.as_ref() == Some(epoch) {
            return false;
        }
        let begun = state.begun.filter(|(known, _)| known == epoch).map_or_else(
            || {
                // The unit that began the epoch has been logged when its stripe can be locked.
                drop(keyspace.lock_one(stored_hash(), params));
                log.next()
            },
            |(_, begun)| begun,
        );
        state.begun = Some((*epoch, begun));
        if log.durable() < begun {
            log.request_sync(begun);
            return false;
        }
        match epoch_file::write(disk, epoch_file::UNSYNCED, epoch, u64::MAX) {
            Ok(()) => state.stored = Some(*epoch),
            Err(error) => {
                state.failed = Some(*epoch);
                tracing::warn!(
                    %error,
                    "could not store that replicas are sent unsynced writes; they follow what is \
                     synced"
                );
            }
        }
        state.stored.as_ref() == Some(epoch)
    }
}
