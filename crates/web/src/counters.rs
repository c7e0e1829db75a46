//! Counters of the workers, in memory shared by all of them and the master.
//!
//! Each worker writes only its own row. When it ends, the master adds this row to the row of its
//! slot, so that the counters of a slot never decrease while the program runs. What the master itself
//! counts is in the row of the first slot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::MemfdFlags;

use crate::config::WORKERS_MAX;

/// Maximum number of workers, including workers that are ending: several consecutive reloads may
/// overlap.
const ROWS_MAX: usize = 4 * WORKERS_MAX;
const NUMBER_BYTES: usize = size_of::<u64>();

/// Whether a number only increases, or is a current value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// One counter or gauge of each worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    /// Without the prefix.
    pub(crate) name: &'static str,
    /// For example, `class="2xx"`; empty if the name has only one series.
    pub(crate) label: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

/// Declares the counters of a worker once, for the struct, its row and the metrics page.
macro_rules! counts {
    ($($field:ident: $kind:ident, $name:literal, $label:literal, $help:literal;)*) => {
        /// The counters of one worker.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Counts { $(pub(crate) $field: u64,)* }

        /// Descriptions, in the order of a row. Metrics with the same name are adjacent.
        pub(crate) const METRICS: &[Metric] = &[$(Metric {
            name: $name, label: $label, kind: Kind::$kind, help: $help,
        },)*];

        impl Counts {
            pub(crate) fn numbers(&self) -> Vec<u64> {
                vec![$(self.$field,)*]
            }
        }
    };
}

counts! {
    responses_1xx: Counter, "responses_total", "class=\"1xx\"", "Responses by class of status.";
    responses_2xx: Counter, "responses_total", "class=\"2xx\"", "";
    responses_3xx: Counter, "responses_total", "class=\"3xx\"", "";
    responses_4xx: Counter, "responses_total", "class=\"4xx\"", "";
    responses_5xx: Counter, "responses_total", "class=\"5xx\"", "";
    response_body_bytes: Counter, "response_body_bytes_total", "", "Bytes of response bodies.";
    connections_accepted: Counter, "connections_accepted_total", "", "Client connections served.";
    connections: Gauge, "connections", "", "Open client connections.";
    refused_connections: Counter, "refused_total", "reason=\"connections\"",
        "Connections and requests refused because a limit was reached.";
    refused_addresses: Counter, "refused_total", "reason=\"address\"", "";
    refused_descriptors: Counter, "refused_total", "reason=\"descriptors\"", "";
    refused_files: Counter, "refused_total", "reason=\"files\"", "";
    refused_upstream: Counter, "refused_total", "reason=\"upstream_queue_full\"", "";
    refused_memory: Counter, "refused_total", "reason=\"memory\"", "";
    refused_timeouts: Counter, "refused_total", "reason=\"upstream_queue_timeout\"", "";
    upstream_requests: Counter, "upstream_requests_total", "", "Requests sent to the upstream.";
    upstream_failures: Counter, "upstream_failures_total", "",
        "Requests without a complete response from the upstream.";
    upstream_connections: Counter, "upstream_connections_total", "",
        "Connections opened to the upstream.";
    upstream_active: Gauge, "upstream_requests", "state=\"active\"",
        "Requests at the upstream or queued for it.";
    upstream_queued: Gauge, "upstream_requests", "state=\"queued\"", "";
    upstream_idle: Gauge, "upstream_idle_connections", "",
        "Idle connections to the upstream.";
    websockets: Gauge, "websockets", "", "Open WebSockets.";
    cache_hits: Counter, "file_cache_lookups_total", "result=\"hit\"", "Lookups in the file cache.";
    cache_misses: Counter, "file_cache_lookups_total", "result=\"miss\"", "";
    cache_files: Gauge, "file_cache_files", "", "Files kept in memory or open.";
    cache_bytes: Gauge, "file_cache_bytes", "", "Bytes of files kept in memory.";
    log_lines_dropped: Counter, "access_log_lines_dropped_total", "",
        "Access log lines dropped because the disk was too slow or full.";
    messages_lost: Counter, "log_lines_lost_total", "",
        "Lines that could not be written to standard error or output. Worker 0 has those of the master.";
    restarts: Counter, "worker_restarts_total", "", "Workers that died and were replaced.";
}

