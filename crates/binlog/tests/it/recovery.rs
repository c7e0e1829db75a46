//! The bytes on the disk decide what recovery does.

use std::sync::Arc;

use binlog::{Fault, FaultDisk, FileDisk, Lsn, OpenError, Options, ScanError, Tail, dump, verify};
use proptest::prelude::*;

use crate::{Kept, append, no_time, open, open_from, small, sync};

const FIRST: &str = "log-00000000000000000001.seg";
const SECOND: &str = "log-00000000000000000002.seg";

/// A log of one segment with a sync after each record, which is not closed.
fn one_segment(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<Kept>) {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    for payload in payloads {
        append(&log, &mut kept, 0, payload);
        sync(&log);
    }
    (disk.contents(FIRST).unwrap(), fixed_starts(kept))
}

/// Marks shift records: the remembered start is where the log would have put it without one.
fn fixed_starts(kept: Vec<Kept>) -> Vec<Kept> {
    kept.into_iter()
        .map(|record| {
            let start = Lsn(record.end.0 - 9 - record.payload.len() as u64);
            Kept { start, ..record }
        })
        .collect()
}

fn disk_with(name: &str, bytes: &[u8]) -> Arc<FaultDisk> {
    let disk = Arc::new(FaultDisk::new(0));
    disk.put(name, bytes);
    disk
}

/// Cuts the log at every byte, and reads back what is left.
fn check_prefixes(payloads: &[Vec<u8>]) {
    let (bytes, kept) = one_segment(payloads);
    let place = |position: u64| 4096 + usize::try_from(position).unwrap();
    for cut in 0..=kept.last().unwrap().end.0 {
        let mut prefix = bytes.clone();
        prefix[place(cut)..].fill(0);
        let disk = disk_with(FIRST, &prefix);
        let (log, recovered, got) = open(&disk);
        // Zeros that were cut off are still there, as a checksum's last byte can be one.
        let is_whole = |record: &&Kept| {
            bytes[place(cut.min(record.end.0))..place(record.end.0)].iter().all(|byte| *byte == 0)
        };
        let whole = kept.iter().take_while(is_whole).count();
        assert_eq!(&got[..], &kept[..whole], "cut at {cut}");
        let is_rest_zero = prefix[place(recovered.end.0)..].iter().all(|byte| *byte == 0);
        let is_clean = recovered.end.0 == cut || is_rest_zero;
        assert_eq!(recovered.tail == Tail::Clean, is_clean, "cut at {cut}");
        // What is appended next is there, and nothing of the old tail is.
        let mut got = got;
        append(&log, &mut got, 1, b"after");
        sync(&log);
        let (_, _, again) = open(&disk);
        assert_eq!(again, got, "cut at {cut}");
    }
}

