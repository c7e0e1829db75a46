//! CQL state that all reactors share.

use super::logins::Logins;
use super::pool::Pool;
#[cfg(feature = "experiments")]
use super::processors::Processors;
use super::stored_schema::LastChange;
use super::traces::Traces;
#[cfg(feature = "experiments")]
use crate::config::ProcessorSource;

#[derive(Debug)]
pub(crate) struct CqlState {
    /// The last schema change. Its lock is held while the catalog or the roles change.
    pub(crate) schema: LastChange,
    pub(crate) traces: Traces,
    /// Passwords verified recently.
    pub(crate) logins: Logins,
    #[cfg(feature = "experiments")]
    pub(crate) processors: Processors,
    /// Runs all statements with `reply` pool.
    #[cfg(feature = "experiments")]
    pub(crate) pool: Pool,
    /// Runs requests that need much computation: those with passwords.
    pub(crate) password_pool: Pool,
}

impl CqlState {
    pub(crate) fn new(schema: LastChange) -> CqlState {
        CqlState {
            schema,
            traces: Traces::default(),
            logins: Logins::default(),
            #[cfg(feature = "experiments")]
            processors: Processors::new(ProcessorSource::PerReactor),
            #[cfg(feature = "experiments")]
            pool: Pool::default(),
            password_pool: Pool::default(),
        }
    }

    /// Uses scratch space from `source` instead of the reactors'.
    #[cfg(feature = "experiments")]
    pub(crate) fn with_processors(mut self, source: ProcessorSource) -> CqlState {
        self.processors = Processors::new(source);
        self
    }
}
