//! The log as its callers see it: append, request durability, be notified.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::planted;
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

use crate::committers::Committers;
use crate::disk::Disk;
use crate::lane::Lane;
use crate::manifest::{MANIFEST_NAME, ManifestFile};
use crate::options::{FOLLOWED_SYNC_NS, Options, SyncPolicy};
use crate::recent::Recent;
use crate::record::{Checksum, KIND_MARK, Lsn, Mark, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};
use crate::segment::Segment;
use crate::shelf::Shelf;
use crate::slot::{Scope, Slot};
use crate::stats::{Counters, GroupSizes, GroupSizesCounter, LogStats};
use crate::window::Window;
use crate::writer_state::WriterState;

/// Why the log accepts no more records. No further record becomes durable.
#[derive(Debug, Clone, Error)]
pub enum Poisoned {
    /// A failed write or sync is never repeated: after a failed sync the kernel may mark pages as
    /// clean that never reached the disk.
    #[error(
        "the log takes no more writes: {operation} {file} failed: {source}; \
         repair the disk or make room, then restart"
    )]
    Failed {
        operation: &'static str,
        file: String,
        #[source]
        source: Arc<io::Error>,
    },
    #[error(
        "the log takes no more writes: the data in memory is ahead of it, because {cause}; \
         restart to return to what is on the disk"
    )]
    Ahead { cause: String },
    #[error("the log has been closed")]
    Closed,
}

/// Why a record was not appended.
#[derive(Debug, Clone, Error)]
pub enum AppendError {
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    #[error("a record of {bytes} bytes is larger than {PAYLOAD_BYTES_MAX}")]
    TooLarge { bytes: usize },
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// Progress of the log. Invariant: `durable <= written <= next`. All are byte positions.
///
/// Written is not durable: after power loss the log may end anywhere in between, so replies wait
/// for `durable`, and recovery accepts a torn tail after it.
#[derive(Debug)]
struct Positions {
    written: AtomicU64,
    durable: AtomicU64,
}

/// Requests of appenders to the writer.
#[derive(Debug)]
struct Requests {
    sync_to: AtomicU64,
    write: AtomicBool,
    /// Number of records at which the next group is whole and begins; the writer waits for them. 0
    /// if it does not wait.
    whole_at: AtomicU64,
    /// The writer sleeps, or is about to: a thread with a request must wake it.
    asleep: AtomicBool,
}

/// The wall clock, in microseconds since the Unix epoch.
pub(crate) struct WallClock(Box<dyn Fn() -> i64 + Send + Sync>);

impl std::fmt::Debug for WallClock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("WallClock")
    }
}

/// An ordered, durable log of opaque records, shared by reference.
#[derive(Debug)]
pub struct Log {
    next: Padded<AtomicU64>,
    positions: Padded<Positions>,
    requests: Padded<Requests>,
    poisoned: AtomicBool,
    poison: OnceLock<Poisoned>,
    /// The callers' lanes, and after them the writer's own lane for marks.
    pub(crate) lanes: Box<[Lane]>,
    lane_cap_bytes: usize,
    pub(crate) checksum: Checksum,
    pub(crate) salt: u64,
    /// [`SyncPolicy`] in one word: 0 never, `u64::MAX` always, otherwise nanoseconds.
    policy: AtomicU64,
    pub(crate) segments: Mutex<Vec<Segment>>,
    pub(crate) followers: Mutex<Vec<Arc<Slot>>>,
    pub(crate) followers_count: AtomicUsize,
    /// Empty while the log has no followers.
    pub(crate) recent: Mutex<Recent>,
    pub(crate) follower_lag_bytes_max: u64,
    pub(crate) writer: Mutex<WriterState>,
    pub(crate) shelf: Shelf,
    /// Locked while it is written: by the helper thread, and when the log is closed.
    manifest: Mutex<ManifestFile>,
    /// Why no next segment could be created; `None` unless the log is stalled.
    stall: Mutex<Option<Arc<io::Error>>>,
    stalled: AtomicBool,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) group_sizes: Mutex<GroupSizesCounter>,
    pub(crate) committers: Committers,
    signal: Mutex<bool>,
    signal_changed: Condvar,
    pub(crate) stopping: AtomicBool,
    pub(crate) wall_clock: OnceLock<WallClock>,
}

