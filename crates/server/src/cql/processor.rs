//! State that a request uses exclusively while it runs.

use super::state::CqlState;
use crate::engine::commit::Record;
use crate::engine::prepared::StatementCache;

/// Scratch space of a request, and the prepared statements used earlier.
#[derive(Debug, Default)]
pub(crate) struct Processor {
    pub(crate) record: Record,
    pub(crate) known: StatementCache,
}

/// Runs a request with its reactor's processor, or with one from the experiment.
#[inline]
pub(super) fn with_processor<R>(
    #[cfg_attr(not(feature = "experiments"), expect(unused_variables))] cql: &CqlState,
    own: &mut Processor,
    run: impl FnOnce(&mut Processor) -> R,
) -> R {
    #[cfg(feature = "experiments")]
    return cql.processors.with(own, run);
    #[cfg(not(feature = "experiments"))]
    run(own)
}
