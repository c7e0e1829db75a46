//! How fast records are appended: `cargo run --release -p binlog --example append [directory]`.
//!
//! Nobody waits for the disk inside `append`; an appender whose lane is full yields until there is
//! room, so each line is a sustained rate at which the writer keeps up.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base::time::MonoNs;
use binlog::{FileDisk, Log, Lsn, Options, SyncPolicy};

const LANES: usize = 16;

struct Case {
    threads: usize,
    payload_bytes: usize,
    records: usize,
}

fn main() {
    let path = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let path = path.join(format!("binlog-append-{}", std::process::id()));
    for payload_bytes in [5, 110, 1024] {
        for threads in [1, 2, 15, 120, 480] {
            let records =
                if payload_bytes == 5 { 16_000_000 } else { 600_000_000 / payload_bytes / 2 };
            run(&path, &Case { threads, payload_bytes, records });
        }
    }
    append_only(&path);
    synced(&path);
}

fn open(path: &Path, sync: SyncPolicy) -> Arc<Log> {
    let disk = Arc::new(FileDisk::open(path).unwrap());
    let options = Options { sync, ..Options::default() };
    Log::open(disk, options, LANES, Lsn(0), &mut |_| Ok(())).unwrap().0
}

fn clock() -> impl Fn() -> MonoNs + Send + 'static {
    let origin = Instant::now();
    move || MonoNs(u64::try_from(origin.elapsed().as_nanos()).unwrap())
}

fn run(path: &Path, case: &Case) {
    let log = open(path, SyncPolicy::Never);
    let writer = log.spawn_writer(clock()).unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        for number in 0..case.threads {
            let log = &log;
            scope.spawn(move || append(log, number % LANES, case));
        }
    });
    let took = started.elapsed();
    let rate = case.records as f64 / took.as_secs_f64() / 1e6;
    let stats = log.stats();
    let group_kib = stats.bytes / stats.groups.max(1) / 1024;
    println!(
        "{:4} B {:4} threads  {rate:6.2} M/s  {:6.1} MB/s  group {group_kib} KiB",
        case.payload_bytes,
        case.threads,
        rate * (case.payload_bytes + 9) as f64,
    );
    writer.stop().unwrap();
    std::fs::remove_dir_all(path).unwrap();
}

fn append(log: &Log, lane: usize, case: &Case) {
    let payload = vec![7; case.payload_bytes];
    for _ in 0..case.records / case.threads {
        while !log.has_room(lane) {
            thread::yield_now();
        }
        log.append(lane, 1, &payload).unwrap();
    }
}

/// The cost of one append alone: the writer runs only between the measured bursts.
fn append_only(path: &Path) {
    let log = open(path, SyncPolicy::Never);
    for payload_bytes in [5, 110, 1024] {
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
    std::fs::remove_dir_all(path).unwrap();
}

/// One appender that waits for each record to be durable.
fn synced(path: &Path) {
    let log = open(path, SyncPolicy::Always);
    let writer = log.spawn_writer(clock()).unwrap();
    let waiting = thread::current();
    log.set_waker(0, Box::new(move || waiting.unpark()));
    let started = Instant::now();
    let count = 2000;
    for _ in 0..count {
        let end = log.append(0, 1, &[7; 110]).unwrap();
        log.request_sync(end);
        while log.durable() < end {
            log.wake_when_durable(0, end);
            thread::park();
        }
    }
    let per_record = started.elapsed() / count;
    let stats = log.stats();
    let sync_us = stats.sync_ns_sum / stats.syncs.max(1) / 1000;
    println!("one waiting appender: {per_record:?} per durable record, of which sync {sync_us} us");
    writer.stop().unwrap();
    std::fs::remove_dir_all(path).unwrap();
}