const ROW_NUMBERS: usize = METRICS.len() + 1;
const ROW_BYTES: usize = ROW_NUMBERS * NUMBER_BYTES;
/// The rows of slots precede those of workers.
const FILE_BYTES: usize = NUMBER_BYTES + (WORKERS_MAX + ROWS_MAX) * ROW_BYTES;

/// A memory file: a version, which is odd while the master moves counters between rows, then the
/// rows. A row begins with its slot number, counted from 1; 0 marks a free row.
#[derive(Debug)]
pub(crate) struct Counters {
    file: OwnedFd,
}

impl Counters {
    pub(crate) fn new() -> io::Result<Counters> {
        let file = rustix::fs::memfd_create("myriad-web-counters", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, FILE_BYTES as u64)?;
        Ok(Counters { file })
    }

    pub(crate) fn from_fd(file: OwnedFd) -> Counters {
        Counters { file }
    }

    /// Assigns a row to a worker in this slot; `None` if there are too many workers. Only called by
    /// the master.
    pub(crate) fn take_row(&self, slot: usize) -> io::Result<Option<usize>> {
        let numbers = self.read()?;
        let owner = |row: usize| numbers[1 + row * ROW_NUMBERS];
        let Some(row) = (WORKERS_MAX..WORKERS_MAX + ROWS_MAX).find(|row| owner(*row) == 0) else {
            return Ok(None);
        };
        self.write(row, 0, &[slot as u64 + 1])?;
        Ok(Some(row))
    }

    /// Publishes the counters of a worker.
    pub(crate) fn publish(&self, row: usize, counts: &Counts) -> io::Result<()> {
        self.write(row, 1, &counts.numbers())
    }

    /// Adds the counters of an ended worker, and `restarts`, to those of its slot, and frees its
    /// row. Only called by the master.
    pub(crate) fn fold(&self, row: usize, slot: usize, restarts: u64) -> io::Result<()> {
        let numbers = self.read()?;
        let of_row = |row: usize| &numbers[1 + row * ROW_NUMBERS..][1..ROW_NUMBERS];
        let more = Counts { restarts, ..Counts::default() }.numbers();
        let sum: Vec<u64> = (0..METRICS.len())
            .map(|at| match METRICS[at].kind {
                Kind::Counter => of_row(slot)[at] + of_row(row)[at] + more[at],
                Kind::Gauge => 0,
            })
            .collect();
        let version = numbers[0] + 1;
        self.write_at(0, &[version])?;
        self.write(slot, 1, &sum)?;
        self.write(row, 0, &[0; ROW_NUMBERS])?;
        self.write_at(0, &[version + 1])
    }

    /// Adds lines that the master has lost. Only called by the master.
    pub(crate) fn add_lost_messages(&self, messages_lost: u64) -> io::Result<()> {
        let numbers = self.read()?;
        let more = Counts { messages_lost, ..Counts::default() };
        let first = &numbers[1..][1..ROW_NUMBERS];
        let sum: Vec<u64> =
            first.iter().zip(more.numbers()).map(|(sum, more)| sum + more).collect();
        self.write(0, 1, &sum)
    }

    /// Returns the counters of every slot, in the order of [`METRICS`]; `None` for slots that were
    /// never used.
    pub(crate) fn places(&self) -> io::Result<Vec<Option<Vec<u64>>>> {
        let numbers = self.read_settled()?;
        let rows: Vec<&[u64]> = numbers[1..].chunks_exact(ROW_NUMBERS).collect();
        let mut places: Vec<Option<Vec<u64>>> = rows[..WORKERS_MAX]
            .iter()
            .map(|row| row[1..].iter().any(|number| *number != 0).then(|| row[1..].to_vec()))
            .collect();
        for row in &rows[WORKERS_MAX..] {
            let place = usize::try_from(row[0]).ok().and_then(|owner| owner.checked_sub(1));
            let Some(place) = place.and_then(|place| places.get_mut(place)) else { continue };
            let sum = place.get_or_insert_with(|| vec![0; METRICS.len()]);
            sum.iter_mut().zip(&row[1..]).for_each(|(sum, number)| *sum += number);
        }
        Ok(places)
    }

    /// Returns a consistent snapshot of all counters.
    fn read_settled(&self) -> io::Result<Vec<u64>> {
        // The master needs a few microseconds for an update. If it was killed during one, the
        // version stays odd.
        const TRIES: usize = 1000;
        for _ in 0..TRIES {
            let numbers = self.read()?;
            if numbers[0].is_multiple_of(2) && self.version()? == numbers[0] {
                return Ok(numbers);
            }
            std::thread::yield_now();
        }
        self.read()
    }

