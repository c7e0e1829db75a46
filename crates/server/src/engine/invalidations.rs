//! CLIENT TRACKING: which clients cache which keys, and the invalidations on their way to them.
//!
//! A client in the default mode is a [`store::Reader`] of the keys that it has read. A broadcasting
//! client names prefixes instead. When a key changes, the reactor that changed it puts an
//! invalidation into the queue of each reactor that has such a client.
// Source: Redis documentation, "Client-side caching"

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use parking_lot::Mutex;
use reactor::ConnId;
use store::{ChangedKeys, Reader};

use crate::engine::inbox::Inbox;

/// Bytes of invalidations that wait for one reactor. Above it, its clients are notified that everything
/// has changed. The reactor sends them in one turn.
const QUEUE_BYTES_MAX: usize = if cfg!(test) { 4 << 10 } else { 16 << 20 };

/// Invalidations of one request. Above it, all clients are notified that everything has changed.
const REQUEST_INVALIDATIONS_MAX: usize = if cfg!(test) { 100 } else { 200_000 };

/// Memory of a queued invalidation beyond the name of its key.
const ITEM_BYTES: usize = 64;

/// Memory of a reader, and of a key with readers: their entries and a short name.
const READER_BYTES: usize = 32;
const READ_KEY_BYTES: usize = 256;

/// A key with a longer name is not tracked: a client that reads it is notified at once to forget it.
pub(crate) const TRACKED_NAME_BYTES_MAX: usize = 1024;

/// Prefixes of one broadcasting client, and of all.
pub(crate) const PREFIXES_MAX: usize = 1024;
const PREFIXES_OF_ALL_MAX: usize = 1 << 16;

/// Bytes of a prefix: a changed key is looked up by each length of a prefix.
pub(crate) const PREFIX_BYTES_MAX: usize = 128;

/// A key that a client must forget; `None`: all keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalidation {
    pub(crate) client: ConnId,
    pub(crate) key: Option<Box<[u8]>>,
    /// Whether another client has redirected it to this one.
    pub(crate) is_redirected: bool,
}

/// Invalidations that wait for a reactor.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) items: Vec<Invalidation>,
    bytes: usize,
    /// Every client of the reactor that tracks keys must forget all of them.
    pub(crate) is_flushed: bool,
}

impl Queue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && !self.is_flushed
    }

    /// Replaces all invalidations by one for all keys. Clients to which others redirect messages do
    /// not track keys themselves, so theirs are named.
    fn flush(&mut self) {
        self.is_flushed = true;
        self.items.retain(|one| one.is_redirected);
        self.items.sort_unstable_by_key(|one| one.client.0);
        self.items.dedup_by_key(|one| one.client);
        self.items.iter_mut().for_each(|one| one.key = None);
        self.items.shrink_to_fit();
        self.bytes = self.items.len() * ITEM_BYTES;
    }
}

/// The prefixes of all broadcasting clients.
#[derive(Debug, Clone, Default)]
struct Broadcasts {
    readers: HashMap<Box<[u8]>, Vec<Reader>, FixedState>,
    /// Lengths of the prefixes.
    lengths: BTreeSet<usize>,
    /// Number of pairs of prefix and client.
    count: usize,
}

impl Broadcasts {
    fn add(&mut self, reader: Reader, prefix: &[u8]) {
        self.readers.entry(prefix.into()).or_default().push(reader);
        self.lengths.insert(prefix.len());
        self.count += 1;
    }

    fn remove(&mut self, client: ConnId) {
        self.readers.retain(|_, readers| {
            readers.retain(|reader| reader.client != client.0);
            !readers.is_empty()
        });
        self.lengths = self.readers.keys().map(|prefix| prefix.len()).collect();
        self.count = self.readers.values().map(Vec::len).sum();
    }

    fn readers_of<'b>(&'b self, name: &'b [u8]) -> impl Iterator<Item = Reader> + 'b {
        let prefixes = self.lengths.range(..=name.len()).map(|length| &name[..*length]);
        prefixes.filter_map(|prefix| self.readers.get(prefix)).flatten().copied()
    }
}

