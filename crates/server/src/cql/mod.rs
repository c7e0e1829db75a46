//! CQL's native protocol: connections and requests. `statements` executes the statements.
//!
//! `frames` (bytes to messages), `session` (the state of a connection), `handshake` and `auth` (the
//! start of a connection), `logins` (recently verified passwords), `requests` (messages to
//! replies), `request_kind` (requests by opcode), `wire_reply` (the encoding of results),
//! `processor` and `pool` (where requests run), `password_checks` (logins that wait), `parked`
//! (replies that wait for the log), `events` (which events a client wants), `watch` (requests for
//! SLOWLOG and MONITOR), `request_lines` (a log line per request), `traces` (the trace of a
//! request).

mod auth;
mod events;
pub(crate) mod frames;
mod handshake;
mod logins;
mod parked;
mod password_checks;
pub(crate) mod pool;
mod processor;
#[cfg(feature = "experiments")]
mod processors;
pub(crate) mod request_kind;
pub(crate) mod request_lines;
pub(crate) mod requests;
mod session;
mod state;
mod traces;
mod watch;
pub(crate) mod wire_reply;

pub(crate) use session::{Phase, Session, Wait};
pub(crate) use state::CqlState;
