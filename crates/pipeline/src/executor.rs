//! The executor: each thread takes batches from the generator on one connection, computes them,
//! and sends the results to the collector on another.
//!
//! A thread does one thing at a time and needs no queue: while it computes, the kernel receives the
//! next batch and sends the last results. The credits bound the memory that a thread uses.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::causes::with_causes;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::frame::{Header, Kind, PAYLOAD_BYTES_MAX, encode_pairs};
use crate::link::{Link, LinkError, Reachability, Received, wait_readable};
use crate::message::{CollectorWelcome, ExecutorWelcome, Hello};
use crate::meter::{Activity, Meter, Stopwatch};
use crate::status::ExecutorStatus;
use crate::task::{BatchTask, Maker, Plan, TaskError, is_chosen};

/// Maximum number of threads in one executor.
pub const THREADS_MAX: usize = 128;
/// Maximum number of batches that each thread requests in advance.
pub const CREDITS: u32 = 16;
/// Minimum number of credits: one batch being computed and one in flight.
const CREDITS_MIN: u32 = 2;
/// Target duration of the work that a thread requests in advance. Slow threads therefore hold no
/// more work than fast ones, and all finish together. Longer than a round trip to a remote
/// generator.
const PREFETCH_NS: u64 = 50_000_000;
/// Target duration of a batch of commands, whose duration is unknown in advance.
const BATCH_TARGET_NS: u64 = 25_000_000;
/// A thread returns credits in quarters of its target: one small frame for several large ones.
const CREDIT_STEPS: u32 = 4;

/// Time allowed for the end of a run to propagate from the collector through the generator to this
/// executor. If the run continues instead, waiting costs nothing: the generator reassigns this
/// thread's batches.
const FINISH_WAIT: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const STATUS_PERIOD: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(20);

/// Configuration of an executor.
#[derive(Debug)]
pub struct ExecutorOptions {
    pub name: String,
    pub generator: SocketAddr,
    pub collector: SocketAddr,
    pub threads: usize,
    pub make_task: Maker,
    /// Reported in the status.
    pub kernel: String,
    /// Whether a generator may have this host execute shell commands.
    pub allows_commands: bool,
    /// Share of results in which one bit is flipped, to test that verification detects it.
    pub corrupt: f64,
    /// How long to retry an unreachable generator or collector.
    pub patience: Duration,
}

#[derive(Debug)]
struct Shared {
    options: ExecutorOptions,
    clock: Clock,
    meter: Meter,
    reconnects: AtomicU64,
    damaged_frames: AtomicU64,
    failed_frames: AtomicU64,
    /// Whether a thread has received the end of the run from the generator.
    is_over: AtomicBool,
    /// Shared by all threads, so that each event is logged once.
    generator_reachability: Reachability,
    collector_reachability: Reachability,
    /// The first command. Another process must not replace it at the address of the generator.
    command: OnceLock<String>,
    /// Connections of all threads, so that they can be closed.
    links: Mutex<Vec<Option<Active>>>,
}

/// What other threads need of a thread that has a generator.
#[derive(Debug)]
struct Active {
    generator: Link,
    /// `None` before it is connected.
    collector: Option<Link>,
    task: Arc<dyn BatchTask>,
    /// Whether it receives batches.
    is_working: bool,
}

impl Active {
    fn close(&self) {
        self.generator.close();
        self.collector.iter().for_each(Link::close);
    }

    /// A stopped generator ends its direction of the connection, perhaps while a task runs or before
    /// the collector has answered, which has ended as well.
    fn follow_generator(&self) {
        match self.generator.has_peer_ended() {
            Ok(false) => {}
            Ok(true) if self.is_working => self.task.stop_attempts(),
            Ok(true) => self.collector.iter().for_each(Link::close),
            Err(error) => tracing::warn!(%error, "could not check the generator's connection"),
        }
    }
}

impl Shared {
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus {
            name: self.options.name.clone(),
            kernel: self.options.kernel.clone(),
            reconnects: self.reconnects.load(Ordering::Relaxed),
            damaged_frames: self.damaged_frames.load(Ordering::Relaxed),
            failed_frames: self.failed_frames.load(Ordering::Relaxed),
            meter: self.meter.read(),
        }
    }
}

