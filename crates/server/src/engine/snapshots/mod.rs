//! Snapshots: the complete data in one file, taken stripe by stripe while the server runs, so that
//! older log segments can be freed.
//!
//! `docs/internals/snapshot-format.md` specifies the format. A snapshot is valid once it has its
//! final name. It is renamed after it is synced and after the log is durable up to its newest
//! position: it must never contain a write that the log may still lose, in particular part of a
//! transaction.

pub(crate) mod format;
mod load;

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use base::time::MonoNs;
use binlog::{Disk, Log, read_full_at};
use parking_lot::Mutex;

use crate::config::Settings;
use crate::engine::threads::Threads;
pub(crate) use load::{Snapshot, load, read};

/// What a snapshot was requested for. Its file is the same; tools wait for the fields of INFO that
/// belong to the command that they have sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// SAVE, BGSAVE, or growth of the log.
    #[default]
    Save,
    /// BGREWRITEAOF: the log before the snapshot is freed, as the new file replaces the old one in
    /// Redis.
    Rewrite,
}

/// State of snapshots: past, running and requested.
#[derive(Debug, Default, Clone)]
pub(crate) struct SnapshotStatus {
    /// Number of the running snapshot.
    pub(crate) running: Option<u64>,
    /// What the running or the last snapshot was requested for.
    pub(crate) purpose: Purpose,
    /// A snapshot to start when the running one has ended.
    pub(crate) scheduled: Option<Purpose>,
    /// The last one that BGREWRITEAOF requested and that has ended.
    pub(crate) last_rewrite: Option<Rewrite>,
    /// Number of snapshots that BGREWRITEAOF requested and that have ended.
    pub(crate) rewrites: u64,
    pub(crate) last_number: u64,
    pub(crate) last_ok: bool,
    /// Reason why the last snapshot failed.
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) last_unix_ms: u64,
    pub(crate) last_took_ms: u64,
    pub(crate) last_bytes: u64,
    pub(crate) last_keys: u64,
    pub(crate) finished: u64,
    pub(crate) succeeded: u64,
    /// Start of the running or the last snapshot, or of the server.
    pub(crate) began: MonoNs,
    /// Number of log records at the start of the last successful snapshot: later ones may be
    /// missing from it.
    pub(crate) changes_before: u64,
    /// Log position at the start of the last successful snapshot.
    pub(crate) log_position: u64,
    /// Log position at the start of the running snapshot.
    pub(crate) running_position: u64,
    /// After a failure: earliest time at which log growth may trigger another snapshot.
    retry_at: Option<MonoNs>,
}

/// Result of a snapshot that BGREWRITEAOF requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rewrite {
    pub(crate) is_ok: bool,
    pub(crate) took_ms: u64,
}

/// Retry delay: a snapshot that failed because of the disk would probably fail again at once.
const RETRY_NS: u64 = 60_000_000_000;

/// Value of [`Snapshots::free_bytes`] if the file system does not report its size.
const UNKNOWN: u64 = u64::MAX;

/// A snapshot is already running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AlreadyRunning;

/// Whether a requested snapshot has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Now,
    Scheduled,
}

#[derive(Debug)]
pub(crate) struct Snapshots {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) status: Mutex<SnapshotStatus>,
    pub(crate) requests: Mutex<Option<SyncSender<u64>>>,
    pub(super) thread: Threads,
    /// Set to abandon the running snapshot.
    pub(crate) stop: Arc<AtomicBool>,
    /// The server must finish the running snapshot before it stops.
    awaited_at_end: AtomicBool,
    /// Free bytes of the data directory's file system when they were last read, or [`UNKNOWN`].
    free_bytes: AtomicU64,
}

