//! Snapshots: the whole data in one file, taken stripe by stripe while the server works, so that the
//! log before it can go.
//!
//! The format is `docs/snapshot-format.md`. A snapshot counts once it has its final name, which it
//! gets after it is synced, and after the log is durable up to the newest position it contains: it
//! must never hold a write that the log may still lose, least of all half of a transaction.

mod draft;
mod format;
mod load;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::time::MonoNs;
use binlog::Disk;
use parking_lot::Mutex;

use crate::config::Settings;
use crate::mail::Mail;
use crate::shared::Shared;
pub(crate) use draft::write_whole;
use draft::{Draft, Step, Written, remove_leftover};
pub(crate) use load::{Snapshot, load, read};

/// One snapshot was, is or will be running.
#[derive(Debug, Default, Clone)]
pub(crate) struct SnapshotStatus {
    /// Number of the one that runs.
    pub(crate) running: Option<u64>,
    pub(crate) last_number: u64,
    pub(crate) last_ok: bool,
    /// Why the last one failed.
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) last_unix_ms: u64,
    pub(crate) last_took_ms: u64,
    pub(crate) last_bytes: u64,
    pub(crate) last_keys: u64,
    pub(crate) finished: u64,
    pub(crate) succeeded: u64,
    /// When the one that runs, or the last one, began.
    pub(crate) began: MonoNs,
    /// Records in the log when the last good one began: what it may not contain came after.
    pub(crate) changes_before: u64,
    /// The log's position when the last good one began.
    log_position: u64,
    /// The same of the one that runs.
    running_position: u64,
    /// After one that failed: when the log's growth is a reason for another one.
    retry_at: Option<MonoNs>,
}

/// A snapshot that failed because of the disk would most likely fail again at once.
const RETRY_NS: u64 = 60_000_000_000;

/// A snapshot is running already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AlreadyRunning;

#[derive(Debug)]
pub(crate) struct Snapshots {
    disk: Arc<dyn Disk>,
    status: Mutex<SnapshotStatus>,
    requests: Mutex<Option<SyncSender<u64>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The one that runs is given up.
    stop: Arc<AtomicBool>,
    /// The server was asked to take one before it ends.
    awaited_at_end: AtomicBool,
}

impl Snapshots {
    /// `last_unix_ms`: when the snapshot was taken that the data came from, or the start.
    pub(crate) fn new(disk: Arc<dyn Disk>, last_unix_ms: u64, log_position: u64) -> Snapshots {
        let status = SnapshotStatus {
            last_ok: true,
            last_unix_ms,
            log_position,
            ..SnapshotStatus::default()
        };
        Snapshots {
            disk,
            status: Mutex::new(status),
            requests: Mutex::new(None),
            thread: Mutex::new(None),
            stop: Arc::default(),
            awaited_at_end: AtomicBool::new(false),
        }
    }

    /// Starts the thread that takes them.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let taker = self.taker();
        let of_thread = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || run(&of_thread, taker))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// The worker that takes them; from now on they can be asked for. One per server.
    pub(crate) fn taker(&self) -> Taker {
        let (sender, requests) = sync_channel(1);
        *self.requests.lock() = Some(sender);
        Taker { requests, running: None }
    }

    /// The server, when it ends, waits for the snapshot that runs.
    pub(crate) fn await_at_end(&self) {
        self.awaited_at_end.store(true, Ordering::SeqCst);
    }

    /// Ends the thread. A snapshot that runs is given up, as the log has what it would hold, unless
    /// the end was asked for with one.
    pub(crate) fn stop(&self) {
        self.requests.lock().take();
        if !self.awaited_at_end.load(Ordering::SeqCst) {
            self.stop.store(true, Ordering::SeqCst);
        }
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the snapshot thread panicked");
        }
    }

    pub(crate) fn status(&self) -> SnapshotStatus {
        self.status.lock().clone()
    }

    /// Begins a snapshot. Returns its number; [`Mail::SnapshotDone`] will name it.
    pub(crate) fn begin(&self, log_position: u64) -> Result<u64, AlreadyRunning> {
        let mut status = self.status.lock();
        if status.running.is_some() {
            return Err(AlreadyRunning);
        }
        let number = status.last_number + 1;
        let requests = self.requests.lock();
        let sender = requests.as_ref().ok_or(AlreadyRunning)?;
        sender.try_send(number).map_err(|_| AlreadyRunning)?;
        status.running = Some(number);
        status.last_number = number;
        status.running_position = log_position;
        status.retry_at = None;
        Ok(number)
    }

    /// Begins one when enough log has gathered since the last.
    pub(crate) fn consider(&self, shared: &Shared, settings: &Settings, now: MonoNs) {
        let limit_bytes = settings.snapshot_log_bytes;
        let next = shared.log.next().0;
        let gathered_bytes = next.saturating_sub(self.status.lock().log_position);
        let is_due = limit_bytes > 0 && gathered_bytes >= limit_bytes;
        if !is_due || shared.log.poisoned().is_some() || !self.may_try(now) {
            return;
        }
        // Another one may have begun in between: then there is nothing to do.
        if let Ok(number) = self.begin(next) {
            tracing::info!(number, gathered_bytes, "the log has grown: taking a snapshot");
        }
    }

    /// Whether the last one was good, or failed some time ago.
    fn may_try(&self, now: MonoNs) -> bool {
        let mut status = self.status.lock();
        status.last_ok || now >= *status.retry_at.get_or_insert(MonoNs(now.0 + RETRY_NS))
    }
}

