//! How many of something there may be at once, counted without a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that have not said yet who they are, at each listener: each has a thread, for at most
/// [`crate::link::HANDSHAKE_TIMEOUT`]. More wait in the kernel's queue.
pub(crate) const GREETINGS_MAX: usize = 64;

/// Places, each taken by one at a time.
#[derive(Debug)]
pub(crate) struct Slots {
    free: AtomicUsize,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a>(&'a Slots);

impl Slots {
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    /// `None`: all are taken.
    pub(crate) fn take(&self) -> Option<Slot<'_>> {
        let less_one = |free: usize| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less_one);
        taken.is_ok().then(|| Slot(self))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        let third = slots.take();
        assert!(third.is_some() && slots.take().is_none());
    }
}
