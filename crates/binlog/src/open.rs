//! Opening a log: recovery, then the position where writing continues.

use std::error::Error;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::disk::Disk;
use crate::log::{Log, Start};
use crate::manifest::{MANIFEST_NAME, Manifest, ManifestFile};
use crate::options::{Options, OptionsError};
use crate::record::{KIND_MARK, Lsn, Record};
use crate::scan::{ADVICE, Damage, Files, Scan, ScanError, Span, Tail};
use crate::segment::{
    SEGMENT_HEADER_BYTES, Segment, activate, clear_tail, create_blank, file_name, read_carried,
    rewrite,
};

/// The first segment of a log is not larger, so that a new log is ready at once: the helper thread
/// makes the second one while the first is filled.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;
const _: () = assert!(FIRST_SEGMENT_BYTES.is_multiple_of(SEGMENT_HEADER_BYTES as u64));

/// Why the caller could not take a record, in its own words.
pub type ReplayError = Box<dyn Error + Send + Sync>;

/// What recovery found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Users' records replayed.
    pub records: u64,
    /// Where the log ends and the next record will start.
    pub end: Lsn,
    /// Clean or torn; a torn tail has been cut.
    pub tail: Tail,
}

/// Why a log was not opened. Nothing has been changed on disk, except by `Io`.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("{0}")]
    Damaged(Damage),
    #[error(
        "{file} is damaged at offset {offset}: the log ends there, at position {end}, but the \
         snapshot needs it up to {reach}: {ADVICE}"
    )]
    EndsBefore { file: String, offset: u64, end: Lsn, reach: Lsn },
    #[error(
        "could not replay the record at offset {offset} of {file} (position {at}): {source}: {ADVICE}"
    )]
    Replay { file: String, offset: u64, at: Lsn, source: ReplayError },
    #[error("could not {operation}: {source}")]
    Io { operation: String, source: io::Error },
}

impl OpenError {
    /// The error of a record that `replay` took but that could not be applied afterwards.
    pub fn of_record(disk: &dyn Disk, at: Lsn, source: ReplayError) -> OpenError {
        match Files::load(disk) {
            Ok(files) => {
                let (file, offset) = files.place_of(at);
                OpenError::Replay { file, offset, at, source }
            }
            Err(error) => error.into(),
        }
    }
}

fn io_error(operation: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let operation = operation.into();
    move |source| OpenError::Io { operation, source }
}

impl Log {
    /// Opens the log in `disk`'s directory, or starts a new one at `span.reach` if there is none.
    ///
    /// Calls `replay` for each record of the caller that starts at or after `span.from`, in order.
    /// The span is what the caller's snapshot needs: it was taken between these two positions, and
    /// all before `reach` must have been durable then. Cuts a torn tail and reports it; stops at
    /// damage before the tail. On return all that was replayed is durable. Reads the segments from
    /// `from` on, and the rest of the last one twice.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        lanes: usize,
        span: impl Into<Span>,
        replay: &mut dyn FnMut(Record<'_>) -> Result<(), ReplayError>,
    ) -> Result<(Arc<Self>, Recovered), OpenError> {
        let span = span.into();
        assert!(span.from <= span.reach, "what is replayed starts before what must be reached");
        options.check(lanes)?;
        let files = Files::load(&*disk)?;
        let mut records = 0;
        let Some(scan) = replay_from(&files, span, replay, &mut records)? else {
            return start_new(disk, options, lanes, span.reach, &files);
        };
        if let Tail::Damaged(damage) = scan.tail {
            return Err(OpenError::Damaged(damage));
        }
        if let Some(error) = ends_before(&files, &scan, span) {
            return Err(error);
        }
        cut_tail(&*disk, &scan)?;
        let manifest = confirm(&*disk, &files, &scan)?;
        let recovered = Recovered { records, end: scan.end, tail: scan.tail };
        if let Tail::Torn { file, offset, lsn } = &recovered.tail {
            tracing::warn!(file, offset, lsn = lsn.0, "discarded a torn tail of the log");
        }
        let next_number = files.numbers().last().map_or(1, |last| last + 1);
        let (salt, at) = (scan.salt, scan.end);
        let chain = scan.chain.into_iter().map(|scanned| scanned.segment);
        let segments: Vec<Segment> = scan.earlier.into_iter().chain(chain).collect();
        let last = segments.last().expect("a chain is never empty");
        let carried = read_carried(last, at)
            .map_err(io_error(format!("read the end of {}", file_name(last.number))))?;
        let start =
            Start { disk, options, lanes, salt, segments, next_number, at, carried, manifest };
        Ok((Arc::new(Log::new(start)), recovered))
    }
}

