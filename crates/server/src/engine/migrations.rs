//! Requests of MIGRATE, which wait for the threads that serve them ([`super::migration_threads`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use reactor::ConnId;
use store::WatchFlag;

use super::threads::Threads;

/// Requests that wait for a thread.
const WAITING_MAX: usize = 64;
/// A request.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) id: ConnId,
    pub(crate) db: u8,
    pub(crate) keys: Vec<MigratedKey>,
    pub(crate) target: Target,
    /// Whether only data that is on disk may be sent.
    pub(crate) is_gated: bool,
}

#[derive(Debug)]
pub(crate) struct MigratedKey {
    pub(crate) name: Box<[u8]>,
    /// Raised when the key changes.
    pub(crate) changed: WatchFlag,
}

/// Where keys go, and how.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) db: Vec<u8>,
    /// The exchange fails after this time without progress.
    pub(crate) timeout: Duration,
    /// The arguments of AUTH; none: without it.
    pub(crate) login: Vec<Vec<u8>>,
    pub(crate) keeps_keys: bool,
    pub(crate) replaces: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Migrations {
    waiting: Mutex<VecDeque<Box<Migration>>>,
    filled: Condvar,
    is_over: AtomicBool,
    pub(super) threads: Threads,
}

impl Migrations {
    /// Ends the exchanges; requests that wait are dropped.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.waiting.lock());
        self.filled.notify_all();
        self.threads.join();
    }

    /// Queues a request. Returns it if too many are waiting.
    pub(crate) fn push(&self, migration: Box<Migration>) -> Result<(), Box<Migration>> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            return Err(migration);
        }
        waiting.push_back(migration);
        drop(waiting);
        self.filled.notify_one();
        Ok(())
    }

    /// The next request. `None`: the server stops.
    pub(super) fn pop(&self) -> Option<Box<Migration>> {
        let mut waiting = self.waiting.lock();
        while !self.is_over() {
            if let Some(migration) = waiting.pop_front() {
                return Some(migration);
            }
            self.filled.wait(&mut waiting);
        }
        None
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
