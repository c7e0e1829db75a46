//! Applies the log and snapshots on several threads.
//!
//! Each thread owns a part of the stripes, so that every key sees its changes in the order of the
//! log. A change of all stripes waits until the threads have applied everything before it. A thread
//! decodes several mutations, loads the memory of their keys, and then applies them: most of the
//! time of a replay is that of cache misses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope as ThreadScope, ScopedJoinHandle};

use binlog::{Lsn, Record, ReplayError};
use smallvec::SmallVec;
use store::{Keyspace, Mutation, Params, Scope, StoreError, stripe_of};

use super::records::{self, Progress};

/// Bytes of mutations that a thread is sent at a time.
const PART_BYTES: usize = 64 << 10;
/// Parts that wait for a thread.
const PARTS_MAX: usize = 8;
/// A longer mutation is applied where it is, without a copy.
const COPIED_BYTES_MAX: usize = PART_BYTES;
/// Mutations whose memory is loaded together.
const AHEAD: usize = 32;

/// What the threads need. Each has parameters of its own.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) params: Params,
    /// Log position of each stripe: the data already includes the log before it.
    pub(crate) floors: &'a [u64],
    /// A record could not be applied.
    pub(crate) has_failed: &'a AtomicBool,
}

/// A record that could not be applied.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) at: Lsn,
    pub(crate) error: StoreError,
}

/// Mutations for one thread.
#[derive(Debug, Default)]
struct Part {
    /// The mutations, one after the other.
    bytes: Vec<u8>,
    items: Vec<Item>,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    /// Where the record starts.
    at: Lsn,
    hash: u64,
}

#[derive(Debug)]
enum Work {
    Apply(Part),
    /// Confirms that all earlier parts are applied.
    Confirm(SyncSender<()>),
}

#[derive(Debug)]
struct Worker<'scope> {
    part: Part,
    work: SyncSender<Work>,
    thread: ScopedJoinHandle<'scope, Result<(), Failure>>,
}

impl Worker<'_> {
    fn send(&self, work: Work) {
        self.work.send(work).expect("a thread ends after the last part");
    }

    fn send_part(&mut self) {
        if !self.part.items.is_empty() {
            let part = std::mem::take(&mut self.part);
            self.send(Work::Apply(part));
        }
    }

    /// Waits until everything that was sent is applied.
    fn settle(&mut self) {
        self.send_part();
        let (confirm, confirmed) = sync_channel(1);
        self.send(Work::Confirm(confirm));
        confirmed.recv().expect("a thread confirms what it is sent");
    }
}

/// Distributes the records of the log.
#[derive(Debug)]
pub(crate) struct Replayer<'scope, 'a> {
    target: Target<'a>,
    workers: Vec<Worker<'scope>>,
}

impl<'scope, 'a: 'scope> Replayer<'scope, 'a> {
    pub(crate) fn start(
        scope: &'scope ThreadScope<'scope, '_>,
        target: Target<'a>,
        threads: usize,
    ) -> Replayer<'scope, 'a> {
        let start = || {
            let (work, received) = sync_channel(PARTS_MAX);
            let target = target.clone();
            let thread = scope.spawn(move || target.work(&received));
            Worker { part: Part::default(), work, thread }
        };
        let workers = (0..threads.max(1)).map(|_| start()).collect();
        Replayer { target, workers }
    }

    /// Takes one record. An error concerns this record; [`Replayer::end`] reports others.
    pub(crate) fn take(
        &mut self,
        record: Record<'_>,
        progress: &mut Progress,
    ) -> Result<(), ReplayError> {
        let Some(contents) = records::contents(&record) else {
            return Err(format!("unknown record kind {}", record.kind).into());
        };
        if self.target.has_failed.load(Ordering::Relaxed) {
            return Err("an earlier record could not be applied".into()); // `end` names it
        }
        progress.note(&contents);
        let keyspace = self.target.keyspace;
        let mut input = contents.mutations;
        while !input.is_empty() {
            let start = input;
            let mutation = Mutation::decode(&mut input, |key| keyspace.hash(key))
                .map_err(|error| error.to_string())?;
            let bytes = &start[..start.len() - input.len()];
            match mutation.scope() {
                Scope::One(hash) => {
                    let count = self.workers.len();
                    let worker = &mut self.workers[stripe_of(hash) % count];
                    if bytes.len() <= COPIED_BYTES_MAX {
                        worker.part.bytes.extend_from_slice(bytes);
                        worker.part.items.push(Item { at: record.start, hash });
                        if worker.part.bytes.len() >= PART_BYTES {
                            worker.send_part();
                        }
                        continue;
                    }
                    worker.settle();
                }
                Scope::All => self.workers.iter_mut().for_each(Worker::settle),
                Scope::Nothing => continue,
            }
            self.target.apply(record.start, &mutation).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Waits until everything is applied. Returns the first record that could not be applied.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let end = |mut worker: Worker<'_>| {
            worker.send_part();
            drop(worker.work);
            worker.thread.join().expect("a thread reports its errors").err()
        };
        let failures = self.workers.into_iter().filter_map(end);
        failures.min_by_key(|failure| failure.at).map_or(Ok(()), Err)
    }
}

impl Target<'_> {
    /// Applies parts until there are no more; nothing after a failure.
    fn work(&self, received: &Receiver<Work>) -> Result<(), Failure> {
        let mut result = Ok(());
        for work in received {
            match work {
                Work::Apply(part) if result.is_ok() => {
                    result = self.apply_part(&part);
                    self.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                }
                Work::Apply(_) => {}
                Work::Confirm(confirm) => confirm.send(()).expect("the sender waits for it"),
            }
        }
        result
    }

    fn apply_part(&self, part: &Part) -> Result<(), Failure> {
        let mut input = &part.bytes[..];
        let mut ahead: SmallVec<[(Lsn, Mutation<'_>); AHEAD]> = SmallVec::new();
        for items in part.items.chunks(AHEAD) {
            ahead.extend(items.iter().map(|item| {
                let mutation = Mutation::decode(&mut input, |_| item.hash);
                (item.at, mutation.expect("was decoded before it was sent"))
            }));
            self.keyspace.prefetch_keys(ahead.iter().filter_map(|(_, mutation)| match mutation {
                Mutation::Key { db, key, .. } | Mutation::Version { db, key, .. } => {
                    Some((*db, key.hash))
                }
                _ => None,
            }));
            for (at, mutation) in ahead.drain(..) {
                self.apply(at, &mutation).map_err(|error| Failure { at, error })?;
            }
        }
        Ok(())
    }

    fn apply(&self, at: Lsn, mutation: &Mutation<'_>) -> Result<(), StoreError> {
        self.keyspace.replay(mutation, &self.params, |stripe| at.0 < self.floors[stripe])
    }
}
