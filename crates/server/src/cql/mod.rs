//! CQL connections, and the execution of CQL statements. The crate `cql` implements the language
//! itself.
//!
//! `engine` (the requests of a session), `execute` (plans on the store), `stored_schema` and
//! `schema_change` (schema and roles in the store and in the log), `virtual_tables` (computed tables).
//!
//! The connection side: `frames` (bytes to messages), `session` (the state of a connection),
//! `handshake` and `auth` (the start of a connection), `logins` (recently verified passwords),
//! `requests` (messages to replies), `prepared` (statements by id), `processor` and `pool` (where
//! requests run), `parked` (replies that wait for the log), `scan_queue` (paused reads), `reply`
//! (the encoding of results), `events` (schema events for clients), `watch` (requests for SLOWLOG
//! and MONITOR), `request_lines` (a log line per request), `traces` (the trace of a request).

pub(crate) mod auth;
pub(crate) mod events;
pub(crate) mod execute;
pub(crate) mod executor;
pub(crate) mod frames;
mod handshake;
pub(crate) mod logins;
mod parked;
mod password_checks;
pub(crate) mod pool;
pub(crate) mod processor;
#[cfg(feature = "experiments")]
mod processors;
pub(crate) mod reply;
pub(crate) mod request_kind;
pub(crate) mod request_lines;
pub(crate) mod requests;
pub(crate) mod scan_queue;
pub(crate) mod schema_change;
mod session;
mod state;
pub(crate) mod stored_schema;
pub(crate) mod traces;
pub(crate) mod virtual_tables;
mod watch;

pub(crate) use session::{Phase, Session, Wait};
pub(crate) use state::CqlState;
