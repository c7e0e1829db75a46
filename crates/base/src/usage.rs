//! The error of an invalid command line or configuration: programs exit with status 2.

use std::fmt;

/// An invalid command line or configuration, in the operator's terms: names the option or the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    /// The message contains the whole chain of `error`, so the chain ends here.
    pub fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}
