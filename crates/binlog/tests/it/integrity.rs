//! Whatever happens to the files of a log: acknowledged records are all there, or the log is not
//! opened. Only a log that was killed may end in a torn tail instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use binlog::{
    Disk, Fault, FaultDisk, Log, Lsn, OpenError, Recovered, ScanError, Span, Tail, formats, verify,
};
use proptest::prelude::*;

use crate::{Kept, append, no_time, open, open_from, small, sync};

const MANIFEST: &str = "log.manifest";

fn segment(number: u64) -> String {
    format!("log-{number:020}.seg")
}

type Files = BTreeMap<String, Vec<u8>>;

fn files_of(disk: &FaultDisk) -> Files {
    let names = disk.list().unwrap();
    names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect()
}

fn disk_of(files: &Files) -> Arc<FaultDisk> {
    let disk = Arc::new(FaultDisk::new(0));
    for (name, bytes) in files {
        disk.put(name, bytes);
    }
    disk
}

/// A log and the records that it has acknowledged.
#[derive(Debug, Clone)]
struct Sample {
    files: Files,
    payloads: Vec<Vec<u8>>,
    is_closed: bool,
    is_recycled: bool,
    span: Span,
}

/// `records` of 150 bytes in segments of 8 KiB, each of them synced; `prepares`: with a blank file
/// ready for the next segment, as the helper thread does it.
fn sample(records: u8, is_closed: bool, prepares: bool) -> Sample {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    log.set_wall_clock(|| 1);
    for n in 0..records {
        append(&log, &mut kept, 0, &[n + 1; 150]);
        sync(&log);
        if prepares {
            log.prepare_segment().unwrap();
        }
    }
    if is_closed {
        log.close(&no_time).unwrap();
    }
    let payloads = kept.into_iter().map(|record| record.payload).collect();
    Sample { files: files_of(&disk), payloads, is_closed, is_recycled: false, span: Lsn(0).into() }
}

/// As a sample whose oldest segments were recycled after a snapshot.
fn recycled_sample(is_closed: bool) -> Sample {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    let mut from = Lsn(0);
    for n in 0..100 {
        append(&log, &mut kept, 0, &[n + 1; 150]);
        sync(&log);
        if n % 30 == 29 {
            from = log.durable();
            kept.clear();
            log.truncate_before(from).unwrap();
        }
    }
    if is_closed {
        log.close(&no_time).unwrap();
    }
    let payloads = kept.into_iter().map(|record| record.payload).collect();
    Sample { files: files_of(&disk), payloads, is_closed, is_recycled: true, span: from.into() }
}

/// Opens the log twice, as the first recovery writes.
fn reopen(files: &Files, span: Span) -> Result<(Recovered, Vec<Kept>), OpenError> {
    let disk = disk_of(files);
    let (log, recovered, kept) = open_from(&disk, small(), 2, span)?;
    drop::<Arc<Log>>(log);
    let (_, again, kept_again) = open_from(&disk, small(), 2, span)?;
    assert_eq!((again.end, kept_again), (recovered.end, kept.clone()));
    Ok((recovered, kept))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Refused,
    Whole,
    Torn,
}

#[track_caller]
fn check(sample: &Sample, files: &Files, what: &str) -> Outcome {
    match reopen(files, sample.span) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("log") && text.contains("repair"), "{what}: {text}");
            Outcome::Refused
        }
        Ok((recovered, kept)) => {
            let payloads: Vec<_> = kept.into_iter().map(|record| record.payload).collect();
            let is_whole = payloads == sample.payloads;
            if is_whole {
                return Outcome::Whole;
            }
            assert!(sample.payloads.starts_with(&payloads), "{what}: not a prefix");
            assert!(!sample.is_closed, "{what}: a closed log lost records");
            let is_reported = matches!(recovered.tail, Tail::Torn { .. });
            // Zeros from the end on, all marks included, cannot be distinguished from nothing, nor
            // what follows damage to the last group from the old bytes of a recycled file.
            let is_excused = what.contains("zeros at ")
                && (sample.is_recycled || is_zero_from(files, recovered.end));
            assert!(is_reported || is_excused, "{what}: lost without a word");
            Outcome::Torn
        }
    }
}

/// Whether nothing follows the position in its segment.
fn is_zero_from(files: &Files, end: Lsn) -> bool {
    let report = verify(&*disk_of(files)).unwrap();
    let last = report.segments.last().unwrap();
    let offset = usize::try_from(4096 + end.0 - last.base.0).unwrap();
    files[&last.file][offset..].iter().all(|&byte| byte == 0)
}

