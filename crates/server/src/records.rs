//! Kinds of records in the log. The numbers are part of the log's format.

/// One or more mutations that happened as one: see `store::Mutation` for their bytes.
pub(crate) const MUTATIONS: u8 = 1;

/// Longest record that a request may make, with a margin of 1 MiB for deletions that complete it.
pub(crate) const RECORD_BYTES_MAX: usize = binlog::PAYLOAD_BYTES_MAX - (1 << 20);
