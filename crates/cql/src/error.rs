//! Why a request fails, in the protocol's terms.

use wire::cql::{Consistency, ErrorKind, TooLong};

/// Why a request fails. The texts are Cassandra's where drivers or users depend on them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CqlError {
    #[error("{0}")]
    Syntax(String),
    /// The statement is valid CQL but cannot be executed.
    #[error("{0}")]
    Invalid(String),
    /// An invalid keyspace, or an invalid option of a table.
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    Unauthorized(String),
    #[error("{0}")]
    Protocol(String),
    #[error("{0}")]
    Overloaded(String),
    #[error("{0}")]
    BadCredentials(String),
    #[error("{message}")]
    AlreadyExists { keyspace: String, table: String, message: String },
    #[error("Prepared query with ID {} not found (either the query was not prepared on this host (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted from the internal cache)", base::hex::hex(.0))]
    Unprepared(Vec<u8>),
    #[error("Cannot achieve consistency level {consistency:?}")]
    Unavailable { consistency: Consistency, required: i32, alive: i32 },
    /// A function failed for its arguments.
    #[error("{message}")]
    Failed { function: String, arguments: Vec<String>, message: String },
    /// A write was planned for a table that was altered before the write took its locks. Nothing
    /// was changed; the write is planned again.
    #[error("The table was altered while the statement ran: try again")]
    TableAltered,
    /// Another reactor holds the data. Nothing was changed; the statement runs again later.
    #[error("Another request holds the data: try again")]
    Contended,
    /// A fault of the server, not of the client.
    #[error("{0}")]
    Server(String),
}

impl From<TooLong> for CqlError {
    fn from(error: TooLong) -> CqlError {
        CqlError::Invalid(error.to_string())
    }
}

impl CqlError {
    pub fn invalid(message: impl Into<String>) -> CqlError {
        CqlError::Invalid(message.into())
    }

    /// Name of the error in the counters.
    pub fn name(&self) -> &'static str {
        match self {
            CqlError::Syntax(_) => "CQL_SYNTAX",
            CqlError::Invalid(_) => "CQL_INVALID",
            CqlError::Config(_) => "CQL_CONFIG",
            CqlError::Unauthorized(_) => "CQL_UNAUTHORIZED",
            CqlError::Protocol(_) => "CQL_PROTOCOL",
            CqlError::Overloaded(_) | CqlError::Contended => "CQL_OVERLOADED",
            CqlError::BadCredentials(_) => "CQL_BAD_CREDENTIALS",
            CqlError::AlreadyExists { .. } => "CQL_ALREADY_EXISTS",
            CqlError::Unprepared(_) => "CQL_UNPREPARED",
            CqlError::Unavailable { .. } => "CQL_UNAVAILABLE",
            CqlError::Failed { .. } => "CQL_FUNCTION_FAILURE",
            CqlError::Server(_) | CqlError::TableAltered => "CQL_SERVER",
        }
    }

    /// Code and extra fields.
    pub fn kind(&self) -> ErrorKind<'_> {
        match self {
            CqlError::Syntax(_) => ErrorKind::Syntax,
            CqlError::Invalid(_) => ErrorKind::Invalid,
            CqlError::Config(_) => ErrorKind::Config,
            CqlError::Unauthorized(_) => ErrorKind::Unauthorized,
            CqlError::Protocol(_) => ErrorKind::Protocol,
            CqlError::Overloaded(_) | CqlError::Contended => ErrorKind::Overloaded,
            CqlError::BadCredentials(_) => ErrorKind::BadCredentials,
            CqlError::AlreadyExists { keyspace, table, .. } => {
                ErrorKind::AlreadyExists { keyspace, table }
            }
            CqlError::Unprepared(id) => ErrorKind::Unprepared { id },
            CqlError::Unavailable { consistency, required, alive } => ErrorKind::Unavailable {
                consistency: *consistency,
                required: *required,
                alive: *alive,
            },
            CqlError::Failed { function, arguments, .. } => {
                ErrorKind::FunctionFailure { keyspace: "system", function, arguments }
            }
            CqlError::Server(_) | CqlError::TableAltered => ErrorKind::Server,
        }
    }
}
