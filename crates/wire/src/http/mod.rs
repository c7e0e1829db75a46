//! HTTP/1.1 and HTTP/1.0, for both sides.
//!
//! Server side: [`RequestDecoder`] turns all that a read brought into a [`RequestBatch`] of complete
//! [`Request`]s, body included; [`ResponseWriter`] appends answers. Client side: [`encode_request`],
//! and [`ResponseDecoder`], which gives heads and pieces of bodies as they come.
//!
//! Heads are parsed by `httparse`. What it lets pass and what makes two parsers disagree about where
//! a message ends is refused here: see [`RequestError`]. A refused connection is never read further.

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
