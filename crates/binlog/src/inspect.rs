//! Reads a log without opening it for writing: `dump`, `verify` and `formats`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use thiserror::Error;

use crate::disk::Disk;
use crate::manifest::{self, MANIFEST_NAME};
use crate::record::{Lsn, Record};
use crate::scan::{Files, ScanError, Tail};
use crate::segment::{
    FORMAT_VERSION, FORMAT_VERSION_MIN, HeaderState, file_name, parse_file_name, read_header,
};

/// Versions of the format that this code reads. It writes the last one.
pub const FORMAT_VERSIONS: RangeInclusive<u32> = FORMAT_VERSION_MIN..=FORMAT_VERSION;

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

/// The versions of the format in the files of a log, whether this code reads them or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Formats {
    /// `None`: there is no manifest.
    pub manifest: Option<u32>,
    /// Number of segments in use by their version.
    pub segments: BTreeMap<u32, usize>,
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

/// Reads the manifest and the headers of all segments. Changes nothing.
pub fn formats(disk: &dyn Disk) -> Result<Formats, ScanError> {
    let of_directory = |file: &str, operation| {
        let file = file.to_owned();
        move |source| ScanError::Io { operation, file, source }
    };
    let manifest = match manifest::read(disk).map_err(of_directory(MANIFEST_NAME, "read"))? {
        manifest::Found::Nothing => None,
        manifest::Found::Damaged => return Err(ScanError::Manifest),
        manifest::Found::Valid(manifest) => Some(manifest.version),
    };
    let mut segments = BTreeMap::new();
    let names = disk.list().map_err(of_directory("the directory", "list"))?;
    for number in names.iter().filter_map(|name| parse_file_name(name)) {
        let file = disk.open(&file_name(number)).map_err(ScanError::io("open", number))?;
        let state = read_header(&*file, number).map_err(ScanError::io("read", number))?;
        if let HeaderState::Active(header) = state {
            *segments.entry(header.version).or_default() += 1;
        }
    }
    Ok(Formats { manifest, segments })
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
