//! Keys that transactions watch, clients are blocked on, or clients cache.
//!
//! A transaction has one flag, which is raised when one of its keys changes. A blocked client has a
//! ticket; a key with tickets that changes becomes a [`ReadyKey`]. A client that caches a key is a
//! [`Reader`] of it until the key changes and becomes an [`InvalidatedKey`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::change::Kind;
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

/// The place of a blocked client in the queue of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Grows with the arrival of clients.
    pub number: u64,
    /// The type of collection that the client waits for.
    pub kind: Kind,
    /// Whether it also waits for the key to have no value of this type.
    pub ends_without_key: bool,
}

/// Numbers of keys that clients are blocked on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AwaitedKeys {
    pub all: usize,
    /// Keys with a ticket that [ends without the key](Ticket::ends_without_key).
    pub ending: usize,
}

impl std::ops::Sub for AwaitedKeys {
    type Output = AwaitedKeys;

    fn sub(self, other: AwaitedKeys) -> AwaitedKeys {
        AwaitedKeys { all: self.all - other.all, ending: self.ending - other.ending }
    }
}

/// A key that changed while clients were blocked on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyKey {
    pub db: u8,
    pub bytes: Box<[u8]>,
    pub hash: u64,
    /// The ticket to start with: 0 for all.
    pub first_ticket: u64,
}

impl ReadyKey {
    pub fn key(&self) -> Key<'_> {
        Key { bytes: &self.bytes, hash: self.hash }
    }
}

/// A client that caches a key: its number, and the reactor that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    pub reactor: usize,
    pub client: u64,
}

/// Numbers of readers, and of keys that have some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readers {
    pub all: usize,
    pub keys: usize,
}

impl Readers {
    fn of(readers: &[Reader]) -> Readers {
        Readers { all: readers.len(), keys: usize::from(!readers.is_empty()) }
    }
}

impl std::ops::AddAssign for Readers {
    fn add_assign(&mut self, other: Readers) {
        self.all += other.all;
        self.keys += other.keys;
    }
}

/// A key that changed, and the clients that cached it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidatedKey {
    pub bytes: Box<[u8]>,
    pub readers: SmallVec<[Reader; 1]>,
}

/// Keys that changed and concern clients.
#[derive(Debug, Default)]
pub struct ChangedKeys {
    pub ready: VecDeque<ReadyKey>,
    pub invalidated: Vec<InvalidatedKey>,
}

impl ChangedKeys {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.invalidated.is_empty()
    }

    pub fn append(&mut self, other: &mut ChangedKeys) {
        self.ready.append(&mut other.ready);
        self.invalidated.append(&mut other.invalidated);
    }
}

#[derive(Debug)]
struct WatchedKey {
    db: u8,
    bytes: Box<[u8]>,
    watchers: SmallVec<[Watcher; 1]>,
    /// Of blocked clients, in the order of their numbers.
    tickets: VecDeque<Ticket>,
    /// How many of them have [`Ticket::ends_without_key`].
    endings: usize,
    /// Whether it is among the changed keys because of its tickets.
    is_ready: bool,
    readers: SmallVec<[Reader; 1]>,
}

impl WatchedKey {
    fn is(&self, db: u8, bytes: &[u8]) -> bool {
        self.db == db && *self.bytes == *bytes
    }

    fn counts(&self) -> AwaitedKeys {
        let has_tickets = !self.tickets.is_empty();
        AwaitedKeys { all: usize::from(has_tickets), ending: usize::from(self.endings > 0) }
    }

    fn is_unused(&self) -> bool {
        self.watchers.is_empty() && self.tickets.is_empty() && self.readers.is_empty()
    }

    /// Raises the flags of the watchers for which a change counts, and removes these watchers and
    /// the readers.
    fn touch(&mut self, hash: u64, exists_now: bool, changed: &mut ChangedKeys) {
        if !self.tickets.is_empty() && !self.is_ready {
            self.is_ready = true;
            let (db, bytes) = (self.db, self.bytes.clone());
            changed.ready.push_back(ReadyKey { db, bytes, hash, first_ticket: 0 });
        }
        if !self.readers.is_empty() {
            let readers = std::mem::take(&mut self.readers);
            changed.invalidated.push(InvalidatedKey { bytes: self.bytes.clone(), readers });
        }
        self.raise(|watcher| {
            let remains_absent = watcher.was_overdue && !exists_now;
            watcher.was_overdue &= !remains_absent;
            !remains_absent
        });
    }

