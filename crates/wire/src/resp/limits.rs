//! What a peer may send, and how it is told that it sent something else.

use thiserror::Error;

/// Limits of what a peer may send in one request.
///
/// Lengths of 4 GiB and more are refused whatever the limits say: positions are 32 bits wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string, in bytes (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Most arguments of a request, its name included.
    pub args_max: usize,
    /// Longest inline request and longest length line, in bytes.
    pub inline_bytes_max: usize,
    /// False where the peer has yet to authenticate: what is above the limits, but would be allowed by
    /// [`Limits::DEFAULT`], is then refused with the words that say so.
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

    /// What Redis takes before authentication: 10 arguments of 16 KiB, enough for AUTH and HELLO, too
    /// little to fill the memory of a server that does not know its peer.
    pub const UNAUTHENTICATED: Self =
        Self { bulk_bytes_max: 16 << 10, args_max: 10, authenticated: false, ..Self::DEFAULT };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bytes that are not RESP, or more of them than the limits allow. The stream cannot be read any
/// further: the peer gets the text after `-ERR ` and the connection is closed.
///
/// The texts of request errors are Redis's, as clients and test suites compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// `*` is followed by something that is no number, or by one above `args_max`.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// `*` is followed by more arguments than a peer may send before it authenticates.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// `$` is followed by something that is no number, a negative one, or one above `bulk_bytes_max`.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// `$` announces more bytes than a peer may send before it authenticates.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// An argument starts with another byte than `$`.
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
    #[error("Protocol error: unknown reply type '{}'", char::from(*.0))]
    UnknownReplyType(u8),
    /// A reply's number, length or payload is not what its type says.
    #[error("Protocol error: invalid reply")]
    InvalidReply,
    /// A reply's line is longer than a line may be.
    #[error("Protocol error: too long reply line")]
    TooLongReplyLine,
    /// A reply has more levels than [`REPLY_DEPTH_MAX`](super::REPLY_DEPTH_MAX).
    #[error("Protocol error: too deep reply")]
    TooDeepReply,
}
