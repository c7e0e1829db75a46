//! How many connections each worker has: shared by master and workers, processes or threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;

use crate::config::WORKERS_MAX;

const SLOT_BYTES: usize = 8;
/// What a worker that is not there has.
pub(crate) const ABSENT: u64 = u64::MAX;

/// A file in memory with one number per worker. Reading all of them is one system call of a few
/// hundred nanoseconds; mapping it would cost none and needs code that this crate forbids.
#[derive(Debug)]
pub(crate) struct Table {
    file: OwnedFd,
    workers: usize,
}

impl Table {
    /// All workers are absent.
    pub(crate) fn new(workers: usize) -> io::Result<Table> {
        assert!(workers <= WORKERS_MAX);
        let file = rustix::fs::memfd_create("myriad-web-workers", MemfdFlags::CLOEXEC)?;
        let table = Table { file, workers };
        for slot in 0..workers {
            table.set(slot, ABSENT)?;
        }
        Ok(table)
    }

    pub(crate) fn from_fd(file: OwnedFd, workers: usize) -> Table {
        Table { file, workers: workers.min(WORKERS_MAX) }
    }

    pub(crate) fn set(&self, slot: usize, connections: u64) -> io::Result<()> {
        debug_assert!(slot < self.workers);
        rustix::io::pwrite(&self.file, &connections.to_ne_bytes(), (slot * SLOT_BYTES) as u64)?;
        Ok(())
    }

    /// The numbers of all workers; what cannot be read is absent.
    pub(crate) fn read(&self) -> [u64; WORKERS_MAX] {
        let mut bytes = [0xff; WORKERS_MAX * SLOT_BYTES];
        let wanted = self.workers * SLOT_BYTES;
        let mut numbers = [ABSENT; WORKERS_MAX];
        let read = rustix::io::pread(&self.file, &mut bytes[..wanted], 0);
        if read.is_ok_and(|count| count == wanted) {
            for (number, chunk) in numbers.iter_mut().zip(bytes[..wanted].chunks_exact(SLOT_BYTES))
            {
                *number = chunk.try_into().map_or(ABSENT, u64::from_ne_bytes);
            }
        }
        numbers
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The worker with the fewest connections, and how many those are; none if all are absent.
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
}
