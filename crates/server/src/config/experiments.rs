//! Experiment switches, available only in builds with the feature `experiments`.
//!
//! They measure the cost of alternative designs, and some of them lose data. In other builds the
//! options are unknown, and the methods here return constants, so that the compiler removes the
//! branches that depend on them.

#[cfg(feature = "experiments")]
use options::choice;

#[cfg(feature = "experiments")]
choice! {
    /// Where a CQL request gets its scratch space and prepared statements.
    ProcessorSource {
        /// Owned by the reactor: nothing is shared.
        PerReactor = "per-reactor",
        /// One of 256, in turn.
        Rr256 = "rr256",
        /// The first of a list protected by one lock.
        Mutex = "mutex",
    }
}

#[cfg(feature = "experiments")]
choice! {
    /// Which thread runs CQL statements.
    ReplyPath {
        /// The reactor that read the request.
        Direct = "direct",
        /// A pool of threads with one queue.
        Pool = "pool",
    }
}

/// Values of other options that only experiments use: the reference page omits them.
pub(super) const WORDS: &[&str] = &["hash"];

/// Values of the options in the section of experiments.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(not(feature = "experiments"), derive(Default))]
pub struct Experiments {
    #[cfg(feature = "experiments")]
    pub num_connections_to_server: usize,
    #[cfg(feature = "experiments")]
    pub memory_tracking: bool,
    #[cfg(feature = "experiments")]
    pub processor: ProcessorSource,
    #[cfg(feature = "experiments")]
    pub reply: ReplyPath,
    #[cfg(feature = "experiments")]
    pub reply_pool_threads: usize,
    #[cfg(feature = "experiments")]
    pub cql_service_queue_length: usize,
    #[cfg(feature = "experiments")]
    pub stub: usize,
}

#[cfg(feature = "experiments")]
impl Default for Experiments {
    fn default() -> Self {
        Self {
            num_connections_to_server: 8,
            memory_tracking: true,
            processor: ProcessorSource::PerReactor,
            reply: ReplyPath::Direct,
            reply_pool_threads: 0,
            cql_service_queue_length: 10_000,
            stub: 0,
        }
    }
}

#[cfg(feature = "experiments")]
impl Experiments {
    /// Stage at which prepared CQL statements are answered early. 0: after they have run and are
    /// logged.
    #[inline]
    pub(crate) fn stub(&self) -> usize {
        self.stub
    }

    /// Whether memory is counted.
    #[inline]
    pub(crate) fn counts_memory(&self) -> bool {
        self.memory_tracking
    }

    /// Whether CQL statements run on a pool of threads instead of on reactors.
    #[inline]
    pub(crate) fn replies_by_pool(&self) -> bool {
        self.reply == ReplyPath::Pool
    }
}

#[cfg(not(feature = "experiments"))]
#[expect(clippy::unused_self, reason = "called in the same way with the feature")]
impl Experiments {
    #[inline]
    pub(crate) fn stub(&self) -> usize {
        0
    }

    #[inline]
    pub(crate) fn counts_memory(&self) -> bool {
        true
    }

    #[inline]
    pub(crate) fn replies_by_pool(&self) -> bool {
        false
    }
}
