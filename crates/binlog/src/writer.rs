//! The writer: takes all lanes, writes once, syncs once, publishes, wakes.
//!
//! [`Log::writer_step`] is one round of it, without a thread or a clock of its own, so that tests
//! and the simulator can drive it; [`Log::spawn_writer`] calls it in a loop.
//!
//! Why every record below `limit` is in the window: `limit` is read from `next` before any lane is
//! taken. An append with a position below it held its lane's lock at that moment, so the lane is
//! taken only after the record's bytes are in it. A lane that is then empty holds nothing below
//! `limit`, and is skipped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use base::planted;
use base::time::MonoNs;
use parking_lot::MutexGuard;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::disk::write_all_at;
use crate::gathering::Gathering;
use crate::log::{Log, Poisoned};
use crate::options::{RECYCLED_SEGMENTS_DEFAULT, SyncPolicy, WRITE_TICK_NS};
use crate::record::{self, Header, Lsn, Mark, Seal};
use crate::segment::{activate, file_name};
use crate::to_usize;
use crate::window::Window;
use crate::writer_state::{WriteTail, WriterState};

/// Without syncs, at most this many filled segments wait for the kernel to write them back; one
/// more is synced with them. All of them should fit among the recycled segments.
const UNSYNCED_SEGMENTS_MAX: usize = 4;
const _: () = assert!(UNSYNCED_SEGMENTS_MAX < RECYCLED_SEGMENTS_DEFAULT);

/// Delay before another attempt to create the next segment: a minimum, and a multiple of the time
/// that the failed attempt took.
const RETRY_NS: u64 = 100_000_000;
const RETRY_PARTS: u64 = 10;

/// The result of one round, and when the next is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOutcome {
    pub bytes_written: u64,
    pub synced: bool,
    pub next: Next,
}

/// When the writer must be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is more work already.
    AtOnce,
    /// After this many nanoseconds, or on a request.
    AfterNs(u64),
    /// Never: the log is poisoned or closed.
    Poisoned,
}

/// What a round does.
struct Plan {
    write: bool,
    sync: bool,
    /// A caller waits for the sync.
    is_sync_requested: bool,
}

type Clock<'a> = &'a dyn Fn() -> MonoNs;

/// Why a group did not reach the disk completely.
enum Failure {
    Poisoned(Poisoned),
    /// The file for the next segment could not be created. Nothing was written to it, so the
    /// records are not in doubt: they stay in memory and are written later.
    NoSegment(io::Error),
}

impl From<Poisoned> for Failure {
    fn from(cause: Poisoned) -> Self {
        Self::Poisoned(cause)
    }
}

fn failed(operation: &'static str, number: u64) -> impl FnOnce(io::Error) -> Poisoned {
    move |error| Poisoned::Failed { operation, file: file_name(number), source: Arc::new(error) }
}

impl Log {
    /// Runs one round of the writer: writes and syncs what was requested, or what is due at
    /// `clock()`. A failure poisons the log, and [`Log::poisoned`] returns it.
    pub fn writer_step(&self, clock: &dyn Fn() -> MonoNs) -> StepOutcome {
        self.step(self.writer.lock(), clock, |writer| self.next_step(writer, clock()))
    }

    /// As [`Log::writer_step`], for a thread that needs no more than this one round; false if
    /// another thread is running one.
    pub(crate) fn try_writer_step(&self, clock: &dyn Fn() -> MonoNs) -> bool {
        let Some(writer) = self.writer.try_lock() else { return false };
        self.step(writer, clock, |_| Next::AtOnce);
        true
    }

    fn step(
        &self,
        mut writer: MutexGuard<'_, WriterState>,
        clock: &dyn Fn() -> MonoNs,
        next: impl FnOnce(&WriterState) -> Next,
    ) -> StepOutcome {
        let group = self.committers.begin_group();
        let mut outcome = self.locked_step(&mut writer, clock);
        if outcome.next != Next::Poisoned {
            outcome.next = next(&writer);
        }
        self.committers.publish_group();
        drop(writer);
        if self.committers.end_group(group) {
            self.wake_writer();
        }
        outcome
    }

