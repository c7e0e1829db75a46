//! How fast the hub appends values of two masters: stored before, or while they are written.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use wire::resp::encode_request;

use super::connection::Connection;
use super::group::Group;
use super::{DURABILITY, MASTERS, real};
use crate::repro::finding::{FindingRow, Number};
use crate::repro::web::Bench;

/// The value sizes of the source's tables.
const VALUE_BYTES: [usize; 2] = [5, 1024];
/// Requests per write of the load.
const BATCH: u64 = 256;
/// Two masters to one hub, before group commit: the only figure of the source with masters.
const SOURCE_PER_SECOND: f64 = 100_000.0;

/// Appends of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) value_bytes: usize,
    /// Else the load shares the machine with the servers.
    pub(super) is_stored_before: bool,
    pub(super) values: u64,
    pub(super) seconds: f64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for value_bytes in VALUE_BYTES {
        rates.push(catch_up(bench, value_bytes).context("values that were stored before")?);
        rates.push(follow(bench, value_bytes).context("values while they are written")?);
    }
    Ok(rates)
}

/// The hub merges what its masters have.
fn catch_up(bench: &Bench<'_>, value_bytes: usize) -> Result<Rate> {
    let group = Group::start(bench, MASTERS, DURABILITY)?;
    let of_small = bench.pick(50_000, 1_000_000);
    let values = if value_bytes > 100 { of_small / 4 } else { of_small };
    for at in 0..MASTERS {
        write(&mut group.master(at)?, at, value_bytes, |written| written < values)?;
    }
    let started = Instant::now();
    (0..MASTERS).try_for_each(|at| group.follow_master(at))?;
    let values = values.next_multiple_of(BATCH);
    group.wait_for_values(bench, &[(0, values), (1, values)])?;
    Ok(Rate::new(value_bytes, true, 2 * values, started.elapsed()))
}

/// The hub follows while both masters are written; the time ends when it has all.
fn follow(bench: &Bench<'_>, value_bytes: usize) -> Result<Rate> {
    let group = Group::start(bench, MASTERS, DURABILITY)?;
    (0..MASTERS).try_for_each(|at| group.follow_master(at))?;
    let mut masters = [group.master(0)?, group.master(1)?];
    let started = Instant::now();
    let until = started + Duration::from_millis(bench.pick(500, 5_000));
    let written = thread::scope(|scope| {
        let threads = masters.iter_mut().enumerate().map(|(at, master)| {
            scope.spawn(move || write(master, at, value_bytes, |_| Instant::now() < until))
        });
        let threads: Vec<_> = threads.collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| anyhow!("a thread of the load panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<u64>>>()
    })?;
    group.wait_for_values(bench, &[(0, written[0]), (1, written[1])])?;
    Ok(Rate::new(value_bytes, false, written.iter().sum(), started.elapsed()))
}

/// Writes different keys in batches, as long as `is_going` returns true of the number written.
fn write(
    master: &mut Connection,
    at: usize,
    value_bytes: usize,
    is_going: impl Fn(u64) -> bool,
) -> Result<u64> {
    let value = vec![b'v'; value_bytes];
    let (mut written, mut requests) = (0, Vec::new());
    while is_going(written) {
        requests.clear();
        for number in written..written + BATCH {
            let key = format!("{at}:{number}");
            encode_request(&[b"SET", key.as_bytes(), &value], &mut requests);
        }
        master.send(&requests, usize::try_from(BATCH)?)?;
        written += BATCH;
    }
    Ok(written)
}

impl Rate {
    fn new(value_bytes: usize, is_stored_before: bool, values: u64, time: Duration) -> Self {
        Self { value_bytes, is_stored_before, values, seconds: time.as_secs_f64() }
    }

    fn per_second(&self) -> f64 {
        real(self.values) / self.seconds
    }

    fn variant(&self) -> String {
        format!("values of {} bytes", self.value_bytes)
    }

    fn role(&self) -> &'static str {
        if self.is_stored_before { "stored before" } else { "while written" }
    }

    pub(super) fn number(&self) -> Number {
        let label = format!("{}, {}", self.variant(), self.role());
        Number::new(&label, self.per_second(), "per s")
    }

    pub(super) fn row(&self) -> FindingRow {
        let note = format!("{} values of two masters in {:.2} s", self.values, self.seconds);
        let row =
            FindingRow::once(&self.variant(), self.role(), self.per_second(), "values/s", note);
        FindingRow { target: Some(SOURCE_PER_SECOND), ..row }
    }
}
