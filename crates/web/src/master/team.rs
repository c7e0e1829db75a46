//! The workers that serve with the same options, and what they share.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use base::time::MonoNs;

use super::addresses::Share;
use super::resources::Resources;
use super::seat::{Heard, Worker};
use crate::channel::Channel;
use crate::config::{Accept, Config};
use crate::counters::Counters;
use crate::table::{ABSENT, Table};
use crate::worker::REOPEN;

/// A worker that lived for so long did not fail at its start.
const LIVED: Duration = Duration::from_secs(10);
/// The wait before a second try to replace a worker; each further one waits twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Time between two looks whether workers run.
pub(crate) const CHECK: Duration = Duration::from_secs(1);
const CHECK_MS: u64 = 1000;
/// Looks in a row that found a worker at a standstill before the operator hears of it.
const HANGS_CHECKS: u32 = 2;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A place for one worker.
#[derive(Debug, Default)]
struct Seat {
    worker: Option<Worker>,
    /// Workers in a row that did not live.
    failures: u32,
    /// When the next one is started.
    start_at: Option<Instant>,
    /// Its last beat that was seen, and how often in a row no later one was.
    beat: MonoNs,
    missed: u32,
}

#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) config: Config,
    /// What the master has opened for all its workers.
    resources: Resources,
    table: Table,
    /// Of all teams.
    counters: Arc<Counters>,
    /// Where workers read what is passed to them. The master holds these ends as well, so that what a
    /// dead worker did not read is read by the one in its place.
    mailboxes: Vec<Channel>,
    /// Into the mailboxes.
    senders: Vec<Channel>,
    seats: Vec<Seat>,
}