    fn version(&self) -> io::Result<u64> {
        let mut bytes = [0; NUMBER_BYTES];
        rustix::io::pread(&self.file, &mut bytes, 0)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read(&self) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; FILE_BYTES];
        let count = rustix::io::pread(&self.file, &mut bytes, 0)?;
        if count != FILE_BYTES {
            return Err(io::Error::other("the counter file is too short"));
        }
        let number = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
        Ok(bytes.chunks_exact(NUMBER_BYTES).map(number).collect())
    }

    fn write(&self, row: usize, column: usize, numbers: &[u64]) -> io::Result<()> {
        debug_assert!(row < WORKERS_MAX + ROWS_MAX && column + numbers.len() <= ROW_NUMBERS);
        self.write_at(1 + row * ROW_NUMBERS + column, numbers)
    }

    fn write_at(&self, at: usize, numbers: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        rustix::io::pwrite(&self.file, &bytes, (at * NUMBER_BYTES) as u64)?;
        Ok(())
    }
}

impl AsFd for Counters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The row of a worker; freed on drop.
#[derive(Debug)]
pub(crate) struct Row {
    counters: Arc<Counters>,
    pub(crate) number: usize,
    slot: usize,
    /// Counted when the row is freed.
    pub(crate) restarts: u64,
}

impl Row {
    pub(crate) fn take(counters: &Arc<Counters>, slot: usize) -> anyhow::Result<Row> {
        let row = counters.take_row(slot).context("could not allocate the counters of a worker")?;
        let number = row.context("too many workers with earlier options are still running")?;
        Ok(Row { counters: Arc::clone(counters), number, slot, restarts: 0 })
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if let Err(error) = self.counters.fold(self.number, self.slot, self.restarts) {
            tracing::warn!(%error, "worker counters lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(name: &str) -> usize {
        METRICS.iter().position(|metric| metric.name == name).unwrap()
    }

    #[test]
    fn a_slot_keeps_the_counts_of_its_workers() {
        let counters = Counters::new().unwrap();
        let other = Counters::from_fd(counters.file.try_clone().unwrap());
        let (accepted, now) = (position("connections_accepted_total"), position("connections"));
        let look = |place: usize| {
            let numbers = other.places().unwrap()[place].clone()?;
            Some((numbers[accepted], numbers[now]))
        };
        let counts = |connections_accepted, connections| Counts {
            connections_accepted,
            connections,
            ..Counts::default()
        };
        assert_eq!(look(1), None);
        let first = counters.take_row(1).unwrap().unwrap();
        assert_eq!(look(1), Some((0, 0)), "registered");
        other.publish(first, &counts(5, 3)).unwrap();
        // Its successor starts before it ends.
        let second = counters.take_row(1).unwrap().unwrap();
        assert_ne!(first, second);
        other.publish(second, &counts(2, 1)).unwrap();
        assert_eq!(look(1), Some((7, 4)));
        counters.fold(first, 1, 1).unwrap();
        assert_eq!(look(1), Some((7, 1)));
        other.publish(second, &counts(4, 2)).unwrap();
        assert_eq!(look(1), Some((9, 2)));
        assert_eq!(counters.take_row(2).unwrap(), Some(first), "rows are reused");
        let restarts = position("worker_restarts_total");
        assert_eq!(other.places().unwrap()[1].as_ref().unwrap()[restarts], 1);
    }

    #[test]
    fn the_first_slot_has_the_counts_of_the_master() {
        let counters = Counters::new().unwrap();
        let row = counters.take_row(0).unwrap().unwrap();
        counters.publish(row, &Counts { messages_lost: 2, ..Counts::default() }).unwrap();
        counters.add_lost_messages(3).unwrap();
        counters.fold(row, 0, 0).unwrap();
        counters.add_lost_messages(4).unwrap();
        let first = counters.places().unwrap()[0].clone().unwrap();
        assert_eq!(first[position("log_lines_lost_total")], 9);
    }

    #[test]
    fn the_number_of_rows_is_limited() {
        let counters = Counters::new().unwrap();
        for taken in 0..ROWS_MAX {
            assert!(counters.take_row(taken % WORKERS_MAX).unwrap().is_some());
        }
        assert_eq!(counters.take_row(0).unwrap(), None);
    }
}
