//! Real threads: nothing is lost, doubled or out of order, and no wake-up is missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base::time::MonoNs;
use binlog::{Batch, Disk, FaultDisk, FileDisk, Log, Lsn, Options, Scope, SyncPolicy};

use crate::open_from;

const LANES: usize = 4;

/// A clock that advances by a microsecond at each call.
fn counting_clock() -> impl Fn() -> MonoNs + Send + 'static {
    let now = AtomicU64::new(1);
    move || MonoNs(now.fetch_add(1000, Ordering::Relaxed))
}

fn options(sync: SyncPolicy) -> Options {
    Options { segment_bytes: 64 << 10, lane_bytes_max: 8192, sync, salt: 9, ..Options::default() }
}

fn payload(lane: usize, number: u32) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(lane).unwrap()];
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(5 + number as usize % 50, 0xee);
    bytes
}

fn lane_and_number(payload: &[u8]) -> (usize, u32) {
    (usize::from(payload[0]), u32::from_le_bytes(payload[1..5].try_into().unwrap()))
}

/// Every lane's numbers are there, from 0 on, in order.
fn check_order<'a>(payloads: impl Iterator<Item = &'a [u8]>, per_lane: u32) {
    let mut next = [0_u32; LANES];
    for got in payloads {
        let (lane, number) = lane_and_number(got);
        assert_eq!(number, next[lane], "lane {lane}");
        assert_eq!(got, payload(lane, number));
        next[lane] += 1;
    }
    assert_eq!(next, [per_lane; LANES]);
}

/// Appends with back-pressure, as a reactor does; waits for durability every now and then.
fn run_lane(log: &Log, lane: usize, per_lane: u32, wait_every: u32) {
    let (wake, woken) = mpsc::channel();
    // The receiver may be gone: the lane is done then.
    log.set_waker(lane, Box::new(move || wake.send(()).unwrap_or_default()));
    let wait = || woken.recv_timeout(Duration::from_mins(1)).expect("a wake-up was lost");
    for number in 0..per_lane {
        while !log.has_room(lane) {
            wait();
        }
        let end = log.append(lane, 1, &payload(lane, number)).unwrap();
        if number % wait_every == 0 {
            log.request_sync(end);
            while log.durable() < end {
                log.wake_when_durable(lane, end);
                wait();
            }
        }
    }
}

/// Checks the positions until `done`, and sends a message after the first check.
fn observe(log: &Log, done: &AtomicBool, looked: &mpsc::Sender<()>) {
    let mut last = (Lsn(0), Lsn(0), Lsn(0));
    let mut looks = 0_u64;
    while !done.load(Ordering::SeqCst) {
        let durable = log.durable();
        let written = log.written();
        let next = log.next();
        assert!(durable <= written && written <= next);
        assert!(last.0 <= durable && last.1 <= written && last.2 <= next);
        last = (durable, written, next);
        looks += 1;
        if looks == 1 {
            looked.send(()).unwrap();
        }
        thread::yield_now();
    }
}

fn follow(log: &Arc<Log>, wanted: u32, scope: Scope) -> Vec<Vec<u8>> {
    let mut follower = log.follow(Lsn(0), scope).unwrap();
    let mut batch = Batch::new();
    let mut got = Vec::new();
    while got.len() < wanted as usize {
        if follower.next_batch(&mut batch).unwrap() {
            got.extend(batch.records().map(|record| record.payload.to_vec()));
        } else {
            follower.wait(Duration::from_mins(1));
        }
    }
    got
}

fn run(policy: SyncPolicy, per_lane: u32, wait_every: u32) {
    let disk = Arc::new(FaultDisk::new(5));
    let (log, _, _) = open_from(&disk, options(policy), LANES, Lsn(0)).unwrap();
    let writer = log.spawn_writer(counting_clock()).unwrap();
    let done = AtomicBool::new(false);
    let lanes = u32::try_from(LANES).unwrap();
    thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&log, per_lane * lanes, Scope::Durable));
        let (looked, looks) = mpsc::channel();
        let (observed, is_done) = (&log, &done);
        let observer = scope.spawn(move || observe(observed, is_done, &looked));
        // Not only after the end of all threads.
        looks.recv().ok();
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let log = &log;
                scope.spawn(move || run_lane(log, lane, per_lane, wait_every))
            })
            .collect();
        for lane in lanes {
            lane.join().unwrap();
        }
        log.request_sync(log.next());
        let followed = follower.join().unwrap();
        check_order(followed.iter().map(Vec::as_slice), per_lane);
        done.store(true, Ordering::SeqCst);
        observer.join().unwrap();
    });
    writer.stop().unwrap();
    assert_eq!(log.durable(), log.next());
    drop(log);
    disk.power_cut();
    let (_, recovered, kept) = open_from(&disk, options(policy), LANES, Lsn(0)).unwrap();
    assert_eq!(recovered.records, u64::from(per_lane) * LANES as u64);
    check_order(kept.iter().map(|record| &record.payload[..]), per_lane);
}

/// Reads go through the page cache while writes go past it.
#[test]
fn a_follower_reads_a_real_directory_while_it_is_written() {
    let path = std::env::temp_dir().join(format!("binlog-threads-{}", std::process::id()));
    let disk = Arc::new(FileDisk::open(&path).unwrap());
    let (log, _) =
        Log::open(disk, options(SyncPolicy::Never), LANES, Lsn(0), &mut |_| Ok(())).unwrap();
    let writer = log.spawn_writer(counting_clock()).unwrap();
    let per_lane = 3000;
    let followed = thread::scope(|scope| {
        let wanted = per_lane * u32::try_from(LANES).unwrap();
        let follower = scope.spawn({
            let log = &log;
            move || follow(log, wanted, Scope::Written)
        });
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let log = &log;
                scope.spawn(move || run_lane(log, lane, per_lane, 50))
            })
            .collect();
        for lane in lanes {
            lane.join().unwrap();
        }
        log.request_write();
        follower.join().unwrap()
    });
    check_order(followed.iter().map(Vec::as_slice), per_lane);
    writer.stop().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn lanes_merge_without_gaps() {
    run(SyncPolicy::Always, 4000, 64);
}

#[test]
fn no_wake_up_is_lost() {
    // Nothing is synced without a request, so the test would hang after a lost wake-up.
    run(SyncPolicy::Never, 1500, 1);
}

#[test]
fn a_stopped_writer_has_written_everything() {
    let disk = Arc::new(FaultDisk::new(5));
    let (log, _, _) = open_from(&disk, options(SyncPolicy::Never), 1, Lsn(0)).unwrap();
    let writer = log.spawn_writer(counting_clock()).unwrap();
    for number in 0..1000 {
        log.append(0, 1, &payload(0, number)).unwrap();
    }
    drop(writer);
    assert_eq!(log.durable(), log.next());
    assert!(log.append(0, 1, b"x").is_err());
    drop(log);
    disk.power_cut();
    let (_, _, kept) = open_from(&disk, options(SyncPolicy::Never), 1, Lsn(0)).unwrap();
    assert_eq!(kept.len(), 1000);
    assert!(disk.list().unwrap().len() < 10);
}