#[test]
fn a_record_is_whole_when_only_a_zero_at_its_end_is_cut_off() {
    check_prefixes(&[
        vec![1, 1, 1, 1, 1, 1, 1, 1, 2, 249],
        vec![166, 199, 66, 218, 134, 134, 56],
        vec![94, 130, 188, 22, 49, 110, 245, 91, 26, 157, 15, 5, 203, 36, 113, 169, 152, 186],
        vec![
            132, 53, 93, 170, 76, 169, 91, 173, 89, 223, 165, 99, 55, 149, 206, 35, 246, 241, 125,
            140, 74,
        ],
        vec![],
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_prefix_recovers_its_whole_records(
        payloads in prop::collection::vec(prop::collection::vec(1..255_u8, 0..40), 1..12),
    ) {
        check_prefixes(&payloads);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..9000), header: bool) {
        let mut file = bytes;
        if header && file.len() > 4096 {
            let (good, _) = one_segment(&[]);
            file[..4096].copy_from_slice(&good[..4096]);
        }
        let disk = disk_with(FIRST, &file);
        let opened = open_from(&disk, small(), 2, Lsn(0));
        if header && (4097..8192).contains(&file.len()) {
            let is_short = matches!(opened, Err(OpenError::Damaged(damage))
                if matches!(damage.fault, Fault::Short { expected_bytes: 8192, .. }));
            prop_assert!(is_short);
        } else if file.len() <= 4096 || header {
            prop_assert_eq!(opened.unwrap().2, []);
        } else {
            let refused = matches!(opened, Err(OpenError::Scan(ScanError::NoHeader { .. })));
            prop_assert!(refused);
        }
    }
}

#[test]
fn damage_before_the_last_group_stops_the_start() {
    let payloads: Vec<Vec<u8>> = (0..6).map(|n| vec![n + 1; 30]).collect();
    let (bytes, kept) = one_segment(&payloads);
    // The last mark was written with the last record; it knows of all groups before.
    let known = kept.last().unwrap().start;
    for at in 0..kept.last().unwrap().end.0 {
        let disk = disk_with(FIRST, &bytes);
        assert!(disk.damage(FIRST, 4096 + at, 0x40));
        let opened = open_from(&disk, small(), 2, Lsn(0));
        if at < known.0 {
            let Err(OpenError::Damaged(damage)) = opened else {
                panic!("damage at {at} was not found");
            };
            assert_eq!(damage.durable, known);
            assert!(damage.lsn.0 <= at && damage.offset == 4096 + damage.lsn.0);
            assert_eq!(damage.file, FIRST);
            assert_eq!(disk.contents(FIRST).unwrap()[..4096], bytes[..4096]);
            assert!(matches!(verify(&*disk).unwrap().tail, Tail::Damaged(_)));
        } else {
            let (_, recovered, got) = opened.unwrap();
            assert_eq!(got, kept[..kept.len() - 1]);
            assert!(matches!(recovered.tail, Tail::Torn { .. }));
        }
    }
}

/// Two segments and a mark in the second that knows of all in the first.
fn two_segments() -> (Arc<FaultDisk>, Vec<Kept>) {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    for n in 0..40 {
        append(&log, &mut kept, 0, &[n; 150]);
        sync(&log);
    }
    assert_eq!(log.stats().segments, 2);
    (disk, fixed_starts(kept))
}

#[test]
fn a_log_goes_on_over_segments() {
    let (disk, kept) = two_segments();
    let (log, recovered, got) = open(&disk);
    assert_eq!(got, kept);
    assert_eq!(recovered.tail, Tail::Clean);
    let report = verify(&*disk).unwrap();
    assert_eq!(report.segments.len(), 2);
    assert_eq!(report.segments[0].end, report.segments[1].base);
    assert_eq!((report.first, report.end), (Lsn(0), log.next()));
    let from = kept[20].start;
    let (_, _, got) = open_from(&disk, small(), 2, from).unwrap();
    assert_eq!(got, kept[20..]);
    let mut shown = Vec::new();
    let tail = dump(&*disk, from, &mut |record| {
        shown.push((record.kind, record.end));
        Ok(())
    });
    assert_eq!(tail.unwrap(), Tail::Clean);
    assert_eq!(shown.iter().filter(|(kind, _)| *kind == 1).count(), 20);
    assert!(shown.iter().any(|(kind, _)| *kind == binlog::KIND_MARK));
}

#[test]
fn damage_to_a_header_or_a_lost_segment_is_found() {
    let (disk, kept) = two_segments();
    assert!(disk.damage(FIRST, 20, 1));
    let opened = open_from(&disk, small(), 2, Lsn(0));
    assert!(matches!(opened, Err(OpenError::Scan(ScanError::StartsAfter { .. }))));

    let (disk, _) = two_segments();
    assert!(disk.damage(SECOND, 20, 1));
    let opened = open_from(&disk, small(), 2, Lsn(0));
    assert!(matches!(opened, Err(OpenError::Damaged(_))), "its marks still speak");

    let (disk, _) = two_segments();
    binlog::Disk::remove(&*disk, SECOND).unwrap();
    let opened = open_from(&disk, small(), 2, kept.last().unwrap().end);
    let Err(OpenError::Damaged(damage)) = opened else { panic!("its seal names what is missing") };
    assert_eq!((damage.fault, damage.file.as_str()), (Fault::Missing, SECOND));
}

#[test]
fn another_version_or_another_log_is_refused() {
    let (bytes, _) = one_segment(&[]);
    let mut newer = bytes.clone();
    newer[8] = 4;
    let crc = crc_of(&newer);
    newer[60..64].copy_from_slice(&crc);
    let opened = open_from(&disk_with(FIRST, &newer), small(), 2, Lsn(0));
    assert!(matches!(opened, Err(OpenError::Scan(ScanError::Version { version: 4, .. }))));

    let (disk, _) = two_segments();
    let mut foreign = disk.contents(SECOND).unwrap();
    foreign[40] ^= 1;
    let crc = crc_of(&foreign);
    foreign[60..64].copy_from_slice(&crc);
    disk.put(SECOND, &foreign);
    let opened = open_from(&disk, small(), 2, Lsn(0));
    assert!(matches!(opened, Err(OpenError::Scan(ScanError::Foreign { .. }))));
}

/// CRC-32C bit by bit: the tests' own view of the format.
fn crc_of(header: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in &header[..60] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).to_le_bytes()
}

