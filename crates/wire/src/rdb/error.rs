//! Why bytes are not RDB.

use std::io;

use thiserror::Error;

/// Why a file or payload cannot be read. Offsets are in bytes from its beginning.
#[derive(Debug, Error)]
pub enum RdbError {
    #[error("{0}")]
    Io(io::Error),
    #[error("the data ends at offset {offset}, in the middle of a value")]
    Truncated { offset: u64 },
    #[error("the file does not begin with REDIS or VALKEY and a version")]
    NoHeader,
    #[error("{magic} version {number} of the format is unknown")]
    UnknownVersion { magic: &'static str, number: u32 },
    #[error("malformed at offset {offset}: {what}")]
    Malformed { offset: u64, what: &'static str },
    /// Valid in another server, but its length is unknown here, so that nothing after it can be
    /// read.
    #[error("unsupported at offset {offset}: {what}")]
    Unsupported { offset: u64, what: String },
    #[error("a value has more bytes than allowed, at offset {offset}")]
    TooLarge { offset: u64 },
    #[error("a string is longer than allowed, at offset {offset}")]
    TooLong { offset: u64 },
    #[error("a value has more elements than allowed, at offset {offset}")]
    TooMany { offset: u64 },
    #[error("wrong checksum: the file is damaged")]
    WrongChecksum,
}