/// Replays what starts at or after `span.from`, and counts it. None if there is no log yet.
pub(crate) fn replay_from(
    files: &Files,
    span: Span,
    replay: &mut dyn FnMut(Record<'_>) -> Result<(), ReplayError>,
    records: &mut u64,
) -> Result<Option<Scan>, OpenError> {
    files.scan(span, &mut |record| {
        if record.start < span.from || record.kind == KIND_MARK {
            return Ok(());
        }
        replay(record).map_err(|source| {
            let (file, offset) = files.place_of(record.start);
            OpenError::Replay { file, offset, at: record.start, source }
        })?;
        *records += 1;
        Ok(())
    })
}

/// Why a log that was read is too short for its caller's snapshot, if it is.
pub(crate) fn ends_before(files: &Files, scan: &Scan, span: Span) -> Option<OpenError> {
    let (end, reach) = (scan.end, span.reach);
    let (file, offset) = files.place_of(end);
    (end < reach).then_some(OpenError::EndsBefore { file, offset, end, reach })
}

/// Records in the manifest what has been recovered, all of which is durable now.
fn confirm(disk: &dyn Disk, files: &Files, scan: &Scan) -> Result<ManifestFile, OpenError> {
    let last = &scan.chain.last().expect("a chain is never empty").segment;
    let confirmed = if let Some(newest) = files.manifest {
        ManifestFile::open(disk, newest).and_then(|mut file| {
            file.advance(last.number, scan.end)?;
            Ok(file)
        })
    } else {
        // A log of version 1 has none.
        if last.is_sealed_when_full() {
            tracing::warn!(file = MANIFEST_NAME, "recreated a missing manifest from the log");
        }
        ManifestFile::create(disk, Manifest::new(scan.salt, None, scan.end, last.number))
    };
    confirmed.map_err(io_error(format!("write {MANIFEST_NAME}")))
}

/// Makes sure that any later recovery reads what this one read, even after a power cut now.
///
/// Bytes after the end must be cleared: their positions will be assigned again, and once the log
/// has grown up to one of these records, it would pass for a record of the new history.
fn cut_tail(disk: &dyn Disk, scan: &Scan) -> Result<(), OpenError> {
    let last = &scan.chain.last().expect("a chain is never empty").segment;
    clear_tail(&*last.file, last.offset(scan.end))
        .map_err(io_error(format!("clear the tail of {}", file_name(last.number))))?;
    for scanned in &scan.chain {
        let segment = &scanned.segment;
        let name = file_name(segment.number);
        // The header is proved together with the first record.
        let from = if scan.proved > segment.base { segment.offset(scan.proved) } else { 0 };
        rewrite(&*segment.file, from, segment.offset(scanned.end))
            .and_then(|()| segment.file.sync())
            .map_err(io_error(format!("sync {name}")))?;
    }
    remove_all(disk, &scan.obsolete)
}

fn remove_all(disk: &dyn Disk, numbers: &[u64]) -> Result<(), OpenError> {
    for number in numbers {
        let name = file_name(*number);
        disk.remove(&name).map_err(io_error(format!("remove {name}")))?;
    }
    disk.sync_dir().map_err(io_error("sync the directory"))
}

fn start_new(
    disk: Arc<dyn Disk>,
    options: Options,
    lanes: usize,
    at: Lsn,
    files: &Files,
) -> Result<(Arc<Log>, Recovered), OpenError> {
    let leftovers = files.numbers();
    remove_all(&*disk, &leftovers)?;
    let number = leftovers.last().map_or(1, |last| last + 1);
    let name = file_name(number);
    let first = create_blank(&*disk, number, options.segment_bytes.min(FIRST_SEGMENT_BYTES))
        .and_then(|blank| {
            let segment = activate(blank, at, at, options.salt, 0)?;
            segment.file.sync()?;
            Ok(segment)
        })
        .map_err(io_error(format!("create the first segment {name}")))?;
    let salt = options.salt;
    // After the segment, so that a manifest means that there is a log.
    let manifest = ManifestFile::create(&*disk, Manifest::new(salt, Some(at), at, number))
        .map_err(io_error(format!("create {MANIFEST_NAME}")))?;
    let (segments, next_number) = (vec![first], number + 1);
    // A segment's first record starts a block.
    let carried = Vec::new();
    let start = Start { disk, options, lanes, salt, segments, next_number, at, carried, manifest };
    let recovered = Recovered { records: 0, end: at, tail: Tail::Clean };
    Ok((Arc::new(Log::new(start)), recovered))
}
