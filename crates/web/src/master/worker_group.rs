//! The workers that serve with the same options, and their shared resources.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use base::time::MonoNs;

use super::addresses::Share;
use super::resources::Resources;
use super::worker_handle::{WorkerEvent, WorkerHandle};
use crate::channel::Channel;
use crate::config::Config;
use crate::counters::Counters;
use crate::table::{ABSENT, Table};
use crate::worker::REOPEN;

/// A worker that ran this long did not fail at startup.
const STARTUP_TIME: Duration = Duration::from_secs(10);
/// Delay before the second attempt to replace a worker; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Interval of liveness checks.
pub(crate) const CHECK: Duration = Duration::from_secs(1);
const CHECK_MS: u64 = 1000;
/// Consecutive failed checks before a hanging worker is logged.
const HANGS_CHECKS: u32 = 2;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A slot for one worker.
#[derive(Debug, Default)]
struct WorkerSlot {
    worker: Option<WorkerHandle>,
    /// Consecutive workers that failed at startup.
    failures: u32,
    /// When the next one is started.
    start_at: Option<Instant>,
    /// The last observed heartbeat, and the number of consecutive checks without a later one.
    beat: MonoNs,
    missed: u32,
}

#[derive(Debug)]
pub(crate) struct WorkerGroup {
    pub(crate) config: Config,
    /// Resources that the master has opened for all its workers.
    resources: Resources,
    table: Table,
    /// Shared by all groups.
    counters: Arc<Counters>,
    /// Receiving ends of the mailboxes. The master holds duplicates, so that a replacement reads
    /// what a dead worker did not.
    mailboxes: Vec<Channel>,
    /// Sending ends of the mailboxes.
    senders: Vec<Channel>,
    slots: Vec<WorkerSlot>,
}

