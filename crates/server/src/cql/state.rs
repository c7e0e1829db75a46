//! What all reactors share for CQL alone.

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
    /// Its lock is held while the catalog or the roles change.
    pub(crate) schema: LastChange,
    pub(crate) traces: Traces,
    /// Passwords verified recently.
    pub(crate) logins: Logins,
    #[cfg(feature = "experiments")]
    pub(crate) processors: Processors,
    /// Runs all statements with `reply` pool.
    #[cfg(feature = "experiments")]
    pub(crate) pool: Pool,
    /// Runs requests that compute for long: those with passwords.
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

    /// With scratch space from elsewhere than the reactors.
    #[cfg(feature = "experiments")]
    pub(crate) fn with_processors(mut self, source: ProcessorSource) -> CqlState {
        self.processors = Processors::new(source);
        self
    }
}
