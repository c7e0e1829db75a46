//! State of the protocol that all reactors share.

use std::sync::Arc;

use super::logins::Logins;
use super::pool::Pool;
#[cfg(feature = "experiments")]
use super::processors::Processors;
#[cfg(feature = "experiments")]
use crate::config::ProcessorSource;
use crate::statements::StatementState;

#[derive(Debug)]
pub(crate) struct CqlState {
    /// What statements of all protocols share.
    pub(crate) statements: Arc<StatementState>,
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
    pub(crate) fn new(statements: Arc<StatementState>) -> CqlState {
        CqlState {
            statements,
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
