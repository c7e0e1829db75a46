//! Load on a log in the generator's own process: threads that append at maximum speed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use binlog::baseline::{self, Baseline};
use binlog::{FileDisk, GroupSizes};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::lanes::Lanes;
use super::tally::latencies;
use super::{
    AppendWork, Commit, LoadEvent, LoadReport, LoadSpec, LogMode, LogReport, WaitFor, Warmup,
};
use crate::command_line::stop_on_signals;
use crate::measure::threads::{threads, uses_between};
use crate::stats::histogram;
use crate::stats::is_steady;

/// More than the hardware threads of any machine; each costs a stack and a histogram.
const THREADS_MAX: usize = 4096;
/// The originals' segment size.
const BASELINE_SEGMENT_BYTES: u64 = 100 << 20;
pub(super) const KIND: u8 = 1;
/// Appends that do not wait take less time than two clock reads, so one in this many is timed. All
/// appends that wait are timed.
const TIMED_EVERY: u64 = 64;
/// Interval at which old segments are freed: a fast log fills one in a tenth of a second.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Number of windows whose rates decide whether the load is steady.
const WARMUP_WINDOWS: usize = 8;
const WARMUP_WINDOW: Duration = Duration::from_millis(50);

const STARTING: u8 = 0;
const WARMING_UP: u8 = 1;
const MEASURING: u8 = 2;
const ENDED: u8 = 3;
/// Interval at which started threads are counted.
const START_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A log of any kind, independent of the appended data.
pub(super) trait Subject: Sync {
    /// Frees segments that are not read again.
    fn release_old(&self) -> Result<()>;
    fn counters(&self) -> Counters;
}

/// Appends on the thread with this number, and waits according to the load.
trait Append: Fn(usize, &[u8]) -> Result<()> + Sync {}

impl<F: Fn(usize, &[u8]) -> Result<()> + Sync> Append for F {}

/// Counters of a log since it was opened.
pub(super) struct Counters {
    pub(super) writes: u64,
    pub(super) syncs: u64,
    pub(super) bytes: u64,
    pub(super) sizes: GroupSizes,
}

/// Appends to a new log until the time has elapsed or the operations are done, and reports events.
///
/// Old segments are removed or reused in the meantime, because they are never read.
pub fn run(
    spec: &LoadSpec,
    work: &AppendWork,
    emit: &mut dyn FnMut(LoadEvent) -> Result<()>,
) -> Result<()> {
    ensure!((1..=THREADS_MAX).contains(&work.threads), "threads must be 1 to {THREADS_MAX}");
    ensure!(work.record_bytes <= binlog::PAYLOAD_BYTES_MAX, "record_bytes is too large");
    ensure!(spec.window_ms > 0, "window_ms must be at least 1");
    ensure!(spec.side_loads.is_empty(), "appends do not support `beside`");
    let directory = Directory::create(&work.directory)?;
    match work.mode {
        LogMode::Lanes => {
            let lanes = Lanes::open(&directory.0, work)?;
            let load = Load { spec, work, subject: &lanes };
            match (work.wait, work.commit) {
                (WaitFor::Ticket, _) => {
                    load.drive(&|at, bytes| lanes.append(at, bytes).map(drop), emit)
                }
                (WaitFor::Commit, Commit::Synced) => {
                    load.drive(&|at, bytes| lanes.append_durable(at, bytes), emit)
                }
                (WaitFor::Commit, _) => {
                    load.drive(&|at, bytes| lanes.append_written(at, bytes), emit)
                }
            }?;
            lanes.close()
        }
        LogMode::Mutex => run_baseline(baseline::Kind::Mutex, &directory, spec, work, emit),
        LogMode::LeaderCondvar => {
            run_baseline(baseline::Kind::LeaderCondvar, &directory, spec, work, emit)
        }
        LogMode::LeaderFutex => {
            run_baseline(baseline::Kind::LeaderFutex, &directory, spec, work, emit)
        }
    }
}

