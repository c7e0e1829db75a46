//! Limits of messages, and the status sent when a peer exceeds them.

use thiserror::Error;

/// Maximum number of header lines of a message, whatever [`Limits`]: the table of the parser is on
/// the stack.
pub const FIELDS_MAX: usize = 128;
/// Maximum length of a line with the length of a chunk, including extensions and line end.
/// Extensions have no known use.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Bytes of lengths, extensions and line ends that any chunked body may have.
const CHUNK_FRAMING_BYTES_MIN: u64 = 16 << 10;
/// Additional framing bytes per byte of content: a chunk of one byte takes 6 bytes.
const CHUNK_FRAMING_RATIO_MAX: u64 = 8;

const _: () = assert!(CHUNK_LINE_BYTES_MAX > 20, "a length has up to 16 digits");

/// Limits of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest head: request line and header lines up to and including the empty line. The same
    /// limit applies separately to the trailers of a chunked body.
    pub head_bytes_max: usize,
    /// Maximum number of header lines, at most [`FIELDS_MAX`]; the same for trailers.
    pub fields_max: usize,
    /// Longest request target.
    pub target_bytes_max: usize,
    /// Longest body of a request, without the framing of chunks.
    pub body_bytes_max: usize,
}

impl Limits {
    /// Heads of 16 KiB with 100 lines, targets of 8 KiB, bodies of 1 MiB.
    pub const DEFAULT: Self = Self {
        head_bytes_max: 16 << 10,
        fields_max: 100,
        target_bytes_max: 8 << 10,
        body_bytes_max: 1 << 20,
    };

    /// Maximum bytes of one request with all its framing: a bound for the read buffer.
    pub fn request_bytes_max(&self) -> usize {
        let body = self.body_bytes_max as u64;
        let framing = framing_bytes_max(body);
        let heads = 2 * self.head_bytes_max as u64;
        usize::try_from(heads.saturating_add(body).saturating_add(framing)).unwrap_or(usize::MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Maximum bytes of framing for a chunked body of `payload_bytes`.
pub(super) fn framing_bytes_max(payload_bytes: u64) -> u64 {
    CHUNK_FRAMING_BYTES_MIN.saturating_add(payload_bytes.saturating_mul(CHUNK_FRAMING_RATIO_MAX))
}

/// Bytes that are not a request, or that two parsers could interpret differently. No later byte can
/// be trusted: the peer gets [`status`](Self::status) and the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Not a request line, or not header lines: also spaces before a colon, folded lines, control
    /// characters and single CRs in values.
    #[error("malformed request line or header")]
    Malformed,
    /// A line ends with LF alone.
    #[error("a line does not end with CR LF")]
    BareLineFeed,
    #[error("malformed request target")]
    Target,
    /// Missing in HTTP/1.1, repeated, or not a name or address with an optional port.
    #[error("malformed, missing or repeated Host")]
    Host,
    /// Not a number, or given more than once.
    #[error("malformed or repeated Content-Length")]
    ContentLength,
    #[error("both Content-Length and Transfer-Encoding")]
    AmbiguousLength,
    /// `chunked` is missing, not last or repeated, or the message is HTTP/1.0.
    #[error("malformed Transfer-Encoding")]
    TransferEncoding,
    #[error("unknown transfer coding")]
    UnknownCoding,
    /// A length, an extension or a line end of a chunk, or a trailer.
    #[error("malformed chunk")]
    Chunk,
    /// The framing of the chunks outweighs their content.
    #[error("too much framing in a chunked body")]
    ChunkFraming,
    #[error("unknown expectation")]
    Expectation,
    #[error("unsupported HTTP version")]
    Version,
    #[error("too long request target")]
    TargetTooLong,
    #[error("too large request head")]
    HeadTooLarge,
    #[error("too large request body")]
    BodyTooLarge,
}

impl RequestError {
    /// The status to answer with.
    // Source: RFC 9110 15.5, 15.6; RFC 6585 5 (431)
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed
            | Self::BareLineFeed
            | Self::Target
            | Self::Host
            | Self::ContentLength
            | Self::AmbiguousLength
            | Self::TransferEncoding
            | Self::Chunk
            | Self::ChunkFraming => 400,
            Self::BodyTooLarge => 413,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::UnknownCoding => 501,
            Self::Version => 505,
        }
    }
}
