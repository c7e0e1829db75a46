//! The log's record of a follower.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::record::Lsn;
use crate::waiter::Waiter;

/// How far a follower may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only records that survive a power cut.
    Durable,
    /// Also what only the kernel has: earlier, but after a power cut the log may continue
    /// differently from there.
    Written,
}

/// The log's record of a follower.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) position: AtomicU64,
    /// Records that it has not read may have been removed.
    pub(crate) is_abandoned: AtomicBool,
    pub(crate) scope: Scope,
    pub(crate) waiter: Waiter,
    pub(crate) signal: Arc<Signal>,
}

#[derive(Debug, Default)]
pub(crate) struct Signal {
    pub(crate) raised: Mutex<bool>,
    pub(crate) changed: Condvar,
}

impl Signal {
    pub(crate) fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_all();
    }
}

impl Slot {
    /// The follower still needs all records from this position on.
    pub(crate) fn position(&self) -> Lsn {
        Lsn(self.position.load(Ordering::SeqCst))
    }

    /// Whether the records that it has not read are kept.
    pub(crate) fn holds(&self) -> bool {
        !self.is_abandoned.load(Ordering::SeqCst)
    }

    /// To be called before anything is truncated that the follower has not read.
    pub(crate) fn lose_hold(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn publish(&self, durable: Lsn, written: Lsn) {
        self.waiter.publish(match self.scope {
            Scope::Durable => durable,
            Scope::Written => written,
        });
    }

    pub(crate) fn wake(&self) {
        self.waiter.disarm_and_wake();
    }
}
