//! Load and liveness of the workers: their connection counts, and heartbeats of their loops. Shared
//! by master and workers, processes or threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use base::time::MonoNs;
use rustix::fs::MemfdFlags;
use rustix::time::{ClockId, clock_gettime};

use crate::config::WORKERS_MAX;

const NUMBER_BYTES: usize = size_of::<u64>();
/// The number of connections, then the time of the last heartbeat.
const SLOT_BYTES: usize = 2 * NUMBER_BYTES;
/// Connection count of an absent worker.
pub(crate) const ABSENT: u64 = u64::MAX;
/// Interval of a worker's heartbeats.
pub(crate) const BEAT_NS: u64 = 500_000_000;
/// A worker without a heartbeat for this long receives no connections from others.
const STALE_NS: u64 = 4 * BEAT_NS;

/// A memory file with two numbers per worker. Reading all of them is one system call of a few
/// hundred nanoseconds. Mapping it would avoid that cost, but requires unsafe code, which this
/// crate forbids.
#[derive(Debug)]
pub(crate) struct Table {
    file: OwnedFd,
    workers: usize,
}

/// The published state of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) connections: u64,
    /// Time of the last heartbeat; 0 before the first.
    pub(crate) beat: MonoNs,
}

impl Slot {
    const NONE: Slot = Slot { connections: ABSENT, beat: MonoNs(0) };

    /// Whether its loop has run, but does not run now. A starting worker is not stale.
    fn is_stale(self, now: MonoNs) -> bool {
        self.beat != MonoNs(0) && now.since(self.beat) > STALE_NS
    }
}

impl Table {
    /// Creates a table in which all workers are absent.
    pub(crate) fn new(workers: usize) -> io::Result<Table> {
        assert!(workers <= WORKERS_MAX);
        let file = rustix::fs::memfd_create("myriad-web-workers", MemfdFlags::CLOEXEC)?;
        let table = Table { file, workers };
        for slot in 0..workers {
            table.set(slot, ABSENT)?;
            table.beat(slot, MonoNs(0))?;
        }
        Ok(table)
    }

    pub(crate) fn from_fd(file: OwnedFd, workers: usize) -> Table {
        Table { file, workers: workers.min(WORKERS_MAX) }
    }

    pub(crate) fn set(&self, slot: usize, connections: u64) -> io::Result<()> {
        self.write(slot, 0, connections)
    }

    /// Records a heartbeat of a worker.
    pub(crate) fn beat(&self, slot: usize, now: MonoNs) -> io::Result<()> {
        self.write(slot, NUMBER_BYTES, now.0)
    }

    fn write(&self, slot: usize, offset: usize, number: u64) -> io::Result<()> {
        debug_assert!(slot < self.workers);
        let at = (slot * SLOT_BYTES + offset) as u64;
        rustix::io::pwrite(&self.file, &number.to_ne_bytes(), at)?;
        Ok(())
    }

    /// Returns all workers; unreadable entries are absent.
    pub(crate) fn slots(&self) -> [Slot; WORKERS_MAX] {
        let mut bytes = [0xff; WORKERS_MAX * SLOT_BYTES];
        let wanted = self.workers * SLOT_BYTES;
        let mut slots = [Slot::NONE; WORKERS_MAX];
        let read = rustix::io::pread(&self.file, &mut bytes[..wanted], 0);
        if read.is_ok_and(|count| count == wanted) {
            for (slot, chunk) in slots.iter_mut().zip(bytes[..wanted].chunks_exact(SLOT_BYTES)) {
                let number = |bytes: &[u8]| bytes.try_into().map_or(ABSENT, u64::from_ne_bytes);
                let (connections, beat) = chunk.split_at(NUMBER_BYTES);
                *slot = Slot { connections: number(connections), beat: MonoNs(number(beat)) };
            }
        }
        slots
    }

    /// Returns the connection counts, for choosing a worker. A worker with a stale heartbeat counts
    /// as absent, unless all are stale: then the whole machine was stalled.
    pub(crate) fn read(&self) -> [u64; WORKERS_MAX] {
        let (slots, now) = (self.slots(), mono_now());
        let mut present = slots.iter().filter(|slot| slot.connections != ABSENT);
        let are_all_stale = present.all(|slot| slot.is_stale(now));
        slots.map(|slot| {
            let is_choosable = are_all_stale || !slot.is_stale(now);
            if is_choosable { slot.connections } else { ABSENT }
        })
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Clock of the heartbeats, common to all processes: the reactor's clock.
pub(crate) fn mono_now() -> MonoNs {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    MonoNs(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

/// Returns the worker with the fewest connections, and their number; `None` if all are absent.
pub(crate) fn least(numbers: &[u64]) -> Option<(usize, u64)> {
    let present = numbers.iter().copied().enumerate().filter(|(_, number)| *number != ABSENT);
    present.min_by_key(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seen_through_every_descriptor() {
        let table = Table::new(3).unwrap();
        assert_eq!(least(&table.read()), None);
        let other = Table::from_fd(table.file.try_clone().unwrap(), 3);
        other.set(2, 7).unwrap();
        other.set(1, 9).unwrap();
        assert_eq!(table.read()[..4], [ABSENT, 9, 7, ABSENT]);
        assert_eq!(least(&table.read()), Some((2, 7)));
    }

    #[test]
    fn a_worker_that_hangs_is_not_chosen() {
        let table = Table::new(3).unwrap();
        let now = mono_now();
        assert!(now.0 > 2 * STALE_NS, "the machine has been up for some seconds");
        for (slot, connections) in [(0, 1), (1, 0), (2, 5)] {
            table.set(slot, connections).unwrap();
            table.beat(slot, now).unwrap();
        }
        assert_eq!(least(&table.read()), Some((1, 0)));
        let long_ago = MonoNs(now.0 - 2 * STALE_NS);
        table.beat(1, long_ago).unwrap();
        assert_eq!(least(&table.read()), Some((0, 1)));
        // If all were stalled, none of them hangs.
        for slot in 0..3 {
            table.beat(slot, long_ago).unwrap();
        }
        assert_eq!(least(&table.read()), Some((1, 0)));
        assert_eq!(table.slots()[1], Slot { connections: 0, beat: long_ago });
    }
}
