//! The state of FAILOVER, which hands the role of this master over to a replica. The thread of the
//! link does it: `crate::replica::failover`.

use base::time::MonoNs;
use binlog::Log;
use parking_lot::MutexGuard;

use super::Replication;
use crate::config::MasterAddress;
use crate::engine::pause::Pause;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailoverStage {
    /// Waits until a replica has all records.
    Waiting,
    Aborted,
    /// This server connects to the replica.
    Connecting,
    /// It has requested the promotion, for the first time.
    Requested,
    /// The connection ended before the reply: the replica may have been promoted.
    Uncertain,
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

    /// Begins a failover, and pauses writes. False if another one is in progress.
    pub(crate) fn begin_failover(&self, failover: Failover, pause: &Pause) -> bool {
        let mut current = self.failover.lock();
        if current.is_some() {
            return false;
        }
        pause.begin_failover();
        *current = Some(failover);
        self.signal.raise();
        true
    }

    pub(crate) fn abort_failover(&self) -> Result<(), &'static str> {
        match &mut *self.failover.lock() {
            None => Err("ERR No failover in progress."),
            Some(Failover { stage, .. }) if *stage <= FailoverStage::Aborted => {
                *stage = FailoverStage::Aborted;
                self.signal.raise();
                Ok(())
            }
            Some(_) => {
                Err("ERR the replica may have been promoted: the failover cannot be aborted.")
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
                failover.stage = FailoverStage::Connecting;
                true
            }
            _ => false,
        }
    }

    /// Notes that the promotion is requested now. False if there is no failover.
    pub(crate) fn begin_request(&self) -> bool {
        let mut failover = self.failover.lock();
        if let Some(Failover { stage: stage @ FailoverStage::Connecting, .. }) = &mut *failover {
            *stage = FailoverStage::Requested;
        }
        failover.is_some()
    }

    /// Notes that the link to the replica has ended. Returns whether the replica was certainly not
    /// promoted. `is_refused`: it has refused the last request.
    pub(crate) fn note_broken_failover(&self, is_refused: bool) -> bool {
        match &mut *self.failover.lock() {
            Some(Failover { stage: FailoverStage::Connecting, .. }) => true,
            Some(Failover { stage: FailoverStage::Requested, .. }) if is_refused => true,
            Some(Failover { stage: stage @ FailoverStage::Requested, .. }) => {
                *stage = FailoverStage::Uncertain;
                false
            }
            _ => false,
        }
    }

    /// Ends the failover and its pause.
    pub(crate) fn end_failover(&self, pause: &Pause) -> Option<Failover> {
        let mut current = self.failover.lock();
        pause.end_failover();
        current.take()
    }

    /// Notes, and returns, the position of the stream that this server has reached as a master. It
    /// no longer writes.
    pub(crate) fn note_own_position(&self, log: &Log) -> Option<u64> {
        let mut applied = self.applied();
        let position = self.history().position(log.next());
        *applied = position.unwrap_or(*applied);
        self.publish_applied(*applied);
        position
    }

    /// As in INFO. Source: Redis 7.2 `replication.c`, `getFailoverStateString`
    pub(crate) fn failover_state(&self) -> &'static str {
        match self.failover.lock().as_ref().map(|failover| failover.stage) {
            None | Some(FailoverStage::Aborted) => "no-failover",
            Some(FailoverStage::Waiting) => "waiting-for-sync",
            Some(_) => "failover-in-progress",
        }
    }
}
