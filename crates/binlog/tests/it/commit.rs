//! Threads that wait for their records.

use std::sync::Arc;
use std::thread;

use binlog::{FaultDisk, Faults, Log, Lsn, Options, SyncPolicy};

use crate::{no_time, open_from};

const THREADS: usize = 8;
const LANES: usize = 3;
const PER_THREAD: usize = 400;

fn options(sync: SyncPolicy) -> Options {
    Options { segment_bytes: 64 << 10, sync, salt: 9, ..Options::default() }
}

type Wait = fn(&Log, Lsn);

fn written(log: &Log, lsn: Lsn) {
    log.wait_written(lsn, &no_time).unwrap();
    assert!(log.written() >= lsn);
}

fn durable(log: &Log, lsn: Lsn) {
    log.wait_durable(lsn, &no_time).unwrap();
    assert!(log.durable() >= lsn);
}

/// Each thread waits for each of its records. The clock does not advance, so only the waiting
/// threads cause writes: a lost wake-up makes the test hang.
fn check(sync: SyncPolicy, wait: Wait) {
    let disk = Arc::new(FaultDisk::new(5));
    let (log, _, _) = open_from(&disk, options(sync), LANES, Lsn(0)).unwrap();
    let writer = log.spawn_writer(no_time).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for at in 0..PER_THREAD {
                    let payload = format!("{number} {at}");
                    wait(log, log.append(number % LANES, 1, payload.as_bytes()).unwrap());
                }
            });
        }
    });
    let sizes = log.group_sizes();
    assert_eq!(sizes.records.len(), log.stats().groups);
    writer.stop().unwrap();
    drop(log);
    disk.power_cut();
    let (_, _, kept) = open_from(&disk, options(sync), LANES, Lsn(0)).unwrap();
    let mut next = [0; THREADS];
    for record in kept {
        let text = String::from_utf8(record.payload).unwrap();
        let (number, at) = text.split_once(' ').unwrap();
        let number: usize = number.parse().unwrap();
        assert_eq!(at.parse(), Ok(next[number]), "thread {number}");
        next[number] += 1;
    }
    assert_eq!(next, [PER_THREAD; THREADS]);
}

#[test]
fn threads_wait_until_written() {
    check(SyncPolicy::Never, written);
    check(SyncPolicy::Always, written);
}

#[test]
fn threads_wait_until_durable_whatever_the_policy() {
    check(SyncPolicy::Never, durable);
    check(SyncPolicy::Always, durable);
}

#[test]
fn a_poisoned_log_lets_all_who_wait_go() {
    let disk = Arc::new(FaultDisk::new(5));
    let (log, _, _) = open_from(&disk, options(SyncPolicy::Never), LANES, Lsn(0)).unwrap();
    let writer = log.spawn_writer(no_time).unwrap();
    disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
    thread::scope(|scope| {
        for number in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                // Refused itself if another thread's sync has failed before.
                if let Ok(end) = log.append(number % LANES, 1, b"in vain") {
                    log.wait_durable(end, &no_time).unwrap_err();
                    log.wait_durable(end, &no_time).unwrap_err();
                }
            });
        }
    });
    writer.stop().unwrap_err();
    assert_eq!(log.durable(), Lsn(0));
}
