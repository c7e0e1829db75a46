//! State of statements that all reactors share, besides the catalog and the roles.

use super::stored_schema::LastChange;
use super::traces::Traces;

#[derive(Debug)]
pub(crate) struct StatementState {
    /// The last schema change. Its lock is held while the catalog or the roles change.
    pub(crate) schema: LastChange,
    pub(crate) traces: Traces,
}

impl StatementState {
    pub(crate) fn new(schema: LastChange) -> StatementState {
        StatementState { schema, traces: Traces::default() }
    }
}
