//! Snapshots: the whole data in one file, taken stripe by stripe while the server works, so that the
//! log before it can go.
//!
//! The format is `docs/internals/snapshot-format.md`. A snapshot counts once it has its final name,
//! which it gets after it is synced, and after the log is durable up to the newest position it
//! contains: it must never hold a write that the log may still lose, least of all half of a transaction.

pub(crate) mod format;
mod load;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use base::time::MonoNs;
use binlog::{Disk, Log};
use parking_lot::Mutex;

use crate::config::Settings;
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
    pub(crate) log_position: u64,
    /// The same of the one that runs.
    pub(crate) running_position: u64,
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
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) status: Mutex<SnapshotStatus>,
    pub(crate) requests: Mutex<Option<SyncSender<u64>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The one that runs is given up.
    pub(crate) stop: Arc<AtomicBool>,
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

    /// The numbers of the snapshots to take; from now on they can be asked for. One receiver per server.
    pub(crate) fn requests(&self) -> Receiver<u64> {
        let (sender, requests) = sync_channel(1);
        *self.requests.lock() = Some(sender);
        requests
    }

    /// The thread that takes them, which [`Snapshots::stop`] ends.
    pub(crate) fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
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
    pub(crate) fn consider(&self, log: &Log, settings: &Settings, now: MonoNs) {
        let limit_bytes = settings.snapshot_log_bytes;
        let next = log.next().0;
        let gathered_bytes = next.saturating_sub(self.status.lock().log_position);
        let is_due = limit_bytes > 0 && gathered_bytes >= limit_bytes;
        if !is_due || log.poisoned().is_some() || !self.may_try(now) {
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

/// A snapshot that is not finished.
pub(crate) const TEMPORARY_NAME: &str = "snapshot.tmp";

/// Removes what an unfinished snapshot has written.
pub(crate) fn remove_leftover(disk: &dyn Disk) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
        disk.remove(TEMPORARY_NAME)?;
    }
    Ok(())
}

pub(crate) fn file_name(position: u64) -> String {
    format!("snapshot-{position:020}.myr")
}

pub(crate) fn position_of(name: &str) -> Option<u64> {
    name.strip_prefix("snapshot-")?.strip_suffix(".myr")?.parse().ok()
}

pub(crate) fn snapshot_names(disk: &dyn Disk) -> io::Result<Vec<(u64, String)>> {
    let mut names: Vec<(u64, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| position_of(&name).map(|position| (position, name)))
        .collect();
    names.sort_unstable();
    Ok(names)
}
