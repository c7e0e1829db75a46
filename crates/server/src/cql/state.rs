//! What all reactors share for CQL alone.

use super::logins::Logins;
use super::pool::Pool;
use super::processor::Processors;
use super::stored_schema::LastChange;
use super::traces::Traces;
use crate::config::ProcessorSource;

#[derive(Debug)]
pub(crate) struct CqlState {
    /// Its lock is held while the catalog or the roles change.
    pub(crate) schema: LastChange,
    pub(crate) traces: Traces,
    /// Passwords verified recently.
    pub(crate) logins: Logins,
    pub(crate) processors: Processors,
    /// Runs all statements with `reply` pool.
    pub(crate) pool: Pool,
    /// Runs requests that compute for long: those with passwords.
    pub(crate) password_pool: Pool,
}

impl CqlState {
    pub(crate) fn new(schema: LastChange, source: ProcessorSource) -> CqlState {
        CqlState {
            schema,
            traces: Traces::default(),
            logins: Logins::default(),
            processors: Processors::new(source),
            pool: Pool::default(),
            password_pool: Pool::default(),
        }
    }
}
