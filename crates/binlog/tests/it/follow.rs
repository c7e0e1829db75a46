//! Readers that go along.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use binlog::{Batch, FaultDisk, FollowError, Follower, Log, Lsn, Options, Scope};

use crate::{Kept, append, no_time, open_from, small, sync};

/// The smallest groups, so that followers find some records in memory and read others from files.
fn small_groups() -> Options {
    Options { group_bytes_max: 4096, ..small() }
}

fn new_log() -> Arc<Log> {
    open_from(&Arc::new(FaultDisk::new(1)), small_groups(), 2, Lsn(0)).unwrap().0
}

fn read_all(follower: &mut Follower) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    let mut payloads = Vec::new();
    while follower.next_batch(&mut batch).unwrap() {
        assert_eq!(follower.position(), batch.end());
        payloads.extend(batch.records().map(|record| record.payload.to_vec()));
    }
    payloads
}

fn payloads(kept: &[Kept]) -> Vec<Vec<u8>> {
    kept.iter().map(|record| record.payload.clone()).collect()
}

#[test]
fn reads_only_what_its_scope_allows() {
    let log = new_log();
    let mut durable = log.follow(Lsn(0), Scope::Durable).unwrap();
    let mut written = log.follow(Lsn(0), Scope::Written).unwrap();
    let mut kept = Vec::new();
    append(&log, &mut kept, 0, b"one");
    append(&log, &mut kept, 1, b"two");
    assert!(read_all(&mut written).is_empty());
    log.set_sync_policy(binlog::SyncPolicy::Never);
    log.request_write();
    log.writer_step(&no_time);
    assert_eq!(read_all(&mut written), payloads(&kept));
    assert!(read_all(&mut durable).is_empty());
    sync(&log);
    assert_eq!(read_all(&mut durable), payloads(&kept));
}

#[test]
fn follows_over_segments_marks_and_large_records() {
    let log = new_log();
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    let (mut kept, mut got) = (Vec::new(), Vec::new());
    for n in 0..200_u8 {
        let bytes = if n % 50 == 0 { 600_000 } else { usize::from(n) * 7 };
        append(&log, &mut kept, 0, &vec![n; bytes]);
        if n % 3 == 0 {
            sync(&log);
        }
        if n % 7 == 0 {
            got.extend(read_all(&mut follower));
        }
    }
    sync(&log);
    got.extend(read_all(&mut follower));
    assert_eq!(got, payloads(&kept));
    assert_eq!(follower.position(), log.durable());
    let mut late = log.follow(kept[100].end, Scope::Durable).unwrap();
    assert_eq!(read_all(&mut late), payloads(&kept[101..]));
}

/// A follower that keeps up finds the records in memory; one that starts later reads the file.
#[test]
fn the_newest_records_are_not_read_from_the_disk() {
    let disk = Arc::new(FaultDisk::new(1));
    let log = open_from(&disk, small_groups(), 2, Lsn(0)).unwrap().0;
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    let mut kept = Vec::new();
    append(&log, &mut kept, 0, b"damaged on the disk");
    sync(&log);
    let at = binlog::SEGMENT_HEADER_BYTES as u64 + kept[0].start.0 + 12;
    assert!(disk.damage("log-00000000000000000001.seg", at, 1));
    assert_eq!(read_all(&mut follower), payloads(&kept));
    drop(follower);
    let mut late = log.follow(Lsn(0), Scope::Durable).unwrap();
    let error = late.next_batch(&mut Batch::new()).unwrap_err();
    assert!(matches!(error, FollowError::Damaged { at: Lsn(0), .. }), "{error}");
}

#[test]
fn holds_what_it_has_not_read() {
    let log = new_log();
    let mut kept = Vec::new();
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    for _ in 0..40 {
        append(&log, &mut kept, 0, &[1; 500]);
        sync(&log);
    }
    let before = log.stats();
    assert_eq!(before.follower_lag_bytes, log.written().0);
    log.truncate_before(log.next()).unwrap();
    assert_eq!(log.stats().segments, before.segments);
    assert_eq!(read_all(&mut follower), payloads(&kept));
    log.truncate_before(log.next()).unwrap();
    assert_eq!(log.stats().segments, 1);
    drop(follower);
    assert_eq!(log.stats().follower_lag_bytes, 0);
    let gone = log.follow(Lsn(0), Scope::Durable);
    assert!(matches!(gone, Err(FollowError::Truncated { .. })));
    let beyond = log.follow(Lsn(u64::MAX), Scope::Durable);
    assert!(matches!(beyond, Err(FollowError::Beyond { .. })));
}

