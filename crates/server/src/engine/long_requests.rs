//! Requests that process more elements than `elements-per-command-max`: they run on threads outside
//! the reactors, so that only requests for the same stripes wait for them.
//!
//! A reactor begins each request. One that turns out to be long, and has changed nothing yet, is
//! queued here, and its client waits for the reply like one that is [blocked](super::blocked) on
//! keys. `commands::long_requests` runs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}
