//! Counters at the last CONFIG RESETSTAT: INFO shows the difference since then.

use base::time::UnixMs;
use binlog::Log;
pub(crate) use reactor::Counters;
use reactor::{AcceptorCounters, Links};
use store::{Keyspace, LockWaits};

use crate::engine::free_thread::FreeThread;

/// The counters at one moment; the default is server start.
#[derive(Debug, Default)]
pub(crate) struct Baseline {
    /// The time of the last CONFIG RESETSTAT.
    pub(crate) at: UnixMs,
    reactors: Vec<Counters>,
    acceptor: AcceptorCounters,
    log: LogCalls,
    lock_waits: LockWaits,
    freed: u64,
}

/// System calls of the log.
#[derive(Debug, Default)]
pub(crate) struct LogCalls {
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
}

impl LogCalls {
    fn read(log: &Log) -> LogCalls {
        let stats = log.stats();
        LogCalls { writes: stats.writes, syncs: stats.file_syncs }
    }
}

impl Baseline {
    /// Returns the current counters.
    pub(crate) fn take<M>(
        links: &Links<M>,
        log: &Log,
        keyspace: &Keyspace,
        free_thread: &FreeThread,
        at: UnixMs,
    ) -> Baseline {
        Baseline {
            at,
            reactors: (0..links.reactors()).map(|index| links.stats(index)).collect(),
            acceptor: links.acceptor_stats().read(),
            log: LogCalls::read(log),
            lock_waits: keyspace.lock_waits(),
            freed: free_thread.freed(),
        }
    }

    /// Returns what one reactor has counted since the baseline.
    pub(crate) fn reactor<M>(&self, links: &Links<M>, index: usize) -> Counters {
        let earlier = self.reactors.get(index).copied().unwrap_or_default();
        links.stats(index).since(&earlier)
    }

    /// Returns what all reactors have counted since the baseline.
    pub(crate) fn sum<M>(&self, links: &Links<M>) -> Counters {
        let mut sum = Counters::default();
        (0..links.reactors()).for_each(|index| sum += self.reactor(links, index));
        sum
    }

    /// Returns what the acceptor has counted since the baseline.
    pub(crate) fn acceptor<M>(&self, links: &Links<M>) -> AcceptorCounters {
        links.acceptor_stats().read().since(&self.acceptor)
    }

    /// Returns the log writer's system calls since the baseline.
    pub(crate) fn log(&self, log: &Log) -> LogCalls {
        let now = LogCalls::read(log);
        LogCalls { writes: now.writes - self.log.writes, syncs: now.syncs - self.log.syncs }
    }

    /// Groups of removed values that the free thread has freed since the baseline.
    pub(crate) fn freed(&self, free_thread: &FreeThread) -> u64 {
        free_thread.freed() - self.freed
    }

    /// Waits for stripe locks since the baseline.
    pub(crate) fn lock_waits(&self, keyspace: &Keyspace) -> LockWaits {
        let now = keyspace.lock_waits();
        LockWaits { count: now.count - self.lock_waits.count, ns: now.ns - self.lock_waits.ns }
    }
}
