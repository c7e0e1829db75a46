//! The error of a change.

use thiserror::Error;

/// Why a change was rejected. The data is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    #[error("a change that does not fit the data it is applied to")]
    Malformed,
}
