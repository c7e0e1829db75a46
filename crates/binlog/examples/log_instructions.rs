//! A fixed amount of work on one thread, to count its instructions:
//! `valgrind --tool=callgrind target/release/examples/log_instructions DIRECTORY`.
//!
//! Two lanes take records of 111 bytes in turn; every 64 records the writer runs once, and every
//! 64 groups it syncs. The same program does the same work each time, so two builds are compared
//! by their totals.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use base::time::MonoNs;
use binlog::{FileDisk, Log, Lsn, Options, SyncPolicy};

const GROUPS: u64 = 4096;
const RECORDS_PER_GROUP: usize = 64;
const GROUPS_PER_SYNC: u64 = 64;

fn main() {
    let path = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = path.join(format!("binlog-instructions-{}", std::process::id()));
    let disk = Arc::new(FileDisk::open_buffered(&path).unwrap());
    let options = Options { sync: SyncPolicy::Never, segment_bytes: 1 << 22, ..Options::default() };
    let (log, _) = Log::open(disk, options, 2, Lsn(0), &mut |_| Ok(())).unwrap();
    for group in 1..=GROUPS {
        let mut end = Lsn(0);
        for record in 0..RECORDS_PER_GROUP {
            end = log.append(record % 2, 1, &[7; 111]).unwrap();
        }
        log.request_write();
        if group.is_multiple_of(GROUPS_PER_SYNC) {
            log.request_sync(end);
        }
        log.writer_step(&|| MonoNs(group));
    }
    println!("{} bytes durable", log.durable().0);
    drop(log);
    fs::remove_dir_all(&path).unwrap();
}