    /// Runs all of a step, except that it does not compute when the next one is due.
    fn locked_step(&self, writer: &mut WriterState, clock: &dyn Fn() -> MonoNs) -> StepOutcome {
        let mut outcome = StepOutcome { bytes_written: 0, synced: false, next: Next::Poisoned };
        if self.is_poisoned() {
            return outcome;
        }
        let now = clock();
        if !self.end_stall(writer, now, clock) {
            outcome.next = Next::AtOnce;
            return outcome;
        }
        let plan = self.plan(writer, now);
        let before = (writer.tail.at, writer.tail.synced);
        match self.run_group(writer, &plan, now, clock) {
            Ok(()) => {}
            Err(Failure::Poisoned(cause)) => {
                self.set_poison(cause);
                return outcome;
            }
            Err(Failure::NoSegment(error)) => {
                self.begin_stall(writer, error, now, clock);
                // Bytes that were written before the failure become durable.
                if let Err(cause) = self.sync_files(&mut writer.tail, clock) {
                    self.set_poison(cause);
                    return outcome;
                }
                self.publish_durable(writer.tail.synced);
            }
        }
        outcome.bytes_written = writer.tail.at.0 - before.0.0;
        outcome.synced = writer.tail.synced > before.1;
        outcome.next = Next::AtOnce;
        outcome
    }

    /// Creates the segment that could not be created before, if the retry is due. False while the
    /// log cannot grow.
    fn end_stall(&self, writer: &mut WriterState, now: MonoNs, clock: Clock<'_>) -> bool {
        match writer.retry_at {
            None => return true,
            Some(retry_at) if now < retry_at => return false,
            Some(_) => {}
        }
        if let Err(error) = self.shelf.fill() {
            self.begin_stall(writer, error, now, clock);
            return false;
        }
        writer.retry_at = None;
        self.set_stall(None);
        self.note_request(None);
        true
    }

    fn begin_stall(
        &self,
        writer: &mut WriterState,
        error: io::Error,
        now: MonoNs,
        clock: Clock<'_>,
    ) {
        let ended = clock();
        // Filling a disk takes long if it fails only at the end, so most of the time is left to
        // others.
        let wait_ns = RETRY_NS.max(ended.since(now).saturating_mul(RETRY_PARTS));
        writer.retry_at = Some(MonoNs(ended.0.saturating_add(wait_ns)));
        self.set_stall(Some(error));
    }

    fn plan(&self, writer: &mut WriterState, now: MonoNs) -> Plan {
        let next = self.next();
        let is_write_requested = self.take_write_request();
        let waits = writer.gathering.until().is_some_and(|until| until > now);
        // A tick would end every wait after a sync that is longer than a tick.
        let ticks = !waits && now.since(writer.written_at) >= WRITE_TICK_NS;
        let write_due = is_write_requested || ticks;
        let interval_ns = self.sync_interval_ns();
        let sync_due = (write_due && self.sync_policy() == SyncPolicy::Always)
            || interval_ns.is_some_and(|interval_ns| now.since(writer.synced_at) >= interval_ns);
        if write_due || sync_due || !waits {
            self.end_gathering(&mut writer.gathering);
        }
        let is_sync_requested = self.needs_sync(writer.tail.synced);
        if is_sync_requested {
            self.end_gathering(&mut writer.gathering);
        }
        let sync = next > writer.tail.synced && (sync_due || is_sync_requested);
        Plan { write: next > writer.tail.at && (write_due || sync), sync, is_sync_requested }
    }

    fn end_gathering(&self, gathering: &mut Gathering) {
        if gathering.until().is_some() {
            gathering.end(self.held_records());
            self.set_whole_at(0);
        }
    }

