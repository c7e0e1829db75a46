//! A disk without room for the next segment: the log waits and loses nothing.

use std::sync::Arc;

use base::time::MonoNs;
use binlog::{FaultDisk, Faults, Log, Next};

use crate::{append, no_time, open, sync};

fn fill(log: &Log, kept: &mut Vec<crate::Kept>) {
    for n in 0..200_u8 {
        append(log, kept, 0, &[n; 150]);
        sync(log);
        if log.stall().is_some() {
            return;
        }
    }
    panic!("the disk never got full");
}

fn capacity(bytes: u64) -> Faults {
    Faults { capacity_bytes: Some(bytes), ..Faults::default() }
}

#[test]
fn writes_wait_for_room_and_none_is_lost() {
    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, mut kept) = open(&disk);
    disk.set_faults(capacity(40_000));
    fill(&log, &mut kept);
    assert!(log.poisoned().is_none());
    assert!(!log.takes_writes());
    assert!(!log.needs_writer(), "a request does not make room");
    let durable = log.durable();
    assert!(durable >= kept[kept.len() - 2].end, "what was written before is durable");
    let waiting = append(&log, &mut kept, 1, b"waits");
    log.request_sync(waiting);
    // No attempt before it is due, and none of the two changes a file.
    for (now, wait_ns) in [(2, 99_999_999), (100_000_001, 100_000_000)] {
        let outcome = log.writer_step(&|| MonoNs(now));
        assert_eq!((outcome.bytes_written, outcome.next), (0, Next::AfterNs(wait_ns)), "{now}");
    }
    assert_eq!(log.durable(), durable);
    disk.set_faults(Faults::default());
    log.writer_step(&|| MonoNs(300_000_000));
    assert!(log.takes_writes());
    assert_eq!(log.durable(), waiting.max(log.next()));
    append(&log, &mut kept, 0, b"after");
    sync(&log);
    log.close(&no_time).unwrap();
    let (_, _, got) = open(&disk);
    let payloads =
        |kept: &[crate::Kept]| kept.iter().map(|r| r.payload.clone()).collect::<Vec<_>>();
    assert_eq!(payloads(&got), payloads(&kept));
}

#[test]
fn a_log_without_room_is_closed_with_an_error_after_a_last_attempt() {
    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, mut kept) = open(&disk);
    disk.set_faults(capacity(40_000));
    fill(&log, &mut kept);
    let durable = log.durable();
    log.close(&no_time).unwrap_err();
    assert_eq!(log.durable(), durable);
    let (_, recovered, got) = open(&disk);
    assert!(recovered.end >= durable);
    assert_eq!(got[..], kept[..got.len()]);

    let disk = Arc::new(FaultDisk::new(3));
    let (log, _, mut kept) = open(&disk);
    disk.set_faults(capacity(40_000));
    fill(&log, &mut kept);
    disk.set_faults(Faults::default());
    log.close(&no_time).unwrap();
    assert_eq!(open(&disk).2.len(), kept.len());
}
