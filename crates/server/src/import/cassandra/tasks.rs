//! The work of an import: ranges of tokens of parts, which threads take one after another.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::failure::Failure;
use super::report::{Report, Ticker};
use super::state::Copied;
use super::table::Part;

/// Connections to each server. More do not make a target on the same machine faster.
const WORKERS: usize = 4;
/// Ranges of each part. Progress is stored within a range, too.
const RANGES: u32 = 64;
/// Time between two attempts, and failures one after another, after which an import ends: it can be
/// continued later.
const RETRY: Duration = Duration::from_secs(1);
const RETRIES_MAX: u32 = 60;
const TURN: Duration = Duration::from_millis(50);

/// The rows of a part whose tokens are after the first and up to the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) part: usize,
    /// The first token of the range as it was cut, which identifies it.
    pub(super) range: i64,
    pub(super) after: i64,
    pub(super) until: i64,
}

/// What all threads know.
#[derive(Debug)]
pub(super) struct Tasks<'a> {
    pub(super) parts: &'a [Part],
    pub(super) report: &'a Report,
    pub(super) stop: &'a AtomicBool,
    waiting: Mutex<VecDeque<Task>>,
    total: u64,
}

/// The ring of tokens in ranges of equal size. No row has the least token.
fn ranges() -> impl Iterator<Item = (i64, i64)> {
    let bound = |number: u32| {
        let offset = (u128::from(number) << 64) / u128::from(RANGES);
        let place = i128::from(i64::MIN) + i128::try_from(offset).expect("at most 2^64");
        i64::try_from(place).unwrap_or(i64::MAX)
    };
    (0..RANGES).map(move |number| (bound(number), bound(number + 1)))
}

impl<'a> Tasks<'a> {
    /// All ranges of the parts, except copied ones.
    pub(super) fn new(
        parts: &'a [Part],
        copied: &Copied,
        report: &'a Report,
        stop: &'a AtomicBool,
    ) -> Tasks<'a> {
        let mut waiting = VecDeque::new();
        for (part, name) in parts.iter().map(Part::progress_name).enumerate() {
            for (range, until) in ranges() {
                let after = copied.get(&(name.clone(), range)).map_or(range, |at| *at.max(&range));
                if after < until {
                    waiting.push_back(Task { part, range, after, until });
                }
            }
        }
        let total = waiting.len() as u64;
        Tasks { parts, report, stop, waiting: Mutex::new(waiting), total }
    }

    pub(super) fn next(&self) -> Option<Task> {
        self.waiting.lock().expect("no thread panics with the lock").pop_front()
    }

    /// Waits until the next attempt after a failure, unless there were too many.
    pub(super) fn wait_after(&self, failure: Failure, failures: u32) -> Result<(), Failure> {
        let (Failure::Transient(text) | Failure::TooLarge(text)) = failure else {
            return Err(failure);
        };
        if failures > RETRIES_MAX {
            return Err(anyhow!("{text}; {failures} attempts failed").into());
        }
        if failures == 1 {
            self.report.note(&format!("{text}; trying again every second"));
        }
        let until = Instant::now() + RETRY;
        while Instant::now() < until {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Stopped);
            }
            std::thread::sleep(TURN);
        }
        Ok(())
    }

    /// Runs `work` on several threads, and calls `each` meanwhile.
    pub(super) fn run(
        &self,
        verb: &'static str,
        work: &(dyn Fn() -> Result<(), Failure> + Sync),
        each: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let stop = || self.stop.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let worker = || {
                let outcome = work();
                if outcome.is_err() {
                    stop();
                }
                outcome
            };
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
            let mut ticker = Ticker::new(verb);
            let mut outcome = Ok(());
            while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                if outcome.is_ok() {
                    outcome = each();
                    if outcome.is_err() {
                        stop();
                    }
                }
                ticker.tick(self.report, self.total, &self.begun());
                std::thread::sleep(TURN);
            }
            for worker in workers {
                let ended =
                    worker.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked").into()));
                // The other threads were stopped by the one that failed.
                if matches!(outcome, Ok(()) | Err(Failure::Stopped)) && ended.is_err() {
                    outcome = ended;
                }
            }
            outcome
        })
    }

    /// The part of the task that is next.
    fn begun(&self) -> String {
        let next = self.waiting.lock().expect("no thread panics with the lock").front().copied();
        next.map_or_else(|| "the last ranges".to_owned(), |task| self.parts[task.part].name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Losses;
    use crate::import::cassandra::table::tests::part;

    #[test]
    fn ranges_cover_the_ring_once() {
        let found: Vec<_> = ranges().collect();
        assert_eq!(found.len(), RANGES as usize);
        assert_eq!(found[0].0, i64::MIN);
        assert_eq!(found[found.len() - 1].1, i64::MAX);
        assert!(found.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].0 < pair[0].1));
    }

    #[test]
    fn copied_ranges_are_left_out() {
        let parts = [part(&["k"], &[])];
        let ranges: Vec<_> = ranges().collect();
        let name = parts[0].progress_name();
        let copied = Copied::from([
            ((name.clone(), ranges[0].0), ranges[0].1),
            ((name.clone(), ranges[1].0), ranges[1].0 + 7),
            ((name, ranges[2].0), ranges[2].0 - 1),
            // A table of the same name, which was dropped.
            (("k.t 7e".to_owned(), ranges[3].0), ranges[3].1),
        ]);
        let (report, stop) = (Report::new(Losses::Refuse), AtomicBool::new(false));
        let tasks = Tasks::new(&parts, &copied, &report, &stop);
        let (range, until) = ranges[1];
        assert_eq!(tasks.next(), Some(Task { part: 0, range, after: range + 7, until }));
        assert_eq!(tasks.next().map(|task| task.after), Some(ranges[2].0));
        assert_eq!(std::iter::from_fn(|| tasks.next()).count(), RANGES as usize - 3);
    }
}
