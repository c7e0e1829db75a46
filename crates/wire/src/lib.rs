//! Encoders and decoders of the server's protocols, for the server's side and the client's.
//!
//! This crate contains no sockets, no clocks and no store: a decoder gets bytes and returns how
//! many it used, an encoder appends to a buffer of its caller. Every limit on a peer's input is a
//! named value, and no input can make a decoder panic or allocate out of proportion to its size.

#![forbid(unsafe_code)]

pub mod cql;
pub mod http;
pub mod rdb;
pub mod replication;
pub mod resp;
