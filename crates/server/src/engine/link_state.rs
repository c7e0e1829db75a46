//! A connection to another server whose writes this server follows.

use wire::replication::EpochId;

/// State of the connection to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LinkState {
    #[default]
    Connecting,
    Copying,
    Connected,
}

/// What a reader has: the epoch of its last record, and that record's end. `None`: nothing.
pub(crate) type Request = Option<(EpochId, u64)>;
