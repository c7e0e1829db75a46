//! HTTP/1.1 and HTTP/1.0, for both sides.
//!
//! Server side: [`RequestDecoder`] turns the bytes of a read into a [`RequestBatch`] of complete
//! [`Request`]s, including bodies; [`ResponseWriter`] appends answers. Client side:
//! [`encode_request`], and [`ResponseDecoder`], which returns heads and pieces of bodies as they
//! arrive.
//!
//! Heads are parsed by `httparse`. Input that `httparse` accepts but that makes two parsers
//! disagree about the end of a message is rejected here: see [`RequestError`]. A rejected
//! connection is not read further.

mod batch;
#[doc(hidden)]
pub mod check;
mod chunked;
mod client;
mod fields;
mod limits;
mod request;
mod response;

pub use batch::{Fields, Method, Request, RequestBatch};
pub use client::{Event, ResponseDecoder, ResponseError, ResponseHead, encode_request};
pub use limits::{CHUNK_LINE_BYTES_MAX, FIELDS_MAX, Limits, RequestError};
pub use request::RequestDecoder;
pub use response::{CONTINUE, ResponseWriter, reason, write_chunk, write_last_chunk};
