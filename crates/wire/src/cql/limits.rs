//! Limits of messages, and the errors sent when a peer exceeds them.

use thiserror::Error;

use super::envelope::Version;

/// Maximum nesting of types (`list<map<...>>`) in the description of a column.
pub const TYPE_DEPTH_MAX: usize = 64;

/// Limits of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of an envelope, in bytes, compressed or not
    /// (`native_transport_max_frame_size`).
    pub body_bytes_max: usize,
}

impl Limits {
    /// Cassandra's: 256 MiB, which is also the most that the protocol allows.
    // Source: native_protocol_v5.spec 2.4 "length"
    pub const DEFAULT: Self = Self { body_bytes_max: 256 << 20 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bytes that are not an envelope. The rest of the stream cannot be parsed: the peer gets an ERROR
/// with this text and the connection is closed.
///
/// The text for unknown versions is Cassandra's: drivers search it for the version to fall back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// The reply carries the stream id of the request, in the newest version known here.
    #[error(
        "Invalid or unsupported protocol version ({version}); the lowest supported version is \
         {lowest} and the greatest is {greatest}", lowest = Version::LOWEST.number(),
        greatest = Version::GREATEST.number()
    )]
    UnsupportedVersion { version: u8, stream: i16 },
    /// A response where a request is expected, or the reverse.
    #[error("Wrong protocol direction for version byte {0:#04x}")]
    Direction(u8),
    #[error(
        "Invalid message version. Got {got} but previous messages on this connection had version {expected}"
    )]
    VersionChanged { got: Version, expected: Version, stream: i16 },
    #[error("Request is too big: length {length} exceeds maximum allowed length {length_max}.")]
    TooLarge { length: u32, length_max: usize, stream: i16 },
}

impl EnvelopeError {
    /// The stream to answer on.
    pub fn stream(self) -> i16 {
        match self {
            Self::Direction(_) => 0,
            Self::UnsupportedVersion { stream, .. }
            | Self::VersionChanged { stream, .. }
            | Self::TooLarge { stream, .. } => stream,
        }
    }
}

/// A segment that fails its checks: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SegmentError {
    #[error(
        "Unrecoverable CRC mismatch detected in frame header. Read {found:#08x}, Computed {computed:#08x}"
    )]
    HeaderChecksum { found: u32, computed: u32 },
    #[error(
        "Unrecoverable CRC mismatch detected in frame body. Read {found:#010x}, Computed {computed:#010x}"
    )]
    PayloadChecksum { found: u32, computed: u32 },
    #[error("A frame's compressed payload is damaged")]
    Compression,
    /// A self-contained segment that ends inside an envelope, or one not marked as self-contained
    /// that continues after its envelope's end.
    #[error("A frame's envelopes do not end at its end")]
    Containment,
}

/// A body that does not match its opcode. The envelope around it is intact, so the peer gets an
/// ERROR and the connection continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedBody {
    #[error("Not enough bytes in the message's body")]
    Truncated,
    #[error("{0} unexpected bytes after the message's body")]
    Trailing(usize),
    #[error("A length is negative")]
    NegativeLength,
    #[error("Cannot decode string as UTF8")]
    InvalidUtf8,
    #[error("Unknown opcode {0}")]
    UnknownOpcode(u8),
    #[error("Unknown code {0} for a consistency level")]
    UnknownConsistency(u16),
    #[error("Invalid batch message type {0}")]
    UnknownBatchKind(u8),
    #[error("Invalid query kind in BATCH messages. Must be 0 or 1 but got {0}")]
    UnknownStatementKind(u8),
    #[error("Named values are not possible in a BATCH")]
    NamedBatch,
    #[error("A message is compressed, but no compression was agreed on")]
    UnexpectedCompression,
    #[error("A compressed body is damaged or longer than allowed")]
    Compression,
    #[error("Unknown type {0:#06x}")]
    UnknownType(u16),
    #[error("A type has more than {TYPE_DEPTH_MAX} levels")]
    TooDeepType,
    #[error("Unknown kind of result {0}")]
    UnknownResultKind(i32),
    #[error("Unexpected direction of the message")]
    WrongSide,
}

/// A length of a message's content does not fit its length field. No byte was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("could not encode the response: a length of {count} does not fit {bits} bits")]
pub struct TooLong {
    pub count: usize,
    pub bits: u32,
}
