//! Record kinds of the log. The numbers are part of the log's format.

use binlog::Record;

/// One or more mutations that are applied atomically: see `store::Mutation` for their bytes.
pub(crate) const MUTATIONS: u8 = 1;

/// Like [`MUTATIONS`], followed by eight bytes: the newest timestamp that the server assigned to a
/// write.
pub(crate) const STAMPED_MUTATIONS: u8 = 2;

const STAMP_BYTES: usize = size_of::<i64>();

/// Maximum record of a unit of work. Small in unit tests, so that they need not fill a gigabyte.
pub(crate) const RECORD_BYTES_MAX: usize =
    if cfg!(test) { 4 << 20 } else { binlog::PAYLOAD_BYTES_MAX - STAMP_BYTES };

const _: () = assert!(RECORD_BYTES_MAX + STAMP_BYTES <= binlog::PAYLOAD_BYTES_MAX);
const _: () = assert!(MUTATIONS != STAMPED_MUTATIONS);
const _: () = assert!(STAMPED_MUTATIONS < binlog::KIND_MARK, "marks belong to the log");

/// Returns the mutations of a record, and its timestamp if there is one. `None` for other kinds of
/// records.
pub(crate) fn mutations<'a>(record: &Record<'a>) -> Option<(&'a [u8], Option<i64>)> {
    match record.kind {
        MUTATIONS => Some((record.payload, None)),
        STAMPED_MUTATIONS => {
            let (mutations, stamp) = record.payload.split_last_chunk::<STAMP_BYTES>()?;
            Some((mutations, Some(i64::from_le_bytes(*stamp))))
        }
        _ => None,
    }
}
