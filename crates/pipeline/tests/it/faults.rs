//! Under all faults: generated = collected, each id once, and the digest of all results equals that
//! of an undisturbed computation.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use pipeline::collector::{Collector, CollectorOptions, Verify};
use pipeline::executor::{self, ExecutorOptions};
use pipeline::frame::{Header, Kind};
use pipeline::generator::{
    self, GeneratorOptions, GeneratorSummary, LedgerOptions, Overload, PaceOptions, Rate,
};
use pipeline::link::Link;
use pipeline::message::{GeneratorWelcome, Hello};
use pipeline::status::CollectorStatus;
use pipeline::task::Plan;
use pipeline::task::{BatchTask, Ids, Kernel, Maker, TaskError};

use crate::proxy::{Faults, Proxy};

pub(crate) const STREAM: u64 = 7;
pub(crate) const TASKS: u64 = 30_000;
const BATCH: u32 = 100;

fn plan() -> Plan {
    Plan { task: "powmod".into(), seed: 3, batch: BATCH, limits: None }
}

/// Digest of an undisturbed run, computed without a pipeline.
fn expected_digest() -> u64 {
    let task = Maker::built_in(Kernel::Serial).make(&plan()).unwrap();
    let ids = Ids { first: 0, count: u32::try_from(TASKS).unwrap() };
    let mut inputs = vec![0; ids.len() * task.input_bytes_max()];
    let mut outputs = vec![0; ids.len() * task.output_bytes_max()];
    let given = task.generate(ids, &mut inputs).unwrap();
    let used = task.run(ids, &inputs[..given], &mut outputs).unwrap();
    task.inspect(ids, &outputs[..used]).unwrap()
}

pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns a listener on a port that can be bound again later: outside the range from which the
/// kernel assigns ephemeral ports.
fn listen_for_long() -> (TcpListener, SocketAddr) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = u16::try_from(std::process::id() % 1_000).unwrap() * 11;
        let port = 20_000 + (number + NEXT.fetch_add(1, Ordering::SeqCst)) % 12_000;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return (listener, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
    }
}

pub(crate) fn collect(
    listener: TcpListener,
    log: Option<PathBuf>,
    stop: Arc<AtomicBool>,
) -> thread::JoinHandle<CollectorStatus> {
    thread::spawn(move || {
        let options = CollectorOptions {
            listener,
            make_task: Maker::built_in(Kernel::Serial),
            verify: Verify::All,
            seed: 1,
            out: None,
            log,
            results: None,
            plan: None,
            stay: false,
        };
        Collector::open(options).unwrap().run(&stop, &mut |_| {}).unwrap()
    })
}

pub(crate) fn execute(
    generator: SocketAddr,
    collector: SocketAddr,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<anyhow::Result<()>> {
    execute_with(Maker::built_in(Kernel::Serial), 2, generator, collector, stop)
}

fn execute_with(
    make_task: Maker,
    threads: usize,
    generator: SocketAddr,
    collector: SocketAddr,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<anyhow::Result<()>> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let options = ExecutorOptions {
            name: "executor".into(),
            generator,
            collector,
            threads,
            make_task,
            kernel: "serial".into(),
            allows_commands: false,
            corrupt: 0.0,
            patience: Duration::from_secs(30),
        };
        executor::run(options, &stop, &mut |_| {}).map(|_| ())
    })
}

pub(crate) fn generate(
    listener: TcpListener,
    collector: SocketAddr,
    tasks: u64,
) -> GeneratorOptions {
    let plan = plan();
    GeneratorOptions {
        stream: STREAM,
        task: Maker::built_in(Kernel::Serial).make(&plan).unwrap(),
        plan,
        input: None,
        pace: PaceOptions {
            rate: Rate::Max,
            tick_ns: 1_000_000,
            duration_ns: None,
            tasks: Some(tasks),
            overload: Overload::Queue,
            backlog_max: 0,
        },
        // Short leases, so that lost batches are resent soon.
        ledger: LedgerOptions { window: 64, batch: BATCH, lease_ns_min: 50_000_000 },
        listener,
        collector,
        patience: Duration::from_secs(30),
        collector_patience: Duration::from_secs(30),
    }
}

