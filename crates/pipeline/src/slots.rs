//! A counting semaphore without a lock and without waiting.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections in the handshake at each listener. Each uses a thread, for at most
/// [`crate::link::HANDSHAKE_TIMEOUT`]. Further connections wait in the kernel's queue.
pub(crate) const HANDSHAKES_MAX: usize = 64;

/// A number of units, such as connections or bytes, each of which has at most one holder.
#[derive(Debug)]
pub(crate) struct Slots {
    free: AtomicUsize,
}

/// The units taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    count: usize,
}

impl Slots {
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    /// Returns `None` if none is free.
    pub(crate) fn take(&self) -> Option<Slot<'_>> {
        self.take_some(1)
    }

    /// Returns `None` if fewer than `count` are free.
    pub(crate) fn take_some(&self, count: usize) -> Option<Slot<'_>> {
        let less = |free: usize| free.checked_sub(count);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| Slot { slots: self, count })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.slots.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_slots_are_reusable() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        let third = slots.take();
        assert!(third.is_some() && slots.take().is_none());
        drop((second, third));
        let both = slots.take_some(2);
        assert!(both.is_some() && slots.take().is_none() && slots.take_some(0).is_some());
        drop(both);
        assert!(slots.take_some(3).is_none() && slots.take().is_some());
    }
}