/// Every way to harm one file or two, with a word for each.
fn harmed(files: &Files) -> Vec<(String, Files)> {
    let mut all = Vec::new();
    let mut add = |what: String, change: &dyn Fn(&mut Files)| {
        let mut copy = files.clone();
        change(&mut copy);
        all.push((what, copy));
    };
    for (name, bytes) in files {
        add(format!("{name} removed"), &|files| {
            files.remove(name);
        });
        let lengths =
            [0, 30, 512, 2048, 4096, 4200, bytes.len() / 2, bytes.len() - 512, bytes.len() - 1];
        for length in lengths.into_iter().filter(|length| *length < bytes.len()) {
            add(format!("{name} cut to {length}"), &|files| {
                files.get_mut(name).unwrap().truncate(length);
            });
        }
        add(format!("{name} zeroed"), &|files| files.get_mut(name).unwrap().fill(0));
        for size in [512, 4096] {
            for at in (0..bytes.len()).step_by(size) {
                add(format!("{name}: {size} zeros at {at}"), &|files| {
                    let bytes = files.get_mut(name).unwrap();
                    let to = bytes.len().min(at + size);
                    bytes[at..to].fill(0);
                });
            }
        }
        for other in files.keys().filter(|other| *other > name) {
            add(format!("{name} and {other} swapped"), &|files| {
                let (one, two) = (files[name].clone(), files[other].clone());
                files.insert(name.clone(), two);
                files.insert(other.clone(), one);
            });
        }
    }
    add("all segments removed".into(), &|files| files.retain(|name, _| name == MANIFEST));
    all
}

/// Returns how often each outcome was seen: refused, whole, torn.
fn check_all(sample: &Sample) -> [usize; 3] {
    let mut counts = [0; 3];
    assert_eq!(check(sample, &sample.files, "as it was"), Outcome::Whole);
    for (what, files) in harmed(&sample.files) {
        counts[check(sample, &files, &what) as usize] += 1;
    }
    counts
}

#[test]
fn a_closed_log_is_whole_or_refused() {
    for (records, prepares) in [(1, false), (3, true), (24, false), (60, false), (60, true)] {
        let [refused, whole, torn] = check_all(&sample(records, true, prepares));
        assert!(refused > 10 && whole > 5, "{records} records: {refused} {whole}");
        assert_eq!(torn, 0, "{records} records");
    }
    let [refused, whole, torn] = check_all(&recycled_sample(true));
    assert!(refused > 10 && whole > 5 && torn == 0, "{refused} {whole} {torn}");
}

#[test]
fn a_killed_log_is_whole_refused_or_ends_in_a_reported_torn_tail() {
    for (records, prepares) in [(1, false), (3, true), (24, false), (60, false), (60, true)] {
        let [refused, whole, _] = check_all(&sample(records, false, prepares));
        assert!(refused > 10 && whole > 5, "{records} records: {refused} {whole}");
    }
    let [refused, whole, _] = check_all(&recycled_sample(false));
    assert!(refused > 10 && whole > 5, "{refused} {whole}");
}

