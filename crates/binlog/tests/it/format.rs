//! The bytes of `docs/internals/binlog-format.md`, pinned. A change here needs a new format
//! version.

use std::sync::Arc;

use binlog::FaultDisk;

use crate::{append, open, sync};

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn a_segment_is_pinned_byte_for_byte() {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    append(&log, &mut kept, 0, b"hello");
    sync(&log);
    append(&log, &mut kept, 1, b"");
    sync(&log);
    let bytes = disk.contents("log-00000000000000000001.seg").unwrap();
    assert_eq!(bytes.len(), 8192);
    assert_eq!(hex(&bytes[..64]), HEADER);
    assert!(bytes[64..4096].iter().all(|&byte| byte == 0));
    // The mark follows the second record: it got its position when the second group began.
    assert_eq!(hex(&bytes[4096..4136]), RECORDS);
    assert!(bytes[4136..].iter().all(|&byte| byte == 0));
}

/// With a wall clock, a mark states when its position became durable: kind 255, 20 bytes of payload.
#[test]
fn a_mark_with_a_time_is_pinned_byte_for_byte() {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    log.set_wall_clock(|| 0x0102_0304_0506);
    append(&log, &mut kept, 0, b"hello");
    sync(&log);
    append(&log, &mut kept, 1, b"");
    sync(&log);
    let bytes = disk.contents("log-00000000000000000001.seg").unwrap();
    let mark = &bytes[4096 + 14 + 9..][..29];
    assert_eq!(hex(&mark[..5]), "14000000ff");
    assert_eq!(hex(&mark[9..]), "0e00000000000000060504030201000000000000");
}

/// A full segment ends with a seal: kind 255, 16 bytes of payload, which are number and file size of
/// the next segment.
#[test]
fn a_seal_is_pinned_byte_for_byte() {
    let disk = Arc::new(FaultDisk::new(0));
    let (log, _, mut kept) = open(&disk);
    append(&log, &mut kept, 0, &[7; 4000]);
    sync(&log);
    append(&log, &mut kept, 1, &[8; 100]);
    sync(&log);
    let bytes = disk.contents("log-00000000000000000001.seg").unwrap();
    assert_eq!(hex(&bytes[4096 + 4009..4096 + 4009 + 25]), SEAL);
    assert!(bytes[4096 + 4009 + 25..].iter().all(|&byte| byte == 0));
}

const SEAL: &str = "10000000ff68121c4c02000000000000000020000000000000";
const HEADER: &str = "4d59524941444c470300000000100000010000000000000000000000000000000000000000000000\
    175a0000000000000000000000200000000000004b512e15";
const RECORDS: &str =
    "0500000001ac570db868656c6c6f00000000010cb8684308000000ffaded4af90e00000000000000";