    /// Like [`WatchedKey::touch`], for a key that another database had. Of the watches only those
    /// for which the key appears, disappears or is replaced are raised.
    // Source: Redis 7.2 `multi.c`, `touchAllWatchedKeysInDb`
    fn swap(&mut self, hash: u64, existed: bool, now: Option<Presence>, changed: &mut ChangedKeys) {
        if !existed && now.is_none() {
            return;
        }
        let watchers = std::mem::take(&mut self.watchers);
        self.touch(hash, now.is_some(), changed);
        self.watchers = watchers;
        self.raise(|watcher| {
            let was_absent = watcher.was_overdue || !existed;
            let is_absent = now != Some(Presence::Live);
            watcher.was_overdue = now == Some(Presence::Overdue);
            !(was_absent && is_absent)
        });
    }

    /// Raises the flags of the watchers for which `changes` holds, and removes these watchers.
    fn raise(&mut self, mut changes: impl FnMut(&mut Watcher) -> bool) {
        self.watchers.retain(|watcher| {
            let is_raised = changes(watcher);
            if is_raised {
                watcher.flag.raise();
            }
            !is_raised
        });
    }
}

/// A key that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Live,
    /// It has expired, and is not yet removed.
    Overdue,
}

/// Watched keys by hash. Several if hashes collide, or one key is watched in several databases.
type ByHash = HashMap<u64, SmallVec<[WatchedKey; 1]>, foldhash::fast::FixedState>;

#[derive(Debug, Default)]
struct Table {
    keys: ByHash,
    changed: ChangedKeys,
}

/// The watches, blocked clients and readers of one stripe. While there are none this is one null
/// pointer, which every write checks.
///
/// A watch is removed when its transaction ends or its key changes, a ticket when its client no
/// longer waits, a reader when its key changes. All operations but a flush are lookups.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    table: Option<Box<Table>>,
}

