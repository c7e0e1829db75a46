//! Keys that a transaction watches: a flag per transaction, raised by whoever changes the key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Raised when a watched key changed. Shared by the watching connection and the stripes.
#[derive(Debug, Clone, Default)]
pub struct WatchFlag(Arc<AtomicBool>);

impl WatchFlag {
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

type WatchedKey = (u8, Box<[u8]>);
type Flags = HashMap<WatchedKey, Vec<Weak<AtomicBool>>, foldhash::fast::FixedState>;

/// The watches of one stripe. Unless somebody watches this is one null pointer, which every write
/// looks at.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    flags: Option<Box<Flags>>,
}

fn raise(flags: &[Weak<AtomicBool>]) {
    flags.iter().filter_map(Weak::upgrade).for_each(|flag| WatchFlag(flag).raise());
}

impl Watches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.flags.is_none()
    }

    pub(crate) fn add(&mut self, db: u8, key: &[u8], flag: &WatchFlag) {
        self.prune();
        let flags = self.flags.get_or_insert_default().entry((db, key.into())).or_default();
        let new = Arc::downgrade(&flag.0);
        if !flags.iter().any(|known| known.ptr_eq(&new)) {
            flags.push(new);
        }
    }

    pub(crate) fn remove(&mut self, db: u8, key: &[u8], flag: &WatchFlag) {
        let gone = Arc::downgrade(&flag.0);
        let flags = self.flags.as_mut().and_then(|flags| flags.get_mut(&(db, Box::from(key))));
        if let Some(flags) = flags {
            flags.retain(|known| !known.ptr_eq(&gone));
        }
        self.prune();
    }

    /// Forgets flags whose owners are gone.
    fn prune(&mut self) {
        self.retain(|_, flags| {
            flags.retain(|flag| flag.strong_count() > 0);
            !flags.is_empty()
        });
    }

    fn retain(&mut self, keep: impl FnMut(&WatchedKey, &mut Vec<Weak<AtomicBool>>) -> bool) {
        let Some(flags) = &mut self.flags else { return };
        flags.retain(keep);
        if flags.is_empty() {
            self.flags = None;
        }
    }

    #[cold]
    pub(crate) fn touch(&mut self, db: u8, key: &[u8]) {
        self.retain(|(watched_db, watched), flags| {
            let touched = *watched_db == db && **watched == *key;
            if touched {
                raise(flags);
            }
            !touched
        });
    }

    /// Raises the flags of all watched keys for which `existed` holds.
    pub(crate) fn touch_where(&mut self, mut existed: impl FnMut(u8, &[u8]) -> bool) {
        self.retain(|(db, key), flags| {
            let touched = existed(*db, key);
            if touched {
                raise(flags);
            }
            !touched
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_raises_the_flags_of_its_key() {
        let mut watches = Watches::default();
        let (one, two) = (WatchFlag::default(), WatchFlag::default());
        watches.add(0, b"a", &one);
        watches.add(0, b"b", &two);
        watches.touch(1, b"a");
        assert!(!one.is_raised());
        watches.touch(0, b"a");
        assert!(one.is_raised() && !two.is_raised());
        watches.remove(0, b"b", &two);
        assert!(watches.is_empty());
    }

    #[test]
    fn a_watcher_that_is_gone_leaves_nothing_behind() {
        let mut watches = Watches::default();
        watches.add(0, b"a", &WatchFlag::default());
        watches.add(0, b"b", &WatchFlag::default());
        watches.prune();
        assert!(watches.is_empty());
    }
}
