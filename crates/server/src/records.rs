//! Kinds of records in the log. The numbers are part of the log's format.

/// One or more mutations that happened as one: see `store::Mutation` for their bytes.
pub(crate) const MUTATIONS: u8 = 1;
