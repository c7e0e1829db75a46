//! The log through its public face: one binary, one module per concern.
// Helpers outside of test functions unwrap too: a test binary has no other way to report.
#![allow(clippy::unwrap_used)]

mod baseline;
mod commit;
mod faults;
mod follow;
mod format;
mod full_disk;
mod groups;
mod integrity;
mod recovery;
mod threads;

use std::sync::Arc;

use base::time::MonoNs;
use binlog::{Disk, FaultDisk, Log, Lsn, OpenError, Options, Recovered, Span};

/// A record as the tests remember it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

/// The smallest segments there are, so that every test crosses their borders.
pub(crate) fn small() -> Options {
    Options { segment_bytes: 8192, salt: 0x5a17, ..Options::default() }
}

/// A clock that does not advance: groups run only on request.
pub(crate) fn no_time() -> MonoNs {
    MonoNs(1)
}

pub(crate) type Opened = (Arc<Log>, Recovered, Vec<Kept>);

pub(crate) fn open_from(
    disk: &Arc<FaultDisk>,
    options: Options,
    lanes: usize,
    span: impl Into<Span>,
) -> Result<Opened, OpenError> {
    let mut kept = Vec::new();
    let disk: Arc<dyn Disk> = Arc::<FaultDisk>::clone(disk);
    let (log, recovered) = Log::open(disk, options, lanes, span, &mut |record| {
        let (start, end, kind) = (record.start, record.end, record.kind);
        kept.push(Kept { start, end, kind, payload: record.payload.to_vec() });
        Ok(())
    })?;
    Ok((log, recovered, kept))
}

pub(crate) fn open(disk: &Arc<FaultDisk>) -> Opened {
    open_from(disk, small(), 2, Lsn(0)).unwrap()
}

/// Appends, remembers, and returns where the record ends.
pub(crate) fn append(log: &Log, kept: &mut Vec<Kept>, lane: usize, payload: &[u8]) -> Lsn {
    let start = log.next();
    let end = log.append(lane, 1, payload).unwrap();
    kept.push(Kept { start, end, kind: 1, payload: payload.to_vec() });
    end
}

/// Has everything appended so far synced by one group.
pub(crate) fn sync(log: &Log) {
    log.request_sync(log.next());
    log.writer_step(&no_time);
}