impl Team {
    /// A team without workers. Opens all that they will work with, so that whatever is wrong with it is
    /// found before any of them starts.
    pub(crate) fn new(config: Config, counters: &Arc<Counters>) -> anyhow::Result<Team> {
        let resources = Resources::open(&config)?;
        let workers = config.worker_count();
        let table = Table::new(workers).context("make the table of workers")?;
        let (mut mailboxes, mut senders) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (sender, mailbox) = Channel::pair().context("make a mailbox")?;
            senders.push(sender);
            mailboxes.push(mailbox);
        }
        let seats = (0..workers).map(|_| Seat::default()).collect();
        let counters = Arc::clone(counters);
        Ok(Team { config, resources, table, counters, mailboxes, senders, seats })
    }

    pub(crate) fn start_all(
        &mut self,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
    ) -> anyhow::Result<()> {
        for slot in 0..self.seats.len() {
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
        let worker = Worker::start(id, slot, self, program, shares, epoll)?;
        (self.seats[slot].beat, self.seats[slot].missed) = (MonoNs(0), 0);
        self.seats[slot].worker = Some(worker);
        Ok(())
    }

    /// Fills the places whose time has come. All of `shares` have to listen: one that does not is an
    /// event without end for who watches it.
    // Source: epoll_ctl(2), EPOLLHUP
    pub(crate) fn start_due(
        &mut self,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
        now: Instant,
    ) {
        for slot in 0..self.seats.len() {
            if self.seats[slot].start_at.is_some_and(|at| at <= now) {
                self.seats[slot].start_at = None;
                if let Err(error) = self.start_one(slot, program, shares, epoll) {
                    tracing::error!(slot, "a worker cannot be started: {error:#}");
                    self.seats[slot].fail(now);
                }
            }
        }
    }

    /// Looks whether the loops of the workers run. One that hangs is reported, and killed when its time is
    /// over; another takes its place. Time counts in checks: while the master itself does not run, because
    /// the machine stands still, nothing is held against a worker.
    pub(crate) fn check_beats(&mut self) {
        // The serial worker has no loop.
        if self.config.accept == Accept::Serial {
            return;
        }
        let slots = self.table.slots();
        let checks_max = self.config.worker_timeout_ms.div_ceil(CHECK_MS);
        for (seat, shown) in self.seats.iter_mut().zip(slots) {
            let Some(worker) = seat.worker.as_mut().filter(|worker| worker.is_ready) else {
                continue;
            };
            if shown.beat != seat.beat {
                if seat.missed >= HANGS_CHECKS {
                    tracing::warn!(slot = worker.slot, "the loop of a worker runs again");
                }
                (seat.beat, seat.missed) = (shown.beat, 0);
                continue;
            }
            seat.missed = seat.missed.saturating_add(1);
            let seconds = u64::from(seat.missed) * CHECK_MS / 1000;
            if seat.missed == HANGS_CHECKS {
                tracing::warn!(slot = worker.slot, seconds, "the loop of a worker does not run");
            }
            if checks_max != 0 && u64::from(seat.missed) == checks_max {
                if worker.is_thread() {
                    let slot = worker.slot;
                    tracing::error!(
                        slot,
                        seconds,
                        "a worker hangs, and a thread cannot be replaced"
                    );
                } else {
                    tracing::error!(slot = worker.slot, seconds, "a worker hangs: it is killed");
                    worker.kill();
                }
            }
        }
    }

    pub(crate) fn next_start(&self) -> Option<Instant> {
        self.seats.iter().filter_map(|seat| seat.start_at).min()
    }

    /// What the worker `id` says; none if it is not of this team.
    pub(crate) fn hear(&mut self, id: u64) -> Option<Heard> {
        self.workers_mut().find(|worker| worker.id == id).map(Worker::hear)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.seats.iter().all(|seat| seat.worker.as_ref().is_some_and(|worker| worker.is_ready))
    }

    /// The worker `id` is gone: another will take its place. Says how it went.
    pub(crate) fn lose(&mut self, id: u64) -> String {
        let seat = self
            .seats
            .iter_mut()
            .find(|seat| seat.worker.as_ref().is_some_and(|worker| worker.id == id));
        let Some(seat) = seat else { return String::new() };
        let Some(worker) = seat.worker.take() else { return String::new() };
        let now = Instant::now();
        if worker.started.elapsed() >= LIVED {
            seat.failures = 0;
        }
        seat.fail(now);
        let table = &self.table;
        let reset =
            table.set(worker.slot, ABSENT).and_then(|()| table.beat(worker.slot, MonoNs(0)));
        if let Err(error) = reset {
            tracing::warn!(%error, "the table of workers cannot be written");
        }
        worker.reap_and_replace()
    }

    pub(crate) fn tell(&self, id: u64, order: &[u8]) {
        let workers = self.seats.iter().filter_map(|seat| seat.worker.as_ref());
        workers.filter(|worker| worker.id == id).for_each(|worker| worker.tell(order));
    }

    pub(crate) fn tell_all(&self, order: &[u8]) {
        self.seats.iter().filter_map(|seat| seat.worker.as_ref()).for_each(|worker| {
            worker.tell(order);
        });
    }

    /// Nobody takes their place.
    pub(crate) fn take_workers(&mut self) -> Vec<Worker> {
        let take = |seat: &mut Seat| {
            seat.start_at = None;
            seat.worker.take()
        };
        self.seats.iter_mut().filter_map(take).collect()
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Gives the workers another access log, and those that are started later.
    pub(crate) fn replace_log(&mut self, log: &OwnedFd) -> std::io::Result<()> {
        self.resources.log = Some(log.try_clone()?);
        self.seats.iter().filter_map(|seat| seat.worker.as_ref()).for_each(|worker| {
            worker.tell_with(REOPEN, &[log.as_fd()]);
        });
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

    /// Into the mailboxes of all workers.
    pub(crate) fn senders(&self) -> &[Channel] {
        &self.senders
    }

    fn workers_mut(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.seats.iter_mut().filter_map(|seat| seat.worker.as_mut())
    }
}

impl Seat {
    /// Plans the next worker: at once after the first failure, then later and later.
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
    fn a_worker_that_keeps_failing_is_started_less_and_less_often() {
        let mut seat = Seat::default();
        let now = Instant::now();
        let waits: Vec<u128> = (0..9)
            .map(|_| {
                seat.fail(now);
                (seat.start_at.unwrap() - now).as_millis()
            })
            .collect();
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
