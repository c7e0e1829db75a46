//! The server's log, used by threads in the same way as by the server's reactors.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use base::time::MonoNs;
use binlog::{FileDisk, Log, Lsn, Options, SyncPolicy, WriterHandle};
use parking_lot::{Condvar, Mutex};

use super::append::{Counters, KIND, Subject};
use super::{AppendWork, Commit, WaitFor};

/// One lane per thread, as a server has one per reactor, but no more than this.
const LANES_MAX: usize = 16;
/// Number of yields by a thread with a full lane before it sleeps: with few threads, space becomes
/// available faster than a sleep and a wake-up.
const ROOM_YIELDS: usize = 16;
/// Maximum sleep. At the end of a load no thread fills the lane, so none is woken.
const ROOM_SLEEP_MAX: Duration = Duration::from_millis(20);

/// A log with its writer, and the wait queues of threads.
pub(super) struct Lanes {
    log: Arc<Log>,
    writer: WriterHandle,
    count: usize,
    /// By lane.
    rooms: Vec<Arc<Room>>,
    clock: quanta::Clock,
    origin: quanta::Instant,
}

impl Lanes {
    pub(super) fn open(path: &Path, work: &AppendWork) -> Result<Self> {
        // A thread that waits for each write of a few records waits for the page cache, not for the
        // disk. Threads that wait for a sync, or do not wait, are faster with direct writes.
        let buffered = work.wait == WaitFor::Commit && work.commit != Commit::Synced;
        let disk = if buffered { FileDisk::open_buffered(path) } else { FileDisk::open(path) };
        let disk = Arc::new(disk.with_context(|| format!("open {}", path.display()))?);
        let sync = match work.commit {
            Commit::Written => SyncPolicy::Never,
            Commit::Synced => SyncPolicy::Always,
            Commit::Interval { ms } => SyncPolicy::Interval(Duration::from_millis(ms)),
        };
        let options = Options { sync, ..Options::default() };
        let count = work.threads.min(LANES_MAX);
        let (log, _) = Log::open(disk, options, count, Lsn(0), &mut |_| Ok(()))?;
        // The cycle counter, because waiting threads read the clock for each write.
        let clock = quanta::Clock::new();
        let origin = clock.now();
        let writers_clock = clock.clone();
        let writer = log
            .spawn_writer(move || since_origin(&writers_clock, origin))
            .context("could not start the log writer")?;
        let rooms: Vec<Arc<Room>> = (0..count).map(|_| Arc::default()).collect();
        for (lane, room) in rooms.iter().enumerate() {
            let room = Arc::clone(room);
            log.set_waker(lane, Box::new(move || room.wake()));
        }
        Ok(Self { log, writer, count, rooms, clock, origin })
    }

    /// Appends when there is space; returns the end of the record.
    #[inline]
    pub(super) fn append(&self, thread: usize, payload: &[u8]) -> Result<Lsn> {
        let lane = thread % self.count;
        if !self.log.has_room(lane) {
            self.wait_for_room(lane);
        }
        Ok(self.log.append(lane, KIND, payload)?)
    }

    /// Sleeps until the writer reports space, like a reactor of the server. Busy threads would
    /// compete with the writer for cores.
    #[cold]
    fn wait_for_room(&self, lane: usize) {
        for _ in 0..ROOM_YIELDS {
            thread::yield_now();
            if self.log.has_room(lane) {
                return;
            }
        }
        let room = &self.rooms[lane];
        loop {
            let seen = room.wakes();
            if self.log.has_room(lane) {
                return;
            }
            room.sleep_unless_woken_since(seen);
        }
    }

    /// Stops the writer; all records are on the log.
    pub(super) fn close(self) -> Result<()> {
        self.writer.stop().context("could not close the log")
    }

    pub(super) fn append_written(&self, thread: usize, payload: &[u8]) -> Result<()> {
        let end = self.append(thread, payload)?;
        Ok(self.log.wait_written(end, &|| since_origin(&self.clock, self.origin))?)
    }

    pub(super) fn append_durable(&self, thread: usize, payload: &[u8]) -> Result<()> {
        let end = self.append(thread, payload)?;
        Ok(self.log.wait_durable(end, &|| since_origin(&self.clock, self.origin))?)
    }
}

/// Wait queue of threads with a full lane.
#[derive(Default)]
struct Room {
    wakes: Mutex<u64>,
    changed: Condvar,
}

impl Room {
    fn wakes(&self) -> u64 {
        *self.wakes.lock()
    }

    /// Wakes the longest waiting thread: one thread fills a lane faster than the next one wakes up.
    fn wake(&self) {
        *self.wakes.lock() += 1;
        self.changed.notify_one();
    }

    fn sleep_unless_woken_since(&self, seen: u64) {
        let mut wakes = self.wakes.lock();
        if *wakes == seen {
            self.changed.wait_for(&mut wakes, ROOM_SLEEP_MAX);
        }
    }
}

impl Subject for Lanes {
    fn release_old(&self) -> Result<()> {
        self.log.truncate_before(self.log.durable()).context("could not free old segments")
    }

    fn counters(&self) -> Counters {
        let (stats, sizes) = (self.log.stats(), self.log.group_sizes());
        // As many as have a size: the log may write between the two reads.
        let writes = sizes.records.len();
        Counters { writes, syncs: stats.syncs, bytes: stats.bytes, sizes }
    }
}

fn since_origin(clock: &quanta::Clock, origin: quanta::Instant) -> MonoNs {
    let elapsed = clock.now().saturating_duration_since(origin);
    MonoNs(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}