impl WorkerGroup {
    /// Creates a group without workers. Opens all their resources first, so that errors are found
    /// before any worker starts.
    pub(crate) fn new(config: Config, counters: &Arc<Counters>) -> anyhow::Result<WorkerGroup> {
        let resources = Resources::open(&config)?;
        let workers = config.worker_count();
        let table = Table::new(workers).context("could not create the table of workers")?;
        let (mut mailboxes, mut senders) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (sender, mailbox) = Channel::pair().context("could not create a mailbox")?;
            senders.push(sender);
            mailboxes.push(mailbox);
        }
        let slots = (0..workers).map(|_| WorkerSlot::default()).collect();
        let counters = Arc::clone(counters);
        Ok(WorkerGroup { config, resources, table, counters, mailboxes, senders, slots })
    }

    pub(crate) fn start_all(
        &mut self,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
    ) -> anyhow::Result<()> {
        for slot in 0..self.slots.len() {
            self.start_one(slot, program, shares, epoll)?;
        }
        Ok(())
    }

    fn start_one(
        &mut self,
        slot: usize,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
    ) -> anyhow::Result<()> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let worker = WorkerHandle::start(id, slot, self, program, shares, epoll)?;
        (self.slots[slot].beat, self.slots[slot].missed) = (MonoNs(0), 0);
        self.slots[slot].worker = Some(worker);
        Ok(())
    }

    /// Starts the workers that are due. All of `shares` must be listening: polling a socket that is
    /// not reports an event without end.
    // Source: epoll_ctl(2), EPOLLHUP
    pub(crate) fn start_due(
        &mut self,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
        now: Instant,
    ) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].start_at.is_some_and(|at| at <= now) {
                self.slots[slot].start_at = None;
                if let Err(error) = self.start_one(slot, program, shares, epoll) {
                    tracing::error!(slot, "could not start worker: {error:#}");
                    self.slots[slot].fail(now);
                }
            }
        }
    }

    /// Checks the heartbeats of the workers. A hanging worker is logged, and killed and replaced
    /// after its time limit. Time is counted in checks: while the machine stalls, the master does
    /// not run either, and no worker is blamed.
    pub(crate) fn check_beats(&mut self) {
        // The serial worker has no loop.
        if self.config.accept.is_serial() {
            return;
        }
        let slots = self.table.slots();
        let checks_max = self.config.worker_timeout_ms.div_ceil(CHECK_MS);
        for (worker_handle, shown) in self.slots.iter_mut().zip(slots) {
            let Some(worker) = worker_handle.worker.as_mut().filter(|worker| worker.is_ready)
            else {
                continue;
            };
            if shown.beat != worker_handle.beat {
                if worker_handle.missed >= HANGS_CHECKS {
                    tracing::warn!(slot = worker.slot, "worker loop is running again");
                }
                (worker_handle.beat, worker_handle.missed) = (shown.beat, 0);
                continue;
            }
            worker_handle.missed = worker_handle.missed.saturating_add(1);
            let seconds = u64::from(worker_handle.missed) * CHECK_MS / 1000;
            if worker_handle.missed == HANGS_CHECKS {
                tracing::warn!(slot = worker.slot, seconds, "worker loop is not running");
            }
            if checks_max != 0 && u64::from(worker_handle.missed) == checks_max {
                if worker.is_thread() {
                    let slot = worker.slot;
                    tracing::error!(slot, seconds, "worker thread hangs and cannot be replaced");
                } else {
                    tracing::error!(slot = worker.slot, seconds, "worker hangs; killing it");
                    worker.kill();
                }
            }
        }
    }

    pub(crate) fn next_start(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|worker_handle| worker_handle.start_at).min()
    }

    /// Reads an event of the worker `id`; `None` if it is not in this group.
    pub(crate) fn read_event(&mut self, id: u64) -> Option<WorkerEvent> {
        self.workers_mut().find(|worker| worker.id == id).map(WorkerHandle::read_event)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.slots.iter().all(|worker_handle| {
            worker_handle.worker.as_ref().is_some_and(|worker| worker.is_ready)
        })
    }

    /// Removes the dead worker `id`, to be replaced, and returns the reason of its end.
    pub(crate) fn remove(&mut self, id: u64) -> String {
        let worker_handle = self.slots.iter_mut().find(|worker_handle| {
            worker_handle.worker.as_ref().is_some_and(|worker| worker.id == id)
        });
        let Some(worker_handle) = worker_handle else { return String::new() };
        let Some(worker) = worker_handle.worker.take() else { return String::new() };
        let now = Instant::now();
        if worker.started.elapsed() >= STARTUP_TIME {
            worker_handle.failures = 0;
        }
        worker_handle.fail(now);
        let table = &self.table;
        let reset =
            table.set(worker.slot, ABSENT).and_then(|()| table.beat(worker.slot, MonoNs(0)));
        if let Err(error) = reset {
            tracing::warn!(%error, "could not write the table of workers");
        }
        worker.reap_and_replace()
    }

    pub(crate) fn send_order(&self, id: u64, order: &[u8]) {
        let workers = self.slots.iter().filter_map(|worker_handle| worker_handle.worker.as_ref());
        workers.filter(|worker| worker.id == id).for_each(|worker| worker.send_order(order));
    }

    pub(crate) fn send_order_to_all(&self, order: &[u8]) {
        self.slots.iter().filter_map(|worker_handle| worker_handle.worker.as_ref()).for_each(
            |worker| {
                worker.send_order(order);
            },
        );
    }

    /// Removes all workers without replacement.
    pub(crate) fn take_workers(&mut self) -> Vec<WorkerHandle> {
        let take = |worker_handle: &mut WorkerSlot| {
            worker_handle.start_at = None;
            worker_handle.worker.take()
        };
        self.slots.iter_mut().filter_map(take).collect()
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Sends the new access log to the workers, and uses it for future ones.
    pub(crate) fn replace_log(&mut self, log: &OwnedFd) -> std::io::Result<()> {
        self.resources.log = Some(log.try_clone()?);
        self.slots.iter().filter_map(|worker_handle| worker_handle.worker.as_ref()).for_each(
            |worker| {
                worker.send_order_with(REOPEN, &[log.as_fd()]);
            },
        );
        Ok(())
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn mailbox(&self, slot: usize) -> &Channel {
        &self.mailboxes[slot]
    }

    /// Returns the sending ends of all mailboxes.
    pub(crate) fn senders(&self) -> &[Channel] {
        &self.senders
    }

    fn workers_mut(&mut self) -> impl Iterator<Item = &mut WorkerHandle> {
        self.slots.iter_mut().filter_map(|worker_handle| worker_handle.worker.as_mut())
    }
}

impl WorkerSlot {
    /// Schedules the next worker: immediately after the first failure, then with increasing delays.
    fn fail(&mut self, now: Instant) {
        let wait = match self.failures {
            0 => Duration::ZERO,
            failures => (BACKOFF_MIN * 2_u32.saturating_pow(failures - 1)).min(BACKOFF_MAX),
        };
        self.failures = self.failures.saturating_add(1).min(16);
        self.start_at = Some(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_worker_is_restarted_with_backoff() {
        let mut worker_handle = WorkerSlot::default();
        let now = Instant::now();
        let waits: Vec<u128> = (0..9)
            .map(|_| {
                worker_handle.fail(now);
                (worker_handle.start_at.unwrap() - now).as_millis()
            })
            .collect();
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