    fn run_group(
        &self,
        writer: &mut WriterState,
        plan: &Plan,
        now: MonoNs,
        clock: Clock<'_>,
    ) -> Result<(), Failure> {
        assert!(writer.tail.synced <= writer.tail.at);
        if plan.write {
            self.append_marks(&mut writer.tail);
            self.write_group(writer, clock)?;
            writer.written_at = now;
        }
        if plan.sync {
            let took_ns = self.sync_files(&mut writer.tail, clock)?;
            writer.gathering.note_sync(took_ns);
            writer.synced_at = now;
            let released = std::mem::take(&mut writer.unsynced_records);
            if plan.is_sync_requested {
                // Counted before any client is released: later records may come from released
                // clients.
                let early = || self.held_records();
                let whole_at = writer.gathering.begin(clock(), released, early);
                self.set_whole_at(whole_at.unwrap_or(0));
            }
            self.publish_durable(writer.tail.synced);
        }
        Ok(())
    }

    fn write_group(&self, writer: &mut WriterState, clock: Clock<'_>) -> Result<(), Failure> {
        let limit = self.next();
        let records = self.take_lanes(writer);
        let WriterState { window, tail, .. } = writer;
        let from = tail.at;
        let end = Lsn(window.complete(limit.0));
        assert!(limit <= end, "the lanes held every record below the limit");
        let written = self.write_to(end, tail, window, clock);
        assert!(tail.at <= end, "nothing is written where a record is missing");
        let bytes = tail.at.0 - from.0;
        self.group_sizes.lock().count(records, bytes);
        {
            let mut counters = self.counters.lock();
            counters.groups += 1;
            counters.records += records;
            counters.bytes += bytes;
            counters.writes = tail.writes;
        }
        self.publish_written(tail.at);
        written
    }

    /// Moves the contents of the lanes into the window. Returns the number of records, marks
    /// included.
    fn take_lanes(&self, writer: &mut WriterState) -> u64 {
        let WriterState { window, taken, lane_cap_bytes, unsynced_records, .. } = writer;
        let lanes = planted::shifted("lanes taken", self.lanes.len() as u64);
        for (lane, empty) in self.lanes.iter().take(to_usize(lanes)).zip(taken.iter_mut()) {
            if lane.held_bytes() > 0 {
                lane.take(empty);
            }
        }
        for lane in &self.lanes {
            lane.wake_for_room();
        }
        for lane in taken.iter() {
            window.place(lane);
        }
        let (marks, lanes) = taken.split_last().expect("the marks' lane is the last");
        let user_records = lanes.iter().map(|lane| lane.records).sum::<u64>();
        let records = user_records + marks.records;
        *unsynced_records += user_records;
        for lane in taken.iter_mut().filter(|lane| lane.records > 0) {
            lane.reset(*lane_cap_bytes);
        }
        records
    }

    /// Writes the window's records before `end`, and continues in a new segment where one is full.
    fn write_to(
        &self,
        end: Lsn,
        tail: &mut WriteTail,
        window: &mut Window,
        clock: Clock<'_>,
    ) -> Result<(), Failure> {
        while tail.at < end {
            let rest = window.unwritten(end.0);
            let room = tail.segment.room(tail.at);
            let fits = if rest.len() as u64 <= room {
                rest.len()
            } else {
                record::whole_records_within(rest, room)
            };
            if fits == 0 {
                let first = Header::decode(rest).expect("complete bytes are whole records");
                self.roll(tail, window, first.record_bytes() as u64, clock)?;
                window.start_block();
                continue;
            }
            let segment = &tail.segment;
            let valid = || record::valid_bytes(self.checksum, tail.at, &rest[..fits]);
            debug_assert_eq!(valid(), fits, "recovery reads every record that is written");
            // Before the write: no follower reads further than the written position.
            if self.followers_count.load(Ordering::SeqCst) > 0 {
                let mut recent = self.recent.lock();
                // Again: the last follower has its contents freed after the count is 0.
                if self.followers_count.load(Ordering::SeqCst) > 0 {
                    recent.note(tail.at, &rest[..fits]);
                }
            }
            window
                .write(fits, |at, blocks| {
                    write_all_at(&*segment.file, segment.offset(Lsn(at)), blocks)
                })
                .map_err(failed("writing", segment.number))?;
            tail.at.0 += fits as u64;
            tail.writes += 1;
        }
        Ok(())
    }

