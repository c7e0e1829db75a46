//! A disk whose syncs take time on the simulated clock.
//!
//! The log's writer has its own thread, which runs only while the simulation waits for it to become
//! idle or to begin a sync. The simulation is therefore as deterministic as on one thread, and
//! reactors run while the disk syncs.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::time::MonoNs;
use binlog::{DiskFile, FaultDisk, Log, Next};

use super::sync_disk::SyncDisk;

/// The point at which the writer's thread has stopped.
#[derive(Debug)]
enum Stop {
    InSync,
    Between(Next),
}

/// The state that the writer's thread shares with the simulation.
struct Leash {
    now: Cell<MonoNs>,
    stops: Sender<Stop>,
    go: Receiver<MonoNs>,
}

thread_local! {
    static LEASH: RefCell<Option<Leash>> = const { RefCell::new(None) };
}

impl Leash {
    /// Waits until the simulation resumes it. Returns false if the simulation has ended.
    fn wait(&self) -> bool {
        self.go.recv().map(|now| self.now.set(now)).is_ok()
    }

    fn stop(&self, stop: Stop) -> bool {
        self.stops.send(stop).is_ok() && self.wait()
    }
}

/// Delays syncs by the log's writer until the simulation resumes it. Other threads sync at once.
fn sync_on_leash(file: &dyn DiskFile) -> io::Result<()> {
    let goes_on =
        LEASH.with_borrow(|leash| leash.as_ref().is_none_or(|leash| leash.stop(Stop::InSync)));
    if goes_on { file.sync() } else { Err(io::Error::other("the simulation has ended")) }
}

pub(super) fn slow_disk(disk: &Arc<FaultDisk>) -> SyncDisk {
    SyncDisk::new(disk, sync_on_leash)
}

/// The current activity of the log's writer.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Sync {
        until: MonoNs,
    },
    Rest {
        until: MonoNs,
    },
    /// The log has failed.
    Nothing,
}

/// The log's writer, controlled by the simulation.
#[derive(Debug)]
pub(super) struct SlowWriter {
    sync_ns: u64,
    doing: Doing,
    log: Arc<Log>,
    stops: Receiver<Stop>,
    go: Option<Sender<MonoNs>>,
    thread: Option<JoinHandle<()>>,
}

impl SlowWriter {
    pub(super) fn start(log: &Arc<Log>, sync_ns: u64) -> SlowWriter {
        let (stops_sender, stops) = channel();
        let (go, go_receiver) = channel();
        let log = Arc::clone(log);
        let writers_log = Arc::clone(&log);
        let thread = std::thread::spawn(move || {
            let leash = Leash { now: Cell::default(), stops: stops_sender, go: go_receiver };
            LEASH.set(Some(leash));
            run(&writers_log);
        });
        let doing = Doing::Rest { until: MonoNs(0) };
        SlowWriter { sync_ns, doing, log, stops, go: Some(go), thread: Some(thread) }
    }

    /// Runs the writer up to `now`. Returns whether it did anything.
    pub(super) fn run_until(&mut self, now: MonoNs) -> bool {
        let mut worked = false;
        while self.is_due(now) {
            let go = self.go.as_ref().expect("present until drop");
            go.send(now).expect("the thread runs until drop");
            self.doing = match self.stops.recv().expect("the thread runs until drop") {
                Stop::InSync => Doing::Sync { until: MonoNs(now.0 + self.sync_ns) },
                Stop::Between(Next::AtOnce) => Doing::Rest { until: now },
                Stop::Between(Next::AfterNs(ns)) => Doing::Rest { until: MonoNs(now.0 + ns) },
                Stop::Between(Next::Poisoned) => Doing::Nothing,
            };
            worked = true;
        }
        worked
    }

    fn is_due(&self, now: MonoNs) -> bool {
        match self.doing {
            Doing::Sync { until } => until <= now,
            Doing::Rest { until } => until <= now || self.log.needs_writer(),
            Doing::Nothing => false,
        }
    }

    pub(super) fn is_syncing(&self) -> bool {
        matches!(self.doing, Doing::Sync { .. })
    }
}

impl Drop for SlowWriter {
    fn drop(&mut self) {
        self.go = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer has been printed; a second panic here would hide it.
            thread.join().ok();
        }
    }
}

/// The main function of the writer's thread.
fn run(log: &Log) {
    LEASH.with_borrow(|leash| {
        let leash = leash.as_ref().expect("set by the caller");
        if !leash.wait() {
            return;
        }
        loop {
            let outcome = log.writer_step(&|| leash.now.get());
            if !leash.stop(Stop::Between(outcome.next)) {
                return;
            }
        }
    });
}
