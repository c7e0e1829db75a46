//! Why a step of an import did not succeed.

use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum Failure {
    /// A lost connection or an overloaded server: the step can be repeated.
    #[error("{0}")]
    Transient(String),
    /// A response above the limit of a message: fewer rows may fit.
    #[error("{0}")]
    TooLarge(String),
    /// The server does not execute the statement.
    #[error("{0}")]
    Refused(String),
    #[error("interrupted")]
    Stopped,
    #[error(transparent)]
    Final(#[from] anyhow::Error),
}

impl Failure {
    /// The failure as the end of the import.
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Final(error) => error,
            other => anyhow::anyhow!("{other}"),
        }
    }
}
