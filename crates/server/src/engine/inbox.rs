//! What other threads leave for a reactor, which looks in every turn.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Contents that other threads add and one reactor takes. Looking into an empty one is a load.
#[derive(Debug, Default)]
pub(crate) struct Inbox<T> {
    /// Whether anything was added since the contents were last taken.
    is_filled: AtomicBool,
    contents: Mutex<T>,
}

impl<T: Default> Inbox<T> {
    /// Adds to the contents by `add`. The caller then wakes the reactor.
    pub(crate) fn add<R>(&self, add: impl FnOnce(&mut T) -> R) -> R {
        let mut contents = self.contents.lock();
        let result = add(&mut contents);
        self.is_filled.store(true, Ordering::Release);
        result
    }

    #[inline]
    pub(crate) fn take(&self) -> T {
        if self.is_filled.load(Ordering::Acquire) { self.take_filled() } else { T::default() }
    }

    #[cold]
    fn take_filled(&self) -> T {
        let mut contents = self.contents.lock();
        self.is_filled.store(false, Ordering::Relaxed);
        std::mem::take(&mut contents)
    }

    /// Measures the contents; `None` if there are none.
    #[inline]
    pub(crate) fn measure<R>(&self, measure: impl FnOnce(&T) -> R) -> Option<R> {
        self.is_filled.load(Ordering::Acquire).then(|| measure(&self.contents.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_taken_once() {
        let inbox = Inbox::<Vec<u8>>::default();
        assert_eq!(inbox.measure(Vec::len), None);
        assert!(inbox.take().is_empty());
        for value in [1, 2] {
            inbox.add(|contents| contents.push(value));
        }
        assert_eq!(inbox.measure(Vec::len), Some(2));
        assert_eq!(inbox.take(), [1, 2]);
        assert_eq!(inbox.measure(Vec::len), None);
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn nothing_that_is_added_meanwhile_is_lost() {
        const COUNT: usize = 10_000;
        let inbox = Inbox::<Vec<usize>>::default();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|value| inbox.add(|all| all.push(value))));
            while taken.len() < COUNT {
                taken.extend(inbox.take());
            }
        });
        assert!(taken.into_iter().eq(0..COUNT));
    }
}
