//! Limits of requests and replies, and the errors sent when a peer exceeds them.

use thiserror::Error;

/// Limits of one request.
///
/// Lengths of 4 GiB and more are rejected whatever the limits: positions are 32 bits wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string, in bytes (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Maximum number of arguments of a request, including the name.
    pub args_max: usize,
    /// Longest inline request and longest length line, in bytes.
    pub inline_bytes_max: usize,
    /// False while the peer must still authenticate: a request above the limits, but within
    /// [`Limits::DEFAULT`], then gets an error that names authentication as the reason.
    pub authenticated: bool,
}

impl Limits {
    /// Redis's limits: bulk strings of 512 MiB, 1,048,576 arguments, inline requests of 64 KiB.
    pub const DEFAULT: Self = Self {
        bulk_bytes_max: 512 << 20,
        args_max: 1 << 20,
        inline_bytes_max: 64 << 10,
        authenticated: true,
    };

    /// What Redis accepts before authentication: 10 arguments of 16 KiB, enough for AUTH and HELLO,
    /// but too little to fill the server's memory.
    pub const UNAUTHENTICATED: Self =
        Self { bulk_bytes_max: 16 << 10, args_max: 10, authenticated: false, ..Self::DEFAULT };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bytes that are not RESP, or that exceed the limits. The rest of the stream cannot be parsed: the
/// peer gets the text after `-ERR ` and the connection is closed.
///
/// The texts of request errors are Redis's, as clients and test suites compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// Text after `*` that is not a number, or a number above `args_max`.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// `*` announces more arguments than a peer may send before it authenticates.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// Text after `$` that is not a number, a negative number, or one above `bulk_bytes_max`.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// `$` announces more bytes than a peer may send before it authenticates.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// An argument starts with a byte other than `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    /// The line after `*` is longer than `inline_bytes_max`.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line after `$` is longer than `inline_bytes_max`.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// A request that is not an array is longer than `inline_bytes_max`.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// A quoted argument of an inline request has no end, or does not end at a space.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A reply starts with a byte that names no type of RESP2 or RESP3.
    #[error("Protocol error: unknown reply type '{}'{}", .0.escape_ascii(), hint(*.0))]
    UnknownReplyType(u8),
    /// A reply's number, length or payload does not match its type.
    #[error("Protocol error: invalid reply")]
    InvalidReply,
    /// A reply's line is longer than a line may be.
    #[error("Protocol error: too long reply line")]
    TooLongReplyLine,
    /// A reply has more levels than [`REPLY_DEPTH_MAX`](super::REPLY_DEPTH_MAX).
    #[error("Protocol error: too deep reply")]
    TooDeepReply,
}

/// What the first byte of a reply suggests.
// Source: RFC 8446 5.1, types of records: alert, handshake
fn hint(first: u8) -> &'static str {
    if matches!(first, 21 | 22) { "; the peer may expect TLS" } else { "" }
}
