//! How fast records are appended, and what the log costs:
//! `cargo run --release -p binlog --example append [directory [direct|buffered [bytes [threads]]]]`.
//! With bytes (of a payload), or these and threads, only those cases are run.
//!
//! `append` never waits for the disk; an appender whose lane is full yields until there is room, so
//! each line is a sustained rate at which the writer keeps up. `log` is the CPU time of the threads
//! `log` and `log-prep` per record, `process` that of all threads.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base::time::MonoNs;
use binlog::{FileDisk, Log, Lsn, Options, SyncPolicy};

/// As many lanes as threads, as a server has one for each reactor, but not more than this.
const LANES_MAX: usize = 16;

struct Case {
    threads: usize,
    payload_bytes: usize,
    records: usize,
}

fn main() {
    let path = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = path.join(format!("binlog-append-{}", std::process::id()));
    first_open(&path);
    let only = |nth| std::env::args().nth(nth).map(|text| text.parse::<usize>().unwrap());
    let (only_bytes, only_threads) = (only(3), only(4));
    for payload_bytes in [5, 111, 1024].into_iter().filter(|n| only_bytes.is_none_or(|o| o == *n)) {
        for threads in
            [1, 2, 15, 120, 480].into_iter().filter(|n| only_threads.is_none_or(|only| only == *n))
        {
            let records = if payload_bytes == 5 { 20_000_000 } else { 800_000_000 / payload_bytes };
            run(&path, &Case { threads, payload_bytes, records });
        }
    }
    if only_bytes.is_none() {
        append_only(&path);
    }
    if only_threads.is_none() {
        for in_flight in [1, 64] {
            synced(&path, in_flight);
        }
    }
}

fn open(path: &Path, sync: SyncPolicy, lanes: usize) -> Arc<Log> {
    let buffered = std::env::args().nth(2).is_some_and(|mode| mode == "buffered");
    let opened = if buffered { FileDisk::open_buffered(path) } else { FileDisk::open(path) };
    let disk = Arc::new(opened.unwrap());
    let options = Options { sync, ..Options::default() };
    Log::open(disk, options, lanes, Lsn(0), &mut |_| Ok(())).unwrap().0
}

fn clock() -> impl Fn() -> MonoNs + Send + 'static {
    let origin = Instant::now();
    move || MonoNs(u64::try_from(origin.elapsed().as_nanos()).unwrap())
}

/// CPU time of this process's threads so far, in nanoseconds.
#[derive(Clone, Copy)]
struct Cpu {
    log_ns: u64,
    process_ns: u64,
}

/// Threads that have ended are not counted: to be asked from inside of what is measured.
fn cpu() -> Cpu {
    let mut cpu = Cpu { log_ns: 0, process_ns: 0 };
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let (Ok(name), Ok(times)) =
            (fs::read_to_string(task.join("comm")), fs::read_to_string(task.join("schedstat")))
        else {
            continue;
        };
        let ns: u64 = times.split(' ').next().unwrap().parse().unwrap();
        cpu.process_ns += ns;
        if ["log", "log-prep"].contains(&name.trim()) {
            cpu.log_ns += ns;
        }
    }
    cpu
}

/// How long a new log takes to be ready for its first record.
fn first_open(path: &Path) {
    let started = Instant::now();
    let log = open(path, SyncPolicy::Always, 1);
    println!("a new log is ready after {:?}", started.elapsed());
    drop(log);
    fs::remove_dir_all(path).unwrap();
}

fn run(path: &Path, case: &Case) {
    let lanes = case.threads.min(LANES_MAX);
    let log = open(path, SyncPolicy::Never, lanes);
    let writer = log.spawn_writer(clock()).unwrap();
    let before = cpu();
    let started = Instant::now();
    let appenders_ns = thread::scope(|scope| {
        let appenders: Vec<_> = (0..case.threads)
            .map(|number| {
                let log = &log;
                scope.spawn(move || append(log, number % lanes, case))
            })
            .collect();
        appenders.into_iter().map(|appender| appender.join().unwrap()).sum::<u64>()
    });
    let took = started.elapsed();
    let after = cpu();
    let rate = case.records as f64 / took.as_secs_f64() / 1e6;
    let stats = log.stats();
    let group_kib = stats.bytes / stats.groups.max(1) / 1024;
    let log_ns = after.log_ns - before.log_ns;
    println!(
        "{:4} B {:4} threads  {rate:6.2} M/s  {:6.1} MB/s  group {group_kib:4} KiB  log {:5.1} ns  \
         process {:6.1} ns",
        case.payload_bytes,
        case.threads,
        rate * (case.payload_bytes + 9) as f64,
        log_ns as f64 / case.records as f64,
        (log_ns + appenders_ns) as f64 / case.records as f64,
    );
    writer.stop().unwrap();
    fs::remove_dir_all(path).unwrap();
}

/// Returns the CPU time of the calling thread in nanoseconds.
fn append(log: &Log, lane: usize, case: &Case) -> u64 {
    let payload = vec![7; case.payload_bytes];
    for _ in 0..case.records / case.threads {
        while !log.has_room(lane) {
            thread::yield_now();
        }
        log.append(lane, 1, &payload).unwrap();
    }
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// The cost of one append alone: the writer runs only between the measured bursts.
fn append_only(path: &Path) {
    let log = open(path, SyncPolicy::Never, 1);
    for payload_bytes in [5, 111, 1024] {
        let payload = vec![7; payload_bytes];
        let (mut took, mut count) = (Duration::ZERO, 0_u32);
        for _ in 0..2000 {
            let started = Instant::now();
            while log.has_room(0) {
                log.append(0, 1, &payload).unwrap();
                count += 1;
            }
            took += started.elapsed();
            log.writer_step(&|| MonoNs(1));
        }
        println!(
            "{payload_bytes:4} B append alone {:6.1} ns",
            took.as_nanos() as f64 / f64::from(count)
        );
    }
    drop(log);
    fs::remove_dir_all(path).unwrap();
}

/// One appender that waits for its records to be durable, `in_flight` of them at a time.
fn synced(path: &Path, in_flight: u32) {
    let log = open(path, SyncPolicy::Always, 1);
    let writer = log.spawn_writer(clock()).unwrap();
    let waiting = thread::current();
    log.set_waker(0, Box::new(move || waiting.unpark()));
    let before = cpu();
    let started = Instant::now();
    let rounds = 4000;
    for _ in 0..rounds {
        let mut end = Lsn(0);
        for _ in 0..in_flight {
            end = log.append(0, 1, &[7; 111]).unwrap();
        }
        log.request_sync(end);
        while log.durable() < end {
            log.wake_when_durable(0, end);
            thread::park();
        }
    }
    let per_round = started.elapsed() / rounds;
    let log_us = (cpu().log_ns - before.log_ns) as f64 / 1000.0 / f64::from(rounds);
    let stats = log.stats();
    let sync_us = stats.sync_ns_sum / stats.syncs.max(1) / 1000;
    println!(
        "{in_flight} waiting: {per_round:?} until durable, of which sync {sync_us} us; log CPU \
         {log_us:.1} us"
    );
    writer.stop().unwrap();
    fs::remove_dir_all(path).unwrap();
}
