//! Reads a log without opening it for writing: `dump` and `verify`.

use thiserror::Error;

use crate::disk::Disk;
use crate::record::{Lsn, Record};
use crate::scan::{Files, ScanError, Tail};
use crate::segment::file_name;

/// One segment of a verified log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    pub file: String,
    pub base: Lsn,
    pub end: Lsn,
    /// Marks included.
    pub records: u64,
}

/// The contents of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// In order. Empty if there is no log yet.
    pub segments: Vec<SegmentReport>,
    /// Marks included.
    pub records: u64,
    pub first: Lsn,
    pub end: Lsn,
    pub tail: Tail,
}

/// Why a dump ended early.
#[derive(Debug, Error)]
pub enum DumpError {
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("output: {0}")]
    Output(#[from] std::io::Error),
}

/// Shows every valid record that starts at or after `from`, marks included, and returns what
/// follows the last one. Starts at the first record of the log if `from` is smaller.
pub fn dump(
    disk: &dyn Disk,
    from: Lsn,
    show: &mut dyn FnMut(Record<'_>) -> std::io::Result<()>,
) -> Result<Tail, DumpError> {
    let files = Files::load(disk)?;
    let from = files.first_base().map_or(from, |first| first.max(from));
    let scan = files.scan(from.into(), &mut |record| {
        if record.start >= from { show(record).map_err(DumpError::from) } else { Ok(()) }
    })?;
    Ok(scan.map_or(Tail::Clean, |scan| scan.tail))
}

/// Checks every record of every segment. Changes nothing.
pub fn verify(disk: &dyn Disk) -> Result<Report, ScanError> {
    let files = Files::load(disk)?;
    let first = files.first_base().unwrap_or_default();
    let scan = files.scan::<ScanError>(first.into(), &mut |_| Ok(()))?;
    let Some(scan) = scan else {
        let (segments, records, end) = (Vec::new(), 0, first);
        return Ok(Report { segments, records, first, end, tail: Tail::Clean });
    };
    let segments: Vec<SegmentReport> = scan
        .chain
        .iter()
        .map(|scanned| SegmentReport {
            file: file_name(scanned.segment.number),
            base: scanned.segment.base,
            end: scanned.end,
            records: scanned.records,
        })
        .collect();
    let records = segments.iter().map(|segment| segment.records).sum();
    Ok(Report { segments, records, first, end: scan.end, tail: scan.tail })
}
