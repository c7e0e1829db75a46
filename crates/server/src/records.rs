//! Kinds of records in the log. The numbers are part of the log's format.

/// One or more mutations that happened as one: see `store::Mutation` for their bytes.
pub(crate) const MUTATIONS: u8 = 1;

/// Longest record that a unit of work may make. Small in unit tests, so that they need not fill a
/// gigabyte.
pub(crate) const RECORD_BYTES_MAX: usize =
    if cfg!(test) { 4 << 20 } else { binlog::PAYLOAD_BYTES_MAX };