/// Runs until the generator reports the end of the run or `stop` is set.
pub fn run(
    options: ExecutorOptions,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&ExecutorStatus),
) -> Result<ExecutorStatus> {
    if !(1..=THREADS_MAX).contains(&options.threads) {
        bail!("an executor must have 1 to {THREADS_MAX} threads, not {}", options.threads);
    }
    let threads = options.threads;
    let shared = Shared {
        generator_reachability: Reachability::new("the generator", options.generator),
        collector_reachability: Reachability::new("the collector", options.collector),
        options,
        clock: Clock::new(),
        meter: Meter::default(),
        reconnects: AtomicU64::new(0),
        damaged_frames: AtomicU64::new(0),
        failed_frames: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        command: OnceLock::new(),
        links: Mutex::new((0..threads).map(|_| None).collect()),
    };
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let shared = &shared;
        let workers: Vec<_> =
            (0..threads).map(|slot| scope.spawn(move || work(shared, slot, stop))).collect();
        let mut reported = Instant::now();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(TURN);
            shared.links.lock().iter().flatten().for_each(Active::follow_generator);
            if stop.load(Ordering::Relaxed) {
                shared.links.lock().iter().flatten().for_each(Active::close);
                shared.options.make_task.cancel();
            }
            if reported.elapsed() >= STATUS_PERIOD {
                reported = Instant::now();
                report(&shared.status());
            }
        }
        let join = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect()
    });
    outcomes.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(shared.status())
}

