//! CQL's native protocol, versions 3 to 5.
//!
//! The stream of a connection consists of messages with a [`Header`] each; in version 5, after
//! STARTUP, messages are packed into checksummed segments ([`decode_segment`]). Server side:
//! [`decode_request`] borrows a [`Request`] from a body, [`ResponseEncoder`] appends responses.
//! Client side: [`RequestEncoder`] and [`decode_response`]. Bodies may be compressed in versions 3
//! and 4 ([`decompress_body`]), segments in version 5.
//!
//! Errors have three kinds: [`EnvelopeError`] and [`SegmentError`] end the connection,
//! [`MalformedBody`] is answered on its stream.

#[doc(hidden)]
pub mod check;
mod client;
mod compression;
mod envelope;
mod limits;
mod notation;
mod request;
mod request_encoder;
mod response;
mod segment;
mod types;

use std::borrow::Cow;

pub use client::{Metadata, PreparedReply, Response, ResponseNotes, Rows, decode_response};
pub use compression::Compression;
pub use envelope::{Direction, Flags, HEADER_BYTES, Header, Opcode, Version};
pub use limits::{EnvelopeError, Limits, MalformedBody, SegmentError, TYPE_DEPTH_MAX, TooLong};
pub use notation::{BytesMap, Encoded, Notation, Reader, Value};
pub use request::{
    Batch, BatchKind, BatchStatement, Consistency, Extras, OwnedValues, Parameters, Request,
    Statements, Values, decode_request,
};
pub use request_encoder::{ParametersToSend, RequestEncoder, StatementToSend};
pub use response::{
    Column, Columns, EVENT_STREAM, ErrorKind, NodeEvent, Notes, Prepared, ResponseEncoder,
    RowsEncoder, RowsMetadata, SchemaChange, SchemaTarget,
};
pub use segment::{
    PAYLOAD_BYTES_MAX, Payload, Segment, SegmentFormat, decode_segment, encode_segments,
};
pub use types::ColumnType;

/// The body of a message before its compression.
///
/// In version 5 segments are compressed, and the message's flag is ignored.
pub fn decompress_body<'a>(
    header: &Header,
    body: &'a [u8],
    agreed: Option<Compression>,
    limits: &Limits,
) -> Result<Cow<'a, [u8]>, MalformedBody> {
    if header.version == Version::V5 || !header.flags.has(Flags::COMPRESSED) {
        return Ok(Cow::Borrowed(body));
    }
    let compression = agreed.ok_or(MalformedBody::UnexpectedCompression)?;
    compression.decompress(body, limits).map(Cow::Owned)
}

/// Replaces the body of the message that begins at `start` and ends at the end of `out` by its
/// compressed form, if compression was negotiated, the version supports it, and the body is short
/// enough to compress quickly.
fn compress_body(out: &mut Vec<u8>, start: usize, compression: Option<Compression>) {
    let is_v5 = out[start] & 0x7F == Version::V5.number();
    let Some(compression) = compression.filter(|_| !is_v5) else { return };
    if out.len() - start > compression::COMPRESSED_BYTES_MAX {
        return;
    }
    let body = out.split_off(start + HEADER_BYTES);
    // An empty body stays empty: decompressing it would fail.
    if !body.is_empty() {
        compression.compress(&body, out);
        envelope::set_flag(out, start, Flags::COMPRESSED);
    }
}
