//! Messages that changes of the data have left, before it is known who gets them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::message::{Post, Posts};
use crate::gate::Gate;

/// What one command, or one transaction, has left.
#[derive(Debug, Default)]
struct Batch {
    posts: Posts,
    gate: Gate,
}

/// One for all reactors: the messages are in the order of the log, whoever has made the changes. It has
/// no limit of its own: a connection that has put something in waits until it is empty, so that each has
/// put in what one request leaves, and no reactor looks for expired keys meanwhile.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Messages, those of `current` included. Read without the locks.
    len: AtomicUsize,
    bytes: AtomicUsize,
    waiting: Mutex<VecDeque<Batch>>,
    /// Held by the one who takes a message, until that is on its way.
    current: Mutex<Batch>,
    /// Somebody waits until it is empty.
    is_awaited: AtomicBool,
    /// It is, and those were not told yet.
    has_emptied: AtomicBool,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, posts: Posts, gate: Gate) {
        self.bytes.fetch_add(posts.memory_bytes(), Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        self.len.fetch_add(posts.len(), Ordering::SeqCst);
        waiting.push_back(Batch { posts, gate });
    }

    /// Takes the oldest message and sends it on its way. None: another one does so, or there is none.
    pub(super) fn take<T>(&self, send: impl FnOnce(&Post<'_>, Gate) -> T) -> Option<T> {
        // Never waits: the other one may compare for milliseconds.
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

    /// Whether something is left. If so somebody is told when nothing is any more.
    pub(super) fn stays(&self) -> bool {
        // In this order: who takes the last message looks at it the other way round.
        self.is_awaited.store(true, Ordering::SeqCst);
        self.len() > 0
    }

    pub(super) fn take_has_emptied(&self) -> bool {
        self.has_emptied.load(Ordering::Relaxed) && self.has_emptied.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Kind;
    use super::*;
    use crate::gate::Lsn;

    fn posts(payloads: &[&str]) -> Posts {
        let mut posts = Posts::default();
        for payload in payloads {
            let payload = payload.as_bytes();
            posts.push(&Post { channel: b"a", payload, kind: Kind::Channel });
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
        assert!(!outbox.take_has_emptied());
        assert_eq!(taken(&outbox), Some(("3".to_owned(), Gate::at(Lsn(7)))));
        assert_eq!((taken(&outbox), outbox.len(), outbox.bytes()), (None, 0, 0));
        assert!(outbox.take_has_emptied() && !outbox.take_has_emptied());
        outbox.put(posts(&["4"]), Gate::OPEN);
        assert!(taken(&outbox).is_some());
        assert!(!outbox.take_has_emptied(), "nobody has waited");
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
