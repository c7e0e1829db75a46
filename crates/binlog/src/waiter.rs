//! Notifies one owner once when a position is reached, without a lock on the way.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::record::Lsn;

/// Called from the writer's thread (or the caller's own, if the position is reached already): it
/// must be short and must not call into the log.
pub(crate) type Waker = dyn Fn() + Send + Sync;

/// The waiter is not armed.
const NOTHING: u64 = u64::MAX;

/// Waits for at most one position: the smallest of those armed.
///
/// No wake-up is lost: [`Waiter::arm`] stores the position and then reads what is reached; the
/// writer stores what is reached and then reads the position. All four are sequentially consistent,
/// so at least one of the two sees the other; the swap lets only one of them call.
pub(crate) struct Waiter {
    armed: AtomicU64,
    waker: RwLock<Option<Arc<Waker>>>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Waiter").field("armed", &self.armed).finish_non_exhaustive()
    }
}

impl Waiter {
    pub(crate) fn new() -> Self {
        Self { armed: AtomicU64::new(NOTHING), waker: RwLock::new(None) }
    }

    pub(crate) fn set_waker(&self, waker: Box<Waker>) {
        *self.waker.write() = Some(Arc::from(waker));
    }

    /// Arms the waiter at the position `at`. `reached` must load the published position each time.
    pub(crate) fn arm(&self, at: Lsn, reached: impl Fn() -> bool) {
        self.armed.fetch_min(at.0, Ordering::SeqCst);
        if reached() {
            self.disarm_and_wake();
        }
    }

    /// To be called after `position` has been published.
    pub(crate) fn publish(&self, position: Lsn) {
        if self.armed.load(Ordering::SeqCst) <= position.0 {
            self.disarm_and_wake();
        }
    }

    /// Wakes the owner, whatever position it waits for: the log will not reach any further.
    pub(crate) fn disarm_and_wake(&self) {
        if self.armed.swap(NOTHING, Ordering::SeqCst) != NOTHING {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        let waker = self.waker.read().clone();
        if let Some(waker) = waker {
            waker();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counted() -> (Waiter, Arc<AtomicUsize>) {
        let waiter = Waiter::new();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        waiter.set_waker(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        (waiter, count)
    }

    #[test]
    fn wakes_once_at_the_smallest_position() {
        let (waiter, count) = counted();
        waiter.arm(Lsn(20), || false);
        waiter.arm(Lsn(10), || false);
        waiter.arm(Lsn(30), || false);
        waiter.publish(Lsn(9));
        assert_eq!(count.load(Ordering::SeqCst), 0);
        waiter.publish(Lsn(10));
        waiter.publish(Lsn(40));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn wakes_at_once_when_already_reached() {
        let (waiter, count) = counted();
        waiter.arm(Lsn(20), || true);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        waiter.disarm_and_wake();
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
