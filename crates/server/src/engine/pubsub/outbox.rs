//! Messages about data changes whose receivers are not determined yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::message::{Publication, Publications};
use crate::engine::gate::Gate;

/// The messages of one command or one transaction.
#[derive(Debug, Default)]
struct Batch {
    posts: Publications,
    gate: Gate,
}

/// A single queue for all reactors, so that the messages are in log order. It needs no limit: a
/// connection whose request added messages waits until the queue is empty, so it holds the messages
/// of at most one request per connection, and background expiry pauses meanwhile.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Number of messages, including those of `current`. Read without the locks.
    len: AtomicUsize,
    bytes: AtomicUsize,
    waiting: Mutex<VecDeque<Batch>>,
    /// Locked while a message is taken and published.
    current: Mutex<Batch>,
    /// Whether a connection waits until the queue is empty.
    is_awaited: AtomicBool,
    /// The queue is empty, and the waiting connections are not resumed yet.
    has_emptied: AtomicBool,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, posts: Publications, gate: Gate) {
        self.bytes.fetch_add(posts.memory_bytes(), Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        self.len.fetch_add(posts.len(), Ordering::SeqCst);
        waiting.push_back(Batch { posts, gate });
    }

    /// Takes the oldest message and calls `send` with it. `None`: there is no message, or another
    /// reactor is taking one.
    pub(super) fn take<T>(&self, send: impl FnOnce(&Publication<'_>, Gate) -> T) -> Option<T> {
        // Does not block: the other reactor may compare patterns for milliseconds.
        let mut current = self.current.try_lock()?;
        if current.posts.len() == 0 {
            *current = self.waiting.lock().pop_front()?;
        }
        let sent = send(&current.posts.first()?, current.gate);
        current.posts.drop_first();
        if current.posts.len() == 0 {
            let done = std::mem::take(&mut *current);
            self.bytes.fetch_sub(done.posts.memory_bytes(), Ordering::Relaxed);
        }
        if self.len.fetch_sub(1, Ordering::SeqCst) == 1
            && self.is_awaited.swap(false, Ordering::SeqCst)
        {
            self.has_emptied.store(true, Ordering::Release);
        }
        Some(sent)
    }

    /// Whether messages remain. If so, [`Outbox::take_emptied_flag`] reports when none do.
    pub(super) fn stays(&self) -> bool {
        // The order matters: `take` writes and reads the two in the opposite order.
        self.is_awaited.store(true, Ordering::SeqCst);
        self.len() > 0
    }

    pub(super) fn take_emptied_flag(&self) -> bool {
        self.has_emptied.load(Ordering::Relaxed) && self.has_emptied.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Kind;
    use super::*;
    use crate::engine::gate::Lsn;

    fn posts(payloads: &[&str]) -> Publications {
        let mut posts = Publications::default();
        for payload in payloads {
            let payload = payload.as_bytes();
            posts.push(&Publication { channel: b"a", payload, kind: Kind::Channel });
        }
        posts
    }

    fn taken(outbox: &Outbox) -> Option<(String, Gate)> {
        outbox.take(|post, gate| (String::from_utf8(post.payload.to_vec()).unwrap(), gate))
    }

    #[test]
    fn messages_leave_in_order_and_those_who_wait_are_told_once() {
        let outbox = Outbox::default();
        assert_eq!(taken(&outbox), None);
        outbox.put(posts(&["1", "2"]), Gate::OPEN);
        outbox.put(posts(&["3"]), Gate::at(Lsn(7)));
        assert_eq!(outbox.len(), 3);
        assert!(outbox.bytes() > 0);
        assert_eq!(taken(&outbox), Some(("1".to_owned(), Gate::OPEN)));
        assert!(outbox.stays());
        assert_eq!(taken(&outbox), Some(("2".to_owned(), Gate::OPEN)));
        assert!(!outbox.take_emptied_flag());
        assert_eq!(taken(&outbox), Some(("3".to_owned(), Gate::at(Lsn(7)))));
        assert_eq!((taken(&outbox), outbox.len(), outbox.bytes()), (None, 0, 0));
        assert!(outbox.take_emptied_flag() && !outbox.take_emptied_flag());
        outbox.put(posts(&["4"]), Gate::OPEN);
        assert!(taken(&outbox).is_some());
        assert!(!outbox.take_emptied_flag(), "no connection waits");
        assert!(!outbox.stays());
    }

    #[test]
    fn one_takes_at_a_time() {
        let outbox = Outbox::default();
        outbox.put(posts(&["1", "2"]), Gate::OPEN);
        let inner = outbox.take(|_, _| taken(&outbox));
        assert_eq!(inner, Some(None));
        assert_eq!(outbox.len(), 1);
    }
}