/// Body of one thread: reconnects until the run ends.
fn work(shared: &Shared, slot: usize, stop: &AtomicBool) -> Result<()> {
    let mut lost_at = Instant::now();
    loop {
        let mut has_worked = false;
        let error = match serve(shared, slot, stop, &mut has_worked) {
            Ok(ended) => {
                // The generator waits until its connection is closed. The collector may still have
                // to read the last results.
                if let Some(active) = &shared.links.lock()[slot] {
                    active.generator.close();
                }
                shared.is_over.store(true, Ordering::Relaxed);
                return ended;
            }
            Err(error) => error,
        };
        if let Some(active) = shared.links.lock()[slot].take() {
            active.close();
        }
        // After a lost connection, this thread may find that its generator has exited.
        if stop.load(Ordering::Relaxed) || shared.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        if has_worked {
            lost_at = Instant::now();
            shared.reconnects.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(slot, error = with_causes(&*error), "connections lost; reconnecting");
        }
        if lost_at.elapsed() > shared.options.patience {
            return Err(error);
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// The two connections of a thread, and the task that it computes.
struct Connected {
    generator: Link,
    collector: Link,
    welcome: ExecutorWelcome,
    task: Arc<dyn BatchTask>,
    results_allowed: u32,
}

/// Connects to the generator. Returns its first message and the task that it names.
fn join(
    shared: &Shared,
    slot: usize,
    stop: &AtomicBool,
) -> Result<(Link, ExecutorWelcome, Arc<dyn BatchTask>)> {
    let options = &shared.options;
    let mut generator = dial(&shared.generator_reachability, stop)?;
    let hello = Hello::Executor { stream: None, name: name_of(shared, slot) };
    generator.send_message(Header::control(Kind::Hello, 0, 0), &hello)?;
    let welcome: ExecutorWelcome = generator.receive_message(Kind::Welcome, &mut Vec::new())?;
    welcome.plan.check().map_err(anyhow::Error::msg)?;
    let task = options.make_task.make(&welcome.plan)?;
    if task.runs_commands() && !options.allows_commands {
        bail!(
            "the generator has a command executed ({}), which requires --allow-commands",
            welcome.plan.task
        );
    }
    if task.runs_commands() {
        let command = shared.command.get_or_init(|| welcome.plan.task.clone());
        if *command != welcome.plan.task {
            bail!("the generator now has another command: {}", welcome.plan.task);
        }
    }
    let active = Active {
        generator: generator.try_clone()?,
        collector: None,
        task: Arc::clone(&task),
        is_working: false,
    };
    shared.links.lock()[slot] = Some(active);
    Ok((generator, welcome, task))
}

/// Connects to the collector. Returns how many results it accepts.
fn meet_collector(
    shared: &Shared,
    slot: usize,
    stream: u64,
    stop: &AtomicBool,
) -> Result<(Link, u32)> {
    let mut collector = dial(&shared.collector_reachability, stop)?;
    if let Some(active) = &mut shared.links.lock()[slot] {
        active.collector = Some(collector.try_clone()?);
    }
    let hello = Hello::Executor { stream: Some(stream), name: name_of(shared, slot) };
    collector.send_message(Header::control(Kind::Hello, stream, 0), &hello)?;
    let welcome: CollectorWelcome = collector.receive_message(Kind::Welcome, &mut Vec::new())?;
    collector.open_for(0)?;
    Ok((collector, welcome.credits))
}

fn name_of(shared: &Shared, slot: usize) -> String {
    format!("{}/{slot}", shared.options.name)
}

fn dial(peer: &Reachability, stop: &AtomicBool) -> Result<Link> {
    let is_over = || stop.load(Ordering::SeqCst);
    peer.connect_unless(is_over).with_context(|| format!("could not connect to {peer}"))
}

/// Returns the size limit of a batch, at `task_bytes` per task.
pub(crate) fn batch_bytes(plan: &Plan, task_bytes: usize) -> Result<usize> {
    let bytes = usize::try_from(plan.batch)?.saturating_mul(task_bytes);
    if bytes > PAYLOAD_BYTES_MAX {
        bail!(
            "{} tasks of up to {task_bytes} bytes do not fit in a frame; use --batch {}",
            plan.batch,
            PAYLOAD_BYTES_MAX / task_bytes.max(1)
        );
    }
    Ok(bytes)
}

/// Returns `Ok` when the run has ended: whether its task has ended without an error.
fn serve(
    shared: &Shared,
    slot: usize,
    stop: &AtomicBool,
    has_worked: &mut bool,
) -> Result<Result<()>> {
    let (mut generator, welcome, task) = join(shared, slot, stop)?;
    let (collector, results_allowed) = match meet_collector(shared, slot, welcome.stream, stop) {
        Ok(met) => met,
        Err(error) => {
            let is_over = generator.has_peer_ended()? && is_over(&mut generator, &mut Vec::new())?;
            return is_over.then_some(Ok(())).ok_or(error);
        }
    };
    generator.open_for(batch_bytes(&welcome.plan, task.input_bytes_max())?)?;
    if let Some(active) = &mut shared.links.lock()[slot] {
        active.is_working = true;
    }
    let mut connected = Connected { generator, collector, welcome, task, results_allowed };
    let (stream, epoch) = (connected.welcome.stream, connected.welcome.epoch);
    let demand = Demand::new(&connected);
    let mut credit = Header::control(Kind::Credit, stream, epoch);
    (credit.count, credit.first_id) = (demand.credits_min, u64::from(demand.tasks));
    connected.generator.send(&credit, &[])?;
    let outputs_bytes = batch_bytes(&connected.welcome.plan, connected.task.output_bytes_max())?;
    let mut worker = Worker {
        shared,
        connected,
        inputs: Vec::new(),
        outputs: vec![0; outputs_bytes],
        outstanding: demand.credits_min,
        demand,
        batch_ns: 0,
        stopwatch: Stopwatch::start(&shared.meter, shared.clock),
    };
    loop {
        if let Err(error) = worker.wait_for_batch() {
            return worker.is_over()?.then_some(Ok(())).ok_or(error);
        }
        let received = worker.connected.generator.receive(&mut worker.inputs)?;
        worker.stopwatch.charge(Activity::Starved);
        *has_worked = true;
        match worker.step(received) {
            Ok(Step::GoOn) => {}
            Ok(Step::End) => return Ok(worker.connected.task.finish().map_err(Into::into)),
            Err(error) => return worker.is_over()?.then_some(Ok(())).ok_or(error),
        }
    }
}

/// The size and number of batches that a thread requests.
#[derive(Debug, Clone, Copy)]
struct Demand {
    credits_min: u32,
    /// Number of tasks in a batch, for tasks that can take any time; 0: as many as fit.
    tasks: u32,
    batch: u32,
    /// Moving average.
    task_ns: u64,
}

impl Demand {
    fn new(connected: &Connected) -> Self {
        let batch = connected.welcome.plan.batch;
        if connected.task.runs_commands() {
            // Nothing is requested in advance: another thread may be able to run it now.
            return Self { credits_min: 1, tasks: 1, batch, task_ns: 0 };
        }
        Self { credits_min: CREDITS_MIN, tasks: 0, batch, task_ns: 0 }
    }

    /// Adjusts the number of tasks to the time that these took. It at most doubles, since the first
    /// ones may not be typical.
    fn adjust(&mut self, tasks: u32, took_ns: u64) {
        if self.tasks == 0 {
            return;
        }
        self.task_ns = averaged(self.task_ns, (took_ns / u64::from(tasks.max(1))).max(1));
        let fitting = u32::try_from(BATCH_TARGET_NS / self.task_ns.max(1)).unwrap_or(u32::MAX);
        self.tasks = fitting.clamp(1, self.batch.min(self.tasks.saturating_mul(2)));
    }
}

/// The next action after a frame from the generator.
enum Step {
    GoOn,
    /// The run has ended.
    End,
}

struct Worker<'a> {
    shared: &'a Shared,
    connected: Connected,
    inputs: Vec<u8>,
    outputs: Vec<u8>,
    /// Batches that were requested and have not arrived.
    outstanding: u32,
    demand: Demand,
    /// Moving average of the time per batch, including sending its results.
    batch_ns: u64,
    stopwatch: Stopwatch<'a>,
}

impl Worker<'_> {
    /// Waits for the next batch. Fails if the collector is lost: it may not have the last results,
    /// whose batch the generator sends again only when this thread reconnects.
    fn wait_for_batch(&self) -> Result<()> {
        if self.connected.task.runs_commands() {
            wait_readable(&self.connected.generator, &self.connected.collector)?;
        }
        Ok(())
    }

    fn step(&mut self, received: Received) -> Result<Step> {
        self.outstanding = self.outstanding.saturating_sub(1);
        match received {
            Received::Frame(header) if header.kind == Kind::Finish => return Ok(Step::End),
            // The results would exceed the size that the collector accepts.
            Received::Frame(header) if header.count > self.connected.welcome.plan.batch => {
                let (count, max) = (header.count, self.connected.welcome.plan.batch);
                return Err(LinkError::TooMany { count, max }.into());
            }
            Received::Frame(header) if header.kind == Kind::Data => self.compute(&header)?,
            Received::Damaged(header) if header.kind == Kind::Data => self.refuse(&header)?,
            Received::Frame(header) | Received::Damaged(header) => {
                let (found, expected) = (header.kind, "tasks");
                return Err(LinkError::Unexpected { found, expected }.into());
            }
        }
        self.send_credit()?;
        Ok(Step::GoOn)
    }

    fn compute(&mut self, header: &Header) -> Result<()> {
        let inputs = &self.inputs[..header.payload_len()];
        let ids = header.ids();
        let used = match self.connected.task.run(ids, inputs, &mut self.outputs) {
            Ok(used) => used,
            Err(TaskError::Stopped) => return self.decline(header),
            Err(error) => return self.report_failure(header, &error.to_string()),
        };
        self.corrupt(header, used);
        let outputs = &self.outputs[..used];
        let mut result = *header;
        result.kind = Kind::Result;
        let mut result = result.with_payload(outputs);
        let busy_ns = self.stopwatch.charge(Activity::Busy);
        result.service_us = u32::try_from(busy_ns / 1_000).unwrap_or(u32::MAX);
        while self.connected.results_allowed == 0 {
            self.connected.results_allowed = receive_credit(&mut self.connected.collector)?;
        }
        self.connected.results_allowed -= 1;
        self.connected.collector.send(&result, outputs)?;
        let blocked_ns = self.stopwatch.charge(Activity::Blocked);
        self.batch_ns = averaged(self.batch_ns, busy_ns.saturating_add(blocked_ns));
        self.demand.adjust(header.count, busy_ns);
        self.shared.meter.count_batch(header.count, used);
        Ok(())
    }

    /// Flips one bit in each result that is selected for corruption.
    fn corrupt(&mut self, header: &Header, used: usize) {
        let share = self.shared.options.corrupt;
        if share <= 0.0 {
            return;
        }
        for (index, id) in (0..header.count).zip(header.ids().iter()) {
            let range = self.connected.task.record(&self.outputs[..used], index);
            if is_chosen(id, share)
                && let Some(last) = range.and_then(Iterator::last)
            {
                self.outputs[last] ^= 1;
            }
        }
    }

    fn report_failure(&mut self, header: &Header, reason: &str) -> Result<()> {
        self.shared.failed_frames.fetch_add(1, Ordering::Relaxed);
        let mut failed = *header;
        failed.kind = Kind::Failed;
        Ok(self.connected.generator.send_reason(failed, reason)?)
    }

    /// Asks the generator to resend a damaged batch.
    fn refuse(&mut self, header: &Header) -> Result<()> {
        self.shared.damaged_frames.fetch_add(1, Ordering::Relaxed);
        self.decline(header)
    }

    /// Notifies the generator that a batch has no results.
    fn decline(&mut self, header: &Header) -> Result<()> {
        let mut payload = Vec::with_capacity(16);
        encode_pairs(&[(header.sequence, header.sequence)], &mut payload);
        let nack = Header::control(Kind::Nack, header.stream, header.epoch);
        Ok(self.connected.generator.send(&nack.with_payload(&payload), &payload)?)
    }

    fn is_over(&mut self) -> Result<bool> {
        is_over(&mut self.connected.generator, &mut self.inputs)
    }

    fn send_credit(&mut self) -> Result<()> {
        let target = credits_target(self.batch_ns, self.demand.credits_min);
        let count = credits_to_send(self.outstanding, target);
        if count == 0 {
            return Ok(());
        }
        let welcome = &self.connected.welcome;
        let mut credit = Header::control(Kind::Credit, welcome.stream, welcome.epoch);
        (credit.count, credit.first_id) = (count, u64::from(self.demand.tasks));
        self.outstanding += count;
        Ok(self.connected.generator.send(&credit, &[])?)
    }
}

/// Returns whether the run has ended, after one peer closed its connection. The notification from
/// the generator may still be in transit.
fn is_over(generator: &mut Link, payload: &mut Vec<u8>) -> Result<bool> {
    generator.wait_at_most(FINISH_WAIT)?;
    loop {
        match generator.receive(payload) {
            Ok(Received::Frame(header)) if header.kind == Kind::Finish => return Ok(true),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "run continues");
                return Ok(false);
            }
        }
    }
}