/// Removal of a file that holds records is refused, whatever the state of the log.
#[test]
fn every_missing_segment_is_named() {
    for is_closed in [false, true] {
        let sample = sample(60, is_closed, false);
        let segments = verify(&*disk_of(&sample.files)).unwrap().segments;
        assert!(segments.len() > 2);
        for report in &segments {
            let mut files = sample.files.clone();
            files.remove(&report.file);
            let error = reopen(&files, sample.span).unwrap_err();
            let is_first = report.base == Lsn(0);
            let text = error.to_string();
            assert!(is_first || text.contains(&report.file), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_flipped_bit_is_overlooked(
        records in 1_u8..50, is_closed: bool, prepares: bool, at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let sample = sample(records, is_closed, prepares);
        let mut places: Vec<(String, usize)> = Vec::new();
        for (name, bytes) in &sample.files {
            places.extend((0..bytes.len()).map(|at| (name.clone(), at)));
        }
        let (name, offset) = places[at.index(places.len())].clone();
        let mut files = sample.files.clone();
        files.get_mut(&name).unwrap()[offset] ^= 1 << bit;
        check(&sample, &files, &format!("{name} at {offset}"));
    }
}

#[test]
fn a_log_that_ends_between_the_snapshots_positions_is_refused() {
    let sample = sample(24, false, false);
    let end = reopen(&sample.files, sample.span).unwrap().0.end;
    let span = Span { from: Lsn(10), reach: Lsn(end.0 + 1) };
    let error = reopen(&sample.files, span).unwrap_err();
    assert!(matches!(error, OpenError::EndsBefore { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(".seg is damaged at offset ") && text.contains("repair"), "{text}");
    assert!(reopen(&sample.files, Span { from: Lsn(10), reach: end }).is_ok());
}

/// A snapshot without a log: the new log starts above all that the snapshot holds, and keeps what it
/// is given although the snapshot's first position is not in it.
#[test]
fn a_log_begun_for_a_snapshot_starts_at_its_last_position() {
    let span = Span { from: Lsn(500), reach: Lsn(900) };
    let disk = Arc::new(FaultDisk::new(0));
    let (log, recovered, got) = open_from(&disk, small(), 2, span).unwrap();
    assert_eq!((recovered.end, got.len()), (Lsn(900), 0));
    let mut kept = Vec::new();
    append(&log, &mut kept, 0, b"first");
    sync(&log);
    log.close(&no_time).unwrap();
    let (_, _, got) = open_from(&disk, small(), 2, span).unwrap();
    assert_eq!(got, kept);
    // The manifest records where the log begins: another snapshot does not fit.
    for span in [Span { from: Lsn(500), reach: Lsn(901) }, Span { from: Lsn(500), reach: Lsn(899) }]
    {
        let refused = open_from(&disk, small(), 2, span);
        let is_refused = matches!(refused, Err(OpenError::Scan(ScanError::StartsAfter { .. })));
        assert!(is_refused, "{span:?}");
    }
    // The power goes at every moment of the first start.
    for power_off_after in 0..20 {
        let disk = Arc::new(FaultDisk::new(power_off_after));
        let power_off_after = Some(power_off_after);
        disk.set_faults(binlog::Faults { power_off_after, ..binlog::Faults::default() });
        let opened = open_from(&disk, small(), 2, span);
        disk.power_cut();
        drop(opened);
        let (_, recovered, _) = open_from(&disk, small(), 2, span).unwrap();
        assert_eq!(recovered.end, Lsn(900), "{power_off_after:?}");
    }
}

#[test]
fn a_segment_cut_inside_its_header_is_refused() {
    for is_closed in [false, true] {
        let sample = sample(60, is_closed, false);
        let report = verify(&*disk_of(&sample.files)).unwrap();
        let newest = report.segments.last().unwrap().file.clone();
        let mut files = sample.files.clone();
        files.get_mut(&newest).unwrap().truncate(40);
        let error = reopen(&files, sample.span).unwrap_err();
        let OpenError::Damaged(damage) = error else { panic!("{error}") };
        assert_eq!((damage.file, damage.offset), (newest, 40));
        let expected = Fault::Short { size_bytes: 40, expected_bytes: 8192 };
        assert_eq!(damage.fault, expected);
    }
}

#[test]
fn a_log_without_its_manifest_is_opened_and_gets_one() {
    let sample = sample(60, true, false);
    let mut files = sample.files.clone();
    files.remove(MANIFEST);
    let disk = disk_of(&files);
    let (_, _, kept) = open_from(&disk, small(), 2, sample.span).unwrap();
    assert_eq!(kept.len(), sample.payloads.len());
    let mut files = files_of(&disk);
    files.retain(|name, _| name == MANIFEST);
    let error = reopen(&files, sample.span).unwrap_err();
    assert!(matches!(error, OpenError::Scan(ScanError::NoSegment(_))), "{error}");
}

/// Files that an earlier version has written: three segments, the last one for a large record,
/// closed.
fn opens_and_continues(version: &str, files: &[String]) {
    let disk = Arc::new(FaultDisk::new(0));
    for name in files {
        let path = format!("{}/tests/fixtures/{version}/{name}", env!("CARGO_MANIFEST_DIR"));
        disk.put(name, &std::fs::read(path).unwrap());
    }
    let number: u32 = version.trim_start_matches('v').parse().unwrap();
    let found = formats(&*disk).unwrap();
    assert_eq!(found.segments, [(number, 3)].into());
    assert_eq!(found.manifest, files.iter().any(|name| name == MANIFEST).then_some(number));
    let report = verify(&*disk).unwrap();
    assert_eq!((report.segments.len(), report.tail), (3, Tail::Clean));
    let (log, recovered, mut kept) = open(&disk);
    log.set_wall_clock(|| 1);
    assert_eq!((recovered.tail, kept.len()), (Tail::Clean, 42));
    for n in 0..40_u8 {
        assert_eq!(kept[usize::from(n)].payload, [n; 150]);
    }
    assert_eq!((kept[40].payload.len(), &kept[41].payload[..]), (9000, &b"last"[..]));
    for n in 0..60 {
        let start = log.next();
        let end = log.append(0, 1, &[n; 150]).unwrap();
        sync(&log);
        kept.push(Kept { start, end, kind: 1, payload: vec![n; 150] });
    }
    log.close(&no_time).unwrap();
    let (_, recovered, got) = open(&disk);
    let payloads = |kept: &[Kept]| kept.iter().map(|one| one.payload.clone()).collect::<Vec<_>>();
    assert_eq!((recovered.tail, payloads(&got)), (Tail::Clean, payloads(&kept)));
    assert!(verify(&*disk).unwrap().segments.len() > 4);
}

#[test]
fn a_log_of_version_1_is_opened_and_continued() {
    opens_and_continues("v1", &[1, 2, 3].map(segment));
}

#[test]
fn a_log_of_version_2_is_opened_and_continued() {
    let segments = [1, 2, 3].map(segment);
    opens_and_continues("v2", &[&segments[..], &[MANIFEST.to_owned()]].concat());
}