impl Snapshots {
    /// `last_unix_ms`: time of the snapshot that the data was loaded from, or of the server's
    /// start, which is `now`.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        last_unix_ms: u64,
        log_position: u64,
        now: MonoNs,
    ) -> Snapshots {
        let status = SnapshotStatus {
            last_ok: true,
            last_unix_ms,
            log_position,
            began: now,
            ..SnapshotStatus::default()
        };
        Snapshots {
            disk,
            status: Mutex::new(status),
            requests: Mutex::new(None),
            thread: Threads::default(),
            stop: Arc::default(),
            awaited_at_end: AtomicBool::new(false),
            free_bytes: AtomicU64::new(UNKNOWN),
        }
    }

    /// Reads how much space the disk has. The call may wait for the disk, so no reactor makes it.
    pub(crate) fn read_free_bytes(&self) {
        // A failed call is reported like an unknown size; the log reports what it could not write.
        let free_bytes = self.disk.free_bytes().ok().flatten().unwrap_or(UNKNOWN);
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
    }

    /// Free bytes of the data directory's file system a few seconds ago, if they are known.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        (free_bytes != UNKNOWN).then_some(free_bytes)
    }

    /// Returns the numbers of requested snapshots, and enables requests. One receiver per server.
    pub(crate) fn requests(&self) -> Receiver<u64> {
        let (sender, requests) = sync_channel(1);
        *self.requests.lock() = Some(sender);
        requests
    }

    /// Makes the server wait for the running snapshot at shutdown.
    pub(crate) fn await_at_end(&self) {
        self.awaited_at_end.store(true, Ordering::SeqCst);
    }

    /// Stops the thread. Abandons a running snapshot, since the log contains the same data, unless
    /// the shutdown was requested with a snapshot.
    pub(crate) fn stop(&self) {
        self.requests.lock().take();
        if !self.awaited_at_end.load(Ordering::SeqCst) {
            self.stop.store(true, Ordering::SeqCst);
        }
        self.thread.join();
    }

    pub(crate) fn status(&self) -> SnapshotStatus {
        self.status.lock().clone()
    }

    /// Starts a snapshot. Returns its number, which [`SnapshotDone`](crate::engine::mail::Mail::SnapshotDone) will carry.
    pub(crate) fn begin(
        &self,
        purpose: Purpose,
        log_position: u64,
        now: MonoNs,
    ) -> Result<u64, AlreadyRunning> {
        let mut status = self.status.lock();
        if status.running.is_some() {
            return Err(AlreadyRunning);
        }
        let number = status.last_number + 1;
        let requests = self.requests.lock();
        let sender = requests.as_ref().ok_or(AlreadyRunning)?;
        sender.try_send(number).map_err(|_| AlreadyRunning)?;
        status.running = Some(number);
        status.purpose = purpose;
        status.scheduled = status.scheduled.filter(|scheduled| *scheduled != purpose);
        status.began = now;
        status.last_number = number;
        status.running_position = log_position;
        status.retry_at = None;
        Ok(number)
    }

    /// Starts a snapshot, or has it started when the running one, of another purpose, has ended.
    pub(crate) fn begin_or_schedule(
        &self,
        purpose: Purpose,
        log_position: u64,
        now: MonoNs,
    ) -> Result<Begun, AlreadyRunning> {
        if self.begin(purpose, log_position, now).is_ok() {
            return Ok(Begun::Now);
        }
        let mut status = self.status.lock();
        if status.running.is_none() || status.purpose == purpose {
            return Err(AlreadyRunning);
        }
        status.scheduled = Some(purpose);
        Ok(Begun::Scheduled)
    }

    /// Starts a scheduled snapshot, or one because the log has grown enough since the last one, or
    /// because a pair of `save` is reached. `changes`: since the last one.
    pub(crate) fn consider(&self, log: &Log, settings: &Settings, now: MonoNs, changes: u64) {
        let next = log.next().0;
        let scheduled = self.status.lock().scheduled;
        if let Some(purpose) = scheduled
            && self.begin(purpose, next, now).is_ok()
        {
            return;
        }
        let limit_bytes = settings.snapshot_log_bytes;
        let SnapshotStatus { log_position, began, .. } = self.status();
        let gathered_bytes = next.saturating_sub(log_position);
        let age_s = now.since(began) / 1_000_000_000;
        let is_due = limit_bytes > 0 && gathered_bytes >= limit_bytes
            || settings.save.is_due(age_s, changes);
        if !is_due || log.poisoned().is_some() || !self.may_try(now) {
            return;
        }
        // A concurrent request may have started one: then there is nothing to do.
        if let Ok(number) = self.begin(Purpose::Save, next, now) {
            tracing::info!(number, gathered_bytes, changes, age_s, "taking a snapshot");
        }
    }

    /// Whether the last snapshot succeeded, or failed long enough ago.
    fn may_try(&self, now: MonoNs) -> bool {
        let mut status = self.status.lock();
        status.last_ok || now >= *status.retry_at.get_or_insert(MonoNs(now.0 + RETRY_NS))
    }
}

/// File name of an unfinished snapshot.
pub(crate) const TEMPORARY_NAME: &str = "snapshot.tmp";

/// Removes the file of an unfinished snapshot.
pub(crate) fn remove_leftover(disk: &dyn Disk) -> io::Result<()> {
    if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
        disk.remove(TEMPORARY_NAME)?;
    }
    Ok(())
}

/// Versions of the format that this program reads. It writes the last one.
pub(crate) const SNAPSHOT_VERSIONS: RangeInclusive<u8> = format::VERSION_MIN..=format::VERSION;

/// Returns the name of the newest snapshot, and its version unless its header is damaged.
pub(crate) fn newest_version(disk: &dyn Disk) -> io::Result<Option<(String, Option<u8>)>> {
    let Some((_, name)) = snapshot_names(disk)?.pop() else { return Ok(None) };
    let mut header = [0; format::HEADER_BYTES];
    let count = read_full_at(&*disk.open(&name)?, 0, &mut header)?;
    let version = format::version_of(&header).filter(|_| count == header.len());
    Ok(Some((name, version)))
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