#[test]
fn who_is_too_far_behind_is_given_up() {
    let options = Options { follower_lag_bytes_max: 10_000, ..small() };
    let (log, _, _) = open_from(&Arc::new(FaultDisk::new(1)), options, 2, Lsn(0)).unwrap();
    let mut kept = Vec::new();
    let mut stuck = log.follow(Lsn(0), Scope::Durable).unwrap();
    let mut near = log.follow(Lsn(0), Scope::Durable).unwrap();
    let append_some = |kept: &mut Vec<Kept>, count| {
        for _ in 0..count {
            append(&log, kept, 0, &[1; 500]);
            sync(&log);
        }
    };
    append_some(&mut kept, 18);
    log.truncate_before(log.next()).unwrap();
    assert!(log.stats().segments > 1, "within the limit all is held");
    append_some(&mut kept, 22);
    assert_eq!(read_all(&mut near), payloads(&kept));
    log.truncate_before(Lsn(3000)).unwrap();
    assert_eq!(log.stats().follower_lag_bytes, log.written().0, "it keeps nothing that could go");
    log.truncate_before(log.next()).unwrap();
    assert_eq!((log.stats().segments, log.stats().follower_lag_bytes), (1, 0));
    assert!(stuck.wait(Duration::from_mins(1)), "it must come to learn of it");
    let mut batch = Batch::new();
    for _ in 0..2 {
        let result = stuck.next_batch(&mut batch);
        let limit = Err(FollowError::TooFarBehind { at: Lsn(0), lag_bytes_max: 10_000 });
        assert_eq!(format!("{result:?}"), format!("{limit:?}", limit = limit.map(|()| true)));
    }
    append_some(&mut kept, 1);
    assert_eq!(read_all(&mut near), payloads(&kept[40..]), "the other followers continue");
}

#[test]
fn a_position_inside_a_record_is_an_error() {
    let log = new_log();
    log.append(0, 1, b"a record").unwrap();
    sync(&log);
    let mut follower = log.follow(Lsn(1), Scope::Durable).unwrap();
    let read = follower.next_batch(&mut Batch::new());
    assert!(matches!(read, Err(FollowError::Damaged { at: Lsn(1), .. })));
}

/// Bytes inside of a large record that look like the header of another one, as long as the rest: no
/// memory is taken for it.
#[test]
fn a_length_inside_a_record_is_not_believed() {
    let log = new_log();
    let mut payload = vec![7; 3_000_000];
    let length = 2_900_000_u32;
    payload[1000..1004].copy_from_slice(&length.to_le_bytes());
    let mut kept = Vec::new();
    append(&log, &mut kept, 0, &payload);
    sync(&log);
    let at = Lsn(kept[0].start.0 + 9 + 1000);
    let mut follower = log.follow(at, Scope::Durable).unwrap();
    let mut batch = Batch::new();
    let error = follower.next_batch(&mut batch).unwrap_err();
    assert!(matches!(error, FollowError::Damaged { .. }), "{error}");
    assert!(batch.bytes_held() <= 1 << 20, "{}", batch.bytes_held());
    let mut follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    assert!(follower.next_batch(&mut batch).unwrap());
    assert_eq!(batch.records().next().unwrap().payload, payload);
    assert!(batch.bytes_held() > 1 << 20);
    batch.shrink();
    assert_eq!(batch.bytes_held(), 0);
}

#[test]
fn is_woken_once_per_question() {
    let log = new_log();
    let follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    follower.set_waker(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    follower.wake_when_readable();
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    log.append(0, 1, b"x").unwrap();
    sync(&log);
    log.append(0, 1, b"y").unwrap();
    sync(&log);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    follower.wake_when_readable();
    assert_eq!(woken.load(Ordering::SeqCst), 2, "there is something to read already");
    assert!(follower.wait(Duration::from_mins(1)));
}

#[test]
fn a_waiting_follower_sees_a_poisoned_log() {
    let log = new_log();
    let follower = log.follow(Lsn(0), Scope::Durable).unwrap();
    log.close(&no_time).unwrap();
    assert!(!follower.wait(Duration::from_mins(1)));
    assert!(log.poisoned().is_some());
}
