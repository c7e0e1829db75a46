//! RESP, the protocol of Redis: versions 2 and 3, and inline commands.
//!
//! Server side: [`RequestDecoder`] turns the bytes of a read into a [`RequestBatch`] of borrowed
//! [`Args`]; [`ReplyWriter`] appends replies, each in the form of the connection's protocol
//! version. Client side: [`encode_request`], [`decode_reply`] and, for clients that only count
//! replies, [`reply_len`].
//!
//! Rules that no specification states are those of Redis 7.0's `networking.c`; the documentation of
//! an item states where it is stricter.

mod batch;
mod big;
#[doc(hidden)]
pub mod check;
mod client;
mod inline;
mod json;
mod limits;
mod long_double;
mod number;
mod reply;
mod request;
mod room;

pub use batch::{Args, ArgsIter, OwnedArgs, RequestBatch, Span};
pub use client::{REPLY_DEPTH_MAX, Reply, decode_reply, encode_request, reply_len};
pub use inline::split_line;
pub use json::{JsonReply, JsonResults, JsonStrings, write_json_text};
pub use limits::{Limits, ProtocolError};
pub use long_double::LongDouble;
pub use number::{double_text, parse_f64, parse_i64_strict, parse_range_end};
pub use reply::{Counted, Protocol, ReplyForm, ReplyMark, ReplyWriter};
pub use request::RequestDecoder;
pub use room::{ReplyMemory, ReplyRoom, SMALL_REPLY_BYTES};