#[test]
fn remains_of_a_torn_group_never_come_back() {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    append(&log, &mut kept, 0, b"durable");
    sync(&log);
    for payload in [&b"torn..."[..], &[0; 8], b"remains"] {
        append(&log, &mut kept, 0, payload);
    }
    log.request_write();
    log.writer_step(&no_time);
    drop(log);
    // The first record of the group is lost, the last one is there.
    let lost = kept[1].end.0 - 1;
    assert!(disk.damage(FIRST, 4096 + lost, 0xff));
    let (log, recovered, got) = open(&disk);
    assert!(matches!(recovered.tail, Tail::Torn { .. }));
    assert_eq!(got, kept[..1]);
    // As long as the torn record, and its group's mark as long as the next one: the third record of
    // the torn group starts exactly where the log ends now.
    log.append(0, 1, b"another").unwrap();
    sync(&log);
    assert_eq!(log.next(), kept[2].end);
    let (_, _, got) = open(&disk);
    let payloads: Vec<&[u8]> = got.iter().map(|record| &record.payload[..]).collect();
    assert_eq!(payloads, [b"durable", b"another"]);
}

#[test]
fn a_new_log_starts_where_the_snapshot_says() {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, recovered, got) = open_from(&disk, small(), 1, Lsn(1_000_000)).unwrap();
    assert_eq!((recovered.end, got.len()), (Lsn(1_000_000), 0));
    assert_eq!(log.append(0, 1, b"x").unwrap(), Lsn(1_000_010));
    sync(&log);
    let beyond = Lsn(log.next().0 + 1);
    drop(log);
    let opened = open_from(&disk, small(), 1, Lsn(5));
    assert!(matches!(opened, Err(OpenError::Scan(ScanError::StartsAfter { .. }))));
    let opened = open_from(&disk, small(), 1, beyond);
    assert!(matches!(opened, Err(OpenError::EndsBefore { .. })));
}

#[test]
fn impossible_options_are_refused() {
    let disk = Arc::new(FaultDisk::new(0));
    for options in [
        Options { segment_bytes: 8191, ..small() },
        Options { segment_bytes: 4096, ..small() },
        Options { lane_bytes_max: 1, ..small() },
        Options { sync: binlog::SyncPolicy::Interval(std::time::Duration::ZERO), ..small() },
    ] {
        let opened = open_from(&disk, options, 1, Lsn(0));
        assert!(matches!(opened, Err(OpenError::Options(_))));
    }
    assert!(matches!(open_from(&disk, small(), 0, Lsn(0)), Err(OpenError::Options(_))));
}

#[test]
fn a_callers_refusal_stops_the_replay() {
    let (disk, kept) = two_segments();
    let mut calls = 0;
    let opened = binlog::Log::open(disk, small(), 1, Lsn(0), &mut |_| {
        calls += 1;
        if calls == 3 { Err("no such table".into()) } else { Ok(()) }
    });
    let Err(error) = opened else { panic!("must be refused") };
    let OpenError::Replay { at, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*at, *offset, calls), (kept[2].start, 4096 + kept[2].start.0, 3));
    let text = error.to_string();
    for part in ["no such table", FIRST, &format!("offset {offset}"), "myriad log repair"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_real_directory_works_and_is_locked() {
    let name = format!("binlog-test-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    check_real_directory(&path, FileDisk::open(&path).unwrap());
    check_real_directory(&path, FileDisk::open_buffered(&path).unwrap());
}

fn check_real_directory(path: &std::path::Path, disk: FileDisk) {
    let disk = Arc::new(disk);
    assert!(FileDisk::open(path).is_err(), "one process at a time");
    let mut got = Vec::new();
    for round in 0..3_u8 {
        got.clear();
        let (log, _) =
            binlog::Log::open(Arc::<FileDisk>::clone(&disk), small(), 1, Lsn(0), &mut |record| {
                got.push(record.payload.to_vec());
                Ok(())
            })
            .unwrap();
        for n in 0..50 {
            log.append(0, 9, &[round, n, 0, 0, 0, 0, 0, 0]).unwrap();
            log.append(0, 9, &[n; 300]).unwrap();
            sync(&log);
        }
        assert_eq!(log.durable(), log.next());
        log.close(&no_time).unwrap();
    }
    assert_eq!(got.len(), 200);
    let reader = FileDisk::read_only(path).unwrap();
    let report = verify(&reader).unwrap();
    assert_eq!(report.tail, Tail::Clean);
    assert!(report.segments.len() > 2);
    assert!(binlog::Disk::remove(&reader, FIRST).is_err());
    std::fs::remove_dir_all(path).unwrap();
}