    /// Continues in a new segment at `tail.at`.
    ///
    /// The filled segment is sealed and synced first. So its seal proves that the new file must
    /// exist before that file holds anything, and the new header proves the end of the previous
    /// segment. A few filled segments may be left to the kernel while no caller requests syncs.
    fn roll(
        &self,
        tail: &mut WriteTail,
        window: &Window,
        first_record_bytes: u64,
        clock: Clock<'_>,
    ) -> Result<(), Failure> {
        // Before anything is written, so that without a file nothing has changed.
        let blank = self.shelf.take().map_err(Failure::NoSegment)?;
        let number = blank.number;
        if tail.segment.is_sealed_when_full() {
            let seal = Seal { successor: number, successor_bytes: blank.size_bytes };
            self.seal(tail, window, seal).map_err(failed("writing", tail.segment.number))?;
        }
        let lazy = self.sync_policy() == SyncPolicy::Never;
        if lazy && tail.unsynced.len() < UNSYNCED_SEGMENTS_MAX {
            tail.unsynced.push(tail.segment.clone());
        } else {
            self.publish_written(tail.at);
            self.sync_files(tail, clock)?;
            self.publish_durable(tail.synced);
        }
        assert!(tail.segment.number < number, "numbers of segments grow");
        tail.segment = activate(blank, tail.at, tail.synced, self.salt, first_record_bytes)
            .map_err(failed("writing the header of", number))?;
        assert!(tail.segment.room(tail.at) >= first_record_bytes, "the segment was made for it");
        tail.writes += 1;
        self.segments.lock().push(tail.segment.clone());
        Ok(())
    }

    /// Writes the seal after the last record, together with the preceding bytes of its block.
    fn seal(&self, tail: &mut WriteTail, window: &Window, seal: Seal) -> io::Result<()> {
        let (at, carried) = window.carried();
        assert_eq!(Lsn(at + carried.len() as u64), tail.at, "everything before is written");
        let seal = seal.encode(self.checksum, tail.at);
        let bytes = carried.len() + seal.len();
        let mut blocks = AlignedBuffer::new(bytes.next_multiple_of(BLOCK_BYTES));
        blocks[..carried.len()].copy_from_slice(carried);
        blocks[carried.len()..bytes].copy_from_slice(&seal);
        let file = &*tail.segment.file;
        let written_bytes = bytes.next_multiple_of(file.block_bytes());
        write_all_at(file, tail.segment.offset(Lsn(at)), &blocks[..written_bytes])?;
        tail.writes += 1;
        Ok(())
    }

    /// Syncs all unsynced files without publishing the result. Returns how long that took.
    fn sync_files(&self, tail: &mut WriteTail, clock: Clock<'_>) -> Result<u64, Poisoned> {
        assert!(tail.unsynced.len() <= UNSYNCED_SEGMENTS_MAX);
        let started = clock();
        for segment in tail.unsynced.iter().chain([&tail.segment]) {
            segment.file.sync().map_err(failed("syncing", segment.number))?;
        }
        let took_ns = clock().since(started);
        {
            let mut counters = self.counters.lock();
            counters.count_sync(took_ns);
            counters.file_syncs += tail.unsynced.len() as u64 + 1;
        }
        tail.unsynced.clear();
        if tail.synced < tail.at {
            // Read before the position is published, so that no reply is older than this.
            tail.unmarked.push(Mark { durable: tail.at, unix_us: self.unix_us() });
        }
        tail.synced = tail.at;
        Ok(took_ns)
    }

    /// Appends a mark for each position that has become durable since the last ones.
    fn append_marks(&self, tail: &mut WriteTail) {
        assert!(tail.unmarked.iter().is_sorted_by_key(|mark| mark.durable), "in order of syncs");
        for mark in tail.unmarked.drain(..) {
            self.append_mark(mark);
        }
    }

