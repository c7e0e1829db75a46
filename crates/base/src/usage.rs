//! The error of a command line or configuration that cannot be used: programs exit with status 2.

use std::fmt;

/// A wrong command line or configuration, in the operator's words: names the option or the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    /// The message contains all of `error`, so the chain ends here.
    pub fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}
