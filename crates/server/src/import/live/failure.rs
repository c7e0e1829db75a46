//! Why a live import does not continue.

use std::io;

use thiserror::Error;
use wire::rdb::RdbError;

use crate::import::aof::AofError;

#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The connection can be made again.
    #[error("the connection to the source failed: {0}")]
    Source(io::Error),
    /// The connection can be made again.
    #[error("the connection to the target failed: {0}")]
    Target(io::Error),
    #[error("interrupted")]
    Stopped,
    #[error(transparent)]
    Final(#[from] anyhow::Error),
}

impl From<AofError> for Failure {
    fn from(error: AofError) -> Failure {
        match error {
            AofError::Io(error) => Failure::Source(error),
            other => Failure::Final(anyhow::anyhow!("the stream of the source: {other}")),
        }
    }
}

impl From<RdbError> for Failure {
    fn from(error: RdbError) -> Failure {
        match error {
            RdbError::Io(error) => Failure::Source(error),
            other => Failure::Final(anyhow::anyhow!("the data of the source: {other}")),
        }
    }
}