/// Returns the first sample unchanged, then moves by a quarter of the difference.
fn averaged(average_ns: u64, last_ns: u64) -> u64 {
    if average_ns == 0 {
        return last_ns;
    }
    (average_ns / 4).saturating_mul(3).saturating_add(last_ns / 4)
}

/// Returns the number of batches that a thread keeps requested.
fn credits_target(batch_ns: u64, credits_min: u32) -> u32 {
    let batches = PREFETCH_NS / batch_ns.max(1);
    u32::try_from(batches).unwrap_or(CREDITS).clamp(credits_min, CREDITS)
}

/// Returns the number of credits to send, or 0 below a quarter of the target.
fn credits_to_send(outstanding: u32, wanted: u32) -> u32 {
    let missing = wanted.saturating_sub(outstanding);
    if missing * CREDIT_STEPS >= wanted { missing } else { 0 }
}

fn receive_credit(collector: &mut Link) -> Result<u32, LinkError> {
    let Received::Frame(header) = collector.receive(&mut Vec::new())? else {
        return Err(LinkError::Damaged);
    };
    match header.kind {
        Kind::Credit => Ok(header.count),
        found => Err(LinkError::Unexpected { found, expected: "credits" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_match_the_prefetch_time() {
        for (batch_ns, expected) in [
            (0, CREDITS),
            (300_000, CREDITS),
            (5_000_000, 10),
            (20_000_000, CREDITS_MIN),
            (u64::MAX, CREDITS_MIN),
        ] {
            assert_eq!(credits_target(batch_ns, CREDITS_MIN), expected, "{batch_ns}");
        }
        assert_eq!(credits_target(60_000_000, 1), 1);
        assert_eq!(averaged(0, 800), 800);
        assert_eq!(averaged(800, 400), 700);
        assert_eq!(averaged(u64::MAX, u64::MAX), u64::MAX / 4 * 4);
    }

    #[test]
    fn batches_of_commands_grow_to_their_target_time() {
        let mut demand = Demand { credits_min: 1, tasks: 1, batch: 64, task_ns: 0 };
        // The first item includes the start of its process.
        let mut sizes = Vec::new();
        for took_ns in [20_000_000, 100_000, 100_000] {
            demand.adjust(1, took_ns);
            sizes.push(demand.tasks);
        }
        assert_eq!(sizes, [1, 1, 2]);
        for _ in 0..30 {
            demand.adjust(demand.tasks, u64::from(demand.tasks) * 1_000_000);
        }
        assert!((24..=25).contains(&demand.tasks), "{demand:?}");
        demand.adjust(20, 200_000_000_000);
        assert_eq!(demand.tasks, 1);
        let mut other = Demand { tasks: 0, ..demand };
        other.adjust(1, 5);
        assert_eq!(other.tasks, 0);
    }

    #[test]
    fn credits_are_sent_in_quarters() {
        for (outstanding, wanted, expected) in
            [(13, 16, 0), (12, 16, 4), (0, 16, 16), (1, 2, 1), (2, 2, 0), (16, 2, 0)]
        {
            assert_eq!(credits_to_send(outstanding, wanted), expected, "{outstanding} {wanted}");
        }
    }
}