    fn next_step(&self, writer: &WriterState, now: MonoNs) -> Next {
        if let Some(retry_at) = writer.retry_at {
            return Next::AfterNs(retry_at.since(now).max(1));
        }
        if self.needs_sync(writer.tail.synced) {
            return Next::AtOnce;
        }
        let next = self.next();
        let mut wait_ns = WRITE_TICK_NS;
        if let Some(until) = writer.gathering.until() {
            wait_ns = until.since(now);
        } else if next > writer.tail.at {
            wait_ns = WRITE_TICK_NS.saturating_sub(now.since(writer.written_at));
        }
        if let Some(interval_ns) = self.sync_interval_ns()
            && next > writer.tail.synced
        {
            wait_ns = wait_ns.min(interval_ns.saturating_sub(now.since(writer.synced_at)));
        }
        if wait_ns == 0 { Next::AtOnce } else { Next::AfterNs(wait_ns) }
    }

    /// Writes and syncs everything appended so far, leaves a mark that proves it, and refuses all
    /// later appends. For programs that drive the writer themselves.
    pub fn close(&self, clock: &dyn Fn() -> MonoNs) -> Result<(), Poisoned> {
        self.sync_all(clock)?;
        self.append_marks(&mut self.writer.lock().tail);
        self.sync_all(clock)?;
        let recorded = self.record_end();
        self.set_poison(Poisoned::Closed);
        recorded
    }

    fn sync_all(&self, clock: Clock<'_>) -> Result<(), Poisoned> {
        let target = self.next();
        while self.durable() < target {
            // Requests the write as well, because no further record can complete the group. A last
            // attempt to create a segment is due at once.
            self.note_request(Some(target));
            {
                let mut writer = self.writer.lock();
                writer.retry_at = writer.retry_at.map(|_| MonoNs(0));
            }
            self.writer_step(clock);
            if let Some(source) = self.stall() {
                let (operation, file) = ("making", "the next segment".into());
                self.set_poison(Poisoned::Failed { operation, file, source });
            }
            if let Some(cause) = self.poisoned() {
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Starts the threads `log` (the writer) and `log-prep` (makes the next segment). `clock` is
    /// the program's monotonic clock.
    pub fn spawn_writer(
        self: &Arc<Self>,
        clock: impl Fn() -> MonoNs + Send + 'static,
    ) -> io::Result<WriterHandle> {
        self.stopping.store(false, Ordering::SeqCst);
        self.shelf.start_helper();
        let log = Arc::clone(self);
        let helper =
            thread::Builder::new().name("log-prep".into()).spawn(move || log.run_helper())?;
        let mut handle = WriterHandle { log: Arc::clone(self), writer: None, helper: Some(helper) };
        let log = Arc::clone(self);
        let writer =
            thread::Builder::new().name("log".into()).spawn(move || log.run_writer(&clock))?;
        handle.writer = Some(writer);
        Ok(handle)
    }

    fn run_writer(&self, clock: Clock<'_>) -> Result<(), Poisoned> {
        while !self.stopping.load(Ordering::SeqCst) {
            match self.writer_step(clock).next {
                Next::AtOnce => {}
                Next::AfterNs(ns) => self.sleep(ns),
                Next::Poisoned => break,
            }
        }
        self.close(clock)
    }
}

/// The running writer. Dropping it stops the writer like [`WriterHandle::stop`], but reports no
/// errors.
#[derive(Debug)]
pub struct WriterHandle {
    log: Arc<Log>,
    writer: Option<JoinHandle<Result<(), Poisoned>>>,
    helper: Option<JoinHandle<()>>,
}

impl WriterHandle {
    /// Writes and syncs everything appended so far, closes the log and joins the threads.
    ///
    /// Errors: the cause if the log is poisoned, or becomes so.
    pub fn stop(mut self) -> Result<(), Poisoned> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Poisoned> {
        self.log.stopping.store(true, Ordering::SeqCst);
        self.log.wake_writer();
        let closed = self.writer.take().map_or(Ok(()), |writer| {
            writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.log.shelf.stop_helper();
        if let Some(helper) = self.helper.take() {
            helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        closed
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        if self.writer.is_some() || self.helper.is_some() {
            // A failure was logged where it happened and is kept in `Log::poisoned`.
            self.join().ok();
        }
    }
}
