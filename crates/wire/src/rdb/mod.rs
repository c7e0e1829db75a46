//! Redis's RDB format: files, and the payloads of DUMP.
//!
//! Reads every version up to 12 of Redis (7.4, 8.0) and 80 and 81 of Valkey, with all encodings.
//! Writes version 10, which Redis 7.0 and all later servers load, with the simple encodings.
//!
//! Nothing is allocated for a length alone: a reader grows its buffers as the bytes arrive,
//! and compressed strings are refused if they cannot be as long as they claim.
//!
//! Source: Redis 7.2 `rdb.c` and `rdb.h`; Valkey 9.0 `rdb.h` for versions from 80 on

#[doc(hidden)]
pub mod check;
mod checksum;
mod error;
mod file;
mod input;
mod lzf;
mod packed;
mod payload;
mod stream;
mod stream_write;
mod strings;
mod value;
mod version;
mod write;

pub use error::RdbError;
pub use file::{Entry, FileReader, Item};
pub use input::Limits;
pub use payload::{
    FunctionsError, PayloadError, decode_functions, decode_payload, end_payload, put_function,
};
pub use stream::{Consumer, Group, Pending, Stream, StreamEntry, StreamId};
pub use stream_write::put_stream;
pub use strings::Strings;
pub use value::Value;
pub use version::Version;
pub use write::{
    FileEncoder, Written, put_length, put_pairs, put_scored, put_string, put_strings,
    put_timed_pairs,
};

#[cfg(test)]
mod tests;
