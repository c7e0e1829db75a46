//! The state of FAILOVER, which hands the role of this master over to a replica. The thread of the
//! link does it: `crate::replica::failover`.

use base::time::MonoNs;
use binlog::Log;
use parking_lot::MutexGuard;

use super::Replication;
use crate::config::MasterAddress;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailoverStage {
    /// Waits until a replica has all records.
    Waiting,
    Aborted,
    /// This server follows the replica, which may have been promoted.
    InProgress,
}

#[derive(Debug, Clone)]
pub(crate) struct Failover {
    /// `None`: any replica.
    pub(crate) target: Option<MasterAddress>,
    pub(crate) deadline: MonoNs,
    /// At the deadline, the target is promoted even if it lacks records.
    pub(crate) is_forced: bool,
    pub(crate) stage: FailoverStage,
}

impl Replication {
    pub(crate) fn failover(&self) -> MutexGuard<'_, Option<Failover>> {
        self.failover.lock()
    }

    pub(crate) fn begin_failover(&self, failover: Failover) {
        *self.failover.lock() = Some(failover);
        self.signal.raise();
    }

    pub(crate) fn abort_failover(&self) -> Result<(), &'static str> {
        match &mut *self.failover.lock() {
            None => Err("ERR No failover in progress."),
            Some(failover) if failover.stage == FailoverStage::InProgress => {
                Err("ERR the replica may have been promoted: the failover cannot be aborted.")
            }
            Some(failover) => {
                failover.stage = FailoverStage::Aborted;
                Ok(())
            }
        }
    }

    pub(crate) fn is_failover_aborted(&self) -> bool {
        let failover = self.failover.lock();
        failover.as_ref().is_some_and(|failover| failover.stage == FailoverStage::Aborted)
    }

    /// Begins to follow the replica. False if the failover was aborted.
    pub(crate) fn begin_hand_over(&self) -> bool {
        match &mut *self.failover.lock() {
            Some(failover) if failover.stage == FailoverStage::Waiting => {
                failover.stage = FailoverStage::InProgress;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn end_failover(&self) -> Option<Failover> {
        self.failover.lock().take()
    }

    /// Notes, and returns, the position of the stream that this server has reached as a master. It
    /// no longer writes.
    pub(crate) fn note_own_position(&self, log: &Log) -> Option<u64> {
        let mut applied = self.applied();
        let position = self.history().position(log.next());
        *applied = position.unwrap_or(*applied);
        position
    }

    /// As in INFO. Source: Redis 7.2 `replication.c`, `getFailoverStateString`
    pub(crate) fn failover_state(&self) -> &'static str {
        match self.failover.lock().as_ref().map(|failover| failover.stage) {
            None => "no-failover",
            Some(FailoverStage::Waiting | FailoverStage::Aborted) => "waiting-for-sync",
            Some(FailoverStage::InProgress) => "failover-in-progress",
        }
    }
}