/// Runs a load on a baseline, whose appends always wait until they are written.
fn run_baseline(
    kind: baseline::Kind,
    directory: &Directory,
    spec: &LoadSpec,
    work: &AppendWork,
    emit: &mut dyn FnMut(LoadEvent) -> Result<()>,
) -> Result<()> {
    let path = &directory.0;
    let disk = FileDisk::open_buffered(path).with_context(|| format!("open {}", path.display()))?;
    let syncs = match work.commit {
        Commit::Synced => baseline::Syncs::EachWrite,
        Commit::Written | Commit::Interval { .. } => baseline::Syncs::OnDemand,
    };
    let options = baseline::Options { kind, syncs, segment_bytes: BASELINE_SEGMENT_BYTES };
    let log = Baseline::open(Arc::new(disk), options).context("could not start the log")?;
    let append = |_: usize, payload: &[u8]| {
        log.append(KIND, payload)?;
        Ok(())
    };
    let load = Load { spec, work, subject: &log };
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        if let Commit::Interval { ms } = work.commit {
            let interval = Duration::from_millis(ms);
            let log = &log;
            // The next append detects a failed sync.
            scope.spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout)
                    && log.sync().is_ok()
                {}
            });
        }
        let done = load.drive(&append, emit);
        drop(stop);
        done
    })
}

impl Subject for Baseline {
    fn release_old(&self) -> Result<()> {
        self.remove_filled().context("could not remove old files")
    }

    fn counters(&self) -> Counters {
        let baseline::Stats { writes, syncs, bytes, sizes } = self.stats();
        Counters { writes, syncs, bytes, sizes }
    }
}

/// A directory owned by this run; removed with its content on drop.
struct Directory(PathBuf);

impl Directory {
    fn create(path: &Path) -> Result<Self> {
        fs::create_dir(path)
            .with_context(|| format!("could not create the log directory {}", path.display()))?;
        Ok(Self(path.to_path_buf()))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "could not remove the log");
        }
    }
}

/// State shared by all threads.
struct Stage {
    phase: AtomicU8,
    /// Number of started threads.
    ready: AtomicUsize,
    /// Whether the threads may exit: their usage has been read.
    released: AtomicBool,
    /// Appends of each thread, including the warm-up.
    counts: Vec<Count>,
    quota_per_thread: u64,
    /// An append is timed if none of these bits is set in its number.
    untimed_mask: u64,
    clock: quanta::Clock,
}

/// On a separate cache line: each thread updates its count at every append.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Stage {
    fn appended(&self) -> u64 {
        self.counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }
}

/// Results of one thread in the measured phase.
struct Share {
    operations: u64,
    latency: Histogram<u64>,
}

impl Share {
    fn add(&mut self, other: &Self) -> Result<()> {
        self.operations += other.operations;
        self.latency.add(&other.latency).context("could not add latencies")
    }
}

/// The work to do, and the log.
struct Load<'a, S> {
    spec: &'a LoadSpec,
    work: &'a AppendWork,
    subject: &'a S,
}

impl<S: Subject> Load<'_, S> {
    fn drive(
        &self,
        append: &impl Append,
        emit: &mut dyn FnMut(LoadEvent) -> Result<()>,
    ) -> Result<()> {
        let Self { spec, work, subject } = *self;
        let stage = Stage {
            phase: AtomicU8::new(STARTING),
            ready: AtomicUsize::new(0),
            released: AtomicBool::new(false),
            counts: (0..work.threads).map(|_| Count::default()).collect(),
            quota_per_thread: spec
                .operations_max
                .map_or(u64::MAX, |max| max.div_ceil(work.threads as u64)),
            untimed_mask: if work.wait == WaitFor::Ticket { TIMED_EVERY - 1 } else { 0 },
            clock: quanta::Clock::new(),
        };
        let payload = vec![b'x'; work.record_bytes];
        let (send, shares) = mpsc::channel();
        thread::scope(|scope| {
            let mut handles = Vec::with_capacity(work.threads);
            let started = (0..work.threads).try_for_each(|number| {
                let (stage, payload, send) = (&stage, &payload, send.clone());
                // Allocated here, for all threads: memory that hundreds of threads touch first,
                // each in its own heap, consists of pages that the kernel must clear, which took
                // longer than the appends of a short measurement.
                let share = Share { operations: 0, latency: latencies() };
                let builder = thread::Builder::new().name(format!("append-{number}"));
                let handle = builder.spawn_scoped(scope, move || {
                    live(append, number, payload, stage, share, &send);
                })?;
                handles.push(handle);
                Ok::<(), std::io::Error>(())
            });
            drop(send);
            let reported = started.context("could not start a thread").and_then(|()| {
                while stage.ready.load(Ordering::SeqCst) < work.threads {
                    thread::sleep(START_POLL_INTERVAL);
                }
                stage.phase.store(WARMING_UP, Ordering::SeqCst);
                for handle in &handles {
                    handle.thread().unpark();
                }
                let total = Share { operations: 0, latency: latencies() };
                let working = work.threads;
                let stop = stop_on_signals()?;
                Conductor { subject, stage: &stage, spec, shares, working, total, stop, emit }
                    .conduct()
            });
            stage.phase.store(ENDED, Ordering::Relaxed);
            stage.released.store(true, Ordering::SeqCst);
            for handle in &handles {
                handle.thread().unpark();
            }
            reported
        })
    }
}

