//! Keys that transactions watch: one flag per transaction, raised when one of its keys changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::key::Key;

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

    fn is(&self, other: &WatchFlag) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One transaction that watches a key.
#[derive(Debug)]
struct Watcher {
    flag: WatchFlag,
    /// The key had expired already when the watch began: its removal is not a change.
    was_overdue: bool,
}

#[derive(Debug)]
struct WatchedKey {
    db: u8,
    bytes: Box<[u8]>,
    watchers: SmallVec<[Watcher; 1]>,
}

impl WatchedKey {
    fn is(&self, db: u8, bytes: &[u8]) -> bool {
        self.db == db && *self.bytes == *bytes
    }

    /// Raises the flags of the watchers for which a change counts, and removes these watchers.
    fn touch(&mut self, exists_now: bool) {
        self.watchers.retain(|watcher| {
            if watcher.was_overdue && !exists_now {
                watcher.was_overdue = false;
                return true;
            }
            watcher.flag.raise();
            false
        });
    }
}

/// Watched keys by hash. Several if hashes collide, or one key is watched in several databases.
type ByHash = HashMap<u64, SmallVec<[WatchedKey; 1]>, foldhash::fast::FixedState>;

/// The watches of one stripe. While there are none this is one null pointer, which every write checks.
///
/// A watch is removed when its transaction ends or its key changes, so all operations are lookups: none
/// visits the watches of other keys.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: Option<Box<ByHash>>,
}

impl Watches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.iter().flat_map(|keys| keys.values()).map(SmallVec::len).sum()
    }

    /// Adds a watch. `flag` must not watch the key yet.
    pub(crate) fn add(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag, was_overdue: bool) {
        let found = self.keys.get_or_insert_default().entry(key.hash).or_default();
        let watcher = Watcher { flag: flag.clone(), was_overdue };
        if let Some(known) = found.iter_mut().find(|known| known.is(db, key.bytes)) {
            known.watchers.push(watcher);
        } else {
            let watchers = SmallVec::from_iter([watcher]);
            found.push(WatchedKey { db, bytes: key.bytes.into(), watchers });
        }
    }

    pub(crate) fn remove(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.change(db, key, |watched| {
            watched.watchers.retain(|watcher| !watcher.flag.is(flag));
        });
    }

    /// A key has changed; `exists_now`: it was not removed.
    #[cold]
    pub(crate) fn touch(&mut self, db: u8, key: Key<'_>, exists_now: bool) {
        self.change(db, key, |watched| watched.touch(exists_now));
    }

    fn change(&mut self, db: u8, key: Key<'_>, change: impl FnOnce(&mut WatchedKey)) {
        let Some(keys) = &mut self.keys else { return };
        debug_assert!(!keys.is_empty(), "without watches there is no map");
        let Some(found) = keys.get_mut(&key.hash) else { return };
        if let Some(at) = found.iter().position(|known| known.is(db, key.bytes)) {
            change(&mut found[at]);
            if found[at].watchers.is_empty() {
                found.remove(at);
            }
        }
        if found.is_empty() {
            keys.remove(&key.hash);
        }
        if keys.is_empty() {
            self.keys = None;
        }
    }

    /// The keys of a database, or of all, are removed: those for which `existed` holds change.
    pub(crate) fn flush(&mut self, db: Option<u8>, existed: impl Fn(u8, Key<'_>) -> bool) {
        let Some(keys) = &mut self.keys else { return };
        keys.retain(|hash, found| {
            found.retain(|known| {
                let is_flushed = db.is_none_or(|db| db == known.db);
                if is_flushed && existed(known.db, Key { bytes: &known.bytes, hash: *hash }) {
                    known.touch(false);
                }
                !known.watchers.is_empty()
            });
            !found.is_empty()
        });
        if keys.is_empty() {
            self.keys = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: bool = false;
    const OVERDUE: bool = true;

    /// Hashes that collide on purpose: they depend on the first byte only.
    fn key(bytes: &[u8]) -> Key<'_> {
        Key { bytes, hash: bytes[0].into() }
    }

    #[test]
    fn a_change_raises_the_flags_of_its_key_alone() {
        let mut watches = Watches::default();
        let (one, two, three) = (WatchFlag::default(), WatchFlag::default(), WatchFlag::default());
        watches.add(0, key(b"a"), &one, LIVE);
        watches.add(0, key(b"ab"), &two, LIVE);
        watches.add(1, key(b"a"), &three, LIVE);
        watches.touch(2, key(b"a"), true);
        watches.touch(0, key(b"abc"), true);
        assert!(!one.is_raised());
        watches.touch(0, key(b"a"), true);
        assert!(one.is_raised() && !two.is_raised() && !three.is_raised());
        watches.remove(0, key(b"ab"), &three);
        watches.remove(0, key(b"ab"), &two);
        watches.remove(0, key(b"ab"), &two);
        assert!(!watches.is_empty());
        watches.remove(1, key(b"a"), &three);
        assert!(watches.is_empty());
    }

    #[test]
    fn several_transactions_watch_one_key() {
        let mut watches = Watches::default();
        let flags: Vec<WatchFlag> = (0..3).map(|_| WatchFlag::default()).collect();
        for flag in &flags {
            watches.add(0, key(b"a"), flag, LIVE);
        }
        watches.remove(0, key(b"a"), &flags[1]);
        watches.touch(0, key(b"a"), false);
        let raised: Vec<bool> = flags.iter().map(WatchFlag::is_raised).collect();
        assert_eq!(raised, [true, false, true]);
        assert!(watches.is_empty());
    }

    // Source: Redis 7.2 `multi.c`, `touchWatchedKey`
    #[test]
    fn removal_of_a_key_that_had_expired_before_is_not_a_change() {
        let mut watches = Watches::default();
        let flag = WatchFlag::default();
        watches.add(0, key(b"a"), &flag, OVERDUE);
        watches.touch(0, key(b"a"), false);
        assert!(!flag.is_raised());
        watches.touch(0, key(b"a"), true);
        assert!(flag.is_raised() && watches.is_empty());
        let flag = WatchFlag::default();
        watches.add(0, key(b"a"), &flag, OVERDUE);
        watches.touch(0, key(b"a"), true);
        assert!(flag.is_raised());
    }

    #[test]
    fn a_flush_changes_what_existed() {
        let mut watches = Watches::default();
        let names: [&[u8]; 4] = [b"absent", b"b", b"c", b"d"];
        let flags: Vec<WatchFlag> = names.iter().map(|_| WatchFlag::default()).collect();
        for (name, flag) in names.iter().zip(&flags) {
            let db = u8::from(*name == b"c");
            watches.add(db, key(name), flag, if *name == b"d" { OVERDUE } else { LIVE });
        }
        let existed = |_, key: Key<'_>| key.bytes != b"absent";
        let raised = || flags.iter().map(WatchFlag::is_raised).collect::<Vec<_>>();
        watches.flush(Some(0), existed);
        assert_eq!(raised(), [false, true, false, false]);
        watches.flush(None, existed);
        assert_eq!(raised(), [false, true, true, true], "d existed again");
        watches.remove(0, key(b"absent"), &flags[0]);
        assert!(watches.is_empty());
    }
}
