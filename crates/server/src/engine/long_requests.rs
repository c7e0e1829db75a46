//! Requests that process more elements than `elements-per-command-max`: they run on threads outside
//! the reactors, so that only requests for the same stripes wait for them.
//!
//! A reactor begins each request. One that turns out to be long, and has changed nothing yet, is
//! queued here, and its client waits for the reply like one that is [blocked](super::blocked) on
//! keys. `commands::long_requests` runs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use parking_lot::{Condvar, Mutex};

use super::blocked::BlockedClient;
use super::threads::Threads;

/// Requests that wait for a thread; further ones are refused.
const WAITING_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct LongRequests {
    waiting: Mutex<VecDeque<Arc<BlockedClient>>>,
    filled: Condvar,
    is_over: AtomicBool,
    /// Threads that may be changing data.
    writers: AtomicUsize,
    /// Number of threads; 0: long requests are refused.
    pub(crate) threads_max: usize,
    pub(crate) threads: Threads,
}

impl LongRequests {
    pub(crate) fn new(threads_max: usize) -> LongRequests {
        LongRequests {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            is_over: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            threads_max,
            threads: Threads::default(),
        }
    }

    /// Ends the threads once their running requests have ended; requests that wait are dropped.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.waiting.lock());
        self.filled.notify_all();
        self.threads.join();
    }

    /// Queues a request. False if too many wait, or there are no threads.
    pub(crate) fn push(&self, client: &Arc<BlockedClient>) -> bool {
        let mut waiting = self.waiting.lock();
        if self.threads_max == 0 || waiting.len() >= WAITING_MAX {
            return false;
        }
        waiting.push_back(Arc::clone(client));
        drop(waiting);
        self.filled.notify_one();
        true
    }

    /// The next request. `None`: the server stops.
    pub(crate) fn pop(&self) -> Option<Arc<BlockedClient>> {
        let mut waiting = self.waiting.lock();
        while !self.is_over() {
            if let Some(client) = waiting.pop_front() {
                return Some(client);
            }
            self.filled.wait(&mut waiting);
        }
        None
    }

    /// Takes the requests that wait.
    #[cfg(test)]
    pub(crate) fn take(&self) -> VecDeque<Arc<BlockedClient>> {
        std::mem::take(&mut self.waiting.lock())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes that a thread may change data until the result is dropped. It checks afterwards
    /// whether the server takes writes.
    pub(crate) fn begin_write(&self) -> Writing<'_> {
        self.writers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Writing(&self.writers)
    }

    /// Whether a thread may be changing data. A server that takes no more writes waits until none
    /// is.
    pub(crate) fn is_writing(&self) -> bool {
        fence(Ordering::SeqCst);
        self.writers.load(Ordering::SeqCst) > 0
    }
}

/// See [`LongRequests::begin_write`].
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a AtomicUsize);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_seen_until_it_has_ended() {
        let requests = LongRequests::new(2);
        let (first, second) = (requests.begin_write(), requests.begin_write());
        drop(first);
        assert!(requests.is_writing());
        drop(second);
        assert!(!requests.is_writing());
    }
}
