//! Reading what is left of a log that cannot be opened.

use crate::disk::Disk;
use crate::open::{OpenError, ReplayError, ends_before, replay_from};
use crate::record::{Lsn, PAYLOAD_BYTES_MAX, Record};
use crate::scan::{Files, ScanError, Span, Tail};

/// Upper bound of the positions in a missing file: no file is larger.
const MISSING_BYTES_MAX: u64 = 4 << 30;
const _: () = assert!(MISSING_BYTES_MAX > PAYLOAD_BYTES_MAX as u64, "it may have held one record");

/// The readable part of a log in any state.
#[derive(Debug)]
pub struct Salvage {
    /// Users' records that were shown.
    pub records: u64,
    /// Where reading ended.
    pub end: Lsn,
    /// Larger than any position that the log has ever assigned.
    pub above: Lsn,
    /// Why [`Log::open`](crate::Log::open) would refuse the log; `None` if it would open it.
    pub fault: Option<OpenError>,
}

/// Shows the records that [`Log::open`](crate::Log::open) would show, up to the first place that it
/// would refuse. Changes nothing. Fails only if the files cannot be read.
///
/// Without a snapshot (`span` is zero) a log whose beginning is missing is shown from where it starts;
/// with one, what follows a gap is not shown.
pub fn salvage(
    disk: &dyn Disk,
    span: Span,
    replay: &mut dyn FnMut(Record<'_>) -> Result<(), ReplayError>,
) -> Result<Salvage, OpenError> {
    let (files, fault) = Files::load_leniently(disk)?;
    let mut fault = fault.map(OpenError::Scan);
    let mut records = 0;
    let mut scanned = replay_from(&files, span, replay, &mut records);
    if let Err(OpenError::Scan(ScanError::StartsAfter { first, .. })) = scanned
        && span.reach == Lsn(0)
    {
        fault = fault.or(scanned.err());
        scanned = replay_from(&files, first.into(), replay, &mut records);
    }
    let (end, found) = match scanned {
        Ok(None) => (span.reach, None),
        Ok(Some(scan)) => {
            let too_short = ends_before(&files, &scan, span);
            let damaged = match scan.tail {
                Tail::Damaged(damage) => Some(OpenError::Damaged(damage)),
                Tail::Clean | Tail::Torn { .. } => None,
            };
            (scan.end, damaged.or(too_short))
        }
        Err(OpenError::Replay { file, offset, at, source }) => {
            (at, Some(OpenError::Replay { file, offset, at, source }))
        }
        Err(error @ OpenError::Scan(ScanError::Io { .. } | ScanError::Version { .. })) => {
            return Err(error);
        }
        Err(error) => (span.reach, Some(error)),
    };
    let newest = files.newest_position().max(end).max(span.reach);
    let above = Lsn(newest.0.saturating_add(MISSING_BYTES_MAX));
    Ok(Salvage { records, end, above, fault: fault.or(found) })
}
