//! Groups: what is written and synced when, which threads are woken, what stops the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use base::time::MonoNs;
use binlog::{
    AppendError, Batch, FaultDisk, Faults, Log, Lsn, Mark, Next, Options, Poisoned, Scope,
    StepOutcome, SyncPolicy, Tail,
};

use crate::{append, no_time, open, open_from, small, sync};

const MS: u64 = 1_000_000;

fn new_log(policy: SyncPolicy) -> (Arc<FaultDisk>, Arc<Log>) {
    let disk = Arc::new(FaultDisk::new(3));
    let options = Options { sync: policy, ..small() };
    let (log, _, _) = open_from(&disk, options, 2, Lsn(0)).unwrap();
    (disk, log)
}

fn step_at(log: &Log, ms: u64) -> StepOutcome {
    log.writer_step(&|| MonoNs(ms * MS))
}

fn count_wakes(log: &Log, lane: usize) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    log.set_waker(
        lane,
        Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }),
    );
    count
}

#[test]
fn one_group_syncs_all_lanes_at_once() {
    let (_, log) = new_log(SyncPolicy::Always);
    let ends: Vec<Lsn> = (0..10).map(|n| log.append(n % 2, 1, b"abc").unwrap()).collect();
    assert_eq!((log.durable(), log.written(), log.next()), (Lsn(0), Lsn(0), Lsn(120)));
    log.request_sync(ends[3]);
    let outcome = log.writer_step(&no_time);
    assert!(outcome.synced);
    assert_eq!((log.durable(), outcome.bytes_written), (Lsn(120), 120));
    let stats = log.stats();
    assert_eq!((stats.groups, stats.syncs, stats.records, stats.bytes), (1, 1, 10, 120));
    assert_eq!((stats.waiting_bytes, stats.unsynced_bytes), (0, 0));
    assert!((stats.records_per_sync() - 10.0).abs() < f64::EPSILON);
}

/// The marks that a follower reads from the beginning on.
fn marks_of(log: &Arc<Log>) -> Vec<Mark> {
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    let (mut batch, mut marks) = (Batch::new(), Vec::new());
    while follower.next_batch(&mut batch).unwrap() {
        marks.extend(batch.marks());
    }
    marks
}

#[test]
fn marks_state_when_each_position_became_durable() {
    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, _) = open(&disk);
    let clock = Arc::new(AtomicI64::new(1000));
    let read = Arc::clone(&clock);
    log.set_wall_clock(move || read.load(Ordering::SeqCst));
    let mut expected = Vec::new();
    for group in 0..6 {
        clock.store(2000 + group, Ordering::SeqCst);
        // The last groups fill segments of their own, whose end is published before the rest.
        let records = if group < 3 { 1 } else { 40 };
        for _ in 0..records {
            log.append(0, 1, &[7; 300]).unwrap();
        }
        sync(&log);
        expected.push(Mark { durable: log.durable(), unix_us: Some(2000 + group) });
    }
    log.close(&no_time).unwrap();
    let marks = marks_of(&log);
    assert!(marks.is_sorted_by_key(|mark| (mark.durable, mark.unix_us)));
    assert!(expected.iter().all(|mark| marks.contains(mark)), "{marks:?} {expected:?}");
    assert!(marks.len() > expected.len(), "the ends of segments too");

    // What recovery finds was durable before; its time is not known.
    drop(log);
    clock.store(9000, Ordering::SeqCst);
    let (log, _, _) = open(&disk);
    let end = log.durable();
    let read = Arc::clone(&clock);
    log.set_wall_clock(move || read.load(Ordering::SeqCst));
    clock.store(9999, Ordering::SeqCst);
    log.append(0, 1, b"a").unwrap();
    sync(&log);
    assert_eq!(marks_of(&log).last(), Some(&Mark { durable: end, unix_us: Some(9000) }));
}