/// Groups that followers find in memory: the one that has just become durable, and the next, which
/// may be written before they read.
const RECENT_GROUPS: usize = 2;

const POLICY_NEVER: u64 = 0;
const POLICY_ALWAYS: u64 = u64::MAX;

/// Where a log continues after recovery.
pub(crate) struct Start {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) lanes: usize,
    pub(crate) salt: u64,
    /// All segments; the last one is written to.
    pub(crate) segments: Vec<Segment>,
    pub(crate) next_number: u64,
    pub(crate) at: Lsn,
    /// Bytes before `at` in `at`'s block of the file.
    pub(crate) carried: Vec<u8>,
    pub(crate) manifest: ManifestFile,
}

/// The smallest position that a follower still has to read; `None` if no follower holds anything.
fn oldest_held(followers: &[Arc<Slot>]) -> Option<Lsn> {
    followers.iter().filter(|slot| slot.holds()).map(|slot| slot.position()).min()
}

/// Number of leading segments that hold nothing from `floor` on. The last segment always stays.
fn needless(segments: &[Segment], floor: Lsn, durable: Lsn) -> usize {
    // A segment itself, with its header, is durable only once a record in it is.
    let needless = |next: &&Segment| next.base <= floor && next.base < durable;
    segments.iter().skip(1).take_while(needless).count()
}

impl Log {
    pub(crate) fn new(start: Start) -> Self {
        let Start { disk, options, lanes, salt, segments, next_number, at, carried, manifest } =
            start;
        let cap = options.lane_cap(lanes);
        let current = segments.last().expect("a log has a segment to write to").clone();
        let block_bytes = current.file.block_bytes();
        let carried_bytes = current.offset(at) % block_bytes as u64;
        assert_eq!(carried.len() as u64, carried_bytes, "the tail's block is continued");
        let window = Window::new(at.0, &carried, block_bytes, options.group_bytes_max);
        let log = Self {
            next: Padded(AtomicU64::new(at.0)),
            positions: Padded(Positions {
                written: AtomicU64::new(at.0),
                durable: AtomicU64::new(at.0),
            }),
            requests: Padded(Requests {
                sync_to: AtomicU64::new(0),
                write: AtomicBool::new(false),
                whole_at: AtomicU64::new(0),
                asleep: AtomicBool::new(false),
            }),
            poisoned: AtomicBool::new(false),
            poison: OnceLock::new(),
            lanes: (0..=lanes).map(|_| Lane::new(cap)).collect(),
            lane_cap_bytes: cap,
            checksum: Checksum::new(salt),
            salt,
            policy: AtomicU64::new(POLICY_ALWAYS),
            segments: Mutex::new(segments),
            followers: Mutex::new(Vec::new()),
            followers_count: AtomicUsize::new(0),
            recent: Mutex::new(Recent::new(RECENT_GROUPS * options.group_bytes_max)),
            follower_lag_bytes_max: options.follower_lag_bytes_max,
            writer: Mutex::new(WriterState::new(current, at, window, lanes + 1, cap)),
            shelf: Shelf::new(disk, options.segment_bytes, options.blanks_max(), next_number),
            manifest: Mutex::new(manifest),
            stall: Mutex::new(None),
            stalled: AtomicBool::new(false),
            counters: Mutex::new(Counters::default()),
            group_sizes: Mutex::new(GroupSizesCounter::default()),
            committers: Committers::default(),
            signal: Mutex::new(false),
            signal_changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            wall_clock: OnceLock::new(),
        };
        log.set_sync_policy(options.sync);
        log
    }