/// Body of one thread: appends during the phases, sends its results, and waits until it is
/// released.
fn live(
    append: &impl Append,
    number: usize,
    payload: &[u8],
    stage: &Stage,
    share: Share,
    send: &Sender<Result<Share>>,
) {
    // The first heap allocation of this thread: see where its share is allocated.
    let payload = payload.to_vec();
    stage.ready.fetch_add(1, Ordering::SeqCst);
    while stage.phase.load(Ordering::SeqCst) == STARTING {
        thread::park();
    }
    // The receiver is gone if another thread has failed.
    send.send(append_all(append, number, &payload, stage, share)).ok();
    while !stage.released.load(Ordering::SeqCst) {
        thread::park();
    }
}

fn append_all(
    append: &impl Append,
    number: usize,
    payload: &[u8],
    stage: &Stage,
    mut share: Share,
) -> Result<Share> {
    let count = &stage.counts[number].0;
    let mut appended = 0;
    while stage.phase.load(Ordering::Relaxed) == WARMING_UP {
        append(number, payload)?;
        appended += 1;
        count.store(appended, Ordering::Relaxed);
    }
    while share.operations < stage.quota_per_thread
        && stage.phase.load(Ordering::Relaxed) == MEASURING
    {
        if share.operations & stage.untimed_mask == 0 {
            let started = stage.clock.raw();
            append(number, payload)?;
            let took_ns = stage.clock.delta_as_nanos(started, stage.clock.raw());
            share.latency.saturating_record(took_ns);
        } else {
            append(number, payload)?;
        }
        share.operations += 1;
        count.store(appended + share.operations, Ordering::Relaxed);
    }
    Ok(share)
}

/// Leads the threads through the phases and counts.
struct Conductor<'a, S> {
    subject: &'a S,
    stage: &'a Stage,
    spec: &'a LoadSpec,
    shares: Receiver<Result<Share>>,
    /// Number of threads that have not finished.
    working: usize,
    /// Results of the finished ones.
    total: Share,
    /// Set by termination signals.
    stop: Arc<AtomicBool>,
    emit: &'a mut dyn FnMut(LoadEvent) -> Result<()>,
}

/// State of the threads.
#[derive(PartialEq, Eq)]
enum ThreadGroupState {
    Working,
    Done,
    /// A termination signal was received.
    Interrupted,
}

