//! The Cassandra query language.
//!
//! Reading order: `lexer` (text to tokens), `parser` (the cursor over them), `type_name`, `term` and
//! `relation` (what statements are made of), `statements` (one file and one row each); `types` (names
//! looked up), `value` (bytes, text, order), `token` (the place on the ring); `schema` (what keyspaces,
//! tables and types there are); `roles` (who may do what); `virtual_tables` (tables that are computed); `expression` and `function` (terms with their types, and what they come
//! to); `plan` (statements with all names looked up), `execute` (plans on the store), `engine` (what a
//! session asks of both); `error` (why a request fails).
//!
//! The connection's side: `frames` (bytes to messages), `session` (what a connection remembers),
//! `handshake` and `auth` (how it begins), `requests` (messages to replies), `prepared` (statements by
//! id), `processor` and `pool` (where requests run), `parked` (replies that wait for the log), `walks`
//! (long reads, piece by piece), `events` (what clients are told without asking), `watch` (what SLOWLOG
//! and MONITOR see), `request_lines` (a line per request), `traces` (what became of a request).

pub(crate) mod auth;
#[doc(hidden)]
pub mod check;
pub(crate) mod engine;
pub mod error;
pub(crate) mod events;
pub(crate) mod execute;
pub mod expression;
pub(crate) mod frames;
pub mod function;
mod handshake;
pub mod lexer;
mod markdown;
mod parked;
pub mod parser;
mod password_checks;
mod plan;
pub(crate) mod pool;
pub(crate) mod prepared;
pub(crate) mod processor;
pub mod relation;
pub(crate) mod request_kind;
pub(crate) mod request_lines;
pub(crate) mod requests;
pub mod roles;
pub mod schema;
mod session;
pub mod statements;
pub mod term;
pub mod token;
pub(crate) mod traces;
pub mod type_name;
pub mod type_size;
pub mod types;
pub mod value;
pub(crate) mod virtual_tables;
pub(crate) mod walks;
mod watch;

pub use markdown::markdown;
pub(crate) use session::{Phase, Session, Wait};