impl Watches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_none()
    }

    /// Keys that transactions watch.
    pub(crate) fn watched(&self) -> usize {
        let all = self.table.iter().flat_map(|table| table.keys.values()).flatten();
        all.filter(|known| !known.watchers.is_empty()).count()
    }

    fn find(&self, db: u8, key: Key<'_>) -> Option<&WatchedKey> {
        let found = self.table.as_ref()?.keys.get(&key.hash)?;
        found.iter().find(|known| known.is(db, key.bytes))
    }

    fn find_or_insert(&mut self, db: u8, key: Key<'_>) -> &mut WatchedKey {
        let found = self.table.get_or_insert_default().keys.entry(key.hash).or_default();
        let at = found.iter().position(|known| known.is(db, key.bytes)).unwrap_or_else(|| {
            found.push(WatchedKey {
                db,
                bytes: key.bytes.into(),
                watchers: SmallVec::new(),
                tickets: VecDeque::new(),
                endings: 0,
                is_ready: false,
                readers: SmallVec::new(),
            });
            found.len() - 1
        });
        &mut found[at]
    }

    /// Adds the ticket of a blocked client, which is newer than those of the key, or the same as its
    /// last one. Returns by how much the counts of keys grow.
    pub(crate) fn add_ticket(&mut self, db: u8, key: Key<'_>, ticket: Ticket) -> AwaitedKeys {
        let known = self.find_or_insert(db, key);
        let before = known.counts();
        let last = known.tickets.back().map_or(0, |last| last.number);
        debug_assert!(last <= ticket.number, "tickets are in order");
        if last != ticket.number {
            known.tickets.push_back(ticket);
            known.endings += usize::from(ticket.ends_without_key);
        }
        known.counts() - before
    }

    /// Removes the ticket of a client that no longer waits. Returns by how much the counts of keys
    /// shrink.
    pub(crate) fn remove_ticket(&mut self, db: u8, key: Key<'_>, number: u64) -> AwaitedKeys {
        let mut shrunk = AwaitedKeys::default();
        self.change(db, key, |known| {
            let before = known.counts();
            if let Ok(at) = known.tickets.binary_search_by_key(&number, |ticket| ticket.number) {
                let ticket = known.tickets.remove(at).expect("just found");
                known.endings -= usize::from(ticket.ends_without_key);
            }
            shrunk = before - known.counts();
        });
        shrunk
    }

    /// The tickets of a key, in order.
    pub(crate) fn tickets(&self, db: u8, key: Key<'_>) -> impl Iterator<Item = Ticket> + use<'_> {
        self.find(db, key).into_iter().flat_map(|known| known.tickets.iter().copied())
    }

    /// The first ticket with at least this number that a key whose value is of type `kind` can
    /// serve. O(1) but for tickets that wait for other types.
    pub(crate) fn next_ticket(
        &self,
        db: u8,
        key: Key<'_>,
        first: u64,
        kind: Option<Kind>,
    ) -> Option<u64> {
        let WatchedKey { tickets, endings, .. } = self.find(db, key)?;
        if kind.is_none() && *endings == 0 {
            return None;
        }
        let start = tickets.partition_point(|ticket| ticket.number < first);
        let fits = |ticket: &&Ticket| kind == Some(ticket.kind) || ticket.ends_without_key;
        tickets.range(start..).find(fits).map(|ticket| ticket.number)
    }

    /// Adds a reader of a key. Returns by how much their numbers grow.
    pub(crate) fn add_reader(&mut self, db: u8, key: Key<'_>, reader: Reader) -> Readers {
        let readers = &mut self.find_or_insert(db, key).readers;
        if readers.contains(&reader) {
            return Readers::default();
        }
        readers.push(reader);
        Readers { all: 1, keys: usize::from(readers.len() == 1) }
    }

    /// Whether there are keys for [`Watches::take_changed`].
    pub(crate) fn has_changed(&self) -> bool {
        self.table.as_ref().is_some_and(|table| !table.changed.is_empty())
    }

    /// Moves the keys that have changed since the last call. Returns the number of their readers.
    #[cold]
    pub(crate) fn take_changed(&mut self, changed: &mut ChangedKeys) -> Readers {
        let mut removed = Readers::default();
        let Some(table) = &mut self.table else { return removed };
        table.changed.invalidated.iter().for_each(|key| removed += Readers::of(&key.readers));
        for ready in &table.changed.ready {
            let found = table.keys.get_mut(&ready.hash).into_iter().flatten();
            let mut same = found.filter(|known| known.is(ready.db, &ready.bytes));
            if let Some(known) = same.next() {
                known.is_ready = false;
            }
        }
        changed.append(&mut table.changed);
        self.release();
        removed
    }

    /// Frees the table if it is empty.
    fn release(&mut self) {
        let is_unused = |table: &Table| table.keys.is_empty() && table.changed.is_empty();
        if self.table.as_deref().is_some_and(is_unused) {
            self.table = None;
        }
    }

    /// Adds a watch. `flag` must not watch the key yet.
    pub(crate) fn add(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag, was_overdue: bool) {
        let watcher = Watcher { flag: flag.clone(), was_overdue };
        self.find_or_insert(db, key).watchers.push(watcher);
    }

    pub(crate) fn remove(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.change(db, key, |watched| {
            watched.watchers.retain(|watcher| !watcher.flag.is(flag));
        });
    }

    /// A key has changed; `exists_now`: it was not removed.
    #[cold]
    pub(crate) fn touch(&mut self, db: u8, key: Key<'_>, exists_now: bool) {
        self.change_with(db, key, |watched, changed| watched.touch(key.hash, exists_now, changed));
    }

    fn change(&mut self, db: u8, key: Key<'_>, change: impl FnOnce(&mut WatchedKey)) {
        self.change_with(db, key, |watched, _| change(watched));
    }

    fn change_with(
        &mut self,
        db: u8,
        key: Key<'_>,
        change: impl FnOnce(&mut WatchedKey, &mut ChangedKeys),
    ) {
        let Some(table) = &mut self.table else { return };
        let Some(found) = table.keys.get_mut(&key.hash) else { return };
        if let Some(at) = found.iter().position(|known| known.is(db, key.bytes)) {
            change(&mut found[at], &mut table.changed);
            if found[at].is_unused() {
                found.remove(at);
            }
        }
        if found.is_empty() {
            table.keys.remove(&key.hash);
        }
        self.release();
    }

    /// Two databases were exchanged; `find`: what they have now. Removes the readers of their keys,
    /// which the caller notifies that everything has changed. Returns the number of these readers.
    pub(crate) fn swap(
        &mut self,
        dbs: [u8; 2],
        find: impl Fn(u8, Key<'_>) -> Option<Presence>,
    ) -> Readers {
        let mut removed = Readers::default();
        let Some(table) = &mut self.table else { return removed };
        table.keys.retain(|hash, found| {
            found.retain(|known| {
                let Some(at) = dbs.iter().position(|db| *db == known.db) else { return true };
                removed += Readers::of(&known.readers);
                known.readers.clear();
                let bytes = known.bytes.clone();
                let [now, before] =
                    [dbs[at], dbs[1 - at]].map(|db| find(db, Key { bytes: &bytes, hash: *hash }));
                known.swap(*hash, before.is_some(), now, &mut table.changed);
                !known.is_unused()
            });
            !found.is_empty()
        });
        self.release();
        removed
    }

    /// The keys of a database, or of all, are removed: those for which `existed` holds change.
    /// Removes their readers, which the caller notifies that everything has changed. Returns the number
    /// of these readers.
    pub(crate) fn flush(
        &mut self,
        db: Option<u8>,
        existed: impl Fn(u8, Key<'_>) -> bool,
    ) -> Readers {
        let mut removed = Readers::default();
        let Some(table) = &mut self.table else { return removed };
        table.keys.retain(|hash, found| {
            found.retain(|known| {
                let is_flushed = db.is_none_or(|db| db == known.db);
                if is_flushed {
                    removed += Readers::of(&known.readers);
                    known.readers.clear();
                }
                if is_flushed && existed(known.db, Key { bytes: &known.bytes, hash: *hash }) {
                    known.touch(*hash, false, &mut table.changed);
                }
                !known.is_unused()
            });
            !found.is_empty()
        });
        self.release();
        removed
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

    fn ready(watches: &mut Watches) -> Vec<(u8, Vec<u8>)> {
        let mut changed = ChangedKeys::default();
        watches.take_changed(&mut changed);
        let ready = changed.ready.into_iter();
        let mut ready: Vec<_> = ready.map(|key| (key.db, key.bytes.to_vec())).collect();
        ready.sort();
        ready
    }

    fn ticket(number: u64) -> Ticket {
        Ticket { number, kind: Kind::List, ends_without_key: number == 5 }
    }

    #[test]
    fn a_changed_key_with_tickets_is_ready_once() {
        let mut watches = Watches::default();
        watches.add_ticket(0, key(b"a"), ticket(3));
        watches.add_ticket(0, key(b"a"), ticket(3));
        watches.add_ticket(0, key(b"ab"), ticket(4));
        watches.add_ticket(0, key(b"a"), ticket(5));
        watches.add_ticket(1, key(b"a"), ticket(6));
        watches.add(0, key(b"c"), &WatchFlag::default(), LIVE);
        watches.touch(0, key(b"a"), true);
        watches.touch(0, key(b"a"), false);
        watches.touch(0, key(b"c"), true);
        assert_eq!(ready(&mut watches), [(0, b"a".to_vec())]);
        assert_eq!(ready(&mut watches), []);
        let tickets: Vec<u64> = watches.tickets(0, key(b"a")).map(|one| one.number).collect();
        assert_eq!(tickets, [3, 5]);
        for (name, first, kind, expected) in [
            (b"a" as &[u8], 0, Some(Kind::List), Some(3)),
            (b"a", 4, Some(Kind::List), Some(5)),
            (b"a", 0, Some(Kind::Hash), Some(5)),
            (b"a", 0, None, Some(5)),
            (b"a", 6, Some(Kind::List), None),
            (b"ab", 0, None, None),
            (b"none", 0, Some(Kind::List), None),
        ] {
            assert_eq!(watches.next_ticket(0, key(name), first, kind), expected, "{name:?}");
        }
        assert_eq!(watches.watched(), 0);
        watches.flush(Some(0), |_, key| key.bytes == b"ab");
        assert_eq!(ready(&mut watches), [(0, b"ab".to_vec())]);
        for (db, name, ticket, all, ending) in [
            (0, b"a" as &[u8], 3, 0, 0),
            (0, b"ab", 4, 1, 0),
            (0, b"a", 5, 1, 1),
            (1, b"a", 6, 1, 0),
        ] {
            let shrunk = watches.remove_ticket(db, key(name), ticket);
            assert_eq!(shrunk, AwaitedKeys { all, ending }, "{ticket}");
            assert_eq!(watches.remove_ticket(db, key(name), ticket), AwaitedKeys::default());
        }
        assert!(watches.is_empty());
    }

    #[test]
    fn a_changed_key_names_its_readers_once() {
        let mut watches = Watches::default();
        let reader = |client| Reader { reactor: 1, client };
        for (name, client, all, keys) in
            [(b"a" as &[u8], 7, 1, 1), (b"a", 7, 0, 0), (b"a", 8, 1, 0), (b"ab", 7, 1, 1)]
        {
            let grown = watches.add_reader(0, key(name), reader(client));
            assert_eq!(grown, Readers { all, keys }, "{client}");
        }
        watches.touch(0, key(b"a"), true);
        watches.touch(0, key(b"a"), true);
        watches.touch(1, key(b"ab"), true);
        assert!(watches.has_changed());
        let mut changed = ChangedKeys::default();
        assert_eq!(watches.take_changed(&mut changed), Readers { all: 2, keys: 1 });
        let readers = SmallVec::from_iter([reader(7), reader(8)]);
        assert_eq!(changed.invalidated, [InvalidatedKey { bytes: (*b"a").into(), readers }]);
        assert!(!watches.has_changed());
        assert_eq!(watches.flush(Some(0), |_, _| true), Readers { all: 1, keys: 1 });
        assert!(!watches.has_changed(), "the caller notifies the readers");
        assert!(watches.is_empty());
    }

    #[test]
    fn a_swap_changes_what_appears_or_disappears() {
        const LIVE_NOW: Option<Presence> = Some(Presence::Live);
        const OVERDUE_NOW: Option<Presence> = Some(Presence::Overdue);
        // The name, whether it was overdue, what the databases have after the swap, and whether
        // this is a change.
        for (was_overdue, in_0, in_1, is_change) in [
            (LIVE, None, None, false),
            (LIVE, LIVE_NOW, None, true),
            (LIVE, None, LIVE_NOW, true),
            (LIVE, LIVE_NOW, LIVE_NOW, true),
            (LIVE, OVERDUE_NOW, None, false),
            (LIVE, OVERDUE_NOW, LIVE_NOW, true),
            (OVERDUE, None, OVERDUE_NOW, false),
            (OVERDUE, OVERDUE_NOW, OVERDUE_NOW, false),
            (OVERDUE, LIVE_NOW, OVERDUE_NOW, true),
        ] {
            let mut watches = Watches::default();
            let (flag, other) = (WatchFlag::default(), WatchFlag::default());
            watches.add(0, key(b"a"), &flag, was_overdue);
            watches.add(2, key(b"a"), &other, LIVE);
            watches.add_ticket(0, key(b"a"), ticket(3));
            let readers = watches.add_reader(1, key(b"ab"), Reader { reactor: 0, client: 1 });
            let find = |db, _: Key<'_>| if db == 0 { in_0 } else { in_1 };
            assert_eq!(watches.swap([1, 0], find), readers);
            let case = (was_overdue, in_0, in_1);
            assert_eq!((flag.is_raised(), other.is_raised()), (is_change, false), "{case:?}");
            let is_ready = in_0.is_some() || in_1.is_some();
            assert_eq!(ready(&mut watches).len(), usize::from(is_ready), "{case:?}");
        }
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