impl<S: Subject> Conductor<'_, S> {
    fn conduct(mut self) -> Result<()> {
        (self.emit)(LoadEvent::Connected)?;
        let warmup_ms = self.warm_up()?;
        self.fail_if_stopped()?;
        let own_threads = || {
            threads(std::process::id())
                .context("could not read the usage of this process's threads")
        };
        let threads_before = own_threads()?;
        let before = self.subject.counters();
        let cpu_before_ns = process_cpu_ns()?;
        self.stage.phase.store(MEASURING, Ordering::Relaxed);
        let began = Instant::now();
        (self.emit)(LoadEvent::Measuring { warmup_ms })?;
        let windows = self.measure(began)?;
        self.stage.phase.store(ENDED, Ordering::Relaxed);
        let duration = began.elapsed();
        let process_cpu_ns = process_cpu_ns()? - cpu_before_ns;
        let log = log_report(&before, &self.subject.counters(), process_cpu_ns)?;
        (self.emit)(LoadEvent::Measured)?;
        let threads = uses_between(&threads_before, &own_threads()?);
        while self.working > 0 {
            self.count(self.shares.recv()?)?;
        }
        let latency = histogram::encode(&self.total.latency);
        let report = LoadReport {
            duration_ns: u64::try_from(duration.as_nanos())?,
            operations: self.total.operations,
            windows,
            latency_corrected: latency.clone(),
            latency_raw: latency,
            threads,
            log: Some(log),
            ..LoadReport::default()
        };
        let report = Box::new(report);
        if self.is_stopped() {
            (self.emit)(LoadEvent::Interrupted(report))?;
            return self.fail_if_stopped();
        }
        (self.emit)(LoadEvent::Done(report))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn fail_if_stopped(&self) -> Result<()> {
        if self.is_stopped() {
            bail!("interrupted by a signal");
        }
        Ok(())
    }

    /// Returns the duration in milliseconds.
    fn warm_up(&mut self) -> Result<u64> {
        let began = Instant::now();
        match self.spec.warmup {
            Warmup::Fixed { ms } => {
                self.work_until(began + Duration::from_millis(ms))?;
            }
            Warmup::Steady { max_ms } => {
                self.work_until_steady(began + Duration::from_millis(max_ms))?;
            }
        }
        Ok(u64::try_from(began.elapsed().as_millis())?)
    }

    #[allow(clippy::cast_precision_loss)] // rates for a comparison
    fn work_until_steady(&mut self, latest: Instant) -> Result<()> {
        let mut rates = Vec::new();
        let mut appended_before = self.stage.appended();
        while Instant::now() < latest {
            let began = Instant::now();
            self.work_until(latest.min(began + WARMUP_WINDOW))?;
            let appended = self.stage.appended();
            rates.push((appended - appended_before) as f64 / began.elapsed().as_secs_f64());
            appended_before = appended;
            let last = rates.len().checked_sub(WARMUP_WINDOWS).map(|first| &rates[first..]);
            if last.is_some_and(is_steady) || self.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    /// Runs until the time has elapsed or all threads have completed their appends. Returns the
    /// operations of each completed window.
    fn measure(&mut self, began: Instant) -> Result<Vec<u64>> {
        let end = began + Duration::from_millis(self.spec.duration_ms);
        let mut windows = Vec::new();
        let mut appended_before = self.stage.appended();
        let mut window_end = began + Duration::from_millis(self.spec.window_ms);
        while window_end <= end && self.work_until(window_end)? == ThreadGroupState::Working {
            let appended = self.stage.appended();
            let operations = appended - appended_before;
            (self.emit)(LoadEvent::Window { operations })?;
            windows.push(operations);
            appended_before = appended;
            window_end += Duration::from_millis(self.spec.window_ms);
        }
        self.work_until(end)?;
        Ok(windows)
    }

    /// Returns at `end`, when no thread works any longer, or after a termination signal.
    fn work_until(&mut self, end: Instant) -> Result<ThreadGroupState> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(ThreadGroupState::Working);
            }
            if self.is_stopped() {
                return Ok(ThreadGroupState::Interrupted);
            }
            if self.receive(end.min(now + POLL_INTERVAL))? == ThreadGroupState::Done {
                return Ok(ThreadGroupState::Done);
            }
            self.subject.release_old()?;
        }
    }

    fn receive(&mut self, until: Instant) -> Result<ThreadGroupState> {
        while self.working > 0 {
            let wait = until.saturating_duration_since(Instant::now());
            match self.shares.recv_timeout(wait) {
                Ok(share) => self.count(share)?,
                Err(RecvTimeoutError::Timeout) => return Ok(ThreadGroupState::Working),
                Err(error @ RecvTimeoutError::Disconnected) => return Err(error.into()),
            }
        }
        Ok(ThreadGroupState::Done)
    }

    fn count(&mut self, share: Result<Share>) -> Result<()> {
        self.working -= 1;
        self.total.add(&share?)
    }
}

fn log_report(before: &Counters, after: &Counters, process_cpu_ns: u64) -> Result<LogReport> {
    Ok(LogReport {
        writes: after.writes - before.writes,
        syncs: after.syncs - before.syncs,
        bytes: after.bytes - before.bytes,
        records_per_write: histogram::encode(&since(&before.sizes.records, &after.sizes.records)?),
        bytes_per_write: histogram::encode(&since(&before.sizes.bytes, &after.sizes.bytes)?),
        process_cpu_ns,
    })
}

fn since(before: &Histogram<u64>, after: &Histogram<u64>) -> Result<Histogram<u64>> {
    let mut difference = after.clone();
    difference.subtract(before).context("the log's counters decreased")?;
    Ok(difference)
}