/// Tracking clients of the server, and their invalidations.
#[derive(Debug)]
pub(crate) struct Invalidations {
    queues: Vec<Inbox<Queue>>,
    /// Of all broadcasting clients. Replaced as a whole, under the lock.
    broadcasts: ArcSwap<Broadcasts>,
    broadcasts_lock: Mutex<()>,
    has_broadcasts: AtomicBool,
    /// Clients with tracking on.
    clients: AtomicUsize,
}

impl Invalidations {
    pub(crate) fn new(reactors: usize) -> Invalidations {
        Invalidations {
            queues: (0..reactors).map(|_| Inbox::default()).collect(),
            broadcasts: ArcSwap::default(),
            broadcasts_lock: Mutex::default(),
            has_broadcasts: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
        }
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    pub(crate) fn client_came(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn client_left(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Prefixes of all broadcasting clients.
    pub(crate) fn prefixes(&self) -> usize {
        self.broadcasts.load().count
    }

    #[inline]
    pub(crate) fn has_broadcasts(&self) -> bool {
        self.has_broadcasts.load(Ordering::Relaxed)
    }

    /// Adds prefixes of a broadcasting client. False if there are too many.
    pub(crate) fn broadcast(&self, reader: Reader, prefixes: &[Box<[u8]>]) -> bool {
        let _guard = self.broadcasts_lock.lock();
        let mut all = Broadcasts::clone(&self.broadcasts.load());
        if all.count + prefixes.len() > PREFIXES_OF_ALL_MAX {
            return false;
        }
        for prefix in prefixes {
            all.add(reader, prefix);
        }
        self.replace(all);
        true
    }

    /// Removes the prefixes of a client.
    pub(crate) fn end_broadcast(&self, client: ConnId) {
        let _guard = self.broadcasts_lock.lock();
        let mut all = Broadcasts::clone(&self.broadcasts.load());
        all.remove(client);
        self.replace(all);
    }

    fn replace(&self, all: Broadcasts) {
        self.has_broadcasts.store(all.count > 0, Ordering::Relaxed);
        self.broadcasts.store(Arc::new(all));
    }

    /// Queues an invalidation. Returns whether the queue was empty: the caller then wakes the
    /// reactor.
    pub(crate) fn send(&self, reactor: usize, invalidation: Invalidation) -> bool {
        self.queues[reactor].add(|queue| {
            if queue.is_flushed && !invalidation.is_redirected {
                return false;
            }
            let was_empty = queue.is_empty();
            queue.bytes += invalidation.key.as_ref().map_or(0, |key| key.len()) + ITEM_BYTES;
            queue.items.push(invalidation);
            if queue.bytes > QUEUE_BYTES_MAX {
                queue.flush();
            }
            was_empty
        })
    }

    /// Queues the invalidations of changed keys. `except`: a client that does not want those of its
    /// own changes. Calls `wake` with each reactor that has something to do.
    pub(crate) fn send_changed(
        &self,
        changed: &mut ChangedKeys,
        names: &mut Vec<Box<[u8]>>,
        except: Option<ConnId>,
        mut wake: impl FnMut(usize),
    ) {
        let mut left = REQUEST_INVALIDATIONS_MAX;
        let mut send = |reader: Reader, key: &[u8]| {
            let client = ConnId(reader.client);
            if except == Some(client) || left == 0 {
                return left > 0;
            }
            left -= 1;
            let key = Some(key.into());
            if self.send(reader.reactor, Invalidation { client, key, is_redirected: false }) {
                wake(reader.reactor);
            }
            true
        };
        let of_keys = changed
            .invalidated
            .iter()
            .all(|key| key.readers.iter().all(|it| send(*it, &key.bytes)));
        let broadcasts = self.broadcasts.load();
        let all = of_keys
            && names.iter().all(|name| broadcasts.readers_of(name).all(|it| send(it, name)));
        changed.invalidated.clear();
        names.clear();
        if !all {
            self.flush();
            (0..self.queues.len()).for_each(wake);
        }
    }

    /// Notifies the clients of every reactor to forget all keys. The caller wakes the reactors.
    pub(crate) fn flush(&self) {
        self.queues.iter().for_each(|queue| queue.add(Queue::flush));
    }

    /// Takes the invalidations of a reactor.
    #[inline]
    pub(crate) fn take(&self, reactor: usize) -> Queue {
        self.queues[reactor].take()
    }

    /// Bytes of the invalidations that wait for a reactor.
    #[inline]
    pub(crate) fn queued_bytes(&self, reactor: usize) -> usize {
        self.queues[reactor].measure(|queue| queue.bytes).unwrap_or(0)
    }
}

/// Estimated memory of all readers.
pub(crate) fn reader_bytes(readers: store::Readers) -> usize {
    readers.all * READER_BYTES + readers.keys * READ_KEY_BYTES
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;
    use store::InvalidatedKey;

    use super::*;

    fn reader(client: u64) -> Reader {
        Reader { reactor: 0, client }
    }

    fn names(invalidations: &Invalidations) -> Vec<(u64, String)> {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let items = invalidations.take(0).items.into_iter();
        items.map(|one| (one.client.0, text(&one.key.unwrap()))).collect()
    }

    #[test]
    fn readers_and_prefixes_receive_changed_keys() {
        let invalidations = Invalidations::new(1);
        let prefixes: [Box<[u8]>; 2] = [(*b"user:").into(), (*b"x").into()];
        assert!(invalidations.broadcast(reader(1), &prefixes));
        assert!(invalidations.broadcast(reader(2), &[Box::default()]));
        let readers = SmallVec::from_iter([reader(3), reader(4)]);
        let key = InvalidatedKey { bytes: (*b"user:1").into(), readers };
        let mut changed = ChangedKeys { invalidated: vec![key], ..ChangedKeys::default() };
        let mut changed_names: Vec<Box<[u8]>> = vec![(*b"user:1").into(), (*b"y").into()];
        let mut woken = 0;
        invalidations
            .send_changed(&mut changed, &mut changed_names, Some(ConnId(4)), |_| woken += 1);
        assert_eq!(woken, 1, "the first invalidation wakes the reactor");
        let expected = [(3, "user:1"), (2, "user:1"), (1, "user:1"), (2, "y")];
        let expected: Vec<_> = expected.map(|(id, key)| (id, key.to_owned())).into();
        assert_eq!(names(&invalidations), expected);
        invalidations.end_broadcast(ConnId(1));
        invalidations.end_broadcast(ConnId(2));
        assert!(!invalidations.has_broadcasts());
    }

    #[test]
    fn too_many_invalidations_become_a_flush() {
        let invalidations = Invalidations::new(2);
        for client in 0..10 {
            let reader = Reader { reactor: 0, client };
            assert!(invalidations.broadcast(reader, &[Box::default(), (*b"ab").into()]));
        }
        assert_eq!(invalidations.prefixes(), 20);
        let send = |names: usize| {
            let mut names: Vec<Box<[u8]>> = vec![(*b"a").into(); names];
            let mut woken = 0;
            let mut changed = ChangedKeys::default();
            invalidations.send_changed(&mut changed, &mut names, None, |_| woken += 1);
            let queues = [invalidations.take(0), invalidations.take(1)];
            (queues.map(|queue| (queue.items.len(), queue.is_flushed)), woken)
        };
        assert_eq!(send(5), ([(50, false), (0, false)], 1));
        assert_eq!(send(11).0, [(0, true), (0, true)]);
    }

    #[test]
    fn redirected_invalidations_survive_a_flush() {
        let invalidations = Invalidations::new(1);
        let redirected = |client, key: Option<&[u8]>| Invalidation {
            client: ConnId(client),
            key: key.map(Box::from),
            is_redirected: true,
        };
        assert!(invalidations.send(0, redirected(2, Some(b"k"))));
        invalidations.send(0, redirected(2, Some(b"l")));
        invalidations.flush();
        assert!(!invalidations.send(0, redirected(3, None)), "the reactor is awake");
        let queue = invalidations.take(0);
        assert!(queue.is_flushed);
        assert_eq!(queue.items, [redirected(2, None), redirected(3, None)]);
    }

    #[test]
    fn a_full_queue_becomes_a_flush() {
        let invalidations = Invalidations::new(1);
        let one = Invalidation {
            client: ConnId(1),
            key: Some(vec![0; 1000].into()),
            is_redirected: false,
        };
        for _ in 0..10 {
            invalidations.send(0, one.clone());
        }
        let queue = invalidations.take(0);
        assert!(queue.is_flushed && queue.items.is_empty());
        assert!(!invalidations.take(0).is_flushed);
    }
}