pub(crate) fn run_generator(options: GeneratorOptions) -> GeneratorSummary {
    generator::run(options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

pub(crate) fn check_account(summary: &GeneratorSummary) {
    let account = &summary.account;
    assert_eq!(summary.faults, Vec::<String>::new());
    assert_eq!((account.collected, account.distinct), (TASKS, TASKS), "{account:?}");
    assert_eq!(account.digest, expected_digest(), "{account:?}");
    assert_eq!(account.verified_wrong, 0);
}

/// Runs all four paths (tasks, credits, results, acknowledgements) through proxies.
fn run_through_proxies(faults: Faults, seed: u64) -> (GeneratorSummary, u64) {
    let never = Arc::new(AtomicBool::new(false));
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let to_generator = Proxy::start(generator, faults, seed);
    let to_collector = Proxy::start(collector, faults, seed + 1_000);
    let collecting = collect(for_results, None, Arc::clone(&never));
    let executing = [
        execute(to_generator.address, to_collector.address, &never),
        execute(to_generator.address, to_collector.address, &never),
    ];
    let summary = run_generator(generate(for_executors, to_collector.address, TASKS));
    // An executor that missed the end would search for its generator.
    never.store(true, Ordering::SeqCst);
    for executor in executing {
        executor.join().unwrap().unwrap();
    }
    // Duplicates that arrive after the account was sent are counted, but not in that account.
    let last = collecting.join().unwrap().account;
    assert_eq!((last.distinct, last.digest), (summary.account.distinct, summary.account.digest));
    (summary, to_generator.faults() + to_collector.faults())
}

#[test]
fn damaged_frames_lose_nothing() {
    for seed in [1, 2] {
        let faults = Faults { flipped: 0.01, ..Faults::default() };
        let (summary, count) = run_through_proxies(faults, seed);
        assert!(count > 0);
        check_account(&summary);
    }
}

#[test]
fn cut_connections_lose_nothing() {
    let faults = Faults { cut: 0.01, ..Faults::default() };
    let (summary, count) = run_through_proxies(faults, 3);
    assert!(count > 0);
    assert!(summary.status.resent_frames > 0);
    check_account(&summary);
}

#[test]
fn delays_lose_nothing() {
    let delay = Duration::from_millis(2);
    let faults = Faults { delayed: 0.2, delay, ..Faults::default() };
    check_account(&run_through_proxies(faults, 4).0);
}

#[test]
fn executors_may_join_and_leave() {
    let never = Arc::new(AtomicBool::new(false));
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let collecting = collect(for_results, None, Arc::clone(&never));
    let mut options = generate(for_executors, collector, TASKS);
    options.pace.rate = Rate::PerSecond(200_000);
    let generating = thread::spawn(move || run_generator(options));
    // Each is disconnected in the middle of its work; the last one stays.
    for _ in 0..4 {
        let stop = Arc::new(AtomicBool::new(false));
        let executing = execute(generator, collector, &stop);
        thread::sleep(Duration::from_millis(5));
        stop.store(true, Ordering::SeqCst);
        executing.join().unwrap().unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let last = execute(generator, collector, &stop);
    check_account(&generating.join().unwrap());
    // If the others completed everything, the last one searches for a generator that has exited.
    stop.store(true, Ordering::SeqCst);
    last.join().unwrap().unwrap();
    collecting.join().unwrap();
}

/// A task that blocks until it is released.
#[derive(Debug)]
struct Stuck {
    task: Arc<dyn BatchTask>,
    is_free: Arc<(Mutex<bool>, Condvar)>,
    /// Number of tasks started.
    begun: Arc<AtomicU64>,
}

impl BatchTask for Stuck {
    fn input_bytes_max(&self) -> usize {
        self.task.input_bytes_max()
    }

    fn output_bytes_max(&self) -> usize {
        self.task.output_bytes_max()
    }

    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError> {
        self.task.generate(ids, inputs)
    }

    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError> {
        self.begun.fetch_add(u64::from(ids.count), Ordering::SeqCst);
        let (is_free, changed) = &*self.is_free;
        let guard = is_free.lock().unwrap();
        drop(changed.wait_while(guard, |is_free| !*is_free).unwrap());
        self.task.run(ids, inputs, outputs)
    }

    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
        self.task.inspect(ids, outputs)
    }

    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>> {
        self.task.record(outputs, index)
    }

    fn verify(&self, record: &[u8]) -> Result<bool, TaskError> {
        self.task.verify(record)
    }

    fn describe(&self, record: &[u8]) -> String {
        self.task.describe(record)
    }
}

/// One of two executors blocks: it holds only what it requested, the other computes all the rest,
/// and nothing is computed twice.
#[test]
fn executors_of_different_speed() {
    let never = Arc::new(AtomicBool::new(false));
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let collecting = collect(for_results, None, Arc::clone(&never));
    let is_free = Arc::new((Mutex::new(false), Condvar::new()));
    let begun = Arc::new(AtomicU64::new(0));
    let (gate, seen) = (Arc::clone(&is_free), Arc::clone(&begun));
    let make_stuck = Maker::new(move |plan| {
        let task = Maker::built_in(Kernel::Serial).make(plan)?;
        Ok(Arc::new(Stuck { task, is_free: Arc::clone(&gate), begun: Arc::clone(&seen) }))
    });
    let held_max = u64::from(executor::CREDITS) * u64::from(BATCH);
    let report_free = Arc::clone(&is_free);
    let begins = Arc::clone(&begun);
    let generating = thread::spawn(move || {
        let mut options = generate(for_executors, collector, TASKS);
        // No lease expires, and the window does not limit throughput.
        options.ledger = LedgerOptions { window: 1_024, batch: BATCH, lease_ns_min: u64::MAX / 2 };
        let mut report = |status: &pipeline::status::GeneratorStatus| {
            let rest = TASKS - status.collected;
            if rest > 0 && rest <= held_max && begins.load(Ordering::SeqCst) > 0 {
                *report_free.0.lock().unwrap() = true;
                report_free.1.notify_all();
            }
        };
        generator::run(options, &AtomicBool::new(false), &mut report).unwrap()
    });
    let over = Arc::new(AtomicBool::new(false));
    let stuck = execute_with(make_stuck, 1, generator, collector, &over);
    while begun.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let quick = execute(generator, collector, &over);
    let summary = generating.join().unwrap();
    over.store(true, Ordering::SeqCst);
    for executing in [stuck, quick] {
        executing.join().unwrap().unwrap();
    }
    check_account(&summary);
    assert_eq!((summary.status.resent_frames, summary.account.duplicate), (0, 0));
    assert!(begun.load(Ordering::SeqCst) <= held_max + u64::from(BATCH));
    collecting.join().unwrap();
}

/// Creates a directory that is removed if the test passes.
fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("pipeline-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Collectors with one log, each stopped in the middle, on the same port. Results that a collector
/// had received but not made durable are resent.
#[test]
fn a_restarted_collector_resumes() {
    let dir = scratch("collector");
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen_for_long();
    let mut listener = Some(for_results);
    let generating =
        thread::spawn(move || run_generator(generate(for_executors, collector, TASKS)));
    let over = Arc::new(AtomicBool::new(false));
    let executing = execute(generator, collector, &over);
    for _ in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let listener = listener.take().unwrap_or_else(|| TcpListener::bind(collector).unwrap());
        let collecting = collect(listener, Some(dir.clone()), Arc::clone(&stop));
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::SeqCst);
        collecting.join().unwrap();
    }
    let ended = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind(collector).unwrap();
    let last = collect(listener, Some(dir.clone()), Arc::clone(&ended));
    check_account_of_log(&generating.join().unwrap(), &dir);
    // If an earlier collector had everything, this one would wait for a generator indefinitely.
    ended.store(true, Ordering::SeqCst);
    // It may have lost the last collector and the generator before it received the end.
    over.store(true, Ordering::SeqCst);
    executing.join().unwrap().unwrap();
    last.join().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Verification is not logged: each collector checks its own results.
fn check_account_of_log(summary: &GeneratorSummary, dir: &Path) {
    check_account(summary);
    assert!(dir.read_dir().unwrap().count() > 0);
}

/// A collector that has lost acknowledged results is detected.
#[test]
fn a_restarted_collector_without_a_log_fails_the_run() {
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen_for_long();
    let stop = Arc::new(AtomicBool::new(false));
    let collecting = collect(for_results, None, Arc::clone(&stop));
    let (told, hears) = std::sync::mpsc::channel();
    let generating = thread::spawn(move || {
        let mut options = generate(for_executors, collector, u64::MAX / 2);
        options.pace.rate = Rate::PerSecond(100_000);
        let mut report = |status: &pipeline::status::GeneratorStatus| {
            if status.collected > 0 {
                let _ = told.send(());
            }
        };
        generator::run(options, &AtomicBool::new(false), &mut report)
    });
    let gone = Arc::new(AtomicBool::new(false));
    // One thread: the first batch is the first one collected, and lost.
    let make_task = Maker::built_in(Kernel::Serial);
    let executing = execute_with(make_task, 1, generator, collector, &gone);
    hears.recv().unwrap();
    stop.store(true, Ordering::SeqCst);
    collecting.join().unwrap();
    let again = Arc::new(AtomicBool::new(false));
    let collecting = collect(TcpListener::bind(collector).unwrap(), None, Arc::clone(&again));
    let error = generating.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("has lost tasks that it had acknowledged: [(0, "), "{error}");
    gone.store(true, Ordering::SeqCst);
    again.store(true, Ordering::SeqCst);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
}

/// It was killed before the collector read its greeting.
#[test]
fn a_generator_that_is_gone_does_not_supersede_another() {
    let (for_results, collector) = listen();
    let mut gone = Link::connect(collector).unwrap();
    let hello = Hello::Generator { stream: STREAM, epoch: None, plan: plan() };
    gone.send_message(Header::control(Kind::Hello, STREAM, 0), &hello).unwrap();
    drop(gone);
    let never = Arc::new(AtomicBool::new(false));
    let collecting = collect(for_results, None, never);
    let (for_executors, generator) = listen();
    let over = Arc::new(AtomicBool::new(false));
    let executing = execute(generator, collector, &over);
    let summary = run_generator(generate(for_executors, collector, TASKS));
    over.store(true, Ordering::SeqCst);
    assert_eq!(summary.epoch, 1);
    check_account(&summary);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
}

/// The first incarnation assigns ids and vanishes; the second completes everything not collected.
#[test]
fn a_restarted_generator_resumes() {
    let never = Arc::new(AtomicBool::new(false));
    let (for_results, collector) = listen();
    let collecting = collect(for_results, None, Arc::clone(&never));
    let first = first_incarnation(collector);
    let (for_executors, generator) = listen();
    let over = Arc::new(AtomicBool::new(false));
    let executing = execute(generator, collector, &over);
    let summary = run_generator(generate(for_executors, collector, TASKS));
    over.store(true, Ordering::SeqCst);
    assert_eq!(summary.epoch, 3);
    assert_eq!(summary.status.generated, TASKS - 2 * u64::from(BATCH));
    check_account(&summary);
    assert_eq!(summary.account.stale, 2 * u64::from(BATCH));
    drop(first);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
}

/// Results of batches 1 and 3 are collected; 2 and 4 are with an executor that replies late, after
/// the second incarnation has started.
fn first_incarnation(collector: SocketAddr) -> Vec<Link> {
    let task = Maker::built_in(Kernel::Serial).make(&plan()).unwrap();
    let mut buffer = Vec::new();
    let hello_as = |epoch| Hello::Generator { stream: STREAM, epoch, plan: plan() };
    let mut generator = Link::connect(collector).unwrap();
    let hello = Header::control(Kind::Hello, STREAM, 0);
    generator.send_message(hello, &hello_as(None)).unwrap();
    let welcome: GeneratorWelcome = generator.receive_message(Kind::Welcome, &mut buffer).unwrap();
    assert_eq!((welcome.epoch, welcome.collected), (1, vec![]));

    let mut executor = Link::connect(collector).unwrap();
    let greeting = Hello::Executor { stream: Some(STREAM), name: "late".into() };
    executor.send_message(hello, &greeting).unwrap();
    let _: pipeline::message::CollectorWelcome =
        executor.receive_message(Kind::Welcome, &mut buffer).unwrap();
    let mut results = executor.try_clone().unwrap();
    let mut result = |sequence: u64, epoch| {
        let ids = Ids { first: sequence * u64::from(BATCH), count: BATCH };
        let mut inputs = vec![0; ids.len() * task.input_bytes_max()];
        let mut outputs = vec![0; ids.len() * task.output_bytes_max()];
        task.generate(ids, &mut inputs).unwrap();
        task.run(ids, &inputs, &mut outputs).unwrap();
        let mut header = Header::control(Kind::Result, STREAM, epoch);
        (header.sequence, header.first_id, header.count) = (sequence, ids.first, BATCH);
        results.send(&header.with_payload(&outputs), &outputs).unwrap();
    };
    result(1, 1);
    result(3, 1);
    // Both are acknowledged, in one message or two.
    let mut pairs = 0;
    while pairs < 2 {
        let received = generator.receive(&mut buffer).unwrap();
        let pipeline::link::Received::Frame(header) = received else { panic!("{received:?}") };
        assert_eq!(header.kind, Kind::Ack);
        pairs += header.payload_len() / 16;
    }
    // A second incarnation takes over the stream; the executor of the first is not notified yet.
    let mut second = Link::connect(collector).unwrap();
    second.send_message(hello, &hello_as(None)).unwrap();
    let welcome: GeneratorWelcome = second.receive_message(Kind::Welcome, &mut buffer).unwrap();
    assert_eq!((welcome.epoch, welcome.collected), (2, vec![(100, 200), (300, 400)]));
    result(2, 1);
    result(4, 1);
    // Credits for four results: the collector has processed them all.
    let credit = executor.receive(&mut buffer).unwrap();
    assert!(
        matches!(credit, pipeline::link::Received::Frame(header) if header.kind == Kind::Credit)
    );
    // The first incarnation is refused.
    let mut stale = Link::connect(collector).unwrap();
    stale.send_message(hello, &hello_as(Some(1))).unwrap();
    let refused = stale.receive_message::<GeneratorWelcome>(Kind::Welcome, &mut buffer);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("epoch 1 was superseded by 2"), "{refused}");
    vec![generator, executor, second]
}