/// Sums over all threads of this process, including exited ones.
fn process_cpu_ns() -> Result<u64> {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Ok(u64::try_from(used.tv_sec)? * 1_000_000_000 + u64::try_from(used.tv_nsec)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(work: AppendWork, operations_max: Option<u64>) -> LoadSpec {
        LoadSpec {
            work: crate::load::Work::Append(work),
            warmup: Warmup::Fixed { ms: 1 },
            duration_ms: 600_000,
            operations_max,
            window_ms: 1,
            ..crate::load::spec::tests::spec()
        }
    }

    /// Runs the load in a separate directory; returns all events.
    fn events(name: &str, work: &AppendWork, operations_max: Option<u64>) -> Vec<LoadEvent> {
        let directory =
            std::env::temp_dir().join(format!("lab-append-{name}-{}", std::process::id()));
        let work = AppendWork { directory: directory.clone(), ..work.clone() };
        let mut events = Vec::new();
        let mut emit = |event| {
            events.push(event);
            Ok(())
        };
        run(&spec(work.clone(), operations_max), &work, &mut emit).unwrap();
        assert!(!directory.exists(), "the log is removed");
        events
    }

    fn decoded(text: &str) -> u64 {
        histogram::decode(text).unwrap().len()
    }

    #[test]
    fn a_steady_warm_up_ends_at_the_latest_when_told() {
        let work = AppendWork {
            mode: LogMode::Lanes,
            threads: 2,
            record_bytes: 5,
            wait: WaitFor::Ticket,
            commit: Commit::Written,
            directory: std::env::temp_dir().join(format!("lab-append-warm-{}", std::process::id())),
        };
        let spec =
            LoadSpec { warmup: Warmup::Steady { max_ms: 120 }, ..spec(work.clone(), Some(10_000)) };
        let mut warmups = Vec::new();
        run(&spec, &work, &mut |event| {
            if let LoadEvent::Measuring { warmup_ms } = event {
                warmups.push(warmup_ms);
            }
            Ok(())
        })
        .unwrap();
        assert!(warmups.len() == 1 && warmups[0] >= 120, "{warmups:?}");
    }

    /// Checks the sequence of events, and sums that must agree.
    fn check(name: &str, mode: LogMode, wait: WaitFor, commit: Commit) {
        let work =
            AppendWork { mode, threads: 3, record_bytes: 5, wait, commit, directory: "".into() };
        let events = events(name, &work, Some(600));
        assert_eq!(events[0], LoadEvent::Connected);
        assert!(matches!(events[1], LoadEvent::Measuring { warmup_ms: 1.. }), "{:?}", events[1]);
        assert_eq!(events[events.len() - 2], LoadEvent::Measured);
        let LoadEvent::Done(report) = &events[events.len() - 1] else {
            panic!("no report: {events:?}")
        };
        assert_eq!(report.operations, 600);
        let timed = decoded(&report.latency_raw);
        assert_eq!(timed, if wait == WaitFor::Ticket { 3 * 200_u64.div_ceil(64) } else { 600 });
        let appenders = report.threads.iter().filter(|thread| thread.name.starts_with("append-"));
        // Other tests in the same process have such threads too.
        assert!(appenders.count() >= 3);
        let log = report.log.as_ref().unwrap();
        assert_eq!(decoded(&log.records_per_write), log.writes);
        assert_eq!(decoded(&log.bytes_per_write), log.writes);
        if wait == WaitFor::Commit {
            assert!(log.writes > 0);
            assert!(log.bytes >= 600 * (5 + 9), "{} bytes", log.bytes);
        }
        match commit {
            Commit::Synced if wait == WaitFor::Commit => assert!(log.syncs > 0),
            Commit::Synced | Commit::Interval { .. } => {}
            Commit::Written => assert_eq!(log.syncs, 0),
        }
        assert!(log.process_cpu_ns > 0);
    }

    fn check_all(name: &str, mode: LogMode) {
        for wait in [WaitFor::Ticket, WaitFor::Commit] {
            for commit in [Commit::Written, Commit::Synced, Commit::Interval { ms: 1 }] {
                check(name, mode, wait, commit);
            }
        }
    }

    #[test]
    fn lanes_are_measured_in_every_way() {
        check_all("lanes", LogMode::Lanes);
    }

    #[test]
    fn baselines_are_measured_in_every_way() {
        check_all("mutex", LogMode::Mutex);
        check_all("condvar", LogMode::LeaderCondvar);
        check_all("futex", LogMode::LeaderFutex);
    }

    #[test]
    fn a_directory_that_is_there_is_refused() {
        let work = AppendWork {
            mode: LogMode::Mutex,
            threads: 1,
            record_bytes: 5,
            wait: WaitFor::Ticket,
            commit: Commit::Written,
            directory: std::env::temp_dir(),
        };
        let error = run(&spec(work.clone(), Some(1)), &work, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("could not create the log directory"), "{error}");
        assert!(std::env::temp_dir().exists());
    }
}