    /// Appends a record. Returns where it ends: it is durable once [`Log::durable`] reaches that.
    ///
    /// To be called under the locks that order the writes: positions are assigned in call order.
    /// Never waits for I/O; costs one `fetch_add`, the lane's own lock, a checksum and one copy. A full
    /// lane still takes the record; see [`Log::has_room`].
    ///
    /// # Panics
    /// If `kind` is 0 or [`KIND_MARK`], or there is no such lane.
    #[inline]
    pub fn append(&self, lane: usize, kind: u8, payload: &[u8]) -> Result<Lsn, AppendError> {
        assert!(kind != 0 && kind != KIND_MARK, "kinds 0 and 255 belong to the log");
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(AppendError::TooLarge { bytes: payload.len() });
        }
        if self.is_poisoned() {
            return Err(self.poisoned().expect("set before the flag").into());
        }
        let lane = &self.lanes[..self.lanes.len() - 1][lane];
        let payload_crc = self.checksum.of_payload(payload);
        let (end, held_bytes) = lane.append(&self.next.0, kind, payload, payload_crc);
        // Only the append that crosses the half asks, so that the writer starts before the lane is full.
        let half = self.lane_cap_bytes / 2;
        if held_bytes >= half && held_bytes - (RECORD_HEADER_BYTES + payload.len()) < half {
            self.request_write();
        }
        Ok(end)
    }

    /// Marks of the log state from now on when their position became durable; what recovery has
    /// found counts as durable from now on. `unix_us` returns the wall clock, in microseconds since
    /// the Unix epoch. Has no effect if called again.
    pub fn set_wall_clock(&self, unix_us: impl Fn() -> i64 + Send + Sync + 'static) {
        self.wall_clock.get_or_init(|| WallClock(Box::new(unix_us)));
        let now = self.unix_us();
        for mark in &mut self.writer.lock().tail.unmarked {
            mark.unix_us = mark.unix_us.or(now);
        }
    }

    /// The present time of the wall clock that was set.
    pub fn unix_us(&self) -> Option<i64> {
        self.wall_clock.get().map(|clock| clock.0())
    }

    /// Appends a mark on the writer's own lane.
    pub(crate) fn append_mark(&self, mark: Mark) {
        assert!(mark.durable <= self.durable(), "recovery takes a mark for proof");
        let mut payload = Vec::new();
        mark.encode(&mut payload);
        let lane = self.lanes.last().expect("the marks' lane is the last");
        lane.append(&self.next.0, KIND_MARK, &payload, self.checksum.of_payload(&payload));
    }

    /// False when the lane is full. Its owner must then stop reading from its sockets before it
    /// executes the next write; the lane's waker is called when there is room again.
    #[inline]
    pub fn has_room(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        if lane.held_bytes() < self.lane_cap_bytes {
            return true;
        }
        lane.request_room();
        self.request_write();
        // Read again, because the writer may have taken the lane before the request was visible;
        // and in a poisoned log no appender waits, as every append is refused at once.
        lane.held_bytes() < self.lane_cap_bytes || self.is_poisoned()
    }

    /// Where the next record will start.
    pub fn next(&self) -> Lsn {
        Lsn(self.next.0.load(Ordering::SeqCst))
    }

    /// Everything before this position is in the page cache or on the disk: it survives the death
    /// of the process.
    pub fn written(&self) -> Lsn {
        Lsn(self.positions.0.written.load(Ordering::SeqCst))
    }

    /// A random number that identifies this log, the same after a restart.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Everything before this position is on stable storage: it survives a power cut.
    #[inline]
    pub fn durable(&self) -> Lsn {
        Lsn(self.positions.0.durable.load(Ordering::SeqCst))
    }

    /// Requests that the log becomes durable up to `lsn`, whatever the policy. The group starts at
    /// once, but after a slow sync only when the clients that it released have sent their next
    /// requests, or a fraction of its time has passed. At most one atomic operation while the
    /// writer is awake; after a slow sync also the lanes' locks. `lsn` must have been returned by
    /// [`Log::append`].
    #[inline]
    pub fn request_sync(&self, lsn: Lsn) {
        debug_assert!(lsn <= self.next(), "`append` has returned the position");
        if self.durable() >= lsn {
            return;
        }
        let Requests { sync_to, whole_at, .. } = &self.requests.0;
        let must_sync = sync_to.load(Ordering::SeqCst) < lsn.0
            && sync_to.fetch_max(lsn.0, Ordering::SeqCst) < lsn.0;
        // The thread that requested the same or a later position has woken the writer, or is about
        // to. A writer that waits for a whole group is woken by the thread that completes it, or by
        // the clock.
        let wakes = match whole_at.load(Ordering::SeqCst) {
            0 => must_sync,
            whole_at => self.held_records() >= whole_at,
        };
        if wakes {
            self.wake_writer();
        }
    }

    /// Users' records that are in the lanes. Takes the lanes' locks.
    pub(crate) fn held_records(&self) -> u64 {
        self.lanes[..self.lanes.len() - 1].iter().map(Lane::held_records).sum()
    }

    /// Sets the number of records at which the next group is whole; 0: it begins at once.
    pub(crate) fn set_whole_at(&self, records: u64) {
        self.requests.0.whole_at.store(records, Ordering::SeqCst);
    }

    /// Whether a sync was requested whose group is whole.
    pub(crate) fn needs_sync(&self, synced: Lsn) -> bool {
        let is_sync_requested = self.sync_requested() > synced && self.next() > synced;
        is_sync_requested
            && match self.requests.0.whole_at.load(Ordering::SeqCst) {
                0 => true,
                whole_at => self.held_records() >= whole_at,
            }
    }

    /// Requests that everything appended so far is written; synced only if the policy requires it.
    #[inline]
    pub fn request_write(&self) {
        let write = &self.requests.0.write;
        if !write.load(Ordering::SeqCst) && !write.swap(true, Ordering::SeqCst) {
            self.wake_writer();
        }
    }

    /// Has the lane's waker called once: when the log is durable up to `lsn`, or is poisoned. At
    /// once if that is already so, by this thread: it must hold no lock that the waker takes. Of
    /// several positions the smallest counts; read [`Log::durable`] when woken and ask again for the
    /// rest. A thread that may block calls [`Log::wait_durable`] instead.
    #[inline]
    pub fn wake_when_durable(&self, lane: usize, lsn: Lsn) {
        self.lanes[lane].waiter.arm(lsn, || self.durable() >= lsn || self.is_poisoned());
    }

    /// Sets how the owner of a lane is woken. The waker is called from the writer's thread or from
    /// that of [`Log::wake_when_durable`]: it must be short and must not call into the log.
    pub fn set_waker(&self, lane: usize, waker: Box<dyn Fn() + Send + Sync>) {
        self.lanes[lane].waiter.set_waker(waker);
    }

    /// Stops the log because a record that was already applied could not be appended: later records
    /// would depend on changes that recovery does not find. No effect on a log that has already
    /// stopped.
    pub fn poison(&self, error: &AppendError) {
        if !self.is_poisoned() {
            self.set_poison(Poisoned::Ahead { cause: error.to_string() });
        }
    }

    /// Why the log accepts no more records; `None` unless it is poisoned.
    pub fn poisoned(&self) -> Option<Poisoned> {
        self.poison.get().cloned()
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    /// The policy in force.
    pub fn sync_policy(&self) -> SyncPolicy {
        match self.policy.load(Ordering::Relaxed) {
            POLICY_NEVER => SyncPolicy::Never,
            POLICY_ALWAYS => SyncPolicy::Always,
            interval_ns => SyncPolicy::Interval(Duration::from_nanos(interval_ns)),
        }
    }

    /// The longest time without a sync while there is something to sync; `None`: the policy does not
    /// depend on the time.
    pub(crate) fn sync_interval_ns(&self) -> Option<u64> {
        match self.sync_policy() {
            SyncPolicy::Always => None,
            SyncPolicy::Interval(interval) => {
                Some(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX))
            }
            SyncPolicy::Never => self.has_durable_followers().then_some(FOLLOWED_SYNC_NS),
        }
    }

    fn has_durable_followers(&self) -> bool {
        let waits = |slot: &Arc<Slot>| slot.scope == Scope::Durable && slot.holds();
        self.followers_count.load(Ordering::SeqCst) > 0 && self.followers.lock().iter().any(waits)
    }

    /// Changes the policy from the next group on. An interval of zero is `Always`.
    pub fn set_sync_policy(&self, policy: SyncPolicy) {
        let word = match policy {
            SyncPolicy::Never => POLICY_NEVER,
            SyncPolicy::Always | SyncPolicy::Interval(Duration::ZERO) => POLICY_ALWAYS,
            SyncPolicy::Interval(interval) => {
                u64::try_from(interval.as_nanos()).unwrap_or(POLICY_ALWAYS - 1)
            }
        };
        self.policy.store(word, Ordering::Relaxed);
        self.wake_writer();
    }

    /// Makes the segments below `lsn` available again, after a snapshot that holds everything
    /// before it. Keeps what is not durable and what a follower still has to read, if that is not
    /// more than [`Options::follower_lag_bytes_max`]. Blocking: one rename or removal per segment,
    /// one sync of the directory.
    pub fn truncate_before(&self, lsn: Lsn) -> io::Result<()> {
        let old: Vec<Segment> = {
            let followers = self.followers.lock();
            let mut segments = self.segments.lock();
            let durable = self.durable();
            let limit = lsn.min(durable);
            self.disconnect_laggards(
                &followers,
                segments[needless(&segments, limit, durable)].base,
            );
            let floor = oldest_held(&followers).map_or(limit, |held| limit.min(held));
            assert!(floor <= durable, "what a power cut needs stays");
            let count = needless(&segments, floor, durable);
            assert!(count < segments.len(), "the segment in use stays");
            segments.drain(..count).collect()
        };
        if old.is_empty() { Ok(()) } else { self.shelf.recycle(old) }
    }

    /// Removes the hold of followers that lag too far and keep a segment before `first_kept`.
    fn disconnect_laggards(&self, followers: &[Arc<Slot>], first_kept: Lsn) {
        let written = self.written();
        for slot in followers.iter().filter(|slot| slot.holds() && slot.position() < first_kept) {
            let position = slot.position();
            let lag_bytes = written.0.saturating_sub(position.0);
            if lag_bytes > self.follower_lag_bytes_max {
                tracing::warn!(
                    position = position.0,
                    lag_bytes,
                    "disconnected a lagging follower of the log"
                );
                slot.lose_hold();
            }
        }
    }

    /// Prepares a file for the next segment, and records in the manifest which one is in use. The
    /// helper thread of the writer does this by itself; a program that drives the log by
    /// [`Log::writer_step`] may call it between steps.
    pub fn prepare_segment(&self) -> io::Result<()> {
        self.shelf.fill()?;
        self.record_durable().map_err(|(_, error)| error)
    }

    /// Writes to the manifest how far the log is durable. Returns the segment with an error.
    fn record_durable(&self) -> Result<(), (u64, io::Error)> {
        let durable = self.durable();
        let number = {
            let segments = self.segments.lock();
            let after = segments.partition_point(|segment| segment.base < durable);
            segments[after.saturating_sub(1)].number
        };
        self.manifest.lock().advance(number, durable).map_err(|error| (number, error))
    }

    /// The helper thread: keeps one file ready, and the manifest up to date.
    pub(crate) fn run_helper(&self) {
        while self.shelf.wait_for_request() {
            if let Err(error) = self.shelf.fill() {
                // The writer tries again when it needs the file.
                tracing::warn!(%error, "could not prepare the next log segment");
            }
            if let Err((_, error)) = self.record_durable() {
                tracing::warn!(%error, file = MANIFEST_NAME, "could not write the manifest");
            }
        }
    }

    /// Records the end of the log in the manifest, after all of it is durable.
    pub(crate) fn record_end(&self) -> Result<(), Poisoned> {
        self.record_durable().map_err(|(_, error)| Poisoned::Failed {
            operation: "writing",
            file: MANIFEST_NAME.into(),
            source: Arc::new(error),
        })
    }

    /// Why the log cannot grow at the moment: the file for the next segment could not be created.
    /// Nothing is lost, and the writer retries; until then records wait and are not durable.
    pub fn stall(&self) -> Option<Arc<io::Error>> {
        if self.is_stalled() { self.stall.lock().clone() } else { None }
    }

    /// Whether a write should be accepted now: false if the log is poisoned, or cannot grow.
    #[inline]
    pub fn takes_writes(&self) -> bool {
        !self.is_poisoned() && !self.is_stalled()
    }

    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    /// Records that no next segment could be made, or that one exists again.
    pub(crate) fn set_stall(&self, cause: Option<io::Error>) {
        let was_stalled = self.is_stalled();
        match &cause {
            Some(error) if !was_stalled => tracing::error!(
                %error,
                durable = self.durable().0,
                "could not make the next log segment: writes wait until there is room"
            ),
            None if was_stalled => tracing::info!("the log can grow again"),
            _ => {}
        }
        self.stalled.store(cause.is_some(), Ordering::SeqCst);
        *self.stall.lock() = cause.map(Arc::new);
    }

    /// A copy of the counters. Takes short locks, so it is too slow for every request.
    pub fn stats(&self) -> LogStats {
        let counters = *self.counters.lock();
        // In this order: each may grow while the next one is read.
        let (durable, written, next) = (self.durable(), self.written(), self.next());
        assert!(durable <= written);
        assert!(written <= next);
        let slowest = oldest_held(&self.followers.lock());
        LogStats {
            groups: counters.groups,
            records: counters.records,
            bytes: counters.bytes,
            writes: counters.writes,
            syncs: counters.syncs,
            file_syncs: counters.file_syncs,
            sync_ns_last: counters.sync_ns_last,
            sync_ns_sum: counters.sync_ns_sum,
            sync_ns_max: counters.sync_ns_max,
            sync_ns_buckets: counters.sync_ns_buckets,
            waiting_bytes: next.0 - written.0,
            unsynced_bytes: written.0 - durable.0,
            segments: self.segments.lock().len(),
            blank_segments: self.shelf.len(),
            lane_bytes: self.lanes[..self.lanes.len() - 1].iter().map(Lane::held_bytes).collect(),
            follower_lag_bytes: slowest.map_or(0, |at| written.0.saturating_sub(at.0)),
        }
    }

    /// Records and bytes of each write. Copies two histograms: for reports.
    pub fn group_sizes(&self) -> GroupSizes {
        self.group_sizes.lock().sizes()
    }

    /// Only the writer publishes, so its own earlier positions are what it reads here.
    pub(crate) fn publish_written(&self, written: Lsn) {
        assert!(self.written() <= written, "the log never gets shorter");
        assert!(written <= self.next(), "only appended bytes are written");
        self.positions.0.written.store(written.0, Ordering::SeqCst);
        self.publish_to_followers();
    }

    pub(crate) fn publish_durable(&self, durable: Lsn) {
        let durable = Lsn(planted::shifted("durable position", durable.0));
        assert!(self.durable() <= durable, "a durable record stays durable");
        assert!(durable <= self.written(), "only written bytes are synced");
        self.positions.0.durable.store(durable.0, Ordering::SeqCst);
        for lane in &self.lanes {
            lane.waiter.publish(durable);
        }
        self.publish_to_followers();
    }

    fn publish_to_followers(&self) {
        if self.followers_count.load(Ordering::SeqCst) > 0 {
            for slot in self.followers.lock().iter() {
                slot.publish(self.durable(), self.written());
            }
        }
    }

    /// Refuses all further records and wakes every waiting thread, because its position will never
    /// be reached.
    pub(crate) fn set_poison(&self, cause: Poisoned) {
        if !matches!(cause, Poisoned::Closed) {
            tracing::error!(%cause, durable = self.durable().0, "log poisoned");
        }
        // The first cause is kept: a log that failed cannot be closed in order later.
        self.poison.get_or_init(|| cause);
        self.poisoned.store(true, Ordering::SeqCst);
        for lane in &self.lanes {
            lane.wake_for_room();
            lane.waiter.disarm_and_wake();
        }
        self.committers.wake_all();
        for slot in self.followers.lock().iter() {
            slot.wake();
        }
    }

    pub(crate) fn sync_requested(&self) -> Lsn {
        Lsn(self.requests.0.sync_to.load(Ordering::SeqCst))
    }

    /// Requests a group without waking the writer: the caller is about to run it.
    pub(crate) fn note_request(&self, sync_to: Option<Lsn>) {
        let requests = &self.requests.0;
        requests.write.store(true, Ordering::SeqCst);
        if let Some(lsn) = sync_to {
            requests.sync_to.fetch_max(lsn.0, Ordering::SeqCst);
        }
    }

    /// Whether a write was requested since the last call.
    pub(crate) fn take_write_request(&self) -> bool {
        self.requests.0.write.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn wake_writer(&self) {
        let asleep = &self.requests.0.asleep;
        if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
            *self.signal.lock() = true;
            self.signal_changed.notify_one();
        }
    }

    /// Whether the writer has work to do, whatever the time. For programs that drive the writer
    /// themselves: otherwise it may sleep as long as [`crate::Next`] specifies.
    pub fn needs_writer(&self) -> bool {
        // A stalled log is written after some time, not because of a request.
        !self.is_stalled()
            && (self.requests.0.write.load(Ordering::SeqCst) || self.needs_sync(self.durable()))
    }

    /// Sleeps for at most `ns`, unless a request arrives in the meantime.
    ///
    /// No request is lost: the writer first stores that it sleeps and then reads the requests; an
    /// appender first stores its request and then reads whether the writer sleeps.
    pub(crate) fn sleep(&self, ns: u64) {
        let requests = &self.requests.0;
        requests.asleep.store(true, Ordering::SeqCst);
        if !self.needs_writer() && !self.stopping.load(Ordering::SeqCst) {
            let mut signalled = self.signal.lock();
            if !*signalled {
                self.signal_changed.wait_for(&mut signalled, Duration::from_nanos(ns));
            }
            *signalled = false;
        }
        requests.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_disk::FaultDisk;

    /// Whether a sleeping writer is woken when this is done.
    fn wakes(log: &Log, act: impl FnOnce()) -> bool {
        log.requests.0.asleep.store(true, Ordering::SeqCst);
        act();
        !log.requests.0.asleep.load(Ordering::SeqCst)
    }

    #[test]
    fn a_gathering_writer_is_woken_by_the_record_that_makes_the_group_whole() {
        let disk = Arc::new(FaultDisk::new(1));
        let (log, _) = Log::open(disk, Options::default(), 2, Lsn(0), &mut |_| Ok(())).unwrap();
        let append = |lane| log.append(lane, 1, b"x").unwrap();
        let first = append(0);
        assert!(wakes(&log, || log.request_sync(first)));
        assert!(!wakes(&log, || log.request_sync(first)), "requested before");

        log.set_whole_at(3);
        assert!(!log.needs_writer());
        let second = append(1);
        assert!(!wakes(&log, || log.request_sync(second)));
        let (third, last) = (append(0), append(1));
        assert!(wakes(&log, || log.request_sync(last)));
        assert!(log.needs_writer());
        // The reactor whose record completed the group may request after others have requested
        // more.
        assert!(wakes(&log, || log.request_sync(third)));

        log.set_whole_at(100);
        assert!(!wakes(&log, || log.request_sync(append(0))));
        assert!(wakes(&log, || log.request_write()), "a full lane does not wait for a whole group");
    }
}