/// The files after several runs of a log with many small groups, all of them synced.
fn files_after_many_groups(disk: FaultDisk) -> Vec<(String, Vec<u8>)> {
    let disk = Arc::new(disk);
    let mut kept = Vec::new();
    for life in 0..5 {
        let (log, recovered, got) = open(&disk);
        assert_eq!(recovered.tail, Tail::Clean);
        let lengths = |kept: &[crate::Kept]| -> Vec<usize> {
            kept.iter().map(|record| record.payload.len()).collect()
        };
        assert_eq!(lengths(&got), lengths(&kept));
        for n in 0..40 {
            append(&log, &mut kept, n % 2, &vec![7; n * 29 + life]);
            if n % 3 == 0 {
                sync(&log);
            }
        }
        sync(&log);
        assert_eq!(log.durable(), log.next());
        drop(log);
        disk.power_cut();
    }
    let mut names = binlog::Disk::list(&*disk).unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

#[test]
fn whole_blocks_leave_the_same_files_as_single_bytes() {
    let direct = files_after_many_groups(FaultDisk::new(1));
    assert!(direct.len() > 10, "groups and runs end inside of blocks, and cross segments");
    assert!(direct == files_after_many_groups(FaultDisk::buffered(1)));
}

#[test]
fn a_partial_block_is_written_again_with_what_follows() {
    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, mut kept) = open(&disk);
    for n in 1..=20 {
        let end = 4096 + usize::try_from(append(&log, &mut kept, 0, &[n; 30]).0).unwrap();
        sync(&log);
        let bytes = disk.contents("log-00000000000000000001.seg").unwrap();
        assert_eq!(bytes[end - 30..end], [n; 30], "the newest record");
        assert_eq!(bytes[4096 + 9..4096 + 39], [1; 30], "the oldest one in the same block");
        let durable = 4096 + usize::try_from(log.durable().0).unwrap();
        assert!(bytes[durable..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_restart_goes_on_inside_a_block() {
    for disk in [FaultDisk::new(3), FaultDisk::buffered(3)] {
        let disk = Arc::new(disk);
        let (log, _, mut kept) = open(&disk);
        append(&log, &mut kept, 0, b"before");
        sync(&log);
        drop(log);
        disk.power_cut();
        let (log, recovered, _) = open(&disk);
        assert_eq!(recovered.end, kept[0].end);
        append(&log, &mut kept, 0, b"behind");
        sync(&log);
        drop(log);
        disk.power_cut();
        let (_, _, got) = open(&disk);
        assert_eq!(got, kept);
    }
}

#[test]
fn nothing_happens_unasked_before_the_tick() {
    for policy in [SyncPolicy::Always, SyncPolicy::Never] {
        let (_, log) = new_log(policy);
        log.append(0, 1, b"first").unwrap();
        step_at(&log, 200);
        log.append(0, 1, b"x").unwrap();
        let outcome = step_at(&log, 250);
        let next = Next::AfterNs(50 * MS);
        assert_eq!(outcome, StepOutcome { bytes_written: 0, synced: false, next });
        let outcome = step_at(&log, 300);
        assert!(outcome.bytes_written > 0);
        assert_eq!(outcome.synced, policy == SyncPolicy::Always);
        assert_eq!(log.written(), log.next());
    }
}

#[test]
fn the_policy_never_syncs_only_on_request() {
    let (_, log) = new_log(SyncPolicy::Never);
    let end = log.append(0, 1, b"x").unwrap();
    log.request_write();
    assert!(!step_at(&log, 1).synced);
    assert_eq!((log.written(), log.durable()), (end, Lsn(0)));
    log.request_sync(end);
    assert!(step_at(&log, 1).synced, "also what is written already");
    assert_eq!(log.durable(), end);
}

#[test]
fn the_policy_never_syncs_for_followers_that_read_only_what_is_durable() {
    let (_, log) = new_log(SyncPolicy::Never);
    let append = || {
        log.append(0, 1, b"x").unwrap();
        log.request_write();
    };
    append();
    let _reads_what_is_written = log.follow(Lsn(0), Scope::Written).unwrap();
    assert!(!step_at(&log, 1000).synced);
    let durable = log.follow(Lsn(0), Scope::Durable).unwrap();
    assert!(step_at(&log, 1001).synced);
    assert_eq!(log.durable(), log.next());
    assert!(!step_at(&log, 1300).synced, "nothing is new");

    append();
    assert!(step_at(&log, 1301).synced, "the last sync was long ago");
    append();
    let outcome = step_at(&log, 1341);
    assert!(!outcome.synced);
    assert_eq!(outcome.next, Next::AfterNs(60 * MS));
    assert!(step_at(&log, 1401).synced);

    drop(durable);
    append();
    assert!(!step_at(&log, 9000).synced);
}

#[test]
fn an_interval_syncs_when_it_is_over_and_something_is_new() {
    let (_, log) = new_log(SyncPolicy::Interval(Duration::from_millis(500)));
    log.append(0, 1, b"x").unwrap();
    assert!(step_at(&log, 600).synced);
    log.append(0, 1, b"y").unwrap();
    let outcome = step_at(&log, 1000);
    assert!(outcome.bytes_written > 0 && !outcome.synced);
    assert_eq!(outcome.next, Next::AfterNs(100 * MS));
    assert!(step_at(&log, 1100).synced);
    assert!(!step_at(&log, 1700).synced, "nothing is new");
    log.set_sync_policy(SyncPolicy::Never);
    log.append(0, 1, b"z").unwrap();
    assert!(!step_at(&log, 9000).synced);
    assert_eq!(log.sync_policy(), SyncPolicy::Never);
}

#[test]
fn a_full_lane_has_no_room_until_it_is_taken() {
    let (_, log) = new_log(SyncPolicy::Always);
    let woken = count_wakes(&log, 0);
    while log.has_room(0) {
        log.append(0, 1, &[7; 1000]).unwrap();
    }
    let held = log.stats().lane_bytes[0];
    let cap = Options::default().lane_bytes_max;
    assert!((cap..cap + 1009).contains(&held), "{held}");
    assert!(log.has_room(1), "only the full lane is stopped");
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    log.writer_step(&no_time);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    assert!(log.has_room(0));
    assert_eq!(log.durable(), log.next());
}

#[test]
fn many_lanes_share_the_group() {
    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, _) = open_from(&disk, small(), 64, Lsn(0)).unwrap();
    while log.has_room(9) {
        log.append(9, 1, &[7; 100]).unwrap();
    }
    assert!(log.stats().lane_bytes[9] < (16 << 10) + 109);
}

#[test]
fn a_failed_write_or_sync_stops_the_log_for_good() {
    for faults in [
        Faults { write_error: 1.0, ..Faults::default() },
        Faults { sync_error: 1.0, ..Faults::default() },
    ] {
        let (disk, log) = new_log(SyncPolicy::Always);
        let safe = log.append(0, 1, b"safe").unwrap();
        sync(&log);
        let woken = count_wakes(&log, 1);
        disk.set_faults(faults);
        let end = log.append(0, 1, b"never").unwrap();
        log.wake_when_durable(1, end);
        log.request_sync(end);
        assert_eq!(log.writer_step(&no_time).next, Next::Poisoned);
        assert_eq!(woken.load(Ordering::SeqCst), 1, "a waiting thread must be woken");
        disk.set_faults(Faults::default());
        assert_eq!(log.writer_step(&no_time).next, Next::Poisoned, "no second try");
        assert_eq!(log.durable(), safe);
        let Err(AppendError::Poisoned(cause)) = log.append(0, 1, b"x") else {
            panic!("a poisoned log takes nothing");
        };
        assert!(cause.to_string().contains("log-00000000000000000001.seg failed: device error"));
        assert!(log.has_room(0), "no appender waits for room in a poisoned log");
        log.wake_when_durable(1, end);
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        assert!(matches!(log.close(&no_time), Err(Poisoned::Failed { .. })));
    }
}

#[test]
fn a_record_larger_than_a_segment_gets_a_larger_one() {
    let (disk, log) = new_log(SyncPolicy::Always);
    for bytes in [100, 50_000, 10, 9000] {
        log.append(0, 1, &vec![5; bytes]).unwrap();
        sync(&log);
    }
    assert_eq!(log.stats().segments, 3, "the third record fits after the large one");
    drop(log);
    let (_, _, got) = open(&disk);
    let lengths: Vec<usize> = got.iter().map(|record| record.payload.len()).collect();
    assert_eq!(lengths, [100, 50_000, 10, 9000]);
}

#[test]
fn truncated_segments_are_written_again() {
    let disk = Arc::new(FaultDisk::new(3));
    let options = Options { recycled_segments_max: 4, ..small() };
    let (log, _, _) = open_from(&disk, options, 2, Lsn(0)).unwrap();
    for _ in 0..100 {
        log.append(0, 1, &[1; 500]).unwrap();
        sync(&log);
    }
    let before = log.stats().segments;
    assert!(before > 10);
    log.truncate_before(log.next()).unwrap();
    let stats = log.stats();
    assert_eq!((stats.segments, stats.blank_segments), (1, 4));
    let from = log.durable();
    let files = binlog::Disk::list(&*disk).unwrap().len();
    assert_eq!(files, 6, "the rest is removed; the manifest is one of these");
    for _ in 0..20 {
        log.append(0, 1, &[2; 500]).unwrap();
        sync(&log);
    }
    assert_eq!(binlog::Disk::list(&*disk).unwrap().len(), 6, "no new file was needed");
    drop(log);
    let (_, _, got) = open_from(&disk, small(), 2, from).unwrap();
    assert_eq!(got.len(), 20);
    assert!(got.iter().all(|record| record.payload == [2; 500]));
}

#[test]
fn what_is_not_durable_is_never_truncated() {
    let (_, log) = new_log(SyncPolicy::Never);
    for _ in 0..30 {
        log.append(0, 1, &[1; 500]).unwrap();
    }
    log.request_write();
    log.writer_step(&no_time);
    let before = log.stats().segments;
    assert!(before > 3 && log.durable() == Lsn(0));
    log.truncate_before(log.next()).unwrap();
    assert_eq!(log.stats().segments, before);
}

#[test]
fn a_prepared_segment_is_used() {
    let (disk, log) = new_log(SyncPolicy::Always);
    log.prepare_segment().unwrap();
    log.prepare_segment().unwrap();
    assert_eq!(log.stats().blank_segments, 1, "one ahead is enough");
    disk.set_faults(Faults { capacity_bytes: Some(2 * 8192), ..Faults::default() });
    for _ in 0..12 {
        log.append(0, 1, &[1; 500]).unwrap();
        sync(&log);
    }
    assert!(log.poisoned().is_none());
    assert_eq!((log.stats().blank_segments, log.stats().segments), (0, 2));
}

#[test]
#[should_panic(expected = "kinds 0 and 255")]
fn the_logs_own_kind_is_refused() {
    let (_, log) = new_log(SyncPolicy::Always);
    log.append(0, 255, b"").ok();
}

#[test]
fn closing_leaves_a_mark_and_refuses_more() {
    let (disk, log) = new_log(SyncPolicy::Never);
    log.append(0, 1, b"last").unwrap();
    log.close(&no_time).unwrap();
    assert_eq!(log.durable(), log.next());
    let refused = log.append(0, 1, b"x");
    assert!(matches!(refused, Err(AppendError::Poisoned(Poisoned::Closed))));
    // The mark proves the last record: damage to it does not count as a torn tail.
    assert!(disk.damage("log-00000000000000000001.seg", 4096 + 10, 1));
    let opened = open_from(&disk, small(), 1, Lsn(0));
    assert!(matches!(opened, Err(binlog::OpenError::Damaged(_))));
}
