//! The logs that ours is compared with: they must be right, or the comparison means nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use binlog::baseline::{Baseline, Kind, Options, Syncs, read};
use binlog::{AppendError, Disk, FaultDisk, Faults, Lsn};

const THREADS: u64 = 6;
const KINDS: [Kind; 3] = [Kind::Mutex, Kind::LeaderCondvar, Kind::LeaderFutex];

fn open(disk: &Arc<FaultDisk>, kind: Kind, syncs: Syncs) -> Baseline {
    let disk: Arc<dyn Disk> = Arc::<FaultDisk>::clone(disk);
    // Small files, so that many are left.
    Baseline::open(disk, Options { kind, syncs, segment_bytes: 1000 }).unwrap()
}

/// Each thread appends its numbers; returns how many of each thread's were acknowledged.
fn append_all(log: &Baseline, per_thread: u64) -> BTreeMap<u64, u64> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let append = |at: &u64| log.append(7, format!("{thread} {at}").as_bytes());
                    (thread, (0..per_thread).take_while(|at| append(at).is_ok()).count() as u64)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Number of records of each thread in the files: its first ones, in order.
fn kept(disk: &FaultDisk) -> (BTreeMap<u64, u64>, Lsn) {
    let mut counts: BTreeMap<u64, u64> = (0..THREADS).map(|thread| (thread, 0)).collect();
    let mut expected = Lsn(0);
    let end = read(disk, &mut |record| {
        assert_eq!((record.start, record.kind), (expected, 7));
        expected = record.end;
        let text = std::str::from_utf8(record.payload).unwrap();
        let (thread, at) = text.split_once(' ').unwrap();
        let next = counts.get_mut(&thread.parse().unwrap()).unwrap();
        assert_eq!(at.parse(), Ok(*next), "thread {thread}");
        *next += 1;
    });
    (counts, end.unwrap())
}

#[test]
fn files_hold_every_record_in_the_order_of_each_thread() {
    for kind in KINDS {
        let disk = Arc::new(FaultDisk::new(1));
        let log = open(&disk, kind, Syncs::OnDemand);
        let appended = append_all(&log, 500);
        assert!(appended.values().all(|&count| count == 500), "{kind:?}");
        let (counts, end) = kept(&disk);
        assert_eq!(counts, appended, "{kind:?}");
        let stats = log.stats();
        assert_eq!((stats.bytes, stats.syncs), (end.0, 0));
        assert_eq!(
            (stats.sizes.records.len(), stats.sizes.bytes.len()),
            (stats.writes, stats.writes)
        );
        if kind == Kind::Mutex {
            assert_eq!(stats.writes, 500 * THREADS);
        }
        assert!(disk.list().unwrap().len() > 10, "files are left when they are full");
        log.remove_filled().unwrap();
        assert_eq!(disk.list().unwrap().len(), 1);
    }
}

#[test]
fn positions_follow_each_other() {
    for kind in KINDS {
        let log = open(&Arc::new(FaultDisk::new(1)), kind, Syncs::EachWrite);
        let ends: Vec<_> = (0..3).map(|_| log.append(1, b"12345").unwrap()).collect();
        assert_eq!(ends, [Lsn(14), Lsn(28), Lsn(42)]);
        assert_eq!(log.stats().syncs, 3);
    }
}

/// The power fails at any time: every acknowledged record is in the files, and any other record
/// follows directly.
#[test]
fn what_was_acknowledged_after_a_sync_survives_a_power_cut() {
    for kind in KINDS {
        for power_off_after in [10, 57, 200, 1001] {
            let disk = Arc::new(FaultDisk::new(power_off_after));
            let log = open(&disk, kind, Syncs::EachWrite);
            disk.set_faults(Faults { power_off_after: Some(power_off_after), ..Faults::default() });
            let acknowledged = append_all(&log, 500);
            drop(log);
            disk.power_cut();
            let (counts, _) = kept(&disk);
            for (thread, count) in &acknowledged {
                assert!(counts[thread] >= *count, "{kind:?}, {power_off_after}: {counts:?}");
            }
            assert!(acknowledged.values().sum::<u64>() < 500 * THREADS, "the power went");
        }
    }
}

#[test]
fn a_sync_on_demand_covers_all_files() {
    for kind in KINDS {
        let disk = Arc::new(FaultDisk::new(4));
        let log = open(&disk, kind, Syncs::OnDemand);
        let appended = append_all(&log, 100);
        log.sync().unwrap();
        assert_eq!(log.stats().syncs, 1);
        drop(log);
        disk.power_cut();
        assert_eq!(kept(&disk).0, appended, "{kind:?}");
    }
}

#[test]
fn after_a_failure_nothing_is_appended() {
    for kind in KINDS {
        let disk = Arc::new(FaultDisk::new(4));
        let log = open(&disk, kind, Syncs::EachWrite);
        log.append(1, b"before").unwrap();
        disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
        assert!(append_all(&log, 5).values().all(|&count| count == 0), "{kind:?}");
        disk.set_faults(Faults::default());
        let error = log.append(1, b"behind").unwrap_err();
        assert!(matches!(error, AppendError::Poisoned(_)), "{error}");
        log.sync().unwrap_err();
    }
}