fn run(shared: &Shared, mut taker: Taker) {
    const PAUSE: Duration = Duration::from_millis(1);
    while let Ok(number) = taker.requests.recv() {
        taker.begin(shared, number);
        loop {
            match taker.step(shared) {
                Progress::More => {}
                Progress::WaitsForLog => std::thread::sleep(PAUSE),
                Progress::Idle => break,
            }
        }
    }
}

/// Takes the snapshots that are asked for, in small steps: the thread's work without the thread.
#[derive(Debug)]
pub(crate) struct Taker {
    requests: Receiver<u64>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    began: MonoNs,
    changes_before: u64,
    /// None before the first step.
    file: Option<Draft>,
}

/// What [`Taker::step`] has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is no snapshot to take.
    Idle,
    More,
    /// Nothing, before the log is durable up to what the snapshot holds.
    WaitsForLog,
}

impl Taker {
    /// Begins the snapshot that was asked for, if there is one.
    #[cfg(test)]
    pub(crate) fn take_request(&mut self, shared: &Shared) {
        if self.running.is_none()
            && let Ok(number) = self.requests.try_recv()
        {
            self.begin(shared, number);
        }
    }

    fn begin(&mut self, shared: &Shared, number: u64) {
        let began = crate::clock::mono_now();
        shared.snapshots.status.lock().began = began;
        let changes_before = shared.totals().changes;
        self.running = Some(Running { number, began, changes_before, file: None });
    }

    /// Writes the next part of the snapshot that was begun.
    pub(crate) fn step(&mut self, shared: &Shared) -> Progress {
        let Some(running) = &mut self.running else { return Progress::Idle };
        let ended = match running.step(shared) {
            Ok(Step::More) => return Progress::More,
            Ok(Step::WaitsForLog) => return Progress::WaitsForLog,
            Ok(Step::Done(written)) => Ok(written),
            Err(error) => Err(error),
        };
        running.end(shared, ended);
        self.running = None;
        Progress::Idle
    }
}

impl Running {
    fn step(&mut self, shared: &Shared) -> io::Result<Step> {
        match &mut self.file {
            Some(draft) => draft.step(shared),
            empty => {
                *empty = Some(Draft::create(shared)?);
                Ok(Step::More)
            }
        }
    }

    fn end(&self, shared: &Shared, ended: io::Result<Written>) {
        let number = self.number;
        let took_ms = crate::clock::mono_now().since(self.began) / 1_000_000;
        let error = ended.as_ref().err().map(|error| Arc::from(error.to_string()));
        if ended.is_err()
            && let Err(error) = remove_leftover(&*shared.snapshots.disk)
        {
            tracing::warn!(number, %error, "what a failed snapshot left could not be removed");
        }
        let mut status = shared.snapshots.status.lock();
        status.running = None;
        status.last_ok = ended.is_ok();
        status.last_error.clone_from(&error);
        status.last_took_ms = took_ms;
        status.finished += 1;
        match ended {
            Ok(written) => {
                status.succeeded += 1;
                status.log_position = status.running_position;
                status.changes_before = self.changes_before;
                status.last_unix_ms = crate::clock::unix_now().0;
                status.last_bytes = written.bytes;
                status.last_keys = written.keys;
                let (keys, bytes) = (written.keys, written.bytes);
                tracing::info!(number, keys, bytes, took_ms, "snapshot taken");
            }
            Err(_) if shared.snapshots.stop.load(Ordering::SeqCst) => {
                tracing::info!(number, "gave the snapshot up: the server ends");
            }
            Err(error) => tracing::error!(number, %error, "snapshot failed"),
        }
        drop(status);
        // At the end of the server no reactor is there any more.
        if shared.snapshots.requests.lock().is_some() {
            shared.broadcast(&Mail::SnapshotDone { number, error });
        }
    }
}

fn file_name(position: u64) -> String {
    format!("snapshot-{position:020}.myr")
}

fn position_of(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-")?.strip_suffix(".myr")?.parse().ok()
}

fn snapshot_names(disk: &dyn Disk) -> io::Result<Vec<(u64, String)>> {
    let mut names: Vec<(u64, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| position_of(&name).map(|position| (position, name)))
        .collect();
    names.sort_unstable();
    Ok(names)
}
