//! Bytes to frames and back: the protocols of the server, for its own side and for a client's.
//!
//! This crate knows no sockets, no clocks and no store: a decoder is given bytes and says how many it
//! used, an encoder appends to a buffer of its caller. Every limit of what a peer may send is a named
//! value, and no input of a peer can make a decoder panic or allocate more than the input deserves.

#![forbid(unsafe_code)]

pub mod cql;
pub mod http;
pub mod resp;
